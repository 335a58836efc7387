"""Infer the kind of question of a column of answers, or the reason to leave it out.

Rules, in this order; the first that fits decides. `n` people gave an answer.

==================  ==============================================================================
left out            no answers, or all the same; addresses, names, numbers of people and other
                    values that (nearly) everyone has of their own: an identifier
yes/no              at most two words that mean yes or no
flags               some cells hold several options, separated by ";"
choice              at most ten different whole numbers, each of ten people or more
number              numbers otherwise; edges are round numbers between the outer twentieths
left out            dates: no kind of question takes them
choice              words, few for the number of people; those of fewer than ten are `(other)`
text                words otherwise
==================  ==============================================================================
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from shoal.errors import SurveyError
from shoal.protocol.questions import (
    MISSING,
    OTHER,
    AskedQuestion,
    Choice,
    Flags,
    Number,
    Text,
    YesNo,
    folded,
)
from shoal.support.table_format import AMBIGUOUS, TableFormat

RARE = 10
"""A value of fewer people than this is not written into a survey."""

_MIN_FOR_RANGES = 50
"""Of fewer people no ranges are taken: their edges would be close to one person's number."""

_MAX_OPTIONS = 50
_FEW_NUMBERS = 10
_OWN = 0.9
"""From this share of different values on, a column identifies people."""

_NO_DATES = "no question takes dates; add a column with the year or the month, and ask for that"

_RESERVED = (OTHER, MISSING)
_WHOLE = re.compile("-?[0-9]+")
_YES_NO = {"yes", "no", "true", "false", "1", "0"}
_PATTERNS = {
    "e-mail addresses": re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+"),
    "web addresses": re.compile(r"https?://\S+"),
    "network addresses": re.compile(r"\d{1,3}(\.\d{1,3}){3}|([0-9a-f]{0,4}:){3,}[0-9a-f.:]*", re.I),
    "UUIDs": re.compile(r"[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}", re.I),
    "telephone numbers": re.compile(r"\+\d[\d ()/-]{6,}"),
}
_DATE = re.compile(
    r"(\d{4}-\d{1,2}-\d{1,2}|\d{1,2}[./]\d{1,2}[./]\d{2,4}|\d{4}/\d{1,2}/\d{1,2})"
    r"([ T]\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?"
)
_MONTH = re.compile(r"(0?[1-9]|1[0-2])[./](19|20)\d{2}|(19|20)\d{2}-(0[1-9]|1[0-2])")
_ID_NAME = re.compile(
    r"(^|[_\W])(id|ids|uid|guid|uuid|key|nr|no|num|index|token|hash)($|[_\W])", re.I
)
_PERSON = re.compile(
    r"((first|last|full|given|family|sur|maiden|nick|user|vor|nach|zu|benutzer)[ _-]?)?names?"
    r"|nom|prénom|nombre|apellidos?",
    re.I,
)
"""Columns that name people, as far as their own name tells."""


@dataclass(frozen=True)
class ColumnProposal:
    """The inferred question of a column, or None and the reason; and its observed values."""

    column: str
    question: AskedQuestion | None
    seen: str

    @property
    def kind(self) -> str:
        """The kind of the question, or `left out`."""
        return "left out" if self.question is None else self.question.kind


def propose_question(
    column: str, cells: Sequence[str], table_format: TableFormat, *, whole: bool
) -> ColumnProposal:
    """Return the question that fits a column of answers; `whole` if they are everybody's."""
    answers = [text for cell in cells if (text := cell.strip())]
    found = _Column(column, Counter(answers), len(answers) < len(cells), whole, table_format)
    try:
        question, seen = found.propose(answers)
    except SurveyError as error:
        question, seen = None, f"cannot be asked: {error}".rstrip(".")
    return ColumnProposal(column, question, seen)


_Proposal = tuple[AskedQuestion | None, str]


