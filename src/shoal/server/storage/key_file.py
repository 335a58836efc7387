"""A file of successive secret keys, each pending, active or expired: for signing and encryption.

A rotation makes a new key and sets the end of the current one. During the overlap both are active,
so that devices with either key keep working. The secret of an expired key is destroyed; its public
key stays in the file.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple, Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from shoal.errors import InputError
from shoal.protocol.random_bits import SystemBits
from shoal.protocol.signatures import KEY, SIGNATURE, key_text, link_content
from shoal.server.storage.database import StorageError, data_lock
from shoal.support.disk import Disk

SIGNING_FILE, OBLIVIOUS_FILE, EXCHANGE_FILE = "signing-key", "oblivious-key", "exchange-key"
DAY = 86_400
PENDING_SECONDS = 2 * 3600
"""Seconds that a new Oblivious HTTP key is announced before devices use it: the list is cached for
an hour."""


class StoredKey(NamedTuple):
    """A key, and when its use starts and ends, in seconds since 1970; `ends` 0 means never."""

    secret: bytes
    public: bytes
    starts: int
    ends: int

    def state(self, now: float) -> Literal["pending", "active", "expired"]:
        if (self.ends and now >= self.ends) or not self.secret:
            return "expired"
        return "pending" if now < self.starts else "active"

    @property
    def text(self) -> str:
        return key_text(self.public)

    @property
    def line(self) -> str:
        return f"{self.secret.hex() or '-'} {self.text} {self.starts} {self.ends}"

    @classmethod
    def from_line(cls, line: str) -> Self:
        """Read a line; anything else is a `ValueError`."""
        private, public, starts, ends = line.split()
        raw = base64.b64decode(f"{public}=", altchars=b"-_", validate=True)
        key = cls(b"" if private == "-" else bytes.fromhex(private), raw, int(starts), int(ends))
        if len(raw) != 32 or len(key.secret) not in (0, 32):
            raise ValueError("a key has 32 bytes.")
        return key


class KeyFile:
    """The keys in a file, the newest first; one process at a time changes it.

    A missing file is made with a first key. `public_of` returns the public half of a secret.
    """

    def __init__(
        self,
        path: Path,
        public_of: Callable[[bytes], bytes],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._path, self._public_of, self._clock = path, public_of, clock
        if not path.exists():
            self._write([self._new_key(0, [])])
            return
        try:
            lines = path.read_text("ascii").splitlines()
            self._keys = [StoredKey.from_line(line) for line in lines]
            if not self._keys or self._keys[0].ends or not self._keys[0].secret:
                raise ValueError("the newest key has no end.")
        except (OSError, ValueError) as error:
            raise StorageError(f"{path} holds no key; restore it.") from error

    @property
    def all(self) -> list[StoredKey]:
        """All keys, the newest first; expired ones have no secret."""
        return list(self._keys)

    def active(self) -> list[StoredKey]:
        """Return the keys that are used now, the newest first; one, whatever the clock says."""
        now = self._clock()
        return [key for key in self._keys if key.state(now) == "active"] or self._keys[:1]

    def pending(self) -> list[StoredKey]:
        now, active = self._clock(), self.active()
        return [key for key in self._keys if key.state(now) == "pending" and key not in active]

    def to_json(self) -> list[dict[str, str | None]]:
        now = self._clock()
        return [
            {
                "key": key.text,
                "state": key.state(now),
                "starts": _date(key.starts),
                "ends": _date(key.ends),
            }
            for key in self._keys
        ]

    def rotate(self, overlap: int, pending: int = 0) -> StoredKey:
        """Make a new key, active after `pending` seconds; the old one stays `overlap` longer."""
        now = int(self._clock())
        present, *earlier = self._keys
        if any(key.state(now) != "expired" for key in earlier):
            raise InputError(
                f"{self._path} still has the key before the present one; wait until it expires, or"
                " end the overlap first: --end."
            )
        starts = now + pending
        expired = [key._replace(secret=b"") for key in earlier]
        present = present._replace(ends=max(starts + overlap, 1))
        self._write([self._new_key(starts, [present]), present, *expired])
        self.forget_expired()
        return self._keys[0]

    def end_overlap(self) -> None:
        """Expire all keys but the newest, which becomes active at once."""
        now = int(self._clock())
        newest, *earlier = self._keys
        ended = [
            key if key.state(now) == "expired" else key._replace(ends=max(now, 1))
            for key in earlier
        ]
        self._write([newest._replace(starts=min(newest.starts, now)), *ended])
        self.forget_expired()

    def forget_expired(self) -> None:
        """Destroy the secrets of expired keys; a flash disk may keep the old blocks for a while."""
        now = self._clock()
        kept = [
            key._replace(secret=b"") if key.state(now) == "expired" else key for key in self._keys
        ]
        if kept != self._keys:
            self._write(kept)

    def _new_key(self, starts: int, others: list[StoredKey]) -> StoredKey:
        # Oblivious HTTP names a key by its first byte, so two active keys must not begin alike.
        taken = {key.public[0] for key in others}
        while True:
            secret = SystemBits().draw(32)
            public = self._public_of(secret)
            if public[0] not in taken:
                return StoredKey(secret, public, starts, 0)

    def _write(self, keys: list[StoredKey]) -> None:
        content = "".join(f"{key.line}\n" for key in keys).encode()
        try:
            Disk().store(self._path, content, f"{self._path.name}.part")
        except OSError as error:
            raise StorageError(f"cannot write {self._path}: {error.strerror}.") from error
        self._keys = keys


def _date(moment: int) -> str | None:
    return time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime(moment)) if moment else None


_PRIVATE_OF: dict[str, type[Ed25519PrivateKey] | type[X25519PrivateKey]] = {
    SIGNING_FILE: Ed25519PrivateKey,
    OBLIVIOUS_FILE: X25519PrivateKey,
    EXCHANGE_FILE: X25519PrivateKey,
}


def open_keys(folder: Path, name: str, clock: Callable[[], float] = time.time) -> KeyFile:
    """Return the keys in one of the files of a folder, made if it is missing."""
    private = _PRIVATE_OF[name].from_private_bytes
    return KeyFile(folder / name, lambda raw: private(raw).public_key().public_bytes_raw(), clock)


def change_key(folder: Path, name: str = SIGNING_FILE, *, overlap_days: int) -> KeyFile:
    """Rotate a key of a service that is not running; return its keys."""
    with _stopped(folder, name) as keys:
        pending = PENDING_SECONDS if name == OBLIVIOUS_FILE and overlap_days else 0
        keys.rotate(overlap_days * DAY, pending)
    return keys


def end_overlap(folder: Path, name: str = SIGNING_FILE) -> KeyFile:
    """Expire the former key of a service that is not running, at once; return its keys."""
    with _stopped(folder, name) as keys:
        keys.end_overlap()
    return keys


@contextmanager
def _stopped(folder: Path, name: str) -> Iterator[KeyFile]:
    """Yield the keys in a folder that no service uses."""
    if not (folder / name).exists():
        raise InputError(f"there is no {name} in {folder}.")
    with data_lock(folder):
        yield open_keys(folder, name)


class Signer:
    """Signs documents with the Ed25519 keys in a folder; the first is made at the first start.

    After a rotation both the new key and the old one sign every document, until the overlap ends.
    The old key also signs the new one, for a relay that pins its analyzer's key.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self.keys = open_keys(folder, SIGNING_FILE, clock)

    @property
    def public_key(self) -> str:
        return self.keys.active()[0].text

    @property
    def public_keys(self) -> list[str]:
        """All public keys, the newest first, those that expired too."""
        return [key.text for key in self.keys.all]

    @property
    def signing_keys(self) -> list[str]:
        return [key.text for key in self.keys.active()]

    @property
    def links(self) -> list[KeyLink]:
        """Signatures of the newest key by the keys that will expire."""
        newest, *earlier = self.keys.active()
        content = link_content(newest.public)
        return [KeyLink(key.text, newest.text, _signature(key, content)) for key in earlier]

    def sign(self, document: bytes) -> str:
        """Return the newest key's signature of exactly these bytes, in URL-safe base64."""
        return _signature(self.keys.active()[0], document)

    def headers(self, document: bytes) -> dict[str, str]:
        """Return the headers of a document: the signatures of all active keys, and the keys."""
        active = self.keys.active()
        return {
            SIGNATURE: ", ".join(_signature(key, document) for key in active),
            KEY: ", ".join(key.text for key in active),
        }

    def raw_headers(self, document: bytes) -> list[tuple[bytes, bytes]]:
        return [
            (name.lower().encode(), text.encode()) for name, text in self.headers(document).items()
        ]


def read_key(text: str, where: str) -> Ed25519PrivateKey:
    """Return the newest key of a key file's text; `where` names the file in an error."""
    try:
        newest = StoredKey.from_line(text.splitlines()[0])
        return Ed25519PrivateKey.from_private_bytes(newest.secret)
    except (ValueError, IndexError) as error:
        raise StorageError(f"{where} holds no signing key; restore it.") from error


class KeyLink(NamedTuple):
    """A change of the key: the old one signed the next one. All in URL-safe base64."""

    key: str
    next: str
    signature: str


def _signature(key: StoredKey, document: bytes) -> str:
    return key_text(Ed25519PrivateKey.from_private_bytes(key.secret).sign(document))


def private_file(path: Path, text: str) -> None:
    """Write a new file that only its owner can read; it is there whole, or not at all."""
    # The folder belongs to one process, so there is no race.
    if path.exists():
        raise StorageError(f"{path} exists already and is not overwritten.")
    disk, part = Disk(), f"{path.name}.part"
    try:
        disk.unlink(path.with_name(part))  # of a process that was killed while it wrote
        disk.store(path, text.encode(), part)
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror}.") from error
