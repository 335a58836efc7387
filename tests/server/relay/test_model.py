"""Whatever happens in whatever order: a report that was accepted is in one crowd, or its window is.

Hypothesis makes stories of a relay: reports come and come again, the analyzer is away, refuses or
loses its answers, the relay is started anew, weeks pass, the plan is closed. The model knows of
each window how many different reports were accepted, nothing else.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter, defaultdict
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.server.privacy_help import NOW

from .relay_help import (
    LONGEST,
    FakeAnalyzer,
    Made,
    RelayWorld,
    made,
    party_plan,
    problem,
    sealed,
    until,
)

pytestmark = pytest.mark.slow

WEEK = 7 * 86_400
PLAN = party_plan("model", bits=3, crowd=5, window=WEEK)
STORIES = int(os.environ.get("SHOAL_STORIES", "10"))
STATES = ("there", "away", "refuses", "loses answers")

Step = st.one_of(
    st.tuples(st.just("new"), st.integers(1, 7)),
    st.tuples(st.just("again"), st.integers(0, 50)),
    st.tuples(st.just("analyzer"), st.sampled_from(STATES)),
    st.tuples(st.just("restart"), st.just(0)),
    st.tuples(st.just("sweep"), st.just(0)),
    st.tuples(st.just("week"), st.integers(1, 2)),
)


class Story:
    """A relay, its analyzer and what the model knows."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._stack = folder, AsyncExitStack()
        self._now, self._analyzer = NOW, FakeAnalyzer(PLAN)
        self.reports: list[tuple[int, Made]] = []
        self.accepted: dict[int, set[int]] = defaultdict(set)

    async def open(self) -> None:
        self._world = await RelayWorld.open(
            self._stack, self._folder, self._analyzer, lambda: self._now, self._analyzer.public_key
        )
        await self._world.relay.publish(PLAN)

    async def close(self) -> None:
        await self._stack.aclose()

    @property
    def _window(self) -> int:
        return int(self._now // WEEK)

    async def new(self, count: int) -> None:
        for _ in range(count):
            number = len(self.reports)
            self.reports.append((self._window, made(PLAN, 1, number)[0]))
            await self._send(number)

    async def again(self, number: int) -> None:
        if self.reports:
            await self._send(number % len(self.reports))

    async def _send(self, number: int) -> None:
        window, report = self.reports[number]
        answer = await self._world.get_key(PLAN, window)
        if answer.status_code != 200:
            assert answer.status_code == (410 if window < self._window - 1 else 503), answer.text
            return
        key = await self._world.key(PLAN, window)
        answer = await self._world.send(sealed(PLAN, key, [report]))
        assert answer.status_code in (202, 412) or self._is_behind(answer), answer.text
        if answer.status_code == 202:
            self.accepted[window].add(number)

    def _is_behind(self, answer: httpx.Response) -> bool:
        """Whether a relay had not seen yet that the crowd of a key is full, and there is no next.

        One relay alone always has.
        """
        return False

    async def analyzer(self, state: str) -> None:
        def away(method: str, path: str) -> Any:
            raise ConnectionError

        def refuses(method: str, path: str) -> Any:
            return problem(503, "busy") if method == "PUT" else None

        def loses(method: str, path: str) -> Any:
            return lost if method == "PUT" else None

        def lost(reply: object) -> Any:
            raise ConnectionError

        self._analyzer.fault = {
            "there": lambda method, path: None,
            "away": away,
            "refuses": refuses,
            "loses answers": loses,
        }[state]

    async def restart(self, _: int) -> None:
        await self._stack.aclose()
        await self.open()

    async def sweep(self, _: int) -> None:
        await self._world.relay.service.in_store(self._world.relay.sweep)

    async def week(self, count: int) -> None:
        self._now += count * WEEK
        await self.sweep(0)

    async def end(self) -> None:
        """Let everything arrive that ever will, and compare it with what was accepted."""
        await self.analyzer("there")
        await self.restart(0)
        await self.sweep(0)
        whole = {window: len(ones) // 5 for window, ones in self.accepted.items() if len(ones) >= 5}
        await until(lambda: self._forwarded() == whole)
        crowd_of: dict[bytes, set[tuple[str, int, int]]] = defaultdict(set)
        arrived = Counter[bytes]()
        for where in self._analyzer.complete(PLAN):
            contents = self._analyzer.opened(where)
            assert len(contents) == 5
            arrived.update(contents)
            for content in contents:
                crowd_of[content].add(where)
        for received in self._analyzer.crowds.values():  # never cut anew
            assert all(body == received.chunks[number] for number, body in received.tries)
        for number, (window, report) in enumerate(self.reports):
            crowds = crowd_of[report.content]
            assert arrived[report.content] == len(crowds) <= 1
            if crowds:
                assert number in self.accepted[window]
                assert {where[1] for where in crowds} == {window}

    def _forwarded(self) -> dict[int, int]:
        return dict(Counter(window for _, window, _ in self._analyzer.complete(PLAN)))


@given(st.lists(Step, min_size=1, max_size=14))
@settings(
    max_examples=STORIES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
def test_stories(steps: list[tuple[str, Any]]) -> None:
    with TemporaryDirectory() as folder:
        asyncio.run(tell(Story(Path(folder)), steps))


async def tell(story: Story, steps: list[tuple[str, Any]]) -> None:
    """Let a story happen, and look at its end."""
    await story.open()
    try:
        async with asyncio.timeout(LONGEST * 3):
            for name, value in steps:
                await getattr(story, name)(value)
            await story.end()
    finally:
        await story.close()
