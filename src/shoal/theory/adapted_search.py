"""The search for adapted blankets: which covers, and how many people each relies on.

Nothing here is trusted. Quick estimates of the people that each cover needs, and a linear program,
propose a certificate (`shoal.theory.adapted`) for each number of differing bits; people are then
moved between its parts until the certified deltas are about the same.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from scipy.optimize import linprog
from scipy.special import ndtr

from shoal.theory.adapted import Cover, CoverMixture, Shape, Weighted, coverage
from shoal.theory.brackets import Bracket, FloatArray
from shoal.theory.domains import flags
from shoal.theory.homogeneous import check_crowd, local_delta
from shoal.theory.stop_loss.reduction import Draw

MAX_BITS = 8
"""With more flags the families of covers are too large to be searched in a few seconds."""

_TILTS, _SHARES = 100, 48
"""Values of t, and shares of the others, at which the estimates are computed."""

_WEIGHT_UNIT = 10**9
_MIN_WEIGHT = 1e-5

_ROUNDS, _EVEN = 3, 1.02
"""People are moved at most twice, until the largest delta is 2 % above the smallest."""

_FAR = 0.7
"""Pairs whose delta seems to be below this part of the largest one need no better certificate."""


class Adapted(NamedTuple):
    """The bound on delta and the certificates it rests on, one for each number of differing bits.

    Where a pair has none, the bound is that of a report without a crowd. The pairs with the largest
    bound differ in `worst` bits.
    """

    delta: Bracket
    certificates: tuple[CoverMixture | None, ...]
    worst: int


def adapted_delta(
    bits: int, N: int, q: float, epsilon: float, rtol: float = 1e-3, only: int | None = None
) -> Adapted:
    """Bound delta(epsilon) for every crowd of N people who answer `bits` flags (theorem).

    At most `MAX_BITS` flags. `only` asks for the pairs that differ in that many bits alone: no
    promise, but a quick hint.

    >>> found = adapted_delta(3, 10_000, 0.0735, 2.0)
    >>> found.delta.high < 1e-6, all(one.covers() for one in found.certificates)
    (True, True)
    """
    check_crowd(N, q, epsilon)
    if not 1 <= bits <= MAX_BITS:
        raise ValueError(f"bits must be from 1 to {MAX_BITS}, got bits={bits}.")
    if q == 0.5:
        return Adapted(Bracket(0.0, 0.0), (None,) * bits, bits)
    # without a crowd the local pair is a bound (post-processing)
    alone = local_delta((flags(bits),), q, epsilon)
    if N == 1:
        return Adapted(alone, (None,) * bits, bits)
    families, guesses = {}, {}
    highest = 0.0
    for r in range(bits, 0, -1) if only is None else [only]:
        families[r] = _Family(bits, r, N, q, epsilon)
        guesses[r] = _FAR * highest
        if highest == 0.0 or families[r].solve(guesses[r])[0] < 1.0:
            guesses[r] = families[r].best(highest or 1e-6)[0]
            highest = max(highest, guesses[r])
    certificates: dict[int, CoverMixture | None] = {}
    low, high, worst = 0.0, 0.0, bits
    for r in sorted(families, key=lambda r: -guesses[r]):
        certificates[r], one = _protect(families[r], epsilon, rtol, high, guesses[r])
        low = max(low, one.low)
        high, worst = max((high, worst), (one.high, r))
    found = tuple(certificates.get(r) for r in range(1, bits + 1))
    return Adapted(Bracket(min(low, alone.low), min(high, alone.high)), found, worst)


def _protect(
    family: _Family, epsilon: float, rtol: float, floor: float, guess: float
) -> tuple[CoverMixture | None, Bracket]:
    """Return a certificate for pairs that differ in r bits, and its bound on delta.

    A bound below `floor` gains nothing.
    """
    times, found = family.solve(floor * _FAR) if floor > 0.0 else (0.0, None)
    enough = floor
    if times < 1.0:
        enough, (_, found) = 0.0, family.best(guess)
    best, certificate = Bracket(0.0, 1.0), None
    for _ in range(_ROUNDS):
        found = None if found is None else found.fitted()
        if found is None:
            break
        brackets = found.deltas(epsilon, rtol, enough)
        deltas = [bracket.high for bracket in brackets]
        if max(deltas) < best.high:
            certificate = found
            best = Bracket(max(bracket.low for bracket in brackets), max(deltas))
        if best.high <= floor or max(deltas) <= _EVEN * min(deltas):
            break
        found, enough = found.balanced(deltas), 0.0
    return certificate, best


def _shapes(bits: int) -> list[Shape]:
    if bits == 0:
        return [Shape(0, 0, 0)]
    minima = [Shape(bits, a, b) for a in range(bits + 1) for b in range(a, bits + 1)]
    return minima + [Shape(bits, z, z, orbit=True) for z in range(1, bits)]


class _Family:
    """Covers for pairs that differ in r bits, with quick estimates of the people they need."""

    def __init__(self, bits: int, r: int, N: int, q: float, epsilon: float) -> None:
        self.N, self.q = N, q
        self.covers = [Cover(one, other) for one in _shapes(r) for other in _shapes(bits - r)]
        one, other = (
            {
                shape: np.array(coverage(shape, Fraction(q)), dtype=np.float64)
                for shape in _shapes(k)
            }
            for k in (r, bits - r)
        )
        self.coverage = np.array(
            [np.outer(one[cover.differing], other[cover.common]).ravel() for cover in self.covers]
        )
        # ln(-ln delta) for each share of the others
        self._log_shares = np.linspace(-math.log(N), 0.0, _SHARES)
        self._curves = np.array(
            [self._curve(cover.draw(q, epsilon, Fraction(1))) for cover in self.covers]
        )

    def _curve(self, draw: Draw) -> FloatArray:
        """Estimate ``ln(-ln G)`` at each share.

        At each t, ``E[S_+]`` is about ``E[e^(tS)] / (t (1 + 2.5 t sigma))``. If d falls by the
        factor e^-a for each person, the cap costs the part ``e^(-x^2 / 2) / 2 - Phi(-x)`` of it,
        x = a sigma_B.
        """
        y = np.exp(np.minimum(draw.log_plus, 300.0)) - np.exp(np.minimum(draw.log_minus, 300.0))
        weight, share = np.exp(draw.log_weight), np.exp(self._log_shares)
        t = np.geomspace(1e-7, 1e2, _TILTS) / max(float(np.abs(y) @ weight), 1e-9)
        with np.errstate(over="ignore"):
            tilted = weight * np.exp(np.minimum(t[:, None] * y, 600.0))
        loss, second = 1.0 - tilted.sum(axis=1), tilted @ y**2
        usable = (loss > 1e-12) & (loss < 1.0)
        if not usable.any():
            return np.full(_SHARES, -np.inf)
        t, loss, second = (one[usable, None] for one in (t, loss, second))
        people = self.N * share
        log_delta = self.N * np.log1p(-share * loss)
        log_delta -= np.log(people * t * (1.0 + 2.5 * t * np.sqrt(people * second)))
        best = log_delta.argmin(axis=0)
        x = -np.log1p(-loss[best, 0]) * np.sqrt(people * (1.0 - share))
        cap = 0.5 * np.exp(-0.5 * x**2) - ndtr(-x)
        found = log_delta[best, np.arange(_SHARES)] + np.log1p(cap)
        curve: FloatArray = np.log(np.maximum(-found, 1e-9))
        return curve

    def shares(self, delta: float) -> FloatArray:
        """Guess the share of the others that each cover needs for delta."""
        level = math.log(-math.log(delta))
        x, step = self._curves, self._log_shares[1] - self._log_shares[0]
        above = x >= level
        first = np.where(above.any(axis=1), above.argmax(axis=1), _SHARES)
        inside = np.clip(first, 1, _SHARES - 1)
        rows = np.arange(len(x))
        low, high = x[rows, inside - 1], x[rows, inside]
        with np.errstate(invalid="ignore", divide="ignore"):
            part = np.clip((level - low) / (high - low), 0.0, 1.0)
        found = self._log_shares[inside] - step * (1.0 - np.nan_to_num(part, nan=1.0))
        shares: FloatArray = np.exp(np.where(first == _SHARES, np.inf, found))
        return shares

    def solve(self, delta: float) -> tuple[float, CoverMixture | None]:
        """Return how many times over the best weights cover every crowd, and those weights."""
        share = self.shares(delta)
        usable = np.flatnonzero(share < 1.0)
        if not usable.size:
            return 0.0, None
        # the unknowns are weights divided by shares
        found = linprog(
            share[usable],
            A_ub=-self.coverage[usable].T,
            b_ub=np.full(self.coverage.shape[1], -1.0),
            method="highs",
        )
        if found.x is None or found.fun is None:
            return 0.0, None
        parts = []
        for j, weight in zip(usable.tolist(), found.x.tolist(), strict=True):
            if weight * share[j] > _MIN_WEIGHT * found.fun:
                people = max(share[j] * (self.N - 1), 1.0)
                weight = round(weight * people / self.N / found.fun * _WEIGHT_UNIT)
                parts.append(Weighted(self.covers[j], weight, people))
        return 1.0 / float(found.fun), CoverMixture(tuple(parts), self.N, self.q)

    def best(self, start: float) -> tuple[float, CoverMixture | None]:
        """Return the smallest delta at which the estimates cover every crowd."""
        low, high = math.log(1e-30), -1e-3
        guess = min(max(math.log(start), low), high)
        result: tuple[float, CoverMixture | None] = (1.0, None)
        for _ in range(12):
            times, certificate = self.solve(math.exp(guess))
            if times >= 1.0:
                high, result = guess, (math.exp(guess), certificate)
            else:
                low = guess
            if high - low < 0.02 or 1.0 <= times < 1.0005:
                break
            # delta falls about as fast as the exponential of the people
            step = guess * max(times, 0.3)
            guess = step if low < step < high else 0.5 * (low + high)
        return result
