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
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np

from shoal.analysis.count_table import unpack
from shoal.analysis.estimates import estimate
from shoal.analysis.tally import Tallying
from shoal.device.arrays.simulation_bits import simulation_generator
from shoal.device.outbox import HttpTransport, Outbox
from shoal.device.randomize import flip
from shoal.errors import InputError, ShoalError
from shoal.lab.populations import populate
from shoal.protocol.plan import Plan
from shoal.protocol.survey import Survey

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

Answer = dict[str, object]


@dataclass(frozen=True)
class Demonstration:
    """What the console showed of the crowd, and what only the demonstration knows.

    `estimates` is the console's document with `truth` beside each count, `page` its report page,
    and `early` the status it answered while the crowd was one report short.
    """

    plan: Plan
    estimates: dict[str, Any]
    page: str
    early: int


def demonstrate(
    plan: Plan, *, seed: int, progress: Callable[[int], None] = lambda done: None
) -> Demonstration:
    """Collect one crowd over HTTP on this machine, from simulated people, and look at it.

    The seed says who answers what. The flips come from the operating system, as on any device.
    """
    people = list(made_up_people(plan.survey, plan.reports_needed, seed))
    with (
        scratch_folder() as data,
        devices_folder() as devices,
        running_collector(data, plan) as urls,
    ):
        *most, last = people

        def send(answer: Answer, folder: Path, over: Event) -> None:
            send_one(plan.id, answer, HttpTransport(urls["public"]), folder, over)

        send_all(most, send, devices, progress)
        token = (data / "admin-token").read_text("utf-8").strip()
        crowd = f"/v1/plans/{plan.id}/crowds/1"
        early, _ = console_get(urls["console"], f"{crowd}/estimates", token)
        send(last, devices / "last", Event())
        progress(1)
        status, content = console_get(urls["console"], f"{crowd}/estimates", token)
        page_status, page = console_get(urls["console"], f"{crowd}/report.html", token)
        if (status, page_status) != (200, 200):
            raise ShoalError(f"the console answered {status} and {page_status}, not with a crowd.")
    estimates = with_truth(json.loads(content), people)
    return Demonstration(plan, estimates, page.decode("utf-8"), early)


def count_again(plan: Plan, *, seed: int) -> dict[str, Any]:
    """Return the estimates of the same made-up people for another plan, with `truth`.

    The reports are made and counted in this process, with flips from the operating system.
    """
    tallying = Tallying(plan)
    for chunk in populate(plan.survey, plan.reports_needed, simulation_generator(seed)):
        tallying.add(flip(plan, chunk).rows)
    estimates = estimate(plan, tallying.result()).to_json()
    return with_truth(estimates, list(made_up_people(plan.survey, plan.reports_needed, seed)))


def with_truth(estimates: dict[str, Any], people: list[Answer]) -> dict[str, Any]:
    for question, options in estimates["questions"].items():
        for label, row in options.items():
            row["truth"] = sum(_has(answer[question], label) for answer in people)
    return estimates


def made_up_people(survey: Survey, count: int, seed: int) -> Iterator[Answer]:
    """Make up people, as answers that an application would hand to its outbox."""
    for chunk in populate(survey, count, simulation_generator(seed)):
        for bits in unpack(chunk.rows, survey.bits):
            answer: Answer = {}
            for question in survey.asked:
                places = np.flatnonzero(bits[survey.slice_of(question.name)])
                chosen = [question.labels[place] for place in places]
                answer[question.name] = chosen[0] if question.takes_one else chosen
            yield answer


def _has(answer: object, label: str) -> bool:
    return label in answer if isinstance(answer, list) else label == answer


def send_all(
    people: list[Answer],
    send: Callable[[Answer, Path, Event], None],
    folder: Path,
    progress: Callable[[int], None],
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
def running_collector(data: Path, plan: Plan, origins: str = "") -> Iterator[dict[str, str]]:
    """Run `shoal serve` with one plan, for pages of some origins; yield its two addresses."""
    plan_file = data / "plan.json"
    plan.write(plan_file)
    words = ["serve", "--public", "127.0.0.1:0", "--console", "127.0.0.1:0", "--honest", "all"]
    words += ["--origins", origins]
    with running("collector", [*words, str(plan_file)], data) as urls:
        yield urls
