"""The helper's store: verified reports in, one aggregate share for each full batch out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from shoal.protocol.dap.messages import (
    AggregateShare,
    AggregateShareReq,
    AggregationJobResp,
    HpkeConfig,
    ReportFault,
    Role,
    VerifyResp,
)
from shoal.server.aggregation import problems
from shoal.server.aggregation.plan import AggregatorPlan, BatchRecord
from shoal.server.aggregation.store import AggregatorStore
from shoal.server.core.problems import Problem


class Verified(NamedTuple):
    """A report that the helper has verified, or why it has not."""

    report_id: bytes
    window: int
    out_share: bytes = b""
    response: bytes = b""
    fault: ReportFault | None = None


class HelperStore(AggregatorStore):
    """Commits reports to batches and gives each full batch's share out once."""

    def known_job(self, digest: bytes) -> bytes | None:
        """Return the response to a job that was done before, by the digest of its request."""
        return self.database.read("read a response", lambda: self._response_to_job(digest))

    def _response_to_job(self, digest: bytes) -> bytes | None:
        return self._stored("SELECT message FROM jobs WHERE digest = ?", digest)

    def _stored(self, query: str, name: bytes) -> bytes | None:
        row = self._connection.execute(query, (name,)).fetchone()
        return None if row is None else bytes(row[0])

    def aggregate(
        self, plan_id: str, batch_id: bytes, digest: bytes, reports: Sequence[Verified]
    ) -> bytes | Problem:
        """Commit the reports of a job, each once, and return the response, which is stored."""

        def work() -> bytes | Problem:
            known = self._response_to_job(digest)
            if known is not None:
                return known
            plan = self._plans.get(plan_id)
            if plan is None or plan.state != "published":
                return problems.UNRECOGNIZED_TASK
            batch = self._batch_for(plan, batch_id, reports)
            if isinstance(batch, Problem):
                return batch
            answers = self._commit(plan, batch, reports)
            response = AggregationJobResp(tuple(answers)).to_bytes()
            self._connection.execute(
                "INSERT INTO jobs (plan, batch, digest, message) VALUES (?, ?, ?, ?)",
                (plan_id, batch.number, digest, response),
            )
            return response

        return self.database.run("aggregate reports", work, exclusive=False)

    def _batch_for(
        self, plan: AggregatorPlan, batch_id: bytes, reports: Sequence[Verified]
    ) -> BatchRecord | Problem:
        """Return the batch of a job, which holds reports of one window; a new one begins it."""
        found = plan.batch(batch_id)
        if found is not None:
            return found
        windows = {one.window for one in reports}
        time = self._time(plan)
        if len(windows) != 1 or plan.problem(min(windows), max(windows), time) is not None:
            return problems.BATCH_INVALID
        if self._stored("SELECT batch FROM batches WHERE batch = ?", batch_id) is not None:
            return problems.BATCH_INVALID  # of another plan
        return plan.open_batch(windows.pop(), time, batch_id)

    def _commit(
        self, plan: AggregatorPlan, batch: BatchRecord, reports: Sequence[Verified]
    ) -> list[VerifyResp]:
        """Commit the valid, new reports of the batch's window, as far as there is room."""
        time = self._time(plan)
        is_open = plan.problem(batch.window, batch.window, time) is None and batch.state == "open"
        room = plan.plan.reports_needed - batch.reports
        faults = [one.fault for one in reports]
        for place, one in enumerate(reports):
            if faults[place] is None and one.window != batch.window:
                faults[place] = ReportFault.REPORT_DROPPED
            elif faults[place] is None and not is_open:
                faults[place] = ReportFault.BATCH_COLLECTED
        valid = [place for place, fault in enumerate(faults) if fault is None]
        for place in valid[room:]:
            faults[place] = ReportFault.BATCH_COLLECTED
        valid = valid[:room]
        new = plan.remember(batch.window, [reports[place].report_id for place in valid])
        for place, is_new in zip(valid, new, strict=True):
            if not is_new:
                faults[place] = ReportFault.REPORT_REPLAYED
        counted = [one for one, fault in zip(reports, faults, strict=True) if fault is None]
        if counted:
            plan.commit(
                batch,
                [one.report_id for one in counted],
                [one.out_share for one in counted],
            )
        return [
            VerifyResp(one.report_id, one.response)
            if fault is None
            else VerifyResp(one.report_id, report_error=fault)
            for one, fault in zip(reports, faults, strict=True)
        ]

    def known_share(self, digest: bytes) -> bytes | None:
        """Return a share that was given out before, by the digest of its request."""
        query = "SELECT response FROM collections WHERE digest = ?"
        return self.database.read("read a response", lambda: self._stored(query, digest))

    def aggregate_share(
        self, plan_id: str, digest: bytes, request: AggregateShareReq, collector: HpkeConfig
    ) -> bytes | Problem:
        """Return a full batch's share, encrypted for the collector; the same bytes every time."""

        def work() -> bytes | Problem:
            plan = self._plans.get(plan_id)
            if plan is None or plan.state == "draft":
                return problems.UNRECOGNIZED_TASK
            batch = plan.batch(request.batch_selector.config)
            if batch is None:
                return problems.BATCH_INVALID
            known = self._connection.execute(
                "SELECT digest, response FROM collections WHERE batch = ?", (batch.number,)
            ).fetchone()
            if known is not None:
                return bytes(known[1]) if bytes(known[0]) == digest else problems.BATCH_OVERLAP
            if batch.state in ("collected", "discarded"):
                return problems.BATCH_OVERLAP
            if batch.state != "full":
                return problems.INVALID_BATCH_SIZE
            if (request.report_count, request.checksum) != (batch.reports, batch.checksum):
                return problems.BATCH_MISMATCH
            sealed = plan.task.seal_aggregate_share(
                Role.HELPER, collector, request.collection_job_req, batch.share
            )
            response = AggregateShare(sealed).to_bytes()
            self._connection.execute(
                "INSERT INTO collections VALUES (?, ?, ?, ?, ?)",
                (digest[:16], plan_id, batch.number, digest, response),
            )
            plan.end(batch.number, "collected")
            return response

        return self.database.run("give out a share", work, new_key=True, scrub=True)
