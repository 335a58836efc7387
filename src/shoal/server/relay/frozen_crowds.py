"""Crowds whose reports stay the same: on their way to the analyzer, and what they leave behind."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from shoal.protocol.encryption import CrowdKey
from shoal.server.relay.encrypted_pool import read_rows, remove_rows
from shoal.server.relay.open_plan import RelayPlan
from shoal.server.storage.database import Database, StorageError, storage_errors
from shoal.server.storage.keyed_store import KeyedStore

__all__ = ["DATA_NAME", "DiscardedCrowd", "FrozenCrowd", "FrozenCrowds", "forget_crowds"]

DATA_NAME = "data"
"""The fact that is the random name of these data; the analyzer gives each crowd's key to one."""

_REMOVED_AT_ONCE = 2000
"""Rows removed in one transaction, so that reports do not wait for the end of a large crowd."""


@dataclass(frozen=True)
class FrozenCrowd:
    """A crowd whose reports stay the same, on its way to the analyzer.

    `place` is its number in the window. `chunks` is how many it was cut into; None before that.
    """

    number: int
    plan_id: str
    window: int
    place: int
    key: CrowdKey
    chunks: int | None


@dataclass(frozen=True)
class DiscardedCrowd:
    """A crowd that was discarded, by the names that the analyzer knows it by."""

    number: int
    plan_id: str
    window: int
    place: int


