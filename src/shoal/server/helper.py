"""The helper: verifies reports with the leader, and gives its share of each full batch out once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Self

from shoal.errors import ReportError, VdafError
from shoal.protocol.dap import Undecryptable
from shoal.protocol.dap.messages import (
    BATCH_ID_BYTES,
    LEADER_SELECTED_BATCH_ID,
    AggregateShare,
    AggregateShareReq,
    AggregationJobInitReq,
    AggregationJobResp,
    BatchMode,
    HpkeConfig,
    ReportFault,
    Role,
    VerifyInit,
    VerifyResp,
    are_in_order,
)
from shoal.protocol.plan import Plan
from shoal.protocol.vdaf import AggregatorInput, PingPong
from shoal.server.aggregation import endpoint as dap
from shoal.server.aggregation.endpoint import (
    DapEndpoint,
    DapRequest,
    DapResponse,
    check_collection,
    check_secret,
    digest_of,
    location,
)
from shoal.server.aggregation.plan import LARGEST_JOB, AggregatorPlan, BatchRecord
from shoal.server.aggregation.service import Aggregator, serve_aggregator
from shoal.server.aggregation.store import AggregatorStore, OpenTask
from shoal.server.core.http import Receive, Refusal
from shoal.server.core.problems import Problem
from shoal.server.core.settings import HelperSettings


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
                return dap.UNRECOGNIZED_TASK
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
        time = self._time(plan.plan)
        if len(windows) != 1 or plan.problem(min(windows), max(windows), time) is not None:
            return dap.BATCH_INVALID
        if self._stored("SELECT batch FROM batches WHERE batch = ?", batch_id) is not None:
            return dap.BATCH_INVALID  # of another plan
        return plan.open_batch(windows.pop(), time, batch_id)

    def _commit(
        self, plan: AggregatorPlan, batch: BatchRecord, reports: Sequence[Verified]
    ) -> list[VerifyResp]:
        """Commit the valid, new reports of the batch's window, as far as there is room."""
        time = self._time(plan.plan)
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

    def aggregate_share(
        self, plan_id: str, digest: bytes, request: AggregateShareReq, collector: HpkeConfig
    ) -> bytes | Problem:
        """Return a full batch's share, encrypted for the collector; the same bytes every time."""

        def work() -> bytes | Problem:
            plan = self._plans.get(plan_id)
            if plan is None or plan.state == "draft":
                return dap.UNRECOGNIZED_TASK
            batch = plan.batch(request.batch_selector.config)
            if batch is None:
                return dap.BATCH_INVALID
            known = self._connection.execute(
                "SELECT digest, response FROM collections WHERE batch = ?", (batch.number,)
            ).fetchone()
            if known is not None:
                return bytes(known[1]) if bytes(known[0]) == digest else dap.BATCH_OVERLAP
            if batch.state in ("collected", "discarded"):
                return dap.BATCH_OVERLAP
            if batch.state != "full":
                return dap.INVALID_BATCH_SIZE
            if (request.report_count, request.checksum) != (batch.reports, batch.checksum):
                return dap.BATCH_MISMATCH
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


LARGEST_SMALL = 64 << 10
_EXTENSIONS = {LEADER_SELECTED_BATCH_ID}


