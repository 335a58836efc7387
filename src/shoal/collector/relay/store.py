"""The transactions of the relay: sealed reports in, frozen crowds out, nothing in between."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from shoal.agreement.crowd_keys import CrowdKey
from shoal.agreement.plan import Plan
from shoal.agreement.sealed_wire import SealedReports
from shoal.collector import problems
from shoal.collector.consistency import first_window, restored_at
from shoal.collector.intake.database import StorageError, storage_errors
from shoal.collector.intake.keyed_store import KeyedStore
from shoal.collector.intake.records import PlanRecord, Records
from shoal.collector.intake.windows import IncompleteCrowd, Time
from shoal.collector.problems import Problem
from shoal.collector.relay.open_plan import Document, RelayPlan, Wanted
from shoal.collector.relay.schema import RELAY
from shoal.collector.relay.sealed_crowd import read_rows, remove_rows
from shoal.errors import PrivacyRefusal

__all__ = ["Document", "FrozenCrowd", "RelayCrowd", "RelayStore"]

_REMOVED_AT_ONCE = 2000
"""Rows removed in one transaction, so that reports do not wait for the end of a large crowd."""


@dataclass(frozen=True)
class FrozenCrowd:
    """A crowd whose reports stay the same, on its way to the analyzer.

    `place` is its number in the window. `chunks` is how many it was cut into; None before that.
    """

    number: int
    plan_id: str
    window: int
    place: int
    key: CrowdKey
    chunks: int | None


@dataclass(frozen=True)
class RelayCrowd:
    """What is told of a crowd: of an open one only how many tenths have come."""

    window: int
    place: int
    state: str
    tenths: int


class RelayStore(KeyedStore[RelayPlan]):
    """Plans, open crowds and crowds on their way, in one folder.

    Parameters
    ----------
    folder
        The folder of the database.
    deadline_days
        After how many days a crowd that is not whole, or that the analyzer does not take, is given
        up; 0 for never.
    clock
        Seconds since 1970, to tell windows and days.
    frozen
        Called with a plan's id, window and place of a crowd when it was frozen.
    given_up
        Called with a plan's id and what is known of a crowd that was given up.
    """

    def __init__(
        self,
        folder: Path,
        *,
        deadline_days: int = 0,
        clock: Callable[[], float] = time.time,
        frozen: Callable[[str], None] = lambda plan_id: None,
        given_up: Callable[[str, int], None] = lambda plan_id, tenths: None,
    ) -> None:
        self._deadline_days, self._frozen, self._given_up = deadline_days, frozen, given_up
        super().__init__(folder, RELAY, clock)
        self._records = Records(self._database)

    def _forget_crowds(self) -> None:
        self._database.execute(
            "INSERT OR IGNORE INTO leftovers"
            " SELECT number FROM crowds WHERE state IN ('open', 'frozen', 'shuffled')"
        )
        self._database.execute(
            "UPDATE crowds SET state = 'given up', tenths = coalesce(tenths, 0)"
            " WHERE state IN ('open', 'frozen', 'shuffled')"
        )
        for table in ("seen", "wrapped_keys", "receipts"):
            self._database.execute(f"DELETE FROM {table}")  # noqa: S608  three names

    def _read_plan(self, plan_id: str) -> RelayPlan | None:
        return RelayPlan.read(self._database, self._keys, plan_id)

    # Plans

    def plans(self) -> list[PlanRecord]:
        """Return all plans, in the order of their ids."""
        return self._records.plans()

    def publish(self, plan: Plan, *, never_published: bool = False) -> None:
        """Take reports of a plan from now on; a plan that was closed stays so.

        After a restore, a plan that is new here may have been forgotten: one without a window is
        published only if somebody states that it never was before.
        """
        self.add_plan(plan)
        with self._changing_key():
            known = self._opened(plan.id)
            assert known is not None
            if known.state != "draft":
                return
            restored = restored_at(self._database)
            if restored is not None and not never_published:
                if plan.window is None:
                    raise PrivacyRefusal(problems.MAYBE_PUBLISHED.title)
                known.close_windows(before=first_window(plan, restored))
            self._set_state(plan.id, "published")

    def close_plan(self, plan_id: str) -> bool:
        """Take no more reports of a plan, and give its open crowds up; whole ones still go."""
        ended: list[IncompleteCrowd] = []
        with self._changing_key(scrub=True):
            plan = self._opened(plan_id)
            if plan is None or plan.state != "published":
                return False
            frozen = plan.freeze(self._time(plan.plan))
            ended = plan.give_up("closed")
            plan.forget_windows()
            self._set_state(plan_id, "closed")
        self._tell(plan_id, frozen, ended)
        return True

    def _set_state(self, plan_id: str, state: str) -> None:
        self._database.execute("UPDATE plans SET state = ? WHERE id = ?", (state, plan_id))
        self._open.pop(plan_id, None)

    # Documents of the analyzer

    def documents(self) -> dict[str, Document]:
        """Return all documents of the analyzer, by their names."""
        with storage_errors():
            rows = self._database.execute("SELECT name, content, signature, signer FROM documents")
            return {name: Document(bytes(content), *more) for name, content, *more in rows}

    def keep_document(self, name: str, document: Document) -> None:
        """Keep a document as it came."""
        with self._transaction():
            self._database.execute(
                "INSERT OR REPLACE INTO documents VALUES (?, ?, ?, ?)", (name, *document)
            )

    def pinned_key(self) -> bytes | None:
        """Return the analyzer's key that was pinned, if there is one."""
        with storage_errors():
            query = "SELECT value FROM facts WHERE name = 'analyzer'"
            row = self._database.execute(query).fetchone()
        return None if row is None else bytes(row[0])

    def pin_key(self, key: bytes) -> None:
        """Pin the analyzer's key, for good or until a signed link leads to another."""
        with self._transaction():
            self._database.execute("INSERT OR REPLACE INTO facts VALUES ('analyzer', ?)", (key,))

    # Reports

    def accept(self, uploads: Sequence[SealedReports]) -> list[Problem | None]:
        """Take the reports of several uploads; when this returns they are on the disk."""
        answers: list[Problem | None] = [None] * len(uploads)
        order = sorted(range(len(uploads)), key=lambda place: uploads[place].plan_id)
        with self._transaction():
            for plan_id, places in groupby(order, lambda place: uploads[place].plan_id):
                here, plan = list(places), self._opened(plan_id)
                found: Sequence[Problem | None] = [problems.UNKNOWN_PLAN] * len(here)
                if plan is not None:
                    some = [uploads[place] for place in here]
                    found = plan.accept(some, self._time(plan.plan))
                for place, problem in zip(here, found, strict=True):
                    answers[place] = problem
        return answers

    @property
    def is_behind(self) -> bool:
        """Whether a crowd waits to be frozen, so that the next sweep should come soon."""
        return any(plan.whole_crowds for plan in self._open.values())

    # Keys of crowds

    def open_keys(self) -> dict[tuple[str, int], Document]:
        """Return the key that reports of each plan and window are taken for now."""
        return {
            (plan_id, window): signed
            for plan_id, plan in self._taking().items()
            for window, signed in plan.open_keys().items()
        }

    def wanted(self) -> list[Wanted]:
        """Return the crowds whose keys are to be fetched."""
        return [one for plan in self._taking().values() for one in plan.wanted(self._now(plan))]

    def open_crowd(self, wanted: Wanted, signed: Document) -> bool:
        """Open a crowd whose key has come; return whether it is still wanted."""
        with self._transaction():
            plan = self._opened(wanted.plan_id)
            return plan is not None and plan.open_crowd(wanted, signed, self._now(plan))

    def windows(self, plan: Plan) -> Time:
        """Return the open windows of a plan now, none of them forgotten."""
        time, known = self._time(plan), self._opened(plan.id)
        oldest = 0 if known is None else known.oldest_window
        return time._replace(first_window=max(time.first_window, oldest))

    def _taking(self) -> dict[str, RelayPlan]:
        with storage_errors():
            found = {
                plan_id: self._opened(plan_id) for plan_id in self._records.plans_with_crowds()
            }
        return {plan_id: plan for plan_id, plan in found.items() if plan is not None}

    def _now(self, plan: RelayPlan) -> Time:
        return self._time(plan.plan)

    # Crowds

    def sweep(self) -> None:
        """Freeze what is whole, close expired windows, give up crowds past their deadline.

        The key of the data is changed and the log emptied each time, whether or not there is
        anything to do: whoever measures answers would see it otherwise.
        """
        frozen: dict[str, list[int]] = {}
        ended: dict[str, list[IncompleteCrowd]] = {}
        late: list[str] = []
        with self._changing_key(scrub=True):
            self._write_moment()
            for plan_id, plan in self._taking().items():
                now = self._now(plan)
                frozen[plan_id], ended[plan_id] = plan.freeze(now), []
                if self._may_destroy:
                    ended[plan_id] = plan.expire_windows(now)
                    if self._deadline_days:
                        oldest = now.day - self._deadline_days + 1
                        ended[plan_id] += plan.give_up("deadline", before_day=oldest)
                plan.make_room()
            if self._may_destroy and self._deadline_days:
                oldest = int(self._clock() // 86_400) - self._deadline_days + 1
                late = self._late(oldest)
        for plan_id in frozen:
            self._tell(plan_id, frozen[plan_id], ended[plan_id])
        for plan_id in late:
            self._given_up(plan_id, 10)

    def _late(self, before_day: int) -> list[str]:
        """Give up crowds that the analyzer has not taken in time."""
        old = self._database.execute(
            "SELECT number, plan FROM crowds WHERE state IN ('frozen', 'shuffled') AND day < ?",
            (before_day,),
        ).fetchall()
        for number, _ in old:
            self._end(number, "given up")
        return [plan_id for _, plan_id in old]

    def _tell(self, plan_id: str, frozen: list[int], ended: list[IncompleteCrowd]) -> None:
        for _ in frozen:
            self._frozen(plan_id)
        for crowd in ended:
            self._given_up(plan_id, crowd.tenths)

    def crowds(self, plan_id: str) -> list[RelayCrowd]:
        """Return a plan's crowds; of those that are open no more than their tenths."""
        with storage_errors():
            plan = self._opened(plan_id)
            rows = self._database.execute(
                "SELECT number, window, place, state, tenths FROM crowds WHERE plan = ?"
                " ORDER BY number",
                (plan_id,),
            ).fetchall()
        tenths = {} if plan is None else plan.tenths()
        return [
            RelayCrowd(window, place, state, tenths.get(number, known or 0))
            for number, window, place, state, known in rows
        ]

    # Frozen crowds

    def on_their_way(self) -> list[FrozenCrowd]:
        """Return the crowds that are frozen and not yet forwarded, the oldest first."""
        with storage_errors():
            rows = self._database.execute(
                "SELECT number, plan, window, place, document, chunks FROM crowds"
                " WHERE state IN ('frozen', 'shuffled') ORDER BY number"
            ).fetchall()
        return [
            FrozenCrowd(number, plan_id, window, place, CrowdKey.from_bytes(document), chunks)
            for number, plan_id, window, place, document, chunks in rows
        ]

    def crowd_key(self, crowd: FrozenCrowd) -> bytes:
        """Return the key under which a crowd is on the disk."""
        with storage_errors():
            key = self._keys.key(crowd.plan_id, "crowd", crowd.number)
        if key is None:
            raise StorageError("the crowd has no key any more.")
        return key

    def reports(self, crowd: FrozenCrowd, after: int, most: int) -> tuple[list[bytes], int | None]:
        """Return the messages of some reports of a frozen crowd, and where to go on."""
        with storage_errors():
            return read_rows(self._database, self.crowd_key(crowd), crowd.number, after, most)

    def shuffled(self, crowd: FrozenCrowd, chunks: int) -> None:
        """State that a crowd's chunks are on the disk: they are what is forwarded, for ever."""
        with self._transaction():
            self._database.execute(
                "UPDATE crowds SET state = 'shuffled', chunks = ? WHERE number = ?",
                (chunks, crowd.number),
            )
            self._database.execute("INSERT OR IGNORE INTO leftovers VALUES (?)", (crowd.number,))

    def receipts(self, crowd: FrozenCrowd) -> set[int]:
        """Return the chunks of a crowd that the analyzer has signed for."""
        with storage_errors():
            query = "SELECT chunk FROM receipts WHERE number = ?"
            return {chunk for (chunk,) in self._database.execute(query, (crowd.number,))}

    def keep_receipt(self, crowd: FrozenCrowd, chunk: int) -> None:
        """Remember that the analyzer has signed for a chunk."""
        with self._transaction():
            self._database.execute(
                "INSERT OR IGNORE INTO receipts VALUES (?, ?)", (crowd.number, chunk)
            )

    def forget_receipts(self, crowd: FrozenCrowd) -> None:
        """Forget what the analyzer signed for, so that it gets all chunks again."""
        with self._transaction():
            self._database.execute("DELETE FROM receipts WHERE number = ?", (crowd.number,))

    def end(self, crowd: FrozenCrowd, *, forwarded: bool) -> None:
        """Destroy what the disk holds of a crowd: the analyzer has it, or refused it for good."""
        with self._changing_key(scrub=True):
            self._end(crowd.number, "forwarded" if forwarded else "given up")
        if not forwarded:
            self._given_up(crowd.plan_id, 10)

    def _end(self, number: int, state: str) -> None:
        (plan_id,) = self._database.execute(
            "SELECT plan FROM crowds WHERE number = ?", (number,)
        ).fetchone()
        self._database.execute("UPDATE crowds SET state = ? WHERE number = ?", (state, number))
        self._database.execute("DELETE FROM receipts WHERE number = ?", (number,))
        self._database.execute("INSERT OR IGNORE INTO leftovers VALUES (?)", (number,))
        self._keys.forget(plan_id, "crowd", number)

    # What is left behind

    def tidy(self) -> bool:
        """Remove some rows that nobody needs any more; tell whether there may be others."""
        with self._transaction():
            row = self._database.execute("SELECT min(number) FROM leftovers").fetchone()
            if row[0] is None:
                return False
            if not remove_rows(self._database, row[0], _REMOVED_AT_ONCE):
                self._database.execute("DELETE FROM leftovers WHERE number = ?", row)
        return True

    def with_chunks(self) -> set[int]:
        """Return the numbers of the crowds whose chunks are needed."""
        with storage_errors():
            query = "SELECT number FROM crowds WHERE state = 'shuffled'"
            return {number for (number,) in self._database.execute(query)}
