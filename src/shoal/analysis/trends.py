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
from shoal.analysis.tally import Tally
from shoal.errors import InputError
from shoal.protocol.plan import Plan
from shoal.support.checks import check_level, listed, takes
from shoal.support.results import Displayed, Section, TableExport, arrow_rows, first_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class Trend(Displayed, TableExport):
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

    def to_arrow(self) -> pa.Table:
        """Return the shares as an Arrow table, a row for each option in each crowd."""
        rows = [
            {"question": name, "option": label, "crowd": place} | row
            for name, options in self.to_json()["questions"].items()
            for label, crowds in options.items()
            for place, row in enumerate(crowds, 1)
        ]
        return arrow_rows(["question", "option"], rows, level=self.level)

    def plot(self) -> Figure:
        """Draw the shares over the crowds, question by question; needs matplotlib."""
        from shoal.reports.plots.results import plot_trend

        return plot_trend(self)

    def _headline(self) -> str:
        plan = self.crowds[0].plan
        simulated = ", simulated" if any(one.tally.simulated for one in self.crowds) else ""
        return (
            f"{plan.survey.name}: {len(self.crowds)} crowds{simulated}, shares with exact intervals"
            f" at {self.level:.6g} for all of a question at once"
        )

    def _sections(self) -> list[Section]:
        heads = [f"crowd {place}" for place in range(1, len(self.crowds) + 1)]
        sections = []
        for name, options in self.to_json()["questions"].items():
            shown, left_out = first_rows(options.items())
            rows = [
                (label, *(f"{one['share']:.1%} ({_ends(one)})" for one in crowds))
                for label, crowds in shown
            ]
            sections.append(Section((name, *heads), rows, left_out=left_out))
        return sections

    def _question(self, name: str) -> dict[str, list[dict[str, float]]]:
        options = self.crowds[0][name]
        level = 1 - (1 - self.level) / (len(options) * len(self.crowds))
        return {
            label: [_share(crowd[name][label], level) for crowd in self.crowds] for label in options
        }


def _ends(share: dict[str, float]) -> str:
    return f"{share['low']:.1%} to {share['high']:.1%}"


@takes(plan=Plan)
def trend(plan: Plan, tallies: Sequence[Tally], level: float = 0.95) -> Trend:
    """Return how the answers to a plan change over two or more complete crowds."""
    check_level(level)
    if len(tallies) < 2:
        raise InputError(f"a trend needs two crowds or more, got {len(tallies)}.")
    return Trend(tuple(estimate(plan, one) for one in tallies), level)


@dataclass(frozen=True, repr=False)
class CrowdDifference(Displayed, TableExport):
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

    def _headline(self) -> str:
        first, second = self.first.tally, self.second.tally
        return (
            f"{self.first.plan.survey.name}: {first.in_words} minus {second.in_words}, exact"
            f" intervals at {self.level:.6g} for all of a question at once; differences in"
            " percentage points"
        )

    def _sections(self) -> list[Section]:
        heads = ("first", "second", "difference", "low", "high", "differs")
        sections = []
        for name, options in self.to_json()["questions"].items():
            shown, left_out = first_rows(options.items())
            rows = [
                (
                    label,
                    *(f"{row[key]:.2%}" for key in heads[:2]),
                    *(f"{row[key] * 100:+.2f}" for key in heads[2:5]),
                    "yes" if row["differs"] else "",
                )
                for label, row in shown
            ]
            sections.append(Section((name, *heads), rows, left_out=left_out))
        return sections

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
