"""Backup and restore: plans, released crowds, tokens and the signing key, in one file.

A backup holds neither open crowds, nor which reports have arrived, nor `crowd-key`. Reports that
the collector counted after the backup could otherwise be counted again, in a second crowd, and
releases that overlap hide less than they promise. So a restore discards open crowds, closes plans
without a window, and accepts reports of the others only from the first window for which no report
can have been sent. The same holds for plans that may have been published since: see
`shoal.server.storage.recovery`. A relay's backup holds no message: crowds that had not arrived at
the analyzer are discarded.

A backup ends with a signature over all of it. That detects damage, and changes by anyone who cannot
read the signing key. The key is in the backup, so anyone who can read one backup can sign another:
only its SHA-256, kept elsewhere, detects that.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from shoal.errors import InputError
from shoal.server.core.clock import read_moment
from shoal.server.core.tokens import TOKEN_FILE, Token, add_token, new_secret
from shoal.server.storage.database import (
    NAME,
    SqlConnection,
    StorageError,
    data_lock,
    storage_errors,
    transaction,
)
from shoal.server.storage.encryption import CROWD_KEY_FILE
from shoal.server.storage.key_file import SIGNING_FILE, private_file, read_key
from shoal.server.storage.recovery import Restoration, begin_anew
from shoal.server.storage.schema import (
    COLLECTOR,
    VERSION,
    Schema,
    check_version,
    copy_rows,
    schema_name,
)
from shoal.server.storage.sqlite import open_database
from shoal.support.disk import Disk

_MAGIC = b"\nshoal backup 1\n"
_KEY_BYTES, _SIGNATURE_BYTES = 32, 64
_END = _KEY_BYTES + _SIGNATURE_BYTES + len(_MAGIC)
"""Bytes after the database: the public key, the signature, and a mark."""

_AT_ONCE = 1 << 20


def back_up(
    folder: Path,
    target: Path,
    *,
    schemas: Sequence[Schema] = (COLLECTOR,),
    url: str = "",
    clock: Callable[[], float] = time.time,
) -> Path:
    """Write a backup, also while the collector runs, and return its path.

    `target` is a new file, or a folder in which one is made and named after the time. `schemas` are
    the tables that the data may have. `url` is the PostgreSQL database of the data, if they are
    not in the folder.
    """
    if not (folder / (SIGNING_FILE if url else NAME)).exists():
        raise InputError(f"there is no collector data at {folder / NAME}.")
    now = int(clock())
    if target.is_dir():
        target = target / time.strftime("shoal-%Y%m%dT%H%M%SZ.backup", time.gmtime(now))
    if target.exists():
        raise InputError(f"{target} exists already; name another file.")
    with _part_of(target) as part:
        key = (folder / SIGNING_FILE).read_text()
        with closing(_source(folder, url)) as source, ExitStack() as held:
            schema = _schema_of(source, schemas)
            copy = held.enter_context(closing(open_database(part, schema=schema)))
            with transaction(copy):
                for table, query in schema.backup.items():
                    copy_rows(source, copy, table, query)
                # By the trusted clock of the data: the wall clock may have jumped ahead.
                last = read_moment(source)
                seconds = now if last is None else min(now, int(last.seconds))
                copy.execute("CREATE TABLE backup (made INTEGER, signing_key TEXT)")
                copy.execute("INSERT INTO backup VALUES (?, ?)", (seconds, key))
                copy.execute(f"PRAGMA user_version = {-VERSION}")
            copy.execute("PRAGMA journal_mode = DELETE")  # one file, without a log beside it
        _sign(part, key)
    return target


def backup_digest(backup: Path) -> str:
    """Return the SHA-256 of a backup, in hexadecimal; `restore` takes it as `digest`."""
    with storage_errors(), backup.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sign(part: Path, key_text: str) -> None:
    """Append the signature to the database."""
    key = read_key(key_text, SIGNING_FILE)
    with part.open("r+b") as file:
        content = hashlib.file_digest(file, "sha256").digest()
        public = key.public_key().public_bytes_raw()
        file.write(public + key.sign(_signed(content)) + _MAGIC)


def _signed(content: bytes) -> bytes:
    """Return what is signed, from the SHA-256 of the database; no document begins like that."""
    return b"shoal backup\0" + content


def _source(folder: Path, url: str) -> SqlConnection:
    """Return one state of the data, whatever is written meanwhile."""
    if url:
        from shoal.server.storage.postgres_connection import PostgresConnection

        shared = PostgresConnection(url)
        shared.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        return shared
    source = sqlite3.connect(
        f"{(folder / NAME).absolute().as_uri()}?mode=ro", uri=True, isolation_level=None
    )
    try:
        check_version(_version_of(source, f"{folder / NAME} is not this Shoal's data."))
    except BaseException:
        source.close()
        raise
    source.execute("BEGIN")
    return source


def _schema_of(source: SqlConnection, schemas: Sequence[Schema]) -> Schema:
    name = schema_name(source)
    for schema in schemas:
        if schema.name == name:
            return schema
    if name is None:
        raise InputError("the database is empty; start the collector or the relay once.")
    raise InputError(f"these are the data of a {name}; this backup is not for them.")


def restore(
    source: Path, folder: Path, *, digest: str = "", clock: Callable[[], float] = time.time
) -> Restoration:
    """Restore a collector from a backup, into a folder that holds no collector.

    The collector that was backed up must not run again. A new admin token is written to the folder;
    the tokens of the backup are valid too, even those that were revoked since. `digest` is the
    SHA-256 that the backup must have, in hexadecimal; without it the signature is enough.
    """
    if not source.is_file():
        raise InputError(f"there is no backup at {source}.")
    now = int(clock())
    with storage_errors():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with data_lock(folder):
        _check_empty(folder)
        with _part_of(folder / NAME) as part:
            signer = _copy_verified(source, part, digest)
            with closing(sqlite3.connect(part, isolation_level=None)) as database:
                check_version(-_version_of(database, f"{source} is not a backup.", sign=-1))
                made, key = _read_mark(database, signer)
                if now < made:
                    raise InputError("the backup was made later than now; correct the clock.")
                secret = new_secret("admin")
                database.execute("PRAGMA secure_delete = ON")
                with transaction(database):
                    restored = begin_anew(database, now)
                    database.execute("DROP TABLE backup")
                    database.execute(f"PRAGMA user_version = {VERSION}")
                    add_token(database, Token.new("admin", "restored"), secret)
            try:
                private_file(folder / SIGNING_FILE, key)
                private_file(folder / TOKEN_FILE, f"{secret}\n")
            except BaseException:
                _remove_secrets(folder)
                raise
    return restored


def _copy_verified(source: Path, part: Path, digest: str) -> bytes:
    """Copy the database out of a backup, and return the key that signed all of it."""
    content, whole = hashlib.sha256(), hashlib.sha256()
    with source.open("rb") as held, part.open("wb") as file:
        missing = os.fstat(held.fileno()).st_size - _END
        while missing > 0 and (block := held.read(min(missing, _AT_ONCE))):
            content.update(block)
            whole.update(block)
            file.write(block)
            missing -= len(block)
        end = held.read(_END)
    whole.update(end)
    if digest and whole.hexdigest() != digest.strip().lower():
        raise InputError(f"{source} has the SHA-256 {whole.hexdigest()}, not the one given.")
    if missing or not end.endswith(_MAGIC):
        raise InputError(f"{source} is not a backup, or its end is missing.")
    signer, signature = end[:_KEY_BYTES], end[_KEY_BYTES : -len(_MAGIC)]
    try:
        Ed25519PublicKey.from_public_bytes(signer).verify(signature, _signed(content.digest()))
    except (InvalidSignature, ValueError) as error:
        raise StorageError(
            f"{source} is damaged or was changed: it does not match its signature. Restore another"
            " backup."
        ) from error
    return signer


def _read_mark(database: sqlite3.Connection, signer: bytes) -> tuple[int, str]:
    """Return when a backup was made, and the signing key in it, which must have signed it."""
    row = database.execute("SELECT made, signing_key FROM backup").fetchone()
    if row is None or not isinstance(row[0], int) or not isinstance(row[1], str):
        raise StorageError("the backup does not say when it was made, or with which key.")
    key = read_key(row[1], "the backup")
    if key.public_key().public_bytes_raw() != signer:
        raise StorageError("the backup was signed with another key than the one in it.")
    return row[0], row[1]


def _version_of(database: sqlite3.Connection, otherwise: str, sign: int = 1) -> int:
    """Return the version of data that are whole, which is below zero for a backup."""
    with storage_errors():
        try:
            version = int(database.execute("PRAGMA user_version").fetchone()[0])
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_NOTADB:
                raise
            raise InputError(otherwise) from error
        if version * sign <= 0:
            raise InputError(otherwise)
        damage = database.execute("PRAGMA quick_check(1)").fetchone()[0]
        if damage != "ok":
            raise StorageError(f"the data are damaged: {damage}.")
        return version


def _check_empty(folder: Path) -> None:
    if (folder / f"{NAME}.part").exists() and not (folder / NAME).exists():
        _remove_secrets(folder)  # of a restore that did not come to its end
    # A log that is left of other data would be taken for the new one's.
    for name in (NAME, f"{NAME}-wal", f"{NAME}-shm", SIGNING_FILE, CROWD_KEY_FILE, TOKEN_FILE):
        if (folder / name).exists():
            raise InputError(f"{folder} holds a collector's {name}; restore into a new folder.")


def _remove_secrets(folder: Path) -> None:
    for name in (SIGNING_FILE, TOKEN_FILE):
        (folder / name).unlink(missing_ok=True)


@contextmanager
def _part_of(path: Path) -> Iterator[Path]:
    """Yield a private file to write to; it gets its name when all is well and goes otherwise."""
    disk, part = Disk(), path.with_name(f"{path.name}.part")
    with storage_errors():
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
