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

MIN_FOR_RANGES = 50
"""Of fewer people no ranges are taken: their edges would be close to one person's number."""

MAX_OPTIONS = 50
FEW_NUMBERS = 10
OWN = 0.9
"""From this share of different values on, a column identifies people."""

TEXT_BITS, TEXT_COHORTS = 256, 32

_NO_DATES = "no question takes dates; add a column with the year or the month, and ask for that"

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
    column: str, cells: Sequence[str], *, whole: bool, decimal_comma: bool
) -> ColumnProposal:
    """Return the question that fits a column of answers.

    `whole` is whether these are the answers of everybody, `decimal_comma` whether 3,5 is a number.
    """
    given = [cell.strip() for cell in cells]
    answers = [cell for cell in given if cell]
    missing = len(answers) < len(given)
    counts = Counter(answers)
    several = f"{len(counts):,} different values"
    try:
        name: dict[str, Any] = {"name": _name(column), "column": column}
        option: dict[str, Any] = {"missing": "option"} if missing else {}
        if why := _not_asked(column, counts, len(answers), missing, decimal_comma):
            return ColumnProposal(column, None, why)
        if {folded(value) for value in counts} <= _YES_NO and len({*map(folded, counts)}) <= 2:
            words = _some(sorted(counts))
            return ColumnProposal(column, YesNo(**name, **option), f"{words}{_gaps(missing)}")
        if flags := _flags(name, answers, whole):
            return ColumnProposal(column, *flags)
        if all(_MONTH.fullmatch(value) for value in counts):
            return ColumnProposal(column, None, f"{several}, all dates: {_NO_DATES}")
        unclear = {value for value in counts if decimal_comma and AMBIGUOUS.fullmatch(value)}
        if unclear and all(_is_number(value, decimal_comma) for value in counts.keys() - unclear):
            one = min(unclear)
            why = TableFormat(decimal=",").why_no_number(one)
            return ColumnProposal(column, None, f"numbers, but {one!r} {why}")
        if all(_is_number(value, decimal_comma) for value in counts):
            return _numbers(column, name, counts, option, whole, decimal_comma)
        if all(_DATE.fullmatch(value) for value in counts) and len(counts) > FEW_NUMBERS:
            return ColumnProposal(column, None, f"{several}, all dates: {_NO_DATES}")
        return _words(column, name, counts, option, whole)
    except SurveyError as error:
        return ColumnProposal(column, None, f"cannot be asked: {error}".rstrip("."))


def _not_asked(
    column: str, counts: Counter[str], people: int, missing: bool, decimal_comma: bool
) -> str | None:
    """Say why a column must not become a question, or None."""
    if not people:
        return "the column is empty"
    if len(counts) == 1 and not missing:
        return "all values are the same"
    if _PERSON.fullmatch(column.strip()):
        return "its name suggests that it identifies people; rename the column if it does not"
    for what, pattern in _PATTERNS.items():
        if sum(counts[value] for value in counts if pattern.fullmatch(value)) > people / 2:
            return f"{what}: they identify people"
    own = len(counts) > max(OWN * people, 1) and people >= RARE
    if own and all(_is_number(value, decimal_comma) for value in counts):
        whole = [value for value in counts if value.isdigit()]
        if len(whole) == len(counts) and (_ID_NAME.search(column) or _in_a_row(counts)):
            return f"{len(counts):,} values for {people:,} people: numbers that identify people"
        return None
    if own and not all(_DATE.fullmatch(value) for value in counts):
        return (
            f"{len(counts):,} values for {people:,} people: nearly everyone has their own, so it"
            " identifies people"
        )
    return None


def _in_a_row(counts: Counter[str]) -> bool:
    numbers = sorted(int(value) for value in counts if len(value) <= 18)
    return len(numbers) == len(counts) and numbers[-1] - numbers[0] < 1.2 * len(numbers)


