"""A relay that is only as much of one as an analyzer sees: it seals, shuffles, cuts and signs.

It knows the reports that it seals, so that tests can count them by hand.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import httpx
import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from shoal import Choice, Flags, Plan, Text
from shoal.analysis.report_files import Batch
from shoal.protocol.encryption import (
    CHUNK_TYPE,
    Chunk,
    CrowdKey,
    encrypt_message,
    encryption_info,
    public_key_of,
)
from shoal.protocol.plan import Parties
from shoal.protocol.random_bits import SystemBits
from shoal.protocol.signatures import key_text
from shoal.server import Analyzer, AnalyzerSettings
from shoal.server.core.tokens import Token
from shoal.server.storage.records import Declaration
from tests.server.store_help import Clock, make_plan

R = TypeVar("R")

PARTIES = Parties("https://relay.example", "https://analyzer.example")
DATA = "relay-data"
"""The name of the data of the relay here."""
_FLAGS = Flags("f", tuple("abcde"))


WHOLE = make_plan(_FLAGS, crowd=20, parties=PARTIES)
PLANS = {
    "5 bits": WHOLE,
    "13 bits": make_plan(Flags("f", tuple("abcdefghijklm")), crowd=20, parties=PARTIES),
    "joint": make_plan(_FLAGS, crowd=20, parties=PARTIES, joint=((("f", "e"), ("f", "a")),)),
    "text": make_plan(Text("t", bits=20, hashes=2, cohorts=7), crowd=20, parties=PARTIES),
    "two questions": make_plan(_FLAGS, Choice("c", tuple("xyz")), crowd=20, parties=PARTIES),
    "daily": make_plan(_FLAGS, crowd=20, name="daily", parties=PARTIES, window=86_400),
}


def contents_of(batch: Batch) -> list[bytes]:
    """Return the contents of the messages of some reports, as devices make them."""
    return [
        SystemBits().draw(16)
        + (b"" if batch.cohorts is None else batch.cohorts[place].tobytes())
        + row.tobytes()
        for place, row in enumerate(batch.rows)
    ]


def sealed(plan: Plan, key: CrowdKey, contents: Sequence[bytes]) -> list[bytes]:
    """Seal contents for a crowd."""
    public, info = public_key_of(key.public_key), encryption_info(plan, key.window)
    return [encrypt_message(content, public, info) for content in contents]


def cut(plan: Plan, key: CrowdKey, messages: Sequence[bytes], chunks: int = 3) -> list[Chunk]:
    """Shuffle messages and cut them into chunks."""
    order = list(messages)
    Random(len(order)).shuffle(order)
    ends = [len(order) * number // chunks for number in range(chunks + 1)]
    return [
        Chunk(
            plan.id, key.window, key.digest, number, chunks,
            b"".join(order[ends[number] : ends[number + 1]]),
        )
        for number in range(chunks)
    ]  # fmt: skip


class FakeRelay:
    """A relay with a token and a key, beside an analyzer in this process."""

    def __init__(self, analyzer: Analyzer, client: httpx.AsyncClient) -> None:
        self.analyzer, self.client = analyzer, client
        self.key = Ed25519PrivateKey.from_private_bytes(SystemBits().draw(32))
        self.token = ""

    @property
    def public_key(self) -> str:
        return key_text(self.key.public_key().public_bytes_raw())

    async def register(self, **limits: Any) -> Token:
        """Get a token for this relay's key."""
        token = Token.new("relay", "relay", **{"key": self.public_key} | limits)
        self.token = await self.analyzer.service.in_store(self.analyzer.service.tokens.add, token)
        return token

    async def ask_key(
        self, plan: Plan, window: int = 0, crowd: int = 1, **changes: Any
    ) -> httpx.Response:
        asked = {"window": window, "crowd": crowd, "relay": DATA, "deadline_days": 15} | changes
        return await self.client.post(
            f"/v1/plans/{plan.id}/crowd-keys",
            json=asked,
            headers={"authorization": f"Bearer {self.token}"},
        )

    async def crowd_key(self, plan: Plan, window: int = 0, crowd: int = 1) -> CrowdKey:
        answer = await self.ask_key(plan, window, crowd)
        assert answer.status_code == 200, answer.text
        return CrowdKey.from_bytes(answer.content)

    async def put(self, chunk: Chunk, crowd: int = 1, **changes: Any) -> httpx.Response:
        """Send a chunk; `body`, `signature`, `number` and `window` may be others."""
        body = changes.get("body", chunk.to_bytes())
        signature = changes.get("signature", key_text(self.key.sign(body)))
        window, number = changes.get("window", chunk.window), changes.get("number", chunk.number)
        return await self.client.put(
            f"/v1/plans/{chunk.plan_id}/crowds/{window}/{crowd}/chunks/{number}",
            content=body,
            headers={
                "authorization": f"Bearer {self.token}",
                "content-type": changes.get("media", CHUNK_TYPE),
                "shoal-signature": signature,
            },
        )

    async def discard(self, plan: Plan, crowd: int = 1, **changes: Any) -> httpx.Response:
        """Tell that a crowd was discarded; `said` and `signature` may be others."""
        said = {"plan": plan.id, "window": 0, "crowd": crowd, "state": "discarded"}
        body = json.dumps(said | changes.get("said", {})).encode()
        return await self.client.post(
            f"/v1/plans/{plan.id}/crowds/0/{crowd}/discard",
            content=body,
            headers={
                "authorization": f"Bearer {self.token}",
                "content-type": "application/json",
                "shoal-signature": changes.get("signature", key_text(self.key.sign(body))),
            },
        )

    async def forward(self, chunks: Sequence[Chunk], crowd: int = 1) -> list[str]:
        """Send all chunks and return what the receipts say."""
        states = []
        for chunk in chunks:
            answer = await self.put(chunk, crowd)
            assert answer.status_code == 200, answer.text
            states.append(answer.json()["state"])
        return states

    async def released(self, plan: Plan, number: int = 1) -> dict[str, Any]:
        """Wait until a crowd is sealed, and return its release."""
        async with asyncio.timeout(60):
            while True:
                store = self.analyzer.store
                release = await self.analyzer.service.in_store(store.release, plan.id, number)
                if release is not None:
                    document: dict[str, Any] = json.loads(release)
                    return document
                await asyncio.sleep(0.01)

    async def console(self, path: str) -> httpx.Response:
        """Ask the console as its admin."""
        token = (self.analyzer.service.folder / "admin-token").read_text().strip()
        transport = httpx.ASGITransport(self.analyzer.console, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://console") as client:
            return await client.get(path, headers={"authorization": f"Bearer {token}"})


def digest(chunk: Chunk) -> str:
    return hashlib.sha256(chunk.to_bytes()).hexdigest()


def beside_analyzer(
    work: Callable[[FakeRelay], Awaitable[R]],
    folder: Path,
    *plans: Plan,
    clock: Callable[[], float] | None = None,
    **settings: Any,
) -> R:
    """Do something as a relay beside an analyzer in process that has published some plans."""
    chosen = {"min_crowd": 1, "min_free_megabytes": 0, "opening_processes": 1} | settings

    async def inside() -> R:
        async with AsyncExitStack() as stack:
            analyzer = Analyzer(folder, AnalyzerSettings(**chosen), clock=clock or Clock())
            await stack.enter_async_context(analyzer)
            transport = httpx.ASGITransport(analyzer.public, raise_app_exceptions=False)
            client = httpx.AsyncClient(transport=transport, base_url="http://analyzer")
            relay = FakeRelay(analyzer, await stack.enter_async_context(client))
            await relay.register()
            for plan in plans:
                assert await analyzer.administration.add_plan(plan) is None
                record = analyzer.administration.plans.get(plan.id)
                if record is not None and record.state == "draft":
                    declared = Declaration(all_honest=True)
                    assert (
                        await analyzer.administration.move_plan(plan.id, "published", declared)
                        is None
                    )
            return await work(relay)

    return asyncio.run(inside())


def all_rows(plan: Plan, value: int, count: int) -> Batch:
    """Return equal reports."""
    width = -(-plan.bits // 8)
    row = np.frombuffer(value.to_bytes(width, "little"), np.uint8)
    cohorts = None if plan.cohorts is None else np.zeros(count, np.uint16)
    ids = np.zeros((count, 16), np.uint8)
    return Batch(plan.id, ids, np.zeros(count, np.uint32), cohorts, np.tile(row, (count, 1)))
