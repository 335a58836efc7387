"""The transactions of the relay: sealed reports in, frozen crowds out, nothing in between."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from shoal.errors import PrivacyRefusal
from shoal.protocol.encryption import EncryptedReports
from shoal.protocol.plan import Plan
from shoal.protocol.random_bits import SystemBits
from shoal.protocol.signatures import check_public_key, key_text
from shoal.server.core import problems
from shoal.server.core.problems import Problem
from shoal.server.relay.frozen_crowds import DATA_NAME, FrozenCrowds, forget_crowds
from shoal.server.relay.open_plan import Document, RelayPlan, Wanted
from shoal.server.relay.schema import RELAY
from shoal.server.storage.database import read_fact, storage_errors, write_fact
from shoal.server.storage.records import PlanRecord, Records, Signatures
from shoal.server.storage.recovery import first_window, restored_at
from shoal.server.storage.windows import IncompleteCrowd, OpenWindows

__all__ = ["Document", "RelayCrowd", "RelayStore", "pinned_bytes"]

ANALYZER = "analyzer"
"""The fact that is the analyzer's pinned key."""


@dataclass(frozen=True)
class RelayCrowd:
    """What is told of a crowd: of an open one only how many tenths have come."""

    window: int
    place: int
    state: str
    tenths: int


class RelayStore(FrozenCrowds):
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
        self._records = Records(self._database, Signatures(self._database, folder))

    def _forget_crowds(self) -> None:
        forget_crowds(self._database)

    def _read_plan(self, plan_id: str) -> RelayPlan | None:
        return RelayPlan.read(self._database, self._keys, plan_id)

    # Plans

    def plan(self, plan_id: str) -> PlanRecord | None:
        """Return a plan by its id."""
        return self._records.plan(plan_id)

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
        with self._transaction(alone=False):
            self._database.execute(
                "INSERT INTO documents VALUES (?, ?, ?, ?) ON CONFLICT (name) DO UPDATE"
                " SET content = excluded.content, signature = excluded.signature,"
                " signer = excluded.signer",
                (name, *document),
            )

    def pinned_key(self) -> bytes | None:
        """Return the analyzer's key that was pinned, if there is one."""
        with storage_errors():
            return self._pinned()

    def _pinned(self) -> bytes | None:
        stored = read_fact(self._database, ANALYZER)
        return None if stored is None else pinned_bytes(stored)

    def pin_key(self, key: bytes, is_first: bool = False) -> bytes:
        """Pin the analyzer's key, for good or until a signed link leads to another.

        Return the key that counts: of two processes that see the analyzer for the first time, that
        of the one that was faster.
        """
        with self._transaction():
            known = self._pinned()
            if is_first and known is not None:
                return known
            self._database.execute(
                "INSERT INTO facts VALUES (?, ?)"
                " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                (ANALYZER, key_text(key) if self.is_shared else key),
            )
        return key

    # Reports

    def accept(self, uploads: Sequence[EncryptedReports]) -> list[Problem | None]:
        """Take the reports of several uploads; when this returns they are on the disk."""
        answers: list[Problem | None] = [None] * len(uploads)
        order = sorted(range(len(uploads)), key=lambda place: uploads[place].plan_id)
        with self._transaction(alone=False):
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
        with self._reading():
            return _keys_of(self._taking())

    def known_keys(
        self, keys: Mapping[tuple[str, int], Document]
    ) -> dict[tuple[str, int], Document]:
        """Return such keys as far as this process knows them, without a look at the data."""
        others = {where: one for where, one in keys.items() if where[0] not in self._open}
        return others | _keys_of(self._open)

    def wanted(self) -> list[Wanted]:
        """Return the crowds whose keys are to be fetched."""
        with self._reading():
            return [one for plan in self._taking().values() for one in plan.wanted(self._now(plan))]

    def data_name(self) -> str:
        """Return the random name of these data, made at the first call."""
        with storage_errors():
            name = read_fact(self._database, DATA_NAME)
        if name is None:
            with self._transaction():
                name = read_fact(self._database, DATA_NAME)  # another relay may have been faster
                if name is None:
                    name = f"relay-{SystemBits().draw(16).hex()}"
                    write_fact(self._database, DATA_NAME, name)
        return str(name)

    def taking(self) -> list[Wanted]:
        """Return the crowds that take reports now."""
        with self._reading():
            return [one for plan in self._taking().values() for one in plan.taking()]

    def discard(self, ended: Wanted) -> bool:
        """Discard an open crowd that has ended at the analyzer; return whether it was open."""
        with self._changing_key(scrub=True):
            plan = self._opened(ended.plan_id)
            discarded = [] if plan is None else plan.discard(ended)
        self._tell(ended.plan_id, [], discarded)
        return bool(discarded)

    def open_crowd(self, wanted: Wanted, signed: Document) -> bool:
        """Open a crowd whose key has come; return whether it is still wanted."""
        with self._transaction():
            plan = self._opened(wanted.plan_id)
            return plan is not None and plan.open_crowd(wanted, signed, self._now(plan))

    def signed_otherwise(self, signers: str) -> list[Wanted]:
        """Return the crowds that take reports and whose documents other keys signed."""
        with self._reading():
            plans = self._taking().values()
            return [one for plan in plans for one in plan.signed_otherwise(signers)]

    def sign_again(self, wanted: Wanted, signed: Document) -> bool:
        """Replace the signatures of a crowd's document; return whether it is the same document."""
        with self._transaction():
            plan = self._opened(wanted.plan_id)
            return plan is None or plan.sign_again(wanted, signed)

    def oldest_windows(self) -> dict[str, int]:
        """Return the first window of each plan, by its id, that is not closed for ever."""
        with storage_errors():
            return dict(self._database.execute("SELECT id, oldest_window FROM plans").fetchall())

    def _taking(self) -> dict[str, RelayPlan]:
        """Return the plans that take reports, opened in the order in which all open them."""
        ids = sorted(self._records.plans_with_crowds())
        for closed in self._open.keys() - set(ids):  # here or elsewhere; its keys go from memory
            del self._open[closed]
        found = {plan_id: self._opened(plan_id) for plan_id in ids}
        return {plan_id: plan for plan_id, plan in found.items() if plan is not None}

    def _now(self, plan: RelayPlan) -> OpenWindows:
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
            self._tell_given_up(plan_id)

    def _tell_given_up(self, plan_id: str) -> None:
        self._given_up(plan_id, 10)

    def _tell(self, plan_id: str, frozen: list[int], ended: list[IncompleteCrowd]) -> None:
        for _ in frozen:
            self._frozen(plan_id)
        for crowd in ended:
            self._given_up(plan_id, crowd.tenths)

    def crowds(self, plan_id: str) -> list[RelayCrowd]:
        """Return a plan's crowds; of those that are open no more than their tenths."""
        with self._reading():
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


def _keys_of(plans: Mapping[str, RelayPlan]) -> dict[tuple[str, int], Document]:
    return {
        (plan_id, window): signed
        for plan_id, plan in plans.items()
        for window, signed in plan.open_keys().items()
    }


def pinned_bytes(stored: bytes | str) -> bytes:
    """Return the analyzer's key as it was stored: facts of a shared database are text."""
    return check_public_key(stored) if isinstance(stored, str) else bytes(stored)
