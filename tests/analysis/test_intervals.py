"""Intervals: coverage computed from the law, and the law itself by independent routes."""

from __future__ import annotations

import functools
import itertools
import math
from fractions import Fraction
from typing import Any, get_args

import mpmath
import numpy as np
import pytest
from scipy.stats import binom

from shoal.analysis.intervals import IntervalKind, Limits, interval, staircase
from shoal.errors import InputError
from shoal.lab.study import covering, probability
from shoal.theory.binomial import Tails, binomial_window, pmf, tails

QS = [0.01, 0.1, 0.25, 0.351, 0.45]


@functools.cache
def exact_counts(n: int, m: int, q: float) -> tuple[int, ...]:
    """The coefficients of (q + px)^m (p + qx)^(n-m), times the denominator of q to the n."""
    flip, whole = Fraction(q).as_integer_ratio()
    coefficients = [1]
    for i in range(n):
        zero, one = (flip, whole - flip) if i < m else (whole - flip, flip)
        shifted = [0, *coefficients]
        coefficients = [
            zero * a + one * b for a, b in zip([*coefficients, 0], shifted, strict=True)
        ]
    return tuple(coefficients)


def exact_law(n: int, m: int, q: float) -> tuple[Fraction, ...]:
    """P[A_n(m) = s] for every s, exactly."""
    whole = Fraction(q).denominator ** n
    return tuple(Fraction(count, whole) for count in exact_counts(n, m, q))


@functools.cache
def float_laws(n: int, q: float) -> np.ndarray[Any, Any]:
    """P[A_n(m) = s] as [m, s], by convolving SciPy's binomials."""
    s = np.arange(n + 1)
    return np.array(
        [
            np.convolve(binom.pmf(s[: m + 1], m, 1 - q), binom.pmf(s[: n - m + 1], n - m, q))
            for m in range(n + 1)
        ]
    )


def coverage(n: int, q: float, level: float, **how: Any) -> np.ndarray[Any, Any]:
    """The probability, for each truth m, that the interval contains m."""
    laws = float_laws(n, q)
    total = np.zeros(n + 1)
    for s in range(n + 1):
        made = interval(s, n, q, level=level, **how)
        if made.compatible:
            inside = slice(max(0, math.ceil(made.low)), max(0, math.floor(made.high) + 1))
            total[inside] += laws[inside, s]
    return total


