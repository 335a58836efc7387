"""A number known from both sides."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple, Self

__all__ = ["Bracket"]


class _Ends(NamedTuple):
    low: float
    high: float


class Bracket(_Ends):
    """An interval ``[low, high]`` that holds a non-negative number, ends included.

    The width says how well the number is known. A bracket may be wide; it is never wrong. An end
    that is negative or not a number, and ends in the wrong order, are an error in the code that
    computed them: no such bracket can be made.

    Examples
    --------
    >>> Bracket(0.25, 0.5).relative_width
    0.5
    >>> Bracket(0.25, 0.5).is_within(1e-4)
    False
    """

    __slots__ = ()

    def __new__(cls, low: float, high: float) -> Self:
        """Refuse NaN, negative ends and ends in the wrong order."""
        if not 0 <= low <= high:
            raise ValueError(f"a bracket needs 0 <= low <= high, got [{low}, {high}].")
        return super().__new__(cls, low, high)

    @classmethod
    def _make(cls, iterable: Iterable[float]) -> Self:  # type: ignore[override]  # any tuple there
        # the way that `_replace` takes
        return cls(*iterable)

    @property
    def relative_width(self) -> float:
        """``(high - low) / high``, between 0 and 1; 0 when both ends are 0."""
        if math.isinf(self.high):
            return 1.0
        return (self.high - self.low) / self.high if self.high > 0 else 0.0

    def is_within(self, rtol: float) -> bool:
        """Whether the relative width is at most `rtol`."""
        return self.relative_width <= rtol

    def times(self, factor: float) -> Bracket:
        """Multiply by a factor >= 0 and widen by the rounding of the product."""
        high = self.high * factor * (1 + 4e-16)
        if self.high > 0.0 and factor > 0.0:
            high = max(high, 5e-324)  # an upper end must not vanish by underflow
        return Bracket(self.low * factor * (1 - 4e-16), high)

    def capped(self, ceiling: float) -> Bracket:
        """Cut both ends at a value that the number is known not to exceed."""
        return Bracket(min(self.low, ceiling), min(self.high, ceiling))
