"""Devices in Python, JavaScript and Go, a real leader and helper, and `shoal collect`.

What is collected is the sum of the very bits that the devices stored before they sent anything.
"""

from __future__ import annotations

import base64
import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import ClassVar

import numpy as np
import pytest

from shoal import Plan
from shoal.lab.demo import free_port
from shoal.protocol.dap import SecretKey
from shoal.protocol.dap.messages import HpkeConfigList
from shoal.protocol.plan import Aggregators, Promise
from shoal.protocol.wire import split_batch
from tests.clients.go_help import CLIENT, GO
from tests.clients.js_help import NODE, run_driver
from tests.clients.test_telemetry_clients import CLIENTS, EXAMPLE, PATIENCE, Person, Tool
from tests.device.outbox_help import stored_record
from tests.device.telemetry_help import World
from tests.server.aggregation.test_kills import Party
from tests.server.aggregation.world import set_up
from tests.server.serving_help import QuietHandler, clean_environment, handled_by

pytestmark = [
    pytest.mark.skipif(GO is None or NODE is None, reason="no go or no node in PATH"),
    pytest.mark.slow,
]

WEEK = 7 * 86_400
PAGES, EACH = 6, 2
CROWD = PAGES + 4 * EACH
ANSWER = {"command": ["count"], "platform": "linux", "runs": 3}


class Deployment:
    """A leader and a helper, which are not running yet, and the plan of both."""

    def __init__(self, folder: Path, ports: tuple[int, ...] = (), crowd: int = CROWD) -> None:
        self.folder, self.ports = folder, ports or tuple(free_port() for _ in range(4))
        # Two hosts, as far as a plan can tell.
        origins = f"http://127.0.0.1:{self.ports[0]}", f"http://localhost:{self.ports[1]}"
        parties = Aggregators(*origins, max_weight=4)
        # Its epsilon is above the local one, so that so small a crowd keeps the promise.
        promise = Promise("proven", "40", delta="1e-6")
        self.plan = replace(
            Plan.read(EXAMPLE), view="counts", promise=promise, crowd_size=crowd, parties=parties
        )
        self.file, self.leader = folder / "plan.json", origins[0]
        self.plan.write(self.file)
        set_up(folder / "parties", *origins)

    @contextmanager
    def running(self, *more: str) -> Iterator[None]:
        folder, ports = self.folder / "parties", self.ports
        wide = ("--max-share-percent", "100")
        with (
            Party("leader", folder, self.file, (ports[0], ports[2]), *wide, *more),
            Party("helper", folder, self.file, (ports[1], ports[3]), *more),
        ):
            yield

    def collected(self) -> list[int]:
        """Return the counts of the one batch."""
        folder, end = self.folder, time.monotonic() + PATIENCE
        out = folder / "tallies"
        command = [
            *(sys.executable, "-m", "shoal", "collect", "--data", f"{folder}/parties/analyst"),
            *("--honest", "all", "--min-crowd", "1", "--min-free-megabytes", "0"),
            *("--once", str(out), str(self.file)),
        ]
        while not (files := list(out.rglob("*.json"))):
            assert time.monotonic() < end, "no batch was full"
            done = subprocess.run(
                command, env=clean_environment(), capture_output=True, text=True, check=False
            )
            assert done.returncode in (0, 1), done.stderr
        (file,) = files
        tally = json.loads(file.read_text())
        assert tally["reports"] == self.plan.crowd_size
        counts: list[int] = tally["by_bit"]
        return counts


@pytest.fixture
def tools(tmp_path: Path) -> Callable[[Path], list[Tool]]:
    """Return a function that makes the example of Go and of Node.js for a plan."""
    folder = tmp_path / "tools"

    def make(plan: Path) -> list[Tool]:
        copy = folder / "go"
        shutil.copytree(CLIENT, copy)
        shutil.copy(plan, copy / "example" / "plan.json")
        assert GO is not None
        subprocess.run([GO, "build", "-o", folder / "wordy", "./example"], cwd=copy, check=True)
        js = CLIENTS / "js"
        script = (js / "example" / "wordy.js").read_text()
        script = script.replace("../telemetry.js", (js / "telemetry.js").as_uri())
        script = script.replace("../../../examples/telemetry/plan.json", plan.as_uri())
        (folder / "wordy.mjs").write_text(script)
        assert NODE is not None
        worker = [NODE, str(js / "src" / "node" / "worker.js")]
        return [
            Tool([str(folder / "wordy")], [str(folder / "wordy")], is_go=True),
            Tool([NODE, str(folder / "wordy.mjs")], worker, is_go=False),
        ]

    return make


def bits_of(row: bytes) -> int:
    return int.from_bytes(row, "little")


