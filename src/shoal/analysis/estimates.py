"""A Tally to Estimates: unbiased counts, their spread and their intervals.

The unbiased count may be negative or larger than the crowd; it is not clipped, because averages
and differences of unbiased counts stay right and those of clipped ones do not. The nearest count
that fits the question is `constrained`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from shoal.analysis.crowds import repeat_remedy
from shoal.analysis.intervals import (
    NO_NOISE,
    Interval,
    IntervalKind,
    Noise,
    Target,
    check_target,
    interval,
    sigma,
)
from shoal.analysis.joint import COUNTS_ONLY, JointEstimates, check_links, estimate_joint
from shoal.analysis.question_estimates import QuestionEstimates
from shoal.analysis.tally import Tally
from shoal.errors import InputError, PrivacyRefusal, TallyError
from shoal.planning.certificate import check_promise
from shoal.planning.plan import replanning
from shoal.protocol.flip_probability import FlipProbability, exact_fraction
from shoal.protocol.plan import Plan
from shoal.protocol.survey import Question, Text
from shoal.support.checks import check_level, check_number, takes
from shoal.support.results import Displayed, Section, TableExport
from shoal.theory.calibration import smallest
from shoal.theory.randomized_response import normal_factor

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure


_TITLES = ("question_title", "option_title")
NUMBERS = ("count", "share", "sigma", "low", "high", "constrained")
_MIN_FLIPS = 25  # variance, in reports, from which on a count is taken as normal: sigma is 5


@dataclass(frozen=True, repr=False)
class Estimate:
    """How many people's bit is set: one option of one question.

    `count` is unbiased; `constrained` is the nearest count that fits the question (between 0 and
    the number of reports; choices that add up).
    """

    question: Question
    label: str
    ones: int
    reports: int
    q: FlipProbability
    target: Target
    constrained: float
    noise: Noise = NO_NOISE

    def __repr__(self) -> str:
        return (
            f"Estimate({self.question.name!r}, {self.label!r}, count={self.count:.1f},"
            f" sigma={self.sigma:.1f}, share={self.share:.4f}, reports={self.reports},"
            f" target={self.target!r})"
        )

    @property
    def count(self) -> float:
        """The unbiased count (M - qN) / (p - q), SDP 4."""
        q = float(self.q)
        return (self.ones - q * self.reports) / (1 - 2 * q)

    @property
    def share(self) -> float:
        """The unbiased count as a share of the reports."""
        return self.count / self.reports

    @property
    def sigma(self) -> float:
        """The standard deviation of the count; for a population it is itself an estimate."""
        return sigma(self.ones, self.reports, float(self.q), self.target, self.noise)

    @property
    def noise_sigma(self) -> float:
        """The standard deviation that the flips and the aggregators' noise give the count."""
        return sigma(self.ones, self.reports, float(self.q), "crowd", self.noise)

    def interval(self, level: float = 0.95, kind: IntervalKind = "exact") -> Interval:
        """Return an interval for the count."""
        return interval(
            self.ones,
            self.reports,
            float(self.q),
            level=level,
            kind=kind,
            target=self.target,
            options=self.question.bits,
            noise=self.noise,
        )

    def to_json(self, level: float = 0.95, kind: IntervalKind = "exact") -> dict[str, Any]:
        """Return the numbers as plain JSON values, low and high in counts."""
        return count_json(self, self.interval(level, kind))


def count_json(one: Any, bounds: Interval) -> dict[str, Any]:
    """Return the JSON form of an estimated count, of a crowd or of a curator."""
    row = {name: getattr(bounds if name in ("low", "high") else one, name) for name in NUMBERS}
    return row if bounds.compatible else row | {"incompatible": True}


