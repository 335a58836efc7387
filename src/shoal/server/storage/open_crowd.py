"""An open crowd: a tally whose numbers are written in blocks of a page each.

Adding reports and adding nothing take the same steps and write the same blocks, because whoever
measures the time of an answer must not learn whether a report was new. A crowd of few blocks is
always written whole. Of a larger one, which a plan with many cohorts has, only the blocks of the
cohorts in the upload are written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from shoal.analysis.count_table import Weights
from shoal.analysis.tally import Counts, Tally, Tallying
from shoal.protocol.plan import Plan
from shoal.protocol.vectors import Cohorts, Rows

__all__ = ["BLOCK_BYTES", "OpenCrowd", "number_type"]

BLOCK_BYTES = 3840
"""Bytes of a block, or fewer of the last: with what encryption adds, it fits in a page."""

_FEW_BLOCKS = 16


class OpenCrowd:
    """How many reports a crowd has so far, and their counts.

    Parameters
    ----------
    plan
        The plan of the reports.
    blocks
        The counts so far, as they were written.
    """

    def __init__(self, plan: Plan, blocks: Mapping[int, bytes] | None = None) -> None:
        self._plan = plan
        self._tallying = Tallying(plan, extra=1)
        self._table = self._tallying.table
        self._kind = number_type(plan)
        self._block = BLOCK_BYTES // self._kind.itemsize
        for block, content in (blocks or {}).items():
            self._numbers_of(block)[:] = np.frombuffer(content, self._kind)
        self._changed: set[int] = set()
        self._touch_always()

    def _numbers_of(self, block: int) -> Counts:
        return self._table.numbers[block * self._block : (block + 1) * self._block]

    @property
    def reports(self) -> int:
        """How many reports were counted."""
        return self._table.reports

    @property
    def window_reports(self) -> int:
        """How many reports the window had at the last write, in all its crowds."""
        return int(self._table.numbers[0])

    @window_reports.setter
    def window_reports(self, count: int) -> None:
        self._table.numbers[0] = count

    @property
    def is_whole(self) -> bool:
        """Whether the crowd has all the reports it needs."""
        return self.reports == self._plan.reports_needed

    def _touch_always(self) -> None:
        size = self._table.numbers.size
        self._touch(0, size if size <= _FEW_BLOCKS * self._block else self._table.cohorts_start)

    def _touch(self, start: int, end: int) -> None:
        self._changed.update(range(start // self._block, -(-end // self._block)))

    def add(self, rows: Rows, cohorts: Cohorts | None, weights: Weights) -> None:
        """Add reports, each as often as its weight says: once or not at all."""
        self._tallying.add(rows, cohorts=cohorts, weights=weights)
        self._touch_always()
        if cohorts is not None:
            width = self._table.cohorts.shape[1]
            for cohort in np.unique(cohorts).tolist():
                start = self._table.cohorts_start + cohort * width
                self._touch(start, start + width)

    def all_blocks(self) -> Iterator[tuple[int, bytes]]:
        """Yield all blocks, whether or not they changed."""
        self._touch(0, self._table.numbers.size)
        return self.changes()

    def changes(self) -> Iterator[tuple[int, bytes]]:
        """Yield the blocks that changed since the last call, to be written.

        The length of each is the same whatever was counted.
        """
        for block in sorted(self._changed):
            yield block, self._numbers_of(block).astype(self._kind).tobytes()
        self._changed.clear()

    def tally(self) -> Tally:
        """Return the counts as a tally."""
        return self._tallying.result()


def number_type(plan: Plan) -> np.dtype[np.unsignedinteger]:
    """Return the type of a crowd's numbers as they are written."""
    return np.dtype("<u4" if plan.reports_needed < 1 << 32 else "<u8")
