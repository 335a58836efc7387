"""Encode tables: each distinct value once, then arrays.

The arrays are a fast path to the bits that `encode_cells` gives each cell: where a value does not
fit, the column is encoded cell by cell. So no row changes another row's bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from shoal.device.arrays.randomize import Original, pack
from shoal.device.encode import AnswerRules, missing_bit, set_bits, text_bits, wrong_answer
from shoal.errors import AnswerError, InputError
from shoal.protocol.random_bits import RandomBits, SystemBits
from shoal.protocol.survey import AskedQuestion, Flags, Number, Survey, Text, YesNo
from shoal.protocol.wire import Cohorts, row_bytes
from shoal.support.csv_rows import check_columns
from shoal.support.table_format import DEFAULT_FORMAT, TableFormat, python_cells, python_series

_ROWS = 1 << 16

Vectors = NDArray[np.bool_]


def encode_table(
    survey: Survey,
    table: Any,
    first_row: int = 1,
    random_bits: RandomBits = SystemBits(),  # noqa: B008  it holds no state
    table_format: TableFormat = DEFAULT_FORMAT,
) -> Original:
    """Encode a table with one row per person and one column per question."""
    check_format(survey, table_format)
    columns, count = _columns(survey, table)
    rows = np.empty((count, row_bytes(survey.bits)), np.uint8)
    cohorts = draw_cohorts(survey, count, random_bits)
    for start in range(0, count, _ROWS):
        part = slice(start, start + _ROWS)
        vectors = np.zeros((min(count - start, _ROWS), survey.bits), bool)
        for question in survey.asked:
            block = vectors[:, survey.slice_of(question.name)]
            column = columns[question.table_column][part]
            if not isinstance(column, list):
                column = _plain(question, column.combine_chunks())
                if _encode_column(question, column, block, table_format):
                    continue
                column = python_cells(column)
            drawn = None if cohorts is None else cohorts[part]
            encode_cells(survey, question, column, drawn, block, first_row + start, table_format)
        set_cells(survey, vectors)
        rows[part] = pack(vectors)
    return Original(rows, survey.bits, cohorts)


def _columns(survey: Survey, table: Any) -> tuple[dict[str, Any], int]:
    """Return the asked columns, as Arrow columns or as lists of cells, and how many rows."""
    if type(table).__module__.partition(".")[0] != "pandas":
        arrow = pa.table(table)
        check_asked(survey, arrow.column_names)
        return {name: arrow.column(name) for name in table_columns(survey)}, arrow.num_rows
    labels = {str(label): label for label in table.columns}
    check_asked(survey, [str(label) for label in table.columns])
    columns: dict[str, Any] = {}
    for name in table_columns(survey):
        series = table[labels[name]]
        cells = python_series(series)
        if cells is None:
            column = pa.chunked_array([pa.Array.from_pandas(series)])
            asking = [q for q in survey.asked if q.table_column == name]
            readable = all(_is_readable(question, column.type) for question in asking)
            cells = column if readable else python_cells(column)
        columns[name] = cells
    return columns, len(table)


def check_asked(survey: Survey, names: list[str]) -> None:
    """Refuse a table that lacks a question's column, or has it twice."""
    check_columns("the table", names, table_columns(survey), error=AnswerError)


def table_columns(survey: Survey) -> list[str]:
    """Return the columns that hold the answers, each once: questions may share one."""
    return list(dict.fromkeys(question.table_column for question in survey.asked))