@dataclass(frozen=True, repr=False)
class Estimates(Displayed, TableExport, Mapping[str, QuestionEstimates]):
    """Estimates of every option of every question: ``estimates["features"]["sync"]``.

    ``estimates["age"]`` are those of one question; of a number it has `mean` and `quantile`.
    """

    plan: Plan
    tally: Tally
    target: Target

    @cached_property
    def _questions(self) -> dict[str, QuestionEstimates]:
        asked = (question for question in self.plan.survey if not _elsewhere(question))
        return {one.name: QuestionEstimates(self, one, self._estimate(one)) for one in asked}

    @property
    def notes(self) -> tuple[str, ...]:
        """What a sum of crowds counts, and which questions need `shoal decode`."""
        elsewhere = (_elsewhere(question) for question in self.plan.survey)
        return tuple(filter(None, (self.tally.note, *elsewhere)))

    def _estimate(self, question: Question) -> dict[str, Estimate]:
        ones = self.tally.by_bit[self.plan.survey.slice_of(question.name)]
        reports, q = self.tally.reports, float(self.plan.q)
        counts = (ones.astype(float) - q * reports) / (1 - 2 * q)
        lowest, highest = question.min_set_bits * reports, question.max_set_bits * reports
        nearest = nearest_feasible(counts, reports, lowest, highest)
        noise, flips = Noise.in_counts(self.plan, reports), self.plan.q
        return {
            label: Estimate(question, label, int(m), reports, flips, self.target, float(d), noise)
            for label, m, d in zip(question.labels, ones, nearest, strict=True)
        }

    def __getitem__(self, question: str) -> QuestionEstimates:
        if note := _elsewhere(self.plan.survey[question]):
            raise InputError(note)
        return self._questions[question]

    def __iter__(self) -> Iterator[str]:
        return iter(self._questions)

    def __len__(self) -> int:
        return len(self._questions)

    def _ipython_key_completions_(self) -> list[str]:
        return list(self)

    def _headline(self, level: float = 0.95, kind: IntervalKind = "exact") -> str:
        return (
            f"{self.plan.survey.name}: {self.tally.in_words}, {kind} intervals at {level:.6g}, for"
            f" the {self.target}"
        )

    def _sections(self, level: float = 0.95, kind: IntervalKind = "exact") -> Iterable[Section]:
        return [one.table(level, kind) for one in self.values()]

    def _remarks(self) -> tuple[str, ...]:
        return self.notes

    def plot(self, level: float = 0.95) -> Figure:
        """Draw every option on its interval, question by question; needs matplotlib."""
        from shoal.reports.plots.results import plot_estimates

        return plot_estimates(list(self.values()), level)

    def joint(self, *bits: tuple[str, str]) -> JointEstimates:
        """Return estimates of the joint answers to chosen bits, each a (question, label) pair."""
        positions = [self.plan.survey.bit(question, label) for question, label in bits]
        check_links(self.plan, "joint counts", positions)
        counts = self.tally.joint_counts(positions)
        return estimate_joint(counts, float(self.plan.q), bits, self.target)

    def to_arrow(self, level: float = 0.95, kind: IntervalKind = "exact") -> pa.Table:
        """Return the estimates as an Arrow table, a row for each option."""
        return estimates_arrow({"estimates": self.to_json(level, kind)})

    def to_json(self, level: float = 0.95, kind: IntervalKind = "exact") -> dict[str, Any]:
        """Return the estimates as plain JSON values, low and high in counts."""
        return self.questions_json(self.values(), level, kind)

    def questions_json(
        self, questions: Iterable[QuestionEstimates], level: float, kind: IntervalKind
    ) -> dict[str, Any]:
        """Return the JSON form with some questions only."""
        return {
            "plan": self.plan.id,
            "crowd_size": self.plan.crowd_size,
            "reports": self.tally.reports,
            "crowds": [crowd.to_json() for crowd in self.tally.crowds],
            "people": self.tally.people,
            "q": float(self.plan.q),
            "level": check_level(level),
            "interval": kind,
            "target": self.target,
            "simulated": self.tally.simulated,
            "questions": {
                each.question.name: {
                    label: one.to_json(level, kind) for label, one in each.options.items()
                }
                for each in questions
            },
            "notes": list(self.notes),
        }


