"""A release that holds how many reports set each bit: what is claimed about it, and what is true.

The oracle counts each bit by itself, of whole people with whole vectors; that the counts of
different bits are independent is what Shoal uses, and not the oracle.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from fractions import Fraction

from shoal import Choice, PrivacyRefusal, Survey, YesNo, plan
from shoal.planning.certificate import certify

from . import oracle, worlds
from .crowds import local
from .judging import Claim, at_least, at_most
from .worlds import World

OUTCOMES = 2500
"""About how many outcomes a release may have."""


def any_world(rng: random.Random) -> World:
    """One flag, any questions of up to three bits, or two questions with all their cells."""
    draw = rng.random()
    if draw < 0.25:
        return worlds.one_bit()
    return crossed(rng) if draw > 0.9 else worlds.any_world(rng, 3)


def crossed(rng: random.Random) -> World:
    """A yes/no question and a choice of two; the cell of both is one more question."""
    survey = Survey("w", (YesNo("a"), Choice("b", ("x", "y")))).cross("a", "b")
    originals = [
        yes | 1 << 1 + option | 1 << 3 + 2 * yes + option for yes in (0, 1) for option in (0, 1)
    ]
    assert survey.bits == 7, "the world must be the survey's"
    return World(survey, 7, tuple(originals))


def any_size(rng: random.Random, world: World) -> int:
    """So many people that every outcome can be looked at."""
    sizes = [1, 2, 3, 4, 6, 9, 12, 25, 60]
    return rng.choice([n for n in sizes if n == 1 or (n + 1) ** world.bits <= OUTCOMES])


def pair_of(
    world: World, q: Fraction, others: list[int] | tuple[int, ...], x: int, y: int
) -> tuple[oracle.Law, oracle.Law]:
    """The laws of the counts with y and with x among the same others."""
    return oracle.neighbours(world.bits, q, others, x, y, oracle.counted(world.bits))


def crowds_to_try(
    rng: random.Random, world: World, size: int
) -> Iterator[tuple[tuple[int, ...], int, int]]:
    """Others who answer like one of two far answers, in several shares, and anybody."""
    x, y = far_pair(rng, world)
    for like in sorted({0, size - 1, (size - 1) // 2, rng.randint(0, size - 1)}):
        yield (y,) * like + (x,) * (size - 1 - like), x, y
    for _ in range(2):
        yield worlds.any_crowd(rng, world, size - 1), *rng.choice([(x, y), (y, x)])


def far_pair(rng: random.Random, world: World) -> tuple[int, int]:
    """Two answers that differ in as many bits as any."""
    pairs = [(x, y) for x in world.originals for y in world.originals]
    return rng.choice([(x, y) for x, y in pairs if (x ^ y).bit_count() == world.distance])


def counts(rng: random.Random) -> Iterator[Claim]:
    """Proven, attack, epsilon and local epsilon of an audit in the view of counts."""
    world = any_world(rng)
    size, q = any_size(rng, world), worlds.any_q(rng)
    epsilon = worlds.any_epsilon(rng, q, world.distance)
    certificate = certify(world.survey, q=q, crowd_size=size, view="counts")
    where = f"{world.survey.questions}, N={size}, q={q}, epsilon={epsilon!r}"
    low_lam, high_lam = oracle.lam_between(epsilon)
    high = certificate.delta(epsilon=epsilon).high
    for others, x, y in crowds_to_try(rng, world, size):
        truth = oracle.delta(*pair_of(world, q, others, x, y), high_lam)
        yield at_least(high, truth, f"proven, {others} {x} {y}, {where}")
    yield from local(certificate, world, q)
    if not world.distance:
        return
    # The crowd of the attack, which the domain must allow, and the delta that it has.
    found = certificate.attack(epsilon)
    x, y = far_pair(rng, world)
    others = (y,) * found.crowd["second"] + (x,) * found.crowd["first"]
    assert len(others) == size - 1
    truth = oracle.delta(*pair_of(world, q, others, x, y), low_lam)
    yield at_most(found.delta.low, truth, f"attack, {found.crowd}, {where}")
    if rng.random() < 0.2:
        wish = 10.0 ** rng.uniform(-6, -0.5)
        reached = certificate.epsilon(delta=wish)
        _, lam = oracle.lam_between(reached)
        for others, x, y in crowds_to_try(rng, world, size):
            truth = oracle.delta(*pair_of(world, q, others, x, y), lam)
            yield at_least(wish, truth, f"epsilon {reached!r}, {others} {x} {y}, {where}")


def planned(rng: random.Random) -> Iterator[Claim]:
    """Any of q, crowd size, epsilon and delta is left to the planner."""
    world = any_world(rng)
    if not world.distance:
        return
    wish = {
        "q": worlds.dyadic_q(rng),
        "crowd_size": any_size(rng, world),
        "epsilon": f"{rng.uniform(0.05, world.distance * 2):.3f}",
        "delta": f"{10.0 ** rng.uniform(-7, -0.5):.3e}",
    }
    unknown = rng.choice(["q", "q", "epsilon", "delta", "crowd_size"])
    del wish[unknown]
    try:
        agreed = plan(world.survey, view="counts", **wish)  # type: ignore[arg-type]
    except PrivacyRefusal:
        return
    size, q = agreed.crowd_size or 1, agreed.q.fraction
    if (size + 1) ** world.bits > OUTCOMES:
        return
    _, lam = oracle.lam_between(Fraction(agreed.promise.epsilon))
    words = f"{unknown} planned for counts, {world.survey.questions}, {agreed.q}, N={size}"
    for others, x, y in crowds_to_try(rng, world, size):
        truth = oracle.delta(*pair_of(world, q, others, x, y), lam)
        yield at_least(Fraction(agreed.promise.delta or 0), truth, f"{words}, {agreed.promise}")
    ratio = oracle.log_of(((1 - q) / q) ** world.distance)[0]
    said = math.nextafter(certify(agreed).local_epsilon * (1 + 1e-15), math.inf)
    yield at_least(said, ratio, f"local epsilon, {words}")


def dropped(rng: random.Random) -> Iterator[Claim]:
    """Delta where only so many bits may be set: every crowd of a few, or many who answer alike."""
    alike = rng.random() < 0.5
    world = worlds.flags(2) if alike else worlds.any_world(rng, 4)
    size = rng.choice([5, 12, 24]) if alike else rng.randint(1, 4 if world.bits < 4 else 3)
    weight = rng.randint(1, max(world.bits - 1, 1))
    q = Fraction(rng.randint(1, 6), 64) if alike else worlds.dyadic_q(rng, 6)
    epsilon = rng.choice([0.0, 0.25, 1.0, 1.0, 2.0, 3.5])
    certificate = certify(world.survey, q=q, crowd_size=size, view="counts", max_weight=weight)
    said = certificate.delta(epsilon=epsilon).high
    _, lam = oracle.lam_between(epsilon)
    laws = {x: oracle.truncated(x, world.bits, q, weight) for x in world.originals}
    crowds = (
        [(z,) * (size - 1) for z in world.originals]
        if alike
        else list(itertools.combinations_with_replacement(world.originals, size - 1))
    )
    for others in rng.sample(crowds, min(len(crowds), 12)):
        rest = oracle.crowd(laws[z] for z in others)
        ends = {x: oracle.together(rest, law) for x, law in laws.items()}
        pairs = list(itertools.permutations(world.originals, 2))
        for x, y in rng.sample(pairs, min(len(pairs), 12)):
            words = (
                f"max_weight {weight}, {world.survey.questions}, N={size}, q={q},"
                f" epsilon={epsilon}, others {others}, {x} or {y}"
            )
            yield at_least(said, oracle.delta(ends[x], ends[y], lam), words)
