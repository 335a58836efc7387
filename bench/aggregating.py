"""A leader and a helper from the first upload to the analyst's last batch: reports a second."""

from __future__ import annotations

import json
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path

from bench.measuring import Options, Table
from shoal import Flags, Plan, Survey
from shoal.device.arrays.simulation_bits import SimulationBits
from shoal.device.encode import SyntheticVector
from shoal.device.outbox import HttpTransport
from shoal.device.randomize import pack_reports
from shoal.device.sharing import share_report, upload_path
from shoal.lab.demo import free_port, run_command, running
from shoal.protocol.dap import COLLECTOR_KEY_ID, SecretKey, Task
from shoal.protocol.dap.messages import HpkeConfigList, Role, UploadRequest
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Aggregators, Promise
from shoal.server.analyst import Collecting
from shoal.server.core.parties import HttpPeer, known_agreement

_LENGTHS = (10, 40, 1000)
_CROWD, _SENDERS, _WEEK = 500, 16, 7 * 86_400
_TEXT = (
    "Leader and helper, each a process on this machine with SQLite, which also runs the senders."
    f" {_SENDERS} connections upload one report a request; the reports were made before. Uploaded:"
    " on the leader's disk. Collected: both have decrypted, verified and added all reports, and the"
    f" analyst has the sums of every batch of {_CROWD}."
)


def measure(options: Options) -> Table:
    """Measure each length, the best of the rounds."""
    batches = max(1, options.size(2000) // _CROWD)
    rows = []
    for length in _LENGTHS:
        rounds = [_run(length, batches) for _ in range(min(options.rounds, 3))]
        rows.append((length, *(round(max(column)) for column in zip(*rounds, strict=True))))
    columns = ("bits", "uploaded/s", "collected/s")
    return Table("A leader and a helper, end to end", columns, rows, _TEXT)


def _run(length: int, batches: int) -> tuple[float, float]:
    """Return how many reports a second were uploaded, and collected."""
    ports = [free_port() for _ in range(2)]
    urls = [f"http://127.0.0.1:{port}" for port in ports]
    plan = Plan(
        Survey("load", (Flags("answer", tuple(map(str, range(length)))),)),
        FlipProbability.at_least(0.25),
        Promise("proven", "99999", delta="1e-6"),
        crowd_size=_CROWD,
        window=_WEEK,
        view="counts",
        parties=Aggregators(*urls, length, one_operator=True),
    )
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        file = folder / "plan.json"
        plan.write(file)
        setup = ["parties", "setup", "--both", "--role", "leader", "--data", scratch, "--json"]
        json.loads(run_command(*setup, *(f"--url={url}" for url in (*urls, "http://127.0.0.1:1"))))
        more = ["--console", "127.0.0.1:0", "--min-free-megabytes", "0", str(file)]
        leader, helper = (
            [role, "--public", f"127.0.0.1:{port}", *more]
            for role, port in zip(("leader", "helper"), ports, strict=True)
        )
        leader += ["--max-share-percent", "100"]
        with (
            running("helper", helper, folder / "helper"),
            running("leader", leader, folder / "leader"),
        ):
            uploads = _uploads(plan, batches * _CROWD)
            start = time.perf_counter()
            with ThreadPoolExecutor(_SENDERS) as threads:
                parts = [uploads[sender::_SENDERS] for sender in range(_SENDERS)]
                list(threads.map(lambda part: _send(plan, ports[0], part), parts))
            uploaded = time.perf_counter() - start
            _collect(plan, folder / "analyst", batches)
            return len(uploads) / uploaded, len(uploads) / (time.perf_counter() - start)


def _uploads(plan: Plan, count: int) -> list[bytes]:
    task, bits = Task(plan), SimulationBits(1)
    transport = HttpTransport(task.endpoint(Role.LEADER).split("/dap/")[0])
    leader, helper = (
        HpkeConfigList.from_bytes(transport.fetch_hpke_keys(task.endpoint(role)))
        for role in (Role.LEADER, Role.HELPER)
    )
    window, size = int(time.time() // _WEEK), (plan.bits + 7) // 8
    drawn = bytearray(count * size)
    bits.fill(drawn)
    found = []
    for place in range(0, len(drawn), size):
        value = int.from_bytes(drawn[place : place + size]) % (1 << plan.bits)
        packed = pack_reports(plan, SyntheticVector(value, plan.bits), window=window)
        found.append(share_report(plan, packed.to_bytes(), leader, helper))
    return found


def _send(plan: Plan, port: int, uploads: list[bytes]) -> None:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"Content-Type": UploadRequest.content_type()}
    for one in uploads:
        while True:
            connection.request("POST", upload_path(plan.id), one, headers)
            with connection.getresponse() as answer:
                content = answer.read()
            if answer.status == 200:
                assert not content
                break
            assert answer.status == 503, answer.status
            time.sleep(0.05)
    connection.close()


def _collect(plan: Plan, folder: Path, batches: int) -> None:
    agreement = known_agreement(folder, "analyst")
    key = SecretKey(COLLECTOR_KEY_ID, agreement.exchange_secret())
    peer = HttpPeer(agreement.others["leader"].url, 60)
    collecting = Collecting(plan, key, peer, agreement.token("leader"))
    found = 0
    while found < batches:
        one = collecting.next()
        if one is None:
            time.sleep(0.02)
            continue
        found += 1
        collecting.end(one[1])
