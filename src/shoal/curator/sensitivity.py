"""How much one person can change an answer (LEC Definitions 6 and 10), by the neighbour relation.

=====================  ============  ====================
query                  replace       add-remove
=====================  ============  ====================
count of all rows      0 (public)    1
count by a predicate   1             1
fraction               1/n           refused: n is private
sum in [a, b]          b - a         max(|a|, |b|)
mean in [a, b]         (b - a)/n     refused: n is private
histogram              2             1
=====================  ============  ====================

Without bounds a sum or a mean has an infinite sensitivity (LEC 2: the average salary).
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Literal, get_args

from shoal.errors import InputError, PrivacyRefusal
from shoal.support.checks import check_decimal

__all__ = [
    "Neighbours",
    "check_epsilon",
    "check_neighbours",
    "check_public_size",
    "count_sensitivity",
    "histogram_sensitivity",
    "sum_sensitivity",
]

Neighbours = Literal["replace", "add-remove"]


def check_neighbours(value: object) -> Neighbours:
    """Return the neighbour relation, which is never guessed."""
    if value not in get_args(Neighbours):
        raise InputError(
            f"neighbours must be replace (one row becomes another; the number of rows is public)"
            f" or add-remove (one row comes or goes), got {value!r}."
        )
    return value  # type: ignore[return-value]


def check_epsilon(value: object) -> str:
    """Return an epsilon as decimal text."""
    text = check_decimal("epsilon", value, above=0)
    if not Decimal("1e-30") <= Decimal(text) <= Decimal("1e30"):
        raise InputError(f"epsilon must be between 1e-30 and 1e30, got epsilon={text}.")
    return text


def count_sensitivity(neighbours: Neighbours, *, all_rows: bool = False) -> Fraction:
    """Return the sensitivity of a count: of all rows, or of those that a predicate picks.

    >>> count_sensitivity("replace"), count_sensitivity("replace", all_rows=True)
    (Fraction(1, 1), Fraction(0, 1))
    """
    return Fraction(0 if all_rows and neighbours == "replace" else 1)


def histogram_sensitivity(neighbours: Neighbours) -> Fraction:
    """Return the l1 sensitivity of a histogram of two cells or more (LEC after Definition 10).

    >>> histogram_sensitivity("replace"), histogram_sensitivity("add-remove")
    (Fraction(2, 1), Fraction(1, 1))
    """
    return Fraction(2 if neighbours == "replace" else 1)


def sum_sensitivity(neighbours: Neighbours, low: Fraction, high: Fraction) -> Fraction:
    """Return the sensitivity of a sum of values between two bounds.

    >>> sum_sensitivity("replace", Fraction(-1), Fraction(3))
    Fraction(4, 1)
    >>> sum_sensitivity("add-remove", Fraction(-1), Fraction(3))
    Fraction(3, 1)
    """
    return high - low if neighbours == "replace" else max(abs(low), abs(high))


def check_public_size(query: str, neighbours: Neighbours, way_out: str) -> None:
    """Refuse to divide by a number of rows that is itself private."""
    if neighbours != "replace":
        raise PrivacyRefusal(
            f"under add-remove the number of rows is private, and a {query} would divide by it;"
            f" release {way_out} and divide yourself, or use replace."
        )
