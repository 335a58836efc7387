"""A plan that accepts reports: its open crowds, one for each window that is open.

A complete crowd is released in a later transaction: an answer that waited for it would tell its
sender how many reports had come. Reports that come before that fill the next crowd.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.analysis.count_table import Weights
from shoal.analysis.crowds import Crowd
from shoal.analysis.report_files import Batch
from shoal.analysis.tally import Counts, Tally, Tallying
from shoal.protocol.plan import Plan
from shoal.protocol.random_bits import SystemBits
from shoal.protocol.wire import Cohorts, Rows
from shoal.server.core.problems import Problem
from shoal.server.storage.database import NAME, StorageError
from shoal.server.storage.encryption import decrypt, encrypt
from shoal.server.storage.records import Reason, State
from shoal.server.storage.windows import (
    ALL,
    IncompleteCrowd,
    OpenWindows,
    WindowedPlan,
    progress,
)


@dataclass
class _Crowd:
    number: int
    window: int
    key: bytes
    counts: OpenCrowd


class CrowdPlan(WindowedPlan):
    """A plan whose crowds and their releases are in the table crowds."""

    @property
    def last_number(self) -> int:
        row: tuple[int] = self._connection.execute(
            "SELECT coalesce(max(number), 0) FROM crowds WHERE plan = ?", (self.plan.id,)
        ).fetchone()
        return row[0]

    def _insert_crowd(self, number: int, window: int, day: int) -> None:
        self._connection.execute(
            "INSERT INTO crowds VALUES (?, ?, ?, 'open', ?, 0, NULL, NULL, NULL, NULL)",
            (self.plan.id, number, window, day),
        )

    def _end(
        self,
        number: int,
        *,
        reports: int = 0,
        progress: int = 0,
        release: bytes | None = None,
        reason: Reason | None = None,
    ) -> None:
        """End a crowd, with a release or with a reason to discard it."""
        state = "discarded" if release is None else "released"
        crowd = (self.plan.id, number)
        self._connection.execute(
            "UPDATE crowds SET state = ?, reports = ?, progress = ?, release = ?, reason = ?"
            " WHERE plan = ? AND number = ?",
            (state, reports, progress, release, reason, *crowd),
        )
        if release is not None:
            self._connection.execute("INSERT INTO unannounced VALUES (?, ?)", crowd)
        self._connection.execute("DELETE FROM counts WHERE plan = ? AND number = ?", crowd)
        self._keys.forget(self.plan.id, "crowd", number)

    def _release(self, number: int, window: int, tally: Tally) -> None:
        """Write the tally of a complete crowd, once."""
        release = release_bytes(self.plan, tally, number, window)
        self._records.add_release(self.plan.id, number, None, release)
        self._end(number, reports=tally.reports, progress=100, release=release)

    def progress(self, window: int) -> int:
        """Return the progress of the crowd of a window; 0 where it is not known."""
        return 0

    def destroy(self) -> None:
        """Destroy all releases."""
        self._connection.execute(
            "UPDATE crowds SET state = 'destroyed', release = NULL WHERE plan = ?", (self.plan.id,)
        )
        self._connection.execute(
            "DELETE FROM signatures WHERE plan = ? AND number > 0", (self.plan.id,)
        )


class OpenPlan(CrowdPlan):
    """A plan in memory, read from the database and written to it.

    Everything here happens inside a transaction of the store.
    """

    def __init__(self, *about: Any) -> None:
        super().__init__(*about)
        self._read_crowds()

    def _read_crowds(self) -> None:
        self._crowds: dict[int, _Crowd] = {}
        self._complete: list[tuple[int, int]] = []
        rows = self._connection.execute(
            "SELECT number, window FROM crowds WHERE plan = ? AND state = 'open' ORDER BY number",
            (self.plan.id,),
        )
        opened: dict[int, int] = {}
        for number, window in rows.fetchall():
            if window in opened:  # it has a successor, so it waits to be released
                self._complete.append((opened[window], window))
            opened[window] = number
        for window, number in opened.items():
            self._crowds[window] = self._read(number, window)
        self._last = self.last_number

    def catch_up(self, state: State, oldest_window: int) -> None:
        self.state, self.oldest_window = state, oldest_window
        self._read_crowds()
        self._seen = {window: one for window, one in self._seen.items() if window in self._crowds}
        for window, seen in self._seen.items():
            seen.catch_up(self._crowds[window].counts.window_reports)

    def _read(self, number: int, window: int) -> _Crowd:
        key = self._keys.key(self.plan.id, "crowd", number)
        if key is None:
            raise StorageError(f"{NAME} and its log do not match. Restore a backup.")
        rows = self._connection.execute(
            "SELECT part, numbers FROM counts WHERE plan = ? AND number = ?", (self.plan.id, number)
        )
        blocks = {part: decrypt(key, content, self._about(number, part)) for part, content in rows}
        return _Crowd(number, window, key, OpenCrowd(self.plan, blocks))

    def _about(self, number: int, block: int) -> str:
        return f"{self.plan.id} {number} {block}"

    def reports(self) -> dict[int, int]:
        return {window: crowd.counts.reports for window, crowd in self._crowds.items()}

    def progress(self, window: int) -> int:
        crowd = self._crowds.get(window)
        return 0 if crowd is None else self._progress(crowd)

    def _progress(self, crowd: _Crowd) -> int:
        return progress(crowd.counts.reports, self.plan)

    # Reports

    def accept(self, uploads: Sequence[Batch], time: OpenWindows) -> list[Problem | None]:
        """Count the reports of uploads, or return why an upload is refused as a whole."""
        answers = self._objections(uploads, time)
        counted = [one for one, problem in zip(uploads, answers, strict=True) if problem is None]
        if counted:
            self._count(counted, time)
        return answers

    def _objections(self, uploads: Sequence[Batch], time: OpenWindows) -> list[Problem | None]:
        windows = np.concatenate([upload.windows for upload in uploads])
        problem = self.problem(int(windows.min()), int(windows.max()), time)
        if problem is not None and len(uploads) > 1:  # of some of them, perhaps not of all
            return [self._objections([upload], time)[0] for upload in uploads]
        return [problem] * len(uploads)

    def _count(self, uploads: Sequence[Batch], time: OpenWindows) -> None:
        self.open_crowds(time)
        ids = np.concatenate([upload.ids for upload in uploads])
        rows = np.concatenate([upload.rows for upload in uploads])
        windows = np.concatenate([upload.windows for upload in uploads])
        cohorts = None
        if self.plan.cohorts is not None:
            cohorts = np.concatenate([u.cohorts for u in uploads if u.cohorts is not None])
        for window in np.unique(windows).tolist():
            here = np.flatnonzero(windows == window)
            # Reports that came together have no order: chance says which of them fill the crowd.
            here = here[np.argsort(np.frombuffer(SystemBits().draw(8 * len(here)), np.uint64))]
            fresh = self._seen_in(window).remember(ids[here]).astype(np.int64)
            chosen = None if cohorts is None else cohorts[here]
            self._fill(window, rows[here], chosen, fresh, time.day)

    def _counted_in(self, window: int) -> int:
        return self._crowds[window].counts.window_reports

    def _fill(
        self, window: int, rows: Rows, cohorts: Cohorts | None, weights: NDArray[np.int64], day: int
    ) -> None:
        """Add reports to the crowd of their window, and to the next ones when it is complete."""
        counted = np.cumsum(weights)
        start = placed = 0
        opened = False
        while True:
            crowd = self._crowds[window]
            room = self.plan.reports_needed - crowd.counts.reports
            # The last crowd takes those that do not count too, wherever they are.
            fits = int(counted[-1]) - placed <= room
            end = len(rows) if fits else int(np.searchsorted(counted, placed + room)) + 1
            if room or fits:
                here = slice(start, end)
                chosen = None if cohorts is None else cohorts[here]
                crowd.counts.add(rows[here], chosen, weights[here])
                self._write(crowd)
                start, placed = end, placed + room
            if fits:
                break
            self._complete.append((crowd.number, window))
            self._open_crowd(window, day)
            opened = True
        if not opened:
            self._pretend_to_open(window, day)

    def _write(self, crowd: _Crowd) -> None:
        # Pages of the database from before and from after this are told apart by it.
        crowd.counts.window_reports = self._seen_in(crowd.window).count
        blocks = list(crowd.counts.changes())
        contents = encrypt(
            crowd.key, *((numbers, self._about(crowd.number, block)) for block, numbers in blocks)
        )
        self._connection.executemany(
            "INSERT INTO counts VALUES (?, ?, ?, ?)"
            " ON CONFLICT (plan, number, part) DO UPDATE SET numbers = excluded.numbers",
            [
                (self.plan.id, crowd.number, block, content)
                for (block, _), content in zip(blocks, contents, strict=True)
            ],
        )

    # Releases

    @property
    def complete_crowds(self) -> int:
        return len(self._complete) + sum(one.counts.is_complete for one in self._crowds.values())

    def release_crowds(self, time: OpenWindows) -> list[int]:
        numbers = []
        for number, window in self._complete:
            self._release(number, window, self._read(number, window).counts.tally())
            numbers.append(number)
        self._complete.clear()
        for window, crowd in sorted(self._crowds.items()):
            if crowd.counts.is_complete:
                self._release(crowd.number, window, crowd.counts.tally())
                numbers.append(crowd.number)
                self._open_crowd(window, time.day)
                self._write(self._crowds[window])
        return numbers

    # Crowds

    def open_crowds(self, time: OpenWindows) -> None:
        for window in range(max(time.first_window, self.oldest_window), time.last_window + 1):
            if window not in self._crowds:
                self._open_crowd(window, time.day)
                self._write(self._crowds[window])

    def _open_crowd(self, window: int, day: int) -> None:
        self._last += 1
        self._insert_crowd(self._last, window, self._opening_day(window, day))
        key = self._keys.draw(self.plan.id, "crowd", self._last)
        self._crowds[window] = _Crowd(self._last, window, key, OpenCrowd(self.plan))

    def _pretend_to_open(self, window: int, day: int) -> None:
        """Do the work of opening a crowd: an answer that took longer would reveal one."""
        self._insert_crowd(0, window, self._opening_day(window, day))
        self._keys.draw(self.plan.id, "crowd", 0)
        self._connection.execute(
            "DELETE FROM crowds WHERE plan = ? AND number = 0", (self.plan.id,)
        )
        self._keys.forget(self.plan.id, "crowd", 0)

    def discard_crowds(
        self, reason: Reason, *, before_window: int = ALL, before_day: int = ALL
    ) -> list[IncompleteCrowd]:
        """Destroy open crowds, all or the old ones; complete ones were released before."""
        rows = self._connection.execute(
            "SELECT window FROM crowds WHERE plan = ? AND state = 'open' AND window < ?"
            " AND opened_day < ? ORDER BY number",
            (self.plan.id, before_window, before_day),
        )
        crowds = [self._crowds.pop(window) for (window,) in rows.fetchall()]
        for crowd in crowds:
            self._end(crowd.number, progress=self._progress(crowd), reason=reason)
        return [IncompleteCrowd(crowd.number, self._progress(crowd)) for crowd in crowds]


def release_bytes(plan: Plan, tally: Tally, number: int, window: int) -> bytes:
    """Return the release of a complete crowd: its tally, with the crowd's number and window."""
    assert (plan.crowd_size or 0) <= tally.reports <= plan.reports_needed
    named = None if plan.window is None else window
    crowd = Crowd(tally.reports, str(number), named, released=True)
    tally = replace(tally, crowds=(crowd,))
    return json.dumps(tally.to_json(), sort_keys=True, separators=(",", ":")).encode()


