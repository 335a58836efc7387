"""The collector's store: each method is one transaction; reports in, releases out.

`AnalyzerStore` builds on it: it has the same plans, crowds and releases.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

from shoal.analysis.report_files import Batch
from shoal.analysis.tally import Tally
from shoal.errors import InputError, PrivacyRefusal
from shoal.protocol.plan import Plan
from shoal.server.core import problems
from shoal.server.core.clock import GuardedClock, write_moment
from shoal.server.core.problems import Problem
from shoal.server.storage.database import Database, OpenPlans, StorageError, write_fact
from shoal.server.storage.open_plan import OpenPlan
from shoal.server.storage.records import (
    ORIGINS,
    CrowdRecord,
    PlanRecord,
    Records,
    Signatures,
    SignedRelease,
    State,
    may_become,
    read_origins,
)
from shoal.server.storage.recovery import first_window, restored_at
from shoal.server.storage.schema import COLLECTOR, Schema
from shoal.server.storage.sqlite import open_data
from shoal.server.storage.windows import IncompleteCrowd, OpenWindows

__all__ = ["Store", "add_plan", "may_destroy", "note_time"]

_MAX_COMPLETE = 64


class Store:
    """Plans, open crowds and releases of a collector.

    Parameters
    ----------
    folder
        The folder of the data, or of the keys if the data are in PostgreSQL.
    url, timeout
        The PostgreSQL database, and the seconds to wait for it; see `open_data`.
    deadline_days
        After how many days an incomplete crowd is discarded; 0 for never. They count from its
        opening, and not before its window begins.
    clock
        Seconds since 1970, to tell windows and days.
    released
        Called with a plan's id and a crowd's number when the crowd was released.
    discarded
        Called with a plan's id and the record of a discarded crowd.
    """

    schema: Schema = COLLECTOR

    def __init__(
        self,
        folder: Path,
        *,
        url: str = "",
        timeout: float = 10.0,
        deadline_days: int = 0,
        clock: Callable[[], float] = time.time,
        released: Callable[[str, int], None] = lambda plan_id, number: None,
        discarded: Callable[[str, IncompleteCrowd], None] = lambda plan_id, ended: None,
    ) -> None:
        self.folder, self._clock, self._deadline_days = folder, clock, deadline_days
        self._released, self._discarded = released, discarded
        self.database: Database = open_data(folder, self.schema, clock, url=url, timeout=timeout)
        self._connection = self.database.connection
        self._signatures = Signatures(self._connection, folder)
        self._records = Records(self._connection, self._signatures)
        self._plans: OpenPlans[Any] = OpenPlans(self.database, self._read_plan)

    def _read_plan(self, plan_id: str) -> Any:
        """Read the in-memory state of a plan."""
        keys = self.database.keys
        return OpenPlan.read(self._connection, keys, plan_id, signatures=self._signatures)

    def _time(self, plan: Plan) -> OpenWindows:
        return OpenWindows.of(plan, self._clock())

    def close(self) -> None:
        """Close the data; committed data are stored."""
        self.database.close()

    # Reports

    def accept(self, uploads: Sequence[Batch]) -> list[Problem | None]:
        """Count the reports of several uploads; when this returns they are on the disk.

        Each upload is accepted or refused as a whole, with a problem. A repeated report is accepted
        and not counted again, at the same cost.
        """
        return self.database.run("accept reports", lambda: self._accept(uploads), exclusive=False)

    def _accept(self, uploads: Sequence[Batch]) -> list[Problem | None]:
        answers: list[Problem | None] = [None] * len(uploads)
        order = sorted(range(len(uploads)), key=lambda place: uploads[place].plan_id)
        for plan_id, places in groupby(order, lambda place: uploads[place].plan_id):
            here, plan = list(places), self._plans.get(plan_id)
            if plan is None:
                for place in here:
                    answers[place] = problems.UNKNOWN_PLAN
                continue
            time = self._time(plan.plan)
            objections = plan.objections([uploads[place] for place in here], time)
            for place, problem in zip(here, objections, strict=True):
                answers[place] = problem
            counted = [uploads[place] for place in here if answers[place] is None]
            if counted:
                plan.count(counted, time)
        return answers

    @property
    def is_behind(self) -> bool:
        """Whether many complete crowds wait, so that the next sweep should come soon."""
        return any(plan.complete_crowds > _MAX_COMPLETE for plan in self._plans.known().values())

    # Plans

    def plan(self, plan_id: str) -> PlanRecord | None:
        """Return a plan by its id."""
        return self._records.plan(plan_id)

    def plans(self) -> list[PlanRecord]:
        """Return all plans, in the order of their ids."""
        return self._records.plans()

    def add_plan(self, plan: Plan) -> bool:
        """Add a plan as a draft; return whether it is new."""
        return add_plan(self.database, plan)

    def set_origins(self, plan_id: str, origins: Sequence[str]) -> None:
        """Set the origins of the web pages that may send reports for a plan."""

        def work() -> None:
            every = read_origins(self._connection) | {plan_id: tuple(origins)}
            write_fact(self._connection, ORIGINS, json.dumps(every))

        self.database.run("set origins", work)

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
        if not may_become(plan.state, wanted):
            return False
        released, ended = self.database.run(
            f"move a plan to {wanted}",
            lambda: self._move(plan_id, wanted, certificate, never_published),
            new_key=True,
            scrub=wanted in ("closed", "destroyed"),
        )
        self._tell({plan_id: released}, {plan_id: ended})
        return True

    def _move(
        self, plan_id: str, wanted: State, certificate: bytes | None, never_published: bool
    ) -> tuple[list[int], list[IncompleteCrowd]]:
        plan = self._plans.get(plan_id)
        assert plan is not None
        if not may_become(plan.state, wanted):  # another process was faster
            raise StorageError(f"another process changed the plan; it is now {plan.state}.")
        released, ended = list[int](), list[IncompleteCrowd]()
        time = self._time(plan.plan)
        if plan.state == "draft" and wanted == "published":
            if certificate is None:
                raise InputError("a plan is published with its certificate.")
            self._connection.execute(
                "UPDATE plans SET certificate = ? WHERE id = ?", (certificate, plan_id)
            )
            self._signatures.add_certificate(plan_id, certificate)
            self._check_first_time(plan, never_published)
            plan.open_crowds(time)
        if wanted == "closed":
            released = plan.release_crowds(time)
            ended = plan.discard_crowds("closed")
            plan.forget_windows()
        if wanted == "destroyed":
            plan.destroy()
        self._connection.execute("UPDATE plans SET state = ? WHERE id = ?", (wanted, plan_id))
        self._plans.forget(plan_id)
        return released, ended

    def _check_first_time(self, plan: OpenPlan, never_published: bool) -> None:
        """Refuse to open a plan whose reports may have been counted before a restore."""
        restored = restored_at(self._connection)
        if restored is None or never_published:
            return
        if plan.plan.window is None:
            raise PrivacyRefusal(problems.MAYBE_PUBLISHED.title)
        plan.close_windows(before=first_window(plan.plan, restored))

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
        self._tell({plan_id: released})
        return plan

    def _tell(
        self,
        released: Mapping[str, list[int]],
        discarded: Mapping[str, list[IncompleteCrowd]] | None = None,
    ) -> None:
        for plan_id, numbers in released.items():
            for number in numbers:
                self._released(plan_id, number)
        for plan_id, crowds in (discarded or {}).items():
            for ended in crowds:
                self._discarded(plan_id, ended)

    def progress(self, plan_id: str) -> int:
        """Return how many tenths of the crowd of this window have come; 0 if none is open."""
        plan = self._release_complete(plan_id)
        if plan is None:
            return 0
        seconds = plan.plan.window
        return int(plan.tenths(0 if seconds is None else int(self._clock() // seconds)))

    def crowds(self, plan_id: str) -> list[CrowdRecord]:
        """Return a plan's crowds; of those that are open no more than their tenths."""
        return self._with_tenths(plan_id, lambda: self._records.crowds(plan_id)[::-1])

    def some_crowds(self, plan_id: str, skip: int, length: int) -> list[CrowdRecord]:
        """Return some of a plan's crowds, the last one first; see `crowds`."""
        return self._with_tenths(plan_id, lambda: self._records.crowds(plan_id, skip, length))

    def crowd(self, plan_id: str, number: int) -> CrowdRecord | None:
        """Return one of a plan's crowds; see `crowds`."""
        found = self._with_tenths(plan_id, lambda: self._records.crowd(plan_id, number))
        return found[0] if found else None

    def _with_tenths(
        self, plan_id: str, read: Callable[[], list[CrowdRecord]]
    ) -> list[CrowdRecord]:
        plan = self._release_complete(plan_id)
        return [
            replace(crowd, tenths=plan.tenths(crowd.window))
            if crowd.state == "open" and plan is not None
            else crowd
            for crowd in read()
        ]

    def crowd_counts(self, plan_id: str) -> dict[str, int]:
        """Return how many crowds of a plan are in each state."""
        self._release_complete(plan_id)
        return self._records.crowd_counts(plan_id)

    def released_numbers(self, plan_id: str, length: int) -> list[int]:
        """Return the numbers of the last released crowds of a plan, rising."""
        self._release_complete(plan_id)
        return self._records.released_numbers(plan_id, length)

    def release(self, plan_id: str, number: int) -> bytes | None:
        """Return the tally of a crowd, the same bytes every time; None if there is none."""
        release = self.signed_release(plan_id, number)
        return None if release is None else release.content

    def signed_release(self, plan_id: str, number: int) -> SignedRelease | None:
        """Return the tally of a crowd with its signature, which was verified."""
        release = self._records.release(plan_id, number)
        if release is None:
            self._release_complete(plan_id)
            release = self._records.release(plan_id, number)
        return release

    def tally(self, plan_id: str, number: int) -> tuple[Plan, Tally] | None:
        """Return a released crowd's plan and tally."""
        plan, release = self.plan(plan_id), self.release(plan_id, number)
        if plan is None or release is None:
            return None
        return plan.plan, Tally.from_json(json.loads(release), plan.plan)

    def sweep(self) -> None:
        """Release complete crowds, close expired windows, discard crowds past their deadline.

        Windows only go forward: once forgotten, a window stays closed though the clock went back.
        The key of the data is changed and the log emptied each time, whether or not there is
        anything to do: otherwise response times would reveal it.
        """
        self._tell(*self.database.run("sweep", self._sweep, new_key=True, scrub=True))

    def _sweep(self) -> tuple[dict[str, list[int]], dict[str, list[IncompleteCrowd]]]:
        released, ended = {}, {}
        note_time(self.database, self._clock)
        destroys = may_destroy(self.database, self._clock)
        for plan_id in self._records.plans_with_crowds():
            plan = self._plans.get(plan_id)
            assert plan is not None
            time = self._time(plan.plan)
            released[plan_id] = plan.release_crowds(time)
            if destroys:
                ended[plan_id] = plan.expire_windows(time)
                if self._deadline_days:
                    oldest = time.day - self._deadline_days + 1
                    ended[plan_id] += plan.discard_crowds("deadline", before_day=oldest)
            plan.open_crowds(time)
            plan.make_room()
        return released, ended


def add_plan(database: Database, plan: Plan) -> bool:
    """Add a plan as a draft; return whether it is new."""
    document = json.dumps({"id": plan.id} | plan.to_json(), separators=(",", ":"))

    def work() -> bool:
        query = "SELECT 1 FROM plans WHERE id = ?"
        if database.connection.execute(query, (plan.id,)).fetchone() is not None:
            return False
        database.connection.execute(
            "INSERT INTO plans (id, state, document) VALUES (?, 'draft', ?)",
            (plan.id, document.encode()),
        )
        return True

    return database.run("add a plan", work)


def may_destroy(database: Database, clock: Callable[[], float]) -> bool:
    """Whether data may be destroyed because time has passed: the clock must be trusted."""
    if not isinstance(clock, GuardedClock):
        return True
    return clock.is_settled and database.confirms(clock)


def note_time(database: Database, clock: Callable[[], float]) -> None:
    """Store the time, so that a restart can tell whether the clock has jumped."""
    if isinstance(clock, GuardedClock):
        write_moment(database.connection, clock.moment)
