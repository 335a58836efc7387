"""Reports as arrays: batches as they travel, and files larger than memory, chunk by chunk.

A file is Parquet or Arrow with one fixed-size binary column `report`, raw rows behind a 64-byte
header (`shoal.protocol.wire`), or a batch. Each names its plan. A row is the packed bits, preceded
by the cohort as two little-endian bytes if the plan has cohorts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shoal.errors import InputError, ReportError
from shoal.protocol.plan import Plan
from shoal.protocol.wire import (
    FILE_HEADER,
    FILE_MAGIC,
    MAGIC,
    Cohorts,
    Reports,
    Rows,
    Synthetic,
    check_rows,
    report_fields,
    row_fields,
    split_batch,
)
from shoal.support.files import explain_wrong_file

_CHUNK_ROWS = 1 << 18
_MAX_BATCH = 1 << 30
_PARQUET, _ARROW = b"PAR1", b"ARROW1"


def read_reports(plan: Plan, path: Path, seen: set[bytes] | None = None) -> Iterator[Synthetic]:
    """Read the reports of `plan` from a file: Parquet, Arrow, raw rows, or a batch.

    Reports of a batch whose id is in `seen`, or comes twice, are left out; `seen` is kept up to
    date.
    """
    with _problems_of(path):
        start = _start_of(path)
        if start in _READERS:
            yield from _READERS[start](plan, path, None)
        elif start[: len(MAGIC)] == MAGIC or start[:1] == b"{":
            if path.stat().st_size > _MAX_BATCH:
                raise ReportError(f"{path} is too large for one batch of reports.")
            batch = parse_batch(plan, path.read_bytes())
            fresh = _first_seen(batch, set() if seen is None else seen)
            yield from synthetics_of(batch, plan, fresh)
        else:
            raise ReportError(
                explain_wrong_file(path, "reports")
                or f"{path} holds no reports: neither Parquet, Arrow, raw rows nor a batch."
            )


class FilePart(NamedTuple):
    """Row groups of Parquet, batches of Arrow or raw rows of a file, from first to last."""

    first: int
    last: int
    rows: int


def parts_of(plan: Plan, path: Path, rows: int) -> list[FilePart] | None:
    """Cut a file into parts of about `rows` rows; return None if it is a batch."""
    with _problems_of(path):
        start = _start_of(path)
        if start not in _READERS:
            return None
        if start == FILE_MAGIC:
            content = path.stat().st_size - FILE_HEADER.size
            if content < 0:
                raise _cut_off_header(path)
            count = -(
                -content // _file_record(plan).itemsize
            )  # what is cut off is told when it is read
            ends = range(0, count, rows)
            return [FilePart(at, min(at + rows, count), min(rows, count - at)) for at in ends]
        import pyarrow as pa
        import pyarrow.parquet as pq

        if start == _PARQUET:
            with pq.ParquetFile(path) as file:
                groups = file.num_row_groups
                sizes = [file.metadata.row_group(group).num_rows for group in range(groups)]
        else:
            with pa.memory_map(str(path)) as source:  # of which only the lengths are read
                reader = pa.ipc.open_file(source)
                sizes = [
                    reader.get_batch(batch).num_rows for batch in range(reader.num_record_batches)
                ]
        return _gathered(sizes, rows)


def _gathered(sizes: list[int], rows: int) -> list[FilePart]:
    """Join consecutive groups, up to `rows` rows or one group."""
    parts: list[FilePart] = []
    for group, size in enumerate(sizes):
        if parts and parts[-1].rows + size <= rows:
            before = parts.pop()
            parts.append(FilePart(before.first, group + 1, before.rows + size))
        else:
            parts.append(FilePart(group, group + 1, size))
    return parts


def read_part(plan: Plan, path: Path, part: FilePart) -> Iterator[Synthetic]:
    """Read the reports of one of the `parts_of` a file."""
    with _problems_of(path):
        yield from _READERS[_start_of(path)](plan, path, range(part.first, part.last))


def _problems_of(path: Path) -> AbstractContextManager[None]:
    from shoal.support.table_files import file_errors  # heavy, and no server needs it

    return file_errors(path, ReportError)


def _start_of(path: Path) -> bytes:
    with path.open("rb") as file:
        start = file.read(8)
    return next((magic for magic in (_PARQUET, _ARROW) if start.startswith(magic)), start)


def _first_seen(batch: Batch, seen: set[bytes]) -> list[int]:
    fresh = []
    for index, report_id in enumerate(batch.ids):
        if (name := report_id.tobytes()) not in seen:
            seen.add(name)
            fresh.append(index)
    return fresh


def _read_parquet(plan: Plan, path: Path, groups: range | None) -> Iterator[Synthetic]:
    import pyarrow.parquet as pq

    # With pre-buffering Arrow keeps the whole file in memory.
    with pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20) as file:
        simulated = _check_schema(plan, path, file.schema_arrow)
        chosen = range(file.num_row_groups) if groups is None else groups
        batches = file.iter_batches(_CHUNK_ROWS, row_groups=list(chosen), use_threads=False)
        for batch in batches:
            yield _checked(rows_of_column(plan, batch.column(0)), plan, path, simulated)


def _read_arrow(plan: Plan, path: Path, batches: range | None) -> Iterator[Synthetic]:
    import pyarrow as pa

    with pa.OSFile(str(path)) as source:
        reader = pa.ipc.open_file(source)
        simulated = _check_schema(plan, path, reader.schema)
        for number in range(reader.num_record_batches) if batches is None else batches:
            column = reader.get_batch(number).column(0)
            column.validate(full=True)  # its buffer may be shorter than declared
            for start in range(0, len(column), _CHUNK_ROWS):
                piece = column.slice(start, _CHUNK_ROWS)
                yield _checked(rows_of_column(plan, piece), plan, path, simulated)


def _check_schema(plan: Plan, path: Path, schema: Any) -> bool:
    """Refuse a file without reports of the plan; return whether they are simulated."""
    if schema.names == ["original"]:
        raise ReportError(
            f"{path} holds originals, the truth; count the output of randomize instead."
        )
    if schema.names != ["report"]:
        raise ReportError(f"{path} must have exactly one column, report.")
    metadata = schema.metadata or {}
    _check_plan(plan, path, metadata.get(b"shoal.plan", b"").decode("ascii", "replace"))
    return bool(metadata.get(b"shoal.simulated") == b"true")


def rows_of_column(plan: Plan, column: Any) -> NDArray[np.void]:
    """Return the rows of an Arrow column of fixed-size binary, as they are in memory."""
    import pyarrow as pa

    record = _file_record(plan)
    if column.type != pa.binary(record.itemsize):
        raise ReportError(f"reports of this plan have {record.itemsize} bytes each.")
    if column.null_count:
        raise ReportError("a report is missing (null) in the file.")
    end = column.offset + len(column)
    return np.frombuffer(column.buffers()[1] or b"", record, end)[column.offset :]


def _read_rows(plan: Plan, path: Path, rows: range | None) -> Iterator[Synthetic]:
    record = _file_record(plan)
    width = record.itemsize
    with path.open("rb") as file:
        header = file.read(FILE_HEADER.size)
        if len(header) < FILE_HEADER.size:
            raise _cut_off_header(path)
        _, version, flags, plan_id = FILE_HEADER.unpack(header)
        if version != 1 or flags > 1:
            raise ReportError(f"{path} holds raw rows of version {version}; this reads version 1.")
        _check_plan(plan, path, plan_id.hex())
        left = path.stat().st_size
        if rows is not None:
            file.seek(rows.start * width, 1)
            left = len(rows) * width
        while content := file.read(min(_CHUNK_ROWS * width, left)):
            left -= len(content)
            if len(content) % width:
                raise ReportError(f"{path} is cut off in the middle of a row of {width} bytes.")
            yield _checked(np.frombuffer(content, record), plan, path, bool(flags))


def _cut_off_header(path: Path) -> ReportError:
    return ReportError(f"{path} is cut off in its header.")


def _file_record(plan: Plan) -> np.dtype[np.void]:
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


_READERS = {_PARQUET: _read_parquet, _ARROW: _read_arrow, FILE_MAGIC: _read_rows}


@dataclass(frozen=True, eq=False)
class Batch:
    """Reports of one plan: ids, windows, cohorts and packed vectors, row by row."""

    plan_id: str
    ids: NDArray[np.uint8]
    windows: NDArray[np.uint32]
    cohorts: Cohorts | None
    rows: Rows

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, places: Any) -> Batch:
        """Return the reports at some places, which NumPy takes as an index."""
        cohorts = None if self.cohorts is None else self.cohorts[places]
        return Batch(
            self.plan_id, self.ids[places], self.windows[places], cohorts, self.rows[places]
        )

    def to_bytes(self) -> bytes:
        return self._reports().to_bytes()

    def to_json(self) -> bytes:
        return self._reports().to_json()

    def _reports(self) -> Reports:
        record = _record(8 * self.rows.shape[1], self.cohorts is not None)
        records = np.empty(len(self), record)
        records["id"], records["window"], records["bits"] = self.ids, self.windows, self.rows
        if self.cohorts is not None:
            records["cohort"] = self.cohorts
        return Reports(self.plan_id, records.itemsize, records.tobytes())


def parse_batch(plan: Plan, content: bytes) -> Batch:
    """Parse a batch in either form; the arrays are views of one buffer."""
    has_cohorts = plan.cohorts is not None
    reports = split_batch(plan, content)
    records = np.frombuffer(reports.content, _record(plan.bits, has_cohorts))
    cohorts = records["cohort"] if has_cohorts else None
    if cohorts is not None and plan.cohorts is not None and cohorts.max() >= plan.cohorts:
        raise ReportError(f"a cohort must be below {plan.cohorts}, got {cohorts.max()}.")
    rows = check_rows(records["bits"], plan.bits, error=ReportError)
    return Batch(plan.id, records["id"], records["window"], cohorts, rows)


@lru_cache(64)
def _record(bits: int, has_cohorts: bool) -> np.dtype[np.void]:
    return np.dtype(report_fields(bits, has_cohorts))


def synthetics_of(batch: Batch, plan: Plan, chosen: list[int]) -> Iterator[Synthetic]:
    """Yield chosen vectors of a batch by window, without ids; 0 is none if the plan has none."""
    places = np.array(chosen, int)
    windows = batch.windows[places]
    for window in np.unique(windows).tolist():
        here = places[windows == window]
        cohorts = None if batch.cohorts is None else batch.cohorts[here].astype(np.uint16)
        known = None if plan.window is None and window == 0 else window
        yield Synthetic(batch.rows[here], plan.bits, cohorts=cohorts, window=known)
