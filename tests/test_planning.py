"""Planning: a given q, and the local promise; the promise is kept by exact arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal import (
    Choice,
    Choices,
    Flags,
    InputError,
    LieProbability,
    Number,
    ShoalError,
    Survey,
    plan,
)
from tests.strategies import bounded, lies, surveys

TWO = Survey("s", (Flags("f", ("a", "b")),))


def exact_epsilon(survey: Survey, q: LieProbability) -> Any:
    with mpmath.workdps(60):
        odds = mpmath.mpf(2**q.digits - q.numerator) / q.numerator
        return survey.differing_bits * mpmath.log(odds)


class TestGivenQ:
    @given(surveys(), lies(30, blind=False))
    @bounded(80)
    def test_the_promise_is_the_local_epsilon_rounded_up(self, survey: Survey, q: LieProbability):
        made = plan(survey, q=q.fraction)
        promised = Fraction(made.promise.epsilon)
        exact = exact_epsilon(survey, made.q)
        assert made.promise.kind == "local"
        with mpmath.workdps(60):
            gap = mpmath.mpf(promised.numerator) / promised.denominator - exact
            assert 0 <= gap <= mpmath.mpf("0.000100001")

    def test_q_is_rounded_up_and_kept(self):
        assert plan(TWO, q="0.25").q == LieProbability(1, 2)
        assert plan(TWO, q="0.351").q == LieProbability.at_least("0.351")
        assert plan(TWO, q="0.25", crowd_size=1000).crowd_size == 1000

    @pytest.mark.parametrize("q", [0, "0", 0.6, "x", float("nan"), -1, [], True])
    def test_q_that_is_none(self, q: object):
        with pytest.raises(InputError, match="q must be"):
            plan(TWO, q=q)

    def test_one_half_is_refused_for_what_it_is(self):
        with pytest.raises(ShoalError, match=r"nothing could be learned|1/2"):
            plan(TWO, q="0.5")

    def test_tiny(self):
        made = plan(TWO, q="1e-9")
        assert made.q.fraction >= Fraction(1, 10**9)

    @pytest.mark.parametrize("crowd", [0, -5, 1.5, "many", True])
    def test_crowds_that_are_none(self, crowd: Any):
        with pytest.raises(InputError, match="crowd_size"):
            plan(TWO, q="0.25", crowd_size=crowd)


class TestLocal:
    @given(surveys(), st.decimals("0.01", "40", places=3).filter(lambda e: e > 0))
    @bounded(80)
    def test_the_smallest_q_that_keeps_the_promise(self, survey: Survey, epsilon: Any):
        made = plan(survey, epsilon=str(epsilon), promise="local")
        assert made.promise.epsilon == str(epsilon)
        with mpmath.workdps(60):
            wish = mpmath.mpf(str(epsilon))
            assert exact_epsilon(survey, made.q) <= wish
            ideal = 1 / (1 + mpmath.exp(wish / survey.differing_bits))
            q = mpmath.mpf(made.q.numerator) / 2**made.q.digits
            assert ideal <= q
            assert q <= ideal * mpmath.mpf("1.001") or made.q.digits == 52

    @pytest.mark.parametrize(
        ("question", "differing"),
        [
            (Flags("f", tuple("abcde")), 5),
            (Choice("c", tuple("abcde")), 2),
            (Choices("l", tuple("abcde"), 2), 4),
            (Choices("l", tuple("abcde"), 4), 5),
            (Number("n", ("1", "2", "3")), 2),
        ],
    )
    def test_local_epsilon_by_brute_force(self, question: Any, differing: int):
        """The largest log-likelihood ratio over all pairs of originals and all reports."""
        survey = Survey("s", (question,))
        made = plan(survey, q="0.25")
        bits = question.bits
        fewest, most = question.fewest_set_bits, question.most_set_bits
        originals = [v for v in range(1 << bits) if fewest <= v.bit_count() <= most]
        worst = max(
            ((b ^ r).bit_count() - (a ^ r).bit_count()) * math.log(3)
            for a in originals
            for b in originals
            for r in range(1 << bits)
        )
        assert math.isclose(made.local_epsilon, worst)
        assert survey.differing_bits == differing

    @pytest.mark.parametrize(
        "epsilon", [0, "0", -1, "x", "", float("nan"), "inf", None, True, "1e9"]
    )
    def test_epsilons_that_are_none(self, epsilon: object):
        with pytest.raises(InputError):
            plan(TWO, epsilon=epsilon, promise="local")

    def test_an_epsilon_is_kept_as_written(self):
        assert plan(TWO, epsilon="2.20", promise="local").promise.epsilon == "2.20"
        assert plan(TWO, epsilon=2.2, promise="local").promise.epsilon == "2.2"
        assert plan(TWO, epsilon=2, promise="local").promise.epsilon == "2"

    def test_a_larger_epsilon_never_needs_more_lies(self):
        qs = [plan(TWO, epsilon=str(e / 10), promise="local").q.fraction for e in range(1, 60)]
        assert qs == sorted(qs, reverse=True)


class TestWhatIsAsked:
    def test_both(self):
        """q = 1/4 gives a local epsilon of 2 ln 3 = 2.197...: 2.2 is kept, 1 is not."""
        assert plan(TWO, q="0.25", epsilon="2.2", promise="local").promise.epsilon == "2.2"
        with pytest.raises(ShoalError):
            plan(TWO, q="0.25", epsilon="1", promise="local")
        with pytest.raises(InputError):
            plan(TWO, q="0.25", epsilon="1")

    def test_nothing(self):
        with pytest.raises(InputError):
            plan(TWO)

    def test_an_unknown_promise(self):
        with pytest.raises(InputError, match="promise"):
            plan(TWO, epsilon="1", promise="strong")  # type: ignore[arg-type]
