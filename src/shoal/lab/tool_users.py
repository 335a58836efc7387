"""Simulated people who use a tool with telemetry; each says yes and sends one report."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event
from typing import Any

from shoal.device.outbox import HttpTransport
from shoal.device.telemetry import Telemetry, consent
from shoal.device.telemetry.describe import Terms
from shoal.device.telemetry.log import LoggedRequest
from shoal.device.telemetry.past import windows_until_report
from shoal.device.telemetry.state import CI_VARIABLES, switch_name
from shoal.device.telemetry.worker import TelemetryWorker
from shoal.errors import InputError, ShoalError
from shoal.lab.demo import Answer, devices_folder, made_up_answers, send_all

_ATTEMPTS = 30
"""How often a person's device tries to send, a second apart."""


class ToolUser:
    """A person with a folder of their own, whose tool sends to an address.

    Variables that turn telemetry off are ignored: the maintainer asked for these people.
    """

    def __init__(self, subject: Telemetry, to: str, folder: Path) -> None:
        self._subject, self._to, self._folder = subject, to, folder
        self.terms = Terms.read(subject.agreement())
        survey = self.terms.plan.survey
        if self.terms.plan.parties is not None:
            raise InputError("this plan needs a relay and an analyzer; see shoal demo --parties.")
        # Ages are reported at once, everything else when its windows are over.
        windows = 0 if survey.has_ages else windows_until_report(self.terms.plan)
        self._passing = windows * self.terms.window
        self._now = time.time() - self._passing

    def run(self) -> Telemetry:
        """Start the tool."""
        one = self._subject
        off = (*CI_VARIABLES, "DO_NOT_TRACK", switch_name(one.tool))
        return Telemetry(
            one.tool,
            plan=self.terms.plan,
            to=self._to,
            limit=self.terms.limit,
            why=one.why,
            translations=one.translations,
            environ=os.environ | dict.fromkeys(off, ""),
            folder=str(self._folder),
            clock=lambda: self._now,
        )

    def use(self, recorded: Mapping[str, Any]) -> None:
        """Say yes, use the tool, and use it again when the report is due."""
        self.run().turn_on()
        used = self.run()
        for arm in self.terms.plan.survey.arms:
            used.arm(arm.name)
        used.record(**recorded)
        self._now += self._passing
        self.send()

    def send(self) -> None:
        """Do what the tool's background process does."""
        tool = self.run()
        for agreed in self._folder.glob("*/agreed"):
            worker = TelemetryWorker(
                tool.tool, self._folder, agreed.parent.name, tool.environ, tool.clock
            )
            worker.work()

    def requests(self) -> list[LoggedRequest]:
        """Return what was sent."""
        return consent.requests(self.run())


def send_crowd(
    subject: Telemetry,
    to: str,
    people: int,
    *,
    seed: int,
    progress: Callable[[int], None] = lambda done: None,
) -> None:
    """Let people use a tool and send a report each, to a collector at an address.

    The seed says who answers what. The flips come from the operating system, as on any device.
    """

    def send(answer: Answer, folder: Path, over: Event) -> None:
        user = ToolUser(subject, to, folder)
        user.use(answer)
        for _ in range(_ATTEMPTS):
            if [one.status for one in user.requests()][-1:] == [202]:
                shutil.rmtree(folder)
                return
            if over.wait(1):
                raise ShoalError("another person's report was not accepted.")
            user.send()
        raise ShoalError(f"a report was not accepted: {_reason(user)}")

    plan = Terms.read(subject.agreement()).plan
    HttpTransport(to).fetch_plan(plan.id)  # an error says if nobody is there, or without the plan
    with devices_folder() as folder:
        send_all(list(made_up_answers(plan.survey, people, seed)), send, folder, progress)


def _reason(user: ToolUser) -> str:
    if problem := user.run().problem:
        return problem
    status = [one.status for one in user.requests()][-1:]
    return f"the response was {status[0]}." if status else "nothing was sent."
