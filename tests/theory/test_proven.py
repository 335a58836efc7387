"""The promise is never below the truth, nor the attack above it."""

import math
import os
import random

import numpy as np
import pytest

from shoal.theory import blanket
from shoal.theory.blanket import blanket_delta, blanket_draws
from shoal.theory.domains import Block, at_most, choice, differing_bits, flags
from shoal.theory.enumeration import channel, originals, worst_delta
from shoal.theory.homogeneous import local_delta
from shoal.theory.proven import attack_delta, proven_delta
from shoal.theory.stop_loss import reduction

from .strategies import SMALL_DOMAINS

CELLS = int(os.environ.get("SHOAL_THEORY_CELLS", "200"))
"""Cells of the random grid; 10000 takes most of an hour."""


@pytest.mark.parametrize(("domain", "largest"), SMALL_DOMAINS)
@pytest.mark.parametrize("inverted", [False, True])
def test_truth_is_between_attack_and_promise(domain, largest, inverted, monkeypatch):
    if inverted:
        monkeypatch.setattr(reduction, "_FEW", 0)
    rng = random.Random(str(domain))
    for N in range(1, largest + 1):
        q = rng.choice([0.02, 0.1, 0.2, 0.3, 0.4, 0.45])
        share = rng.choice([0.05, 0.2, 0.5, 0.8])
        epsilon = share * differing_bits(domain) * math.log((1 - q) / q)
        truth, _ = worst_delta(domain, N, q, math.exp(epsilon))
        promise = proven_delta(domain, N, q, epsilon)
        bound = blanket_delta(domain, N, q, epsilon)
        found = attack_delta(domain, N, q, epsilon)
        assert found.delta.low <= truth * (1 + 1e-12) + 1e-15
        assert truth * (1 - 1e-12) - 1e-15 <= promise.delta.high <= bound.high * (1 + 1e-12)
        assert truth * (1 - 1e-12) - 1e-15 <= local_delta(domain, q, epsilon).high


@pytest.mark.parametrize(
    "domain",
    [
        (flags(3),),
        (choice(4),),
        (Block(5, 2, 2),),
        (at_most(2, 4),),
        (Block(4, 1, 2),),
        (at_most(1, 3), flags(1)),
        (choice(2), choice(3)),
    ],
)
def test_gamma_is_the_mass_of_the_minimum(domain):
    for q in (0.05, 0.3, 0.45):
        table = np.array([channel(y, q) for y in originals(domain)])
        law = blanket_draws(domain, q, 1.0)[0]
        gamma = np.exp(law.log_weight[:-1]).sum()  # the last atom is a report that says something
        assert gamma == pytest.approx(table.min(axis=0).sum(), rel=1e-12)


def blanket_by_brute_force(domain, N, q, epsilon):
    """(1/N) E[(sum Y)_+], every pair, every sequence of N reports."""
    vectors = originals(domain)
    table = {y: np.array(channel(y, q)) for y in vectors}
    floor = np.min(list(table.values()), axis=0)
    weights = np.append(floor, 1 - floor.sum())
    best = 0.0
    for x in vectors:
        for y in vectors:
            step = np.append((table[y] - math.exp(epsilon) * table[x]) / floor, 0.0)
            total, chance = np.zeros(1), np.ones(1)
            for _ in range(N):
                total = np.add.outer(total, step).ravel()
                chance = np.multiply.outer(chance, weights).ravel()
            best = max(best, float(chance @ np.maximum(total, 0.0)) / N)
    return best


@pytest.mark.parametrize(
    "domain",
    [
        (flags(2),),
        (choice(3),),
        (at_most(1, 3),),
        (at_most(2, 3),),
        (at_most(2, 4),),
        (Block(4, 2, 2),),
        (Block(3, 1, 2),),
        (flags(1), choice(2)),
        (flags(1), at_most(1, 2)),
    ],
)
def test_the_worst_pair_of_the_blanket_is_the_one_that_is_used(domain):
    """Checks the lemma on exchangeable pairs and the classes of `at most k`, over all pairs."""
    for N, q, epsilon in ((1, 0.2, 0.3), (2, 0.3, 0.4), (3, 0.1, 1.5)):
        exact = blanket_by_brute_force(domain, N, q, epsilon)
        bracket = blanket_delta(domain, N, q, epsilon)
        assert bracket.low <= exact * (1 + 1e-12)
        assert exact * (1 - 1e-12) <= bracket.high


