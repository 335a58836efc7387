"""A release: noisy values and their accuracy.

*Whole* noise is the discrete Laplace distribution on the multiples of a unit (1 for counts, 1/n for
fractions), with its own exact tail. *Real* noise is the continuous Laplace distribution of LEC; the
rounding on the way is added to every bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from shoal.curator.noise import CHANGES, NEIGHBOURS_IN_WORDS, Neighbours, float_at_least
from shoal.errors import InputError
from shoal.support.checks import check_level
from shoal.support.results import Displayed, Section, first_rows
from shoal.support.rounding import text_down, text_near, text_up
from shoal.theory import laplace

Query = Literal["count", "fraction", "sum", "mean", "histogram", "vector"]


@dataclass(frozen=True)
class Accuracy:
    """With probability at least 1 - delta every released value is within `alpha` of the truth.

    `lecture` is LEC's ln(d/delta) scale, for continuous noise; `kind` says where alpha is from.
    """

    alpha: float
    delta: float
    kind: str
    lecture: float

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        fields = dict(vars(self))
        return fields | {"lecture_alpha": fields.pop("lecture")}


@dataclass(frozen=True, repr=False)
class Release(Displayed):
    """Noisy values and everything that may be said about them in public.

    `what` describes the query. `values` are never clipped or rounded. `sensitivity` and `scale` are
    those of the released values. `rows` is the public number of rows under replace. `unit` is the
    step of whole-number noise, None for real-valued noise; `unit_scale` is in units.
    """

    query: Query
    what: str
    values: tuple[float, ...]
    labels: tuple[str, ...] | None
    epsilon: str
    neighbours: Neighbours
    sensitivity: Fraction
    scale: float
    unit: Fraction | None
    unit_scale: float
    rows: int | None
    bounds: tuple[float, float] | None = None
    clamped: bool = False
    rounding: float = 0.0

    def _headline(self) -> str:
        if not self.scale:
            return f"{self.what}: public, without noise"
        return (
            f"{self.what}: proven: epsilon {self.epsilon}, against readers of this release, if one"
            f" row is {CHANGES[self.neighbours]}"
        )

    def _sections(self) -> list[Section]:
        shown, left_out = first_rows(zip(self.values, self.interval(), strict=True))
        labels = self.labels or [self.query] * len(shown)
        rows = [
            (label, text_near(value, 8), text_down(low, 8), text_up(high, 8))
            for label, (value, (low, high)) in zip(labels, shown, strict=False)
        ]
        return [Section(("", "value", "low", "high"), rows, left_out=left_out)]

    def _remarks(self) -> tuple[str, ...]:
        return self.assumptions

    @property
    def value(self) -> float:
        """The released number, if it is one number."""
        if self.labels is not None or len(self.values) != 1:
            raise InputError("this release has several values; read .values.")
        return self.values[0]

    @property
    def whole(self) -> bool:
        """Whether the noise is whole-number, in steps of `unit`."""
        return self.unit is not None

    @property
    def sigma(self) -> float:
        """The standard deviation of the noise."""
        if not self.scale:
            return 0.0
        if self.unit is None:
            return laplace.sigma(self.scale)
        return laplace.discrete_sigma(self.unit_scale) * float(self.unit)

    def accuracy(self, delta: float = 0.05) -> Accuracy:
        """Return the largest error of any value, except with probability `delta` (LEC Thm 9, 12).

        Whole-number noise may exceed LEC's bound more often; there the exact tail gives alpha.
        """
        if isinstance(delta, bool) or not isinstance(delta, (int, float)) or not 0 < delta < 1:
            raise InputError(f"delta must be strictly between 0 and 1, got delta={delta!r}.")
        if not self.scale:
            return Accuracy(0.0, delta, "public: no noise", 0.0)
        count = max(len(self.values), 1)
        lecture = laplace.union_radius(delta, self.scale, count)
        if self.unit is not None:
            alpha = self._radius(laplace.each_miss(delta, count))
            return Accuracy(alpha, delta, "exact, whole-number noise", lecture)
        kind = "LEC Theorem 9" if len(self.values) == 1 else "LEC Theorem 12"
        return Accuracy(_up(lecture) + self.rounding, delta, kind, lecture)

    def half_width(self, level: float = 0.95, *, simultaneous: bool = False) -> float:
        """Return half the width of exact intervals; simultaneous ones cover all at once."""
        miss = 1 - check_level(level)
        if not self.scale:
            return 0.0
        return self._radius(
            laplace.each_miss(miss, max(len(self.values), 1)) if simultaneous else miss
        )

    def interval(
        self, level: float = 0.95, *, simultaneous: bool = False
    ) -> tuple[tuple[float, float], ...]:
        """Return an interval for the truth behind each value, as (low, high)."""
        reach = self.half_width(level, simultaneous=simultaneous)
        return tuple((value - reach, value + reach) for value in self.values)

    def _radius(self, miss: float) -> float:
        if self.unit is None:
            return _up(laplace.radius(miss, self.scale)) + self.rounding
        steps = laplace.discrete_radius(miss, self.unit_scale)
        if self.unit == 1:
            return steps
        return (float_at_least(steps * self.unit) if steps else 0.0) + self.rounding

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The conditions of the promise."""
        sentences = [
            NEIGHBOURS_IN_WORDS[self.neighbours],
            "Each person has one row.",
            "The curator sees every row and is trusted.",
        ]
        if self.scale:
            sentences.append(
                f"This release spends epsilon {self.epsilon}; the epsilons of releases about the"
                " same people add up."
            )
        if self.clamped and self.bounds is not None:
            low, high = self.bounds
            sentences.append(f"Values outside {low:g} to {high:g} were moved to the nearer bound.")
        return tuple(sentences)

    def to_json(
        self, *, delta: float = 0.05, level: float = 0.95, simultaneous: bool = False
    ) -> dict[str, Any]:
        """Return the release as plain JSON values."""
        reach = self.half_width(level, simultaneous=simultaneous)
        bounds = self.interval(level, simultaneous=simultaneous)
        lows, highs = [low for low, _ in bounds], [high for _, high in bounds]
        return {
            "query": self.query,
            **self._shown("value", "values", list(self.values)),
            "scale": self.scale,
            "sensitivity": float(self.sensitivity),
            "neighbours": self.neighbours,
            "epsilon": float(self.epsilon) if self.scale else 0.0,
            "noise": "none" if not self.scale else "integer" if self.whole else "real",
            "sigma": self.sigma,
            "accuracy": self.accuracy(delta).to_json(),
            "interval": {
                "level": level,
                "kind": "simultaneous" if simultaneous else "exact",
                "half_width": reach,
                **self._shown("low", "low", lows),
                **self._shown("high", "high", highs),
            },
            "rows": self.rows,
            "bounds": None if self.bounds is None else list(self.bounds),
            "clamped": self.clamped,
            "assumptions": list(self.assumptions),
        }

    def _shown(self, one: str, many: str, numbers: list[float]) -> dict[str, Any]:
        if self.labels is not None:
            return {many: dict(zip(self.labels, numbers, strict=True))}
        return {one: numbers[0]} if self.query != "vector" else {many: numbers}


def _up(value: float) -> float:
    """Round a bound up, past the error of a few floating-point operations."""
    return math.nextafter(float(text_up(value, 15)), math.inf)
