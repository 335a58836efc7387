"""Experiments: each arm's share or mean, and its difference and ratio to control.

The survey crosses an arm with outcomes: yes/no, a choice, or a number. Intervals are for the
population, with flips, rounding and sampling together (`shoal.analysis.ratios`); they are
approximate, and `shoal study` measures their coverage. A p-value is the smallest miss at which the
interval of the difference excludes zero, so that both always agree. All comparisons together are
corrected by Holm's method (1979).

Devices draw their arms. If arms are more or less frequent than their weights, something else
decides who reports: the sample-ratio check tests that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import chi2

from shoal.analysis.association_tables import CrossedTable, side_of
from shoal.analysis.contrasts import Combination
from shoal.analysis.estimates import Estimates, estimate
from shoal.analysis.ratios import (
    Array,
    GroupTable,
    GroupValue,
    Pair,
    anytime_factor,
    p_value,
    shown_ends,
)
from shoal.analysis.tally import Tally
from shoal.errors import InputError
from shoal.protocol.plan import Plan
from shoal.protocol.questions import MISSING
from shoal.protocol.survey import Arm, Cross, Funnel, Number, Question, Retention, Survey
from shoal.support.checks import check_level, check_one_of, listed, takes
from shoal.support.results import Displayed, Section, TableExport, arrow_rows
from shoal.support.rounding import text_near, text_up
from shoal.theory.randomized_response import normal_factor

if TYPE_CHECKING:
    import pyarrow as pa

SUSPICIOUS = 0.001
"""A sample-ratio p-value below this means that the arms should not be compared."""

_LEAST_P = 1e-299
"""Smaller p-values are shown as this one: doubles end there."""


@dataclass(frozen=True)
class ArmValue:
    """An arm's share or mean of an outcome, with its interval; `people` is how many it has."""

    arm: str
    people: float
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Effect:
    """How an arm differs from control in one outcome; `adjusted_p` allows for all comparisons."""

    arm: str
    difference: Combination
    ratio: Combination | None
    p_value: float
    adjusted_p: float


@dataclass(frozen=True)
class Outcome:
    """One outcome in every arm: `option` is the answer whose share it is, None for a mean."""

    question: str
    option: str | None
    arms: tuple[ArmValue, ...]
    effects: tuple[Effect, ...]

    @property
    def name(self) -> str:
        return f"mean of {self.question}" if self.option is None else self.option_name

    @property
    def option_name(self) -> str:
        same = self.option == self.question
        return self.question if same else f"{self.question}: {self.option}"


@dataclass(frozen=True)
class SampleRatio:
    """Whether the arms have the shares that devices draw them with: a chi-square test."""

    expected: tuple[float, ...]
    found: tuple[float, ...]
    p_value: float

    @property
    def suspicious(self) -> bool:
        return self.p_value < SUSPICIOUS

    @property
    def in_words(self) -> str:
        shares = ", ".join(_percent(min(max(share, 0.0), 1.0)) for share in self.found)
        text = f"Sample ratio: the arms have {shares} of the people (p-value"
        text += f" {text_up(max(self.p_value, _LEAST_P), 3)})."
        if self.suspicious:
            text += (
                " Devices do not draw arms like that: an arm changes who reports, or does not"
                " work. Do not trust the comparison."
            )
        return text


class _Comparison:
    """One outcome of an experiment: which columns of its table it is about."""

    def __init__(self, question: str, option: str | None, table: GroupTable, weights: Array):
        self.question, self.option, self.table, self.weights = question, option, table, weights

    def value(self, arm: int) -> GroupValue:
        if self.option is None:
            return self.table.mean(arm, self.weights)
        return self.table.share(arm, self.weights)

    def pair(self, arm: int) -> Pair:
        if self.option is None:
            return self.table.mean_pair(arm, 0, self.weights)
        return self.table.pair(arm, 0, self.weights)


