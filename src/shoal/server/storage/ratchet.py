"""The root key of a shared database, which all collectors have and the database does not.

PostgreSQL keeps overwritten data in tables, logs, archives and replicas, and the difference of two
states of an open crowd is a report. So the key changes all the time, as in a folder (`encryption`).
Collectors communicate only through the database: each generation's key is computed from the one
before and a salt in the database, a one-way ratchet. A collector whose file is behind turns it on
and destroys the older key. A database that is older than the file is refused, and so is one whose
salts lead to another key.

A standby may lack commits. So the database also names the server's time line on which the key was
turned. A server that took over or was restored begins another one; it is refused, unless the old
one waited for standbys with each commit.

Limitation: anyone who copied the file once can follow the ratchet while they can read the database.
Only new keys (`renew`) end that.
"""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from shoal.errors import InputError
from shoal.protocol.random_bits import SystemBits
from shoal.server.storage.database import SqlConnection, StorageError
from shoal.server.storage.encryption import CROWD_KEY_FILE, name_of
from shoal.support.disk import Disk

KEPT = 100_000
"""Salts that the database keeps; with a sweep every 20 seconds, those of three weeks."""

_SALT = 16
_TIMELINE = 'left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) COLLATE "C"'
_LAST = (
    "SELECT number, name, (SELECT value FROM facts WHERE name = 'timeline' AND value <> ''"  # noqa: S608  fixed
    f" AND value < {_TIMELINE}) FROM generations ORDER BY number DESC LIMIT 1"
)
_NOTE_TIMELINE = (
    "INSERT INTO facts VALUES ('timeline', CASE current_setting('synchronous_standby_names')"  # noqa: S608  fixed
    f" WHEN '' THEN {_TIMELINE} ELSE '' END)"
    " ON CONFLICT (name) DO UPDATE SET value = excluded.value"
)
_RENEW = (
    "run shoal collector renew: then open crowds are discarded and plans without a window are"
    " closed."
)


class Step(NamedTuple):
    """The key of a generation."""

    generation: int
    key: bytes

    def next(self, salt: bytes) -> Step:
        key = blake2b(salt, key=self.key, digest_size=32, person=b"shoal ratchet").digest()
        return Step(self.generation + 1, key)


class Ratchet:
    """The root key of a shared database, in this process's file.

    `service` is the kind of service that shares it: "collector" or "relay".
    """

    def __init__(self, folder: Path, connection: SqlConnection, service: str = "collector") -> None:
        self._path, self._connection, self._service = folder / CROWD_KEY_FILE, connection, service
        self._way_out = (
            f"copy {CROWD_KEY_FILE} and signing-key from a {service} that runs. If there is none,"
            f" or if the database was restored from a backup, {_RENEW}"
        )
        self._filed = self._read() if self._path.exists() else None
        self._known = self._filed  # the newest that the database is known to have had
        self._now = self._filed

    def _read(self) -> Step:
        try:
            number, key = self._path.read_text("ascii").split()
            step = Step(int(number), bytes.fromhex(key))
        except (OSError, ValueError) as error:
            raise StorageError(f"{self._path} holds no key of a shared database.") from error
        if len(step.key) != 32:
            raise StorageError(f"{self._path} holds no key of a shared database.")
        return step

    def start(self) -> None:
        """Begin the keys of a new database, or find the present one, in a transaction."""
        last = self._last()
        if last is None:
            if self._filed is not None and self._filed.generation > 0:
                raise InputError(f"{self._path} belongs to other data than this database's.")
            self.begin()
        elif self._filed is None:
            raise InputError(
                f"the database is in use, and there is no {self._path}; {self._way_out}"
            )
        else:
            self.follow()

    def begin(self) -> None:
        """Make the first key; it is in the file before the database knows of it."""
        if self._filed is None:
            self._write(Step(0, SystemBits().draw(32)))
        assert self._filed is not None
        self._now = self._known = self._filed
        self._note(bytes(_SALT), self._now)

    def follow(self) -> None:
        """Turn the ratchet on to the generation of the database; refuse one that does not fit."""
        # Every transaction does this first: the server may have been replaced meanwhile, by one
        # that lacks what this collector has seen, whether or not its file has it.
        last, known = self._last(), self._known
        assert known is not None
        if last is None or last[0] < known.generation:
            raise StorageError(
                f"the database is older than {self._path}, or another; {self._way_out}"
            )
        generation, name, left = last
        if left is not None:
            raise StorageError(
                "the server was restored, or replaced by a standby that may lack commits; stop all"
                f" {self._service}s and {_RENEW}"
            )
        step = self._turned(known, generation)
        if name_of(step.key) != name:
            raise StorageError(f"{self._path} is not of this database; {self._way_out}")
        self._now = self._known = step

    def _last(self) -> tuple[int, bytes, str | None] | None:
        """Return the last generation, its name, and the time line that the server left, if any."""
        row: tuple[int, bytes, str | None] | None = self._connection.execute(_LAST).fetchone()
        return row

    def _turned(self, step: Step, generation: int) -> Step:
        if step.generation == generation:
            return step
        salts = self._connection.execute(
            "SELECT number, salt FROM generations WHERE number > ? ORDER BY number",
            (step.generation,),
        ).fetchall()
        if len(salts) != generation - step.generation:
            raise StorageError(
                f"{self._path} is older than the state in the database; {self._way_out}"
            )
        for _, salt in salts:
            step = step.next(salt)
        return step

    def rotate(self) -> tuple[bytes, bytes]:
        """Turn the ratchet by one; return the key before and the key now."""
        before = self._now
        assert before is not None
        salt = SystemBits().draw(_SALT)
        self._now = before.next(salt)
        self._note(salt, self._now)
        self._connection.execute(
            "DELETE FROM generations WHERE number <= ?", (self._now.generation - KEPT,)
        )
        self._connection.execute(_NOTE_TIMELINE)
        return before.key, self._now.key

    def _note(self, salt: bytes, step: Step) -> None:
        self._connection.execute(
            "INSERT INTO generations VALUES (?, ?, ?)", (step.generation, salt, name_of(step.key))
        )

    def settle(self, *, log_is_empty: bool = False) -> None:
        if self._now is not None and self._now != self._filed:
            self._write(self._now)

    def current(self) -> bytes:
        assert self._now is not None
        return self._now.key

    def _write(self, step: Step) -> None:
        content = f"{step.generation} {step.key.hex()}\n".encode()
        try:
            Disk().store(self._path, content, f"{self._path.name}.part")
        except OSError as error:
            raise StorageError(f"cannot write {self._path}: {error.strerror}.") from error
        self._filed = step