def _numbers(
    column: str,
    name: dict[str, Any],
    counts: Counter[str],
    option: dict[str, Any],
    whole: bool,
    decimal_comma: bool,
) -> ColumnProposal:
    values = {text: _number(text, decimal_comma) or 0.0 for text in counts}
    gaps = _gaps(bool(option))
    few = whole and len(counts) <= FEW_NUMBERS and min(counts.values()) >= RARE
    if few and all(re.fullmatch("-?[0-9]+", text) for text in counts):
        options = tuple(sorted(counts, key=lambda text: (values[text], text)))
        if len({*map(float, options)}) == len(options):
            seen = f"{len(counts)} different whole numbers, {options[0]} to {options[-1]}{gaps}"
            return ColumnProposal(column, Choice(**name, options=options, **option), seen)
    if counts.total() < MIN_FOR_RANGES:
        few_people = f"numbers of {counts.total()} people: too few to take ranges from"
        return ColumnProposal(column, None, few_people)
    ordered = sorted(values[text] for text, times in counts.items() for _ in range(times))
    edges = _edges(ordered)
    sign = ", with decimal commas" if decimal_comma and any("," in text for text in counts) else ""
    seen = f"numbers, {len(counts):,} different ones{sign}"
    seen += f"; ranges from {edges[0]} to {edges[-1]}{gaps}"
    return ColumnProposal(column, Number(**name, edges=edges, **option), seen)


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


def _flags(name: dict[str, Any], answers: Sequence[str], whole: bool) -> tuple[Flags, str] | None:
    """Return flags if some cells hold several options and no cell holds one twice."""
    lists = [[part.strip() for part in cell.split(";")] for cell in answers]
    several = sum(len(parts) > 1 for parts in lists)
    if not several or not whole or any(len({*parts}) < len(parts) for parts in lists):
        return None
    counts = Counter(part for parts in lists for part in parts)
    if len(counts) > MAX_OPTIONS or not all(counts) or min(counts.values()) < RARE:
        return None  # flags have no (other), and a rare one would be in the survey
    seen = f"{len(counts)} options, several in one cell"
    return Flags(**name, options=tuple(sorted(counts))), seen


def _words(
    column: str,
    name: dict[str, Any],
    counts: Counter[str],
    option: dict[str, Any],
    whole: bool,
) -> ColumnProposal:
    fold = len({folded(value) for value in counts}) < len(counts)
    spelled: dict[str, Counter[str]] = {}
    for value, times in counts.items():
        spelled.setdefault(folded(value) if fold else value, Counter())[value] += times
    usable = {
        one.most_common(1)[0][0]: one.total()
        for one in spelled.values()
        if ";" not in (top := one.most_common(1)[0][0])
        and top.isprintable()
        and len(top) <= 200
        and top not in (OTHER, MISSING)
    }
    options = tuple(sorted(value for value, times in usable.items() if times >= RARE))
    rest = counts.total() - sum(usable[value] for value in options)
    gaps, several = _gaps(bool(option)), f"{len(counts):,} different values"
    if 0 < len(options) <= MAX_OPTIONS and rest <= counts.total() / 2:
        other = bool(rest) or not whole
        spelling = ", upper and lower case taken as one" if fold else ""
        left = f"; rare ones, of {rest:,} people in all, are (other)" if rest else ""
        extra = option | ({"other": True} if other else {}) | ({"fold": True} if fold else {})
        question = Choice(**name, options=options, **extra)
        return ColumnProposal(column, question, f"{several}{spelling}{left}{gaps}")
    text = Text(**name, bits=TEXT_BITS, hashes=1, cohorts=TEXT_COHORTS)
    return ColumnProposal(
        column, text, f"{several}, too many for options: text, decoded from a list of candidates"
    )


def _is_number(text: str, decimal_comma: bool) -> bool:
    return _number(text, decimal_comma) is not None


def _number(text: str, decimal_comma: bool) -> float | None:
    return TableFormat(decimal="," if decimal_comma else ".").number(text)


def _name(column: str) -> str:
    """Return the name of a question: the column's, without what a name cannot have."""
    printable = "".join(letter if letter.isprintable() else " " for letter in column)
    return " ".join(printable.split())[:200] or "(no name)"


def _gaps(missing: bool) -> str:
    return "; some have no answer" if missing else ""


def _some(words: Sequence[str]) -> str:
    return ", ".join(words[:4])
