"""Adapted blankets against exact fractions: coverage, the cap, and every crowd of small worlds."""

from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction

import pytest

from shoal.theory import adapted_search
from shoal.theory.adapted import Cover, CoverMixture, Shape, Weighted, hidden_delta
from shoal.theory.adapted_search import adapted_delta
from shoal.theory.blanket import blanket_delta
from shoal.theory.domains import flags
from shoal.theory.homogeneous import local_delta
from shoal.theory.proven import attack_delta

from .oracle import histogram_pair, hockey_stick

SLOW = pytest.mark.slow
QS = [Fraction(1, 50), Fraction(1, 5), Fraction(3, 8), Fraction(499, 1000)]


def cube(bits: int) -> list[tuple[int, ...]]:
    return list(itertools.product((0, 1), repeat=bits))


def chance(v, y, q: Fraction) -> Fraction:
    return math.prod((1 - q if a == b else q for a, b in zip(v, y, strict=True)), start=Fraction(1))


def members(shape: Shape, q: Fraction) -> list[dict[tuple[int, ...], Fraction]]:
    """The distributions of a shape, by their definition; an orbit has several."""
    if shape.orbit:
        centres = [z for z in cube(shape.bits) if sum(z) == shape.fewest]
        return [{v: chance(v, z, q) for v in cube(shape.bits)} for z in centres]
    inside = [y for y in cube(shape.bits) if shape.fewest <= sum(y) <= shape.most]
    least = {v: min(chance(v, y, q) for y in inside) for v in cube(shape.bits)}
    total = sum(least.values())
    return [{v: mass / total for v, mass in least.items()}]


def products(cover: Cover, q: Fraction) -> list[dict[tuple[int, ...], Fraction]]:
    return [
        {v + w: a * b for v, a in one.items() for w, b in other.items()}
        for one in members(cover.differing, q)
        for other in members(cover.common, q)
    ]


def coverage_of(omega: dict[tuple[int, ...], Fraction], y, q: Fraction) -> Fraction:
    return min(chance(v, y, q) / mass for v, mass in omega.items())


def pair_of(cover: Cover) -> tuple[tuple[int, ...], tuple[int, ...]]:
    r, rest = cover.differing.bits, cover.common.bits
    return (0,) * (r + rest), (1,) * r + (0,) * rest


def hidden(omega, pair, n: int, q: Fraction, lam: Fraction) -> Fraction:
    """Delta of one record among n - 1 draws of omega, over all sequences of n reports."""
    x, x_prime = pair
    step = {v: (chance(v, x_prime, q) - lam * chance(v, x, q)) / mass for v, mass in omega.items()}
    total: dict[Fraction, Fraction] = {Fraction(0): Fraction(1)}
    for _ in range(n):
        longer: dict[Fraction, Fraction] = {}
        for value, weight in total.items():
            for v, mass in omega.items():
                key = value + step[v]
                longer[key] = longer.get(key, Fraction(0)) + weight * mass
        total = longer
    return sum((value * w for value, w in total.items() if value > 0), Fraction(0)) / n


def binomial(n: int, share: Fraction) -> list[Fraction]:
    return [math.comb(n, k) * share**k * (1 - share) ** (n - k) for k in range(n + 1)]


def covers_of(bits: int, r: int) -> list[Cover]:
    return [
        Cover(a, b) for a in adapted_search._shapes(r) for b in adapted_search._shapes(bits - r)
    ]


@pytest.mark.parametrize("q", QS)
@pytest.mark.parametrize(("bits", "r"), [(1, 1), (2, 2), (3, 2), (3, 3)])
def test_coverage_by_trying_all_reports(bits: int, r: int, q: Fraction):
    for cover in covers_of(bits, r):
        laws = products(cover, q)
        found = iter(cover.coverage(q))
        for s, t in itertools.product(range(r + 1), range(bits - r + 1)):
            y = (1,) * s + (0,) * (r - s) + (1,) * t + (0,) * (bits - r - t)
            exact = sum(coverage_of(omega, y, q) for omega in laws) / len(laws)
            assert next(found) == exact