@dataclass(frozen=True)
class _Column:
    """How many people gave each answer, and whether some gave none."""

    name: str
    counts: Counter[str]
    missing: bool
    whole: bool
    table_format: TableFormat

    @property
    def _named(self) -> dict[str, Any]:
        """The fields that every question has: the column's name, without unprintable characters."""
        printable = "".join(one if one.isprintable() else " " for one in self.name)
        return {"name": " ".join(printable.split())[:200] or "(no name)", "column": self.name}

    @property
    def _option(self) -> dict[str, Any]:
        return self._named | ({"missing": "option"} if self.missing else {})

    @property
    def _gaps(self) -> str:
        return "; some have no answer" if self.missing else ""

    def _all(self, pattern: re.Pattern[str]) -> bool:
        return all(pattern.fullmatch(value) for value in self.counts)

    def _is_number(self, text: str) -> bool:
        return self.table_format.number(text) is not None

    def propose(self, answers: Sequence[str]) -> _Proposal:
        counts = self.counts
        several = f"{len(counts):,} different values"
        if why := self._why_left_out():
            return None, why
        if (words := {*map(folded, counts)}) <= _YES_NO and len(words) <= 2:
            return YesNo(**self._option), f"{', '.join(sorted(counts)[:4])}{self._gaps}"
        if flags := self._flags(answers):
            return flags
        if self._all(_MONTH):
            return None, f"{several}, all dates: {_NO_DATES}"
        comma = self.table_format.decimal == ","
        unclear = {value for value in counts if comma and AMBIGUOUS.fullmatch(value)}
        if all(map(self._is_number, counts.keys() - unclear)):
            if not unclear:
                return self._numbers(comma)
            one = min(unclear)
            return None, f"numbers, but {one!r} {self.table_format.why_no_number(one)}"
        if self._all(_DATE) and len(counts) > _FEW_NUMBERS:
            return None, f"{several}, all dates: {_NO_DATES}"
        return self._words()

    def _why_left_out(self) -> str | None:
        counts, people = self.counts, self.counts.total()
        if not people:
            return "the column is empty"
        if len(counts) == 1 and not self.missing:
            return "all values are the same"
        if _PERSON.fullmatch(self.name.strip()):
            return "its name suggests that it identifies people; rename the column if it does not"
        for what, pattern in _PATTERNS.items():
            if sum(counts[value] for value in counts if pattern.fullmatch(value)) > people / 2:
                return f"{what}: they identify people"
        if people < RARE or len(counts) <= max(_OWN * people, 1):
            return None
        own = f"{len(counts):,} values for {people:,} people:"
        if all(map(self._is_number, counts)):
            digits = all(value.isdigit() for value in counts)
            numbered = digits and (_ID_NAME.search(self.name) or _in_a_row(counts))
            return f"{own} numbers that identify people" if numbered else None
        if self._all(_DATE):
            return None
        return f"{own} nearly everyone has their own, so it identifies people"

    def _numbers(self, comma: bool) -> _Proposal:
        counts, people = self.counts, self.counts.total()
        values = {text: self.table_format.number(text) or 0.0 for text in counts}
        few = self.whole and len(counts) <= _FEW_NUMBERS and min(counts.values()) >= RARE
        if few and self._all(_WHOLE) and len({*values.values()}) == len(values):
            options = tuple(sorted(counts, key=lambda text: values[text]))
            seen = f"{len(counts)} different whole numbers, {options[0]} to {options[-1]}"
            return Choice(**self._option, options=options), seen + self._gaps
        if people < _MIN_FOR_RANGES:
            return None, f"numbers of {people} people: too few to take ranges from"
        edges = _edges(sorted(values[text] for text in counts.elements()))
        sign = ", with decimal commas" if comma and any("," in text for text in counts) else ""
        seen = f"numbers, {len(counts):,} different ones{sign}"
        seen += f"; ranges from {edges[0]} to {edges[-1]}{self._gaps}"
        return Number(**self._option, edges=edges), seen

    def _flags(self, answers: Sequence[str]) -> _Proposal | None:
        """Return flags if some cells hold several options and no cell holds one twice."""
        lists = [[part.strip() for part in cell.split(";")] for cell in answers]
        several = any(len(parts) > 1 for parts in lists)
        if not several or not self.whole or any(len({*parts}) < len(parts) for parts in lists):
            return None
        counts = Counter(part for parts in lists for part in parts)
        if len(counts) > _MAX_OPTIONS or not all(counts) or min(counts.values()) < RARE:
            return None  # flags have no (other), and a rare one would be in the survey
        flags = Flags(**self._named, options=tuple(sorted(counts)))
        return flags, f"{len(counts)} options, several in one cell"

    def _words(self) -> _Proposal:
        counts, people = self.counts, self.counts.total()
        fold = len({*map(folded, counts)}) < len(counts)
        spelled: dict[str, Counter[str]] = {}
        for value, times in counts.items():
            spelled.setdefault(folded(value) if fold else value, Counter())[value] += times
        usable = {
            top: spellings.total()
            for spellings in spelled.values()
            if _is_option(top := spellings.most_common(1)[0][0])
        }
        options = tuple(sorted(value for value, times in usable.items() if times >= RARE))
        rest = people - sum(usable[value] for value in options)
        several = f"{len(counts):,} different values"
        if not 0 < len(options) <= _MAX_OPTIONS or rest > people / 2:
            text = Text(**self._named, bits=256, hashes=1, cohorts=32)
            return text, f"{several}, too many for options: text, decoded from a list of candidates"
        spelling = ", upper and lower case taken as one" if fold else ""
        left = f"; rare ones, of {rest:,} people in all, are (other)" if rest else ""
        other = bool(rest) or not self.whole
        choice = Choice(**self._option, options=options, other=other, fold=fold)
        return choice, f"{several}{spelling}{left}{self._gaps}"


def _is_option(text: str) -> bool:
    return ";" not in text and text.isprintable() and len(text) <= 200 and text not in _RESERVED


def _in_a_row(counts: Counter[str]) -> bool:
    numbers = sorted(int(value) for value in counts if len(value) <= 18)
    return len(numbers) == len(counts) and numbers[-1] - numbers[0] < 1.2 * len(numbers)


def _edges(ordered: Sequence[float]) -> tuple[str, ...]:
    """Return round edges between the outer twentieths: even steps, or 1, 2, 5 for long tails.

    At least `RARE` people are at or beyond each of the places that the edges follow from, so that
    no single person's number is in a survey.
    """
    inner = ordered[RARE - 1 : len(ordered) - RARE + 1]
    low, middle, high = (inner[int(part * (len(inner) - 1))] for part in (0.05, 0.5, 0.95))
    if low > 0 and high / middle > 20:
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        steps = [factor * 10.0**power for power in powers for factor in (1, 2, 5)]
        inside = [step for step in steps if low <= step <= high]
    else:
        width = (high - low) / 8 or (inner[-1] - inner[0]) / 8
        if not width:
            return (f"{middle:.12g}",)
        power = 10.0 ** math.floor(math.log10(width))
        step = min((factor * power for factor in (1, 2, 5, 10)), key=lambda one: abs(one - width))
        inside = [place * step for place in range(math.ceil(low / step), int(high // step) + 1)]
        inside = [edge for edge in inside if edge > inner[0]] or [step * math.ceil(low / step)]
    texts = [f"{edge:.12g}" for edge in inside or [middle]]
    assert all(float(a) < float(b) for a, b in pairwise(texts))
    return tuple(texts)
