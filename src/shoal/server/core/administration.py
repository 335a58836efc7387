"""Operators' work with a collector or an analyzer: plans, origins of web pages, backups.

Every change is added to the list of actions. `objection` decides which plans are accepted.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace

from shoal import __version__
from shoal.errors import InputError, PrivacyRefusal
from shoal.planning.certificate import certify, check_promise, compute_promise
from shoal.planning.plan_diff import plan_diff
from shoal.planning.threats import oblivious_collector, poisoning
from shoal.protocol.plan import Aggregators, Parties, Plan
from shoal.reports.site import is_for_readers
from shoal.server.core import problems
from shoal.server.core.backup import back_up
from shoal.server.core.ingest import limits_document
from shoal.server.core.observability import LOG
from shoal.server.core.problems import Problem
from shoal.server.core.service import Service
from shoal.server.core.settings import (
    AggregatorSettings,
    AnalystSettings,
    AnalyzerSettings,
    Settings,
)
from shoal.server.core.tokens import Actions
from shoal.server.storage.database import storage_errors
from shoal.server.storage.records import Declaration, PlanRecord, State
from shoal.server.storage.store import Store

PlanSettings = Settings | AnalyzerSettings | AnalystSettings
_TAKES: dict[type[PlanSettings], type] = {
    Settings: type(None),
    AnalyzerSettings: Parties,
    AnalystSettings: Aggregators,
}
"""Which parties a plan names that a service takes."""
_NEEDS: dict[type, Problem] = {
    type(None): problems.NEEDS_COLLECTOR,
    Parties: problems.NEEDS_ANALYZER,
    Aggregators: problems.NEEDS_AGGREGATORS,
}

BACKUPS = "backups"
"""The folder of backups that were made from the console."""


class Administration:
    """Plans, origins and backups of a collector or an analyzer; the console works with it.

    With an analyzer's settings it accepts only plans that name a relay and an analyzer; with a
    collector's settings only the others.
    """

    def __init__(self, service: Service, store: Store, settings: PlanSettings) -> None:
        self.service, self.store, self._settings = service, store, settings
        self.tokens, self.signer, self.refused = service.tokens, service.signer, service.refused
        self.in_store, self.compute = service.in_store, service.compute
        self.actions = Actions(store.database.connection, service.clock)
        self.plans = {record.plan.id: record for record in store.plans()}
        """All plans by their ids, as last read."""
        self._moving = asyncio.Lock()
        self.changed = asyncio.Event()
        """Set when plans or releases may have changed, for whoever shows them."""

    # Plans

    def published(self, plan_id: str) -> PlanRecord | None:
        """Return a plan that was published at some time."""
        record = self.plans.get(plan_id)
        return None if record is None or record.certificate is None else record

    def plan_for_reports(self, plan_id: str) -> Plan | Problem:
        """Return a plan whose reports can be stored; the transaction checks the plan's state."""
        record = self.published(plan_id)
        if record is None:  # a draft too: other responses would reveal that it exists
            return problems.UNKNOWN_PLAN
        return record.plan if self.service.has_space else problems.STORAGE_FULL

    async def add_plan(self, plan: Plan) -> Problem | None:
        """Add a plan as a draft, or return why not; a known plan is left unchanged."""
        if self.service.is_shared:
            await self.in_store(self.reload_all)
        if plan.id in self.plans:
            return None
        if type(plan.parties) is not _TAKES[type(self._settings)]:
            return _NEEDS[type(plan.parties)]
        agreement = self.service.agreement
        problem = agreement.problem(plan) if agreement is not None and plan.parties else None
        problem = problem or await self._objection(plan)
        if problem is None:
            await self.in_store(self.store.add_plan, plan)
            await self.reload(plan.id)
        return problem

    async def _objection(self, plan: Plan) -> Problem | None:
        accepting = [
            record.plan for record in self.plans.values() if record.state in ("published", "paused")
        ]
        return await self.compute(objection, plan, self._settings, accepting)

    async def move_plan(
        self,
        plan_id: str,
        wanted: State,
        declaration: Declaration | None = None,
        *,
        by: str = "the command line",
    ) -> Problem | None:
        """Change the state of a plan, or return why not; `by` is the label of the token."""
        async with self._moving:
            if self.service.is_shared:
                await self.in_store(self.reload_all)
            problem = await self._move_plan(plan_id, wanted, declaration or Declaration())
        if problem is None:
            self.changed.set()
            await self._record(by, f"plan {wanted}", plan_id)
        return problem

    async def _record(self, by: str, action: str, plan_id: str) -> None:
        LOG.info(action, extra={"facts": {"plan": plan_id, "by": by}})
        await self.in_store(self.actions.add, by, action, plan_id)

    async def _move_plan(
        self, plan_id: str, wanted: State, declaration: Declaration
    ) -> Problem | None:
        record = self.plans.get(plan_id)
        if record is None:
            return problems.UNKNOWN_PLAN
        document = None
        if record.state == "draft" and wanted == "published":
            if record.plan.honest_fraction is None and not declaration.all_honest:
                return problems.HONEST_UNSAID
            # Others may have been published since it was added as a draft.
            problem = await self._objection(record.plan)
            if problem is not None:
                return problem
            document = await self.compute(certificate, record.plan, self._settings)
        never_published = declaration.never_published
        try:
            moved = await self.in_store(
                self.store.move, plan_id, wanted, document, never_published=never_published
            )
        except PrivacyRefusal:
            return problems.MAYBE_PUBLISHED
        finally:
            await self.reload(plan_id)  # its state may have changed before the failure
        return None if moved else problems.WRONG_STATE

    async def reload(self, plan_id: str) -> None:
        record = await self.in_store(self.store.plan, plan_id)
        if record is not None:
            self.plans = dict(sorted((self.plans | {plan_id: record}).items()))

    def keep_up(self) -> None:
        """Reread plans and tokens if others, or late work, may have changed them."""
        if self.service.is_shared or self.service.was_late:
            self.reload_all()
            self.service.was_late = False

    def reload_all(self) -> None:
        """Reread plans and tokens, on the store's thread."""
        self.plans = {record.plan.id: record for record in self.store.plans()}
        self.tokens.reload()

    # Origins

    def origins(self, plan_id: str | None) -> frozenset[str]:
        """Return the origins of the pages that may use a published plan, or any of them."""
        record = None if plan_id is None else self.published(plan_id)
        if plan_id is not None:
            return frozenset() if record is None else frozenset(record.origins)
        every = (one.origins for one in self.plans.values() if one.certificate is not None)
        return frozenset().union(*every)

    async def set_origins(
        self, plan_id: str, origins: Sequence[str], *, by: str = "the command line"
    ) -> None:
        record = self.plans.get(plan_id)
        if record is not None and record.origins == tuple(origins):
            return
        await self.in_store(self.store.set_origins, plan_id, origins)
        await self.reload(plan_id)
        await self._record(by, "origins set", plan_id)

    # Public results

    def public_plans(self) -> list[PlanRecord]:
        return [one for one in self.plans.values() if one.is_public and one.state != "destroyed"]

    async def set_public(
        self, plan_id: str, public: bool, *, by: str = "the command line"
    ) -> Problem | None:
        """Make the releases of a plan public, or no longer; return why not."""
        record = self.plans.get(plan_id)
        if record is None:
            return problems.UNKNOWN_PLAN
        if public and (record.certificate is None or record.state == "destroyed"):
            return problems.WRONG_STATE
        if public and not is_for_readers(record.plan):
            return problems.NOT_FOR_READERS
        if record.is_public != public:
            await self.in_store(self.store.set_public, plan_id, public)
            await self.reload(plan_id)
            self.changed.set()
            await self._record(by, f"results {'made public' if public else 'hidden'}", plan_id)
        return None

    # Backups

    def backups(self) -> list[str]:
        return sorted(path.name for path in (self.service.folder / BACKUPS).glob("*.backup"))

    async def make_backup(self, *, by: str) -> str | Problem:
        """Make a backup in the data folder, and return its name, or why not."""
        folder, clock = self.service.folder, self.service.clock
        target = folder / BACKUPS
        with storage_errors():
            target.mkdir(mode=0o700, exist_ok=True)
        url = self._settings.database if isinstance(self._settings, Settings) else ""
        try:
            made = await self.compute(back_up, folder, target, url=url, clock=clock)
        except InputError:  # its name is the second in which it was made
            return problems.BACKUP_EXISTS
        LOG.info("backup made", extra={"facts": {"by": by}})
        await self.in_store(self.actions.add, by, "backup made", made.name)
        return made.name

    # Health

    async def obstacle(self) -> Problem | None:
        return await self.service.obstacle()

    def metrics_text(self) -> bytes:
        return self.service.metrics_text(record.state for record in self.plans.values())


