"""The only source of random bits.

`SystemBits` draws a key stream under a fresh key for every call, and for every gibibyte within a
call. There is no fallback: if the system delivers nothing, an `EntropyError` is raised.

A large draw is AES-256-CTR. A small one is SHAKE-256 of the key (FIPS 202): loading AES would take
longer than all else that a device does. Without `cryptography` every draw is SHAKE-256.

A key is the hash of 32 new bytes of the operating system, of the clocks and of all keys before, so
that forks, threads and copies of a virtual machine draw different bits:

* Linux 5.18 and later learns from the hypervisor (vmgenid) that it was cloned, and renews its
  generator; asking it in each call makes use of that.
* Elsewhere the kernel may repeat itself for minutes. Then the clocks tell the copies apart: they
  need not be secret, since the other parts of the key are. Two copies that draw at the same
  nanosecond of both clocks would repeat each other; nothing in a process can see that.
* A copy made in the middle of a call repeats the rest of that call, on the same originals. It
  releases the same synthetic vectors twice, never two different ones with the same flips.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, cast

from shoal.errors import EntropyError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from numpy.typing import NDArray

    Writable = WriteableBuffer | NDArray[Any]


REKEY_AFTER = 1 << 30
"""Bytes drawn under one key."""

SMALL = 1 << 14
"""Draws up to this many bytes use SHAKE-256 instead of AES."""

_BLOCK = 1 << 18
_ZEROS = memoryview(bytes(_BLOCK))

KeyStream = Callable[[memoryview], object]
"""Fills one piece of memory after another, each with the next bytes of one key stream."""


class RandomBits(Protocol):
    """A source of independent fair bits."""

    @property
    def simulated(self) -> bool:
        """Whether the bits can be repeated, and so give no protection."""

    def fill(self, out: Writable) -> None:
        """Fill a contiguous buffer with random bytes: a bytearray, or an array of any type."""


class SystemBits:
    """Random bits that protect people: a key stream under a key of its own for every call.

    One instance may be shared by all threads and used across forks; it holds no state.
    """

    simulated = False

    def fill(self, out: Writable) -> None:
        """Fill a contiguous buffer with random bytes: a bytearray, or an array of any type."""
        _fill(byte_view(out))

    def draw(self, count: int) -> bytes:
        """Return `count` random bytes."""
        out = bytearray(count)
        _fill(memoryview(out))
        return bytes(out)

    def key(self) -> bytes:
        """Return a fresh key, for callers that generate the stream of one `fill` themselves.

        The stream is AES-256-CTR from counter 0 on, of less than `REKEY_AFTER` bytes.
        """
        return _fresh_key()


def byte_view(out: Writable) -> memoryview:
    view = memoryview(cast("WriteableBuffer", out))
    return view.cast("B") if view.nbytes else memoryview(bytearray())


def _fill(out: memoryview) -> None:
    key_stream = _shake if len(out) <= SMALL else _aes
    left = 0
    for start in range(0, len(out), _BLOCK):
        piece = out[start : start + _BLOCK]
        if len(piece) > left:
            fill, left = key_stream(_fresh_key()), REKEY_AFTER
        left -= len(piece)
        fill(piece)


def _aes(key: bytes) -> KeyStream:
    """Return AES-256-CTR under the key, or SHAKE-256 where there is no AES."""
    try:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    except ImportError:
        return _shake(key)
    cipher = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    return lambda piece: cipher.update_into(_ZEROS[: len(piece)], piece)


def _shake(key: bytes) -> KeyStream:
    """Return SHAKE-256 of the key and the number of each piece."""
    pieces = itertools.count()

    def fill(piece: memoryview) -> None:
        number = next(pieces).to_bytes(8, "little")
        piece[:] = hashlib.shake_256(key + number).digest(len(piece))

    return fill


_pool = bytes(32)
_last_digest = b""


def _fresh_key() -> bytes:
    """Return a key that nobody else has, and add what went into it to the pool.

    The pool tells nothing of the key: they are two halves of one hash.
    """
    global _pool
    clocks = b"%d %d" % (time.time_ns(), time.perf_counter_ns())
    mixed = hashlib.sha512(_pool + _fresh_entropy() + clocks).digest()
    key, _pool = mixed[:32], mixed[32:]
    return key


def _fresh_entropy() -> bytes:
    """Return 256 bits from the system, noticing a source that repeats itself.

    The same twice in a row does not happen by chance, in whichever threads they were drawn. Only a
    digest of the last one is remembered.
    """
    global _last_digest
    entropy = _system_entropy(32)
    digest = hashlib.sha256(entropy).digest()
    if digest == _last_digest or entropy == bytes(32):
        raise EntropyError("the operating system's random source repeats itself; not drawing.")
    _last_digest = digest
    return entropy


def _system_entropy(count: int) -> bytes:
    try:
        entropy = os.urandom(count)
    except (OSError, NotImplementedError) as error:
        raise EntropyError(f"the operating system gave no random bits: {error}.") from error
    if len(entropy) != count:
        raise EntropyError(f"asked the system for {count} random bytes, got {len(entropy)}.")
    return entropy


def draw_below(bound: int, random_bits: RandomBits) -> int:
    """Return a number uniform on 0 .. bound - 1, exactly; what does not divide is drawn again."""
    last = 2**64 - 1 - 2**64 % bound
    word = bytearray(8)
    while True:
        random_bits.fill(word)
        drawn = int.from_bytes(word, "little")
        if drawn <= last:
            return drawn % bound