@takes(plan=Plan, tally=Tally)
def estimate(plan: Plan, tally: Tally, *, target: Target = "crowd") -> Estimates:
    """Estimate how many people are behind each bit.

    Parameters
    ----------
    plan, tally
        The plan, and the tally of its reports. A plan with a crowd refuses a tally of fewer
        reports, because its noise was chosen for the complete crowd. Of several crowds whose people
        may be the same each must be complete; with fresh flips their counts are of answers, and
        with memory, whose flips repeat, they are refused.
    target
        ``"crowd"`` for the people who reported, ``"population"`` for those they are a random
        sample of; refused for crowds whose people may be the same.

    Examples
    --------
    >>> from shoal import Flags, Survey, tally
    >>> from shoal.protocol.plan import Promise
    >>> from shoal.protocol.wire import Synthetic
    >>> survey = Survey("browser", (Flags("features", ("sync", "vpn")),))
    >>> plan = Plan(survey, FlipProbability.at_least(0.25), Promise("local", "2.2"))
    >>> reports = Synthetic(np.array([[1]] * 300 + [[2]] * 700, np.uint8), bits=2)
    >>> sync = estimate(plan, tally(plan, reports))["features"]["sync"]
    >>> sync.count, round(sync.sigma, 2), sync.interval(0.95)
    (100.0, 27.39, Interval(low=45, high=154, level=0.95, kind='exact', compatible=True))
    """
    check_target(target)
    if plan.q.is_blind:
        raise InputError("q is 1/2: reports carry no information, so nothing can be estimated.")
    check_crowd(plan, tally)
    if target == "population" and tally.people_may_repeat:
        raise InputError(
            f"the people of these {len(tally.crowds):,} crowds may be the same, so they are not a"
            f" sample of {tally.reports:,} people. {repeat_remedy(tally.crowds)}"
        )
    return Estimates(plan, tally, target)


def check_crowd(plan: Plan, tally: Tally) -> None:
    """Refuse a tally that is empty, of another plan, of too few reports, or beyond the plan's view.

    Of a sum of crowds whose people may be the same each must be complete by itself. With memory a
    person's permanent flips are in every one of them, which no promise or interval allows for.
    """
    if tally.plan_id != plan.id:
        raise TallyError("the tally is of another plan.")
    if plan.view == "counts" != tally.view:
        raise PrivacyRefusal(
            f"{COUNTS_ONLY}, but this one counts set bits; count its reports again."
        )
    if plan.view != tally.view:
        raise TallyError(
            "the plan's view is reports, but the tally holds only the counts of single bits; count"
            " the reports again."
        )
    if tally.reports == 0:
        raise TallyError("the tally is empty; there is nothing to estimate from.")
    crowds, repeat = tally.crowds, tally.people_may_repeat
    if repeat and plan.memory is not None:
        raise PrivacyRefusal(
            f"the people of these {len(crowds):,} crowds may be the same, and memory puts the same"
            " permanent flips into each of their reports, so that nothing holds for the sum; take"
            f" each crowd by itself. {repeat_remedy(crowds)}"
        )
    if plan.crowd_size is not None and not tally.simulated:
        _check_sizes(plan, tally)
    check_promise(plan)


def _check_sizes(plan: Plan, tally: Tally) -> None:
    crowds, repeat = tally.crowds, tally.people_may_repeat
    needed = plan.reports_needed
    if plan.parties is not None and all(crowd.released for crowd in crowds):
        # The analyzer received all reports and released those that it could read. The honest
        # reports are among them, if at least crowd_size are left.
        needed = plan.crowd_size or 0
    smallest = min(crowds, key=lambda crowd: crowd.reports)
    if repeat and smallest.reports < needed:
        raise PrivacyRefusal(
            f"the plan needs a crowd of {needed:,} reports; the people of these"
            f" {len(crowds):,} crowds may be the same, and {smallest} has {smallest.reports:,}."
            f" {repeat_remedy(crowds)}"
        )
    if tally.reports < needed:
        raise PrivacyRefusal(
            f"the plan needs a crowd of {needed:,} reports, but the tally has"
            f" {tally.reports:,}; wait for the whole crowd{replanning(plan, tally.reports)}"
        )


