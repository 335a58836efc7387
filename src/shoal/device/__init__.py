"""The device: the only place where true answers exist.

An answer is encoded, randomized once, and sent as often as it takes. One report needs the standard
library and `cryptography`; `shoal.device.arrays` does the same for many, with NumPy and pyarrow.
"""
