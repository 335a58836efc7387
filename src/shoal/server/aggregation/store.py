"""The store of a leader or a helper: plans, keys of windows and batches; see `plan`."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from shoal.protocol.dap.task import SecretKey, Task
from shoal.protocol.plan import Plan
from shoal.server.aggregation.plan import AggregatorPlan
from shoal.server.aggregation.schema import AGGREGATOR
from shoal.server.storage.database import Database, OpenPlans
from shoal.server.storage.records import PlanRecord, Records
from shoal.server.storage.sqlite import open_data
from shoal.server.storage.store import CrowdChange, add_plan, sweep_plans, tell
from shoal.server.storage.windows import IncompleteCrowd, OpenWindows


class OpenTask(NamedTuple):
    """A published task, with the keys of its open windows; a closed one has none."""

    task: Task
    keys: dict[int, SecretKey]


class AggregatorStore:
    """Plans, keys of windows and batches of a leader or a helper; for the options see `Store`.

    `released` is called with a plan and the number of a batch that is full.
    """

    def __init__(
        self,
        folder: Path,
        *,
        url: str = "",
        timeout: float = 10.0,
        deadline_days: int = 0,
        clock: Callable[[], float] = time.time,
        released: Callable[[Plan, int], None] = lambda plan, number: None,
        discarded: Callable[[Plan, IncompleteCrowd], None] = lambda plan, ended: None,
    ) -> None:
        self.folder, self._clock, self._deadline_days = folder, clock, deadline_days
        self._released, self._discarded = released, discarded
        self.database: Database = open_data(folder, AGGREGATOR, clock, url=url, timeout=timeout)
        self._connection = self.database.connection
        self._records = Records(self._connection, folder)
        read = partial(AggregatorPlan.read, self.database, self._records)
        self._plans: OpenPlans[AggregatorPlan] = OpenPlans(self.database, read)

    is_behind = False

    def close(self) -> None:
        self.database.close()

    def _time(self, plan: AggregatorPlan) -> OpenWindows:
        return OpenWindows.of(plan.plan, self._clock())

    # Plans

    def plan(self, plan_id: str) -> PlanRecord | None:
        return self._records.plan(plan_id)

    def plans(self) -> list[PlanRecord]:
        return self._records.plans()

    def publish(self, plan: Plan, certificate: bytes, *, never_published: bool = False) -> None:
        """Take reports of a plan from now on; a plan that was closed stays so."""
        add_plan(self.database, plan)

        def work() -> None:
            known = self._plans.get(plan.id)
            assert known is not None
            if known.state == "draft":
                known.check_first_time(never_published=never_published)
                self._records.add_certificate(plan.id, certificate)
                self._set_state(known, "published")
                known.state = "published"
                known.open_crowds(self._time(known))

        self.database.run("publish a plan", work, new_key=True)

    def close_plan(self, plan_id: str) -> bool:
        """Take no more reports of a plan, and discard its incomplete batches."""

        def work() -> list[CrowdChange]:
            plan = self._plans.get(plan_id)
            if plan is None or plan.state != "published":
                return []
            ended = plan.discard_crowds("closed")
            plan.forget_windows()
            self._set_state(plan, "closed")
            return [CrowdChange(plan.plan, (), ended)]

        changes = self.database.run("close a plan", work, new_key=True, scrub=True)
        tell(changes, self._released, self._discarded)
        return bool(changes)

    def _set_state(self, plan: AggregatorPlan, state: str) -> None:
        self._connection.execute("UPDATE plans SET state = ? WHERE id = ?", (state, plan.plan.id))
        self._plans.forget(plan.plan.id)

    def _published(self, *, closed: bool = False) -> list[AggregatorPlan]:
        """Return the plans that take reports, in the order in which all processes open them.

        With `closed`, also those that took some: their full batches are still collected.
        """
        rows = self._connection.execute(
            "SELECT id FROM plans WHERE state = 'published' OR state = 'closed' AND ? ORDER BY id",
            (closed,),
        ).fetchall()
        found = (self._plans.get(plan_id) for (plan_id,) in rows)
        return [plan for plan in found if plan is not None]

    def open_tasks(self) -> dict[str, OpenTask]:
        """Return the published tasks by the plan's id, with the keys of open windows."""

        def work() -> dict[str, OpenTask]:
            return {plan.plan.id: OpenTask(plan.task, self._keys(plan)) for plan in
                    self._published(closed=True)}  # fmt: skip

        return self.database.read("read the keys of windows", work)

    def _keys(self, plan: AggregatorPlan) -> dict[int, SecretKey]:
        keys = {window: plan.key(window) for window in plan.open_windows(self._time(plan))}
        return {window: key for window, key in keys.items() if key is not None}

    # Batches

    def sweep(self) -> None:
        """Close expired windows with their keys, and discard batches past their deadline."""
        changes = self.database.run("sweep", self._sweep, new_key=True, scrub=True)
        tell(changes, self._released, self._discarded)

    def _sweep(self) -> list[CrowdChange]:
        plans = self._published(closed=True)
        return sweep_plans(self.database, plans, self._clock, self._deadline_days)

    def batches(self, plan_id: str) -> list[dict[str, object]]:
        """Return the batches of a plan; of an open one only its progress, in per cent."""

        def work() -> list[dict[str, object]]:
            plan = self._plans.get(plan_id)
            found = {} if plan is None else plan.progress()
            return [
                {"number": number, "state": state, "progress": share}
                for number, (state, share) in found.items()
            ]

        return self.database.read("read batches", work)
