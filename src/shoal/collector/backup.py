"""Backup and restore: plans, sealed crowds, tokens and the signing key, in one file.

Of an open crowd a backup has how many tenths of it there were, and neither its counts nor which
reports have come. After a restore they could do harm only. The collector may have gone on after the
backup was made, so reports that it counted then could be counted again, in a second crowd; two
releases that overlap can be told apart, and each hides less than it promises. So a restore gives
open crowds up, closes plans that have no window, and takes reports of the others only from the
first window that nobody can have sent a report for.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from shoal._disk import Disk
from shoal.collector.database import (
    NAME,
    VERSION,
    StorageError,
    locked,
    open_database,
    told,
    transaction,
)
from shoal.collector.signing import KEY_FILE, private_file
from shoal.collector.tokens import TOKEN_FILE, Tokens
from shoal.errors import InputError
from shoal.plans import Plan

__all__ = ["Restored", "back_up", "restore"]


def back_up(folder: Path, target: Path, *, clock: Callable[[], float] = time.time) -> Path:
    """Write a backup while the collector runs, or while it does not, and return its path.

    Parameters
    ----------
    folder
        The collector's data.
    target
        A new file, or a folder in which one is made and named after the time.
    clock
        Seconds since 1970.
    """
    if not (folder / NAME).exists():
        raise InputError(f"there is no collector's data at {folder / NAME}.")
    now = int(clock())
    if target.is_dir():
        target = target / time.strftime("shoal-%Y%m%dT%H%M%SZ.backup", time.gmtime(now))
    if target.exists():
        raise InputError(f"{target} is there already; name another file.")
    with _part_of(target) as part:
        key = (folder / KEY_FILE).read_text()
        source = sqlite3.connect(
            f"{(folder / NAME).absolute().as_uri()}?mode=ro", uri=True, isolation_level=None
        )
        with closing(source), closing(open_database(part)) as copy:
            _check_version(source, VERSION, f"{folder / NAME} is not this Shoal's data.")
            with transaction(copy):
                source.execute("BEGIN")  # one state of the data, whatever is written meanwhile
                _copy(source, copy)
                copy.execute("CREATE TABLE backup (made INTEGER, signing_key TEXT)")
                copy.execute("INSERT INTO backup VALUES (?, ?)", (now, key))
                copy.execute(f"PRAGMA user_version = {-VERSION}")
            copy.execute("PRAGMA journal_mode = DELETE")  # one file, without a log beside it
    return target


def _copy(source: sqlite3.Connection, copy: sqlite3.Connection) -> None:
    needed = {}
    for row in source.execute("SELECT id, state, document, certificate, oldest_window FROM plans"):
        copy.execute("INSERT INTO plans VALUES (?, ?, ?, ?, ?)", row)
        needed[row[0]] = Plan.from_json(json.loads(row[2])).reports_needed
    columns = "plan, number, window, state, opened_day, reports, tenths, release"
    for row in source.execute(f"SELECT {columns} FROM epochs"):  # noqa: S608  names
        plan, number, window, state, opened, reports = row[:6]
        if state == "open":
            tenths = math.floor(10 * reports / needed[plan])
            row = (plan, number, window, "given up", opened, 0, tenths, None)
        copy.execute("INSERT INTO epochs VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
    for row in source.execute("SELECT id, role, digest, label FROM tokens"):
        copy.execute("INSERT INTO tokens VALUES (?, ?, ?, ?)", row)


@dataclass(frozen=True)
class Restored:
    """What became of the plans that took reports.

    `closed` are the ids of those that take none any more; `waiting` maps the others to the second,
    since 1970, from which their windows are open again.
    """

    closed: list[str] = field(default_factory=list)
    waiting: dict[str, int] = field(default_factory=dict)


def restore(source: Path, folder: Path, *, clock: Callable[[], float] = time.time) -> Restored:
    """Make a collector's data of a backup, in a folder that holds none.

    The collector that was backed up must not run again. A new admin token is written to the folder;
    the tokens of the backup hold too, those included that were taken away since.
    """
    if not source.is_file():
        raise InputError(f"there is no backup at {source}.")
    now = int(clock())
    with told():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with locked(folder):
        _check_empty(folder)
        with _part_of(folder / NAME) as part:
            with part.open("wb") as file, source.open("rb") as held:
                shutil.copyfileobj(held, file)
            with closing(sqlite3.connect(part, isolation_level=None)) as database:
                _check_version(database, -VERSION, f"{source} is not a backup of this Shoal.")
                made, key = database.execute("SELECT made, signing_key FROM backup").fetchone()
                if now < made:
                    raise InputError("the backup was made later than now; set the clock right.")
                secret = Tokens.new_secret("admin")
                database.execute("PRAGMA secure_delete = ON")
                with transaction(database):
                    restored = _go_on(database, now)
                    database.execute("DROP TABLE backup")
                    database.execute(f"PRAGMA user_version = {VERSION}")
                Tokens(database).make("admin", "restored", secret)
            try:
                private_file(folder / KEY_FILE, key)
                private_file(folder / TOKEN_FILE, f"{secret}\n")
            except BaseException:
                _remove_secrets(folder)
                raise
    return restored


def _go_on(database: sqlite3.Connection, now: int) -> Restored:
    """Close what could count a report twice."""
    restored = Restored()
    taking = "SELECT id, document, oldest_window FROM plans WHERE state IN ('published', 'paused')"
    for plan_id, document, oldest in database.execute(taking).fetchall():
        window = Plan.from_json(json.loads(document)).window
        if window is None:
            database.execute("UPDATE plans SET state = 'closed' WHERE id = ?", (plan_id,))
            restored.closed.append(plan_id)
            continue
        # Devices whose clock is ahead may have sent reports of the next window already.
        first = max(oldest, now // window + 2)
        database.execute("UPDATE plans SET oldest_window = ? WHERE id = ?", (first, plan_id))
        restored.waiting[plan_id] = first * window
    return restored


def _check_version(database: sqlite3.Connection, wanted: int, otherwise: str) -> None:
    with told():
        try:
            version = database.execute("PRAGMA user_version").fetchone()[0]
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_NOTADB:
                raise
            raise InputError(otherwise) from error
        if version != wanted:
            raise InputError(otherwise)
        damage = database.execute("PRAGMA quick_check(1)").fetchone()[0]
        if damage != "ok":
            raise StorageError(f"the data are damaged: {damage}.")


def _check_empty(folder: Path) -> None:
    if (folder / f"{NAME}.part").exists() and not (folder / NAME).exists():
        _remove_secrets(folder)  # of a restore that did not come to its end
    # A log that is left of other data would be taken for the new one's.
    for name in (NAME, f"{NAME}-wal", f"{NAME}-shm", KEY_FILE, TOKEN_FILE):
        if (folder / name).exists():
            raise InputError(f"{folder} holds a collector's {name}; restore into a new folder.")


def _remove_secrets(folder: Path) -> None:
    for name in (KEY_FILE, TOKEN_FILE):
        (folder / name).unlink(missing_ok=True)


@contextmanager
def _part_of(path: Path) -> Iterator[Path]:
    """Yield a private file to write to; it gets its name when all is well and goes otherwise."""
    disk, part = Disk(), path.with_name(f"{path.name}.part")
    with told():
        _remove(part)  # of a process that was killed
        os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        try:
            yield part
            disk.sync_file(part)
            disk.replace(part, path)
            disk.sync_folder(path.parent)
        except BaseException:
            _remove(part)
            raise


def _remove(part: Path) -> None:
    """Remove a database and what SQLite leaves beside it, which would be taken for a new one's."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        part.with_name(part.name + suffix).unlink(missing_ok=True)
