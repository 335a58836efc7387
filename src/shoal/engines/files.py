"""Answers and reports in files larger than memory, read and written chunk by chunk.

Reports are kept as Parquet, one fixed-size binary column `report` without dictionary or
compression (random bits have nothing to compress), or as raw rows behind a 64-byte header. Either
names its plan. A file is written whole or not at all.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from shoal._check import shown
from shoal.encoding import encode
from shoal.engines.tables import encode_table
from shoal.errors import AnswerError, InputError, ReportError
from shoal.plans import Plan
from shoal.reports import MAGIC, parse_batch
from shoal.survey import Survey
from shoal.vectors import Original, Rows, Synthetic, row_bytes

__all__ = ["VectorWriter", "read_answers", "read_reports"]

_CHUNK_ROWS = 1 << 18
_BLOCK_BYTES = 8 << 20
_ROW_MAGIC = b"SHOALROW"
_ROW_HEADER = struct.Struct("<8sII32s16x")
_LARGEST_BATCH = 1 << 30


def read_answers(survey: Survey, path: Path) -> Iterator[Original]:
    """Encode the answers in a CSV, NDJSON or Parquet file, or take the originals in Parquet."""
    try:
        suffix = path.suffix.lower()
        if suffix == ".csv":
            yield from _read_csv(survey, path)
        elif suffix in (".ndjson", ".jsonl"):
            yield from _read_ndjson(survey, path)
        elif suffix == ".parquet":
            yield from _read_parquet_answers(survey, path)
        else:
            raise AnswerError(f"answers come as .csv, .ndjson or .parquet, got {path.name!r}.")
    except OSError as error:
        reason = error.strerror or str(error)
        raise AnswerError(f"cannot read answers {path}: {reason}.") from error
    except pa.ArrowException as error:
        raise AnswerError(f"cannot read answers {path}: {_first_line(error)}") from error


def _read_csv(survey: Survey, path: Path) -> Iterator[Original]:
    with path.open("rb") as file:
        if not file.read(1):
            raise AnswerError(f"{path} is empty; its first line must name the questions.")
    names = [question.name for question in survey]
    convert = pa_csv.ConvertOptions(
        column_types={name: pa.string() for name in names},
        include_columns=names,
        strings_can_be_null=False,
    )
    read = pa_csv.ReadOptions(block_size=_BLOCK_BYTES, use_threads=False)
    row = 1
    with pa_csv.open_csv(path, read_options=read, convert_options=convert) as reader:
        for batch in reader:
            if batch.num_rows:
                yield encode_table(survey, batch, row)
                row += batch.num_rows


def _read_ndjson(survey: Survey, path: Path) -> Iterator[Original]:
    names = {question.name for question in survey}
    rows: list[Any] = []
    done = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                answer = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise AnswerError(f"line {number} of {path} is not valid JSON.") from error
            if isinstance(answer, dict):  # a table may have more columns than the survey asks
                answer = {name: value for name, value in answer.items() if name in names}
            rows.append(answer)
            if len(rows) == 1 << 14:
                yield _encode_rows(survey, rows, done)
                done, rows = done + len(rows), []
    if rows:
        yield _encode_rows(survey, rows, done)


def _encode_rows(survey: Survey, rows: list[Any], done: int) -> Original:
    try:
        return encode(survey, rows)
    except AnswerError as error:
        raise AnswerError(f"after {done} good rows, {error}" if done else str(error)) from error


def _read_parquet_answers(survey: Survey, path: Path) -> Iterator[Original]:
    row = 1
    with _open_parquet(path) as file:
        if file.schema_arrow.names == ["original"]:
            for batch in file.iter_batches(_CHUNK_ROWS):
                yield Original(_rows_of(batch.column(0), survey.bits), survey.bits)
            return
        asked = [question.name for question in survey]
        columns = [name for name in file.schema_arrow.names if name in asked]
        for batch in file.iter_batches(1 << 16, columns=columns):
            yield encode_table(survey, batch, row)
            row += batch.num_rows


def read_reports(plan: Plan, path: Path) -> Iterator[Synthetic]:
    """Read the reports of `plan` from a file: Parquet, raw rows, or a batch of the wire form."""
    try:
        with path.open("rb") as file:
            start = file.read(8)
        if start[:4] == b"PAR1":
            yield from _read_parquet(plan, path)
        elif start == _ROW_MAGIC:
            yield from _read_rows(plan, path)
        elif start[: len(MAGIC)] == MAGIC or start[:1] == b"{":
            if path.stat().st_size > _LARGEST_BATCH:
                raise ReportError(f"{path} is too large for one batch of reports.")
            yield Synthetic(parse_batch(plan, path.read_bytes()).rows, plan.bits)
        else:
            raise ReportError(f"{path} holds no reports: neither Parquet, raw rows nor a batch.")
    except OSError as error:
        reason = error.strerror or str(error)
        raise ReportError(f"cannot read reports {path}: {reason}.") from error
    except pa.ArrowException as error:
        raise ReportError(f"cannot read reports {path}: {_first_line(error)}") from error


def _read_parquet(plan: Plan, path: Path) -> Iterator[Synthetic]:
    with _open_parquet(path) as file:
        if file.schema_arrow.names != ["report"]:
            raise ReportError(f"{path} must have exactly one column, report.")
        metadata = file.schema_arrow.metadata or {}
        _check_plan(plan, path, metadata.get(b"shoal.plan", b"").decode("ascii", "replace"))
        simulated = metadata.get(b"shoal.simulated") == b"true"
        for batch in file.iter_batches(_CHUNK_ROWS, use_threads=False):
            yield Synthetic(_rows_of(batch.column(0), plan.bits), plan.bits, simulated)


def _read_rows(plan: Plan, path: Path) -> Iterator[Synthetic]:
    width = row_bytes(plan.bits)
    with path.open("rb") as file:
        header = file.read(_ROW_HEADER.size)
        if len(header) < _ROW_HEADER.size:
            raise ReportError(f"{path} is cut off in its header.")
        _, version, flags, plan_id = _ROW_HEADER.unpack(header)
        if version != 1 or flags > 1:
            raise ReportError(f"{path} holds raw rows of version {version}; this reads version 1.")
        _check_plan(plan, path, plan_id.hex())
        while content := file.read(_CHUNK_ROWS * width):
            if len(content) % width:
                raise ReportError(f"{path} is cut off in the middle of a row of {width} bytes.")
            rows = np.frombuffer(content, np.uint8).reshape(-1, width)
            yield Synthetic(rows, plan.bits, bool(flags))


def _open_parquet(path: Path) -> Any:
    # With pre-buffering Arrow keeps the whole file in memory.
    return pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20)


def _check_plan(plan: Plan, path: Path, named: str) -> None:
    if named != plan.id:
        other = f"plan {named[:12]}" if named else "no plan"
        raise ReportError(f"{path} holds reports of {other}, not of {plan.id[:12]}.")


def _rows_of(column: Any, bits: int) -> Rows:
    width = row_bytes(bits)
    if column.type != pa.binary(width):
        raise ReportError(f"vectors of {bits} bits are a column of {width} bytes each.")
    if column.null_count:
        raise ReportError("a vector is missing (null) in the file.")
    flat = np.frombuffer(column.buffers()[1] or b"", np.uint8)
    return flat[column.offset * width : (column.offset + len(column)) * width].reshape(-1, width)


class VectorWriter(AbstractContextManager["VectorWriter"]):
    """Write vectors chunk by chunk; the file appears when the block ends without an error.

    The suffix chooses the form: ``.parquet``, or ``.rows`` for raw rows. Whether the file holds
    simulated reports must be said at the start; originals go to Parquet only, in a column that no
    reader of reports accepts.
    """

    def __init__(self, path: Path, plan: Plan, *, kind: str = "report", simulated: bool = False):
        if path.suffix.lower() not in (".parquet", ".rows"):
            raise InputError(f"reports are written as .parquet or .rows, got {path.name!r}.")
        if kind == "original" and path.suffix.lower() != ".parquet":
            raise InputError(f"originals are written as .parquet, got {path.name!r}.")
        self._path = path
        self._scratch = path.with_name(path.name + ".part")
        self._plan, self._kind, self._simulated = plan, kind, simulated
        self._parquet: Any = None
        self._raw: BinaryIO | None = None
        self.written = 0

    def __enter__(self) -> Self:
        width = row_bytes(self._plan.bits)
        mark = b"true" if self._simulated else b"false"
        metadata = {b"shoal.plan": self._plan.id.encode(), b"shoal.simulated": mark}
        try:
            if self._path.suffix.lower() == ".parquet":
                column = pa.field(self._kind, pa.binary(width), nullable=False)
                schema = pa.schema([column], metadata=metadata)
                self._parquet = pq.ParquetWriter(
                    self._scratch,
                    schema,
                    use_dictionary=False,
                    compression="none",
                    write_statistics=False,
                )
            else:
                self._raw = self._scratch.open("wb")
                plan_id = bytes.fromhex(self._plan.id)
                self._raw.write(_ROW_HEADER.pack(_ROW_MAGIC, 1, int(self._simulated), plan_id))
        except OSError as error:
            reason = error.strerror or str(error)
            raise InputError(f"cannot write {self._path}: {reason}.") from error
        return self

    def write(self, vectors: Synthetic | Original) -> None:
        """Append vectors."""
        expected = Original if self._kind == "original" else Synthetic
        if not isinstance(vectors, expected):
            raise InputError(f"a file of {self._kind}s takes no {shown(vectors)}.")
        if isinstance(vectors, Synthetic) and vectors.simulated != self._simulated:
            raise InputError("simulated and real reports do not go into one file.")
        rows = np.ascontiguousarray(vectors.rows)
        if self._raw is not None:
            self._raw.write(rows.data)
        else:
            array = pa.FixedSizeBinaryArray.from_buffers(
                pa.binary(rows.shape[1]), len(rows), [None, pa.py_buffer(rows)]
            )
            self._parquet.write(pa.record_batch([array], schema=self._parquet.schema))
        self.written += len(rows)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        (self._raw or self._parquet).close()
        if kind is None:
            self._scratch.replace(self._path)
        else:
            self._scratch.unlink(missing_ok=True)


def _first_line(error: BaseException) -> str:
    line = str(error).splitlines()[0] if str(error) else type(error).__name__
    return line if line.endswith(".") else line + "."
