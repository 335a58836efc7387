"""Reports that are sent in pieces: those with too many set bits drop some of them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from fractions import Fraction

from shoal.planning.certificate import certify

from . import oracle, worlds
from .judging import Claim, at_least


def dropped(rng: random.Random) -> Iterator[Claim]:
    """Delta of the messages of a crowd: every crowd of a few people, or many who answer alike."""
    alike = rng.random() < 0.5
    world = worlds.flags(2) if alike else worlds.any_world(rng, 4)
    size = rng.choice([5, 12, 24]) if alike else rng.randint(1, 4 if world.bits < 4 else 3)
    messages = rng.randint(1, max(world.bits - 1, 1))
    q = Fraction(rng.randint(1, 6), 64) if alike else worlds.dyadic_q(rng, 6)
    epsilon = rng.choice([0.0, 0.25, 1.0, 1.0, 2.0, 3.5])
    certificate = certify(world.survey, q=q, crowd_size=size, view="counts", messages=messages)
    said = certificate.delta(epsilon=epsilon).high
    _, lam = oracle.lam_between(epsilon)
    laws = {x: oracle.in_pieces(x, world.bits, q, messages) for x in world.originals}
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
                f"{messages} messages, {world.survey.questions}, N={size}, q={q},"
                f" epsilon={epsilon}, others {others}, {x} or {y}"
            )
            yield at_least(said, oracle.delta(ends[x], ends[y], lam), words)
