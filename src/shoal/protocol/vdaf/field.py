"""Vectors over Field64 and Field128, and XofTurboShake128 (draft-irtf-cfrg-vdaf-20, section 6).

A vector is the bytes that are sent: each element with its least significant byte first. So nothing
is encoded or decoded between the steps of Prio3, and the C kernels work on the same bytes. A matrix
is its rows, one after another. Polynomials are given by their values at the powers of a root of
unity (the Lagrange basis), from the 0th power on.

`PrimeField` computes with Python's integers, whose time depends on the values; `_KernelField` calls
C kernels whose time does not.

TurboSHAKE128 (RFC 9861) is SHAKE128 with 12 rounds instead of 24, so `hashlib` does not have it.
"""

from __future__ import annotations

import ctypes
from functools import cache
from itertools import accumulate
from math import prod
from operator import mul
from typing import TYPE_CHECKING

from shoal.errors import VdafError
from shoal.support.kernels import load_kernels

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from shoal.support.kernels import FieldFunctions, Kernels

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
    """Return `length` bytes of TurboSHAKE128 with domain separation byte 1."""
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


class PrimeField:
    """A prime field with many roots of unity, and operations on vectors over it.

    Parameters
    ----------
    size
        Bytes of an element: 8 for Field64, 16 for Field128.
    """

    def __init__(self, size: int) -> None:
        odd, twos = {8: (2**32 - 1, 32), 16: (2**62 - 7, 66)}[size]
        self.size = size
        self.modulus = (odd << twos) + 1
        self._generator, self._order = pow(7, odd, self.modulus), 1 << twos

    def vector(self, integers: Iterable[int]) -> bytes:
        """Return a vector of integers, which may be negative."""
        size, modulus = self.size, self.modulus
        return b"".join((number % modulus).to_bytes(size, "little") for number in integers)

    def bits(self, bits: bytes) -> bytes:
        """Return a vector of elements that are given as a byte each."""
        out = bytearray(len(bits) * self.size)
        out[:: self.size] = bits
        return bytes(out)

    def integers(self, vector: bytes) -> list[int]:
        """Return the elements."""
        size = self.size
        starts = range(0, len(vector), size)
        return [int.from_bytes(vector[start : start + size], "little") for start in starts]

    def check(self, vector: bytes, name: str) -> None:
        """Raise an error if an element is not below the modulus."""
        if not self._is_reduced(vector):
            raise VdafError(f"{name} has an element that is not below the field's modulus.")

    def _is_reduced(self, vector: bytes) -> bool:
        return all(element < self.modulus for element in self.integers(vector))

    @cache  # noqa: B019  there are two fields, and numbers of aggregators are small
    def inverse(self, number: int) -> bytes:
        """Return 1 / number as a vector of one element."""
        return self.vector([pow(number, -1, self.modulus)])

    @cache  # noqa: B019  there are two fields
    def roots(self, n: int) -> list[int]:
        """Return the powers of the n-th root of unity."""
        root = pow(self._generator, self._order // n, self.modulus)
        return list(accumulate([1] + [root] * (n - 1), lambda a, b: a * b % self.modulus))

    def expand(self, seed: bytes, tag: bytes, binder: bytes, length: int) -> bytes:
        """Return `length` elements of the XOF's stream, leaving out what is not below the modulus.

        Almost surely nothing is left out; otherwise more of the stream is computed.
        """
        message, drawn = xof_message(seed, tag, binder), length
        while True:
            stream = self.integers(turboshake128(message, drawn * self.size))
            kept = [element for element in stream if element < self.modulus]
            if len(kept) >= length:
                return self.vector(kept[:length])
            drawn += length - len(kept)

    def sum(self, matrix: bytes, rows: int) -> bytes:
        """Return the sum of the rows."""
        elements = self.integers(matrix)
        length = len(elements) // rows
        return self.vector(sum(elements[i::length]) for i in range(length))

    def subtract(self, left: bytes, right: bytes) -> bytes:
        """Return the difference of two vectors of one length."""
        pairs = zip(self.integers(left), self.integers(right), strict=True)
        return self.vector(a - b for a, b in pairs)

    def dots(self, matrix: bytes, vector: bytes) -> bytes:
        """Return the inner product of each row with the vector."""
        elements, factors = self.integers(matrix), self.integers(vector)
        starts = range(0, len(elements), len(factors))
        rows = (elements[start : start + len(factors)] for start in starts)
        return self.vector(sum(map(mul, row, factors)) for row in rows)

    def pair_products(self, matrix: bytes, length: int) -> bytes:
        """Return row 0 times row 1, plus row 2 times row 3, and so on, element by element."""
        elements = self.integers(matrix)
        columns = (elements[i::length] for i in range(length))
        return self.vector(sum(map(mul, column[::2], column[1::2])) for column in columns)

    def extend(self, matrix: bytes, length: int, n: int) -> bytes:
        """Return n values of each polynomial that has `length` values in its row."""
        elements, roots = self.integers(matrix), self.roots(n)
        scale = pow(length, -1, self.modulus)
        backwards = [roots[-i * (n // length)] for i in range(length)]
        out = []
        for start in range(0, len(elements), length):
            values = self._transform(elements[start : start + length], backwards)
            coefficients = [value * scale for value in values]
            out += self._transform(coefficients + [0] * (n - length), roots)
        return self.vector(out)

    def _transform(self, coefficients: list[int], roots: Sequence[int]) -> list[int]:
        """Return the values of a polynomial at the roots (number theoretic transform)."""
        if len(coefficients) == 1:
            return coefficients
        even = self._transform(coefficients[::2], roots[::2])
        odd = self._transform(coefficients[1::2], roots[::2])
        turned = [a * b % self.modulus for a, b in zip(odd, roots, strict=False)]
        sums = [(a + b) % self.modulus for a, b in zip(even, turned, strict=True)]
        return sums + [(a - b) % self.modulus for a, b in zip(even, turned, strict=True)]

    def lagrange(self, point: bytes, n: int) -> tuple[bytes, bool]:
        """Return the factors with which n values give a polynomial's value at the point.

        The second part says whether the point is one of the n roots of unity.
        """
        (at,), roots, modulus = self.integers(point), self.roots(n), self.modulus
        whole = pow(at, n, modulus) - 1
        if whole == 0:
            return self.vector(int(root == at) for root in roots), True
        scaled = whole * pow(n, -1, modulus)
        return self.vector(scaled * root * pow(at - root, -1, modulus) for root in roots), False

    def range_wires(
        self, measurement: bytes, chunk: int, n: int, randomness: bytes, shares: int, seeds: bytes
    ) -> bytes:
        """Return the inputs of pair products that are zero if all elements are 0 or 1.

        A call takes `chunk` elements; element j times the (j+1)th power of the call's randomness,
        and the element minus 1, are a pair. Row i has the i-th seed and then input i of each call,
        and is filled with zeros up to n values.
        """
        elements, minus = self.integers(measurement), self.integers(self.inverse(shares))[0]
        rows = [[seed] + [0] * (n - 1) for seed in self.integers(seeds)]
        for call, r in enumerate(self.integers(randomness)):
            power, taken = 1, elements[call * chunk : (call + 1) * chunk]
            for j, element in enumerate(taken + [0] * (chunk - len(taken))):
                power = power * r % self.modulus
                rows[2 * j][call + 1] = power * element
                rows[2 * j + 1][call + 1] = element - minus
        return self.vector(element for row in rows for element in row)

    @cache  # noqa: B019  there are two fields and few sizes
    def completion(self, length: int, n: int) -> bytes:
        """Return a matrix: with `length` values, the products are the values from there up to n.

        The polynomial's degree is below `length`, and all values are at powers of the n-th root.
        """
        known, missing, rows = self.roots(n)[:length], self.roots(n)[length:], []
        for x in missing:
            # Lagrange's factor for a known root. All roots but one, subtracted from that one,
            # have the product n / x, which leaves the few differences to missing roots.
            beside = prod(x - other for other in missing if other != x)
            for root in known:
                above = root * prod(root - other for other in missing)
                rows.append(above * pow(x * beside * (x - root), -1, self.modulus))
        return self.vector(rows)


class _KernelField(PrimeField):
    """The same with the C kernels. All lengths are checked here: C does not."""

    def __init__(self, size: int, functions: FieldFunctions) -> None:
        super().__init__(size)
        self._functions, self._wide = functions, int(size == 16)

    @cache  # noqa: B019
    def _constants(self, length: int, n: int) -> tuple[bytes, bytes, bytes]:
        """Return the n-th roots in Montgomery form, and 1 / length in that form and plain."""
        inverse, r = pow(length, -1, self.modulus), 1 << 8 * self.size
        roots = self.vector(root * r for root in self.roots(n))
        return roots, self.vector([inverse * r]), self.vector([inverse])

    def _lengths(self, *expected: tuple[bytes, int]) -> None:
        if any(len(vector) != length * self.size for vector, length in expected):
            raise VdafError("two vectors do not have the same length.")

    def _call(self, name: str, length: int, *arguments: int | bytes) -> bytes:
        out = ctypes.create_string_buffer(length * self.size)
        getattr(self._functions, name)(self._wide, *arguments, out)
        return out.raw

    def _is_reduced(self, vector: bytes) -> bool:
        return bool(self._functions.check(self._wide, len(vector) // self.size, vector))

    def expand(self, seed: bytes, tag: bytes, binder: bytes, length: int) -> bytes:
        message = xof_message(seed, tag, binder)
        return self._call("expand", length, message, len(message), length)

    def sum(self, matrix: bytes, rows: int) -> bytes:
        length = len(matrix) // self.size // rows
        self._lengths((matrix, rows * length))
        return self._call("sum", length, rows, length, matrix)

    def subtract(self, left: bytes, right: bytes) -> bytes:
        length = len(left) // self.size
        self._lengths((left, length), (right, length))
        return self._call("subtract", length, length, left, right)

    def dots(self, matrix: bytes, vector: bytes) -> bytes:
        length, rows = len(vector) // self.size, len(matrix) // len(vector)
        self._lengths((matrix, rows * length), (vector, length))
        return self._call("dots", rows, rows, length, matrix, vector)

    def pair_products(self, matrix: bytes, length: int) -> bytes:
        pairs = len(matrix) // self.size // length // 2
        self._lengths((matrix, 2 * pairs * length))
        return self._call("pair_products", length, pairs, length, matrix)

    def extend(self, matrix: bytes, length: int, n: int) -> bytes:
        rows = len(matrix) // self.size // length
        self._lengths((matrix, rows * length))
        roots, scale, _ = self._constants(length, n)
        return self._call("extend", rows * n, rows, length, n, matrix, roots, scale)

    def lagrange(self, point: bytes, n: int) -> tuple[bytes, bool]:
        self._lengths((point, 1))
        roots, _, scale = self._constants(n, n)
        out = ctypes.create_string_buffer(n * self.size)
        proper = self._functions.lagrange(self._wide, n, roots, scale, point, out)
        return out.raw, not proper

    def range_wires(
        self, measurement: bytes, chunk: int, n: int, randomness: bytes, shares: int, seeds: bytes
    ) -> bytes:
        length = len(measurement) // self.size
        calls = -(-length // chunk)
        self._lengths((measurement, length), (randomness, calls), (seeds, 2 * chunk))
        if n <= calls:
            raise VdafError("the wires are shorter than the calls of the gadget.")
        vectors = measurement, randomness, self.inverse(shares), seeds
        return self._call("range_wires", 2 * chunk * n, length, chunk, n, *vectors)


@cache
def _field(size: int, kernels: Kernels | None) -> PrimeField:
    if kernels is None or kernels.fields is None:
        return PrimeField(size)
    return _KernelField(size, kernels.fields)


def field64() -> PrimeField:
    """Return Field64, whose modulus is 2^64 - 2^32 + 1."""
    return _field(8, load_kernels())


def field128() -> PrimeField:
    """Return Field128, whose modulus is 2^128 - 7 * 2^66 + 1."""
    return _field(16, load_kernels())
