"""The relay's store: each method is one transaction; encrypted reports in, complete crowds out."""

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
from shoal.server.relay.frozen_crowds import FrozenCrowds
from shoal.server.relay.open_plan import Document, RelayPlan, Wanted
from shoal.server.relay.schema import ANALYZER_KEY, DATA_NAME, RELAY
from shoal.server.storage.database import (
    Database,
    OpenPlans,
    read_fact,
    storage_errors,
    write_fact,
)
from shoal.server.storage.records import PlanRecord, Records, Signatures
from shoal.server.storage.recovery import first_window, restored_at
from shoal.server.storage.sqlite import open_data
from shoal.server.storage.store import add_plan, may_destroy, note_time
from shoal.server.storage.windows import IncompleteCrowd, OpenWindows

__all__ = ["Document", "RelayCrowd", "RelayStore"]


@dataclass(frozen=True)
class RelayCrowd:
    """What is told of a crowd: of an open one only how many tenths have come."""

    window: int
    place: int
    state: str
    tenths: int


class RelayStore:
    """Plans, open crowds and crowds on their way (`frozen`) of a relay.

    Parameters
    ----------
    folder
        The folder of the data, or of the keys if the data are in PostgreSQL.
    url, timeout
        The PostgreSQL database, and the seconds to wait for it; see `open_data`.
    deadline_days
        After how many days a crowd is discarded that is incomplete, or that the analyzer does not
        take; 0 for never.
    clock
        Seconds since 1970, to tell windows and days.
    frozen
        Called with a plan's id when a crowd was frozen.
    discarded
        Called with a plan's id and the tenths of a crowd that was discarded.
    """

    def __init__(
        self,
        folder: Path,
        *,
        url: str = "",
        timeout: float = 10.0,
        deadline_days: int = 0,
        clock: Callable[[], float] = time.time,
        frozen: Callable[[str], None] = lambda plan_id: None,
        discarded: Callable[[str, int], None] = lambda plan_id, tenths: None,
    ) -> None:
        self.folder, self._clock, self._deadline_days = folder, clock, deadline_days
        self._tell_frozen, self._discarded = frozen, discarded
        self.database: Database = open_data(folder, RELAY, clock, url=url, timeout=timeout)
        self._connection = self.database.connection
        self._records = Records(self._connection, Signatures(self._connection, folder))
        self._plans: OpenPlans[RelayPlan] = OpenPlans(self.database, self._read_plan)
        self.frozen = FrozenCrowds(self.database, discarded)

    def _read_plan(self, plan_id: str) -> RelayPlan | None:
        keys = self.database.keys
        return RelayPlan.read(self._connection, keys, plan_id, database=self.database)

    def close(self) -> None:
        """Close the data; committed data are stored."""
        self.database.close()

    def _now(self, plan: RelayPlan) -> OpenWindows:
        return OpenWindows.of(plan.plan, self._clock())

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
        published only on a declaration that it never was before.
        """
        add_plan(self.database, plan)

        def work() -> None:
            known = self._plans.get(plan.id)
            assert known is not None
            if known.state != "draft":
                return
            restored = restored_at(self._connection)
            if restored is not None and not never_published:
                if plan.window is None:
                    raise PrivacyRefusal(problems.MAYBE_PUBLISHED.title)
                known.close_windows(before=first_window(plan, restored))
            self._set_state(plan.id, "published")

        self.database.run("publish a plan", work, new_key=True)

    def close_plan(self, plan_id: str) -> bool:
        """Take no more reports of a plan, and discard its open crowds; complete ones still go."""

        def work() -> tuple[list[int], list[IncompleteCrowd]] | None:
            plan = self._plans.get(plan_id)
            if plan is None or plan.state != "published":
                return None
            frozen = plan.freeze(self._now(plan))
            ended = plan.discard_crowds("closed")
            plan.forget_windows()
            self._set_state(plan_id, "closed")
            return frozen, ended

        changed = self.database.run("close a plan", work, new_key=True, scrub=True)
        if changed is not None:
            self._tell(plan_id, *changed)
        return changed is not None

    def _set_state(self, plan_id: str, state: str) -> None:
        self._connection.execute("UPDATE plans SET state = ? WHERE id = ?", (state, plan_id))
        self._plans.forget(plan_id)

    # Documents of the analyzer

    def documents(self) -> dict[str, Document]:
        """Return all documents of the analyzer, by their names."""
        with storage_errors():
            query = "SELECT name, content, signature, signer FROM documents"
            rows = self._connection.execute(query)
            return {name: Document(bytes(content), *more) for name, content, *more in rows}

    def keep_document(self, name: str, document: Document) -> None:
        """Keep a document as it came."""
        statement = (
            "INSERT INTO documents VALUES (?, ?, ?, ?) ON CONFLICT (name) DO UPDATE"
            " SET content = excluded.content, signature = excluded.signature,"
            " signer = excluded.signer"
        )
        self.database.run(
            "keep a document",
            lambda: self._connection.execute(statement, (name, *document)),
            exclusive=False,
        )

    def pinned_key(self) -> bytes | None:
        """Return the analyzer's key that was pinned, if there is one."""
        with storage_errors():
            stored = read_fact(self._connection, ANALYZER_KEY)
        return None if stored is None else check_public_key(stored)

    def pin_key(self, key: bytes, is_first: bool = False) -> bytes:
        """Pin the analyzer's key, for good or until a signed link leads to another.

        Return the key that counts: of two processes that see the analyzer for the first time, that
        of the one that was faster.
        """

        def work() -> bytes:
            known = self.pinned_key()
            if is_first and known is not None:
                return known
            write_fact(self._connection, ANALYZER_KEY, key_text(key))
            return key

        return self.database.run("pin the analyzer's key", work)

    # Reports

    def accept(self, uploads: Sequence[EncryptedReports]) -> list[Problem | None]:
        """Take the reports of several uploads; when this returns they are on the disk."""
        return self.database.run("accept reports", lambda: self._accept(uploads), exclusive=False)

    def _accept(self, uploads: Sequence[EncryptedReports]) -> list[Problem | None]:
        answers: list[Problem | None] = [None] * len(uploads)
        order = sorted(range(len(uploads)), key=lambda place: uploads[place].plan_id)
        for plan_id, places in groupby(order, lambda place: uploads[place].plan_id):
            here, plan = list(places), self._plans.get(plan_id)
            found: Sequence[Problem | None] = [problems.UNKNOWN_PLAN] * len(here)
            if plan is not None:
                found = plan.accept([uploads[place] for place in here], self._now(plan))
            for place, problem in zip(here, found, strict=True):
                answers[place] = problem
        return answers

    @property
    def is_behind(self) -> bool:
        """Whether a crowd waits to be frozen, so that the next sweep should come soon."""
        return any(plan.complete_crowds for plan in self._plans.known().values())

    # Keys of crowds

    def open_keys(self) -> dict[tuple[str, int], Document]:
        """Return the key that reports of each plan and window are taken for now."""
        return self.database.read("read open keys", lambda: _keys_of(self._taking()))

    def known_keys(
        self, keys: Mapping[tuple[str, int], Document]
    ) -> dict[tuple[str, int], Document]:
        """Return such keys as far as this process knows them, without reading the data."""
        known = self._plans.known()
        return {where: one for where, one in keys.items() if where[0] not in known} | _keys_of(
            known
        )

    def wanted(self) -> list[Wanted]:
        """Return the crowds whose keys are to be fetched."""
        return self._of_each("read wanted keys", lambda plan: plan.wanted(self._now(plan)))

    def taking(self) -> list[Wanted]:
        """Return the crowds that take reports now."""
        return self._of_each("read open crowds", RelayPlan.taking)

    def signed_otherwise(self, signers: str) -> list[Wanted]:
        """Return the crowds that take reports and whose documents other keys signed."""
        return self._of_each("read signers", lambda plan: plan.signed_otherwise(signers))

    def _of_each(self, name: str, read: Callable[[RelayPlan], list[Wanted]]) -> list[Wanted]:
        return self.database.read(
            name, lambda: [one for plan in self._taking().values() for one in read(plan)]
        )

    def data_name(self) -> str:
        """Return the random name of these data, made at the first call."""
        with storage_errors():
            name = read_fact(self._connection, DATA_NAME)
        return name or self.database.run("name the data", self._name_data)

    def _name_data(self) -> str:
        name = read_fact(self._connection, DATA_NAME)  # another relay may have been faster
        if name is None:
            name = f"relay-{SystemBits().draw(16).hex()}"
            write_fact(self._connection, DATA_NAME, name)
        return name

    def discard(self, ended: Wanted) -> bool:
        """Discard an open crowd that has ended at the analyzer; return whether it was open."""

        def work() -> list[IncompleteCrowd]:
            plan = self._plans.get(ended.plan_id)
            return [] if plan is None else plan.discard(ended)

        discarded = self.database.run("discard a crowd", work, new_key=True, scrub=True)
        self._tell(ended.plan_id, [], discarded)
        return bool(discarded)

    def open_crowd(self, wanted: Wanted, signed: Document) -> bool:
        """Open a crowd whose key has come; return whether it is still wanted."""

        def work() -> bool:
            plan = self._plans.get(wanted.plan_id)
            return plan is not None and plan.open_crowd(wanted, signed, self._now(plan))

        return self.database.run("open a crowd", work)

    def sign_again(self, wanted: Wanted, signed: Document) -> bool:
        """Replace the signatures of a crowd's document; return whether it is the same document."""

        def work() -> bool:
            plan = self._plans.get(wanted.plan_id)
            return plan is None or plan.sign_again(wanted, signed)

        return self.database.run("replace signatures", work)

    def oldest_windows(self) -> dict[str, int]:
        """Return the first window of each plan, by its id, that is not closed for ever."""
        with storage_errors():
            query = "SELECT id, oldest_window FROM plans"
            return dict(self._connection.execute(query).fetchall())

    def _taking(self) -> dict[str, RelayPlan]:
        """Return the plans that take reports, opened in the order in which all open them."""
        ids = sorted(self._records.plans_with_crowds())
        closed = self._plans.known().keys() - set(ids)  # here or elsewhere
        self._plans.forget(*closed)  # their keys go from memory
        found = {plan_id: self._plans.get(plan_id) for plan_id in ids}
        return {plan_id: plan for plan_id, plan in found.items() if plan is not None}

    # Crowds

    def sweep(self) -> None:
        """Freeze complete crowds, close expired windows, discard crowds past their deadline.

        The key of the data is changed and the log emptied each time, whether or not there is
        anything to do: otherwise response times would reveal it.
        """
        changes, late = self.database.run("sweep", self._sweep, new_key=True, scrub=True)
        for plan_id, (frozen, ended) in changes.items():
            self._tell(plan_id, frozen, ended)
        for plan_id in late:
            self._discarded(plan_id, 10)

    def _sweep(self) -> tuple[dict[str, tuple[list[int], list[IncompleteCrowd]]], list[str]]:
        changes: dict[str, tuple[list[int], list[IncompleteCrowd]]] = {}
        note_time(self.database, self._clock)
        destroys = may_destroy(self.database, self._clock)
        for plan_id, plan in self._taking().items():
            now = self._now(plan)
            frozen, ended = plan.freeze(now), list[IncompleteCrowd]()
            if destroys:
                ended = plan.expire_windows(now)
                if self._deadline_days:
                    oldest = now.day - self._deadline_days + 1
                    ended += plan.discard_crowds("deadline", before_day=oldest)
            plan.make_room()
            changes[plan_id] = frozen, ended
        late: list[str] = []
        if destroys and self._deadline_days:
            oldest = int(self._clock() // 86_400) - self._deadline_days + 1
            late = self.frozen.discard_late(oldest)
        return changes, late

    def _tell(self, plan_id: str, frozen: list[int], ended: list[IncompleteCrowd]) -> None:
        for _ in frozen:
            self._tell_frozen(plan_id)
        for crowd in ended:
            self._discarded(plan_id, crowd.tenths)

    def crowds(self, plan_id: str) -> list[RelayCrowd]:
        """Return a plan's crowds; of those that are open no more than their tenths."""

        def work() -> list[RelayCrowd]:
            plan = self._plans.get(plan_id)
            tenths = {} if plan is None else plan.tenths()
            rows = self._connection.execute(
                "SELECT number, window, place, state, tenths FROM crowds WHERE plan = ?"
                " ORDER BY number",
                (plan_id,),
            ).fetchall()
            return [
                RelayCrowd(window, place, state, tenths.get(number, known or 0))
                for number, window, place, state, known in rows
            ]

        return self.database.read("read crowds", work)


def _keys_of(plans: Mapping[str, RelayPlan]) -> dict[tuple[str, int], Document]:
    return {
        (plan_id, window): signed
        for plan_id, plan in plans.items()
        for window, signed in plan.open_keys().items()
    }
