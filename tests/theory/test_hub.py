"""Classes that hide together, in fractions: the hub bound, its steps, and where they stop."""

from __future__ import annotations

import bisect
import functools
import itertools
import math
import random
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import linprog

from shoal.theory.adapted import Shape
from shoal.theory.adapted_search import _Family
from shoal.theory.brackets import FloatArray
from shoal.theory.stop_loss import delta_of_draws
from shoal.theory.stop_loss.reduction import Draw

from .oracle import hockey_stick

Distribution = tuple[Fraction, ...]
Pair = tuple[Distribution, Distribution]
Sizes = tuple[int, ...]
Histograms = dict[Sizes, Fraction]


def added(one: Histograms, other: Histograms) -> Histograms:
    """The histogram of two independent groups."""
    found: Histograms = {}
    for a, weight in one.items():
        for b, chance in other.items():
            key = tuple(map(int.__add__, a, b))
            found[key] = found.get(key, Fraction(0)) + weight * chance
    return found


@functools.cache
def histograms(omega: Distribution, n: int) -> Histograms:
    """How often each report occurs among n draws."""
    single = {tuple(int(v == w) for w in range(len(omega))): p for v, p in enumerate(omega)}
    return added(histograms(omega, n - 1), single) if n else {(0,) * len(omega): Fraction(1)}


@functools.cache
def truth(pair: Pair, lam: Fraction, classes: tuple[Distribution, ...], M: Sizes) -> Fraction:
    """Delta of one record among M_k draws of class k, all shuffled together."""
    others = functools.reduce(added, map(histograms, classes, M))
    with_x, with_x_prime = (added(others, histograms(one, 1)) for one in pair)
    keys = sorted(with_x)
    return hockey_stick([with_x_prime[key] for key in keys], [with_x[key] for key in keys], lam)


@functools.cache
def hub_bound(
    pair: Pair, lam: Fraction, classes: tuple[Distribution, ...], M: Sizes,
    s: Distribution, hub: int,
) -> Fraction:  # fmt: skip
    """F_h(M, s) = E[X_+] by its definition, over the histograms of the classes with weight."""
    assert sum(s) == 1
    others = [k for k, weight in enumerate(s) if weight and k != hub]
    assert all(M[k] for k in others)
    omega = classes[hub]
    d = [b - lam * a - (1 - lam) * w for a, b, w in zip(*pair, omega, strict=True)]
    found = Fraction(0)
    for drawn in itertools.product(*(histograms(classes[k], M[k]).items() for k in others)):
        worth = [1 - lam + s[hub] * d[v] / w for v, w in enumerate(omega)]
        chance = Fraction(1)
        for k, (counts, weight) in zip(others, drawn, strict=True):
            gains = (n * d[v] / classes[k][v] for v, n in enumerate(counts))
            mean = sum(gains, Fraction(0)) / M[k]
            worth = [one + s[k] * classes[k][v] / omega[v] * mean for v, one in enumerate(worth)]
            chance *= weight
        for counts, weight in histograms(omega, M[hub] + 1).items():
            x = sum((n * one for n, one in zip(counts, worth, strict=True)), Fraction(0))
            found += chance * weight * max(x, Fraction(0)) / (M[hub] + 1)
    return found


def a_distribution(rng: random.Random, reports: int) -> Distribution:
    parts = [rng.randint(1, 6) for _ in range(reports)]
    return tuple(Fraction(one, sum(parts)) for one in parts)


def a_world(rng: random.Random, reports: int, classes: int):
    pair = (a_distribution(rng, reports), a_distribution(rng, reports))
    lam = Fraction(rng.randint(4, 10), 4)
    return pair, lam, tuple(a_distribution(rng, reports) for _ in range(classes))


def some_weights(rng: random.Random, M: Sizes, hub: int) -> Distribution:
    """Any real weights with sum 1, on the hub and on classes with people."""
    s = [Fraction(rng.randint(-2, 6), 4) if n else Fraction(0) for n in M]
    s[hub] = Fraction(0)
    s[hub] = 1 - sum(s, Fraction(0))
    return tuple(s)


WORLDS = [(2, 2, 4), (3, 2, 3), (2, 3, 2)]


