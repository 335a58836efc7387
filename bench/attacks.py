"""One anonymous host against a collector: what each attack costs it, and what honest people notice.

Honest people send at a steady rate, each report on a connection of its own. Their rate is measured
alone, then under each attack, then once more when it is over. The attacker is a process that runs
as ``python -m bench.attacks``; it knows what anybody can know: the address and the published plans.
Everything is bounded in time and number and stays on this machine's loopback.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from itertools import count, cycle
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import uvloop

from bench.load import post
from bench.measuring import Options, Table
from bench.serving import LOAD_CORE, Running, collector, pin, running
from shoal import Batch, Flags, Plan, Survey, pack_reports, plan
from shoal.vectors import Synthetic

RATE = 100.0
"""Honest reports a second."""
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
        template = pack_reports(agreed, Synthetic(rows, agreed.bits))
        for _ in count():
            ids = rng.integers(0, 256, (reports, 16), np.uint8)
            batch = Batch(agreed.id, ids, template.windows, None, rows)
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


async def sealing_storm(host: Host) -> None:
    """As many reports as one request may bring to the smallest crowd: one in a hundred seals."""
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
    Attack("JSON of 64 KiB, dear to parse", costly_json),
    Attack("binary bodies of 32 MiB", large_bodies),
    Attack("bodies in chunks without end", endless_chunks),
    Attack("full batches", full_batches),
    Attack("full batches into a small crowd", refused_batches),
    Attack("small crowds sealed over and over", sealing_storm),
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


class Effect(NamedTuple):
    """What honest people noticed, and what it cost the attacker and the collector."""

    kept: float
    p99: float
    after: float
    memory: int
    megabytes: float
    connections: int


def measure(options: Options) -> Table:
    """Run every attack, and keep the worst of the rounds."""
    seconds = 3.0 if options.quick else 8.0
    rounds = min(options.rounds, 3)
    worst: dict[str, Effect] = {}
    alone = {"rate": 0.0, "p99": 0.0}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        files = [folder / f"{number}.json" for number in range(len(_plans()))]
        for agreed, file in zip(_plans(), files, strict=True):
            agreed.write(file)
        words = list(map(str, files))
        for settings in dict.fromkeys(attack.settings for attack in ATTACKS):
            data = folder / f"data{len(settings)}"
            with running(collector(data, *settings, *words)) as server:
                undisturbed = _honest(files[0], server.port, seconds)
                alone = {
                    "rate": max(alone["rate"], undisturbed["rate"]),
                    "p99": max(alone["p99"], undisturbed["p99"]),
                }
                for number in range(rounds):
                    for attack in ATTACKS:
                        if attack.settings != settings:
                            continue
                        effect = _attacked(attack, server, files, seconds, undisturbed["rate"])
                        before = worst.get(attack.name, effect)
                        worst[attack.name] = _worse(before, effect)
                        print(f"  {attack.name}, round {number + 1}: {effect}", flush=True)
    rows = [
        [name, one.megabytes, one.connections, 100 * one.kept, 1000 * one.p99, one.memory,
         100 * one.after]
        for name, one in worst.items()
    ]  # fmt: skip
    return Table(
        "One host against the collector",
        ["attack", "MB sent", "connections", "honest rate kept, %", "honest p99, ms",
         "collector's peak, MiB", "rate after it, %"],
        rows,
        f"An anonymous host attacks for {seconds:g} s, without a proxy before the collector, while"
        f" {RATE:g} honest reports a second come, each on a connection of its own; what is refused"
        " or not answered within 10 s is not kept. Alone they had a rate of"
        f" {alone['rate']:.0f} and a p99 of {1000 * alone['p99']:.0f} ms. The worst of {rounds}"
        " rounds.",
        [
            "The collector runs on one core; the attacker and the honest share the other.",
            "deploy/nginx.conf stops most of this before it comes here: twenty connections and five"
            " requests a second for each address.",
        ],
        best=False,
    )  # fmt: skip


def _plans() -> list[Plan]:
    """Return a plan of many people, one of few, and some more of many."""

    def agreed(name: str, crowd: int) -> Plan:
        survey = Survey(name, (Flags("answer", tuple(map(str, range(40)))),))
        return plan(survey, crowd_size=crowd, epsilon="1", delta="1e-6")

    return [agreed("many", 100_000), agreed("few", 100)] + [
        agreed(f"more {number}", 100_000) for number in range(6)
    ]


def _attacked(
    attack: Attack, server: Running, files: list[Path], seconds: float, alone: float
) -> Effect:
    server.forget_peak()
    command = [sys.executable, "-m", "bench.attacks", attack.run.__name__, str(server.port)]
    command += ["--seconds", str(seconds + 3), *map(str, files)]
    attacker = subprocess.Popen(command, stdout=subprocess.PIPE, preexec_fn=_beside)
    assert attacker.stdout is not None
    attacker.stdout.readline()  # it has begun
    time.sleep(1)
    during = _honest(files[0], server.port, seconds)
    cost = json.loads(attacker.communicate()[0])
    memory = server.memory(peak=True)
    after = _honest(files[0], server.port, max(seconds / 2, 2))
    assert server.process.poll() is None, "the collector is gone"
    return Effect(
        during["rate"] / alone, during["p99"], after["rate"] / alone, memory,
        cost["bytes"] / 1e6, cost["connections"],
    )  # fmt: skip


def _worse(one: Effect, other: Effect) -> Effect:
    return Effect(
        min(one.kept, other.kept),
        max(one.p99, other.p99),
        min(one.after, other.after),
        max(one.memory, other.memory),
        max(one.megabytes, other.megabytes),
        max(one.connections, other.connections),
    )


def _honest(plan_file: Path, port: int, seconds: float) -> dict[str, float]:
    """Return the rate of honest reports that were accepted, and the p99 of all answers."""
    command = [sys.executable, "-m", "bench.load", str(plan_file), str(port)]
    command += ["--rate", str(RATE), "--requests", str(int(RATE * seconds))]
    out = subprocess.run(
        command, check=True, capture_output=True, preexec_fn=lambda: pin(LOAD_CORE)
    )
    found: Any = json.loads(out.stdout)
    return {"rate": found["statuses"].get("202", 0) / found["seconds"], "p99": found["p99"]}


def _beside() -> None:
    import os

    pin(LOAD_CORE)
    os.nice(5)  # it shall slow the collector down, not the honest ones beside it


def main() -> None:
    """Be the attacker."""
    parser = argparse.ArgumentParser(prog="python -m bench.attacks", description=__doc__)
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
