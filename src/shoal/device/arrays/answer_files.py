"""Answer files larger than memory, encoded in chunks; invalid answers are listed together."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from shoal.device.arrays.encode import (
    check_asked,
    check_format,
    encode_rows,
    encode_table,
    readable_answer,
    readable_cell,
    table_columns,
)
from shoal.device.arrays.randomize import Original, check_domain
from shoal.device.encode import AnswerRules, set_bits, text_bits
from shoal.errors import AnswerError, InputError
from shoal.protocol.survey import AskedQuestion, Survey, Text
from shoal.protocol.wire import row_fields
from shoal.support.csv_rows import MAX_LINE, RowProblem, read_csv
from shoal.support.files import first_line, unique_keys
from shoal.support.table_format import DEFAULT_FORMAT, TableFormat, python_cells

_BYTES = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}
"""Types of texts, and the same without a promise about their bytes."""

ANSWER_SUFFIXES = (".csv", ".ndjson", ".jsonl", ".parquet", ".arrow", ".feather")


def read_answers(
    survey: Survey,
    path: Path,
    table_format: TableFormat = DEFAULT_FORMAT,
) -> Iterator[Original]:
    """Encode the answers in a CSV, NDJSON, Arrow or Parquet file, or take originals in Parquet.

    Each row is encoded by itself, as the format says. Originals are only taken for the survey that
    they were encoded for. A file without answers is an error: it is rarely intended.
    """
    check_format(survey, table_format)
    readers = {".csv": _read_csv, ".ndjson": _read_ndjson, ".jsonl": _read_ndjson}
    readers |= {".parquet": _read_parquet, ".arrow": _read_arrow, ".feather": _read_arrow}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise AnswerError(f"answers come as .csv, .ndjson, .arrow or .parquet, got {path.name!r}.")
    nobody = True
    try:
        for original in reader(survey, path, table_format):
            nobody = nobody and not len(original)
            yield original
    except OSError as error:
        reason = error.strerror or first_line(error)
        raise AnswerError(f"cannot read answers {path}: {reason}.") from error
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise AnswerError(f"cannot read answers {path}: {first_line(error)}.") from error
    if nobody:
        raise AnswerError(f"there are no answers in {path}; it needs a row for each person.")


class _Batch(NamedTuple):
    """Rows of a table, and why some of them cannot be read."""

    table: Any
    problems: Sequence[RowProblem] = ()


def _read_csv(survey: Survey, path: Path, table_format: TableFormat) -> Iterator[Original]:
    rows = read_csv(path, table_columns(survey), table_format, error=AnswerError)
    batches = (
        _Batch(
            pa.record_batch(
                {name: pa.array(cells, pa.string()) for name, cells in one.columns.items()}
            ),
            one.problems,
        )
        for one in rows
    )
    yield from _encoded(survey, batches, table_format)


def _encoded(
    survey: Survey, batches: Iterable[_Batch], table_format: TableFormat
) -> Iterator[Original]:
    """Encode batch by batch; if an answer is not allowed, all such answers are named together."""
    row, wrong = 1, AnswerErrors(survey, table_format)
    for batch, problems in batches:
        unreadable = set()
        if table_format.invalid == "error":
            for problem in problems:
                unreadable.add(row + problem.row)
                wrong.add(row + problem.row, _named(row, problem))
        if batch.num_rows and not wrong.total:
            try:
                yield encode_table(survey, batch, row, table_format=table_format)
            except AnswerError as error:
                if table_format.invalid == "error":
                    wrong.look(batch, row)
                if not wrong.total:  # the error is not about an answer
                    raise error
        elif batch.num_rows:
            wrong.look(batch, row, unreadable)
        row += batch.num_rows
    wrong.refuse()


def _named(first_row: int, problem: RowProblem) -> str:
    where = "" if problem.column is None else f", column {problem.column!r}"
    return f"row {first_row + problem.row}{where} {problem.why}."


def _read_ndjson(survey: Survey, path: Path, table_format: TableFormat) -> Iterator[Original]:
    """Read one JSON document from each line: every line is a row, also one that is not JSON."""
    columns = {question.name: question.table_column for question in survey.asked}
    rows: list[Any] = []
    first_row = 1
    wrong = AnswerErrors(survey, table_format)
    with path.open("rb") as file:
        while line := file.readline(MAX_LINE + 1):
            end = line
            while len(end) > MAX_LINE and not end.endswith(b"\n"):
                line, end = b"", file.readline(MAX_LINE + 1)  # too long: not valid
            rows.append(_json_row(line, columns))
            if isinstance(rows[-1], Unreadable) and table_format.invalid == "error":
                row = first_row + len(rows) - 1
                wrong.add(row, f"row {row} is not valid JSON.")
            if len(rows) == 1 << 14:
                yield from wrong.encoded(rows, first_row)
                first_row, rows = first_row + len(rows), []
    if rows:
        yield from wrong.encoded(rows, first_row)
    wrong.refuse()


def _json_row(line: bytes, columns: dict[str, str]) -> Any:
    """Return the answers in one line; a table may have more columns than the survey asks."""
    try:
        row = json.loads(line.decode("utf-8-sig"), object_pairs_hook=unique_keys)
    except (ValueError, RecursionError):
        return Unreadable()
    if not isinstance(row, dict):
        return row
    return {name: row[column] for name, column in columns.items() if column in row}


def _read_parquet(survey: Survey, path: Path, table_format: TableFormat) -> Iterator[Original]:
    # With pre-buffering Arrow keeps the whole file in memory.
    with pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20) as file:
        names = file.schema_arrow.names
        if names == ["original"]:
            named = (file.schema_arrow.metadata or {}).get(b"shoal.survey", b"")
            if named != survey.digest.encode():
                raise AnswerError(f"{path} holds originals of another survey.")
            for batch in file.iter_batches(1 << 18):
                yield _checked_originals(survey, batch.column(0), path)
            return
        check_asked(survey, names)
        batches = file.iter_batches(1 << 16, columns=table_columns(survey))
        yield from _encoded(survey, map(_Batch, batches), table_format)


def _read_arrow(survey: Survey, path: Path, table_format: TableFormat) -> Iterator[Original]:
    with pa.OSFile(str(path)) as source:
        reader = pa.ipc.open_file(source)
        check_asked(survey, reader.schema.names)
        names = table_columns(survey)
        batches = map(_Batch, _whole_batches(reader, names))
        yield from _encoded(survey, batches, table_format)


def _whole_batches(reader: Any, names: list[str]) -> Iterator[Any]:
    """Yield batches whose buffers are as long as they say: Arrow itself would read beyond them.

    Text that is not UTF-8 is no error here: it belongs to its row, and is read with it.
    """
    for place in range(reader.num_record_batches):
        batch = reader.get_batch(place).select(names)
        for column in batch.columns:
            _with_bytes(column).validate(full=True)
        yield batch


def _with_bytes(array: Any) -> Any:
    """Return an array on the same buffers with its texts as bytes, which need not be UTF-8."""
    kind, types = array.type, pa.types
    if kind in _BYTES:
        return pa.Array.from_buffers(_BYTES[kind], len(array), array.buffers(), -1, array.offset)
    if types.is_dictionary(kind):
        return pa.DictionaryArray.from_arrays(
            array.indices, _with_bytes(array.dictionary), safe=False
        )
    if types.is_list(kind) or types.is_large_list(kind):
        cells = _with_bytes(array.values)
        whole = (pa.list_ if types.is_list(kind) else pa.large_list)(cells.type)
        buffers = array.buffers()[:2]
        return pa.Array.from_buffers(whole, len(array), buffers, -1, array.offset, [cells])
    return array


def _checked_originals(survey: Survey, column: Any, path: Path) -> Original:
    """Take packed originals, if every one of them is in the survey's domain."""
    record = np.dtype(row_fields(survey.bits, survey.cohorts is not None))
    if column.type != pa.binary(record.itemsize) or column.null_count:
        raise AnswerError(f"{path}: originals of this survey have {record.itemsize} bytes each.")
    end = column.offset + len(column)
    records = np.frombuffer(column.buffers()[1] or b"", record, end)[column.offset :]
    cohorts = None if survey.cohorts is None else records["cohort"].astype(np.uint16)
    try:
        original = Original(records["bits"], survey.bits, cohorts)
        check_domain(original.rows, survey)
    except InputError as error:
        raise AnswerError(f"{path}: {error}") from error
    return original


