"""The process beside the tool: one report per window, whatever happens to it."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest

from shoal.device.telemetry import consent, state
from shoal.device.telemetry.log import MAX_BYTES, Log, LoggedRequest
from shoal.device.telemetry.worker import read_events
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Memory
from tests.device.outbox_help import Server, reply
from tests.device.telemetry_help import (
    PLAN,
    WEEK,
    World,
    a_persons_environment,
    received,
    tool_command,
    world_of_tools,
)
from tests.faults import Crash, Faults


@pytest.fixture
def world(tmp_path: Path, server: Server) -> World:
    world = World(tmp_path, server.url).say_yes()
    return world


class TestWindows:
    """A flip has probability 2^-16 here, and the suite's random bits repeat."""

    def test_one_report_of_all_that_happened_in_a_window(self, world: World, server: Server):
        for name in ("c1", "c2", "c1", "c9"):
            world.run(name)
            world.work()
        assert server.connections == []  # not before the window is over
        world.next_window()
        for _ in range(3):
            world.run("c5")
            world.work()
        assert list(received(server).values()) == [(3001, {"c1", "c2", "c9"})]
        world.report()
        assert sorted(received(server).values()) == [(3001, {"c1", "c2", "c9"}), (3002, {"c5"})]

    def test_after_months_away(self, world: World, server: Server):
        world.report("c1", windows=20)
        assert list(received(server).values()) == [(3020, {"c1"})]

    def test_windows_in_which_nothing_could_be_done(self, world: World, server: Server):
        """Of several windows that wait, the last one is reported."""
        for name in ("c1", "c2", "c3"):
            world.run(name)
            world.next_window()
        world.work()
        assert list(received(server).values()) == [(3003, {"c3"})]
        assert not list(world.home.glob("*/events.*"))

    def test_no_use_no_report(self, world: World, server: Server):
        world.report()
        assert server.connections == []

    def test_a_clock_that_is_set_back_and_forth(self, world: World, server: Server):
        """Whatever it says, a window's number has one report at most."""
        for step in (1, -1, 1, 1, -2, 3, -1, 0, 1):
            world.report(f"c{10 + step}", windows=step)
        windows = [window for window, _ in received(server).values()]
        assert len(windows) == len(set(windows)) > 2

    def test_a_plan_for_several_reports_still_gets_one(self, tmp_path: Path, server: Server):
        world = World(tmp_path, server.url, replace(PLAN, max_reports_per_person=5)).say_yes()
        world.report("c1")
        world.next_window(-1)
        world.report("c2")
        assert len(received(server, world.plan)) == 1
        world.report()  # what happened meanwhile is not lost
        assert [told for _, told in received(server, world.plan).values()] == [{"c1"}, {"c2"}]

    def test_the_server_is_away(self, world: World, server: Server):
        """The same bytes are sent again, in the window and the next one, and then dropped."""
        server.answers += [reply(503)] * 2
        world.run("c1")
        world.next_window()
        for _ in range(3):
            world.work()
            world.clock.now += 3600
        assert len(server.requests) == 3
        assert len(received(server)) == 1

    def test_a_report_that_is_too_late_is_dropped(self, tmp_path: Path):
        world = World(tmp_path, "http://127.0.0.1:9").say_yes()
        world.report("c1")
        assert "1 waiting" in consent.status(world.tool())
        world.report(windows=3)
        assert "0 sent, 0 waiting" in consent.status(world.tool())

    def test_the_limit_ends_it(self, tmp_path: Path, server: Server):
        limit = int(PLAN.local_epsilon * 2) + 1
        world = World(tmp_path, server.url, limit=limit).say_yes()
        for _ in range(4):
            world.report("c1")
        assert len(received(server)) == 2
        told = consent.status(world.tool())
        assert f"more than this device's limit of {limit}" in told
        assert "2 sent" in told

    def test_the_limit_is_on_the_reports_of_all_plans_together(
        self, tmp_path: Path, server: Server
    ):
        """Another version of the tool does not begin anew."""
        limit = int(PLAN.local_epsilon * 2) + 1
        world = World(tmp_path, server.url, limit=limit).say_yes()
        world.report("c1")
        world.plan = replace(PLAN, crowd_size=99)
        world.say_yes()
        for _ in range(2):
            world.report("c2")
        assert len(server.requests) == 2
        assert "is over: the limit is reached." in consent.status(world.tool())
        assert f"above the limit {limit}" in str(world.tool().problem)

    def test_values_that_were_dropped_are_noted(self, world: World, server: Server):
        world.run("c1", "secret-project")
        world.next_window()
        world.work()
        assert list(received(server).values()) == [(3001, {"c1"})]
        told = world.tool().problem
        assert told == "Question 'command': a value that does not fit it was dropped."
        assert f"Last problem: {told}" in consent.status(world.tool())
        world.report("c2")
        assert world.tool().problem is None

    def test_windows_that_were_dropped_are_noted(self, world: World):
        for name in ("c1", "c2", "c3"):
            world.run(name)
            world.next_window()
        world.work()
        assert str(world.tool().problem).startswith("The answers of 2 earlier windows were dropped")

    def test_events_that_were_taken_are_not_overwritten(self, world: World, server: Server):
        """A worker was killed, and a slow tool wrote into the past window meanwhile."""
        world.run("c1")
        world.next_window()
        (events,) = world.home.glob("*/events.3000")
        events.replace(events.with_name("taken.3001"))
        world.next_window(-1)
        world.run("c2")
        world.next_window()
        world.work()
        assert list(received(server).values()) == [(3001, {"c1"})]
        world.report()
        assert sorted(received(server).values()) == [(3001, {"c1"}), (3002, {"c2"})]

    def test_a_plan_with_memory(self, tmp_path: Path, server: Server):
        """One permanent vector for one answer, and a key that is kept."""
        memory = Memory(FlipProbability(1, 16), FlipProbability(1, 16))
        world = World(tmp_path, server.url, replace(PLAN, q=memory.q, memory=memory)).say_yes()
        for _ in range(2):
            world.report("c1")
        assert len(received(server, world.plan)) == 2
        assert (world.home / "memory.key").stat().st_mode & 0o077 == 0
        assert "that factor stays below" in consent.status(world.tool())

    def test_two_at_once(self, world: World, server: Server, monkeypatch: pytest.MonkeyPatch):
        """While one works, another one leaves it alone."""
        world.run("c1")
        world.next_window()
        usual = server.usual

        def meanwhile(handler: object) -> None:
            world.work()
            usual(handler)  # type: ignore[arg-type]

        server.answers.append(meanwhile)
        world.work()
        assert len(server.requests) == 1