@dataclass(frozen=True, eq=False, repr=False)
class Experiment(Displayed, TableExport):
    """The outcomes of an experiment in each arm, and how the arms differ from control.

    With `information`, the reports so far over those of the first release, intervals and p-values
    hold after every release; without, for one look.
    """

    estimates: Estimates
    question: Arm
    level: float
    information: float | None = None

    @cached_property
    def factor(self) -> float:
        """How many sigmas an interval reaches."""
        if self.information is None:
            return normal_factor(self.level)
        return anytime_factor(self.level, self.information)

    @cached_property
    def _comparisons(self) -> tuple[_Comparison, ...]:
        found: list[_Comparison] = []
        for cross, name in outcomes_of(self.estimates.plan.survey, self.question):
            found += self._of_cross(cross, name)
        return tuple(found)

    def _of_cross(self, cross: Cross, name: str) -> Iterator[_Comparison]:
        plan, tally = self.estimates.plan, self.estimates.tally
        arms, outcome = side_of(plan.survey, self.question.name), side_of(plan.survey, name)
        crossed = CrossedTable(plan, tally, arms, outcome, cross)
        table = GroupTable(crossed.table, crossed.noise)
        question = plan.survey[outcome.question]
        if isinstance(question, Number) and question.grid:
            grid = np.array([float(point) for point in question.grid])
            yield _Comparison(question.name, None, table, grid)
            return
        for name, answers in shares_compared(question, outcome.categories):
            yield _Comparison(question.name, name, table, answers)

    @cached_property
    def outcomes(self) -> tuple[Outcome, ...]:
        """Every outcome: a yes/no has one, a choice one for each option, a number its mean."""
        arms = range(1, len(self.question.options))
        pairs = [[one.pair(arm) for arm in arms] for one in self._comparisons]
        p_values = [p_value(one.zero_factor(), self.information) for row in pairs for one in row]
        corrected = iter(zip(p_values, holm(p_values), strict=True))
        return tuple(
            Outcome(
                one.question,
                one.option,
                tuple(self._arm(one.value(arm), arm) for arm in (0, *arms)),
                tuple(
                    self._effect(pair, arm, *next(corrected))
                    for pair, arm in zip(row, arms, strict=True)
                ),
            )
            for one, row in zip(self._comparisons, pairs, strict=True)
        )

    def _arm(self, value: GroupValue, arm: int) -> ArmValue:
        low, high = value.interval(self.factor)
        numbers = (float(one) for one in (value.whole, value.value, low, high))
        return ArmValue(self.question.options[arm], *numbers)

    def _effect(self, pair: Pair, arm: int, p_value: float, adjusted_p: float) -> Effect:
        low, high = pair.difference_limits(self.factor)
        sigma = float(high - low) / 2 / self.factor
        value, ends = float(pair.difference), (float(low), float(high))
        difference = Combination(value, sigma, *ends, self.level, "normal")
        ratio = None
        if pair.first.bounds[0] >= 0:  # a ratio to a number that may be negative says nothing
            low, high = pair.ratio_limits(self.factor)
            base = float(pair.second.value)
            value = float(pair.first.value) / base if base > 0 else math.nan
            sigma = float(high - low) / 2 / self.factor
            ratio = Combination(value, sigma, float(low), float(high), self.level, "normal")
        name = self.question.options[arm]
        return Effect(name, difference, ratio, p_value, adjusted_p)

    @cached_property
    def sample_ratio(self) -> SampleRatio:
        """Whether the arms are as frequent as their weights say, in flips and sampling."""
        options = self.estimates[self.question.name]
        shares = np.array(self.question.shares)
        counts = np.array([options[arm].count for arm in self.question.options])
        noise = options[self.question.options[0]].noise_sigma ** 2
        return sample_ratio(counts, shares, noise)

    def _headline(self) -> str:
        return (
            f"{self.question.name}: {len(self.question.options)} arms,"
            f" {self.estimates.tally.in_words}, intervals at {self.level:.6g} for the population"
            " (approximate)"
        )

    def _sections(self) -> list[Section]:
        arm = self.question
        return [
            section
            for one in self.outcomes
            for section in outcome_sections(_outcome_json(one), arm.name, arm.control, one.name)
        ]

    def _remarks(self) -> list[str]:
        return [self.sample_ratio.in_words]

    def to_json(self) -> dict[str, Any]:
        """Return the results as plain JSON values; null where nothing is known or unbounded."""
        tally = self.estimates.tally
        return {
            "plan": self.estimates.plan.id,
            "reports": tally.reports,
            "simulated": tally.simulated,
            "arm": self.question.name,
            "control": self.question.control,
            "level": self.level,
            "factor": self.factor,
            "target": "population",
            "interval": "approximate",
            "sample_ratio": {
                "in_words": self.sample_ratio.in_words,
                "p_value": self.sample_ratio.p_value,
                "suspicious": self.sample_ratio.suspicious,
                "found": dict(zip(self.question.options, self.sample_ratio.found, strict=True)),
            },
            "outcomes": [_outcome_json(one) for one in self.outcomes],
        }

    def to_arrow(self) -> pa.Table:
        """Return the effects as an Arrow table, a row for each arm and outcome."""
        rows = []
        for outcome in self.outcomes:
            for effect in outcome.effects:
                row: dict[str, Any] = {"question": outcome.question, "option": outcome.option}
                row |= {"arm": effect.arm}
                for name in ("difference", "ratio"):
                    one = getattr(effect, name)
                    ends = one.to_json() if one else dict.fromkeys(("value", "low", "high"))
                    row |= {f"{name}_{key}": ends[key] for key in ("value", "low", "high")}
                rows.append(row | {"p_value": effect.p_value, "adjusted_p": effect.adjusted_p})
        return arrow_rows(["question", "option", "arm"], rows, level=self.level)


