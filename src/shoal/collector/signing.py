"""The collector's Ed25519 key: whoever fetched its public half once knows every document by it.

When the key is changed, the old one signs the new one and is destroyed. The file keeps these links,
one a line after the secret key, and devices that know an old key follow them to the new one.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from shoal.agreement.random_bits import SystemBits
from shoal.collector.intake.database import StorageError, data_lock
from shoal.errors import InputError
from shoal.support.disk import Disk
from shoal.support.files import first_line
from shoal.support.keys import key_text, link_content

__all__ = ["KeyLink", "Signer", "change_key", "private_file", "read_key"]

KEY_FILE = "signing-key"


class Signer:
    """Signs documents with the key in a folder, which is made at the first start."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / KEY_FILE
        if not self._path.exists():
            private_file(self._path, SystemBits().draw(32).hex() + "\n")
        try:
            text = self._path.read_text("ascii")
        except (OSError, ValueError) as error:
            raise StorageError(f"cannot read {self._path}: {first_line(error)}.") from error
        self._key, self.links = read_key(text, str(self._path))

    @property
    def public_key(self) -> str:
        """The public key, in URL-safe base64."""
        return key_text(self._key.public_key().public_bytes_raw())

    @property
    def public_keys(self) -> list[str]:
        """The public key and those before it, the newest first."""
        return [self.public_key, *(link.key for link in reversed(self.links))]

    def sign(self, document: bytes) -> str:
        """Return the signature of exactly these bytes, in URL-safe base64."""
        return key_text(self._key.sign(document))

    def change_key(self) -> None:
        """Make a new key, signed with the present one, which is destroyed.

        The present key's file is replaced whole; a flash disk may keep its old block for a while.
        """
        secret = SystemBits().draw(32)
        new = Ed25519PrivateKey.from_private_bytes(secret)
        public = new.public_key().public_bytes_raw()
        link = KeyLink(self.public_key, key_text(public), self.sign(link_content(public)))
        links = [*self.links, link]
        lines = [secret.hex(), *(" ".join(one) for one in links), ""]
        try:
            Disk().store(self._path, "\n".join(lines).encode(), f"{KEY_FILE}.part")
        except OSError as error:
            raise StorageError(f"cannot write {self._path}: {error.strerror}.") from error
        self._key, self.links = new, links


def read_key(text: str, where: str) -> tuple[Ed25519PrivateKey, list[KeyLink]]:
    """Return the secret key and the links of a key file; `where` names the file in an error."""
    try:
        secret, *links = text.strip().split("\n")
        key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(secret))
        return key, [KeyLink(*link.split()) for link in links]
    except (ValueError, TypeError) as error:
        raise StorageError(f"{where} holds no signing key; restore it.") from error


class KeyLink(NamedTuple):
    """A change of the key: the old one signed the next one. All in URL-safe base64."""

    key: str
    next: str
    signature: str


def change_key(folder: Path) -> tuple[str, str]:
    """Change the key of a collector that does not run; return the old public key and the new."""
    if not (folder / KEY_FILE).exists():
        raise InputError(f"there is no collector's {KEY_FILE} in {folder}.")
    with data_lock(folder):
        signer = Signer(folder)
        old = signer.public_key
        signer.change_key()
    return old, signer.public_key


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