@pytest.mark.parametrize("q", [0.02, 0.25, 0.4375, 0.499])
@pytest.mark.parametrize(("bits", "r"), [(1, 1), (2, 1), (2, 2)])
def test_people_that_hide_by_enumeration(bits: int, r: int, q: float):
    """The bound holds the exact value of the capped expectation, and is not far above it."""
    exact_q = Fraction(q)
    rng = random.Random(f"{bits} {r} {q}")
    for cover in rng.sample(covers_of(bits, r), 2):
        omega = products(cover, exact_q)[0]
        for N, part in ((2, 0.3), (4, 0.3), (5, 0.7)):
            epsilon = part * r * math.log((1 - q) / q)
            lam = Fraction(math.exp(epsilon))
            d = [hidden(omega, pair_of(cover), n, exact_q, lam) for n in range(1, N + 1)]
            for people in [part / 4 for part in range(4, 4 * N - 3)]:
                law = binomial(N - 1, Fraction(people) / (N - 1))
                capped = sum(w * d[min(k, math.floor(people))] for k, w in enumerate(law))
                bound = Fraction(hidden_delta(cover, people, N, q, epsilon, 1e-6).high)
                near = Fraction(1.00001) if people == N - 1 else 2
                assert capped <= bound <= near * capped + Fraction(1, 10**9)


def crowds(bits: int, N: int):
    return itertools.combinations_with_replacement(cube(bits), N - 1)


@pytest.mark.parametrize("q", QS)
@pytest.mark.parametrize(
    ("bits", "r", "N"), [(1, 1, 2), (1, 1, 5), (2, 1, 3), (2, 2, 4), (3, 2, 2)]
)
def test_every_step_of_the_proof_in_fractions(bits: int, r: int, N: int, q: Fraction):
    """Truth <= E[d(1 + M)], and <= the capped binomial at every f up to the mean of M."""
    rng = random.Random(f"{bits} {r} {N} {q}")
    lam = Fraction(rng.choice([1, 3, 9]), 2) + Fraction(1, 2)
    for cover in rng.sample(covers_of(bits, r), min(4, len(covers_of(bits, r)))):
        omega = rng.choice(products(cover, q))
        x, x_prime = pair_of(cover)
        d = [hidden(omega, (x, x_prime), n, q, lam) for n in range(1, N + 1)]
        assert d == sorted(d, reverse=True)
        everyone = list(crowds(bits, N))
        for others in rng.sample(everyone, min(12, len(everyone))):
            truth = hockey_stick(*histogram_pair(others, x, x_prime, q), lam)
            shares = [coverage_of(omega, y, q) for y in others]
            assert max(shares) <= 1
            law = [Fraction(1)]
            for share in shares:
                law = [
                    (law[k] if k < len(law) else 0) * (1 - share) + (law[k - 1] if k else 0) * share
                    for k in range(len(law) + 1)
                ]
            revealed = sum(w * d[k] for k, w in enumerate(law))
            assert truth <= revealed
            mean = sum(shares)
            for f in (*range(math.floor(mean) + 1), mean * Fraction(2, 3), mean):
                weights = enumerate(binomial(N - 1, Fraction(f) / (N - 1)))
                assert revealed <= sum(w * d[min(k, math.floor(f))] for k, w in weights)


def test_without_the_cap_the_binomial_is_no_bound():
    """d need not be convex: among fair coins, 1 against 0 is 1, 1/2, 1/2, 3/8 at epsilon 0."""
    d = [Fraction(1), Fraction(1, 2), Fraction(1, 2), Fraction(3, 8)]
    sure = d[2]  # two of three people are certain to hide: mean 2, and no variance
    free = sum(w * d[k] for k, w in enumerate(binomial(3, Fraction(2, 3))))
    capped = sum(w * d[min(k, 2)] for k, w in enumerate(binomial(3, Fraction(2, 3))))
    assert free < sure <= capped


@pytest.mark.parametrize("q", [0.375, *(pytest.param(q, marks=SLOW) for q in (0.4375, 0.499))])
@pytest.mark.parametrize(("bits", "N"), [(1, 6), (2, 4), pytest.param(2, 5, marks=SLOW)])
def test_random_certificates_hold_for_every_crowd(bits: int, N: int, q: float):
    """Weights and people at random, made to fit: nothing depends on the linear program."""
    rng = random.Random(f"{bits} {N} {q}")
    exact_q = Fraction(q)
    checked = 0
    for r in range(1, bits + 1):
        pool = covers_of(bits, r)
        for _ in range(6):
            parts = tuple(
                Weighted(rng.choice(pool), rng.randint(1, 9), rng.uniform(1, N - 1))
                for _ in range(rng.randint(1, 4))
            )
            fitted = CoverMixture(parts, N, q).fitted()
            if fitted is None:
                continue
            assert fitted.covers()
            epsilon = rng.choice([0.0, 0.2, 0.5]) * r * math.log((1 - q) / q)
            bound = max(bracket.high for bracket in fitted.deltas(epsilon))
            x, x_prime = pair_of(parts[0].cover)
            lam = Fraction(math.exp(epsilon))
            for others in crowds(bits, N):
                truth = hockey_stick(*histogram_pair(others, x, x_prime, exact_q), lam)
                assert truth <= bound * (1 + 1e-12)
                checked += 1
    assert checked