def outcome_sections(
    outcome: Mapping[str, Any], arm: str, control: str, title: str = ""
) -> tuple[Section, Section]:
    """Return the arms of an outcome's JSON, and the differences and ratios of arms to control."""
    is_mean = outcome["option"] is None
    kind, unit, write = (
        ("mean", "difference", _number) if is_mean else ("share", "points", _percent)
    )
    arms = [
        (name, f"{max(row['people'], 0):,.0f}", *map(write, shown_ends(row)))
        for name, row in outcome["arms"].items()
    ]
    effects = []
    for name, row in outcome["effects"].items():
        points = [
            _signed(end * (1 if is_mean else 100), 3) for end in shown_ends(row["difference"])
        ]
        ratio = [_times(end) for end in shown_ends(row["ratio"])] if row["ratio"] else ["", "", ""]
        effects.append(
            (name, *points, *ratio, text_up(row["p_value"], 2), text_up(row["adjusted_p"], 2))
        )
    heads = (f"minus {control}", unit, "low", "high", "ratio", "low", "high", "p-value", "Holm")
    return Section((arm, "people", kind, "low", "high"), arms, title), Section(heads, effects)


def _percent(share: float) -> str:
    return "?" if math.isnan(share) else f"{share:z.2%}"


def _number(mean: float) -> str:
    return "?" if math.isnan(mean) else text_near(mean)


def _signed(difference: float, digits: int) -> str:
    return "?" if math.isnan(difference) else f"{difference:+.{digits}g}"


def _times(ratio: float) -> str:
    return "?" if math.isnan(ratio) else f"{ratio:.3g}" if math.isfinite(ratio) else "no limit"


def _outcome_json(outcome: Outcome) -> dict[str, Any]:
    return {
        "question": outcome.question,
        "option": outcome.option,
        "arms": {
            one.arm: {
                name: number if math.isfinite(number) else None
                for name, number in vars(one).items()
                if name != "arm"
            }
            for one in outcome.arms
        },
        "effects": {
            one.arm: {
                "difference": one.difference.to_json(),
                "ratio": one.ratio and one.ratio.to_json(),
                "p_value": one.p_value,
                "adjusted_p": one.adjusted_p,
            }
            for one in outcome.effects
        },
    }


