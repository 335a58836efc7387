"""Where the papers' numbers and claims do not hold, each by an independent route."""

import math
from fractions import Fraction

import pytest

from shoal.theory.domains import at_most, choice
from shoal.theory.enumeration import AnswerPair, delta_of_pair, eta_of_pair
from shoal.theory.homogeneous import attack, delta, eta
from shoal.theory.sufficient import gain, gap_312, gap_313, gap_315, three_sigma_q

LN2 = math.log(2)


@pytest.mark.parametrize(
    ("N", "epsilon", "printed"),
    [
        (1000, LN2, 0.2446),
        (3000, LN2, 0.2109),
        (1000, 2.0, 0.1692),
        (3000, 2.0, 0.1424),
        (5000, 2.0, 0.1310),
    ],
)
def test_the_rows_that_follow_3_12(N, epsilon, printed):
    assert abs(three_sigma_q(5, N, epsilon) - printed) < 1.5e-4


def test_the_row_for_5000_is_the_one_for_10000():
    """SDP 3.3 prints q = .1778 for N = 5000."""
    assert round(three_sigma_q(5, 10_000, LN2), 4) == 0.1778
    assert round(three_sigma_q(5, 5_000, LN2), 4) == 0.1963
    assert gap_312(0.1778, 5, 5000, 2.0) > 0.5
    bracket = eta((5, 0, 0), 5000, 0.1778, LN2)
    assert 0.042 < bracket.low <= bracket.high < 0.044  # printed: .0045


def test_the_gain_is_11_fold():
    assert 10.9 < gain(5, 5000, LN2) < 11.1
    assert 12.4 < gain(40, 10**7, 2.0) < 12.6
    assert round(three_sigma_q(40, 10**7, 2.0), 3) == 0.351


def test_3_13_and_3_15_agree_with_the_corrected_denominator():
    for q in (0.1, 0.2, 0.3, 0.4):
        p = 1 - q
        phi = (p**3 + q**3) / (p * q)
        assert gap_313(q, 5, 1000, 2.0) == pytest.approx(gap_315(phi, 5, 1000, 2.0), rel=1e-9)
        assert gap_313(q, 5, 1000, 2.0) > gap_312(q, 5, 1000, 2.0)
    for N in (1000, 5000):
        other = three_sigma_q(5, N, LN2, rule="3.13")
        assert three_sigma_q(5, N, LN2, rule="3.15") == pytest.approx(other, rel=1e-9)


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


def test_variation_ratio_is_left_out_because_it_is_too_small():
    """One-hot K = 3, n = 2, q = 2/5, e^eps = 7/4: its published formula gives 8/625."""
    q, lam = Fraction(2, 5), Fraction(7, 4)
    exact = delta_of_pair(AnswerPair(((1, 0, 0),), (0, 0, 1), (0, 1, 0)), q, lam)
    assert exact == Fraction(354, 15625)
    assert exact > Fraction(8, 625)


def test_lecture_claim_3_with_the_flip_probability():
    """LEC Claim 3: with flip probability q, E[M(b)] = q + (1 - 2q) b."""
    q = Fraction(1, 5)
    for b in (0, 1):
        shown = (1 - q) * b + q * (1 - b)
        assert shown == q + (1 - 2 * q) * b
        assert (shown - q) / (1 - 2 * q) == b


def test_bit_vector_epsilon_is_capped_by_the_length():
    from shoal.theory.domains import differing_bits

    assert differing_bits((at_most(3, 4),)) == 4  # BITVEC: 2m = 6
    assert differing_bits((choice(7),)) == 2
