"""Infer the kind of question of a column of answers, or the reason to leave it out.

Rules, in this order; the first that fits decides. `n` people gave an answer: their cells are not
empty and no usual text for no answer.

==================  ==============================================================================
left out            no answers, or all the same; addresses, telephone numbers, names
yes/no              at most two words that mean yes or no
number              nine in ten cells are numbers; the others are invalid, so they are missing.
                    Points of a grid between round limits, or bins if a few numbers are very large
choice              few whole numbers that are far apart: codes
date                nine in ten cells are dates, and a part of the date is asked for
left out            other dates; values that (nearly) everyone has of their own: an identifier
flags               cells hold several of a few options, with one separator between them
choice              words, few for the number of people; those of fewer than ten are `(other)`
left out            free text, and words otherwise
==================  ==============================================================================
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

from shoal.device.arrays.cell_texts import (
    SEPARATORS,
    is_usual_unit,
    known_unit,
    means_no_answer,
    units_of,
)
from shoal.errors import SurveyError
from shoal.protocol.questions import (
    MISSING,
    OTHER,
    AskedQuestion,
    Choice,
    Date,
    Flags,
    Number,
    YesNo,
    folded,
)
from shoal.support.table_format import TableFormat

RARE = 10
"""A value of fewer people than this is not written into a survey."""

_MIN_FOR_RANGES = 50
"""Of fewer people no limits are taken: they would be close to one person's number."""

_MAX_OPTIONS = 50
_FEW_NUMBERS = 10
_MAX_UNITS, _LONGEST_UNIT = 10, 12
_OWN = 0.9
"""From this share of different values on, a column identifies people."""
_MOST = 0.9
"""From this share on, cells of one kind decide; the others are typing errors."""
_SHOWN = 3

By = Literal["month", "weekday", "week"]

_RESERVED = (OTHER, MISSING)
_CODES = re.compile("0[0-9]{3,}")
_YES_NO = {"yes", "no", "true", "false", "1", "0"}
_PATTERNS = {
    "e-mail addresses": re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+"),
    "web addresses": re.compile(r"(https?://|www\.)\S+"),
    "network addresses": re.compile(r"\d{1,3}(\.\d{1,3}){3}|([0-9a-f]{0,4}:){3,}[0-9a-f.:]*", re.I),
    "UUIDs": re.compile(r"[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}", re.I),
    "telephone numbers": re.compile(r"\+\d[\d ()/-]{6,}|0([ ()/.-]*\d){8,}"),
}
_MONTH = re.compile(r"(0?[1-9]|1[0-2])[./](19|20)\d{2}|(19|20)\d{2}-(0[1-9]|1[0-2])")
_ID_NAME = re.compile(
    r"(^|[_\W])(id|ids|uid|guid|uuid|key|nr|no|num|index|token|hash|nummer|numéro)($|[_\W])", re.I
)
_PERSON = re.compile(
    r"((first|last|full|given|family|sur|maiden|nick|user|vor|nach|zu|benutzer)[ _-]?)?names?"
    r"|nom|prénom|nom de famille|nombre|apellidos?",
    re.I,
)
"""Columns that name people, as far as their own name tells."""


@dataclass(frozen=True)
class ColumnProposal:
    """The inferred question of a column, or None and the reason; and its observed values."""

    column: str
    question: AskedQuestion | None
    seen: str
    declared: Mapping[str, Any] = field(default_factory=dict)
    """How the column is written, where that differs from the table."""
    no_answer: tuple[str, ...] = ()
    """Texts in the column that mean no answer."""

    @property
    def kind(self) -> str:
        """The kind of the question, or `left out`."""
        return "left out" if self.question is None else self.question.kind


def propose_question(
    column: str,
    cells: Sequence[str],
    table_format: TableFormat,
    *,
    whole: bool,
    dates: By | None = None,
    gaps: bool = False,
) -> ColumnProposal:
    """Return the question that fits a column of answers.

    `whole` says whether these are everybody's answers, `dates` which part of dates to ask for, and
    `gaps` whether answers can be missing though none of these are.
    """
    counts = Counter(text for cell in cells if (text := cell.strip()))
    no_answer = tuple(sorted(text for text in counts if means_no_answer(text)))
    for text in no_answer:
        del counts[text]
    missing = gaps or counts.total() < len(cells)
    found = _Column(column, counts, missing, whole, table_format, dates)
    try:
        question, seen, declared = found.propose()
    except SurveyError as error:
        question, seen, declared = None, f"cannot be asked: {error}".rstrip("."), {}
    return ColumnProposal(column, question, seen, declared, no_answer)


_Proposal = tuple[AskedQuestion | None, str, dict[str, Any]]


def _left_out(why: str) -> _Proposal:
    return None, why, {}