async def publish(
    administration: Administration, plan: Plan, declaration: Declaration | None
) -> None:
    """Add and publish a plan if it is not published yet; a refusal is an error."""
    problem = await administration.add_plan(plan)
    record = administration.plans.get(plan.id)
    if problem is None and record is not None and record.state == "draft":
        problem = await administration.move_plan(plan.id, "published", declaration)
    if problem is not None:
        raise PrivacyRefusal(f"plan {plan.id[:12]} is not published: {problem.title}")


def objection(
    plan: Plan, settings: PlanSettings | AggregatorSettings, others: Iterable[Plan]
) -> Problem | None:
    """Return why a plan is refused beside others that accept reports, or None."""
    # A plan that protects less than another one of the same survey is refused while the other is
    # open, since the same people would answer both.
    if too_small := settings.crowd_too_small(plan.crowd_size):
        return replace(problems.CROWD_TOO_SMALL, title=too_small)
    if plan.promise.kind not in ("proven", "local") and not settings.allow_unproven:
        return problems.PROMISE_UNPROVEN
    try:
        certify(plan)  # it refuses a plan about which nothing is proven, whatever the plan promises
        holds = not plan.q.is_blind and compute_promise(plan).holds
    except PrivacyRefusal:
        holds = False
    if not holds:
        return problems.PROMISE_BROKEN
    if any(
        other.survey.name == plan.survey.name and plan_diff(other, plan).kind == "forbidden"
        for other in others
    ):
        return problems.PROTECTS_LESS
    return None


def certificate(plan: Plan, settings: PlanSettings | AggregatorSettings) -> bytes:
    """Return the certificate of a plan as JSON; a plan that breaks its promise has none."""
    # The promise holds for the honest fraction. So the certificate also states the limits for
    # senders that this collector enforces on the day of publication.
    check_promise(plan)
    audited = certify(plan)
    promised = audited.to_json(epsilon=float(plan.promise.epsilon))
    limits = None  # where reports come through a relay, only the relay knows senders
    if isinstance(settings, Settings) and plan.parties is None:
        limits = limits_document(plan, settings)
        trusted = settings.oblivious == "trusted"
        if settings.oblivious != "off" and (plan.view == "reports" or trusted):
            promised["observers"].append(oblivious_collector(audited).to_json())
    document = {
        "plan": plan.id,
        "shoal": __version__,
        "promise": plan.promise.to_json(),
        "reports_per_release": plan.reports_needed,
        "honest_fraction": plan.honest_fraction or "1",
        "honest_fraction_said_by": "plan" if plan.honest_fraction else "publisher",
        "limits_when_published": limits,
        "poisoning": poisoning(plan).to_json(),
        "certificate": promised,
    }
    return json.dumps(document, ensure_ascii=False, allow_nan=False).encode()
