"""The analyst's store: batches that were collected from two aggregators, as releases."""

from __future__ import annotations

from shoal.analysis.tally import Tally
from shoal.protocol.plan import Plan
from shoal.server.storage.database import read_fact, write_fact
from shoal.server.storage.open_plan import destroy_releases, end_crowd, release_bytes
from shoal.server.storage.records import Reason, State
from shoal.server.storage.store import Store
from shoal.server.storage.windows import DAY, IncompleteCrowd, WindowedPlan


class CollectedPlan(WindowedPlan):
    """A plan whose crowds arrive complete; everything here happens inside a transaction."""

    def add(self, tally: Tally, window: int, day: int) -> int:
        """Write the release of a crowd; return the crowd's number."""
        (last,) = self._connection.execute(
            "SELECT coalesce(max(number), 0) FROM crowds WHERE plan = ?", (self.plan.id,)
        ).fetchone()
        number = int(last) + 1
        self._connection.execute(
            "INSERT INTO crowds VALUES (?, ?, ?, 'open', ?, 0, NULL, NULL, NULL, NULL)",
            (self.plan.id, number, window, day),
        )
        release = release_bytes(self.plan, tally, number, window)
        self._records.add_release(self.plan.id, number, None, release)
        crowd, reports = (self.plan.id, number), tally.reports
        end_crowd(
            self._connection, self._keys, crowd, reports=reports, progress=100, release=release
        )
        return number

    def discard_crowds(
        self, reason: Reason, *, before_window: int | None = None, before_day: int | None = None
    ) -> list[IncompleteCrowd]:
        """Discard nothing: there are no open crowds here."""
        return []

    def progress(self, window: int) -> int:
        """Return 0: only the aggregators know the progress of a batch."""
        return 0

    def destroy(self) -> None:
        destroy_releases(self._connection, self.plan.id)

    def catch_up(self, state: State, oldest_window: int) -> None:
        self.state, self.oldest_window = state, oldest_window


class AnalystStore(Store):
    """Plans and releases of an analyst."""

    plan_type = CollectedPlan

    def add_release(self, plan: Plan, window: int, tally: Tally, digest: bytes) -> bool:
        """Store a collected batch once; `digest` is that of the leader's response.

        Returns False if it is the last one that was stored: its collection job was not ended.
        """
        fact, name = f"collected {plan.id}", digest.hex()

        def work() -> int | None:
            if read_fact(self._connection, fact) == name:
                return None
            known = self._plans.get(plan.id)
            assert known is not None
            write_fact(self._connection, fact, name)
            number: int = known.add(tally, window, int(self._clock() // DAY))
            return number

        number = self.database.run("store a collected batch", work)
        if number is not None:
            self._released(plan, number)
        return number is not None
