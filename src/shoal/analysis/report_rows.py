"""Batches of reports as arrays, for those who count them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from shoal.errors import ReportError
from shoal.protocol.plan import Plan
from shoal.protocol.wire import (
    Cohorts,
    Reports,
    Rows,
    Synthetic,
    check_rows,
    report_fields,
    split_batch,
)

__all__ = ["Batch", "parse_batch", "synthetics_of", "unpack"]


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

    def to_bytes(self) -> bytes:
        """Return the batch in the binary form."""
        return self._reports().to_bytes()

    def to_json(self) -> bytes:
        """Return the batch in the JSON form."""
        return self._reports().to_json()

    def _reports(self) -> Reports:
        record = _record(8 * self.rows.shape[1], self.cohorts is not None)
        records = np.empty(len(self), record)
        records["id"], records["window"], records["bits"] = self.ids, self.windows, self.rows
        if self.cohorts is not None:
            records["cohort"] = self.cohorts
        return Reports(self.plan_id, records.itemsize, records.tobytes())


def parse_batch(plan: Plan, content: bytes) -> Batch:
    """Parse a batch in either form; anything else raises `ReportError`.

    The arrays are views of one buffer.
    """
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
    """Yield some of the vectors of a batch, window by window, without their ids.

    Where a plan has no window its reports carry the number 0, which says nothing.
    """
    places = np.array(chosen, int)
    windows = batch.windows[places]
    for window in np.unique(windows).tolist():
        here = places[windows == window]
        cohorts = None if batch.cohorts is None else batch.cohorts[here].astype(np.uint16)
        known = None if plan.window is None and window == 0 else window
        yield Synthetic(batch.rows[here], plan.bits, cohorts=cohorts, window=known)


def unpack(rows: Rows, bits: int) -> NDArray[np.uint8]:
    """Unpack rows into an array of 0 and 1, shape (vectors, bits).

    >>> unpack(np.array([[1, 1]], dtype=np.uint8), bits=9)
    array([[1, 0, 0, 0, 0, 0, 0, 0, 1]], dtype=uint8)
    """
    return np.unpackbits(rows, axis=1, count=bits, bitorder="little")