@dataclass(frozen=True)
class _Column:
    """How many people gave each answer, and whether some gave none."""

    name: str
    counts: Counter[str]
    missing: bool
    whole: bool
    table_format: TableFormat
    dates: By | None

    @cached_property
    def _people(self) -> int:
        return self.counts.total()

    @cached_property
    def _named(self) -> dict[str, Any]:
        """The fields that every question has: the column's name, without unprintable characters."""
        printable = "".join(one if one.isprintable() else " " for one in self.name)
        return {"name": " ".join(printable.split())[:200] or "(no name)", "column": self.name}

    def _option(self, *, gaps: bool = False) -> dict[str, Any]:
        return self._named | ({"missing": "option"} if self.missing or gaps else {})

    @property
    def _gaps(self) -> str:
        return "; some have no answer" if self.missing else ""

    def _share(self, known: Mapping[str, object]) -> float:
        return sum(self.counts[text] for text in known) / self._people

    def propose(self) -> _Proposal:
        if why := self._why_left_out():
            return _left_out(why)
        counts = self.counts
        if (words := {*map(folded, counts)}) <= _YES_NO and len(words) <= 2:
            return YesNo(**self._option()), f"{', '.join(sorted(counts)[:4])}{self._gaps}", {}
        if all(map(_MONTH.fullmatch, counts)):
            return _left_out("months with years, which no question takes")
        declared, numbers = self._read_numbers()
        if self._share(numbers) >= _MOST and not all(map(_CODES.fullmatch, counts)):
            return self._numbers(numbers, declared)
        declared, days = self._read_dates()
        if self._share(days) >= _MOST:
            return self._dates(days, declared)
        if self._is_own():
            own = f"{len(counts):,} values for {self._people:,} people"
            return _left_out(f"{own}: nearly everyone has their own, so it identifies people")
        found = self._flags() or self._words()
        if found[0] is None and len({*map(known_unit, self._units)} - {None}) > 1:
            units = ", ".join(map(repr, self._units))
            return _left_out(f"different units: {units}; convert the numbers to one of them")
        return found

    def _why_left_out(self) -> str | None:
        if not self._people:
            return "the column is empty"
        if len(self.counts) == 1 and not self.missing:
            return "all values are the same"
        if _PERSON.fullmatch(self.name.strip()):
            return "its name suggests that it identifies people; rename the column if it does not"
        for what, pattern in _PATTERNS.items():
            if self._share({one: 1 for one in self.counts if pattern.fullmatch(one)}) > 0.5:
                return f"{what}: they identify people"
        return None

    def _is_own(self) -> bool:
        return self._people >= RARE and len(self.counts) > max(_OWN * self._people, 1)

    @cached_property
    def _units(self) -> list[str]:
        """The texts around numbers that are frequent, or whose unit the column's name has."""
        around: Counter[str] = Counter()
        for text, times in self.counts.items():
            around.update(dict.fromkeys(units_of(text), times))
        often = max(RARE, (1 - _MOST) / 2 * self._people)
        named = {*re.findall(r"\w+", self.name)}
        return [
            one
            for one, times in around.most_common(_MAX_UNITS)
            if len(one) <= _LONGEST_UNIT
            and times >= (RARE if is_usual_unit(one) or one in named else often)
        ]

    def _read_numbers(self) -> tuple[dict[str, Any], dict[str, float]]:
        """Return the declaration that makes numbers of most cells, and these numbers.

        Where units differ, only numbers in the most frequent one are numbers: 1 h is not 1 min.
        """
        first = next(filter(None, map(known_unit, self._units)), None)
        units = [one for one in self._units if known_unit(one) in (None, first)]
        best: tuple[dict[str, Any], dict[str, float]] = {}, {}
        own = self.table_format.decimal
        other = {".": ",", ",": "."}[own]
        for decimal, thousands in ((own, ""), (own, other), (other, ""), (other, own)):
            written = self.table_format.replaced(decimal=decimal, units=units, thousands=thousands)
            read = {text: written.number(text) for text in self.counts}
            numbers = {text: number for text, number in read.items() if number is not None}
            if self._share(numbers) > (self._share(best[1]) if best[1] else 0):
                fields = {"decimal": decimal, "thousands": thousands, "units": units}
                plain = {"decimal": own, "thousands": "", "units": []}
                best = {key: fields[key] for key in fields if fields[key] != plain[key]}, numbers
        return best

    def _read_dates(self) -> tuple[dict[str, Any], dict[str, object]]:
        best: tuple[dict[str, Any], dict[str, object]] = {}, {}
        for order in ("ymd", "dmy", "mdy"):
            written = self.table_format.replaced(dates=order)
            days = {text: day for text in self.counts if (day := written.date(text))}
            if self._share(days) > self._share(best[1]):
                best = ({} if order == "ymd" else {"dates": order}), {**days}
        return best

    def _typing_errors(self, known: Mapping[str, object], what: str) -> tuple[str, dict[str, Any]]:
        """Describe cells that cannot be read, and declare that they are missing."""
        wrong = [text for text in self.counts if text not in known]
        if not wrong:
            return "", {}
        some = ", ".join(f"{text[:20]!r}" for text in wrong[:_SHOWN])
        more = ", ..." if len(wrong) > _SHOWN else ""
        cells = sum(self.counts[text] for text in wrong)
        return f"; not {what}, so taken as missing: {cells:,} ({some}{more})", {
            "invalid": "missing"
        }

    def _numbers(self, numbers: dict[str, float], declared: dict[str, Any]) -> _Proposal:
        digits = [text for text in self.counts if text.isascii() and text.isdigit()]
        numbered = _ID_NAME.search(self.name) or _in_a_row(digits)
        if self._is_own() and len(digits) == len(self.counts) and numbered:
            own = f"{len(digits):,} values for {self._people:,} people"
            return _left_out(f"{own}: numbers that identify people")
        ordered = sorted(numbers[text] for text in self.counts.elements() if text in numbers)
        wrong, invalid = self._typing_errors(numbers, "numbers")
        if codes := self._codes(numbers):
            return codes
        if len(ordered) < _MIN_FOR_RANGES:
            return _left_out(f"numbers of {len(ordered)} people: too few to take limits from")
        fields = self._option(gaps=bool(wrong))
        limits = grid_of(ordered)
        if limits is None:
            return _left_out("numbers, nearly all the same")
        seen = f"numbers, {len(set(ordered)):,} different ones{_written(declared)}"
        if isinstance(limits, tuple):
            seen += f"; a few are very large: bins from {limits[0]} to {limits[-1]}"
            return Number(**fields, edges=limits), f"{seen}{wrong}{self._gaps}", declared | invalid
        question = Number(**fields, **limits)
        low, high = float(str(question.low)), float(str(question.high))
        seen += f"; {question.points} points from {question.low} to {question.high}"
        if outside := bisect_left(ordered, low) + len(ordered) - bisect_right(ordered, high):
            seen += f", {outside:,} outside are moved to the nearer end"
        return question, f"{seen}{wrong}{self._gaps}", declared | invalid

    def _codes(self, numbers: dict[str, float]) -> _Proposal | None:
        """Return a choice of a few whole numbers that are far apart, or of two."""
        different = sorted({*numbers.values()})
        few = self.whole and 2 <= len(different) <= _FEW_NUMBERS
        plain = len(numbers) == len(different) == len(self.counts)
        if not few or not plain or not all(text.lstrip("-").isdigit() for text in numbers):
            return None
        near = len(different) > 2 and different[-1] - different[0] <= 2 * len(different)
        if near or min(self.counts.values()) < RARE:
            return None
        options = tuple(sorted(numbers, key=lambda text: numbers[text]))
        seen = f"{len(options)} different whole numbers, {options[0]} to {options[-1]}"
        return Choice(**self._option(), options=options), seen + self._gaps, {}

    def _dates(self, days: dict[str, object], declared: dict[str, Any]) -> _Proposal:
        order = {"dmy": ", day first", "mdy": ", month first"}.get(declared.get("dates", ""), "")
        if self.dates is None:
            return _left_out(f"dates{order}: give --dates month, weekday or week to ask for that")
        wrong, invalid = self._typing_errors(days, "dates")
        question = Date(**self._option(gaps=bool(wrong)), by=self.dates)
        return question, f"dates{order}{wrong}{self._gaps}", declared | invalid

    def _flags(self) -> _Proposal | None:
        found = [one for one in map(self._flags_by, SEPARATORS) if one is not None]
        if not found:
            return None
        return max(found, key=lambda one: one[0])[1:]  # the first of equals

    def _flags_by(
        self, separator: str
    ) -> tuple[float, AskedQuestion | None, str, dict[str, Any]] | None:
        written = self.table_format.replaced(separator=separator)
        parts = {text: written.options(text) for text in self.counts}
        several = {text: 1 for text, named in parts.items() if len(named) > 1}
        if sum(self.counts[text] for text in several) < min(RARE, self._people):
            return None
        people: Counter[str] = Counter()
        for text, named in parts.items():
            people.update(dict.fromkeys(named, self.counts[text]))
        spelled = _spellings(people)
        options = [one for one, times in spelled.items() if times >= RARE and _is_option(one)]
        if not 2 <= len(options) <= _MAX_OPTIONS:
            return None
        known = {folded(one) for one in options}
        full = {text: 1 for text, named in parts.items() if known.issuperset(map(folded, named))}
        # Options occur in several combinations; the parts of "Bern, Switzerland" hardly do.
        pieces = sum(len({*map(folded, parts[text])}) for text in full)
        if len(full) < len(options) or pieces < 1.5 * len(options) or self._share(full) < 0.7:
            return None
        twice = any(len({*map(folded, named)}) < len(named) for named in parts.values())
        fold = len({*map(folded, people)}) < len(people)
        other = len(spelled) > len(options) or not self.whole
        flags = Flags(**self._named, options=tuple(sorted(options)), other=other, fold=fold)
        sign = {"\n": "line breaks", "\t": "tabs"}.get(separator, f'"{separator}"')
        seen = f"{len(options)} options, several in one cell, separated by {sign}"
        seen += "; rare ones are (other)" if len(spelled) > len(options) else ""
        declared: dict[str, Any] = {} if separator == ";" else {"separator": separator}
        return self._share(full), flags, seen, declared | ({"invalid": "missing"} if twice else {})

    def _words(self) -> _Proposal:
        counts = self.counts
        spelled = _spellings(counts)
        options = tuple(
            sorted(one for one, times in spelled.items() if times >= RARE and _is_option(one))
        )
        rest = self._people - sum(spelled[one] for one in options)
        several = f"{len(counts):,} different values"
        if not 0 < len(options) <= _MAX_OPTIONS or rest > self._people / 2:
            words = sum(len(text.split()) * times for text, times in counts.items())
            if words > 4 * self._people:
                return _left_out(f"{several}: free text")
            return _left_out(f'{several}, too many for options; ask it as kind = "text" if needed')
        fold = len(spelled) < len(counts)
        spelling = ", upper and lower case taken as one" if fold else ""
        left = f"; rare ones are (other): {rest:,} in all" if rest else ""
        other = bool(rest) or not self.whole
        choice = Choice(**self._option(), options=options, other=other, fold=fold)
        return choice, f"{several}{spelling}{left}{self._gaps}", {}


