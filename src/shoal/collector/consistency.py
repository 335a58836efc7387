"""Whether the files of a folder belong together, and what to do if that cannot be known.

A report must not be counted twice: two releases that share it reveal it by their difference. The
database remembers which reports were counted. Data that lost this memory, because they were
restored from a backup or lost their `crowd-key`, accept only reports that nobody can have sent
before: those of windows that have not started. Nor do they know what was published meanwhile.
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path

from shoal.agreement.plan import Plan
from shoal.collector.intake.database import NAME
from shoal.collector.intake.encryption import CROWD_KEY_FILE
from shoal.collector.signing import KEY_FILE, Signer
from shoal.errors import InputError

__all__ = [
    "Restoration",
    "begin_anew",
    "check_role",
    "check_signer",
    "check_whole",
    "first_window",
    "restored_at",
]


@dataclass(frozen=True)
class Restoration:
    """What became of the plans that took reports.

    `closed` are the ids of those that take none any more; `waiting` maps the others to the second,
    since 1970, from which their windows are open again.
    """

    closed: list[str] = field(default_factory=list)
    waiting: dict[str, int] = field(default_factory=dict)


def check_whole(folder: Path) -> None:
    """Refuse a folder whose database is missing though it has had one."""
    if (folder / NAME).exists():
        return
    for name in (KEY_FILE, CROWD_KEY_FILE, f"{NAME}-wal"):
        if (folder / name).exists():
            raise InputError(
                f"{folder} has a {name} and no {NAME}, so reports that were counted would be"
                " counted again; put the database back, or restore a backup into a new folder."
            )


def check_signer(database: sqlite3.Connection, folder: Path) -> Signer:
    """Return the folder's signer, made if the data are new; refuse one of other data."""
    row = database.execute("SELECT value FROM facts WHERE name = 'signer'").fetchone()
    published = database.execute("SELECT 1 FROM plans WHERE state <> 'draft'").fetchone()
    if (row or published) and not (folder / KEY_FILE).exists():
        raise InputError(
            f"{folder} has no {KEY_FILE}, by which devices know this collector; put it back, or"
            " restore a backup into a new folder."
        )
    signer = Signer(folder)
    if row is not None and row[0] not in signer.public_keys:
        raise InputError(
            f"{folder / KEY_FILE} is older than {NAME}, or of another collector; put the right one"
            " back, or restore a backup into a new folder."
        )
    database.execute("INSERT OR REPLACE INTO facts VALUES ('signer', ?)", (signer.public_key,))
    return signer


def check_role(database: sqlite3.Connection, folder: Path, role: str) -> None:
    """Refuse data of another role: one accepts what people sent, the other what a relay sent."""
    row = database.execute("SELECT value FROM facts WHERE name = 'role'").fetchone()
    used = database.execute("SELECT 1 FROM facts WHERE name = 'signer'").fetchone()
    found = row[0] if row else "collector"
    if (row or used) and found != role:
        raise InputError(f"{folder} holds the data of the {found}; use another folder.")
    if role != "collector":
        database.execute("INSERT OR REPLACE INTO facts VALUES ('role', ?)", (role,))


def begin_anew(database: sqlite3.Connection, now: int) -> Restoration:
    """Close what could count a report twice, in a transaction."""
    restored = Restoration()
    database.execute("INSERT OR REPLACE INTO facts VALUES ('restored', ?)", (now,))
    taking = "SELECT id, document, oldest_window FROM plans WHERE state IN ('published', 'paused')"
    for plan_id, document, oldest in database.execute(taking).fetchall():
        plan = Plan.from_json(json.loads(document))
        if plan.window is None:
            database.execute("UPDATE plans SET state = 'closed' WHERE id = ?", (plan_id,))
            restored.closed.append(plan_id)
            continue
        first = max(oldest, first_window(plan, now))
        database.execute("UPDATE plans SET oldest_window = ? WHERE id = ?", (first, plan_id))
        restored.waiting[plan_id] = first * plan.window
    return restored


def forget_crowds(database: sqlite3.Connection) -> None:
    """Give up all open crowds, none of which can be read any more."""
    database.execute(
        "UPDATE crowds SET state = 'given up', reports = 0, tenths = 0, reason = 'key'"
        " WHERE state = 'open'"
    )
    for table in ("counts", "seen", "wrapped_keys", "sealing_keys", "chunks"):
        database.execute(f"DELETE FROM {table}")  # noqa: S608  five names


def restored_at(database: sqlite3.Connection) -> int | None:
    """Return when the data lost their memory, if they ever did."""
    row = database.execute("SELECT value FROM facts WHERE name = 'restored'").fetchone()
    return None if row is None else int(row[0])


def first_window(plan: Plan, now: int) -> int:
    """Return the first window that nobody can have sent a report for, though a clock be ahead."""
    return 0 if plan.window is None else now // plan.window + 2
