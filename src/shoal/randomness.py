"""The one door to random bits.

`SystemBits` is what protects people: AES-256-CTR keyed by the operating system, a fresh key for
every thread, after every fork and after every gibibyte. There is no fallback: if the system does
not deliver, an `EntropyError` is raised and nothing is drawn.

`SimulationBits` repeats itself from a seed. It exists for tests and studies, and everything made
with it is marked as simulated.
"""

from __future__ import annotations

import hashlib
import os
import threading
from typing import Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

from shoal._check import check_integer
from shoal.errors import EntropyError

__all__ = ["RandomBits", "SimulationBits", "SystemBits", "draw_below", "simulation_generator"]

REKEY_AFTER = 1 << 30
"""Bytes drawn under one key."""

_BLOCK = 1 << 18
_ZEROS = memoryview(bytes(_BLOCK))


class RandomBits(Protocol):
    """A source of independent fair bits."""

    @property
    def simulated(self) -> bool:
        """Whether the bits can be repeated, and so protect nobody."""
        ...

    def fill(self, out: NDArray[np.uint64]) -> None:
        """Fill a contiguous array with random words."""
        ...


class SystemBits:
    """Random bits that protect people: OS-seeded AES-256-CTR.

    One instance may be shared by all threads and used across forks; each thread of each process
    draws from a key of its own.

    >>> SystemBits().draw(16) == SystemBits().draw(16)
    False
    """

    simulated = False

    def fill(self, out: NDArray[np.uint64]) -> None:
        """Fill a contiguous array with random words."""
        _stream().fill(out.reshape(-1).view(np.uint8))

    def draw(self, count: int) -> bytes:
        """Return `count` random bytes."""
        out = np.empty(count, np.uint8)
        _stream().fill(out)
        return out.tobytes()


class _Stream:
    """A keystream of one thread of one process."""

    def __init__(self) -> None:
        self._rekey()

    def _rekey(self) -> None:
        key = _fresh_key()
        self._cipher: CipherContext = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
        self._left = REKEY_AFTER

    def fill(self, out: NDArray[np.uint8]) -> None:
        for start in range(0, out.size, _BLOCK):
            piece = out[start : start + _BLOCK]
            if piece.size > self._left:
                self._rekey()
            self._left -= piece.size
            self._cipher.update_into(_ZEROS[: piece.size], piece.data)


_last_digest = b""
_local = threading.local()


def _fresh_key() -> bytes:
    """Return 256 bits from the system, noticing a source that repeats itself.

    Two equal keys in a row do not happen by chance, in whichever threads they were drawn. Only a
    digest of the last one is remembered.
    """
    global _last_digest
    key = _system_entropy(32)
    digest = hashlib.sha256(key).digest()
    if digest == _last_digest or key == bytes(32):
        raise EntropyError("the operating system's random source repeats itself; not drawing.")
    _last_digest = digest
    return key


def _stream() -> _Stream:
    stream: _Stream | None = getattr(_local, "stream", None)
    # A child that forked without Python's notice still has its own process id.
    if stream is None or _local.process != os.getpid():
        stream = _local.stream = _Stream()
        _local.process = os.getpid()
    return stream


def _forget() -> None:
    _local.__dict__.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _system_entropy(count: int) -> bytes:
    try:
        entropy = os.urandom(count)
    except (OSError, NotImplementedError) as error:
        raise EntropyError(f"the operating system gave no random bits: {error}.") from error
    if len(entropy) != count:
        raise EntropyError(f"asked the system for {count} random bytes, got {len(entropy)}.")
    return entropy


def draw_below(bound: int, count: int, random_bits: RandomBits) -> NDArray[np.uint64]:
    """Return numbers uniform on 0 .. bound - 1, exactly; what does not divide is drawn again.

    >>> draw_below(3, 5, SimulationBits(1)).max() < 3
    np.True_
    """
    last = np.uint64(2**64 - 1 - 2**64 % bound)
    drawn = np.empty(0, np.uint64)
    while drawn.size < count:
        words = np.empty(count - drawn.size, np.uint64)
        random_bits.fill(words)
        drawn = np.concatenate((drawn, words[words <= last]))
    return drawn % np.uint64(bound)


class SimulationBits:
    """Bits that repeat themselves from a seed: for tests and studies, never for people.

    >>> word = np.empty(1, np.uint64)
    >>> SimulationBits(1).fill(word); first = word[0]
    >>> SimulationBits(1).fill(word); bool(first == word[0])
    True
    """

    simulated = True

    def __init__(self, seed: int) -> None:
        self._generator = simulation_generator(seed)

    def fill(self, out: NDArray[np.uint64]) -> None:
        """Fill a contiguous array with pseudo-random words."""
        flat = out.reshape(-1)
        flat[:] = self._generator.bit_generator.random_raw(flat.size)


def simulation_generator(seed: int) -> np.random.Generator:
    """Return a seeded NumPy generator, for drawing populations that do not exist."""
    check_integer("seed", seed, lowest=0, highest=2**63 - 1)
    return np.random.Generator(np.random.SFC64(seed))
