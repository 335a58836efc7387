"""Where the papers' claims do not hold; `shoal.lab.papers` recomputes every printed number."""

import math
from fractions import Fraction

from shoal.theory.enumeration import AnswerPair, delta_of_pair
from shoal.theory.homogeneous import delta, eta

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
