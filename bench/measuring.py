"""Candidates for the same work, timed in turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

LIMIT = "LIMIT: "
"""How the name of a candidate begins that shows what the machine can do at best."""


@dataclass(frozen=True)
class Options:
    """How carefully to measure."""

    rounds: int = 15
    quick: bool = False

    def size(self, count: int) -> int:
        """Return how many reports to work on: a tenth of the usual number if it must be quick."""
        return count // 10 if self.quick else count


@dataclass(frozen=True)
class Candidate:
    """One way to do the work; `run` handles `reports` reports."""

    name: str
    reports: int
    run: Callable[[], object]


@dataclass(frozen=True)
class Table:
    """What a section measured, and what it means."""

    title: str
    columns: Sequence[str]
    rows: list[Sequence[Any]]
    text: str
    notes: list[str] = field(default_factory=list)
    best: bool = True
    """Whether the rows are the best of the rounds; else the text says what they are."""


def candidates_of(
    makers: Iterable[tuple[str, int, Callable[[], Callable[[], Any]]]],
    check: Callable[[str, Any], None],
) -> list[Candidate]:
    """Set up the candidates and check what they return; leave out peers that do not import."""
    candidates = []
    for name, reports, make in makers:
        try:
            run = make()
        except ImportError as error:
            print(f"  without {name}: {error}")
            continue
        check(name, run())
        candidates.append(Candidate(name, reports, run))
    return candidates


def best_times(candidates: Iterable[Candidate], rounds: int) -> dict[str, float]:
    """Return the best time of each candidate in seconds.

    Every candidate runs once a round, after one round that does not count. Whatever else the
    machine does then slows all of them alike, and the ratios can be trusted.
    """
    candidates = list(candidates)
    best = dict.fromkeys((candidate.name for candidate in candidates), float("inf"))
    for number in range(rounds + 1):
        for candidate in candidates:
            start = time.perf_counter()
            candidate.run()
            if number:
                best[candidate.name] = min(best[candidate.name], time.perf_counter() - start)
        print(f"\r  round {number} of {rounds}", end="", flush=True)
    print()
    return best


def compare_rates(
    title: str, candidates: list[Candidate], options: Options, text: str, notes: list[str]
) -> Table:
    """Return the rates of the candidates, of which the first is ours and the last is the limit."""
    best = best_times(candidates, options.rounds)
    rates = {candidate.name: candidate.reports / best[candidate.name] for candidate in candidates}
    ours, limit = rates[candidates[0].name], rates[candidates[-1].name]
    rows: list[Sequence[Any]] = [
        (name, rate / 1e6, ours / rate, 100 * rate / limit) for name, rate in rates.items()
    ]
    columns = ("candidate", "M reports/s", "ours / candidate", "% of the limit")
    return Table(title, columns, rows, text, notes)
