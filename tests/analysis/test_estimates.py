"""Estimates: unbiased exactly, constrained by projection, refused where nothing can be said."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from bench.coverage import singles, together
from bench.coverage_findings import LEVEL, Findings
from bench.coverage_tables import tables
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import binom

from shoal import Choice, Flags, Number, Plan, PrivacyRefusal, Survey, Tally, estimate, plan, tally
from shoal.analysis.estimates import nearest_feasible, sample_size
from shoal.analysis.intervals import interval
from shoal.errors import InputError, SurveyError
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Promise
from shoal.protocol.wire import Synthetic
from tests.strategies import bounded

SURVEY = Survey("s", (Flags("f", ("a", "b")), Choice("c", ("x", "y", "z"))))
PLAN = plan(SURVEY, q="0.25")


def counted(ones: list[int], reports: int, made: Plan = PLAN, simulated: bool = False) -> Tally:
    """A tally with the given counts by bit."""
    rows = np.zeros((reports, made.bits), np.uint8)
    for bit, count in enumerate(ones):
        rows[:count, bit] = 1
    packed = np.packbits(rows, axis=1, bitorder="little")
    return tally(made, Synthetic(packed, made.bits, simulated))


class TestUnbiased:
    @pytest.mark.parametrize("q", ["0.25", "0.0625", "0.4375", "0.351"])
    @pytest.mark.parametrize(("n", "m"), [(1, 0), (1, 1), (6, 0), (6, 2), (6, 6)])
    def test_count_and_sigma_over_the_whole_law(self, q: str, n: int, m: int):
        """Every output of n people with its exact probability."""
        one = plan(Survey("s", (Flags("f", ("a",)),)), q=q)
        flip = one.q.fraction
        mean, square, sigmas = 0.0, 0.0, set()
        for flips in itertools.product((0, 1), repeat=n):
            ones = sum(flip ^ (person < m) for person, flip in enumerate(flips))
            chance = float(flip ** sum(flips) * (1 - flip) ** (n - sum(flips)))
            made = estimate(one, counted([ones], n, one))["f"]["a"]
            mean += chance * made.count
            square += chance * made.count**2
            sigmas.add(made.sigma)
        assert math.isclose(mean, m, abs_tol=1e-9)
        assert len(sigmas) == 1
        assert math.isclose(square - mean**2, sigmas.pop() ** 2, rel_tol=1e-9)

    @pytest.mark.parametrize("q", ["0.25", "0.0625"])
    @pytest.mark.parametrize("share", [Fraction(0), Fraction(1, 3), Fraction(1)])
    def test_population(self, q: str, share: Fraction):
        """People drawn too: the count stays unbiased, its variance is n r (1-r) / (1-2q)^2."""
        n = 8
        one = plan(Survey("s", (Flags("f", ("a",)),)), q=q)
        rate = one.q.fraction + (1 - 2 * one.q.fraction) * share
        chances = [math.comb(n, s) * rate**s * (1 - rate) ** (n - s) for s in range(n + 1)]
        made = [
            estimate(one, counted([s], n, one), target="population")["f"]["a"] for s in range(n + 1)
        ]
        mean = sum(float(c) * e.count for c, e in zip(chances, made, strict=True))
        assert math.isclose(mean, n * share, abs_tol=1e-9)
        # The plug-in variance of a rate is low by the factor (n - 1) / n, exactly.
        claimed = sum(float(c) * e.sigma**2 for c, e in zip(chances, made, strict=True))
        true = float(n * rate * (1 - rate) / (1 - 2 * one.q.fraction) ** 2)
        assert math.isclose(claimed, true * (n - 1) / n, rel_tol=1e-9)

    def test_by_hand(self):
        made = estimate(PLAN, counted([300, 700, 250, 400, 350], 1000))
        assert [made["f"]["a"].count, made["f"]["b"].count] == [100.0, 900.0]
        assert made["f"]["a"].share == 0.1
        assert math.isclose(made["f"]["a"].sigma, math.sqrt(1000 * 3 / 16) / 0.5)
        assert made["c"]["x"].count == 0

    def test_it_is_never_clipped(self):
        made = estimate(PLAN, counted([0, 1000, 0, 0, 0], 1000))
        assert made["f"]["a"].count == -500
        assert made["f"]["b"].count == 1500
        assert made["f"]["a"].constrained == 0
        assert made["f"]["b"].constrained == 1000

    def test_intervals_are_those_of_the_module(self):
        made = estimate(PLAN, counted([300, 700, 250, 400, 350], 1000))["c"]["y"]
        for kind in ("exact", "normal", "simultaneous", "chebyshev"):
            wanted = interval(400, 1000, 0.25, level=0.9, kind=kind, options=3)
            assert made.interval(0.9, kind) == wanted


class TestConstrained:
    @given(
        st.integers(0, 2**32), st.integers(1, 6), st.sampled_from(["flags", "choice", "at most"])
    )
    @bounded(60)
    def test_nearest_by_quadratic_programming(self, seed: int, options: int, kind: str):
        generator = np.random.default_rng(seed)
        counts = generator.normal(100 / options, 120, options)
        reports = 100
        fewest = reports if kind == "choice" else 0
        most = {"flags": options, "choice": 1, "at most": min(2, options)}[kind] * reports
        found = nearest_feasible(counts, reports, fewest, most)
        assert (found >= 0).all()
        assert (found <= reports).all()
        assert fewest - 1e-6 <= found.sum() <= most + 1e-6
        best = minimize(  # type: ignore[call-overload]
            lambda x: ((x - counts) ** 2).sum() / 1e4,
            np.full(options, fewest / options if fewest else 1.0),
            jac=lambda x: 2 * (x - counts) / 1e4,
            bounds=[(0, reports)] * options,
            constraints=[
                {"type": "ineq", "fun": lambda x: (x.sum() - fewest) / 100},
                {"type": "ineq", "fun": lambda x: (most - x.sum()) / 100},
            ],
            method="SLSQP",
            options={"maxiter": 500, "ftol": 1e-12},
        )
        mine, theirs = ((found - counts) ** 2).sum(), ((best.x - counts) ** 2).sum()
        assert mine <= theirs * (1 + 1e-6) + 1e-4

    def test_what_fits_is_not_moved(self):
        made = estimate(PLAN, counted([300, 700, 400, 450, 400], 1000))
        assert made["c"]["x"].constrained == made["c"]["x"].count == 300
        number = plan(Survey("s", (Number("n", ("1", "2")),)), q="0.25")
        fits = estimate(number, counted([400, 450, 400], 1000, number))["n"]
        assert [one.constrained for one in fits.values()] == [300, 400, 300]


class TestRefusals:
    def test_a_blind_plan(self):
        blind = Plan(SURVEY, FlipProbability(1, 1), Promise("local", "1"))
        with pytest.raises(InputError, match="q is 1/2"):
            estimate(blind, counted([1] * 5, 10, blind))

    def test_a_crowd_that_is_not_whole(self):
        crowd = plan(SURVEY, q="0.25", crowd_size=11)
        with pytest.raises(PrivacyRefusal, match="crowd of 11 reports, but the tally has 10"):
            estimate(crowd, counted([1] * 5, 10, crowd))
        estimate(crowd, counted([1] * 5, 11, crowd))
        assert estimate(crowd, counted([1] * 5, 10, crowd, simulated=True)).tally.simulated

    def test_target(self):
        with pytest.raises(InputError, match="target must be crowd or population"):
            estimate(PLAN, counted([1] * 5, 10), target="all")  # type: ignore[arg-type]

    def test_names(self):
        made = estimate(PLAN, counted([1] * 5, 10))
        with pytest.raises(SurveyError, match="has no question 'g'"):
            made["g"]
        assert list(made) == ["f", "c"]
        assert len(made) == 2


class TestJson:
    def test_what_does_not_fit_is_flagged(self):
        document = estimate(PLAN, counted([0, 700, 250, 400, 350], 1000)).to_json()
        assert document["questions"]["f"]["a"]["incompatible"] is True
        assert "incompatible" not in document["questions"]["f"]["b"]


def _at_most(s: int, n: int, m: int, q: float) -> float:
    """P[Bin(m, p) + Bin(n - m, q) <= s], by SciPy's binomials."""
    flipped = np.arange(min(m, 400) + 1)
    law = binom.pmf(flipped, m, q) * binom.cdf(s - m + flipped, n - m, q)
    return float(law.sum())


