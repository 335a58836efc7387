"""How long the console's pages take when a plan has a thousand released crowds."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from starlette.applications import Starlette
from starlette.responses import HTMLResponse
from starlette.routing import Route

from bench.measuring import Options, Table
from bench.serving import SERVER_CORE, pin
from shoal import Choice, Flags, Number, Plan, Survey, plan
from shoal.analysis.report_files import Batch
from shoal.server import Collector, Settings
from shoal.server.core.tokens import Token
from shoal.server.storage.records import Declaration

CROWD = 100
_TEXT = (
    "One plan with a thousand released crowds, and a question each of flags, choice and numbers."
    " Every page is asked for in the process, on one core. *First*: nothing of it was computed"
    " before. *Again*: the best of the rounds. The first look at a crowd computes its exact"
    " intervals, that at a survey screens the twenty crowds on the page."
)


def measure(options: Options) -> Table:
    """Measure every page of the console beside a bare page of Starlette."""
    pin(SERVER_CORE)
    survey = Survey(
        "many",
        (Flags("f", tuple("abc")), Choice("c", tuple("xyz")), Number("n", (18, 35, 65))),
    )
    agreed = plan(survey, crowd_size=CROWD, epsilon="8", delta="1e-6", view="counts")
    with tempfile.TemporaryDirectory() as folder:
        rows = asyncio.run(_measure(agreed, Path(folder), options))
    return Table(
        "Pages of the console", ("page", "first, ms", "again, ms", "/ bare page"), rows, _TEXT
    )


async def _measure(agreed: Plan, folder: Path, options: Options) -> list[tuple[Any, ...]]:
    async def bare(request: Any) -> HTMLResponse:
        return HTMLResponse("<!doctype html><title>x</title><p>x</p>")

    async with AsyncExitStack() as stack:
        settings = Settings(min_free_megabytes=0, max_body_bytes=1 << 30)
        collector = await stack.enter_async_context(Collector(folder / "data", settings))
        assert await collector.administration.add_plan(agreed) is None
        assert (
            await collector.administration.move_plan(
                agreed.id, "published", Declaration(all_honest=True)
            )
            is None
        )
        await _fill(collector, agreed, options.size(1000))
        token = await collector.service.in_store(
            collector.service.tokens.add, Token.new("admin", "bench")
        )
        ask = await _client(stack, collector.console, {"authorization": f"Bearer {token}"})
        plain = await _client(stack, Starlette(routes=[Route("/", bare)]), {})
        base = f"/surveys/{agreed.survey.name}"
        pages = {
            "surveys": "/",
            "one survey, its last 20 crowds": base,
            "one survey, older crowds": f"{base}?page=3",
            "a crowd": f"{base}/crowds/{options.size(500)}",
            "a trend of 12 crowds": f"{base}/trend?question=c",
            "a trend of 60 crowds": f"{base}/trend?question=c&crowds=60",
            "the difference of two crowds": f"{base}/difference",
            "tokens": "/tokens",
            "what was done": "/actions",
        }
        begin, least = await _times(lambda: plain("/"), options.rounds)
        rows: list[tuple[Any, ...]] = [
            ("LIMIT: a bare page of Starlette", 1e3 * begin, 1e3 * least, 1.0)
        ]
        for name, path in pages.items():
            first, again = await _times(lambda path=path: ask(path), options.rounds)  # type: ignore[misc]
            rows.append((name, 1e3 * first, 1e3 * again, again / least))
        return rows


async def _fill(collector: Collector, agreed: Plan, crowds: int) -> None:
    """Count so many whole crowds of random reports."""
    random = np.random.default_rng(1)
    for _ in range(crowds // 50):
        count = 50 * CROWD
        rows = np.packbits(random.random((count, agreed.bits)) < 0.3, axis=1, bitorder="little")
        ids = random.integers(0, 256, (count, 16), np.uint8)
        batch = Batch(agreed.id, ids, np.zeros(count, np.uint32), None, rows)
        (problem,) = await collector.service.in_store(collector.store.accept, [batch])
        assert problem is None
        await collector.service.in_store(collector.store.sweep)


async def _client(
    stack: AsyncExitStack, app: Any, headers: dict[str, str]
) -> Callable[[str], Awaitable[None]]:
    transport = httpx.ASGITransport(app)
    client = httpx.AsyncClient(transport=transport, base_url="http://bench", headers=headers)
    await stack.enter_async_context(client)

    async def ask(path: str) -> None:
        answer = await client.get(path)
        assert answer.status_code == 200, (path, answer.text[:200])

    return ask


async def _times(work: Callable[[], Awaitable[None]], rounds: int) -> tuple[float, float]:
    """Return the time of the first run, and the best of those after it."""
    times = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        await work()
        times.append(time.perf_counter() - start)
    return times[0], min(times[1:])
