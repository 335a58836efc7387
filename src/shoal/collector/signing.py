"""The collector's Ed25519 key: who fetched its public half once knows every document by it."""

from __future__ import annotations

import base64
import os
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from shoal.collector.database import StorageError
from shoal.randomness import SystemBits

__all__ = ["Signer", "private_file", "verify"]

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


def verify(public_key: str, signature: str, document: bytes) -> bool:
    """Whether a signature is this key's of exactly these bytes."""
    try:
        key = Ed25519PublicKey.from_public_bytes(_bytes(public_key))
        key.verify(_bytes(signature), document)
    except (InvalidSignature, ValueError):
        return False
    return True


def private_file(path: Path, text: str) -> None:
    """Write a new file that only its owner can read; it is there whole, or not at all.

    An existing file is an error. The folder is one process's, so nobody comes in between.
    """
    if path.exists():
        raise StorageError(f"{path} is there already; it is not written over.")
    part = path.with_name(f"{path.name}.part")
    try:
        part.unlink(missing_ok=True)  # of a process that was killed while it wrote
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.rename(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror}.") from error


def _text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