@pytest.mark.parametrize(("reports", "count", "most"), WORLDS)
def test_hub_bound_of_fixed_classes(reports: int, count: int, most: int):
    """Every split of the crowd over the classes, every hub, weights of either sign."""
    rng = random.Random(f"fixed {reports} {count}")
    strict = 0
    for _ in range(6):
        pair, lam, classes = a_world(rng, reports, count)
        for M in itertools.product(range(most + 1), repeat=count):
            exact = truth(pair, lam, classes, M)
            for hub in range(count):
                bound = hub_bound(pair, lam, classes, M, some_weights(rng, M, hub), hub)
                assert exact <= bound
                strict += exact < bound
                # all weight on the hub: one class that hides alone
                alone = tuple(Fraction(k == hub) for k in range(count))
                own = (classes[hub],)
                assert hub_bound(pair, lam, classes, M, alone, hub) == truth(
                    pair, lam, own, (M[hub],)
                )
    assert strict


@pytest.mark.parametrize(("reports", "count", "most"), WORLDS)
def test_hub_bound_falls_with_every_class(reports: int, count: int, most: int):
    """With the weights of the means fixed, people more in any class, or in the hub, only help."""
    rng = random.Random(f"falls {reports} {count}")
    fell = 0
    for _ in range(6):
        pair, lam, classes = a_world(rng, reports, count)
        for M in itertools.product(range(most), repeat=count):
            hub = rng.randrange(count)
            s = some_weights(rng, M, hub)
            here = hub_bound(pair, lam, classes, M, s, hub)
            for k in range(count):
                more = (*M[:k], M[k] + 1, *M[k + 1 :])
                there = hub_bound(pair, lam, classes, more, s, hub)
                assert there <= here
                fell += there < here
    assert fell


def of_slots(t: Distribution, M: Sizes) -> Distribution:
    """Weights of the means, from weights t of the mixtures over slots; the hub is class 0."""
    s = [weight * Fraction(n, n + 1) for weight, n in zip(t[1:], M[1:], strict=True)]
    return (1 - sum(s, Fraction(0)), *s)


def test_with_fixed_weights_of_slots_one_more_person_can_hurt():
    classes = ((Fraction(3, 4), Fraction(1, 4)), (Fraction(1, 4), Fraction(3, 4)))
    t, lam = (Fraction(0), Fraction(1)), Fraction(1)
    found = [hub_bound(classes, lam, classes, (2, n), of_slots(t, (2, n)), 0) for n in (0, 1)]
    assert found == [Fraction(9, 32), Fraction(41, 128)]
    assert truth(classes, lam, classes, (2, 1)) < truth(classes, lam, classes, (2, 0)) == found[0]


def corners(a: Distribution, level: Fraction, step: Fraction) -> Iterator[Sizes]:
    """Sizes one of which is below every M with sum a_k M_k >= level."""
    steps = math.floor(level / step) - len(a) + 1
    for cut in itertools.product(range(max(steps, 0) + 1), repeat=len(a)):
        if sum(cut) == max(steps, 0):
            yield tuple(math.ceil(step * i / one) for i, one in zip(cut, a, strict=True))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_corners_are_below_every_split(count: int):
    rng = random.Random(f"corners {count}")
    for _ in range(20):
        a = tuple(Fraction(rng.randint(1, 6), 6) for _ in range(count))
        level, step = Fraction(rng.randint(1, 24), 5), Fraction(rng.randint(1, 6), 6)
        found = list(corners(a, level, step))
        steps = max(math.floor(level / step) - count + 1, 0)
        assert len(found) == math.comb(steps + count - 1, count - 1)
        for M in itertools.product(range(9), repeat=count):
            if sum(map(Fraction.__mul__, a, map(Fraction, M))) >= level:
                assert any(all(map(int.__ge__, M, m)) for m in found)


def best_of_grid(pair: Pair, lam: Fraction, classes: tuple[Distribution, ...], m: Sizes):
    """The least F_h(m, s) over both hubs of two classes and weights in tenths."""
    return min(
        hub_bound(pair, lam, classes, m, (1 - Fraction(i, 10), Fraction(i, 10)), hub)
        for hub in range(2)
        for i in range(11)
        if all(m[k] or k == hub or not w for k, w in enumerate((10 - i, i)))
    )


def hits(rows: Sequence[Distribution], crowd: Sizes) -> Histograms:
    """The sizes of the classes, if a person of original y hits class k with probability c_yk."""
    found: Histograms = {(0,) * len(rows[0]): Fraction(1)}
    for y in crowd:
        single = {tuple(int(k == j) for j in range(len(rows[y]))): c for k, c in enumerate(rows[y])}
        single[(0,) * len(rows[y])] = 1 - sum(rows[y], Fraction(0))
        found = added(found, single)
    return found


