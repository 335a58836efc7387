"""Noise that a leader and a helper each add to their share: its bound, and its choice.

Let the clients be honest or not, and one aggregator draw its noise. The sum that the collector
learns is the sum of the reports that were sent, the noise of that aggregator, and numbers that the
other aggregator knows.

*Theorem.* Two answers differ in at most d bits, a report sets more than `max_weight` bits with
probability at most tau, and delta_0 is the delta at epsilon of the noise on d whole numbers that
one person moves by up to 1 (`shoal.theory.laplace`, `shoal.theory.discrete_gaussian`). Then the sum
is (epsilon, delta_0 + 2 tau)-differentially private for replacing one report, whatever the other
reports are and however many there are.

*Proof.* Fix the other reports and the other aggregator's numbers. Draw the same coins for both
answers, those of the flips and those of the dropping. Given coins with which neither report drops a
bit, the two differ in at most d bits, and the noise makes the sums (epsilon, delta_0)-private.
Other coins have probability at most 2 tau, and no delta is above 1. The sums are mixtures over the
coins, and the hockey-stick divergence is jointly convex. QED

The flips are a bound by themselves: at the local epsilon delta is 0. Reports of further releases
have fresh coins and fresh noise: k releases are one of k d numbers, with 2 k tau.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from shoal.errors import PlanError
from shoal.planning.bounds import PART_OF_DELTA, CountsBound, Overflow
from shoal.planning.dap_noise import aggregator_noise
from shoal.protocol.flip_probability import MAX_DIGITS, FlipProbability
from shoal.protocol.plan import Aggregators, NoiseKind, Plan, ShareNoise
from shoal.support.rounding import round_up, text_up
from shoal.theory import discrete_gaussian, laplace
from shoal.theory.binomial import BinomialWindow, sum_window
from shoal.theory.brackets import UNIT, Bracket
from shoal.theory.calibration import smallest
from shoal.theory.counts import is_local
from shoal.theory.proven import Attack, Proven
from shoal.theory.randomized_response import count_sigma, local_epsilon, log_theta

NO_FLIPS = FlipProbability(1, MAX_DIGITS)
"""The flips of a plan that leaves all noise to the aggregators: the fewest that a plan can have."""

_LEAST = 1e-100
"""Deltas of Gaussian noise below this one are not resolved; no plan promises one."""


@dataclass(frozen=True)
class NoiseBound:
    """The bound for counts to which one honest aggregator adds noise; no crowd is relied on."""

    differing: int
    noise: ShareNoise
    overflow: Overflow | None = None
    releases: int = 1

    @property
    def _numbers(self) -> int:
        return self.differing * self.releases

    def proven(self, crowd_size: int, q: float, epsilon: float, rtol: float = 1e-4) -> Proven:
        """Return the proven delta at an epsilon, with 0 as its low end."""
        return Proven(Bracket(0.0, self._delta(q, epsilon)), "noise of one aggregator")

    def _delta(self, q: float, epsilon: float) -> float:
        if is_local(self._numbers, q, epsilon):
            return 0.0
        price = 0.0
        if self.overflow is not None:
            price = self.overflow.price(1, q, 0.0, self.releases)  # at epsilon 0 it is 2 k tau
        noise = _noise_delta(self.noise, self._numbers, epsilon).high
        return min((noise + price) * (1.0 + 1e-15), 1.0) if price else noise

    def attack(self, crowd_size: int, q: float, epsilon: float, rtol: float = 1e-4) -> Attack:
        """Return the delta of a crowd that gives the first answer: that of the noise alone.

        Flips would hide more, and so would dropped bits. They are taken off with the chance that
        any differing bit of the crowd is flipped, or any report drops bits, which leaves nothing
        unless there are hardly any.
        """
        noise = _noise_delta(self.noise, self._numbers, epsilon)
        flipped = min(1.0, crowd_size * self._numbers * q)
        low = noise.low - flipped * (1.0 + math.exp(min(epsilon, 700.0)))
        if self.overflow is not None:
            low -= self.overflow.price(crowd_size, q, epsilon, self.releases)
        proven = self._delta(q, epsilon)
        crowd = {"first": crowd_size - 1, "second": 0}
        return Attack(Bracket(min(max(low, 0.0), proven), proven), crowd)

    def epsilon(self, crowd_size: int, q: float, delta: float) -> float:
        """Return the smallest epsilon whose delta is proven, rounded up."""
        local = self._numbers * log_theta(q) * (1.0 + 4e-14)
        pure = self._numbers / self.noise.value * (1.0 + 1e-15)
        if self.noise.kind == "laplace" and pure < local and self._delta(q, pure) <= delta:
            local = pure
        if delta == 0.0:
            return local
        return smallest(lambda epsilon: self._delta(q, epsilon) <= delta, 0.0, local, rtol=1e-6)


@lru_cache(maxsize=256)
def _noise_delta(noise: ShareNoise, numbers: int, epsilon: float) -> Bracket:
    if noise.kind == "laplace":
        return laplace.delta_of_shifts(numbers, noise.value, epsilon)
    return discrete_gaussian.bracket_of_shifts(1, numbers, noise.value, epsilon, _LEAST)


def sigma_of(noise: ShareNoise) -> float:
    """Return the standard deviation of one draw."""
    if noise.kind == "laplace":
        return laplace.discrete_sigma(noise.value)
    return discrete_gaussian.deviation(noise.value)


def sigma_of_count(people: int, q: float, noise: ShareNoise | None, batches: int = 1) -> float:
    """Return the sigma of an estimated count: of the flips, and of the noise of both aggregators.

    >>> round(sigma_of_count(10_000, 2**-52, ShareNoise("laplace", "2")), 2)
    3.96
    """
    flips = count_sigma(people, q)
    if noise is None or math.isinf(flips):
        return flips
    return math.hypot(flips, math.sqrt(2.0 * batches) * sigma_of(noise) / (1.0 - 2.0 * q))


def sigma_in(plan: Plan, reports: int) -> float:
    """Return the sigma of a count that is estimated from `reports` reports of a plan."""
    return sigma_of_count(reports, float(plan.q), plan.noise, plan.batches(reports))


def flips_alone(plan: Plan, reports: int) -> float:
    """Return the q whose flips alone would give a count the same sigma."""
    part = sigma_in(plan, reports) ** 2 / reports
    return (1.0 - math.sqrt(1.0 / (1.0 + 4.0 * part))) / 2.0


_TAIL = 1e-18
"""Probability that is left out of a draw, and at least on each side of a sum of draws."""


@lru_cache(maxsize=64)
def noise_window(noise: ShareNoise, draws: int) -> BinomialWindow:
    """Return the distribution of a sum of independent draws.

    >>> round(float(noise_window(ShareNoise("laplace", "2"), 2).mass.max()), 4)
    0.1298
    """
    if draws > 1:
        half = noise_window(noise, draws // 2)
        both = sum_window(half, half)
        return _trimmed(sum_window(both, noise_window(noise, 1)) if draws % 2 else both)
    is_laplace = noise.kind == "laplace"
    radius = laplace.discrete_radius if is_laplace else discrete_gaussian.radius
    far = int(radius(_TAIL, noise.value))
    steps = np.arange(-far, far + 1) / noise.value
    mass = np.exp(-np.abs(steps) if is_laplace else -0.5 * np.square(steps))
    mass /= mass.sum()
    return BinomialWindow(mass, -far, _TAIL, UNIT * (128 + mass.size))


def _trimmed(window: BinomialWindow) -> BinomialWindow:
    """Leave out the tails with a tiny probability each.

    It is above the round-off of a Fourier transform, which would keep tails of nothing else: the
    window would grow like the number of draws, and not like its root.
    """
    tail = max(_TAIL, window.omitted / 256)
    keep = np.flatnonzero(np.minimum(window.mass.cumsum(), window.mass[::-1].cumsum()[::-1]) > tail)
    first, last = int(keep[0]), int(keep[-1]) + 1
    mass, omitted = window.mass[first:last], window.omitted + 2 * tail
    return BinomialWindow(mass, window.first + first, omitted, window.error)


def choose_noise(
    differing: int,
    overflow: Overflow,
    q: float,
    epsilon: float,
    delta: float,
    kind: NoiseKind | None = None,
) -> ShareNoise:
    """Return the noise of a kind, or of the smaller sigma, with which one aggregator suffices.

    >>> choose_noise(2, Overflow(4, 1, 4), 2**-52, 1.0, 1e-6)
    ShareNoise(kind='laplace', scale='2')
    """
    kinds: dict[str, NoiseKind] = {
        "discrete Gaussian": "gaussian",
        "discrete Laplace": "laplace",
    }
    # as much of delta as flips get: the rest is for dropped bits
    offered = aggregator_noise(differing, 1, epsilon, delta * (1.0 - PART_OF_DELTA))
    wanted = [one for one in offered if kind in (None, kinds[one.distribution])]
    chosen = min(wanted, key=lambda one: one.sigma_if_one_adds)
    scale, step = chosen.scale, 1e-4
    while True:
        noise = ShareNoise(kinds[chosen.distribution], text_up(scale))
        if NoiseBound(differing, noise, overflow).proven(1, q, epsilon).delta.high <= delta:
            return noise
        scale, step = scale * (1.0 + step), 2.0 * step


class BothKinds(NamedTuple):
    """The same promise, kept by flips of devices or by noise of aggregators.

    `q` is None where no flip probability keeps it, and `noise` where no scale that a plan takes
    does. The sigmas are those of an estimated count.
    """

    q: float | None
    sigma: float
    local_epsilon: float
    noise: ShareNoise | None
    sigma_if_one_adds: float
    sigma_if_both_add: float

    def to_json(self) -> dict[str, Any]:
        """Return both kinds as plain JSON values."""
        flips = {"q": self.q, "sigma": self.sigma, "local_epsilon": self.local_epsilon}
        added = None
        if self.noise is not None:
            added = asdict(self.noise)
            added |= {"sigma_if_one_adds": self.sigma_if_one_adds}
            added |= {"sigma_if_both_add": self.sigma_if_both_add}
        return {"flips": None if self.q is None else flips, "aggregators": added}


@lru_cache(maxsize=64)
def both_kinds(plan: Plan) -> BothKinds | None:
    """Return both kinds of noise for the promise of a plan with a leader and a helper."""
    promise, people, survey = plan.promise, plan.crowd_size, plan.survey
    if not isinstance(plan.parties, Aggregators) or people is None:
        return None
    epsilon, delta = float(promise.epsilon), float(promise.delta or 0)
    noise, q = plan.noise, float(plan.q)
    floor = float(NO_FLIPS) if noise is None else q  # of the flips beside noise
    if noise is not None:
        q = CountsBound(survey.differing_bits).q(people, epsilon, delta * (1.0 - PART_OF_DELTA))
        q = max(float(FlipProbability.at_least(min(q, 0.5))), floor)
    else:
        every = Overflow.of(survey, survey.bits)
        with suppress(PlanError):  # the scale is too large, or too small, for a plan
            noise = choose_noise(survey.differing_bits, every, 0.25, epsilon, delta)
    one = math.inf
    if noise is not None and floor < 0.5:
        one = sigma_of(noise) / (1.0 - 2.0 * floor)
    flips, is_possible = count_sigma(people, floor), q < 0.5
    return BothKinds(
        q if is_possible else None,
        count_sigma(people, q),
        round_up(local_epsilon(survey.differing_bits, q)),
        noise,
        math.hypot(flips, one),
        math.hypot(flips, math.sqrt(2.0) * one),
    )
