"""The Ed25519 keys of a service: devices and other services know its documents by them.

After a rotation both the new key and the old one sign every document, until the overlap ends (see
`key_file`). The old key also signs the new one, for a relay that pins its analyzer's key.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from shoal.protocol.signatures import KEY, SIGNATURE
from shoal.server.storage.database import StorageError
from shoal.server.storage.key_file import SIGNING_FILE as KEY_FILE
from shoal.server.storage.key_file import StoredKey, open_keys
from shoal.support.disk import Disk
from shoal.support.keys import key_text, link_content

__all__ = ["KEY_FILE", "KeyLink", "Signer", "private_file", "read_key"]


class Signer:
    """Signs documents with the keys in a folder, the first of which is made at the first start."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self.keys = open_keys(folder, KEY_FILE, clock)

    @property
    def public_key(self) -> str:
        """The newest public key, in URL-safe base64."""
        return self.keys.active()[0].text

    @property
    def public_keys(self) -> list[str]:
        """All public keys, the newest first, those that expired too."""
        return [key.text for key in self.keys.all]

    @property
    def signing_keys(self) -> list[str]:
        """The public keys that sign now, the newest first."""
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
        """Return the same headers as ASGI takes them."""
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
    """Write a new file that only its owner can read; it is there whole, or not at all.

    An existing file is an error. The folder is one process's, so nobody comes in between.
    """
    if path.exists():
        raise StorageError(f"{path} exists already and is not overwritten.")
    disk, part = Disk(), f"{path.name}.part"
    try:
        disk.unlink(path.with_name(part))  # of a process that was killed while it wrote
        disk.store(path, text.encode(), part)
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror}.") from error
