"""Original to Synthetic: every bit is flipped with probability q, independently of all others.

The sampler is exact. With q = 0.d1 d2 ... dk in binary and fair bits r1 ... rk, it computes
[U < q] for the uniform number U = 0.(1-r1)(1-r2)...(1-rk), from the least significant digit on:

    x = 0;   for j = k, ..., 1:   x = (x | rj) if dj is 1 else (x & rj)

on 64 bits at a time. There is no branch and no look-up that depends on data, the noise is drawn
before the original is touched, and the work is the same whatever the original holds. One report on
a device and ten million rows in bulk go through the same code.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shoal.agreement.flip_probability import FlipProbability
from shoal.agreement.plan import Plan
from shoal.agreement.random_bits import RandomBits, SystemBits
from shoal.agreement.vectors import Original, Synthetic, padding_mask
from shoal.device.domain import check_domain
from shoal.errors import InputError

__all__ = ["draw_flips", "randomize"]

_WORDS = 16384
"""Noise words made at a time: 128 KiB, times the digits of q it stays in the cache."""

_SYSTEM_BITS = SystemBits()


def randomize(
    original: Original, plan: Plan | FlipProbability, *, random_bits: RandomBits | None = None
) -> Synthetic:
    """Flip each bit of each vector with probability q.

    Parameters
    ----------
    original
        Vectors as `shoal.encode` makes them; they are not changed.
    plan
        The plan that the vectors are for, or just its flip probability. A vector outside the plan's
        domain, such as two options of a choice, is refused: the plan's noise does not hide it. A
        flip probability alone has no domain, and no promise. Whether the plan keeps its promise is
        not computed here: `shoal.Outbox` and the commands do that before the first answer.
    random_bits
        Where the noise comes from. Leave it out: the operating system is the right source. What a
        `SimulationBits` makes is marked as simulated.

    Examples
    --------
    >>> from shoal import Flags, FlipProbability, Original, SimulationBits
    >>> original = Original(np.zeros((1000, 5), np.uint8), bits=40)
    >>> synthetic = randomize(original, FlipProbability.at_least(0.25))
    >>> synthetic
    Synthetic(1000 x 40 bits)
    >>> bool(0.2 < np.bitwise_count(synthetic.rows).sum() / 40_000 < 0.3)
    True
    """
    if not isinstance(original, Original):
        raise InputError(f"randomize takes an Original, got {type(original).__name__}.")
    if isinstance(plan, Plan):
        if plan.bits != original.bits:
            raise InputError(f"the plan has {plan.bits} bits, the original {original.bits}.")
        check_domain(original.rows, plan.survey)
    q = plan.q if isinstance(plan, Plan) else plan
    source = _SYSTEM_BITS if random_bits is None else random_bits
    truth = np.ascontiguousarray(original.rows).reshape(-1)
    out = np.empty_like(truth)
    noise = np.empty(min(_WORDS * 8, -(-truth.size // 8)), np.uint64)
    step = noise.size * 8
    for start in range(0, truth.size, step or 1):
        piece = truth[start : start + step]
        words = noise[: -(-piece.size // 8)]
        draw_flips(words, q, source)
        np.bitwise_xor(piece, words.view(np.uint8)[: piece.size], out=out[start : start + step])
    rows = out.reshape(original.rows.shape)
    if original.bits % 8:
        rows[:, -1] &= padding_mask(original.bits)
    return Synthetic(rows, original.bits, source.simulated, original.cohorts)


def draw_flips(out: NDArray[np.uint64], q: FlipProbability, random_bits: RandomBits) -> None:
    """Fill `out` with bits that are each set with probability exactly q."""
    digits = q.binary_digits()
    fair = np.empty((len(digits), min(_WORDS, out.size)), np.uint64)
    for start in range(0, out.size, _WORDS):
        flips = out[start : start + _WORDS]
        words = (
            fair if flips.size == fair.shape[1] else np.empty((len(digits), flips.size), np.uint64)
        )
        random_bits.fill(words)
        flips[:] = words[0]  # the last digit is 1, since the fraction is in lowest terms
        for digit, word in zip(digits[1:], words[1:], strict=True):
            (np.bitwise_or if digit else np.bitwise_and)(flips, word, out=flips)
