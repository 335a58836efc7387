"""Sums of crowds: what is added stays known, and what holds for a sum of the same people.

The oracles here are laws of sums, computed by convolution from binomial coefficients alone. A crowd
in which all others give one answer is one crowd of many, so what they find is a lower bound of the
true delta: whatever is published must not be below it.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binom

from shoal import (
    Flags,
    Plan,
    PrivacyRefusal,
    Survey,
    Tally,
    Text,
    estimate,
    plan,
    publish,
    simulate,
    tally,
)
from shoal.analysis.association import associate
from shoal.analysis.crowds import MAX_CROWDS, Crowd, add_crowds
from shoal.analysis.report_files import read_reports
from shoal.analysis.screening import screen
from shoal.analysis.text.decode import decode
from shoal.cli import run
from shoal.device.arrays.randomize import pack
from shoal.device.randomize import pack_reports
from shoal.errors import InputError, TallyError
from shoal.planning.certificate import certify, check_promise
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Memory, Promise
from shoal.protocol.wire import Reports, Synthetic
from shoal.reports.protection import facts, promise_of_sum
from shoal.support.rounding import text_up
from tests.strategies import bounded

Bits = NDArray[np.bool_]
FIVE = Survey("browser", (Flags("f", tuple("abcde")),))


@functools.cache
def agreed(crowd: int = 1000, reports: int = 1) -> Plan:
    survey = Survey("browser", (Flags("f", ("a",)),))
    if reports == 1:
        return plan(survey, crowd_size=crowd, epsilon="1", delta="1e-6")
    # Group privacy: a person's reports get their parts of epsilon, and of delta less than that.
    each = plan(survey, crowd_size=crowd, epsilon=1 / reports, delta=1e-6 / math.e**2 / reports)
    promise = replace(each.promise, epsilon="1", delta="1e-6")
    return replace(each, promise=promise, max_reports_per_person=reports)


def some(made: Plan, reports: int, crowd: str | None = None, **fields: Any) -> Tally:
    vectors = np.random.default_rng(reports).random((reports, made.bits)) < 0.4
    return tally(made, Synthetic(pack(vectors), made.bits), crowd=crowd, **fields)


def windows(made: Plan, truth: Bits, count: int, generator: np.random.Generator) -> Tally:
    """The same people in several windows, as their devices randomize: the sum of the windows."""

    def flipped(vectors: Bits, q: float) -> Bits:
        return np.asarray(vectors ^ (generator.random(vectors.shape) < q))

    fresh = float(made.q if made.memory is None else made.memory.q2)
    kept = truth if made.memory is None else flipped(truth, float(made.memory.q1))
    return tally(
        made,
        (
            Synthetic(pack(flipped(kept, fresh)), made.bits, window=window)
            for window in range(count)
        ),
    )


def names(counts: Tally) -> list[str]:
    return [f"{crowd}: {crowd.reports}" for crowd in counts.crowds]


class TestAdding:
    def test_parts_of_a_crowd_are_that_crowd(self):
        made = agreed()
        rows = np.arange(1000, dtype=np.uint8)[:, None] % 2
        parts = [
            tally(made, Synthetic(part, 1), crowd="wave-1") for part in np.split(rows, [300, 950])
        ]
        assert sum(parts[1:], parts[0]) == tally(made, Synthetic(rows, 1), crowd="wave-1")
        one = functools.reduce(lambda a, b: a + b, parts)
        assert one.crowds == (Crowd(1000, "wave-1"),)
        assert not one.people_may_repeat
        assert publish(made, one).to_json()["promise"]["short"] == check_promise(made).in_words

    def test_windows_and_names(self):
        made = agreed()
        total = (
            some(made, 3, window=8)
            + some(made, 4)
            + some(made, 5, "a")
            + some(made, 6, "a", window=2)
            + some(made, 7, window=8)
        )
        assert names(total) == [
            "crowd a of window 2: 6", "window 8: 10", "crowd a: 5", "an unnamed crowd: 4",
        ]  # fmt: skip
        named = total.named("b")
        assert names(named) == [
            "crowd a of window 2: 6", "crowd b of window 8: 10", "crowd a: 5", "crowd b: 4",
        ]  # fmt: skip

    def test_a_released_crowd_is_added_once(self):
        made = agreed()
        whole = replace(some(made, 1000), crowds=(Crowd(1000, "3", 7, released=True),))
        other = replace(some(made, 1000), crowds=(Crowd(1000, "4", 7, released=True),))
        assert names(whole + other) == ["crowd 3 of window 7: 1000", "crowd 4 of window 7: 1000"]
        for again in (whole, some(made, 9, "3", window=7), whole + other):
            for one, two in ((whole, again), (again, whole)):
                with pytest.raises(TallyError, match="crowd 3 of window 7 was released complete"):
                    one + two

    def test_a_declaration_is_about_what_it_was_made_on(self):
        made = agreed()
        declared = (some(made, 3, "a") + some(made, 4, "b")).of_different_people()
        assert not declared.people_may_repeat
        for more in (some(made, 5, "c"), some(made, 5, "a"), declared):
            assert (declared + more).people is None
            assert (more + declared).people_may_repeat
        nothing = tally(made, [])
        assert (declared + nothing) == (nothing + declared) == declared
        assert (nothing + nothing).crowds == ()

    @given(
        st.lists(
            st.builds(
                Crowd,
                st.integers(1, 9),
                st.sampled_from([None, "a", "b"]),
                st.sampled_from([None, 0, 1]),
            ),
            max_size=7,
        ),
        st.integers(0, 7),
        st.randoms(use_true_random=False),
    )
    @bounded(60)
    def test_the_order_of_adding_leaves_no_trace(self, crowds: list[Crowd], cut: int, chance: Any):
        whole = add_crowds(crowds)
        chance.shuffle(crowds)
        assert add_crowds((*add_crowds(crowds[:cut]), *add_crowds(crowds[cut:]))) == whole
        assert sum(crowd.reports for crowd in whole) == sum(crowd.reports for crowd in crowds)
        known = {(crowd.name, crowd.window) for crowd in crowds if not crowd.unnamed}
        assert len(whole) == len(known) + sum(crowd.unnamed for crowd in crowds)

    def test_too_many_crowds(self):
        with pytest.raises(TallyError, match="at most 10000 crowds; name parts"):
            add_crowds([Crowd(1)] * (MAX_CROWDS + 1))
        assert len(add_crowds([Crowd(1)] * MAX_CROWDS)) == MAX_CROWDS

    def test_crowds_that_are_none(self):
        counts = some(agreed(), 10)
        with pytest.raises(TallyError, match="do not add up to 10"):
            replace(counts, crowds=(Crowd(9),))
        with pytest.raises(TallyError, match="people must be"):
            replace(counts, people="same")  # type: ignore[arg-type]
        for fields in ((0,), (True,), (5, ""), (5, 3), (5, None, -1), (5, None, None, True)):
            with pytest.raises(TallyError):
                Crowd(*fields)

    def test_a_window_that_the_vectors_contradict(self):
        vectors = Synthetic(np.zeros((2, 1), np.uint8), 1, window=4)
        assert tally(agreed(), vectors, window=4).crowds == (Crowd(2, window=4),)
        with pytest.raises(TallyError, match="of window 4, not of window 5"):
            tally(agreed(), vectors, window=5)


class TestFiles:
    def batch(self, path: Path, made: Plan, **reports: int) -> Path:
        """A batch with so many reports of each window."""
        parts = [
            pack_reports(made, Synthetic(np.zeros((n, 1), np.uint8), made.bits), window=int(w[1:]))
            for w, n in reports.items()
        ]
        content = b"".join(part.content for part in parts)
        path.write_bytes(Reports(made.id, parts[0].length, content).to_bytes())
        return path

    def test_each_window_of_a_batch_is_a_crowd(self, tmp_path: Path):
        made = replace(agreed(), window=86_400)
        path = self.batch(tmp_path / "b", made, w7=30, w8=20)
        seen: set[bytes] = set()
        counts = tally(made, itertools.chain(*(read_reports(made, path, seen) for _ in range(2))))
        assert counts.crowds == (Crowd(30, window=7), Crowd(20, window=8))

    def test_without_windows_a_batch_is_one_crowd(self, tmp_path: Path):
        path = self.batch(tmp_path / "b", agreed(), w0=50)
        assert tally(agreed(), read_reports(agreed(), path)).crowds == (Crowd(50),)
        path = self.batch(tmp_path / "b", agreed(), w0=30, w1=20)  # somebody meant something by it
        counts = tally(agreed(), read_reports(agreed(), path))
        assert counts.crowds == (Crowd(20, window=1), Crowd(30))


def delta_of_sum(q: float, crowd: int, count: int, epsilon: float, own: int = 1) -> float:
    """One bit, all others zero: the exact delta of the sum, for `own` reports in each crowd."""
    others = binom.pmf(np.arange(count * (crowd - own) + 1), count * (crowd - own), q)
    mine = np.arange(count * own + 1)
    zero, one = (np.convolve(others, binom.pmf(mine, count * own, rate)) for rate in (q, 1 - q))
    lam = np.exp(epsilon)
    return float(max(np.maximum(a - lam * b, 0).sum() for a, b in ((one, zero), (zero, one))))


def crowds_of(made: Plan, count: int) -> Tally:
    return functools.reduce(
        lambda a, b: a + b,
        (some(made, made.reports_needed, window=window) for window in range(count)),
    )


class TestPromise:
    """What is published for a sum of the same people is not below what an attack reaches."""

    @pytest.mark.slow
    @pytest.mark.parametrize(("count", "reached"), [(2, 2.7e-5), (12, 0.0209), (52, 0.22)])
    def test_one_flag(self, count: int, reached: float):
        made = agreed()
        truth = delta_of_sum(float(made.q), 1000, count, 1.0)
        assert truth >= reached  # the plan promises 1e-6
        document = publish(made, crowds_of(made, count)).to_json()
        whole = document["promise"]["sum"]
        assert truth <= whole["delta_at_promised"] <= 1.2 * truth
        assert whole["delta"] == 1e-6
        reached = delta_of_sum(float(made.q), 1000, count, whole["epsilon"])
        assert 1e-7 < reached <= 1e-6
        assert whole["crowds"] == count

    def test_one_crowd_agrees_with_the_oracle(self):
        """The oracle itself, where the plan's promise is exact."""
        made = agreed()
        assert 0.9e-6 < delta_of_sum(float(made.q), 1000, 1, 1.0) <= 1e-6

    def test_several_reports_in_each_crowd(self):
        made = agreed(crowd=200, reports=2)
        truth = delta_of_sum(float(made.q), 200, 5, 1.0, own=2)
        whole = publish(made, crowds_of(made, 5)).to_json()["promise"]["sum"]
        assert 1e-6 < truth <= whole["delta_at_promised"]
        assert delta_of_sum(float(made.q), 200, 5, whole["epsilon"], own=2) <= 1e-6

    def test_the_words(self):
        made = agreed()
        publication = publish(made, crowds_of(made, 2))
        document = publication.to_json()
        for written in (publication.to_html(), publication.to_markdown()):
            assert made.promise.in_words not in written
            assert "hides at least as well" not in written
            assert "whose people may be the same" in written
            assert "2,000 reports of 2 crowds" in written
            reached = text_up(document["promise"]["sum"]["delta_at_promised"], 3)
            assert f"delta \N{LESS-THAN OR EQUAL TO} {reached}" in written
        assert "in all 2 crowds of this sum" in document["promise"]["short"]
        assert "people may be the same" in document["estimates"]["notes"][0]
        assert publication.to_csv().splitlines()[1].endswith(",2")

    def test_no_theorem_above_a_delta_of_one(self):
        made = agreed(crowd=100)
        crowds = tuple(Crowd(100, window=window) for window in range(3000))
        many = replace(some(made, 100), reports=300_000, crowds=crowds)  # looked at: its crowds
        whole = promise_of_sum(made, many, certify(made))
        assert whole is not None
        assert whole.delta_at_promised == 1.0
        found = facts(made, None, many.reports, whole.to_json())[:2]
        assert [fact.value for fact in found if "at epsilon 1" in fact.meaning] == [
            "nothing is proven"
        ]
        assert "theorem" not in found[1].meaning

    def test_different_people_are_one_larger_crowd(self):
        made = agreed()
        # None of these crowds is whole by itself.
        parts = some(made, 400, "a") + some(made, 500, "b") + some(made, 300, "c")
        with pytest.raises(PrivacyRefusal, match="crowd c has 300"):
            publish(made, parts)
        publication = publish(made, parts.of_different_people())
        document = publication.to_json()
        assert document["promise"]["short"] == check_promise(made).in_words
        assert document["promise"]["sum"] is None
        for written in (publication.to_html(), publication.to_markdown()):
            assert "hides at least as well" in written
            assert "The publisher declares that no person is in two" in written
            assert "Counts of answers" not in written
        assert document["estimates"]["people"] == "different"
        with pytest.raises(PrivacyRefusal, match="crowd of 1,000 reports, but the tally has 700"):
            estimate(made, (some(made, 400, "a") + some(made, 300, "b")).of_different_people())

    def test_local_epsilons_add(self):
        made = plan(FIVE, q="0.25")
        document = publish(made, some(made, 20, "a") + some(made, 30, "b")).to_json()
        assert document["promise"]["sum"]["epsilon"] >= 2 * made.local_epsilon
        assert document["promise"]["short"].startswith("local: epsilon 10.99, for a person")
        assert "hides at least as well" not in json.dumps(document)
        often = replace(made, max_reports_per_person=3)
        document = publish(often, some(often, 20, "a") + some(often, 30, "b")).to_json()
        assert document["promise"]["sum"]["epsilon"] >= 2 * 3 * made.local_epsilon

    def test_a_promise_that_is_no_guarantee(self):
        made = plan(agreed().survey, crowd_size=100, epsilon="1", eta="0.01", promise="sufficient")
        promise = publish(made, crowds_of(made, 3)).to_json()["promise"]
        assert promise["short"].startswith("proven: epsilon ")
        assert promise["sum"]["delta"] == 1e-6
        assert promise["guarantee"] is False

    def test_crowds_that_are_not_whole(self):
        made = agreed()
        halves = some(made, 600) + some(made, 400)
        for look in (estimate, screen, publish):
            with pytest.raises(
                PrivacyRefusal, match=r"an unnamed crowd has 400\. If they are parts"
            ):
                look(made, halves)
            look(made, halves.named("one"))
            look(made, halves.of_different_people())
        assert screen(made, crowds_of(made, 2)).to_json()["crowds"] == 2
        with pytest.raises(PrivacyRefusal, match=r"window 1 has 400\. If no person is in two"):
            estimate(made, some(made, 1000, window=0) + some(made, 400, window=1))


