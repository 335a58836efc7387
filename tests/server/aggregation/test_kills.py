"""Leader and helper are killed at random: every report is in exactly one batch, sums are exact.

Reports are sent and batches collected while that goes on; `SHOAL_KILLS` says how often each party
is killed. With noise of the aggregators a batch is the same however often it is asked for.
"""

from __future__ import annotations

import http.client
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from shoal import Flags, Plan, Survey
from shoal.device.encode import SyntheticVector
from shoal.device.outbox import HttpTransport
from shoal.device.randomize import pack_reports
from shoal.device.sharing import share_report, task_of
from shoal.errors import TransportError
from shoal.lab.demo import free_port
from shoal.protocol.dap import COLLECTOR_KEY_ID, SecretKey
from shoal.protocol.dap.messages import HpkeConfigList, Role, UploadRequest
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Aggregators, Promise, ShareNoise
from shoal.server.analyst import Collecting
from shoal.server.core.parties import HttpPeer, known_agreement
from tests.server.aggregation.world import set_up
from tests.server.postgres_help import needs_postgres, the_server
from tests.server.serving_help import clean_environment

LONGEST = 300.0
KILLS = int(os.environ.get("SHOAL_KILLS", "4"))
CROWD, WEEK = 20, 7 * 86_400
REPORTS = CROWD * max(3, KILLS // 4)


class Party:
    """A leader or a helper in a process of its own."""

    def __init__(self, role: str, folder: Path, plan: Path, ports: tuple[int, int], *more: str):
        self._words = [
            *(sys.executable, "-m", "shoal", role, "--json", "--data", str(folder / role)),
            *("--public", f"127.0.0.1:{ports[0]}", "--console", f"127.0.0.1:{ports[1]}"),
            *("--min-crowd", "1", "--min-free-megabytes", "0", *more, str(plan)),
        ]
        self._log = (folder / f"{role}.log").open("a")
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._words,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=clean_environment() | {"OPENBLAS_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"},
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline(), Path(self._log.name).read_text()

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.communicate(timeout=LONGEST)

    def restart(self) -> None:
        with self._lock:
            self.kill()
            self.start()

    def __enter__(self) -> Party:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._log.close()


def a_plan(ports: Sequence[int], noise: ShareNoise | None = None) -> Plan:
    """Return a plan whose report number i sets bit i alone: counts tell who is in a batch."""
    leader, helper = (f"http://127.0.0.1:{port}" for port in ports)
    return Plan(
        Survey("kills", (Flags("people", tuple(f"p{i}" for i in range(REPORTS))),)),
        FlipProbability.at_least(0.001),
        Promise("proven", str(15 * REPORTS), delta="1e-6"),  # above the local epsilon
        crowd_size=CROWD,
        window=WEEK,
        view="counts",
        parties=Aggregators(leader, helper, REPORTS, noise=noise),
    )


def kill_all(
    turns: Sequence[Party],
    databases: Sequence[str],
    chance: random.Random,
    killed: list[Party],
    stop: threading.Event,
) -> None:
    """Kill the party whose turn it is, and note it; before that a database may lose connections."""
    for party in turns:
        if stop.is_set():
            return
        time.sleep(chance.random() * 0.6)
        if databases[0] and chance.random() < 0.5:
            the_server().lose_connections(chance.choice(databases))
        party.restart()
        killed.append(party)


def upload_all(plan: Plan, stop: threading.Event, killed: list[Party], kills: int) -> None:
    """Send every report, each as the same bytes until the leader has it; the last after all kills.

    So there is work for the parties whenever one is killed.
    """
    task = task_of(plan)
    leader = task.endpoint(Role.LEADER)
    transport = HttpTransport(leader.split("/dap/")[0])
    window = int(time.time() // WEEK)

    def keys(role: Role) -> HpkeConfigList:
        return HpkeConfigList.from_bytes(transport.fetch_hpke_keys(task.endpoint(role)))

    for number in range(REPORTS):
        packed = pack_reports(plan, SyntheticVector(1 << number, plan.bits), window=window)
        content = None
        while len(killed) * REPORTS < number * kills and not stop.is_set():
            time.sleep(0.02)
        while not stop.is_set():
            try:
                if content is None:
                    both = (keys(Role.LEADER), keys(Role.HELPER))
                    content = share_report(plan, packed.to_bytes(), *both)
                if _post(leader, task.path, content):
                    break
            except (TransportError, OSError, http.client.HTTPException):
                time.sleep(0.05)


def _post(endpoint: str, task: str, content: bytes) -> bool:
    host, port = endpoint.removeprefix("http://").split("/")[0].split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    try:
        headers = {"Content-Type": UploadRequest.content_type()}
        connection.request("POST", f"/dap/{task}/tasks/{task}/reports", content, headers)
        answer = connection.getresponse()
        return answer.status == 200 and not answer.read()
    finally:
        connection.close()


def collect(
    plan: Plan, folder: Path, between: Sequence[Party], killing: Future[None]
) -> list[list[int]]:
    """Return the counts of each batch when all reports are in one.

    Each is asked for once more after each of some parties was killed.
    """
    agreement = known_agreement(folder / "analyst", "analyst")
    key = SecretKey(COLLECTOR_KEY_ID, agreement.exchange_secret())
    leader = HttpPeer(agreement.others["leader"].url, 30)
    collecting = Collecting(plan, key, leader, agreement.token("leader"))
    found, asked = dict[bytes, list[int]](), list[bytes]()
    end = time.monotonic() + LONGEST
    while len(found) < REPORTS // CROWD:
        if killing.done():
            killing.result()  # or what went wrong
        else:
            end = time.monotonic() + LONGEST
        assert time.monotonic() < end, "batches are missing"
        try:
            batch = collecting.next()
            if batch is not None:
                one, where = batch
                asked.append(one.digest + one.tally.by_bit.tobytes())
                assert len(set(asked)) == 1
                if len(asked) <= len(between):
                    between[len(asked) - 1].restart()
                    continue
                asked.clear()  # it may be ended though the answer does not arrive
                found[one.digest] = one.tally.by_bit.tolist()
                collecting.end(where)
        except TransportError:
            pass
        time.sleep(0.1)
    return list(found.values())


def killed_at_random(
    folder: Path, databases: tuple[str, str], seed: int, noise: ShareNoise | None = None
) -> None:
    chance, ports = random.Random(seed), [free_port() for _ in range(4)]
    plan = a_plan(ports[:2], noise)
    file = folder / "plan.json"
    plan.write(file)
    set_up(folder, *(f"http://127.0.0.1:{port}" for port in ports[:2]))
    stop, killed = threading.Event(), list[Party]()
    of_leader, of_helper = (("--database", one) if one else () for one in databases)
    with ExitStack() as stack:
        small = ("--max-share-percent", "100", "--job-reports", "7")
        leader = stack.enter_context(
            Party("leader", folder, file, (ports[0], ports[2]), *small, *of_leader)
        )
        helper = stack.enter_context(
            Party("helper", folder, file, (ports[1], ports[3]), *of_helper)
        )
        turns = [leader, helper] * KILLS
        chance.shuffle(turns)
        threads = stack.enter_context(ThreadPoolExecutor(2))
        stack.callback(stop.set)
        sending = threads.submit(upload_all, plan, stop, killed, len(turns))
        killing = threads.submit(kill_all, turns, databases, chance, killed, stop)
        between = () if noise is None else (leader, helper)
        batches = collect(plan, folder, between, killing)
        sending.result()
        killing.result()
    assert killed == turns
    if noise is not None:
        lowest, highest = plan.possible_counts(CROWD)
        assert all(lowest <= count <= highest for one in batches for count in one)
        assert any(count < 0 for one in batches for count in one)  # of 180 draws of both or more
        return
    assert [sum(one) for one in batches] == [CROWD] * len(batches)
    assert [sum(place) for place in zip(*batches, strict=True)] == [1] * REPORTS


@pytest.mark.slow
def test_killed_at_random(tmp_path: Path):
    killed_at_random(tmp_path, ("", ""), seed=1)


@pytest.mark.slow
def test_killed_at_random_with_noise(tmp_path: Path):
    killed_at_random(tmp_path, ("", ""), 3, ShareNoise("laplace", "60"))


@pytest.mark.slow
@needs_postgres
def test_killed_at_random_with_postgresql(tmp_path: Path):
    first, second = (the_server().new_database() for _ in range(2))
    killed_at_random(tmp_path, (first, second), seed=2)