def shares_compared(question: Question, categories: Sequence[str]) -> Iterator[tuple[str, Array]]:
    """Yield which shares are compared: of each answer, of a funnel of each step or a later one."""
    each = np.eye(len(categories))
    known = [place for place, one in enumerate(categories) if one != MISSING]
    if isinstance(question, Funnel):
        first = 0 if question.missing else 1  # everybody reached the first step
        for place in known[first:]:
            further = " or further" if place < known[-1] else ""
            yield f"{categories[place]}{further}", each[place : len(known)].sum(axis=0)
        return
    # Of two answers the second says the same as the first.
    for place in known if len(categories) > 2 else known[:1]:
        yield categories[place], each[place]


def outcomes_of(survey: Survey, arm: Arm) -> list[tuple[Cross, str]]:
    """Return the crosses of an arm with one outcome, each with the name of the outcome.

    Ages are no outcome: among those who report, people who left are missing.
    """
    found = []
    for cross in survey.crosses:
        others = [side for side in cross.sides if side.question.name != arm.name]
        if len(cross.sides) == 2 and len(others) == 1:
            (outcome,) = others
            if not isinstance(outcome.question, Retention):
                found.append((cross, outcome.name))
    return found


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p-values: below a level, with at most that chance of one false alarm.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order, largest = sorted(range(len(p_values)), key=p_values.__getitem__), 0.0
    adjusted = [1.0] * len(p_values)
    for rank, place in enumerate(order):
        largest = max(largest, min((len(order) - rank) * p_values[place], 1.0))
        adjusted[place] = largest
    return adjusted


def sample_ratio(counts: Array, shares: Array, noise: float) -> SampleRatio:
    """Test unbiased counts of arms, each with the variance `noise`, against their shares.

    What the arms have beyond their shares has the covariance n (diag(pi) - pi pi') of who was
    drawn, and that of the flips. The statistic is chi-square (approximate).
    """
    arms, people = len(shares), float(counts.sum())
    centre = np.eye(arms) - np.outer(shares, np.ones(arms))
    if people <= 0:
        return SampleRatio(tuple(shares), (math.nan,) * arms, 1.0)
    drawn = people * (np.diag(shares) - np.outer(shares, shares))
    covariance = drawn + noise * (centre @ centre.T)
    away = centre @ counts
    statistic = float(away @ np.linalg.pinv(covariance, rcond=1e-10, hermitian=True) @ away)
    found = tuple((counts / counts.sum()).tolist())
    return SampleRatio(tuple(shares.tolist()), found, float(chi2.sf(statistic, arms - 1)))


@takes(plan=Plan, tally=Tally)
def experiment(
    plan: Plan, tally: Tally, arm: str | None = None, *, level: float = 0.95
) -> Experiment:
    """Compare the arms of an experiment; docs/experiments.md has an example.

    `arm` is the name of the arm question, if the survey has several. The survey crosses it with the
    outcomes. The intervals are for one look: `monitor` allows a look after every release.
    """
    check_level(level)
    question = arm_of(plan.survey, arm)
    _check_once(plan)
    estimates = estimate(plan, tally, target="population")
    return Experiment(estimates, question, level)


def experiments_of(estimates: Estimates, level: float = 0.95) -> dict[str, Experiment]:
    """Return every experiment of a survey by its arm's name; none where devices may return."""
    plan, tally = estimates.plan, estimates.tally
    arms = [] if tally.people_may_repeat or plan.devices_return else plan.survey.arms
    return {
        arm.name: experiment(plan, tally, arm.name, level=level)
        for arm in arms
        if outcomes_of(plan.survey, arm)
    }


def arm_of(survey: Survey, name: str | None) -> Arm:
    arms = {one.name: one for one in survey.arms if outcomes_of(survey, one)}
    if not arms:
        raise InputError(
            f"survey {survey.name!r} has no experiment: it needs a question of kind arm, and a"
            " cross of it with each outcome."
        )
    if name is None:
        if len(arms) > 1:
            raise InputError(f"the survey has several experiments; name one of {listed([*arms])}.")
        return next(iter(arms.values()))
    check_one_of("arm", name, tuple(arms))
    return arms[name]