def _spellings(people: Counter[str]) -> Counter[str]:
    """Return how many people gave each value, its spellings together under the most frequent."""
    spelled: dict[str, Counter[str]] = {}
    for value, times in people.items():
        spelled.setdefault(folded(value), Counter())[value] += times
    return Counter({one.most_common(1)[0][0]: one.total() for one in spelled.values()})


def _written(declared: Mapping[str, Any]) -> str:
    signs = {".": "points", ",": "commas"}
    parts = [f"with {', '.join(map(repr, units))}"] if (units := declared.get("units")) else []
    if decimal := declared.get("decimal"):
        parts.append(f"decimal {signs[decimal]}")
    if thousands := declared.get("thousands"):
        parts.append(f"{signs[thousands]} between thousands")
    return "".join(f", {part}" for part in parts)


def _is_option(text: str) -> bool:
    return ";" not in text and text.isprintable() and len(text) <= 200 and text not in _RESERVED


def _in_a_row(digits: Sequence[str]) -> bool:
    numbers = sorted(int(value) for value in digits if len(value) <= 18) or [0]
    return len(numbers) == len(digits) and numbers[-1] - numbers[0] < 1.2 * len(numbers)


def grid_of(ordered: Sequence[float]) -> dict[str, Any] | tuple[str, ...] | None:
    """Return round limits and points of a grid, edges of bins for long tails, or None.

    At least `RARE` people are at or beyond each of the places that they follow from, so that no
    single person's number is in a survey.
    """
    inner = ordered[RARE - 1 : len(ordered) - RARE + 1]
    low, middle, high = (inner[int(part * (len(inner) - 1))] for part in (0.05, 0.5, 0.95))
    if low > 0 and high / middle > 20:
        return _edges(low, high)
    width = high - low or inner[-1] - inner[0]
    low, high = max(inner[0], low - 2 * width), min(inner[-1], high + 2 * width)
    if low == high:
        return None
    whole = all(number.is_integer() for number in inner)
    if whole and high - low <= 12:
        return {"low": f"{low:.0f}", "high": f"{high:.0f}", "whole": True}
    step = _round_step((high - low) / 10)
    step = max(step, Decimal(1)) if whole else step
    first, last = math.floor(low / float(step)), math.ceil(high / float(step))
    limits = {"low": f"{first * step:f}", "high": f"{last * step:f}"}
    return {**limits, "points": last - first + 1}


def _round_step(width: float) -> Decimal:
    """Return 1, 2 or 5 times the power of ten that is nearest to a width."""
    power = math.floor(math.log10(width))
    steps = [Decimal(factor).scaleb(power) for factor in (1, 2, 5, 10)]
    return min(steps, key=lambda step: abs(float(step) - width))


def _edges(low: float, high: float) -> tuple[str, ...]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = [Decimal(factor).scaleb(power) for power in powers for factor in (1, 2, 5)]
    inside = [f"{step:f}" for step in steps if low <= float(step) <= high]
    assert all(float(a) < float(b) for a, b in pairwise(inside))
    return tuple(inside)
