"""Stores of plans: each method is one transaction; reports in, releases out.

`PlanStore` is for every party. `Store` is a collector's; those of an analyzer and an analyst build
on it, since they have the same plans, crowds and releases.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from shoal.errors import InputError
from shoal.protocol.plan import Plan
from shoal.server.core import problems
from shoal.server.core.clock import GuardedClock, write_moment
from shoal.server.core.problems import Problem
from shoal.server.storage.database import Database, OpenPlans, StorageError, write_fact
from shoal.server.storage.open_plan import OpenPlan
from shoal.server.storage.records import (
    ORIGINS,
    PUBLIC_PLANS,
    CrowdRecord,
    PlanRecord,
    Records,
    ReleaseLine,
    SignedRelease,
    State,
    may_become,
    read_origins,
    read_public,
)
from shoal.server.storage.schema import COLLECTOR, Schema
from shoal.server.storage.sqlite import open_data
from shoal.server.storage.windows import IncompleteCrowd, OpenWindows

_MAX_COMPLETE = 64


class CrowdChange(NamedTuple):
    """The crowds of a plan that a transaction ended."""

    plan: Plan
    released: Sequence[int] = ()
    discarded: Sequence[IncompleteCrowd] = ()


class PlanStore:
    """Plans of a party, and the reports for them.

    The folder has the data, or the keys if the data are in PostgreSQL at `url`. An incomplete crowd
    is discarded after `deadline_days`, 0 for never; they count from its opening, and not before its
    window begins. `released` is called with a plan and the number of a complete crowd, `discarded`
    with a plan and a discarded crowd.
    """

    schema: ClassVar[Schema]
    plan_type: ClassVar[type[Any]]
    max_complete: ClassVar[int] = 0
    """How many complete crowds of a plan may wait for the usual sweep."""

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
        self.database: Database = open_data(folder, self.schema, clock, url=url, timeout=timeout)
        self._connection = self.database.connection
        self._records = Records(self._connection, folder)
        read = partial(self.plan_type.read, self.database, self._records)
        self._plans: OpenPlans[Any] = OpenPlans(self.database, read)

    def close(self) -> None:
        self.database.close()

    def _time(self, plan: Plan) -> OpenWindows:
        return OpenWindows.of(plan, self._clock())

    def _tell(self, changes: Iterable[CrowdChange]) -> None:
        """Report the crowds that ended, after the commit; this must not need the data."""
        for change in changes:
            for number in change.released:
                self._released(change.plan, number)
            for ended in change.discarded:
                self._discarded(change.plan, ended)

    # Reports

    def accept(self, uploads: Sequence[Any]) -> list[Problem | None]:
        """Accept or refuse each of several uploads; when this returns they are on the disk."""
        # A repeated report is accepted and not counted again, at the same cost.

        def work() -> list[Problem | None]:
            answers: list[Problem | None] = [problems.UNKNOWN_PLAN] * len(uploads)
            order = sorted(range(len(uploads)), key=lambda place: uploads[place].plan_id)
            for plan_id, places in groupby(order, lambda place: uploads[place].plan_id):
                here, plan = list(places), self._plans.get(plan_id)
                if plan is not None:
                    found = plan.accept([uploads[at] for at in here], self._time(plan.plan))
                    for place, problem in zip(here, found, strict=True):
                        answers[place] = problem
            return answers

        return self.database.run("accept reports", work, exclusive=False)

    @property
    def is_behind(self) -> bool:
        """Whether many complete crowds wait, so that the next sweep should come soon."""
        plans = self._plans.known().values()
        return any(plan.complete_crowds > self.max_complete for plan in plans)

    # Plans

    def plan(self, plan_id: str) -> PlanRecord | None:
        return self._records.plan(plan_id)

    def plans(self) -> list[PlanRecord]:
        return self._records.plans()

    def add_plan(self, plan: Plan) -> bool:
        """Add a plan as a draft; return whether it is new."""
        document = json.dumps({"id": plan.id} | plan.to_json(), separators=(",", ":"))
        statement = (
            "INSERT INTO plans (id, state, document) VALUES (?, 'draft', ?)"
            " ON CONFLICT (id) DO NOTHING RETURNING id"
        )
        values = (plan.id, document.encode())
        return self.database.run(
            "add a plan",
            lambda: bool(self._connection.execute(statement, values).fetchall()),
        )

    def publish(
        self, plan: Plan, certificate: bytes | None = None, *, never_published: bool = False
    ) -> None:
        """Take reports of a plan from now on; a plan that was closed stays so."""
        self.add_plan(plan)
        self._move(plan.id, "draft", "published", certificate, never_published)

    def close_plan(self, plan_id: str) -> bool:
        """Take no more reports of a plan, and discard its incomplete crowds; False if it took none.

        Complete crowds go on.
        """
        return self._move(plan_id, "published", "closed")

    def _move(
        self,
        plan_id: str,
        now: State,
        wanted: State,
        certificate: bytes | None = None,
        never_published: bool = False,
    ) -> bool:
        """Change the state of a plan, if it is in a state; return whether it was."""

        def work() -> list[CrowdChange]:
            plan = self._plans.get(plan_id)
            if plan is None or plan.state != now:
                return []
            change, time = CrowdChange(plan.plan), self._time(plan.plan)
            plan.state = wanted
            if now == "draft" and wanted == "published":
                if certificate is not None:
                    self._records.add_certificate(plan_id, certificate)
                plan.check_first_time(never_published=never_published)
                plan.open_crowds(time)
            if wanted == "closed":
                released = plan.release_crowds(time)
                change = CrowdChange(plan.plan, released, plan.discard_crowds("closed"))
                plan.forget_windows()
            if wanted == "destroyed":
                plan.destroy()
            self._connection.execute("UPDATE plans SET state = ? WHERE id = ?", (wanted, plan_id))
            self._plans.forget(plan_id)
            return [change]

        scrub = wanted in ("closed", "destroyed")
        changes = self.database.run(f"move a plan to {wanted}", work, new_key=True, scrub=scrub)
        self._tell(changes)
        return bool(changes)

    # Housekeeping

    def sweep(self) -> None:
        """Release complete crowds, close expired windows, discard crowds past their deadline."""
        # Windows only go forward: once forgotten, a window stays closed though the clock went back.
        # The key of the data is changed and the log emptied each time, whether or not there is
        # anything to do: otherwise response times would reveal it.
        self._tell(self.database.run("sweep", self._sweep, new_key=True, scrub=True))

    def _sweep(self) -> list[CrowdChange]:
        """End the crowds that are complete or too old, and prepare the next commits."""
        changes = []
        if isinstance(self._clock, GuardedClock):  # so that a restart can tell whether it jumped
            write_moment(self._connection, self._clock.moment)
        destroys = self._may_destroy()
        for plan in self._swept_plans():
            time = self._time(plan.plan)
            released = plan.release_crowds(time)
            ended = plan.expire(time, self._deadline_days) if destroys else []
            plan.open_crowds(time)
            plan.make_room()
            changes.append(CrowdChange(plan.plan, released, ended))
        return changes

    def _swept_plans(self) -> Iterable[Any]:
        return map(self._plans.get, self._records.plans_with_crowds())

    def _may_destroy(self) -> bool:
        """Whether data may be destroyed because time has passed: the clock must be trusted."""
        clock = self._clock
        return not isinstance(clock, GuardedClock) or (
            clock.is_settled and self.database.confirms(clock)
        )


class Store(PlanStore):
    """Plans, open crowds and releases of a collector; for the options see `PlanStore`."""

    schema = COLLECTOR
    plan_type: ClassVar[type[Any]] = OpenPlan
    max_complete = _MAX_COMPLETE

    # Plans

    def set_origins(self, plan_id: str, origins: Sequence[str]) -> None:
        """Set the origins of the web pages that may send reports for a plan."""

        def work() -> None:
            every = read_origins(self._connection) | {plan_id: tuple(origins)}
            write_fact(self._connection, ORIGINS, json.dumps(every))

        self.database.run("set origins", work)

    def set_public(self, plan_id: str, public: bool) -> None:
        """Say whether the releases of a plan are public."""

        def work() -> None:
            others = read_public(self._connection) - {plan_id}
            every = sorted(others | {plan_id} if public else others)
            write_fact(self._connection, PUBLIC_PLANS, json.dumps(every))

        self.database.run("set public plans", work)

    def move(
        self,
        plan_id: str,
        wanted: State,
        certificate: bytes | None = None,
        *,
        never_published: bool = False,
    ) -> bool:
        """Change the state of a plan; return whether that is allowed.

        The first publication needs the plan's certificate and opens the first crowds. Closing
        destroys the open crowds, and destroying all that was collected. After a restore, a plan
        without a window is published only on a declaration that it never was before.
        """
        plan = self.database.read("read a plan", lambda: self._plans.get(plan_id))
        if plan is None:
            raise InputError("there is no such plan.")
        now: State = plan.state
        if not may_become(now, wanted):
            return False
        if now == "draft" and wanted == "published" and certificate is None:
            raise InputError("a plan is published with its certificate.")
        if not self._move(plan_id, now, wanted, certificate, never_published):
            raise StorageError("another process changed the plan; try again.")
        return True

    # Crowds

    def _release_complete(self, plan_id: str) -> Any:
        """Release the complete crowds of a plan, and return the plan in memory."""
        plan = self.database.read("read a plan", lambda: self._plans.get(plan_id))
        self.database.settle()
        if plan is None or not plan.complete_crowds:
            return plan

        def work() -> tuple[Any, list[int]]:
            plan = self._plans.get(plan_id)
            assert plan is not None
            return plan, plan.release_crowds(self._time(plan.plan))

        plan, released = self.database.run("release crowds", work, new_key=True)
        self._tell([CrowdChange(plan.plan, released)])
        return plan

    def progress(self, plan_id: str) -> int:
        """Return the progress of the crowd of this window in per cent; 0 if none is open."""
        plan = self._release_complete(plan_id)
        if plan is None:
            return 0
        seconds = plan.plan.window
        return int(plan.progress(0 if seconds is None else int(self._clock() // seconds)))

    def crowds(self, plan_id: str) -> list[CrowdRecord]:
        """Return a plan's crowds; of those that are open no more than their progress."""
        return self._with_progress(plan_id, lambda: self._records.crowds(plan_id)[::-1])

    def some_crowds(self, plan_id: str, skip: int, length: int) -> list[CrowdRecord]:
        """Return some of a plan's crowds, the last one first; see `crowds`."""
        return self._with_progress(plan_id, lambda: self._records.crowds(plan_id, skip, length))

    def crowd(self, plan_id: str, number: int) -> CrowdRecord | None:
        found = self._with_progress(plan_id, lambda: self._records.crowd(plan_id, number))
        return found[0] if found else None

    def _with_progress(
        self, plan_id: str, read: Callable[[], list[CrowdRecord]]
    ) -> list[CrowdRecord]:
        plan = self._release_complete(plan_id)
        return [
            replace(crowd, progress=plan.progress(crowd.window))
            if crowd.state == "open" and plan is not None
            else crowd
            for crowd in read()
        ]

    def crowd_counts(self, plan_id: str) -> dict[str, int]:
        self._release_complete(plan_id)
        return self._records.crowd_counts(plan_id)

    def released_numbers(self, plan_id: str, length: int) -> list[int]:
        self._release_complete(plan_id)
        return self._records.released_numbers(plan_id, length)

    def release_lines(self, plan_id: str) -> list[ReleaseLine]:
        return self.database.read("list releases", lambda: self._records.release_lines(plan_id))

    def release(self, plan_id: str, number: int) -> bytes | None:
        """Return the tally of a crowd, the same bytes every time; None if there is none."""
        release = self.signed_release(plan_id, number)
        return None if release is None else release.content

    def signed_release(self, plan_id: str, number: int) -> SignedRelease | None:
        """Return the tally of a crowd with its signature, which was verified."""
        # Reading checks first that a shared database is this one, and not behind.
        release = self.database.read(
            "read a release", lambda: self._records.release(plan_id, number)
        )
        if release is None:
            self._release_complete(plan_id)
            release = self._records.release(plan_id, number)
        return release
