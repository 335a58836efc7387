"""Answers to Originals: the bits that say what a person answered.

An answer outside its question's domain is an error that names row, question and value (of one
answer by itself: question and value). Nothing is guessed, and of a table with one bad row nothing
is encoded.
"""

from __future__ import annotations

import math
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from shoal.agreement.plan import Plan
from shoal.agreement.random_bits import RandomBits, SystemBits, draw_below
from shoal.agreement.survey import Choice, Flags, Number, Question, Survey, Text
from shoal.agreement.vectors import Cohorts, Original, pack
from shoal.errors import AnswerError, InputError
from shoal.support.checks import shown

__all__ = ["encode"]

LONGEST_TEXT = 1 << 16


def encode(
    survey: Survey | Plan, answers: object, *, random_bits: RandomBits | None = None
) -> Original:
    """Encode one answer, or a table of them, as packed bit vectors.

    Parameters
    ----------
    survey
        What was asked, or the plan that asks it.
    answers
        One answer as a mapping from question to value; a list of such; or a table with one row per
        person and one column per question: pandas, polars, pyarrow, anything that speaks the Arrow
        interface. Flags and choices are a list of options, or text with ``;`` between them; a
        choice is one option; a number is a number; text is text.
    random_bits
        Where the cohorts of text come from. Leave it out, except in simulations.

    Examples
    --------
    >>> from shoal import Choice, Flags, Survey
    >>> survey = Survey("browser", (
    ...     Flags("features", ("sync", "vpn", "reader")),
    ...     Choice("channel", ("release", "beta")),
    ... ))
    >>> encode(survey, {"features": ["sync", "reader"], "channel": "beta"}).rows
    array([[21]], dtype=uint8)
    >>> encode(survey, {"features": [], "channel": "alpha"})
    Traceback (most recent call last):
    ...
    shoal.errors.AnswerError: question 'channel': 'alpha' is not one of its options.
    """
    asked = survey.survey if isinstance(survey, Plan) else survey
    source = SystemBits() if random_bits is None else random_bits
    if isinstance(answers, Mapping):
        return encode_rows(asked, [answers], first_row=0, random_bits=source)
    if isinstance(answers, Sequence) and not isinstance(answers, (str, bytes)):
        return encode_rows(asked, answers, random_bits=source)
    if hasattr(answers, "__arrow_c_stream__") or hasattr(answers, "__arrow_c_array__"):
        from shoal.device.tables import encode_table

        return encode_table(asked, answers, random_bits=source)
    raise InputError(
        f"answers must be a mapping, a list of mappings or a table, got {type(answers).__name__}."
    )


def set_bits(question: Question, answer: object, row: int) -> list[int]:
    """Return which bits of the question an answer sets, each once."""
    if isinstance(question, Flags):
        named = _named_options(question, answer, row)
        bits = [_position(question, name, row) for name in named]
        if len(set(bits)) < len(bits):
            raise wrong_answer(row, question, answer, "names an option twice")
        if len(bits) > question.most_set_bits:
            raise wrong_answer(row, question, answer, too_many(question, len(bits)))
        return bits
    if is_missing(answer):
        return [missing_bit(question, row)]
    if isinstance(question, Number):
        edges = [float(edge) for edge in question.edges]
        return [bisect_right(edges, _number(question, answer, row))]
    assert isinstance(question, Choice)
    name = _option_name(answer)
    if name is None:
        raise wrong_answer(row, question, answer, "is not one option's name")
    return [_position(question, name, row)]


def missing_bit(question: Question, row: int) -> int:
    """Return the bit of a missing answer, if the question declared one."""
    assert isinstance(question, (Choice, Number))
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
    return f"sets {count} options, at most {question.most_set_bits} are allowed"


def draw_cohorts(survey: Survey, count: int, random_bits: RandomBits) -> Cohorts | None:
    """Draw a cohort for each report, uniformly and afresh, if the survey has cohorts."""
    if survey.cohorts is None:
        return None
    return draw_below(survey.cohorts, count, random_bits).astype(np.uint16)


def encode_rows(
    survey: Survey,
    answers: Sequence[Any],
    first_row: int = 1,
    random_bits: RandomBits = SystemBits(),  # noqa: B008  it holds no state
) -> Original:
    """Encode a list of mappings; `first_row` is what messages call the first of them.

    It is 0 for one answer that stands in no table.
    """
    vectors = np.zeros((len(answers), survey.bits), bool)
    cohorts = draw_cohorts(survey, len(answers), random_bits)
    names = {question.name for question in survey}
    for row, answer in enumerate(answers, first_row):
        if not isinstance(answer, Mapping):
            raise AnswerError(f"row {row} must map questions to answers, got {shown(answer)}.")
        if unknown := [name for name in answer if name not in names]:
            raise AnswerError(f"{_in(row)}question {shown(unknown[0])} is not asked.")
        for question in survey:
            if question.name not in answer and isinstance(question, (Flags, Text)):
                # Leaving out a question is not the same as answering that nothing is set.
                raise AnswerError(f"{_in(row)}question {question.name!r} has no answer.")
            given, start = answer.get(question.name), survey.slice_of(question.name).start
            if isinstance(question, Text):
                assert cohorts is not None
                cohort = int(cohorts[row - first_row])
                bits = text_bits(survey, question, given, cohort, row)
            else:
                bits = set_bits(question, given, row)
            vectors[row - first_row, [start + bit for bit in bits]] = True
    return Original(pack(vectors), survey.bits, cohorts)


def text_bits(survey: Survey, question: Text, answer: object, cohort: int, row: int) -> list[int]:
    """Return the bits that a text sets in a cohort; no answer counts as an empty text."""
    if answer is None:
        answer = ""
    if not isinstance(answer, str):
        raise wrong_answer(row, question, answer, "is not text")
    if len(answer) > LONGEST_TEXT:
        raise wrong_answer(row, question, answer, f"is longer than {LONGEST_TEXT} characters")
    return list(survey.text_bits(question.name, answer, cohort))


def _in(row: int) -> str:
    """Say which row of a table an error is in."""
    return f"row {row}, " if row else ""


def _named_options(question: Question, answer: object, row: int) -> list[str]:
    if is_missing(answer):
        return []  # an empty cell is: none set
    if isinstance(answer, str):
        return [name.strip() for name in answer.split(";")]
    if isinstance(answer, Mapping) or not isinstance(answer, Iterable):
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
    if isinstance(option, (int, np.integer)) and not isinstance(option, bool):
        return str(int(option))
    return option if isinstance(option, str) else None


def _position(question: Question, name: str, row: int) -> int:
    assert isinstance(question, (Flags, Choice))
    try:
        return question.options.index(unicodedata.normalize("NFC", name.strip()))
    except ValueError:
        raise wrong_answer(row, question, name, "is not one of its options") from None


def _number(question: Question, answer: object, row: int) -> float:
    grouped = isinstance(answer, str) and "_" in answer  # Python's own way of writing numbers
    if isinstance(answer, (bool, np.bool_, bytes)) or grouped:
        raise wrong_answer(row, question, answer, "is not a number")
    try:
        number = float(answer)  # type: ignore[arg-type]  # the except clause answers the rest
    except (TypeError, ValueError, OverflowError):
        raise wrong_answer(row, question, answer, "is not a number") from None
    if not math.isfinite(number):
        raise wrong_answer(row, question, answer, "is not a finite number")
    return number
