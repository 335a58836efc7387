"""A clock that jumps: nothing is destroyed, everybody is told, and an admin can accept it."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack, closing
from dataclasses import replace
from pathlib import Path

import pytest

from shoal.server import Collector
from shoal.server.core import problems
from shoal.server.core.clock import LONGEST_OUTAGE, SETTLING, STEP, GuardedClock, Moment
from shoal.server.storage.records import CrowdRecord
from shoal.server.storage.store import Store

from .privacy_help import FLAGS_PLAN, World
from .store_help import NOON, upload

DAY = 86_400
WINDOWED = replace(FLAGS_PLAN, window=DAY)


class Machine:
    """A machine whose wall clock can be set, and that can be restarted."""

    def __init__(self, now: float = NOON) -> None:
        self.wall, self.uptime, self.boot = now, 1000.0, "first"

    def pass_by(self, seconds: float) -> None:
        self.wall += seconds
        self.uptime += seconds

    def restart(self, off: float = 60.0) -> None:
        self.wall += off
        self.uptime, self.boot = 5.0, self.boot + "'"

    def clock(self) -> GuardedClock:
        return GuardedClock(
            wall=lambda: self.wall, uptime=lambda: self.uptime, boot=lambda: self.boot
        )


class TestGuardedClock:
    def test_time_passes(self):
        machine = Machine()
        clock = machine.clock()
        for seconds in (0.5, 3600.0, 400 * DAY):
            machine.pass_by(seconds)
            assert clock() == machine.wall
            assert not clock.is_held

    @pytest.mark.parametrize("step", [10 * DAY, -10 * DAY, STEP + 1, -STEP - 1])
    def test_a_jump_is_not_believed_and_going_back_is(self, step: float):
        machine = Machine()
        clock = machine.clock()
        machine.pass_by(100)
        machine.wall += step
        assert clock.is_held
        assert clock() == NOON + 100
        machine.pass_by(45)
        assert clock() == NOON + 145
        machine.wall -= step
        assert not clock.is_held
        assert clock() == NOON + 145

    def test_a_small_correction_is_believed(self):
        machine = Machine()
        clock = machine.clock()
        machine.wall -= STEP - 1
        assert clock() == machine.wall

    def test_many_small_steps_are_one_jump(self):
        machine = Machine()
        clock = machine.clock()
        for _ in range(3):
            machine.wall += 0.9 * STEP
            clock()
        assert clock.is_held
        assert clock() == NOON

    def test_accepted(self):
        machine = Machine()
        clock = machine.clock()
        machine.wall += 10 * DAY
        clock.accept()
        machine.pass_by(7)
        assert clock() == NOON + 10 * DAY + 7

    @pytest.mark.parametrize("step", [10 * DAY, 2 * DAY, -DAY])
    def test_a_new_process_is_not_taken_in(self, step: float):
        """As long as the machine runs on, it knows how long the process was away."""
        machine = Machine()
        last = machine.clock().moment
        machine.pass_by(3600)
        machine.wall += step
        clock = machine.clock()
        clock.resume(last)
        assert clock.is_held
        assert clock() == NOON + 3600

    def test_a_process_that_was_away_for_a_year(self):
        machine = Machine()
        last = machine.clock().moment
        machine.pass_by(365 * DAY)
        clock = machine.clock()
        clock.resume(last)
        assert not clock.is_held
        assert clock() == machine.wall

    @pytest.mark.parametrize(
        ("off", "believed"),
        [
            (60, True), (LONGEST_OUTAGE, True), (LONGEST_OUTAGE + 1, False), (10 * DAY, False),
            (-STEP, True), (-STEP - 1, False), (-NOON, False),
        ],
    )  # fmt: skip
    def test_a_machine_that_was_off(self, off: float, believed: bool):
        machine = Machine()
        last = machine.clock().moment
        machine.restart(off)
        clock = machine.clock()
        clock.resume(last)
        assert clock.is_held is not believed
        assert clock() == (machine.wall if believed else NOON)
        clock.accept()
        assert clock() == machine.wall
        assert clock.is_settled

    def test_a_wrong_clock_after_a_boot_that_is_set_right(self):
        """Fourteen hours ahead, until the machine asks others; nothing is held."""
        machine = Machine()
        last = machine.clock().moment
        machine.restart(14 * 3600)
        clock = machine.clock()
        clock.resume(last)
        assert not clock.is_settled
        machine.pass_by(200)
        assert clock() == machine.wall
        machine.wall -= 14 * 3600
        assert clock() == machine.wall
        assert not clock.is_held
        machine.pass_by(SETTLING)
        assert clock.is_settled
        machine.wall += 14 * 3600
        assert clock.is_held

    def test_restarts_do_not_add_up(self):
        machine = Machine()
        clock = machine.clock()
        for _ in range(5):
            machine.pass_by(30)
            machine.wall += 0.9 * STEP
            last, clock = clock.moment, machine.clock()
            clock.resume(last)
        assert clock.is_held
        assert clock() == NOON + 150

    def test_a_jump_between_two_looks(self):
        """The clock is read once for each answer."""
        times = iter([NOON, NOON, NOON + 10 * DAY, NOON + 10 * DAY])
        clock = GuardedClock(wall=lambda: next(times), uptime=lambda: 0.0, boot=lambda: "b")
        assert clock() == NOON
        assert clock() == NOON

    def test_where_the_system_does_not_tell_its_boots(self):
        machine = Machine()
        machine.boot = ""
        last = machine.clock().moment
        machine.pass_by(3600)
        machine.wall += 10 * DAY
        clock = machine.clock()
        clock.resume(last)
        assert clock.is_held

    def test_the_real_one(self):
        clock = GuardedClock()
        assert not clock.is_held
        clock.resume(Moment(clock() - 5, clock.moment.origin, clock.moment.boot))
        assert not clock.is_held


def with_world(machine: Machine, folder: Path, story) -> None:
    async def told() -> None:
        async with AsyncExitStack() as stack:
            await story(await World.open(stack, folder, machine.clock(), min_crowd=1))

    asyncio.run(told())


async def crowds_of(collector: Collector) -> list[CrowdRecord]:
    """The crowds of the plan, read where the collector's own sweeps run: one at a time."""
    found: list[CrowdRecord] = await collector.service.in_store(collector.store.crowds, WINDOWED.id)
    return found


