"""Reports in files larger than memory, read chunk by chunk.

Parquet with one fixed-size binary column `report`, raw rows behind a 64-byte header
(`shoal.agreement.wire`), or a batch as it travels. Each names its plan. A row is the packed bits,
behind the cohort as two bytes, little endian, if the plan has cohorts.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from shoal.agreement.plan import Plan
from shoal.agreement.vectors import Synthetic
from shoal.agreement.wire import FILE_HEADER, FILE_MAGIC, MAGIC, row_fields
from shoal.analysis.report_rows import Batch, parse_batch, synthetics_of
from shoal.errors import InputError, ReportError
from shoal.support.files import first_line

__all__ = ["read_reports"]

_CHUNK_ROWS = 1 << 18
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
        elif start == FILE_MAGIC:
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
    record = _record(plan)
    # With pre-buffering Arrow keeps the whole file in memory.
    with pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20) as file:
        if file.schema_arrow.names == ["original"]:
            raise ReportError(f"{path} holds originals, the truth; count what randomize makes.")
        if file.schema_arrow.names != ["report"]:
            raise ReportError(f"{path} must have exactly one column, report.")
        metadata = file.schema_arrow.metadata or {}
        _check_plan(plan, path, metadata.get(b"shoal.plan", b"").decode("ascii", "replace"))
        simulated = metadata.get(b"shoal.simulated") == b"true"
        for batch in file.iter_batches(_CHUNK_ROWS, use_threads=False):
            column = batch.column(0)
            if column.type != pa.binary(record.itemsize):
                raise ReportError(f"reports of this plan have {record.itemsize} bytes each.")
            if column.null_count:
                raise ReportError("a report is missing (null) in the file.")
            end = column.offset + len(column)
            records = np.frombuffer(column.buffers()[1] or b"", record, end)[column.offset :]
            yield _checked(records, plan, path, simulated)


def _read_rows(plan: Plan, path: Path) -> Iterator[Synthetic]:
    record = _record(plan)
    width = record.itemsize
    with path.open("rb") as file:
        header = file.read(FILE_HEADER.size)
        if len(header) < FILE_HEADER.size:
            raise ReportError(f"{path} is cut off in its header.")
        _, version, flags, plan_id = FILE_HEADER.unpack(header)
        if version != 1 or flags > 1:
            raise ReportError(f"{path} holds raw rows of version {version}; this reads version 1.")
        _check_plan(plan, path, plan_id.hex())
        while content := file.read(_CHUNK_ROWS * width):
            if len(content) % width:
                raise ReportError(f"{path} is cut off in the middle of a row of {width} bytes.")
            yield _checked(np.frombuffer(content, record), plan, path, bool(flags))


def _record(plan: Plan) -> np.dtype[np.void]:
    return np.dtype(row_fields(plan.bits, plan.cohorts is not None))


def _checked(records: NDArray[np.void], plan: Plan, path: Path, simulated: bool) -> Synthetic:
    cohorts = None if plan.cohorts is None else records["cohort"].astype(np.uint16)
    try:
        return Synthetic(records["bits"], plan.bits, simulated, cohorts)
    except InputError as error:
        raise ReportError(f"{path}: {error}") from error


def _check_plan(plan: Plan, path: Path, named: str) -> None:
    if named != plan.id:
        other = f"plan {named[:12]}" if named else "no plan"
        raise ReportError(f"{path} holds reports of {other}, not of {plan.id[:12]}.")
