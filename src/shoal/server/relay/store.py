"""The relay's store: each method is one transaction; encrypted reports in, complete crowds out.

A crowd goes forward only: `open` while it takes reports, `frozen` when it has all of them,
`shuffled` when its chunks are stored, then `forwarded`; before that it may be `discarded`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.protocol.random_bits import SystemBits
from shoal.protocol.signatures import check_public_key, key_text
from shoal.server.relay.frozen_crowds import FrozenCrowds
from shoal.server.relay.open_plan import Document, RelayPlan, Wanted
from shoal.server.storage.database import OpenPlans, read_fact, storage_errors, write_fact
from shoal.server.storage.schema import (
    SHARED_BACKUP,
    SHARED_POSTGRES,
    SHARED_TABLES,
    Guard,
    Schema,
)
from shoal.server.storage.store import CrowdChange, PlanStore
from shoal.server.storage.windows import DAY

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

# The reports of a frozen crowd stay the same, and it is cut into chunks once. The key of a crowd
# stays, though the analyzer may sign it again.
_FORWARD_ONLY = Guard(
    "crowds_go_forward",
    "crowds",
    "a crowd goes forward only",
    "new.plan = old.plan AND new.window = old.window AND new.place = old.place"
    " AND new.number = old.number AND new.document = old.document AND ("
    " old.state = 'open' AND new.state IN ('open', 'frozen', 'discarded')"
    " OR old.state = 'frozen' AND new.state = 'discarded'"
    " OR old.state = 'frozen' AND new.state = 'shuffled' AND new.chunks IS NOT NULL"
    " AND (new.attempt IS NOT NULL) = {shared}"
    " OR old.state = 'shuffled' AND new.state IN ('forwarded', 'discarded')"
    " AND new.chunks = old.chunks AND coalesce(new.attempt, '') = coalesce(old.attempt, ''))",
)

_UNDER_WAY = "state IN ('open', 'frozen', 'shuffled')"

RELAY = Schema(
    "relay",
    0x5368526C,
    SHARED_TABLES + _TABLES,
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


@dataclass(frozen=True)
class RelayCrowd:
    """A crowd; of an open one only the progress is told, in per cent."""

    window: int
    crowd: int
    state: str
    progress: int


class RelayStore(PlanStore):
    """Plans, open crowds and crowds on their way (`frozen`) of a relay.

    A crowd that is incomplete, or that the analyzer does not take, is discarded after the deadline.
    For the options see `PlanStore`.
    """

    schema, plan_type = RELAY, RelayPlan
    _plans: OpenPlans[RelayPlan]

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(folder, **options)
        self.frozen = FrozenCrowds(self.database, self._discarded)

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
        return self._of_each("read wanted keys", lambda plan: plan.wanted(self._time(plan.plan)))

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
        self._tell(changes)
        return bool(changes)

    def open_crowd(self, wanted: Wanted, signed: Document) -> bool:
        """Open a crowd whose key has come; return whether it is still wanted."""

        def work() -> bool:
            plan = self._plans.get(wanted.plan_id)
            return plan is not None and plan.open_crowd(wanted, signed, self._time(plan.plan))

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

    def _sweep(self) -> list[CrowdChange]:
        changes = super()._sweep()
        if self._deadline_days and self._may_destroy():
            oldest = int(self._clock() // DAY) - self._deadline_days + 1
            changes += self.frozen.discard_late(oldest)
        return changes

    def _swept_plans(self) -> Iterable[RelayPlan]:
        return self._taking().values()

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
