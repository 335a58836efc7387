"""The coin that flips a bit: q and what follows from it alone.

``q`` is the flip probability, ``p = 1 - q``, ``theta = p / q`` and ``phi = theta + 1/theta - 1``
(SDP 1.3 and 3.14). Everything here is a definition or an elementary identity.
"""

from __future__ import annotations

import math
from statistics import NormalDist


def check_q(q: float) -> None:
    """Refuse a flip probability outside (0, 1/2], or one that is not a number."""
    if not 0.0 < q <= 0.5:
        raise ValueError(
            f"q must be in (0, 1/2], got q={q}. If you have RAPPOR's f, use q = f / 2."
        )


def log_theta(q: float) -> float:
    """``ln(p / q)`` to full relative accuracy, also near q = 1/2 where it vanishes."""
    check_q(q)
    return math.log1p((1.0 - 2.0 * q) / q)


def phi(q: float) -> float:
    """Second moment of one bit's likelihood ratio, ``p/q + q/p - 1`` (SDP 3.14)."""
    check_q(q)
    return 1.0 + (1.0 - 2.0 * q) ** 2 / (q * (1.0 - q))


def local_epsilon(differing_bits: int, q: float) -> float:
    """Epsilon without any crowd: ``d ln(p/q)`` when two originals differ in at most d bits.

    SDP 1.3 (the largest value of the local ratio); BITVEC states it with d = 2m.
    """
    if differing_bits < 0:
        raise ValueError(f"differing_bits must be at least 0, got {differing_bits}.")
    return differing_bits * log_theta(q)


def local_q(differing_bits: int, epsilon: float) -> float:
    """Smallest q whose local epsilon is at most `epsilon` (SDP 4.2), up to rounding.

    >>> round(local_q(5, math.log(2)), 4)
    0.4654
    """
    if not epsilon >= 0.0:
        raise ValueError(f"epsilon must be at least 0, got epsilon={epsilon}.")
    if differing_bits <= 0:
        return 0.0
    # e^710 is no float any more; a larger q keeps the promise
    return 1.0 / (1.0 + math.exp(min(epsilon / differing_bits, 700.0)))


def count_sigma(N: int, q: float) -> float:
    """Return the standard deviation of an estimated count, ``sqrt(N p q) / (p - q)`` (SDP 4).

    Infinite at q = 1/2, where nothing can be estimated.
    """
    check_q(q)
    if q == 0.5:
        return math.inf
    return math.sqrt(N * q * (1.0 - q)) / (1.0 - 2.0 * q)


def normal_factor(level: float) -> float:
    """Return how many sigmas a normal interval at the level reaches."""
    return -NormalDist().inv_cdf((1 - level) / 2)


def shift_of_a_fake(q: float) -> float:
    """Return by how many people one fake report moves a count at most: ``p / (p - q)``.

    An estimate takes it for a randomized report. Infinite at q = 1/2.

    >>> shift_of_a_fake(0.25)
    1.5
    """
    return (1.0 - q) / (1.0 - 2.0 * q) if q < 0.5 else math.inf


def posterior(prior: float, q: float, reported: int) -> float:
    """Return P[bit = 1 | report] by Bayes' rule, for a reader who believed `prior` (LEC Example 1).

    >>> round(posterior(0.01, 0.25, reported=1), 4)
    0.0294
    """
    given_one, given_zero = (1 - q, q) if reported else (q, 1 - q)
    return given_one * prior / (given_one * prior + given_zero * (1 - prior))
