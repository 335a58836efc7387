"""Funnels: how many people reached each step, and which part of them went on to the next.

A device reports the furthest step it reached, as one choice. Who reached at least a step is a total
of options, with an exact interval (`shoal.analysis.contrasts.total`). Step conversion is a ratio of
nested counts; its score interval uses the exact covariance of their flips and is approximate
(`shoal.analysis.ratios`). The intervals of all conversions hold together: misses add, which is
conservative.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.analysis.contrasts import Combination, total
from shoal.analysis.estimates import Estimates, estimate
from shoal.analysis.intervals import Target
from shoal.analysis.ratios import Array, GroupTable, GroupValue, no_spread, shown_ends
from shoal.analysis.tally import Tally
from shoal.errors import InputError
from shoal.protocol.plan import Plan
from shoal.protocol.survey import Funnel
from shoal.support.checks import check_level, listed, takes
from shoal.support.results import Displayed, Section, TableExport, arrow_rows
from shoal.theory.randomized_response import normal_factor

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class FunnelStep:
    """A step: how many people reached it, and which part of those at the step before."""

    step: str
    reached: Combination
    conversion: Combination | None


def choice_table(counts: Array, reports: int, variance: float) -> GroupTable:
    """Return the unbiased counts of one choice, made to add up to the reports, as one group."""
    options = counts.shape[-1]
    excess = reports - counts.sum(axis=-1, keepdims=True)
    noise = variance * (np.eye(options) - 1 / options)
    return GroupTable((counts + excess / options)[..., None, :], noise)


def conversion(table: GroupTable, step: int, steps: int) -> GroupValue:
    """Return which part of the people at a step went on to the next one; steps count from 0."""
    columns = np.arange(table.counts.shape[-1])
    return table.share(
        0,
        ((columns > step) & (columns < steps)).astype(float),
        ((columns >= step) & (columns < steps)).astype(float),
    )


@dataclass(frozen=True, eq=False, repr=False)
class FunnelResult(Displayed, TableExport):
    """The steps of a funnel; all conversions hold together at `level`, and so do all counts."""

    estimates: Estimates
    question: Funnel
    level: float

    @cached_property
    def steps(self) -> tuple[FunnelStep, ...]:
        """Every step in its order; the first has no conversion."""
        options = list(self.estimates[self.question.name].values())[: len(self.question.options)]
        number, reports = len(options), options[0].reports
        together = 1 - (1 - self.level) / number
        counts = np.array([one.count for one in self.estimates[self.question.name].values()])
        sigma = options[0].noise_sigma
        table = choice_table(counts, reports, sigma**2)
        found = []
        for place, label in enumerate(self.question.options):
            reached = total(options[place:], together)
            reached = replace(
                reached, low=max(reached.low, 0.0), high=min(reached.high, float(reports))
            )
            found.append(FunnelStep(label, reached, self._conversion(table, place, number)))
        return tuple(found)

    def _conversion(self, table: GroupTable, place: int, steps: int) -> Combination | None:
        if place == 0:
            return None
        value = conversion(table, place - 1, steps)
        if self.estimates.target == "crowd":
            value = GroupValue(value.top, value.whole, value.noise, no_spread)
        factor = normal_factor(1 - (1 - self.level) / max(steps - 1, 1))
        low, high = (float(end) for end in value.interval(factor))
        sigma = (high - low) / 2 / factor
        return Combination(float(value.value), sigma, low, high, self.level, "normal")

    def _headline(self) -> str:
        return (
            f"{self.question.name}: {len(self.question.options)} steps,"
            f" {self.estimates.tally.in_words}, intervals at {self.level:.6g} for all at once, for"
            f" the {self.estimates.target}"
        )

    def _sections(self) -> list[Section]:
        return [funnel_section(self.to_json())]

    def _remarks(self) -> list[str]:
        return ["Counts have exact intervals, conversions approximate ones."]

    def to_json(self) -> dict[str, Any]:
        """Return the steps as plain JSON values; null where nothing is known."""
        tally = self.estimates.tally
        return {
            "plan": self.estimates.plan.id,
            "reports": tally.reports,
            "simulated": tally.simulated,
            "question": self.question.name,
            "level": self.level,
            "target": self.estimates.target,
            "steps": [
                {
                    "step": one.step,
                    "reached": one.reached.to_json(),
                    "conversion": one.conversion and one.conversion.to_json(),
                }
                for one in self.steps
            ],
        }

    def to_arrow(self) -> pa.Table:
        """Return the steps as an Arrow table."""
        rows = []
        for one in self.to_json()["steps"]:
            row = {"step": one["step"]}
            for name in ("reached", "conversion"):
                ends = one[name] or {}
                row |= {f"{name}_{end}": ends.get(end) for end in ("value", "low", "high")}
            rows.append(row)
        return arrow_rows(["step"], rows, level=self.level)


def funnel_section(document: Mapping[str, Any]) -> Section:
    """Return how many people reached each step, and which part went on, from a funnel's JSON."""
    heads = ("step", "reached", "low", "high", "conversion", "low", "high")
    rows = []
    for one in document["steps"]:
        reached, parts = one["reached"], ["", "", ""]
        ends = f"{math.floor(reached['low']):,}", f"{math.ceil(reached['high']):,}"
        if (went := one["conversion"]) is not None:
            parts = ["?" if math.isnan(end) else f"{end:.2%}" for end in shown_ends(went)]
        rows.append((one["step"], f"{max(reached['value'], 0.0):,.0f}", *ends, *parts))
    return Section(heads, rows)


@takes(plan=Plan, tally=Tally)
def funnel(
    plan: Plan,
    tally: Tally,
    question: str | None = None,
    *,
    level: float = 0.95,
    target: Target = "population",
) -> FunnelResult:
    """Return how many people reached each step of a funnel, and the conversion of each step.

    `question` is the name of the funnel, if the survey has several.
    """
    check_level(level)
    funnels = {one.name: one for one in plan.survey.funnels}
    if not funnels:
        raise InputError(f"survey {plan.survey.name!r} has no question of kind funnel.")
    if question is None and len(funnels) > 1:
        raise InputError(f"the survey has several funnels; name one of {listed([*funnels])}.")
    name = next(iter(funnels)) if question is None else question
    if name not in funnels:
        raise InputError(f"{name!r} is not a funnel; the survey has {listed([*funnels])}.")
    return FunnelResult(estimate(plan, tally, target=target), funnels[name], level)


def funnels_of(estimates: Estimates, level: float = 0.95) -> dict[str, FunnelResult]:
    """Return every funnel of a survey, for the target of the estimates."""
    funnels = estimates.plan.survey.funnels
    return {one.name: FunnelResult(estimates, one, level) for one in funnels}
