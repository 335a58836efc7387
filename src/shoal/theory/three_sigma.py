"""The papers' quick rule: mean plus three standard deviations of R at most lam.

SDP 3.2. A rule of thumb (observed): the exact eta at its q runs from .0013 to .0087 over the
paper's own rows. It looks at the forward crowd only; it is no guarantee.
"""

from __future__ import annotations

import math

from shoal.theory.calibration import largest, smallest
from shoal.theory.homogeneous import check_crowd, ratio_moments
from shoal.theory.randomized_response import count_sigma, local_q, phi, q_from_phi

__all__ = ["gain", "gap_312", "gap_313", "gap_315", "three_sigma_q"]


def gap_312(q: float, L: int, N: int, lam: float) -> float:
    """``E R + 3 sqrt(Var R) - lam`` (SDP 3.12).

    Examples
    --------
    >>> abs(gap_312(0.16920, 5, 1000, math.exp(2))) < 0.01
    True
    """
    mean, variance = ratio_moments(L, N, q)
    return mean + 3.0 * math.sqrt(max(variance, 0.0)) - lam


def gap_313(q: float, L: int, N: int, lam: float) -> float:
    """Left side less right side of SDP (3.13), which drops the terms in 1/N of (3.12).

    Examples
    --------
    >>> gap_313(0.2, 5, 1000, 2.0) > gap_312(0.2, 5, 1000, 2.0)
    True
    """
    p = 1.0 - q
    first = ((p**3 + q**3) / (p * q)) ** L
    # SDP prints (pq)^4 in the derivation below (3.13); (pq)^2 is right.
    second = ((p**5 + q**5) / (p * q) ** 2) ** L
    inside = first / N + (second - first**2) / N**2
    return 1.0 + first / N + 3.0 * math.sqrt(max(inside, 0.0)) - lam


def gap_315(value: float, L: int, N: int, lam: float) -> float:
    """Left side less right side of SDP (3.15), a function of phi; equal to (3.13).

    Examples
    --------
    >>> abs(gap_315(phi(0.2), 5, 1000, 2.0) - gap_313(0.2, 5, 1000, 2.0)) < 1e-9
    True
    """
    first = value**L
    second = ((value + 1.0) ** 2 - value - 2.0) ** L
    inside = first / N + (second - first**2) / N**2
    return 1.0 + first / N + 3.0 * math.sqrt(max(inside, 0.0)) - lam


_GAPS = {"3.12": gap_312, "3.13": gap_313}


def three_sigma_q(L: int, N: int, epsilon: float, rule: str = "3.12") -> float:
    """Smallest q with the rule satisfied; `rule` is "3.12", "3.13" or "3.15".

    The rule falls in q because ``phi`` does. (3.13) and (3.15) need ``lam > 1 + 3 sqrt(1/N)``.

    Examples
    --------
    >>> round(three_sigma_q(5, 5000, math.log(2)), 4)    # SDP 3.3 prints .1778, which is N = 10000
    0.1963
    """
    check_crowd(N, 0.5, epsilon)
    if L < 1:
        raise ValueError(f"L must be at least 1, got L={L}.")
    lam = math.exp(epsilon)

    def gap(q: float) -> float:
        if rule == "3.15":
            return gap_315(phi(q), L, N, lam)
        return _GAPS[rule](q, L, N, lam)

    if rule not in _GAPS and rule != "3.15":
        raise ValueError(f'rule must be "3.12", "3.13" or "3.15", got {rule!r}.')
    if gap(0.5) > 0.0:
        raise ValueError(f"no q satisfies the rule: lam={lam} is too close to 1 for N={N}.")
    # theta^L = e^600 keeps every power finite
    floor = max(1e-9, 1.0 / (1.0 + math.exp(min(150.0 / L, 20.0))))
    if rule == "3.15":
        # as the paper does it: solve for phi, then (3.16)
        return q_from_phi(largest(lambda at: gap_315(at, L, N, lam) <= 0.0, 1.0, phi(floor)))
    return smallest(lambda q: gap(q) <= 0.0, floor, 0.5)


def gain(L: int, N: int, epsilon: float) -> float:
    """How many times smaller the error is than with local noise (SDP 4), by rule (3.12).

    Examples
    --------
    >>> round(gain(40, 10_000_000, 2.0), 1)
    12.5
    """
    local = count_sigma(N, local_q(L, epsilon))
    return local / count_sigma(N, three_sigma_q(L, N, epsilon))
