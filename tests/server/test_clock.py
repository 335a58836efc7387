"""A clock that jumps: nothing is destroyed, everybody is told, and an admin can accept it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from shoal.server.core import problems
from shoal.server.core.clock import LONGEST_OUTAGE, SETTLING, STEP, GuardedClock, Moment
from shoal.server.storage.store import Store

from .privacy_help import FLAGS_PLAN, World, in_world
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

    def resumed(self, last: Moment) -> GuardedClock:
        clock = self.clock()
        clock.resume(last)
        return clock


class TestGuardedClock:
    def test_time_passes_and_small_corrections_are_believed(self):
        machine = Machine()
        clock = machine.clock()
        for seconds in (0.5, 3600.0, 400 * DAY):
            machine.pass_by(seconds)
            assert (clock(), clock.is_held) == (machine.wall, False)
        machine.wall -= STEP - 1
        assert clock() == machine.wall

    @pytest.mark.parametrize("step", [10 * DAY, -10 * DAY, STEP + 1, -STEP - 1])
    def test_a_jump_is_not_believed_and_going_back_is(self, step: float):
        machine = Machine()
        clock = machine.clock()
        machine.pass_by(100)
        machine.wall += step
        assert (clock(), clock.is_held) == (NOON + 100, True)
        machine.pass_by(45)
        assert clock() == NOON + 145
        machine.wall -= step
        assert (clock(), clock.is_held) == (NOON + 145, False)

    @pytest.mark.parametrize("step", [10 * DAY, 2 * DAY, -DAY, 0])
    @pytest.mark.parametrize("away", [3600, 365 * DAY])
    def test_a_new_process_is_not_taken_in(self, step: float, away: float):
        """As long as the machine runs on, it knows how long the process was away."""
        machine = Machine()
        last = machine.clock().moment
        machine.pass_by(away)
        machine.wall += step
        clock = machine.resumed(last)
        assert (clock(), clock.is_held) == (NOON + away, step != 0)

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
        clock = machine.resumed(last)
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
        clock = machine.resumed(last)
        assert not clock.is_settled
        machine.pass_by(200)
        assert clock() == machine.wall
        machine.wall -= 14 * 3600
        assert (clock(), clock.is_held) == (machine.wall, False)
        machine.pass_by(SETTLING)
        assert clock.is_settled
        machine.wall += 14 * 3600
        assert clock.is_held

    @pytest.mark.parametrize("restarts", [False, True])
    def test_small_steps_and_restarts_add_up_to_a_jump(self, restarts: bool):
        machine = Machine()
        clock = machine.clock()
        for _ in range(5):
            machine.pass_by(30)
            machine.wall += 0.9 * STEP
            clock = machine.resumed(clock.moment) if restarts else clock
            clock()
        assert (clock(), clock.is_held) == (NOON + 150, True)

    def test_a_jump_between_two_looks(self):
        """The clock is read once for each answer."""
        times = iter([NOON, NOON, NOON + 10 * DAY, NOON + 10 * DAY])
        clock = GuardedClock(wall=lambda: next(times), uptime=lambda: 0.0, boot=lambda: "b")
        assert [clock(), clock()] == [NOON, NOON]

    def test_where_the_system_does_not_tell_its_boots(self):
        machine = Machine()
        machine.boot = ""
        last = machine.clock().moment
        machine.pass_by(3600)
        machine.wall += 10 * DAY
        assert machine.resumed(last).is_held

    def test_the_real_one(self):
        clock = GuardedClock()
        assert not clock.is_held
        clock.resume(Moment(clock() - 5, clock.moment.origin, clock.moment.boot))
        assert not clock.is_held


Story = Callable[[World], Awaitable[None]]


async def swept(world: World) -> list[str]:
    """Sweep, and return the states of the plan's crowds, read where the collector's sweeps run."""
    collector = world.collector
    await collector.service.in_store(collector.store.sweep)
    found = await collector.service.in_store(collector.store.crowds, WINDOWED.id)
    return [one.state for one in found]


async def publish(world: World) -> None:
    await world.publish(WINDOWED)
    await swept(world)


class TestCollector:
    @pytest.fixture
    def machine(self) -> Machine:
        return Machine()

    @pytest.fixture
    def run(self, machine: Machine, tmp_path: Path) -> Callable[[Story], None]:
        """Run a story with a collector of the machine."""
        return lambda story: in_world(story, tmp_path / "data", machine.clock(), min_crowd=1)

    def test_ten_days_ahead_for_a_while(self, machine: Machine, run: Callable[[Story], None]):
        """Open crowds stay, reports are taken as before, and everybody hears of it."""
        window = int(machine.wall // DAY)

        async def story(world: World) -> None:
            await world.publish(WINDOWED)
            relay, collector = await world.relay(), world.collector
            half = upload(WINDOWED, WINDOWED.reports_needed // 2, 1, window)
            assert (await world.upload(half, relay)).status_code == 202
            machine.wall += 10 * DAY
            await swept(world)
            collector.service._check_clock()
            ready = await world.ask("console", "GET", "/readyz")
            assert ready.status_code == 503
            assert ready.json()["type"] == "urn:shoal:problem:clock-held"
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
            states = await swept(world)
            collector.service._check_clock()
            assert (await world.ask("console", "GET", "/readyz")).status_code == 200
            assert "trusted again" in world.log.getvalue()
            assert "discarded" not in states
            assert states.count("released") == 1

        run(story)

    def test_an_admin_accepts_it(self, machine: Machine, run: Callable[[Story], None]):
        window = int(machine.wall // DAY)

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
            assert (await swept(world)).count("discarded") == 3
            tenths = 10 * 30 // WINDOWED.reports_needed
            lost = WINDOWED.reports_needed * tenths // 10
            metrics = collector.administration.metrics_text()
            assert b"shoal_crowds_discarded_total 3.0" in metrics
            assert b"shoal_reports_discarded_total %.1f" % lost in metrics
            lines = [json.loads(line) for line in world.log.getvalue().splitlines()]
            ended = [line["progress"] for line in lines if line["event"] == "crowd discarded"]
            assert sorted(ended) == [0, 0, 10 * tenths]

        run(story)

    def test_a_restart_of_the_process_does_not_let_it_in(
        self, machine: Machine, run: Callable[[Story], None]
    ):
        async def second(world: World) -> None:
            assert world.collector.service.clock_is_held
            assert set(await swept(world)) == {"open"}

        run(publish)
        machine.pass_by(90)
        machine.wall += 2 * DAY
        run(second)
        machine.restart(8 * DAY)
        run(second)

    def test_nothing_is_destroyed_right_after_a_boot(
        self, machine: Machine, run: Callable[[Story], None]
    ):
        async def second(world: World) -> None:
            assert set(await swept(world)) == {"open"}
            machine.wall -= 2.5 * DAY  # it has asked others
            assert set(await swept(world)) == {"open"}
            machine.pass_by(SETTLING)
            assert set(await swept(world)) == {"open"}
            machine.pass_by(3 * DAY)
            assert "discarded" in await swept(world)

        run(publish)
        machine.restart(2.5 * DAY)
        run(second)

    def test_a_late_server_asks_devices_to_come_again(
        self, machine: Machine, run: Callable[[Story], None]
    ):
        async def story(world: World) -> None:
            await world.publish(WINDOWED)
            answer = await world.upload(upload(WINDOWED, 1, 1, int(machine.wall // DAY) + 2))
            assert answer.status_code == problems.WINDOW_NOT_OPEN.status == 425
            assert answer.headers["retry-after"]

        run(story)

    def test_what_is_kept_of_the_time(self, tmp_path: Path):
        """To the minute, and nothing in a backup."""
        with closing(Store(tmp_path, clock=Machine(NOON + 37.25).clock())) as store:
            store.sweep()
            facts = dict(store.database.execute("SELECT name, value FROM facts"))
        assert int(facts["time"]) == NOON
        assert facts["boot"] == "first"
