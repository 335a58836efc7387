"""Encoding whole Arrow tables: one look at each distinct value, then arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from shoal.agreement.random_bits import RandomBits, SystemBits
from shoal.agreement.survey import Choice, Flags, Number, Question, Survey, Text, YesNo
from shoal.agreement.vectors import Cohorts, row_bytes
from shoal.device.answers import (
    missing_bit,
    set_bits,
    text_bits,
    too_many,
    wrong_answer,
)
from shoal.device.bulk.crosses import set_cells
from shoal.device.bulk.encoding import draw_cohorts
from shoal.device.bulk.vectors import Original, pack
from shoal.errors import AnswerError
from shoal.support.documents import listed

_ROWS = 1 << 16

Vectors = NDArray[np.bool_]


def encode_table(
    survey: Survey,
    table: Any,
    first_row: int = 1,
    random_bits: RandomBits = SystemBits(),  # noqa: B008  it holds no state
) -> Original:
    """Encode a table with one row per person and one column per question."""
    columns = pa.table(table)
    check_columns(survey, columns.column_names)
    rows = np.empty((columns.num_rows, row_bytes(survey.bits)), np.uint8)
    cohorts = draw_cohorts(survey, columns.num_rows, random_bits)
    for start in range(0, columns.num_rows, _ROWS):
        part = columns.slice(start, _ROWS)
        vectors = np.zeros((part.num_rows, survey.bits), bool)
        for question in survey.asked:
            block = vectors[:, survey.slice_of(question.name)]
            column = part.column(question.table_column).combine_chunks()
            if isinstance(question, Text):
                assert cohorts is not None
                chosen = cohorts[start : start + _ROWS]
                _encode_text(survey, question, column, chosen, block, first_row + start)
            else:
                _encode_column(question, column, block, first_row + start)
        set_cells(survey, vectors)
        rows[start : start + _ROWS] = pack(vectors)
    return Original(rows, survey.bits, cohorts)


def _encode_text(
    survey: Survey, question: Text, column: Any, cohorts: Cohorts, out: Vectors, first_row: int
) -> None:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if not _is_readable(question, column.type) or pa.types.is_integer(column.type):
        raise AnswerError(f"question {question.name!r}: a column of {column.type} holds no text.")
    for index, (text, cohort) in enumerate(zip(column.to_pylist(), cohorts.tolist(), strict=True)):
        out[index, text_bits(survey, question, text, cohort, first_row + index)] = True


def check_columns(survey: Survey, names: list[str]) -> None:
    """Refuse a table that lacks a question's column, or has it twice."""
    for column in table_columns(survey):
        if column not in names:
            raise AnswerError(
                f"the table has no column {column!r}; it has {listed(names)}"
                f"{_separator_hint(column, names)}."
            )
        if names.count(column) > 1:
            raise AnswerError(f"the table has column {column!r} twice.")


def table_columns(survey: Survey) -> list[str]:
    """Return the columns that hold the answers, each once: questions may share one."""
    return list(dict.fromkeys(question.table_column for question in survey.asked))


def _separator_hint(wanted: str, names: list[str]) -> str:
    """Say so if the column is there, but not a comma before or after it."""
    for separator, called in ((";", "semicolons"), ("\t", "tabs"), ("|", "bars")):
        if any(wanted in map(str.strip, name.split(separator)) for name in names):
            return f", as if {called} separated the columns; put commas between them"
    return ""


def _encode_column(question: Question, column: Any, out: Vectors, first_row: int) -> None:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if not _is_readable(question, column.type):
        what = f"a column of {column.type} holds no {question.kind} answers"
        raise AnswerError(f"question {question.name!r}: {what}.")
    if pa.types.is_large_string(column.type) or pa.types.is_string_view(column.type):
        column = column.cast(pa.string())
    if isinstance(question, Flags):
        _encode_flags(question, column, out, first_row)
    elif isinstance(question, Number) and not pa.types.is_string(column.type):
        _encode_numbers(question, column, out, first_row)
    else:
        values, codes = _distinct(column)
        first = _first_rows(codes, len(values), first_row)
        bits = [set_bits(question, value, row) for value, row in zip(values, first, strict=True)]
        chosen = np.array([one[0] if one else -1 for one in bits], np.int64)[codes]
        setting = np.flatnonzero(chosen >= 0)  # a no sets nothing
        out[setting, chosen[setting]] = True


