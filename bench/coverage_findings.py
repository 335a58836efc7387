"""What a study of coverage found: the lowest coverage of each kind of interval, and where."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

__all__ = ["FLIPS", "LEVEL", "SMALL", "Array", "Findings", "covered", "shares_of"]

Array = NDArray[np.float64]

LEVEL = 0.95
SMALL = (1, 2, 3, 5, 10, 20)
FLIPS = (
    *("1e-12", "1e-9", "1e-5", "0.001", "0.01", "0.05", "0.1"),
    *("0.2", "0.3", "0.4", "0.45", "0.49", "0.499999"),
)
LARGE = 10.0
"""Normal intervals are for crowds with N p q above this."""


@dataclass
class Lowest:
    """The lowest coverage of one kind: of all cells, and of those with enough flips."""

    cells: int = 0
    lowest: float = math.inf
    where: str = ""
    large_cells: int = 0
    large: float = math.inf

    def add(self, covered: float, flips: float, where: str) -> None:
        """Take one truth into account."""
        self.cells += 1
        if covered < self.lowest:
            self.lowest, self.where = covered, where
        if flips >= LARGE:
            self.large_cells += 1
            self.large = min(self.large, covered)


@dataclass
class Findings:
    """What was found for each kind, target and combination."""

    rows: dict[tuple[str, str, str], Lowest] = field(default_factory=dict)

    def add(self, key: tuple[str, str, str], covered: float, flips: float, where: str) -> None:
        """Take one truth of one kind into account."""
        self.rows.setdefault(key, Lowest()).add(covered, flips, where)

    def lines(self) -> Iterator[str]:
        """Yield the table in Markdown."""
        yield (
            "| interval | target | of | status | truths | lowest coverage | where |"
            f" lowest with Npq ≥ {LARGE:g} |"
        )
        yield "|---|---|---|---|---|---|---|---|"
        for (kind, target, what), row in sorted(self.rows.items()):
            status = "approximate" if kind == "normal" else "theorem"
            large = _down(row.large) if row.large_cells else "–"
            yield (
                f"| {kind} | {target} | {what} | {status} | {row.cells:,} | {_down(row.lowest)} |"
                f" {row.where} | {large} |"
            )


def _down(share: float) -> str:
    """Return a percentage, rounded down."""
    return f"{math.floor(share * 10000 + 1e-7) / 100:.2f} %"


def shares_of(n: int) -> list[float]:
    """Return the shares of a population that are tried."""
    found = {0.0, 1e-6, 0.001, 0.01, 0.05, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 1.0}
    found |= {1 / n, 1 - 1 / n}
    return sorted(found | ({1.5 / n, 3 / n} if n > 3 else set()))


def covered(ends: tuple[Array, Array], law: Array, truth: float) -> float:
    """Return the probability of the counts whose interval holds the truth."""
    slack = 1e-9 * max(1.0, abs(truth))
    return float(law[(ends[0] <= truth + slack) & (truth - slack <= ends[1])].sum())
