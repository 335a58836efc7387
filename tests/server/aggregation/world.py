"""A leader, a helper and an analyst in one process, each with a folder of its own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from itertools import permutations
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from shoal import Flags, Plan, Survey
from shoal.device.encode import SyntheticVector
from shoal.device.randomize import pack_reports
from shoal.device.sharing import share_report
from shoal.protocol.dap.messages import HpkeConfigList, UploadRequest
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Aggregators, Promise
from shoal.protocol.signatures import key_text
from shoal.server.analyst import Analyst
from shoal.server.core.parties import PeerReply, accept_other
from shoal.server.core.parties import set_up as set_up_party
from shoal.server.core.settings import AnalystSettings, HelperSettings, LeaderSettings
from shoal.server.helper import Helper
from shoal.server.leader import Leader
from shoal.server.storage.records import Declaration

WEEK = 7 * 86_400
NOW = 2000.0 * WEEK + 1000
LEADER, HELPER = "https://leader.example", "https://helper.example"

PLAN = Plan(
    Survey("features", (Flags("uses", ("sync", "vpn", "dark", "beta")),)),
    FlipProbability.at_least(0.001),
    Promise("proven", "40", delta="1e-6"),
    crowd_size=20,
    window=WEEK,
    view="counts",
    parties=Aggregators(LEADER, HELPER, 4),
)
"""Its epsilon is above the local one, so that so small a crowd keeps the promise."""


class InProcess:
    """The way to another party's app in this process; `broken` answers are lost on the way back."""

    def __init__(self, app: Callable[[], Any], loop: asyncio.AbstractEventLoop) -> None:
        self._app, self._loop = app, loop
        self.requests: list[tuple[str, str, bytes | None]] = []
        self.lose_answers = 0

    def ask(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> PeerReply:
        self.requests.append((method, path, body))
        asked = asyncio.run_coroutine_threadsafe(
            ask(self._app(), method, path, body, headers), self._loop
        )
        response = asked.result(60)
        if self.lose_answers:
            from shoal.errors import TransportError

            self.lose_answers -= 1
            raise TransportError("the answer was lost.")
        found = {name.lower(): text for name, text in response.headers.items()}
        return PeerReply(response.status_code, found, response.content)

    def stop(self) -> None:
        return


async def ask(
    app: Any, method: str, path: str, body: bytes | None = None, headers: Any = None
) -> httpx.Response:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://party") as client:
        return await client.request(method, path, headers=headers, content=body)


class Parties:
    """The three parties; `clock` is theirs."""

    def __init__(
        self,
        folder: Path,
        clock: Callable[[], float],
        databases: Sequence[str] = ("", ""),
        **settings: Any,
    ) -> None:
        self.folder, self.clock, self.databases = folder, clock, databases
        self.stack = AsyncExitStack()
        self.settings = settings

    async def __aenter__(self) -> Parties:
        loop = asyncio.get_running_loop()
        folders = set_up(self.folder)
        common: dict[str, Any] = {"min_crowd": 1, "min_free_megabytes": 0}
        wide = {"max_share_percent": 100, "reports_per_request": 1000}
        self.to_helper = InProcess(lambda: self.helper.public, loop)
        self.to_leader = InProcess(lambda: self.leader.public, loop)
        of_leader, of_helper = self.databases
        self.helper = Helper(
            folders["helper"], HelperSettings(**common, database=of_helper), clock=self.clock
        )
        self.leader = Leader(
            folders["leader"],
            LeaderSettings(**common | wide | self.settings, database=of_leader),
            clock=self.clock,
            helpers=lambda origin: self.to_helper,
        )
        self.analyst = Analyst(
            folders["analyst"],
            AnalystSettings(**common),
            clock=self.clock,
            leaders=lambda origin: self.to_leader,
        )
        for party in (self.helper, self.leader, self.analyst):
            await self.stack.enter_async_context(party)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stack.aclose()

    async def publish(self, plan: Plan = PLAN) -> None:
        await self.helper.publish(plan)
        await self.leader.publish(plan)
        declaration = Declaration(all_honest=True)
        administration = self.analyst.administration
        assert await administration.add_plan(plan) is None
        if administration.plans[plan.id].state == "draft":
            moved = await administration.move_plan(plan.id, "published", declaration)
            assert moved is None, moved

    async def keys(self, plan: Plan = PLAN) -> tuple[HpkeConfigList, HpkeConfigList]:
        """Return the keys of leader and helper, as a device fetches them."""
        path = f"/dap/{key_text(bytes.fromhex(plan.id))}/hpke_config"
        answers = [await ask(one.public, "GET", path) for one in (self.leader, self.helper)]
        assert [one.status_code for one in answers] == [200, 200], answers[0].text
        first, second = (HpkeConfigList.from_bytes(one.content) for one in answers)
        return first, second

    async def upload(self, *uploads: bytes, plan: Plan = PLAN) -> httpx.Response:
        task = key_text(bytes.fromhex(plan.id))
        headers = {"content-type": UploadRequest.content_type()}
        path = f"/dap/{task}/tasks/{task}/reports"
        return await ask(self.leader.public, "POST", path, b"".join(uploads), headers)

    async def deliver(self, uploads: Sequence[bytes], plan: Plan = PLAN) -> None:
        """Upload each report until the leader has it, as a device does."""
        for one in uploads:
            while (answer := await self.upload(one, plan=plan)).status_code == 503:
                await asyncio.sleep(0.1)  # the machine is busy
            assert (answer.status_code, answer.content) == (200, b""), answer.text

    async def reports(self, vectors: Sequence[int], plan: Plan = PLAN, window: int | None = None
                      ) -> list[bytes]:  # fmt: skip
        leader, helper = await self.keys(plan)
        number = int(self.clock() // WEEK) if window is None else window
        packed = [
            pack_reports(plan, SyntheticVector(one, plan.bits), window=number) for one in vectors
        ]
        return [share_report(plan, one.to_bytes(), leader, helper) for one in packed]

    async def until_full(self, *parties: Any, plan: Plan = PLAN, count: int = 1) -> None:
        """Wait until there are so many full batches, at both aggregators or at one."""
        for party in parties or (self.leader, self.helper):
            for _ in range(3000):
                found = [one["state"] for one in await self.batches(party, plan)]
                if found.count("full") == count:
                    break
                await asyncio.sleep(0.01)
            else:
                raise AssertionError(f"no full batch: {found}")

    async def collected(self, count: int, plan: Plan = PLAN) -> list[dict[str, Any]]:
        """Collect until there are so many releases, and return them."""
        store, in_store = self.analyst.store, self.analyst.service.in_store
        for _ in range(3000):
            await self.analyst.collect_plan(plan)
            numbers = await in_store(store.released_numbers, plan.id, 100)
            if len(numbers) >= count:
                contents = [await in_store(store.release, plan.id, one) for one in sorted(numbers)]
                return [json.loads(one) for one in contents if one is not None]
            await asyncio.sleep(0.02)
        about = [await self.batches(one, plan) for one in (self.leader, self.helper)]
        raise AssertionError(f"nothing was collected: {about}")

    async def count_crowd(self, vectors: Sequence[int]) -> None:
        """Deliver the reports of a crowd, and check its release."""
        await self.deliver(await self.reports(vectors))
        (release,) = await self.collected(1)
        assert release["by_bit"] == sums(vectors)

    async def until(self, reached: Callable[[], bool], what: str) -> None:
        """Wait for an event, generously."""
        for _ in range(6000):
            if reached():
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"never happened: {what}")

    def states(self, party: Any, plan: Plan = PLAN) -> list[str]:
        return [str(one["state"]) for one in party.store.batches(plan.id)]

    async def batches(self, party: Any, plan: Plan = PLAN) -> list[dict[str, object]]:
        found: list[dict[str, object]] = await party.service.in_store(party.store.batches, plan.id)
        return found


def in_parties(
    story: Callable[[Parties], Awaitable[Any]],
    folder: Path,
    clock: Callable[[], float] = lambda: NOW,
    *,
    plan: Plan = PLAN,
    **more: Any,
) -> Any:
    """Do something with the three parties, which have published a plan."""

    async def inside() -> Any:
        async with Parties(folder, clock, **more) as parties:
            await parties.publish(plan)
            return await story(parties)

    return asyncio.run(inside())


def set_up(folder: Path, leader: str = LEADER, helper: str = HELPER) -> dict[str, Path]:
    """Let leader, helper and analyst know each other; return their folders."""
    urls = {"leader": leader, "helper": helper, "analyst": "https://analyst.example"}
    folders = {name: folder / name for name in urls}
    if not folder.exists() or not any(one.exists() for one in folders.values()):
        made = {name: set_up_party(folders[name], role=name, url=url) for name, url in urls.items()}
        for one, other in permutations(urls, 2):
            file = made[other].file(other)
            made[one] = accept_other(made[one], file, lambda party: True)
    return folders


def some_vectors(count: int, bits: int = 4, seed: int = 1) -> list[int]:
    drawn: list[int] = np.random.default_rng(seed).integers(0, 1 << bits, count).tolist()
    return drawn


def sums(vectors: Sequence[int], bits: int = 4) -> list[int]:
    return [sum(one >> place & 1 for one in vectors) for place in range(bits)]
