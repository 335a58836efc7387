"""Many Originals to Synthetic: the sampler of `shoal.device.randomize`, on arrays.

There is no branch and no look-up that depends on data, the noise is drawn before the original is
touched, and the work is the same whatever the original holds.

Where the C kernel is there and the bits come from the system, it makes the same bytes from the same
keys, block for block, without writing the random bits to memory (`shoal.support.kernels`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shoal.device.arrays.domain import check_domain
from shoal.device.arrays.vectors import Original
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Plan
from shoal.protocol.random_bits import RandomBits, SystemBits
from shoal.protocol.vectors import Synthetic, padding_mask
from shoal.support.kernels import Kernels, load_kernels

__all__ = ["fill_flips", "randomize_rows"]

_WORDS = 16384
"""Noise words made at a time: 128 KiB, times the digits of q it stays in the cache."""

Bytes = NDArray[np.uint8]


def randomize_rows(
    original: Original, plan: Plan | FlipProbability, random_bits: RandomBits
) -> Synthetic:
    """Flip each bit of each vector with probability q."""
    if isinstance(plan, Plan):
        check_domain(original.rows, plan.survey)
    q = plan.q if isinstance(plan, Plan) else plan
    truth = np.ascontiguousarray(original.rows).reshape(-1)
    out = np.empty_like(truth)
    kernels = load_kernels()
    if kernels is not None and kernels.aes and type(random_bits) is SystemBits:
        _flip_with_kernel(truth, out, q, random_bits, kernels)
    else:
        _flip(truth, out, q, random_bits)
    rows = out.reshape(original.rows.shape)
    if original.bits % 8:
        rows[:, -1] &= padding_mask(original.bits)
    return Synthetic(rows, original.bits, random_bits.simulated, original.cohorts)


def _flip(truth: Bytes, out: Bytes, q: FlipProbability, random_bits: RandomBits) -> None:
    noise = np.empty(min(_WORDS * 8, -(-truth.size // 8)), np.uint64)
    step = noise.size * 8
    for start in range(0, truth.size, step or 1):
        piece = truth[start : start + step]
        words = noise[: -(-piece.size // 8)]
        fill_flips(words, q, random_bits)
        np.bitwise_xor(piece, words.view(np.uint8)[: piece.size], out=out[start : start + step])


def _flip_with_kernel(
    truth: Bytes, out: Bytes, q: FlipProbability, random_bits: SystemBits, kernels: Kernels
) -> None:
    digits = bytes(q.binary_digits())
    source, target = truth.ctypes.data, out.ctypes.data
    for start in range(0, truth.size, _WORDS * 8):  # as many words under one key as above
        size = min(_WORDS * 8, truth.size - start)
        kernels.randomize(random_bits.key(), digits, source + start, target + start, size)


def fill_flips(out: NDArray[np.uint64], q: FlipProbability, random_bits: RandomBits) -> None:
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
