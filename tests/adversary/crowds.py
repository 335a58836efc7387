"""One release of one crowd: what is claimed about it, and what is true."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache

from shoal import Certificate, PrivacyRefusal, Survey, Text, plan
from shoal.planning.certificate import certify

from . import oracle, worlds
from .judging import Claim, at_least, at_most
from .worlds import World

WORK = 3000
"""About how many outcomes are looked at in a case."""


def named_crowd(
    certificate: Certificate, world: World, epsilon: float, size: int, q: Fraction
) -> Iterator[Claim]:
    """The attack, and eta: the crowd that is named must be as bad as is said, and exist."""
    low_lam, high_lam = oracle.lam_between(epsilon)
    found = certificate.attack(epsilon)
    where = f"{world.survey.questions}, N={size}, q={q}, epsilon={epsilon!r}, {found.crowd}"
    if world.bits == 1:
        pair = oracle.one_bit_pair(size, found.crowd["ones"], bool(found.crowd["a"]), q)
    else:
        a, b, c = (found.crowd[count] for count in "abc")
        yield exists(world, (a, b, c), where)
        pair = oracle.homogeneous_pair(a, b, c, size, q)
    yield at_most(found.delta.low, oracle.delta(*pair, low_lam), f"attack, {where}")
    yield at_least(found.delta.high, oracle.delta(*pair, high_lam), f"attack's high end, {where}")


def eta_claims(
    certificate: Certificate,
    world: World,
    epsilon: float,
    size: int,
    q: Fraction,
    rng: random.Random,
) -> Iterator[Claim]:
    """Sufficient's eta: neither below that of any homogeneous crowd, nor above that of all."""
    lams = oracle.lam_between(epsilon)
    worst = certificate.worst_homogeneous(epsilon)
    where = f"{world.survey.questions}, N={size}, q={q}, epsilon={epsilon!r}, {worst.crowd}"
    yield exists(world, worst.crowd, where)
    classes = homogeneous_classes(world)
    near = [crowd for crowd in classes if outcomes(crowd, size) <= WORK]
    tried = rng.sample(near, min(len(near), 6))
    most = Fraction(0)
    for crowd in [worst.crowd, *tried]:
        low, high = etas(crowd, size, q, lams)
        most = max(most, high)
        yield at_least(worst.eta.high, low, f"eta of homogeneous {tuple(crowd)}, {where}")
    if worst.eta.low > most and len(near) == len(classes):
        most = max(etas(crowd, size, q, lams)[1] for crowd in classes)
    if worst.eta.low <= most or len(near) == len(classes):
        yield at_most(worst.eta.low, most, f"eta from below, {where}")


def etas(
    crowd: tuple[int, ...], size: int, q: Fraction, lams: tuple[Fraction, Fraction]
) -> tuple[Fraction, Fraction]:
    """Eta of a homogeneous crowd, from both sides of e^epsilon."""
    a, b, c = crowd
    pair = oracle.homogeneous_pair(a, b, c, size, q)
    return oracle.eta(*pair, lams[1]), oracle.eta(*pair, lams[0])


def exists(world: World, triple: tuple[int, ...], where: str) -> Claim:
    """Whether the domain holds vectors z, x, x' that differ in these numbers of bits."""
    missing = Fraction(0 if tuple(triple) in all_classes(world.originals) else -1)
    return at_most(0.0, missing, f"the domain has no crowd {tuple(triple)}, {where}")


@cache
def all_classes(originals: tuple[int, ...]) -> frozenset[tuple[int, int, int]]:
    """The counts (a, b, c) of all z, x, x' of a domain."""
    return frozenset(
        (
            ((x ^ y) & ~(z ^ x)).bit_count(),
            ((x ^ y) & ~(z ^ y)).bit_count(),
            (~(x ^ y) & (z ^ x)).bit_count(),
        )
        for z in originals
        for x in originals
        for y in originals
    )


def homogeneous_classes(world: World) -> list[tuple[int, int, int]]:
    """Those in which x and x' differ."""
    return sorted(c for c in all_classes(world.originals) if c[0] + c[1])


def outcomes(triple: tuple[int, ...], size: int) -> int:
    """About how many outcomes the law of a homogeneous crowd has."""
    kinds = math.prod(count + 1 for count in triple)
    return math.comb(size + kinds - 1, kinds - 1)


