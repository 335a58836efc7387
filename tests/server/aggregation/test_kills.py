"""Leader and helper are killed at random: every report is in exactly one batch, sums are exact.

With noise of the aggregators a batch is the same however often it is asked for.
"""

from __future__ import annotations

import http.client
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

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
from tests.server.serving_help import ServiceProcess

LONGEST = 120.0
KILLS = int(os.environ.get("SHOAL_KILLS", "8"))
REPORTS, CROWD, WEEK = 60, 20, 7 * 86_400


class Party(ServiceProcess):
    """A leader or a helper in a process of its own."""

    def __init__(self, role: str, folder: Path, plan: Path, ports: tuple[int, int], *more: str):
        super().__init__(
            folder / f"{role}.log",
            *(role, "--data", str(folder / role), *more, str(plan)),
            *("--public", f"127.0.0.1:{ports[0]}", "--console", f"127.0.0.1:{ports[1]}"),
            *("--min-crowd", "1", "--min-free-megabytes", "0"),
        )

    def __enter__(self) -> Self:
        self.start()
        return self


def a_plan(ports: Sequence[int], noise: ShareNoise | None = None) -> Plan:
    """Return a plan whose report number i sets bit i alone: counts tell who is in a batch."""
    leader, helper = (f"http://127.0.0.1:{port}" for port in ports)
    return Plan(
        Survey("kills", (Flags("people", tuple(f"p{i}" for i in range(REPORTS))),)),
        FlipProbability.at_least(0.001),
        Promise("proven", "900", delta="1e-6"),
        crowd_size=CROWD,
        window=WEEK,
        view="counts",
        parties=Aggregators(leader, helper, REPORTS, noise=noise),
    )


def upload_all(plan: Plan, stop: threading.Event) -> None:
    """Send every report, each as the same bytes until the leader has it."""
    task = task_of(plan)
    leader = task.endpoint(Role.LEADER)
    transport = HttpTransport(leader.split("/dap/")[0])
    window = int(time.time() // WEEK)

    def keys(role: Role) -> HpkeConfigList:
        return HpkeConfigList.from_bytes(transport.fetch_hpke_keys(task.endpoint(role)))

    for number in range(REPORTS):
        packed = pack_reports(plan, SyntheticVector(1 << number, plan.bits), window=window)
        content = None
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
    plan: Plan, folder: Path, kill: Callable[[], None] = lambda: None, asked: int = 1
) -> Iterator[list[int]]:
    """Yield the counts of each batch, until all reports are in one.

    Each is asked for several times, and a party is killed in between.
    """
    agreement = known_agreement(folder / "analyst", "analyst")
    key = SecretKey(COLLECTOR_KEY_ID, agreement.exchange_secret())
    leader = HttpPeer(agreement.others["leader"].url, 30)
    collecting = Collecting(plan, key, leader, agreement.token("leader"))
    found, end = 0, time.monotonic() + LONGEST
    digests: list[bytes] = []
    while found < REPORTS // CROWD:
        assert time.monotonic() < end, "batches are missing"
        try:
            batch = collecting.next()
            if batch is not None:
                digests.append(batch[0].digest + batch[0].tally.by_bit.tobytes())
                kill()
                end = time.monotonic() + LONGEST
            if batch is not None and len(digests) >= asked:
                collecting.end(batch[1])
                assert len(set(digests)) == 1
                found, digests = found + 1, []
                yield batch[0].tally.by_bit.tolist()
        except TransportError:
            pass
        time.sleep(0.1)


def killed_at_random(
    folder: Path,
    databases: tuple[str, str],
    kills: int,
    seed: int,
    noise: ShareNoise | None = None,
) -> None:
    chance, ports = random.Random(seed), [free_port() for _ in range(4)]
    plan = a_plan(ports[:2], noise)
    file = folder / "plan.json"
    plan.write(file)
    set_up(folder, *(f"http://127.0.0.1:{port}" for port in ports[:2]))
    stop = threading.Event()
    of_leader, of_helper = (("--database", one) if one else () for one in databases)
    with ExitStack() as stack:
        small = ("--max-share-percent", "100", "--job-reports", "4")
        leader = stack.enter_context(
            Party("leader", folder, file, (ports[0], ports[2]), *small, *of_leader)
        )
        helper = stack.enter_context(
            Party("helper", folder, file, (ports[1], ports[3]), *of_helper)
        )
        sending = threading.Thread(target=upload_all, args=(plan, stop))
        sending.start()
        try:
            for _ in range(kills):
                time.sleep(chance.random() * 0.6)
                if databases[0] and chance.random() < 0.5:
                    the_server().lose_connections(chance.choice(databases))
                _restart(chance.choice((leader, helper)))
            sending.join(LONGEST)
            assert not sending.is_alive()
        finally:
            stop.set()
        if noise is not None:
            both = (leader, helper)
            again = list(collect(plan, folder, lambda: _restart(chance.choice(both)), asked=3))
            lowest, highest = plan.possible_counts(CROWD)
            assert all(lowest <= count <= highest for one in again for count in one)
            assert any(count < 0 for one in again for count in one)  # of 180 draws of both
            return
        batches = list(collect(plan, folder))
    assert [sum(one) for one in batches] == [CROWD] * len(batches)
    assert [sum(place) for place in zip(*batches, strict=True)] == [1] * REPORTS


def _restart(party: Party) -> None:
    party.kill()
    party.start()


@pytest.mark.slow
def test_killed_at_random(tmp_path: Path):
    killed_at_random(tmp_path, ("", ""), KILLS, seed=1)


@pytest.mark.slow
def test_killed_at_random_with_noise(tmp_path: Path):
    killed_at_random(tmp_path, ("", ""), KILLS, 3, ShareNoise("laplace", "60"))


@pytest.mark.slow
@needs_postgres
def test_killed_at_random_with_postgresql(tmp_path: Path):
    first, second = (the_server().new_database() for _ in range(2))
    killed_at_random(tmp_path, (first, second), KILLS, seed=2)
