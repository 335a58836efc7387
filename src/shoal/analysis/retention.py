"""Retention: which part of the people who started is active again so many periods later.

*Age design.* In every period in which a device is active it reports its age in periods. People who
leave never report again, so those who stay are compared with those who started: retention at k is
the count of age k in period t over the count of age 0 in period t - k, added over all periods for
which both are known. The two counts come from different releases, with independent flips. Each of n
people who started comes back with probability v, so that the ratio has a score interval as in
`shoal.analysis.ratios` (approximate). The intervals of a curve hold together: misses add.

*Once design.* Each device reports once, when its periods are over, in which of them it was active.
Retention at k is then the share of one flag, with exact simultaneous intervals.

A device that is reinstalled starts anew: it counts as one that left and one that started.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.analysis.cross_tables import cross_named
from shoal.analysis.estimates import Estimates, estimate
from shoal.analysis.intervals import Target
from shoal.analysis.ratios import Array, GroupValue, no_spread, share_spread, shown_ends
from shoal.analysis.tally import Tally
from shoal.errors import InputError
from shoal.protocol.plan import Plan
from shoal.protocol.survey import Retention, RetentionOnce, Survey
from shoal.support.checks import check_level, listed, takes
from shoal.support.results import Displayed, Section, TableExport, arrow_rows
from shoal.theory.randomized_response import normal_factor

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class RetentionPoint:
    """The part of the people who started that is active `period` periods later.

    `active` of `started` people; the value is not a number where no release tells.
    """

    period: int
    active: float
    started: float
    value: float
    low: float
    high: float

    def to_json(self) -> dict[str, float | None]:
        return {
            name: number if math.isfinite(number) else None for name, number in vars(self).items()
        }


@dataclass(frozen=True, eq=False)
class AgeCounts:
    """Unbiased counts of ages: the last axes are periods of time and the columns of one choice.

    `ages` are the columns of age 0 ... P; `variances` and `known` are of periods. Everybody sets
    one column, so the counts of a period add up to its reports, which takes off some noise.
    """

    counts: Array
    ages: Sequence[int]
    variances: Array
    reports: Array
    known: Sequence[bool]
    target: Target = "population"

    @cached_property
    def _best(self) -> Array:
        excess = self.reports - self.counts.sum(axis=-1)
        return np.asarray(self.counts + excess[..., None] / self.counts.shape[-1])

    def _value(self, top: Array, whole: Array) -> GroupValue:
        """Return the ratio of two sums of counts, with weights 0 and 1 by period and column."""
        sums = np.stack((top, whole))
        centred = sums - sums.mean(axis=-1, keepdims=True)
        noise = np.einsum("atc,btc,t->ab", centred, centred, self.variances)
        tops, wholes = ((self._best * one).sum(axis=(-2, -1)) for one in sums)
        spread = no_spread if self.target == "crowd" else share_spread(wholes)
        return GroupValue(tops, wholes, noise, spread)

    def starts(self, age: int) -> list[int]:
        """Return the periods whose starters are known, and seen again at an age."""
        pairs = zip(self.known, self.known[age:], strict=False)
        return [start for start, (first, later) in enumerate(pairs) if first and later]

    def retention(self, age: int, starts: Sequence[int]) -> GroupValue:
        """Return which part of those who started in some periods was active at an age."""
        top, whole = np.zeros((2, *self.counts.shape[-2:]))
        for start in starts:
            top[start + age, self.ages[age]] = 1
            whole[start, self.ages[0]] = 1
        return self._value(top, whole)

    def activity(self) -> GroupValue | None:
        """Return which part of those who started in the P periods before is active in the last.

        Their sum varies at most as if all came back with the mean of their probabilities.
        """
        last, periods = len(self.known) - 1, len(self.ages) - 1
        if last < periods or not all(self.known[last - periods :]):
            return None
        top, whole = np.zeros((2, *self.counts.shape[-2:]))
        for age in range(1, periods + 1):
            top[last, self.ages[age]] = whole[last - age, self.ages[0]] = 1
        return self._value(top, whole)


@dataclass(frozen=True, eq=False, repr=False)
class RetentionCurve(Displayed, TableExport):
    """Retention at 1 ... P periods; the intervals hold together at `level`.

    `cohorts` has a row for each period in which people started, with intervals of their own level.
    `activity` is the part of those who started in the last P periods that is active in the latest.
    """

    plan: Plan
    question: Retention | RetentionOnce
    level: float
    target: Target
    simulated: bool
    points: tuple[RetentionPoint, ...]
    cohorts: tuple[tuple[int, RetentionPoint], ...] = ()
    activity: RetentionPoint | None = None
    group: tuple[str, str] | None = None

    def _headline(self) -> str:
        among = "" if self.group is None else f", {self.group[0]} is {self.group[1]}"
        kind = "exact" if self.question.design == "once" else "approximate"
        return (
            f"{self.question.name}: retention over {_periods(self.question)}{among},"
            f" intervals at {self.level:.6g} for all at once, for the {self.target} ({kind})"
            + (", simulated" if self.simulated else "")
        )

    def _sections(self) -> list[Section]:
        heads = ("period", "started", "active", "retention", "low", "high")
        return [Section(heads, [self._row(one) for one in self.points])]

    def _row(self, one: RetentionPoint) -> tuple[str, ...]:
        texts = [
            "?" if math.isnan(share) else f"{share:.2%}" for share in shown_ends(one.to_json())
        ]
        people = (f"{max(count, 0.0):,.0f}" for count in (one.started, one.active))
        return str(one.period), *people, *texts

    def _remarks(self) -> list[str]:
        if (one := self.activity) is None or math.isnan(one.value):
            return []
        value, low, high = shown_ends(one.to_json())
        return [
            f"Of the people who started in the {_periods(self.question)} before the latest one,"
            f" {value:.1%} are active in it ({low:.1%} to {high:.1%})."
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the curve as plain JSON values; null where nothing is known."""
        return {
            "plan": self.plan.id,
            "question": self.question.name,
            "design": self.question.design,
            "level": self.level,
            "interval": "simultaneous",
            "target": self.target,
            "simulated": self.simulated,
            "group": self.group and dict([self.group]),
            "points": [one.to_json() for one in self.points],
            "cohorts": [{"start": start} | one.to_json() for start, one in self.cohorts],
            "activity": self.activity and self.activity.to_json(),
        }

    def to_arrow(self) -> pa.Table:
        """Return the curve as an Arrow table, a row for each period."""
        return arrow_rows([], [one.to_json() for one in self.points], level=self.level)