def _is_readable(question: Question, kind: Any) -> bool:
    """Whether a column of this type can hold answers: text, whole numbers, lists of them."""
    types = pa.types
    if isinstance(question, Flags) and (types.is_list(kind) or types.is_large_list(kind)):
        return _is_readable(Choice(question.name, ("a", "b")), kind.value_type)
    text = (types.is_string, types.is_large_string, types.is_string_view, types.is_null)
    numbers = (types.is_floating, types.is_decimal, types.is_boolean, types.is_duration)
    if any(is_it(kind) for is_it in text) or types.is_integer(kind):
        return True
    if isinstance(question, YesNo):
        return bool(types.is_boolean(kind))
    # Booleans are let through to be refused with row and value.
    return isinstance(question, Number) and any(is_it(kind) for is_it in numbers)


def _encode_flags(question: Flags, column: Any, out: Vectors, first_row: int) -> None:
    if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
        cells = pc.fill_null(_as_text(column), "")
        # An empty cell is: none set. Splitting it would name one empty option.
        cells = pc.if_else(pc.equal(pc.utf8_trim_whitespace(cells), ""), None, cells)
        column = pc.split_pattern(cells, ";")
    named = pc.list_flatten(column)
    if not len(named):
        return
    owners = pc.list_parent_indices(column).to_numpy(zero_copy_only=False)
    values, codes = _distinct(named)
    first = owners[_first_rows(codes, len(values), 0)] + first_row
    position = [
        set_bits(question, [value], row)[0] for value, row in zip(values, first, strict=True)
    ]
    out[owners, np.array(position, np.int64)[codes]] = True
    given = np.bincount(owners, minlength=len(out))
    different = out.sum(axis=1)
    if (bad := np.flatnonzero(given != different)).size:
        answer = column[int(bad[0])].as_py()
        raise wrong_answer(first_row + int(bad[0]), question, answer, "names an option twice")
    if (bad := np.flatnonzero(different > question.most_set_bits)).size:
        answer = column[int(bad[0])].as_py()
        why = too_many(question, int(different[bad[0]]))
        raise wrong_answer(first_row + int(bad[0]), question, answer, why)


def _encode_numbers(question: Number, column: Any, out: Vectors, first_row: int) -> None:
    if pa.types.is_boolean(column.type):
        raise wrong_answer(first_row, question, column[0].as_py(), "is not a number")
    if pa.types.is_duration(column.type):
        column = column.cast(pa.int64())
    numbers = pc.cast(column, pa.float64(), safe=False)
    missing = numbers.is_null().to_numpy(zero_copy_only=False)
    values = pc.fill_null(numbers, 0.0).to_numpy(zero_copy_only=False)
    if (bad := np.flatnonzero(~np.isfinite(values))).size:
        answer = float(values[bad[0]])
        raise wrong_answer(first_row + int(bad[0]), question, answer, "is not a finite number")
    bits = np.searchsorted([float(edge) for edge in question.edges], values, side="right")
    if missing.any():
        bits[missing] = missing_bit(question, first_row + int(np.flatnonzero(missing)[0]))
    out[np.arange(len(bits)), bits] = True


def _distinct(column: Any) -> tuple[list[Any], NDArray[np.int64]]:
    """Return the distinct values, None among them, and which of them each row holds."""
    encoded = pc.dictionary_encode(_as_text(column), null_encoding="encode")
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return encoded.dictionary.to_pylist(), codes


def _first_rows(codes: NDArray[np.int64], count: int, first_row: int) -> NDArray[np.int64]:
    """Return the first row that holds each distinct value, for the message that names it."""
    first = np.zeros(count, np.int64)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    return first + first_row


def _as_text(column: Any) -> Any:
    return column if pa.types.is_string(column.type) else pc.cast(column, pa.string())
