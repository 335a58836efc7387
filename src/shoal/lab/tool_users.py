"""Simulated people who use a tool with telemetry; each says yes and sends one report."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import date, timedelta
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np

from shoal.device.arrays.simulation_bits import simulation_generator
from shoal.device.outbox import HttpTransport
from shoal.device.telemetry import Telemetry, consent
from shoal.device.telemetry.describe import Terms
from shoal.device.telemetry.log import LoggedRequest
from shoal.device.telemetry.past import windows_until_report
from shoal.device.telemetry.state import CI_VARIABLES, switch_name
from shoal.device.telemetry.worker import TelemetryWorker
from shoal.errors import InputError, ShoalError
from shoal.lab.demo import devices_folder, send_all
from shoal.lab.populations import draw_answers, texts_for
from shoal.protocol.questions import MISSING
from shoal.protocol.survey import (
    Arm,
    Date,
    Number,
    Question,
    Retention,
    RetentionOnce,
    Survey,
    Text,
)

_ATTEMPTS = 30
"""How often a person's device tries to send, a second apart."""

Answer = dict[str, Any]


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


def made_up_answers(survey: Survey, count: int, seed: int) -> Iterator[Answer]:
    """Make up what a tool records of people: half have the first option, fewer the later ones."""
    generator = simulation_generator(seed)
    kept = (Arm, Retention, RetentionOnce)  # the device answers these itself
    said = {
        one.name: _said(survey, one, count, generator)
        for one in survey.asked
        if not isinstance(one, kept)
    }
    for number in range(count):
        yield {name: answers[number] for name, answers in said.items()}


def _said(
    survey: Survey, question: Question, count: int, generator: np.random.Generator
) -> list[Any]:
    if isinstance(question, Text):
        texts = texts_for(survey, None)[question.name]
        return list(generator.choice(np.array(texts.names), count, p=texts.chances).tolist())
    values = [_value(question, place) for place in range(question.bits)]
    chosen = [np.flatnonzero(row) for row in draw_answers(question, count, generator)]
    if question.takes_one:
        return [values[row[0]] for row in chosen]
    if question.kind == "yes/no":
        return ["yes" if len(row) else "no" for row in chosen]
    return [[values[place] for place in row] for row in chosen]


def _value(question: Question, place: int) -> object:
    label = question.labels[place]
    if label == MISSING:
        return None
    if isinstance(question, Number):
        if question.grid:
            return float(question.grid[place])
        edges = [float(str(edge)) for edge in question.edges]
        return edges[place - 1] if place else edges[0] - 1
    if isinstance(question, Date):
        days = (date(2026, 1, 1) + timedelta(number) for number in range(366))
        return next(day.isoformat() for day in days if question.place(day) == place)
    return label