class TestEstimates:
    def test_fresh_flips_cover(self):
        """Exact intervals of the number of answers in a sum of windows of the same people."""
        made, generator = plan(FIVE, q="0.2"), np.random.default_rng(1)
        truth = generator.random((60, 5)) < [0.5, 0.3, 0.1, 0.05, 0.0]
        covered = np.zeros(5, int)
        for _ in range(150):
            found = estimate(made, windows(made, truth, 8, generator))["f"]
            for bit, label in enumerate("abcde"):
                bounds = found[label].interval(0.9)
                covered[bit] += bounds.low <= 8 * truth[:, bit].sum() <= bounds.high
        # With coverage 0.9 a bit falls below this with probability 1e-4; the seed is fixed.
        assert (covered >= binom.ppf(1e-4, 150, 0.9)).all()

    def test_permanent_flips_are_refused(self):
        """Declared away, the intervals are too short: the same flips are in every window."""
        memory = Memory(FlipProbability(1, 3), FlipProbability(1, 3))
        made = Plan(FIVE, memory.q, Promise("local", "40"), memory=memory)
        generator = np.random.default_rng(2)
        truth = generator.random((1000, 5)) < 0.3
        counts = windows(made, truth, 12, generator)
        for look in (estimate, screen):
            with pytest.raises(
                PrivacyRefusal, match=r"memory puts .* each crowd by itself\. If no"
            ):
                look(made, counts)
        found = estimate(made, counts.of_different_people())["f"]
        bounds = [found[label].interval(0.95) for label in "abcde"]
        held = [one.low <= n <= one.high for one, n in zip(bounds, 12 * truth.sum(0), strict=True)]
        assert sum(held) < 4

    def test_a_population_is_not_asked_twice(self):
        made = agreed()
        twice = crowds_of(made, 2)
        with pytest.raises(InputError, match="not a sample of 2,000 people"):
            estimate(made, twice, target="population")
        estimate(made, twice.of_different_people(), target="population")

    def test_counts_are_of_answers(self):
        made = agreed()
        estimates = estimate(made, crowds_of(made, 3))
        assert estimates.notes == (
            "this is a sum of 3 crowds whose people may be the same, so counts are of answers, not"
            " of people.",
        )
        declared = estimate(made, crowds_of(made, 3).of_different_people())
        assert "declared with the tally, not checked" in declared.notes[0]
        assert estimate(made, some(made, 1000)).notes == ()
        assert "reports of 3 crowds" in str(estimates._repr_html_())

    def test_association_takes_every_report_for_another_person(self):
        made = plan(FIVE, q="0.2")
        both = some(made, 500, "a") + some(made, 500, "b")
        with pytest.raises(InputError, match="test of independence takes every report"):
            associate(made, both, "f=a", "f=b")
        associate(made, both.of_different_people(), "f=a", "f=b")
        assert len(estimate(made, both).joint(("f", "a"), ("f", "b")).cells) == 4

    def test_decoding_says_what_it_counts(self):
        made = plan(Survey("words", (Text("word", bits=64, hashes=1, cohorts=4),)), q="0.05")
        parts = [simulate(made, users=500, seed=s).estimates.tally for s in (1, 2)]
        assert "may be the same" in decode(made, parts[0] + parts[1], ["text 1"]).notes[0]
        assert decode(made, parts[0], ["text 1"]).notes == ()


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a plan and two tallies of 1,000 reports each; the command runs in it."""
    monkeypatch.chdir(tmp_path)
    made = agreed()
    made.write("plan.json")
    some(made, 1000).write("a.json")
    some(made, 1000).write("b.json")
    return tmp_path


class TestCommand:
    def said(self, capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
        assert run(list(words)) == code
        out = capsys.readouterr()
        return " ".join((out.out + out.err).split())

    def test_the_ways_out(self, at: Path, capsys: pytest.CaptureFixture[str]):
        target = ("--target", "population")
        for option in (("--people", "different"), ("--crowd-name", "wave-1")):
            self.said(capsys, "tally", "plan.json", "a.json", "b.json", *option, "-o", "sum.json")
            self.said(capsys, "publish", "plan.json", "sum.json", "-o", "page.html", *target)
        one = Tally.read("sum.json", agreed())
        assert one.crowds == (Crowd(2000, "wave-1"),)

    def test_reports_and_their_window(self, at: Path, capsys: pytest.CaptureFixture[str]):
        made = agreed()
        batch = pack_reports(made, Synthetic(np.zeros((30, 1), np.uint8), 1))
        (at / "batch.json").write_bytes(batch.to_json())
        (at / "batch").write_bytes(batch.to_bytes())
        words = ("tally", "plan.json", "batch", "a.json", "batch.json")
        self.said(capsys, *words, "--window-number", "7", "-o", "t.json")
        assert Tally.read("t.json", made).crowds == (Crowd(30, window=7), Crowd(1000))
        self.said(capsys, *words, "--window-number", "-1", code=2)
        self.said(capsys, *words, "--crowd-name", "", code=2)
        self.said(capsys, *words, "--people", "same", code=2)
