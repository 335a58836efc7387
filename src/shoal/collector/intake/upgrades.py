"""Data of earlier versions: what changed, and how they become this version's.

* Version 1 (Shoal 0.1.0) kept the counts of open crowds and the hashes of report ids as they are.
  Version 2 encrypts them, counts in blocks and hashes in rows of one length. Tokens may expire and
  may be for some plans only. The table of crowds was called `epochs`.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping

import numpy as np

from shoal.agreement.plan import Plan
from shoal.analysis.tallying import SMALL_VECTOR
from shoal.collector.intake.database import SCHEMA_OF_OPEN_CROWDS, VERSION, statements
from shoal.collector.intake.duplicates import SeenReports
from shoal.collector.intake.encryption import CrowdKeys, encrypt
from shoal.collector.intake.open_crowd import BLOCK_BYTES, OpenCrowd, number_type

__all__ = ["is_needed", "upgrade"]

_SET_BITS, _BITS, _VECTORS, _JOINT, _COHORT = 0, 1, 2, 100, 1_000_000
"""The parts of a crowd in version 1; joint tables and cohorts are numbered from there on."""


def is_needed(database: sqlite3.Connection) -> bool:
    """Whether the data are of an earlier version."""
    (version,) = database.execute("PRAGMA user_version").fetchone()
    return bool(version < VERSION)


def upgrade(database: sqlite3.Connection, keys: CrowdKeys) -> None:
    """Make data of version 1 this version's, in a transaction."""
    counts: dict[tuple[str, int], dict[int, bytes]] = {}
    for plan_id, number, part, numbers in database.execute("SELECT * FROM counts"):
        counts.setdefault((plan_id, number), {})[part] = numbers
    database.execute("ALTER TABLE epochs RENAME TO crowds")
    database.execute("DROP INDEX seen_by_window")
    database.execute("ALTER TABLE seen RENAME TO seen_1")
    for statement in statements(SCHEMA_OF_OPEN_CROWDS):
        database.execute(statement)
    database.execute("UPDATE facts SET name = 'probe', value = 0 WHERE name = 'commits'")
    for column in ("expires", "plans"):
        database.execute(f"ALTER TABLE tokens ADD COLUMN {column} TEXT")
    keys.rotate()
    _encrypt_crowds(database, keys, counts)
    _encrypt_digests(database, keys)
    for table in ("seen_1", "window_keys"):
        database.execute(f"DROP TABLE {table}")
    database.execute(f"PRAGMA user_version = {VERSION}")


def _encrypt_crowds(
    database: sqlite3.Connection,
    keys: CrowdKeys,
    counts: Mapping[tuple[str, int], dict[int, bytes]],
) -> None:
    database.execute("DELETE FROM counts")
    opened = database.execute(
        "SELECT plan, number, reports, document FROM crowds JOIN plans ON plan = id"
        " WHERE crowds.state = 'open'"
    )
    for plan_id, number, reports, document in opened.fetchall():
        plan = Plan.from_json(json.loads(document))
        content = _numbers(plan, reports, counts.get((plan_id, number), {}))
        starts = range(0, len(content), BLOCK_BYTES)
        blocks = {place: content[start : start + BLOCK_BYTES] for place, start in enumerate(starts)}
        key = keys.draw(plan_id, "crowd", number)
        pieces = [
            (numbers, f"{plan_id} {number} {block}")
            for block, numbers in OpenCrowd(plan, blocks).all_blocks()
        ]
        database.executemany(
            "INSERT INTO counts VALUES (?, ?, ?, ?)",
            [
                (plan_id, number, block, content)
                for block, content in enumerate(encrypt(key, *pieces))
            ],
        )
    database.execute("UPDATE crowds SET reports = 0 WHERE state = 'open'")


def _numbers(plan: Plan, reports: int, parts: Mapping[int, bytes]) -> bytes:
    """Return the numbers of a crowd of version 1 in the order that blocks have."""
    sizes = {_SET_BITS: plan.bits + 1}
    if plan.cohorts is None:
        sizes[_BITS] = plan.bits
    if plan.bits <= SMALL_VECTOR:
        sizes[_VECTORS] = 1 << plan.bits
    for place, group in enumerate(plan.joint):
        sizes[_JOINT + place] = 1 << len(group)
    for cohort in range(plan.cohorts or 0):
        sizes[_COHORT + cohort] = 1 + plan.bits
    arrays = [np.array([0, reports])]
    for part, size in sizes.items():
        arrays.append(np.frombuffer(parts[part], "<i8") if part in parts else np.zeros(size, "<i8"))
    return np.concatenate(arrays).astype(number_type(plan)).tobytes()


def _encrypt_digests(database: sqlite3.Connection, keys: CrowdKeys) -> None:
    windows = database.execute("SELECT plan, window, key FROM window_keys").fetchall()
    for plan_id, window, key in windows:
        keys.draw(plan_id, "window", window, key)
        seen = SeenReports(database, keys, plan_id, window)
        chunks = database.execute(
            "SELECT digests FROM seen_1 WHERE plan = ? AND window = ?", (plan_id, window)
        )
        for (chunk,) in chunks.fetchall():
            seen.take_over(np.frombuffer(chunk, "<u8")[::2])
