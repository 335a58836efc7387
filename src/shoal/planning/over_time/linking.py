"""Whether two reports can be seen to come from one device.

A permanent vector that is sent as it is names its sender: two equal vectors of many bits do not
come from two people. The fresh flips on top are there to hide that.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from shoal.protocol.plan import LARGEST_CROWD, Memory
from shoal.support.checks import check_integer

__all__ = ["linking_probability"]

_MOST_BITS = 256


def linking_probability(bits: int, memory: Memory, crowd_size: int) -> float:
    """Return how often two reports of one device are found to belong together.

    Somebody holds one report and looks for the other report of its sender among `crowd_size`. All
    senders have the same answer and the attacker knows it, so that only the permanent flips tell
    them apart; the attacker takes the most likely report, and one of them at random where several
    are. The value is exact for up to 256 bits; beyond, 1 is returned, an upper bound. People whose
    answers differ are found more easily, with memory and without it.

    Guessing succeeds with probability 1 / crowd_size; with q2 = 0 a long vector is always found.

    Examples
    --------
    >>> from shoal.protocol.flip_probability import FlipProbability
    >>> memory = Memory(FlipProbability(1, 3), FlipProbability(1, 3))
    >>> [round(linking_probability(bits, memory, 1000), 4) for bits in (5, 40)]
    [0.0046, 0.1528]
    """
    check_integer("bits", bits, lowest=1)
    check_integer("crowd_size", crowd_size, lowest=1, highest=LARGEST_CROWD)
    if bits > _MOST_BITS:
        return 1.0
    q, q1, q2 = float(memory.q), float(memory.q1), float(memory.q2)
    # Probabilities of a second flip after a first flip, and after a first truth.
    flip_again = ((1 - q1) * q2**2 + q1 * (1 - q2) ** 2) / q
    flip_now = q2 * (1 - q2) / (1 - q)
    weights = _binomial(bits, q)
    total = 0.0
    for flips in range(bits + 1):
        rest = bits - flips
        i, j = np.arange(flips + 1), np.arange(rest + 1)
        scores = np.add.outer(
            i * math.log(flip_again / q) + (flips - i) * math.log((1 - flip_again) / (1 - q)),
            j * math.log(flip_now / q) + (rest - j) * math.log((1 - flip_now) / (1 - q)),
        )
        own = np.outer(_binomial(flips, flip_again), _binomial(rest, flip_now))
        other = np.outer(_binomial(flips, q), _binomial(rest, q))
        _, place = np.unique(np.round(scores, 9), return_inverse=True)
        mine = np.bincount(place.ravel(), own.ravel())
        equal = np.bincount(place.ravel(), other.ravel()).astype(np.float64)
        above = np.append(np.cumsum(equal[::-1])[::-1][1:], 0.0)
        total += weights[flips] * float(mine @ _chance_to_win(above, equal, crowd_size))
    return min(float(total), 1.0)


def _chance_to_win(
    above: NDArray[np.float64], equal: NDArray[np.float64], crowd_size: int
) -> NDArray[np.float64]:
    """Return P(no other scores higher, and the draw among equals is won).

    With b the chance that another one scores equal and a that it scores less, that is the sum over
    k of C(n,k) a^(n-k) b^k / (k+1), n = N - 1, which is ((a+b)^N - a^N) / (N b).
    """
    at_most = np.clip(1.0 - above, 0.0, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        level = np.exp(crowd_size * np.log1p(-np.minimum(above, 1.0)))
        part = np.minimum(equal / at_most, 1.0)
        won = -level * np.expm1(crowd_size * np.log1p(-part)) / (crowd_size * equal)
        alone = np.exp((crowd_size - 1) * np.log1p(-np.minimum(above, 1.0)))
    return np.asarray(np.where(crowd_size * part > 1e-12, won, alone))


def _binomial(trials: int, chance: float) -> NDArray[np.float64]:
    masses = [
        math.comb(trials, k) * chance**k * (1 - chance) ** (trials - k) for k in range(trials + 1)
    ]
    return np.array(masses)