class Telling:
    """A person with telemetry in Go or Node.js, whose report is made before anybody takes it."""

    def __init__(self, tool: Tool, home: Path, leader: str) -> None:
        home.mkdir()
        self.person = Person(tool, home, leader)
        self.person.use_last_week()
        assert self.person.worker().wait(PATIENCE) == 0
        (report,) = self.person.reports()
        assert report["state"] == "waiting"
        self.row = self._row(report["row"])

    def _row(self, text: str) -> int:
        is_go = self.person.tool.is_go
        return bits_of(base64.b64decode(text) if is_go else bytes.fromhex(text))

    def send(self) -> None:
        self.person.make_due()
        assert self.person.worker().wait(PATIENCE) == 0
        assert self.person.is_sent(), self.person.run("telemetry status")


def send(outbox: Path, leader: str, *words: str) -> str:
    """Run `shoal send`, and return what it prints."""
    command = [
        *(sys.executable, "-m", "shoal", "send", *words, "--to", leader),
        *("--outbox", str(outbox), "--now", "--json"),
    ]
    done = subprocess.run(
        command,
        input=json.dumps(ANSWER),
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    return done.stdout


def make_due(folder: Path) -> None:
    """Let the next attempt come now."""
    (file,) = folder.glob("*.waiting")
    file.write_bytes(stored_record(folder)._replace(due=0.0).to_bytes())


def test_every_client_is_counted_exactly(
    tools: Callable[[Path], list[Tool]], tmp_path: Path
) -> None:
    deployment = Deployment(tmp_path)
    plan, leader = deployment.plan, deployment.leader
    told = [
        Telling(tool, tmp_path / f"{number}{tool.is_go}", leader)
        for tool in tools(deployment.file)
        for number in range(EACH)
    ]
    sent = [one.row for one in told]

    outboxes = [tmp_path / f"outbox{number}" for number in range(EACH)]
    worlds = [World(tmp_path / f"python{number}", leader, plan, limit=60) for number in range(EACH)]
    for outbox in outboxes:
        assert '"waiting"' in send(outbox, leader, str(deployment.file), "--from", "-")
        sent.append(bits_of(split_batch(plan, stored_record(outbox).batch).content[20:]))
    for world in worlds:
        world.clock.now = time.time() - WEEK
        world.say_yes().tool().record(**ANSWER)
        world.report()
        (folder,) = {path.parent for path in world.home.rglob("*.waiting")}
        sent.append(bits_of(split_batch(plan, stored_record(folder).batch).content[20:]))

    with deployment.running():
        for one in told:
            one.send()
        for outbox in outboxes:
            make_due(outbox)
            assert '"sent"' in send(outbox, leader)
        options = {"plan": plan.id, "to": leader, "limit": plan.local_epsilon, "dap": True}
        pages = json.dumps({"options": options, "answers": [ANSWER] * PAGES}).encode()
        answered = json.loads(run_driver(pages, "people"))
        assert [(state, why) for _, state, why in answered] == [("sent", None)] * PAGES
        sent += [sum(1 << place for place in places) for places, _, _ in answered]
        for world in worlds:
            world.clock.now = time.time() + 60
            world.work()
        counts = deployment.collected()
    expected = [sum(one >> place & 1 for one in sent) for place in range(plan.bits)]
    assert counts == expected
    assert max(one.bit_count() for one in sent) <= 4
    assert np.sum(counts) > 0


class Taking(QuietHandler):
    """A leader and a helper in one: takes about every second upload, and keeps all of them."""

    bodies: ClassVar[list[bytes]] = []
    lock: ClassVar[Lock] = Lock()
    chance: ClassVar[random.Random] = random.Random(5)

    def do_GET(self) -> None:
        window = int(time.time() // WEEK)
        key = SecretKey(window % 256, b"k" * 32).public
        self._respond(200, HpkeConfigList((key,)).to_bytes())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with self.lock:
            self.bodies.append(body)
            status = 200 if self.chance.random() < 0.5 else 503
        self._respond(status, b"")

    def _respond(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def test_kills_leave_one_report_and_one_version_of_its_shares(
    tools: Callable[[Path], list[Tool]], tmp_path: Path
) -> None:
    """Killed at any moment, started several times at once."""
    chance = random.Random(12)
    Taking.bodies.clear()
    with handled_by(Taking) as port:
        deployment = Deployment(tmp_path, (port, port))
        for number, tool in enumerate(tools(deployment.file) * 4):
            person = Person(tool, tmp_path / str(number), deployment.leader)
            before = len(Taking.bodies)
            longest = 0.06 if tool.is_go else 0.4  # Node.js takes longer to start than Go.
            person.send_between_kills(chance.random() * longest for _ in range(8))
            assert len(set(Taking.bodies[before:])) == 1
            left = {path.name for path in person.folder.rglob("*") if path.is_file()}
            assert not any(name.startswith("shares.") for name in left)
            kept = b"".join(path.read_bytes() for path in person.folder.rglob("report*"))
            assert b"shares" not in kept
