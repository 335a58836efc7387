"""Where the papers' claims do not hold; `shoal.lab.papers` recomputes every printed number."""

import math
from fractions import Fraction

import pytest

from shoal.theory.domains import at_most
from shoal.theory.enumeration import AnswerPair, delta_of_pair, eta_of_pair
from shoal.theory.homogeneous import attack, delta, eta

LN2 = math.log(2)


def test_three_sigma_is_no_guarantee():
    """The exact eta at its own q runs from .0013 to .0087 over the paper's rows."""
    low = eta((40, 0, 0), 10**7, 0.351, 2.0)
    high = eta((5, 0, 0), 5000, 0.1310, 2.0)
    assert 0.0013 < low.low <= low.high < 0.0014
    assert 0.0085 < high.low <= high.high < 0.0088


def test_conjecture_1_fails_for_one_bit():
    """Exact fractions, n = 2, and the paper's size by orders of magnitude."""
    q, lam = Fraction(1, 50), Fraction(27, 25)
    forward = AnswerPair(((0,),), (0,), (1,))
    reverse = AnswerPair(((0,),), (1,), (0,))
    assert delta_of_pair(reverse, q, lam) > delta_of_pair(forward, q, lam)
    assert delta((1, 0, 0), 1000, 0.05, LN2).high < 1.7e-13
    assert delta((0, 1, 0), 1000, 0.05, LN2).low > 5.4e-7


def test_the_worst_of_both_directions_is_not_the_worst():
    """L = 2, n = 10, q = 1/10, lam = 9: a mixed crowd beats forward and reverse."""
    q, lam = Fraction(1, 10), Fraction(9)
    mixed = AnswerPair(((0, 0),) * 5 + ((1, 1),) * 4, (1, 1), (0, 0))
    forward = AnswerPair(((0, 0),) * 9, (0, 0), (1, 1))
    reverse = AnswerPair(((0, 0),) * 9, (1, 1), (0, 0))
    values = [float(delta_of_pair(pair, q, lam)) for pair in (mixed, forward, reverse)]
    assert values == pytest.approx([0.140808, 0.032308, 0.108068], abs=5e-7)


def test_conjecture_1_fails_for_eta_too():
    q, lam = Fraction(2, 5), Fraction(1913, 1000)
    mixed = AnswerPair(((0, 0),) * 4 + ((1, 1),), (1, 1), (0, 0))
    forward = AnswerPair(((0, 0),) * 5, (0, 0), (1, 1))
    reverse = AnswerPair(((0, 0),) * 5, (1, 1), (0, 0))
    worst = max(eta_of_pair(forward, q, lam), eta_of_pair(reverse, q, lam))
    assert eta_of_pair(mixed, q, lam) > 4 * worst


def test_section_5_fails_a_third_value_is_worse():
    """One-hot K = 3, n = 5, q = 1/5, lam = 4 exactly, and the three roots at N = 10000."""
    q, lam = Fraction(1, 5), Fraction(4)
    e1, e2, e3 = (1, 0, 0), (0, 1, 0), (0, 0, 1)
    third = delta_of_pair(AnswerPair((e1,) * 4, e2, e3), q, lam)
    forward = delta_of_pair(AnswerPair((e1,) * 4, e1, e2), q, lam)
    reverse = delta_of_pair(AnswerPair((e1,) * 4, e2, e1), q, lam)
    assert [float(x) for x in (third, forward, reverse)] == pytest.approx(
        [0.22713, 0.04066, 0.08053], abs=5e-6
    )
    for crowd, root in (((2, 0, 0), 0.0432), ((0, 2, 0), 0.0639), ((1, 1, 1), 0.0722)):
        assert delta(crowd, 10_000, root + 1e-4, LN2).high < 1e-6
        assert delta(crowd, 10_000, root - 1e-4, LN2).low > 1e-6


def test_with_less_room_other_crowds_win():
    """At most 3 of 8: neither (3, 3, 3), which has no room, nor SDP's (6, 0, 0)."""
    found = attack((at_most(3, 8),), 10**6, 0.12, 1.0)
    assert sum(found.crowd) <= 8
    assert found.crowd.c > 0
    assert found.delta.low > delta((6, 0, 0), 10**6, 0.12, 1.0).high
