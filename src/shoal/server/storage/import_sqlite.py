"""Moves the data of a folder to PostgreSQL: plans, tokens, releases, and open crowds exactly.

Encrypted counts and digests are copied unchanged, and their keys are wrapped anew. The folder is
marked with the database's identity before anything is copied, and no collector starts in it again:
two that went on from the same state could release the same report twice. An interrupted move goes
on with the same command, to the same database only.
"""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from shoal.errors import InputError
from shoal.protocol.random_bits import SystemBits
from shoal.server.core.notifications import SMTP_PASSWORD, WEBHOOK_SECRET
from shoal.server.core.tokens import TOKEN_FILE
from shoal.server.storage.database import (
    NAME,
    SqlConnection,
    data_lock,
    read_fact,
    storage_errors,
    transaction,
    write_fact,
)
from shoal.server.storage.encryption import CROWD_KEY_FILE, FileKey, Keyring, generation_without_log
from shoal.server.storage.key_file import SIGNING_FILE
from shoal.server.storage.postgres import Ratchet, lock_all
from shoal.server.storage.postgres_connection import PostgresConnection
from shoal.server.storage.recovery import check_whole
from shoal.server.storage.schema import COLLECTOR, copy_rows, make_tables
from shoal.server.storage.sqlite import MOVED, open_database
from shoal.support.disk import Disk

_TABLES = ("plans", "tokens", "crowds", "signatures", "counts", "seen", "notices")
_FILES = (SIGNING_FILE, TOKEN_FILE, "oblivious-key", WEBHOOK_SECRET, SMTP_PASSWORD)
_ACTIONS = "SELECT minute, actor, action, subject FROM actions ORDER BY id"
_FACTS = ("signer", "restored", "time", "origin", "boot", "origins", "public_plans")


class Move(NamedTuple):
    """What was moved: how many plans, releases and open crowds."""

    plans: int
    released: int
    open: int


def move(source: Path, folder: Path, url: str) -> Move:
    """Move a collector that does not run to a database that holds none."""
    if source.resolve() == folder.resolve():
        raise InputError("name a new folder for the keys; the old one keeps the old data.")
    check_whole(source)
    with storage_errors():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        without_log = generation_without_log(source / NAME)
    with data_lock(source), data_lock(folder):
        old = open_database(source / NAME, create=False)
        with closing(old), closing(PostgresConnection(url)) as new:
            if read_fact(old, "role") is not None:
                raise InputError("only the data of a collector can be moved.")
            mark, target = read_fact(old, MOVED), _identity(new)
            if mark is not None and mark.partition(" ")[2] != target:
                raise InputError(
                    f"{source} was being moved to another database, which may hold its data by now;"
                    " name that one."
                )
            if mark is None or not _has_arrived(new, mark):
                _check_new(folder, is_first=mark is None)
                root = FileKey(source, old)
                root.check(without_log)
                if root.is_lost:
                    raise InputError(f"{source} has no {CROWD_KEY_FILE}; start the collector once.")
                _check_empty(new)
                if mark is None:
                    mark = f"m{SystemBits().draw(16).hex()} {target}"
                    with transaction(old):
                        write_fact(old, MOVED, mark)
                for name in _FILES:
                    if (source / name).exists():
                        shutil.copy2(source / name, folder / name)
                _copy(old, new, Keyring(old, root), folder, mark)
            _settle(folder, new)
            with storage_errors():  # without it nobody reads what the old folder says of crowds
                Disk().remove(source / CROWD_KEY_FILE)
            return _counted(new)


def _identity(new: SqlConnection) -> str:
    """Return a unique identity of a database, independent of the URL that leads to it."""
    query = (
        "SELECT system_identifier, oid, current_schema() FROM pg_control_system(), pg_database"
        " WHERE datname = current_database()"
    )
    return " ".join(map(str, new.execute(query).fetchone()))


def _settle(folder: Path, new: SqlConnection) -> None:
    """Turn the new file on: a key of the first generation would begin an empty database."""
    keys = Ratchet(folder, new)
    with transaction(new):
        lock_all(new)
        keys.start()
    keys.settle()


def _has_arrived(new: SqlConnection, mark: str) -> bool:
    """Whether the data were copied before, by a command that did not come to its end."""
    (exists,) = new.execute("SELECT to_regclass('facts') IS NOT NULL").fetchone()
    return bool(exists) and read_fact(new, "moved_from") == mark


def _check_empty(new: SqlConnection) -> None:
    (exists,) = new.execute("SELECT to_regclass('generations') IS NOT NULL").fetchone()
    if exists and new.execute("SELECT 1 FROM generations").fetchone():
        raise InputError("the database holds a collector's data; name an empty one.")


def _check_new(folder: Path, *, is_first: bool) -> None:
    for name in (NAME, SIGNING_FILE, CROWD_KEY_FILE):
        if (folder / name).exists() and is_first:
            raise InputError(f"{folder} holds a collector's {name}; name a new folder.")
    (folder / CROWD_KEY_FILE).unlink(missing_ok=True)  # of a move that did not come to its end


def _copy(old: SqlConnection, new: SqlConnection, keys: Keyring, folder: Path, mark: str) -> None:
    with transaction(new):
        lock_all(new)
        make_tables(new, COLLECTOR)
        _check_empty(new)
        ratchet = Ratchet(folder, new)
        ratchet.begin()
        wrapping = Keyring(new, ratchet)
        for table in _TABLES:
            # In the order of their keys, which says nothing about when rows were made.
            copy_rows(old, new, table, f"SELECT * FROM {table} ORDER BY 1, 2, 3")  # noqa: S608  fixed
        copy_rows(old, new, "actions", _ACTIONS)
        copy_rows(old, new, "unannounced", "SELECT plan, number FROM unannounced")
        for name in _FACTS:
            if (value := read_fact(old, name)) is not None:
                write_fact(new, name, value)
        places = old.execute("SELECT plan, kind, number FROM wrapped_keys").fetchall()
        for plan_id, kind, number in places:
            key = keys.key(plan_id, kind, number)
            assert key is not None
            wrapping.wrap(plan_id, kind, number, key, SystemBits().draw(16))
        wrapping.rotate()
        write_fact(new, "moved_from", mark)


def _counted(new: SqlConnection) -> Move:
    (plans,) = new.execute("SELECT count(*) FROM plans").fetchone()
    states = dict(new.execute("SELECT state, count(*) FROM crowds GROUP BY state").fetchall())
    return Move(plans, states.get("released", 0), states.get("open", 0))
