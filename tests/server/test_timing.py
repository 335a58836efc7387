"""How long an answer takes does not tell whether the report had come before, or completed a crowd.

Fresh and repeated reports are sent one at a time, in an order drawn by chance, to a collector in
another process; then the two sets of times are compared by rank (Mann-Whitney, for shifts) and by
distribution (Kolmogorov-Smirnov, for anything else).
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, Protocol

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import ks_2samp, mannwhitneyu

from shoal import Plan
from shoal.analysis.report_files import Batch
from shoal.server.storage.store import Store

from .privacy_help import FLAGS_PLAN, LONG_PLAN, NOW, TEXT_PLAN, make_reports, serving, some_of

ALARM = 1e-6
ROUNDS = 3
WARM_UP = 50
REQUESTS = int(os.environ.get("SHOAL_TIMED_REQUESTS", "1000"))
PLAN = replace(FLAGS_PLAN, crowd_size=10**6)
"""Its crowd is never complete here: sealing takes longer, and only a fresh report seals."""

WITHOUT_TICKS = """
from shoal.server.core import ingest
ingest.SHORTEST_TICK = ingest.LONGEST_TICK = 1e-9
"""
"""Answers that come at once, so that the work itself is looked at."""
RETURNS_EARLY = """
from shoal.server.storage.store import Store
accept, seen = Store.accept, set()

def early(self, uploads):
    ids = {upload.ids.tobytes() for upload in uploads}
    if ids <= seen:
        return [None] * len(uploads)
    seen.update(ids)
    return accept(self, uploads)

Store.accept = early
"""
WRITES_NO_FILLER = """
from shoal.server.storage.windows import SeenReports
remember, seen = SeenReports.remember, set()

def short(self, ids):
    import numpy as np
    if ids.tobytes() in seen:
        return np.zeros(len(ids), bool)
    seen.add(ids.tobytes())
    return remember(self, ids)

SeenReports.remember = short
"""


class Reachable(Protocol):
    """A collector or a relay in a process of its own."""

    def connect(self) -> socket.socket: ...


class Line:
    """One connection that stays open and measures."""

    def __init__(
        self, server: Reachable, path: str, media: str = "application/octet-stream"
    ) -> None:
        self._server, self._path, self._media = server, path, media
        self.connect()

    def connect(self) -> None:
        """Begin a connection; one may not bring more than a crowd."""
        self._socket = self._server.connect()
        self._socket.setsockopt(6, 1, 1)  # no waiting for more to send

    def time_of(self, body: bytes) -> float:
        head = (
            f"POST {self._path} HTTP/1.1\r\nHost: c\r\n"
            f"Content-Type: {self._media}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        before = time.perf_counter()
        self._socket.sendall(head.encode() + body)
        answer = self._socket.recv(4096)
        passed = time.perf_counter() - before
        assert answer.startswith(b"HTTP/1.1 202 ")
        assert answer.endswith(b"\r\n\r\n")
        return passed

    def close(self) -> None:
        self._socket.close()


@contextmanager
def line_to(before: str = "", plan: Plan = PLAN) -> Iterator[Line]:
    """Run a collector on a disk in memory, if there is one: whoever measures wants little noise."""
    memory = Path("/dev/shm")
    with (
        TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder,
        serving(Path(folder), plan, before=before) as server,
    ):
        line = Line(server, f"/v1/plans/{plan.id}/reports")
        try:
            yield line
        finally:
            line.close()


class Verdict(NamedTuple):
    p: float
    fresh: float
    repeated: float


def times_of(
    line: Line, bodies: list[bytes], sent: int, random: np.random.Generator
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Send reports, of which `sent` came before; return which were repeated, and all times.

    All is drawn before the first of them is sent, so that nothing else differs between them.
    """
    repeats = random.random(len(bodies) - sent) < 0.5
    known = sent + np.cumsum(~repeats) - ~repeats  # how many came before each
    order = [
        bytes(bytearray(bodies[one])) for one in np.where(repeats, random.integers(known), known)
    ]
    return repeats, np.array([line.time_of(body) for body in order])


def judge(line: Line, requests: int, random: np.random.Generator) -> Verdict:
    """Return the p-value of both tests together, and the median times.

    Whether a request repeats an earlier report or brings a new one is drawn by chance each time;
    if the answers tell nothing, every draw was as likely, whatever the machine did meanwhile.
    """
    reports = make_reports(PLAN, requests + WARM_UP, random)
    bodies = [some_of(reports, slice(i, i + 1)).to_bytes() for i in range(len(reports))]
    sent = WARM_UP
    for body in bodies[:sent]:
        line.time_of(body)
    repeats, times = times_of(line, bodies, sent, random)
    one, other = times[~repeats], times[repeats]
    return Verdict(told_apart(one, other), float(np.median(one)), float(np.median(other)))


