"""Encode answers as bits: the rules for one answer, and for tables of them.

One answer becomes one `OriginalVector`, with the standard library alone; many become an `Original`.
An answer outside its question's domain is an error that names row, question and value (for one
answer by itself: question and value). Nothing is guessed.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from shoal.device.vectors import OriginalVector
from shoal.errors import AnswerError, InputError, missing_extra
from shoal.protocol.plan import Plan
from shoal.protocol.questions import OptionsQuestion, folded
from shoal.protocol.random_bits import RandomBits, SystemBits, draw_below
from shoal.protocol.survey import Choice, Cross, Flags, Number, Question, Survey, Text, YesNo
from shoal.support.checks import shown, whole_digits

if TYPE_CHECKING:
    from shoal.device.arrays.randomize import Original
    from shoal.support.table_format import TableFormat


@overload
def encode(  # type: ignore[overload-overlap]  # a mapping is one answer, all else is many
    survey: Survey | Plan, answers: Mapping[str, Any], *, random_bits: RandomBits | None = None
) -> OriginalVector: ...


@overload
def encode(
    survey: Survey | Plan,
    answers: object,
    *,
    table_format: TableFormat | None = None,
    random_bits: RandomBits | None = None,
) -> Original: ...


def encode(
    survey: Survey | Plan,
    answers: object,
    *,
    table_format: TableFormat | None = None,
    random_bits: RandomBits | None = None,
) -> OriginalVector | Original:
    """Encode one answer as a bit vector, or a table of them as packed rows.

    Each row is encoded by itself: no row changes the bits of another. If a table has an invalid
    row, nothing is encoded, unless the format says that invalid answers are missing.

    Parameters
    ----------
    survey
        The survey, or a plan for it.
    answers
        One answer as a mapping from question to value; a list of such; or a table with one row per
        person and one column per question: pandas, polars, pyarrow, anything that speaks the Arrow
        interface. Flags are a list of options, or text with ``;`` between them; a
        choice is one option; yes or no is ``yes`` or ``no``, true or false, 1 or 0; a number is a
        number; text is text. A mapping has the questions' names, a table the columns that the
        survey declares. The cells of crossed questions follow from the answers.
    table_format
        The decimal sign, the texts for missing answers, and the treatment of invalid answers in
        a list or a table: a `TableFormat`.
    random_bits
        Where the cohorts of text come from. Leave it out, except in simulations.

    Examples
    --------
    >>> from shoal import Choice, Flags, Survey
    >>> survey = Survey("browser", (
    ...     Flags("features", ("sync", "vpn", "reader")),
    ...     Choice("channel", ("release", "beta")),
    ... ))
    >>> answer = {"features": ["sync", "reader"], "channel": "beta"}
    >>> encode(survey, answer)
    OriginalVector(5 bits, not shown)
    >>> encode(survey, [answer, answer | {"channel": "release"}]).rows
    array([[21],
           [13]], dtype=uint8)
    >>> encode(survey, {"features": [], "channel": "alpha"})
    Traceback (most recent call last):
    ...
    shoal.errors.AnswerError: question 'channel': 'alpha' is not one of its options.
    """
    asked = survey.survey if isinstance(survey, Plan) else survey
    source = SystemBits() if random_bits is None else random_bits
    if isinstance(answers, Mapping):
        if table_format is not None:
            raise InputError("table_format is for tables and lists; an answer is a mapping.")
        return _encode_one(asked, answers, source)
    if table_format is None:
        from shoal.support.table_format import TableFormat

        table_format = TableFormat()
    is_list = isinstance(answers, Sequence) and not isinstance(answers, (str, bytes))
    is_table = hasattr(answers, "__arrow_c_stream__") or hasattr(answers, "__arrow_c_array__")
    if not is_list and not is_table:
        found = type(answers).__name__
        raise InputError(f"answers must be a mapping, a list of mappings or a table, got {found}.")
    try:
        from shoal.device.arrays.encode import encode_rows, encode_table
    except ModuleNotFoundError as error:
        raise missing_extra(error, "encoding a table of answers") from None
    if isinstance(answers, Sequence) and is_list:
        return encode_rows(asked, answers, random_bits=source, table_format=table_format)
    return encode_table(asked, answers, random_bits=source, table_format=table_format)


def _encode_one(
    survey: Survey, answer: Mapping[str, object], random_bits: RandomBits
) -> OriginalVector:
    cohort = None if survey.cohorts is None else draw_below(survey.cohorts, random_bits)
    value = sum(1 << bit for bit in AnswerRules(survey).set_bits(answer, cohort))
    return OriginalVector(value, survey.bits, cohort)


MAX_TEXT = 1 << 16

_YES = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}


class AnswerRules:
    """How people's whole answers to a survey become set bits."""

    def __init__(self, survey: Survey) -> None:
        self._survey = survey
        self._names = {question.name for question in survey.asked}
        self._derived = {cross.name for cross in survey.crosses}

    def set_bits(self, answer: object, cohort: int | None, row: int = 0) -> list[int]:
        """Return which bits of the survey's vector one person's answer sets, each once.

        `row` is what messages call the answer; it is 0 where the answer stands in no table.
        """
        if not isinstance(answer, Mapping):
            raise AnswerError(f"row {row} must map questions to answers, got {shown(answer)}.")
        if unknown := [name for name in answer if name not in self._names]:
            name = unknown[0]
            why = "follows from the other answers" if name in self._derived else "is not asked"
            raise AnswerError(f"{_in(row)}question {shown(name)} {why}; leave it out.")
        chosen: dict[str, Collection[int]] = {}
        for question in self._survey.asked:
            if question.name not in answer and isinstance(question, (Flags, Text)):
                # Leaving out a question is not the same as answering that nothing is set.
                raise AnswerError(f"{_in(row)}question {question.name!r} has no answer.")
            given = answer.get(question.name)
            if isinstance(question, Text):
                assert cohort is not None
                bits = text_bits(self._survey, question, given, cohort, row)
            else:
                bits = set_bits(question, given, row)
            chosen[question.name] = bits
        for cross in self._survey.crosses:
            chosen[cross.name] = [cell_of(cross, chosen)]
        starts = {name: self._survey.slice_of(name).start for name in chosen}
        return [starts[name] + bit for name, bits in chosen.items() for bit in bits]


