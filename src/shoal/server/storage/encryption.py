"""Keys of open crowds: without the file `crowd-key`, the disk holds only noise about them.

Each open crowd has a key, and so has each window's list of reports. The database stores these keys
wrapped under the root key in the file (AES-256-GCM). A crowd's key is deleted with the crowd; then,
and at every sweep, a new root key is drawn. So the database, its log and its backups reveal nothing
about an open crowd without the file, and an older copy of the database is neither readable with
today's file nor accepted: the root key is the data's generation.

The root key changes in three steps: the file gets the new key beside the old one, the database
changes, the file drops the old key. A crash in between leaves a file that fits either state. The
file also names the generations that the database may have without its log, which detects a
database and a log of different times.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from hashlib import blake2b
from pathlib import Path
from typing import Literal, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from shoal.errors import InputError
from shoal.protocol.random_bits import SystemBits
from shoal.server.storage.database import NAME, SqlConnection, StorageError, read_fact, write_fact
from shoal.server.storage.schema import VERSION, version_of
from shoal.support.disk import Disk

CROWD_KEY_FILE = "crowd-key"
OVERHEAD = 32
"""Bytes that encryption adds."""

Kind = Literal["crowd", "window", "hpke"]
Generation = bytes | None
"""The name of a key; None is the name of having none."""

_CUT_SHORT = b""
_NONE, _MARK = "-", "="
_SALT = 16


def encrypt(key: bytes, *pieces: tuple[bytes, str]) -> list[bytes]:
    """Encrypt contents under a key; each can be decrypted only with the same words about it."""
    salts = SystemBits().draw(_SALT * len(pieces))  # one call for all: each has its cost
    return [
        _encrypt(key, salts[_SALT * place : _SALT * (place + 1)], *piece)
        for place, piece in enumerate(pieces)
    ]


def _encrypt(key: bytes, salt: bytes, content: bytes, about: str) -> bytes:
    return salt + _cipher(key, salt).encrypt(bytes(12), content, about.encode())


def decrypt(key: bytes, encrypted: bytes, about: str) -> bytes:
    salt, content = encrypted[:_SALT], encrypted[_SALT:]
    try:
        return _cipher(key, salt).decrypt(bytes(12), content, about.encode())
    except InvalidTag:
        raise StorageError(f"{NAME} is damaged: an open crowd cannot be decrypted.") from None


def _cipher(key: bytes, salt: bytes) -> AESGCM:
    """Return a cipher of its own for each salt: random nonces of 96 bits would run out."""
    return AESGCM(blake2b(salt, key=key, digest_size=32, person=b"shoal sealing").digest())


class RootKey(Protocol):
    """The key that wraps all others; it is in a file beside the database."""

    def current(self) -> bytes:
        """Return the key that the database is wrapped under."""

    def rotate(self) -> tuple[bytes, bytes]:
        """Draw a new key, in a transaction; return the old one and the new one."""

    def settle(self, *, log_is_empty: bool = False) -> None:
        """Leave one key in the file, after the transaction: the database's."""


class Keyring:
    """The keys of open crowds and windows, wrapped under a root key.

    Everything but `settle` happens inside a transaction.
    """

    def __init__(self, connection: SqlConnection, root: RootKey) -> None:
        self._connection, self._root = connection, root

    def rotate(self) -> None:
        """Draw a new root key and wrap all keys under it."""
        old, new = self._root.rotate()
        rows = "SELECT plan, kind, number, wrapped FROM wrapped_keys"
        wrapped = self._connection.execute(rows).fetchall()
        abouts = [_about(*place) for *place, _ in wrapped]
        keys = [decrypt(old, row[-1], about) for row, about in zip(wrapped, abouts, strict=True)]
        pieces = encrypt(new, *zip(keys, abouts, strict=True))
        self._connection.executemany(
            "UPDATE wrapped_keys SET wrapped = ? WHERE plan = ? AND kind = ? AND number = ?",
            [(piece, *row[:-1]) for piece, row in zip(pieces, wrapped, strict=True)],
        )

    def settle(self, *, log_is_empty: bool = False) -> None:
        """Destroy the root keys before the one that the database is wrapped under."""
        self._root.settle(log_is_empty=log_is_empty)

    def draw(self, plan_id: str, kind: Kind, number: int) -> bytes:
        random = SystemBits().draw(32 + _SALT)
        key, salt = random[_SALT:], random[:_SALT]
        self.wrap(plan_id, kind, number, key, salt)
        return key

    def wrap(self, plan_id: str, kind: Kind, number: int, key: bytes, salt: bytes) -> None:
        """Store a key; the salt is random and used once."""
        wrapped = _encrypt(self._root.current(), salt, key, _about(plan_id, kind, number))
        self._connection.execute(
            "INSERT INTO wrapped_keys VALUES (?, ?, ?, ?)", (plan_id, kind, number, wrapped)
        )

    def key(self, plan_id: str, kind: Kind, number: int) -> bytes | None:
        row = self._connection.execute(
            "SELECT wrapped FROM wrapped_keys WHERE plan = ? AND kind = ? AND number = ?",
            (plan_id, kind, number),
        ).fetchone()
        if row is None:
            return None
        return decrypt(self._root.current(), row[0], _about(plan_id, kind, number))

    def forget(self, plan_id: str, kind: Kind, number: int) -> None:
        """Destroy a key, and with it the data it encrypted, once the root key has changed."""
        self._connection.execute(
            "DELETE FROM wrapped_keys WHERE plan = ? AND kind = ? AND number = ?",
            (plan_id, kind, number),
        )