class TestTurnedOff:
    def test_between_making_and_sending(self, world: World, server: Server, monkeypatch):
        from shoal.device.outbox import Outbox

        world.run("c1")
        world.next_window()
        send = Outbox.send_due

        def late(box: Outbox, **options: bool) -> object:
            state.say_no(str(world.home))
            return send(box, **options)

        monkeypatch.setattr(Outbox, "send_due", late)
        world.work()
        assert server.connections == []

    def test_a_report_that_waits_is_dropped_and_its_window_is_used_up(self, tmp_path, server):
        world = World(tmp_path, server.url).say_yes()
        world.run("c1")
        world.next_window()
        server.answers.append(reply(503))
        world.work()
        consent.off(world.tool())
        assert not list(world.home.glob("*/outbox/*.waiting"))
        world.say_yes()
        world.next_window(-1)
        world.run("c2")
        world.next_window()
        world.clock.now += 3600
        world.work()
        assert len(received(server)) == 1  # the one that was answered 503, and may have arrived

    def test_deleted_and_turned_on_in_one_window(self, world: World, server: Server):
        """Although nothing is known any more, there is no second report in the window."""
        world.report("c1")
        assert "was deleted" in consent.delete(world.tool())
        assert sorted(path.name for path in world.home.rglob("*")) == ["off", "quiet"]
        world.say_yes()
        world.next_window(-1)
        world.report("c2")
        assert len(received(server)) == 1
        world.report()
        assert [told for _, told in received(server).values()] == [{"c1"}, {"c2"}]


