"""Vectors over the fields: against polynomials evaluated term by term, in C and in Python."""

from __future__ import annotations

import random

import pytest

from shoal.errors import VdafError
from shoal.protocol.vdaf import field as fields
from shoal.protocol.vdaf.field import PrimeField, turboshake128, xof_message
from tests.kernels_help import compiled_kernels

pytestmark = pytest.mark.usefixtures("backend")
SIZES = pytest.mark.parametrize("size", [8, 16])
MODULI = {8: 2**64 - 2**32 + 1, 16: 2**128 - 7 * 2**66 + 1}
REJECTED_SEED = 140_560_805


def make_field(size: int) -> PrimeField:
    return fields.field64() if size == 8 else fields.field128()


def elements(size: int, count: int) -> list[int]:
    """Random elements, and those where a carry or a reduction could go wrong."""
    modulus, bits = MODULI[size], 8 * size
    limbs = [2**32 - 1, 2**32, 2**62, 2**64 - 28, 2**64 - 1, 2**64, 2**66, 7 * 2**66]
    edges = [0, 1, 2, modulus - 1, modulus - 2, modulus // 2, (1 << bits) % modulus, *limbs]
    edges = [edge % modulus for edge in edges]
    source = random.Random(count)
    return [
        source.choice(edges) if source.random() < 0.5 else source.randrange(modulus)
        for _ in range(count)
    ]


def value(coefficients: list[int], x: int, modulus: int) -> int:
    return sum(c * pow(x, i, modulus) for i, c in enumerate(coefficients)) % modulus


@SIZES
def test_sums_differences_and_products(size: int):
    field, p = make_field(size), MODULI[size]
    for length in range(1, 60):
        a, b = elements(size, 6 * length), elements(size, length)
        rows = [a[i * length : (i + 1) * length] for i in range(6)]
        matrix, vector = field.vector(a), field.vector(b)
        assert field.integers(matrix) == a
        columns = list(zip(*rows, strict=True))
        assert field.integers(field.sum(matrix, 6)) == [sum(c) % p for c in columns]
        differences = [(x - y) % p for x, y in zip(rows[0], b, strict=True)]
        assert field.integers(field.subtract(field.vector(rows[0]), vector)) == differences
        dots = [sum(x * y for x, y in zip(row, b, strict=True)) % p for row in rows]
        assert field.integers(field.dots(matrix, vector)) == dots
        products = [(c[0] * c[1] + c[2] * c[3] + c[4] * c[5]) % p for c in columns]
        assert field.integers(field.pair_products(matrix, length)) == products


@SIZES
def test_each_product_of_edges(size: int):
    field, p = make_field(size), MODULI[size]
    edges = sorted(set(elements(size, 40)))
    for a in edges:
        row = field.vector([a] * len(edges)) + field.vector(edges)
        expected = [a * b % p for b in edges]
        assert field.integers(field.pair_products(row, len(edges))) == expected


@SIZES
@pytest.mark.parametrize(("length", "n"), [(1, 1), (1, 4), (2, 4), (4, 8), (8, 64), (32, 64)])
def test_polynomials(size: int, length: int, n: int):
    """Extended, completed and evaluated at a point, they are the polynomials that they were."""
    field, p = make_field(size), MODULI[size]
    polynomials = [elements(size, length + row)[:length] for row in range(3)]
    few, many = field.roots(length), field.roots(n)
    assert pow(many[1 % n], n // 2 or 1, p) == (p - 1 if n > 1 else 1)
    assert few == many[:: n // length]
    short = field.vector(value(c, x, p) for c in polynomials for x in few)
    long = field.vector(value(c, x, p) for c in polynomials for x in many)
    assert field.extend(short, length, n) == long
    row = long[: n * size]
    known = row[: length * size]
    if n > length:
        assert known + field.dots(field.completion(length, n), known) == row
    for point in (elements(size, 99)[7], 5, 0):
        factors, is_root = field.lagrange(field.vector([point]), n)
        assert not is_root
        assert field.integers(field.dots(long, factors)) == [
            value(c, point, p) for c in polynomials
        ]


@SIZES
def test_a_point_that_is_a_root_of_unity(size: int):
    field = make_field(size)
    for i, root in enumerate(field.roots(8)):
        factors, is_root = field.lagrange(field.vector([root]), 8)
        assert is_root
        assert field.integers(factors) == [int(j == i) for j in range(8)]


@SIZES
@pytest.mark.parametrize(("length", "chunk"), [(1, 1), (5, 2), (46, 7), (7, 9)])
def test_wires_of_range_checks(size: int, length: int, chunk: int):
    field, p = make_field(size), MODULI[size]
    calls, n = -(-length // chunk), 32 if chunk == 1 else 16
    x, r, seeds = elements(size, length), elements(size, calls), elements(size, 2 * chunk)
    got = field.range_wires(field.vector(x), chunk, n, field.vector(r), 3, field.vector(seeds))
    padded = x + [0] * (calls * chunk - length)
    for wire in range(2 * chunk):
        j, third = wire // 2, pow(3, -1, p)
        inputs = [
            padded[c * chunk + j] - third if wire % 2 else padded[c * chunk + j] * r[c] ** (j + 1)
            for c in range(calls)
        ]
        expected = [seeds[wire], *(i % p for i in inputs), *[0] * (n - 1 - calls)]
        assert field.integers(got[wire * n * size : (wire + 1) * n * size]) == expected


@SIZES
def test_elements_that_are_not_below_the_modulus(size: int):
    field, p = make_field(size), MODULI[size]
    field.check(field.vector([0, 1, p - 1]), "it")
    for bad in (p, p + 1, 2 ** (8 * size) - 1):
        with pytest.raises(VdafError, match="it has an element"):
            field.check(field.vector([1]) + bad.to_bytes(size, "little"), "it")


def test_candidates_that_are_not_below_the_modulus_are_left_out():
    """Found by search: one of the first 20 words of this stream is above Field64's modulus."""
    field, seed = fields.field64(), REJECTED_SEED.to_bytes(32, "little")
    stream = turboshake128(xof_message(seed, b"", b""), 8 * 21)
    words = [int.from_bytes(stream[i : i + 8], "little") for i in range(0, len(stream), 8)]
    kept = [word for word in words if word < MODULI[8]]
    assert len(kept) == 20
    assert field.integers(field.expand(seed, b"", b"", 20)) == kept


def test_vectors_of_different_lengths_never_reach_c():
    field = fields._field(16, compiled_kernels())
    one, two, bad = bytes(16), bytes(32), bytes(17)
    for wrong in (
        lambda: field.subtract(two, one),
        lambda: field.subtract(bad, bad),
        lambda: field.dots(bytes(48), two),
        lambda: field.sum(bytes(48), 2),
        lambda: field.pair_products(bytes(48), 1),
        lambda: field.extend(bytes(48), 2, 4),
        lambda: field.lagrange(two, 4),
        lambda: field.range_wires(two, 1, 4, one, 2, two),
        lambda: field.range_wires(two, 1, 2, two, 2, two),
        lambda: field.range_wires(two, 1, 4, two, 2, one),
    ):
        with pytest.raises(VdafError):
            wrong()


def test_the_kernels_have_fields():
    assert compiled_kernels().fields is not None
