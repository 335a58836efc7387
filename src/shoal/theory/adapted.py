"""Blankets adapted to the crowd: a tighter bound for whole reports of flags (theorem).

`blanket` covers every crowd with one distribution. Here the proof chooses the distribution after
seeing the crowd. For any distribution omega on reports and any original y let

    c_y(omega) = min_v p(v|y) / omega(v)                                    (at most 1)

so that a person with original y draws from omega with probability c_y, whatever happens elsewhere.
Let ``d_omega(n)`` be the delta of one record, x or x', among n - 1 draws of omega, and for a number
f of the N - 1 others, on average,

    G_omega(f) = E[d_omega(1 + min(B, floor(f)))],   B ~ Bin(N - 1, f / (N - 1)).

*Theorem.* If weights ``l_j >= 0`` with sum 1 have ``sum_j l_j (N - 1) c_y(omega_j) / f_j >= 1`` for
every original y, then every crowd has ``delta(x, x') <= max_j G_(omega_j)(f_j)``. The proof is in
docs/theorem-adapted-blankets.md.

`adapted_search` finds the weights; nothing depends on its accuracy. `CoverMixture.covers` checks
the condition in fractions, for every class of originals, and the engine brackets G. One mixture is
needed for each number r of differing bits.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from shoal.theory.binomial import tails
from shoal.theory.brackets import Bracket, FloatArray, binomial_log_weights, log_sum
from shoal.theory.randomized_response import log_theta
from shoal.theory.stop_loss import delta_of_draws, stop_loss_of
from shoal.theory.stop_loss.reduction import Draw

_ROUND = 1e-12
"""Atoms are moved towards a larger delta by this part of 1 plus the largest of them: round-off."""

_SIGMAS = (0.4, 0.9, 1.6, 2.6)
"""Where the price of the cap is evaluated, in standard deviations of B above its mean."""

_PIECES = 1024
"""People are counted in these parts of a person, so that floats hold them exactly."""


class Shape(NamedTuple):
    """A distribution on `bits` bits.

    It is the normalized minimum of p(v|y) over the originals y with `fewest` to `most` ones; with
    `orbit`, p(.|z) itself, for each z with `fewest` ones in turn.
    """

    bits: int
    fewest: int
    most: int
    orbit: bool = False

    def coverage(self, q: Fraction) -> list[Fraction]:
        """Return c_y for y with 0, 1, ... ones, exactly; of an orbit, the mean over its members."""
        theta, bits = (1 - q) / q, self.bits
        if self.orbit:
            z, ways = self.fewest, math.comb(bits, self.fewest)
            return [
                sum(
                    Fraction(math.comb(s, both) * math.comb(bits - s, z - both), ways)
                    / theta ** (s + z - 2 * both)
                    for both in range(max(0, s + z - bits), min(s, z) + 1)
                )
                + Fraction(0)
                for s in range(bits + 1)
            ]
        furthest = self._furthest
        total = sum(
            math.comb(bits, i) * (1 - q) ** (bits - h) * q**h for i, h in enumerate(furthest)
        )
        least = (
            min(h - _distance(s, i, bits) for i, h in enumerate(furthest)) for s in range(bits + 1)
        )
        return [total * theta**power for power in least]

    @property
    def _furthest(self) -> list[int]:
        """Distance from a report with 0, 1, ... ones to the furthest of the originals."""
        sizes = range(self.fewest, self.most + 1)
        return [max(_distance(s, i, self.bits) for s in sizes) for i in range(self.bits + 1)]

    @functools.lru_cache(maxsize=1024)  # noqa: B019 shapes are small and few
    def atoms(self, q: float, differ: bool) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Logarithms of p(v|x') / omega(v), of p(v|x) / omega(v), and of the mass, v ~ omega.

        x is 0 in all bits; x' is 1 in all of them or, unless they `differ`, 0.
        """
        unit, bits = log_theta(q), self.bits
        if self.orbit:
            ones = self.fewest
            i, j = np.ogrid[: bits - ones + 1, : ones + 1]  # zeros and ones of z that were flipped
            mass = binomial_log_weights(bits - ones, q)[:, None]
            mass = mass + binomial_log_weights(ones, q)[None, :]
            away = (2 * j - ones) * unit + 0.0 * i
            towards = (2 * i - (bits - ones)) * unit + 0.0 * j if differ else away
            return towards.ravel(), away.ravel(), mass.ravel()
        count, far = np.arange(bits + 1.0), np.array(self._furthest, dtype=np.float64)
        log_all = binomial_log_weights(bits, 0.5) + bits * math.log(2.0)
        density = bits * math.log1p(-q) - far * unit
        log_total = log_sum(log_all + density)
        from_x = (far - count) * unit + log_total
        from_other = (far - (bits - count)) * unit + log_total if differ else from_x
        return from_other, from_x, log_all + density - log_total


