"""Cohorts that are known: how many reports a person's cohort has at least.

Each of N people draws one of m cohorts uniformly, whatever the answer is. Tell the attacker who is
in which: that only helps (data processing). What is left is a crowd of n = 1 + Bin(N - 1, 1/m)
people with one hash function, whose law does not depend on any answer, so that for every t

    delta(eps) <= P[n < t] delta_1(eps) + delta_t(eps)        (theorem)

where delta_n is the largest delta of n reports of the domain: it falls with n, since one more
report is post-processing. Texts that set fewer bits because their hashes collide are in the domain
of at most h set bits. The same holds where cohorts are drawn afresh: the attacker is told more.
"""

from __future__ import annotations

from shoal.theory.calibration import largest
from shoal.theory.one_bit.law import tails

__all__ = ["smallest_cohort"]


def smallest_cohort(N: int, m: int, chance: float) -> tuple[int, float]:
    """Largest t with P[n < t] at most `chance`, and an upper bound of P[n < t].

    Parameters
    ----------
    N : int >= 1
        Number of people.
    m : int >= 1
        Number of cohorts.
    chance : float in [0, 1)
        The largest probability of a smaller cohort.

    Examples
    --------
    >>> smallest_cohort(3, 2, 0.25), smallest_cohort(3, 2, 0.2), smallest_cohort(7, 1, 0.0)
    ((2, 0.2500000000...), (1, 0.0), (7, 0.0))
    """
    if m == 1:
        return N, 0.0

    def missing(t: int) -> float:
        # n < t means that at most t - 2 of the others are in the cohort
        return tails(t - 2, N - 1, 0, 1.0 / m).at_most_bound if t > 1 else 0.0

    t = largest(lambda t: missing(t) <= chance * (1.0 + 1e-9), 1, N)
    return t, missing(t)