class FileKey:
    """The root key of data that one process uses, in the folder of the data."""

    def __init__(self, folder: Path, connection: SqlConnection) -> None:
        self._path, self._connection = folder / CROWD_KEY_FILE, connection
        self._by_generation: dict[Generation, bytes] = {}
        self._unlogged: list[Generation] = []
        if self._path.exists():
            self._read()

    def _read(self) -> None:
        """Read the keys, and the generations that the database may be of without its log."""
        try:
            lines = self._path.read_text("ascii").split()
            keys = [_bytes(line, 32) for line in lines if line[0] != _MARK]
            names = [_bytes(line[1:], 16) for line in lines if line[0] == _MARK]
        except (OSError, ValueError) as error:
            raise StorageError(f"{self._path} cannot be read; {_WAY_OUT}") from error
        if not keys:
            raise StorageError(f"{self._path} holds no key; {_WAY_OUT}")
        self._by_generation = {name_of(key) if key else None: key for key in keys}
        self._unlogged = [name or None for name in names]

    @property
    def is_lost(self) -> bool:
        """Whether the file is missing though the database has keys that it opens."""
        return not self._by_generation and self._generation() is not None

    def check(self, without_log: Generation) -> None:
        """Refuse a database, or one without its log, that is not of the file's generation."""
        if not self._by_generation:
            return
        is_known = without_log in (*self._unlogged, _CUT_SHORT)
        if self._generation() not in self._by_generation or not is_known:
            raise InputError(
                f"{NAME} or its log is older than {self._path}, or of other data; {_WAY_OUT}"
            )

    @property
    def is_new(self) -> bool:
        return self._generation() is None

    def _generation(self) -> Generation:
        return _generation(self._connection)

    def rotate(self) -> tuple[bytes, bytes]:
        """Write a new key to the file, beside the old one, and name it in the database."""
        before = None if self.is_lost else self._generation()
        old, new = self._by_generation.get(before, b""), SystemBits().draw(32)
        self._write({before: old, name_of(new): new}, [*(self._unlogged or [before]), name_of(new)])
        write_fact(self._connection, "key", name_of(new).hex())
        return old, new

    def settle(self, *, log_is_empty: bool = False) -> None:
        name, key = self._generation(), self.current()
        names = [name] if log_is_empty else self._unlogged
        if set(self._by_generation) != {name} or names != self._unlogged:
            self._write({name: key}, names)

    def current(self) -> bytes:
        try:
            return self._by_generation[self._generation()]
        except KeyError:
            raise StorageError(f"another process changed {self._path}.") from None

    def _write(self, keys: dict[Generation, bytes], unlogged: list[Generation]) -> None:
        lines = [key.hex() or _NONE for key in keys.values()]
        lines += [_MARK + (name.hex() if name else _NONE) for name in unlogged]
        try:
            Disk().store(self._path, "\n".join([*lines, ""]).encode(), f"{self._path.name}.part")
        except OSError as error:
            raise StorageError(f"cannot write {self._path}: {error.strerror}.") from error
        self._by_generation, self._unlogged = keys, unlogged


_WAY_OUT = (
    "put back the newest of both. If they are lost, restore a backup into a new folder, or remove"
    f" {CROWD_KEY_FILE}: then open crowds are discarded and plans without a window are closed."
)


def generation_without_log(path: Path) -> Generation:
    """Return the generation of a database file without its log; None without our tables.

    A process that was killed while it emptied the log leaves a file that lacks some pages. Only
    with its log it is whole, and alone it has no generation that could be read.
    """
    if not path.exists():
        return None
    with closing(
        sqlite3.connect(f"{path.absolute().as_uri()}?immutable=1", uri=True)
    ) as connection:
        try:
            return _generation(connection) if version_of(connection) == VERSION else None
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_CORRUPT:
                raise
            return _CUT_SHORT


def _generation(connection: SqlConnection) -> Generation:
    name = read_fact(connection, "key")
    return None if name is None else bytes.fromhex(name)


def _bytes(text: str, length: int) -> bytes:
    content = b"" if text == _NONE else bytes.fromhex(text)
    if len(content) not in (0, length):
        raise ValueError(text)
    return content


def name_of(key: bytes) -> bytes:
    """Return the name of a key, which does not tell it."""
    return blake2b(key, digest_size=16, person=b"shoal key name").digest()


def _about(plan_id: object, kind: object, number: object) -> str:
    return f"{plan_id} {kind} {number}"
