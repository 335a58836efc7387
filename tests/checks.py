"""The judge of samplers: p-values that convict a randomizer that does not do what it says.

Every check draws with `shoal.device.randomize.flip` as it is at that moment, so that the honest
sampler and the mutants of `test_randomize.py` stand before the same judge. A p-value is exact:
the smallest two-sided binomial one, times how many were looked at (Bonferroni), at most 1. An
honest sampler gets below `alarm` with probability at most `alarm`.
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from shoal.analysis.count_table import unpack
from shoal.device import randomize as sampler
from shoal.device.arrays.randomize import Original, pack
from shoal.protocol.flip_probability import FlipProbability

ALARM = 1e-13
"""Each check convicts below this p-value. The suite uses fewer than 1000 of them."""


def two_sided(
    counts: NDArray[np.int64] | int, trials: NDArray[np.int64] | int, rate: float
) -> NDArray[np.float64]:
    """Exact two-sided p-values of binomial counts."""
    low, high = binom.cdf(counts, trials, rate), binom.sf(np.asarray(counts) - 1, trials, rate)
    return np.asarray(np.minimum(1.0, 2 * np.minimum(low, high)))


def bonferroni(*p_values: NDArray[np.float64]) -> float:
    together = np.concatenate([np.ravel(p) for p in p_values])
    return float(min(1.0, together.min() * together.size))


def flips(original: NDArray[np.bool_], q: FlipProbability) -> NDArray[np.bool_]:
    """Randomize vectors and say which bits changed."""
    bits = original.shape[1]
    synthetic = sampler.flip(q, Original(pack(original), bits))
    assert synthetic.bits == bits
    assert synthetic.rows.shape == (len(original), -(-bits // 8))
    return np.asarray(unpack(synthetic.rows, bits) != original)


def law(q: FlipProbability, bits: int, reports: int = 20_000) -> float:
    """Every original of a few bits: each output has the probability q^flips (1-q)^(bits-flips)."""
    flip = float(q)
    p_values = []
    for value in itertools.product((False, True), repeat=bits):
        changed = flips(np.tile(np.array(value), (reports, 1)), q)
        codes = changed @ (1 << np.arange(bits))
        seen = np.bincount(codes, minlength=1 << bits)
        weight = np.bitwise_count(np.arange(1 << bits))
        for count, flipped in zip(seen, weight, strict=True):
            rate = flip ** int(flipped) * (1 - flip) ** (bits - int(flipped))
            p_values.append(two_sided(count, reports, rate))
    return bonferroni(*p_values)


def rates(q: FlipProbability, bits: int, reports: int = 2_000) -> float:
    """Each position, whether it was 0 or 1, is flipped at rate q; so are all together."""
    p_values = []
    for value in (False, True):
        changed = flips(np.full((reports, bits), value), q)
        p_values.append(two_sided(changed.sum(axis=0), reports, float(q)))
        p_values.append(np.atleast_1d(two_sided(changed.sum(), changed.size, float(q))))
    return bonferroni(*p_values)


def independence(q: FlipProbability, bits: int, reports: int = 4_000) -> float:
    """Bits j and j + step, and neighbouring rows, are flipped together at rate q squared."""
    rate = float(q.fraction**2)
    changed = flips(np.zeros((reports, bits), bool), q)
    p_values = []
    for step in (1, 2, 7, 8, 9, 16, 32, 64):
        if step < bits:
            both = (changed[:, :-step] & changed[:, step:]).sum(axis=0)
            p_values.append(two_sided(both, reports, rate))
    for apart in (1, 2, 8):
        # Disjoint pairs of rows, so that the counts are binomial.
        first = np.arange(reports - apart)
        first = first[first // apart % 2 == 0]
        rows = changed[first] & changed[first + apart]
        p_values.append(two_sided(rows.sum(axis=0), len(first), rate))
        p_values.append(np.atleast_1d(two_sided(rows.sum(), rows.size, rate)))
    return bonferroni(*p_values)


def fresh(q: FlipProbability, bits: int = 64, reports: int = 64) -> float:
    """Two runs on the same originals differ, as often as two independent flips do."""
    original = np.zeros((reports, bits), bool)
    differ = flips(original, q) != flips(original, q)
    rate = float(2 * q.fraction * (1 - q.fraction))
    return bonferroni(np.atleast_1d(two_sided(differ.sum(), differ.size, rate)))
