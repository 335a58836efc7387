"""What a curator's queries take: rows, bounds and categories, checked.

The messages are for the curator, who sees the data anyway; still they name a row and not what it
holds, because messages end up in logs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.errors import InputError, PrivacyRefusal
from shoal.support.checks import check_number

__all__ = [
    "MOST_CELLS",
    "OTHER",
    "check_some_rows",
    "checked_bounds",
    "checked_categories",
    "checked_numbers",
]

MOST_CELLS = 1_000_000

OTHER = "(other)"
"""The label of the cell for values that are no declared category."""

_LARGEST_WHOLE_BOUND = 2**31


def check_some_rows(query: str, rows: int) -> None:
    """Refuse to divide by nothing."""
    if rows < 1:
        raise InputError(f"a {query} of no rows is undefined; the table must have a row.")


def checked_bounds(query: str, bounds: Any, whole: bool) -> tuple[float, float]:
    """Return the declared bounds; without them a sum or a mean is refused."""
    if bounds is None:
        raise PrivacyRefusal(
            f"without bounds one person can change a {query} by any amount and no noise hides it;"
            " declare the lowest and the highest value that anybody may have."
        )
    try:
        low, high = bounds
    except (TypeError, ValueError):
        raise InputError(f"bounds are two numbers, got bounds={bounds!r}.") from None
    low, high = check_number("the lower bound", low), check_number("the upper bound", high)
    if not low < high:
        raise InputError(f"the lower bound must be below the upper one, got {low:g} and {high:g}.")
    largest = max(abs(low), abs(high))
    if whole and (low != int(low) or high != int(high) or largest > _LARGEST_WHOLE_BOUND):
        raise InputError(
            "the bounds of whole numbers must be whole numbers within 2^31; leave out whole."
        )
    if largest > 1e150 or high - low < 1e-150:
        raise InputError(f"bounds must be within 1e150 and 1e-150 apart, got {low:g} and {high:g}.")
    return low, high


def checked_numbers(
    numbers: NDArray[np.float64], low: float, high: float, clamp: bool, whole: bool
) -> NDArray[np.float64]:
    """Return a column of numbers within its bounds, or clamped to them."""
    _check_rows(np.isfinite(numbers), "must hold a finite number")
    if whole:
        _check_rows(numbers == np.floor(numbers), "must hold a whole number, as declared")
    if clamp:
        return np.clip(numbers, low, high)
    inside = (numbers >= low) & (numbers <= high)
    _check_rows(inside, f"must be within the declared bounds {low:g} to {high:g}; or clamp")
    return numbers


def _check_rows(good: NDArray[np.bool_], rule: str) -> None:
    """Name the first bad row, not what it holds."""
    if not good.all():
        raise InputError(f"row {int(np.argmin(good)) + 1} {rule}.")


def checked_categories(categories: Sequence[str], other: bool) -> tuple[str, ...]:
    """Return the labels of the cells."""
    if isinstance(categories, str) or not all(isinstance(c, str) for c in categories):
        raise InputError("categories must be a list of texts.")
    cells = (*categories, *([OTHER] if other else []))
    if len(set(cells)) < len(cells):
        twice = next(cell for cell, times in Counter(cells).items() if times > 1)
        raise InputError(f"category {twice!r} is declared twice; name each category once.")
    if not 2 <= len(cells) <= MOST_CELLS:
        raise InputError(
            f"a histogram needs 2 to {MOST_CELLS} cells, got {len(cells)}; for one use a count."
        )
    for cell in cells:
        if len(cell) > 1000:
            raise InputError("a category is at most 1000 characters long.")
    return cells
