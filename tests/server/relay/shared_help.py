"""Relays that share a PostgreSQL database, without listeners: their stores, and what forwards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from shoal import Plan
from shoal.protocol.encryption import CrowdKey, EncryptedReports
from shoal.server.core import problems
from shoal.server.relay.analyzer_client import AnalyzerClient
from shoal.server.relay.forwarding import Forwarder, RelayMetrics
from shoal.server.relay.open_plan import Document
from shoal.server.relay.shuffled_chunks import ShuffledChunks
from shoal.server.relay.store import RelayStore
from shoal.server.storage.key_file import Signer
from tests.server.postgres_help import second_folder, the_server, wait_for
from tests.server.privacy_help import NOW

from .relay_help import FakeAnalyzer, Made, sealed, this_window


class SharedRelay:
    """A relay on a shared database that does one thing after another, as it is told."""

    def __init__(
        self,
        url: str,
        folder: Path,
        analyzer: FakeAnalyzer,
        clock: Callable[[], float] = lambda: NOW,
        **options: Any,
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.fake = folder, analyzer
        self.store = RelayStore(folder, url=url, clock=clock, **options)
        signer = Signer(folder)
        pins: list[bytes] = []
        self.analyzer = AnalyzerClient(analyzer, "", signer, analyzer.public_key, pins.append)
        self.files = ShuffledChunks(folder, self.store.frozen, self.wait_for_store)
        here: Any = self
        self.metrics = RelayMetrics()
        self._forwarder = Forwarder(
            here, self.store, self.files, self.analyzer, here, self.metrics, here
        )

    # It stands in for the service, the thread and the prefetcher of a relay.

    async def run(self, work: Callable[..., Any], *args: Any) -> Any:
        return await asyncio.to_thread(work, *args)

    async def on_store_thread(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return work(*args, **kwargs)

    def wait_for_store(self, work: Callable[..., Any], *args: Any) -> Any:
        return work(*args)

    @property
    def arrivals(self) -> float:
        return float(self.metrics.forwarded._value.get())

    @property
    def failures(self) -> float:
        counters = (self.metrics.failures, self.metrics.refused_crowds)
        return float(sum(counter._value.get() for counter in counters))

    def wake(self) -> None:
        """No keys are fetched by themselves."""

    def publish(self, plan: Plan) -> None:
        self.store.publish(plan)
        self.fetch_keys()

    def fetch_keys(self) -> None:
        """Open the crowds that are wanted, with the analyzer's keys."""
        for wanted in self.store.wanted():
            reply = self.fake.signed(
                self.fake.crowd_key(
                    self.fake.plans[wanted.plan_id], wanted.window, wanted.place
                ).to_bytes()
            )
            signed = Document(
                reply.content, reply.headers["shoal-signature"], reply.headers["shoal-key"]
            )
            self.store.open_crowd(wanted, signed)

    def key(self, plan: Plan, window: int | None = None) -> CrowdKey:
        where = (plan.id, this_window(plan) if window is None else window)
        return CrowdKey.from_bytes(self.store.open_keys()[where].content)

    def sealed(self, plan: Plan, reports: Sequence[Made]) -> EncryptedReports:
        return sealed(plan, self.key(plan), reports)

    def take(self, plan: Plan, reports: Sequence[Made]) -> None:
        """Accept reports as devices send them: again for the new key, if the crowd is full."""
        for _ in range(20):
            answer = self.store.accept([self.sealed(plan, reports)])
            if answer == [None]:
                return
            assert answer == [problems.KEY_CHANGED]
            self.store.sweep()
            self.fetch_keys()
        raise AssertionError("the reports do not fit any crowd.")

    def forward(self) -> None:
        """Forward what is due, once."""
        asyncio.run(self._forwarder.forward())

    def lose_connection(self) -> None:
        """As the server sees it, this relay was killed: it has let go what the relay held."""
        connection = self.store.database.connection._connection.pgconn  # type: ignore[union-attr]
        still_there = f"SELECT 1 FROM pg_stat_activity WHERE pid = {connection.backend_pid}"
        connection.finish()
        wait_for(lambda: not the_server().execute(still_there))

    def close(self) -> None:
        self.store.close()


def two_relays(
    url: str, folder: Path, analyzer: FakeAnalyzer, *plans: Plan, **options: Any
) -> tuple[SharedRelay, SharedRelay]:
    """Return two relays on a database, at the first of which plans were published."""
    first = SharedRelay(url, folder / "first", analyzer, **options)
    for plan in plans:
        first.publish(plan)
    return first, SharedRelay(url, second_folder(folder / "first"), analyzer, **options)
