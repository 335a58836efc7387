"""A leader or a helper as a service: its tasks, its two listeners, its start."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

from shoal.errors import PlanError, PrivacyRefusal
from shoal.protocol.dap import Task, collector_config
from shoal.protocol.dap.messages import Role
from shoal.protocol.plan import Aggregators, Plan
from shoal.server.aggregation.plan import check_sampler
from shoal.server.aggregation.store import AggregatorStore, OpenTask
from shoal.server.core.administration import certificate, objection
from shoal.server.core.http import (
    App,
    Receive,
    Scope,
    read_origins,
)
from shoal.server.core.ingest import Committer
from shoal.server.core.listeners import leave, operator_app, run
from shoal.server.core.observability import LOG, Metrics
from shoal.server.core.openapi import Operation
from shoal.server.core.parties import known_agreement
from shoal.server.core.problems import Problem, Send
from shoal.server.core.public import make_public
from shoal.server.core.service import Party
from shoal.server.core.settings import HelperSettings, LeaderSettings
from shoal.server.storage.records import PlanRecord

Handle = Callable[[Scope, Receive, Send], Awaitable[bool]]


class Aggregator(Party):
    """A leader or a helper; use it as an asynchronous context.

    `public` and `console` are its two ASGI apps. One process at a time uses the folder. `clock`
    returns seconds since 1970; by default it does not jump.
    """

    public: App
    console: App
    store: AggregatorStore
    role: ClassVar[Role]
    crowd_columns, has_pages, title = None, False, "Shoal aggregator"

    def __init__(
        self,
        folder: Path | str,
        settings: LeaderSettings | HelperSettings,
        *,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.settings = settings
        super().__init__(folder, settings, Metrics(), clock, role=self.role.name.lower())
        agreement = known_agreement(self.service.folder, self.role.name.lower())
        self.collector = collector_config(agreement.others["analyst"].exchange_key)
        self.agreement = agreement
        self.tasks: dict[str, OpenTask] = {}
        """The tasks that take reports, by the plan's id."""
        self.plans: dict[str, PlanRecord] = {}
        self._origins = read_origins(settings.origins)

    @cached_property
    def verify_seed(self) -> bytes:
        """What both aggregators derive the verification keys of tasks from; no device knows it."""
        (other,) = {"leader", "helper"} - {self.agreement.own.role}
        return self.agreement.secret("verification", other)

    async def begin(
        self,
        *endpoints: Handle,
        committer: Committer[Any] | None = None,
        others: Sequence[Coroutine[Any, Any, None]] = (),
    ) -> Self:
        """Serve the endpoints, and start housekeeping and other tasks."""
        self.signer, self.refused = self.service.signer, self.service.refused
        self.public = make_public(self, _Endpoints(self.role.name.lower(), endpoints))
        self.console = operator_app(self, "batches")
        await self.service.in_store(self.read)
        self.service.start(committer, self, *others)
        return self

    def read(self) -> None:
        """Read plans and keys of windows, on the store's thread."""
        self.plans = {record.plan.id: record for record in self.store.plans()}
        self.tasks = self.store.open_tasks()  # other threads see the old ones, or the new ones

    async def publish(self, plan: Plan, *, never_published: bool = False) -> None:
        """Take reports of a plan from now on; a known plan is left unchanged."""
        if plan.id not in self.plans:
            problem = await self.service.compute(self._objection, plan)
            if problem is not None:
                raise PrivacyRefusal(f"plan {plan.id[:12]} is not published: {problem.title}")
        document = await self.service.compute(certificate, plan, self.settings)
        await self.service.in_store(
            self.store.publish, plan, document, never_published=never_published
        )
        await self.service.in_store(self.read)

    def _objection(self, plan: Plan) -> Problem | None:
        if not isinstance(plan.parties, Aggregators):
            raise PlanError(f"plan {plan.id[:12]} has no leader and no helper.")
        Task(plan)
        if plan.noise is not None:
            check_sampler()
        problem = self.agreement.problem(plan)
        if problem is not None:
            return problem
        return objection(plan, self.settings, [one.plan for one in self.plans.values()])

    def published(self, plan_id: str) -> PlanRecord | None:
        """Return a plan that was published at some time."""
        record = self.plans.get(plan_id)
        return None if record is None or record.certificate is None else record

    def origins(self, plan_id: str | None) -> Collection[str]:
        """Return the origins of the web pages that may send reports."""
        return self._origins

    async def crowds(self, plan_id: str) -> list[dict[str, object]]:
        return await self.service.in_store(self.store.batches, plan_id)

    async def close_plan(self, plan_id: str, *, by: str) -> bool:
        """Take no more reports of a plan; return whether it took any before."""
        closed = await self.service.in_store(self.store.close_plan, plan_id)
        if closed:
            LOG.info("plan closed", extra={"facts": {"plan": plan_id, "by": by}})
            await self.service.in_store(self.read)
        return closed

    # Housekeeping and health

    def sweep(self) -> None:
        super().sweep()
        self.read()

    def metrics_text(self) -> bytes:
        return self.service.metrics_text(record.state for record in self.plans.values())


class _Endpoints:
    """What is served beside signed documents; other implementations of DAP know it."""

    summary = "Signed plans out; keys, reports and requests of DAP."
    operations: tuple[Operation, ...] = ()

    def __init__(self, role: str, handles: Sequence[Handle]) -> None:
        self.title, self._handles = f"Shoal {role}", handles

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> bool:
        for handle in self._handles:
            if await handle(scope, receive, send):
                return True
        return False


def serve_aggregator(
    party: Aggregator,
    plans: Sequence[Plan],
    *,
    never_published: bool,
    ready: Callable[[dict[str, str]], None],
) -> None:
    """Run a leader or a helper until it is told to stop.

    `plans` are published at the start, if they are not yet; after a restore, `never_published`
    states that they were not published before. `ready` is called with the two addresses.
    """

    async def begin() -> None:
        for plan in plans:
            await party.publish(plan, never_published=never_published)

    listeners = {"public": party.settings.public, "console": party.settings.console}
    run(party, listeners, begin=begin, ready=ready)
    leave(party)
