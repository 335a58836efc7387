"""Cells of a table to set bits, each by itself, by the declared format of the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.device.answers import set_bits, text_bits, wrong_answer
from shoal.errors import AnswerError, InputError
from shoal.protocol.survey import AskedQuestion, Flags, Number, Survey, Text
from shoal.protocol.vectors import Cohorts
from shoal.support.table_format import DEFAULT_FORMAT, TableFormat

__all__ = ["check_format", "encode_cells", "readable_answer", "readable_cell"]

_SIMPLE = (str, int, float, bool, type(None))


def check_format(survey: Survey, table_format: TableFormat) -> None:
    """Refuse to treat invalid cells as missing where a question cannot be missing."""
    if table_format.invalid != "missing":
        return
    for question in survey.asked:
        if not isinstance(question, (Flags, Text)) and getattr(question, "missing", None) is None:
            raise InputError(
                f'invalid = "missing" needs missing = "option" in question {question.name!r}, so'
                " that an answer that cannot be read has an option."
            )


def readable_cell(
    question: AskedQuestion, cell: Any, row: int, table_format: TableFormat
) -> object:
    """Return the answer that a cell holds by the format, None if it is missing."""
    if table_format.is_missing(cell):
        return None
    if isinstance(question, Number) and isinstance(cell, str) and table_format.decimal != ".":
        number = table_format.number(cell)
        if number is None:
            raise wrong_answer(row, question, cell, table_format.why_no_number(cell))
        return number
    return cell


def readable_answer(survey: Survey, answer: Any, row: int, table_format: TableFormat) -> Any:
    """Return the answer to each question in one person's row, by the format.

    With `invalid = "missing"` an answer that is not allowed is None, and so is every answer of a
    row that does not map questions to answers.
    """
    if table_format == DEFAULT_FORMAT:
        return answer
    if table_format.invalid == "error":
        if not isinstance(answer, Mapping):
            return answer
        asked = {question.name: question for question in survey.asked}
        return {
            name: readable_cell(asked[name], cell, row, table_format) if name in asked else cell
            for name, cell in answer.items()
        }
    names = {question.name for question in survey.asked}
    if not isinstance(answer, Mapping) or not names.issuperset(answer):
        answer = {}
    return {
        question.name: _valid_or_missing(survey, question, answer.get(question.name), table_format)
        for question in survey.asked
    }


def _valid_or_missing(
    survey: Survey, question: AskedQuestion, cell: Any, table_format: TableFormat
) -> object:
    try:
        cell = readable_cell(question, cell, 0, table_format)
        _bits(survey, question, cell, 0, 0)
    except AnswerError:
        return None
    return cell


def _bits(survey: Survey, question: AskedQuestion, cell: Any, cohort: int, row: int) -> list[int]:
    if isinstance(question, Text):
        return text_bits(survey, question, cell, cohort, row)
    return set_bits(question, cell, row)


def encode_cells(
    survey: Survey,
    question: AskedQuestion,
    cells: Sequence[Any],
    cohorts: Cohorts | None,
    out: NDArray[np.bool_],
    first_row: int,
    table_format: TableFormat,
) -> None:
    """Set the bits of a question for each cell of a column, in rows of their own."""
    known: dict[Any, list[int]] = {}
    for index, cell in enumerate(cells):
        cohort = 0 if cohorts is None else int(cohorts[index])
        simple = isinstance(cell, _SIMPLE) and not isinstance(question, Text)
        key = (type(cell), cell) if simple else None
        if key is None or key not in known:
            row = first_row + index
            try:
                answer = readable_cell(question, cell, row, table_format)
                bits = _bits(survey, question, answer, cohort, row)
            except AnswerError:
                if table_format.invalid == "error":
                    raise
                bits = _bits(survey, question, None, cohort, row)
            if key is not None:
                known[key] = bits
        else:
            bits = known[key]
        out[index, bits] = True