class Helper(Aggregator):
    """Verifies reports with a leader; use it as an asynchronous context.

    `public` and `console` are its two ASGI apps. One helper at a time uses the folder.
    """

    store: HelperStore
    settings: HelperSettings
    role = Role.HELPER

    async def __aenter__(self) -> Self:
        self.store = self.open_store(HelperStore)
        self._leader_token = self.agreement.token("leader")
        endpoint = DapEndpoint(self.service, lambda plan_id: self.tasks.get(plan_id))
        endpoint.resources |= {
            ("POST", "aggregation_jobs"): self._aggregate,
            ("POST", "aggregation_jobs/"): self._continue,
            ("DELETE", "aggregation_jobs/"): self._forget,
            ("POST", "aggregate_shares"): self._share,
            ("DELETE", "aggregate_shares/"): self._forget,
        }
        self._endpoint = endpoint
        return await self.begin(endpoint.handle)

    # Aggregation jobs

    async def _aggregate(self, request: DapRequest, receive: Receive) -> DapResponse:
        opened = self._opened(request)
        job, content = await self._endpoint.read(
            request, receive, AggregationJobInitReq, LARGEST_JOB
        )
        digest = digest_of(request, content)
        response = await self.service.in_store(self.store.known_job, digest)
        if response is None:
            batch_id = check_job(job)
            reports = await self.service.compute(self._verify, opened, job.verify_inits)
            response = _no_problem(
                await self.service.in_store(
                    self.store.aggregate, request.plan_id, batch_id, digest, reports
                )
            )
        return DapResponse(response, "aggregation-job-resp", location(request, digest))

    def _verify(self, opened: OpenTask, reports: Sequence[VerifyInit]) -> list[Verified]:
        verification = opened.task.verification(self.verify_seed)
        return [_verified(opened, verification, one) for one in reports]

    async def _continue(self, request: DapRequest, receive: Receive) -> DapResponse:
        self._opened(request)
        raise Refusal(dap.STEP_MISMATCH)

    async def _forget(self, request: DapRequest, receive: Receive) -> DapResponse:
        """Do nothing: what was answered is needed as long as it may be asked again."""
        self._opened(request)
        return DapResponse()

    # Aggregate shares

    async def _share(self, request: DapRequest, receive: Receive) -> DapResponse:
        self._opened(request)
        asked, content = await self._endpoint.read(
            request, receive, AggregateShareReq, LARGEST_SMALL
        )
        check_collection(asked.collection_job_req)
        selector = asked.batch_selector
        if selector.batch_mode != BatchMode.LEADER_SELECTED:
            raise Refusal(dap.INVALID_MESSAGE)
        if len(selector.config) != BATCH_ID_BYTES:
            raise Refusal(dap.INVALID_MESSAGE)
        digest = digest_of(request, content)
        response = _no_problem(
            await self.service.in_store(
                self.store.aggregate_share, request.plan_id, digest, asked, self.collector
            )
        )
        return DapResponse(response, "aggregate-share", location(request, digest))

    def _opened(self, request: DapRequest) -> OpenTask:
        """Return the task of a request by the leader."""
        check_secret(request, self._leader_token)
        return self._endpoint.task(request)


def check_job(job: AggregationJobInitReq) -> bytes:
    """Refuse a job that is not one of ours; return the name of its batch."""
    if job.agg_param:
        raise Refusal(dap.INVALID_PARAMETER)
    if not are_in_order(job.extensions):
        raise Refusal(dap.INVALID_MESSAGE)
    if any(one.extension_type not in _EXTENSIONS for one in job.extensions):
        raise Refusal(dap.UNSUPPORTED_EXTENSION)
    ids = [one.report_share.report_metadata.report_id for one in job.verify_inits]
    named = len(job.extensions) == 1 and len(job.extensions[0].extension_data) == BATCH_ID_BYTES
    if not named or not ids or len(set(ids)) < len(ids) or job.verification_key_id:
        raise Refusal(dap.INVALID_MESSAGE)
    return job.extensions[0].extension_data


def _verified(opened: OpenTask, verification: PingPong, one: VerifyInit) -> Verified:
    """Return the output share of a report and what the leader is answered, or its fault."""
    share = one.report_share
    metadata, window = share.report_metadata, share.report_metadata.time
    key = opened.keys.get(window)
    if key is None:
        latest = max(opened.keys, default=0)
        early = ReportFault.REPORT_TOO_EARLY
        fault = early if window > latest else ReportFault.REPORT_DROPPED
        return Verified(metadata.report_id, window, fault=fault)
    try:
        payload = opened.task.open_input_share(
            Role.HELPER, key, metadata, share.public_share, share.encrypted_input_share
        )
    except Undecryptable:
        return Verified(metadata.report_id, window, fault=ReportFault.HPKE_DECRYPT_ERROR)
    except ReportError:
        return Verified(metadata.report_id, window, fault=ReportFault.INVALID_MESSAGE)
    report = AggregatorInput(metadata.report_id, share.public_share, payload)
    try:
        out_share, response = verification.helper_init(report, one.payload)
    except VdafError:
        return Verified(metadata.report_id, window, fault=ReportFault.VDAF_VERIFY_ERROR)
    return Verified(metadata.report_id, window, out_share, response)


def _no_problem(found: bytes | Problem) -> bytes:
    if isinstance(found, Problem):
        raise Refusal(found)
    return found


def serve_helper(
    folder: Path | str,
    settings: HelperSettings | None = None,
    *,
    plans: Sequence[Plan] = (),
    never_published: bool = False,
    ready: Callable[[dict[str, str]], None] = lambda urls: None,
) -> None:
    """Run a helper until it is told to stop; see `serve_aggregator`."""
    helper = Helper(folder, settings or HelperSettings())
    serve_aggregator(helper, plans, never_published=never_published, ready=ready)
