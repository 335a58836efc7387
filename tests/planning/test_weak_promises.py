"""Promises that are kept and protect little: warned of, and from one exposed person on refused."""

from __future__ import annotations

import json
import math
import warnings
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal import Flags, Plan, PrivacyRefusal, Survey, estimate, plan, publish, simulate
from shoal.cli import run
from shoal.errors import InputError, WeakPromiseWarning
from shoal.planning.costs import compare
from shoal.planning.memory import plan_with_memory
from shoal.planning.rappor import RapporParameters, migrate
from shoal.protocol.promise import promise_warnings
from shoal.server.console.planner import PlanRequest, prospect

SURVEY = Survey("browser", (Flags("features", ("a", "b")),))
WEAK: Any = {"crowd_size": 1000, "epsilon": 1, "delta": "1e-5"}
EXPOSED: Any = {"crowd_size": 1000, "epsilon": 1, "delta": "0.001"}


class TestSentences:
    @given(
        people=st.integers(1, 10**12),
        digits=st.integers(1, 999),
        exponent=st.integers(-20, -1),
    )
    def test_delta_times_people_decides(self, people: int, digits: int, exponent: int):
        """Exact fractions say the same, and the delta that is suggested is not warned of."""
        delta = f"{digits}e{exponent - 3}"
        found = promise_warnings(1.0, delta, people)
        assert bool(found) == (Fraction(delta) * people >= Fraction(1, 100))
        if found:
            suggested = found[0].removesuffix(" or less.").rpartition(" ")[2]
            assert promise_warnings(1.0, suggested, people) == []

    @pytest.mark.parametrize(("delta", "warned"), [("1e-5", True), ("9.99e-6", False)])
    def test_the_limit_itself_is_weak(self, delta: str, warned: bool):
        assert bool(promise_warnings(1.0, delta, 1000)) == warned

    @pytest.mark.parametrize("epsilon", [10.0, 10.1, 12.0, 29.0, 30.0, 5000.0])
    def test_epsilon(self, epsilon: float):
        found = promise_warnings(epsilon, None, None)
        assert len(found) == (epsilon > 10)
        if 10 < epsilon < 30:
            factor = int(found[0].rpartition(" = ")[2].rstrip(".").replace(",", ""))
            assert factor - 1 < math.exp(epsilon) <= factor, "rounded up"


class TestPlanning:
    def test_a_weak_promise_is_a_warning(self):
        with pytest.warns(WeakPromiseWarning, match="allows 0.01 of 1,000 people") as caught:
            made = plan(SURVEY, **WEAK)
        assert [str(one.message) for one in caught] == list(made.warnings)
        assert caught[0].filename == __file__

    @pytest.mark.parametrize("make", [plan, plan_with_memory])
    def test_an_exposed_person_is_refused(self, make: Any):
        more = {} if make is plan else {"releases": 3}
        with pytest.raises(PrivacyRefusal, match="accept_weak_promise=True"):
            make(SURVEY, **EXPOSED, **more)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            made = make(SURVEY, **EXPOSED, **more, accept_weak_promise=True)
        assert "allows 1 of 1,000 people" in made.warnings[0]

    @pytest.mark.parametrize(
        "wish",
        [
            {"q": "0.02", "crowd_size": 1000, "epsilon": "0.1"},  # the delta that follows
            {"q": "0.01", "epsilon": "0.1", "delta": "0.5"},  # the crowd that follows
        ],
    )
    def test_a_number_that_is_computed_counts_too(self, wish: Any):
        with pytest.raises(PrivacyRefusal, match="to be fully exposed"):
            plan(SURVEY, **wish)
        assert plan(SURVEY, **wish, accept_weak_promise=True).warnings

    def test_a_local_promise_has_an_epsilon_only(self):
        with pytest.warns(WeakPromiseWarning, match="e\\^12 = 162,755"):
            made = plan(SURVEY, epsilon=12, promise="local")
        assert len(made.warnings) == 1

    def test_strong_promises_are_silent(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert plan(SURVEY, crowd_size=1000, epsilon=1, delta="1e-6").warnings == ()
            assert plan(SURVEY, crowd_size=1000, epsilon=1, eta="0.01").warnings == ()

    def test_migrating_is_planning(self):
        parameters = RapporParameters(k=16, h=2, m=2, p="0.25", q="0.75", f="0.5")
        with pytest.raises(PrivacyRefusal):
            migrate(parameters, crowd_size=1000, delta="0.001")
        accepted = migrate(parameters, crowd_size=1000, delta="0.001", accept_weak_promise=True)
        assert accepted.plan.warnings


class TestShown:
    @pytest.mark.slow
    def test_certificate_and_comparison(self):
        made = plan(SURVEY, **WEAK, accept_weak_promise=True)
        certificate = made.certificate()
        assert certificate.to_json(epsilon=1.0)["warnings"] == []  # the delta reached is smaller
        assert "of 1,000 people" in certificate.to_json(delta=1e-4)["warnings"][0]
        compared = compare(SURVEY, **WEAK)
        assert compared.to_json()["warnings"] == list(made.warnings)

    def test_page_and_data(self, tmp_path: Path):
        made = plan(SURVEY, **WEAK, accept_weak_promise=True)
        tally = simulate(made, users=1000, seed=1).estimates.tally
        publication = publish(made, estimate(made, tally).tally)
        assert publication.to_json()["promise"]["warnings"] == list(made.warnings)
        for name in ("page.html", "page.md"):
            publication.write(tmp_path / name)
            assert made.warnings[0] in (tmp_path / name).read_text("utf-8")

    def test_a_plan_from_a_file(self, tmp_path: Path):
        plan(SURVEY, **EXPOSED, accept_weak_promise=True).write(tmp_path / "plan.json")
        assert "fully exposed" in Plan.read(tmp_path / "plan.json").warnings[0]

    @pytest.mark.slow
    def test_the_planner_of_the_console(self):
        survey = SURVEY.to_toml()
        shown = prospect(PlanRequest(survey=survey, crowd=1000, epsilon="1", delta="1e-5"))
        assert "fully exposed" in shown["warnings"][0]
        weak = PlanRequest(survey=survey, crowd=1000, epsilon="1", delta="0.001")
        with pytest.raises(InputError, match=r"fully exposed.* or accept this weak promise"):
            prospect(weak)
        accepted = prospect(msgspec.structs.replace(weak, accept_weak_promise=True))
        assert "fully exposed" in accepted["warnings"][0]


class TestCommands:
    WORDS = ("plan", "--flags", "2", "--crowd", "1000", "--epsilon", "1", "--delta")

    def test_plan(self, capsys: pytest.CaptureFixture[str]):
        assert run([*self.WORDS, "0.001"]) == 3
        assert "accept the promise with --accept-weak-promise" in capsys.readouterr().err
        assert run([*self.WORDS, "0.001", "--accept-weak-promise"]) == 0
        said = capsys.readouterr()
        assert "Warning: delta 0.001 allows 1 of 1,000 people" in said.out
        assert said.err == ""
        assert run([*self.WORDS, "1e-5", "--json"]) == 0
        assert len(json.loads(capsys.readouterr().out)["warnings"]) == 1