def _periods(question: Retention | RetentionOnce) -> str:
    return f"{question.periods} period{'s' * (question.periods > 1)}"


@takes(plan=Plan)
def retention(
    plan: Plan,
    tallies: Sequence[Tally],
    *,
    group: tuple[str, str] | None = None,
    level: float = 0.95,
    target: Target = "population",
) -> RetentionCurve:
    """Return the retention curve of a survey with a retention question; see docs/retention.md.

    Parameters
    ----------
    plan, tallies
        The plan, and the tallies of its windows. Where they name their windows, these decide:
        crowds of one window add up, and windows may be missing. Otherwise each tally is of one
        window, and the next one of the next. The once design takes one tally.
    group
        A crossed question and one of its answers, such as ``("onboarding", "tour")``: the curve of
        these people.
    level, target
        The level of all intervals of the curve together. ``"population"`` for the probability that
        a person comes back, ``"crowd"`` for the part of those who started that did.
    """
    check_level(level)
    if not plan.survey.retention:
        raise InputError(f"survey {plan.survey.name!r} has no question of kind retention.")
    question = plan.survey.retention[0]
    if not tallies:
        raise InputError("a retention curve needs the tally of each window.")
    if isinstance(question, RetentionOnce):
        return _once(plan, tallies, question, group, level, target)
    counts = _age_counts(plan, tallies, question, group, target)
    periods = range(1, question.periods + 1)
    together = normal_factor(1 - (1 - level) / question.periods)
    alone = normal_factor(level)
    starts = {age: counts.starts(age) for age in periods}
    activity = counts.activity()
    return RetentionCurve(
        plan,
        question,
        level,
        target,
        any(one.simulated for one in tallies),
        tuple(_point(age, counts.retention(age, starts[age]), together) for age in periods),
        tuple(
            (start, _point(age, counts.retention(age, [start]), alone))
            for age in periods
            for start in starts[age]
        ),
        None if activity is None else _point(0, activity, alone),
        group,
    )


