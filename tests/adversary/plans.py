"""What a plan promises, and what a publication prints."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np

from shoal import Plan, PrivacyRefusal, ShoalError, plan, publish, tally
from shoal.planning.memory import plan_with_memory
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.wire import Synthetic
from shoal.reports import Publication

from . import oracle, worlds
from .crowds import WORK, crowds_to_try, homogeneous_classes, outcomes, pair_of
from .judging import Claim, at_least, at_most, equal
from .times import stated
from .worlds import World


def planned(rng: random.Random) -> Iterator[Claim]:
    """Any of q, crowd size, epsilon and delta is left to the planner."""
    world = worlds.one_bit() if rng.random() < 0.6 else worlds.any_world(rng, 3)
    if not world.distance:
        return
    size = rng.choice([2, 3, 5, 8, 20, 60] if world.bits == 1 else [2, 3])
    wish = {
        "q": worlds.dyadic_q(rng),
        "crowd_size": size,
        "epsilon": f"{rng.uniform(0.05, world.distance * 2):.3f}",
        "delta": f"{10.0 ** rng.uniform(-7, -0.5):.3e}",
    }
    unknown = rng.choice(["q", "epsilon", "delta"] + ["crowd_size"] * (world.bits == 1))
    del wish[unknown]
    try:
        agreed = plan(world.survey, **wish)  # type: ignore[arg-type]
    except PrivacyRefusal:
        return
    if unknown == "crowd_size" and (agreed.crowd_size or 0) > 120:
        return
    epsilon, delta = Fraction(agreed.promise.epsilon), Fraction(agreed.promise.delta or 1)
    words = f"{unknown} planned, {world.survey.questions}, {agreed.q}, N={agreed.crowd_size}"
    for truth in true_deltas(rng, world, agreed.crowd_size or 1, agreed.q.fraction, epsilon):
        yield at_least(delta, truth, f"{words}, {agreed.promise}")


def planned_with_memory(rng: random.Random) -> Iterator[Claim]:
    """Permanent and fresh flips together keep the promise of a release, and that of a lifetime."""
    world, size, releases = worlds.one_bit(), rng.choice([2, 5, 20, 60]), rng.choice([1, 2, 5, 30])
    answers = rng.randint(1, min(releases, 3))
    life = None if rng.random() < 0.3 else f"{rng.uniform(0.5, 8):.3f}"
    try:
        agreed = plan_with_memory(
            world.survey,
            crowd_size=size,
            epsilon=f"{rng.uniform(0.3, 2):.3f}",
            delta=f"{10.0 ** rng.uniform(-5, -0.5):.3e}",
            releases=releases,
            lifetime_epsilon=life,
            distinct_answers=answers,
            fresh=f"{rng.uniform(0.1, 0.9):.2f}",
        )
    except PrivacyRefusal:
        return
    assert agreed.memory is not None
    q1, q2 = agreed.memory.q1.fraction, agreed.memory.q2.fraction
    q, words = q1 + q2 - 2 * q1 * q2, f"{agreed.promise}, {releases} releases, N={size}"
    yield from equal(agreed.q.fraction, q, f"q of a plan, {words}")
    for truth in true_deltas(rng, world, size, q, Fraction(agreed.promise.epsilon)):
        yield at_least(Fraction(agreed.promise.delta or 0), truth, f"planned with memory, {words}")
    if life is not None:
        # Each answer is reported at least once; the worst is that reports all say the same.
        spent = Fraction(0)
        for share in _shares(releases, answers):
            same = q1 * q2**share + (1 - q1) * (1 - q2) ** share
            other = (1 - q1) * q2**share + q1 * (1 - q2) ** share
            spent += oracle.log_of(same / other)[0]
        yield at_least(Fraction(life), spent, f"lifetime, {answers} answers, {words}")


def _shares(releases: int, answers: int) -> list[int]:
    return [releases // answers + (i < releases % answers) for i in range(answers)]


def true_deltas(
    rng: random.Random, world: World, size: int, q: Fraction, epsilon: Fraction
) -> Iterator[Fraction]:
    """Delta in the worst crowds of one bit, or in some of a small world."""
    if world.bits == 1:
        yield from oracle.worst_deltas(size, q, epsilon)
        return
    _, lam = oracle.lam_between(epsilon)
    for others, x, y in crowds_to_try(rng, world, size)[:40]:
        yield oracle.delta(*pair_of(world, q, others, x, y), lam)


def true_group_deltas(
    size: int, q: Fraction, epsilon: Fraction, reports: int
) -> Iterator[Fraction]:
    """Delta where one person's reports all change, in every crowd of one bit."""
    _, lam = oracle.lam_between(epsilon)
    for m in range(size - reports + 1):
        low, high = (dict(enumerate(oracle.one_bit(size, ones, q))) for ones in (m, m + reports))
        yield max(oracle.delta(low, high, lam), oracle.delta(high, low, lam))


