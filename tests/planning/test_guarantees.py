"""What statements about many releases do not say; the adversary judges what they say.

A world is a list of people, each with an answer, or none, for each of two releases. The adversary's
oracle has the joint law of the two released histograms.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache

import pytest

from shoal import Flags, Plan, PrivacyRefusal, Survey, Text, plan
from shoal.planning.certificate import certify
from shoal.planning.composition import WORTH_COMPOSING, quick_epsilon
from shoal.planning.guarantees import GuaranteeOverTime, guarantees_over_time
from shoal.protocol.flip_probability import FlipProbability, local_epsilon, repeated_epsilon
from shoal.protocol.plan import Memory, Promise
from tests.adversary import oracle
from tests.adversary.oracle import Answers

Pair = tuple[Answers, Answers]


@cache
def person(answers: Answers, bits: int, memory: Memory) -> oracle.Law:
    q1, q2 = memory.q1.fraction, memory.q2.fraction
    return oracle.person(answers, bits, q2, oracle.histogram(bits), q1)


def true_delta(
    others: Sequence[Answers], pairs: Iterable[Pair], plan: Plan, epsilon: float
) -> float:
    """The largest hockey stick over pairs of one person's answers, rounded down."""
    assert plan.memory is not None
    memory, (_, lam) = plan.memory, oracle.lam_between(epsilon)
    rest = oracle.crowd(person(answers, plan.bits, memory) for answers in others)

    @cache
    def law(answers: Answers) -> oracle.Law:
        return oracle.together(rest, person(answers, plan.bits, memory))

    return float(max(oracle.delta(law(y), law(x), lam) for x, y in pairs))


def constant(answer: int) -> Answers:
    return (answer, answer)


def small_plan(bits: int, crowd: int, q1: FlipProbability, q2: FlipProbability) -> Plan:
    memory = Memory(q1, q2)
    survey = Survey("small", (Flags("f", tuple(f"o{i}" for i in range(bits))),))
    return Plan(survey, memory.q, Promise("proven", "1", "0.05"), crowd, memory=memory)


EIGHTH, QUARTER, THREE_EIGHTHS = FlipProbability(1, 3), FlipProbability(1, 2), FlipProbability(3, 3)
SLIGHT = FlipProbability(1, 6)
LAYERS = [
    (QUARTER, EIGHTH),
    (EIGHTH, QUARTER),
    (QUARTER, SLIGHT),
    (THREE_EIGHTHS, THREE_EIGHTHS),
    (SLIGHT, THREE_EIGHTHS),
]


def named(made: list[GuaranteeOverTime]) -> dict[str, GuaranteeOverTime]:
    assert len({one.holds_for for one in made}) == len(made)
    return {one.holds_for: one for one in made}


def constant_pairs(bits: int) -> list[Pair]:
    return list(itertools.permutations(map(constant, range(2**bits)), 2))


def any_pairs(bits: int) -> list[Pair]:
    few: list[Answers] = [(0, 0), (3, 3), (0, 3), (3, 0), (0, 2)]
    every: list[Answers] = list(itertools.product((0, 1), repeat=2))
    return list(itertools.permutations(every if bits == 1 else few, 2))


