"""Answers in files larger than memory, encoded chunk by chunk.

This is the device's side: what comes out are Originals.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from shoal.agreement.survey import Number, Survey
from shoal.agreement.wire import row_fields
from shoal.device.bulk.domain import check_domain
from shoal.device.bulk.tables import check_columns, encode_table, table_columns
from shoal.device.bulk.vectors import Original
from shoal.device.bulk.wrong_answers import WrongAnswers
from shoal.errors import AnswerError, InputError
from shoal.support.csv_form import AMBIGUOUS, DECIMAL_COMMA, CsvForm, csv_form, which_number
from shoal.support.files import first_line, unique_keys

__all__ = ["ANSWER_SUFFIXES", "read_answers"]

ANSWER_SUFFIXES = (".csv", ".ndjson", ".jsonl", ".parquet", ".arrow", ".feather")

_BLOCK_BYTES = 8 << 20


def read_answers(survey: Survey, path: Path) -> Iterator[Original]:
    """Encode the answers in a CSV, NDJSON, Arrow or Parquet file, or take originals in Parquet.

    Originals are only taken for the survey that they were encoded for. A file of nobody's answers
    is an error: it is rarely meant.
    """
    readers = {".csv": _read_csv, ".ndjson": _read_ndjson, ".jsonl": _read_ndjson}
    readers |= {".parquet": _read_parquet, ".arrow": _read_arrow, ".feather": _read_arrow}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise AnswerError(f"answers come as .csv, .ndjson, .arrow or .parquet, got {path.name!r}.")
    nobody = True
    try:
        for original in reader(survey, path):
            nobody = nobody and not len(original)
            yield original
    except OSError as error:
        reason = error.strerror or first_line(error)
        raise AnswerError(f"cannot read answers {path}: {reason}.") from error
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise AnswerError(f"cannot read answers {path}: {first_line(error)}.") from error
    if nobody:
        raise AnswerError(f"there are no answers in {path}; it needs a row for each person.")


def _read_csv(survey: Survey, path: Path) -> Iterator[Original]:
    names = table_columns(survey)
    form = csv_form(path, names, error=AnswerError)
    check_columns(survey, list(form.header))
    with path.open("rb") as file:
        start = file.read(1 << 16)
    if len(start) < 1 << 16 and not {*b"\r\n"} & {*start}:
        return  # a header and nobody: Arrow would not call it a table
    read = pa_csv.ReadOptions(
        block_size=_BLOCK_BYTES, use_threads=False, encoding=form.encoding.replace("-", "")
    )
    convert = pa_csv.ConvertOptions(
        column_types={name: pa.string() for name in names},
        include_columns=names,
        strings_can_be_null=False,
    )
    # In a table of one column an empty line is a person who set nothing.
    parse = pa_csv.ParseOptions(ignore_empty_lines=len(form.header) > 1, delimiter=form.separator)
    with pa_csv.open_csv(
        path, read_options=read, parse_options=parse, convert_options=convert
    ) as reader:
        yield from _encoded(survey, _with_points(survey, reader, form))


def _with_points(survey: Survey, batches: Iterable[Any], form: CsvForm) -> Iterator[Any]:
    """Write numbers with decimal commas with points, in a file where commas can mean that."""
    row = 1
    for batch in batches:
        yield _batch_with_points(survey, batch, row) if form.decimal_comma else batch
        row += batch.num_rows


def _batch_with_points(survey: Survey, batch: Any, row: int) -> Any:
    columns = {name: batch.column(name) for name in batch.schema.names}
    for question in survey.asked:
        if isinstance(question, Number):
            cells = columns[question.table_column]
            unclear = pc.match_substring_regex(cells, f"^{AMBIGUOUS.pattern}$")
            if (place := pc.index(unclear, True).as_py()) >= 0:
                text = which_number(cells[place].as_py())
                raise AnswerError(f"row {row + place}, question {question.name!r}: {text}.")
            comma = pc.match_substring_regex(cells, f"^{DECIMAL_COMMA.pattern}$")
            points = pc.replace_substring(pc.replace_substring(cells, ".", ""), ",", ".")
            columns[question.table_column] = pc.if_else(comma, points, cells)
    return pa.record_batch(columns)


def _encoded(survey: Survey, batches: Iterable[Any]) -> Iterator[Original]:
    """Encode batch by batch; if an answer is not allowed, all such answers are named together."""
    row, wrong = 1, WrongAnswers()
    for batch in batches:
        if batch.num_rows and not wrong.total:
            try:
                yield encode_table(survey, batch, row)
            except AnswerError as error:
                wrong.look(survey, batch, row)
                if not wrong.total:  # what is wrong is not an answer
                    raise error
        elif batch.num_rows:
            wrong.look(survey, batch, row)
        row += batch.num_rows
    wrong.refuse()


def _read_ndjson(survey: Survey, path: Path) -> Iterator[Original]:
    columns = {question.name: question.table_column for question in survey.asked}
    rows: list[Any] = []
    first_row = 1
    wrong = WrongAnswers()
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                answer = json.loads(line, object_pairs_hook=unique_keys)
            except (ValueError, RecursionError) as error:
                raise AnswerError(f"line {number} of {path} is not valid JSON.") from error
            if isinstance(answer, dict):  # a table may have more columns than the survey asks
                answer = {
                    name: answer[column] for name, column in columns.items() if column in answer
                }
            rows.append(answer)
            if len(rows) == 1 << 14:
                yield from wrong.encoded(survey, rows, first_row)
                first_row, rows = first_row + len(rows), []
    if rows:
        yield from wrong.encoded(survey, rows, first_row)
    wrong.refuse()


def _read_parquet(survey: Survey, path: Path) -> Iterator[Original]:
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
        check_columns(survey, names)
        yield from _encoded(survey, file.iter_batches(1 << 16, columns=table_columns(survey)))


def _read_arrow(survey: Survey, path: Path) -> Iterator[Original]:
    with pa.OSFile(str(path)) as source:
        reader = pa.ipc.open_file(source)
        check_columns(survey, reader.schema.names)
        names = table_columns(survey)
        yield from _encoded(survey, _whole_batches(reader, names))


def _whole_batches(reader: Any, names: list[str]) -> Iterator[Any]:
    """Yield batches whose buffers are as long as they say: Arrow itself would read beyond them."""
    for place in range(reader.num_record_batches):
        batch = reader.get_batch(place).select(names)
        batch.validate(full=True)
        yield batch


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