def test_loose_form_is_an_upper_bound(monkeypatch):
    domain = (at_most(2, 5),)
    tight = blanket_delta(domain, 50, 0.3, 0.5)
    monkeypatch.setattr(blanket, "_MOST_CLASSES", 0)
    loose = blanket_delta(domain, 50, 0.3, 0.5)
    assert tight.high <= loose.high
    assert loose.high < 3 * tight.high


def test_merged_atoms_are_an_upper_bound(monkeypatch):
    domain = (flags(6), choice(4), choice(5), choice(6))
    fine = blanket_delta(domain, 10_000, 0.3, 0.5)
    monkeypatch.setattr(blanket, "_MOST_ATOMS", 60)
    coarse = blanket_delta(domain, 10_000, 0.3, 0.5)
    assert fine.low <= coarse.high
    assert coarse.high < 2 * fine.high


def random_cell(rng):
    kinds = [
        lambda: flags(rng.choice([1, 2, 3, 5, 10, 40, 64])),
        lambda: choice(rng.choice([1, 2, 3, 5, 100])),
        lambda: at_most(rng.choice([1, 2, 3]), rng.choice([4, 8, 30, 128])),
    ]
    domain = tuple(rng.choice(kinds)() for _ in range(rng.choice([1, 1, 1, 2, 3])))
    N = int(10 ** rng.uniform(0, 9))
    q = rng.choice([10 ** rng.uniform(-6, -0.31), rng.uniform(0.01, 0.5), rng.uniform(0.3, 0.5)])
    local = differing_bits(domain) * math.log((1 - q) / q)
    epsilon = rng.choice([10 ** rng.uniform(-3, 1), math.log(2), rng.uniform(0, 1.1) * local])
    return domain, N, q, epsilon


@pytest.mark.parametrize("block", range(10))
def test_random_grid(block):
    """0 <= attack <= proven <= 1 over domains, crowds of 1 to 1e9, and q from 1e-6 to 1/2.

    The promise falls as epsilon grows. The attack is the best of a shortlist and need not: in some
    extreme cells a better crowd is found only at a larger epsilon. SHOAL_THEORY_CELLS=10000 looks
    at that many cells.
    """
    rng = random.Random(block)
    for _ in range(CELLS // 10):
        domain, N, q, epsilon = random_cell(rng)
        promise = proven_delta(domain, N, q, epsilon, rtol=0.02).delta
        found = attack_delta(domain, N, q, epsilon, rtol=0.02).delta
        assert 0 <= found.low <= found.high <= 1
        assert 0 <= promise.low <= promise.high <= 1
        assert found.low <= promise.high, (domain, N, q, epsilon)
        further = epsilon * 1.2 + 0.01
        assert proven_delta(domain, N, q, further, rtol=0.05).delta.low <= promise.high


def test_which_bound_is_used():
    assert proven_delta((flags(1),), 1000, 0.0119, math.log(2)).method == "exact over m"
    assert proven_delta((flags(5),), 5000, 0.2102, math.log(2)).method == "blanket"
    assert proven_delta((flags(5),), 5000, 0.47, math.log(2)) == ((0.0, 0.0), "local")
    assert proven_delta((flags(5),), 1, 0.2, math.log(2)).method == "local"


def test_more_noise_or_more_people_never_hurts_at_the_plans_of_the_table():
    for domain, N, q, epsilon in (
        ((flags(5),), 5000, 0.2102, math.log(2)),
        ((choice(100),), 10_000, 0.0748, math.log(2)),
        ((flags(40),), 10**7, 0.38170, 2.0),
    ):
        here = proven_delta(domain, N, q, epsilon).delta
        assert proven_delta(domain, N, q * 1.01, epsilon).delta.high < here.low
        assert proven_delta(domain, N + N // 10, q, epsilon).delta.high < here.low
        assert proven_delta(domain, N, q, epsilon * 1.01).delta.high < here.low
