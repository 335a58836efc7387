"""The helper: verifies reports together with the leader, and gives out its share of each batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from shoal.errors import ReportError, VdafError
from shoal.protocol.dap.messages import (
    BATCH_ID_BYTES,
    LEADER_SELECTED_BATCH_ID,
    AggregateShareReq,
    AggregationJobInitReq,
    BatchMode,
    ReportFault,
    Role,
    VerifyInit,
    are_in_order,
)
from shoal.protocol.dap.task import Undecryptable
from shoal.protocol.plan import Plan
from shoal.protocol.vdaf.prio3 import AggregatorInput, PingPong
from shoal.server.aggregation import problems as dap
from shoal.server.aggregation.endpoint import (
    DapEndpoint,
    DapRequest,
    DapResponse,
    check_collection,
    check_secret,
    digest_in,
    digest_of,
    location,
)
from shoal.server.aggregation.plan import LARGEST_JOB
from shoal.server.aggregation.service import Aggregator, serve_aggregator
from shoal.server.aggregation.store import OpenTask
from shoal.server.core.http import Receive, Refusal
from shoal.server.core.problems import Problem
from shoal.server.core.settings import HelperSettings
from shoal.server.helper.store import HelperStore, Verified

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
            ("GET", "aggregation_jobs/"): self._known_job,
            ("DELETE", "aggregation_jobs/"): self._forget,
            ("POST", "aggregate_shares"): self._share,
            ("GET", "aggregate_shares/"): self._known_share,
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

    async def _known_job(self, request: DapRequest, receive: Receive) -> DapResponse:
        self._opened(request)
        digest = digest_in(request, dap.UNRECOGNIZED_JOB)
        response = await self.service.in_store(self.store.known_job, digest)
        if response is None:
            raise Refusal(dap.UNRECOGNIZED_JOB)
        return DapResponse(response, "aggregation-job-resp")

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

    async def _known_share(self, request: DapRequest, receive: Receive) -> DapResponse:
        self._opened(request)
        digest = digest_in(request, dap.BATCH_INVALID)
        response = await self.service.in_store(self.store.known_share, digest)
        if response is None:
            raise Refusal(dap.BATCH_INVALID)
        return DapResponse(response, "aggregate-share")

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
