"""Combined estimates: their sigma and coverage by seeded Monte Carlo, their algebra by hand."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from shoal import (
    Choice,
    Estimate,
    Flags,
    InputError,
    LieProbability,
    compare,
    difference,
    ratio,
    total,
)

Q = LieProbability(1, 2)
FLAGS = Flags("f", ("a", "b", "c"))
CHOICE = Choice("c", ("x", "y", "z"))
RUNS = 4000
SLACK = 5 * math.sqrt(0.95 * 0.05 / RUNS)
"""Five standard errors of a coverage of 95 % in so many seeded runs."""


def made(
    ones: int, label: str = "a", reports: int = 1000, target: Any = "crowd", question: Any = FLAGS
) -> Estimate:
    return Estimate(question, label, int(ones), reports, Q, target, 0.0)


def reports_of(truth: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """How many reports show each bit, when so many of n people have it."""
    n = 2000
    return generator.binomial(truth, 0.75) + generator.binomial(n - truth, 0.25)


class TestCrowd:
    TRUTH = np.array([900, 500, 100])

    def runs(self) -> Iterator[list[Estimate]]:
        generator = np.random.default_rng(1)
        for _ in range(RUNS):
            ones = reports_of(self.TRUTH, generator)
            yield [made(m, label, 2000) for m, label in zip(ones, "abc", strict=True)]

    def test_difference_total_ratio_cover(self):
        hits = np.zeros(3)
        values = []
        for a, b, c in self.runs():
            results = difference(a, b), total([a, b, c]), ratio(a, b)
            wanted = 400, 1500, 1.8
            hits += [r.low <= w <= r.high for r, w in zip(results, wanted, strict=True)]
            values.append([r.value for r in results])
        assert (np.abs(hits / RUNS - 0.95) < SLACK + 0.005).all(), hits / RUNS
        spread = np.std(values, axis=0)
        a, b, c = next(iter(self.runs()))
        claimed = [difference(a, b).sigma, total([a, b, c]).sigma]
        assert np.allclose(spread[:2], claimed, rtol=0.06)
        assert np.allclose(np.mean(values, axis=0)[:2], [400, 1500], atol=5)

    def test_two_crowds_compare(self):
        generator = np.random.default_rng(2)
        hits = 0
        for _ in range(RUNS):
            first = made(reports_of(np.array([900]), generator)[0], reports=2000)
            second = made(reports_of(np.array([500]), generator)[0], reports=2000)
            result = compare(first, second)
            hits += result.low <= 0.2 <= result.high
        assert abs(hits / RUNS - 0.95) < SLACK + 0.005

    def test_crowds_of_two_sizes_and_plans(self):
        other = Estimate(FLAGS, "a", 100, 400, LieProbability(1, 3), "crowd", 0.0)
        result = compare(made(400), other)
        assert math.isclose(result.value, 0.3 - (100 - 50) / 0.75 / 400)
        assert math.isclose(result.sigma, math.hypot(made(400).sigma / 1000, other.sigma / 400))


class TestPopulation:
    @pytest.mark.parametrize("question", [CHOICE, FLAGS], ids=["choice", "flags"])
    def test_cover_at_least_the_level(self, question: Any):
        """One answer each: the covariance is known. Several: bounded, so that coverage is more."""
        generator = np.random.default_rng(3)
        n, shares = 2000, np.array([0.5, 0.3, 0.2])
        hits = np.zeros(3)
        for _ in range(RUNS):
            if question is CHOICE:
                truth = generator.multinomial(n, shares)
            else:  # who has b has a; c is everybody else's
                who = generator.random(n)
                truth = np.array([(who < 0.5).sum(), (who < 0.3).sum(), (who >= 0.8).sum()])
            ones = reports_of(truth, generator)
            a, b, c = (
                made(m, label, n, "population", question)
                for m, label in zip(ones, question.labels, strict=True)
            )
            wanted = 0.2 * n, n * shares.sum(), 5 / 3
            results = difference(a, b), total([a, b, c]), ratio(a, b)
            hits += [r.low <= w <= r.high for r, w in zip(results, wanted, strict=True)]
        assert (hits / RUNS > 0.95 - SLACK - 0.005).all(), hits / RUNS
        if question is CHOICE:
            assert (hits / RUNS < 0.95 + SLACK + 0.005).all(), hits / RUNS

    def test_a_whole_choice_varies_by_its_lies_alone(self):
        """The options of a choice add up to everybody, whoever is asked."""
        parts = [
            made(m, label, 1000, "population", CHOICE)
            for m, label in zip((500, 400, 350), "xyz", strict=True)
        ]
        lies = 3 * 1000 * 0.25 * 0.75 / 0.25
        assert math.isclose(total(parts).sigma ** 2, lies, rel_tol=1e-9)


class TestByHand:
    def test_sigma_in_a_crowd(self):
        a, b = made(400), made(300, "b")
        assert math.isclose(difference(a, b).sigma, math.hypot(a.sigma, b.sigma))
        assert math.isclose(total([a, b]).sigma, math.hypot(a.sigma, b.sigma))
        assert difference(a, b).value == -difference(b, a).value == 200
        assert difference(a, b).differs
        assert not difference(a, made(395, "b")).differs

    def test_fieller_ends_are_where_the_test_just_rejects(self):
        a, b = made(500), made(400, "b")
        result = ratio(a, b, level=0.9)
        z = 1.6448536269514722
        for t in (result.low, result.high):
            gap = abs(a.count - t * b.count)
            assert math.isclose(gap, z * math.sqrt(a.sigma**2 + t * t * b.sigma**2), rel_tol=1e-9)
        assert result.low < a.count / b.count < result.high

    def test_a_ratio_to_nobody(self):
        with pytest.raises(InputError, match="exactly 0"):
            ratio(made(400), made(250, "b"))
        unbounded = ratio(made(400), made(251, "b"))
        assert (unbounded.low, unbounded.high) == (-math.inf, math.inf)

    def test_levels_widen(self):
        a, b = made(400), made(300, "b")
        for combine in (difference, ratio, compare):
            narrow, wide = combine(a, b, 0.5), combine(a, b, 0.99)
            assert wide.low < narrow.low < narrow.high < wide.high

    @pytest.mark.parametrize("level", [0, 1, 95, "x", float("nan")])
    def test_levels_that_are_none(self, level: Any):
        a, b = made(400), made(300, "b")
        for combine in (difference, ratio, compare):
            with pytest.raises(InputError, match="level"):
                combine(a, b, level)
        with pytest.raises(InputError, match="level"):
            total([a, b], level)

    def test_what_does_not_go_together(self):
        a = made(400)
        others = [made(300, "b", 999), made(300, "b", 1000, "population")]
        others.append(Estimate(FLAGS, "b", 300, 1000, LieProbability(1, 3), "crowd", 0.0))
        for other, combine in itertools.product(others, (difference, ratio)):
            with pytest.raises(InputError, match="not of one tally"):
                combine(a, other)
        with pytest.raises(InputError, match="twice"):
            difference(a, a)
        with pytest.raises(InputError, match="twice"):
            total([a, a])
        with pytest.raises(InputError, match="at least one"):
            total([])

    def test_shares_of_two_targets_do_not_compare(self):
        """One has a sampling error and the other has not: the sigma would be neither's."""
        with pytest.raises(InputError):
            compare(made(400), made(400, "a", 1000, "population"))
