"""The memory's key in a file, for devices whose application has no key store of its own.

A key beside the file that it opens protects against whoever gets the file alone, such as a backup
or a synced folder, and not against whoever reads the device.
"""

from __future__ import annotations

import os
import pathlib
import re
import stat

from shoal.device.memory.encrypted import check_key
from shoal.errors import InputError
from shoal.protocol.random_bits import SystemBits
from shoal.support.disk import SharedFile

__all__ = ["key_from_text", "read_key"]

_HEX = "[0-9a-f]{64}"


def key_from_text(text: str, where: str) -> bytes:
    """Return a key that is written as 64 hexadecimal digits; the error does not show it.

    >>> key_from_text("00ff" * 16, "SHOAL_MEMORY_KEY") == bytes([0, 255] * 16)
    True
    """
    digits = text.strip().lower()
    if not re.fullmatch(_HEX, digits):
        raise InputError(f"{where} must hold a key of 64 hexadecimal digits.")
    return check_key(bytes.fromhex(digits))


def read_key(path: pathlib.Path, memory: pathlib.Path) -> bytes:
    """Return the key in a file that only its owner reads, making one for a memory yet to be."""
    file = SharedFile(path, "key", 10.0, None)
    with file.changing():
        content = file.read()
        if content is None:
            if memory.exists():
                raise InputError(
                    f"there is no key {path}, and without it {memory} does not open; find the key,"
                    " or remove the memory; the device then draws new permanent flips, which"
                    " reveals more."
                )
            content = SystemBits().draw(32).hex().encode() + b"\n"
            file.write(content)
    if os.name == "posix" and stat.S_IMODE(file.path.stat().st_mode) & 0o077:
        raise InputError(f"others can read the key {path}; chmod 600 it, or use a new one.")
    return key_from_text(content.decode("ascii", "replace"), str(path))
