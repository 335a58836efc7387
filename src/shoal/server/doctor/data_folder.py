"""Checks of a collector's data folder: permissions, file system and integrity."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

from shoal.errors import ShoalError
from shoal.server.core.clock import STEP
from shoal.server.doctor import Finding, Verdict
from shoal.server.storage.database import NAME, SqlConnection
from shoal.server.storage.encryption import CROWD_KEY_FILE
from shoal.server.storage.key_file import SIGNING_FILE, Signer
from shoal.server.storage.records import Records
from shoal.server.storage.schema import (
    COLLECTOR,
    VERSION,
    application_of,
    other_version,
    schema_name,
    version_of,
)
from shoal.server.storage.sqlite import LONGEST_LOG, log_size
from shoal.support.checks import is_loopback
from shoal.support.files import first_line

__all__ = ["check_database", "check_folder", "check_signatures", "public_key", "registered_relays"]

_OLDEST_SQLITE = (3, 35, 0)
_SECRETS = (
    NAME,
    f"{NAME}-wal",
    f"{NAME}-shm",
    SIGNING_FILE,
    CROWD_KEY_FILE,
    "oblivious-key",
    "admin-token",
)
_NETWORK = (
    *("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "lustre", "beegfs", "glusterfs"),
    *("fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.rclone", "fuse.ceph", "virtiofs"),
)
_FLEETING = ("tmpfs", "ramfs")
_LONG_LOG = 64 << 20


def check_folder(folder: Path, min_free_megabytes: int, url: str = "") -> Iterator[Finding]:
    """Check the folder and its files, or the database at a URL."""
    if not folder.is_dir():
        yield Finding(
            "folder", "fail", f"{folder} is not a folder.", "Name the one given to shoal serve."
        )
        return
    yield _private(folder, "folder", 0o700)
    if not os.access(folder, os.R_OK | os.X_OK):
        yield Finding(
            "owner", "fail", f"{folder} belongs to another user, so it was not checked.",
            f"Run it as its owner: sudo -u {_owner(folder)} shoal collector doctor ...",
        )  # fmt: skip
        return
    yield from _files(folder)
    yield _disk(folder, min_free_megabytes)
    yield _file_system(folder)
    yield _key(folder)
    yield from check_database(folder, url) if url else _database(folder)


def _private(path: Path, check: str, wanted: int) -> Finding:
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        sentence = f"Other users of this machine can read {path} (mode {mode:04o})."
        return Finding(check, "fail", sentence, f"chmod {wanted:o} {path}")
    return Finding(check, "ok", f"Only its owner can read {path}.")


def _files(folder: Path) -> Iterator[Finding]:
    for name in _SECRETS:
        if (folder / name).exists():
            yield _private(folder / name, name, 0o600)
    owners = {path.stat().st_uid for path in [folder, *folder.iterdir()] if path.exists()}
    if len(owners) > 1:
        yield Finding(
            "owner",
            "fail",
            f"The files in {folder} belong to {len(owners)} users, and one of them runs it.",
            f"chown -R that user {folder}",
        )


def _disk(folder: Path, spare: int) -> Finding:
    free = shutil.disk_usage(folder).free >> 20
    sentence = f"{free:,} MB are free; below {spare:,} MB no reports are accepted."
    verdict: Verdict = "fail" if free < spare else "warn" if free < max(10 * spare, 1024) else "ok"
    return Finding("disk", verdict, sentence, "" if verdict == "ok" else "Free some disk space.")


def _file_system(folder: Path) -> Finding:
    kind = _kind_of_file_system(folder)
    if kind is None:
        return Finding(
            "file system",
            "warn",
            "The kind of file system of the data is unknown on this system.",
            "Make sure it is a local one: locks and syncs may fail over a network.",
        )
    if kind in _NETWORK:
        return Finding(
            "file system",
            "fail",
            f"The data are on a network file system ({kind}), where locks and syncs may fail.",
            "Move them to a local disk.",
        )
    if kind in _FLEETING:
        return Finding(
            "file system",
            "fail",
            f"The data are in memory ({kind}) and are lost when the machine stops.",
            "Move them to a disk.",
        )
    if kind == "overlay":
        return Finding(
            "file system",
            "warn",
            "The data are in a container's own layer and are deleted with it.",
            "Mount a volume there.",
        )
    return Finding("file system", "ok", f"The data are on a local file system ({kind}).")


def _kind_of_file_system(folder: Path, table: str = "/proc/self/mountinfo") -> str | None:
    """Return the kind of file system that the last mount over the folder has, on Linux."""
    try:
        lines = Path(table).read_text("utf-8", "replace").splitlines()
    except OSError:
        return None
    place, file_system = folder.resolve(), None
    depth = -1
    for line in lines:
        before, _, after = line.partition(" - ")
        # Spaces and the like are written as octal numbers there.
        mount = Path(before.split()[4].encode().decode("unicode_escape"))
        if (place == mount or mount in place.parents) and len(mount.parts) >= depth:
            depth, file_system = len(mount.parts), after.split()[0]
    return file_system


def public_key(folder: Path) -> str | None:
    """Return the collector's public key, by which its addresses are known, if there is one."""
    with suppress(OSError, ShoalError):
        if (folder / SIGNING_FILE).exists():
            return Signer(folder).public_key
    return None


