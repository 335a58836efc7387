"""The device: the only place where an `Original` exists.

An answer is encoded, randomized once, and sent as often as it takes.
"""
