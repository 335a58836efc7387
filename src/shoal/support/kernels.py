"""Compile and load the C kernels; without them NumPy or Python does their work.

A device randomizes with `kernels.c` and the analysis counts with it. Callers pass the addresses of
their own buffers, so that nothing here needs NumPy, and keep the NumPy path as the reference.
`vdaf.c` has the fields and the hash of Prio3; `protocol/vdaf` is its reference and its only caller.

The library is used only if it was compiled from the present sources: after an update without a new
build the references take over. ``SHOAL_KERNELS=off`` in the environment turns the kernels off. The
build of the package runs this file by itself, so it imports nothing of Shoal.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, cast

SOURCES = (Path(__file__).with_name("kernels.c"), Path(__file__).with_name("vdaf.c"))
LIBRARY = Path(__file__).with_name("_kernels.so")

_FLAGS = ("-std=c11", "-O3", "-shared", "-fPIC", "-fvisibility=hidden", "-Wno-psabi")
_Address, _Size, _Count = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32


class Kernels:
    """The functions of a compiled library; raises OSError if it is not one of these sources."""

    def __init__(self, library: Path) -> None:
        functions = ctypes.CDLL(str(library))  # a call lets other threads run
        try:
            functions.shoal_source.restype = ctypes.c_char_p
            digest = functions.shoal_source().decode()
        except AttributeError as error:
            raise OSError(f"{library} holds no kernels.") from error
        if digest != _source_digest():
            raise OSError(f"{library} was compiled from other sources.")
        functions.shoal_randomize.argtypes = [
            *(ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p),
            *(_Count, _Address, _Address, _Count),
        ]
        functions.shoal_randomize.restype = None
        functions.shoal_tally_scratch.argtypes = [_Size]
        functions.shoal_tally_scratch.restype = _Size
        functions.shoal_tally.argtypes = [_Address, _Size, _Size, _Address, _Address, _Address]
        functions.shoal_tally.restype = None
        self._functions = functions
        self.fields = FieldFunctions(functions) if functions.shoal_has_fields() else None
        """Fields and TurboSHAKE128, or None where the compiler had no numbers of 128 bits."""
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
        return int(self._functions.shoal_tally_scratch(width))

    def tally(
        self, rows: int, count: int, width: int, by_bit: int, by_set_bits: int | None, scratch: int
    ) -> None:
        """Add `count` rows of `width` bytes to the counts of each bit, 64 bits each.

        `by_set_bits` has a count for 0 to 8 * width set bits; None counts bits only.
        """
        self._functions.shoal_tally(rows, count, width, by_bit, by_set_bits, scratch)


class FieldFunctions:
    """The functions of `vdaf.c` as ctypes calls them; a caller checks the lengths."""

    def __init__(self, functions: ctypes.CDLL) -> None:
        vector, size, wide = ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int

        def declare(name: str, *arguments: Any, result: Any = None) -> Callable[..., int]:
            function = functions[f"shoal_{name}"]
            function.argtypes, function.restype = arguments, result
            return cast("Callable[..., int]", function)

        three = (vector, vector, vector)
        self.check = declare("field_check", wide, size, vector, result=ctypes.c_int)
        self.sum = declare("field_sum", wide, size, size, vector, vector)
        self.subtract = declare("field_subtract", wide, size, *three)
        self.dots = declare("field_dots", wide, size, size, *three)
        self.pair_products = declare("field_pair_products", wide, size, size, vector, vector)
        self.extend = declare("field_extend", wide, size, size, size, *three, vector)
        self.lagrange = declare("field_lagrange", wide, size, *three, vector, result=ctypes.c_int)
        self.range_wires = declare("field_range_wires", wide, *(size,) * 3, *three, vector, vector)
        self.expand = declare("field_expand", wide, vector, size, size, vector)
        self.turboshake128 = declare("turboshake128", vector, size, vector, size)


@cache
def load_kernels() -> Kernels | None:
    if os.environ.get("SHOAL_KERNELS") == "off" or not LIBRARY.exists():
        return None
    try:
        return Kernels(LIBRARY)
    except OSError:
        return None


def _source_digest() -> str:
    return hashlib.sha256(b"".join(source.read_bytes() for source in SOURCES)).hexdigest()


def compile_kernels(target: Path, *flags: str) -> str | None:
    """Compile the kernels to `target`, whole or not at all; return what was in the way, or None.

    The compiler is ``CC`` of the environment, or else cc, gcc or clang.
    """
    import shutil
    import subprocess
    import sys
    import tempfile

    if os.environ.get("SHOAL_KERNELS") == "off":
        return "SHOAL_KERNELS is off"
    if sys.platform == "win32":
        return "on Windows NumPy does the work"
    names = [os.environ["CC"]] if os.environ.get("CC") else ["cc", "gcc", "clang"]
    compiler = next(filter(None, map(shutil.which, names)), None)
    if compiler is None:
        return f"there is no compiler ({', '.join(names)})"
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        made = Path(folder) / target.name
        defined = f'-DSHOAL_SOURCE="{_source_digest()}"'
        command = [compiler, *_FLAGS, *flags, defined, "-o", str(made), *map(str, SOURCES)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode:
            return f"{compiler} failed: {done.stderr.strip()}"
        made.replace(target)
    return None
