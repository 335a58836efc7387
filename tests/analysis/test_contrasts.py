"""Combined estimates: their sigma and coverage by seeded Monte Carlo, their algebra by hand."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from bench.coverage import same_crowd, two_crowds
from bench.coverage_findings import LEVEL, Findings

from shoal import Choice, Flags
from shoal.analysis.contrasts import Combination, difference, ratio, share_difference, total
from shoal.analysis.estimates import Estimate
from shoal.analysis.intervals import interval
from shoal.errors import InputError
from shoal.protocol.flip_probability import FlipProbability

Q = FlipProbability(1, 2)
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


def normal(a: Estimate, b: Estimate, c: Estimate) -> list[Combination]:
    return [
        difference(a, b, kind="normal"),
        total([a, b, c], kind="normal"),
        ratio(a, b, kind="normal"),
    ]


class TestCrowd:
    TRUTH = np.array([900, 500, 100])

    def runs(self) -> Iterator[list[Estimate]]:
        generator = np.random.default_rng(1)
        for _ in range(RUNS):
            ones = reports_of(self.TRUTH, generator)
            yield [made(m, label, 2000) for m, label in zip(ones, "abc", strict=True)]

    @pytest.mark.slow
    def test_difference_total_ratio_cover(self):
        hits = np.zeros(3)
        values = []
        for a, b, c in self.runs():
            results = normal(a, b, c)
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
            result = share_difference(first, second, kind="normal")
            hits += result.low <= 0.2 <= result.high
        assert abs(hits / RUNS - 0.95) < SLACK + 0.005

    def test_crowds_of_two_sizes_and_plans(self):
        other = Estimate(FLAGS, "a", 100, 400, FlipProbability(1, 3), "crowd", 0.0)
        result = share_difference(made(400), other)
        assert math.isclose(result.value, 0.3 - (100 - 50) / 0.75 / 400)
        assert math.isclose(result.sigma, math.hypot(made(400).sigma / 1000, other.sigma / 400))


class TestPopulation:
    @pytest.mark.slow
    @pytest.mark.parametrize("question", [CHOICE, FLAGS], ids=["choice", "flags"])
    def test_normal_intervals_of_a_large_crowd(self, question: Any):
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
            results = normal(a, b, c)
            hits += [r.low <= w <= r.high for r, w in zip(results, wanted, strict=True)]
        assert (hits / RUNS > 0.95 - SLACK - 0.005).all(), hits / RUNS
        if question is CHOICE:
            assert (hits / RUNS < 0.95 + SLACK + 0.005).all(), hits / RUNS

    def test_a_whole_choice_varies_by_its_flips_alone(self):
        """The options of a choice add up to everybody, whoever is asked."""
        parts = [
            made(m, label, 1000, "population", CHOICE)
            for m, label in zip((500, 400, 350), "xyz", strict=True)
        ]
        flips = 3 * 1000 * 0.25 * 0.75 / 0.25
        assert math.isclose(total(parts).sigma ** 2, flips, rel_tol=1e-9)


COMBINE = {
    "total": lambda a, b, **kind: total([a, b], **kind),
    "difference": difference,
    "ratio": ratio,
    "share_difference": share_difference,
}


class TestExactCoverage:
    """At least 95 % for every truth, by the exact law of every outcome; nothing is drawn."""

    def check(self, found: Findings, kinds: int, population: float = 1e-12) -> None:
        assert len(found.rows) == kinds
        for (_, target, what), row in found.rows.items():
            slack = 1e-12 if target == "crowd" else population
            assert row.lowest >= LEVEL - slack, (target, what, row.where)

    @pytest.mark.parametrize(
        ("n", "q"),
        [(1, "0.01"), (1, "0.3"), (2, "0.05"), (5, "0.001"), (8, "0.001"), (8, "0.45"),
         (12, "1e-9"), (12, "0.3")],
    )  # fmt: skip
    def test_of_two_bits(self, n: int, q: str):
        """Total, difference and ratio: of a crowd, and of flags and a choice of a population."""
        found = Findings()
        same_crowd(found, ("exact",), n, q)
        self.check(found, 3 * 3, population=1e-9)  # its law is a Fourier transform

    @pytest.mark.parametrize(
        "crowds", [((5, "0.05"), (5, "0.05")), ((3, "0.001"), (12, "0.3")), ((1, "0.1"),) * 2]
    )
    def test_of_two_crowds(self, crowds: Any):
        found = Findings()
        two_crowds(found, ("exact",), *crowds)
        self.check(found, 2)

    @pytest.mark.parametrize("target", ["crowd", "population"])
    @pytest.mark.parametrize("question", [CHOICE, FLAGS], ids=["choice", "flags"])
    def test_they_are_not_wasteful(self, target: Any, question: Any):
        """In a large crowd: as wide as normal ones, where the law of the combination is known."""
        n = 200_000
        a, b = (
            made(ones, label, n, target, question)
            for ones, label in zip((80_000, 70_000), question.labels, strict=False)
        )
        known, independent, added = 1.01, 1.25, 1.65
        crowd = target == "crowd"
        wanted = {
            "total": known if crowd or question is CHOICE else added,
            "difference": known if crowd else added,
            "ratio": independent if crowd else added,
            "share_difference": known if crowd else independent,
        }
        for name, most in wanted.items():
            combine: Any = COMBINE[name]
            exact, normal = (combine(a, b, kind=kind) for kind in ("exact", "normal"))
            assert 0.99 < (exact.high - exact.low) / (normal.high - normal.low) < most, name


class TestByHand:
    def test_exact_intervals_of_a_crowd_are_those_of_one_larger_crowd(self):
        a, b, c = made(400), made(300, "b"), made(250, "c")
        whole = interval(950, 3000, 0.25, level=0.9)
        assert (total([a, b, c], 0.9).low, total([a, b, c], 0.9).high) == (whole.low, whole.high)
        apart = interval(400 + 700, 2000, 0.25, level=0.9)
        more = difference(a, b, 0.9)
        assert (more.low, more.high) == (apart.low - 1000, apart.high - 1000)
        shares = share_difference(a, b, 0.9)
        assert (shares.low, shares.high) == (more.low / 1000, more.high / 1000)

    def test_kinds_are_named(self):
        a, b = made(400), made(300, "b")
        combinations: list[Any] = [difference, ratio, share_difference]
        for combine in combinations:
            assert combine(a, b).kind == "exact"
            assert combine(a, b, kind="normal").kind == "normal"
            with pytest.raises(InputError, match="exact or normal, got 'chebyshev'"):
                combine(a, b, kind="chebyshev")

    @pytest.mark.parametrize("target", ["crowd", "population"])
    @pytest.mark.parametrize(("x", "y"), [(0, 0), (0, 20), (20, 0), (20, 20), (3, 9)])
    def test_reports_that_fit_no_truth(self, target: Any, x: int, y: int):
        """Twenty of twenty ones at q = 1/4: the ends stay in order, and inside what there is."""
        a, b = made(x, "a", 20, target), made(y, "b", 20, target)
        for combine in (difference, ratio, share_difference, lambda a, b: total([a, b])):
            with contextlib.suppress(InputError):
                result = combine(a, b)
                assert result.low <= result.high
                assert result.low >= -20

    def test_sigma_in_a_crowd(self):
        a, b = made(400), made(300, "b")
        assert math.isclose(difference(a, b).sigma, math.hypot(a.sigma, b.sigma))
        assert math.isclose(total([a, b]).sigma, math.hypot(a.sigma, b.sigma))
        assert difference(a, b).value == -difference(b, a).value == 200
        assert difference(a, b).differs
        assert not difference(a, made(395, "b")).differs

    def test_fieller_ends_are_where_the_test_just_rejects(self):
        a, b = made(500), made(400, "b")
        result = ratio(a, b, level=0.9, kind="normal")
        z = 1.6448536269514722
        for t in (result.low, result.high):
            gap = abs(a.count - t * b.count)
            assert math.isclose(gap, z * math.sqrt(a.sigma**2 + t * t * b.sigma**2), rel_tol=1e-9)
        assert result.low < a.count / b.count < result.high

    def test_a_ratio_to_nobody(self):
        with pytest.raises(InputError, match="exactly 0"):
            ratio(made(400), made(250, "b"))
        unbounded = ratio(made(400), made(251, "b"), kind="normal")
        assert (unbounded.low, unbounded.high) == (-math.inf, math.inf)
        unbounded = ratio(made(400), made(251, "b"))
        assert 0 < unbounded.low < unbounded.high == math.inf

    @pytest.mark.parametrize("level", [0, 1, 95, "x", float("nan")])
    def test_levels_that_are_none(self, level: Any):
        a, b = made(400), made(300, "b")
        for combine in (difference, ratio, share_difference):
            with pytest.raises(InputError, match="level"):
                combine(a, b, level)
        with pytest.raises(InputError, match="level"):
            total([a, b], level)

    def test_what_does_not_go_together(self):
        a = made(400)
        others = [made(300, "b", 999), made(300, "b", 1000, "population")]
        others.append(Estimate(FLAGS, "b", 300, 1000, FlipProbability(1, 3), "crowd", 0.0))
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
            share_difference(made(400), made(400, "a", 1000, "population"))
