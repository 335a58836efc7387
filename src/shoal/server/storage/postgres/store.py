"""The collector's store in PostgreSQL: the transactions of the store in a folder, shared."""

from __future__ import annotations

from shoal.server.storage.open_plan import OpenPlan
from shoal.server.storage.postgres.schema import COLLECTOR
from shoal.server.storage.postgres.shared import SharedStore
from shoal.server.storage.store import Store

__all__ = ["PostgresStore"]


class PostgresStore(SharedStore[OpenPlan], Store):
    """Plans, open crowds and releases in a database that several collectors share."""

    tables = COLLECTOR

    @property
    def _way_out(self) -> str:
        return "take them along with shoal collector move, or name a new folder"
