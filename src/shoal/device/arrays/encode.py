"""Encode tables: each distinct value once, then arrays.

Each different cell gets the bits that `shoal.device.encode` gives it, and plain numbers are read as
arrays. So no row changes another row's bits.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from shoal.device.arrays.cell_texts import HOW_TO_DECLARE, explain
from shoal.device.arrays.randomize import Original, pack
from shoal.device.encode import (
    LEFT_OUT,
    bits_of,
    check_names,
    is_missing,
    missing_bit,
    number_of,
    set_bits,
    wrong_answer,
)
from shoal.errors import AnswerError, InputError
from shoal.protocol.random_bits import RandomBits, SystemBits
from shoal.protocol.survey import AskedQuestion, Date, Flags, Number, Survey, Text, YesNo
from shoal.protocol.wire import Cohorts, row_bytes
from shoal.support.csv_rows import RowProblem, check_columns
from shoal.support.table_files import is_pandas, python_cells, python_series
from shoal.support.table_format import DEFAULT_FORMAT, TableFormat

_ROWS = 1 << 16
_MAX_NAMED, _MAX_LINES = 3, 15
_ANSWER = ": the answer"
_PLURAL = {
    "is": "are",
    "has": "have",
    "names": "name",
    "sets": "set",
    "contains": "contain",
    "differs": "differ",
    "does": "do",
}
_SIMPLE = (str, int, float, bool, type(None))

Vectors = NDArray[np.bool_]
Numbers = NDArray[np.float64]
Codes = NDArray[np.int64]


class AnswerErrors:
    """Answers that are not allowed, counted by place and reason, with the first rows of each."""

    def __init__(self) -> None:
        self.total = 0
        self._rows: dict[tuple[str, str], list[int]] = {}
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, row: int, place: str, why: str) -> None:
        """Note an answer; the place is a question or a column, or empty for a whole row."""
        self.total += 1
        group = place, why
        self._counts[group] += 1
        rows = self._rows.setdefault(group, [])
        if len(rows) < _MAX_NAMED:
            rows.append(row)

    def raise_first(self) -> None:
        """Raise the error of the first row that has one."""
        if self.total:
            (place, why), rows = min(self._rows.items(), key=lambda item: item[1][0])
            raise AnswerError(f"row {rows[0]}{place and ', '}{place} {why}.")

    def raise_all(self) -> None:
        """Raise one error that lists them by place and reason, most frequent first."""
        if self.total < 2:
            return self.raise_first()
        lines = [f"{self.total:,} answers are not allowed, so nothing was written:"]
        groups = self._counts.most_common()
        lines += [f"  {self._line(*group, count)}" for group, count in groups[:_MAX_LINES]]
        more = sum(count for _, count in groups[_MAX_LINES:])
        lines += [f"  and {more:,} more."] if more else []
        if any(HOW_TO_DECLARE in why for _, why in self._counts):
            lines.append("Columns are declared in [table.columns.NAME] of the survey file.")
        raise AnswerError("\n".join(lines))

    def _line(self, place: str, why: str, count: int) -> str:
        named = self._rows[place, why]
        rows = ", ".join(f"{row:,}" for row in named) + (", ..." if count > len(named) else "")
        if not place and count == 1:
            return f"row {rows} {why}"
        where, what = (f"{place.removesuffix(_ANSWER)}: ", "cell") if place else ("", "row")
        if count == 1:
            return f"{where}1 {what} {why} (row {rows})"
        verb, _, rest = why.partition(" ")
        return f"{where}{count:,} {what}s {_PLURAL.get(verb, verb)} {rest} (rows {rows})"


class TableEncoder:
    """Encodes tables of answers part by part; rows are numbered from 1 through all parts.

    Answers that are not allowed go to `errors`. The caller raises them before it uses any row.
    With `keep_positions` the numbers of a grid are not rounded and set no bit: `positions` has
    where they are on their grid, by question and part, NaN where one is missing.
    """

    def __init__(
        self,
        survey: Survey,
        table_format: TableFormat | None = None,
        random_bits: RandomBits | None = None,
        *,
        keep_positions: bool = False,
    ) -> None:
        self._survey, self._format = survey, table_format or DEFAULT_FORMAT
        self._random_bits = random_bits or SystemBits()
        check_format(survey, self._format)
        self.errors = AnswerErrors()
        kept = [one for one in survey.asked if isinstance(one, Number) and one.grid]
        self.positions = {one.name: list[Numbers]() for one in kept * keep_positions}
        self._row = 1

    def table(self, table: Any, problems: Sequence[RowProblem] = ()) -> Original:
        """Encode a table with one row per person and one column per question.

        The problems are of rows that could not be read.
        """
        columns, count = _columns(self._survey, table)
        return self._encode(columns, count, self._unreadable(problems))

    def rows(self, answers: Sequence[Any], problems: Sequence[RowProblem] = ()) -> Original:
        """Encode a list of mappings from question to answer."""
        unreadable = self._unreadable(problems)
        given: list[Mapping[str, Any]] = []
        for place, answer in enumerate(answers):
            where, why = "", ""
            if not isinstance(answer, Mapping):
                why = "must map questions to answers"
            elif place not in unreadable:
                try:
                    check_names(self._survey, answer)
                except AnswerError as error:
                    where, why = "question", str(error).removeprefix("question ").rstrip(".")
            if why and self._format.invalid == "error":
                unreadable.add(place)
                self.errors.add(self._row + place, where, why)
            given.append({} if why else answer)
        columns = {
            question.name: [answer.get(question.name, LEFT_OUT) for answer in given]
            for question in self._survey.asked
        }
        return self._encode(columns, len(given), unreadable)

    def _unreadable(self, problems: Sequence[RowProblem]) -> set[int]:
        """Note the problems of rows, unless such rows count as missing; return the rows' places."""
        stopping = [
            problem
            for problem in problems
            if self._format.column(problem.column or "").invalid == "error"
        ]
        for problem in stopping:
            where = "" if problem.column is None else f"column {problem.column!r}"
            self.errors.add(self._row + problem.row, where, problem.why)
        return {problem.row for problem in stopping}

    def _encode(self, columns: dict[str, Any], count: int, unreadable: set[int]) -> Original:
        survey = self._survey
        rows = np.empty((count, row_bytes(survey.bits)), np.uint8)
        cohorts = draw_cohorts(survey, count, self._random_bits)
        for start in range(0, count, _ROWS):
            part = slice(start, start + _ROWS)
            vectors = np.zeros((min(count - start, _ROWS), survey.bits), bool)
            for question in survey.asked:
                block = vectors[:, survey.slice_of(question.name)]
                column = columns[question.name][part]
                if not isinstance(column, list):
                    column = _plain(question, column.combine_chunks())
                if isinstance(question, Number):
                    numbers = self._read_numbers(question, column, start, unreadable)
                    self._encode_numbers(question, numbers, block, start, unreadable)
                else:
                    drawn = None if cohorts is None else cohorts[part]
                    self._encode_cells(question, column, drawn, block, start, unreadable)
            set_cells(survey, vectors)
            rows[part] = pack(vectors)
        self._row += count
        return Original(rows, survey.bits, cohorts)

    def _encode_cells(
        self,
        question: AskedQuestion,
        column: Any,
        cohorts: Cohorts | None,
        out: Vectors,
        start: int,
        unreadable: Collection[int],
    ) -> None:
        """Set the bits of a question in rows of their own, for each different cell once."""
        if not isinstance(column, list) and _is_list(column.type):
            if _encode_lists(question, column, out):
                return
            out[:] = False
        values, codes, bits, wrong = *_distinct(question, column), out, dict[int, str]()
        if not isinstance(question, Text):
            bits = np.zeros((len(values), question.bits), bool)
        for place, cell in enumerate(values):
            found = self._bits(question, cell, None if cohorts is None else int(cohorts[place]))
            if isinstance(found, str):
                wrong[place] = found
            else:
                bits[place, found] = True
        if bits is not out:
            np.take(bits, codes, axis=0, out=out)
        self._refuse(question, codes, wrong, start, unreadable)

    def _refuse(
        self,
        question: AskedQuestion,
        codes: Codes,
        wrong: Mapping[int, str],
        start: int,
        unreadable: Collection[int],
    ) -> None:
        """Note the rows that have one of some wrong cells."""
        where = f"question {question.name!r}{_ANSWER}"
        for index in np.flatnonzero(np.isin(codes, [*wrong])).tolist():
            if start + index not in unreadable:
                self.errors.add(self._row + start + index, where, wrong[int(codes[index])])

    def _read_numbers(
        self, question: Number, column: Any, start: int, unreadable: Collection[int]
    ) -> Numbers:
        """Return a column's numbers: NaN where one is missing, infinity where it is refused."""
        written = self._format.column(question.table_column)
        if not isinstance(column, list):
            plain = _plain_numbers(column, written)
            if plain is not None:
                return plain
        values, codes = _distinct(question, column)
        numbers, wrong = np.full(len(values), np.inf), dict[int, str]()
        for place, cell in enumerate(values):
            try:
                numbers[place] = _number(question, cell, written)
            except AnswerError as error:
                wrong[place] = explain(question, cell, written, error.why)
        self._refuse(question, codes, wrong, start, unreadable)
        return numbers[codes]

    def _encode_numbers(
        self,
        question: Number,
        numbers: Numbers,
        out: Vectors,
        start: int,
        unreadable: Collection[int],
    ) -> None:
        given, missing = np.isfinite(numbers), np.isnan(numbers)
        if question.name in self.positions:
            positions = np.full(len(numbers), np.nan)
            positions[given] = question.position(numbers[given])
            self.positions[question.name].append(positions)
            return
        if question.edges:
            edges = [float(edge) for edge in question.edges]
            bits = np.searchsorted(edges, numbers[given], side="right")
        else:
            positions = question.position(numbers[given])
            bits = positions.astype(np.int64)
            words = np.empty(len(bits), np.uint64)
            self._random_bits.fill(words)
            bits += (words % np.uint64(1 << 53)) * 2.0**-53 < positions - bits
        out[given, bits] = True
        try:
            out[missing, missing_bit(question) if missing.any() else 0] = True
        except AnswerError as error:
            self._refuse(question, missing.astype(np.int64), {1: error.why}, start, unreadable)

    def _bits(self, question: AskedQuestion, cell: Any, cohort: int | None) -> list[int] | str:
        """Return the bits that a cell sets, or why it is not allowed."""
        written = self._format.column(question.table_column)
        try:
            answer = _read_cell(question, cell, written)
            return bits_of(self._survey, question, answer, cohort)
        except AnswerError as error:
            if written.invalid == "error":
                return explain(question, cell, written, error.why)
            return bits_of(self._survey, question, None, cohort)


