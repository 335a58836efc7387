"""Evidence against every mixture: its expectation is at most one, by enumeration."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.theory import honest_crowds
from shoal.theory.binomial import pmf
from shoal.theory.honest_crowds import (
    at_least,
    at_most,
    bins,
    hoeffding_at_least,
    log_evidence,
    most_likely,
    set_bit_pmfs,
    sum_p_values,
)
from shoal.theory.stop_loss.reduction import compositions
from tests.strategies import bounded


def test_laws():
    laws = set_bit_pmfs(5, 1, 3, 0.2)
    for row, k in zip(laws, (1, 2, 3), strict=True):
        assert row == pytest.approx(pmf(5, k, 0.2))
        brute = np.zeros(6)
        for flips in itertools.product((0, 1), repeat=5):
            shown = [flip ^ (place < k) for place, flip in enumerate(flips)]
            brute[sum(shown)] += math.prod(0.2 if flip else 0.8 for flip in flips)
        assert row == pytest.approx(brute)


@pytest.mark.parametrize("count", [1, 2, 3, 8, 50])
def test_runs_cover_everything_once(count: int):
    starts = bins(set_bit_pmfs(20, 0, 20, 0.3), count)
    assert starts[0] == 0
    assert (np.diff(starts) > 0).all()
    assert len(starts) <= max(count, 1)
    assert starts[-1] <= 20


@pytest.mark.parametrize(("bits", "fewest", "most"), [(1, 0, 1), (2, 0, 2), (3, 1, 2), (3, 1, 1)])
@pytest.mark.parametrize("q", [0.1, 0.35])
@pytest.mark.parametrize("fakes", [0, 1])
def test_no_crowd_expects_more_than_one(bits: int, fewest: int, most: int, q: float, fakes: int):
    """Every crowd of four people, one of them a fake that shows whatever it likes."""
    people = 4
    laws = set_bit_pmfs(bits, fewest, most, q)
    cuts = [np.arange(bits + 1), bins(laws, 2)]
    evidence = {
        counts: math.exp(log_evidence(laws, np.array(counts), cuts, fakes / people))
        for counts in map(tuple, compositions(people, bits + 1).tolist())
    }
    sent = np.eye(bits + 1)
    for crowd in itertools.combinations_with_replacement(range(len(laws)), people - fakes):
        for shown in itertools.combinations_with_replacement(range(bits + 1), fakes):
            rows = [*laws[list(crowd)], *sent[list(shown)]]
            expected = 0.0
            for outcome in itertools.product(range(bits + 1), repeat=people):
                chance = math.prod(row[t] for row, t in zip(rows, outcome, strict=True))
                seen = np.bincount(outcome, minlength=bits + 1)
                expected += chance * evidence[tuple(seen.tolist())]
            assert expected <= 1 + 1e-9
            if len(laws) == 1 and not fakes:
                assert expected == pytest.approx(1)  # nothing is given away


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 0.1])
def test_no_mixture_is_likelier(share: float):
    """Against mixtures drawn at random, and against long expectation and maximization."""
    generator = np.random.default_rng(3)
    laws = set_bit_pmfs(12, 0, 6, 0.3)
    for _ in range(20):
        counts = generator.multinomial(5000, generator.dirichlet(np.ones(13))).astype(float)
        bound = most_likely(laws, counts, share)
        honest, fake = generator.dirichlet(np.ones(7)), generator.dirichlet(np.ones(13))
        for _ in range(3000):
            mixed = (1 - share) * honest @ laws + share * fake
            ratio = np.divide(counts, mixed)
            honest *= laws @ ratio
            honest /= honest.sum()
            fake *= ratio
            fake /= fake.sum()
        mixed = (1 - share) * honest @ laws + share * fake
        reached = float(counts @ np.log(mixed))
        assert reached <= bound + 1e-6
        assert bound <= reached + 2  # of thousands


def test_it_sees_what_no_mixture_makes():
    laws = set_bit_pmfs(10, 0, 10, 0.2)
    cuts = [np.arange(11)]
    honest = np.rint(10_000 * laws[3]).astype(np.int64)
    assert log_evidence(laws, honest, cuts) < 0
    gap = honest.copy()
    gap[3] = 0  # everybody avoids three set bits
    assert log_evidence(laws, gap, cuts) > 100
    assert log_evidence(laws, gap, cuts, 0.9) < 0


def coins(rates: list[float]) -> np.ndarray:
    law = np.ones(1)
    for rate in rates:
        law = np.convolve(law, [1 - rate, rate])
    return law


@pytest.mark.parametrize("n", [0, 1, 7, 40])
@pytest.mark.parametrize("rate", [Fraction(1, 64), Fraction(1, 4), Fraction(1, 2), Fraction(3, 4)])
def test_binomial_tails_by_fractions(n: int, rate: Fraction):
    for s in range(-2, n + 3):
        law = [comb(n, k) * rate**k * (1 - rate) ** (n - k) for k in range(n + 1)]
        high, low = sum(law[max(s, 0) :], Fraction(0)), sum(law[: max(s + 1, 0)], Fraction(0))
        assert float(high) <= at_least(s, n, float(rate)) <= float(high) * (1 + 1e-8)
        assert float(low) <= at_most(s, n, float(rate)) + 1e-300
        assert at_most(s, n, float(rate)) <= float(low) * (1 + 1e-8) + 1e-300


@pytest.mark.slow
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.floats(0, 0.3))
@bounded(300)
def test_hoeffding_bounds_every_sum_of_coins(rates: list[float], slack: float):
    """Whatever the rates of single coins are, and if their mean is known only from above."""
    law = coins(rates)
    bound = min(float(np.mean(rates)) + slack, 1.0)
    for s in range(len(rates) + 1):
        assert law[s:].sum() <= hoeffding_at_least(s, len(rates), bound) + 1e-12


@pytest.mark.parametrize("rate", [1e-12, 2e-5])
def test_a_tiny_rate_keeps_its_digits(rate: float):
    """P[Bin(n, q) = 0] = (1 - q)^n; 1 - q as a float has 4 digits of 1e-12."""
    n = round(1 / rate)
    wanted = math.exp(n * math.log1p(-rate))
    found = float(at_most(0, n, rate))
    assert wanted <= found <= wanted * (1 + 3e-9)


def test_where_hoeffding_holds_matters():
    """At the mean itself a binomial's tail can be smaller than that of unlike coins."""
    unlike, n = [1.0, 1.0, 0.0, 0.0], 4
    assert coins(unlike)[2:].sum() == 1.0
    assert at_least(2, n, 0.5) < 1.0
    assert hoeffding_at_least(2, n, 0.5) == 1.0