def registered_relays(folder: Path) -> int | None:
    """Return how many relays may forward to an analyzer; None if the data are not one's."""
    path = folder / NAME
    with suppress(OSError, sqlite3.Error):
        if path.exists() and not (hasattr(os, "geteuid") and path.stat().st_uid != os.geteuid()):
            uri = f"{path.resolve().as_uri()}?mode=ro"
            with closing(sqlite3.connect(uri, uri=True)) as database:
                role = database.execute("SELECT value FROM facts WHERE name = 'role'").fetchone()
                query = "SELECT count(*) FROM tokens WHERE role = 'relay' AND key IS NOT NULL"
                if role == ("analyzer",):
                    return int(database.execute(query).fetchone()[0])
    return None


def _key(folder: Path) -> Finding:
    if not (folder / SIGNING_FILE).exists():
        return Finding(
            "signing key",
            "fail",
            f"There is no {SIGNING_FILE} in {folder}; devices would not trust a new one.",
            "Start the collector once, or restore a backup.",
        )
    if public_key(folder) is None:
        sentence = f"{folder / SIGNING_FILE} holds no key."
        return Finding("signing key", "fail", sentence, "Restore a backup.")
    return Finding("signing key", "ok", "The key can be read.")


def _database(folder: Path) -> Iterator[Finding]:
    version = ".".join(map(str, sqlite3.sqlite_version_info))
    if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
        yield Finding("SQLite", "warn", f"SQLite {version} is from before 2021.", "Update it.")
    else:
        yield Finding("SQLite", "ok", f"SQLite has version {version}.")
    path = folder / NAME
    if not path.exists():
        yield Finding(
            "data", "fail", f"There is no {NAME} in {folder}.", "Start the collector once."
        )
        return
    if hasattr(os, "geteuid") and path.stat().st_uid != os.geteuid():
        # SQLite may make a file beside the database, which its owner could then not open.
        yield Finding(
            "data", "fail", "The data belong to another user, so they are not opened.",
            f"Run it as their owner: sudo -u {_owner(path)} shoal collector doctor ...",
        )  # fmt: skip
        return
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
            version = database.execute("PRAGMA user_version").fetchone()[0]
            journal = database.execute("PRAGMA journal_mode").fetchone()[0]
            damage = database.execute("PRAGMA quick_check(1)").fetchone()[0]
            signatures = []
            if (version, damage) == (VERSION, "ok") and application_of(
                path
            ) == COLLECTOR.application:
                signatures = list(check_signatures(database, folder))
    except (sqlite3.Error, ShoalError) as error:
        sentence = f"The data cannot be read: {first_line(error)}."
        yield Finding("data", "fail", sentence, "Restore a backup.")
        return
    if version != VERSION:
        sentence = f"The {other_version(version)}."
        yield Finding("data", "fail", sentence, "Use the Shoal that wrote them.")
    elif damage != "ok":
        yield Finding("data", "fail", f"The data are damaged: {damage}.", "Restore a backup.")
    elif journal != "wal":
        sentence = f"The database keeps a journal of kind {journal}, not a write-ahead log."
        yield Finding("data", "warn", sentence, "Start the collector; it changes that.")
    else:
        yield Finding("data", "ok", f"The data are intact and have version {version}.")
    yield from signatures
    yield from _log(folder)


