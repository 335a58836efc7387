"""The windows of a plan: which are open, their reports, and the data that end with them.

People may be asked once in every window, and the promise counts the reports of one person in one
release. So a crowd never mixes windows: it fills within its own or is discarded.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from shoal.errors import PrivacyRefusal
from shoal.protocol.plan import Plan
from shoal.server.core import problems
from shoal.server.core.problems import Problem
from shoal.server.storage.database import NAME, Database, SqlConnection, StorageError
from shoal.server.storage.encryption import Keyring, decrypt, encrypt
from shoal.server.storage.records import Reason, Records, State, read_plan
from shoal.server.storage.recovery import first_window, restored_at

DAY = 86_400
ALL = 2**62
"""A window, or a day, that is after all others."""
_OF_STATES: dict[State, Problem] = {
    "draft": problems.UNKNOWN_PLAN,
    "paused": problems.PAUSED,
    "closed": problems.PLAN_CLOSED,
    "destroyed": problems.PLAN_CLOSED,
}
"""Why a plan in a state accepts no reports."""


class OpenWindows(NamedTuple):
    """The first and the last open window of a plan at a moment, and the day."""

    first_window: int
    last_window: int
    day: int

    @classmethod
    def of(cls, plan: Plan, seconds: float) -> OpenWindows:
        """Return the open windows at a time; a device's clock may be a little ahead of ours."""
        day = int(seconds // DAY)
        if plan.window is None:
            return cls(0, 0, day)
        now = int(seconds // plan.window)
        return cls(max(now - 1, 0), now + 1, day)


class IncompleteCrowd(NamedTuple):
    """A crowd that was discarded."""

    number: int
    progress: int


def progress(reports: int, plan: Plan) -> int:
    """Return the share of a crowd that has arrived in per cent, rounded down to 10 %."""
    return 10 * (10 * reports // plan.reports_needed)


class WindowedPlan:
    """A plan that accepts reports, in memory.

    Everything here happens inside a transaction of the store.
    """

    def __init__(
        self, database: Database, plan: Plan, state: State, oldest_window: int, records: Records
    ) -> None:
        self._database, self._connection, self._keys = database, database.connection, database.keys
        self.plan, self.state, self.oldest_window = plan, state, oldest_window
        self._records = records
        self._seen: dict[int, SeenReports] = {}

    @classmethod
    def read(cls, database: Database, records: Records, plan_id: str) -> Self | None:
        row = database.connection.execute(
            "SELECT document, state, oldest_window FROM plans WHERE id = ?", (plan_id,)
        ).fetchone()
        if row is None:
            return None
        document, state, oldest_window = row
        return cls(database, read_plan(plan_id, document), state, oldest_window, records)

    def catch_up(self, state: State, oldest_window: int) -> None:
        """Adopt the changes that another process has written."""
        self.state, self.oldest_window = state, oldest_window
        self._seen.clear()

    def _seen_in(self, window: int) -> SeenReports:
        """Return the memory of a window's reports; it must know all that were counted."""
        if window not in self._seen:
            seen = SeenReports(self._connection, self._keys, self.plan.id, window)
            if seen.count < self._counted_in(window):
                raise StorageError(f"{NAME} and its log do not match. Restore a backup.")
            self._seen[window] = seen
        return self._seen[window]

    def _counted_in(self, window: int) -> int:
        """Return how many reports of a window were counted, as far as another table tells."""
        return 0

    def _opening_day(self, window: int, day: int) -> int:
        """Return the day from which the deadline of a crowd that is opened now runs."""
        # That of the next window's crowd must not run before people are asked in it.
        return max(day, window * (self.plan.window or 0) // DAY)

    @property
    def complete_crowds(self) -> int:
        """How many crowds have all their reports and wait for the next sweep."""
        return 0

    def problem(self, first: int, last: int, time: OpenWindows) -> Problem | None:
        """Return why reports from a first to a last window are refused, or None."""
        if self.state in _OF_STATES:
            return _OF_STATES[self.state]
        if self.plan.window is None and last:
            return problems.MALFORMED  # such a report is never right
        if first < max(time.first_window, self.oldest_window):
            return problems.WINDOW_EXPIRED
        return problems.WINDOW_NOT_OPEN if last > time.last_window else None

    def release_crowds(self, time: OpenWindows) -> list[int]:
        """End the complete crowds, and return their numbers."""
        return []

    def open_crowds(self, time: OpenWindows) -> None:
        """Open a crowd for each window that is open now, whether or not reports have come."""
        return

    def discard_crowds(
        self, reason: Reason, *, before_window: int = ALL, before_day: int = ALL
    ) -> list[IncompleteCrowd]:
        """Destroy open crowds, all or the old ones; only their progress is stored."""
        return []

    def forget_windows(self, before: int = ALL) -> None:
        """Forget which reports have come, in all windows or in those before one."""
        for statement in (
            "DELETE FROM seen WHERE plan = ? AND window < ?",
            "DELETE FROM wrapped_keys WHERE plan = ? AND kind <> 'crowd' AND number < ?",
        ):
            self._connection.execute(statement, (self.plan.id, before))
        self._seen = {window: one for window, one in self._seen.items() if window >= before}

    def make_room(self) -> None:
        """Do work between commits that would make a later commit longer than others."""
        for seen in self._seen.values():
            seen.make_room()

    def expire(self, time: OpenWindows, deadline_days: int) -> list[IncompleteCrowd]:
        """Discard crowds whose window or deadline is over; 0 days mean no deadline."""
        ended = self.expire_windows(time)
        if deadline_days:
            ended += self.discard_crowds("deadline", before_day=time.day - deadline_days + 1)
        return ended

    def expire_windows(self, time: OpenWindows) -> list[IncompleteCrowd]:
        """Close windows that are over, for ever, with the crowds that did not fill in time."""
        return self.close_windows(before=time.first_window)

    def close_windows(self, before: int) -> list[IncompleteCrowd]:
        """Accept no more reports of windows before one, for ever."""
        if before <= self.oldest_window:
            return []
        self.oldest_window = before
        self.forget_windows(before=before)
        self._connection.execute(
            "UPDATE plans SET oldest_window = ? WHERE id = ?", (before, self.plan.id)
        )
        return self.discard_crowds("window", before_window=before)

    def check_first_time(self, *, never_published: bool) -> None:
        """Refuse to open a plan whose reports may have been counted before a restore."""
        restored = restored_at(self._connection)
        if restored is None or never_published:
            return
        if self.plan.window is None:
            raise PrivacyRefusal(problems.MAYBE_PUBLISHED.title)
        self.close_windows(before=first_window(self.plan, restored))


_ID_BYTES = 16
_ROW = 480
"""Hashes in a row: with the overhead of encryption, it fits in a page of the database."""

_FIRST_ROWS = 16
_MOST_HASHED = 1 << 16
_RECENT = 1 << 10
_LONGEST_RUN = 1 << 20

Digests = NDArray[np.uint64]
_NONE: Digests = np.empty(0, np.uint64)


class SeenReports:
    """The reports of one window that have come: keyed hashes of their ids, for the window's life.

    An id is random and used once, so its hash reveals nothing about a person; the key is drawn for
    the window and destroyed with it. Hashes have 64 bits: of n reports in a window, one is taken
    for a repetition and not counted with probability at most n^2 / 2^65, 3e-8 for a million.

    On the disk, hashes are in encrypted rows of one length, a page each. A commit of n reports
    writes as many rows whether or not the reports are new, and there are always a quarter more rows
    than are used, so that their number tells little. In memory, hashes are in sorted runs of
    bounded length, so that no step grows with the window.
    """

    def __init__(self, connection: SqlConnection, keys: Keyring, plan_id: str, window: int) -> None:
        self._connection, self._where = connection, (plan_id, window)
        key = keys.key(plan_id, "window", window)
        self._key = keys.draw(plan_id, "window", window) if key is None else key
        # Encryption and hashing use one key in two ways that have nothing in common.
        self._row_key = blake2b(b"rows", key=self._key, digest_size=32).digest()
        self._rows = 0
        self._place = 0  # the first row that is not full
        self._open = _NONE  # what is in it
        self._digests = _DigestSet()
        self._read()
        if not self._rows:
            self._grow(_FIRST_ROWS)

    def _read(self, last: int = 2**62) -> None:
        """Read rows from the first that is not full to a last one."""
        cursor = self._connection.execute(
            "SELECT place, digests FROM seen WHERE plan = ? AND window = ?"
            " AND place BETWEEN ? AND ? ORDER BY place",
            (*self._where, self._place, last),
        )
        while rows := cursor.fetchmany(_LONGEST_RUN // _ROW):
            digests = []
            for place, encrypted in rows:
                row = np.frombuffer(decrypt(self._row_key, encrypted, self._about(place)), "<u8")
                row = row[row != 0]
                is_open = place == self._place
                known = self._open if is_open else _NONE
                digests.append(np.setdiff1d(row, known) if len(known) else row)
                if is_open:
                    self._open = row
                if is_open and len(row) == _ROW:
                    self._place, self._open = place + 1, _NONE
                self._rows = max(self._rows, place + 1)
            self._digests.add(np.concatenate(digests))

    def catch_up(self, count: int | None = None) -> None:
        """Read the changes of another process, up to `count` reports if that is known."""
        if count is None:
            self._read_to_the_end()
        else:
            self._read(count // _ROW)
            if self.count != count:
                raise StorageError(
                    "the memory of reports that have come does not match their number."
                )
        (self._rows,) = self._connection.execute(
            "SELECT max(place) + 1 FROM seen WHERE plan = ? AND window = ?", self._where
        ).fetchone()

    def _read_to_the_end(self) -> None:
        more = 0
        while True:
            last = self._place + more
            self._read(last)
            if self._place <= last:
                return
            more = min(2 * more + 1, _LONGEST_RUN // _ROW)

    def _about(self, place: int) -> str:
        return f"{self._where[0]} {self._where[1]} {place}"

    @property
    def count(self) -> int:
        return self._place * _ROW + len(self._open)

    def knows(self, ids: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Tell which report ids have come, and remember nothing."""
        return self._digests.contain(self._hashed(ids))

    def remember(self, ids: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Remember report ids, tell which are new, and write the same rows for the others."""
        digests = self._hashed(ids)
        ordered, first = np.unique(digests, return_index=True)
        fresh = np.zeros(len(digests), bool)
        fresh[first] = ~self._digests.contain(ordered)
        self._write(digests[fresh], len(digests))
        self._digests.add(digests[fresh])
        return fresh

    def _hashed(self, ids: NDArray[np.uint8]) -> Digests:
        flat, key, parts = ids.tobytes(), self._key, []
        for first in range(0, len(flat), _ID_BYTES * _MOST_HASHED):
            last = min(len(flat), first + _ID_BYTES * _MOST_HASHED)
            content = b"".join(
                blake2b(flat[start : start + _ID_BYTES], digest_size=16, key=key).digest()
                for start in range(first, last, _ID_BYTES)
            )
            parts.append(np.frombuffer(content, "<u8")[::2])
        digests: Digests = np.concatenate(parts)
        digests[digests == 0] = 1  # 0 stands for nothing
        return digests

    def _write(self, fresh: Digests, count: int) -> None:
        """Write as many rows as `count` digests may need, the open one first."""
        rows = 1 + -(-(count - 1) // _ROW)
        if self._place + rows > self._rows:
            self._grow(self._place + rows)
        content = np.zeros(rows * _ROW, "<u8")
        used = len(self._open) + len(fresh)
        content[: len(self._open)] = self._open
        content[len(self._open) : used] = fresh
        table = np.sort(content.reshape(rows, _ROW), axis=1)  # the order of commits is gone
        self._connection.executemany(
            "UPDATE seen SET digests = ? WHERE plan = ? AND window = ? AND place = ?",
            [
                (row, *self._where, place)
                for place, row in enumerate(self._encrypted(table, self._place), self._place)
            ],
        )
        self._place += used // _ROW
        last = table[used // _ROW] if used < rows * _ROW else _NONE
        self._open = last[last != 0].copy()

    def _encrypted(self, table: Digests, first: int) -> list[bytes]:
        """Return rows as they are written, the first of them for a place."""
        rows = enumerate(table, first)
        return encrypt(self._row_key, *((row.tobytes(), self._about(at)) for at, row in rows))

    def _grow(self, needed: int) -> None:
        """Add empty rows, a quarter of those that there are and as many as are needed."""
        first = self._rows
        self._rows = max(needed, first * 5 // 4)
        empty = np.zeros((self._rows - first, _ROW), "<u8")
        self._connection.executemany(
            "INSERT INTO seen (plan, window, place, digests) VALUES (?, ?, ?, ?)",
            [
                (*self._where, place, row)
                for place, row in enumerate(self._encrypted(empty, first), first)
            ],
        )

    def make_room(self) -> None:
        """Do between commits what the next ones would need: their answers would take longer."""
        if self._rows - self._place < max(_FIRST_ROWS // 2, self._rows // 8):
            self._grow(self._rows + _FIRST_ROWS)
        self._digests.gather()


class _DigestSet:
    """A set of digests in sorted runs; the run of recent ones has a fixed length, with zeros."""

    def __init__(self) -> None:
        self._recent = np.zeros(_RECENT, np.uint64)
        self._count = 0
        self._runs: list[Digests] = []

    def contain(self, digests: Digests) -> NDArray[np.bool_]:
        """Tell which digests are in the set; if they are sorted, it takes less time."""
        is_known = np.zeros(len(digests), bool)
        for run in (self._recent, *self._runs):
            place = np.minimum(np.searchsorted(run, digests), len(run) - 1)
            is_known |= run[place] == digests
        return is_known

    def add(self, digests: Digests) -> None:
        if self._count + len(digests) > _RECENT:
            self.gather()
        if len(digests) > _RECENT:
            for start in range(0, len(digests), _LONGEST_RUN):
                self._add_run(np.sort(digests[start : start + _LONGEST_RUN]))
            return
        self._recent[: len(digests)] = digests  # in the place of zeros, which come first
        self._recent.sort()
        self._count += len(digests)

    def gather(self) -> None:
        if self._count:
            self._add_run(self._recent[-self._count :].copy())
        self._recent[:], self._count = 0, 0

    def _add_run(self, run: Digests) -> None:
        """Add a run, merged with others that are not much longer."""
        self._runs.sort(key=len)
        while (
            self._runs
            and len(self._runs[0]) < 2 * len(run)
            and len(self._runs[0]) + len(run) <= _LONGEST_RUN
        ):
            run = np.sort(np.concatenate((self._runs.pop(0), run)), kind="stable")
        self._runs.append(run)
