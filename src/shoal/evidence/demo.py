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
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np

from shoal.agreement.plan import Plan
from shoal.agreement.survey import Survey
from shoal.analysis.estimating import estimate
from shoal.analysis.report_rows import unpack
from shoal.analysis.tallying import Tallying
from shoal.device.outbox import HttpTransport, Outbox
from shoal.device.randomizing import randomize
from shoal.errors import InputError, ShoalError
from shoal.evidence.populations import populate
from shoal.evidence.simulation_bits import simulation_generator

__all__ = ["Demonstration", "count_again", "demonstrate"]

_IN_MEMORY = Path("/dev/shm")  # noqa: S108  a folder of its own is made in it
"""Thousands of devices have thousands of disks; here they would wait for one."""

_AT_ONCE = 32
_PATIENCE = 60.0

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
    """Collect one crowd over HTTP on this machine, from made-up people, and look at it.

    Parameters
    ----------
    plan
        Its crowd is the number of devices; questions are flags and choices.
    seed
        Who answers what. The flips come from the operating system, as they do on any device.
    progress
        Called with the number of devices done since the last call.
    """
    people = list(_people(plan.survey, plan.reports_needed, seed))
    with (
        _folder() as data,
        _folder(_IN_MEMORY if os.access(_IN_MEMORY, os.W_OK) else None) as devices,
        _collector(data, plan) as urls,
    ):
        *most, last = people
        _send_all(plan.id, most, urls["public"], devices, progress)
        token = (data / "admin-token").read_text("utf-8").strip()
        crowd = f"/v1/plans/{plan.id}/crowds/1"
        early, _ = _get(urls["console"], f"{crowd}/estimates", token)
        _send_one(plan.id, last, urls["public"], devices / "last", Event())
        progress(1)
        status, content = _get(urls["console"], f"{crowd}/estimates", token)
        page_status, page = _get(urls["console"], f"{crowd}/report.html", token)
        if (status, page_status) != (200, 200):
            raise ShoalError(f"the console answered {status} and {page_status}, not with a crowd.")
    estimates = _with_truth(json.loads(content), people)
    return Demonstration(plan, estimates, page.decode("utf-8"), early)


def count_again(plan: Plan, *, seed: int) -> dict[str, Any]:
    """Return the estimates of the same made-up people for another plan, with `truth`.

    The reports are made and counted in this process, with flips from the operating system.
    """
    tallying = Tallying(plan)
    for chunk in populate(plan.survey, plan.reports_needed, simulation_generator(seed)):
        tallying.add(randomize(chunk, plan).rows)
    estimates = estimate(plan, tallying.result()).to_json()
    return _with_truth(estimates, list(_people(plan.survey, plan.reports_needed, seed)))


def _with_truth(estimates: dict[str, Any], people: list[Answer]) -> dict[str, Any]:
    for question, options in estimates["questions"].items():
        for label, row in options.items():
            row["truth"] = sum(_has(answer[question], label) for answer in people)
    return estimates


def _people(survey: Survey, count: int, seed: int) -> Iterator[Answer]:
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


def _send_all(
    plan_id: str, people: list[Answer], url: str, folder: Path, progress: Callable[[int], None]
) -> None:
    over = Event()
    with ThreadPoolExecutor(_AT_ONCE, "device") as threads:
        waiting = [
            threads.submit(_send_one, plan_id, answer, url, folder / str(number), over)
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


def _send_one(plan_id: str, answer: Answer, url: str, folder: Path, over: Event) -> None:
    """Be one device: fetch the plan, check it, answer, send, and forget."""

    def sleep(seconds: float) -> None:
        if over.wait(seconds):
            raise ShoalError("the demonstration is over.")

    outbox = Outbox(folder, HttpTransport(url), spread=0, sleep=sleep)
    outbox.answer(outbox.plan(plan_id), answer)
    (ticket,) = outbox.finish(_PATIENCE)
    if ticket.state != "sent":
        why = ticket.reason or f"the collector did not take it within {_PATIENCE:g} s"
        raise ShoalError(f"a device's report is {ticket.state}: {why}.")
    shutil.rmtree(folder)


@contextmanager
def _folder(below: Path | None = None) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="shoal-demo-", dir=below) as name:
        yield Path(name)


@contextmanager
def _collector(data: Path, plan: Plan) -> Iterator[dict[str, str]]:
    """Run `shoal serve` with one plan and yield its two addresses."""
    plan_file, log_file = data / "plan.json", data / "log"
    plan.write(plan_file)
    command = [sys.executable, "-m", "shoal", "serve", "--data", str(data), "--json"]
    command += ["--public", "127.0.0.1:0", "--console", "127.0.0.1:0"]
    command += ["--honest", "all", str(plan_file)]
    # What the owner of this machine has set for another collector is not for this one.
    settings = {key: text for key, text in os.environ.items() if not key.startswith("SHOAL_")}
    with log_file.open("wb") as log, _ended_by_signals():
        server = subprocess.Popen(  # noqa: S603  this very program
            command, stdout=subprocess.PIPE, stderr=log, env=settings, start_new_session=True
        )
        try:
            assert server.stdout is not None
            ready = server.stdout.readline()
            if not ready:
                log_lines = log_file.read_text("utf-8", "replace").strip().splitlines()
                reason = log_lines[-1].removeprefix("shoal: ") if log_lines else "it said nothing."
                raise InputError(f"the collector did not start: {reason}")
            yield json.loads(ready)
        finally:
            _stop(server)


def _stop(server: subprocess.Popen[bytes]) -> None:
    """Ask the collector to stop, which it does in order, and see that it is gone."""
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
    """Let SIGTERM end us as Ctrl-C does, so that no collector stays behind."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # not the main thread; whoever is sees to it
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _get(url: str, path: str, token: str) -> tuple[int, bytes]:
    """Ask the console, and return the status and the body."""
    from http.client import HTTPConnection, HTTPException

    connection = HTTPConnection(url.removeprefix("http://"), timeout=_PATIENCE)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        with connection.getresponse() as answer:
            return answer.status, answer.read()
    except (OSError, HTTPException) as error:
        raise ShoalError("the console did not answer; nothing can be shown.") from error
    finally:
        connection.close()