@pytest.mark.parametrize("q", [0.05, *(pytest.param(q, marks=SLOW) for q in (0.2, 0.375, 0.4999))])
@pytest.mark.parametrize(("bits", "N"), [(1, 1), (1, 2), (1, 7), (2, 2), (2, 4)])
def test_bound_holds_for_every_crowd(bits: int, N: int, q: float):
    for part in (0.0, 0.3, 0.7):
        epsilon = part * bits * math.log((1 - q) / q)
        bound = adapted_delta(bits, N, q, epsilon).delta.high
        lam, exact_q = Fraction(math.exp(epsilon)), Fraction(q)
        for others in crowds(bits, N):
            for r in range(1, bits + 1):
                x_prime = (1,) * r + (0,) * (bits - r)
                pair = histogram_pair(others, (0,) * bits, x_prime, exact_q)
                assert hockey_stick(*pair, lam) <= bound * (1 + 1e-12)


class TestCertificate:
    COVER = Cover(Shape(1, 0, 1), Shape(0, 0, 0))

    def test_condition_is_exact(self):
        """The plain blanket of one flag covers 2q: at q = 1/4, fifty of a hundred others."""
        assert CoverMixture((Weighted(self.COVER, 1, 50),), 101, 0.25).slack == 1
        assert CoverMixture((Weighted(self.COVER, 1, 50),), 101, 0.25).covers()
        assert not CoverMixture((Weighted(self.COVER, 1, 51),), 101, 0.25).covers()
        assert not CoverMixture((), 101, 0.25).covers()

    def test_one_class_without_cover_is_seen(self):
        near = Cover(Shape(1, 0, 0), Shape(0, 0, 0))  # covers 0 whole, and 1 by a third
        certificate = CoverMixture((Weighted(near, 1, 50),), 101, 0.25)
        assert certificate.slack == Fraction(2, 3)
        fitted = certificate.fitted()
        assert fitted is not None
        assert fitted.parts[0].people == math.floor(1024 * 100 / 3) / 1024

    def test_people_are_checked(self):
        with pytest.raises(ValueError, match="people must be from 1"):
            hidden_delta(self.COVER, 101, 101, 0.25, 0.1)


@pytest.mark.parametrize(
    ("bits", "N", "q", "epsilon", "target"),
    [
        (3, 10_000, 0.0735, 2.0, 1e-6),
        pytest.param(5, 10_000, 0.2036, 1.0, 1e-6, marks=pytest.mark.slow),
        pytest.param(5, 10_000, 0.1550, 2.0, 1e-6, marks=pytest.mark.slow),
    ],
)
def test_tighter_than_one_blanket_and_above_the_attack(bits, N, q, epsilon, target):
    found = adapted_delta(bits, N, q, epsilon)
    assert found.delta.high <= target < blanket_delta((flags(bits),), N, q, epsilon).low / 10
    assert attack_delta((flags(bits),), N, q, epsilon).delta.low < found.delta.high
    for r, certificate in enumerate(found.certificates, 1):
        assert certificate is not None
        assert certificate.covers()
        assert {part.cover.differing.bits for part in certificate.parts} == {r}
        deltas = [bracket.high for bracket in certificate.deltas(epsilon, enough=found.delta.high)]
        assert max(deltas) <= found.delta.high * (1 + 1e-12)


def test_degenerate_points():
    assert adapted_delta(2, 10, 0.5, 0.0).delta == (0.0, 0.0)
    assert adapted_delta(2, 1, 0.3, 0.0).delta == local_delta((flags(2),), 0.3, 0.0)
    near = 0.5 - 2.0**-40
    local = local_delta((flags(2),), near, 0.0)
    assert 0.0 < adapted_delta(2, 50, near, 0.0).delta.high <= local.high
    for bits in (0, adapted_search.MAX_BITS + 1):
        with pytest.raises(ValueError, match="bits must be from 1"):
            adapted_delta(bits, 10, 0.3, 1.0)
