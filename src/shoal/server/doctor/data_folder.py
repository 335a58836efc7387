"""Checks of a collector's data folder: permissions, file system and integrity."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from shoal.errors import ShoalError
from shoal.server.core.clock import STEP
from shoal.server.core.notifications import SMTP_PASSWORD, WEBHOOK_SECRET
from shoal.server.doctor import Finding, Verdict, fail, ok, warn
from shoal.server.relay.store import RELAY
from shoal.server.storage.database import NAME, SqlConnection, read_fact
from shoal.server.storage.encryption import CROWD_KEY_FILE
from shoal.server.storage.key_file import EXCHANGE_FILE, OBLIVIOUS_FILE, SIGNING_FILE, Signer
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

_OLDEST_SQLITE = (3, 35, 0)
_SECRETS = (
    NAME,
    f"{NAME}-wal",
    f"{NAME}-shm",
    SIGNING_FILE,
    CROWD_KEY_FILE,
    OBLIVIOUS_FILE,
    EXCHANGE_FILE,
    "admin-token",
    WEBHOOK_SECRET,
    SMTP_PASSWORD,
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
        yield fail("folder", f"{folder} is not a folder.", "Name the one given to shoal serve.")
        return
    yield _private(folder, "folder", 0o700)
    if not os.access(folder, os.R_OK | os.X_OK):
        sentence = f"{folder} belongs to another user, so it was not checked."
        yield fail("owner", sentence, _run_as_owner(folder))
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
        return fail(check, sentence, f"chmod {wanted:o} {path}")
    return ok(check, f"Only its owner can read {path}.")


def _run_as_owner(path: Path) -> str:
    try:
        owner = path.owner()
    except (KeyError, NotImplementedError):
        owner = str(path.stat().st_uid)
    return f"Run it as the owner: sudo -u {owner} shoal collector doctor ..."


def _files(folder: Path) -> Iterator[Finding]:
    for name in _SECRETS:
        if (folder / name).exists():
            yield _private(folder / name, name, 0o600)
    owners = {path.stat().st_uid for path in [folder, *folder.iterdir()] if path.exists()}
    if len(owners) > 1:
        sentence = f"The files in {folder} belong to {len(owners)} users, and one of them runs it."
        yield fail("owner", sentence, f"chown -R that user {folder}")


def _disk(folder: Path, spare: int) -> Finding:
    free = shutil.disk_usage(folder).free >> 20
    sentence = f"{free:,} MB are free; below {spare:,} MB no reports are accepted."
    verdict: Verdict = "fail" if free < spare else "warn" if free < max(10 * spare, 1024) else "ok"
    return Finding("disk", verdict, sentence, "" if verdict == "ok" else "Free some disk space.")


def _file_system(folder: Path) -> Finding:
    kind, check = _kind_of_file_system(folder), "file system"
    if kind is None:
        sentence = "The kind of file system of the data is unknown on this system."
        way_out = "Make sure it is a local one: locks and syncs may fail over a network."
        return warn(check, sentence, way_out)
    if kind in _NETWORK:
        sentence = (
            f"The data are on a network file system ({kind}), where locks and syncs may fail."
        )
        return fail(check, sentence, "Move them to a local disk.")
    if kind in _FLEETING:
        sentence = f"The data are in memory ({kind}) and are lost when the machine stops."
        return fail(check, sentence, "Move them to a disk.")
    if kind == "overlay":
        sentence = "The data are in a container's own layer and are deleted with it."
        return warn(check, sentence, "Mount a volume there.")
    return ok(check, f"The data are on a local file system ({kind}).")


def _kind_of_file_system(folder: Path, table: str = "/proc/self/mountinfo") -> str | None:
    """Return the kind of the file system that holds the folder, on Linux."""
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
    if role_of(folder) != "analyzer":
        return None
    query = "SELECT count(*) FROM tokens WHERE role = 'relay' AND key IS NOT NULL"
    with suppress(sqlite3.Error), _opened(folder) as database:
        return int(database.execute(query).fetchone()[0])
    return None


def role_of(folder: Path, url: str = "") -> str | None:
    """Return the role that data in a folder or at a URL name; a collector's name none."""
    path = folder / NAME
    with suppress(OSError, sqlite3.Error, ShoalError):
        if url or (path.exists() and _is_own(path)):
            with _opened(folder, url) as database:
                is_relay = schema_name(database) == RELAY.name
                return RELAY.name if is_relay else read_fact(database, "role")
    return None


@contextmanager
def _opened(folder: Path, url: str = "") -> Iterator[SqlConnection]:
    """Open the data in a folder, which are not changed, or at a URL."""
    if url:
        from shoal.server.storage.postgres_connection import PostgresConnection

        with closing[SqlConnection](PostgresConnection(url)) as shared:
            yield shared
        return
    file = f"{(folder / NAME).resolve().as_uri()}?mode=ro"
    with closing(sqlite3.connect(file, uri=True)) as database:
        yield database