@pytest.mark.parametrize("seed", range(8))
def test_every_step_to_every_crowd_in_fractions(seed: int):
    """Truth <= E[F(M)] <= levels and corners with the exact tail; the tail <= its exponential."""
    rng = random.Random(f"every crowd {seed}")
    (x, x_prime), _, classes = a_world(rng, 2 + seed % 2, 2)
    lam = 1 + (max(b / a for a, b in zip(x, x_prime, strict=True)) - 1) / 4
    originals = (x, x_prime, a_distribution(rng, len(x)))
    if seed % 4 < 2:  # a class for each of two originals, which are certain to hit
        classes = originals[:2]
    rows = []
    for y, p in enumerate(originals):
        left, c = list(p), [Fraction(0)] * 2
        for k in (y % 2, 1 - y % 2):
            most = min(a / w for a, w in zip(left, classes[k], strict=True))
            c[k] = most * rng.choice([Fraction(1), Fraction(1, 2)])
            left = [a - c[k] * w for a, w in zip(left, classes[k], strict=True)]
        assert min(left) >= 0
        rows.append(tuple(c))
    a = (Fraction(1), Fraction(rng.randint(1, 4), 4))
    local = hockey_stick(x_prime, x, lam)
    others = 4
    levels = [Fraction(3), Fraction(2), Fraction(1)]
    deltas = [
        max(best_of_grid((x, x_prime), lam, classes, m) for m in corners(a, level, Fraction(1, 2)))
        for level in levels
    ]
    deltas = [*itertools.accumulate(deltas, max), local]
    helped = 0
    for crowd in itertools.combinations_with_replacement(range(3), others):
        counts = tuple(crowd.count(y) for y in range(3))
        exact = truth((x, x_prime), lam, originals, counts)
        M_law = hits(rows, crowd)
        mean_bound = sum(
            weight * best_of_grid((x, x_prime), lam, classes, M) for M, weight in M_law.items()
        )
        assert exact <= mean_bound
        bound = deltas[0]
        f = sum((a[k] * rows[y][k] for y in crowd for k in range(2)), Fraction(0))
        for level, here, there in zip(levels, deltas, deltas[1:], strict=False):
            missed = sum(
                (w for M, w in M_law.items() if a[0] * M[0] + a[1] * M[1] < level), Fraction(0)
            )
            bound += missed * max(there - here, Fraction(0))
            if level < f < others:
                u, v = float(level / others), float(f / others)
                divergence = u * math.log(u / v) + (1 - u) * math.log((1 - u) / (1 - v))
                assert missed <= Fraction(math.exp(-others * divergence) * (1 + 1e-12))
        assert mean_bound <= bound
        helped += bound < local
    assert helped


def ones(bits: int, chance: Fraction) -> Distribution:
    return tuple(
        math.comb(bits, i) * chance**i * (1 - chance) ** (bits - i) for i in range(bits + 1)
    )


@pytest.mark.parametrize(
    ("n", "figures"),
    [
        (2, (0.2043, 0.1292, 0.1115, 0.1139)),
        (4, (0.1139, 0.0663, 0.0408, 0.0542)),
        (8, (0.0542, 0.0211, 0.0093, 0.0125)),
    ],
)
def test_two_opposite_halves(n: int, figures: tuple[float, ...]):
    """The table of the page: two flags, q = 1/4, lam = 2, n others 00 and n others 11.

    All probabilities depend on a report through its number of ones alone.
    """
    q, lam = Fraction(1, 4), Fraction(2)
    pair = classes = (ones(2, q), ones(2, 1 - q))
    alone = min(truth(pair, lam, (omega,), (n,)) for omega in classes)
    hub = best_of_grid(pair, lam, classes, (n, n))
    exact = truth(pair, lam, classes, (n, n))
    twice = min(truth(pair, lam, (omega,), (2 * n,)) for omega in classes)
    assert tuple(round(float(one), 4) for one in (alone, hub, exact, twice)) == figures
    assert exact <= hub < alone
    assert hub > twice


def stop_loss(worth: FloatArray, log_weight: FloatArray, n: int) -> float:
    """E[(mean of n draws)_+], from the engine."""
    with np.errstate(divide="ignore"):
        plus, minus = np.log(np.maximum(worth, 0.0)), np.log(np.maximum(-worth, 0.0))
    return delta_of_draws(Draw(plus, minus, log_weight, 0.0), n, 1e-2).high


