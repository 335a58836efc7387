"""The noise of a survey's counts: chosen before any data are read, known to every interval.

Every count gets independent noise of one distribution on the multiples of a unit. Laplace noise
keeps epsilon for the L1 sensitivity of the counts, Gaussian noise epsilon and delta for their L2
sensitivity; where a delta is allowed, the one with the smaller standard deviation is taken.

*One count.* The radius is that of the distribution itself: exact.

*Several counts.* A sum with weights is within `unit` times their absolute sum of the same sum of
continuous variables, so that its radius is theirs plus that much (theorem). For Gaussian noise
`shoal.theory.discrete_gaussian` shows it. For Laplace noise of scale b on the multiples of u:
``P[|Z| >= k u] = exp(-(k - 1/2) u/b) / cosh(u/(2b))``. If Z and a continuous L have equal ranks,
|Z| = k u while |L| is within (k - 1/2) u + c and (k + 1/2) u + c, with c = b ln cosh(u/(2b)), which
is at most u/2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Literal

from shoal.curator.counts import sensitivity, unit_of
from shoal.curator.noise import (
    Mechanism,
    Neighbours,
    float_at_least,
    gaussian_mechanism,
    gaussian_scale,
    mechanism,
)
from shoal.protocol.survey import Survey
from shoal.theory import discrete_gaussian, laplace

Distribution = Literal["Laplace", "Gaussian"]


@dataclass(frozen=True)
class CountNoise:
    """Noise on the multiples of `unit`; `scale` is in people, as are all results.

    `sensitivity` is that of the counts in L1, and its square in L2. `delta` is what is spent of it:
    0 for Laplace noise.
    """

    distribution: Distribution
    scale: float
    unit: Fraction
    sensitivity: int
    epsilon: str
    delta: str

    @classmethod
    def choose(
        cls, survey: Survey, neighbours: Neighbours, epsilon: str, delta: str | None
    ) -> CountNoise:
        """Return the noise of a survey's counts; it depends on nothing else."""
        change, unit = sensitivity(survey, neighbours), unit_of(survey)
        scale = float_at_least(change / Fraction(Decimal(epsilon)))
        chosen = cls("Laplace", scale, unit, change, epsilon, "0")
        if delta is not None:
            steps = gaussian_scale(change / unit**2, epsilon, delta)
            other = cls("Gaussian", steps * float(unit), unit, change, epsilon, delta)
            chosen = min(chosen, other, key=lambda noise: noise.sigma)
        return chosen

    def mechanism(self, values: Sequence[int]) -> Mechanism:
        """Return the mechanism for counts in units; it checks the counts and OpenDP's promise."""
        if self.distribution == "Laplace":
            return mechanism(self.sensitivity / self.unit, self.epsilon, values, whole=True)
        squared = self.sensitivity / self.unit**2
        return gaussian_mechanism(self._steps, squared, self.epsilon, self.delta, values)

    @property
    def _steps(self) -> float:
        return self.scale / float(self.unit)

    @property
    def sigma(self) -> float:
        """The standard deviation; of Gaussian noise, hardly less."""
        if self.distribution == "Laplace":
            return laplace.discrete_sigma(self._steps) * float(self.unit)
        return self.scale

    def radius(self, miss: float) -> float:
        """Return the smallest distance that noise exceeds, up or down, with at most `miss`."""
        radius = _radius[self.distribution]
        return radius(miss, self._steps) * float(self.unit)

    def reach(self, miss: float, weights: Sequence[float]) -> float:
        """Return a bound that a weighted sum of noise exceeds with a chance of at most `miss`."""
        used = tuple(abs(weight) for weight in weights if weight)
        if not used or miss >= 0.5:
            return 0.0
        if len(used) == 1:
            return used[0] * self.radius(2 * miss)
        reach = _sum_radius[self.distribution](miss, tuple(w * self.scale for w in used))
        return reach + math.fsum(used) * float(self.unit)


_radius = {
    "Laplace": lru_cache(1024)(laplace.discrete_radius),
    "Gaussian": lru_cache(1024)(discrete_gaussian.radius),
}
_sum_radius = {
    "Laplace": lru_cache(4096)(laplace.sum_radius),
    "Gaussian": lru_cache(4096)(discrete_gaussian.sum_radius),
}