def check_format(survey: Survey, table_format: TableFormat) -> None:
    """Refuse to treat invalid cells as missing where a question cannot be missing."""
    for question in survey.asked:
        if table_format.column(question.table_column).invalid != "missing":
            continue
        if not isinstance(question, (Flags, Text)) and getattr(question, "missing", None) is None:
            raise InputError(
                f'invalid = "missing" needs missing = "option" in question {question.name!r}, so'
                " that an answer that cannot be read has an option."
            )


def check_asked(survey: Survey, names: list[str]) -> None:
    """Refuse a table that lacks a question's column, or has it twice."""
    check_columns("the table", names, table_columns(survey), error=AnswerError)


def table_columns(survey: Survey) -> list[str]:
    """Return the columns that hold the answers, each once: questions may share one."""
    return list(dict.fromkeys(question.table_column for question in survey.asked))


def _columns(survey: Survey, table: Any) -> tuple[dict[str, Any], int]:
    if not is_pandas(table):
        arrow = pa.table(table)
        check_asked(survey, arrow.column_names)
        return {one.name: arrow.column(one.table_column) for one in survey.asked}, arrow.num_rows
    labels = {str(label): label for label in table.columns}
    check_asked(survey, [str(label) for label in table.columns])
    columns: dict[str, Any] = {}
    for question in survey.asked:
        series = table[labels[question.table_column]]
        cells = python_series(series)
        if cells is None:
            column = pa.chunked_array([pa.Array.from_pandas(series)])
            cells = column if _is_readable(question, column.type) else python_cells(column)
        columns[question.name] = cells
    return columns, len(table)


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
    types = pa.types
    texts = (types.is_string, types.is_large_string, types.is_string_view, types.is_null)
    if any(is_it(kind) for is_it in texts):
        return True
    if isinstance(question, Text):
        return False
    if isinstance(question, Flags) and _is_list(kind):
        return not _is_list(kind.value_type) and _is_readable(question, kind.value_type)
    if types.is_integer(kind) or types.is_floating(kind):
        return True
    if isinstance(question, YesNo):
        return bool(types.is_boolean(kind))
    if isinstance(question, Date):
        return bool(types.is_date(kind) or types.is_timestamp(kind))
    # Booleans are let through to be refused with row and value.
    numbers = (types.is_decimal, types.is_boolean, types.is_duration)
    return isinstance(question, Number) and any(is_it(kind) for is_it in numbers)