def _distance(s: int, i: int, bits: int) -> int:
    """Return the largest distance of vectors with s and i ones."""
    return min(s + i, 2 * bits - s - i)


class Cover(NamedTuple):
    """A product of two shapes: on the bits in which x and x' differ, and on the others."""

    differing: Shape
    common: Shape

    def coverage(self, q: Fraction) -> list[Fraction]:
        """Return c_y for every class of originals: ones among either kind of bits."""
        common = coverage(self.common, q)
        return [one * other for one in coverage(self.differing, q) for other in common]

    def draw(self, q: float, epsilon: float, share: Fraction) -> Draw:
        """Return Y = (p(v|x') - lam p(v|x)) / omega(v), which is 0 unless a coin of `share` hits.

        Both ratios are moved by their round-off, so that Y and the stop-loss can only be too large.
        """
        plus, minus, mass = (
            np.add.outer(one, other).ravel()
            for one, other in zip(
                self.differing.atoms(q, True), self.common.atoms(q, False), strict=True
            )
        )
        largest = 1.0 + epsilon + float(max(np.abs(plus).max(), np.abs(minus).max()))
        bits = self.differing.bits + self.common.bits
        slack, blur = _ROUND * largest, 4.0 * bits * (1.0 + abs(math.log(q)))
        plus, minus = plus + slack, minus + epsilon - slack
        if share == 1:
            return Draw(plus, minus, mass, blur)
        plus, minus = (np.append(one, -np.inf) for one in (plus, minus))
        mass = np.append(mass + math.log(share), math.log(1 - share))
        return Draw(plus, minus, mass, blur)


@functools.lru_cache(maxsize=4096)
def coverage(shape: Shape, q: Fraction) -> list[Fraction]:
    """Return `Shape.coverage`, computed once."""
    return shape.coverage(q)


class Weighted(NamedTuple):
    """A cover, its weight as a whole number, and how many of the others it relies on, on average.

    An orbit stands for its members, each with the same part of the weight.
    """

    cover: Cover
    weight: int
    people: float