@pytest.mark.parametrize(("bits", "fewest", "most"), [(1, 0, 1), (3, 1, 1), (4, 0, 2), (5, 2, 5)])
@pytest.mark.parametrize("fakes", [0, 1, 4, 6])
def test_sums_by_convolution(bits: int, fewest: int, most: int, fakes: int):
    """All ones of the fakes may be missing, or all may be fake."""
    reports, q = 6, 0.2
    honest = reports - fakes
    laws = [coins([1 - q] * (honest * k) + [q] * (honest * (bits - k))) for k in (fewest, most)]
    for ones in range(reports * bits + 1):
        few, many = sum_p_values(ones, reports, bits, fewest, most, q, fakes)
        assert few == pytest.approx(laws[0][: ones + 1].sum(), abs=1e-12)
        assert many == pytest.approx(laws[1][max(ones - fakes * bits, 0) :].sum(), abs=1e-12)


def test_beyond_exact_laws_the_bound_is_safe(monkeypatch: pytest.MonkeyPatch):
    exact = [sum_p_values(ones, 50, 10, 1, 1, 0.1) for ones in range(501)]
    monkeypatch.setattr(honest_crowds, "MAX_EXACT", 0)
    bounds = [sum_p_values(ones, 50, 10, 1, 1, 0.1) for ones in range(501)]
    for (few, many), (few_bound, many_bound) in zip(exact, bounds, strict=True):
        assert few <= few_bound * (1 + 1e-9) + 1e-14
        assert many <= many_bound * (1 + 1e-9) + 1e-14
    assert bounds[20][0] < 1e-6  # and it still sees something