def estimate(hub: Shape, other: Shape, M: Sizes, s: float, q: float, epsilon: float) -> float:
    """F_h of two classes in floats: stop-losses at 41 values of the other class's mean."""
    lam = math.exp(epsilon)
    (up, down, mass), (_, _, other_mass) = (one.atoms(q, True) for one in (hub, other))
    d = np.exp(up) - lam * np.exp(down) - (1.0 - lam)
    ratio = np.exp(other_mass - mass)
    step, chance = d / ratio, np.exp(other_mass)
    # sums of draws on a lattice; atoms move outwards to their two neighbours
    size = 2**15
    sigma = math.sqrt(M[1] * (step**2) @ chance)
    width = 2.0 * max(12.0 * sigma, 4.0 * float(np.abs(step).max())) / size
    cell, single = np.floor(step / width).astype(int), np.zeros(size)
    np.add.at(single, cell % size, chance * (cell + 1 - step / width))
    np.add.at(single, (cell + 1) % size, chance * (step / width - cell))
    sums = np.maximum(np.fft.irfft(np.fft.rfft(single) ** M[1], size), 0.0)
    values = np.fft.fftfreq(size, 1.0 / size) * width
    marks = np.linspace(-6.5 * sigma, 6.5 * sigma, 41)
    place = np.clip((values - marks[0]) / (marks[1] - marks[0]), 0.0, 39.999)
    left, weight = place.astype(int), np.zeros(41)
    np.add.at(weight, left, sums * (left + 1 - place))
    np.add.at(weight, left + 1, sums * (place - left))
    return sum(
        w * stop_loss(1.0 - lam + (1.0 - s) * d + s * mark / M[1] * ratio, mass, M[0] + 1)
        for w, mark in zip(weight.tolist(), marks.tolist(), strict=True)
        if w > 1e-13
    )


def needed(one: Shape, q: float, epsilon: float, delta: float) -> int:
    """The least number of draws that hide x and x' alone."""
    up, down, mass = one.atoms(q, True)
    worth = np.exp(up) - math.exp(epsilon) * np.exp(down)
    return bisect.bisect_left(
        range(10_000), True, lo=1, key=lambda n: stop_loss(worth, mass, n + 1) <= delta
    )


@functools.cache
def best_cover(r: int, q: float, epsilon: float, delta: float):
    """How often estimates cover the worst crowd: one class at a time, and two that add up fully.

    Also the shapes of the parts of two classes with weight, on the bits that differ.
    """
    family = _Family(5, r, 10_000, q, epsilon)
    shares = family.shares(delta)
    counts = family.coverage / shares[:, None]
    orbits = [cover.differing.orbit or cover.common.orbit for cover in family.covers]
    minima = [j for j, orbit in enumerate(orbits) if not orbit and shares[j] < 1.0]
    pairs = list(itertools.combinations(minima, 2))
    rows = np.array([*counts, *(counts[list(pair)].max(axis=0) for pair in pairs)])
    found = linprog(np.ones(len(rows)), A_ub=-rows.T, b_ub=-np.ones(rows.shape[1]))
    assert found.x is not None
    assert found.fun is not None
    used = [
        tuple(family.covers[k].differing for k in pair)
        for pair, weight in zip(pairs, found.x[len(counts) :], strict=True)
        if weight > 1e-6
    ]
    return family.solve(delta)[0], 1.0 / found.fun, used


@pytest.mark.parametrize(
    ("r", "one", "two"),
    [(5, 0.65, 1.10), (4, 0.65, 1.16), (3, 0.67, 1.22), (2, 0.81, 1.33), (1, 1.55, 2.05)],
)
def test_estimates_for_five_flags(r: int, one: float, two: float):
    """The figures of the page: how often the worst crowd is covered at q = .19."""
    found = best_cover(r, 0.19, 1.0, 1e-6)
    assert (round(found[0], 2), round(found[1], 2)) == (one, two)


def test_people_of_two_classes_nearly_add_up():
    """Half of the people that each class needs alone: a tenth more suffice, a tenth less do not."""
    q, epsilon, delta = 0.19, 1.0, 1e-6
    parts = best_cover(5, q, epsilon, delta)[2]
    assert len(parts) == 6
    for other, hub in parts:
        n = needed(hub, q, epsilon, delta), needed(other, q, epsilon, delta)
        for times, enough in ((0.9, False), (1.1, True)):
            M = (round(times * n[0] / 2), round(times * n[1] / 2))
            bounds = (estimate(hub, other, M, s, q, epsilon) for s in (0.2, 0.25, 0.35))
            assert (min(bounds) < delta) == enough