class FrozenCrowds(KeyedStore[RelayPlan]):
    """The part of a relay's store that has crowds on their way."""

    @abstractmethod
    def _tell_given_up(self, plan_id: str) -> None:
        """Tell that a whole crowd was given up."""

    def on_their_way(self) -> list[FrozenCrowd]:
        """Return the crowds that are frozen and not yet forwarded, the oldest first."""
        with storage_errors():
            rows = self._database.execute(
                "SELECT number, plan, window, place, document, chunks FROM crowds"
                " WHERE state IN ('frozen', 'shuffled') ORDER BY number"
            ).fetchall()
        return [
            FrozenCrowd(number, plan_id, window, place, CrowdKey.from_bytes(document), chunks)
            for number, plan_id, window, place, document, chunks in rows
        ]

    def waiting(self) -> int:
        """Return how many complete crowds have not arrived yet."""
        with storage_errors():
            query = "SELECT count(*) FROM crowds WHERE state IN ('frozen', 'shuffled')"
            return int(self._database.execute(query).fetchone()[0])

    def untold(self) -> list[DiscardedCrowd]:
        """Return the discarded crowds of which the analyzer has not been told yet."""
        with storage_errors():
            rows = self._database.execute(
                "SELECT crowds.number, plan, window, place FROM crowds"
                " JOIN untold ON untold.number = crowds.number ORDER BY crowds.number"
            ).fetchall()
        return [DiscardedCrowd(*row) for row in rows]

    def told(self, crowd: DiscardedCrowd) -> None:
        """Note that the analyzer knows that a crowd was discarded."""
        with self._transaction(alone=False):
            self._database.execute("DELETE FROM untold WHERE number = ?", (crowd.number,))

    def claim(self, crowd: FrozenCrowd) -> FrozenCrowd | None:
        """Take a crowd's way on for this process; return it as it is now, or None.

        None says that another process has it under way, or that it has ended. Data in a folder
        have no other process.
        """
        return crowd

    def let_go(self, crowd: FrozenCrowd) -> None:
        """End what `claim` began."""

    def crowd_key(self, crowd: FrozenCrowd) -> bytes:
        """Return the key under which a crowd is on the disk."""
        with self._reading():
            return self._crowd_key(crowd)

    def _crowd_key(self, crowd: FrozenCrowd) -> bytes:
        key = self._keys.key(crowd.plan_id, "crowd", crowd.number)
        if key is None:
            raise StorageError("the crowd has no key any more.")
        return key

    def reports(self, crowd: FrozenCrowd, after: int, most: int) -> tuple[list[bytes], int | None]:
        """Return the messages of some reports of a frozen crowd, and where to go on."""
        with self._reading():
            return read_rows(self._database, self._crowd_key(crowd), crowd.number, after, most)

    def shuffled(self, crowd: FrozenCrowd, chunks: int) -> bool:
        """State that a crowd's chunks are on the disk: they are what is forwarded, for ever.

        Return False if it was shuffled elsewhere: then other chunks are forwarded, or were.
        """
        with self._transaction():
            changed = self._database.execute(
                "UPDATE crowds SET state = 'shuffled', chunks = ?"
                " WHERE number = ? AND state = 'frozen' RETURNING number",
                (chunks, crowd.number),
            ).fetchall()
            self._leave_rows(crowd.number)
        return bool(changed)

    def _leave_rows(self, number: int) -> None:
        """Let the rows of a crowd be removed, a few at a time."""
        self._database.execute("INSERT INTO leftovers VALUES (?) ON CONFLICT DO NOTHING", (number,))

    def receipts(self, crowd: FrozenCrowd) -> set[int]:
        """Return the chunks of a crowd that the analyzer has signed for."""
        with storage_errors():
            query = "SELECT chunk FROM receipts WHERE number = ?"
            return {chunk for (chunk,) in self._database.execute(query, (crowd.number,))}

    def keep_receipt(self, crowd: FrozenCrowd, chunk: int) -> None:
        """Remember that the analyzer has signed for a chunk."""
        with self._transaction(alone=False):
            self._database.execute(
                "INSERT INTO receipts SELECT number, ? FROM crowds"
                " WHERE number = ? AND state = 'shuffled' ON CONFLICT DO NOTHING",
                (chunk, crowd.number),
            )

    def forget_receipts(self, crowd: FrozenCrowd) -> None:
        """Forget what the analyzer signed for, so that it gets all chunks again."""
        with self._transaction(alone=False):
            self._database.execute("DELETE FROM receipts WHERE number = ?", (crowd.number,))

    def end(self, crowd: FrozenCrowd, *, forwarded: bool) -> bool:
        """Destroy what the disk holds of a crowd: the analyzer has it, or refused it for good.

        Return whether it had not ended before.
        """
        with self._changing_key(scrub=True):
            ended = self._end(crowd.number, "forwarded" if forwarded else "given up")
        if ended and not forwarded:
            self._tell_given_up(crowd.plan_id)
        return ended

    def _end(self, number: int, state: str) -> bool:
        (plan_id,) = self._database.execute(
            "SELECT plan FROM crowds WHERE number = ?", (number,)
        ).fetchone()
        changed = self._database.execute(
            "UPDATE crowds SET state = ? WHERE number = ? AND state IN ('frozen', 'shuffled')"
            " RETURNING number",
            (state, number),
        ).fetchall()
        self._database.execute("DELETE FROM receipts WHERE number = ?", (number,))
        self._leave_rows(number)
        self._keys.forget(plan_id, "crowd", number)
        return bool(changed)

    def _late(self, before_day: int) -> list[str]:
        """Give up crowds that the analyzer has not taken in time."""
        old = self._database.execute(
            "SELECT number, plan FROM crowds WHERE state IN ('frozen', 'shuffled') AND day < ?",
            (before_day,),
        ).fetchall()
        for number, _ in old:
            self._end(number, "given up")
            self._database.execute("INSERT INTO untold VALUES (?)", (number,))
        return [plan_id for _, plan_id in old]

    # What is left behind

    def tidy(self) -> bool:
        """Remove some rows that nobody needs any more; tell whether there may be others."""
        with self._transaction(alone=False):
            return self._tidy()

    def _tidy(self) -> bool:
        row = self._database.execute("SELECT min(number) FROM leftovers").fetchone()
        if row[0] is None:
            return False
        if not remove_rows(self._database, row[0], _REMOVED_AT_ONCE):
            self._database.execute("DELETE FROM leftovers WHERE number = ?", row)
        return True

    def with_chunks(self) -> set[int]:
        """Return the numbers of the crowds whose chunks are needed."""
        with storage_errors():
            query = "SELECT number FROM crowds WHERE state = 'shuffled'"
            return {number for (number,) in self._database.execute(query)}


def forget_crowds(database: Database) -> None:
    """Give up all crowds that have not arrived, none of which can be read any more."""
    under_way = "state IN ('open', 'frozen', 'shuffled')"
    database.execute(
        f"INSERT INTO leftovers SELECT number FROM crowds WHERE {under_way} ON CONFLICT DO NOTHING"  # noqa: S608  fixed
    )
    database.execute(
        f"INSERT INTO untold SELECT number FROM crowds WHERE {under_way} ON CONFLICT DO NOTHING"  # noqa: S608  fixed
    )
    database.execute(
        f"UPDATE crowds SET state = 'given up', tenths = coalesce(tenths, 0) WHERE {under_way}"  # noqa: S608  fixed
    )
    for table in ("seen", "wrapped_keys", "receipts"):
        database.execute(f"DELETE FROM {table}")  # noqa: S608  three names
    # From here on these are other data: they get no key that was given to those before.
    database.execute("DELETE FROM facts WHERE name = ?", (DATA_NAME,))
