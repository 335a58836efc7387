"""The leader's store: uploaded reports in, aggregation jobs and collected batches out.

A report goes forward only: uploaded, in a job, then in a batch or rejected, and each step is one
transaction. A job is stored with the bytes of its request before it is sent, so that after a crash
the same request is sent again and the helper answers as before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container
from typing import NamedTuple

from shoal.protocol.dap.messages import (
    LEADER_SELECTED_BATCH_ID,
    AggregateShareReq,
    AggregationJobInitReq,
    BatchMode,
    BatchSelector,
    CollectionJobReq,
    CollectionJobResp,
    Extension,
    HpkeCiphertext,
    HpkeConfig,
    Report,
    Role,
    TimeInterval,
    VerifyInit,
)
from shoal.protocol.random_bits import SystemBits
from shoal.server.aggregation import endpoint as dap
from shoal.server.aggregation.plan import LARGEST_JOB, AggregatorPlan, BatchRecord
from shoal.server.aggregation.store import AggregatorStore
from shoal.server.core.problems import Problem
from shoal.server.storage.store import CrowdChange
from shoal.server.storage.windows import IncompleteCrowd


class Pending(NamedTuple):
    """Uploaded reports of one window that are in no job, by the numbers of their rows."""

    plan_id: str
    window: int
    reports: dict[int, Report]


class Job(NamedTuple):
    """An aggregation job that the helper has not answered."""

    number: int
    plan_id: str
    request: bytes
    reports: dict[bytes, Report]


class Collection(NamedTuple):
    """A collection job whose batch is full, and what the helper is asked for."""

    name: bytes
    plan_id: str
    request: AggregateShareReq


class LeaderStore(AggregatorStore):
    """Reports, aggregation jobs, batches and collection jobs of a leader."""

    # Aggregation jobs

    def pending(self, most: int) -> list[Pending]:
        """Return reports for the next job of each plan and window, as many as its batch needs."""

        def work() -> list[Pending]:
            return [
                self._pending_in(plan, window, most)
                for plan in self._published()
                for window in plan.open_windows(self._time(plan.plan))
                if self._is_waiting(plan.plan.id, window)
            ]

        return self.database.run("read waiting reports", work)

    def _is_waiting(self, plan_id: str, window: int) -> bool:
        """Whether a window has reports and no job; however many wait, one row is read."""
        waiting = (
            "SELECT 1 FROM uploads WHERE plan = ? AND window = ? AND job IS NULL"
            " AND NOT EXISTS (SELECT 1 FROM jobs JOIN batches ON jobs.batch = batches.number"
            " WHERE jobs.plan = ? AND batches.window = ?) LIMIT 1"
        )
        row = self._connection.execute(waiting, (plan_id, window, plan_id, window)).fetchone()
        return row is not None

    def _pending_in(self, plan: AggregatorPlan, window: int, most: int) -> Pending:
        batch = plan.open_batch(window, self._time(plan.plan))
        most = max(1, min(most, LARGEST_JOB // plan.task.report_bytes))
        room = min(most, plan.plan.reports_needed - batch.reports)
        rows = self._connection.execute(
            "SELECT id, report FROM uploads WHERE plan = ? AND window = ? AND job IS NULL"
            " ORDER BY id LIMIT ?",
            (plan.plan.id, window, room),
        ).fetchall()
        reports = {number: Report.from_bytes(bytes(content)) for number, content in rows}
        return Pending(plan.plan.id, window, reports)

    def begin_job(self, pending: Pending, started: dict[int, VerifyInit]) -> None:
        """Store a job of the reports that the leader could begin to verify; others are rejected."""

        def work() -> None:
            plan = self._plans.get(pending.plan_id)
            time = None if plan is None else self._time(plan.plan)
            if plan is None or time is None:
                return
            if plan.problem(pending.window, pending.window, time) is not None:
                return  # the window ended meanwhile, and its reports with it
            for number in pending.reports.keys() - started.keys():
                self._connection.execute("DELETE FROM uploads WHERE id = ?", (number,))
            if not started:
                return
            batch = plan.open_batch(pending.window, time)
            extension = Extension(LEADER_SELECTED_BATCH_ID, batch.id)
            request = AggregationJobInitReq(0, b"", (extension,), tuple(started.values()))
            content = request.to_bytes()
            digest = hashlib.sha256(content).digest()
            self._connection.execute(
                "INSERT INTO jobs (plan, batch, digest, message) VALUES (?, ?, ?, ?)",
                (pending.plan_id, batch.number, digest, content),
            )
            (job,) = self._connection.execute(
                "SELECT number FROM jobs WHERE digest = ?", (digest,)
            ).fetchone()
            for number in started:
                self._connection.execute("UPDATE uploads SET job = ? WHERE id = ?", (job, number))

        self.database.run("begin an aggregation job", work)

    def jobs(self, but: Container[object] = ()) -> list[Job]:
        """Return jobs that the helper has not answered but some, the oldest first."""

        def work() -> list[Job]:
            rows = self._connection.execute("SELECT number FROM jobs ORDER BY number").fetchall()
            return [self._job(number) for (number,) in rows if number not in but]

        return self.database.read("read aggregation jobs", work)

    def _job(self, number: int) -> Job:
        plan_id, content = self._connection.execute(
            "SELECT plan, message FROM jobs WHERE number = ?", (number,)
        ).fetchone()
        return Job(number, plan_id, bytes(content), self._reports_of(number))

    def _reports_of(self, job: int) -> dict[bytes, Report]:
        rows = self._connection.execute("SELECT report FROM uploads WHERE job = ?", (job,))
        reports = [Report.from_bytes(bytes(content)) for (content,) in rows.fetchall()]
        return {one.report_metadata.report_id: one for one in reports}

    def finish_job(self, job: Job, verified: dict[bytes, bytes]) -> None:
        """Commit the output shares of reports that both verified; the others are rejected."""

        def work() -> list[CrowdChange]:
            plan = self._plans.get(job.plan_id)
            row = self._connection.execute(
                "SELECT batches.batch FROM jobs JOIN batches ON jobs.batch = batches.number"
                " WHERE jobs.number = ?",
                (job.number,),
            ).fetchone()
            if plan is None or row is None:
                return []  # the window ended meanwhile
            batch = plan.batch(bytes(row[0]))
            assert batch is not None
            plan.commit(batch, list(verified), list(verified.values()))
            self._connection.execute("DELETE FROM uploads WHERE job = ?", (job.number,))
            self._connection.execute("DELETE FROM jobs WHERE number = ?", (job.number,))
            return [CrowdChange(plan.plan, [batch.number] if batch.state == "full" else [])]

        changes = self.database.run("finish an aggregation job", work, new_key=True, scrub=True)
        self._tell(changes)

    # Collection jobs

    def collect(self, plan_id: str, content: bytes) -> bytes | Problem:
        """Begin a collection job, or find the one that the same request began; return its name."""
        digest = hashlib.sha256(content).digest()

        def work() -> bytes | Problem:
            plan = self._plans.get(plan_id)
            if plan is None or plan.state == "draft":
                return dap.UNRECOGNIZED_TASK
            row = self._connection.execute(
                "SELECT name FROM collections WHERE plan = ? AND digest = ?", (plan_id, digest)
            ).fetchone()
            if row is not None:
                return bytes(row[0])
            name = SystemBits().draw(16)
            self._connection.execute(
                "INSERT INTO collections (name, plan, digest) VALUES (?, ?, ?)",
                (name, plan_id, digest),
            )
            return name

        return self.database.run("begin a collection job", work)

    def collected(self, plan_id: str, name: bytes) -> bytes | Problem | None:
        """Return the result of a collection job, None before it is there, or a problem."""

        def work() -> bytes | Problem | None:
            row = self._connection.execute(
                "SELECT response FROM collections WHERE plan = ? AND name = ?", (plan_id, name)
            ).fetchone()
            if row is None:
                return dap.BATCH_INVALID
            return None if row[0] is None else bytes(row[0])

        return self.database.read("read a collection job", work)

    def forget_collection(self, plan_id: str, name: bytes) -> None:
        """Forget a collection job; a batch that it has not collected is free for the next."""
        self.database.run(
            "forget a collection job",
            lambda: self._connection.execute(
                "DELETE FROM collections WHERE plan = ? AND name = ?", (plan_id, name)
            ),
            scrub=True,
        )

    def due(self, request: CollectionJobReq) -> list[Collection]:
        """Return the collection jobs whose batch is full; each takes the oldest free one."""

        def work() -> list[Collection]:
            rows = self._connection.execute(
                "SELECT name, plan FROM collections WHERE response IS NULL ORDER BY name"
            ).fetchall()
            found = []
            for name, plan_id in rows:
                plan = self._plans.get(plan_id)
                batch = None if plan is None else self._batch_for(plan, bytes(name))
                if batch is not None:
                    selector = BatchSelector(BatchMode.LEADER_SELECTED, batch.id)
                    asked = AggregateShareReq(request, selector, batch.reports, batch.checksum)
                    found.append(Collection(bytes(name), plan_id, asked))
            return found

        return self.database.run("read collection jobs", work)

    def _batch_for(self, plan: AggregatorPlan, name: bytes) -> BatchRecord | None:
        row = self._connection.execute(
            "SELECT batches.batch FROM collections JOIN batches ON collections.batch = number"
            " WHERE name = ?",
            (name,),
        ).fetchone()
        batch = None if row is None else plan.batch(bytes(row[0]))
        if batch is None or batch.state != "full":  # it may have been discarded meanwhile
            batch = plan.full_batch()
        if batch is None:
            return None
        self._connection.execute(
            "UPDATE collections SET batch = ? WHERE name = ?", (batch.number, name)
        )
        return batch

    def discard_batch(self, one: Collection) -> None:
        """Discard a full batch that the helper does not have; its collection job takes the next."""

        def work() -> list[CrowdChange]:
            plan = self._plans.get(one.plan_id)
            batch = None if plan is None else plan.batch(one.request.batch_selector.config)
            if plan is None or batch is None or batch.state != "full":
                return []
            plan.end(batch.number, "discarded")
            return [CrowdChange(plan.plan, (), [IncompleteCrowd(batch.number, 100)])]

        changes = self.database.run("discard a batch", work, new_key=True, scrub=True)
        self._tell(changes)

    def finish_collection(
        self, one: Collection, helper_share: HpkeCiphertext, collector: HpkeConfig
    ) -> None:
        """Store the result of a collection job, and destroy the leader's share.

        If the job was deleted meanwhile, the next one collects the batch: the helper answers it as
        before.
        """

        def work() -> None:
            plan = self._plans.get(one.plan_id)
            batch = None if plan is None else plan.batch(one.request.batch_selector.config)
            exists = self._connection.execute(
                "SELECT 1 FROM collections WHERE name = ?", (one.name,)
            ).fetchone()
            if plan is None or batch is None or batch.state != "full" or exists is None:
                return
            own = plan.task.seal_aggregate_share(
                Role.LEADER, collector, one.request.collection_job_req, batch.share
            )
            interval = TimeInterval(batch.window, 1)
            result = CollectionJobResp(batch.reports, interval, own, helper_share).to_bytes()
            self._connection.execute(
                "UPDATE collections SET response = ? WHERE name = ?", (result, one.name)
            )
            plan.end(batch.number, "collected")

        self.database.run("finish a collection job", work, new_key=True, scrub=True)
