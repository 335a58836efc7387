"""A plan at the relay: its open crowds, in each window one that takes reports and the next ones.

A crowd is opened when the analyzer's key for it has arrived. Reports are taken for the key of the
first incomplete crowd of their window only. A repeated report is recognized by its id, whatever key
it was encrypted for: its sender may not have heard that it was accepted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from shoal.protocol.encryption import CrowdKey, EncryptedReports, encrypted_report_bytes
from shoal.protocol.random_bits import SystemBits
from shoal.protocol.wire import ID_BYTES
from shoal.server.core import problems
from shoal.server.core.problems import Problem
from shoal.server.relay.encrypted_pool import EncryptedPool
from shoal.server.storage.database import NAME, StorageError
from shoal.server.storage.records import Reason, State
from shoal.server.storage.windows import (
    ALL,
    IncompleteCrowd,
    OpenWindows,
    WindowedPlan,
    progress,
)

AHEAD = 2
"""Crowds of a window that are ready for when the first one is complete."""


class Document(NamedTuple):
    """A document as the analyzer signed it, with the signature and the key; a crowd's key too."""

    content: bytes
    signature: str
    signer: str


class Wanted(NamedTuple):
    """A crowd whose key is to be fetched; `place` is its number in the window."""

    plan_id: str
    window: int
    place: int


@dataclass
class FillingCrowd:
    number: int
    window: int
    day: int
    signed: Document
    key: CrowdKey
    rows: EncryptedPool

    @property
    def named(self) -> Wanted:
        return Wanted(self.key.plan_id, self.window, self.key.crowd)


