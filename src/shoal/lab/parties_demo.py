"""Parties on one machine, thousands of devices, and the view of each party.

The parties are a leader, a helper and an analyst, or a relay and an analyzer. Each is the service
of its command in a process of its own, with a folder that `shoal parties setup --both` made.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

from shoal.device.outbox import HttpTransport, PostResult
from shoal.lab.demo import (
    Answer,
    Demonstration,
    admin_token,
    collect_crowd,
    free_port,
    run_command,
    running,
    scratch_folder,
    send_one,
    wait_for,
)
from shoal.planning.plan import plan as make_plan
from shoal.protocol.survey import Survey


def demonstrate_shares(
    survey: Survey, users: int, *, seed: int, progress: Callable[[int], None] = lambda done: None
) -> Demonstration:
    """Plan for a leader and a helper, collect one crowd from them, and look at it."""
    stage = _Stage(survey, users, "leader", "helper", view="counts", window="1w")
    with scratch_folder() as data:
        keys = stage.set_up(data, "--role", "leader", analyst="http://127.0.0.1:1")
        collect = [*("collect", "--honest", "all", "--console", "127.0.0.1:0"), str(stage.file)]
        with (
            running("helper", stage.words("helper"), data / "helper"),
            running("leader", stage.words("leader"), data / "leader") as led,
            running("analyst", [*collect, "--collect-seconds", "1"], data / "analyst") as read,
        ):
            console = read["console"], admin_token(data / "analyst")
            return stage.play(led["public"], keys["leader"], console, seed, progress)


def demonstrate_relay(
    survey: Survey, users: int, *, seed: int, progress: Callable[[int], None] = lambda done: None
) -> Demonstration:
    """Plan for a relay and an analyzer, collect one crowd through them, and look at it."""
    stage = _Stage(survey, users, "relay", "analyzer")
    with scratch_folder() as data:
        keys = stage.set_up(data)
        analyzer = stage.words("analyzer", "--honest", "all")
        with (
            running("analyzer", analyzer, data / "analyzer") as read,
            running("relay", stage.words("relay"), data / "relay") as relayed,
        ):
            wait_for(relayed["public"], f"/v1/plans/{stage.plan.id}/crowd-key?window=0", "")
            console = read["console"], admin_token(data / "analyzer")
            return stage.play(relayed["public"], keys["analyzer"], console, seed, progress)


class _Stage:
    """A plan for two parties on free ports of this machine, and what happens with it."""

    def __init__(self, survey: Survey, users: int, first: str, second: str, **more: Any) -> None:
        self._addresses = {role: f"127.0.0.1:{free_port()}" for role in (first, second)}
        self._urls = {role: f"http://{address}" for role, address in self._addresses.items()}
        self.plan = make_plan(
            survey, crowd_size=users, epsilon="1", delta="1e-6", **more | self._urls
        )
        self.file = Path()

    def set_up(self, data: Path, *options: str, **others: str) -> dict[str, str]:
        """Set up the parties' folders and write the plan; return the parties' signing keys."""
        urls = [f"--url={url}" for url in (self._urls | others).values()]
        words = ["parties", "setup", "--both", *options, "--data", str(data), "--json"]
        made = json.loads(run_command(*words, *urls))
        self.file = data / "plan.json"
        self.plan.write(self.file)
        return {role: made[role]["own"]["signing_key"] for role in self._urls}

    def words(self, role: str, *more: str) -> list[str]:
        """Return the command of a party."""
        address = ("--public", self._addresses[role], "--console", "127.0.0.1:0")
        return [role, *address, *more, str(self.file)]

    def play(
        self,
        url: str,
        key: str,
        console: tuple[str, str],
        seed: int,
        progress: Callable[[int], None],
    ) -> Demonstration:
        """Let all devices send to a party, and read the crowd at a console with a token."""
        sent: list[bytes] = []

        def send(answer: Answer, folder: Path, over: Event) -> None:
            transport = _Watched(url, public_key=key)
            send_one(self.plan.id, answer, transport, folder, over, one_operator=True)
            if not sent:
                sent.append(transport.sent)

        shown = collect_crowd(self.plan, send, console, seed, progress)
        return replace(shown, request=sent[0])


class _Watched(HttpTransport):
    """The transport of a device, which keeps a copy of what it sent."""

    sent = b""

    @contextmanager
    def kept_open(self) -> Iterator[Any]:
        """Yield what posts reports: this transport itself."""
        with super().kept_open() as self._sending:
            yield self

    def post_report(self, plan_id: str, content: bytes) -> PostResult:
        """Post a report, and keep what is posted."""
        self.sent = content
        return self._sending.post_report(plan_id, content)
