"""RAPPOR's parameters: against brute force over its two stages, and against its paper."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from functools import cache
from itertools import combinations, combinations_with_replacement, permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from shoal import Plan, Text
from shoal.cli import run
from shoal.errors import InputError
from shoal.planning.certificate import certify, check_promise
from shoal.planning.rappor import RapporParameters, migrate
from tests.adversary import oracle

PAPER = RapporParameters(k=16, h=2, m=64, p="0.5", q="0.75", f="0.5")
EVEN = RapporParameters(k=128, h=2, m=16, p="0.25", q="0.75", f="0.5")

percent = st.integers(1, 99).map(lambda n: Fraction(n, 100))


def permanent(bit: int, f: Fraction) -> list[Fraction]:
    """The law of the memoized bit: 1 with f/2, 0 with f/2, else the truth."""
    return [f / 2 + (1 - f) * (bit == value) for value in (0, 1)]


def two_stages(bit: int, given: RapporParameters) -> list[Fraction]:
    """The law of a reported bit, by summing over what was memoized."""
    one = sum(
        (
            chance * (given.q if kept else given.p)
            for kept, chance in enumerate(permanent(bit, given.f))
        ),
        start=Fraction(0),
    )
    return [1 - one, one]


def law(original: int, bits: int, stage: list[list[Fraction]]) -> oracle.Law:
    """The law of the vector that is made of an original, in whole weights."""
    unit = math.lcm(*(chance.denominator for chances in stage for chance in chances))
    key = oracle.histogram(bits)
    return {
        key(0, seen): math.prod(
            int(stage[original >> place & 1][seen >> place & 1] * unit) for place in range(bits)
        )
        for seen in range(2**bits)
    }


def laws_of(k: int, h: int, stage: list[list[Fraction]]) -> dict[int, oracle.Law]:
    """The laws of all originals of up to h bits."""
    return {x: law(x, k, stage) for x in range(2**k) if x.bit_count() <= h}


def worst_ratio(k: int, h: int, stage: list[list[Fraction]]) -> Fraction:
    """The largest likelihood ratio of any output between any two originals."""
    laws = laws_of(k, h, stage).values()
    return max(oracle.largest_ratio(a, b) for a in laws for b in laws)


class TestTheChannel:
    @given(percent, percent, percent)
    def test_the_effective_rates_are_those_of_the_two_stages(self, p, q, f):
        if p >= q:
            return
        given = RapporParameters(4, 1, 1, p, q, f)
        assert two_stages(0, given)[1] == given.p_star
        assert two_stages(1, given)[1] == given.q_star

    @pytest.mark.parametrize(("k", "h"), [(1, 1), (2, 1), (3, 1), (3, 2), (4, 2), (4, 3)])
    @pytest.mark.parametrize("rates", [("0.5", "0.75", "0.5"), ("0.1", "0.6", "0.3")])
    def test_local_epsilons_are_exact(self, k: int, h: int, rates: tuple[str, str, str]):
        given = RapporParameters(k, h, 1, *rates)
        reported = [two_stages(bit, given) for bit in (0, 1)]
        kept = [permanent(bit, given.f) for bit in (0, 1)]
        assert given.local_epsilon == pytest.approx(math.log(worst_ratio(k, h, reported)))
        assert given.all_time_epsilon == pytest.approx(math.log(worst_ratio(k, h, kept)))
        # RAPPOR counts 2h differing bits even where there are fewer.
        assert given.local_epsilon <= given.epsilon_1 + 1e-12
        assert given.all_time_epsilon <= given.epsilon_infinity + 1e-12
        if 2 * h <= k:
            assert given.local_epsilon == pytest.approx(given.epsilon_1)
            assert given.all_time_epsilon == pytest.approx(given.epsilon_infinity)

    @given(percent, percent, percent)
    def test_between_two_symmetric_channels(self, p, q, f):
        """Each way there is an exact randomized relabelling; none exists for a closer flip."""
        if p >= q:
            return
        given = RapporParameters(4, 1, 1, p, q, f)
        theirs = (given.p_star, given.q_star)
        s, t = given.stronger, given.weaker
        assert is_garbling((s, 1 - s), of=theirs)
        assert is_garbling(theirs, of=(t, 1 - t))
        closer = Fraction(1, 10**9)
        assert not is_garbling((s - closer, 1 - s + closer), of=theirs)
        if t + closer < Fraction(1, 2):
            assert not is_garbling(theirs, of=(t + closer, 1 - t - closer))
        assert t <= s
        assert (t == s) == given.is_symmetric


def is_garbling(rates: tuple[Fraction, Fraction], of: tuple[Fraction, Fraction]) -> bool:
    """Whether reporting 1 with chance b after a 0 and a after a 1 turns `of` into these rates."""
    (low, high), (p, q) = rates, of
    a_minus_b = (high - low) / (q - p)
    b = low - p * a_minus_b
    return 0 <= b <= 1 and 0 <= b + a_minus_b <= 1


class TestPlan:
    def test_symmetric_is_exact(self):
        found = migrate(EVEN)
        assert EVEN.is_symmetric
        memory = found.plan.memory
        assert memory is not None
        assert (memory.q1.fraction, memory.q2.fraction) == (Fraction(1, 4), Fraction(1, 4))
        assert found.plan.q.fraction == EVEN.p_star == 1 - EVEN.q_star
        (text,) = found.plan.survey
        assert isinstance(text, Text)
        assert (text.bits, text.hashes, text.cohorts) == (128, 2, 16)
        assert found.plan.local_epsilon == pytest.approx(EVEN.local_epsilon)

    @given(percent, percent, percent)
    def test_never_less_private(self, p, q, f):
        if p >= q or (given := RapporParameters(8, 2, 4, p, q, f)).stronger > Fraction(49, 100):
            return
        plan = migrate(given).plan
        assert plan.memory is not None
        assert plan.q.fraction >= given.stronger
        assert plan.memory.q1.fraction >= f / 2
        odds = (1 - plan.memory.q2.fraction) / plan.memory.q2.fraction
        assert odds <= min(given.q / given.p, (1 - given.p) / (1 - given.q))

    def test_without_one_of_the_stages(self):
        once = migrate(RapporParameters(8, 1, 1, "0", "1", "0.5"))
        assert once.plan.memory is None
        assert once.plan.q.fraction == Fraction(1, 4)
        assert any("identifier" in note for note in once.notes)
        fresh = migrate(RapporParameters(8, 1, 1, "0.25", "0.75", "0"))
        assert fresh.plan.memory is None
        assert fresh.plan.q.fraction == Fraction(1, 4)
        assert fresh.to_json()["rappor"]["epsilon_infinity"] is None
        with pytest.raises(InputError, match="reports are not randomized"):
            migrate(RapporParameters(8, 1, 1, "0", "1", "0"))


class TestCrowd:
    def test_ours_is_audited_at_the_effective_q(self):
        found = migrate(EVEN, crowd_size=100_000, delta="1e-8")
        promise = found.plan.promise
        assert (promise.kind, promise.delta) == ("proven", "1e-8")
        certificate = certify(found.plan)
        assert certificate.delta(epsilon=float(promise.epsilon)).high <= 1e-8
        assert found.proven_fresh is not None
        assert found.proven_fresh == pytest.approx(float(promise.epsilon), rel=1e-3)
        # Not the 6250 of an even spread: a person's cohort may be smaller by chance.
        assert found.cohort_crowd is not None
        missing = binom.cdf(found.cohort_crowd - 2, 99_999, 1 / 16)
        assert missing == pytest.approx(found.cohort_tail)
        assert missing <= 0.5e-8 < binom.cdf(found.cohort_crowd - 1, 99_999, 1 / 16)
        assert found.proven_kept is not None
        assert found.proven_kept > found.proven_fresh

    @pytest.mark.parametrize("rates", [("0.3", "0.6", "0.2"), ("0.1", "0.5", "0.25")])
    @pytest.mark.parametrize("crowd", [2, 3])
    def test_what_is_said_of_theirs_holds_in_tiny_crowds(self, rates, crowd: int):
        """Exact worst delta over all crowds of shuffled RAPPOR reports, at most what t promises."""
        given = RapporParameters(2, 1, 1, *rates)
        survey = migrate(given).plan.survey
        laws = laws_of(2, 1, [two_stages(bit, given) for bit in (0, 1)])
        for lam in (Fraction(5, 4), Fraction(2)):
            worst = Fraction(0)
            for others in combinations_with_replacement(laws, crowd - 1):
                shuffled = [oracle.crowd(laws[y] for y in (x, *others)) for x in laws]
                worst = max(worst, *(oracle.delta(a, b, lam) for a in shuffled for b in shuffled))
            certificate = certify(survey, q=given.weaker, crowd_size=crowd)
            assert float(worst) <= certificate.delta(epsilon=math.log(lam)).high


WORLDS = [(1, 1, 2, 4), (1, 1, 3, 5), (2, 1, 2, 3), (2, 2, 2, 3), (2, 1, 1, 3)]


class TestKeptCohorts:
    """Cohorts that a device keeps are known in the end, and their sizes are random."""

    @pytest.mark.slow
    @pytest.mark.parametrize(("k", "h", "m", "crowd"), WORLDS)
    @pytest.mark.parametrize("rates", [("0.3", "0.6", "0.2"), ("0.25", "0.75", "0.5")])
    def test_what_is_proven_holds(self, k: int, h: int, m: int, crowd: int, rates):
        """For every hash family, colliding ones too, by enumerating all cohorts and reports."""
        given = RapporParameters(k, h, m, *rates)
        for delta in ("0.01", "0.2", "0.6"):
            wish: Any = {"crowd_size": crowd, "delta": delta, "accept_weak_promise": True}
            kept = migrate(given, **wish).proven_kept
            assert kept is not None
            assert worst_kept(given, crowd, Fraction(math.exp(kept))) <= float(delta)

    def test_cohorts_of_nearly_nobody(self):
        found = migrate(RapporParameters(8, 2, 64, "0.25", "0.75", "0.5"), crowd_size=100)
        assert found.cohort_crowd == 1
        assert found.proven_kept == pytest.approx(found.parameters.local_epsilon, rel=1e-3)


def worst_kept(given: RapporParameters, crowd: int, lam: Fraction) -> Fraction:
    """The largest delta if everybody's cohort is known, over all answers and hash families.

    A family may send any texts to any vectors of at most h bits, in each cohort another way, so
    that the worst texts are as bad as the worst vectors of one cohort. Of the others, each is in
    the person's cohort with probability 1/m, and only those hide the person.
    """
    laws = laws_of(given.k, given.h, [two_stages(bit, given) for bit in (0, 1)])
    inside = Fraction(1, given.m)

    @cache
    def delta(here: tuple[int, ...], x: int, y: int) -> Fraction:
        both = [oracle.crowd(laws[z] for z in (one, *here)) for one in (x, y)]
        return oracle.delta(both[0], both[1], lam)

    def mean(others: tuple[int, ...], x: int, y: int) -> Fraction:
        total = Fraction(0)
        for size in range(crowd):
            weight = inside**size * (1 - inside) ** (crowd - 1 - size)
            total += sum(weight * delta(here, x, y) for here in combinations(others, size))
        return total

    return max(
        mean(others, x, y)
        for others in combinations_with_replacement(laws, crowd - 1)
        for x, y in permutations(laws, 2)
    )


class TestReading:
    def test_csv_and_json_are_the_same(self, tmp_path: Path):
        (tmp_path / "params.csv").write_text("k,h,m,p,q,f\n16,2,64,0.5,0.75,0.5\n", "utf-8")
        document = {"k": 16, "h": 2, "m": 64, "p": 0.5, "q": 0.75, "f": 0.5}
        (tmp_path / "params.json").write_text(json.dumps(document), "utf-8")
        assert RapporParameters.read(tmp_path / "params.csv") == PAPER
        assert RapporParameters.read(tmp_path / "params.json") == PAPER
        assert PAPER.to_json() == document

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("k,h,m,p,q\n16,2,64,0.5,0.75\n", "header k,h,m,p,q,f"),
            ("k,h,m,p,q,f\n16,2,64,0.5,0.75\n", "header k,h,m,p,q,f"),
            ("k,h,m,p,q,f\n16.5,2,64,0.5,0.75,0.5\n", "whole number"),
            ("k,h,m,p,q,f\n16,2,64,0.5,1.75,0.5\n", "between 0 and 1"),
            ("k,h,m,p,q,f\n16,2,64,nan,0.75,0.5\n", "decimal number"),
            ("k,h,m,p,q,f\n16,2,64,0.75,0.5,0.5\n", "p must be below its q"),
            ("k,h,m,p,q,f\n16,2,64,0.5,0.75,1\n", "coin toss"),
            ("k,h,m,p,q,f\n2,3,64,0.5,0.75,0.5\n", "do not fit"),
            ("", "header k,h,m,p,q,f"),
        ],
    )
    def test_refused(self, tmp_path: Path, content: str, message: str):
        (tmp_path / "params.csv").write_text(content, "utf-8")
        with pytest.raises(InputError, match=message):
            RapporParameters.read(tmp_path / "params.csv")

    def test_other_files(self, tmp_path: Path):
        with pytest.raises(InputError, match="cannot read"):
            RapporParameters.read(tmp_path / "none.csv")
        for content in ("[1]", "{", '{"k": 1}', '{"k":1,"k":1}'):
            (tmp_path / "params.json").write_text(content, "utf-8")
            with pytest.raises(InputError):
                RapporParameters.read(tmp_path / "params.json")


class TestCommand:
    def test_plan_and_json(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
        (tmp_path / "params.csv").write_text("k,h,m,p,q,f\n128,2,16,0.25,0.75,0.5\n", "utf-8")
        words = ["migrate", str(tmp_path / "params.csv"), "--crowd", "100000"]
        assert run([*words, "-o", str(tmp_path / "plan.json"), "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        plan = Plan.read(tmp_path / "plan.json")
        assert document["plan"]["id"] == plan.id
        assert document["plan"]["q"] == 0.375
        assert document["symmetric"] is True
        assert document["crowd"]["cohort_size"] < 6250
        assert 0 < document["crowd"]["cohort_tail"] <= 0.5e-6
        assert run(words) == 0
        said = capsys.readouterr()
        assert "cohorts kept" in said.out
        assert said.err == ""


def test_a_migration_is_for_whole_reports():
    """RAPPOR's service sees every report, so the plan never claims the view of counts."""
    agreed = migrate(EVEN, crowd_size=10_000).plan
    assert agreed.view == "reports"
    assert certify(agreed).view == "reports"
    assert "reports" in check_promise(agreed).in_words