class TestTheLaw:
    def test_a_bound_holds_its_error_and_what_was_left_out(self):
        bounds = Tails(at_most=0.25, at_least=0.5, relative_error=0.5, omitted=0.125)
        assert (bounds.at_most_bound, bounds.at_least_bound) == (0.5, 0.875)

    @pytest.mark.parametrize("q", QS)
    @pytest.mark.parametrize("n", [1, 2, 13, 50])
    def test_pmf_against_exact_fractions(self, n: int, q: float):
        for m in {0, 1, n // 3, n}:
            wanted = np.array([float(mass) for mass in exact_law(n, m, q)])
            assert np.allclose(pmf(n, m, q), wanted, rtol=1e-11, atol=0)

    @pytest.mark.parametrize("q", QS)
    def test_tails_against_exact_fractions(self, q: float):
        n = 50
        for m in (0, 1, 20, 49, 50):
            counts, whole = exact_counts(n, m, q), Fraction(q).denominator ** n
            for s in range(-1, n + 2):
                at = tails(s, n, m, q)
                below = float(Fraction(sum(counts[: max(s + 1, 0)]), whole))
                above = float(Fraction(sum(counts[max(s, 0) :]), whole))
                assert abs(at.at_most - below) <= at.error + 1e-17
                assert abs(at.at_least - above) <= at.error + 1e-17

    @pytest.mark.parametrize(
        ("n", "m", "q"),
        [
            (10000, 5000, 0.25),
            (100000, 1000, 0.351),
            (100000, 99000, 0.01),
            (100000, 0, 0.1),
            (100000, 100000, 0.45),
            (1000, 999, 0.001),
        ],
    )
    def test_tails_against_mpmath(self, n: int, m: int, q: float):
        """Two windows of 20 standard deviations, convolved with 40 digits."""
        with mpmath.workdps(40):
            ones, zeros = mp_window(m, 1 - mpmath.mpf(q)), mp_window(n - m, mpmath.mpf(q))
            sigma = math.sqrt(n * q * (1 - q))
            mean = n * q + m * (1 - 2 * q)
            below = {}
            total = mpmath.mpf(0)
            for k in sorted(zeros):
                total += zeros[k]
                below[k] = total
            first, last = min(zeros), max(zeros)

            def cdf(k: int) -> Any:
                return mpmath.mpf(0) if k < first else below[min(k, last)]

            for step in (-6, -2, -0.5, 0, 1, 3, 6):
                s = min(max(round(mean + step * sigma), 0), n)
                at = tails(s, n, m, q)
                at_most = mpmath.fsum(mass * cdf(s - k) for k, mass in ones.items())
                at_least = 1 - mpmath.fsum(mass * cdf(s - 1 - k) for k, mass in ones.items())
                assert abs(at.at_most - at_most) <= at.error
                assert abs(at.at_least - at_least) <= at.error
                assert at.error < 1e-10

    @pytest.mark.parametrize(("n", "q"), [(10, 0.3), (100_000, 0.01), (10**7, 0.4), (0, 0.2)])
    def test_a_window_holds_all_but_what_it_says(self, n: int, q: float):
        window = binomial_window(n, q)
        last = window.first + window.mass.size - 1
        outside = binom.cdf(window.first - 1, n, q) + binom.sf(last, n, q)
        assert outside <= window.omitted + 1e-300
        k = np.arange(window.first, last + 1)
        assert np.allclose(window.mass, binom.pmf(k, n, q), rtol=1e-7, atol=1e-300)


def mp_window(n: int, q: Any) -> dict[int, Any]:
    mean, sigma = int(n * q), float(mpmath.sqrt(n * q * (1 - q)))
    first, last = max(0, int(mean - 20 * sigma) - 100), min(n, int(mean + 20 * sigma) + 100)
    mass = mpmath.exp(
        mpmath.loggamma(n + 1)
        - mpmath.loggamma(first + 1)
        - mpmath.loggamma(n - first + 1)
        + first * mpmath.log(q)
        + (n - first) * mpmath.log(1 - q)
    )
    window = {}
    for k in range(first, last + 1):
        window[k] = mass
        mass = mass * (n - k) / (k + 1) * q / (1 - q)
    return window


def at_most(s: int, n: int, m: int, q: float) -> float:
    """P[A_n(m) <= s], by SciPy's binomials of how many bits are flipped."""
    flipped = np.arange(min(m, 2000) + 1)
    law = binom.pmf(flipped, m, q) * binom.cdf(s - m + flipped, n - m, q)
    return float(law.sum())


class TestTinyFlipProbabilities:
    """Under view counts q may be 2e-5: flips are few, and their number far from normal."""

    Q = 2.09212e-05

    @pytest.mark.parametrize("level", [0.9, 0.95, 0.99])
    @pytest.mark.parametrize(("kind", "options"), [("exact", 1), ("simultaneous", 40)])
    @pytest.mark.parametrize("n", [10, 10**4, 10**5, 10**6, 10**7])
    def test_coverage(self, n: int, kind: Any, options: int, level: float):
        wanted = level ** (1 / options)
        for m in sorted({0, 1, 2, n // 100, n // 2, n - 1, n}):
            first, last = covering(m, n, self.Q, level, kind, options)
            covered = at_most(last, n, m, self.Q) - at_most(first - 1, n, m, self.Q)
            assert covered >= wanted - 1e-9
            assert probability(first, last, m, n, self.Q) == pytest.approx(covered, abs=1e-9)

    @pytest.mark.parametrize("q", [1e-12, 2.0**-50, 1e-9])
    def test_a_tiny_q_keeps_its_digits(self, q: float):
        """All of n ones stay ones with (1 - q)^n; 1 - q as a float has 4 digits of 1e-12."""
        n = round(1 / q)
        wanted = math.exp(n * math.log1p(-q))
        found = tails(n, n, n, q)
        assert abs(found.at_least - wanted) <= found.error + 1e-15 * wanted
        assert found.at_least_bound == pytest.approx(wanted, rel=1e-9)


class TestExactCrowd:
    @pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.999])
    @pytest.mark.parametrize("q", QS)
    def test_coverage_of_fifty(self, q: float, level: float):
        assert coverage(50, q, level).min() >= level - 1e-12

    @pytest.mark.parametrize(
        ("q", "level"),
        [
            *(pytest.param(q, 0.95, marks=pytest.mark.slow) for q in QS),
            *((0.25, 0.8), (0.351, 0.99)),
        ],
    )
    def test_coverage_of_a_thousand(self, q: float, level: float):
        covered = coverage(1000, q, level)
        assert covered.min() >= level - 1e-12
        # Exact does not mean wasteful: discreteness alone costs little at this size.
        assert np.median(covered) < level + (1 - level) * 0.75

    @pytest.mark.parametrize("level", [0.9, 0.95, 0.99])
    @pytest.mark.parametrize("q", [0.01, 0.3, 0.45])
    def test_against_brute_force(self, q: float, level: float):
        """All m whose two exact tails at s are each above half the miss."""
        n = 50
        whole = Fraction(q).denominator ** n
        miss = math.floor(Fraction(1 - level) / 2 * whole)
        sums = []
        for m in range(n + 1):
            counts = exact_counts(n, m, q)
            below = list(itertools.accumulate(counts))
            sums.append((below, [whole - below[s] + counts[s] for s in range(n + 1)]))
        for s in range(n + 1):
            kept = [
                m for m, (below, above) in enumerate(sums) if below[s] > miss and above[s] > miss
            ]
            made = interval(s, n, q, level=level)
            assert made.compatible == bool(kept)
            if kept:
                assert kept == list(range(kept[0], kept[-1] + 1))
                assert (made.low, made.high) == (kept[0], kept[-1])

    def test_the_set_can_be_empty(self):
        """MATH 3: n = 50, q = .3, s <= 8."""
        for s in range(51):
            made = interval(s, 50, 0.3)
            if s <= 8:
                assert (made.low, made.high, made.compatible) == (0, 0, False)
            elif s >= 42:
                assert (made.low, made.high, made.compatible) == (50, 50, False)
            else:
                assert made.compatible

    @pytest.mark.parametrize("reports", [10**6, 10**9])
    def test_large_crowds_are_near_normal(self, reports: int):
        q, share = 0.25, 0.1
        ones = round(reports * (q + (1 - 2 * q) * share))
        exact, normal = (interval(ones, reports, q, kind=kind) for kind in ("exact", "normal"))
        width = normal.high - normal.low
        assert abs(exact.low - normal.low) < 0.01 * width
        assert abs(exact.high - normal.high) < 0.01 * width


class TestPopulation:
    @pytest.mark.parametrize(("ones", "n"), [(0, 20), (1, 20), (7, 20), (20, 20), (300, 1000)])
    @pytest.mark.parametrize("q", [0.01, 0.25, 0.45])
    def test_clopper_pearson_by_binomial_sums(self, ones: int, n: int, q: float):
        """At each end of the rate's interval, the binomial tail is half the miss."""
        level = 0.9
        made = interval(ones, n, q, level=level, target="population")
        rates = [q + (1 - 2 * q) * end / n for end in (made.low, made.high)]
        with mpmath.workdps(30):
            upper = sum(mp_pmf(k, n, rates[0]) for k in range(ones, n + 1))
            lower = sum(mp_pmf(k, n, rates[1]) for k in range(ones + 1))
            if made.compatible and made.low > 0:
                assert abs(upper - 0.05) < 1e-9
            elif made.compatible:  # cut off at nobody: there the tail is still large enough
                assert upper >= 0.05 or ones == 0
            if made.compatible and made.high < n:
                assert abs(lower - 0.05) < 1e-9

    @pytest.mark.parametrize("q", [0.1, 0.25, 0.45])
    @pytest.mark.parametrize("share", [0, 0.01, 0.3, 0.5, 0.99, 1])
    def test_coverage(self, q: float, share: float):
        n, level = 200, 0.95
        rate = q + (1 - 2 * q) * share
        made = [interval(s, n, q, level=level, target="population") for s in range(n + 1)]
        fits = [one.compatible and one.low - 1e-9 <= share * n <= one.high + 1e-9 for one in made]
        assert binom.pmf(np.arange(n + 1), n, rate)[fits].sum() >= level - 1e-12

    def test_incompatible(self):
        assert not interval(0, 50, 0.3, target="population").compatible
        assert interval(0, 50, 0.3, target="population").high == 0
        assert interval(50, 50, 0.3, target="population").low == 50


def mp_pmf(k: int, n: int, rate: float) -> Any:
    return mpmath.binomial(n, k) * mpmath.mpf(rate) ** k * (1 - mpmath.mpf(rate)) ** (n - k)


class TestSimultaneous:
    @pytest.mark.parametrize("options", [1, 2, 5, 40])
    def test_the_product_covers(self, options: int):
        """Given the crowd, flips are independent: coverages multiply to at least the level."""
        level = 0.9
        worst = coverage(50, 0.25, level, kind="simultaneous", options=options).min()
        assert worst**options >= level - 1e-12

    def test_population_adds_misses(self):
        level, options = 0.9, 7
        made = interval(
            60, 200, 0.25, level=level, kind="simultaneous", target="population", options=options
        )
        single = interval(60, 200, 0.25, level=1 - 0.1 / options, target="population")
        assert math.isclose(made.low, single.low)
        assert math.isclose(made.high, single.high)


class TestNormalAndChebyshev:
    def test_a_crowd_by_hand(self):
        centre, sigma = (400 - 250) / 0.5, math.sqrt(1000 * 0.25 * 0.75) / 0.5
        normal = interval(400, 1000, 0.25, kind="normal", level=0.95)
        assert math.isclose(normal.low, centre - 1.959963984540054 * sigma)
        assert math.isclose(normal.high, centre + 1.959963984540054 * sigma)
        wide = interval(400, 1000, 0.25, kind="chebyshev", level=0.95)
        assert math.isclose(wide.high, centre + sigma / math.sqrt(0.05))

    @pytest.mark.parametrize("ones", [0, 1, 20, 400, 1000])
    @pytest.mark.parametrize(("kind", "factor"), [("normal", 1.959963984540054),
                                                  ("chebyshev", math.sqrt(20))])  # fmt: skip
    def test_ends_of_a_population_are_so_many_of_their_own_sigmas_away(
        self, ones: int, kind: Any, factor: float
    ):
        n, q = 1000, 0.25
        made = interval(ones, n, q, kind=kind, level=0.95, target="population")
        for end, side in ((made.low, -1), (made.high, 1)):
            rate = q + (1 - 2 * q) * end / n
            reach = side * factor * math.sqrt(max(n * rate * (1 - rate), 0.0))
            assert math.isclose(n * rate - ones, reach, rel_tol=1e-9, abs_tol=1e-6)

    @pytest.mark.parametrize("q", [0.1, 0.45])
    def test_chebyshev_covers(self, q: float):
        assert coverage(50, q, 0.9, kind="chebyshev").min() >= 0.9

    @pytest.mark.parametrize("n", [1, 2, 5, 20, 50])
    @pytest.mark.parametrize("kind", ["exact", "chebyshev"])
    def test_a_population_is_covered_at_small_counts(self, kind: Any, n: int):
        """By the binomial law; a sigma estimated from the ones covers 65 % at n 20, share .05."""
        shares = np.unique([0, 1e-4, 0.001, 1 / n, 1.5 / n, 0.05, 0.1, 0.5, 0.9, 0.999, 1])
        shares = shares[shares <= 1]
        noise = (1e-9, 1e-5, 0.001, 0.05, 0.3, 0.49, 0.499999)
        for q, level in itertools.product(noise, (0.5, 0.95, 0.999)):
            made = [
                interval(s, n, q, level=level, kind=kind, target="population") for s in range(n + 1)
            ]
            for share in shares:
                law = binom.pmf(np.arange(n + 1), n, q + (1 - 2 * q) * share)
                held = [one.low - 1e-9 <= share * n <= one.high + 1e-9 for one in made]
                assert law[held].sum() >= level - 1e-12, (q, level, share)


class TestLimits:
    @pytest.mark.parametrize("miss", [0.4, 0.05, 0.001, 1e-12])
    def test_a_staircase_is_left_with_the_miss(self, miss: float):
        """Its probability by another sum: over stairs, of the part that no earlier stair holds."""
        stairs = staircase(miss / 2)
        with mpmath.workdps(40):
            inside, done = mpmath.mpf(0), mpmath.mpf(0)
            for first, second in reversed(stairs):  # the first limit reaches ever further
                inside += ((1 - mpmath.mpf(first)) - done) * (1 - mpmath.mpf(second))
                done = 1 - mpmath.mpf(first)
            assert 0 <= miss / 2 - (1 - inside) < 1e-6 * miss
        assert sorted(stairs) == list(stairs)

    @pytest.mark.parametrize("q", [0.001, 0.25, 0.45])
    def test_the_total_of_exclusive_options(self, q: float):
        """By the law of each person's bits, multiplied out: a coin or two beside the share's."""
        n, options, share = 6, 3, 0.4
        one = np.zeros(options + 1)
        for chance, own in ((share, 1 - q), (1 - share, q)):
            coins = binom.pmf(np.arange(options), options - 1, q)
            one += chance * np.convolve(coins, [1 - own, own])
        law = np.ones(1)
        for _ in range(n):
            law = np.convolve(law, one)
        for miss in (0.3, 0.05):
            laws = [Limits(t, n, q, "population", n * (options - 1), q) for t in range(law.size)]
            below = [made.low(miss) > share * n for made in laws]
            above = [made.high(miss) < share * n for made in laws]
            assert law[below].sum() <= miss
            assert law[above].sum() <= miss

    def test_a_total_of_one_is_the_option_itself(self):
        """Clopper and Pearson's limit by the beta function, and by summing the law."""
        plain = Limits(70, 200, 0.1, "population")
        summed = Limits(70, 200, 0.1, "population", 1, 1e-12)
        for miss in (0.2, 0.001):
            assert math.isclose(plain.low(miss), summed.low(miss), rel_tol=1e-9)
            assert math.isclose(plain.high(miss), summed.high(miss), rel_tol=1e-9)


class TestArguments:
    @pytest.mark.parametrize("level", [0, 1, -0.1, 1.5, 95, "0.95", None, True, float("nan")])
    def test_levels_that_are_none(self, level: Any):
        with pytest.raises(InputError, match="level"):
            interval(3, 10, 0.25, level=level)

    @pytest.mark.parametrize("kind", ["exact", "normal", "simultaneous", "chebyshev"])
    @pytest.mark.parametrize("target", ["crowd", "population"])
    @pytest.mark.parametrize("level", [1 - 2.0**-53, 1 - 2.0**-40, 2.0**-60])
    def test_extreme_levels(self, level: float, target: Any, kind: Any):
        made = interval(5, 10, 0.25, level=level, kind=kind, target=target, options=3)
        assert made.low <= made.high
        if level > 0.9 and kind != "chebyshev":
            assert made.low <= 0 or kind in ("exact", "simultaneous")

    @pytest.mark.parametrize(
        ("ones", "reports", "q"),
        [(3, 10, q) for q in (0.5, 0.0, -0.1, 0.6, math.nan)]
        + [(ones, 10, 0.25) for ones in (11, -1, 2.5)]
        + [(0, reports, 0.25) for reports in (0, -1)],
    )
    def test_numbers_that_cannot_be(self, ones: Any, reports: int, q: float):
        for kind in get_args(IntervalKind):
            with pytest.raises(InputError):
                interval(ones, reports, q, kind=kind)

    def test_names(self):
        with pytest.raises(InputError, match="interval must be one of 'exact'"):
            interval(3, 10, 0.25, kind="wald")  # type: ignore[arg-type]
        with pytest.raises(InputError, match="target must be crowd or population"):
            interval(3, 10, 0.25, target="world")  # type: ignore[arg-type]
        with pytest.raises(InputError, match="options"):
            interval(3, 10, 0.25, kind="simultaneous", options=0)
