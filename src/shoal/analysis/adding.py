"""The sums of what two tallies hold, None where neither holds it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from shoal.analysis.joint_counts import Bits, Counts
from shoal.protocol.plan import View

if TYPE_CHECKING:
    from shoal.analysis.tally import CohortCounts, Tally

__all__ = ["add_cohorts", "add_counts", "add_vectors", "what_is_counted"]


def what_is_counted(tally: Tally) -> tuple[View, bool, set[Bits]]:
    """Return what a tally counts beside single bits; tallies add where this is the same."""
    return tally.view, tally.by_vector is None, set(tally.joint)


def add_counts(mine: Counts | None, other: Counts | None) -> Counts | None:
    """Return the sum of two arrays of counts."""
    return None if mine is None or other is None else mine + other


def add_vectors(
    mine: Mapping[str, int] | None, other: Mapping[str, int] | None
) -> dict[str, int] | None:
    """Return how often each vector occurs in both."""
    if mine is None or other is None:
        return None
    keys = sorted(mine.keys() | other.keys())
    return {key: mine.get(key, 0) + other.get(key, 0) for key in keys}


def add_cohorts(
    mine: tuple[CohortCounts, ...] | None, other: tuple[CohortCounts, ...] | None
) -> tuple[CohortCounts, ...] | None:
    """Return the sum of each cohort's counts."""
    if mine is None or other is None:
        return None
    return tuple(a + b for a, b in zip(mine, other, strict=True))
