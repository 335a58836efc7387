"""The flip probability: exact, rounded up, in lowest terms."""

from __future__ import annotations

import math
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal import Flags, Plan, Survey
from shoal.errors import InputError
from shoal.protocol.flip_probability import EXACT, FlipProbability, local_epsilon
from shoal.protocol.plan import Promise
from shoal.support.rounding import float_up
from shoal.theory import randomized_response as coin
from tests import strategies
from tests.strategies import bounded, flips


class TestRoundingUp:
    @given(st.fractions(Fraction(1, 10**8), Fraction(1, 2)))
    @bounded(150)
    def test_never_below_and_never_far_above(self, wanted: Fraction):
        q = FlipProbability.at_least(wanted)
        assert wanted <= q.fraction <= Fraction(1, 2)
        assert q.fraction - wanted < Fraction(1, 2**16)
        assert q.fraction <= wanted * (1 + Fraction(1, 2048))
        if wanted < Fraction(1, 2) - Fraction(1, 2**40):
            assert not q.is_blind
            sigma, ideal = (math.sqrt(v * (1 - v)) / (1 - 2 * v) for v in (q.fraction, wanted))
            assert sigma <= ideal * 1.010001

    @given(flips(16))
    @bounded(100)
    def test_what_can_be_drawn_is_not_rounded(self, q: FlipProbability):
        assert FlipProbability.at_least(q.fraction) == q
        assert FlipProbability.at_least(q) is q

    @pytest.mark.parametrize("value", [0.1, "0.1", Decimal("0.1"), Fraction(1, 10), "1e-1", " 0.1"])
    def test_a_number_is_the_decimal_that_was_written(self, value: object):
        q = FlipProbability.at_least(value)
        assert q == FlipProbability.of_fraction(Fraction(math.ceil(Fraction(1, 10) * 2**16), 2**16))

    def test_one_half_and_just_below(self):
        for value in (0.5, "0.5", "0.50", Fraction(1, 2)):
            assert FlipProbability.at_least(value) == FlipProbability(1, 1)
        assert FlipProbability(1, 1).is_blind
        for below in ("0.499999", "0.49999999"):
            assert not FlipProbability.at_least(below).is_blind

    @pytest.mark.parametrize("value", ["1e-5", "1e-9", "1e-300"])
    def test_tiny_q_is_rounded_up_as_finely_as_digits_allow(self, value: str):
        q = FlipProbability.at_least(value)
        slack = max(Fraction(value) / 2048, Fraction(1, 2**52))
        assert Fraction(value) <= q.fraction <= Fraction(value) + slack


class TestExact:
    @given(flips(52))
    @bounded(200)
    def test_float_fraction_and_digits_agree(self, q: FlipProbability):
        assert Fraction(float(q)) == q.fraction == Fraction(q.numerator, 2**q.digits)
        digits = q.binary_digits()
        assert len(digits) == q.digits
        assert digits[0] == 1
        assert sum(d * 2**j for j, d in enumerate(digits)) == q.numerator

    def test_numpy_integers_become_integers(self):
        q = FlipProbability(np.int64(1), np.int64(2))  # type: ignore[arg-type]
        assert [type(part) for part in q.to_json()] == [int, int]


class TestRefused:
    def test_what_is_no_q(self):
        values: list[object] = [
            *(0, 0.0, "0", -0.1, "-1e-9", 0.6, "0.6", 1, 2, "0.50000001", float("nan"), "nan"),
            *("NaN", "sNaN", float("inf"), "-inf", "x", "", "1/4", None, [], {}, True, 1j),
            *(b"0.25", "1e999999999", "1e-999999999", "0x1"),
        ]
        for value in values:
            with pytest.raises(InputError, match=r"q must be .*in \(0, 1/2\]"):
                FlipProbability.at_least(value)
        with pytest.raises(InputError, match="RAPPOR's f, q = f/2"):
            FlipProbability.at_least("0.6")

    def test_what_is_no_fraction_of_it(self):
        fractions: list[Any] = [
            *((0, 1), (1, 0), (2, 2), (3, 2), (1, 53), (1, -1), (1.0, 2), ("1", 2), (True, 1)),
            *((-1, 3), (None, None), (2**60, 52)),
        ]
        for numerator, digits in fractions:
            with pytest.raises(InputError):
                FlipProbability(numerator, digits)
        with pytest.raises(InputError, match="power of two"):
            FlipProbability.of_fraction(Fraction(1, 3))


class TestLocalEpsilon:
    @given(strategies.flips(blind=False), st.integers(1, 10**5), st.sampled_from([2, 4, 6, EXACT]))
    def test_rounded_up_by_less_than_a_place(self, q: FlipProbability, bits: int, places: int):
        """By exponentials, not logarithms: e^(epsilon/d) against the odds of one bit."""
        epsilon = local_epsilon(bits, q, places=places)
        with localcontext(Context(prec=150)):
            odds = Decimal(2**q.digits - q.numerator) / Decimal(q.numerator)
            below = epsilon - Decimal(1).scaleb(-places)
            assert (epsilon / bits).exp() > odds
            assert (below / bits).exp() < odds * (1 + Decimal("1e-59"))

    @given(strategies.flips(blind=False), st.integers(1, 1000))
    def test_the_float_formula_of_the_theory_agrees(self, q: FlipProbability, bits: int):
        exact, near = local_epsilon(bits, q, places=EXACT), coin.local_epsilon(bits, float(q))
        assert abs(Decimal(near) - exact) <= exact * Decimal("1e-14")

    @given(strategies.flips(blind=False))
    def test_a_plan_tells_a_float_that_is_not_below(self, q: FlipProbability):
        plan = Plan(Survey("s", (Flags("f", ("a", "b")),)), q, Promise("local", "100"))
        exact = local_epsilon(2, q, places=EXACT)
        assert exact <= Decimal(plan.local_epsilon) <= exact * (1 + Decimal("3e-16"))

    @given(st.decimals(0, 10**6, places=30))
    def test_float_up(self, value: Decimal):
        assert Decimal(float_up(value)) >= value
        assert float_up(value) - float(value) <= 1e-15 * float(value)
