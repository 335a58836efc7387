"""Several crowds side by side: how shares change over crowds, and how two crowds differ.

Each crowd is estimated by itself, so it does not matter whether the same people are in several. The
intervals are exact and hold together: with at least the level, all intervals of a question contain
their truths at once, over all options and crowds (misses add, theorem).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shoal.analysis.contrasts import share_difference
from shoal.analysis.estimates import Estimate, Estimates, estimate
from shoal.analysis.result_tables import TableExport, arrow_rows, plain_table
from shoal.analysis.tally import Tally
from shoal.errors import InputError
from shoal.protocol.plan import Plan
from shoal.support.checks import check_level, listed

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Trend:
    """The same questions in several crowds, in their order."""

    crowds: tuple[Estimates, ...]
    level: float

    def to_json(self, questions: Iterable[str] | None = None) -> dict[str, Any]:
        """Return the share of each option in each crowd; by default of all questions but text."""
        plan = self.crowds[0].plan
        wanted = list(self.crowds[0]) if questions is None else list(questions)
        return {
            "plan": plan.id,
            "level": self.level,
            "interval": "exact, all of a question at once",
            "simulated": any(one.tally.simulated for one in self.crowds),
            "crowds": [_crowd_json(one) for one in self.crowds],
            "questions": {name: self._question(name) for name in wanted},
        }

    def _question(self, name: str) -> dict[str, list[dict[str, float]]]:
        options = self.crowds[0][name]
        level = 1 - (1 - self.level) / (len(options) * len(self.crowds))
        return {
            label: [_share(crowd[name][label], level) for crowd in self.crowds] for label in options
        }


def trend(plan: Plan, tallies: Sequence[Tally], level: float = 0.95) -> Trend:
    """Return how the answers to a plan change over two or more complete crowds."""
    check_level(level)
    if len(tallies) < 2:
        raise InputError(f"a trend needs two crowds or more, got {len(tallies)}.")
    return Trend(tuple(estimate(plan, one) for one in tallies), level)


@dataclass(frozen=True, repr=False)
class CrowdDifference(TableExport):
    """How the shares of two crowds, perhaps of two plans, differ: first minus second."""

    first: Estimates
    second: Estimates
    level: float

    def to_json(self) -> dict[str, Any]:
        return {
            "level": self.level,
            "interval": "exact, all of a question at once",
            "simulated": self.first.tally.simulated or self.second.tally.simulated,
            "first": {"plan": self.first.plan.id} | _crowd_json(self.first),
            "second": {"plan": self.second.plan.id} | _crowd_json(self.second),
            "questions": {name: self._question(name, own) for name, own in self._common().items()},
        }

    def to_arrow(self) -> pa.Table:
        rows = [
            {"question": name, "option": label} | row
            for name, options in self.to_json()["questions"].items()
            for label, row in options.items()
        ]
        return arrow_rows(["question", "option"], rows, level=self.level)

    def __str__(self) -> str:
        rows = [
            (
                f"{row['question']}: {row['option']}",
                *(f"{row[key]:.2%}" for key in ("first", "second")),
                *(f"{row[key]:+.2%}" for key in ("difference", "low", "high")),
                "yes" if row["differs"] else "",
            )
            for row in self.to_arrow().to_pylist()
        ]
        return plain_table(
            ("option", "first", "second", "difference", "low", "high", "differs"), rows
        )

    def __repr__(self) -> str:
        return f"CrowdDifference({self.first!r}, {self.second!r})"

    def _common(self) -> dict[str, list[str]]:
        both = {
            name: [label for label in self.first[name] if label in self.second[name]]
            for name in self.first
            if name in set(self.second)
        }
        return {name: labels for name, labels in both.items() if labels}

    def _question(self, name: str, labels: Sequence[str]) -> dict[str, dict[str, Any]]:
        level = 1 - (1 - self.level) / len(labels)
        rows = {}
        for label in labels:
            one, other = self.first[name][label], self.second[name][label]
            apart = share_difference(one, other, level)
            rows[label] = {
                "first": one.share,
                "second": other.share,
                "first_constrained": one.constrained / one.reports,
                "second_constrained": other.constrained / other.reports,
                "difference": apart.value,
                "sigma": apart.sigma,
                "low": apart.low,
                "high": apart.high,
                "differs": apart.differs,
            }
        return rows


def crowd_difference(
    first: tuple[Plan, Tally], second: tuple[Plan, Tally], level: float = 0.95
) -> CrowdDifference:
    """Return how the answers of two crowds differ, each given as its plan and its tally."""
    check_level(level)
    result = CrowdDifference(estimate(*first), estimate(*second), level)
    if not result._common():
        mine, theirs = (listed([q.name for q in plan.survey]) for plan, _ in (first, second))
        raise InputError(f"the surveys have no option in common: one asks {mine}, one {theirs}.")
    return result


def _crowd_json(estimates: Estimates) -> dict[str, Any]:
    tally = estimates.tally
    return {"reports": tally.reports, "crowds": [crowd.to_json() for crowd in tally.crowds]}


def _share(one: Estimate, level: float) -> dict[str, float]:
    bounds = one.interval(level)
    return {
        "share": one.share,
        "constrained": one.constrained / one.reports,
        "low": bounds.low / one.reports,
        "high": bounds.high / one.reports,
    }
