"""Reports in files larger than memory, read and written chunk by chunk.

Reports are kept as Parquet, one fixed-size binary column `report` without dictionary or
compression (random bits have nothing to compress), or as raw rows behind a 64-byte header. Either
names its plan. A row is the packed bits, behind the cohort as two bytes, little endian, if the plan
has cohorts. A file is written whole or not at all.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from shoal.agreement.plan import Plan
from shoal.agreement.vectors import Cohorts, Original, Rows, Synthetic, row_bytes
from shoal.agreement.wire import MAGIC, Batch, parse_batch, synthetics_of
from shoal.errors import InputError, ReportError
from shoal.support.checks import shown
from shoal.support.files import first_line

__all__ = ["VectorWriter", "read_reports"]

_CHUNK_ROWS = 1 << 18
_COHORT_BYTES = 2
_ROW_MAGIC = b"SHOALROW"
_ROW_HEADER = struct.Struct("<8sII32s16x")
_LARGEST_BATCH = 1 << 30


def read_reports(plan: Plan, path: Path, seen: set[bytes] | None = None) -> Iterator[Synthetic]:
    """Read the reports of `plan` from a file: Parquet, raw rows, or a batch of the wire form.

    A batch names its reports; those whose id is in `seen`, or comes twice, are left out, and `seen`
    is kept up to date. It also knows their windows, and so do the vectors that come out of it.
    """
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
            batch = parse_batch(plan, path.read_bytes())
            fresh = _first_seen(batch, set() if seen is None else seen)
            yield from synthetics_of(batch, plan, fresh)
        else:
            raise ReportError(f"{path} holds no reports: neither Parquet, raw rows nor a batch.")
    except OSError as error:
        reason = error.strerror or first_line(error)
        raise ReportError(f"cannot read reports {path}: {reason}.") from error
    except pa.ArrowException as error:
        raise ReportError(f"cannot read reports {path}: {first_line(error)}.") from error


def _first_seen(batch: Batch, seen: set[bytes]) -> list[int]:
    fresh = []
    for index, report_id in enumerate(batch.ids):
        if (name := report_id.tobytes()) not in seen:
            seen.add(name)
            fresh.append(index)
    return fresh


def _read_parquet(plan: Plan, path: Path) -> Iterator[Synthetic]:
    with open_parquet(path) as file:
        if file.schema_arrow.names == ["original"]:
            raise ReportError(f"{path} holds originals, the truth; count what randomize makes.")
        if file.schema_arrow.names != ["report"]:
            raise ReportError(f"{path} must have exactly one column, report.")
        metadata = file.schema_arrow.metadata or {}
        _check_plan(plan, path, metadata.get(b"shoal.plan", b"").decode("ascii", "replace"))
        simulated = metadata.get(b"shoal.simulated") == b"true"
        for batch in file.iter_batches(_CHUNK_ROWS, use_threads=False):
            yield _checked(rows_of(batch.column(0), _row_width(plan)), plan, path, simulated)


def _read_rows(plan: Plan, path: Path) -> Iterator[Synthetic]:
    width = _row_width(plan)
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
            yield _checked(rows, plan, path, bool(flags))


def _row_width(plan: Plan) -> int:
    """Return the bytes of a row in a file: the cohort, if the plan has cohorts, and the bits."""
    return row_bytes(plan.bits) + (_COHORT_BYTES if plan.cohorts is not None else 0)


def split_cohorts(rows: Rows, has_cohorts: bool) -> tuple[Rows, Cohorts | None]:
    """Return the vectors and the cohorts of rows as they stand in files."""
    if not has_cohorts:
        return rows, None
    cohorts = np.ascontiguousarray(rows[:, :_COHORT_BYTES]).view("<u2").reshape(-1)
    return rows[:, _COHORT_BYTES:], cohorts.astype(np.uint16)


def _checked(rows: Rows, plan: Plan, path: Path, simulated: bool) -> Synthetic:
    rows, cohorts = split_cohorts(rows, plan.cohorts is not None)
    try:
        return Synthetic(rows, plan.bits, simulated, cohorts)
    except InputError as error:
        raise ReportError(f"{path}: {error}") from error


def _with_cohorts(vectors: Synthetic | Original) -> Rows:
    if vectors.cohorts is None:
        return np.ascontiguousarray(vectors.rows)
    cohorts = vectors.cohorts.astype("<u2").view(np.uint8).reshape(-1, _COHORT_BYTES)
    return np.concatenate((cohorts, vectors.rows), axis=1)


def open_parquet(path: Path) -> Any:
    # With pre-buffering Arrow keeps the whole file in memory.
    return pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20)


def _check_plan(plan: Plan, path: Path, named: str) -> None:
    if named != plan.id:
        other = f"plan {named[:12]}" if named else "no plan"
        raise ReportError(f"{path} holds reports of {other}, not of {plan.id[:12]}.")


def rows_of(column: Any, width: int) -> Rows:
    """Return the rows of a fixed-size binary column."""
    if column.type != pa.binary(width):
        raise ReportError(f"vectors of this plan are a column of {width} bytes each.")
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
        if kind == "original" and path.suffix.lower() != ".parquet":
            raise InputError(f"originals are written as .parquet, got {path.name!r}.")
        if path.suffix.lower() not in (".parquet", ".rows"):
            raise InputError(f"reports are written as .parquet or .rows, got {path.name!r}.")
        self._path = path
        self._scratch = path.with_name(path.name + ".part")
        self._plan, self._kind, self._simulated = plan, kind, simulated
        self._parquet: Any = None
        self._raw: BinaryIO | None = None
        self.written = 0

    def __enter__(self) -> Self:
        width = _row_width(self._plan)
        mark = b"true" if self._simulated else b"false"
        metadata = {b"shoal.plan": self._plan.id.encode(), b"shoal.simulated": mark}
        if self._kind == "original":
            metadata = {b"shoal.survey": self._plan.survey.digest.encode()}
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
            reason = error.strerror or first_line(error)
            raise InputError(f"cannot write {self._path}: {reason}.") from error
        return self

    def write(self, vectors: Synthetic | Original) -> None:
        """Append vectors."""
        expected = Original if self._kind == "original" else Synthetic
        if not isinstance(vectors, expected):
            raise InputError(f"a file of {self._kind}s takes no {shown(vectors)}.")
        if vectors.bits != self._plan.bits:
            raise InputError(f"the plan has {self._plan.bits} bits, the vectors {vectors.bits}.")
        if isinstance(vectors, Synthetic) and vectors.simulated != self._simulated:
            raise InputError("simulated and real reports do not go into one file.")
        if (vectors.cohorts is None) != (self._plan.cohorts is None):
            raise InputError("vectors have cohorts exactly when their plan has.")
        rows = _with_cohorts(vectors)
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
        try:
            if kind is None:
                self._scratch.replace(self._path)
        except OSError as problem:
            reason = problem.strerror or first_line(problem)
            raise InputError(f"cannot write {self._path}: {reason}.") from problem
        finally:
            self._scratch.unlink(missing_ok=True)
