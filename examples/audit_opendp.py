"""Audit OpenDP's randomizer for bit vectors.

Run ``shoal audit --randomizer audit_opendp:randomizer --q 0.25 --flags 16 --samples 4000`` in
this folder.

OpenDP calls f = 2q, packs whole bytes, and takes one record at a time.
"""

import numpy as np
import opendp.prelude as dp

dp.enable_features("contrib")

Q = 0.25


def randomizer(row):
    """Randomize one row of bits; its length must be a multiple of 8."""
    measure = dp.m.make_randomized_response_bitvec(
        dp.bitvector_domain(max_weight=len(row)), dp.discrete_distance(), f=2 * Q
    )
    packed = np.packbits(row, bitorder="little").tobytes()
    return np.unpackbits(np.frombuffer(measure(packed), np.uint8), bitorder="little")
