"""The whole thing on one machine: a collector, thousands of devices, one crowd.

Nothing in `demonstrate` is a shortcut. The collector is the one of `shoal serve`, in a process of
its own; each device has an outbox of its own and speaks HTTP; what comes out is asked of the
console. `count_again` asks the same people for another plan, to compare, without the network.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import date, timedelta
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np

from shoal.analysis.estimates import estimate
from shoal.analysis.tally import tally
from shoal.device.arrays.simulation_bits import simulation_generator
from shoal.device.encode import encode
from shoal.device.outbox import HttpTransport, Outbox
from shoal.device.randomize import flip
from shoal.errors import InputError, ShoalError
from shoal.lab.populations import draw_answers, texts_for
from shoal.protocol.plan import Plan
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

TIMEOUT = 60.0
"""Seconds until a request times out."""
_PORTS = range(20_000, 32_000)
"""Below those that systems give to outgoing connections."""
_NUMBERS = count(os.getpid() * 101)


@contextmanager
def scratch_folder(below: Path | None = None) -> Iterator[Path]:
    """Yield a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="shoal-demo-", dir=below) as name:
        yield Path(name)


def free_port() -> int:
    """Return a free port below those of outgoing connections.

    On Linux a connection to a port that it was itself given would connect to itself.
    """
    for number in _NUMBERS:
        with suppress(OSError), socket.create_server(("127.0.0.1", _PORTS[number % len(_PORTS)])):
            return _PORTS[number % len(_PORTS)]
    raise AssertionError("numbers do not end")


@contextmanager
def running(what: str, words: list[str], data: Path) -> Iterator[dict[str, str]]:
    """Run `shoal` as a service, and yield its addresses when it is ready, and its `process`."""
    log_file = data / "log"
    command = [sys.executable, "-m", "shoal", *words, "--data", str(data), "--json"]
    with log_file.open("wb") as log, _ended_by_signals():
        server = subprocess.Popen(  # noqa: S603  this very program
            command, stdout=subprocess.PIPE, stderr=log, env=_settings(), start_new_session=True
        )
        try:
            assert server.stdout is not None
            ready = server.stdout.readline()
            if not ready:
                log_lines = log_file.read_text("utf-8", "replace").strip().splitlines()
                reason = log_lines[-1].removeprefix("shoal: ") if log_lines else "it said nothing."
                raise InputError(f"the {what} did not start: {reason}")
            yield json.loads(ready) | {"process": str(server.pid)}
        finally:
            _stop(server)


def run_command(*words: str) -> str:
    """Run a `shoal` command, and return its output."""
    command = [sys.executable, "-m", "shoal", *words]
    done = subprocess.run(command, capture_output=True, text=True, env=_settings(), check=False)  # noqa: S603
    if done.returncode:
        raise ShoalError(f"shoal {words[0]} failed: {done.stderr.strip()}")
    return done.stdout


def _settings() -> dict[str, str]:
    return {key: text for key, text in os.environ.items() if not key.startswith("SHOAL_")}


def _stop(server: subprocess.Popen[bytes]) -> None:
    """Stop a service; kill it if it does not end."""
    with suppress(ProcessLookupError):
        server.terminate()
    try:
        server.wait(20)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        server.kill()
        server.wait()
    if server.stdout is not None:
        server.stdout.close()


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Treat SIGTERM and SIGHUP like Ctrl-C, so that services and folders are removed."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    names = [name for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    try:
        before = {name: signal.signal(getattr(signal, name), interrupt) for name in names}
    except ValueError:  # not the main thread, which handles signals
        yield
        return
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(getattr(signal, name), handler)


def console_get(url: str, path: str, token: str) -> tuple[int, bytes]:
    """Send a GET request to the console; return the status and the body."""
    from http.client import HTTPConnection, HTTPException

    connection = HTTPConnection(url.removeprefix("http://"), timeout=TIMEOUT)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        with connection.getresponse() as answer:
            return answer.status, answer.read()
    except (OSError, HTTPException) as error:
        raise ShoalError("the console did not answer; nothing can be shown.") from error
    finally:
        connection.close()


_IN_MEMORY = Path("/dev/shm")  # noqa: S108  a folder of its own is made in it
"""Thousands of devices have thousands of disks; here they would wait for one."""

_AT_ONCE = 32
_ASK_EVERY = 0.2
_SERVICE_TIMEOUT = 300.0
"""Seconds until the relay must have a crowd's key, and the analyzer must have decrypted a crowd."""

Answer = dict[str, Any]
Send = Callable[[Answer, Path, Event], None]
"""Lets a device with a folder send its report, until all is over."""


@dataclass(frozen=True)
class Demonstration:
    """One crowd: the views of its console, and facts that only the demonstration knows.

    `estimates` is the console's document with `truth` beside each count, and `early` the status it
    answered while the crowd was one report short. `page` is the report page, `request` what the
    first of several parties received from one device.
    """

    plan: Plan
    estimates: dict[str, Any]
    early: int
    page: str = ""
    request: bytes = b""


