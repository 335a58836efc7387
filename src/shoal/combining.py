"""Differences, totals, ratios and comparisons of estimates, with intervals of their own.

People combine intervals wrongly by hand: adding two of them is too wide, looking whether they
overlap is too strict. Within one tally the lies about different bits are independent. Who is in
the sample is not independent between bits: for the population target its covariance is known for
questions with one answer and bounded otherwise, so that intervals cover at least their level.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from shoal._check import check_level
from shoal.errors import InputError
from shoal.estimating import Estimate
from shoal.intervals import normal_factor, normal_interval

__all__ = ["Combined", "compare", "difference", "ratio", "total"]


@dataclass(frozen=True)
class Combined:
    """A value made of several estimates, its sigma and its interval at `level`.

    The interval of a ratio can be unbounded: then the denominator is not told apart from zero.
    """

    value: float
    sigma: float
    low: float
    high: float
    level: float

    @property
    def differs(self) -> bool:
        """Whether the interval excludes zero."""
        return self.low > 0 or self.high < 0


def difference(first: Estimate, second: Estimate, level: float = 0.95) -> Combined:
    """Return how many more people are behind the first option than behind the second.

    >>> from shoal import Flags, LieProbability
    >>> question, q = Flags("features", ("sync", "vpn")), LieProbability.at_least(0.25)
    >>> sync = Estimate(question, "sync", 400, 1000, q, "crowd", 300.0)
    >>> vpn = Estimate(question, "vpn", 300, 1000, q, "crowd", 100.0)
    >>> more = difference(sync, vpn)
    >>> more.value, round(more.low), round(more.high), more.differs
    (200.0, 124, 276, True)
    """
    variance = _variance([first, second], [1, -1])
    return _normal(first.count - second.count, math.sqrt(variance), level)


def total(estimates: Sequence[Estimate], level: float = 0.95) -> Combined:
    """Return how many answers several options have together."""
    if not estimates:
        raise InputError("a total needs at least one estimate.")
    variance = _variance(estimates, [1] * len(estimates))
    return _normal(sum(one.count for one in estimates), math.sqrt(variance), level)


def ratio(first: Estimate, second: Estimate, level: float = 0.95) -> Combined:
    """Return the first count over the second, with Fieller's interval."""
    a, b = first.count, second.count
    if b == 0:
        raise InputError(f"the estimate of {second.label!r} is exactly 0; there is no ratio to it.")
    z = normal_factor(check_level(level))
    var_a, var_b = first.sigma**2, second.sigma**2
    # The worst covariance for this ratio where it is only bounded.
    cov = (var_a + var_b - _variance([first, second], [1, -1 if a * b > 0 else 1])) / 2
    cov = cov if a * b > 0 else -cov
    value = a / b
    spread = math.sqrt(max(var_a - 2 * value * cov + value**2 * var_b, 0.0)) / abs(b)
    # The t with (a - t b)^2 <= z^2 Var(a - t b) are those with A t^2 - 2 B t + C <= 0.
    A, B, C = b * b - z * z * var_b, a * b - z * z * cov, a * a - z * z * var_a  # noqa: N806
    if A <= 0:
        return Combined(value, spread, -math.inf, math.inf, level)
    root = math.sqrt(max(B * B - A * C, 0.0))
    return Combined(value, spread, (B - root) / A, (B + root) / A, level)


def compare(first: Estimate, second: Estimate, level: float = 0.95) -> Combined:
    """Return the difference of the shares in two independent crowds, for example two epochs.

    For the crowds themselves the same people may be in both: flips are independent, and permanent
    ones that repeat only make the interval wider than it need be. For a population the two must be
    samples that were drawn independently.
    """
    if first.target != second.target:
        raise InputError("these are shares of a crowd and of a population; compare like with like.")
    spread = math.hypot(first.sigma / first.reports, second.sigma / second.reports)
    return _normal(first.share - second.share, spread, level)


def _normal(value: float, sigma: float, level: float) -> Combined:
    around = normal_interval(value, sigma, level)
    return Combined(value, sigma, around.low, around.high, level)


def _variance(estimates: Sequence[Estimate], signs: Sequence[int]) -> float:
    """Return the variance, or a bound of it, of a signed sum of estimates of one tally."""
    if len({(one.reports, one.q, one.target) for one in estimates}) > 1:
        raise InputError("these estimates are not of one tally; use compare for two crowds.")
    if len({(one.question.name, one.label) for one in estimates}) < len(estimates):
        raise InputError("an option stands twice; combine different options.")
    variance = sum(one.sigma**2 for one in estimates)
    if estimates[0].target == "crowd":
        return variance
    for (a, sign_a), (b, sign_b) in combinations(zip(estimates, signs, strict=True), 2):
        variance += 2 * max(sign_a * sign_b * cov for cov in _covariances(a, b))
    return max(variance, 0.0)


def _covariances(a: Estimate, b: Estimate) -> tuple[float, float]:
    """Return the least and the largest covariance that sampling gives two counts."""
    shares = [min(max(one.share, 0.0), 1.0) for one in (a, b)]
    apart = -a.reports * shares[0] * shares[1]  # nobody has both: the multinomial covariance
    if a.question == b.question and a.question.takes_one:
        return apart, apart
    together = a.reports * (min(shares) - shares[0] * shares[1])  # one group inside the other
    overlap = a.reports * max(sum(shares) - 1 - shares[0] * shares[1], -shares[0] * shares[1])
    return overlap, together