def _log(folder: Path) -> Iterator[Finding]:
    size = log_size(folder)
    if size > _LONG_LOG:
        yield Finding(
            "log",
            "fail" if size > LONGEST_LOG else "warn",
            f"The write-ahead log has {size >> 20:,} MB, because another process keeps reading the"
            f" data; beyond {LONGEST_LOG >> 20:,} MB no reports are accepted.",
            f"End that process: fuser {folder / NAME}",
        )


def _owner(path: Path) -> str:
    try:
        return path.owner()
    except (KeyError, NotImplementedError):
        return str(path.stat().st_uid)


def check_database(folder: Path, url: str) -> Iterator[Finding]:
    """Check the database at a URL, and whether the folder has its key; nothing is changed."""
    try:
        from shoal.server.storage.postgres_connection import PostgresConnection

        with closing[SqlConnection](PostgresConnection(url)) as database:
            version = version_of(database)
            row = database.execute(
                "SELECT ssl, host(inet_server_addr()),"
                " extract(epoch FROM clock_timestamp())::float8"
                " FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
            ).fetchone()
            signatures = []
            if version == VERSION and schema_name(database) == COLLECTOR.name:
                signatures = list(check_signatures(database, folder))
    except ShoalError as error:
        sentence = f"The database cannot be used: {first_line(error)}"
        yield Finding("database", "fail", sentence, "Start PostgreSQL, or fix database.")
        return
    if version == 0:
        yield Finding(
            "database", "fail", "The database is empty.", "Start a collector or a relay once."
        )
    elif version != VERSION:
        sentence = f"The {other_version(version)}."
        yield Finding("database", "fail", sentence, "Use the Shoal that wrote them.")
    else:
        yield Finding("database", "ok", f"The database answers and has version {version}.")
    yield from signatures
    encrypted, address, there = row
    if encrypted or address is None or is_loopback(address):
        yield Finding(
            "database connection", "ok", "The connection to the database is encrypted or local."
        )
    else:
        sentence = "The connection to the database is not encrypted, and it carries tokens' hashes."
        yield Finding(
            "database connection", "fail", sentence, "Add ?sslmode=verify-full to database."
        )
    if abs(there - time.time()) > STEP:
        sentence = f"The clock here and the database's differ by {abs(there - time.time()):.0f} s."
        yield Finding("database clock", "fail", sentence, "Set both, for example with NTP.")
    if not (folder / CROWD_KEY_FILE).exists():
        yield Finding(
            CROWD_KEY_FILE, "fail", f"There is no {CROWD_KEY_FILE} in {folder}.",
            "Copy it from another one, or start the first one once.",
        )  # fmt: skip


def check_signatures(database: SqlConnection, folder: Path) -> Iterator[Finding]:
    """Check that stored plans, certificates and releases match their ids and signatures."""
    if not (folder / SIGNING_FILE).exists():
        return  # another finding says so
    found = Records(database, folder).unverified()
    if found:
        more = f" There are {len(found) - 1:,} more." if len(found) > 1 else ""
        sentence = found[0].removesuffix(" Restore a backup.")
        yield Finding(
            "signatures", "fail", f"{sentence[0].upper()}{sentence[1:]}{more}", "Restore a backup."
        )
    else:
        yield Finding("signatures", "ok", "Stored plans and releases match their signatures.")
