"""Complete crowds of a relay on their way to the analyzer, and their leftovers.

Where several relays share a database, any of them may shuffle a frozen crowd, and any other may
forward it. The chunks of a shuffle are rows under a random name, its *attempt*. One transaction
makes an attempt the crowd's, once and for all, and only if all its chunks are there. So every
process forwards the same bytes. A claim, a lock of the connection, only saves duplicate work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shoal.protocol.encryption import CrowdKey
from shoal.protocol.plan import Plan
from shoal.protocol.random_bits import SystemBits
from shoal.server.relay.encrypted_pool import read_rows, remove_rows
from shoal.server.storage.database import Database, StorageError, storage_errors
from shoal.server.storage.records import read_plan
from shoal.server.storage.store import CrowdChange
from shoal.server.storage.windows import IncompleteCrowd

_ROWS_AT_ONCE = 2000
"""Rows removed in one transaction, so that reports do not wait for the end of a large crowd."""
_CHUNKS_AT_ONCE = 4
"""Chunks removed in one transaction."""


@dataclass(frozen=True)
class FrozenCrowd:
    """A crowd whose reports stay the same, on its way to the analyzer, or a discarded one.

    `place` is its number in the window, by which the analyzer knows it. `chunks` is how many it was
    cut into; None before that.
    """

    number: int
    plan_id: str
    window: int
    place: int
    document: bytes
    chunks: int | None

    @property
    def key(self) -> CrowdKey:
        return CrowdKey.from_bytes(self.document)

    @property
    def about(self) -> dict[str, object]:
        """Return how both parties name the crowd."""
        return {"plan": self.plan_id, "window": self.window, "crowd": self.place}


class FrozenCrowds:
    """The crowds in a relay's data that have all their reports.

    `discarded` is called with a plan and a crowd that was discarded.
    """

    def __init__(
        self, database: Database, discarded: Callable[[Plan, IncompleteCrowd], None]
    ) -> None:
        self._database, self._connection, self._discarded = database, database.connection, discarded
        self._attempts: dict[int, bytes] = {}

    def on_their_way(self) -> list[FrozenCrowd]:
        """Return the crowds that are frozen and not yet forwarded, the oldest first."""
        return self._crowds("WHERE state IN ('frozen', 'shuffled')")

    def untold(self) -> list[FrozenCrowd]:
        """Return the discarded crowds of which the analyzer has not been told yet."""
        return self._crowds("JOIN untold ON untold.number = crowds.number")

    def _crowds(self, which: str) -> list[FrozenCrowd]:
        with storage_errors():
            rows = self._connection.execute(
                "SELECT crowds.number, plan, window, place, document, chunks FROM crowds"  # noqa: S608  fixed
                f" {which} ORDER BY crowds.number"
            ).fetchall()
        return [FrozenCrowd(*row) for row in rows]

    def told(self, crowd: FrozenCrowd) -> None:
        self._change("note a told crowd", "DELETE FROM untold WHERE number = ?", crowd.number)

    def _change(self, name: str, statement: str, *values: object) -> None:
        self._database.run(
            name, lambda: self._connection.execute(statement, values), exclusive=False
        )

    def claim(self, crowd: FrozenCrowd) -> FrozenCrowd | None:
        """Claim a crowd and return its state; None if another process has it, or it ended."""
        if not self._database.is_shared:
            return crowd
        if not self._database.claim(_claim(crowd)):
            return None
        found: list[FrozenCrowd] = []
        try:
            found = [one for one in self.on_their_way() if one.number == crowd.number]
        finally:
            if not found:
                self.let_go(crowd)
        return found[0] if found else None

    def let_go(self, crowd: FrozenCrowd) -> None:
        self._database.unclaim(_claim(crowd))

    def crowd_key(self, crowd: FrozenCrowd) -> bytes:
        """Return the key under which a crowd is on the disk."""
        return self._database.read("read a crowd's key", lambda: self._crowd_key(crowd))

    def _crowd_key(self, crowd: FrozenCrowd) -> bytes:
        key = self._database.keys.key(crowd.plan_id, "crowd", crowd.number)
        if key is None:
            raise StorageError("the crowd has no key any more.")
        return key

    def reports(self, crowd: FrozenCrowd, after: int, most: int) -> tuple[list[bytes], int | None]:
        """Return the messages of some reports of a frozen crowd, and where to go on."""

        def work() -> tuple[list[bytes], int | None]:
            return read_rows(self._connection, self._crowd_key(crowd), crowd.number, after, most)

        return self._database.read("read reports of a frozen crowd", work)

    # Shuffles

    def begin_attempt(self, crowd: FrozenCrowd) -> bool:
        """Begin to shuffle a crowd; remove some chunks of earlier attempts, if there are any."""
        self._attempts[crowd.number] = SystemBits().draw(16)

        def work() -> bool:
            self._database.lock_plan(crowd.plan_id)  # `shuffled` may be choosing one of them
            removed = self._connection.execute(
                "DELETE FROM chunks WHERE number = ? AND (attempt, chunk) IN"
                " (SELECT attempt, chunk FROM chunks WHERE number ="
                " (SELECT number FROM crowds WHERE number = ? AND state = 'frozen') LIMIT ?)"
                " RETURNING chunk",
                (crowd.number, crowd.number, _CHUNKS_AT_ONCE),
            ).fetchall()
            return bool(removed)

        return self._database.run("begin a shuffle", work, exclusive=False)

    def add_chunk(self, crowd: FrozenCrowd, chunk: int, content: bytes) -> None:
        """Store a chunk of the attempt that was begun."""
        attempt = self._attempts[crowd.number]
        statement = "INSERT INTO chunks VALUES (?, ?, ?, ?)"
        self._change("store a chunk", statement, crowd.number, attempt, chunk, content)

    def chunk(self, crowd: FrozenCrowd, chunk: int) -> bytes:
        """Return a chunk of the attempt that is forwarded."""
        rows = self._connection.execute(
            "SELECT content FROM chunks JOIN crowds"
            " ON crowds.number = chunks.number AND crowds.attempt = chunks.attempt"
            " WHERE crowds.number = ? AND chunk = ?",
            (crowd.number, chunk),
        ).fetchall()
        if len(rows) != 1:
            raise StorageError("the crowd has no such chunk any more.")
        return bytes(rows[0][0])

    def shuffled(self, crowd: FrozenCrowd, chunks: int) -> bool:
        """State that a crowd's chunks are stored, to be forwarded; False if others are, or were."""
        number, attempt = crowd.number, self._attempts.pop(crowd.number, None)
        statement = (
            "UPDATE crowds SET state = 'shuffled', chunks = ?, attempt = ?"
            " WHERE number = ? AND state = 'frozen'"
        )
        values: tuple[object, ...] = (chunks, attempt, number)
        if attempt is not None:  # chunks are rows, and all of them must be there
            statement += " AND (SELECT count(*) FROM chunks WHERE number = ? AND attempt = ?) = ?"
            values += (number, attempt, chunks)

        def work() -> bool:
            self._database.lock_plan(crowd.plan_id)
            changed = self._connection.execute(f"{statement} RETURNING number", values).fetchall()
            if changed:
                self._leave_rows(number)
            return bool(changed)

        return self._database.run("note a shuffle", work, exclusive=False)

    def _leave_rows(self, number: int) -> None:
        """Let the rows of a crowd be removed, a few at a time."""
        statement = "INSERT INTO leftovers VALUES (?) ON CONFLICT DO NOTHING"
        self._connection.execute(statement, (number,))

    # Receipts

    def receipts(self, crowd: FrozenCrowd) -> set[int]:
        with storage_errors():
            query = "SELECT chunk FROM receipts WHERE number = ?"
            return {chunk for (chunk,) in self._connection.execute(query, (crowd.number,))}

    def keep_receipt(self, crowd: FrozenCrowd, chunk: int) -> None:
        """Remember that the analyzer has signed for a chunk."""
        statement = (
            "INSERT INTO receipts SELECT number, ? FROM crowds"
            " WHERE number = ? AND state = 'shuffled' ON CONFLICT DO NOTHING"
        )
        self._change("keep a receipt", statement, chunk, crowd.number)

    def forget_receipts(self, crowd: FrozenCrowd) -> None:
        """Forget the receipts of a crowd, so that the analyzer gets all chunks again."""
        self._change("forget receipts", "DELETE FROM receipts WHERE number = ?", crowd.number)

    # The end

    def end(self, crowd: FrozenCrowd, *, forwarded: bool) -> bool:
        """Destroy a crowd that the analyzer has, or refused for good; False if it had ended."""
        state = "forwarded" if forwarded else "discarded"
        changes = self._database.run(
            "end a crowd", lambda: self._end(crowd.number, state), new_key=True, scrub=True
        )
        if not forwarded:
            for change in changes:
                self._discarded(change.plan, change.discarded[0])
        return bool(changes)

    def _end(self, number: int, state: str) -> list[CrowdChange]:
        """End a crowd, in a transaction; return it, unless it had ended before."""
        plan_id, document, place = self._connection.execute(
            "SELECT plan, plans.document, place FROM crowds JOIN plans ON plans.id = crowds.plan"
            " WHERE number = ?",
            (number,),
        ).fetchone()
        changed = self._connection.execute(
            "UPDATE crowds SET state = ? WHERE number = ? AND state IN ('frozen', 'shuffled')"
            " RETURNING number",
            (state, number),
        ).fetchall()
        self._connection.execute("DELETE FROM receipts WHERE number = ?", (number,))
        self._leave_rows(number)
        self._database.keys.forget(plan_id, "crowd", number)
        ended = CrowdChange(read_plan(plan_id, document), (), [IncompleteCrowd(place, 100)])
        return [ended] if changed else []

    def discard_late(self, before_day: int) -> list[CrowdChange]:
        """Discard, in a transaction, crowds that the analyzer has not taken in time."""
        changes = []
        query = "SELECT number FROM crowds WHERE state IN ('frozen', 'shuffled') AND day < ?"
        for (number,) in self._connection.execute(query, (before_day,)).fetchall():
            changes += self._end(number, "discarded")
            self._connection.execute("INSERT INTO untold VALUES (?)", (number,))
        return changes

    def tidy(self) -> bool:
        """Remove some unneeded rows; return whether there may be more."""
        return self._database.run("tidy", self._tidy, exclusive=False)

    def _tidy(self) -> bool:
        if not self._database.claim("tidying", in_transaction=True):
            return False  # another relay does it
        removed = self._database.is_shared and self._tidy_shared()
        (number,) = self._connection.execute("SELECT min(number) FROM leftovers").fetchone()
        if number is None:
            return removed
        if not remove_rows(self._connection, number, _ROWS_AT_ONCE):
            self._connection.execute("DELETE FROM leftovers WHERE number = ?", (number,))
        return True

    def _tidy_shared(self) -> bool:
        removed = self._connection.execute(
            "DELETE FROM chunks WHERE (number, attempt, chunk) IN"
            " (SELECT number, attempt, chunk FROM chunks WHERE NOT EXISTS"
            " (SELECT 1 FROM crowds WHERE crowds.number = chunks.number AND (state = 'frozen'"
            " OR state = 'shuffled' AND crowds.attempt = chunks.attempt)) LIMIT ?)"
            " RETURNING number",
            (_CHUNKS_AT_ONCE,),
        ).fetchall()
        self._connection.execute(
            "DELETE FROM fills WHERE NOT EXISTS (SELECT 1 FROM crowds"
            " WHERE crowds.number = fills.number AND state = 'open')"
        )
        return bool(removed)


def _claim(crowd: FrozenCrowd) -> str:
    return f"forwarding {crowd.number}"