class RelayPlan(WindowedPlan):
    """A plan in memory, read from the database and written to it, inside its transactions."""

    def __init__(self, *about: Any) -> None:
        super().__init__(*about)
        self._length = encrypted_report_bytes(self.plan) - ID_BYTES
        self._crowds: dict[int, list[FillingCrowd]] = {}
        self._read_crowds()

    def _read_crowds(self) -> None:
        """Read the open crowds; those that are known go on with the rows they have."""
        known = {crowd.number: crowd for crowd in self._all()}
        self._crowds = {}
        rows = self._connection.execute(
            "SELECT number, window, day, document, signature, signer FROM crowds"
            " WHERE plan = ? AND state = 'open' ORDER BY number",
            (self.plan.id,),
        )
        for number, window, day, *signed in rows.fetchall():
            if number in known:
                known[number].signed = Document(*signed)  # the analyzer may have changed its key
                self._crowds.setdefault(window, []).append(known[number])
                continue
            key = self._keys.key(self.plan.id, "crowd", number)
            if key is None:
                raise StorageError(f"{NAME} and its log do not match. Restore a backup.")
            self._add(number, window, day, Document(*signed), key)

    def catch_up(self, state: State, oldest_window: int) -> None:
        self.state, self.oldest_window = state, oldest_window
        self._read_crowds()
        crowds = {crowd.number: crowd.rows for crowd in self._all()}
        EncryptedPool.catch_up(self._connection, self.plan.id, crowds)
        # What has come is forgotten with its window, and with the plan.
        first = oldest_window if state == "published" else 2**62
        self._seen = {window: one for window, one in self._seen.items() if window >= first}
        for window, seen in self._seen.items():
            seen.catch_up()
            if seen.count < self._held(window):
                raise StorageError(f"{NAME} is damaged: it knows other reports than it holds.")

    def _add(
        self, number: int, window: int, day: int, signed: Document, key: bytes
    ) -> FillingCrowd:
        rows = EncryptedPool(self._database, key, number, self._length, self.plan.reports_needed)
        public = CrowdKey.from_bytes(signed.content)
        crowd = FillingCrowd(number, window, day, signed, public, rows)
        self._crowds.setdefault(window, []).append(crowd)
        return crowd

    def _all(self) -> Iterator[FillingCrowd]:
        return (crowd for crowds in self._crowds.values() for crowd in crowds)

    def _current(self, window: int) -> FillingCrowd | None:
        """Return the crowd of a window that takes reports, if its key has come."""
        crowds = self._crowds.get(window, ())
        return next((crowd for crowd in crowds if not crowd.rows.is_complete), None)

    def taking(self) -> list[FillingCrowd]:
        """Return the crowds that take reports now, one of each window."""
        current = map(self._current, self._crowds)
        return [crowd for crowd in current if crowd is not None]

    def signed_otherwise(self, signers: str) -> list[Wanted]:
        if self.state != "published":
            return []
        return [
            crowd.named
            for crowd in self._all()
            if crowd.signed.signer != signers and not crowd.rows.is_complete
        ]

    def sign_again(self, wanted: Wanted, signed: Document) -> bool:
        """Replace the signatures of an open crowd's document; False if it is another document."""
        for crowd in self._crowds.get(wanted.window, ()):
            if crowd.named == wanted:
                if crowd.signed.content != signed.content:
                    return False
                self._connection.execute(
                    "UPDATE crowds SET signature = ?, signer = ? WHERE number = ?",
                    (signed.signature, signed.signer, crowd.number),
                )
                crowd.signed = signed
        return True

    def progress(self) -> dict[int, int]:
        return {crowd.number: progress(crowd.rows.reports, self.plan) for crowd in self._all()}

    # Reports

    def accept(
        self, uploads: Sequence[EncryptedReports], time: OpenWindows
    ) -> list[Problem | None]:
        """Take the reports of uploads that have not come before, and answer for each upload."""
        # Of an upload that does not fit the open crowd, as much as fits is taken. Its sender
        # encrypts all of it again for the next crowd, where the accepted reports are recognized.
        answers = [self.problem(one.window, one.window, time) for one in uploads]
        for window in {one.window for one in uploads}:
            here = [
                place
                for place, one in enumerate(uploads)
                if one.window == window and answers[place] is None
            ]
            if here:
                # Reports that came together have no order: chance says which fill the crowd.
                keys = np.frombuffer(SystemBits().draw(8 * len(here)), np.uint64)
                here = [here[at] for at in np.argsort(keys).tolist()]
                found = self._accept(window, [uploads[place] for place in here])
                for place, problem in zip(here, found, strict=True):
                    answers[place] = problem
        return answers

    def _accept(self, window: int, uploads: Sequence[EncryptedReports]) -> list[Problem | None]:
        seen, crowd = self._seen_in(window), self._current(window)
        ids = [one.ids for one in uploads]
        known = iter(seen.knows(_table([name for some in ids for name in some])).tolist())
        answers: list[Problem | None] = []
        taken: set[bytes] = set()
        remembered: list[bytes] = []
        rows: list[bytes | None] = []
        room = 0 if crowd is None else crowd.rows.room
        for upload, names in zip(uploads, ids, strict=True):
            problem = None
            for place, name in enumerate(names):
                is_known = next(known) or name in taken
                if is_known:
                    rows.append(None)
                elif crowd is None:
                    problem = problems.NO_KEY
                    continue
                elif upload.key != crowd.key.digest or len(taken) == room:
                    problem = problems.KEY_CHANGED
                    continue
                else:
                    taken.add(name)
                    start = place * upload.length + ID_BYTES
                    rows.append(upload.content[start : start + self._length])
                remembered.append(name)
            answers.append(problem)
        if remembered:
            fresh = seen.remember(_table(remembered))
            if int(fresh.sum()) != len(taken):
                raise StorageError(f"{NAME} is damaged: it knows other reports than it holds.")
        if crowd is not None and rows:
            crowd.rows.write(rows)
        return answers

    def _counted_in(self, window: int) -> int:
        (frozen,) = self._connection.execute(
            "SELECT count(*) FROM crowds WHERE plan = ? AND window = ?"
            " AND state IN ('frozen', 'shuffled', 'forwarded')",
            (self.plan.id, window),
        ).fetchone()
        return self._held(window) + int(frozen) * self.plan.reports_needed

    def _held(self, window: int) -> int:
        """Return how many reports the open crowds of a window have."""
        return sum(crowd.rows.reports for crowd in self._crowds.get(window, ()))

    # Crowds

    def wanted(self, time: OpenWindows) -> list[Wanted]:
        """Return the crowds whose keys are to be fetched now."""
        if self.state != "published":
            return []
        wanted = []
        for window in range(max(time.first_window, self.oldest_window), time.last_window + 1):
            ready = sum(not one.rows.is_complete for one in self._crowds.get(window, ()))
            first = self._next_place(window)
            for more in range(1 + AHEAD - ready):
                # A window without a key comes first, and this window before the last and the next.
                rank = (ready + more, abs(2 * window - time.first_window - time.last_window))
                wanted.append((rank, Wanted(self.plan.id, window, first + more)))
        return [one for _, one in sorted(wanted)]

    def _next_place(self, window: int) -> int:
        (last,) = self._connection.execute(
            "SELECT coalesce(max(place), 0) FROM crowds WHERE plan = ? AND window = ?",
            (self.plan.id, window),
        ).fetchone()
        return int(last) + 1

    def open_crowd(self, wanted: Wanted, signed: Document, time: OpenWindows) -> bool:
        """Open a crowd whose key has come; return whether it is still wanted."""
        # The analyzer may have given the key of a later crowd, because the wanted one has ended or
        # belongs to other data. Then that crowd is opened.
        if wanted.place != self._next_place(wanted.window) or wanted not in self.wanted(time):
            return False
        (last,) = self._connection.execute("SELECT coalesce(max(number), 0) FROM crowds").fetchone()
        number = int(last) + 1
        day = self._opening_day(wanted.window, time.day)
        place = CrowdKey.from_bytes(signed.content).crowd
        self._connection.execute(
            "INSERT INTO crowds VALUES (?, ?, ?, ?, 'open', ?, NULL, NULL, ?, ?, ?, NULL)",
            (number, self.plan.id, wanted.window, place, day, *signed),
        )
        key = self._keys.draw(self.plan.id, "crowd", number)
        self._add(number, wanted.window, day, signed, key).rows.make_room()
        return True

    @property
    def complete_crowds(self) -> int:
        return sum(crowd.rows.is_complete for crowd in self._all())

    def release_crowds(self, time: OpenWindows) -> list[int]:
        """Freeze the crowds that have all their reports, and return their numbers."""
        frozen = [crowd for crowd in self._all() if crowd.rows.is_complete]
        for crowd in frozen:
            self._connection.execute(
                "UPDATE crowds SET state = 'frozen', progress = 100, day = ? WHERE number = ?",
                (time.day, crowd.number),
            )
            self._crowds[crowd.window].remove(crowd)
        return [crowd.number for crowd in frozen]

    def discard_crowds(
        self, reason: Reason, *, before_window: int = ALL, before_day: int = ALL
    ) -> list[IncompleteCrowd]:
        """Destroy open crowds, all or the old ones; a relay does not store why."""
        old = [
            crowd
            for crowd in self._all()
            if crowd.window < before_window and crowd.day < before_day
        ]
        return [self._discard(crowd) for crowd in old]

    def _discard(self, crowd: FillingCrowd) -> IncompleteCrowd:
        share = progress(crowd.rows.reports, self.plan)
        self._connection.execute(
            "UPDATE crowds SET state = 'discarded', progress = ? WHERE number = ?",
            (share, crowd.number),
        )
        for table in ("leftovers", "untold"):
            self._connection.execute(f"INSERT INTO {table} VALUES (?)", (crowd.number,))  # noqa: S608
        self._keys.forget(self.plan.id, "crowd", crowd.number)
        self._crowds[crowd.window].remove(crowd)
        return IncompleteCrowd(crowd.key.crowd, share)

    def discard(self, ended: Wanted) -> list[IncompleteCrowd]:
        """Discard an open crowd that has ended at the analyzer: it could never arrive."""
        crowds = list(self._crowds.get(ended.window, ()))
        return [self._discard(one) for one in crowds if one.named == ended]

    def make_room(self) -> None:
        super().make_room()
        for crowd in self._all():
            crowd.rows.make_room()


def _table(ids: Sequence[bytes]) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    return np.frombuffer(b"".join(ids), np.uint8).reshape(-1, ID_BYTES)