class CoverMixture(NamedTuple):
    """Covers that protect x and x', which differ in r of L flags, in every crowd of N."""

    parts: tuple[Weighted, ...]
    N: int
    q: float

    @property
    def slack(self) -> Fraction:
        """Least of ``sum_j l_j (N - 1) c_y / f_j`` over all originals; at least 1 if it holds."""
        q, total = Fraction(self.q), sum(part.weight for part in self.parts)
        sums: list[Fraction] = []
        for cover, weight, people in self.parts:
            scale = Fraction(weight * (self.N - 1), total) / Fraction(people)
            terms = [scale * one for one in cover.coverage(q)]
            sums = [one + term for one, term in zip(sums, terms, strict=True)] if sums else terms
        return min(sums, default=Fraction(0))

    def covers(self) -> bool:
        """Whether each crowd is protected by some part, evaluated in fractions."""
        return self.slack >= 1

    def fitted(self) -> CoverMixture | None:
        """Rely on as many people as the weights allow; None if a part has fewer than one."""
        slack = self.slack
        people = [math.floor(Fraction(p.people) * slack * _PIECES) / _PIECES for p in self.parts]
        if min(people, default=0.0) < 1.0:
            return None
        fitted = self._with(min(one, self.N - 1.0) for one in people)
        return fitted if fitted.covers() else None

    def balanced(self, deltas: Sequence[float]) -> CoverMixture:
        """Rely on more people where delta is larger, so that all parts have about the same delta.

        Each part covers as much as before. Delta falls about as fast as the exponential of the
        people, less a factor that they hardly change.
        """
        logs = np.log(np.maximum(deltas, 1e-300))
        mean = float(np.average(logs, weights=[part.weight for part in self.parts]))
        factors = 1.0 + (logs - mean) / max(-mean - 3.0, 1.0)
        people = [
            min(max(part.people * factor, 1.0), self.N - 1.0)
            for part, factor in zip(self.parts, factors.tolist(), strict=True)
        ]
        weights = (
            round(part.weight * f / part.people) for part, f in zip(self.parts, people, strict=True)
        )
        moved = self._with(people)
        parts = (p._replace(weight=w) for p, w in zip(moved.parts, weights, strict=True))
        return self._replace(parts=tuple(parts))

    def _with(self, people: Iterable[float]) -> CoverMixture:
        parts = (part._replace(people=f) for part, f in zip(self.parts, people, strict=True))
        return self._replace(parts=tuple(parts))

    def deltas(self, epsilon: float, rtol: float = 1e-3, enough: float = 0.0) -> list[Bracket]:
        """Bracket G of each part; the largest high end bounds delta for every crowd."""
        return [
            hidden_delta(cover, people, self.N, self.q, epsilon, rtol, enough)
            for cover, _, people in self.parts
        ]


def hidden_delta(
    cover: Cover, people: float, N: int, q: float, epsilon: float,
    rtol: float = 1e-3, enough: float = 0.0,
) -> Bracket:  # fmt: skip
    """Bracket G(f), f = `people`; the high end is the bound.

    ``E[d(1 + B)]`` is a single stop-loss of N draws. The cap adds ``E[(d(1 + b) - d(1 + B))_+]``,
    b = floor(f). As d falls, that is at most the sum of ``P[B > b] (d(1 + b) - d(1 + b'))`` over
    neighbours b < b' of any chain from there on, and ``P[B > b] d(1 + b)`` at its end. All of it
    holds for the d of ratios that were moved up too, which is larger and falls as well (Jensen). A
    bound of at most `enough` may be a rough one.
    """
    others = N - 1
    if not 1 <= people <= others:
        raise ValueError(f"people must be from 1 to N - 1 = {others}, got people={people}.")
    full = cover.draw(q, epsilon, Fraction(1))
    if people == others:
        return delta_of_draws(full, N, rtol)
    share, whole = Fraction(people) / others, math.floor(people)
    free = stop_loss_of(cover.draw(q, epsilon, share), N, rtol)
    free = free.times(1.0 / (N * float(share))).times(1.0 + 1e-15)
    sigma = math.sqrt(people * float(1 - share))

    def beyond(b: int) -> float:
        return tails(b + 1, others, 0, float(share)).at_least_bound

    hidden = [delta_of_draws(full, whole + 1, max(rtol, 0.01))]
    bound = free.high + beyond(whole) * hidden[0].high
    if bound > enough:
        chain = sorted({min(whole + round(k * sigma), others) for k in (0.0, *_SIGMAS)})
        hidden += [delta_of_draws(full, b + 1, max(rtol, 0.01)) for b in chain[1:]]
        hidden.append(Bracket(0.0, 0.0))
        falls = (max(here.high - there.low, 0.0) for here, there in itertools.pairwise(hidden))
        cap = sum(beyond(b) * fall for b, fall in zip(chain, falls, strict=True))
        bound = free.high + cap
    return Bracket(free.low, bound * (1.0 + 1e-12)).capped(1.0)