def one_bit(rng: random.Random) -> Iterator[Claim]:
    """A single flag, crowds up to some hundred."""
    world = worlds.one_bit()
    size = rng.choice([1, 2, 2, 3, 4, 5, 6, 8, 10, 13, 20, 30, 50, 80, 150])
    q = worlds.any_q(rng)
    epsilon = worlds.any_epsilon(rng, q, 1)
    certificate = certify(world.survey, q=q, crowd_size=size)
    where = f"N={size}, q={q}, epsilon={epsilon!r}"
    worst = oracle.worst_m(size, float(q), math.exp(min(epsilon, 700.0)))[:2]
    low_lam, high_lam = oracle.lam_between(epsilon)
    pairs = [oracle.one_bit_pair(size, m, up, q) for _, m, up in worst]
    proven = certificate.proven(epsilon)
    for pair in pairs:
        truth = oracle.delta(*pair, high_lam)
        yield at_least(proven.delta.high, truth, f"proven, {where}")
    if proven.method == "exact over m":
        # Floats find the worst crowd up to their rounding.
        most = max(oracle.delta(*pair, low_lam) for pair in pairs) + Fraction(1, 10**13)
        yield at_most(proven.delta.low, most, f"exact over m from below, {where}")
    yield from local(certificate, world, q)
    yield from named_crowd(certificate, world, epsilon, size, q)
    yield from eta_claims(certificate, world, epsilon, size, q, rng)
    if size <= 50 and rng.random() < 0.2:
        wish = 10.0 ** rng.uniform(-9, -0.5)
        reached = certificate.epsilon(delta=wish)
        for truth in oracle.worst_deltas(size, q, reached):
            yield at_least(wish, truth, f"epsilon {reached!r} at delta {wish!r}, {where}")


def local(certificate: Certificate, world: World, q: Fraction) -> Iterator[Claim]:
    """The local epsilon: the largest ratio of a single report."""
    far = max(((x, y) for x in world.originals for y in world.originals), key=_distance)
    laws = [dict(enumerate(oracle.flips(x, world.bits, q))) for x in far]
    low, _ = oracle.log_of(oracle.largest_ratio(*laws))
    # The property is a float beside its promise; what is printed is rounded up, see `plans`.
    yield at_least(certificate.local_epsilon * (1 + 1e-15), low, f"local epsilon, q={q}")


def _distance(pair: tuple[int, int]) -> int:
    return (pair[0] ^ pair[1]).bit_count()


def small_world(rng: random.Random) -> Iterator[Claim]:
    """Any questions, up to four bits and six people: every crowd, or as many as time allows."""
    world = worlds.any_world(rng)
    size = rng.choice([1, 2, 2, 3, 3, 4, 5, 6])
    while size > 1 and math.comb(size + 2**world.bits - 1, size) > WORK / 4:
        size -= 1
    q = worlds.any_q(rng)
    epsilon = worlds.any_epsilon(rng, q, world.distance)
    certificate = certify(world.survey, q=q, crowd_size=size)
    where = f"{world.survey.questions}, N={size}, q={q}, epsilon={epsilon!r}"
    high = certificate.delta(epsilon=epsilon).high
    _, lam = oracle.lam_between(epsilon)
    for others, x, y in crowds_to_try(rng, world, size):
        truth = oracle.delta(*pair_of(world, q, others, x, y), lam)
        yield at_least(high, truth, f"proven, {others} {x} {y}, {where}")
    yield from local(certificate, world, q)
    if rng.random() < 0.15:
        wish = 10.0 ** rng.uniform(-6, -0.5)
        reached = certificate.epsilon(delta=wish)
        _, lam = oracle.lam_between(reached)
        for others, x, y in crowds_to_try(rng, world, size)[:40]:
            truth = oracle.delta(*pair_of(world, q, others, x, y), lam)
            yield at_least(wish, truth, f"epsilon {reached!r}, {others} {x} {y}, {where}")
    if world.distance:
        yield from named_crowd(certificate, world, epsilon, size, q)
        yield from eta_claims(certificate, world, epsilon, size, q, rng)


