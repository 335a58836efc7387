"""What a measurement may be, what is summed, and proofs: the variants of Prio3.

Count, Sum, SumVec, Histogram and MultihotCountVec of draft-irtf-cfrg-vdaf-20, section 7.4. Every
circuit has a single gadget, as all variants of the draft do.

A *proof* that a measurement is valid is fully linear (section 7.3). A circuit checks a measurement
with affine steps and one *gadget*, a small polynomial in several variables, which it calls many
times. Input i of all calls is a *wire*: the values of a polynomial at powers of a root of unity, of
which the 0th is random. The gadget of all wire polynomials is the *gadget polynomial*. A proof is
the random values and the values of the gadget polynomial. Each aggregator evaluates its shares of
the wires and of the gadget polynomial at one random point. The sum over the aggregators must
satisfy the gadget, and the outputs of the circuit must be zero.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from shoal.errors import InputError, VdafError
from shoal.protocol.vdaf.field import PrimeField, field64, field128

if TYPE_CHECKING:
    from shoal.protocol.vdaf.field import PrimeField


def next_power_of_2(number: int) -> int:
    """Return the smallest power of two that is not below the number."""
    return 1 << (number - 1).bit_length()


@dataclass(frozen=True)
class PairProducts:
    """x0 * x1 + x2 * x3 + ...: the draft's `Mul`, or its `ParallelSum` of `Mul`."""

    pairs: int
    degree = 2

    @property
    def arity(self) -> int:
        return 2 * self.pairs

    def evaluate(self, field: PrimeField, inputs: bytes, length: int) -> bytes:
        return field.pair_products(inputs, length)


@dataclass(frozen=True)
class Polynomial:
    """A polynomial in one variable, the constant coefficient first: the draft's `PolyEval`."""

    coefficients: tuple[int, ...]
    arity = 1

    @property
    def degree(self) -> int:
        return len(self.coefficients) - 1

    def evaluate(self, field: PrimeField, inputs: bytes, length: int) -> bytes:
        highest, *others = reversed(self.coefficients)
        value = field.vector([highest]) * length
        for coefficient in others:
            product = field.pair_products(value + inputs, length)
            value = field.sum(product + field.vector([coefficient]) * length, 2)
        return value


Gadget = PairProducts | Polynomial
"""`evaluate` returns its value for each of `length` columns; row i has input i."""


class Flp:
    """Proofs for one circuit; the vectors may be shares, since every query is linear."""

    def __init__(self, circuit: Circuit[Any, Any]) -> None:
        gadget = circuit.gadget
        self._circuit, self._gadget, self._field = circuit, gadget, circuit.field
        self._wire = next_power_of_2(1 + circuit.calls)
        self._known = gadget.degree * (self._wire - 1) + 1
        self._values = next_power_of_2(self._known)
        reduced = circuit.outputs_length if circuit.outputs_length > 1 else 0
        self.prove_rand_length = gadget.arity
        self.query_rand_length = 1 + reduced
        self.proof_length = gadget.arity + self._known
        self.verifier_length = gadget.arity + 2

    def prove(self, measurement: bytes, prove_rand: bytes, joint_rand: bytes) -> bytes:
        """Return a proof that the measurement is valid."""
        wires = self._circuit.wires(measurement, prove_rand, joint_rand, self._wire, 1)
        extended = self._field.extend(wires, self._wire, self._values)
        values = self._gadget.evaluate(self._field, extended, self._values)
        return prove_rand + values[: self._known * self._field.size]

    def query(
        self, measurement: bytes, proof: bytes, query_rand: bytes, joint_rand: bytes, shares: int
    ) -> bytes:
        """Return the reduced output, each wire at the random point, and the gadget there."""
        field, size = self._field, self._field.size
        seeds, values = proof[: self._gadget.arity * size], proof[self._gadget.arity * size :]
        wires = self._circuit.wires(measurement, seeds, joint_rand, self._wire, shares)
        if self._values > self._known:
            values += field.dots(field.completion(self._known, self._values), values)
        step = self._values // self._wire * size
        starts = range(step, step * (1 + self._circuit.calls), step)
        results = b"".join(values[start : start + size] for start in starts)
        output = self._circuit.outputs(measurement, results, shares)
        if self._circuit.outputs_length > 1:
            output = field.dots(output, query_rand[:-size])
        point = query_rand[-size:]
        at_wires, is_root = field.lagrange(point, self._wire)
        at_values, _ = field.lagrange(point, self._values)
        if is_root:  # a wire's value would be an input of the circuit
            raise VdafError("the random point of the proof's test is a root of unity.")
        return output + field.dots(wires, at_wires) + field.dots(values, at_values)

    def decide(self, verifier: bytes) -> bool:
        """Return whether the sum of all aggregators' queries is that of a valid measurement."""
        size = self._field.size
        output, checks, value = verifier[:size], verifier[size:-size], verifier[-size:]
        return not any(output) and self._gadget.evaluate(self._field, checks, 1) == value


