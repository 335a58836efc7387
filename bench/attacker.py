"""The attacker of `bench.attacks`: one host that knows what anybody can know.

Run as ``python -m bench.attacker``. It has the address and the published plans, sends to loopback
only, ends after so many seconds, and prints what that has cost it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from itertools import count, cycle
from pathlib import Path
from typing import NamedTuple

import numpy as np
import uvloop

from bench.load import post
from shoal import Plan
from shoal.analysis.report_files import Batch
from shoal.device.randomize import pack_reports
from shoal.protocol.wire import Synthetic

SLOW = 2000
"""Connections that an attacker holds who sends slowly."""
LANES = 32
"""Connections that an attacker has who sends as fast as answers come."""
PATIENCE = 5.0


class Host:
    """The attacker: where it sends, until when, and what that has cost it."""

    def __init__(self, port: int, plans: list[Plan], seconds: float) -> None:
        self.port, self.plans, self._end = port, plans, time.monotonic() + seconds
        self.connections = self.bytes = self.requests = 0

    @property
    def goes_on(self) -> bool:
        return time.monotonic() < self._end

    def path(self, agreed: Plan) -> str:
        return f"/v1/plans/{agreed.id}/reports"

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        pair = await asyncio.open_connection("127.0.0.1", self.port)
        self.connections += 1
        return pair

    async def lanes(self, work: Callable[[int], Awaitable[None]], number: int = LANES) -> None:
        """Do something over and over in so many lanes; whatever the collector does, go on."""

        async def lane(own: int) -> None:
            while self.goes_on:
                try:
                    async with asyncio.timeout(max(self._end - time.monotonic(), 0) + 0.1):
                        await work(own)
                except (OSError, EOFError, TimeoutError, RuntimeError):  # uvloop, of closed ones
                    await asyncio.sleep(0.01)

        await asyncio.gather(*(lane(own) for own in range(number)))

    async def flood(self, requests: Iterator[bytes], number: int = LANES) -> None:
        """Send requests as fast as answers come, on connections that are kept as they may."""

        async def work(own: int) -> None:
            reader, writer = await self.open()
            try:
                while self.goes_on:
                    request = next(requests)
                    self.bytes += len(request)
                    self.requests += 1
                    writer.write(request)
                    head = (await reader.readuntil(b"\r\n\r\n")).lower()
                    length = int(head.partition(b"content-length: ")[2].split(b"\r")[0] or 0)
                    await reader.readexactly(length)
                    if b"connection: close" in head:
                        return
            finally:
                writer.transport.abort()

        await self.lanes(work, number)

    async def stream(self, head: bytes, chunk: bytes, size: int, number: int) -> None:
        """Send a body of so many bytes as fast as it is taken, again and again."""

        async def work(own: int) -> None:
            _, writer = await self.open()
            self.requests += 1
            try:
                writer.write(head)
                for _ in range(0, size, len(chunk)):
                    if not self.goes_on:
                        return
                    writer.write(chunk)
                    self.bytes += len(chunk)
                    await writer.drain()
            finally:
                writer.transport.abort()

        await self.lanes(work, number)

    async def trickle(self, start: bytes, drop: bytes) -> None:
        """Hold connections that send a drop a second, and open those anew that are closed."""

        async def work(own: int) -> None:
            await asyncio.sleep(own / SLOW)
            _, writer = await self.open()
            self.bytes += len(start)
            try:
                writer.write(start)
                while self.goes_on and not writer.transport.is_closing():
                    await asyncio.sleep(1)
                    writer.write(drop)
                    self.bytes += len(drop)
            finally:
                writer.transport.abort()

        await self.lanes(work, SLOW)

    def batches(self, agreed: Plan, reports: int) -> Iterator[bytes]:
        """Return requests without end, each of new reports."""
        rng = np.random.default_rng()
        rows = np.zeros((reports, -(-agreed.bits // 8)), np.uint8)
        windows = np.array(pack_reports(agreed, Synthetic(rows, agreed.bits)).windows, np.uint32)
        for _ in count():
            ids = rng.integers(0, 256, (reports, 16), np.uint8)
            batch = Batch(agreed.id, ids, windows, None, rows)
            yield post(self.path(agreed), batch.to_bytes())


def _head(host: Host, *lines: str, media: str = "application/octet-stream") -> bytes:
    words = [f"POST {host.path(host.plans[0])} HTTP/1.1", "Host: a", f"Content-Type: {media}"]
    return "\r\n".join([*words, *lines, "", ""]).encode()


def _as_json(host: Host, body: bytes) -> bytes:
    return _head(host, f"Content-Length: {len(body)}", media="application/json") + body


async def large_json(host: Host) -> None:
    size = 32 << 20
    head = _head(host, f"Content-Length: {size}", media="application/json")
    await host.stream(head + b'{"plan": "', b"a" * 65_536, size, 4)


async def costly_json(host: Host) -> None:
    """The most that is taken of JSON, made of what is dearest to parse."""
    body = b'{"plan": "", "reports": [' + b'{"a":1},' * 8_180 + b"0]}"
    await host.flood(cycle([_as_json(host, body)]))


async def large_bodies(host: Host) -> None:
    size = 32 << 20
    await host.stream(_head(host, f"Content-Length: {size}"), bytes(65_536), size, 4)


async def endless_chunks(host: Host) -> None:
    chunk = b"10000\r\n" + bytes(65_536) + b"\r\n"
    await host.stream(_head(host, "Transfer-Encoding: chunked"), chunk, 1 << 40, LANES)


async def full_batches(host: Host) -> None:
    await host.flood(host.batches(host.plans[0], 100))


async def completing_storm(host: Host) -> None:
    """Send the smallest crowd what one request may bring: a hundred requests complete it."""
    await host.flood(host.batches(host.plans[1], 1))


async def refused_batches(host: Host) -> None:
    """Full batches into a small crowd, which are more than one request may bring."""
    await host.flood(host.batches(host.plans[1], 100))


async def replays(host: Host) -> None:
    await host.flood(cycle([next(host.batches(host.plans[0], 100))]))


async def many_plans(host: Host) -> None:
    ways = [host.batches(agreed, 100) for agreed in (host.plans[0], *host.plans[2:])]
    await host.flood(next(way) for way in cycle(ways))


async def reading_plans(host: Host) -> None:
    request = f"GET /v1/plans/{host.plans[0].id} HTTP/1.1\r\nHost: a\r\n\r\n".encode()
    await host.flood(cycle([request]))


async def slow_bodies(host: Host) -> None:
    await host.trickle(_head(host, "Content-Length: 2000") + b"SHOAL", b"a")


async def slow_heads(host: Host) -> None:
    await host.trickle(b"POST / HTTP/1.1\r\nX-A: ", b"a")


async def connection_flood(host: Host) -> None:
    async def work(own: int) -> None:
        _, writer = await host.open()
        writer.transport.abort()

    await host.lanes(work, 64)


async def held_connections(host: Host) -> None:
    """Connections that say nothing, as many as this machine gives, opened ever anew."""
    held: list[asyncio.StreamWriter] = []

    async def work(own: int) -> None:
        held.append((await host.open())[1])
        if len(held) > 4000:
            held.pop(0).transport.abort()

    await host.lanes(work, 64)
    for writer in held:
        writer.transport.abort()


async def pipelined_garbage(host: Host) -> None:
    wrong = post(host.path(host.plans[0]), b"garbage") * 15 + b"GARBAGE\r\n\r\n"

    async def work(own: int) -> None:
        reader, writer = await host.open()
        writer.write(wrong)
        host.bytes += len(wrong)
        host.requests += 16
        try:
            await reader.read()
        finally:
            writer.transport.abort()

    await host.lanes(work)


class Attack(NamedTuple):
    """An attack: what it is, what runs it, and settings of the collector it is about."""

    name: str
    run: Callable[[Host], Awaitable[None]]
    settings: tuple[str, ...] = ()


ATTACKS = (
    Attack("JSON of 32 MiB", large_json),
    Attack("JSON of 64 KiB, expensive to parse", costly_json),
    Attack("binary bodies of 32 MiB", large_bodies),
    Attack("bodies in chunks without end", endless_chunks),
    Attack("full batches", full_batches),
    Attack("full batches into a small crowd", refused_batches),
    Attack("small crowds completed over and over", completing_storm),
    Attack("one batch replayed", replays),
    Attack("full batches to many plans", many_plans),
    Attack("a plan read over and over", reading_plans),
    Attack(f"{SLOW:,} slow bodies", slow_bodies),
    Attack(f"{SLOW:,} slow heads", slow_heads),
    Attack("connections opened and closed", connection_flood),
    Attack("connections held and silent", held_connections),
    Attack("pipelined garbage", pipelined_garbage),
    Attack("a rate limit used up", full_batches, ("--reports-per-second", "200")),
)


def main() -> None:
    """Be the attacker."""
    parser = argparse.ArgumentParser(prog="python -m bench.attacker", description=__doc__)
    parser.add_argument("name", choices=[attack.run.__name__ for attack in ATTACKS])
    parser.add_argument("port", type=int)
    parser.add_argument("plans", type=Path, nargs="+")
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    run = next(attack.run for attack in ATTACKS if attack.run.__name__ == options.name)

    async def attack() -> None:
        host = Host(options.port, [Plan.read(path) for path in options.plans], options.seconds)
        print("begun", flush=True)
        await run(host)
        print(json.dumps({"bytes": host.bytes, "connections": host.connections}))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(attack())


if __name__ == "__main__":
    main()
