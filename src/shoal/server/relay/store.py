"""The relay's store: each method is one transaction; encrypted reports in, complete crowds out.

A crowd goes forward only: `open` while it takes reports, `frozen` when it has all of them,
`shuffled` when its chunks are stored, then `forwarded`; before that it may be `discarded`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from shoal.protocol.encryption import EncryptedReports
from shoal.protocol.plan import Plan
from shoal.protocol.random_bits import SystemBits
from shoal.protocol.signatures import check_public_key, key_text
from shoal.server.core.problems import Problem
from shoal.server.relay.frozen_crowds import FrozenCrowds
from shoal.server.relay.open_plan import Document, RelayPlan, Wanted
from shoal.server.storage.database import Database, OpenPlans, read_fact, storage_errors, write_fact
from shoal.server.storage.records import PlanRecord, Records
from shoal.server.storage.schema import SHARED_BACKUP, SHARED_POSTGRES, SHARED_TABLES, Schema
from shoal.server.storage.sqlite import open_data
from shoal.server.storage.store import (
    CrowdChange,
    accept_by_plan,
    add_plan,
    may_destroy,
    sweep_plans,
    tell,
)
from shoal.server.storage.windows import DAY, IncompleteCrowd, OpenWindows

ANALYZER_KEY = "analyzer"
"""The fact with the analyzer's key that was given, and the one that it led to, in base64url."""
DATA_NAME = "data"
"""The fact that is the random name of these data; the analyzer gives each crowd's key to one."""

_TABLES = """
-- Documents that the analyzer signed, passed on as they came. The list of its keys has no signature
-- of its own: its links are signed.
CREATE TABLE documents (
    name TEXT PRIMARY KEY, content BLOB NOT NULL, signature TEXT NOT NULL, signer TEXT NOT NULL
);

-- 'number' is the relay's own, 'place' is the number in the window, by which the analyzer knows it.
-- 'day' is when it was opened, and later when it was frozen. The document is the key of the crowd.
-- 'attempt' is which of the crowd's shuffles is forwarded, where several relays may shuffle it.
CREATE TABLE crowds (
    number INTEGER PRIMARY KEY, plan TEXT NOT NULL, window INTEGER NOT NULL,
    place INTEGER NOT NULL, state TEXT NOT NULL, day INTEGER NOT NULL, progress INTEGER,
    chunks INTEGER, document BLOB NOT NULL, signature TEXT NOT NULL, signer TEXT NOT NULL,
    attempt BLOB, UNIQUE (plan, window, place)
);

-- Rows of one length, encrypted under the crowd's key, more than are used: the message of one
-- report each, in random order. The id is the crowd's number and a place.
CREATE TABLE messages (id INTEGER PRIMARY KEY, content BLOB NOT NULL);

-- Crowds whose rows are still to be removed: their keys are gone, or the rows are in chunks.
CREATE TABLE leftovers (number INTEGER PRIMARY KEY);

-- Crowds that were discarded here and that the analyzer has not been told about yet.
CREATE TABLE untold (number INTEGER PRIMARY KEY);

-- Chunks of a crowd that the analyzer has signed for.
CREATE TABLE receipts (
    number INTEGER NOT NULL, chunk INTEGER NOT NULL, PRIMARY KEY (number, chunk)
) WITHOUT ROWID;
"""

# The reports of a frozen crowd stay the same, and it is cut into chunks once. The key of a crowd
# stays, though the analyzer may sign it again.
_SQLITE_ONLY = """
CREATE TRIGGER crowds_go_forward BEFORE UPDATE ON crowds
WHEN old.plan <> new.plan OR old.window <> new.window OR old.place <> new.place
  OR old.number <> new.number OR old.document <> new.document OR NOT (
    old.state = 'open' AND new.state IN ('open', 'frozen', 'discarded')
    OR old.state = 'frozen' AND new.state IN ('shuffled', 'discarded')
    OR old.state = 'shuffled' AND new.state IN ('forwarded', 'discarded')
        AND new.chunks = old.chunks
)
BEGIN SELECT RAISE(ABORT, 'a crowd goes forward only'); END;
CREATE TRIGGER crowds_are_not_removed BEFORE DELETE ON crowds
BEGIN SELECT RAISE(ABORT, 'a crowd is not removed'); END;
"""

