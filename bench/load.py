"""Load on a collector from a process of its own: requests made beforehand, as fast as answers come.

Run as ``python -m bench.load``; it prints one JSON line. Every connection sends a request, waits
for the whole answer and sends the next one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import uvloop

from shoal import Plan, Synthetic, pack_reports


class Connection(asyncio.Protocol):
    """One connection: the next request goes when the answer to the last one is there."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def connection_made(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._next()

    def _next(self) -> None:
        request = next(self._run.requests, None)
        if request is None:
            self._transport.close()
            self._run.finished()
            return
        self._sent = time.perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        # An answer is small and comes in one piece: its head, and a body of known length or none.
        status = data[9:12]
        self._run.statuses[status] = self._run.statuses.get(status, 0) + 1
        self._run.times.append(time.perf_counter() - self._sent)
        self._next()

    def connection_lost(self, error: Exception | None) -> None:
        if error is not None:
            self._run.done.set_exception(error)


class Run:
    """A run: its requests, and what came back."""

    def __init__(self, requests: list[bytes], connections: int) -> None:
        self.requests: Iterator[bytes] = iter(requests)
        self.statuses: dict[bytes, int] = {}
        self.times: list[float] = []
        self._open = connections
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def finished(self) -> None:
        self._open -= 1
        if not self._open and not self.done.done():
            self.done.set_result(None)


def made(plan: Plan, requests: int, reports: int, path: str) -> list[bytes]:
    """Return requests of so many reports each, with noise for content."""
    rng = np.random.default_rng()
    width = -(-plan.bits // 8)
    rows = rng.integers(0, 256, (requests * reports, width), dtype=np.uint8)
    if plan.bits % 8:
        rows[:, -1] &= (1 << plan.bits % 8) - 1
    found = []
    for start in range(0, len(rows), reports):
        batch = pack_reports(plan, Synthetic(rows[start : start + reports], plan.bits))
        body = batch.to_bytes()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: bench\r\n"
            f"Content-Type: application/vnd.shoal.reports\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        found.append(head.encode() + body)
    return found


async def load(host: str, port: int, requests: list[bytes], connections: int) -> dict[str, object]:
    """Send all requests over so many connections, and tell how it went."""
    run = Run(requests, connections)
    loop = asyncio.get_running_loop()
    start = time.perf_counter()
    for _ in range(connections):
        await loop.create_connection(lambda: Connection(run), host, port)
    await run.done
    seconds = time.perf_counter() - start
    times = np.sort(run.times)
    return {
        "requests": len(times),
        "seconds": seconds,
        "p50": float(np.quantile(times, 0.5)),
        "p99": float(np.quantile(times, 0.99)),
        "statuses": {status.decode(): count for status, count in run.statuses.items()},
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
    options = parser.parse_args()
    plan = Plan.read(options.plan)
    path = options.path or f"/v1/plans/{plan.id}/reports"
    requests = made(plan, options.requests, options.reports, path)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        result = runner.run(load("127.0.0.1", options.port, requests, options.connections))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