class TestSampleSize:
    @pytest.mark.slow
    @pytest.mark.parametrize("kind", ["normal", "chebyshev"])
    @pytest.mark.parametrize("target", ["crowd", "population"])
    @pytest.mark.parametrize("q", ["0.0625", "0.45"])
    @pytest.mark.parametrize("share", [0.01, 0.04])
    def test_round_trip(self, q: str, share: float, target: Any, kind: Any):
        """With so many reports the interval reaches as far as asked; with one fewer, farther."""
        flip = FlipProbability.at_least(q)
        error, level = 0.1, 0.95
        n = sample_size(
            flip, share=share, relative_error=error, level=level, kind=kind, target=target
        )

        def reach(n: int) -> float:
            # A count of ones that estimates exactly the share; not whole, to be exact.
            ones = n * (float(flip) + (1 - 2 * float(flip)) * share)
            rate = float(flip) if target == "crowd" else ones / n
            sigma = math.sqrt(n * rate * (1 - rate)) / (1 - 2 * float(flip))
            return sigma * (1.959963984540054 if kind == "normal" else 1 / math.sqrt(1 - level))

        assert reach(n) <= error * share * n * (1 + 1e-9)
        assert reach(n - 1) > error * share * (n - 1) * (1 - 1e-9)

    @pytest.mark.parametrize("q", ["0.001", "0.1", "0.4"])
    @pytest.mark.parametrize("share", [0.001, 0.1, 0.5, 1])
    def test_chebyshev_suffices_by_the_law_of_a_population(self, q: str, share: float):
        error = 0.2
        n = sample_size(q, share=share, relative_error=error, kind="chebyshev", target="population")
        flip = float(Fraction(q))
        rate = flip + (1 - 2 * flip) * share
        reach = n * (1 - 2 * flip) * share * error
        within = binom.cdf(math.floor(n * rate + reach), n, rate)
        within -= binom.cdf(math.ceil(n * rate - reach) - 1, n, rate)
        assert within >= 0.95

    @pytest.mark.parametrize("q", ["0.00002", "0.001", "0.03"])
    @pytest.mark.parametrize("level", [0.9, 0.99])
    def test_few_flips_by_the_law_of_a_crowd(self, q: str, level: float):
        """Where a count is not normal the number is a theorem's, and holds by the exact law.

        The normal formula is short by up to 0.14 here: with q = 2e-5 and an error of 1e-4 it takes
        too few reports for the estimate to bear a single flip, and one occurs too often.
        """
        flip = float(Fraction(q))
        share = 0.5
        # From about half of q on the variance of a normal count is below 25.
        for error in np.geomspace(0.55 * flip, 0.5, 60):
            n = sample_size(q, share=share, relative_error=error / share, level=level)
            m = round(share * n)
            mean = m * (1 - flip) + (n - m) * flip
            reach = (1 - 2 * flip) * n * error * (1 + 1e-12)
            last, first = math.floor(mean + reach), math.ceil(mean - reach)
            within = _at_most(last, n, m, flip) - _at_most(first - 1, n, m, flip)
            assert within >= level

    def test_wishes_that_are_none(self):
        values: dict[str, list[Any]] = {
            "q": [0.5, 0, "x"], "share": [0, 1.1, math.nan, True, 1e-320],
            "relative_error": [0, -1], "level": [1], "kind": ["exact"], "target": ["all"],
        }  # fmt: skip
        for name, value in ((name, value) for name, some in values.items() for value in some):
            asked: dict[str, Any] = {"q": 0.25, "share": 0.1, "relative_error": 0.1, name: value}
            with pytest.raises(InputError):
                sample_size(asked.pop("q"), **asked)


def test_no_interval_called_a_theorem_covers_less_than_its_level():
    """Combinations: tests/analysis/test_contrasts.py."""
    found = Findings()
    singles(found, (1, 3), ("0.001", "0.3"))
    for n, text in ((1, "0.3"), (3, "0.05")):
        together(found, n, text)
        tables(found, n, text)
    kinds = {kind for kind, _, _ in found.rows}
    assert kinds == {"exact", "simultaneous", "chebyshev", "normal"}
    for (kind, _, _), row in found.rows.items():
        assert row.cells > 0
        assert row.lowest >= LEVEL - 1e-9 or kind == "normal"
    assert len(list(found.lines())) == len(found.rows) + 2
