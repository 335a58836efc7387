"""Proven and attack of small surveys against every crowd, one-hot and crossed questions too."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from fractions import Fraction

import numpy as np
import pytest

from shoal import Choice, Flags, Survey, YesNo
from shoal.planning.bounds import bound_of
from tests.theory.counts.oracle import collections_worst, count_law

Bits = tuple[int, ...]

EPSILONS = (0.0, 0.4, 1.0, 2.5)
SMOKES, DRIVES = YesNo("smokes"), YesNo("drives")
AGE = Choice("age", ("young", "old", "ancient"))


def one_of(options: int) -> list[Bits]:
    return [tuple(int(i == place) for i in range(options)) for place in range(options)]


def crossed(*sides: Sequence[Bits]) -> list[Bits]:
    """The answers to all sides, and their cell: one more that takes one of them."""
    answers = list(itertools.product(*sides))
    cells = one_of(len(answers))
    return [sum((*answer, cell), ()) for answer, cell in zip(answers, cells, strict=True)]


YES_NO: list[Bits] = [(0,), (1,)]
CASES = {
    "choice of 2": (Survey("s", (Choice("c", ("a", "b")),)), one_of(2), 12),
    "choice of 3": (Survey("s", (AGE,)), one_of(3), 12),
    "choice of 4": (Survey("s", (Choice("c", tuple("abcd")),)), one_of(4), 12),
    "at most 2 of 3": (
        Survey("s", (Flags("c", tuple("abc"), at_most=2),)),
        [bits for bits in itertools.product((0, 1), repeat=3) if sum(bits) <= 2],
        8,
    ),
    "yes or no, crossed": (
        Survey("s", (SMOKES, DRIVES)).cross("smokes", "drives"),
        crossed(YES_NO, YES_NO),
        12,
    ),
    "two flags, crossed": (
        Survey("s", (Flags("has", ("a", "b")),)).cross("has=a", "has=b"),
        crossed(YES_NO, YES_NO),
        5,
    ),
    "choice and yes or no, crossed": (
        Survey("s", (AGE, SMOKES)).cross("age", "smokes"),
        crossed(one_of(3), YES_NO),
        5,
    ),
}


def crowds(answers: Sequence[Bits], others: int) -> set[Bits]:
    """How many of the others can have each bit."""
    reached = {(0,) * len(answers[0])}
    for _ in range(others):
        reached = {
            tuple(a + b for a, b in zip(ones, answer, strict=True))
            for ones, answer in itertools.product(reached, answers)
        }
    return reached


def pairs(answers: Sequence[Bits], others: int) -> set[Bits]:
    """The ones of each differing bit, of all crowds and pairs, each bit read so that it goes up."""
    found = set()
    everyone = crowds(answers, others)
    for x, y in itertools.permutations(answers, 2):
        for ones in everyone:
            up = (m if b > a else others - m for m, a, b in zip(ones, x, y, strict=True) if a != b)
            found.add(tuple(sorted(up)))
    return found


def worst(found: Iterable[Bits], people: int, q: Fraction) -> list[float]:
    """The largest delta of the pairs at each epsilon: products of positive floats."""
    laws = [
        [
            np.array([float(x) for x in law])
            for law in (count_law(m + 1, people - 1 - m, q), count_law(m, people - m, q))
        ]
        for m in range(people)
    ]
    largest = np.zeros(len(EPSILONS))
    for ones in found:
        first, second = np.ones(1), np.ones(1)
        for m in ones:
            first = np.outer(first, laws[m][0]).ravel()
            second = np.outer(second, laws[m][1]).ravel()
        here = [np.maximum(first - math.exp(e) * second, 0.0).sum() for e in EPSILONS]
        largest = np.maximum(largest, here)
    return [float(x) for x in largest]


@pytest.mark.parametrize("q", [Fraction(1, 64), Fraction(1, 5)])
@pytest.mark.parametrize("name", CASES)
def test_brackets_contain_every_crowd(name: str, q: Fraction):
    survey, answers, people = CASES[name]
    assert {len(answer) for answer in answers} == {survey.bits}
    bound = bound_of(survey, "counts")
    for size in {1, 2, people // 2, people}:
        truth = worst(pairs(answers, size - 1), size, q)
        for epsilon, exact in zip(EPSILONS, truth, strict=True):
            attack = bound.attack(size, float(q), epsilon).delta
            proven = bound.proven(size, float(q), epsilon).delta
            assert 0.0 <= attack.low <= exact * (1 + 1e-11) + 1e-15
            assert exact * (1 - 1e-11) - 1e-15 <= proven.high <= 1.0
            # the bound is loose where a crowd is tiny, since none is the worst at every loss
            assert proven.high <= 2.0 * exact + 1e-9


@pytest.mark.parametrize("q", [Fraction(1, 64), Fraction(1, 5)])
@pytest.mark.parametrize("name", CASES)
def test_the_crowd_of_the_attack_can_answer_so_and_has_its_delta(name: str, q: Fraction):
    """Nobody in it gives an answer that the survey does not allow."""
    survey, answers, people = CASES[name]
    far = [
        (x, y)
        for x, y in itertools.permutations(answers, 2)
        if sum(a != b for a, b in zip(x, y, strict=True)) == survey.differing_bits
    ]
    assert far
    for size, epsilon in itertools.product({1, 2, people}, EPSILONS):
        attack = bound_of(survey, "counts").attack(size, float(q), epsilon)
        assert attack.crowd["first"] + attack.crowd["second"] == size - 1
        for x, y in (far[0], far[-1]):
            others = [y] * attack.crowd["second"] + [x] * attack.crowd["first"]
            first, second = np.ones(1), np.ones(1)
            for bit in range(survey.bits):
                m = sum(answer[bit] for answer in others)
                here = (count_law(m + b, size - m - b, q) for b in (y[bit], x[bit]))
                if x[bit] != y[bit]:
                    laws = [np.array([float(w) for w in law]) for law in here]
                    first = np.outer(first, laws[0]).ravel()
                    second = np.outer(second, laws[1]).ravel()
            exact = float(np.maximum(first - math.exp(epsilon) * second, 0.0).sum())
            assert 0.99 * exact - 1e-6 <= attack.delta.low <= exact * (1 + 1e-11) + 1e-15


@pytest.mark.parametrize(("name", "people"), [("choice of 3", 3), ("yes or no, crossed", 2)])
def test_the_enumeration_against_people_and_coins(name: str, people: int):
    """Counts of bits are independent, and bits that agree tell nothing."""
    _, answers, _ = CASES[name]
    q = Fraction(1, 5)
    exact = collections_worst(answers, people, q, Fraction(math.exp(EPSILONS[1])))
    assert worst(pairs(answers, people - 1), people, q)[1] == pytest.approx(float(exact), rel=1e-11)
