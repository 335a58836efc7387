"""Many reports at once: the same verbs on arrays, for files, tables and simulations.

These modules use NumPy and pyarrow. One report needs neither, so the rest of `shoal.device` imports
them only for many answers.
"""
