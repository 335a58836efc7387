"""The analyst of a leader and a helper: collects batches and shows them in the console.

A collection job is ended at the leader only after its result is on the disk. Interrupted in
between, the same result comes again and is recognized.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from shoal.analysis.tally import CohortCounts, Tally
from shoal.errors import ReportError, TransportError, VdafError
from shoal.protocol.dap import COLLECTOR_KEY_ID, NEXT_BATCH, SecretKey, Task
from shoal.protocol.dap.messages import MEDIA_TYPE, CollectionJobReq, CollectionJobResp, Role
from shoal.protocol.plan import Aggregators, Plan
from shoal.server.console.app import make_console
from shoal.server.core.administration import Administration, publish
from shoal.server.core.http import App
from shoal.server.core.listeners import leave, run
from shoal.server.core.observability import LOG, Metrics
from shoal.server.core.parties import HttpPeer, Peer, PeerReply, known_agreement
from shoal.server.core.service import Party
from shoal.server.core.settings import AnalystSettings
from shoal.server.storage.database import read_fact, write_fact
from shoal.server.storage.open_plan import CrowdPlan
from shoal.server.storage.records import Declaration
from shoal.server.storage.store import Store
from shoal.server.storage.windows import DAY
from shoal.support.connections import parse_address


class Collected(NamedTuple):
    """A batch that was collected; `digest` is that of the helper's share, which it has once.

    A helper gives out one share for a batch, so that no leader can pass a batch off as another.
    """

    window: int
    tally: Tally
    digest: bytes


class Collecting:
    """Collects the batches of one plan."""

    def __init__(self, plan: Plan, key: SecretKey, leader: Peer, token: str) -> None:
        self._task, self._key, self._leader, self._token = Task(plan), key, leader, token
        self.plan = plan
        _, path = parse_address(self._task.endpoint(Role.LEADER))
        self._jobs = f"{path}tasks/{self._task.path}/collection_jobs"

    def next(self) -> tuple[Collected, str] | None:
        """Return the next batch, with the address of its collection job; None if none is full."""
        reply = self._ask("POST", self._jobs, NEXT_BATCH.to_bytes())
        where = reply.headers.get("location", "")
        if not where.startswith(self._jobs + "/"):
            raise TransportError("the leader does not say where the collection job is.")
        if not reply.content:
            return None
        kind = f"{MEDIA_TYPE};message={CollectionJobResp.media_type}"
        if reply.headers.get("content-type", "").replace(" ", "") != kind:
            raise TransportError("the leader answered with something else.")
        try:
            return self._opened(reply.content), where
        except (ReportError, VdafError) as error:
            raise TransportError(f"the leader's result cannot be used: {error}") from error

    def end(self, where: str) -> None:
        """End a collection job, whose result is on the disk."""
        self._ask("DELETE", where, None)

    def _opened(self, content: bytes) -> Collected:
        response, plan = CollectionJobResp.from_bytes(content), self.plan
        if response.report_count != plan.reports_needed or response.interval.duration != 1:
            raise ReportError("the batch is not one crowd of one window.")
        if response.interval.start >= 1 << 32:
            raise ReportError("the window of the batch is not one of this time.")
        shares = [
            self._task.open_aggregate_share(role, self._key, NEXT_BATCH, share)
            for role, share in (
                (Role.LEADER, response.leader_encrypted_agg_share),
                (Role.HELPER, response.helper_encrypted_agg_share),
            )
        ]
        sums = map(self._task.prio3.signed, self._task.prio3.unshard(shares, response.report_count))
        lowest, highest = plan.possible_counts(response.report_count)
        found = list(sums)
        if min(found) < lowest or max(found) > highest:
            raise ReportError(f"a count is not between {lowest:,} and {highest:,}.")
        counts = np.array(found, np.int64)
        cohorts = None
        if plan.cohorts is not None:  # such a plan has one
            cohorts = (CohortCounts(response.report_count, counts.copy()),)
        tally = Tally(plan.id, response.report_count, counts, cohorts=cohorts)
        share = response.helper_encrypted_agg_share.to_bytes()
        return Collected(response.interval.start, tally, hashlib.sha256(share).digest())

    def _ask(self, method: str, path: str, body: bytes | None) -> PeerReply:
        headers = {"Authorization": f"Bearer {self._token}"}
        if body is not None:
            headers["Content-Type"] = CollectionJobReq.content_type()
        reply = self._leader.ask(method, path, body, headers)
        if not 200 <= reply.status < 300:  # DAP leaves the choice
            raise TransportError(f"the leader answered {reply.status}.")
        return reply


class CollectedPlan(CrowdPlan):
    """A plan whose crowds arrive complete; everything here happens inside a transaction."""

    def add(self, tally: Tally, window: int, day: int) -> int:
        """Write the release of a crowd; return the crowd's number."""
        number = self.last_number + 1
        self._insert_crowd(number, window, day)
        self._release(number, window, tally)
        return number


