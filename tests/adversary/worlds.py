"""Surveys, q and epsilon: at random, and where two formulas meet."""

from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction
from typing import NamedTuple

from shoal import Choice, Flags, Number, Survey

HALF = Fraction(1, 2)


class World(NamedTuple):
    """A survey, and which vectors it allows, as the documents define them."""

    survey: Survey
    bits: int
    originals: tuple[int, ...]

    @property
    def distance(self) -> int:
        """In how many bits two originals can differ."""
        return max((x ^ y).bit_count() for x in self.originals for y in self.originals)


def _labels(count: int) -> tuple[str, ...]:
    return tuple(f"option {j}" for j in range(count))


def flags(bits: int) -> World:
    """Any vector."""
    return World(Survey("w", (Flags("f", _labels(bits)),)), bits, tuple(range(2**bits)))


def one_bit() -> World:
    """A single flag."""
    return flags(1)


def cut(number: int, blocks: list[tuple[int, int]]) -> list[int]:
    """The bits of each block of a vector."""
    return [number >> start & ((1 << bits) - 1) for start, bits in blocks]


def any_world(rng: random.Random, most_bits: int = 4) -> World:
    """One to three questions of any kind, at most so many bits in all."""
    questions: list[tuple[object, int, int, int]] = []
    left = rng.choice([bits for bits in (2, 2, 3, 3, 4, 5) if bits <= most_bits])
    while left:
        kind = rng.choice(["flags", "choice", "at most", "number"])
        bits = rng.randint(1, left)
        name, labels = f"q{len(questions)}", _labels(bits)
        if kind == "flags" or bits == 1:
            questions.append((Flags(name, labels), bits, 0, bits))
        elif kind == "choice":
            questions.append((Choice(name, labels), bits, 1, 1))
        elif kind == "at most":
            most = rng.randint(1, bits)
            questions.append((Flags(name, labels, at_most=most), bits, 0, most))
        else:
            questions.append((Number(name, tuple(range(1, bits))), bits, 1, 1))
        left -= bits
        if rng.random() < 0.6:
            break
    blocks, start = [], 0
    for _, bits, _, _ in questions:
        blocks.append((start, bits))
        start += bits
    allowed = [
        v
        for v in range(2**start)
        if all(
            fewest <= part.bit_count() <= most
            for part, (_, _, fewest, most) in zip(cut(v, blocks), questions, strict=True)
        )
    ]
    survey = Survey("w", tuple(question for question, *_ in questions))  # type: ignore[misc]
    assert survey.bits == start, "the world must be the survey's"
    return World(survey, start, tuple(allowed))


def any_q(rng: random.Random, digits: int = 8) -> Fraction:
    """A flip probability: usual ones, decimals, tiny ones, and ones close to 1/2."""
    draw = rng.random()
    if draw < 0.55:
        return Fraction(rng.randint(1, 2 ** (digits - 1) - 1), 2**digits)
    if draw < 0.75:
        return Fraction(rng.randint(1, 499), 1000)
    if draw < 0.85:
        return rng.choice([Fraction(1, 4), Fraction(1, 3), Fraction(1, 5), Fraction(1, 10)])
    if draw < 0.92:
        return Fraction(1, 2 ** rng.randint(10, 40))
    if draw < 0.97:
        return HALF - Fraction(1, 2 ** rng.randint(3, 40))
    return HALF


def dyadic_q(rng: random.Random, digits: int = 8) -> Fraction:
    """A flip probability that a plan can hold, below 1/2."""
    return Fraction(rng.randint(2, 2 ** (digits - 1) - 1), 2**digits)


def any_epsilon(rng: random.Random, q: Fraction, distance: int) -> float:
    """An epsilon: at random below the local one, or where formulas meet, or next to that."""
    theta = float((1 - q) / q)
    log_theta = math.log1p(theta - 1)
    if rng.random() < 0.6:
        return rng.random() * min(distance * log_theta, 30.0) * rng.choice([1, 1, 0.3, 0.1])
    meeting = float(((1 - q) ** 2 + q**2) / (2 * q * (1 - q)))
    aimed = [
        0.0,
        math.log(meeting),
        *(math.log(theta) * j for j in range(1, distance + 1)),
        math.log(theta) * (distance - 0.5),
        math.log((1 + theta) / 2),
        math.log(2),
        1e-9,
        rng.choice([5e-324, 1e-300, 1e-17, 30.0, 700.0]),
    ]
    epsilon = rng.choice(aimed)
    step = rng.choice([0, 0, 1, -1, 2, -2])
    for _ in range(abs(step)):
        epsilon = math.nextafter(epsilon, math.inf if step > 0 else 0.0)
    return max(epsilon, 0.0)


def any_crowd(rng: random.Random, world: World, size: int) -> tuple[int, ...]:
    """The answers of others: all alike, two values, or anything."""
    draw = rng.random()
    if draw < 0.4:
        values = [rng.choice(world.originals)]
    elif draw < 0.7:
        values = rng.choices(world.originals, k=2)
    else:
        values = list(world.originals)
    return tuple(sorted(rng.choice(values) for _ in range(size)))


def all_crowds(world: World, size: int) -> list[tuple[int, ...]]:
    """Every way in which others can answer."""
    return list(itertools.combinations_with_replacement(world.originals, size))