def crowds_to_try(
    rng: random.Random, world: World, size: int
) -> list[tuple[tuple[int, ...], int, int]]:
    """Crowds and pairs of records: all of them where that is little work."""
    pairs = [(x, y) for x in world.originals for y in world.originals if x != y]
    histograms = math.comb(size + 2**world.bits - 1, size)
    affordable = max(WORK // histograms, 4)
    number = math.comb(size + len(world.originals) - 2, size - 1)
    if number * len(pairs) <= affordable:
        return [(others, x, y) for others in worlds.all_crowds(world, size - 1) for x, y in pairs]
    far = sorted(pairs, key=_distance)[len(pairs) // 2 :]
    return [(worlds.any_crowd(rng, world, size - 1), *rng.choice(far)) for _ in range(affordable)]


def pair_of(
    world: World, q: Fraction, others: tuple[int, ...], x: int, y: int
) -> tuple[oracle.Law, oracle.Law]:
    """The laws of the released histogram with y and with x among the same others."""
    return oracle.neighbours(world.bits, q, others, x, y, oracle.histogram(world.bits))


def homogeneous(rng: random.Random) -> Iterator[Claim]:
    """Larger crowds of equal answers: exact where the outcomes are few, else a lower bound."""
    world = worlds.any_world(rng, 5)
    if not world.distance:
        return
    crowd = rng.choice(homogeneous_classes(world))
    q = worlds.any_q(rng, digits=6)
    epsilon = worlds.any_epsilon(rng, q, world.distance)
    sizes = [n for n in (7, 10, 15, 20, 30, 45, 70, 120, 250) if outcomes(crowd, n) <= WORK]
    exact = bool(sizes) and rng.random() < 0.8
    size = rng.choice(sizes) if exact else rng.choice([30, 60, 100])
    certificate = certify(world.survey, q=q, crowd_size=size)
    where = f"{world.survey.questions}, {crowd}, N={size}, q={q}, epsilon={epsilon!r}"
    high = certificate.delta(epsilon=epsilon).high
    if exact:
        pair = oracle.homogeneous_pair(*crowd, size, q)
        _, lam = oracle.lam_between(epsilon)
        yield at_least(high, oracle.delta(*pair, lam), f"proven, {where}")
    elif q > Fraction(1, 50) and epsilon < 30:
        floor = oracle.homogeneous_floor(*crowd, size, float(q), math.exp(epsilon))
        yield at_least(high, Fraction(max(floor, 0.0)), f"proven, {where}")


def several_flags(rng: random.Random) -> Iterator[Claim]:
    """Three to five flags in crowds for which the promise adapts its blankets."""
    world = worlds.flags(rng.choice([3, 3, 4, 5]))
    exact = world.bits == 3 and rng.random() < 0.5
    size = rng.choice([10, 13, 16, 20]) if exact else rng.choice([30, 60, 120, 250, 600])
    q = Fraction(rng.randint(12, 100), 256)
    epsilon = rng.uniform(0.02, 0.5) * world.bits * math.log((1 - q) / q)
    found = certify(world.survey, q=q, crowd_size=size).proven(epsilon)
    high, (_, lam) = found.delta.high, oracle.lam_between(epsilon)
    where = f"{found.method}, flags {world.bits}, N={size}, q={q}, epsilon={epsilon!r}"
    if exact:
        # Two opposite answers: how many reports have each number of ones tells all.
        no, yes = (oracle.ones_of(x, world.bits, q) for x in (0, 2**world.bits - 1))
        for ones in {0, size - 1, rng.randrange(size)}:
            rest = oracle.crowd([yes] * ones + [no] * (size - 1 - ones))
            one, other = oracle.together(rest, yes), oracle.together(rest, no)
            truth = max(oracle.delta(one, other, lam), oracle.delta(other, one, lam))
            yield at_least(high, truth, f"proven, {ones} of the others opposite, {where}")
        return
    r = rng.randint(1, world.bits)
    a = rng.randint(0, r)
    for crowd in ((world.bits, 0, 0), (0, world.bits, 0), (0, r, 0), (a, r - a, world.bits - r)):
        floor = oracle.homogeneous_floor(*crowd, size, float(q), math.exp(epsilon))
        yield at_least(high, Fraction(max(floor, 0.0)), f"proven, {crowd}, {where}")


def group(rng: random.Random) -> Iterator[Claim]:
    """Several reports of one person in one release."""
    world = worlds.one_bit() if rng.random() < 0.7 else worlds.any_world(rng, 2)
    reports = rng.choice([2, 2, 3, 4])
    size = reports + rng.choice([0, 1, 2, 3, 5, 10, 30] if world.bits == 1 else [0, 1, 2])
    q = worlds.any_q(rng)
    epsilon = worlds.any_epsilon(rng, q, world.distance) * rng.choice([1, reports])
    certificate = certify(world.survey, q=q, crowd_size=size)
    claimed = certificate.group_delta(epsilon=epsilon, reports=reports)
    same = replace(certificate, reports_per_person=reports).delta(epsilon=epsilon).high
    where = f"{reports} reports, {world.survey.questions}, N={size}, q={q}, epsilon={epsilon!r}"
    _, lam = oracle.lam_between(epsilon)
    key = oracle.histogram(world.bits)
    for _ in range(4):
        others = worlds.any_crowd(rng, world, size - reports)
        rest = oracle.crowd(oracle.person((z,), world.bits, q, key) for z in others)
        x, y = rng.choice(world.originals), rng.choice(world.originals)
        laws = [
            oracle.crowd([rest, *[oracle.person((z,), world.bits, q, key)] * reports])
            for z in (y, x)
        ]
        truth = oracle.delta(laws[0], laws[1], lam)
        yield at_least(claimed, truth, f"group, {others} {x} {y}, {where}")
        yield at_least(same, truth, f"group in the certificate, {others} {x} {y}, {where}")


def colluders(rng: random.Random) -> Iterator[Claim]:
    """Some people tell what they sent, or are not honest: the attacker takes their reports away."""
    world = worlds.one_bit()
    size = rng.choice([2, 3, 5, 8, 12, 30, 60])
    q = worlds.dyadic_q(rng)
    epsilon = max(worlds.any_epsilon(rng, q, 1), 1e-4)
    bad = rng.randint(0, size - 1)
    certificate = certify(world.survey, q=q, crowd_size=size).with_colluders(bad)
    where = f"{bad} colluders, N={size}, q={q}, epsilon={epsilon!r}"
    # What the colluders sent is known: a constant that both laws are shifted by.
    for truth in oracle.worst_deltas(size - bad, q, epsilon):
        high = certificate.delta(epsilon=epsilon).high
        yield at_least(high, truth, f"colluders, {where}")
    part = rng.choice(["0.9", "0.5", "0.33", "0.999", "0.07"])
    try:
        agreed = plan(
            world.survey, q=q, crowd_size=size, epsilon=f"{epsilon:.6f}", honest_fraction=part
        )
    except PrivacyRefusal:
        return
    honest_reports = math.floor(agreed.reports_needed * Fraction(part))
    yield at_least(Fraction(honest_reports), Fraction(size), f"{part} of a release, {where}")
    for truth in oracle.worst_deltas(size, q, float(agreed.promise.epsilon)):
        yield at_least(float(agreed.promise.delta or 1), truth, f"honest {part}, {where}")
        held = certify(agreed).delta(epsilon=float(agreed.promise.epsilon)).high
        yield at_least(held, truth, f"audit with honest {part}, {where}")


def cohorts(rng: random.Random) -> Iterator[Claim]:
    """Text: each report draws its cohort afresh and carries it; a text sets other bits in each."""
    number, bits, hashes = rng.choice([(2, 2, 1), (2, 3, 2), (3, 2, 1), (2, 3, 1), (1, 3, 1)])
    size = rng.choice([2, 2, 3])
    q = worlds.any_q(rng, digits=6)
    epsilon = worlds.any_epsilon(rng, q, min(2 * hashes, bits))
    survey = Survey("w", (Text("t", bits=bits, hashes=hashes, cohorts=number),))
    high = certify(survey, q=q, crowd_size=size).delta(epsilon=epsilon).high
    _, lam = oracle.lam_between(epsilon)
    # A text sets as many bits in each cohort; no text sets none.
    filters = [v for v in range(2**bits) if v.bit_count() == hashes]
    for _ in range(6):
        values = [[rng.choice(filters) for _ in range(number)] for _ in range(rng.choice([2, 3]))]
        if rng.random() < 0.2:
            values[rng.randrange(2)] = [0] * number
        others = [rng.choice(values) for _ in range(size - 1)]
        x, y = values[0], values[1]
        rest = oracle.crowd(_text(z, bits, q) for z in others)
        laws = [oracle.together(rest, _text(z, bits, q)) for z in (y, x)]
        truth = oracle.delta(laws[0], laws[1], lam)
        words = f"text, {others} {x} {y}, {survey.questions}, N={size}, q={q}, {epsilon!r}"
        yield at_least(high, truth, words)


def _text(text: list[int], bits: int, q: Fraction) -> oracle.Law:
    """Law of a report about a text that sets these bits in each cohort."""
    cells = 2**bits
    return {
        1 << oracle.DIGIT * (cohort * cells + v): w
        for cohort, vector in enumerate(text)
        for v, w in enumerate(oracle.flips(vector, bits, q))
    }


def moments(rng: random.Random) -> Iterator[Claim]:
    """Mean and sigma of the privacy ratio, on which the three-sigma rule stands."""
    bits, size = rng.randint(1, 3), rng.choice([1, 2, 3, 6, 10])
    q = worlds.dyadic_q(rng, 6)
    ratio = certify(worlds.flags(bits).survey, q=q, crowd_size=size).to_json(epsilon=1.0)["ratio"]
    mean, variance = oracle.ratio_moments(bits, size, q)
    where = f"the privacy ratio, {bits} flags, N={size}, q={q}"
    slack = Fraction(1, 10**9)
    for said, truth in ((ratio["mean"], mean), (Fraction(ratio["sigma"]) ** 2, variance)):
        yield at_least(Fraction(said) * (1 + slack) + slack, truth, where)
        yield at_most(Fraction(said) * (1 - slack) - slack, truth, where)