@contextmanager
def crashing(monkeypatch: pytest.MonkeyPatch, faults: Faults) -> Iterator[None]:
    """Die before any call that changes a file; nothing is synced, so that it is quick."""
    with monkeypatch.context() as patch:
        for name in ("replace", "unlink", "open"):
            real = getattr(os, name)

            def dying(*args, _real=real, _name=name, **named):
                if _name != "open" or args[1] & os.O_WRONLY:
                    faults.step(_name)
                return _real(*args, **named)

            patch.setattr(os, name, dying)
        yield


def crash_at(tmp_path: Path, server: Server, monkeypatch, step: int | None) -> Faults:
    """Kill the worker at a step, let another one do the work, and go on to the next window."""
    server.requests.clear()
    world = World(tmp_path / f"{step}", server.url).say_yes()
    world.run("c1")
    world.next_window()
    world.run("c2")
    faults = Faults(step)
    with crashing(monkeypatch, faults), suppress(Crash):
        world.work()
    world.clock.now += 3600
    with crashing(monkeypatch, Faults()):
        world.work()
        world.report()
    windows = sorted(received(server).values())
    assert windows == [(3001, {"c1"}), (3002, {"c2"})], (step, faults.labels)
    return faults


class TestCrashes:
    def test_killed_anywhere(self, tmp_path: Path, server: Server, monkeypatch):
        steps = len(crash_at(tmp_path, server, monkeypatch, None).labels)
        assert steps > 20
        for step in range(steps):
            crash_at(tmp_path, server, monkeypatch, step)

    def test_killed_and_found_a_window_later(self, tmp_path: Path, server: Server, monkeypatch):
        """The report was stored, its events were not deleted: they are not reported again."""
        world = World(tmp_path, server.url).say_yes()
        world.run("c1")
        world.next_window()
        with monkeypatch.context() as patch:
            patch.setattr("shoal.device.telemetry.worker.Path.unlink", self.die)
            with pytest.raises(Crash):
                world.work()
        assert list(world.home.glob("*/taken.3001"))
        world.report()
        assert list(received(server).values()) == [(3001, {"c1"})]
        assert not list(world.home.glob("*/taken.*"))

    @staticmethod
    def die(*args: object, **named: object) -> None:
        raise Crash

    def test_a_tool_that_is_killed_loses_nothing(self, tmp_path: Path, server: Server):
        """What `record` has taken is there, though nothing else of the tool's run is."""
        world = world_of_tools(tmp_path, server.url)
        command = tool_command(tmp_path, server.url, "c1", "c2")
        command[2] = command[2].replace("telemetry.flush()", "print(flush=True); sys.stdin.read()")
        for _ in range(2):
            with subprocess.Popen(
                command,
                env=a_persons_environment(tmp_path),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            ) as process:
                assert process.stdout is not None
                process.stdout.readline()
                process.send_signal(signal.SIGKILL)
        (file,) = world.home.glob("*/events.*")
        assert [values["command"] for _, values in read_events(file.read_bytes())] == ["c1", "c2"]

    @pytest.mark.slow
    def test_many_tools_at_once(self, tmp_path: Path, server: Server):
        world = world_of_tools(tmp_path, server.url)
        running = [
            subprocess.Popen(
                tool_command(tmp_path, server.url, *(f"c{10 * number + i}" for i in range(10))),
                env=a_persons_environment(tmp_path),
            )
            for number in range(4)
        ]
        assert [process.wait(120) for process in running] == [0] * 4
        (file,) = world.home.glob("*/events.*")
        found = {values["command"] for _, values in read_events(file.read_bytes())}
        assert found == {f"c{number}" for number in range(40)}


