"""The relay's store in PostgreSQL: the transactions of the store in a folder, shared.

Any relay may shuffle a frozen crowd, and any other may forward it. The chunks of a shuffle are rows
under a random name, its *attempt*. One transaction says which attempt is the crowd's, once and for
all, and only if all its chunks are there. Whoever comes later with another one discards it. So
always the same bytes are forwarded, whoever forwards them.

A claim is a lock of the connection: it ends with its holder. It only keeps relays from doing the
same work at the same time.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from shoal.protocol.random_bits import SystemBits
from shoal.server.relay.chunk_files import ChunkFiles
from shoal.server.relay.frozen_crowds import FrozenCrowd
from shoal.server.relay.open_plan import RelayPlan
from shoal.server.relay.postgres_crowd import SharedPool
from shoal.server.relay.postgres_schema import RELAY
from shoal.server.relay.store import RelayStore
from shoal.server.storage.database import StorageError
from shoal.server.storage.postgres.shared import SharedStore, lock_of

__all__ = ["ChunkRows", "PostgresRelayStore"]

_ATTEMPT = 16
_CHUNKS_AT_ONCE = 4
"""Chunks removed in one transaction."""


class PostgresRelayStore(SharedStore[RelayPlan], RelayStore):
    """Plans, open crowds and crowds on their way in a database that several relays share."""

    tables = RELAY

    def __init__(self, folder: Path, url: str, **options: Any) -> None:
        self._attempts: dict[int, bytes] = {}
        super().__init__(folder, url, **options)

    def _read_plan(self, plan_id: str) -> RelayPlan | None:
        return RelayPlan.read(self._database, self._keys, plan_id, SharedPool)

    # Claims

    def claim(self, crowd: FrozenCrowd) -> FrozenCrowd | None:
        """Take a crowd's way on for this relay; return it as it is now, or None."""
        query = "SELECT pg_try_advisory_lock(?)"
        (is_free,) = self._database.execute(query, (_claim_of(crowd),)).fetchone()
        if not is_free:
            return None
        found: list[FrozenCrowd] = []
        try:
            found = [one for one in self.on_their_way() if one.number == crowd.number]
        finally:
            if not found:
                self.let_go(crowd)
        return found[0] if found else None

    def let_go(self, crowd: FrozenCrowd) -> None:
        """End what `claim` began."""
        self._database.execute("SELECT pg_advisory_unlock(?)", (_claim_of(crowd),))

    # Shuffles

    def begin_attempt(self, crowd: FrozenCrowd) -> bool:
        """Begin to shuffle a crowd, after others that did not come to their end.

        Some of their chunks are removed; return whether there may be more, to do it again.
        """
        self._attempts[crowd.number] = SystemBits().draw(_ATTEMPT)
        with self._transaction(alone=False):
            self._lock_plan(crowd.plan_id)  # `shuffled` may be choosing one of them
            removed = self._database.execute(
                "DELETE FROM chunks WHERE number = ? AND (attempt, chunk) IN"
                " (SELECT attempt, chunk FROM chunks WHERE number ="
                " (SELECT number FROM crowds WHERE number = ? AND state = 'frozen') LIMIT ?)"
                " RETURNING chunk",
                (crowd.number, crowd.number, _CHUNKS_AT_ONCE),
            ).fetchall()
        return bool(removed)

    def add_chunk(self, crowd: FrozenCrowd, chunk: int, content: bytes) -> None:
        """Keep a chunk of the shuffle that was begun."""
        with self._transaction(alone=False):
            self._database.execute(
                "INSERT INTO chunks VALUES (?, ?, ?, ?)",
                (crowd.number, self._attempts[crowd.number], chunk, content),
            )

    def chunk(self, crowd: FrozenCrowd, chunk: int) -> bytes:
        """Return a chunk of the shuffle that is forwarded."""
        rows = self._database.execute(
            "SELECT content FROM chunks JOIN crowds"
            " ON crowds.number = chunks.number AND crowds.attempt = chunks.attempt"
            " WHERE crowds.number = ? AND chunk = ?",
            (crowd.number, chunk),
        ).fetchall()
        if len(rows) != 1:
            raise StorageError("the crowd has no such chunk any more.")
        return bytes(rows[0][0])

    def shuffled(self, crowd: FrozenCrowd, chunks: int) -> bool:
        """Let a shuffle be the crowd's for ever, unless another one is; return whether it is."""
        attempt = self._attempts.pop(crowd.number)
        with self._transaction(alone=False):
            self._lock_plan(crowd.plan_id)
            changed = self._database.execute(
                "UPDATE crowds SET state = 'shuffled', chunks = ?, attempt = ?"
                " WHERE number = ? AND state = 'frozen'"
                " AND (SELECT count(*) FROM chunks WHERE number = ? AND attempt = ?) = ?"
                " RETURNING number",
                (chunks, attempt, crowd.number, crowd.number, attempt, chunks),
            ).fetchall()
            if changed:
                self._leave_rows(crowd.number)
        return bool(changed)

    def _tidy(self) -> bool:
        query = "SELECT pg_try_advisory_xact_lock(?)"
        (is_free,) = self._database.execute(query, (lock_of("tidying"),)).fetchone()
        if not is_free:
            return False  # another relay does it
        removed = self._database.execute(
            "DELETE FROM chunks WHERE (number, attempt, chunk) IN"
            " (SELECT number, attempt, chunk FROM chunks WHERE NOT EXISTS"
            " (SELECT 1 FROM crowds WHERE crowds.number = chunks.number AND (state = 'frozen'"
            " OR state = 'shuffled' AND crowds.attempt = chunks.attempt)) LIMIT ?)"
            " RETURNING number",
            (_CHUNKS_AT_ONCE,),
        ).fetchall()
        self._database.execute(
            "DELETE FROM fills WHERE NOT EXISTS (SELECT 1 FROM crowds"
            " WHERE crowds.number = fills.number AND state = 'open')"
        )
        return super()._tidy() or bool(removed)


def _claim_of(crowd: FrozenCrowd) -> int:
    return lock_of(f"forwarding {crowd.number}")


class ChunkRows(ChunkFiles):
    """The chunks of all crowds on their way, in the database; the folder has a shuffle's buckets.

    Parameters
    ----------
    folder
        The folder of this relay.
    store, ask
        Where chunks are, and what runs a function on the store's thread and waits for it.
    """

    def __init__(self, folder: Path, store: PostgresRelayStore, ask: Callable[..., Any]) -> None:
        super().__init__(folder)
        self._store, self._ask = store, ask

    def _begin(self, crowd: FrozenCrowd) -> None:
        super()._begin(crowd)
        while self._ask(self._store.begin_attempt, crowd):
            pass

    def _put(self, crowd: FrozenCrowd, number: int, piece: bytes) -> None:
        self._ask(self._store.add_chunk, crowd, number, piece)

    def _get(self, crowd: FrozenCrowd, number: int) -> bytes:
        content: bytes = self._ask(self._store.chunk, crowd, number)
        return content
