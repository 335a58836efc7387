"""The one exact local epsilon: never below the truth, at most one unit of the last place above."""

from __future__ import annotations

from decimal import Context, Decimal, localcontext

from hypothesis import given
from hypothesis import strategies as st

from shoal import Flags, Plan, Survey
from shoal.protocol.flip_probability import EXACT, FlipProbability, local_epsilon
from shoal.protocol.plan import Promise
from shoal.support.rounding import float_up
from shoal.theory import randomized_response as coin
from tests import strategies


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
