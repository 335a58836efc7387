"""Composition: valid, never worse than addition, and right where the answer is known."""

import json
import math
from dataclasses import dataclass
from statistics import NormalDist

import mpmath
import numpy as np
import pytest

import shoal
from shoal.cli import run
from shoal.errors import InputError
from shoal.planning import composition
from shoal.planning.certificate import audit
from shoal.planning.composition import (
    Composition,
    _convex,
    dominating_profile,
    group_factor,
)
from shoal.theory.stop_loss.bracket import Bracket

FLAGS = shoal.Survey("s", (shoal.Flags("f", ("1", "2", "3", "4", "5")),))


@dataclass(frozen=True)
class Gaussian:
    """A mechanism whose profile is known in closed form, dressed up as a certificate.

    Only the high end of its brackets is the truth: that is the one to compose.
    """

    sigma: float
    view: str = "reports"

    def delta(self, *, epsilon, rtol=0.0):
        phi, s = NormalDist().cdf, self.sigma
        value = phi(0.5 / s - epsilon * s) - math.exp(epsilon) * phi(-0.5 / s - epsilon * s)
        return Bracket(max(value, 0.0) / 2, max(value, 0.0))

    def epsilon(self, *, delta):
        low, high = 0.0, 50.0
        while high - low > 1e-9:
            middle = (low + high) / 2
            low, high = (middle, high) if self.delta(epsilon=middle).high > delta else (low, middle)
        return high


def test_gaussian_composes_to_a_gaussian():
    """30 Gaussian releases are one with sigma / sqrt(30), exactly: ours is above, and close."""
    together = Composition(Gaussian(5.0), 30)  # type: ignore[arg-type]
    exact = Gaussian(5.0 / math.sqrt(30)).epsilon(delta=1e-5)
    assert exact <= together.epsilon(delta=1e-5) <= 1.005 * exact


def test_blocks_of_releases_add_up(monkeypatch):
    """More than are composed at once: no less than what holds, and no more than adding up."""
    tight = Composition(Gaussian(5.0), 30)  # type: ignore[arg-type]
    at_once = tight.epsilon(delta=1e-5), tight.delta(epsilon=2.0)
    monkeypatch.setattr(composition, "_MOST_AT_ONCE", 7)
    blocks = Composition(Gaussian(5.0), 30)  # type: ignore[arg-type]
    assert at_once[0] < blocks.epsilon(delta=1e-5) < blocks.basic_epsilon(delta=1e-5)
    assert at_once[1] < blocks.delta(epsilon=2.0) <= 1
    # Five blocks of seven, each with a fifth of delta.
    whole = Composition(Gaussian(5.0), 7)  # type: ignore[arg-type]
    assert blocks.epsilon(delta=1e-5) == pytest.approx(5 * whole.epsilon(delta=2e-6), rel=1e-5)


def test_a_million_releases_need_no_more_memory_than_a_block():
    together = Composition(Gaussian(1e4), 10**6)  # type: ignore[arg-type]
    exact = Gaussian(10.0).epsilon(delta=1e-5)
    assert exact <= together.epsilon(delta=1e-5)
    assert together._block_loss._pmf_remove.size < 10**7


def test_each_release_has_its_part_of_delta():
    """At delta 0.3 one release needs no epsilon at all, and thirty of them do."""
    alone, together = Gaussian(5.0), Composition(Gaussian(5.0), 30)  # type: ignore[arg-type]
    assert alone.delta(epsilon=0.0).high < 0.3
    exact = Gaussian(5.0 / math.sqrt(30)).epsilon(delta=0.3)
    assert 0.1 < exact <= min(together.epsilon(delta=0.3), together.basic_epsilon(delta=0.3))


def test_thirty_releases_at_less_than_half_of_addition():
    plan = shoal.plan(FLAGS, crowd_size=100_000, epsilon="1", delta="1e-6")
    together = audit(plan).compose(30)
    assert 2 * together.epsilon(delta=1e-5) <= together.basic_epsilon(delta=1e-5)


def test_one_release_is_itself():
    certificate = audit(FLAGS, q="0.2147", crowd_size=10_000)
    alone = certificate.epsilon(delta=1e-6)
    assert alone * (1 - 1e-6) <= certificate.compose(1).epsilon(delta=1e-6) <= alone * (1 + 1e-6)


def test_delta_and_epsilon_invert_each_other_and_grow_with_releases():
    certificate = audit(FLAGS, q="0.2147", crowd_size=10_000)
    epsilons = [certificate.compose(k).epsilon(delta=1e-5) for k in (1, 2, 5, 20)]
    assert epsilons == sorted(epsilons)
    assert certificate.compose(5).delta(epsilon=epsilons[2]) <= 1e-5 * (1 + 1e-6)


def test_profile_dominates_both_directions():
    """Convex, decreasing, above the certified values' own hull ends and above 1 - lam."""
    certificate = audit(FLAGS, q="0.2147", crowd_size=10_000)
    steps, deltas, interval = dominating_profile(certificate)
    lam = np.exp(steps * interval)
    slopes = np.diff(deltas) / np.diff(lam)
    assert (np.diff(deltas) <= 0).all()
    assert (np.diff(slopes) >= -1e-12).all()
    assert (deltas >= 1 - lam - 1e-15).all()
    attack = [certificate.attack(s * interval).delta.low for s in steps[steps >= 0][::40]]
    assert (deltas[steps >= 0][::40] >= attack).all()


def test_hull_stays_below_the_points_and_above_a_convex_function():
    lam = np.array([0.5, 1.0, 2.0, 3.0])
    truth = (lam - 4) ** 2 / 16
    noisy = truth + np.array([0.0, 0.2, 0.0, 0.1])
    hull = _convex(lam, noisy)
    assert (hull <= noisy + 1e-15).all()
    assert (hull >= truth - 1e-15).all()


def test_group_privacy_at_the_smallest_epsilon():
    """Half of three times the smallest float is two times that float, not one and a half."""
    tiny = 3 * 5e-324
    certificate = audit(FLAGS, q="0.263", crowd_size=12)
    single = certificate.delta(epsilon=0.0).low
    assert certificate.group_delta(epsilon=tiny, reports=2) >= min(2 * single, 1.0)
    assert group_factor(tiny, 2) >= 2


def test_group_privacy_at_an_epsilon_beyond_floats():
    certificate = audit(FLAGS, q="1e-300", crowd_size=10)
    assert certificate.group_delta(epsilon=900.0, reports=2) == 1.0
    assert audit(FLAGS, q="0.25", crowd_size=10).group_delta(epsilon=1e6, reports=2) == 0.0


def test_group_privacy_against_its_formula():
    certificate = audit(FLAGS, q="0.2147", crowd_size=10_000)
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


def test_command_line(tmp_path, capsys):
    shoal.plan(FLAGS, crowd_size=10_000, epsilon="1", delta="1e-6").write(tmp_path / "plan.json")
    assert run(["audit", str(tmp_path / "plan.json"), "--releases", "30", "--json"]) == 0
    together = json.loads(capsys.readouterr().out)["composition"]
    assert together["releases"] == 30
    assert together["epsilon"] < together["basic_epsilon"]


@pytest.mark.parametrize("releases", [0, -1, 1.5, 10**7])
def test_impossible_numbers_of_releases(releases):
    with pytest.raises(InputError):
        audit(FLAGS, q="0.2147", crowd_size=10_000).compose(releases)
