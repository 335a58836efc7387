"""A plan at the analyzer: its crowds, by window and the relay's number.

A crowd begins when the relay asks for its key; its progress at the relay is not known here. The
private key is wrapped under the file `crowd-key`, as the keys of a collector's open crowds are, and
is destroyed when the crowd is released or discarded.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from shoal.protocol.encryption import Chunk, CrowdKey, message_bytes
from shoal.server.core import problems
from shoal.server.core.problems import Problem
from shoal.server.storage.open_plan import CrowdPlan
from shoal.server.storage.records import Reason
from shoal.server.storage.windows import ALL, DAY, IncompleteCrowd, OpenWindows

AHEAD = 8
"""How many crowds of a window one relay may have open at a time."""

MOST_CHUNKS = 1 << 16
"""Chunks of a crowd: each is a file."""


class Place(NamedTuple):
    """A crowd by its relay's name for it: the window, and its number in the window."""

    window: int
    crowd: int


class UnderWay(NamedTuple):
    """The state of a crowd that has a key.

    `chunks` is None before the first came; `damaged` counts those that are not on the disk as they
    came.
    """

    number: int
    state: str
    key: CrowdKey
    chunks: int | None
    arrived: int
    messages: int
    damaged: int

    @property
    def is_complete(self) -> bool:
        """Whether all chunks have arrived, and none is damaged."""
        return self.arrived == self.chunks and not self.damaged