def cell_of(cross: Cross, chosen: Mapping[str, Collection[int]]) -> int:
    """Return the cell of a person who has set these bits of each crossed question.

    `shoal.device.arrays.encode` does so for many people.
    """
    cell = 0
    for side, size in zip(cross.sides, cross.sizes, strict=True):
        bits = chosen[side.question.name]
        value = next(iter(bits)) if side.bit is None else int(side.bit not in bits)
        cell = cell * size + value
    return cell


def set_bits(question: Question, answer: object, row: int) -> list[int]:
    """Return which bits of the question an answer sets, each once."""
    if isinstance(question, Flags):
        named = _named_options(question, answer, row)
        bits = [_position(question, name, row) for name in named]
        if len(set(bits)) < len(bits):
            raise wrong_answer(row, question, answer, "names an option twice")
        if len(bits) > question.max_set_bits:
            raise wrong_answer(row, question, answer, too_many(question, len(bits)))
        return bits
    if is_missing(answer):
        return [missing_bit(question, row)]
    if isinstance(question, Number):
        number = _number(question, answer, row)
        return [sum(float(edge) <= number for edge in question.edges)]
    if isinstance(question, YesNo):
        yes = _is_yes(question, answer, row)
        return [int(not yes)] if question.missing or yes else []
    assert isinstance(question, Choice)
    name = _option_name(answer)
    if name is None:
        raise wrong_answer(row, question, answer, "is not one option's name")
    return [_position(question, name, row)]


def missing_bit(question: Question, row: int) -> int:
    """Return the bit of a missing answer, if the question declared one."""
    assert isinstance(question, (Choice, Number, YesNo))
    if question.missing is None:
        way_out = 'is missing; declare missing = "option" in the survey if that may happen'
        raise AnswerError(f"{_in(row)}question {question.name!r}: the answer {way_out}.")
    return question.bits - 1


def is_missing(answer: object) -> bool:
    """Whether an answer is absent: None, or an empty cell."""
    return answer is None or (isinstance(answer, str) and not answer.strip())


def wrong_answer(row: int, question: Question, answer: object, why: str) -> AnswerError:
    """Return the error for an answer outside the domain."""
    return AnswerError(f"{_in(row)}question {question.name!r}: {shown(answer)} {why}.")


def too_many(question: Question, count: int) -> str:
    """Say that more options are set than the question allows."""
    return f"sets {count} options, at most {question.max_set_bits} are allowed"


def text_bits(survey: Survey, question: Text, answer: object, cohort: int, row: int) -> list[int]:
    """Return the bits that a text sets in a cohort; no answer counts as an empty text."""
    if answer is None:
        answer = ""
    if not isinstance(answer, str):
        raise wrong_answer(row, question, answer, "is not text")
    if len(answer) > MAX_TEXT:
        raise wrong_answer(row, question, answer, f"is longer than {MAX_TEXT} characters")
    try:
        answer.encode()
    except UnicodeEncodeError:
        raise wrong_answer(row, question, answer, "is not valid Unicode") from None
    return list(survey.text_bits(question.name, answer, cohort))


def _in(row: int) -> str:
    """Say which row of a table an error is in."""
    return f"row {row}, " if row else ""


def _named_options(question: Question, answer: object, row: int) -> list[str]:
    if is_missing(answer):
        return []  # an empty cell is: none set
    if isinstance(answer, str):
        return [name.strip() for name in answer.split(";")]
    if (only := whole_digits(answer)) is not None:
        return [only]
    if isinstance(answer, (bytes, Mapping)) or not isinstance(answer, Iterable):
        raise wrong_answer(row, question, answer, "is not a list of options")
    named = []
    for option in answer:
        name = _option_name(option)
        if name is None:
            raise wrong_answer(row, question, option, "is not an option's name")
        named.append(name)
    return named


def _option_name(option: object) -> str | None:
    """Return an option's name; codes that are whole numbers are named by their digits."""
    return option if isinstance(option, str) else whole_digits(option)


def _position(question: Question, name: str, row: int) -> int:
    assert isinstance(question, OptionsQuestion)
    place = question.place(name)
    if place is None:
        raise wrong_answer(row, question, name, "is not one of its options")
    return place


def _is_yes(question: Question, answer: object, row: int) -> bool:
    is_bool = type(answer).__name__ in ("bool", "bool_")  # Python's, or NumPy's
    word = str(answer) if is_bool else _option_name(answer)
    yes = None if word is None else _YES.get(folded(word))
    if yes is None:
        raise wrong_answer(row, question, answer, "is not yes or no, true or false, 1 or 0")
    return yes


def _number(question: Question, answer: object, row: int) -> float:
    grouped = isinstance(answer, str) and "_" in answer  # Python's own way of writing numbers
    known = isinstance(answer, (str, numbers.Number)) and not isinstance(answer, bool)
    if grouped or not known:
        raise wrong_answer(row, question, answer, "is not a number")
    try:
        number = float(answer)  # type: ignore[arg-type]  # the except clause answers the rest
    except (TypeError, ValueError, OverflowError):
        raise wrong_answer(row, question, answer, "is not a number") from None
    if not math.isfinite(number):
        raise wrong_answer(row, question, answer, "is not a finite number")
    return number
