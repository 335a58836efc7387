"""Write vectors to files larger than memory; `shoal.analysis.report_files` reads them.

Reports are Parquet (one fixed-size binary column `report`, without dictionary or compression, since
random bits have nothing to compress), an Arrow file of that column, or raw rows behind a header
(`shoal.protocol.wire`). Each names its plan. A row is the cohort, if there are any, and the bits.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from shoal.device.arrays.randomize import Original
from shoal.errors import InputError, PrivacyRefusal
from shoal.protocol.plan import Plan
from shoal.protocol.wire import FILE_HEADER, FILE_MAGIC, Rows, Synthetic, file_row_bytes
from shoal.support.checks import shown
from shoal.support.files import first_line
from shoal.support.rounding import text_up, truth_text


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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
