"""Composition: valid, never worse than addition, and right where the answer is known."""

import math
from dataclasses import dataclass

import mpmath
import numpy as np
import pytest

import shoal
from shoal.errors import InputError
from shoal.planning.certificate import certify
from shoal.planning.composition import Composition, group_factor
from shoal.theory.brackets import Bracket

FLAGS = shoal.Survey("s", (shoal.Flags("f", ("1", "2", "3", "4", "5")),))
TWO = shoal.Survey("s", (shoal.Flags("f", ("1", "2")),))


@dataclass(frozen=True)
class Gaussian:
    """A mechanism whose profile is known in closed form, dressed up as a certificate.

    Only the high end of its brackets is the truth: that is the one to compose.
    """

    sigma: float
    view: str = "reports"
    reports_per_person: int = 1

    @property
    def local_epsilon(self):
        return 0.5 / self.sigma**2 + 30.0 / self.sigma  # beyond it delta is below 1e-190

    def delta(self, *, epsilon, rtol=0.0):
        with mpmath.workdps(30):
            s, e = mpmath.mpf(self.sigma), mpmath.mpf(epsilon)
            above = mpmath.ncdf(0.5 / s - e * s)
            value = float(above - mpmath.exp(e) * mpmath.ncdf(-0.5 / s - e * s))
        return Bracket(max(value, 0.0) / 2, max(value, 0.0))

    def epsilon(self, *, delta, rough=False):
        low, high = 0.0, 50.0
        while high - low > 1e-9:
            middle = (low + high) / 2
            low, high = (middle, high) if self.delta(epsilon=middle).high > delta else (low, middle)
        return high


@pytest.mark.parametrize(
    ("sigma", "releases"), [(5.0, 30), pytest.param(1e4, 10**6, marks=pytest.mark.slow)]
)
def test_gaussian_composes_to_a_gaussian(sigma: float, releases: int):
    """Gaussian releases are one with sigma / sqrt(releases), exactly: ours is above, and close."""
    together = Composition(Gaussian(sigma), releases)  # type: ignore[arg-type]
    exact = Gaussian(sigma / math.sqrt(releases)).epsilon(delta=1e-5)
    assert exact <= together.epsilon(delta=1e-5) <= 1.002 * exact


def alone(q, flags=1):
    """One person, whose releases are nothing but randomized response."""
    survey = shoal.Survey("s", (shoal.Flags("f", tuple(str(j) for j in range(flags))),))
    return certify(survey, q=q, crowd_size=1)


def test_each_release_has_its_part_of_delta():
    """At delta 0.3 one release needs no epsilon at all, and thirty of them do."""
    single, together = Gaussian(5.0), Composition(Gaussian(5.0), 30)  # type: ignore[arg-type]
    assert single.delta(epsilon=0.0).high < 0.3
    exact = Gaussian(5.0 / math.sqrt(30)).epsilon(delta=0.3)
    assert 0.1 < exact <= min(together.epsilon(delta=0.3), together.basic_epsilon(delta=0.3))


@pytest.mark.slow
def test_thirty_releases_at_less_than_half_of_addition():
    plan = shoal.plan(FLAGS, crowd_size=100_000, epsilon="1", delta="1e-6")
    together = certify(plan).compose(30)
    assert 2 * together.epsilon(delta=1e-5) <= together.basic_epsilon(delta=1e-5)


@pytest.mark.slow
def test_delta_and_epsilon_invert_each_other_and_grow_with_releases():
    certificate = certify(FLAGS, q="0.2147", crowd_size=10_000)
    epsilons = [certificate.compose(k).epsilon(delta=1e-5) for k in (1, 2, 5, 20)]
    assert epsilons == sorted(epsilons)
    assert certificate.compose(5).delta(epsilon=epsilons[2]) <= 1e-5 * (1 + 1e-6)


def test_group_privacy_at_the_smallest_epsilon():
    """Half of three times the smallest float is two times that float, not one and a half."""
    tiny = 3 * 5e-324
    certificate = certify(TWO, q="0.263", crowd_size=12)
    single = certificate.delta(epsilon=0.0).low
    assert certificate.group_delta(epsilon=tiny, reports=2) >= min(2 * single, 1.0)
    assert group_factor(tiny, 2) >= 2


def test_group_privacy_at_an_epsilon_beyond_floats():
    certificate = certify(TWO, q="1e-300", crowd_size=10)
    assert certificate.group_delta(epsilon=900.0, reports=2) == 1.0
    assert certify(TWO, q="0.25", crowd_size=10).group_delta(epsilon=1e6, reports=2) == 0.0


def test_group_privacy_against_its_formula():
    certificate = certify(TWO, q="0.05", crowd_size=10_000)
    single = certificate.delta(epsilon=0.5).high
    expected = single * sum(math.exp(0.5 * i) for i in range(3))
    assert certificate.group_delta(epsilon=1.5, reports=3) == pytest.approx(expected, rel=1e-5)
    assert certificate.group_delta(epsilon=1.5, reports=3) >= expected
    assert certificate.group_delta(epsilon=1.5, reports=1) >= certificate.delta(epsilon=1.5).high


def test_the_factor_of_group_privacy_is_rounded_up():
    with mpmath.workdps(50):
        for size in (2, 3, 7):
            for epsilon in np.geomspace(1e-9, 600.0, 300).tolist():
                exact = mpmath.expm1(epsilon) / mpmath.expm1(mpmath.mpf(epsilon) / size)
                assert exact <= group_factor(epsilon, size) <= exact * (1 + 1e-12)


def test_ends_and_what_is_beyond():
    blind = alone("0.5").compose(1000)
    assert blind.epsilon(delta=0.0) == blind.epsilon(delta=1e-300) == 0.0
    assert blind.delta(epsilon=0.0) == 0.0
    together = alone("0.3").compose(12)
    local = 12 * together.certificate.local_epsilon
    assert local <= together.epsilon(delta=0.0) <= local * (1 + 1e-12)
    assert together.to_json(0.0)["epsilon"] == together.epsilon(delta=0.0)
    for delta in (-1e-9, 1.0, math.nan, math.inf):
        with pytest.raises(InputError):
            together.epsilon(delta=delta)
    for releases in (0, -1, 1.5, 10**7):
        with pytest.raises(InputError):
            together.certificate.compose(releases)
