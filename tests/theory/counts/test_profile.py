import math
from fractions import Fraction

import numpy as np
import pytest

from shoal.theory.counts import profile as profiles
from shoal.theory.counts.profile import bit_profile, upper_curves
from shoal.theory.one_bit import worst_one_bit_delta

from .oracle import bit_worst


@pytest.mark.parametrize("q", [Fraction(1, 1024), Fraction(1, 4), Fraction(31, 64)])
@pytest.mark.parametrize("n", [1, 2, 3, 8, 20])
def test_small_crowds_exactly(n, q):
    profile = bit_profile(n, float(q), 2.5e-4)
    for i in np.linspace(0, profile.high.size - 1, 9).astype(int):
        lam = Fraction(math.exp(i * profile.step))
        truth = float(bit_worst(n, q, lam))
        assert truth * (1 - 1e-12) - 1e-16 <= profile.high[i]
        assert profile.best[i] <= truth * (1 + 1e-9) + 1e-12
        # the stated tolerance
        near = bit_worst(n, q, Fraction(math.exp(i * profile.step / 1.00025)))
        assert profile.high[i] <= 1.0025 * float(near) + 1e-12


@pytest.mark.parametrize(("n", "q"), [(1000, 0.0119), (10**5, 0.02)])
def test_large_crowds_against_the_one_bit_engine(n, q):
    profile = bit_profile(n, q, 2.5e-4)
    for sigmas in (0.0, 0.7, 2.0, 5.0):
        i = round(sigmas * profiles.loss_scale(n, q) / profile.step)
        other = worst_one_bit_delta(n, q, i * profile.step, rtol=1e-2)
        assert other.value.low * (1 - 1e-9) <= profile.high[i] <= other.value.high * 1.03


def test_the_middle_the_end_and_between():
    """Neither end is the worst for every lam."""
    profile = bit_profile(1000, 0.0119, 2.5e-4)
    assert profile.ones[0] not in (0, 999)
    assert profile.ones[-2] == 999
    ends = upper_curves(
        np.array([0, 999]),
        np.array([999, 0]),
        0.0119,
        np.expm1(profile.step * np.arange(profile.high.size)),
    ).max(axis=0)
    assert (ends < profile.best * 0.99).any()


@pytest.mark.parametrize("N", [10**9, 10**12])
@pytest.mark.parametrize("q", [1e-12, 1e-6, 0.3, 0.4999])
def test_the_whole_range(N, q):
    """Convex, falling, above what was found, and near a normal law where there is much noise."""
    profile = bit_profile(N, q, 1e-2)
    high = profile.high
    assert (np.diff(high) <= 0.0).all()
    grow = math.exp(profile.step)
    chord = (high[:-2] * grow + high[2:]) / (1.0 + grow)
    assert (high[1:-1] <= chord * (1 + 1e-9)).all()
    assert (profile.high >= profile.best * (1 - 1e-12)).all()
    assert profile.high[-1] <= 1e-38
    sigma = math.sqrt(N * q * (1 - q))
    if sigma > 1e3:
        # at lam = 1 delta is (1 - 2q) times the largest probability
        least = (1 - 2 * q) / (sigma * math.sqrt(2 * math.pi))
        assert 0.999 * least <= profile.high[0] <= (1.03 if sigma < 1e5 else 2.0) * least


def test_stopping_early_is_valid(monkeypatch):
    fine = bit_profile(2000, 0.01, 2.5e-4)
    monkeypatch.setattr(profiles, "_MOST_LAWS", 1)
    early = bit_profile.__wrapped__(2000, 0.01, 2.5e-4)
    assert early.high.size == fine.high.size
    assert (early.high >= fine.best * (1 - 1e-12)).all()


def test_cutting_stretches():
    first, last = profiles._cut(np.array([0, 7]), np.array([5, 7]), 4)
    stretches = sorted(zip(first.tolist(), last.tolist(), strict=True))
    assert [x for a, b in stretches for x in range(a, b + 1)] == [0, 1, 2, 3, 4, 5, 7]
    first, last = profiles._cut(np.array([0]), np.array([10**12 - 1]), 1000)
    assert last[-1] == 10**12 - 1
    assert (first[1:] == last[:-1] + 1).all()
