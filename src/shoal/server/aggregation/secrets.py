"""What the two aggregators know together: one secret, exchanged when they were set up.

From it both derive the key with which reports are verified, which no device may know, and the
secret by which the helper knows the leader.
"""

from __future__ import annotations

import base64
from pathlib import Path

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from shoal.errors import InputError
from shoal.protocol.random_bits import SystemBits
from shoal.server.storage.key_file import private_file

SECRET_FILE = "aggregators-secret"  # noqa: S105  its name
SECRET_BYTES = 32


def new_secret() -> str:
    """Draw a secret for two aggregators, in base64url."""
    return base64.urlsafe_b64encode(SystemBits().draw(SECRET_BYTES)).decode().rstrip("=")


class SharedSecret:
    """The secret of two aggregators, from the file in the data folder of each."""

    def __init__(self, folder: Path) -> None:
        path = folder / SECRET_FILE
        try:
            text = path.read_text("ascii").strip()
            content = base64.urlsafe_b64decode(text + "=")
        except (OSError, ValueError) as error:
            raise InputError(
                f"{path} has the secret of leader and helper; make it with shoal parties setup."
            ) from error
        if len(content) != SECRET_BYTES:
            raise InputError(f"{path} is no secret of {SECRET_BYTES} bytes in base64url.")
        self.verify_seed = _derived(content, b"verify key seed")
        self.leader_token = _derived(content, b"leader token").hex()


def write_secret(folder: Path, text: str) -> None:
    """Write the secret to a file that only its owner can read."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    private_file(folder / SECRET_FILE, text + "\n")


def _derived(secret: bytes, purpose: bytes) -> bytes:
    return HKDF(SHA256(), 32, b"shoal aggregators", purpose).derive(secret)
