"""Parties on one machine, thousands of devices, and the view of each party.

The parties are a leader, a helper and an analyst, or a relay and an analyzer. Each is the service
of its command in a process of its own, with a folder that `shoal parties setup --both` made.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock
from typing import Any, NamedTuple

from shoal.device.outbox import HttpTransport, PostResult
from shoal.device.outbox.retry import Posting
from shoal.errors import ShoalError
from shoal.lab.demo import (
    Answer,
    console_get,
    devices_folder,
    free_port,
    made_up_people,
    run_command,
    running,
    scratch_folder,
    send_all,
    send_one,
    with_truth,
)
from shoal.planning.plan import plan as make_plan
from shoal.protocol.plan import Plan
from shoal.protocol.survey import Survey

_ASK_EVERY = 0.2
_SERVICE_TIMEOUT = 300.0
"""Seconds until the relay must have a crowd's key, and the analyzer must have decrypted a crowd."""


@dataclass(frozen=True)
class PartiesCrowd:
    """One crowd that went through several parties.

    `request` is what the first party received from one device, `early` the status that the last one
    answered about the crowd while it was one report short.
    """

    plan: Plan
    estimates: dict[str, Any]
    request: bytes
    early: int


def demonstrate_shares(
    survey: Survey, users: int, *, seed: int, progress: Callable[[int], None] = lambda done: None
) -> PartiesCrowd:
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
            token = (data / "analyst" / "admin-token").read_text("utf-8").strip()
            story = stage.play(
                led["public"], keys["leader"], (read["console"], token), seed, progress
            )
    return PartiesCrowd(stage.plan, *story)


def demonstrate_relay(
    survey: Survey, users: int, *, seed: int, progress: Callable[[int], None] = lambda done: None
) -> PartiesCrowd:
    """Plan for a relay and an analyzer, collect one crowd through them, and look at it."""
    stage = _Stage(survey, users, "relay", "analyzer")
    with scratch_folder() as data:
        keys = stage.set_up(data)
        analyzer = stage.words("analyzer", "--honest", "all")
        with (
            running("analyzer", analyzer, data / "analyzer") as read,
            running("relay", stage.words("relay"), data / "relay") as relayed,
        ):
            _wait_for(relayed["public"], f"/v1/plans/{stage.plan.id}/crowd-key?window=0", "")
            token = (data / "analyzer" / "admin-token").read_text("utf-8").strip()
            reader = (read["console"], token)
            story = stage.play(relayed["public"], keys["analyzer"], reader, seed, progress)
    return PartiesCrowd(stage.plan, *story)


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
        reader: tuple[str, str],
        seed: int,
        progress: Callable[[int], None],
    ) -> tuple[dict[str, Any], bytes, int]:
        """Let all devices send to a party, and read the crowd at a console with a token.

        Returns the estimates beside the truth, the first request, and the status of an answer
        about the crowd while it was one report short.
        """
        people = list(made_up_people(self.plan.survey, self.plan.reports_needed, seed))
        sent: list[bytes] = []
        guard = Lock()

        def send(answer: Answer, folder: Path, over: Event) -> None:
            transport = _Watched(url, key, sent, guard)
            send_one(self.plan.id, answer, transport, folder, over, one_operator=True)

        console, token = reader
        crowd = f"/v1/plans/{self.plan.id}/crowds/1/estimates"
        *most, last = people
        with devices_folder() as devices:
            send_all(most, send, devices, progress)
            early, _ = console_get(console, crowd, token)
            send(last, devices / "last", Event())
            progress(1)
            estimates = _wait_for(console, crowd, token)
        return with_truth(estimates, people), sent[0], early


def _wait_for(url: str, path: str, token: str) -> dict[str, Any]:
    """Return a document as soon as the service has it."""
    end = time.monotonic() + _SERVICE_TIMEOUT
    while True:
        status, content = console_get(url, path, token)
        if status == 200:
            document: dict[str, Any] = json.loads(content)
            return document
        if time.monotonic() > end:
            raise ShoalError(f"{url}{path} still answers {status}.")
        time.sleep(_ASK_EVERY)


class _Watched(HttpTransport):
    """The transport of a device, which keeps a copy of what the first device sent."""

    def __init__(self, url: str, key: str, sent: list[bytes], guard: Lock) -> None:
        super().__init__(url, public_key=key)
        self._sent, self._guard = sent, guard

    @contextmanager
    def kept_open(self) -> Iterator[Any]:
        """Yield what posts reports, and looks at them."""
        with super().kept_open() as sending:
            yield _Copying(sending, self._sent, self._guard)


class _Copying(NamedTuple):
    sending: Posting
    sent: list[bytes]
    guard: Lock

    def post_report(self, plan_id: str, content: bytes) -> PostResult:
        """Post a report, and keep what is posted if it is the first one."""
        with self.guard:
            if not self.sent:
                self.sent.append(content)
        return self.sending.post_report(plan_id, content)
