"""Answer files larger than memory, encoded in chunks; invalid answers are listed together."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from shoal.device.arrays.encode import TableEncoder, table_columns
from shoal.device.arrays.randomize import Original, check_domain
from shoal.errors import AnswerError, InputError
from shoal.protocol.survey import Survey
from shoal.protocol.wire import row_fields
from shoal.support.csv_rows import MAX_LINE, RowProblem
from shoal.support.files import unique_keys
from shoal.support.table_files import READERS, file_errors, read_table
from shoal.support.table_format import DEFAULT_FORMAT, TableFormat

_JSON = (".ndjson", ".jsonl")
_JSON_ROWS = 1 << 14

ANSWER_SUFFIXES = (*READERS, *_JSON)


def read_answers(
    survey: Survey,
    path: Path,
    table_format: TableFormat = DEFAULT_FORMAT,
    encoder: TableEncoder | None = None,
) -> Iterator[Original]:
    """Encode the answers in a file of a suffix in `ANSWER_SUFFIXES`, or take originals in Parquet.

    Each row is encoded by itself, as the format says. Originals are only taken for the survey that
    they were encoded for. A file without answers is an error: it is rarely intended.

    An `encoder` of the survey and the format may be given, to ask it for more afterwards. Then
    originals are not taken, of which it knows nothing, and a file may have no answers.
    """
    given, suffix = encoder is not None, path.suffix.lower()
    encoder = encoder or TableEncoder(survey, table_format)
    if suffix not in ANSWER_SUFFIXES:
        raise AnswerError(
            f"answers come as .csv, .xlsx, .ndjson, .arrow or .parquet, got {path.name!r}."
        )
    nobody = True
    with file_errors(path, AnswerError):
        schema = pq.read_schema(path) if suffix == ".parquet" and not given else pa.schema([])
        if schema.names == ["original"]:
            if (schema.metadata or {}).get(b"shoal.survey", b"") != survey.digest.encode():
                raise AnswerError(f"{path} holds originals of another survey.")
            originals = _read_originals(survey, path)
        elif suffix in _JSON:
            originals = _read_ndjson(survey, path, encoder)
        else:
            batches = read_table(path, table_columns(survey), table_format, error=AnswerError)
            originals = (encoder.table(batch.table, batch.problems) for batch in batches)
        for original in originals:
            nobody = nobody and not len(original)
            if not encoder.errors.total:
                yield original
    encoder.errors.raise_all()
    if nobody and not given:
        raise AnswerError(f"there are no answers in {path}; it needs a row for each person.")


def _read_ndjson(survey: Survey, path: Path, encoder: TableEncoder) -> Iterator[Original]:
    """Read one JSON document from each line: every line is a row, also one that is not JSON."""
    columns = {question.name: question.table_column for question in survey.asked}
    rows: list[Any] = []
    problems: list[RowProblem] = []
    with path.open("rb") as file:
        while line := file.readline(MAX_LINE + 1):
            end = line
            while len(end) > MAX_LINE and not end.endswith(b"\n"):
                line, end = b"", file.readline(MAX_LINE + 1)  # too long: not valid
            try:
                row = json.loads(line.decode("utf-8-sig"), object_pairs_hook=unique_keys)
            except (ValueError, RecursionError):
                problems.append(RowProblem(len(rows), None, "is not valid JSON"))
                row = {}
            if isinstance(row, dict):  # a table may have more columns than the survey asks
                row = {name: row[column] for name, column in columns.items() if column in row}
            rows.append(row)
            if len(rows) == _JSON_ROWS:
                yield encoder.rows(rows, problems)
                rows, problems = [], []
    if rows:
        yield encoder.rows(rows, problems)


def _read_originals(survey: Survey, path: Path) -> Iterator[Original]:
    """Take packed originals, if every one of them is in the survey's domain."""
    record = np.dtype(row_fields(survey.bits, survey.cohorts is not None))
    with pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20) as file:
        for batch in file.iter_batches(1 << 18):
            column = batch.column(0)
            if column.type != pa.binary(record.itemsize) or column.null_count:
                width = record.itemsize
                raise AnswerError(f"{path}: originals of this survey have {width} bytes each.")
            end = column.offset + len(column)
            records = np.frombuffer(column.buffers()[1] or b"", record, end)[column.offset :]
            cohorts = None if survey.cohorts is None else records["cohort"].astype(np.uint16)
            try:
                original = Original(records["bits"], survey.bits, cohorts)
                check_domain(original.rows, survey)
            except InputError as error:
                raise AnswerError(f"{path}: {error}") from error
            yield original