class AnalyzerPlan(CrowdPlan):
    """A plan at the analyzer; everything here happens inside a transaction of the store.

    Its crowds are released when they have been decrypted, so a sweep releases none.
    """

    def __init__(self, *about: Any) -> None:
        super().__init__(*about)
        self.message_bytes = message_bytes(self.plan)

    # Keys

    def find(self, place: Place) -> UnderWay | None:
        """Return a crowd that has, or had, a key."""
        row = self._connection.execute(
            "SELECT number, state, document, chunks, arrived, messages, (SELECT count(*)"
            " FROM damaged_chunks AS d WHERE d.plan = crowds.plan AND d.number = crowds.number)"
            " FROM crowd_keys JOIN crowds USING (plan, number)"
            " WHERE plan = ? AND crowd_keys.window = ? AND crowd = ?",
            (self.plan.id, *place),
        ).fetchone()
        if row is None:
            return None
        number, state, document, *rest = row
        return UnderWay(number, state, CrowdKey.from_bytes(bytes(document)), *rest)

    def crowd_key(self, place: Place, relay: str, time: OpenWindows) -> CrowdKey | Problem:
        """Return the key of a crowd that a relay's data may fill, or why there is none.

        A crowd that has ended, that other data fill, or of which chunks have come gets no second
        set of reports: instead of its key, the key of the next free crowd is returned. The answer
        is the same until that crowd has been used.
        """
        problem = self.problem(place.window, place.window, time)
        if problem in (problems.MALFORMED, problems.WINDOW_NOT_OPEN):
            return problems.CROWD_NOT_DUE
        if problem is not None:
            return problem
        where = (self.plan.id, place.window)
        (last,) = self._connection.execute(
            "SELECT coalesce(max(crowd), 0) FROM crowd_keys WHERE plan = ? AND window = ?", where
        ).fetchone()
        rows = self._connection.execute(
            "SELECT crowd, arrived, document FROM crowd_keys JOIN crowds USING (plan, number)"
            " WHERE plan = ? AND crowd_keys.window = ? AND state = 'open' AND relay = ?"
            " ORDER BY crowd",
            (*where, relay),
        ).fetchall()
        if place.crowd <= last:
            for crowd, arrived, document in rows:
                if crowd >= place.crowd and arrived == 0:
                    return CrowdKey.from_bytes(bytes(document))
            place = Place(place.window, last + 1)
        if len(rows) >= AHEAD or place.crowd > last + AHEAD:
            return problems.CROWD_NOT_DUE
        return self._begin(place, relay, time.day)

    def _begin(self, place: Place, relay: str, day: int) -> CrowdKey:
        """Begin a crowd with a key pair of its own."""
        number = self.last_number + 1
        self._insert_crowd(number, place.window, self._opening_day(place.window, day))
        secret = self._keys.draw(self.plan.id, "crowd", number)
        public = X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()
        key = CrowdKey(self.plan.id, *place, public)
        self._connection.execute(
            "INSERT INTO crowd_keys (plan, window, crowd, number, document, relay)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (self.plan.id, *place, number, key.to_bytes(), relay),
        )
        return key

    def secret(self, number: int) -> bytes | None:
        """Return the private key of a crowd, if it has not been destroyed."""
        return self._keys.key(self.plan.id, "crowd", number)

    # Chunks

    def digest_of(self, crowd: UnderWay, chunk: int) -> bytes | None:
        """Return the digest of a chunk that has come."""
        row = self._connection.execute(
            "SELECT digest FROM chunks WHERE plan = ? AND number = ? AND chunk = ?",
            (self.plan.id, crowd.number, chunk),
        ).fetchone()
        return None if row is None else bytes(row[0])

    def objection_to_chunk(self, crowd: UnderWay, chunk: Chunk) -> Problem | None:
        """Return why a chunk that has not come before is not taken, or None."""
        if self.state in ("closed", "destroyed"):
            return problems.PLAN_CLOSED
        if crowd.state != "open":
            return problems.CROWD_GONE
        if self.state == "paused":
            return problems.PAUSED
        fits = chunk.key == crowd.key.digest
        fits &= chunk.chunks <= MOST_CHUNKS and crowd.chunks in (None, chunk.chunks)
        messages, needed = crowd.messages + self._messages_in(chunk), self.plan.reports_needed
        missing = chunk.chunks - crowd.arrived - 1
        # Every chunk has a message, and all together have as many as the crowd has reports.
        fits &= messages == needed if missing == 0 else messages + missing <= needed
        return None if fits else problems.OTHER_CHUNK

    def _messages_in(self, chunk: Chunk) -> int:
        return len(chunk.content) // self.message_bytes

    def note_chunk(self, crowd: UnderWay, chunk: Chunk, digest: bytes) -> UnderWay:
        """Note that a chunk is on the disk, and return the crowd with it."""
        self._connection.execute(
            "INSERT INTO chunks VALUES (?, ?, ?, ?)",
            (self.plan.id, crowd.number, chunk.number, digest),
        )
        crowd = crowd._replace(
            chunks=chunk.chunks,
            arrived=crowd.arrived + 1,
            messages=crowd.messages + self._messages_in(chunk),
        )
        self._connection.execute(
            "UPDATE crowd_keys SET chunks = ?, arrived = ?, messages = ?"
            " WHERE plan = ? AND number = ?",
            (crowd.chunks, crowd.arrived, crowd.messages, self.plan.id, crowd.number),
        )
        return crowd

    def note_damage(self, number: int, chunks: Iterable[int]) -> None:
        """Note which chunks of a crowd are damaged; they count as not arrived."""
        where = (self.plan.id, number)
        self._connection.execute("DELETE FROM damaged_chunks WHERE plan = ? AND number = ?", where)
        for chunk in chunks:
            self._connection.execute("INSERT INTO damaged_chunks VALUES (?, ?, ?)", (*where, chunk))

    # Crowds

    def release(self, number: int, release: bytes | None, reports: int, unreadable: int) -> bool:
        """Write a crowd's release, or discard it without one; return whether it was still there."""
        changed = self._connection.execute(
            "UPDATE crowds SET unreadable = ? WHERE plan = ? AND number = ? AND state = 'open'",
            (unreadable, self.plan.id, number),
        )
        if changed.rowcount:
            self.note_damage(number, ())
            if release is None:
                self._end(number, progress=100, reason="unreadable")
            else:
                self._records.add_release(self.plan.id, number, unreadable, release)
                self._end(number, reports=reports, progress=100, release=release)
        return bool(changed.rowcount)

    def discard_crowds(
        self, reason: Reason, *, before_window: int = ALL, before_day: int = ALL
    ) -> list[IncompleteCrowd]:
        """Discard crowds with missing or damaged chunks, with their keys."""
        # The relay was told that a complete crowd arrived and has deleted it, so that one is opened
        # whatever happens to its plan or window.
        rows = self._connection.execute(
            "SELECT number FROM crowds JOIN crowd_keys USING (plan, number) WHERE plan = ?"
            " AND state = 'open' AND (chunks IS NOT arrived OR (plan, number) IN"
            " (SELECT plan, number FROM damaged_chunks)) AND crowds.window < ?"
            " AND opened_day < ? ORDER BY number",
            (self.plan.id, before_window, before_day),
        ).fetchall()
        return [self.discard(number, reason) for (number,) in rows]

    def discard(self, number: int, reason: Reason) -> IncompleteCrowd:
        """Discard one open crowd, with its key and its chunks."""
        self._end(number, reason=reason)
        self.note_damage(number, ())
        self._connection.execute(
            "DELETE FROM chunks WHERE plan = ? AND number = ?", (self.plan.id, number)
        )
        return IncompleteCrowd(number, 0)

    def destroy(self) -> None:
        """Destroy all collected data, including crowds being opened."""
        super().destroy()
        for table in ("chunks", "damaged_chunks", "crowd_keys", "wrapped_keys"):
            self._connection.execute(f"DELETE FROM {table} WHERE plan = ?", (self.plan.id,))  # noqa: S608

    def forget_windows(self, before: int = ALL) -> None:
        """Forget which chunks came, of crowds that have ended in windows before one."""
        # Where no window ends they stay: a relay that did not hear that its crowd is complete asks
        # again. They are digests of what nobody can open any more.
        self._connection.execute(
            "DELETE FROM chunks WHERE plan = ? AND number IN (SELECT number FROM crowds"
            " WHERE plan = ? AND state <> 'open' AND window < ?)",
            (self.plan.id, self.plan.id, 0 if before == ALL else before),
        )

    def expire_windows(self, time: OpenWindows) -> list[IncompleteCrowd]:
        """Close windows that are over.

        Their keys stay for a day or two: a crowd may have become complete at the relay in the last
        moment, and is on its way.
        """
        if self.plan.window is None:
            return []
        # Reports of window w are accepted until (w + 2) windows have passed, and keys of the window
        # go when a whole day has passed since.
        return self.close_windows(before=(time.day - 1) * DAY // self.plan.window - 1)