_POSTGRES_ONLY = """
CREATE INDEX crowds_under_way ON crowds (plan) WHERE state IN ('open', 'frozen', 'shuffled');
-- How many reports an open crowd has, and how many rows were made for them, encrypted: several
-- relays write to it.
CREATE TABLE fills (number INTEGER PRIMARY KEY, content BLOB NOT NULL);
ALTER TABLE fills SET (fillfactor = 50);
ALTER TABLE fills ALTER content SET STORAGE PLAIN;
ALTER TABLE messages SET (fillfactor = 50);
ALTER TABLE messages ALTER content SET STORAGE EXTERNAL;
-- The chunks of every shuffle of a frozen crowd; of one that is shuffled, those of its attempt. Any
-- relay may forward them.
CREATE TABLE chunks (
    number INTEGER NOT NULL, attempt BLOB NOT NULL, chunk INTEGER NOT NULL,
    content BLOB NOT NULL, PRIMARY KEY (number, attempt, chunk)
);
ALTER TABLE chunks ALTER content SET STORAGE EXTERNAL;
"""

_FORWARD_ONLY = (
    """CREATE FUNCTION crowds_go_forward() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF tg_op = 'UPDATE' THEN
            IF new.plan = old.plan AND new.window = old.window AND new.place = old.place
                AND new.number = old.number AND new.document = old.document AND (
                    old.state = 'open' AND new.state IN ('open', 'frozen', 'discarded')
                    OR old.state = 'frozen' AND (
                        new.state = 'discarded' OR new.state = 'shuffled'
                        AND new.chunks IS NOT NULL AND new.attempt IS NOT NULL)
                    OR old.state = 'shuffled' AND new.state IN ('forwarded', 'discarded')
                        AND new.chunks = old.chunks AND new.attempt = old.attempt)
            THEN RETURN new; END IF;
        END IF;
        RAISE EXCEPTION 'a crowd goes forward only';
    END $$""",
    """CREATE TRIGGER crowds_go_forward BEFORE UPDATE OR DELETE ON crowds
    FOR EACH ROW EXECUTE FUNCTION crowds_go_forward()""",
)

_UNDER_WAY = "state IN ('open', 'frozen', 'shuffled')"

RELAY = Schema(
    "relay",
    0x5368526C,
    SHARED_TABLES + _TABLES,
    _SQLITE_ONLY,
    SHARED_POSTGRES + _POSTGRES_ONLY,
    _FORWARD_ONLY,
    forget=(
        f"INSERT INTO leftovers SELECT number FROM crowds WHERE {_UNDER_WAY}"  # noqa: S608  fixed
        " ON CONFLICT DO NOTHING",
        f"INSERT INTO untold SELECT number FROM crowds WHERE {_UNDER_WAY} ON CONFLICT DO NOTHING",  # noqa: S608  fixed
        "UPDATE crowds SET state = 'discarded', progress = coalesce(progress, 0)"  # noqa: S608  fixed
        f" WHERE {_UNDER_WAY}",
        "DELETE FROM seen",
        "DELETE FROM wrapped_keys",
        "DELETE FROM receipts",
        # From here on these are other data: they get no key that was given to those before.
        f"DELETE FROM facts WHERE name = '{DATA_NAME}'",  # noqa: S608  fixed
    ),
    backup=SHARED_BACKUP
    | {
        "documents": "SELECT name, content, signature, signer FROM documents",
        "crowds": "SELECT number, plan, window, place, day, document, signature, signer,"
        " CASE state WHEN 'forwarded' THEN state ELSE 'discarded' END AS state,"
        " CASE state WHEN 'open' THEN 0 ELSE progress END AS progress,"
        " CASE state WHEN 'forwarded' THEN chunks END AS chunks FROM crowds",
        "untold": "SELECT number FROM crowds WHERE state <> 'forwarded'",
    },
)