def demonstrate(
    plan: Plan, *, seed: int, progress: Callable[[int], None] = lambda done: None
) -> Demonstration:
    """Collect one crowd over HTTP on this machine, from simulated people, and look at it.

    The seed says who answers what. The flips come from the operating system, as on any device.
    """
    with scratch_folder() as data, running_collector(data, plan) as urls:

        def send(answer: Answer, folder: Path, over: Event) -> None:
            send_one(plan.id, answer, HttpTransport(urls["public"]), folder, over)

        console = urls["console"], admin_token(data)
        shown = collect_crowd(plan, send, console, seed, progress)
        page = wait_for(console[0], f"/v1/plans/{plan.id}/crowds/1/report.html", console[1])
        return replace(shown, page=page.decode("utf-8"))


def collect_crowd(
    plan: Plan, send: Send, console: tuple[str, str], seed: int, progress: Callable[[int], None]
) -> Demonstration:
    """Let all devices send, and read the crowd at a console with a token."""
    *most, last = people = list(made_up_answers(plan.survey, plan.reports_needed, seed))
    url, token = console
    crowd = f"/v1/plans/{plan.id}/crowds/1/estimates"
    with devices_folder() as devices:
        send_all(most, send, devices, progress)
        early, _ = console_get(url, crowd, token)
        send(last, devices / "last", Event())
        progress(1)
        estimates = json.loads(wait_for(url, crowd, token))
    return Demonstration(plan, with_truth(estimates, people), early)


def wait_for(url: str, path: str, token: str) -> bytes:
    """Return a document as soon as the service has it."""
    end = time.monotonic() + _SERVICE_TIMEOUT
    while True:
        status, content = console_get(url, path, token)
        if status == 200:
            return content
        if time.monotonic() > end:
            raise ShoalError(f"{url}{path} still answers {status}.")
        time.sleep(_ASK_EVERY)


def made_up_answers(survey: Survey, count: int, seed: int) -> Iterator[Answer]:
    """Make up what people tell an application: half have the first option, fewer the later ones."""
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


def count_again(plan: Plan, *, seed: int) -> dict[str, Any]:
    """Return the estimates of the same made-up people for another plan, with `truth`.

    The reports are made and counted in this process, with flips from the operating system.
    """
    people = list(made_up_answers(plan.survey, plan.reports_needed, seed))
    counted = tally(plan, flip(plan, encode(plan, people)))
    return with_truth(estimate(plan, counted).to_json(), people)


def with_truth(estimates: dict[str, Any], people: list[Answer]) -> dict[str, Any]:
    for question, options in estimates["questions"].items():
        for label, row in options.items():
            row["truth"] = sum(_has(answer[question], label) for answer in people)
    return estimates


def _has(answer: object, label: str) -> bool:
    return label in answer if isinstance(answer, list) else label == answer


def send_all(
    people: list[Answer], send: Send, folder: Path, progress: Callable[[int], None]
) -> None:
    """Let every person's device send, many at a time; `send` is told when it is over."""
    over = Event()
    with ThreadPoolExecutor(_AT_ONCE, "device") as threads:
        waiting = [
            threads.submit(send, answer, folder / str(number), over)
            for number, answer in enumerate(people)
        ]
        try:
            for done in as_completed(waiting):
                done.result()
                progress(1)
        except BaseException:
            over.set()  # a device that waits to try again does not
            threads.shutdown(wait=False, cancel_futures=True)
            raise


def send_one(
    plan_id: str,
    answer: Answer,
    transport: HttpTransport,
    folder: Path,
    over: Event,
    **options: Any,
) -> None:
    """Be one device: fetch the plan, check it, answer, send, and forget."""

    def sleep(seconds: float) -> None:
        if over.wait(seconds):
            raise ShoalError("the demonstration is over.")

    outbox = Outbox(folder, transport, spread=0, sleep=sleep, **options)
    outbox.answer(outbox.plan(plan_id), answer)
    (ticket,) = outbox.finish(TIMEOUT)
    if ticket.state != "sent":
        why = ticket.reason or f"it was not accepted within {TIMEOUT:g} s"
        raise ShoalError(f"a device's report is {ticket.state}: {why}.")
    shutil.rmtree(folder)


@contextmanager
def devices_folder() -> Iterator[Path]:
    """Yield a folder for the disks of thousands of devices, in memory where that can be."""
    with scratch_folder(_IN_MEMORY if os.access(_IN_MEMORY, os.W_OK) else None) as folder:
        yield folder


@contextmanager
def running_collector(data: Path, plan: Plan, *options: str) -> Iterator[dict[str, str]]:
    """Run `shoal serve` with one plan and more options; yield its two addresses."""
    plan_file = data / "plan.json"
    plan.write(plan_file)
    words = ["serve", "--public", "127.0.0.1:0", "--console", "127.0.0.1:0", "--honest", "all"]
    with running("collector", [*words, *options, str(plan_file)], data) as urls:
        yield urls


def admin_token(data: Path) -> str:
    return (data / "admin-token").read_text("utf-8").strip()