class Unreadable:
    """A row that is named already, because it is no answer at all."""


MAX_NAMED = 10
"""How many answers a message names in full."""


class AnswerErrors:
    """The answers that were refused so far; `total` of them, the first few in full."""

    def __init__(self, survey: Survey, table_format: TableFormat) -> None:
        self.total = 0
        self._survey, self._format = survey, table_format
        self._named: list[tuple[int, str]] = []

    def look(self, batch: Any, first_row: int, unreadable: Collection[int] = ()) -> None:
        """Look at every answer of a batch of a table, but of rows that are named already."""
        for question in self._survey.asked:
            known: dict[Any, str | None] = {}
            cells = python_cells(batch.column(question.table_column))
            for row, cell in enumerate(cells, first_row):
                if row in unreadable:
                    continue
                key = cell if isinstance(cell, (str, int, float, type(None))) else None
                if key is None or key not in known:
                    known[key] = self._why_not(question, cell, row)
                if (why := known[key]) is not None:
                    self.add(row, why)

    def encoded(self, rows: Sequence[Any], first_row: int) -> Iterator[Original]:
        """Encode a list of answers, or look at each of them if one is not allowed."""
        if not self.total:
            try:
                yield encode_rows(self._survey, rows, first_row, table_format=self._format)
                return
            except AnswerError:
                pass
        rules = AnswerRules(self._survey)
        for row, answer in enumerate(rows, first_row):
            if isinstance(answer, Unreadable):
                continue
            try:
                given = readable_answer(self._survey, answer, row, self._format)
                rules.set_bits(given, None if self._survey.cohorts is None else 0, row)
            except AnswerError as error:
                self.add(row, str(error))

    def _why_not(self, question: AskedQuestion, cell: object, row: int) -> str | None:
        try:
            answer = readable_cell(question, cell, row, self._format)
            if isinstance(question, Text):
                text_bits(self._survey, question, answer, 0, row)
            else:
                set_bits(question, answer, row)
        except AnswerError as error:
            return str(error)
        return None

    def add(self, row: int, why: str) -> None:
        """Note that a row is refused, and why."""
        self.total += 1
        # The same value in many rows was looked at once; the message names the row it is in.
        self._named.append((row, re.sub(r"^row [0-9]+", f"row {row}", why)))
        if len(self._named) > 4 * MAX_NAMED:
            self._shorten()

    def _shorten(self) -> None:
        self._named = sorted(self._named, key=lambda one: one[0])[:MAX_NAMED]

    def refuse(self) -> None:
        """Raise one error for all of them, if there are any."""
        if not self.total:
            return
        self._shorten()
        messages = [message for _, message in self._named]
        if self.total == 1:
            raise AnswerError(messages[0])
        more = self.total - len(messages)
        lines = [f"{self.total:,} answers are not allowed, so nothing was written:"]
        lines += [f"  {message}" for message in messages]
        raise AnswerError("\n".join(lines + ([f"  and {more:,} more."] if more else [])))
