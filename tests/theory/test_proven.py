"""The promise is never below the truth, nor the attack above it."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from shoal.theory import blanket, proven
from shoal.theory.blanket import blanket_delta, normal_guess
from shoal.theory.domains import Block, at_most, choice, differing_bits, flags
from shoal.theory.enumeration import channel, originals, worst_delta
from shoal.theory.homogeneous import delta, local_delta
from shoal.theory.proven import (
    attack_delta,
    attack_q,
    proven_crowd,
    proven_delta,
    proven_epsilon,
    proven_q,
)
from shoal.theory.stop_loss import reduction

from .strategies import SMALL_DOMAINS


@pytest.mark.slow
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


@pytest.mark.parametrize(
    ("domain", "N", "limit", "most", "factor"),
    [
        ((at_most(2, 5),), 50, "_MAX_CLASSES", 0, 3),
        ((flags(6), choice(4), choice(5), choice(6)), 10_000, "_MAX_ATOMS", 60, 2),
    ],
    ids=["loose form", "merged atoms"],
)
def test_a_coarser_form_is_an_upper_bound(domain, N, limit, most, factor, monkeypatch):
    fine = blanket_delta(domain, N, 0.3, 0.5)
    monkeypatch.setattr(blanket, limit, most)
    coarse = blanket_delta(domain, N, 0.3, 0.5)
    assert fine.high <= coarse.high < factor * fine.high


def test_which_bound_is_used():
    assert proven_delta((flags(1),), 1000, 0.0119, math.log(2)).method == "exact over m"
    assert proven_delta((flags(5),), 5000, 0.2102, math.log(2)).method == "adapted blankets"
    assert proven_delta((flags(5),), 5000, 0.2102, math.log(2), 1e-3).method == "blanket"
    assert proven_delta((flags(2),), 5000, 0.2102, math.log(2)).method == "blanket"
    assert proven_delta((flags(5),), 5000, 0.47, math.log(2)) == ((0.0, 0.0), "local")
    assert proven_delta((flags(5),), 1, 0.2, math.log(2)).method == "local"


def test_more_noise_or_more_people_never_hurts_at_the_plans_of_the_table():
    for domain, N, q, epsilon in (
        ((flags(2),), 5000, 0.1, math.log(2)),
        ((choice(100),), 10_000, 0.0748, math.log(2)),
        ((flags(40),), 10**7, 0.38170, 2.0),
    ):
        here = proven_delta(domain, N, q, epsilon).delta
        assert proven_delta(domain, N, q * 1.01, epsilon).delta.high < here.low
        assert proven_delta(domain, N + N // 10, q, epsilon).delta.high < here.low
        assert proven_delta(domain, N, q, epsilon * 1.01).delta.high < here.low


LN2 = math.log(2)

# domain, N, epsilon, delta, proven q, attack q; the q's come from a separate prototype
TABLE = [
    ((flags(1),), 1_000, LN2, 0.005, 0.0119, 0.0119),
    ((flags(5),), 5_000, LN2, 0.005, 0.2101, 0.1788),
    ((flags(5),), 10_000, 1.0, 1e-6, 0.2146, 0.1784),
    ((flags(40),), 10**7, 2.0, 0.005, 0.3663, 0.3370),
    ((flags(40),), 10**7, 2.0, 1e-6, 0.3817, 0.3741),
    ((choice(100),), 10_000, LN2, 1e-6, 0.0748, 0.0722),
]


def blanket_or_exact(domain, N, q, epsilon):
    if domain == (flags(1),):
        return proven_delta(domain, N, q, epsilon).delta
    return blanket_delta(domain, N, q, epsilon)


@pytest.mark.slow
@pytest.mark.parametrize(("domain", "N", "epsilon", "target", "proven", "attacked"), TABLE)
def test_the_table(domain, N, epsilon, target, proven, attacked):
    answer = proven_q(domain, N, epsilon, target, quick=True)
    assert abs(answer.value - proven) < 1e-4
    assert answer.at.high <= target < answer.at.high * 1.002
    # certified where it is used, and failing just below
    assert blanket_or_exact(domain, N, answer.value, epsilon).high <= target
    assert blanket_or_exact(domain, N, answer.value * 0.999, epsilon).low > target
    below = attack_q(domain, N, epsilon, target)
    assert abs(below.value - attacked) < 1e-4
    assert below.value <= answer.value


@pytest.mark.parametrize(
    ("L", "N", "epsilon", "target", "crowd", "low", "high"),
    [
        (5, 1_000, LN2, 0.005, "forward", 0.225647, 0.225649),
        (5, 1_000, LN2, 0.005, "reverse", 0.213034, 0.213036),
        (5, 10**6, 1.0, 1e-6, "reverse", 0.094322, 0.094323),
        (40, 10**5, 1.0, 1e-6, "reverse", 0.346285, 0.346286),
        (40, 10**7, 2.0, 0.005, "forward", 0.336998, 0.336999),
        (40, 10**7, 2.0, 1e-10, "forward", 0.389298, 0.389302),
    ],
)
def test_roots_certified_by_the_prototype(L, N, epsilon, target, crowd, low, high):
    triple = (L, 0, 0) if crowd == "forward" else (0, L, 0)
    assert delta(triple, N, low - 1e-6, epsilon).low > target
    assert delta(triple, N, high + 1e-6, epsilon).high < target


@pytest.mark.slow
def test_round_trips():
    domain = (flags(5),)
    answer = proven_q(domain, 5000, LN2, 0.005)
    epsilon = proven_epsilon(domain, 5000, answer.value, 0.005)
    assert epsilon.value == pytest.approx(LN2, rel=5e-3)
    assert epsilon.at.high <= 0.005 < 1.03 * epsilon.at.high
    crowd = proven_crowd(domain, answer.value, LN2, 0.005)
    assert crowd.value == pytest.approx(5000, rel=1e-2)
    assert crowd.at.high <= 0.005 < 1.03 * crowd.at.high


def test_epsilon_at_its_ends():
    domain = (choice(3),)
    local = proven_epsilon(domain, 100, 0.25, 0.0)
    assert local.value == pytest.approx(2 * math.log(3))
    assert proven_delta(domain, 100, 0.25, local.value).delta == (0.0, 0.0)
    assert proven_epsilon(domain, 10**6, 0.25, 0.5).value == 0.0
    assert proven_epsilon(domain, 1, 0.25, 1e-9).value <= local.value


def test_crowd_of_one_bit_is_minimal():
    answer = proven_crowd((flags(1),), 0.0119, LN2, 0.005)
    below = proven_delta((flags(1),), int(answer.value) - 1, 0.0119, LN2).delta
    assert answer.at.high <= 0.005 < below.high


def test_local_noise_needs_no_crowd():
    assert proven_crowd((flags(5),), 0.47, LN2, 1e-9).value == 1
    assert proven_crowd((flags(200),), 0.499, 2.0, 1e-9).value == 1
    assert proven_crowd((flags(40),), 1e-3, 0.1, 1e-9).value == math.inf


WRONG_GUESSES = {
    "none passes": lambda right: 1.0,
    "all pass": lambda right: 1e-300,
    "far too low": lambda right: 1e-6 * right,
    "far too high": lambda right: min(1e6 * right, 1.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("wrong", WRONG_GUESSES.values(), ids=WRONG_GUESSES)
@pytest.mark.parametrize("domain", [(flags(7),), (choice(4), at_most(2, 6))], ids=["flags", "two"])
def test_a_wrong_guess_costs_time_only(domain, wrong, monkeypatch):
    """Whatever the guess is, the answer keeps the promise, and hardly less would."""
    for name in ("normal_guess", "gaussian_delta"):
        right = getattr(proven, name)
        monkeypatch.setattr(proven, name, lambda *given, right=right: wrong(right(*given)))
    q, n, epsilon, target = 0.2, 3_000, 0.8, 1e-4
    found = proven_epsilon(domain, n, q, target).value
    assert proven_delta(domain, n, q, found).delta.high <= target
    assert proven_delta(domain, n, q, found * (1 - 1e-4)).delta.low > target
    crowd = int(proven_crowd(domain, q, epsilon, target).value)
    assert proven_delta(domain, crowd, q, epsilon).delta.high <= target
    assert proven_delta(domain, int(crowd * (1 - 1e-3)) - 1, q, epsilon).delta.low > target


@pytest.mark.slow
@pytest.mark.parametrize(
    ("domain", "q", "epsilon", "target"),
    [((choice(8),) * 60, 0.4555, 6.0, 1e-6), ((choice(4),) * 101, 0.48, 0.01, 0.05)],
)
def test_what_a_plan_will_ask_holds(domain, q, epsilon, target):
    """Brackets are loose there, and a finer one was once the worse one."""
    crowd = proven_crowd(domain, q, epsilon, target)
    fine = proven_delta(domain, int(crowd.value), q, epsilon, 1e-4).delta
    rough = proven_delta(domain, int(crowd.value), q, epsilon, 0.05).delta
    assert fine.high <= min(target, rough.high)
    found = proven_epsilon(domain, int(crowd.value), q, target)
    assert proven_delta(domain, int(crowd.value), q, found.value, 1e-4).delta.high <= target
    assert found.value <= epsilon * (1 + 1e-3)


def test_an_undecided_guess_does_not_end_the_search():
    """At these, the first guess is so near to the edge that a rough bracket does not decide."""
    crowd = int(proven_crowd((flags(2),), 0.05, 0.0, 1e-4).value)
    assert proven_delta((flags(2),), int(crowd * (1 - 3e-4)), 0.05, 0.0).delta.low > 1e-4
    found = proven_epsilon((choice(3),), 100_000, 0.25, 0.001048).value
    assert proven_delta((choice(3),), 100_000, 0.25, found * (1 - 3e-4)).delta.low > 0.001048


def test_the_guess_is_of_answers_that_differ():
    truth = proven_delta((at_most(1, 4),), 1000, 0.3, 0.0).delta.high
    assert truth / 2 < normal_guess((at_most(1, 4),), 1000, 0.3, 0.0) < 2 * truth


def test_no_noise_and_no_difference_at_all():
    assert proven_epsilon((flags(5),), 100, 0.5, 1e-9).value == 0.0
    assert proven_crowd((flags(5),), 0.5, 0.1, 1e-9).value == 1
    assert proven_epsilon((flags(300),), 2, 1e-9, 1e-9).at.high <= 1e-9


@pytest.mark.parametrize("target", [0.0, 1.0, -1.0, math.nan])
def test_bad_targets_are_refused(target):
    with pytest.raises(ValueError, match="must be strictly between 0 and 1"):
        proven_q((flags(5),), 100, 1.0, target)
