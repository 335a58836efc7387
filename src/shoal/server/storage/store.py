"""The transactions of the collector: reports in, sealed crowds out, nothing in between."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from shoal.analysis.report_files import Batch
from shoal.analysis.tally import Tally
from shoal.errors import InputError, PrivacyRefusal
from shoal.protocol.plan import Plan
from shoal.server.core import problems
from shoal.server.core.problems import Problem
from shoal.server.storage.database import StorageError, write_fact
from shoal.server.storage.keyed_store import KeyedStore
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
from shoal.server.storage.recovery import first_window, forget_crowds, restored_at
from shoal.server.storage.schema import COLLECTOR
from shoal.server.storage.windows import IncompleteCrowd

__all__ = ["Store"]


_MOST_WHOLE = 64


class Store(KeyedStore[OpenPlan]):
    """Plans, open crowds and releases in one folder.

    Parameters
    ----------
    folder
        The folder of the database.
    deadline_days
        After how many days a crowd that is not complete is given up; 0 for never. They count from
        its opening, and not before its window begins.
    clock
        Seconds since 1970, to tell windows and days.
    sealed
        Called with a plan's id and the number of the crowd when a crowd was sealed.
    given_up
        Called with a plan's id and what is known of a crowd that was given up.
    """

    def __init__(
        self,
        folder: Path,
        *,
        deadline_days: int = 0,
        clock: Callable[[], float] = time.time,
        sealed: Callable[[str, int], None] = lambda plan_id, number: None,
        given_up: Callable[[str, IncompleteCrowd], None] = lambda plan_id, ended: None,
    ) -> None:
        self._deadline_days = deadline_days
        self._sealed, self._given_up = sealed, given_up
        super().__init__(folder, COLLECTOR, clock)
        self._signatures = Signatures(self._database, folder)
        self._records = Records(self._database, self._signatures)

    def _forget_crowds(self) -> None:
        forget_crowds(self._database)

    def _read_plan(self, plan_id: str) -> OpenPlan | None:
        return OpenPlan.read(self._database, self._keys, self._signatures, plan_id)

    # Reports

    def accept(self, uploads: Sequence[Batch]) -> list[Problem | None]:
        """Count the reports of several uploads; when this returns they are on the disk.

        Each upload is accepted or refused as a whole, with a problem. A repeated report is accepted
        and not counted again, at the same cost.
        """
        answers: list[Problem | None] = [None] * len(uploads)
        order = sorted(range(len(uploads)), key=lambda place: uploads[place].plan_id)
        with self._transaction(alone=False):
            for plan_id, places in groupby(order, lambda place: uploads[place].plan_id):
                here, plan = list(places), self._opened(plan_id)
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
        """Whether many crowds wait to be sealed, so that the next sweep should come soon."""
        return any(plan.whole_crowds > _MOST_WHOLE for plan in self._open.values())

    # Plans

    def plan(self, plan_id: str) -> PlanRecord | None:
        """Return a plan by its id."""
        return self._records.plan(plan_id)

    def plans(self) -> list[PlanRecord]:
        """Return all plans, in the order of their ids."""
        return self._records.plans()

    def set_origins(self, plan_id: str, origins: Sequence[str]) -> None:
        """Set the origins of the web pages that may send reports for a plan."""
        with self._transaction():
            every = read_origins(self._database) | {plan_id: tuple(origins)}
            write_fact(self._database, ORIGINS, json.dumps(every))

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
        without a window is published only if somebody states that it never was before.
        """
        with self._reading():
            plan = self._opened(plan_id)
        if plan is None:
            raise InputError("there is no such plan.")
        if not may_become(plan.state, wanted):
            return False
        sealed, ended = list[int](), list[IncompleteCrowd]()
        with self._changing_key(scrub=wanted in ("closed", "destroyed")):
            plan = self._opened(plan_id)
            assert plan is not None
            if not may_become(plan.state, wanted):  # another process was faster
                raise StorageError(f"the plan is {plan.state} meanwhile; look again.")
            before, time = plan.state, self._time(plan.plan)
            if before == "draft" and wanted == "published":
                if certificate is None:
                    raise InputError("a plan is published with its certificate.")
                self._database.execute(
                    "UPDATE plans SET certificate = ? WHERE id = ?", (certificate, plan_id)
                )
                self._signatures.add_certificate(plan_id, certificate)
                self._check_first_time(plan, never_published)
                plan.open_crowds(time)
            if wanted == "closed":
                sealed = plan.seal_crowds(time)
                ended = plan.give_up("closed")
                plan.forget_windows()
            if wanted == "destroyed":
                plan.destroy()
            self._database.execute("UPDATE plans SET state = ? WHERE id = ?", (wanted, plan_id))
            self._open.pop(plan_id, None)
        self._tell({plan_id: sealed}, {plan_id: ended})
        return True

    def _check_first_time(self, plan: OpenPlan, never_published: bool) -> None:
        """Refuse to open a plan whose reports may have been counted before a restore."""
        restored = restored_at(self._database)
        if restored is None or never_published:
            return
        if plan.plan.window is None:
            raise PrivacyRefusal(problems.MAYBE_PUBLISHED.title)
        plan.close_windows(before=first_window(plan.plan, restored))

    # Crowds

    def _seal(self, plan_id: str) -> OpenPlan | None:
        """Seal the crowds of a plan that are whole, and return what is in memory of it."""
        with self._reading():
            plan = self._opened(plan_id)
        self._settle(log_is_empty=False)
        if plan is not None and plan.whole_crowds:
            with self._changing_key():
                plan = self._opened(plan_id)
                assert plan is not None
                sealed = plan.seal_crowds(self._time(plan.plan))
            self._tell({plan_id: sealed})
        return plan

    def _tell(
        self,
        sealed: Mapping[str, list[int]],
        given_up: Mapping[str, list[IncompleteCrowd]] | None = None,
    ) -> None:
        for plan_id, numbers in sealed.items():
            for number in numbers:
                self._sealed(plan_id, number)
        for plan_id, crowds in (given_up or {}).items():
            for ended in crowds:
                self._given_up(plan_id, ended)

    def progress(self, plan_id: str) -> int:
        """Return how many tenths of the crowd of this window have come; 0 if none is open."""
        plan = self._seal(plan_id)
        return 0 if plan is None else plan.tenths(self._window(plan.plan))

    def _window(self, plan: Plan) -> int:
        return 0 if plan.window is None else int(self._clock() // plan.window)

    def crowds(self, plan_id: str) -> list[CrowdRecord]:
        """Return a plan's crowds; of those that are open no more than their tenths."""
        return self._with_tenths(plan_id, lambda: self._records.crowds(plan_id)[::-1])

    def _with_tenths(
        self, plan_id: str, read: Callable[[], list[CrowdRecord]]
    ) -> list[CrowdRecord]:
        plan = self._seal(plan_id)
        return [
            replace(crowd, tenths=plan.tenths(crowd.window))
            if crowd.state == "open" and plan is not None
            else crowd
            for crowd in read()
        ]

    def some_crowds(self, plan_id: str, skip: int, length: int) -> list[CrowdRecord]:
        """Return some of a plan's crowds, the last one first; see `crowds`."""
        return self._with_tenths(plan_id, lambda: self._records.crowds(plan_id, skip, length))

    def crowd(self, plan_id: str, number: int) -> CrowdRecord | None:
        """Return one of a plan's crowds; see `crowds`."""
        found = self._with_tenths(plan_id, lambda: self._records.crowd(plan_id, number))
        return found[0] if found else None

    def crowd_counts(self, plan_id: str) -> dict[str, int]:
        """Return how many crowds of a plan are in each state."""
        self._seal(plan_id)
        return self._records.crowd_counts(plan_id)

    def sealed_numbers(self, plan_id: str, length: int) -> list[int]:
        """Return the numbers of the last sealed crowds of a plan, rising."""
        self._seal(plan_id)
        return self._records.sealed_numbers(plan_id, length)

    def release(self, plan_id: str, number: int) -> bytes | None:
        """Return the tally of a sealed crowd, the same bytes every time; None if there is none."""
        release = self.signed_release(plan_id, number)
        return None if release is None else release.content

    def signed_release(self, plan_id: str, number: int) -> SignedRelease | None:
        """Return the tally of a sealed crowd with its signature, which was verified."""
        self._seal(plan_id)
        return self._records.release(plan_id, number)

    def tally(self, plan_id: str, number: int) -> tuple[Plan, Tally] | None:
        """Return a sealed crowd's plan and tally."""
        plan, release = self.plan(plan_id), self.release(plan_id, number)
        if plan is None or release is None:
            return None
        return plan.plan, Tally.from_json(json.loads(release), plan.plan)

    def keep_up(self) -> None:
        """Follow what other processes did, if there are any; `sweep` does it too."""

    def sweep(self) -> None:
        """Seal what is whole, close expired windows, give up crowds past their deadline.

        Windows only go forward: once forgotten, a window stays closed though the clock went back.
        The key of the data is changed and the log emptied each time, whether or not there is
        anything to do: whoever measures answers would see it otherwise.
        """
        sealed, ended = {}, {}
        with self._changing_key(scrub=True):
            self._write_moment()
            for plan_id in self._records.plans_with_crowds():
                plan = self._opened(plan_id)
                assert plan is not None
                time = self._time(plan.plan)
                sealed[plan_id] = plan.seal_crowds(time)
                if self._may_destroy:
                    ended[plan_id] = plan.expire_windows(time)
                    if self._deadline_days:
                        oldest = time.day - self._deadline_days + 1
                        ended[plan_id] += plan.give_up("deadline", before_day=oldest)
                plan.open_crowds(time)
                plan.make_room()
        self._tell(sealed, ended)
