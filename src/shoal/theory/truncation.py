r"""Reports that are sent as at most W set bits: how often one has more, and what that costs.

A device sends the positions of the set bits of its randomized report in W messages, and dummies in
those that are left. If more than W bits are set, it drops a random excess.

*Theorem (the largest original).* Let an original have k of L bits set. Its report has
``Bin(k, 1 - q) + Bin(L - k, q)`` set bits, which rises stochastically with k, since q <= 1/2: one
more true bit replaces a coin that shows 1 with probability q by one with 1 - q. So no original of
a domain has more than W set bits in its report more often than one with the most true bits.

*Theorem (the price).* Let tau bound the probability that a report of the domain has more than W set
bits. If the counts of N devices that drop nothing are (eps, delta) differentially private, then
those of N devices that drop the excess are (eps, delta + (1 + e^eps) N tau) private.

*Proof.* Let P and Q be the laws of the counts under two neighbours, P' and Q' those after
dropping. Draw the reports once and drop from them: the counts are the same unless one of N
reports overflows, so ``TV(P, P') <= N tau`` and ``TV(Q, Q') <= N tau``. For every event S

    P'(S) <= P(S) + N tau <= e^eps Q(S) + delta + N tau <= e^eps Q'(S) + delta + (1 + e^eps) N tau.

How many dummies there are follows from the counts, so that whoever sees all messages, shuffled,
sees no more than the counts. QED

N counts the devices that hide each other. Whatever others send, honest or not, can be told to the
observer beforehand (data processing): their overflow costs nothing. In several releases each of
the reports may overflow, so that N tau is multiplied by their number; it does not matter whether
their flips are fresh. At an epsilon that holds for each report by itself nothing is paid: what a
device drops is post-processing of its own report.
"""

from __future__ import annotations

import math

from shoal.theory.calibration import smallest
from shoal.theory.one_bit.distribution import tails

__all__ = ["fewest_messages", "overflow_chance", "truncation_price"]

_UNDERFLOW = 1e-290
"""What floats may have lost of a tail, at most."""


def overflow_chance(bits: int, most_set: int, messages: int, q: float) -> float:
    """Return an upper bound of P[more than W set bits] of the largest original.

    Parameters
    ----------
    bits : int >= 1
        Length of a report, L.
    most_set : int in [0, bits]
        Bits that are set in the largest original, k.
    messages : int >= 1
        How many set bits are sent, W.
    q : float in (0, 1/2]
        Flip probability.

    Examples
    --------
    >>> f"{overflow_chance(100, 1, 12, 0.00869):.1e}", overflow_chance(5, 5, 5, 0.1)
    ('8.5e-11', 0.0)
    """
    if not 0 <= most_set <= bits or messages < 1 or not 0.0 < q <= 0.5:
        raise ValueError(f"no report of {bits} bits: {most_set} set, q={q}, {messages} messages.")
    if messages >= bits:
        return 0.0
    # The whole law is summed, so that only round-off is left; a float q may be off by half a unit.
    tail = tails(messages + 1, bits, most_set, q, math.inf).at_least_bound
    return min(tail * (1.0 + 1e-15 * bits) + _UNDERFLOW, 1.0)


def truncation_price(chance: float, reports: int, epsilon: float) -> float:
    """Return what dropping costs in delta: ``(1 + e^eps) N tau``, rounded up and at most 1.

    Examples
    --------
    >>> f"{truncation_price(8.5e-11, 10_000, math.log(2)):.2e}", truncation_price(0.0, 10, 9e9)
    ('2.55e-06', 0.0)
    """
    if chance == 0.0:
        return 0.0
    ratio = math.exp(epsilon) if epsilon < 700.0 else math.inf
    return min((1.0 + ratio) * reports * chance * (1.0 + 1e-14 * (1.0 + epsilon)), 1.0)


def fewest_messages(
    bits: int, most_set: int, q: float, reports: int, epsilon: float, budget: float
) -> int:
    """Return the smallest W whose price is at most a budget; W = L costs nothing.

    Examples
    --------
    >>> fewest_messages(100, 1, 0.00869, 10_000, math.log(2), 1e-8)
    14
    """

    def pays(messages: int) -> bool:
        chance = overflow_chance(bits, most_set, messages, q)
        return truncation_price(chance, reports, epsilon) <= budget

    return smallest(pays, 1, bits)
