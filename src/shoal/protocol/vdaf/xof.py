"""XofTurboShake128: seeds into seeds and streams (draft-irtf-cfrg-vdaf-20, section 6.2.1).

TurboSHAKE128 (RFC 9861) is SHAKE128 with 12 rounds instead of 24, so `hashlib` does not have it.
The C kernel computes it where there is one, and the functions here give the same bytes.
"""

from __future__ import annotations

import ctypes

from shoal.errors import VdafError
from shoal.support.kernels import load_kernels

SEED_SIZE = 32
"""Bytes of a seed."""

_RATE = 168
_DOMAIN = 1
_WORD = (1 << 64) - 1
_ROUND_CONSTANTS = (
    *(0x000000008000808B, 0x800000000000008B, 0x8000000000008089, 0x8000000000008003),
    *(0x8000000000008002, 0x8000000000000080, 0x000000000000800A, 0x800000008000000A),
    *(0x8000000080008081, 0x8000000000008080, 0x0000000080000001, 0x8000000080008008),
)
"""Of the last twelve rounds of Keccak-f[1600] (FIPS 202, section 3.2.5)."""


def _lane_moves() -> tuple[tuple[int, int], ...]:
    """Return for each lane after rho and pi which lane it was, and by how much it is rotated.

    FIPS 202, sections 3.2.2 and 3.2.3; lane x + 5 y.
    """
    rotations, x, y = {0: 0}, 1, 0
    for step in range(24):
        rotations[x + 5 * y] = (step + 1) * (step + 2) // 2 % 64
        x, y = y, (2 * x + 3 * y) % 5
    sources = ((x + 3 * y) % 5 + 5 * x for y in range(5) for x in range(5))
    return tuple((source, rotations[source]) for source in sources)


_MOVES = _lane_moves()


def _permute(a: list[int]) -> list[int]:
    """Return Keccak-p[1600, 12] of 25 lanes."""
    word = _WORD
    for constant in _ROUND_CONSTANTS:
        c = [a[x] ^ a[x + 5] ^ a[x + 10] ^ a[x + 15] ^ a[x + 20] for x in range(5)]
        d = [c[x - 1] ^ (c[x - 4] << 1 & word | c[x - 4] >> 63) for x in range(5)] * 5
        a = [lane ^ column for lane, column in zip(a, d, strict=True)]
        b = [a[lane] << by & word | a[lane] >> 64 - by for lane, by in _MOVES]
        a = []
        for y in range(0, 25, 5):
            p, q, r, s, t = b[y : y + 5]
            a += [p ^ ~q & r, q ^ ~r & s, r ^ ~s & t, s ^ ~t & p, t ^ ~p & q]
        a[0] ^= constant
    return a


def _turboshake128(message: bytes, length: int) -> bytes:
    padded = bytearray(message)
    padded.append(_DOMAIN)
    padded += bytes(-len(padded) % _RATE)
    padded[-1] ^= 0x80
    state = [0] * 25
    for start in range(0, len(padded), _RATE):
        for lane in range(_RATE // 8):
            at = start + 8 * lane
            state[lane] ^= int.from_bytes(padded[at : at + 8], "little")
        state = _permute(state)
    out = bytearray()
    while True:
        out += b"".join(lane.to_bytes(8, "little") for lane in state[: _RATE // 8])
        if len(out) >= length:
            return bytes(out[:length])
        state = _permute(state)


def turboshake128(message: bytes, length: int) -> bytes:
    """Return `length` bytes of TurboSHAKE128 with domain separation byte 1.

    >>> turboshake128(b"", 4).hex()
    '868cbd53'
    """
    kernels = load_kernels()
    if kernels is None or kernels.fields is None:
        return _turboshake128(message, length)
    out = ctypes.create_string_buffer(length)
    kernels.fields.turboshake128(message, len(message), out, length)
    return out.raw


def xof_message(seed: bytes, tag: bytes, binder: bytes) -> bytes:
    """Return the input of TurboSHAKE128: the domain separation tag, the seed and the binder."""
    if len(tag) > 0xFFFF or len(seed) > 0xFF:
        raise VdafError("a context has at most 65,000 bytes, and a seed at most 255.")
    return len(tag).to_bytes(2, "little") + tag + bytes([len(seed)]) + seed + binder


def derive_seed(seed: bytes, tag: bytes, binder: bytes) -> bytes:
    """Return a new seed."""
    return turboshake128(xof_message(seed, tag, binder), SEED_SIZE)
