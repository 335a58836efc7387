"""Fully linear proofs that a measurement is valid (draft-irtf-cfrg-vdaf-20, section 7.3).

A circuit checks a measurement with affine steps and one *gadget*, a small polynomial in several
variables, which it calls many times. Input i of all calls is a *wire*: the values of a polynomial
at powers of a root of unity, of which the 0th is random. The gadget of all wire polynomials is the
*gadget polynomial*. A proof is the random values and the values of the gadget polynomial.

Each aggregator evaluates its shares of the wires and of the gadget polynomial at one random point.
The sum over the aggregators must satisfy the gadget, and the outputs of the circuit must be zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shoal.errors import VdafError

if TYPE_CHECKING:
    from shoal.protocol.vdaf.circuits import Circuit
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