class AnalystStore(Store):
    """Plans and releases of an analyst."""

    plan_type = CollectedPlan

    def add_release(self, plan: Plan, window: int, tally: Tally, digest: bytes) -> bool:
        """Store a collected batch once; `digest` tells it from all others.

        Returns False if it was stored before: its collection job was not ended, or the leader gives
        it out again.
        """
        fact = f"collected {digest.hex()}"

        def work() -> int | None:
            if read_fact(self._connection, fact) is not None:
                return None
            known = self._plans.get(plan.id)
            assert known is not None
            write_fact(self._connection, fact, plan.id)
            number: int = known.add(tally, window, int(self._clock() // DAY))
            return number

        number = self.database.run("store a collected batch", work)
        if number is not None:
            self._released(plan, number)
        return number is not None


class Analyst(Party):
    """Collects the batches of plans with a leader and a helper; an asynchronous context.

    `console` is its ASGI app, `store` its data. `leaders` makes the way to the leader at an origin;
    by default HTTP.
    """

    console: App
    store: AnalystStore
    administration: Administration

    def __init__(
        self,
        folder: Path | str,
        settings: AnalystSettings | None = None,
        *,
        clock: Callable[[], float] | None = None,
        leaders: Callable[[str], Peer] | None = None,
    ) -> None:
        self.settings = settings or AnalystSettings()
        super().__init__(folder, self.settings, Metrics(), clock, role="analyst")
        timeout = self.settings.leader_timeout
        self._new_leader = leaders or (lambda origin: HttpPeer(origin, timeout))
        self._leaders: dict[str, Peer] = {}
        self._one_at_a_time = asyncio.Lock()
        agreement = known_agreement(self.service.folder, "analyst")
        self._key = SecretKey(COLLECTOR_KEY_ID, agreement.exchange_secret())
        self._token = agreement.token("leader")

    async def __aenter__(self) -> Self:
        self.store = self.open_store(AnalystStore)
        self._thread = self.service.add_thread("collecting")
        self.administration = Administration(self.service, self.store, self.settings)
        self.console = make_console(self.administration)
        self.service.start(None, self, self._collect())
        return self

    async def __aexit__(self, *error: object) -> None:
        for leader in self._leaders.values():
            leader.stop()
        await super().__aexit__(*error)

    async def _collect(self) -> None:
        """Collect the batches of all plans, again and again, until the service stops."""
        while True:
            for record in list(self.administration.plans.values()):
                if record.state == "published":
                    await self.collect_plan(record.plan)
            await asyncio.sleep(self.settings.collect_seconds)

    async def collect_plan(self, plan: Plan) -> None:
        """Collect the batches of a plan that are full; what is in the way is logged."""
        async with self._one_at_a_time:
            await self._collect_full(plan)

    async def _collect_full(self, plan: Plan) -> None:
        assert isinstance(plan.parties, Aggregators)
        origin = plan.parties.leader
        if origin not in self._leaders:
            self._leaders[origin] = self._new_leader(origin)
        collecting = Collecting(plan, self._key, self._leaders[origin], self._token)
        known = 0
        try:
            while known < 2 and (found := await self._thread.run(collecting.next)) is not None:
                one, where = found
                known += not await self.service.on_store_thread(
                    self.store.add_release, plan, one.window, one.tally, one.digest
                )
                await self._thread.run(collecting.end, where)
            if known > 1:  # one may be left from an interruption
                raise TransportError("the leader gives out batches that were collected before.")
        except TransportError as error:
            LOG.warning("nothing was collected: %s", error, extra={"facts": {"plan": plan.id}})
        except Exception as error:
            LOG.error("nothing was collected", exc_info=error)

    # Housekeeping

    def sweep(self) -> None:
        self.administration.keep_up()
        super().sweep()


def serve_analyst(
    folder: Path | str,
    settings: AnalystSettings | None = None,
    *,
    plans: Sequence[Plan] = (),
    declaration: Declaration | None = None,
    once: Path | None = None,
    ready: Callable[[dict[str, str]], None] = lambda urls: None,
) -> None:
    """Collect until told to stop; `plans` are published here at the start, if they are not yet.

    With `once`, collect what is ready, write all tallies to that folder, and return.
    """
    settings = settings or AnalystSettings()
    analyst = Analyst(folder, settings)
    if once is not None:
        asyncio.run(_collect_once(analyst, plans, declaration, once))
        return

    async def begin() -> None:
        for plan in plans:
            await publish(analyst.administration, plan, declaration)

    run(analyst, {"console": settings.console}, begin=begin, ready=ready)
    leave(analyst)


async def _collect_once(
    analyst: Analyst, plans: Sequence[Plan], declaration: Declaration | None, out: Path
) -> None:
    async with analyst:
        for plan in plans:
            await publish(analyst.administration, plan, declaration)
            await analyst.collect_plan(plan)
        store, in_store = analyst.store, analyst.service.in_store
        out.mkdir(parents=True, exist_ok=True)
        for record in analyst.administration.plans.values():
            for number in await in_store(store.released_numbers, record.plan.id, 10**6):
                content = await in_store(store.release, record.plan.id, number)
                name = f"{record.plan.id[:12]}-crowd-{number}.json"
                (out / name).write_bytes(content or b"")
