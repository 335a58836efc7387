import math
from fractions import Fraction

import pytest

from shoal.theory.domains import choice, flags
from shoal.theory.homogeneous import (
    attack,
    delta,
    eta,
    local_delta,
    ratio_distribution,
    ratio_moments,
)


def test_no_noise_left_to_tell():
    assert delta((5, 0, 0), 100, 0.5, 0.0) == (0.0, 0.0)
    assert delta((0, 0, 3), 100, 0.2, 0.0) == (0.0, 0.0)
    assert local_delta((choice(1),), 0.2, 0.0) == (0.0, 0.0)


def test_local_pair_is_a_sum_over_one_report():
    q, epsilon, d = 0.2, 1.0, 4
    exact = sum(
        math.comb(d, i) * max((1 - q) ** i * q ** (d - i) - math.e * q**i * (1 - q) ** (d - i), 0.0)
        for i in range(d + 1)
    )
    bracket = local_delta((flags(4),), q, epsilon)
    assert bracket.low * (1 - 1e-12) <= exact <= bracket.high * (1 + 1e-12)


@pytest.mark.slow
def test_huge_ratios_do_not_look_like_zero():
    """64 flags, N = 1e8, q = .25: theta^64 = 3e30, and delta is near 1."""
    for crowd in ((64, 0, 0), (0, 64, 0)):
        bracket = delta(crowd, 10**8, 0.25, 1.0)
        assert bracket.low > 0.9
    assert attack((flags(64),), 10**8, 0.25, 1.0).delta.low > 0.9


def test_eta_of_ratios_that_do_not_fit_a_float():
    for crowd in ((64, 0, 0), (0, 64, 0)):
        bracket = eta(crowd, 2, 1e-6, 1.0)
        assert 0.99 < bracket.low <= bracket.high <= 1.0


def test_moments_by_enumeration():
    """SDP 3.1 and appendix against the law of two draws in exact fractions, and the picture."""
    L, N, q = 2, 2, Fraction(1, 4)
    p = 1 - q
    ratios = [(p / q) ** (2 * i - L) for i in range(L + 1)]
    crowd = [math.comb(L, i) * q**i * p ** (L - i) for i in range(L + 1)]
    outlier = crowd[::-1]
    mean, square = (
        sum(
            u * v * ((r + s) / N) ** power
            for u, r in zip(crowd, ratios, strict=True)
            for v, s in zip(outlier, ratios, strict=True)
        )
        for power in (1, 2)
    )
    assert ratio_moments(L, N, float(q)) == pytest.approx((float(mean), float(square - mean**2)))
    law, moments = ratio_distribution(5, 1000, 0.2446), ratio_moments(5, 1000, 0.2446)
    shown = float(law.values @ law.probabilities)
    assert shown == pytest.approx(moments[0], rel=1e-3)
    variance = float((law.values - shown) ** 2 @ law.probabilities)
    assert variance == pytest.approx(moments[1], rel=0.03)


@pytest.mark.parametrize(
    ("N", "q", "epsilon"), [(0, 0.2, 1.0), (5, 0.7, 1.0), (5, 0.2, -1.0), (5, 0.2, math.nan)]
)
def test_bad_arguments_are_refused(N, q, epsilon):
    with pytest.raises(ValueError, match="must be"):
        delta((1, 0, 0), N, q, epsilon)
