"""Arms, ages and funnels on a person's device: drawn once, reported once, whatever happens."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import replace
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

import pytest

from shoal import Plan, Survey, YesNo
from shoal.device.ledger import Ledger
from shoal.device.telemetry import consent, state
from shoal.errors import AnswerError, PrivacyRefusal, UnknownNameError
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Promise
from shoal.protocol.survey import Arm, Funnel, Retention, RetentionOnce
from shoal.protocol.wire import split_batch
from tests.device.outbox_help import Server
from tests.device.telemetry_help import WEEK, World
from tests.device.test_telemetry_worker import crashing
from tests.faults import Crash, Faults

ARM = Arm("onboarding", ("control", "tour", "video"), (2, 1, 1))
STEPS = Funnel("setup", ("installed", "signed in", "invited"), "option")
AGES = Retention("weeks", 3, WEEK)


def plan_of(*questions: Any, name: str = "tool") -> Plan:
    # Flips are so rare that a report says what was answered.
    survey = Survey(name, questions)
    return Plan(survey, FlipProbability(1, 16), Promise("local", "800"), window=WEEK, crowd_size=9)


ONCE = plan_of(ARM, STEPS, YesNo("finished"))
AGED = plan_of(ARM, AGES, STEPS)


def world_of(tmp_path: Path, server: Server, plan: Plan) -> World:
    return World(tmp_path, server.url, plan).say_yes()


def told(server: Server, plan: Plan) -> list[tuple[int, dict[str, list[str]]]]:
    """The reports that arrived, once each: their window, and the labels that are set."""
    found = {}
    for *_, body in server.requests:
        if not body:  # who sent the head was killed before the body
            continue
        report = split_batch(plan, body).content
        value = int.from_bytes(report[20:], "little")
        set_labels: dict[str, list[str]] = {one.name: [] for one in plan.survey}
        for bit, (name, label) in enumerate(plan.survey.labels):
            if value >> bit & 1:
                set_labels[name].append(label)
        found[report[:16]] = int.from_bytes(report[16:20], "little"), set_labels
    return sorted(found.values(), key=lambda one: one[0])


class TestArm:
    def test_without_a_yes_it_is_control_and_nothing_is_stored(self, tmp_path: Path):
        world = World(tmp_path, "https://t.example", ONCE)
        assert {world.tool().arm("onboarding") for _ in range(20)} == {"control"}
        consent.off(world.tool())
        assert world.tool().arm("onboarding") == "control"
        assert not list(world.home.glob("arm.*"))

    def test_drawn_once_and_kept(self, tmp_path: Path):
        world = World(tmp_path, "https://t.example", ONCE).say_yes()
        first = world.tool().arm("onboarding")
        for _ in range(30):
            world.next_window()
            assert world.tool().arm("onboarding") == first

    def test_of_several_processes_one_decides(self, tmp_path: Path):
        for number in range(20):
            world = World(tmp_path / str(number), "https://t.example", ONCE).say_yes()
            tools = [world.tool() for _ in range(4)]
            with ThreadPool(4) as pool:
                assert len(set(pool.map(lambda tool: tool.arm("onboarding"), tools))) == 1

    def test_by_the_weights(self, tmp_path: Path):
        """A binomial outside 6 standard deviations has probability below 1e-8; bits are seeded."""
        world, drawn = World(tmp_path, "https://t.example", ONCE).say_yes(), Counter[str]()
        tool = world.tool()
        name = state.arm_name(ARM.name, ARM.options)
        for _ in range(800):
            drawn[tool.arm("onboarding")] += 1
            (world.home / name).unlink()
        assert abs(drawn["control"] - 400) < 6 * (800 / 4) ** 0.5
        assert abs(drawn["tour"] - 200) < 6 * (800 * 3 / 16) ** 0.5
        assert drawn["video"] > 0

    def test_a_disk_that_cannot_be_written(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        world = World(tmp_path, "https://t.example", ONCE).say_yes()
        monkeypatch.setattr(state, "keep_first", lambda *_: (_ for _ in ()).throw(OSError("full")))
        tool = world.tool()
        assert tool.arm("onboarding") == "control"
        assert tool.problem == "OSError: full"

    def test_a_name_that_is_not_there(self, tmp_path: Path):
        with pytest.raises(UnknownNameError, match="no arm question 'onbording'"):
            World(tmp_path, "https://t.example", ONCE).tool().arm("onbording")

    def test_it_cannot_be_recorded(self, tmp_path: Path):
        tool = World(tmp_path, "https://t.example", ONCE).tool()
        with pytest.raises(AnswerError, match="the device answers it itself"):
            tool.check(onboarding="tour")
        tool.record(onboarding="tour")
        assert "the device answers it itself" in str(tool.problem)


class TestOnce:
    def use(self, world: World, **answers: object) -> str:
        tool = world.tool()
        arm = tool.arm("onboarding")
        tool.record(**answers)
        tool.flush()
        assert tool._error is None
        world.work()
        return arm

    def test_one_report_about_the_first_two_windows(self, tmp_path: Path, server: Server):
        world = world_of(tmp_path, server, ONCE)
        arm = self.use(world, setup="signed in")
        world.next_window()
        self.use(world, setup="installed", finished=True)
        assert server.requests == []
        world.next_window()
        self.use(world, setup="invited")  # after the two windows
        ((window, answer),) = told(server, ONCE)
        assert window == 3002
        assert answer == {"onboarding": [arm], "setup": ["signed in"], "finished": ["yes"]}
        assert not list(world.home.glob("*/events.*"))
        for _ in range(3):
            world.next_window()
            self.use(world, finished=True)
        assert len(told(server, ONCE)) == 1

    def test_no_outcome_is_an_answer(self, tmp_path: Path, server: Server):
        world = world_of(tmp_path, server, ONCE)
        arm = world.tool().arm("onboarding")
        world.next_window(2)
        world.work()
        ((_, answer),) = told(server, ONCE)
        assert answer == {"onboarding": [arm], "setup": ["(missing)"], "finished": []}

    def test_an_arm_that_is_drawn_too_late_is_not_reported(self, tmp_path: Path, server: Server):
        world = world_of(tmp_path, server, ONCE)
        world.next_window(2)
        world.work()
        assert "did not call arm()" in str(world.tool().problem)
        self.use(world)
        world.next_window()
        world.work()
        assert server.requests == []

    def test_clocks_and_an_upgrade_make_no_second_report(self, tmp_path: Path, server: Server):
        world = world_of(tmp_path, server, ONCE)
        self.use(world, finished=True)
        world.next_window(2)
        world.work()
        for windows in (-40, 3, 100, -65):
            world.next_window(windows)
            self.use(world, finished=True)
        assert len(told(server, ONCE)) == 1
        world.plan = replace(ONCE, q=FlipProbability(3, 17))
        world.say_yes()
        for _ in range(4):
            world.next_window()
            self.use(world, finished=True)
        assert len(server.requests) == 1
        with pytest.raises(PrivacyRefusal, match="answers the survey 'tool' once"):
            Ledger(world.home / "ledger.json").charge(world.plan)

    def test_killed_anywhere(self, tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch):
        def at(step: int | None) -> int:
            server.requests.clear()
            world = world_of(tmp_path / str(step), server, ONCE)
            self.use(world, finished=True)
            world.next_window(2)
            faults = Faults(step)
            with crashing(monkeypatch, faults), suppress(Crash):
                world.work()
            with crashing(monkeypatch, Faults()):
                world.clock.now += 3600
                world.work()
                world.next_window()
                world.work()
            assert len(told(server, ONCE)) == 1, (step, faults.labels)
            return len(faults.labels)

        for step in range(at(None)):
            at(step)

    def test_after_delete_it_is_a_new_device(self, tmp_path: Path, server: Server):
        world = world_of(tmp_path, server, ONCE)
        self.use(world, finished=True)
        world.next_window(2)
        world.work()
        consent.delete(world.tool())
        assert sorted(one.name for one in world.home.iterdir()) == ["off", "quiet"]
        world.next_window()
        world.say_yes()
        self.use(world)
        world.next_window(2)
        world.work()
        assert [window for window, _ in told(server, ONCE)] == [3002, 3005]


class TestAges:
    def visit(self, world: World, **answers: object) -> None:
        tool = world.tool()
        tool.arm("onboarding")
        tool.record(**answers)
        tool.flush()
        world.work()
        world.work()

    def ages(self, server: Server) -> list[tuple[int, str]]:
        return [(window, answer["weeks"][0]) for window, answer in told(server, AGED)]

    def test_a_report_in_each_active_period_until_the_last(self, tmp_path: Path, server: Server):
        world = world_of(tmp_path, server, AGED)
        self.visit(world, setup="installed")
        world.next_window(2)
        self.visit(world, setup="invited")
        world.next_window()
        self.visit(world)
        assert self.ages(server) == [(3000, "0"), (3002, "2"), (3003, "3")]
        assert [answer["setup"] for _, answer in told(server, AGED)] == [
            ["installed"], ["invited"], ["invited"],
        ]  # fmt: skip
        assert len({*(tuple(answer["onboarding"]) for _, answer in told(server, AGED))}) == 1
        for _ in range(4):
            world.next_window()
            self.visit(world)
        assert len(self.ages(server)) == 3
        assert not list(world.home.glob("*/events.*"))

    def test_who_leaves_at_once_has_reported(self, tmp_path: Path, server: Server):
        self.visit(world_of(tmp_path, server, AGED))
        assert self.ages(server) == [(3000, "0")]

    def test_a_clock_that_goes_back(self, tmp_path: Path, server: Server):
        world = world_of(tmp_path, server, AGED)
        self.visit(world)
        for windows in (-5, 7, -1, -1):  # before the first, to age 2, back to ages 1 and 0
            world.next_window(windows)
            self.visit(world)
        assert self.ages(server) == [(3000, "0"), (3002, "2")]

    def test_an_upgrade_within_a_period(self, tmp_path: Path, server: Server):
        world = world_of(tmp_path, server, AGED)
        self.visit(world)
        world.plan = replace(AGED, q=FlipProbability(3, 17))
        world.say_yes()
        self.visit(world)
        assert len(server.requests) == 1
        world.next_window()
        self.visit(world)  # two versions of the tool, of which one reports
        assert len(server.requests) == 2

    def test_the_limit_has_room_for_all(self, tmp_path: Path):
        limit = 3 * AGED.local_epsilon
        with pytest.raises(PrivacyRefusal, match="4 reports of this plan reveal"):
            World(tmp_path, "https://t.example", AGED, limit=limit).tool()

    def test_with_a_missing_option_reports_go_on(self, tmp_path: Path, server: Server):
        plan = plan_of(AGES.replaced(missing="option"))
        world = world_of(tmp_path, server, plan)
        for _ in range(6):
            world.work()
            world.next_window()
        ages = [answer["weeks"][0] for _, answer in told(server, plan)]
        assert ages == ["0", "1", "2", "3", "(missing)", "(missing)"]


def test_a_daemon_reports_its_active_periods_once(tmp_path: Path, server: Server):
    plan = plan_of(RetentionOnce("weeks", 3, WEEK), YesNo("finished"))
    world = world_of(tmp_path, server, plan)
    for active in (True, True, False, True, True):
        if active:
            world.tool().record(finished=False)
        world.work()
        world.next_window()
    world.work()
    assert told(server, plan) == [(3004, {"weeks": ["1", "3"], "finished": []})]


def test_what_a_tool_tries_in_its_tests(tmp_path: Path):
    tool = World(tmp_path, "https://t.example", AGED).tool()
    tool.arm("onboarding")
    tool.record(setup="installed")
    tool.record(setup="invited")
    assert tool.simulate_next_window().answer == {
        "onboarding": "control", "weeks": "0", "setup": "invited",
    }  # fmt: skip
    assert tool.simulate_next_window().answer["weeks"] == "1"


def test_the_person_is_told(tmp_path: Path):
    aged = consent.status(World(tmp_path, "https://t.example", AGED).tool())
    assert "one report a week in which you use it (at most 4 in all)" in aged
    assert "the variant of an experiment that this machine drew at random" in aged
    assert "the furthest step that you reached" in aged
    once = consent.status(World(tmp_path, "https://t.example", ONCE).tool())
    assert "Sent: one report in all, about the time since you said yes." in once