def today(machine: Machine) -> int:
    return int(machine.wall // DAY)


class TestCollector:
    def test_ten_days_ahead_for_a_while(self, tmp_path: Path):
        """Open crowds stay, reports are taken as before, and everybody hears of it."""
        machine = Machine()
        window = today(machine)

        async def story(world: World) -> None:
            await world.publish(WINDOWED)
            relay = await world.relay()
            collector = world.collector
            half = upload(WINDOWED, WINDOWED.reports_needed // 2, 1, window)
            assert (await world.upload(half, relay)).status_code == 202
            machine.wall += 10 * DAY
            await collector.service.in_store(collector.store.sweep)
            collector.service._check_clock()
            ready = await world.ask("console", "GET", "/readyz")
            assert (ready.status_code, ready.json()["type"]) == (
                503,
                "urn:shoal:problem:clock-held",
            )
            assert b"shoal_clock_held 1.0" in collector.administration.metrics_text()
            assert b"shoal_clock_steps_total 1.0" in collector.administration.metrics_text()
            assert "the clock jumped" in world.log.getvalue()
            line = (await world.ask("console", "GET", "/v1/clock", world.admin())).json()
            assert line["held"] is True
            assert line["trusted"] < line["shown"]
            machine.pass_by(45)
            rest = upload(WINDOWED, WINDOWED.reports_needed - len(half), 2, window)
            machine.wall -= 10 * DAY
            assert (await world.upload(rest, relay)).status_code == 202
            await collector.service.in_store(collector.store.sweep)
            collector.service._check_clock()
            assert (await world.ask("console", "GET", "/readyz")).status_code == 200
            assert "trusted again" in world.log.getvalue()
            states = [one.state for one in await crowds_of(collector)]
            assert "discarded" not in states
            assert states.count("released") == 1

        with_world(machine, tmp_path / "data", story)

    def test_an_admin_accepts_it(self, tmp_path: Path):
        machine = Machine()
        window = today(machine)

        async def story(world: World) -> None:
            await world.publish(WINDOWED)
            collector, relay = world.collector, await world.relay()
            assert (await world.upload(upload(WINDOWED, 30, 1, window), relay)).status_code == 202
            machine.wall += 10 * DAY
            headers = {"authorization": f"Bearer {await world.make_token('analyst')}"}
            answer = await world.ask("console", "POST", "/v1/clock/accept", headers)
            assert answer.status_code == 403
            assert collector.service.clock_is_held
            answer = await world.ask("console", "POST", "/v1/clock/accept", world.admin())
            assert answer.json()["held"] is False
            assert '"by": "first"' in world.log.getvalue()
            await collector.service.in_store(collector.store.sweep)
            assert [one.state for one in await crowds_of(collector)].count("discarded") == 3
            given = b"shoal_crowds_discarded_total 3.0"
            assert given in collector.administration.metrics_text()
            tenths = 10 * 30 // WINDOWED.reports_needed
            lost = WINDOWED.reports_needed * tenths // 10
            assert (
                b"shoal_reports_discarded_total %.1f" % lost
                in collector.administration.metrics_text()
            )
            lines = [json.loads(line) for line in world.log.getvalue().splitlines()]
            ended = [line["progress"] for line in lines if line["event"] == "crowd discarded"]
            assert sorted(ended) == [0, 0, 10 * tenths]

        with_world(machine, tmp_path / "data", story)

    def test_a_restart_of_the_process_does_not_let_it_in(self, tmp_path: Path):
        machine = Machine()

        async def first(world: World) -> None:
            await world.publish(WINDOWED)
            await world.collector.service.in_store(world.collector.store.sweep)

        async def second(world: World) -> None:
            assert world.collector.service.clock_is_held
            await world.collector.service.in_store(world.collector.store.sweep)
            states = {one.state for one in await crowds_of(world.collector)}
            assert states == {"open"}

        with_world(machine, tmp_path / "data", first)
        machine.pass_by(90)
        machine.wall += 2 * DAY
        with_world(machine, tmp_path / "data", second)
        machine.restart(8 * DAY)
        with_world(machine, tmp_path / "data", second)

    def test_nothing_is_destroyed_right_after_a_boot(self, tmp_path: Path):
        machine = Machine()

        async def first(world: World) -> None:
            await world.publish(WINDOWED)
            await world.collector.service.in_store(world.collector.store.sweep)

        async def second(world: World) -> None:
            collector = world.collector

            async def states() -> set[str]:
                await collector.service.in_store(collector.store.sweep)
                return {one.state for one in await crowds_of(collector)}

            assert await states() == {"open"}
            machine.wall -= 2.5 * DAY  # it has asked others
            assert await states() == {"open"}
            machine.pass_by(SETTLING)
            assert await states() == {"open"}
            machine.pass_by(3 * DAY)
            assert "discarded" in await states()

        with_world(machine, tmp_path / "data", first)
        machine.restart(2.5 * DAY)
        with_world(machine, tmp_path / "data", second)

    def test_a_late_server_asks_devices_to_come_again(self, tmp_path: Path):
        machine = Machine()

        async def story(world: World) -> None:
            await world.publish(WINDOWED)
            ahead = upload(WINDOWED, 1, 1, today(machine) + 2)
            answer = await world.upload(ahead)
            assert answer.status_code == problems.WINDOW_NOT_OPEN.status == 425
            assert answer.headers["retry-after"]

        with_world(machine, tmp_path / "data", story)

    def test_what_is_kept_of_the_time(self, tmp_path: Path):
        """To the minute, and nothing in a backup."""
        machine = Machine(NOON + 37.25)
        folder = tmp_path / "data"
        folder.mkdir()
        with closing(Store(folder, clock=machine.clock())) as store:
            store.sweep()
            facts = dict(store.database.execute("SELECT name, value FROM facts"))
        assert int(facts["time"]) == NOON
        assert facts["boot"] == "first"