M = TypeVar("M")
R = TypeVar("R")


def best_chunk_length(length: int) -> int:
    """Return the chunk length with the smallest proof for so many range checks.

    A proof has two seeds for each element of a chunk, and twice as many values as a wire, whose
    number is a power of two above the number of chunks. Among equal sizes the shorter chunk wins:
    the aggregators' messages grow with it.
    """
    wires = [2 << i for i in range(length.bit_length() + 1)]
    return min((2 * chunk + 2 * n, chunk) for n in wires for chunk in [-(-length // (n - 1))])[1]


def _range_weights(largest: int) -> list[int]:
    """Return the weights of bits whose sums are exactly the integers 0 .. largest."""
    powers = [1 << bit for bit in range(largest.bit_length() - 1)]
    return [*powers, largest - sum(powers)]


def _range_bits(value: int, largest: int) -> bytes:
    """Return the bits for a value, without a branch that depends on it."""
    *powers, last = _range_weights(largest)
    high = int(value > sum(powers))
    rest = value - high * last
    return bytes([*(rest >> bit & 1 for bit in range(len(powers))), high])


def _elements(measurement: object, length: int, largest: int) -> list[int]:
    """Return the elements of a measurement; raise an error if they are not what they must be."""
    if not isinstance(measurement, Sequence) or len(measurement) != length:
        raise VdafError(f"a measurement must have {length} elements.")
    if not all(isinstance(element, int) and 0 <= element <= largest for element in measurement):
        raise VdafError(f"a measurement must be made of integers from 0 to {largest}.")
    return [int(element) for element in measurement]


class Circuit(ABC, Generic[M, R]):
    """A validity circuit: encodes a measurement of type M and checks it; the result is an R.

    `algorithm` identifies the variant in every hash. A circuit with `joint_rand_length` above zero
    checks all elements of the measurement together, with randomness from the shares themselves.
    """

    algorithm: ClassVar[int]
    field: PrimeField
    gadget: Gadget
    calls: int
    measurement_length: int
    output_length: int
    outputs_length = 1
    joint_rand_length = 0
    scalar = False
    """Whether the result is the only element of the output, not a list."""
    largest = 1
    """The largest value that one measurement adds to an element of the output."""

    @abstractmethod
    def encode(self, measurement: M) -> bytes:
        """Return the measurement as a vector; raise an error if it is not valid."""

    @abstractmethod
    def outputs(self, measurement: bytes, results: bytes, shares: int) -> bytes:
        """Return the outputs, all zero for a valid measurement, from the gadget's results."""

    def wires(self, measurement: bytes, seeds: bytes, joint: bytes, n: int, shares: int) -> bytes:
        """Return the gadget's inputs, a row for each: the seed, then an element for each call."""
        chunk = self.gadget.arity // 2
        return self.field.range_wires(measurement, chunk, n, joint, shares, seeds)

    def truncate(self, measurement: bytes) -> bytes:
        """Return the part of a measurement that is summed."""
        return measurement[: self.output_length * self.field.size]

    def _check_bits(self, length: int, chunk_length: int | None) -> None:
        """Set up range checks of `length` elements, a chunk in each call of the gadget."""
        chunk = best_chunk_length(length) if chunk_length is None else chunk_length
        self._check_sizes(chunk_length=chunk)
        self.measurement_length = length
        self.gadget = PairProducts(chunk)
        self.calls = self.joint_rand_length = -(-length // chunk)

    def _check_sizes(self, **sizes: int) -> None:
        for name, size in sizes.items():
            if not 0 < size < self.field.modulus:
                raise InputError(f"{name} must be at least 1 and fit the field, got {size}.")

    def _total(self, results: bytes) -> bytes:
        return self.field.sum(results, len(results) // self.field.size)


class Count(Circuit[int, int]):
    """A measurement is 0 or 1; the result is the number of ones."""

    algorithm = 1
    scalar = True
    calls = measurement_length = output_length = 1

    def __init__(self) -> None:
        self.field, self.gadget = field64(), PairProducts(1)

    def encode(self, measurement: int) -> bytes:
        return self.field.bits(bytes(_elements([measurement], 1, 1)))

    def wires(self, measurement: bytes, seeds: bytes, joint: bytes, n: int, shares: int) -> bytes:
        size = self.field.size
        return seeds[:size] + measurement + seeds[size:] + measurement

    def outputs(self, measurement: bytes, results: bytes, shares: int) -> bytes:
        return self.field.subtract(results, measurement)


class Sum(Circuit[int, int]):
    """A measurement is an integer from 0 to `max_measurement`; the result is the sum."""

    algorithm = 2
    scalar = True
    output_length = 1

    def __init__(self, max_measurement: int) -> None:
        self.field, self.largest = field64(), max_measurement
        self._check_sizes(max_measurement=max_measurement)
        self.gadget = Polynomial((0, -1, 1))
        self.calls = self.measurement_length = self.outputs_length = max_measurement.bit_length()
        self._weights = self.field.vector(_range_weights(max_measurement))

    def encode(self, measurement: int) -> bytes:
        (value,) = _elements([measurement], 1, self.largest)
        return self.field.bits(_range_bits(value, self.largest))

    def wires(self, measurement: bytes, seeds: bytes, joint: bytes, n: int, shares: int) -> bytes:
        return (seeds + measurement).ljust(n * self.field.size, b"\0")

    def outputs(self, measurement: bytes, results: bytes, shares: int) -> bytes:
        return results

    def truncate(self, measurement: bytes) -> bytes:
        return self.field.dots(measurement, self._weights)


class SumVec(Circuit[Sequence[int], list[int]]):
    """A measurement is `length` integers from 0 to `max_measurement`; the result is their sums."""

    algorithm = 3

    def __init__(
        self,
        length: int,
        max_measurement: int,
        chunk_length: int | None = None,
        field: PrimeField | None = None,
    ) -> None:
        self.field, self.largest, self.output_length = field or field128(), max_measurement, length
        self._check_sizes(length=length, max_measurement=max_measurement)
        self._check_bits(length * max_measurement.bit_length(), chunk_length)
        self._weights = self.field.vector(_range_weights(max_measurement))

    def encode(self, measurement: Sequence[int]) -> bytes:
        values = _elements(measurement, self.output_length, self.largest)
        return self.field.bits(b"".join(_range_bits(value, self.largest) for value in values))

    def outputs(self, measurement: bytes, results: bytes, shares: int) -> bytes:
        return self._total(results)

    def truncate(self, measurement: bytes) -> bytes:
        return self.field.dots(measurement, self._weights)


class Histogram(Circuit[int, list[int]]):
    """A measurement is one of `length` buckets; the result is the number in each bucket."""

    algorithm = 4
    outputs_length = 2

    def __init__(self, length: int, chunk_length: int | None = None) -> None:
        self.field, self.output_length = field128(), length
        self._check_sizes(length=length)
        self._check_bits(length, chunk_length)

    def encode(self, measurement: int) -> bytes:
        (bucket,) = _elements([measurement], 1, self.output_length - 1)
        return self.field.bits(bytes(int(i == bucket) for i in range(self.output_length)))

    def outputs(self, measurement: bytes, results: bytes, shares: int) -> bytes:
        excess = self.field.subtract(self._total(measurement), self.field.inverse(shares))
        return self._total(results) + excess


class MultihotCountVec(Circuit[Sequence[int], list[int]]):
    """A measurement is `length` bits, at most `max_weight` of them set; the result counts each.

    The encoded measurement also has the weight, in bits whose sum cannot exceed `max_weight`.
    """

    algorithm = 5
    outputs_length = 2

    def __init__(self, length: int, max_weight: int, chunk_length: int | None = None) -> None:
        self.field, self.output_length, self.max_weight = field128(), length, max_weight
        self._check_sizes(length=length, max_weight=max_weight)
        if max_weight > length:
            raise InputError(f"max_weight must be at most length={length}, got {max_weight}.")
        self._check_bits(length + max_weight.bit_length(), chunk_length)

    @cached_property
    def _balance(self) -> bytes:
        """Each bit counts 1, and the bits of the weight are taken away again."""
        ones = [1] * self.output_length
        return self.field.vector([*ones, *(-weight for weight in _range_weights(self.max_weight))])

    def encode(self, measurement: Sequence[int]) -> bytes:
        bits = bytes(_elements(measurement, self.output_length, 1))
        if sum(bits) > self.max_weight:
            raise VdafError(f"a measurement has at most {self.max_weight} ones.")
        return self.field.bits(bits + _range_bits(sum(bits), self.max_weight))

    def outputs(self, measurement: bytes, results: bytes, shares: int) -> bytes:
        return self._total(results) + self.field.dots(measurement, self._balance)
