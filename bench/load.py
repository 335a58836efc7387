"""Load on a collector from a process of its own: requests made beforehand, sent in one of two ways.

Run as ``python -m bench.load``; it prints one JSON line. By default so many connections each send a
request, wait for the whole answer and send the next one; with ``--fresh`` every request has a
connection of its own, as a device's has. With ``--rate`` requests go at that rate whether or not
the answers come, each on a connection of its own: what honest people do while others attack.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import uvloop

from shoal import Plan
from shoal.device.randomize import pack_reports
from shoal.protocol.wire import Synthetic

PATIENCE = 10.0
"""Seconds after which a request without an answer has failed."""


class Target(NamedTuple):
    """Where requests go."""

    port: int
    context: ssl.SSLContext | None = None


class Connection(asyncio.Protocol):
    """One connection: the next request goes when the answer to the last one is there."""

    def __init__(self, run: Run, fresh: bool) -> None:
        self._run, self._fresh = run, fresh
        self._answer = b""

    def connection_made(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._next()

    def _next(self) -> None:
        request = next(self._run.requests, None)
        if request is None:
            self._transport.close()
            self._run.finished()
            return
        begun = self._run.begun.pop(self, 0.0)  # the time to connect counts where each one does
        self._sent = begun if self._fresh else time.perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        # An answer is small; its head and its body may still come one after the other.
        self._answer += data
        head, blank, body = self._answer.partition(b"\r\n\r\n")
        length = re.search(rb"\r\ncontent-length: *(\d+)", head, re.I)
        if not blank or (length and len(body) < int(length[1])):
            return
        data, self._answer = self._answer, b""
        status = data[9:12]
        self._run.statuses[status] = self._run.statuses.get(status, 0) + 1
        self._run.times.append(time.perf_counter() - self._sent)
        if self._fresh or b"\r\nconnection: close" in data.lower():
            self._transport.abort()
            self._run.connect()
        else:
            self._next()

    def connection_lost(self, error: Exception | None) -> None:
        if error is not None and not self._run.done.done():
            self._run.done.set_exception(error)


class Run:
    """A run: its requests, and what came back."""

    def __init__(self, target: Target, requests: list[bytes], lanes: int, fresh: bool) -> None:
        self.requests: Iterator[bytes] = iter(requests)
        self.statuses: dict[bytes, int] = {}
        self.times: list[float] = []
        self.begun: dict[Connection, float] = {}
        self._target, self._open, self._fresh = target, lanes, fresh
        self._loop = asyncio.get_running_loop()
        self._opening: set[asyncio.Task[None]] = set()
        self.done: asyncio.Future[None] = self._loop.create_future()
        for _ in range(lanes):
            self.connect()

    def connect(self) -> None:
        """Open a connection, which takes the next request."""
        task = self._loop.create_task(self._connect())
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _connect(self) -> None:
        connection = Connection(self, self._fresh)
        self.begun[connection] = time.perf_counter()
        port, context = self._target
        await self._loop.create_connection(lambda: connection, "127.0.0.1", port, ssl=context)

    def finished(self) -> None:
        self._open -= 1
        if not self._open and not self.done.done():
            self.done.set_result(None)


def requests_of(plan: Plan, requests: int, reports: int, path: str, token: str = "") -> list[bytes]:
    """Return requests of so many reports each, with noise for content."""
    rng = np.random.default_rng()
    width = -(-plan.bits // 8)
    rows = rng.integers(0, 256, (requests * reports, width), dtype=np.uint8)
    if plan.bits % 8:
        rows[:, -1] &= (1 << plan.bits % 8) - 1
    found = []
    for start in range(0, len(rows), reports):
        batch = pack_reports(plan, Synthetic(rows[start : start + reports], plan.bits))
        found.append(post(path, batch.to_bytes(), token))
    return found


def post(path: str, body: bytes, token: str = "") -> bytes:
    """Return one request."""
    lines = [f"POST {path} HTTP/1.1", "Host: bench", "Content-Type: application/vnd.shoal.reports"]
    lines += [f"Authorization: Bearer {token}"] if token else []
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


async def load(
    target: Target, requests: list[bytes], connections: int, fresh: bool = False
) -> dict[str, object]:
    """Send all requests over so many connections at a time, and tell how it went."""
    start = time.perf_counter()
    run = Run(target, requests, connections, fresh)
    await run.done
    return _summary(run.times, time.perf_counter() - start, run.statuses)


async def steady(target: Target, requests: list[bytes], rate: float) -> dict[str, object]:
    """Send requests at a rate, each on a connection of its own; 0 counts those that failed."""
    statuses: dict[bytes, int] = {}
    times: list[float] = []

    async def send(request: bytes) -> None:
        begun, status = time.perf_counter(), b"0"
        try:
            async with asyncio.timeout(PATIENCE):
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", target.port, ssl=target.context
                )
                try:
                    writer.write(request)
                    status = (await reader.readuntil(b"\r\n\r\n"))[9:12]
                finally:
                    writer.transport.abort()
        except (TimeoutError, OSError, EOFError):
            pass
        times.append(time.perf_counter() - begun)
        statuses[status] = statuses.get(status, 0) + 1

    start = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number, request in enumerate(requests):
            await asyncio.sleep(start + number / rate - time.perf_counter())
            group.create_task(send(request))
    return _summary(times, time.perf_counter() - start, statuses)


def _summary(times: list[float], seconds: float, statuses: dict[bytes, int]) -> dict[str, object]:
    return {
        "requests": len(times),
        "seconds": seconds,
        "p50": float(np.quantile(times, 0.5)),
        "p99": float(np.quantile(times, 0.99)),
        "statuses": {status.decode(): count for status, count in statuses.items()},
    }


def main() -> None:
    """Read the options, make the requests, send them, and print the result."""
    parser = argparse.ArgumentParser(prog="python -m bench.load", description=__doc__)
    parser.add_argument("plan", type=Path)
    parser.add_argument("port", type=int)
    parser.add_argument("--path")
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--reports", type=int, default=1)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--rate", type=float, default=0.0)
    parser.add_argument(
        "--tls", action="store_true", help="the server's certificate is not checked"
    )
    parser.add_argument("--token", default="")
    options = parser.parse_args()
    plan = Plan.read(options.plan)
    path = options.path or f"/v1/plans/{plan.id}/reports"
    requests = requests_of(plan, options.requests, options.reports, path, options.token)
    context = None
    if options.tls:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    target = Target(options.port, context)
    work = (
        steady(target, requests, options.rate)
        if options.rate
        else load(target, requests, options.connections, options.fresh)
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(json.dumps(runner.run(work)))


if __name__ == "__main__":
    main()
