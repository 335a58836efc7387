"""A trusted curator: one table, one relation of neighbours, one budget, many releases.

Everything is checked, and the noise prepared, before the budget is asked; the budget has recorded
the expense before the noise is drawn. Messages name a row, never its content: they end up in logs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shoal.curator.budget import Budget
from shoal.curator.columns import Predicate, read_columns, table_in_memory
from shoal.curator.noise import (
    Neighbours,
    check_epsilon,
    check_neighbours,
    check_public_rows,
    check_public_size,
    count_sensitivity,
    exact_sum,
    histogram_sensitivity,
    lattice_step,
    mechanism,
    on_lattice,
    sum_sensitivity,
)
from shoal.curator.query import Query, Release
from shoal.errors import InputError, PrivacyRefusal
from shoal.support.checks import check_decimal, check_number, check_text
from shoal.support.results import printable, shortened
from shoal.support.table_format import DEFAULT_FORMAT, TableFormat

MAX_CELLS = 1_000_000
OTHER = "(other)"  # label of the cell for values that are no declared category
_MAX_WHOLE_BOUND = 2**31


class Curator:
    """Releases statistics of one table with exact noise, within one budget.

    Parameters
    ----------
    data
        One row for each person: the path of a .csv or .parquet file, or a table in memory, such as
        a mapping from column names to lists, a data frame or an Arrow table.
    budget
        The budget that every release draws from. Without one no total is kept.
    neighbours
        ``"replace"`` (one row becomes another; the number of rows is public) or ``"add-remove"``
        (one row comes or goes; it is private). It is never guessed.
    table_format
        The format of the cells, and what to do with invalid ones. Each row is read by itself.

    Every release takes its own `epsilon`, a decimal above 0. Bad input spends nothing.

    Examples
    --------
    >>> people = {"age": [31, 45, 22, 67] * 100, "city": ["Rome", "Oslo"] * 200}
    >>> curator = Curator(people, Budget("2"), neighbours="replace")
    >>> adults = curator.count("age>=30", epsilon="0.5")
    >>> adults.scale, adults.accuracy(0.05).alpha
    (2.0, 6)
    >>> curator.mean("age", bounds=(0, 120), epsilon="0.5").sensitivity
    Fraction(3, 10)
    >>> curator.budget.left
    '1'
    """

    def __init__(
        self,
        data: Path | str | Any,
        budget: Budget | None = None,
        *,
        neighbours: Neighbours,
        table_format: TableFormat = DEFAULT_FORMAT,
    ) -> None:
        self._data = data if isinstance(data, (Path, str)) else table_in_memory(data)
        self._format = table_format
        self.budget = budget
        """The budget that every release draws from."""
        self.neighbours = check_neighbours(neighbours)
        """Which tables count as neighbours."""
        check_public_rows(self.neighbours, table_format)

    def count(self, where: Predicate | str | None = None, *, epsilon: object) -> Release:
        """Release how many rows satisfy a predicate, with whole-number noise.

        Without a predicate all rows are counted. Under replace that number is public: it is given
        without noise and spends nothing.

        Examples
        --------
        >>> curator = Curator({"age": [31, 45, 12]}, neighbours="replace")
        >>> curator.count(epsilon=1).value
        3
        """
        epsilon = check_epsilon(epsilon)
        if where is None:
            return self._count_all(epsilon)
        return self._count("count", *self._marks(where), epsilon)

    def fraction(self, where: Predicate | str, *, epsilon: object) -> Release:
        """Release which fraction of rows satisfies a predicate: a noisy count over the public size.

        Under add-remove the size is private; release the two counts instead.

        Examples
        --------
        >>> curator = Curator({"age": [31, 12] * 500}, neighbours="replace")
        >>> release = curator.fraction("age>=18", epsilon="0.5")
        >>> release.sensitivity, release.scale
        (Fraction(1, 1000), 0.002)
        """
        epsilon = check_epsilon(epsilon)
        remedy = (
            "the count of the chosen rows and the count of all rows, each with a share of epsilon,"
        )
        check_public_size("fraction", self.neighbours, remedy)
        marks, words = self._marks(where)
        check_some_rows("fraction", len(marks))
        return _quotient(self._count("fraction", marks, words, epsilon), len(marks))

    def sum(
        self,
        column: str,
        *,
        bounds: tuple[object, object] | None,
        epsilon: object,
        clamp: bool = False,
        whole: bool = False,
    ) -> Release:
        """Release the sum of a column with declared bounds.

        Parameters
        ----------
        column
            A column of numbers.
        bounds
            The lowest and the highest possible value, known before the data are seen.
            A value outside is an error, unless `clamp` moves it to the nearer bound.
        whole
            Declares that all values are whole numbers; then the noise is whole-number too.

        Examples
        --------
        >>> curator = Curator({"age": [31, 45, 22, 67] * 100}, neighbours="add-remove")
        >>> release = curator.sum("age", bounds=(0, 120), epsilon=1, whole=True)
        >>> release.sensitivity, release.scale
        (Fraction(120, 1), 120.0)
        """
        return self._sum("sum", column, bounds, check_epsilon(epsilon), clamp, whole)

    def mean(
        self,
        column: str,
        *,
        bounds: tuple[object, object] | None,
        epsilon: object,
        clamp: bool = False,
        whole: bool = False,
    ) -> Release:
        """Release the mean of a column with declared bounds: a noisy sum over the public size.

        Under add-remove the size is private; release the sum and the count instead. For the
        parameters see `sum`.

        Examples
        --------
        >>> curator = Curator({"age": [31.5, 45.0, 22.0, 67.5] * 100}, neighbours="replace")
        >>> release = curator.mean("age", bounds=(0, 120), epsilon=1)
        >>> release.sensitivity, round(release.scale, 6)
        (Fraction(3, 10), 0.3)
        """
        epsilon = check_epsilon(epsilon)
        remedy = "the sum and the count, each with a share of epsilon,"
        check_public_size("mean", self.neighbours, remedy)
        release = self._sum("mean", column, bounds, epsilon, clamp, whole)
        assert release.rows is not None
        return _quotient(release, release.rows)

    def histogram(
        self, column: str, *, categories: Sequence[str], epsilon: object, other: bool = False
    ) -> Release:
        """Release how many rows hold each of the declared categories, with whole-number noise.

        Parameters
        ----------
        column
            A column of texts; numbers are read as text, and a missing value as the empty text.
        categories
            Every value that may occur, known before the data are seen: a cell that appears because
            someone has a rare value gives that person away.
        other
            Adds a cell for everything that is not declared; without it such a value is an error.

        Examples
        --------
        >>> curator = Curator({"city": ["Rome", "Oslo", "Rome"]}, neighbours="replace")
        >>> release = curator.histogram("city", categories=["Rome", "Oslo", "Bern"], epsilon=1)
        >>> release.labels, release.sensitivity
        (('Rome', 'Oslo', 'Bern'), Fraction(2, 1))
        """
        epsilon = check_epsilon(epsilon)
        labels = checked_categories(categories, other)
        texts = read_columns(self._data, [column], self._format).texts(column)
        counts = Counter(texts)
        undeclared = sum(counts.values()) - sum(counts[cell] for cell in categories)
        if undeclared and not other:
            declared = set(categories)
            row = next(i for i, text in enumerate(texts, 1) if text not in declared)
            raise InputError(
                f"row {row} holds a value that is not a declared category; declare it, or ask for"
                " an other cell."
            )
        cells = [counts[cell] for cell in categories] + ([undeclared] if other else [])
        about = f"histogram of {column}", cells, histogram_sensitivity(self.neighbours)
        return self._release(
            "histogram", *about, epsilon, whole=True, rows=len(texts), labels=labels
        )

    def vector(
        self,
        values: ArrayLike,
        *,
        sensitivity: object,
        epsilon: object,
        labels: Sequence[str] | None = None,
        what: str = "vector",
    ) -> Release:
        """Release any vector computed from the data whose l1 sensitivity you know.

        Integers get whole-number noise, floats real-valued noise (LEC Definitions 10 and 11). The
        sensitivity is taken at your word; it must hold for the numbers as they were computed,
        rounding included. The budget records `what`.

        Examples
        --------
        >>> curator = Curator({"age": [31, 45]}, neighbours="replace")
        >>> release = curator.vector([12, 30], sensitivity=3, epsilon=1)
        >>> len(release.values), release.scale
        (2, 3.0)
        """
        epsilon, what = check_epsilon(epsilon), check_text("what", what)
        array = np.asarray(values)
        if array.ndim != 1 or not 1 <= array.size <= MAX_CELLS or array.dtype.kind not in "iuf":
            raise InputError(f"a vector is a list of 1 to {MAX_CELLS} numbers.")
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
        release = self._release(
            "vector", what, exact, change, epsilon, whole=whole, rows=0, labels=names
        )
        return replace(release, rows=None)

    def _marks(self, where: Predicate | str) -> tuple[np.ndarray[Any, np.dtype[np.bool_]], str]:
        """Return for each row whether it counts, and the predicate as text."""
        predicate = where if isinstance(where, Predicate) else Predicate.parse(where)
        columns = read_columns(self._data, predicate.columns, self._format)
        return predicate.rows(columns), str(predicate)

    def _count(self, query: Query, marks: Any, words: str, epsilon: str) -> Release:
        what, chosen = f"{query} of rows with {words}", [int(marks.sum())]
        sensitivity = count_sensitivity(self.neighbours)
        rows = len(marks)
        return self._release(query, what, chosen, sensitivity, epsilon, whole=True, rows=rows)

    def _count_all(self, epsilon: str) -> Release:
        rows, what = read_columns(self._data, [], self._format).rows, "count of all rows"
        sensitivity = count_sensitivity(self.neighbours, all_rows=True)
        if sensitivity:
            return self._release("count", what, [rows], sensitivity, epsilon, whole=True, rows=rows)
        public = (sensitivity, 0.0, Fraction(1), 0.0, rows)
        return Release("count", what, (rows,), None, epsilon, self.neighbours, *public)

    def _sum(
        self, query: Query, column: str, bounds: Any, epsilon: str, clamp: bool, whole: bool
    ) -> Release:
        low, high = checked_bounds(query, bounds, whole)
        values = read_columns(self._data, [column], self._format).numbers(column)
        if query == "mean":
            check_some_rows(query, len(values))
        numbers = checked_numbers(values, low, high, clamp, whole)
        sensitivity = sum_sensitivity(self.neighbours, Fraction(low), Fraction(high))
        rows, what = len(numbers), f"{query} of {column}"
        if whole:
            total = int(numbers.astype(np.int64).sum())
            release = self._release(
                query, what, [total], sensitivity, epsilon, whole=True, rows=rows
            )
        else:
            # Under replace the lowest sum is public; what is above it needs fewer digits.
            floor = rows * Fraction(low) if self.neighbours == "replace" else Fraction(0)
            step = lattice_step(sensitivity)
            above = on_lattice(exact_sum(numbers) - floor, step)
            raised = math.ceil(sensitivity / step) * step
            noisy = self._release(
                query, what, [float(above)], raised, epsilon, whole=False, rows=rows
            )
            value = float(Fraction(noisy.value) + floor)
            slack = float(step) + math.ulp(value) + noisy.rounding
            release = replace(noisy, values=(value,), sensitivity=sensitivity, rounding=slack)
        # How many rows there are is public under replace only; a mean is refused otherwise.
        return replace(release, bounds=(float(low), float(high)), clamped=clamp)

    def _release(
        self,
        query: Query,
        what: str,
        exact: Sequence[Any],
        sensitivity: Fraction,
        epsilon: str,
        *,
        whole: bool,
        rows: int,
        labels: tuple[str, ...] | None = None,
    ) -> Release:
        noise = mechanism(sensitivity, epsilon, exact, whole=whole)
        what = shortened(printable(what).strip(), 160)
        if self.budget is not None:
            self.budget.spend(epsilon, neighbours=self.neighbours, what=what)
        noisy = tuple(noise(exact))
        return Release(
            *(query, what, noisy, labels, epsilon, self.neighbours, sensitivity, noise.scale),
            unit=Fraction(1) if whole else None,
            unit_scale=noise.scale,
            rows=rows if self.neighbours == "replace" else None,
            rounding=0.0 if whole else max(map(math.ulp, noisy), default=0.0),
        )


def _quotient(release: Release, rows: int) -> Release:
    """Return the release over the public number of rows; that is post-processing."""
    value = float(Fraction(release.value) / rows)
    return replace(
        release,
        values=(value,),
        sensitivity=release.sensitivity / rows,
        scale=release.scale / rows,
        unit=None if release.unit is None else release.unit / rows,
        rounding=release.rounding / rows + math.ulp(value),
    )


def check_some_rows(query: str, rows: int) -> None:
    if rows < 1:
        raise InputError(f"a {query} of no rows is undefined; the table must have a row.")


def checked_bounds(query: str, bounds: Any, whole: bool) -> tuple[float, float]:
    if bounds is None:
        raise PrivacyRefusal(
            f"without bounds one person can change a {query} by any amount and no noise hides it;"
            " declare the lowest and the highest possible value."
        )
    try:
        low, high = bounds
    except (TypeError, ValueError):
        raise InputError(f"bounds are two numbers, got bounds={bounds!r}.") from None
    low, high = check_number("the lower bound", low), check_number("the upper bound", high)
    if not low < high:
        raise InputError(f"the lower bound must be below the upper one, got {low:g} and {high:g}.")
    largest = max(abs(low), abs(high))
    if whole and (low != int(low) or high != int(high) or largest > _MAX_WHOLE_BOUND):
        raise InputError(
            "the bounds of whole numbers must be whole numbers within 2^31; leave out whole."
        )
    if largest > 1e150 or high - low < 1e-150:
        raise InputError(f"bounds must be within 1e150 and 1e-150 apart, got {low:g} and {high:g}.")
    return low, high


def checked_numbers(
    numbers: NDArray[np.float64], low: float, high: float, clamp: bool, whole: bool
) -> NDArray[np.float64]:
    _check_rows(np.isfinite(numbers), "must hold a finite number")
    if whole:
        _check_rows(numbers == np.floor(numbers), "must hold a whole number, as declared")
    if clamp:
        return np.clip(numbers, low, high)
    inside = (numbers >= low) & (numbers <= high)
    _check_rows(inside, f"must be within the declared bounds {low:g} to {high:g}; or clamp")
    return numbers


def _check_rows(good: NDArray[np.bool_], rule: str) -> None:
    """Name the first bad row, not its content."""
    if not good.all():
        raise InputError(f"row {int(np.argmin(good)) + 1} {rule}.")


def checked_categories(categories: Sequence[str], other: bool) -> tuple[str, ...]:
    if isinstance(categories, str) or not all(isinstance(c, str) for c in categories):
        raise InputError("categories must be a list of texts.")
    cells = (*categories, *([OTHER] if other else []))
    if len(set(cells)) < len(cells):
        twice = next(cell for cell, times in Counter(cells).items() if times > 1)
        raise InputError(f"category {twice!r} is declared twice; name each category once.")
    if not 2 <= len(cells) <= MAX_CELLS:
        raise InputError(
            f"a histogram needs 2 to {MAX_CELLS} cells, got {len(cells)}; for one use a count."
        )
    for cell in cells:
        if len(cell) > 1000:
            raise InputError("a category is at most 1000 characters long.")
    return cells
