"""Larger crowds: at the same q they hide no less, and they are promised no less."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

from shoal import Choice, Flags, Number, PrivacyRefusal, Survey, Text, plan
from shoal.planning.certificate import certify
from shoal.protocol.plan import VIEWS, View

from . import crowds, oracle, views, worlds
from .judging import Claim, at_least

RISE = 1e-3
"""By which part a bound may rise with the crowd: it is computed to about that."""

SHARED = {"leader": "https://leader.example", "helper": "https://helper.example", "window": 604_800}


def small(rng: random.Random) -> Iterator[Claim]:
    """A bound for a crowd is a bound for every larger crowd, by the exact truth of that."""
    view: View = rng.choice(VIEWS)
    counts = view == "counts"
    world = views.any_world(rng) if counts else worlds.any_world(rng, 2)
    size, q = rng.choice([1, 2, 3, 4]), worlds.any_q(rng)
    epsilon = worlds.any_epsilon(rng, q, world.distance)
    more = size + rng.choice([1, 1, 2])
    where = f"{view}, {world.survey.questions}, N={size} and {more}, q={q}, epsilon={epsilon!r}"
    said, then = (
        certify(world.survey, q=q, crowd_size=people, view=view).delta(epsilon=epsilon).high
        for people in (size, more)
    )
    yield at_least(said * (1 + RISE), Fraction(then), f"promised to more people, {where}")
    if (more + 1) ** world.bits > views.OUTCOMES:
        return
    _, lam = oracle.lam_between(epsilon)
    laws = views.pair_of if counts else crowds.pair_of
    for others, x, y in views.crowds_to_try(rng, world, more):
        truth = oracle.delta(*laws(world, q, others, x, y), lam)
        yield at_least(said, truth, f"of more people, {others} {x} {y}, {where}")


def planned(rng: random.Random) -> Iterator[Claim]:
    """A plan of any kind, and the same q with more people than planned."""
    view: View = rng.choice(VIEWS)
    size = int(10 ** rng.uniform(0.3, 4.3))
    wish: dict[str, Any] = {
        "epsilon": f"{10 ** rng.uniform(-1.3, 0.8):.3f}",
        "delta": f"{10.0 ** rng.uniform(-12, -1):.2e}",
    }
    survey = any_survey(rng)
    if view == "counts" and survey.cohorts in (None, 1) and rng.random() < 0.5:
        wish |= SHARED
    try:
        agreed = plan(survey, crowd_size=size, view=view, **wish)
    except PrivacyRefusal:
        return
    certificate, epsilon = certify(agreed), float(agreed.promise.epsilon)
    if rng.random() < 0.15 and agreed.parties is None:
        certificate = replace(certificate, reports_per_person=2)
    least, at = certificate.delta(epsilon=epsilon).high, size
    for people in sorted({size + 1, *(math.ceil(size * part) for part in (1.01, 1.1, 1.5, 2.0))}):
        said = replace(certificate, crowd_size=people).delta(epsilon=epsilon).high
        words = f"N={at} and {people}, {view}, q={agreed.q}, {wish}, {survey.questions}"
        yield at_least(least * (1 + RISE), Fraction(said), f"planned for fewer: {words}")
        if said < least:
            least, at = said, people


def any_survey(rng: random.Random) -> Survey:
    """One to three questions of all kinds."""
    cohorts = rng.choice([1, 1, 2, 4, 8])

    def question(name: str) -> Flags | Choice | Number | Text:
        def options(*counts: int) -> tuple[str, ...]:
            return tuple(f"option {j}" for j in range(rng.choice(counts)))

        kind = rng.choice(["flags", "choice", "at most", "number", "text"])
        if kind == "flags":
            return Flags(name, options(1, 1, 2, 3, 5, 8, 20))
        if kind == "choice":
            return Choice(name, options(2, 3, 5, 10, 50))
        if kind == "at most":
            return Flags(name, options(4, 5, 10, 20), at_most=rng.randint(1, 4))
        if kind == "number":
            return Number(name, edges=tuple(range(rng.choice([3, 5, 10]))))
        bits, hashes = rng.choice([8, 16, 32, 64]), rng.choice([1, 2])
        return Text(name, bits=bits, hashes=hashes, cohorts=cohorts)

    return Survey("w", tuple(question(f"q{i}") for i in range(rng.choice([1, 1, 1, 2, 3]))))
