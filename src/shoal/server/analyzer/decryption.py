"""Decrypts a complete crowd on all cores, and counts its reports.

Processes (`worker`) decrypt a chunk each and leave the messages in partitions; then each partition
is counted by itself. So memory is bounded however large the crowd is. Nothing is kept between
openings: an interrupted one is done again from the chunks. A message is a report: it counts if it
was encrypted for the crowd, has the plan's bits and a cohort of the plan, and an identifier of its
own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.analysis.tally import Tallying
from shoal.errors import ShoalError
from shoal.protocol.encryption import content_bytes, message_bytes
from shoal.protocol.plan import Plan
from shoal.protocol.wire import ID_BYTES, padding_mask, row_bytes
from shoal.server.analyzer.store import CompleteCrowd, OpenedCrowd
from shoal.server.analyzer.worker import Keys, Messages, Spilling, first_of_each
from shoal.server.storage.database import StorageError, storage_errors

Job = tuple[int, str, str, str]
"""A chunk: its number, its path, its SHA-256, and the path that the messages are written to."""


class DamagedCrowd(ShoalError):  # noqa: N818  it names the state
    """A chunk that had come on the disk does not match the received one."""


class Stopped(Exception):  # noqa: N818  it names the state
    """The opening was told to stop."""


class Stop:
    """Ends an opening at once, from another thread."""

    def __init__(self) -> None:
        self._lock, self._asked = Lock(), False
        self._processes: set[subprocess.Popen[str]] = set()

    def ask(self) -> None:
        """End all processes that decrypt chunks."""
        with self._lock:
            self._asked = True
            for process in self._processes:
                process.kill()

    def check(self) -> None:
        """Raise `Stopped` if it was asked for."""
        if self._asked:
            raise Stopped

    @contextmanager
    def holding(self, process: subprocess.Popen[str]) -> Iterator[None]:
        """End a process too if it is asked for, and in any case if something fails."""
        with self._lock:
            self._processes.add(process)
        try:
            self.check()
            yield
        except BaseException:
            process.kill()
            raise
        finally:
            with self._lock:
                self._processes.discard(process)


def decrypt_crowd(crowd: CompleteCrowd, scratch: Path, processes: int, stop: Stop) -> OpenedCrowd:
    """Decrypt all messages of a crowd and tally them."""
    plan = crowd.plan
    spilling = Spilling.new(plan.reports_needed, content_bytes(plan))
    keys = Keys(crowd.secret, crowd.info, message_bytes(plan), spilling)
    wanted = min(processes or os.cpu_count() or 1, len(crowd.chunks))
    with _folder_of_its_own(scratch) as folder:
        targets = [folder / str(chunk) for chunk in range(len(crowd.chunks))]
        answers = _decrypt_chunks(crowd, keys, targets, wanted, stop)
        counting = ReportCounting(plan)
        unopened = sum(answer["unopened"] for answer in answers)
        repeated = sum(answer["repeated"] for answer in answers)
        for partition in range(spilling.partitions):
            stop.check()
            messages = spilling.read(targets, partition)
            first = first_of_each(messages)
            repeated += len(messages) - len(first)
            counting.add(first)
    return counting.result(unopened=unopened, repeated=repeated)


@contextmanager
def _folder_of_its_own(scratch: Path) -> Iterator[Path]:
    """Yield an empty folder that only its owner reads, and remove it in the end."""
    # No other opening has its name: a process of an analyzer that was killed may still be writing.
    with storage_errors():
        scratch.mkdir(mode=0o700, exist_ok=True)
        try:
            yield Path(tempfile.mkdtemp(dir=scratch))
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def _decrypt_chunks(
    crowd: CompleteCrowd, keys: Keys, targets: list[Path], processes: int, stop: Stop
) -> list[dict[str, Any]]:
    """Return the workers' results for each chunk."""
    waiting: SimpleQueue[Job] = SimpleQueue()
    for file, target in zip(crowd.chunks, targets, strict=True):
        waiting.put((file.number, str(file.path), file.digest, str(target)))
    with ThreadPoolExecutor(processes, "opening") as threads:
        running = [threads.submit(_run_worker, keys, waiting, stop) for _ in range(processes)]
        try:
            return [answer for one in running for answer in one.result()]
        except BaseException:
            while not waiting.empty():
                waiting.get()
            raise


def _run_worker(keys: Keys, waiting: SimpleQueue[Job], stop: Stop) -> list[dict[str, Any]]:
    """Let one process decrypt chunks as long as there are any."""
    answers: list[dict[str, Any]] = []
    with _worker(keys, stop) as ask:
        while True:
            try:
                job = waiting.get_nowait()
            except Empty:
                return answers
            answer = ask(job)
            if "failed" in answer:
                raise StorageError(f"a chunk cannot be opened: {answer['failed']}.")
            if "damaged" in answer:
                raise DamagedCrowd(f"chunk {job[0]} on the disk does not match the received one.")
            answers.append(answer)


@contextmanager
def _worker(keys: Keys, stop: Stop) -> Iterator[Callable[[Job], dict[str, Any]]]:
    """Start a process, and yield a function that lets it decrypt a chunk."""
    with (
        subprocess.Popen(
            [sys.executable, "-m", "shoal.server.analyzer.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
        ) as process,
        stop.holding(process),
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        print(keys.to_line(), file=process.stdin, flush=True)

        def ask(job: Job) -> dict[str, Any]:
            print(json.dumps(job), file=process.stdin, flush=True)
            line = process.stdout.readline() if process.stdout else ""
            stop.check()
            answer: dict[str, Any] = json.loads(line or '{"failed": "a process ended too early"}')
            return answer

        yield ask


class ReportCounting:
    """Counts a crowd's messages, of which no two have the same identifier."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self.out_of_range = plan, 0
        self._tallying = Tallying(plan)

    def add(self, messages: Messages) -> None:
        plan, start = self._plan, ID_BYTES
        cohorts: NDArray[np.uint16] | None = None
        if plan.cohorts is not None:
            cohorts = np.ascontiguousarray(messages[:, start : start + 2]).view("<u2").reshape(-1)
            start += 2
        rows = messages[:, start : start + row_bytes(plan.bits)]
        inside = np.ones(len(rows), bool)
        if plan.bits % 8:
            inside &= (rows[:, -1] & (0xFF ^ padding_mask(plan.bits))) == 0
        if cohorts is not None and plan.cohorts is not None:
            inside &= cohorts < plan.cohorts
            cohorts = cohorts[inside].astype(np.uint16)
        self._tallying.add(rows[inside], cohorts=cohorts)
        self.out_of_range += len(rows) - int(inside.sum())

    def result(self, *, unopened: int, repeated: int) -> OpenedCrowd:
        return OpenedCrowd(self._tallying.result(), unopened, self.out_of_range, repeated)
