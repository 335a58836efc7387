"""Two relays on one database in any order of events, and killed: each accepted report once."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shoal.server.relay import forwarding
from tests.server.postgres_help import needs_postgres, second_folder, the_server
from tests.server.privacy_help import NOW

from .relay_help import FakeAnalyzer, RelayWorld, check_once, made, reachable
from .relay_process import Process
from .test_crashes import MOST, Devices, all_arrived, losing_answers
from .test_crashes import PLAN as KILLED
from .test_model import PLAN, STORIES, Step, Story, tell

pytestmark = [needs_postgres, pytest.mark.system, pytest.mark.slow]

KILLS = int(os.environ.get("TEST_POSTGRES_KILLS", "4"))
"""How often a relay is killed; no setting of a service has such a name."""


class SharedStory(Story):
    """The same story as of one relay, of two that take turns."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._url = the_server().new_database()
        self._worlds: list[RelayWorld] = []

    async def open(self) -> None:
        self._worlds = []
        for name in ("first", "second"):
            folder = self._folder / name
            if self._worlds:
                second_folder(self._folder / "first")
            self._worlds.append(
                await RelayWorld.open(
                    self._stack, folder, self._analyzer, lambda: self._now,
                    self._analyzer.public_key, database=self._url,
                )
            )  # fmt: skip
        await self._worlds[0].relay.publish(PLAN)
        self._world = self._worlds[0]

    def turn(self) -> None:
        """Let the other one do the next step."""
        self._world = self._worlds[self._world is self._worlds[0]]

    def _is_behind(self, answer: httpx.Response) -> bool:
        return "problem:no-key" in answer.text

    async def _send(self, number: int) -> None:
        await super()._send(number)
        self.turn()

    async def sweep(self, value: int) -> None:
        await super().sweep(value)
        self.turn()

    async def lose(self, _: int) -> None:
        """The connection of one of them is gone, whatever it was doing."""
        database: Any = self._world.relay.store.database
        await self._world.relay.service.in_store(database.close)


SharedStep = st.one_of(Step, st.tuples(st.just("lose"), st.just(0)))


@given(st.lists(SharedStep, min_size=1, max_size=14))
@settings(
    max_examples=max(STORIES // 2, 1),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
def test_stories(steps: list[tuple[str, Any]]) -> None:
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        patch.setattr(forwarding, "FIRST_PAUSE", 0.05)
        patch.setattr(forwarding, "ELSEWHERE_PAUSE", 0.05)
        asyncio.run(tell(SharedStory(Path(folder)), steps))


class BothDevices(Devices):
    """Devices that send to one relay or the other, and what was accepted to both."""

    most = MOST * max(KILLS // 4, 1)

    def __init__(self, processes: tuple[Process, Process], seed: int) -> None:
        super().__init__(processes[0], seed)
        self._processes = processes

    def attempt(self, number: int) -> None:
        self._process = self._chance.choice(self._processes)
        super().attempt(number)


def test_kills_of_both(tmp_path: Path) -> None:
    """Connections to the database get lost too, and the analyzer's answers, before it has read a
    chunk and after."""
    analyzer, chance = FakeAnalyzer(KILLED), Random(5)
    analyzer.fault = losing_answers(chance)
    database = the_server().new_database()
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with reachable(analyzer) as url:
        first = Process(tmp_path / "a", KILLED, url, database=database)
        second = Process(tmp_path / "b", KILLED, url, database=database)
        with first, second:
            first.start()
            second.data.mkdir()
            for secret in ("crowd-key", "signing-key"):
                shutil.copy(first.data / secret, second.data)
            second.start()
            devices = [BothDevices((first, second), seed) for seed in (1, 2)]
            for one in devices:
                one.start()
            for _ in range(KILLS):
                time.sleep(0.3 + chance.random())
                victim = chance.choice((first, second))
                victim.kill()
                time.sleep(0.3 * chance.random())
                victim.start()
                time.sleep(0.3 * chance.random())
                the_server().lose_connections(database)
            for one in devices:
                one.finish()
            last = BothDevices((first, second), 9)
            everything = all_arrived(analyzer, devices, last)
            first.stop()
            second.stop()
    assert [one.surprises for one in (*devices, last)] == [[]] * 3
    check_once(analyzer, KILLED, everything)
    crowds = len(analyzer.complete(KILLED))
    print(f"{KILLS} kills and losses, {len(everything)} reports in {crowds} crowds")


async def one_after_the_other(url: str, folder: Path, analyzer: FakeAnalyzer) -> list[str]:
    """A plan that is published at one relay while the other runs; devices send to the other."""
    async with AsyncExitStack() as stack:
        worlds: list[RelayWorld] = []
        for name in ("first", "second"):
            if worlds:
                second_folder(folder / "first")
            key = analyzer.public_key
            worlds.append(
                await RelayWorld.open(
                    stack, folder / name, analyzer, lambda: NOW, key, database=url
                )
            )
        pinned = await worlds[1].relay.service.in_store(worlds[1].relay.store.pinned_key)
        assert pinned == analyzer.public_key
        await worlds[0].publish(KILLED)
        reports = made(KILLED, 50, seed=1)
        for start in range(0, 50, 10):
            await worlds[1].report(KILLED, reports[start : start + 10])
        await worlds[0].forwarded(KILLED, 2)
        check_once(analyzer, KILLED, reports)
        pages = [f"/v1/plans/{KILLED.id}/crowds", "/metrics", "/readyz", "/v1/plans"]
        console = worlds[1].clients["console"]
        await worlds[1].relay.service.in_store(worlds[1].relay.sweep)
        return [(await console.get(page, headers=worlds[0].admin())).text for page in pages]


def test_a_plan_of_the_other_relay(tmp_path: Path) -> None:
    url = the_server().new_database()
    crowds, metrics, ready, plans = asyncio.run(
        one_after_the_other(url, tmp_path, FakeAnalyzer(KILLED))
    )
    assert crowds.count('"forwarded"') == 2
    assert "shoal_data_bytes" in metrics
    assert '"ready"' in ready
    assert KILLED.id in plans
