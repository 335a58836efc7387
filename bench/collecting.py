"""The collector under load: durable reports a second, beside what disk and framework allow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from bench.measuring import LIMIT, Options, Table
from bench.proxying import nginx
from bench.serving import LOAD_CORE, collector, pin, relay_token, running
from shoal import Flags, Survey, plan

BATCH = 1000

_ECHO = """
import socket, uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

async def echo(request: Request) -> Response:
    await request.body()
    return Response(status_code=202)

bound = socket.create_server(("127.0.0.1", 0), backlog=4096)
print('{"public": "http://127.0.0.1:%d"}' % bound.getsockname()[1], flush=True)
app = Starlette(routes=[Route("/echo", echo, methods=["POST"])])
uvicorn.Server(uvicorn.Config(app, access_log=False, log_config=None, lifespan="off", loop="uvloop",
                              http="httptools")).run(sockets=[bound])
"""


class Way(NamedTuple):
    """One way to send: its name, requests, reports in each, and the words for `bench.load`."""

    name: str
    requests: int
    reports: int
    port: int
    words: tuple[str, ...] = ()


def measure(options: Options) -> Table:
    """Measure single reports and batches of a thousand, and the limits in the same rounds."""
    survey = Survey("load", (Flags("answer", tuple(map(str, range(40)))),))
    agreed = plan(survey, crowd_size=100_000, epsilon="1", delta="1e-6")
    singles, fresh, batches = options.size(40_000), options.size(10_000), options.size(600)
    best: dict[str, tuple[float, float, float, int]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        agreed.write(folder / "plan.json")
        serve = collector(folder / "data", str(folder / "plan.json"))
        with (
            running(serve) as ours,
            running([sys.executable, "-c", _ECHO]) as echo,
            nginx(folder, ours.port) as ports,
        ):
            token = relay_token(folder / "data", ours.urls["console"])
            plain, secure = ports or (0, 0)
            ways = [
                Way("**Shoal**, kept alive", singles, 1, ours.port),
                Way("**Shoal**, a connection for each", fresh, 1, ours.port, ("--fresh",)),
                Way("**Shoal** behind nginx, kept alive", singles, 1, plain),
                Way("**Shoal** behind nginx, a connection for each", fresh, 1, plain, ("--fresh",)),
                Way("**Shoal** behind nginx, a connection for each, TLS", fresh, 1, secure,
                    ("--fresh", "--tls")),
                Way(LIMIT + "Starlette echo, kept alive, nothing stored", singles, 1, echo.port,
                    ("--path", "/echo")),
                Way(f"**Shoal**, a relay's {BATCH:,} reports a request", batches, BATCH, ours.port,
                    ("--token", token)),
            ]  # fmt: skip
            memory = [ours.memory()]
            for number in range(options.rounds):
                for way in (way for way in ways if way.port):
                    found = _load(folder / "plan.json", way)
                    rate = found["requests"] / found["seconds"]
                    if way.name not in best or rate > best[way.name][0]:
                        best[way.name] = (rate, found["p50"], found["p99"], way.reports)
                best["fsync"] = max(best.get("fsync", (0.0, 0.0, 0.0, 0)), _fsyncs(folder))
                memory.append(ours.memory())
                print(f"\r  round {number + 1} of {options.rounds}", end="", flush=True)
            print()
    disk = best.pop("fsync")
    rows = [
        [name, rate, rate * reports, 1000 * p50, 1000 * p99]
        for name, (rate, p50, p99, reports) in best.items()
    ]
    rows.append([LIMIT + "4 KiB written and on the disk", disk[0], "", 1000 * disk[1],
                 1000 * disk[2]])  # fmt: skip
    here = [way for way in ways if way.port and way.port != echo.port]
    total = options.rounds * sum(way.requests * way.reports for way in here)
    return Table(
        "Collecting reports of 40 bits",
        ["candidate", "requests/s", "reports/s", "p50 ms", "p99 ms"],
        rows,
        "A server on one core; 64 senders at a time from a process on the other, over loopback."
        " The server answers when the report is on disk, and counts each report exactly once."
        " Unless the row says otherwise, a request is one report.",
        [
            f"Over {total:,} reports the server grew from {memory[0]:,} to {memory[-1]:,} MiB;"
            f" after the first round it had {memory[1]:,}.",
            "A device opens a connection for each plan it answers, usually for one report; a relay"
            " or a proxy keeps its connections. nginx runs deploy/nginx.conf without its limits per"
            " address, on whichever core is free.",
        ],
    )


def _load(plan_file: Path, way: Way) -> Any:
    command = [sys.executable, "-m", "bench.load", str(plan_file), str(way.port), *way.words]
    command += ["--requests", str(way.requests), "--reports", str(way.reports)]
    out = subprocess.run(command, check=True, capture_output=True, preexec_fn=_on_load_core)
    found = json.loads(out.stdout)
    assert found["statuses"] == {"202": way.requests}, found["statuses"]
    return found


def _on_load_core() -> None:
    pin(LOAD_CORE)


def _fsyncs(folder: Path, seconds: float = 1.0) -> tuple[float, float, float, int]:
    """Return how often a second 4 KiB can be brought to the disk, with p50 and p99."""
    times = []
    handle = os.open(folder / "probe", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        before = time.perf_counter()
        os.write(handle, bytes(4096))
        os.fdatasync(handle)
        times.append(time.perf_counter() - before)
    os.close(handle)
    times.sort()
    return len(times) / seconds, times[len(times) // 2], times[len(times) * 99 // 100], 1