def sample_size(
    q: object,
    *,
    share: float,
    relative_error: float,
    level: float = 0.95,
    kind: Literal["normal", "chebyshev"] = "normal",
    target: Target = "crowd",
) -> int:
    """Return how many reports estimate a group of `share` within `relative_error` of itself.

    For the population and Chebyshev this is LEC Thm 5, n = 1 / (4 miss error^2 (1 - 2q)^2), with
    the variance of a group of that share in place of its bound 1/4: if the group has that share,
    the estimate is that close with at least the probability `level` (theorem). The normal number
    is smaller and approximate. Where it expects so few flips that they are far from normal, as with
    a tiny q, it is replaced by a theorem's: Bernstein's or Chebyshev's, whichever is smaller.

    >>> sample_size(0.351, share=0.01, relative_error=0.1)
    9854067
    """
    q_value = float(exact_fraction(q) if not isinstance(q, FlipProbability) else q.fraction)
    check_level(level)
    check_target(target)
    if not 0 < check_number("share", share) <= 1:
        raise InputError(f"share must be in (0, 1], got share={share}.")
    if check_number("relative_error", relative_error) <= 0:
        raise InputError(f"relative_error must be above 0, got {relative_error}.")
    if q_value == 0.5:
        raise InputError("q is 1/2: reports carry no information, however many there are.")
    if kind not in ("normal", "chebyshev"):
        raise InputError(f"interval must be normal or chebyshev here, got {kind!r}.")
    rate = q_value if target == "crowd" else q_value + (1 - 2 * q_value) * share
    miss = 1 - level
    variance, error = rate * (1 - rate), share * relative_error * (1 - 2 * q_value)
    if error < 1e-100:
        raise InputError(f"no number of reports gets within {error:g} of the crowd.")
    by_chebyshev = variance / (miss * error**2)
    by_normal = normal_factor(level) ** 2 * variance / error**2
    if kind == "chebyshev":
        return math.ceil(by_chebyshev)
    if by_normal * variance >= _MIN_FLIPS:
        return math.ceil(by_normal)
    by_bernstein = 2 * math.log(2 / miss) * (variance + error / 3) / error**2
    return math.ceil(min(by_chebyshev, by_bernstein))


def nearest_feasible(
    counts: NDArray[np.float64], reports: int, lowest: int, highest: int
) -> NDArray[np.float64]:
    """Return the nearest counts in [0, reports] whose total is in [lowest, highest].

    All counts of a question have the same variance and independent noise, so this is constrained
    least squares: clip(count - shift) for one shift. The total falls as the shift rises, in a
    straight line between the shifts at which a count reaches an end.
    """

    def total(shift: float) -> float:
        return float(np.clip(counts - shift, 0, reports).sum())

    wanted = min(max(total(0.0), lowest), highest)
    if wanted == total(0.0):
        return np.clip(counts, 0, reports)
    ends = np.unique(np.concatenate((counts - reports, counts)))
    right = smallest(lambda place: total(ends[place]) <= wanted, 0, ends.size - 1)
    left = max(right - 1, 0)
    between = np.count_nonzero((counts >= ends[right]) & (counts - reports <= ends[left]))
    shift = float(ends[left]) + (total(ends[left]) - wanted) / between
    return np.clip(counts - shift, 0, reports)


def _elsewhere(question: Question) -> str | None:
    """Say how to find a question's answers, if its bits mean nothing one by one."""
    if not isinstance(question, Text):
        return None
    without = ", or without candidates with shoal discover" if question.pairs else ""
    return f"question {question.name!r} is text; find its answers with shoal decode{without}."


def estimate_rows(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a flat row for each option of ``document["estimates"]``.

    If people read other words than the names, ``document["words"]`` has them, and a row too.
    """
    estimates, words = document["estimates"], document.get("words", {})
    names = ("reports", "level", "interval", "target", "simulated", "plan")
    shared = {name: estimates[name] for name in names} | {"crowds": len(estimates["crowds"])}
    for question, options in estimates["questions"].items():
        for label, row in options.items():
            numbers = {name: float(row[name]) for name in NUMBERS}
            compatible = not row.get("incompatible", False)
            row = {"question": question, "option": label, **numbers, "compatible": compatible}
            titles = [words[question]["title"], words[question]["options"][label]] if words else ()
            yield row | shared | dict(zip(_TITLES, titles, strict=False))


def estimates_arrow(document: Mapping[str, Any]) -> pa.Table:
    """Return the estimates as an Arrow table that carries the whole JSON as metadata."""
    import pyarrow as pa

    kinds = {"reports": pa.int64(), "crowds": pa.int64(), "level": pa.float64()}
    kinds |= dict.fromkeys(NUMBERS, pa.float64())
    kinds |= dict.fromkeys(("compatible", "simulated"), pa.bool_())
    order = ("question", "option", *NUMBERS, "compatible", "reports", "level", "interval")
    titles = _TITLES if document.get("words") else ()
    fields = [
        (name, kinds.get(name, pa.string()))
        for name in (*order, "target", "simulated", "plan", "crowds", *titles)
    ]
    schema = pa.schema(fields, metadata={"shoal": json.dumps(document, allow_nan=False)})
    return pa.Table.from_pylist(list(estimate_rows(document)), schema=schema)
