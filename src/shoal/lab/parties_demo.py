"""Two parties on one machine: a relay, an analyzer, thousands of devices, and their views.

Relay and analyzer are those of `shoal relay` and `shoal analyzer`, each in a process of its own,
with a folder that `shoal parties setup --both` made. Every device encrypts its report for the
analyzer and sends it to the relay.
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
from shoal.lab.demo import Answer, devices_folder, made_up_people, send_all, send_one, with_truth
from shoal.lab.services import console_get, free_port, run_command, running, scratch_folder
from shoal.planning.plan import plan as make_plan
from shoal.protocol.encryption import encrypted_batch_bytes
from shoal.protocol.plan import Plan
from shoal.protocol.survey import Survey

_ASK_EVERY = 0.2
_SERVICE_TIMEOUT = 300.0
"""Seconds until the relay must have a crowd's key, and the analyzer must have decrypted a crowd."""


@dataclass(frozen=True)
class TwoParties:
    """One crowd that went through two parties.

    `request` is what the relay received from one device, `early` the status that the analyzer
    answered about the crowd while the relay was one report short.
    """

    plan: Plan
    estimates: dict[str, Any]
    request: bytes
    early: int

    @property
    def messages(self) -> int:
        """How many encrypted messages of the crowd the analyzer received."""
        return self.plan.reports_needed * self.plan.messages

    @property
    def request_bytes(self) -> int:
        """How many bytes every device sent: the same for all."""
        return encrypted_batch_bytes(self.plan, 1)


def demonstrate_parties(
    survey: Survey, users: int, *, seed: int, progress: Callable[[int], None] = lambda done: None
) -> TwoParties:
    """Plan for counts with two parties, collect one crowd through them, and look at it."""
    addresses = {role: f"127.0.0.1:{free_port()}" for role in ("relay", "analyzer")}
    urls = {role: f"http://{address}" for role, address in addresses.items()}
    relay_url, analyzer_url = urls.values()
    plan = make_plan(
        survey,
        crowd_size=users,
        epsilon="1",
        delta="1e-6",
        view="counts",
        relay=relay_url,
        analyzer=analyzer_url,
    )
    people = list(made_up_people(survey, plan.reports_needed, seed))
    with scratch_folder() as data, devices_folder() as devices:
        words = ["parties", "setup", "--both", "--data", str(data), "--json"]
        made = json.loads(run_command(*words, *(f"--url={url}" for url in urls.values())))
        signing_key = made["analyzer"]["own"]["signing_key"]
        plan_file = data / "plan.json"
        plan.write(plan_file)
        relay, analyzer = (
            [role, "--public", address, "--console", "127.0.0.1:0", str(plan_file)]
            for role, address in addresses.items()
        )
        with (
            running("analyzer", [*analyzer, "--honest", "all"], data / "analyzer") as read,
            running("relay", relay, data / "relay") as relayed,
        ):
            _wait_for(relayed["public"], f"/v1/plans/{plan.id}/crowd-key?window=0", "")
            sent: list[bytes] = []
            guard = Lock()

            def send(answer: Answer, folder: Path, over: Event) -> None:
                transport = _Watched(relayed["public"], signing_key, sent, guard)
                send_one(plan.id, answer, transport, folder, over, one_operator=True)

            *most, last = people
            send_all(most, send, devices, progress)
            token = (data / "analyzer" / "admin-token").read_text("utf-8").strip()
            crowd = f"/v1/plans/{plan.id}/crowds/1/estimates"
            early, _ = console_get(read["console"], crowd, token)
            send(last, devices / "last", Event())
            progress(1)
            estimates = _wait_for(read["console"], crowd, token)
    return TwoParties(plan, with_truth(estimates, people), sent[0], early)


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
