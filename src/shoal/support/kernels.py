"""The C kernels of `kernels.c`, loaded if they were compiled; without them NumPy does their work.

They are here, below all other folders, because a device randomizes with one and the analysis counts
with the other, and neither may import the other. Callers pass the addresses of their own buffers,
so that nothing here needs NumPy, and keep the NumPy path as the reference.

The library is used only if it was compiled from the present source: after an update
without a new build NumPy takes over. ``SHOAL_KERNELS=off`` in the environment turns the
kernels off.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).with_name("kernels.c")
LIBRARY = Path(__file__).with_name("_kernels.so")

_Address, _Size, _Count = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32


class Kernels:
    """The functions of a compiled library; raises OSError if it is not one of this source."""

    def __init__(self, library: Path) -> None:
        functions = ctypes.CDLL(str(library))  # a call lets other threads run
        try:
            functions.shoal_source.restype = ctypes.c_char_p
            digest = functions.shoal_source().decode()
        except AttributeError as error:
            raise OSError(f"{library} holds no kernels.") from error
        if digest != source_digest():
            raise OSError(f"{library} was compiled from another source.")
        functions.shoal_randomize.argtypes = [
            ctypes.c_int,
            ctypes.c_char_p,
            ctypes.c_char_p,
            _Count,
            _Address,
            _Address,
            _Count,
        ]
        functions.shoal_randomize.restype = None
        functions.shoal_tally_scratch.argtypes = [_Size]
        functions.shoal_tally_scratch.restype = _Size
        functions.shoal_tally.argtypes = [_Address, _Size, _Size, _Address, _Address, _Address]
        functions.shoal_tally.restype = None
        self._functions = functions
        self.aes = int(functions.shoal_aes())
        """How this processor does AES: 2 with VAES, 1 with AES-NI, 0 with neither."""

    def randomize(
        self, key: bytes, digits: bytes, truth: int, out: int, size: int, *, aes: int | None = None
    ) -> None:
        """Flip the bits of `size` bytes at the address `truth`, and write them to `out`.

        The fair bits are the AES-256-CTR key stream of `key` from counter 0 on, and `digits` are
        those of q, least significant first, a byte each.
        """
        way = self.aes if aes is None else aes
        if not 1 <= way <= self.aes or len(key) != 32 or not digits:
            raise ValueError("the kernel needs AES instructions, a key of 32 bytes, and digits.")
        if len(digits) * (size + 8) >= 1 << 32:
            raise ValueError("one key is good for less than 4 GiB.")
        self._functions.shoal_randomize(way, key, digits, len(digits), truth, out, size)

    def tally_scratch(self, width: int) -> int:
        """Return how many bytes of scratch `tally` needs for rows of `width` bytes."""
        return int(self._functions.shoal_tally_scratch(width))

    def tally(
        self, rows: int, count: int, width: int, by_bit: int, by_set_bits: int | None, scratch: int
    ) -> None:
        """Add `count` rows of `width` bytes to the counts of each bit, 64 bits each.

        `by_set_bits` has a count for 0 to 8 * width set bits; None counts bits only.
        """
        self._functions.shoal_tally(rows, count, width, by_bit, by_set_bits, scratch)


@cache
def load_kernels() -> Kernels | None:
    """Return the kernels, or None if there are none for this machine."""
    if os.environ.get("SHOAL_KERNELS") == "off" or not LIBRARY.exists():
        return None
    try:
        return Kernels(LIBRARY)
    except OSError:
        return None


def source_digest() -> str:
    """Return the digest of the source, which a library carries that was compiled from it."""
    return hashlib.sha256(SOURCE.read_bytes()).hexdigest()
