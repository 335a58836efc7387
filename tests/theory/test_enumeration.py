import itertools
from fractions import Fraction

import pytest
from hypothesis import given, settings

from shoal.theory.domains import choice
from shoal.theory.enumeration import (
    AnswerPair,
    channel,
    delta_of_pair,
    eta_of_pair,
    histogram_pmf,
    originals,
    worst_delta,
    worst_eta,
)

from .strategies import dyadic_q


@settings(max_examples=20, deadline=None)
@given(dyadic_q)
def test_laws_are_probabilities(q):
    assert sum(channel((0, 1, 1), q)) == 1
    assert sum(histogram_pmf([(0, 1), (1, 1), (0, 0)], q).values()) == 1


def test_law_by_listing_every_outcome():
    q = Fraction(3, 16)
    collection = [(0, 1), (1, 1), (1, 0)]
    cells = list(itertools.product((0, 1), repeat=2))
    law: dict[tuple[int, ...], Fraction] = {}
    for reports in itertools.product(range(4), repeat=3):
        chance = Fraction(1)
        for y, v in zip(collection, reports, strict=True):
            chance *= channel(y, q)[v]
        key = tuple(reports.count(v) for v in range(len(cells)))
        law[key] = law.get(key, Fraction(0)) + chance
    assert histogram_pmf(collection, q) == law


@pytest.mark.slow
def test_worst_pairs_are_attained_and_largest():
    q, lam = Fraction(1, 4), Fraction(2)
    domain = (choice(3),)
    for worst, value_of in ((worst_delta, delta_of_pair), (worst_eta, eta_of_pair)):
        value, pair = worst(domain, 3, q, lam)
        assert value == value_of(pair, q, lam)
        vectors = originals(domain)
        for others in itertools.product(vectors, repeat=2):
            for x, y in itertools.permutations(vectors, 2):
                assert value_of(AnswerPair(others, x, y), q, lam) <= value


def test_a_single_original_has_no_pair():
    with pytest.raises(ValueError, match="single original"):
        worst_delta((choice(1),), 2, 0.25, 2.0)
    with pytest.raises(ValueError, match="at least one record"):
        histogram_pmf([], 0.25)