BLOCK_BYTES = 3840
"""Bytes of a block, or fewer of the last: with the overhead of encryption, it fits in a page."""

_FEW_BLOCKS = 16


class OpenCrowd:
    """The tally of an open crowd, written in blocks of a page each.

    Adding reports and adding nothing take the same steps and write the same blocks, because
    an observer of response times must not learn whether a report was new. A crowd of
    few blocks is always written whole. Of a larger one, which a plan with many cohorts has, only
    the blocks of the cohorts in the upload are written.
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
        return self._table.reports

    @property
    def window_reports(self) -> int:
        """How many reports the window had at the last write, in all its crowds."""
        return int(self._table.numbers[0])

    @window_reports.setter
    def window_reports(self, count: int) -> None:
        self._table.numbers[0] = count

    @property
    def is_complete(self) -> bool:
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

    def changes(self) -> Iterator[tuple[int, bytes]]:
        """Yield the blocks that changed since the last call, each as long whatever was counted."""
        for block in sorted(self._changed):
            yield block, self._numbers_of(block).astype(self._kind).tobytes()
        self._changed.clear()

    def tally(self) -> Tally:
        return self._tallying.result()


def number_type(plan: Plan) -> np.dtype[np.unsignedinteger]:
    """Return the type of a crowd's numbers as they are written."""
    return np.dtype("<u4" if plan.reports_needed < 1 << 32 else "<u8")
