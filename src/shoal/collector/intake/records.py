"""What the database says of plans and crowds; of an open crowd only that it exists."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from typing import Any

from shoal.agreement.plan import Plan
from shoal.collector.intake.database import storage_errors
from shoal.collector.plan_states import State

__all__ = ["CrowdRecord", "PlanRecord", "Records"]


@dataclass(frozen=True)
class PlanRecord:
    """A plan as the collector keeps it: its state, and from its publication on its certificate."""

    plan: Plan
    state: State
    certificate: bytes | None

    @property
    def document(self) -> dict[str, Any]:
        """The plan with its id, as it is published."""
        return {"id": self.plan.id} | self.plan.to_json()

    @property
    def observers(self) -> list[dict[str, Any]] | None:
        """Who sees what, as the certificate states it; None before there is one."""
        if self.certificate is None:
            return None
        observers: list[dict[str, Any]] = json.loads(self.certificate)["certificate"]["observers"]
        return observers


@dataclass(frozen=True)
class CrowdRecord:
    """One crowd of a plan.

    `window` is the one whose reports it takes, 0 where the plan has none. `reports` is known of a
    sealed crowd only; of one that was given up, `tenths` says how full it was. `unreadable` is how
    many of its messages an analyzer could not read; None where reports are not sealed.
    """

    number: int
    window: int
    state: str
    reports: int | None
    tenths: int
    unreadable: int | None = None


class Records:
    """Reads plans, crowds and releases."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def _rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with storage_errors():
            return self._database.execute(query, values).fetchall()

    def plan(self, plan_id: str) -> PlanRecord | None:
        """Return a plan by its id."""
        query = "SELECT document, state, certificate FROM plans WHERE id = ?"
        rows = self._rows(query, plan_id)
        return _plan_record(*rows[0]) if rows else None

    def plans(self) -> list[PlanRecord]:
        """Return all plans, in the order of their ids."""
        rows = self._rows("SELECT document, state, certificate FROM plans ORDER BY id")
        return [_plan_record(*row) for row in rows]

    def plans_with_crowds(self) -> list[str]:
        """Return the ids of the plans that have open crowds."""
        rows = self._rows("SELECT id FROM plans WHERE state IN ('published', 'paused')")
        return [plan_id for (plan_id,) in rows]

    def crowds(self, plan_id: str) -> list[CrowdRecord]:
        """Return a plan's crowds; of those that are open no tenths."""
        columns = "number, window, state, reports, tenths, unreadable"
        query = f"SELECT {columns} FROM crowds WHERE plan = ? ORDER BY number"  # noqa: S608  names
        return [
            CrowdRecord(
                number,
                window,
                state,
                reports if state == "sealed" else None,
                tenths or 0,
                unreadable if state == "sealed" else None,
            )
            for number, window, state, reports, tenths, unreadable in self._rows(query, plan_id)
        ]

    def release(self, plan_id: str, number: int) -> bytes | None:
        """Return the tally of a sealed crowd, the same bytes every time; None if there is none."""
        query = "SELECT release FROM crowds WHERE plan = ? AND number = ? AND state = 'sealed'"
        rows = self._rows(query, plan_id, number)
        return bytes(rows[0][0]) if rows else None


def _plan_record(document: bytes, state: State, certificate: bytes | None) -> PlanRecord:
    return PlanRecord(Plan.from_json(json.loads(document)), state, certificate)