class TestShow:
    """`show` is what left, byte for byte."""

    def test_it_is_what_the_server_received(self, tmp_path: Path):
        with socket.create_server(("127.0.0.1", 0)) as listening:
            wire: list[bytes] = []
            thread = Thread(target=self.receive, args=(listening, wire))
            thread.start()
            world = World(tmp_path, f"http://127.0.0.1:{listening.getsockname()[1]}").say_yes()
            world.report("c1", "c3")
            thread.join()
        (shown,) = json.loads(consent.show_json(world.tool()))
        assert base64.b64decode(shown["sent"]) == b"".join(wire)
        assert shown["status"] == 202
        text = consent.show(world.tool())
        rows = re.findall(r"^  ((?:[0-9a-f]{2})+)$", text, re.M)
        assert bytes.fromhex("".join(rows)) == b"".join(wire).partition(b"\r\n\r\n")[2]
        assert "User-Agent: shoal/" in text
        assert "command: set: c1, c3" in text
        assert "window: 3001" in text

    @staticmethod
    def receive(listening: socket.socket, wire: list[bytes]) -> None:
        listening.settimeout(60)
        connection, _ = listening.accept()
        with connection:
            connection.settimeout(60)
            size, body = None, b""
            while size is None or len(body) < size:
                wire.append(connection.recv(65536))
                head, _, body = b"".join(wire).partition(b"\r\n\r\n")
                found = re.search(rb"Content-Length: (\d+)\r\n", head + b"\r\n")
                size = int(found[1]) if found else None
            connection.sendall(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")

    def test_every_attempt_is_there(self, world: World, server: Server):
        server.answers += [reply(503), reply(503)]
        world.run("c1")
        world.next_window()
        for _ in range(3):
            world.work()
            world.clock.now += 3600
        requests = json.loads(consent.show_json(world.tool()))
        assert [one["status"] for one in requests] == [503, 503, 202]
        bodies = [base64.b64decode(one["sent"]).partition(b"\r\n\r\n")[2] for one in requests]
        assert bodies == [body for *_, body in server.requests]

    def test_it_is_written_before_it_leaves(self, world: World, server: Server):
        seen: list[bytes] = []

        def look(handler: object) -> None:
            seen.append((world.home / "log").read_bytes())
            server.usual(handler)  # type: ignore[arg-type]

        server.answers.append(look)
        world.report("c1")
        assert base64.b64encode(server.requests[0][3]) in seen[0]

    def test_a_log_does_not_grow_for_ever(self, tmp_path: Path):
        log = Log(tmp_path / "log", lambda: 5.0)
        for number in range(12):
            log.begin("https://x.example")
            log.sent(bytes([number]) * (MAX_BYTES // 10))
            log.answered(202)
        assert (tmp_path / "log").stat().st_size < 2 * MAX_BYTES
        requests = log.requests()
        assert requests[-1] == LoggedRequest(
            5.0, "https://x.example", b"\x0b" * (MAX_BYTES // 10), 202
        )
        assert all(len(one.sent) == MAX_BYTES // 10 for one in requests)
        assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600

    def test_a_damaged_log(self, tmp_path: Path):
        (tmp_path / "log").write_bytes(
            b'{"sent": "AAAA"}\n{"to": 1}\n\xff\n[]\n{"at": "x", "to": 2}\n3\n'
            + b"[" * 100_000
            + b"\n"
        )
        assert Log(tmp_path / "log", lambda: 0.0).requests() == []
        log = Log(tmp_path / "log", lambda: 1.0)
        log.begin("https://x.example")
        log.sent(b"abc")
        with (tmp_path / "log").open("ab") as file:
            file.write(b"[]\n")
        assert [one.sent for one in log.requests()] == [b"abc"]


def test_the_worker_alone_has_nothing_to_do(tmp_path: Path):
    """Started by hand, in a folder where nobody said yes."""
    script = "import sys; from shoal.device.telemetry.worker import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", script, "mytool", str(tmp_path), "00000000"]
    done = subprocess.run(command, capture_output=True, env=a_persons_environment(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert list(tmp_path.iterdir()) == []


def test_the_next_start_is_when_something_is_due(world: World, server: Server):
    """Not in every run: when the window is over, or when a report that waits is due."""
    (due,) = world.home.glob("*/due")
    assert int(due.read_bytes().split()[0]) == 3001 * WEEK
    world.run("c1")
    world.next_window()
    server.answers.append(reply(503))
    world.work()
    assert int(due.read_bytes().split()[0]) <= world.clock() + 31
    world.clock.now += 3600
    world.work()
    assert int(due.read_bytes().split()[0]) == 3002 * WEEK + 1
