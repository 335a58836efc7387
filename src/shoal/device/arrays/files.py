"""Files larger than memory: answers are read and encoded in chunks, and vectors are written.

`shoal.analysis.report_files` reads reports.

Reports are Parquet (one fixed-size binary column `report`, without dictionary or compression, since
random bits have nothing to compress), an Arrow file of that column, or raw rows behind a header
(`shoal.protocol.wire`). Each names its plan. A row is the cohort, if there are any, and the bits.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from shoal.device.arrays.encode import TableEncoder, table_columns
from shoal.device.arrays.randomize import Original, check_domain
from shoal.errors import AnswerError, InputError, PrivacyRefusal
from shoal.protocol.plan import Plan
from shoal.protocol.survey import Survey
from shoal.protocol.wire import FILE_HEADER, FILE_MAGIC, Rows, Synthetic, file_row_bytes, row_fields
from shoal.support.checks import shown
from shoal.support.csv_rows import MAX_LINE, RowProblem
from shoal.support.files import first_line, unique_keys
from shoal.support.rounding import text_up, truth_text
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


class VectorWriter(AbstractContextManager["VectorWriter"]):
    """Write vectors chunk by chunk; the file appears when the block ends without an error.

    Originals go to Parquet only, in a column that no reader of reports accepts. The whole reports
    of a plan with view counts are nearly the truth, so they must be requested: `whole_reports`.
    """

    def __init__(
        self,
        path: Path,
        plan: Plan,
        *,
        kind: str = "report",
        simulated: bool = False,
        whole_reports: bool = False,
    ):
        if kind == "report" and plan.view == "counts" and not whole_reports:
            raise PrivacyRefusal(
                f"the plan's view is counts, and {warning_of(plan)} Send the reports to a collector"
                " that only counts them, or ask for the file with"
                " whole_reports=True."
            )
        if kind == "original" and path.suffix.lower() != ".parquet":
            raise InputError(f"originals are written as .parquet, got {path.name!r}.")
        if path.suffix.lower() not in (".parquet", ".arrow", ".rows"):
            raise InputError(
                f"reports are written as .parquet, .arrow or .rows, got {path.name!r}."
            )
        self._path = path
        self._scratch = path.with_name(path.name + ".part")
        self._plan, self._kind, self._simulated = plan, kind, simulated
        self._table: Any = None
        self._raw: BinaryIO | None = None
        self.written = 0

    def __enter__(self) -> Self:
        schema = report_schema(self._plan, self._kind, self._simulated)
        suffix = self._path.suffix.lower()
        try:
            if suffix == ".parquet":
                self._table = pq.ParquetWriter(
                    self._scratch,
                    schema,
                    use_dictionary=False,
                    compression="none",
                    write_statistics=False,
                )
            elif suffix == ".arrow":
                self._table = pa.ipc.new_file(str(self._scratch), schema)
            else:
                self._raw = self._scratch.open("wb")
                plan_id = bytes.fromhex(self._plan.id)
                self._raw.write(FILE_HEADER.pack(FILE_MAGIC, 1, int(self._simulated), plan_id))
        except OSError as error:
            reason = error.strerror or first_line(error)
            raise InputError(f"cannot write {self._path}: {reason}.") from error
        return self

    def write(self, vectors: Synthetic | Original) -> None:
        expected = Original if self._kind == "original" else Synthetic
        if not isinstance(vectors, expected):
            raise InputError(f"a file of {self._kind}s takes no {shown(vectors)}.")
        if vectors.bits != self._plan.bits:
            raise InputError(f"the plan has {self._plan.bits} bits, the vectors {vectors.bits}.")
        if isinstance(vectors, Synthetic) and vectors.simulated != self._simulated:
            raise InputError("simulated and real reports do not go into one file.")
        if (vectors.cohorts is None) != (self._plan.cohorts is None):
            raise InputError("vectors have cohorts exactly when their plan has.")
        rows = file_rows(vectors)
        if self._raw is not None:
            self._raw.write(rows.data)
        else:
            schema = report_schema(self._plan, self._kind, self._simulated)
            self._table.write(pa.record_batch([column_of(rows)], schema=schema))
        self.written += len(rows)

    def __exit__(self, kind: object, *error: object) -> None:
        (self._raw or self._table).close()
        try:
            if kind is None:
                self._scratch.replace(self._path)
        except OSError as problem:
            reason = problem.strerror or first_line(problem)
            raise InputError(f"cannot write {self._path}: {reason}.") from problem
        finally:
            self._scratch.unlink(missing_ok=True)


def warning_of(plan: Plan) -> str:
    truth = truth_text(float(plan.q))
    return (
        f"each row of this file is the whole report of one person, each bit true with probability"
        f" {truth}: against anyone who sees it only local epsilon {text_up(plan.local_epsilon)}"
        " holds."
    )


def report_schema(plan: Plan, kind: str = "report", simulated: bool = False) -> Any:
    """Return the Arrow schema of a file of reports, or of originals: one column and its plan."""
    mark = b"true" if simulated else b"false"
    metadata = {b"shoal.plan": plan.id.encode(), b"shoal.simulated": mark}
    if kind == "original":
        metadata = {b"shoal.survey": plan.survey.digest.encode()}
    width = file_row_bytes(plan.bits, plan.cohorts is not None)
    return pa.schema([pa.field(kind, pa.binary(width), nullable=False)], metadata=metadata)


def column_of(rows: Rows) -> Any:
    """Return rows as an Arrow column, without a copy."""
    buffers = [None, pa.py_buffer(rows)]
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(rows.shape[1]), len(rows), buffers)


def file_rows(vectors: Synthetic | Original) -> Rows:
    """Return the rows as they are written: the packed bits, behind the cohort if there is one."""
    if vectors.cohorts is None:
        return np.ascontiguousarray(vectors.rows)
    cohorts = vectors.cohorts.astype("<u2").view(np.uint8).reshape(-1, 2)
    return np.concatenate((cohorts, vectors.rows), axis=1)