class TestStatementsSayNoMore:
    def test_the_same_crowd_is_needed(self):
        """With other people around in the second release, the same number would be false."""
        made = small_plan(1, 4, QUARTER, SLIGHT)
        same = named(guarantees_over_time(made, 2, delta=0.05))["same crowd, every release"]
        strangers: list[Answers] = [(0, None)] * 3 + [(None, 0)] * 3
        truth = true_delta(strangers, constant_pairs(1), made, same.epsilon)
        assert truth > 1.1 * same.delta

    def test_those_who_change_are_no_cover(self):
        """One other who changes the answer makes the number for the whole crowd false."""
        made = small_plan(1, 2, QUARTER, FlipProbability(1, 10))
        whole = named(guarantees_over_time(made, 2, delta=0.05))["same crowd, every release"]
        truth = true_delta([(0, 1)], constant_pairs(1), made, whole.epsilon)
        assert truth > 1.05 * whole.delta

    def test_adding_up_single_releases_would_be_false_with_memory(self):
        """Composing proven(q, N) assumes fresh flips, which the permanent ones are not.

        Where the others do not hide (all alike, and known), two looks at a permanent vector can say
        more than two fresh reports at the same epsilon: for the local pair by enumeration.
        """
        made = small_plan(1, 1, SLIGHT, THREE_EIGHTHS)
        fresh = Plan(made.survey, made.q, made.promise, 1)
        twice = 2 * float(local_epsilon(1, fresh.q))
        assert true_delta([], constant_pairs(1), made, twice) == 0
        # About the answer alone memory says less; about the times of change it says more.
        made = small_plan(1, 1, QUARTER, SLIGHT)
        twice = 2 * float(local_epsilon(1, made.q))
        assert true_delta([], any_pairs(1), made, twice) > 0.05
        with pytest.raises(PrivacyRefusal, match="do not compose"):
            certify(made).compose(2)

    def test_both_kinds_of_changing_crowds_occur(self):
        kinds = {
            named(guarantees_over_time(small_plan(1, crowd, *layers), 2, delta=0.05))[
                "changing crowds, every release"
            ].kind
            for crowd in (2, 4)
            for layers in LAYERS
        }
        assert kinds == {"proven", "local"}

    def test_no_crowd_is_counted_on_for_several_reports_in_a_release(self):
        memory = Memory(QUARTER, EIGHTH)
        made = small_plan(1, 100, QUARTER, EIGHTH)
        alone = replace(made, crowd_size=None, promise=Promise("local", "9"))
        found = named(guarantees_over_time(replace(alone, max_reports_per_person=3), 2))
        assert {one.kind for one in found.values()} == {"local"}
        six = float(repeated_epsilon(1, memory, 6))
        assert found["one answer, every release"].epsilon == six
        fresh = named(guarantees_over_time(replace(made, memory=None, max_reports_per_person=3), 2))
        assert {one.kind for one in fresh.values()} == {"local"}

    def test_what_an_audit_refuses_is_not_stated(self):
        """Memory with text: "proven, one release, epsilon 0.9" was stated for it."""
        memory = Memory(QUARTER, EIGHTH)
        words, flags = Survey("w", (Text("t", 8, 1, 4),)), small_plan(1, 3, QUARTER, EIGHTH).survey
        for survey, reports, cohorts in ((words, 1, None), (flags, 2, None), (flags, 1, 4)):
            made = Plan(survey, memory.q, Promise("local", "99"), 1000, reports, cohorts,
                        memory=memory)  # fmt: skip
            with pytest.raises(PrivacyRefusal) as refused:
                certify(made)
            with pytest.raises(PrivacyRefusal) as unstated:
                guarantees_over_time(made, 5)
            assert str(refused.value) == str(unstated.value)
            alone = replace(made, crowd_size=None)
            assert {one.kind for one in guarantees_over_time(alone, 5)} == {"local"}

    def test_without_memory_releases_compose(self):
        survey = Survey("s", (Flags("f", ("a", "b")),))
        made = plan(survey, crowd_size=2000, epsilon="0.5", delta="1e-6")
        found = named(guarantees_over_time(made, 10))
        together = found["changing crowds, every release"]
        assert together.kind == "proven"
        single = found["one release"].epsilon
        assert single < together.epsilon <= 10 * certify(made).epsilon(delta=1e-7)
        assert "average out" in found["answers that change, every release"].words


class TestCertificates:
    def test_of_a_plan_with_memory_point_to_the_guarantees_over_time(self):
        made = small_plan(1, 3, EIGHTH, QUARTER)
        certificate = certify(made)
        assert any("the guarantees over time" in one for one in certificate.assumptions)
        assert not any("releases compose" in one for one in certificate.assumptions)
        fresh = certify(replace(made, memory=None))
        assert any(
            "fresh flips; each further release reveals more" in one for one in fresh.assumptions
        )
        assert certificate.delta(epsilon=0.5) == fresh.delta(epsilon=0.5)

    def test_large_bounds_are_quick_and_still_bounds(self):
        """Where the crowd hardly helps, the local epsilon is given, a tenth too large at most."""
        many = Survey("many", (Flags("f", tuple(str(j) for j in range(10))),))
        certificate = certify(many, q="0.1", crowd_size=1000)
        assert certificate.local_epsilon > WORTH_COMPOSING
        exact = certificate.epsilon(delta=1e-6)
        assert exact <= quick_epsilon(certificate, 1e-6) <= exact / 0.9