@pytest.mark.slow
def test_answer_times_of_fresh_and_repeated_reports_do_not_differ() -> None:
    """False alarm: 1e-18, since three rounds of their own would all have to reject at 1e-6.

    The power is shown by the next test: a repeated report that is answered without its work is
    seen in each of three rounds.
    """
    random = np.random.default_rng(int.from_bytes(os.urandom(8)))
    with line_to(WITHOUT_TICKS) as line:
        verdicts = []
        for _ in range(ROUNDS):
            verdicts.append(judge(line, REQUESTS, random))
            if verdicts[-1].p >= ALARM:
                return
    pytest.fail(f"repeated reports are told by the time of the answer: {verdicts}")


@pytest.mark.slow
@pytest.mark.parametrize("mutant", [RETURNS_EARLY, WRITES_NO_FILLER][: 1 + (REQUESTS >= 5000)])
def test_less_work_for_repeated_reports_is_seen_every_time(mutant: str) -> None:
    random = np.random.default_rng(9)
    with line_to(WITHOUT_TICKS + mutant) as line:
        verdicts = [judge(line, REQUESTS, random) for _ in range(ROUNDS)]
    assert all(verdict.p < ALARM for verdict in verdicts), verdicts


def crowd_times(
    line: Line, plan: Plan, requests: int, random: np.random.Generator
) -> NDArray[np.float64]:
    """Return how long each report of each crowd took, one row a crowd."""
    needed = plan.reports_needed
    reports = make_reports(plan, requests // needed * needed, random)
    times = np.empty(len(reports))
    for number in range(len(reports)):
        if number % needed == needed // 2:  # far from where a crowd begins or ends
            line.close()
            line.connect()
        times[number] = line.time_of(some_of(reports, slice(number, number + 1)).to_bytes())
    return times.reshape(-1, needed)[1:]  # the first ones warm up


def told_apart(special: NDArray[np.float64], others: NDArray[np.float64]) -> float:
    """Return the p-value of both tests together of whether some reports take longer, or shorter."""
    both = min(ks_2samp(special, others).pvalue, mannwhitneyu(special, others).pvalue)
    return min(1.0, 2 * float(both))


def judge_sealing(line: Line, plan: Plan, requests: int, random: np.random.Generator) -> float:
    """Return the p-value of whether reports that complete a crowd, or begin one, take longer."""
    times = crowd_times(line, plan, requests, random)
    others = times[:, 1:-1].ravel()
    return min(1.0, 2 * min(told_apart(times[:, place], others) for place in (0, -1)))


@pytest.mark.slow
def test_answer_times_do_not_tell_when_a_crowd_is_complete() -> None:
    """False alarm: 1e-18, since three rounds of their own would all have to reject at 1e-6."""
    random = np.random.default_rng(int.from_bytes(os.urandom(8)))
    with line_to(plan=FLAGS_PLAN) as line:
        pvalues = []
        for _ in range(ROUNDS):
            pvalues.append(judge_sealing(line, FLAGS_PLAN, REQUESTS, random))
            print(f"p = {pvalues[-1]:.2g} in {REQUESTS:,} requests")
            if pvalues[-1] >= ALARM:
                return
    pytest.fail(f"the answer tells when a crowd is complete: {pvalues}")


@pytest.mark.parametrize(("plan", "count"), [(FLAGS_PLAN, 1), (TEXT_PLAN, 20), (LONG_PLAN, 20)])
def test_repeated_reports_write_as_much_to_the_disk(plan: Plan, count: int, tmp_path: Path) -> None:
    """Commit by commit the log of pages grows as much as that of a store with fresh reports."""
    plan = replace(plan, crowd_size=10**6)
    random = np.random.default_rng(7)
    known = make_reports(plan, count, random)
    fresh = [replace(make_reports(plan, count, random), cohorts=known.cohorts) for _ in range(90)]

    def growth(name: str, uploads: list[Batch]) -> list[int]:
        (tmp_path / name).mkdir()
        store = Store(tmp_path / name, clock=lambda: NOW)
        store.add_plan(plan)
        store.move(plan.id, "published", b"{}")
        pages, sizes = tmp_path / name / "shoal.db-wal", []
        for number, upload in enumerate(uploads):
            assert store.accept([upload]) == [None]
            sizes.append(pages.stat().st_size)
            if number % 30 == 29:  # as the clock does; room for more is made then
                store.sweep()
        store.close()
        return sizes

    fresh_ones, repeated = growth("one", [known, *fresh]), growth("other", [known] * 91)
    assert len(set(fresh_ones)) > 25
    assert fresh_ones == repeated
