"""The collector's Ed25519 key: who fetched its public half once knows every document by it."""

from __future__ import annotations

import base64
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from shoal._disk import Disk
from shoal.collector.database import StorageError
from shoal.randomness import SystemBits

__all__ = ["Signer", "private_file"]

KEY_FILE = "signing-key"


class Signer:
    """Signs documents with the key in a folder, which is made at the first start."""

    def __init__(self, folder: Path) -> None:
        path = folder / KEY_FILE
        if not path.exists():
            private_file(path, SystemBits().draw(32).hex() + "\n")
        try:
            self._key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(path.read_text()))
        except (OSError, ValueError) as error:
            raise StorageError(f"{path} holds no signing key; restore it.") from error

    @property
    def public_key(self) -> str:
        """The public key, in URL-safe base64."""
        return _text(self._key.public_key().public_bytes_raw())

    def sign(self, document: bytes) -> str:
        """Return the signature of exactly these bytes, in URL-safe base64."""
        return _text(self._key.sign(document))


def private_file(path: Path, text: str) -> None:
    """Write a new file that only its owner can read; it is there whole, or not at all.

    An existing file is an error. The folder is one process's, so nobody comes in between.
    """
    if path.exists():
        raise StorageError(f"{path} is there already; it is not written over.")
    disk, part = Disk(), f"{path.name}.part"
    try:
        disk.unlink(path.with_name(part))  # of a process that was killed while it wrote
        disk.store(path, text.encode(), part)
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror}.") from error


def _text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")