def _plain(question: AskedQuestion, column: Any) -> Any:
    """Return a column of a type that can hold answers, in its simplest form."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if not _is_readable(question, column.type):
        what = f"a column of {column.type} holds no {question.kind} answers"
        raise AnswerError(f"question {question.name!r}: {what}.")
    if pa.types.is_large_string(column.type) or pa.types.is_string_view(column.type):
        column = column.cast(pa.string())
    if pa.types.is_duration(column.type):
        column = column.cast(pa.int64())
    return column


def _is_readable(question: AskedQuestion, kind: Any) -> bool:
    """Whether a column of this type can hold answers: text, numbers, lists of them."""
    types = pa.types
    if any(
        is_it(kind)
        for is_it in (types.is_string, types.is_large_string, types.is_string_view, types.is_null)
    ):
        return True
    if isinstance(question, Text):
        return False
    if isinstance(question, Flags) and (types.is_list(kind) or types.is_large_list(kind)):
        nested = types.is_list(kind.value_type) or types.is_large_list(kind.value_type)
        return not nested and _is_readable(question, kind.value_type)
    if types.is_integer(kind) or types.is_floating(kind):
        return True
    if isinstance(question, YesNo):
        return bool(types.is_boolean(kind))
    # Booleans are let through to be refused with row and value.
    numbers = (types.is_decimal, types.is_boolean, types.is_duration)
    return isinstance(question, Number) and any(is_it(kind) for is_it in numbers)


def _encode_column(
    question: AskedQuestion, column: Any, out: Vectors, table_format: TableFormat
) -> bool:
    """Set the bits of a whole column, or return False with none set: it goes cell by cell."""
    try:
        if isinstance(question, Text):
            return False
        if isinstance(question, Flags):
            _encode_flags(question, column, out, table_format)
        elif isinstance(question, Number) and _is_float_like(column) and not table_format.missing:
            _encode_numbers(question, column, out)
        else:
            _encode_values(question, column, out, table_format)
    except (AnswerError, pa.ArrowException, UnicodeDecodeError):
        out[:] = False
        return False
    return True


def _encode_values(
    question: AskedQuestion, column: Any, out: Vectors, table_format: TableFormat
) -> None:
    values, codes = _distinct(column)
    bits = [set_bits(question, readable_cell(question, one, 0, table_format), 0) for one in values]
    chosen = np.array([one[0] if one else -1 for one in bits], np.int64)[codes]
    setting = np.flatnonzero(chosen >= 0)  # a no sets nothing
    out[setting, chosen[setting]] = True


def _encode_flags(question: Flags, column: Any, out: Vectors, table_format: TableFormat) -> None:
    if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
        if table_format.missing or not pa.types.is_string(column.type):
            raise AnswerError("these go cell by cell")
        cells = pc.fill_null(column, "")
        # An empty cell is: none set. Splitting it would name one empty option.
        column = pc.split_pattern(pc.if_else(pc.equal(cells, ""), None, cells), ";")
    named = pc.list_flatten(column)
    if not len(named):
        return
    # Of a null list nothing is flattened, even if it has cells of its own beneath.
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    owners = np.repeat(np.arange(len(out)), lengths)
    values, codes = _distinct(named)
    position = [set_bits(question, [value], 0)[0] for value in values]
    out[owners, np.array(position, np.int64)[codes]] = True
    different = out.sum(axis=1)
    twice = (np.bincount(owners, minlength=len(out)) != different).any()
    if twice or (different > question.max_set_bits).any():
        raise AnswerError("a cell names an option twice, or too many")


def _is_float_like(column: Any) -> bool:
    return bool(pa.types.is_integer(column.type) or pa.types.is_floating(column.type))


def _encode_numbers(question: Number, column: Any, out: Vectors) -> None:
    numbers = pc.cast(column, pa.float64(), safe=False)
    missing = numbers.is_null().to_numpy(zero_copy_only=False)
    values = pc.fill_null(numbers, 0.0).to_numpy(zero_copy_only=False)
    if not np.isfinite(values).all():
        raise AnswerError("a number is not finite")
    bits = np.searchsorted([float(edge) for edge in question.edges], values, side="right")
    if missing.any():
        bits[missing] = missing_bit(question, 0)
    out[np.arange(len(bits)), bits] = True


def _distinct(column: Any) -> tuple[list[Any], NDArray[np.int64]]:
    """Return the distinct values, None among them, and which of them each row holds."""
    encoded = pc.dictionary_encode(column, null_encoding="encode")
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return encoded.dictionary.to_pylist(), codes


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


def encode_rows(
    survey: Survey,
    answers: Sequence[Any],
    first_row: int = 1,
    random_bits: RandomBits = SystemBits(),  # noqa: B008  it holds no state
    table_format: TableFormat = DEFAULT_FORMAT,
) -> Original:
    """Encode a list of mappings; `first_row` is what messages call the first of them."""
    check_format(survey, table_format)
    vectors = np.zeros((len(answers), survey.bits), bool)
    cohorts = draw_cohorts(survey, len(answers), random_bits)
    rules = AnswerRules(survey)
    for index, answer in enumerate(answers):
        cohort = None if cohorts is None else int(cohorts[index])
        row = first_row + index
        given = readable_answer(survey, answer, row, table_format)
        vectors[index, rules.set_bits(given, cohort, row)] = True
    return Original(pack(vectors), survey.bits, cohorts)


def draw_cohorts(survey: Survey, count: int, random_bits: RandomBits) -> Cohorts | None:
    """Draw a cohort for each report, uniformly and afresh, if the survey has cohorts."""
    if survey.cohorts is None:
        return None
    return draw_many_below(survey.cohorts, count, random_bits).astype(np.uint16)


def draw_many_below(bound: int, count: int, random_bits: RandomBits) -> NDArray[np.uint64]:
    """Return numbers uniform on 0 .. bound - 1, exactly; what does not divide is drawn again."""
    last = np.uint64(2**64 - 1 - 2**64 % bound)
    drawn = np.empty(0, np.uint64)
    while drawn.size < count:
        words = np.empty(count - drawn.size, np.uint64)
        random_bits.fill(words)
        drawn = np.concatenate((drawn, words[words <= last]))
    return drawn % np.uint64(bound)


def set_cells(survey: Survey, vectors: NDArray[np.bool_]) -> None:
    """Set the bit of each cross that follows from the other bits of each row.

    `shoal.device.answers.cell_of` does so for one person.
    """
    for cross in survey.crosses:
        cells = np.zeros(len(vectors), np.int64)
        for side, size in zip(cross.sides, cross.sizes, strict=True):
            block = vectors[:, survey.slice_of(side.question.name)]
            value = block.argmax(axis=1) if side.bit is None else ~block[:, side.bit]
            cells = cells * size + value
        vectors[np.arange(len(vectors)), survey.slice_of(cross.name).start + cells] = True
