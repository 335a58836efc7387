"""Collectors on PostgreSQL under load: one, two, and two processes at one address."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from tests.server.postgres_help import MISSING, Server

from bench.measuring import Options, Table
from bench.serving import Running, collector, relay_token, running
from shoal import Flags, Survey, plan

BATCH = 1000


class Way(NamedTuple):
    """A deployment: its name, how many collectors it has, and the words for each."""

    name: str
    collectors: int
    words: tuple[str, ...]


def measure(options: Options) -> Table:
    """Measure batches and single reports at each deployment, on whichever cores are free."""
    rows: list[list[Any]] = []
    if MISSING:
        return Table("Collectors on PostgreSQL", ["candidate"], [[MISSING]], "", [])
    survey = Survey("load", (Flags("answer", tuple(map(str, range(40)))),))
    agreed = plan(survey, crowd_size=100_000, epsilon="1", delta="1e-6")
    batches, singles = options.size(400), options.size(20_000)
    server = Server(on_disk=True)
    try:
        for way in (
            Way("SQLite, one collector", 1, ()),
            Way("PostgreSQL, one collector", 1, ("--database",)),
            Way("PostgreSQL, two collectors", 2, ("--database",)),
            Way("PostgreSQL, one collector, `--workers 2`", 1, ("--workers", "2", "--database")),
        ):
            best = {BATCH: 0.0, 1: 0.0}
            for number in range(options.rounds):
                with tempfile.TemporaryDirectory() as scratch, ExitStack() as held:
                    folder = Path(scratch)
                    agreed.write(folder / "plan.json")
                    words = (*way.words, server.new_database()) if way.words else ()
                    ours = list(held.enter_context(_deployed(folder, way.collectors, words)))
                    token = relay_token(folder / "1", ours[0].urls["console"])
                    if "--workers" in way.words:
                        _wait_for(folder / "1" / "worker-2" / "addresses.json")
                    for reports, requests in ((BATCH, batches), (1, singles)):
                        rate = _load(folder, ours, requests, reports, token)
                        best[reports] = max(best[reports], rate)
                    _check_sum(folder, agreed.id, ours, options.size(400) * BATCH + singles)
                print(f"\r  {way.name}: round {number + 1}", end="", flush=True)
            rows.append([f"**Shoal**, {way.name}", best[BATCH], best[1]])
    finally:
        server.remove()
    print()
    return Table(
        "Collectors on PostgreSQL, reports of 40 bits",
        ["candidate", f"reports/s, a relay's {BATCH:,} a request", "reports/s, one a request"],
        rows,
        "Collectors, PostgreSQL and two processes with 32 senders each share all cores of the"
        " machine, over loopback. Reports are answered when they are on disk, and the released"
        " crowds of each round hold as many reports as were sent, down to a whole crowd.",
        [],
    )


@contextmanager
def _deployed(folder: Path, count: int, words: tuple[str, ...]) -> Iterator[list[Running]]:
    """Run collectors that share a database, if they have one; the second has copies of the keys."""
    with ExitStack() as held:
        ours = []
        for number in range(1, count + 1):
            data = folder / str(number)
            if number > 1:
                data.mkdir()
                for name in ("crowd-key", "signing-key"):
                    shutil.copy(folder / "1" / name, data)
            command = collector(data, *words, str(folder / "plan.json"))
            ours.append(held.enter_context(running(command, core=None)))
        yield ours


def _wait_for(path: Path) -> None:
    """Wait for a file that a process writes when it is ready."""
    end = time.monotonic() + 120
    while not path.exists():
        assert time.monotonic() < end
        time.sleep(0.1)


def _load(folder: Path, ours: list[Running], requests: int, reports: int, token: str) -> float:
    """Send from two processes, one for each collector if there are two; return reports a second."""
    command = [sys.executable, "-m", "bench.load", str(folder / "plan.json")]
    sizes = ["--requests", str(requests // 2), "--reports", str(reports), "--connections", "32"]
    words = ["--token", token] if reports > 1 else []

    def run(port: int) -> Any:
        done = subprocess.run(
            [*command, str(port), *sizes, *words], check=True, capture_output=True
        )
        found = json.loads(done.stdout)
        assert found["statuses"] == {"202": requests // 2}, found["statuses"]
        return found

    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(run, [ours[0].port, ours[-1].port]))
    return sum(one["requests"] for one in found) * reports / max(one["seconds"] for one in found)


def _check_sum(folder: Path, plan_id: str, ours: list[Running], sent: int) -> None:
    """Check that the released crowds hold what was sent, but for the crowd that is open."""
    admin = (folder / "1" / "admin-token").read_text().strip()
    connection = HTTPConnection(urlsplit(ours[0].urls["console"]).netloc, timeout=60)
    connection.request(
        "GET", f"/v1/plans/{plan_id}/crowds", headers={"Authorization": f"Bearer {admin}"}
    )
    with connection.getresponse() as answer:
        crowds = json.load(answer)["crowds"]
    connection.close()
    released = sum(one["reports"] for one in crowds if one["state"] == "released")
    assert released == sent // 100_000 * 100_000, (released, sent)