def _is_own(path: Path) -> bool:
    """Whether the data belong to this user; SQLite may make files that others could not open."""
    return not hasattr(os, "geteuid") or path.stat().st_uid == os.geteuid()


def _key(folder: Path) -> Finding:
    if not (folder / SIGNING_FILE).exists():
        sentence = f"There is no {SIGNING_FILE} in {folder}; devices would not trust a new one."
        return fail("signing key", sentence, "Start the collector once, or restore a backup.")
    if public_key(folder) is None:
        return fail("signing key", f"{folder / SIGNING_FILE} holds no key.", "Restore a backup.")
    return ok("signing key", "The key can be read.")


def _database(folder: Path) -> Iterator[Finding]:
    if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
        sentence = f"SQLite {sqlite3.sqlite_version} is from before 2021."
        yield warn("SQLite", sentence, "Update it.")
    else:
        yield ok("SQLite", f"SQLite has version {sqlite3.sqlite_version}.")
    path = folder / NAME
    if not path.exists():
        yield fail("data", f"There is no {NAME} in {folder}.", "Start the collector once.")
        return
    if not _is_own(path):
        sentence = "The data belong to another user, so they are not opened."
        yield fail("data", sentence, _run_as_owner(path))
        return
    try:
        with _opened(folder) as database:
            version, journal, damage = (
                database.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("user_version", "journal_mode", "quick_check(1)")
            )
            signatures = []
            is_whole = (version, damage) == (VERSION, "ok")
            if is_whole and application_of(path) == COLLECTOR.application:
                signatures = list(check_signatures(database, folder))
    except (sqlite3.Error, ShoalError) as error:
        yield fail("data", f"The data cannot be read: {first_line(error)}.", "Restore a backup.")
        return
    if version != VERSION:
        yield _wrong_version("data", version)
    elif damage != "ok":
        yield fail("data", f"The data are damaged: {damage}.", "Restore a backup.")
    elif journal != "wal":
        sentence = f"The database keeps a journal of kind {journal}, not a write-ahead log."
        yield warn("data", sentence, "Start the collector; it changes that.")
    else:
        yield ok("data", f"The data are intact and have version {version}.")
    yield from signatures
    size = log_size(folder)
    if size > _LONG_LOG:
        yield Finding(
            "log",
            "fail" if size > LONGEST_LOG else "warn",
            f"The write-ahead log has {size >> 20:,} MB, because another process keeps reading the"
            f" data; beyond {LONGEST_LOG >> 20:,} MB no reports are accepted.",
            f"End that process: fuser {folder / NAME}",
        )


def _wrong_version(check: str, version: int) -> Finding:
    return fail(check, f"The {other_version(version)}.", "Use the Shoal that wrote them.")


def check_database(folder: Path, url: str) -> Iterator[Finding]:
    """Check the database at a URL, and whether the folder has its key; nothing is changed."""
    try:
        with _opened(folder, url) as database:
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
        yield fail("database", sentence, "Start PostgreSQL, or fix database.")
        return
    if version == 0:
        yield fail("database", "The database is empty.", "Start a collector or a relay once.")
    elif version != VERSION:
        yield _wrong_version("database", version)
    else:
        yield ok("database", f"The database answers and has version {version}.")
    yield from signatures
    encrypted, address, there = row
    if encrypted or address is None or is_loopback(address):
        yield ok("database connection", "The connection to the database is encrypted or local.")
    else:
        sentence = "The connection to the database is not encrypted, and it carries tokens' hashes."
        yield fail("database connection", sentence, "Add ?sslmode=verify-full to database.")
    apart = abs(there - time.time())
    if apart > STEP:
        sentence = f"The clock here and the database's differ by {apart:.0f} s."
        yield fail("database clock", sentence, "Set both, for example with NTP.")
    if not (folder / CROWD_KEY_FILE).exists():
        sentence = f"There is no {CROWD_KEY_FILE} in {folder}."
        way_out = "Copy it from another one, or start the first one once."
        yield fail(CROWD_KEY_FILE, sentence, way_out)


def check_signatures(database: SqlConnection, folder: Path) -> Iterator[Finding]:
    """Check that stored plans, certificates and releases match their ids and signatures."""
    if not (folder / SIGNING_FILE).exists():
        return  # another finding says so
    found = Records(database, folder).unverified()
    if found:
        more = f" There are {len(found) - 1:,} more." if len(found) > 1 else ""
        sentence = found[0].removesuffix(" Restore a backup.")
        sentence = f"{sentence[0].upper()}{sentence[1:]}{more}"
        yield fail("signatures", sentence, "Restore a backup.")
    else:
        yield ok("signatures", "Stored plans and releases match their signatures.")
