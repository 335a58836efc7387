"""The collector under load: durable reports a second, beside what disk and framework allow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.measuring import LIMIT, Options, Table
from shoal import Flags, Survey, plan

SERVER_CORE, LOAD_CORE = 0, 1
SINGLE, BATCH = 1, 1000

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


def measure(options: Options) -> Table:
    """Measure single reports and batches of a thousand, and the limits in the same rounds."""
    survey = Survey("load", (Flags("answer", tuple(map(str, range(40)))),))
    agreed = plan(survey, crowd_size=100_000, epsilon="1", delta="1e-6")
    singles, batches = options.size(40_000), options.size(600)
    best: dict[str, tuple[float, float, float, int]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        agreed.write(folder / "plan.json")
        serve = [sys.executable, "-m", "shoal", "serve", "--data", str(folder / "data"),
                 "--public", "127.0.0.1:0", "--console", "127.0.0.1:0", "--json",
                 "--spare-megabytes", "0", str(folder / "plan.json")]  # fmt: skip
        with (
            _running(serve) as (ours, process),
            _running([sys.executable, "-c", _ECHO]) as (
                echo,
                _,
            ),
        ):
            memory = [_memory(process.pid)]
            for number in range(options.rounds):
                ways: list[tuple[str, int, dict[str, Any]]] = [
                    ("**Shoal**, one report a request", SINGLE, {"port": ours}),
                    (
                        LIMIT + "Starlette echo, nothing kept",
                        SINGLE,
                        {"port": echo, "path": "/echo"},
                    ),
                    (f"**Shoal**, {BATCH:,} reports a request", BATCH, {"port": ours}),
                ]
                for name, reports, how in ways:
                    requests = singles if reports == SINGLE else batches
                    found = _load(folder / "plan.json", requests, reports, **how)
                    rate = found["requests"] / found["seconds"]
                    if name not in best or rate > best[name][0]:
                        best[name] = (rate, found["p50"], found["p99"], reports)
                best["fsync"] = max(best.get("fsync", (0.0, 0.0, 0.0, 0)), _fsyncs(folder))
                memory.append(_memory(process.pid))
                print(f"\r  round {number + 1} of {options.rounds}", end="", flush=True)
            print()
    disk = best.pop("fsync")
    rows = [
        [name, rate, rate * reports, 1000 * p50, 1000 * p99]
        for name, (rate, p50, p99, reports) in best.items()
    ]
    rows.append([LIMIT + "4 KiB written and on the disk", disk[0], "", 1000 * disk[1],
                 1000 * disk[2]])  # fmt: skip
    total = options.rounds * (singles + batches * BATCH)
    return Table(
        "Collecting reports of 40 bits",
        ["candidate", "requests/s", "reports/s", "p50 ms", "p99 ms"],
        rows,
        "A server on one core, 64 connections from a process on the other, over loopback. Each"
        " answer comes when the report is on the disk, and each report is counted exactly once.",
        [
            f"In {total:,} reports the server grew from {memory[0]:,} to {memory[-1]:,} MiB;"
            f" after the first round it had {memory[1]:,}.",
        ],
    )


def _load(plan_file: Path, requests: int, reports: int, port: int, path: str = "") -> Any:
    command = [sys.executable, "-m", "bench.load", str(plan_file), str(port)]
    command += ["--requests", str(requests), "--reports", str(reports)]
    command += ["--path", path] if path else []
    out = subprocess.run(
        command, check=True, capture_output=True, preexec_fn=lambda: _pin(LOAD_CORE)
    )
    found = json.loads(out.stdout)
    assert found["statuses"] == {"202": requests}, found["statuses"]
    return found


@contextmanager
def _running(command: list[str]) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """Run a server on its core; yield its port and its process."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, preexec_fn=lambda: _pin(SERVER_CORE)
    )
    try:
        assert process.stdout is not None
        urls = json.loads(process.stdout.readline())
        yield int(urls["public"].rsplit(":", 1)[1]), process
    finally:
        process.terminate()
        process.wait()


def _pin(core: int) -> None:
    os.sched_setaffinity(0, {core % (os.cpu_count() or 1)})


def _memory(pid: int) -> int:
    """Return the resident memory of a process in MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) >> 10


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