def other_promises(rng: random.Random) -> Iterator[Claim]:
    """Local, sufficient and three-sigma plans, each held to its own words."""
    world = worlds.any_world(rng, 3)
    if not world.distance:
        return
    kind, wish = rng.choice(["local", "sufficient", "three-sigma"]), rng.uniform(0.1, 3)
    epsilon, size = f"{wish:.4f}", rng.choice([2, 3, 5, 8])
    given: dict[str, object] = {} if kind == "local" else {"crowd_size": size}
    if kind == "sufficient":
        given["eta"] = f"{10.0 ** rng.uniform(-3, -0.3):.3f}1"
    try:
        agreed = plan(world.survey, epsilon=epsilon, promise=kind, **given)  # type: ignore[arg-type]
    except PrivacyRefusal:
        return
    q, lams = agreed.q.fraction, oracle.lam_between(Fraction(epsilon))
    words = f"{agreed.promise}, {world.survey.questions}, N={size}, q={q}"
    if kind == "local":
        ratio = ((1 - q) / q) ** world.distance
        yield at_least(Fraction(epsilon), oracle.log_of(ratio)[0], words)
    elif kind == "sufficient":
        classes = [c for c in homogeneous_classes(world) if outcomes(c, size) <= WORK]
        for crowd in rng.sample(classes, min(len(classes), 5)):
            truth = oracle.eta(*oracle.homogeneous_pair(*crowd, size, q), lams[1])
            yield at_least(Fraction(agreed.promise.eta or 0), truth, f"{crowd}, {words}")
    elif outcomes((world.distance, 0, 0), size) <= WORK:
        mean, variance = oracle.ratio_moments(world.distance, size, q)
        # A rule of thumb, found by a search in floats.
        reached = float(mean) + 3 * math.sqrt(variance)
        yield at_least(float(lams[1]) * (1 + 1e-9), Fraction(reached), words)


def printed(rng: random.Random) -> Iterator[Claim]:
    """What a publication prints about a crowd, of an honest plan or of one that was tampered with.

    A plan that does not keep its promise may be refused; whatever is printed must be true.
    """
    world = worlds.one_bit() if rng.random() < 0.6 else worlds.any_world(rng, 2)
    if not world.distance:
        return
    size = rng.choice([2, 3, 5, 9, 20] if world.bits == 1 else [2, 3])
    q = worlds.dyadic_q(rng)
    try:
        agreed = plan(world.survey, q=q, crowd_size=size, epsilon=f"{rng.uniform(0.05, 3):.3f}")
    except PrivacyRefusal:
        return
    tampered = rng.random() < 0.5
    if tampered:
        q = q / rng.choice([2, 3, 4, 16]) if rng.random() < 0.7 else q
        q = Fraction(math.floor(q * 2**12) or 1, 2**12)
        smaller = max(size - rng.choice([0, 0, 1]), 1)
        agreed = replace(agreed, q=FlipProbability.of_fraction(q), crowd_size=smaller)
        size = smaller
    elif world.bits == 1 and rng.random() < 0.3:
        # Whoever made the plan for one report of a person may allow more of them.
        tampered, agreed = True, replace(agreed, max_reports_per_person=2)
    yield from printed_claims(rng, world, agreed, size, tampered)


def printed_claims(
    rng: random.Random, world: World, agreed: Plan, size: int, tampered: bool
) -> Iterator[Claim]:
    """The promise, and the facts below it, of a publication."""
    rows = np.array([[rng.randrange(2**world.bits)] for _ in range(size)], np.uint8)
    try:
        publication = publish(agreed, tally(agreed, Synthetic(rows, bits=world.bits)))
    except ShoalError:
        if tampered:
            return
        raise
    document = publication.to_json()
    q, most = agreed.q.fraction, agreed.max_reports_per_person
    words = f"printed, {agreed.promise}, {most} reports a person, N={size}, q={agreed.q}"
    pairs = [*stated(document), *facts(publication)["Proven"]]
    for epsilon, delta in pairs:
        truths = true_deltas(rng, world, size, q, Fraction(epsilon))
        if most > 1:
            truths = true_group_deltas(size, q, Fraction(epsilon), most)
        for truth in truths:
            yield at_least(Fraction(delta), truth, f"epsilon {epsilon}, delta {delta}, {words}")
    local = oracle.log_of(((1 - q) / q) ** world.distance)[0]
    for said in (facts(publication)["Local"][0], document["certificate"]["local"]["epsilon"]):
        yield at_least(said, local, f"local, {words}")
    if world.bits == 1:
        for epsilon, delta in facts(publication)["Attack"]:
            # The printed epsilon is rounded up; the attack is at the plan's.
            low, _ = oracle.lam_between(Fraction(agreed.promise.epsilon))
            _, m, up = oracle.worst_m(size, float(q), float(low))[0]
            truth = oracle.delta(*oracle.one_bit_pair(size, m, up, q), low)
            slack = truth * (1 + Fraction(1, 10**9)) + Fraction(1, 10**15)
            yield at_most(Fraction(delta), slack, f"attack at {epsilon}, {words}")


def facts(publication: Publication) -> dict[str, list]:  # type: ignore[type-arg]
    """The numbers in the table of facts: (epsilon, delta) pairs, and the local epsilon."""
    text = publication.to_markdown()
    number = r"([0-9][0-9.e+-]*)"
    found = {
        name: [
            (epsilon, delta)
            for delta, epsilon in re.findall(
                rf"^\| {name} \| delta {sign} {number} \| at epsilon {number},", text, re.M
            )
        ]
        for name, sign in (
            ("Proven", "\N{LESS-THAN OR EQUAL TO}"),
            ("Attack", "\N{GREATER-THAN OR EQUAL TO}"),
        )
    }
    local = re.findall(rf"^\| Local \| epsilon {number} \|", text, re.M)
    if not (found["Proven"] and found["Attack"] and local):
        raise AssertionError(f"the page states no proven delta, attack or local epsilon:\n{text}")
    return found | {"Local": [Fraction(local[0])]}
