"""Shares of a whole: of a question with one answer, they add up to 100 %, also as printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shoal.reports.words import percent, share_decimals

__all__ = ["whole_shares"]


def whole_shares(rows: Mapping[str, Mapping[str, Any]], reports: int) -> dict[str, str]:
    r"""Write the constrained shares of a question's options, so that what is printed adds to 100 %.

    Each is rounded down first; what is missing goes to those that lost most (largest remainders).

    >>> thirds = {name: {"constrained": 100 / 3, "sigma": 5.0} for name in "abc"}
    >>> [text.replace("\u202f", "") for text in whole_shares(thirds, 100).values()]
    ['33.4%', '33.3%', '33.3%']
    """
    decimals = max((share_decimals(row["sigma"] / reports) for row in rows.values()), default=1)
    shares = [row["constrained"] / reports for row in rows.values()]
    steps = _apportioned(shares, 10 ** (decimals + 2))
    return {
        label: percent(step / 10 ** (decimals + 2), decimals)
        for label, step in zip(rows, steps, strict=True)
    }


def _apportioned(shares: Sequence[float], whole: int) -> list[int]:
    """Return whole numbers in proportion to shares that add to one; they add to `whole`."""
    exact = [share * whole for share in shares]
    steps = [int(one) for one in exact]
    left = whole - sum(steps)
    order = sorted(range(len(exact)), key=lambda place: (steps[place] - exact[place], place))
    for place in order[: max(left, 0)]:
        steps[place] += 1
    return steps
