"""The C kernels against NumPy and another AES, byte for byte, and what happens without them."""

from __future__ import annotations

import ctypes
import itertools
import mmap
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from shoal.device.arrays import randomize as randomizing
from shoal.device.arrays.randomize import Original
from shoal.device.randomize import flip
from shoal.protocol import random_bits
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.random_bits import SystemBits
from shoal.support import kernels
from shoal.support.kernels import Kernels, compile_kernels, load_kernels
from tests.kernels_help import compiled_kernels, ways_of_aes

ROOT = Path(__file__).parents[2]
LARGE = [2000, 2047, 2048, 2049, 4000, 4096, 4099, 16383 * 8, 16384 * 8 - 1, 16384 * 8]
SIZES = [*range(1, 40), *LARGE]


def flipped_slowly(key: bytes, digits: bytes, truth: np.ndarray) -> np.ndarray:
    """The sampler of the page, on the key stream of another library."""
    words = -(-truth.size // 8)
    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    fair = np.frombuffer(stream.update(bytes(len(digits) * words * 8)), np.uint64)
    rows = fair.reshape(len(digits), words)
    flips = rows[0].copy()
    for digit, row in zip(digits[1:], rows[1:], strict=True):
        flips = flips | row if digit else flips & row
    return np.asarray(truth ^ flips.view(np.uint8)[: truth.size])


class TestRandomize:
    @pytest.mark.parametrize("count", [1, 2, 3, 16, 17, 52])
    def test_the_same_bytes_as_another_library(self, count: int):
        generator = np.random.default_rng(count)
        for size in SIZES if count < 20 else SIZES[::7]:
            key, truth = generator.bytes(32), generator.integers(0, 256, size, np.uint8)
            digits = bytes([1, *generator.integers(0, 2, count - 1)])
            wanted = flipped_slowly(key, digits, truth)
            for way in ways_of_aes():
                out = np.full(size + 64, 7, np.uint8)
                compiled_kernels().randomize(
                    key, digits, truth.ctypes.data, out[32:].ctypes.data, size, aes=way
                )
                assert (out[32 : 32 + size] == wanted).all(), (size, way)
                assert (out[:32] == 7).all(), "nothing is written before"
                assert (out[32 + size :] == 7).all(), "nor behind"

    @pytest.mark.parametrize("rows", [0, 1, 2, 3, 52_429, 60_001, 130_003])
    @pytest.mark.parametrize("bits", [40, 39])
    def test_rows_come_out_as_with_numpy(
        self, rows: int, bits: int, monkeypatch: pytest.MonkeyPatch
    ):
        """Block by block under the same keys, whatever is left over at the end."""
        assert ways_of_aes()
        truth = np.random.default_rng(rows).integers(0, 256, (rows, 5), np.uint8)
        truth[:, -1] &= 0xFF >> (-bits % 8)
        made = []
        monkeypatch.setattr(random_bits, "SMALL", -1)  # the stream of a few bytes is another one
        for found in (compiled_kernels(), None):
            keys = (bytes([number]) * 32 for number in itertools.count(1))
            monkeypatch.setattr(random_bits, "_fresh_key", lambda keys=keys: next(keys))
            monkeypatch.setattr(randomizing, "load_kernels", lambda found=found: found)
            made.append(flip(FlipProbability(23003, 16), Original(truth, bits)).rows)
        assert (made[0] == made[1]).all()

    def test_every_block_has_a_key_of_its_own(self, monkeypatch: pytest.MonkeyPatch):
        """The same flips on two blocks would show where two people differ."""
        assert ways_of_aes()
        monkeypatch.setattr(randomizing, "load_kernels", compiled_kernels)
        block = randomizing._WORDS * 8
        rows = np.zeros((6 * block // 8, 8), np.uint8)
        out = flip(FlipProbability(1, 1), Original(rows, 64)).rows.reshape(-1)
        blocks = {out[start : start + 64].tobytes() for start in range(0, out.size, block)}
        assert len(blocks) == 6
        words = out.view(np.uint64)
        assert np.unique(words).size == words.size

    def test_bits_of_another_source_are_used(self, monkeypatch: pytest.MonkeyPatch):
        """The kernel draws from the system; whoever brings bits gets those."""

        class Ones(SystemBits):
            def fill(self, out) -> None:
                memoryview(out).cast("B")[:] = b"\xff" * memoryview(out).nbytes

        monkeypatch.setattr(randomizing, "load_kernels", compiled_kernels)
        rows = flip(
            FlipProbability(1, 1), Original(np.zeros((3, 5), np.uint8), 40), random_bits=Ones()
        ).rows
        assert (rows == 255).all()

    def test_what_it_refuses(self):
        found, room = compiled_kernels(), np.zeros(8, np.uint8)
        at = room.ctypes.data
        with pytest.raises(ValueError, match="32 bytes"):
            found.randomize(bytes(31), b"\1", at, at, 8)
        with pytest.raises(ValueError, match="digits"):
            found.randomize(bytes(32), b"", at, at, 8)
        with pytest.raises(ValueError, match="AES"):
            found.randomize(bytes(32), b"\1", at, at, 8, aes=3)
        with pytest.raises(ValueError, match="4 GiB"):
            found.randomize(bytes(32), b"\1" * 16, at, at, 1 << 28)


class TestTally:
    def count(self, rows: np.ndarray, *, set_bits: bool = True) -> list[list[int]]:
        width, found = rows.shape[1], compiled_kernels()
        by_bit = np.zeros(8 * width, np.int64)
        by_set_bits = np.zeros(8 * width + 1, np.int64)
        scratch = np.full(found.tally_scratch(width), 255, np.uint8)
        where = by_set_bits.ctypes.data if set_bits else None
        found.tally(
            rows.ctypes.data, len(rows), width, by_bit.ctypes.data, where, scratch.ctypes.data
        )
        assert not scratch.any(), "nothing of the rows is left behind"
        return [by_bit.tolist(), by_set_bits.tolist()]

    @pytest.mark.parametrize("width", [*range(1, 20), 31, 32, 33, 65, 125, 257, 1000, 8192])
    def test_the_same_counts_as_unpacking(self, width: int):
        generator = np.random.default_rng(width)
        for count in (0, 1, 2, 15, 16, 17, 511, 512, 513, 300_000 // width + 3):
            rows = generator.integers(0, 256, (count, width), np.uint8)
            bits = np.unpackbits(rows, axis=1, bitorder="little")
            by_bit = bits.sum(axis=0, dtype=np.int64).tolist()
            ones = np.bincount(bits.sum(axis=1, dtype=np.int64), minlength=8 * width + 1).tolist()
            assert self.count(rows) == [by_bit, ones], count
            assert self.count(rows, set_bits=False) == [by_bit, [0] * (8 * width + 1)], count

    @pytest.mark.parametrize("width", [1, 5, 8, 9, 256])
    def test_unanimous_rows(self, width: int):
        """All ones fill every counter: more than 255 times sixteen groups of 32 rows."""
        count = (140_000 if width < 256 else 9_000) + 7
        by_bit, by_set_bits = self.count(np.full((count, width), 255, np.uint8))
        assert by_bit == [count] * (8 * width)
        assert by_set_bits == [0] * (8 * width) + [count]

    @pytest.mark.slow
    @pytest.mark.skipif(sys.platform != "linux", reason="asks Linux to guard a page")
    def test_nothing_is_read_behind_the_rows(self):
        """The rows end where a page ends that nobody may read behind: a process would be killed."""
        compiled_kernels()
        script = "from tests.support.test_kernels import TestTally as t; t().tally_before_a_wall()"
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")

    def tally_before_a_wall(self) -> None:
        for width in (1, 3, 5, 8, 13, 256, 257):
            self.tally_rows_before_a_wall(width)

    def tally_rows_before_a_wall(self, width: int) -> None:
        size = 4 * mmap.PAGESIZE
        memory = mmap.mmap(-1, size + mmap.PAGESIZE)
        whole = np.frombuffer(memory, np.uint8)
        end = whole.ctypes.data + size
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        assert libc.mprotect(end, mmap.PAGESIZE, 0) == 0
        try:
            for count in {1, 2, size // width // 2, size // width}:
                rows = whole[size - count * width : size].reshape(count, width)
                rows[:] = 255
                assert self.count(rows)[0] == [count] * (8 * width)
        finally:
            libc.mprotect(end, mmap.PAGESIZE, 3)


class TestLoading:
    @pytest.mark.slow
    def test_a_library_of_another_source_is_not_used(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        compiled_kernels()
        library = tmp_path / "_kernels.so"
        assert compile_kernels(library) is None
        monkeypatch.setattr(kernels, "LIBRARY", library)
        assert load_kernels.__wrapped__() is not None
        changed = tmp_path / "kernels.c"
        changed.write_bytes(kernels.SOURCES[0].read_bytes() + b"\n")
        monkeypatch.setattr(kernels, "SOURCES", (changed, *kernels.SOURCES[1:]))
        assert load_kernels.__wrapped__() is None
        with pytest.raises(OSError, match="other sources"):
            Kernels(library)

    @pytest.mark.parametrize("content", [None, b"", b"not a library"])
    def test_no_library(self, content, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        library = tmp_path / "_kernels.so"
        if content is not None:
            library.write_bytes(content)
        monkeypatch.setattr(kernels, "LIBRARY", library)
        assert load_kernels.__wrapped__() is None

    def test_the_environment_turns_them_off(self):
        script = "from shoal.support.kernels import load_kernels; print(load_kernels())"
        off = os.environ | {"SHOAL_KERNELS": "off"}
        assert subprocess.check_output([sys.executable, "-c", script], env=off) == b"None\n"


class TestCompiling:
    @pytest.mark.parametrize(
        ("name", "value", "why"),
        [
            ("PATH", "nowhere", "no compiler"),
            ("CC", "false", "failed"),
            ("SHOAL_KERNELS", "off", "SHOAL_KERNELS is off"),
        ],
    )
    def test_without_a_library(self, name, value, why, tmp_path: Path, monkeypatch):
        monkeypatch.delenv("CC", raising=False)
        monkeypatch.setenv(name, value)
        assert why in (compile_kernels(tmp_path / "k.so") or "")
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.slow
    @pytest.mark.parametrize("compiler", ["there", "missing"])
    def test_the_wheel(self, compiler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        """With a compiler a wheel for this platform and any Python 3; without, a pure one."""
        builder = pytest.importorskip("hatchling.builders.wheel").WheelBuilder(str(ROOT))
        if compiler == "there":
            compiled_kernels()
        else:
            monkeypatch.setenv("CC", "no-such-compiler")
        (wheel,) = builder.build(directory=str(tmp_path), versions=["standard"])
        names = zipfile.ZipFile(wheel).namelist()
        assert ("shoal/support/_kernels.so" in names) == (compiler == "there")
        for source in kernels.SOURCES:  # a library must match them
            assert f"shoal/support/{source.name}" in names
        assert Path(wheel).name.endswith("py3-none-any.whl") == (compiler == "missing")
        assert "-py3-none-" in Path(wheel).name
