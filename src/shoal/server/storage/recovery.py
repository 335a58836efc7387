"""Checks that the files of a folder belong together, and recovers if that is unknown.

Two releases that share a report reveal it by their difference. Data that lost the memory of counted
reports, because they were restored from a backup or lost their `crowd-key`, accept only reports of
windows that have not started. Nor do they know which plans were published since.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from shoal.errors import InputError
from shoal.protocol.plan import Plan
from shoal.server.storage.database import NAME, SqlConnection, read_fact, write_fact
from shoal.server.storage.encryption import CROWD_KEY_FILE
from shoal.server.storage.key_file import SIGNING_FILE, Signer
from shoal.server.storage.records import read_plan

NOT_STARTED = "not-started"
"""A file in a folder that has keys, and never had a database; the first start removes it."""


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
    if (folder / NAME).exists() or (folder / NOT_STARTED).exists():
        return
    for name in (SIGNING_FILE, CROWD_KEY_FILE, f"{NAME}-wal"):
        if (folder / name).exists():
            raise InputError(
                f"{folder} has a {name} and no {NAME}, so reports that were counted would be"
                " counted again; put the database back, or restore a backup into a new folder."
            )


def check_signer(connection: SqlConnection, folder: Path, clock: Callable[[], float]) -> Signer:
    """Return the folder's signer, made if the data are new; refuse one of other data."""
    known = read_fact(connection, "signer")
    published = connection.execute("SELECT 1 FROM plans WHERE state <> 'draft'").fetchone()
    if (known or published) and not (folder / SIGNING_FILE).exists():
        raise InputError(
            f"{folder} has no {SIGNING_FILE}, by which devices know this collector; put it back, or"
            " restore a backup into a new folder."
        )
    signer = Signer(folder, clock)
    if known is not None and known not in signer.public_keys:
        raise InputError(
            f"{folder / SIGNING_FILE} is older than {NAME}, or of another collector; put the right"
            " one back, or restore a backup into a new folder."
        )
    write_fact(connection, "signer", signer.public_key)
    return signer


def check_role(connection: SqlConnection, folder: Path, role: str) -> None:
    """Refuse data of another role: one accepts reports of devices, the other those of a relay."""
    known = read_fact(connection, "role")
    found = known or "collector"
    if (known or read_fact(connection, "signer")) and found != role:
        raise InputError(f"{folder} holds the data of the {found}; use another folder.")
    if role != "collector":
        write_fact(connection, "role", role)


def begin_anew(connection: SqlConnection, now: int) -> Restoration:
    """Close windows and plans that could count a report twice, in a transaction."""
    restored = Restoration()
    write_fact(connection, "restored", now)
    taking = "SELECT id, document, oldest_window FROM plans WHERE state IN ('published', 'paused')"
    for plan_id, document, oldest in connection.execute(taking).fetchall():
        plan = read_plan(plan_id, document)
        if plan.window is None:
            connection.execute("UPDATE plans SET state = 'closed' WHERE id = ?", (plan_id,))
            restored.closed.append(plan_id)
            continue
        first = max(oldest, first_window(plan, now))
        connection.execute("UPDATE plans SET oldest_window = ? WHERE id = ?", (first, plan_id))
        restored.waiting[plan_id] = first * plan.window
    return restored


def restored_at(connection: SqlConnection) -> int | None:
    """Return when the data lost their memory, if they ever did."""
    moment = read_fact(connection, "restored")
    return None if moment is None else int(moment)


def first_window(plan: Plan, now: int) -> int:
    """Return the first window without any report so far, even if a clock is ahead."""
    return 0 if plan.window is None else now // plan.window + 2