def _is_list(kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _read_cell(question: AskedQuestion, cell: Any, table_format: TableFormat) -> object:
    """Return the answer that a cell holds by the format, None if it is missing."""
    if table_format.is_missing(cell):
        return None
    if not isinstance(cell, str):
        return cell
    if isinstance(question, Flags):
        return table_format.options(cell)
    read: object = cell
    if isinstance(question, Number):
        read = table_format.number(cell)
        if read is None:
            raise wrong_answer(question, cell, table_format.why_no_number(cell))
    elif isinstance(question, Date):
        read = table_format.date(cell)
        if read is None:
            raise wrong_answer(question, cell, "is not a date")
    return read


def _number(question: Number, cell: Any, table_format: TableFormat) -> float:
    """Return the number that a cell holds, NaN if it is missing or counts as missing."""
    try:
        answer = None if cell is LEFT_OUT else _read_cell(question, cell, table_format)
        return math.nan if is_missing(answer) else number_of(question, answer)
    except AnswerError:
        if table_format.invalid == "error":
            raise
        return math.nan


def _encode_lists(question: AskedQuestion, column: Any, out: Vectors) -> bool:
    """Set the bits of lists of options; False if any of them is not allowed."""
    named = pc.list_flatten(column)
    # Of a null list nothing is flattened, even if it has cells of its own beneath.
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    owners = np.repeat(np.arange(len(out)), lengths)
    values, codes = _distinct(question, named)
    try:
        places = [set_bits(question, [value])[0] for value in values]
    except AnswerError:
        return False
    out[owners, np.array(places, np.int64)[codes]] = True
    different = out.sum(axis=1)
    twice = (np.bincount(owners, minlength=len(out)) != different).any()
    return not twice and not (different > question.max_set_bits).any()


def _plain_numbers(column: Any, table_format: TableFormat) -> Numbers | None:
    """Return the numbers of a column that needs no look at its cells, NaN where one is missing."""
    if table_format.missing:
        return None
    is_numeric = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    plain_text = pa.types.is_string(column.type) and table_format.decimal == "."
    if not is_numeric and (not plain_text or column.null_count):
        return None
    try:
        cast = pc.fill_null(pc.cast(column, pa.float64(), safe=not is_numeric), 0.0)
    except pa.ArrowException:
        return None  # some cell is no plain number
    numbers: Numbers = cast.to_numpy(zero_copy_only=False)
    if not np.isfinite(numbers).all():
        return None
    missing = column.is_null().to_numpy(zero_copy_only=False)
    return np.where(missing, np.nan, numbers) if column.null_count else numbers


def _distinct(question: AskedQuestion, column: Any) -> tuple[list[Any], Codes]:
    """Return the different cells of a column, and which of them each row has.

    Texts are hashed anew for every person, so that each of them is another.
    """
    if isinstance(question, Text):
        cells = column if isinstance(column, list) else python_cells(column)
        return cells, np.arange(len(cells))
    if not isinstance(column, list):
        try:
            encoded = pc.dictionary_encode(column, null_encoding="encode")
            codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
            return python_cells(encoded.dictionary), codes
        except pa.ArrowException:
            column = python_cells(column)
    known: dict[Any, int] = {}
    values: list[Any] = []
    places = np.empty(len(column), np.int64)
    for index, cell in enumerate(column):
        key = (type(cell), cell) if isinstance(cell, _SIMPLE) else (index,)
        places[index] = known.setdefault(key, len(values))
        if places[index] == len(values):
            values.append(cell)
    return values, places


def draw_cohorts(survey: Survey, count: int, random_bits: RandomBits) -> Cohorts | None:
    """Draw a cohort for each report, uniformly and afresh, if the survey has cohorts."""
    if survey.cohorts is None:
        return None
    return draw_many_below(survey.cohorts, count, random_bits).astype(np.uint16)


def draw_many_below(bound: int, count: int, random_bits: RandomBits) -> NDArray[np.uint64]:
    """Return numbers uniform on 0 .. bound - 1, exactly, by rejection."""
    last = np.uint64(2**64 - 1 - 2**64 % bound)
    drawn = np.empty(0, np.uint64)
    while drawn.size < count:
        words = np.empty(count - drawn.size, np.uint64)
        random_bits.fill(words)
        drawn = np.concatenate((drawn, words[words <= last]))
    return drawn % np.uint64(bound)


def set_cells(survey: Survey, vectors: Vectors) -> None:
    """Set the bit of each cross that follows from the other bits of each row.

    `shoal.device.encode.cell_of` does so for one person.
    """
    for cross in survey.crosses:
        cells = np.zeros(len(vectors), np.int64)
        for side, size in zip(cross.sides, cross.sizes, strict=True):
            block = vectors[:, survey.slice_of(side.question.name)]
            value = block.argmax(axis=1) if side.bit is None else ~block[:, side.bit]
            cells = cells * size + value
        vectors[np.arange(len(vectors)), survey.slice_of(cross.name).start + cells] = True