def _check_once(plan: Plan) -> None:
    if plan.devices_return:
        raise InputError(
            "in this plan devices report again and again: each release misses the people who left,"
            " and releases are not independent. Ask for outcomes in a survey that each device"
            " answers once."
        )


@dataclass(frozen=True, eq=False, repr=False)
class Monitoring(Displayed, TableExport):
    """An experiment after each of several releases; all intervals hold together at the level."""

    looks: tuple[Experiment, ...]

    @property
    def latest(self) -> Experiment:
        """The experiment after the last release."""
        return self.looks[-1]

    def _headline(self) -> str:
        releases = f"{len(self.looks)} release{'s' * (len(self.looks) > 1)}"
        return (
            f"{self.latest.question.name}: {releases}, confidence sequence at"
            f" {self.latest.level:.6g} for the population (asymptotic)"
            + (", simulated" if self.latest.estimates.tally.simulated else "")
        )

    def _sections(self) -> list[Section]:
        return [
            Section(("release", "reports", "difference", "low", "high", "differs"), rows, title)
            for title, rows in self._rows()
        ]

    def _rows(self) -> Iterator[tuple[str, list[tuple[str, ...]]]]:
        for place, outcome in enumerate(self.latest.outcomes):
            for which, effect in enumerate(outcome.effects):
                rows = []
                for number, look in enumerate(self.looks, 1):
                    one = look.outcomes[place].effects[which].difference
                    times = 100 if outcome.option is not None else 1
                    numbers = (_signed(times * end, 4) for end in shown_ends(one.to_json()))
                    count = f"{look.estimates.tally.reports:,}"
                    rows.append((f"{number}", count, *numbers, "yes" if one.differs else ""))
                unit = ", in points" if outcome.option is not None else ""
                yield (
                    f"{outcome.name}: {effect.arm} minus {self.latest.question.control}{unit}",
                    rows,
                )

    def _remarks(self) -> list[str]:
        return [
            "With at least the level, an interval holds its true difference after all releases at"
            " once, however many follow, so you may stop at any time.",
            self.latest.sample_ratio.in_words,
        ]

    def to_json(self) -> dict[str, Any]:
        return {"asymptotic": True, "looks": [one.to_json() for one in self.looks]}

    def to_arrow(self) -> pa.Table:
        """Return the effects after each release as an Arrow table."""
        import pyarrow as pa

        tables = []
        for number, look in enumerate(self.looks, 1):
            table = look.to_arrow()
            tables.append(table.append_column("release", [[number] * len(table)]))
        return pa.concat_tables(tables)


@takes(plan=Plan)
def monitor(
    plan: Plan, tallies: Sequence[Tally], arm: str | None = None, *, level: float = 0.95
) -> Monitoring:
    """Compare the arms after each of several releases, with a confidence sequence.

    `tallies` are the releases in their order, each a complete crowd of other people; after each,
    all so far are pooled. You may look after every one and stop when you like: the chance that any
    interval ever misses is at most 1 - level (asymptotic, see `ratios.anytime_factor`).
    """
    check_level(level)
    question = arm_of(plan.survey, arm)
    _check_once(plan)
    if not tallies:
        raise InputError("monitoring needs at least one release.")
    looks, pooled = [], None
    seen: dict[tuple[object, bytes], int] = {}
    for number, release in enumerate(tallies, 1):
        first = seen.setdefault((release.crowds, release.by_bit.tobytes()), number)
        if first != number:
            raise InputError(f"releases {first} and {number} are the same; give each once.")
        estimate(plan, release)  # each is complete by itself
        pooled = release if pooled is None else pooled + release
        different = pooled.of_different_people() if len(pooled.crowds) > 1 else pooled
        information = pooled.reports / tallies[0].reports
        estimates = estimate(plan, different, target="population")
        looks.append(Experiment(estimates, question, level, information))
    return Monitoring(tuple(looks))
