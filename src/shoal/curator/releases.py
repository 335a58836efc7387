"""One function for each thing a curator releases.

Everything is checked, and the noise made ready, before the budget is asked; the budget has written
down what is spent before the noise is drawn.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from shoal.curator.budget import Budget
from shoal.curator.inputs import (
    MOST_CELLS,
    check_some_rows,
    checked_bounds,
    checked_categories,
    checked_marks,
    checked_numbers,
)
from shoal.curator.noise import mechanism
from shoal.curator.released import Query, Release
from shoal.curator.sensitivity import (
    Neighbours,
    check_epsilon,
    check_neighbours,
    check_public_size,
    count_sensitivity,
    histogram_sensitivity,
    sum_sensitivity,
)
from shoal.curator.sums import exact_sum, lattice_step, on_lattice
from shoal.errors import InputError
from shoal.support.checks import check_decimal, check_integer, check_text

__all__ = [
    "release_count",
    "release_fraction",
    "release_histogram",
    "release_mean",
    "release_sum",
    "release_vector",
]


@dataclass(frozen=True)
class _Wish:
    """How a release is to be made; the arguments that all of them share."""

    epsilon: str
    neighbours: Neighbours
    budget: Budget | None
    what: str | None

    @classmethod
    def checked(
        cls, epsilon: object, neighbours: object, budget: Budget | None, what: str | None
    ) -> _Wish:
        text = None if what is None else check_text("what", what)
        return cls(check_epsilon(epsilon), check_neighbours(neighbours), budget, text)

    def release(
        self,
        query: Query,
        exact: Sequence[Any],
        sensitivity: Fraction,
        *,
        whole: bool,
        rows: int,
        labels: tuple[str, ...] | None = None,
    ) -> Release:
        """Make the noise ready, spend, draw."""
        ready = mechanism(sensitivity, self.epsilon, exact, whole=whole)
        if self.budget is not None:
            self.budget.spend(self.epsilon, neighbours=self.neighbours, what=self.what or query)
        noisy = tuple(ready(exact))
        return Release(
            query,
            noisy,
            labels,
            self.epsilon,
            self.neighbours,
            sensitivity,
            ready.scale,
            Fraction(1) if whole else None,
            ready.scale,
            rows if self.neighbours == "replace" else None,
            rounding=0.0 if whole else max(map(math.ulp, noisy), default=0.0),
        )


def release_count(
    chosen: ArrayLike,
    *,
    epsilon: object,
    neighbours: Neighbours,
    budget: Budget | None = None,
    what: str | None = None,
) -> Release:
    """Release how many rows are chosen, with whole-valued noise.

    Parameters
    ----------
    chosen
        For each row whether it counts; or the number of rows, to count them all. Under replace
        that number is public: it is given without noise and spends nothing.
    epsilon
        The privacy of this release, a decimal.
    neighbours
        ``"replace"`` or ``"add-remove"``; it is never guessed.
    budget, what
        The budget to draw from, and what it shall write down.

    Examples
    --------
    >>> release = release_count([True, False] * 500, epsilon="0.5", neighbours="replace")
    >>> release.scale, release.accuracy(0.05).alpha
    (2.0, 6)
    """
    wish = _Wish.checked(epsilon, neighbours, budget, what)
    if np.ndim(chosen) == 0:
        rows = check_integer("rows", chosen, lowest=0)
        return _all_rows(wish, rows)
    marks = checked_marks(chosen)
    sensitivity = count_sensitivity(wish.neighbours)
    return wish.release("count", [int(marks.sum())], sensitivity, whole=True, rows=len(marks))


def _all_rows(wish: _Wish, rows: int) -> Release:
    sensitivity = count_sensitivity(wish.neighbours, all_rows=True)
    if sensitivity:
        return wish.release("count", [rows], sensitivity, whole=True, rows=rows)
    return Release("count", (rows,), None, wish.epsilon, wish.neighbours, sensitivity, 0.0,
                   Fraction(1), 0.0, rows)  # fmt: skip


def release_fraction(
    chosen: ArrayLike,
    *,
    epsilon: object,
    neighbours: Neighbours,
    budget: Budget | None = None,
    what: str | None = None,
) -> Release:
    """Release which fraction of the rows is chosen: a noisy count over the public size.

    Under add-remove the size is private; release the two counts instead.

    Examples
    --------
    >>> release = release_fraction([True, False] * 500, epsilon="0.5", neighbours="replace")
    >>> release.sensitivity, release.scale
    (Fraction(1, 1000), 0.002)
    """
    wish = _Wish.checked(epsilon, neighbours, budget, what)
    way_out = (
        "the count of the chosen rows and the count of all rows, each with a share of epsilon,"
    )
    check_public_size("fraction", wish.neighbours, way_out)
    marks = checked_marks(chosen)
    count, sensitivity = int(marks.sum()), count_sensitivity(wish.neighbours)
    check_some_rows("fraction", len(marks))
    made = wish.release("fraction", [count], sensitivity, whole=True, rows=len(marks))
    return _divided(made, len(marks))


def release_sum(
    values: ArrayLike,
    *,
    bounds: tuple[object, object] | None,
    epsilon: object,
    neighbours: Neighbours,
    clamp: bool = False,
    whole: bool = False,
    budget: Budget | None = None,
    what: str | None = None,
) -> Release:
    """Release the sum of a column with declared bounds.

    Parameters
    ----------
    values
        One number per row.
    bounds
        The lowest and the highest value that anybody may have, known before the data are seen. A
        value outside is an error, unless `clamp` moves it to the nearer bound.
    whole
        Declares that all values are whole numbers; then the noise is whole-valued too.
    epsilon, neighbours, budget, what
        See `release_count`.

    Examples
    --------
    >>> ages = [31, 45, 22, 67] * 100
    >>> release = release_sum(
    ...     ages, bounds=(0, 120), epsilon=1, neighbours="add-remove", whole=True
    ... )
    >>> release.sensitivity, release.scale
    (Fraction(120, 1), 120.0)
    """
    wish = _Wish.checked(epsilon, neighbours, budget, what)
    return _sum(wish, "sum", values, bounds, clamp, whole)


def release_mean(
    values: ArrayLike,
    *,
    bounds: tuple[object, object] | None,
    epsilon: object,
    neighbours: Neighbours,
    clamp: bool = False,
    whole: bool = False,
    budget: Budget | None = None,
    what: str | None = None,
) -> Release:
    """Release the mean of a column with declared bounds: a noisy sum over the public size.

    Under add-remove the size is private; release the sum and the count instead. For the
    parameters see `release_sum`.

    Examples
    --------
    >>> release = release_mean(
    ...     [31.5, 45.0, 22.0, 67.5] * 100, bounds=(0, 120), epsilon=1, neighbours="replace"
    ... )
    >>> release.sensitivity, round(release.scale, 6)
    (Fraction(3, 10), 0.3)
    """
    wish = _Wish.checked(epsilon, neighbours, budget, what)
    way_out = "the sum and the count, each with a share of epsilon,"
    check_public_size("mean", wish.neighbours, way_out)
    rows = np.size(np.asarray(values))
    check_some_rows("mean", rows)
    return _divided(_sum(wish, "mean", values, bounds, clamp, whole), rows)


def release_histogram(
    values: Iterable[Hashable],
    *,
    categories: Sequence[str],
    epsilon: object,
    neighbours: Neighbours,
    other: bool = False,
    budget: Budget | None = None,
    what: str | None = None,
) -> Release:
    """Release how many rows hold each of the declared categories, with whole-valued noise.

    Parameters
    ----------
    values
        One value per row.
    categories
        Every value that may occur, known before the data are seen: a cell that appears because
        somebody has a rare value gives that person away.
    other
        Adds a cell for everything that is not declared; without it such a value is an error.
    epsilon, neighbours, budget, what
        See `release_count`.

    Examples
    --------
    >>> release = release_histogram(
    ...     ["a", "b", "a"], categories=["a", "b", "c"], epsilon=1, neighbours="replace"
    ... )
    >>> release.labels, release.sensitivity
    (('a', 'b', 'c'), Fraction(2, 1))
    """
    wish = _Wish.checked(epsilon, neighbours, budget, what)
    cells = checked_categories(categories, other)
    listed = list(values)
    counts = Counter(listed)
    undeclared = sum(counts.values()) - sum(counts[cell] for cell in categories)
    if undeclared and not other:
        declared = set(categories)
        row = next(i for i, value in enumerate(listed, 1) if value not in declared)
        raise InputError(
            f"row {row} holds a value that is not a declared category; declare it, or ask for an"
            " other cell."
        )
    exact = [counts[cell] for cell in categories] + ([undeclared] if other else [])
    sensitivity = histogram_sensitivity(wish.neighbours)
    return wish.release("histogram", exact, sensitivity, whole=True, rows=len(listed), labels=cells)


def release_vector(
    values: ArrayLike,
    *,
    sensitivity: object,
    epsilon: object,
    neighbours: Neighbours,
    labels: Sequence[str] | None = None,
    budget: Budget | None = None,
    what: str | None = None,
) -> Release:
    """Release any vector whose l1 sensitivity you know (LEC Definitions 10 and 11).

    Integers get whole-valued noise, floats real-valued noise. The sensitivity is taken at your
    word; it must hold for the numbers as they were computed, rounding included.

    Examples
    --------
    >>> release = release_vector([12, 30], sensitivity=3, epsilon=1, neighbours="replace")
    >>> len(release.values), release.scale
    (2, 3.0)
    """
    wish = _Wish.checked(epsilon, neighbours, budget, what)
    array = np.asarray(values)
    if array.ndim != 1 or not 1 <= array.size <= MOST_CELLS or array.dtype.kind not in "iuf":
        raise InputError(f"a vector is a list of 1 to {MOST_CELLS} numbers.")
    whole = array.dtype.kind != "f"
    change = Fraction(Decimal(check_decimal("sensitivity", sensitivity, above=0)))
    if whole and change.denominator != 1:
        raise InputError(
            f"whole numbers change by whole numbers; round sensitivity={sensitivity} down."
        )
    names = None if labels is None else tuple(check_text("a label", label) for label in labels)
    if names is not None and len(set(names)) != array.size:
        raise InputError("there must be one label for each value, all different.")
    exact = [int(v) if whole else float(v) for v in array]
    made = wish.release("vector", exact, change, whole=whole, rows=0, labels=names)
    return replace(made, rows=None)


def _sum(
    wish: _Wish, query: Query, values: ArrayLike, bounds: Any, clamp: bool, whole: bool
) -> Release:
    low, high = checked_bounds(query, bounds, whole)
    numbers = checked_numbers(values, low, high, clamp, whole)
    sensitivity = sum_sensitivity(wish.neighbours, Fraction(low), Fraction(high))
    rows = len(numbers)
    if whole:
        total = int(numbers.astype(np.int64).sum())
        made = wish.release(query, [total], sensitivity, whole=True, rows=rows)
    else:
        # Under replace the lowest sum is public; what is above it needs fewer digits.
        floor = rows * Fraction(low) if wish.neighbours == "replace" else Fraction(0)
        step = lattice_step(sensitivity)
        above = on_lattice(exact_sum(numbers) - floor, step)
        raised = math.ceil(sensitivity / step) * step
        drawn = wish.release(query, [float(above)], raised, whole=False, rows=rows)
        value = float(Fraction(drawn.value) + floor)
        slack = float(step) + math.ulp(value) + drawn.rounding
        made = replace(drawn, values=(value,), sensitivity=sensitivity, rounding=slack)
    return replace(made, bounds=(float(low), float(high)), clamped=clamp)


def _divided(made: Release, rows: int) -> Release:
    """Return the release over the public number of rows; that is post-processing."""
    value = float(Fraction(made.value) / rows)
    return replace(
        made,
        values=(value,),
        sensitivity=made.sensitivity / rows,
        scale=made.scale / rows,
        unit=None if made.unit is None else made.unit / rows,
        rounding=made.rounding / rows + math.ulp(value),
    )
