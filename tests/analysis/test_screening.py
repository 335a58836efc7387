"""Screening: no honest crowd is accused too often, and clumsy fakes are seen."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from shoal import Choice, Flags, Number, Plan, PrivacyRefusal, Survey, Tally, Text, tally
from shoal.analysis.count_table import unpack
from shoal.analysis.screening import CLEAN, NOT_TESTED, Trace, _min_fakes, families, screen
from shoal.device.arrays.randomize import Original, pack
from shoal.device.arrays.simulation_bits import SimulationBits
from shoal.device.randomize import flip
from shoal.errors import InputError, TallyError
from shoal.lab.populations import populate
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Memory, Promise
from shoal.protocol.survey import Question
from shoal.protocol.wire import Rows, Synthetic


def options(count: int) -> tuple[str, ...]:
    return tuple(f"o{number}" for number in range(count))


LOCAL = Promise("local", "1e9")


def agreed(*questions: Question, q: object = "0.25", promise: Promise = LOCAL, **more: Any) -> Plan:
    survey = Survey("s", questions)
    return Plan(survey, FlipProbability.at_least(q), promise, **more)


def seen_as_counts(*questions: Question, q: object) -> Plan:
    """A plan with view counts; its epsilon is above the local one, so that it holds."""
    proven = Promise("proven", "1000", delta="1e-6")
    return agreed(*questions, q=q, promise=proven, crowd_size=1, view="counts")


def allowed(plan: Plan) -> list[int]:
    """Every original, as the number whose bits it is."""
    found = []
    for value in range(1 << plan.bits):
        bits = [value >> place & 1 for place in range(plan.bits)]
        blocks = [(q, sum(bits[plan.survey.slice_of(q.name)])) for q in plan.survey]
        if all(q.min_set_bits <= ones <= q.max_set_bits for q, ones in blocks):
            found.append(value)
    return found


SMALL = {
    "one flag": (agreed(Flags("f", options(1))), 6),
    "two flags": (agreed(Flags("f", options(2))), 5),
    "blind": (agreed(Flags("f", options(2)), q="0.5"), 5),
    "choice of two": (agreed(Choice("c", options(2)), q="0.125"), 6),
    "choice of three": (agreed(Choice("c", options(3)), q="0.125"), 4),
    "at most one of three": (agreed(Flags("c", options(3), at_most=1), q="0.0625"), 4),
    "counts of a choice": (seen_as_counts(Choice("c", options(3)), q="0.125"), 4),
    "counts, few flips": (
        seen_as_counts(Flags("f", options(1)), Choice("c", options(2)), q="0.001"),
        4,
    ),
}


def worlds(plan: Plan, people: int, fakes: int, q: float) -> Iterator[dict[tuple[int, ...], float]]:
    """The exact law of what is seen, for every crowd of people and every set of fakes.

    What is seen is the sorted vectors of the reports.
    """
    size = 1 << plan.bits
    flips = np.bitwise_count(np.arange(size)[:, None] ^ np.arange(size))
    channel = q**flips * (1 - q) ** (plan.bits - flips)
    for crowd in itertools.combinations_with_replacement(allowed(plan), people - fakes):
        seen: dict[tuple[int, ...], float] = {(): 1.0}
        for original in crowd:
            more: defaultdict[tuple[int, ...], float] = defaultdict(float)
            for before, chance in seen.items():
                for vector in range(size):
                    more[tuple(sorted((*before, vector)))] += chance * channel[original, vector]
            seen = more
        for sent in itertools.combinations_with_replacement(range(size), fakes):
            yield {tuple(sorted(known + sent)): chance for known, chance in seen.items()}


def counted(plan: Plan, vectors: tuple[int, ...]) -> Tally:
    rows = np.array(vectors, np.uint8).reshape(-1, 1)
    return tally(plan, Synthetic(rows, bits=plan.bits, simulated=True))


def family_p_values(plan: Plan, vectors: tuple[int, ...], fakes: int) -> list[float]:
    counts = counted(plan, vectors)
    each = [min(p for p, _ in one(fakes)) for one in families(plan, counts)]
    # A tiny alarm, so that the share of fakes is not searched for.
    together = min(each) * len(each) if fakes else screen(plan, counts, alarm=1e-200).p_value
    return [*each, together]


def worst_excess(plan: Plan, people: int, fakes: int, q: float) -> float:
    """The largest P[p <= a] / a, over every family, the whole screen, every crowd and every a."""
    size = range(1 << plan.bits)
    p_values = {
        seen: family_p_values(plan, seen, fakes)
        for seen in itertools.combinations_with_replacement(size, people)
    }
    worst = 0.0
    for law in worlds(plan, people, fakes, q):
        chances = np.array(list(law.values()))
        table = np.array([p_values[seen] for seen in law])
        for column in table.T:
            order = np.argsort(column, kind="stable")
            reached, levels = np.cumsum(chances[order]), column[order]
            last = np.append(levels[1:] > levels[:-1], True)
            level, mass = levels[last], reached[last]
            under = level < 1
            if under.any():
                worst = max(worst, float((mass[under] / level[under]).max()))
    return worst


class TestEverySmallWorld:
    """P[p <= a] <= a, exactly, for every crowd, every family and every level a."""

    @pytest.mark.slow
    @pytest.mark.parametrize("name", SMALL)
    def test_honest(self, name: str):
        plan, people = SMALL[name]
        worst = worst_excess(plan, people, 0, float(plan.q))
        assert worst <= 1 + 1e-6

    @pytest.mark.parametrize(
        "name", ["one flag", "two flags", "choice of two", "choice of three", "counts of a choice"]
    )
    def test_with_a_fake(self, name: str):
        """Against at most one fake: so that lower bounds of their number hold."""
        plan, people = SMALL[name]
        assert worst_excess(plan, people - 1, 1, float(plan.q)) <= 1 + 1e-6

    def test_the_test_can_fail(self):
        """Reports with fewer flips than the plan says are not honest, and the levels break."""
        plan, people = SMALL["choice of two"]
        assert worst_excess(plan, people, 0, 0.01) > 1.05
        assert worst_excess(plan, people, 0, 0.4) > 2


def crowd_of(plan: Plan, rows: Rows, seed: int) -> Tally:
    """Randomize given originals and count them."""
    cohorts = None
    if plan.cohorts is not None:
        generator = np.random.default_rng(seed)
        cohorts = generator.integers(plan.cohorts, size=len(rows)).astype(np.uint16)
    original = Original(rows, plan.bits, cohorts)
    return tally(plan, flip(plan, original, random_bits=SimulationBits(seed)))


def extremes(bits: int, people: int) -> Rows:
    vectors = np.zeros((people, bits), bool)
    vectors[: people // 2] = True
    return pack(vectors)


def one_hot(bits: int, people: int, places: int) -> Rows:
    return pack(np.arange(bits) == (np.arange(people) % places)[:, None])


FLAGS_40 = agreed(Flags("f", options(40)), q="0.3817")
FLAGS_5 = agreed(Flags("f", options(5)), q="0.2147")
CHOICE_100 = agreed(Choice("c", options(100)), q="0.0748")
TEXT = agreed(Text("t", bits=64, hashes=2, cohorts=4), q="0.2")
MIXED = agreed(
    Flags("f", options(3)), Choice("c", options(4)), Number("n", (1, 2)), Flags("m", options(5), 2)
)

HONEST = {
    "one report": (agreed(Flags("f", options(1))), extremes(1, 1)),
    "nobody": (FLAGS_40, extremes(40, 2)[1:]),
    "one bit, all set": (agreed(Flags("f", options(1)), q="0.05"), extremes(1, 4000)[:2000]),
    "all clear": (FLAGS_40, extremes(40, 4000)[2000:]),
    "all set": (FLAGS_40, extremes(40, 4000)[:2000]),
    "extremes": (FLAGS_40, extremes(40, 2000)),
    "extremes of five": (FLAGS_5, extremes(5, 20_000)),
    "few flips": (agreed(Flags("f", options(8)), q="0.001"), extremes(8, 3000)),
    "one choice": (CHOICE_100, one_hot(100, 3000, 1)),
    "every choice": (CHOICE_100, one_hot(100, 3000, 100)),
    "text": (TEXT, pack((np.arange(64) == 5) | (np.arange(64) == 9) & np.ones((2000, 1), bool))),
    "text left empty": (TEXT, extremes(64, 4000)[2000:]),
    "mixed": (MIXED, next(populate(MIXED.survey, 2000, np.random.default_rng(1))).rows),
}


LIKE_OTHERS = {"nobody", "all clear", "all set", "extremes of five", "one choice", "text"}
"""Crowds that differ from others in their numbers only."""


class TestFalseAlarms:
    @pytest.mark.parametrize(
        "name",
        [pytest.param(name, marks=[pytest.mark.slow] * (name in LIKE_OTHERS)) for name in HONEST],
    )
    def test_honest_crowds(self, name: str):
        """At an alarm of 0.1, forty times. False alarm of this test: 1e-10, and it is seeded."""
        plan, rows = HONEST[name]
        runs = [screen(plan, crowd_of(plan, rows, seed), alarm=0.1) for seed in range(40)]
        alarms = sum(run.suspicious for run in runs)
        assert alarms <= binom.isf(1e-10, 40, 0.1)
        for run in runs:
            assert 0 < run.p_value <= 1
            if not run.suspicious:
                assert run.findings == (CLEAN,)
                assert run.smallest_share_of_fakes == 0

    def test_large_crowds(self):
        """A trillion reports, counted as their expectations: nothing to see, and no overflow."""
        people = 10**12
        laws = [np.array([[0.75, 0.25], [0.25, 0.75]])[k] for k in (0, 1)]
        for law in laws:
            by_set_bits = np.rint(people * law).astype(np.int64)
            plan = agreed(Flags("f", options(1)))
            counts = Tally(plan.id, people, by_set_bits[1:], by_set_bits, simulated=True)
            assert screen(plan, counts).p_value > 0.5
            short = Tally(plan.id, people, by_set_bits[:1] * 0, np.array([people, 0]), None)
            assert screen(plan, short).p_value == 1e-300

    def test_long_vectors(self):
        plan = agreed(Flags("f", options(4096)), q="0.4")
        honest = crowd_of(plan, extremes(4096, 60), 1)
        assert screen(plan, honest).p_value > 1e-3
        ones = tally(plan, Synthetic(pack(np.ones((2, 4096), bool)), 4096, simulated=True))
        assert screen(plan, honest + ones).suspicious


def poisoned(plan: Plan, fakes: Rows, honest: int, seed: int) -> Tally:
    people = next(populate(plan.survey, honest, np.random.default_rng(seed)))
    cohorts = None if plan.cohorts is None else np.zeros(len(fakes), np.uint16)
    sent = Synthetic(fakes, plan.bits, simulated=True, cohorts=cohorts)
    report = flip(plan, people, random_bits=SimulationBits(seed))
    return tally(plan, report) + tally(plan, sent)


def in_clear(plan: Plan, count: int, seed: int) -> Rows:
    return next(populate(plan.survey, count, np.random.default_rng(seed))).rows


class TestFakes:
    """Ten thousand reports; seeded. The share is what is found, with room to spare."""

    def test_all_bits_set(self):
        for plan, share in ((FLAGS_40, 0.002), (FLAGS_5, 0.1), (CHOICE_100, 0.002), (TEXT, 0.002)):
            self.found(plan, pack(np.ones((round(10_000 * share), plan.bits), bool)))

    def test_answers_in_clear(self):
        for plan, share in ((FLAGS_40, 0.01), (CHOICE_100, 0.005), (TEXT, 0.01), (MIXED, 0.8)):
            self.found(plan, in_clear(plan, round(10_000 * share), seed=9))

    def test_one_bit_always_set(self):
        for plan, share in ((FLAGS_40, 0.5), (CHOICE_100, 0.2), (FLAGS_5, 0.8)):
            people = Original(in_clear(plan, round(10_000 * share), seed=9), plan.bits)
            rows = flip(plan, people, random_bits=SimulationBits(8)).rows
            vectors = unpack(rows, plan.bits)
            vectors[:, 0] = 1
            self.found(plan, pack(vectors))

    def test_the_same_vector_again(self):
        self.found(FLAGS_5, np.repeat(pack(np.array([[1, 0, 1, 0, 0]])), 2000, axis=0))

    def found(self, plan: Plan, fakes: Rows) -> None:
        seen = screen(plan, poisoned(plan, fakes, 10_000 - len(fakes), 1))
        assert seen.suspicious, plan.survey
        assert seen.p_value <= 1e-3, plan.survey
        assert 0 < seen.smallest_share_of_fakes <= len(fakes) / 10_000, plan.survey
        assert CLEAN not in seen.findings

    def test_fakes_that_flip_like_others_are_invisible(self):
        """All say the same and randomize it: they are people who say so. Seeded."""
        for plan in (FLAGS_40, FLAGS_5, CHOICE_100):
            rows = one_hot(plan.bits, 5000, 1)
            both = crowd_of(plan, rows, 1) + poisoned(plan, rows[:0], 5000, 51)
            assert not screen(plan, both).suspicious, plan.survey

    def test_one_cohort_alone(self):
        """Fakes in one cohort are seen there, though all cohorts together look well."""
        rows = in_clear(TEXT, 3, 1)[:1].repeat(200, axis=0)
        seen = screen(TEXT, poisoned(TEXT, rows, 1000, 2))
        assert any("cohort 0" in finding for finding in seen.findings)


class TestInterface:
    def test_families_share_the_alarm_for_the_share_of_fakes_too(self):
        def seen(fakes: int) -> Iterator[Trace]:
            yield Trace(1e-3 / 8 if fakes < 5 else 1e-3 / 2 if fakes < 10 else 1.0, str)

        assert [_min_fakes([seen] * families, 100, 1e-3) for families in (1, 4)] == [10, 5]

    def test_refusals(self):
        plan = agreed(Flags("f", options(2)), crowd_size=10)
        few = tally(plan, Synthetic(np.zeros((9, 1), np.uint8), bits=2))
        with pytest.raises(PrivacyRefusal, match="crowd of 10 reports, but the tally has 9"):
            screen(plan, few)
        screen(plan, replace(few, simulated=True))
        more = few + tally(plan, Synthetic(np.zeros((1, 1), np.uint8), bits=2))
        with pytest.raises(PrivacyRefusal, match="may be the same"):
            screen(plan, more)
        more = more.named("one")
        screen(plan, more)
        with pytest.raises(TallyError, match="another plan"):
            screen(FLAGS_5, few)
        with pytest.raises(TallyError, match="empty"):
            screen(FLAGS_5, tally(FLAGS_5, []))
        for alarm in (0, 1, -1, float("nan"), "x"):
            with pytest.raises(InputError, match="alarm"):
                screen(plan, more, alarm=alarm)  # type: ignore[arg-type]

    def test_the_alarm_decides(self):
        counts = poisoned(CHOICE_100, in_clear(CHOICE_100, 12, 1), 10_000, 1)
        p_value = screen(CHOICE_100, counts).p_value
        assert 1e-12 < p_value < 0.9
        assert screen(CHOICE_100, counts, alarm=p_value).suspicious
        assert not screen(CHOICE_100, counts, alarm=p_value * 0.99).suspicious

    def test_shared_permanent_flips_are_not_tested(self):
        """Reports of one person share them, so that the reports are not independent."""
        memory = Memory(FlipProbability(1, 3), FlipProbability(1, 3))
        survey = Survey("s", (Flags("f", options(2)),))
        plan = Plan(survey, memory.q, Promise("local", "9"), memory=memory)
        rows = np.full((500, 1), 3, np.uint8)
        assert screen(plan, tally(plan, Synthetic(rows, bits=2))).suspicious
        several = replace(plan, max_reports_per_person=2)
        seen = screen(several, tally(several, Synthetic(rows, bits=2)))
        assert (seen.p_value, seen.findings) == (1.0, (NOT_TESTED,))