def _point(period: int, value: GroupValue, factor: float) -> RetentionPoint:
    low, high = value.interval(factor)
    numbers = (value.top, value.whole, value.value, low, high)
    return RetentionPoint(period, *(float(one) for one in numbers))


def _age_counts(
    plan: Plan,
    tallies: Sequence[Tally],
    question: Retention,
    group: tuple[str, str] | None,
    target: Target,
) -> AgeCounts:
    windows = _by_window(tallies)
    first, last = min(windows), max(windows)
    name, ages = _columns(plan.survey, question, group)
    size = last - first + 1
    counts = np.zeros((size, plan.survey[name].bits))
    variances, reports, known = np.zeros(size), np.zeros(size), [False] * size
    for window, tally in windows.items():
        place = window - first
        estimates: Estimates = estimate(plan, tally)
        options = list(estimates[name].options.values())
        counts[place] = [one.count for one in options]
        variances[place] = options[0].noise_sigma ** 2
        reports[place], known[place] = tally.reports, True
    return AgeCounts(counts, ages, variances, reports, known, target)


def _by_window(tallies: Sequence[Tally]) -> dict[int, Tally]:
    """Return the tally of each window, all its crowds together: as they say, or in their order."""
    named = [{crowd.window for crowd in tally.crowds} for tally in tallies]
    if any(len(one) > 1 for one in named):
        raise InputError("a retention curve takes one tally for each window, got one of several.")
    windows = [next(iter(one)) for one in named]
    if all(window is None for window in windows):
        return dict(enumerate(tallies))
    found: dict[int, Tally] = {}
    for window, tally in zip(windows, tallies, strict=True):
        if window is None:
            raise InputError("some tallies name their window and some do not; name all or none.")
        found[window] = found[window] + tally if window in found else tally
    return dict(sorted(found.items()))


def _columns(
    survey: Survey, question: Retention, group: tuple[str, str] | None
) -> tuple[str, list[int]]:
    """Return the question whose bits count the ages of a group, and the place of each age."""
    ages = question.periods + 1
    if group is None:
        return question.name, list(range(ages))
    cross = cross_named(survey, (question.name, group[0]))
    if cross is None:
        raise InputError(
            f"the survey has no cross of {listed([question.name, group[0]])}, so that there is no"
            " curve for a group."
        )
    names = [side.name for side in cross.sides]
    values = cross.sides[names.index(group[0])].values
    if group[1] not in values:
        raise InputError(f"{group[0]} is never {group[1]!r}; it is one of {listed(values)}.")
    cells = np.arange(cross.bits).reshape(cross.sizes)
    if names[0] != question.name:
        cells = cells.T
    return cross.name, cells[:ages, values.index(group[1])].tolist()


def _once(
    plan: Plan,
    tallies: Sequence[Tally],
    question: RetentionOnce,
    group: tuple[str, str] | None,
    level: float,
    target: Target,
) -> RetentionCurve:
    if len(tallies) > 1 or group is not None:
        raise InputError("with the once design a retention curve is of one tally and of everybody.")
    (tally,) = tallies
    points = []
    for period, one in enumerate(estimate(plan, tally, target=target)[question.name].values(), 1):
        bounds = one.interval(level, "simultaneous")
        ends = (end / one.reports for end in (bounds.low, bounds.high))
        points.append(RetentionPoint(period, one.count, one.reports, one.share, *ends))
    return RetentionCurve(plan, question, level, target, tally.simulated, tuple(points))


def curves_of(
    plan: Plan, tallies: Sequence[Tally], level: float = 0.95
) -> dict[str, RetentionCurve]:
    """Return the curve of everybody, and one for each value of a crossed question, by its name.

    Only the age design has curves over windows. The curves of a cross share the miss.
    """
    question = next(iter(plan.survey.retention), None)
    if not isinstance(question, Retention) or len(tallies) < 2:
        return {}
    curves = {"everybody": retention(plan, tallies, level=level)}
    for cross in plan.survey.crosses:
        if question.name not in [side.name for side in cross.sides] or len(cross.sides) > 2:
            continue
        (other,) = (side for side in cross.sides if side.name != question.name)
        each = 1 - (1 - level) / len(other.values)
        for value in other.values:
            named = f"{other.heading}: {value}"
            curves[named] = retention(plan, tallies, group=(other.name, value), level=each)
    return curves
