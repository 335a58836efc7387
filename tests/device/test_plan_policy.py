"""What a device checks of a plan before it answers, and of its promise."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import shoal
from shoal import Flags, Plan, PrivacyRefusal, Survey
from shoal.device.outbox import TransportError, check_plan, check_promise, read_plan
from shoal.errors import InputError, PlanError
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Memory, Promise
from shoal.support.files import canonical_json
from tests.device.outbox_help import (
    ANSWER,
    BROKEN,
    CROWD,
    PLAN,
    SURVEY,
    Certifying,
    Collector,
    box,
    certificate_of,
)
from tests.strategies import bounded
from tests.test_imports import loaded_after


class TestChecking:
    def test_the_plan_that_was_asked_for(self):
        other = replace(PLAN, max_reports_per_person=2)
        content = canonical_json(other.to_json())
        assert read_plan(content, other.id) == other
        with pytest.raises(PlanError, match=r"asked for plan .* got plan"):
            read_plan(content, PLAN.id)

    @pytest.mark.parametrize("plan_id", ["", "x" * 64, "A" * 64, "../" * 21 + "a", None, 5])
    def test_ids(self, plan_id):
        with pytest.raises(PlanError, match="64 hexadecimal digits"):
            read_plan(b"{}", plan_id)

    @pytest.mark.parametrize(
        "content",
        [
            b"", b"\xff", b"[" * 100_000, b"NaN", b'{"a":1,"a":2}', b"9" * 10_000, b"{}", b"null",
            b'"\\ud800"', b" " * ((16 << 20) + 1),
        ],
        ids=range(10),
    )  # fmt: skip
    def test_what_is_no_plan(self, content):
        with pytest.raises(PlanError):
            read_plan(content, "0" * 64)

    @given(st.data())
    @bounded(150)
    def test_changed_plans(self, data):
        """Whatever byte of a plan is changed, it is not the plan that was asked for."""
        content = bytearray(canonical_json(PLAN.to_json()))
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] = data.draw(st.integers(0, 255).filter(lambda byte: byte != content[at]))
        with pytest.raises(PlanError):
            read_plan(bytes(content), PLAN.id)

    def test_the_limit_is_exact(self):
        # 64 ln(5/3) = 32.692838...
        assert check_plan(PLAN, limit="32.693") is PLAN
        assert check_plan(PLAN) is PLAN
        with pytest.raises(PrivacyRefusal, match=r"32\.6929.* limit of 32\.69\b"):
            check_plan(PLAN, limit="32.69")
        for limit in (0, -1, "nan", True):
            with pytest.raises(InputError):
                check_plan(PLAN, limit=limit)

    def test_with_memory_the_permanent_flips_count(self):
        memory = Memory(FlipProbability(1, 2), FlipProbability(1, 2))
        plan = replace(PLAN, q=memory.q, memory=memory)
        with pytest.raises(PrivacyRefusal, match=r"70\.31"):  # 64 ln 3
            check_plan(plan, limit=40)

    def test_short_windows_tell_the_time(self):
        with pytest.raises(PrivacyRefusal, match="would tell when"):
            check_plan(replace(PLAN, window=60))
        check_plan(replace(PLAN, window=60), min_window=60)

    def test_blind_plans(self):
        with pytest.raises(PlanError, match="no information"):
            check_plan(Plan(SURVEY, FlipProbability(1, 1), Promise("local", "1")))

    @pytest.mark.slow
    def test_recomputing(self):
        small = Survey("s", (Flags("f", ("a", "b")),))
        kept = shoal.plan(small, crowd_size=1000, epsilon=1, delta="1e-6")
        check_promise(kept)
        check_promise(PLAN)
        sufficient = shoal.plan(small, crowd_size=1000, epsilon=1, eta="1e-6")
        check_promise(sufficient)
        for broken in (
            replace(kept, q=FlipProbability(1, 4)),
            replace(kept, max_reports_per_person=5),
            replace(sufficient, max_reports_per_person=2),
        ):
            with pytest.raises(PrivacyRefusal, match="does not confirm"):
                check_promise(broken)
        with pytest.raises(PrivacyRefusal, match="rule of thumb"):
            check_promise(replace(kept, promise=Promise("three-sigma", "1")))


class TestPlans:
    def test_fetched_once_and_kept(self, tmp_path):
        collector = Collector()
        assert box(tmp_path, collector).plan(PLAN.id) == PLAN
        assert box(tmp_path, collector).plan(PLAN.id) == PLAN
        assert collector.fetched == 1

    def test_a_kept_plan_is_checked_again(self, tmp_path):
        collector = Collector()
        box(tmp_path, collector).plan(PLAN.id)
        with pytest.raises(PrivacyRefusal):
            box(tmp_path, collector, limit=1).plan(PLAN.id)
        (tmp_path / "plans" / f"{PLAN.id}.json").write_bytes(b"{")
        assert box(tmp_path, collector).plan(PLAN.id) == PLAN
        assert collector.fetched == 2

    def test_another_plan_is_refused_and_not_kept(self, tmp_path):
        collector = Collector()
        collector.plans[PLAN.id] = replace(PLAN, max_reports_per_person=9)
        with pytest.raises(PlanError, match="asked for"):
            box(tmp_path, collector).plan(PLAN.id)
        assert not list((tmp_path / "plans").iterdir())


class TestThePromise:
    """A device that is told nothing about a plan's promise does not answer."""

    @pytest.mark.parametrize("options", [{}, {"recompute": True}, {"limit": 20}])
    def test_it_is_computed_by_default(self, tmp_path, options):
        with pytest.raises(PrivacyRefusal, match="does not confirm"):
            box(tmp_path, Collector(), **options).answer(BROKEN, ANSWER)
        assert not list(tmp_path.glob("*.waiting"))
        assert box(tmp_path, Collector(), **options).answer(CROWD, ANSWER).state == "waiting"

    def test_several_reports_count(self, tmp_path):
        with pytest.raises(PrivacyRefusal, match="3 reports of a person"):
            box(tmp_path, Collector()).answer(replace(CROWD, max_reports_per_person=3), ANSWER)

    def test_a_fetched_plan_is_computed_too(self, tmp_path):
        with pytest.raises(PrivacyRefusal, match="does not confirm"):
            box(tmp_path, Collector(plans=(BROKEN,))).plan(BROKEN.id)
        assert not list((tmp_path / "plans").iterdir())

    def test_nothing_tells(self, tmp_path):
        for transport in (Collector(), Certifying(key=None)):
            outbox = box(tmp_path, transport, recompute=False)
            with pytest.raises(PrivacyRefusal, match=r"cannot confirm.*--limit.*--key"):
                outbox.answer(CROWD, ANSWER)
        assert outbox.answer(PLAN, ANSWER).state == "waiting"  # its local promise is exact

    def test_a_limit_of_its_own_needs_no_crowd(self, tmp_path):
        outbox = box(tmp_path, Collector(), recompute=False, limit=20)
        assert outbox.answer(BROKEN, ANSWER).state == "waiting"
        with pytest.raises(PrivacyRefusal, match="limit of 1"):
            box(tmp_path, Collector(), recompute=False, limit=1).answer(CROWD, ANSWER)

    def test_a_certificate(self, tmp_path):
        collector = Certifying()
        assert box(tmp_path, collector, recompute=False).answer(CROWD, ANSWER).state == "waiting"
        for _ in range(2):
            box(tmp_path, collector, recompute=False).plan(CROWD.id)
        assert collector.asked == 1
        # Another key is another word, and so is a computation.
        other = Certifying(key="other")
        box(tmp_path, other, recompute=False).plan(CROWD.id)
        assert other.asked == 1

    @pytest.mark.parametrize("kind", ["another plan", "a larger delta", "nonsense", "none"])
    def test_a_certificate_that_does_not_confirm(self, tmp_path, kind):
        plan = BROKEN if kind == "another plan" else CROWD
        collector = Certifying(plan)
        document = json.loads(certificate_of(CROWD))
        document["certificate"]["proven"]["delta"][1] = 0.5
        cases: dict[str, tuple[Any, type[Exception]]] = {
            "another plan": (certificate_of(CROWD), PlanError),
            "a larger delta": (json.dumps(document).encode(), PrivacyRefusal),
            "nonsense": (b"{}", PlanError),
            "none": (TransportError("404."), TransportError),
        }
        collector.certificate, error = cases[kind]
        with pytest.raises(error):
            box(tmp_path, collector, recompute=False).answer(plan, ANSWER)
        assert not list(tmp_path.glob("*.waiting"))
        assert not list((tmp_path / "plans").glob("*.promise"))

    def test_a_rule_of_thumb_has_no_certificate(self, tmp_path):
        rule = shoal.plan(CROWD.survey, crowd_size=1000, epsilon=1, promise="three-sigma")
        for recompute in (None, False):
            with pytest.raises(PrivacyRefusal, match="rule of thumb"):
                box(tmp_path, Certifying(rule), recompute=recompute).answer(rule, ANSWER)

    def test_it_is_computed_once_for_a_folder(self, tmp_path, monkeypatch):
        computed: list[Plan] = []
        monkeypatch.setattr("shoal.device.outbox.plan_policy.check_promise", computed.append)
        for _ in range(3):
            box(tmp_path, Collector()).answer(CROWD, ANSWER)
        assert len(computed) == 1
        monkeypatch.setattr("shoal.__version__", "another")
        box(tmp_path, Collector()).answer(CROWD, ANSWER)
        assert len(computed) == 2

    def test_where_there_is_no_scipy(self, tmp_path, monkeypatch):
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(PrivacyRefusal, match="cannot confirm"):
            box(tmp_path, Collector()).answer(CROWD, ANSWER)
        with pytest.raises(InputError, match="needs scipy"):
            box(tmp_path, Collector(), recompute=True)

    def test_a_certified_answer_loads_no_mathematics(self, tmp_path):
        (tmp_path / "certificate").write_bytes(certificate_of(CROWD))
        CROWD.write(tmp_path / "plan")
        script = f"""
from pathlib import Path
from shoal import Outbox, Plan
class Carrier:
    pinned_key = "k"
    def fetch_certificate(self, plan_id): return Path("certificate").read_bytes()
box = Outbox("box", Carrier(), recompute=False)
assert box.answer(Plan.read("plan"), {ANSWER}).state == "waiting"
"""
        loaded = loaded_after(script, cwd=tmp_path)
        assert not {"scipy", "shoal.planning.certificate"} & loaded