class RelayCrowd(NamedTuple):
    """A crowd; of an open one only the progress is told, in per cent."""

    window: int
    crowd: int
    state: str
    progress: int


class RelayStore:
    """Plans, open crowds and crowds on their way (`frozen`) of a relay.

    A crowd that is incomplete, or that the analyzer does not take, is discarded after
    `deadline_days`; 0 for never. `released` is called with a plan and the number of a crowd that
    was frozen, `discarded` with a plan and a discarded crowd. For the others see `Store`.
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
        self.database: Database = open_data(folder, RELAY, clock, url=url, timeout=timeout)
        self._connection = self.database.connection
        self._records = Records(self._connection, folder)
        read = partial(RelayPlan.read, self.database, self._records)
        self._plans: OpenPlans[RelayPlan] = OpenPlans(self.database, read)
        self.frozen = FrozenCrowds(self.database, discarded)

    def close(self) -> None:
        self.database.close()

    def _now(self, plan: RelayPlan) -> OpenWindows:
        return OpenWindows.of(plan.plan, self._clock())

    # Plans

    def plan(self, plan_id: str) -> PlanRecord | None:
        return self._records.plan(plan_id)

    def plans(self) -> list[PlanRecord]:
        return self._records.plans()

    def publish(self, plan: Plan, *, never_published: bool = False) -> None:
        """Take reports of a plan from now on; a plan that was closed stays so."""
        add_plan(self.database, plan)

        def work() -> None:
            known = self._plans.get(plan.id)
            assert known is not None
            if known.state == "draft":
                known.check_first_time(never_published=never_published)
                self._set_state(plan.id, "published")

        self.database.run("publish a plan", work, new_key=True)

    def close_plan(self, plan_id: str) -> bool:
        """Take no more reports of a plan, and discard its open crowds; complete ones still go."""

        def work() -> list[CrowdChange]:
            plan = self._plans.get(plan_id)
            if plan is None or plan.state != "published":
                return []
            frozen = plan.release_crowds(self._now(plan))
            ended = plan.discard_crowds("closed")
            plan.forget_windows()
            self._set_state(plan_id, "closed")
            return [CrowdChange(plan.plan, frozen, ended)]

        changes = self.database.run("close a plan", work, new_key=True, scrub=True)
        tell(changes, self._released, self._discarded)
        return bool(changes)

    def _set_state(self, plan_id: str, state: str) -> None:
        self._connection.execute("UPDATE plans SET state = ? WHERE id = ?", (state, plan_id))
        self._plans.forget(plan_id)

    # Documents of the analyzer

    def documents(self) -> dict[str, Document]:
        with storage_errors():
            query = "SELECT name, content, signature, signer FROM documents"
            rows = self._connection.execute(query)
            return {name: Document(bytes(content), *more) for name, content, *more in rows}

    def keep_document(self, name: str, document: Document) -> None:
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
        """Return the analyzer's key that is pinned, if there is one."""
        keys = self._analyzer_keys()
        return keys[1] if keys else None

    def agree_on_key(self, given: bytes) -> bytes:
        """Pin the analyzer's key that is given, unless it has led to another one; return that."""

        def work() -> bytes:
            known = self._analyzer_keys()
            return known[1] if known[:1] == [given] else self._write_keys(given, given)

        return self.database.run("agree on the analyzer's key", work)

    def pin_key(self, key: bytes) -> bytes:
        """Pin a key of the analyzer that the one before signed."""
        return self.database.run(
            "pin the analyzer's key",
            lambda: self._write_keys((self._analyzer_keys() or [key])[0], key),
        )

    def _analyzer_keys(self) -> list[bytes]:
        with storage_errors():
            stored = read_fact(self._connection, ANALYZER_KEY) or ""
        return [check_public_key(text) for text in stored.split()]

    def _write_keys(self, given: bytes, pinned: bytes) -> bytes:
        write_fact(self._connection, ANALYZER_KEY, f"{key_text(given)} {key_text(pinned)}")
        return pinned

    # Reports

    def accept(self, uploads: Sequence[EncryptedReports]) -> list[Problem | None]:
        """Take the reports of several uploads; when this returns they are on the disk."""
        return accept_by_plan(self._plans, uploads, self._clock)

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
        others = {where: one for where, one in keys.items() if where[0] not in known}
        return others | _keys_of(known)

    def wanted(self) -> list[Wanted]:
        """Return the crowds whose keys are to be fetched."""
        return self._of_each("read wanted keys", lambda plan: plan.wanted(self._now(plan)))

    def taking(self) -> list[Wanted]:
        """Return the crowds that take reports now."""
        return self._of_each("read open crowds", lambda plan: [one.named for one in plan.taking()])

    def signed_otherwise(self, signers: str) -> list[Wanted]:
        """Return the crowds that take reports and whose documents other keys signed."""
        return self._of_each("read signers", lambda plan: plan.signed_otherwise(signers))

    def _of_each(self, name: str, read: Callable[[RelayPlan], list[Wanted]]) -> list[Wanted]:
        return self.database.read(
            name, lambda: [one for plan in self._taking().values() for one in read(plan)]
        )

    def data_name(self) -> str:
        """Return the random name of these data, made at the first call."""

        def work() -> str:
            name = read_fact(self._connection, DATA_NAME)  # another relay may have been faster
            if name is None:
                name = f"relay-{SystemBits().draw(16).hex()}"
                write_fact(self._connection, DATA_NAME, name)
            return name

        with storage_errors():
            name = read_fact(self._connection, DATA_NAME)
        return name or self.database.run("name the data", work)

    def discard(self, ended: Wanted) -> bool:
        """Discard an open crowd that has ended at the analyzer; return whether it was open."""

        def work() -> list[CrowdChange]:
            plan = self._plans.get(ended.plan_id)
            discarded = [] if plan is None else plan.discard(ended)
            return [CrowdChange(plan.plan, (), discarded)] if plan and discarded else []

        changes = self.database.run("discard a crowd", work, new_key=True, scrub=True)
        tell(changes, self._released, self._discarded)
        return bool(changes)

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
        """Return the first window of each plan that is not closed for ever."""
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
        """Freeze complete crowds, close expired windows, discard crowds past their deadline."""
        # The key of the data is changed and the log emptied each time, whether or not there is
        # anything to do: otherwise response times would reveal it.
        changes = self.database.run("sweep", self._sweep, new_key=True, scrub=True)
        tell(changes, self._released, self._discarded)

    def _sweep(self) -> list[CrowdChange]:
        changes = sweep_plans(
            self.database, self._taking().values(), self._clock, self._deadline_days
        )
        if self._deadline_days and may_destroy(self.database, self._clock):
            oldest = int(self._clock() // DAY) - self._deadline_days + 1
            changes += self.frozen.discard_late(oldest)
        return changes

    def crowds(self, plan_id: str) -> list[RelayCrowd]:
        def work() -> list[RelayCrowd]:
            plan = self._plans.get(plan_id)
            open_crowds = {} if plan is None else plan.progress()
            rows = self._connection.execute(
                "SELECT number, window, place, state, progress FROM crowds WHERE plan = ?"
                " ORDER BY number",
                (plan_id,),
            ).fetchall()
            return [
                RelayCrowd(window, place, state, open_crowds.get(number, known or 0))
                for number, window, place, state, known in rows
            ]

        return self.database.read("read crowds", work)


def _keys_of(plans: Mapping[str, RelayPlan]) -> dict[tuple[str, int], Document]:
    crowds = (crowd for plan in plans.values() for crowd in plan.taking())
    return {(crowd.key.plan_id, crowd.window): crowd.signed for crowd in crowds}
