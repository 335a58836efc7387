"""Planning: every promise is certified at the q that is drawn, whichever number was unknown."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal import Choice, Flags, Number, PrivacyRefusal, Survey, plan
from shoal.cli import run
from shoal.errors import InputError
from shoal.planning.certificate import certify
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Promise
from tests.strategies import bounded, flips, surveys

TWO = Survey("s", (Flags("f", ("a", "b")),))
WISH: Any = {"crowd_size": 1000, "epsilon": 1, "delta": "1e-6"}


def exact_epsilon(survey: Survey, q: FlipProbability) -> Any:
    with mpmath.workdps(60):
        odds = mpmath.mpf(2**q.digits - q.numerator) / q.numerator
        return survey.differing_bits * mpmath.log(odds)


class TestGivenQ:
    @pytest.mark.slow
    @given(surveys(), flips(30, blind=False))
    @bounded(80)
    def test_the_promise_is_the_local_epsilon_rounded_up(self, survey: Survey, q: FlipProbability):
        made = plan(survey, q=q.fraction)
        promised = Fraction(made.promise.epsilon)
        exact = exact_epsilon(survey, made.q)
        assert made.promise.kind == "local"
        with mpmath.workdps(60):
            gap = mpmath.mpf(promised.numerator) / promised.denominator - exact
            assert 0 <= gap <= mpmath.mpf("0.000100001")

    def test_q_is_rounded_up_and_kept(self):
        assert plan(TWO, q="0.25").q == FlipProbability(1, 2)
        assert plan(TWO, q="0.351").q == FlipProbability.at_least("0.351")
        assert plan(TWO, q="0.25", crowd_size=1000).crowd_size == 1000

    @pytest.mark.parametrize("q", [0, "0", 0.6, "x", float("nan"), -1, [], True])
    def test_q_that_is_none(self, q: object):
        with pytest.raises(InputError, match="q must be"):
            plan(TWO, q=q)


class TestLocal:
    @pytest.mark.slow
    @given(surveys(), st.decimals("0.01", "40", places=3).filter(lambda e: e > 0))
    @bounded(80)
    def test_the_smallest_q_that_keeps_the_promise(self, survey: Survey, epsilon: Any):
        made = plan(survey, epsilon=str(epsilon), promise="local")
        assert Fraction(made.promise.epsilon) == Fraction(epsilon)
        with mpmath.workdps(60):
            wish = mpmath.mpf(str(epsilon))
            assert exact_epsilon(survey, made.q) <= wish
            ideal = 1 / (1 + mpmath.exp(wish / survey.differing_bits))
            q = mpmath.mpf(made.q.numerator) / 2**made.q.digits
            assert ideal <= q
            assert q <= ideal * mpmath.mpf("1.001") or made.q.digits == 52

    @pytest.mark.parametrize(
        ("question", "differing"),
        [
            (Flags("f", tuple("abcde")), 5),
            (Choice("c", tuple("abcde")), 2),
            (Flags("l", tuple("abcde"), 2), 4),
            (Flags("l", tuple("abcde"), 4), 5),
            (Number("n", ("1", "2", "3")), 2),
        ],
    )
    def test_local_epsilon_by_brute_force(self, question: Any, differing: int):
        """The largest log-likelihood ratio over all pairs of originals and all reports."""
        survey = Survey("s", (question,))
        made = plan(survey, q="0.25")
        bits = question.bits
        fewest, most = question.min_set_bits, question.max_set_bits
        originals = [v for v in range(1 << bits) if fewest <= v.bit_count() <= most]
        worst = max(
            ((b ^ r).bit_count() - (a ^ r).bit_count()) * math.log(3)
            for a in originals
            for b in originals
            for r in range(1 << bits)
        )
        assert math.isclose(made.local_epsilon, worst)
        assert survey.differing_bits == differing

    @pytest.mark.parametrize(
        "epsilon", [0, "0", -1, "x", "", float("nan"), "inf", None, True, "1e9"]
    )
    def test_epsilons_that_are_none(self, epsilon: object):
        with pytest.raises(InputError):
            plan(TWO, epsilon=epsilon, promise="local")

    @pytest.mark.parametrize("epsilon", ["2.20", "2.2", 2.2, "22e-1", Decimal("2.20")])
    def test_an_epsilon_has_one_spelling(self, epsilon: object):
        draft = plan(TWO, epsilon=epsilon, promise="local")
        assert draft.promise.epsilon == "2.2"
        assert draft.id == plan(TWO, epsilon="2.2", promise="local").id


class TestWhatIsAsked:
    def test_both(self):
        """q = 1/4 gives a local epsilon of 2 ln 3 = 2.197...: 2.2 is kept, 1 is not."""
        assert plan(TWO, q="0.25", epsilon="2.2", promise="local").promise.epsilon == "2.2"
        with pytest.raises(PrivacyRefusal, match="more than 1; q must be at least"):
            plan(TWO, q="0.25", epsilon="1", promise="local")
        with pytest.raises(InputError, match="carry no information"):
            plan(TWO, q="0.5")


FIVE = Survey("s", (Flags("f", ("a", "b", "c", "d", "e")),))
MIXED = Survey("s", (Flags("f", ("a", "b")), Choice("c", ("x", "y", "z"))))
SPARSE = Survey("s", (Flags("m", tuple("abcdefgh"), at_most=2),))
HUNDRED = Survey("s", (Choice("c", tuple(map(str, range(100)))),))
ONE = Survey("s", (Flags("f", ("a",)),))


class TestWindowsAndHonesty:
    def test_they_are_kept_and_change_nothing_else(self):
        survey = Survey("s", (Flags("f", ("a", "b")),))
        bare = plan(survey, **WISH)
        made = plan(survey, **WISH, window=86_400, honest_fraction="0.9")
        assert (made.window, made.honest_fraction, made.reports_needed) == (86_400, "0.9", 1112)
        assert replace(made, window=None, honest_fraction=None) == bare
        assert plan(survey, **WISH, honest_fraction=1) == bare
        said = " ".join(certify(made).assumptions)
        assert "At least 1,112 reports" in said
        assert "a part 0.9 of every release is honest, 1,000 reports" in said

    @pytest.mark.parametrize(
        ("more", "message"),
        [
            ({"window": 3599}, "at least 3600 seconds"),
            ({"window": 0}, "window must be"),
            ({"window": 86_400.0}, "whole number"),
            ({"honest_fraction": "0"}, "above 0"),
            ({"honest_fraction": "1.1"}, "below 1"),
        ],
    )
    def test_what_no_device_would_take(self, more: Any, message: str):
        with pytest.raises(InputError, match=message):
            plan(TWO, **WISH, **more)

    def test_an_honest_part_is_of_a_crowd(self):
        with pytest.raises(InputError, match="honest_fraction= needs crowd_size="):
            plan(Survey("s", (Flags("f", ("a",)),)), q="0.2", honest_fraction="0.9")


class TestProven:
    """(epsilon, delta) for every crowd; one of the four numbers may be the unknown."""

    @given(
        st.sampled_from([ONE, FIVE, MIXED, SPARSE, HUNDRED]),
        st.sampled_from([100, 1000, 30_000]),
        st.sampled_from(["0.3", "1", "2.5"]),
        st.sampled_from(["1e-3", "1e-6", "1e-9"]),
    )
    @bounded(40)
    @pytest.mark.slow
    def test_the_planned_q_keeps_its_promise_and_hardly_less_breaks_it(
        self, survey: Survey, crowd: int, epsilon: str, delta: str
    ):
        wish: Any = {"crowd_size": crowd, "epsilon": epsilon, "delta": delta}
        made = plan(survey, **wish, accept_weak_promise=True)
        again = certify(made)
        assert again.delta(epsilon=float(epsilon)).high <= float(delta)
        less = certify(survey, q=made.q.fraction * Fraction(999, 1000), crowd_size=crowd)
        assert less.delta(epsilon=float(epsilon)).high > float(delta)
        assert made.promise == Promise("proven", epsilon, delta)

    @pytest.mark.parametrize(
        ("survey", "crowd", "epsilon", "delta", "q", "within"),
        [
            (ONE, 1000, math.log(2), "0.005", 0.0119, 2e-3),
            (FIVE, 1000, 1, "1e-6", 0.2840, 3e-3),
            (FIVE, 10_000, 1, "1e-6", 0.2026, 3e-3),
            (HUNDRED, 10_000, math.log(2), "1e-6", 0.0748, 2e-3),
        ],
    )
    def test_known_answers(
        self, survey: Survey, crowd: int, epsilon: float, delta: str, q: float, within: float
    ):
        """From independent prototypes of the bounds; that of five flags leaves out the cap."""
        wish: Any = {"crowd_size": crowd, "epsilon": epsilon, "delta": delta}
        made = plan(survey, **wish, accept_weak_promise=True)
        assert float(made.q) == pytest.approx(q, rel=within)

    def test_every_unknown_gives_back_the_others(self):
        made = plan(TWO, crowd_size=10_000, epsilon="1", delta="1e-6")
        q = made.q.fraction
        crowd = plan(TWO, q=q, epsilon="1", delta="1e-6").crowd_size
        assert crowd is not None
        assert 0.99 * 10_000 <= crowd <= 1.003 * 10_000
        epsilon = plan(TWO, q=q, crowd_size=10_000, delta="1e-6").promise.epsilon
        assert 0.998 <= float(epsilon) <= 1.002
        delta = plan(TWO, q=q, crowd_size=10_000, epsilon="1").promise.delta
        assert delta is not None
        assert 0.95e-6 <= float(delta) <= 1e-6

    def test_solved_numbers_are_certified_as_they_are_printed(self):
        for wish in ({"delta": "1e-6"}, {"epsilon": "0.7"}):
            more: Any = {"crowd_size": 10_000, "accept_weak_promise": True, **wish}
            made = plan(TWO, q="0.05", **more)
            reached = certify(made).delta(epsilon=float(made.promise.epsilon)).high
            assert reached <= float(made.promise.delta or 0)

    def test_impossible_wishes_say_what_is_possible(self):
        with pytest.raises(PrivacyRefusal, match=r"q = 0\.2\d+ would be enough"):
            plan(FIVE, q="0.1", crowd_size=10_000, epsilon="1", delta="1e-6")
        with pytest.raises(PrivacyRefusal, match="no crowd of up to"):
            plan(FIVE, q="1e-9", epsilon="0.01", delta="1e-9")
        with pytest.raises(PrivacyRefusal, match="carry no information"):
            plan(FIVE, crowd_size=1, epsilon="1e-30", delta="1e-30")

    @pytest.mark.parametrize(
        "wish",
        [
            {},
            {"q": "0.25", "epsilon": "1"},
            {"epsilon": "1", "promise": "strong"},
            {"crowd_size": 100, "epsilon": "1"},
            {"epsilon": "1", "delta": "1e-6"},
            {"crowd_size": 100, "delta": "1e-6"},
            {"crowd_size": 100, "epsilon": "1", "delta": "1e-6", "promise": "local"},
            {"crowd_size": 100, "epsilon": "1", "delta": "1e-6", "eta": "0.1"},
            {"eta": "0.1"},
            {"eta": "0.1", "crowd_size": 5},
            *({"crowd_size": 100, "epsilon": "1", "delta": d} for d in ("1", "0", "-1e-6", "nan")),
            *(
                {"crowd_size": c, "epsilon": "1", "delta": "1e-6"}
                for c in (0, 2.5, -5, "many", True)
            ),
        ],
    )
    def test_bad_wishes(self, wish: Any):
        with pytest.raises(InputError):
            plan(FIVE, **wish)


class TestSufficient:
    """What the papers ask for; kept apart by name, and never more noise than proven."""

    @pytest.mark.slow
    def test_eta_is_kept_on_the_worst_homogeneous_crowd(self):
        made = plan(FIVE, crowd_size=5000, epsilon="0.6931", eta="0.005")
        assert made.promise == Promise("sufficient", "0.6931", eta="0.005")
        assert certify(made).eta(epsilon=0.6931).high <= 0.005
        wish: Any = {"crowd_size": 5000, "epsilon": "0.6931", "delta": "0.005"}
        proven = plan(FIVE, **wish, accept_weak_promise=True)
        assert made.q.fraction < proven.q.fraction

    def test_eta_of_a_given_q(self):
        made = plan(FIVE, q="0.1963", crowd_size=5000, epsilon="0.6931", promise="sufficient")
        assert 0.006 < float(made.promise.eta or 0) < 0.008


class TestThreeSigma:
    def test_the_rule_of_the_papers(self):
        """SDP (3.12) solved; SDP prints 0.2446 and 0.2109."""
        for crowd, q in ((1000, 0.2446), (3000, 0.2109)):
            made = plan(FIVE, crowd_size=crowd, epsilon=math.log(2), promise="three-sigma")
            assert float(made.q) == pytest.approx(q, abs=1e-4)
        with pytest.raises(InputError):
            plan(FIVE, epsilon="1", promise="three-sigma")
        with pytest.raises(InputError, match="no privacy at all"):
            plan(FIVE, crowd_size=100, epsilon="1000", promise="three-sigma")

    def test_a_crowd_without_a_solution_is_refused(self, monkeypatch: pytest.MonkeyPatch):
        """No crowd found so far lacks one; the theory may still say so."""

        def none(*given: object) -> float:
            raise ValueError("no q satisfies the rule")

        monkeypatch.setattr("shoal.theory.sufficient.three_sigma_q", none)
        with pytest.raises(PrivacyRefusal, match="three-sigma rule at epsilon=1 in a crowd of 100"):
            plan(FIVE, crowd_size=100, epsilon="1", promise="three-sigma")


class TestCommandLine:
    @pytest.mark.slow
    def test_json_contract(self, capsys: pytest.CaptureFixture[str]):
        words = "plan --flags 5 --crowd 10000 --epsilon 1 --delta 1e-6 --json".split()
        assert run(words) == 0
        document = json.loads(capsys.readouterr().out)
        assert set(document) == {
            "id", "q", "q_fraction", "bits", "crowd_size", "promise", "epsilon", "delta", "eta",
            "sigma_count", "certificate", "reports_needed", "window", "view", "fragments",
            "crosses", "local_epsilon", "other_view", "parties", "warnings",
        }  # fmt: skip
        numerator, digits = document["q_fraction"]
        assert document["q"] == numerator / 2**digits
        assert document["eta"] is None
        assert document["certificate"]["proven"]["delta"][1] <= 1e-6
