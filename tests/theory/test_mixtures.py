"""Evidence against every mixture: its expectation is at most one, by enumeration."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from shoal.theory.binomial import pmf
from shoal.theory.honest_crowds import bins, log_evidence, most_likely, set_bit_pmfs


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


def compositions(total: int, parts: int) -> list[tuple[int, ...]]:
    if parts == 1:
        return [(total,)]
    return [
        (first, *rest)
        for first in range(total + 1)
        for rest in compositions(total - first, parts - 1)
    ]


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
        for counts in compositions(people, bits + 1)
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
