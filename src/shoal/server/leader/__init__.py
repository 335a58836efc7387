"""The leader of DAP: takes reports, verifies them with the helper, and hands full batches out."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Self, TypeVar

from shoal.errors import ReportError, TransportError, VdafError
from shoal.protocol.dap import NEXT_BATCH, Task, bytes_of
from shoal.protocol.dap.messages import (
    MEDIA_TYPE,
    TASK_ID_BYTES,
    AggregateShare,
    AggregateShareReq,
    AggregationJobInitReq,
    AggregationJobResp,
    CollectionJobReq,
    Message,
    Reader,
    Report,
    ReportShare,
    ReportUploadStatus,
    Role,
    UploadErrors,
    VerifyInit,
)
from shoal.protocol.plan import Aggregators, Plan
from shoal.protocol.vdaf import AggregatorInput, PingPong, VerifyState
from shoal.server.aggregation import endpoint as dap
from shoal.server.aggregation.endpoint import (
    DapEndpoint,
    DapRequest,
    DapResponse,
    check_collection,
    check_secret,
    location,
)
from shoal.server.aggregation.plan import Upload
from shoal.server.aggregation.service import Aggregator, serve_aggregator
from shoal.server.aggregation.store import OpenTask
from shoal.server.core import problems
from shoal.server.core.http import NO_STORE, Receive, Refusal, send_response
from shoal.server.core.ingest import Committer, DeviceIngest, ReportFormat
from shoal.server.core.observability import LOG
from shoal.server.core.parties import HttpPeer, Peer
from shoal.server.core.problems import CLOSE, Problem, Send
from shoal.server.core.settings import LeaderSettings
from shoal.server.leader.store import Collection, Job, LeaderStore, Pending


def _parse(plan: Plan, body: bytes) -> Upload:
    """Read an `UploadRequest`, with at most twice as many reports as whole ones would fit.

    Anybody may send one, and tiny reports would take many times its memory.
    """
    reader, reports = Reader(body), dict[bytes, Report]()
    while not reader.is_at_end:
        report = Report.read(reader)
        if report.report_metadata.report_id in reports:
            raise ReportError("an upload has reports with different ids.")
        reports[report.report_metadata.report_id] = report
        if len(reports) > 1 + 2 * len(body) // _report_bytes(plan):
            raise ReportError("the reports of an upload are too small.")
    if not reports:
        raise ReportError("an upload has one or more reports.")
    return Upload(plan.id, tuple(reports.values()))


@lru_cache(maxsize=64)
def _report_bytes(plan: Plan) -> int:
    return Task(plan).report_bytes


def _bytes(plan: Plan, count: int) -> int:
    return count * _report_bytes(plan)


FORMAT = ReportFormat(
    re.compile(r"/dap/([A-Za-z0-9_-]{43})/tasks/\1/reports"),
    frozenset({MEDIA_TYPE.encode()}),
    _parse,
    _bytes,
)


def kilobytes(upload: Upload) -> int:
    """Return how much memory an upload takes while it waits, in kilobytes."""
    return 1 + (sum(len(one.to_bytes()) for one in upload.reports) >> 10)


class UploadIngest(DeviceIngest):
    """Accepts reports of devices; the response names those that were not accepted."""

    async def _refuse(self, problem: Problem, send: Send, *, last: bool = False) -> None:
        malformed = problem is problems.MALFORMED
        await super()._refuse(dap.INVALID_MESSAGE if malformed else problem, send, last=last)

    async def _accepted(self, upload: Any, send: Send, *, last: bool) -> None:
        headers = [NO_STORE, *([CLOSE] if last else [])]
        errors = b""
        if upload.faults:
            status = (
                ReportUploadStatus(one.report_metadata.report_id, fault)
                for one in upload.reports
                if (fault := upload.faults.get(one.report_metadata.report_id)) is not None
            )
            errors = UploadErrors(tuple(status)).to_bytes()
            headers.append((b"content-type", UploadErrors.content_type().encode()))
        await send_response(send, 200, errors, headers)


_SMALL = 64 << 10
_PAUSE = 20.0
"""Seconds after which a helper that did not answer is asked again."""
_RETRY_AFTER = 30
"""Seconds after which a collector is told to ask again."""

_NEVER = ("batchInvalid", "batchOverlap", "batchMismatch", "invalidBatchSize")
"""Refusals of a helper that does not have a batch as the leader has it, and never will."""

M = TypeVar("M", bound=Message)
W = TypeVar("W", Job, Collection)


class _BatchRefusedError(TransportError):
    """The helper will never give out its share of a batch."""


class Leader(Aggregator):
    """Takes reports and verifies them with the helper; use it as an asynchronous context.

    `public` and `console` are its two ASGI apps. One leader at a time uses the folder. `helpers`
    makes the way to the helper at an origin; by default HTTP.
    """

    store: LeaderStore
    settings: LeaderSettings
    role = Role.LEADER

    def __init__(
        self,
        folder: Path | str,
        settings: LeaderSettings,
        *,
        clock: Callable[[], float] | None = None,
        helpers: Callable[[str], Peer] | None = None,
    ) -> None:
        super().__init__(folder, settings, clock=clock)
        timeout = settings.helper_timeout
        self._new_helper = helpers or (lambda origin: HttpPeer(origin, timeout))
        self._helpers: dict[str, Peer] = {}
        self._work = asyncio.Event()
        self._resting: set[int | bytes] = set()
        """Jobs and collections that wait for a while, because the last attempt failed."""

    async def __aenter__(self) -> Self:
        service, settings = self.service, self.settings
        self.store = self.open_store(LeaderStore)
        self._helper_token = self.agreement.token("helper")
        self._analyst_token = self.agreement.token("analyst")
        self._helper_thread = service.add_thread("helper")
        committer = Committer(
            service.accept, settings.max_queued_megabytes << 10, kilobytes, settings.store_timeout
        )
        ingest = UploadIngest(service, settings, self, committer, FORMAT)
        endpoint = DapEndpoint(service, lambda plan_id: self.tasks.get(plan_id))
        endpoint.resources |= {
            ("POST", "collection_jobs"): self._collect,
            ("GET", "collection_jobs/"): self._collected,
            ("DELETE", "collection_jobs/"): self._forget,
        }
        self._endpoint, self._loop = endpoint, asyncio.get_running_loop()
        others = [self._aggregate()]
        return await self.begin(ingest.handle, endpoint.handle, committer=committer, others=others)

    async def __aexit__(self, *error: object) -> None:
        for helper in self._helpers.values():
            helper.stop()
        await super().__aexit__(*error)

    # Reports

    def plan_for_reports(self, task: str) -> Plan | Problem:
        """Return the plan of a task, by its name in a URL, if reports can be stored."""
        task_id = bytes_of(task, TASK_ID_BYTES)
        opened = None if task_id is None else self.tasks.get(task_id.hex())
        if opened is None:
            return dap.UNRECOGNIZED_TASK
        return opened.task.plan if self.service.has_space else problems.STORAGE_FULL

    def after_commit(self) -> None:
        self._loop.call_soon_threadsafe(self._work.set)

    def after_sweep(self) -> None:
        self._work.set()

    # Aggregation jobs

    async def _aggregate(self) -> None:
        """Verify reports with the helper and collect full batches, until the leader stops."""
        while True:
            await self._work.wait()
            self._work.clear()
            try:
                while await self._aggregate_some():
                    pass
            except Exception as error:
                LOG.error("reports were not verified; they are tried again", exc_info=error)
                self._loop.call_later(_PAUSE, self._work.set)

    async def _aggregate_some(self) -> bool:
        """Do what can be done now; return whether there was anything."""
        store, in_store = self.store, self.service.on_store_thread
        done = 0
        for job in await in_store(store.jobs, self._resting):
            done += await self._attempt(self._finish_job, job, job.number)
        for pending in await in_store(store.pending, self.settings.job_reports):
            started = await self.service.compute(self._start, pending)
            if started is not None:
                await in_store(store.begin_job, pending, started)
                done += len(pending.reports)
        for one in await in_store(store.due, NEXT_BATCH):
            done += await self._attempt(self._finish_collection, one, one.name)
        return done > 0

    async def _attempt(
        self, work: Callable[[W], Awaitable[None]], about: W, name: int | bytes
    ) -> bool:
        """Work with the helper; after a failure this job or collection rests, and others go on."""
        if name in self._resting:
            return False
        facts = {"facts": {"plan": about.plan_id}}
        try:
            await work(about)
            return True
        except (TransportError, ReportError, VdafError) as error:
            LOG.warning("the helper did not do its part: %s", error, extra=facts)
        except Exception as error:
            LOG.error("work with the helper failed; it is tried again", exc_info=error, extra=facts)
        self._resting.add(name)
        self._loop.call_later(_PAUSE, self._go_on, name)
        return False

    def _go_on(self, name: int | bytes) -> None:
        self._resting.discard(name)
        self._work.set()

    async def _finish_job(self, job: Job) -> None:
        verified = await self._helper_thread.run(self._ask_to_verify, job)
        await self.service.on_store_thread(self.store.finish_job, job, verified)

    async def _finish_collection(self, one: Collection) -> None:
        in_store = self.service.on_store_thread
        try:
            share = await self._helper_thread.run(self._ask_for_share, one)
        except _BatchRefusedError as error:
            LOG.error("a batch is lost: %s", error, extra={"facts": {"plan": one.plan_id}})
            await in_store(self.store.discard_batch, one)
        else:
            sealed = share.encrypted_aggregate_share
            await in_store(self.store.finish_collection, one, sealed, self.collector)

    def _start(self, pending: Pending) -> dict[int, VerifyInit] | None:
        """Begin to verify reports; those that cannot be are left out. None if the window ended."""
        opened = self.tasks.get(pending.plan_id)
        if opened is None or pending.window not in opened.keys:
            return None
        verification = opened.task.verification(self.verify_seed)
        started = {}
        for number, report in pending.reports.items():
            state = _started(opened, verification, report)
            if state is not None:
                share = ReportShare(
                    report.report_metadata,
                    report.public_share,
                    report.helper_encrypted_input_share,
                )
                started[number] = VerifyInit(share, state[1])
        return started

    def _ask_to_verify(self, job: Job) -> dict[bytes, bytes]:
        """Send a job to the helper; return the output shares of the reports that both verified."""
        answer = self._ask(
            job.plan_id, "aggregation_jobs", AggregationJobInitReq, job.request, AggregationJobResp
        )
        opened = self._opened(job.plan_id)
        asked = [
            one.report_share.report_metadata.report_id
            for one in AggregationJobInitReq.from_bytes(job.request).verify_inits
        ]
        if [one.report_id for one in answer.verify_resps] != asked:
            raise TransportError("the helper answered about other reports.")
        verification = opened.task.verification(self.verify_seed)
        verified = {}
        for one in answer.verify_resps:
            report = job.reports.get(one.report_id)
            if one.report_error is not None or report is None:
                continue
            state = _started(opened, verification, report)
            if state is None:  # it was verified before it was sent
                raise TransportError("a report of the job cannot be verified any more.")
            verified[one.report_id] = verification.leader_finish(state[0], one.payload)
        return verified

    # Collection jobs

    def _ask_for_share(self, one: Collection) -> AggregateShare:
        content = one.request.to_bytes()
        return self._ask(
            one.plan_id, "aggregate_shares", AggregateShareReq, content, AggregateShare
        )

    async def _collect(self, request: DapRequest, receive: Receive) -> DapResponse:
        check_secret(request, self._analyst_token)
        self._endpoint.task(request)
        asked, content = await self._endpoint.read(request, receive, CollectionJobReq, _SMALL)
        check_collection(asked)
        name = await self.service.in_store(self.store.collect, request.plan_id, content)
        if isinstance(name, Problem):
            raise Refusal(name)
        self._work.set()
        return await self._result(request, name, location(request, name))

    async def _collected(self, request: DapRequest, receive: Receive) -> DapResponse:
        check_secret(request, self._analyst_token)
        return await self._result(request, self._name(request))

    async def _result(self, request: DapRequest, name: bytes, where: str = "") -> DapResponse:
        result = await self.service.in_store(self.store.collected, request.plan_id, name)
        if isinstance(result, Problem):
            raise Refusal(result)
        if result is None:
            return DapResponse(location=where, retry_after=_RETRY_AFTER)
        return DapResponse(result, "collection-job-resp", where)

    async def _forget(self, request: DapRequest, receive: Receive) -> DapResponse:
        check_secret(request, self._analyst_token)
        name = self._name(request)
        await self.service.in_store(self.store.forget_collection, request.plan_id, name)
        return DapResponse()

    def _name(self, request: DapRequest) -> bytes:
        name = bytes_of(request.name, 16)
        if name is None:
            raise Refusal(dap.BATCH_INVALID)
        return name

    # The helper

    def _opened(self, plan_id: str) -> OpenTask:
        opened = self.tasks.get(plan_id)
        if opened is None:
            raise TransportError("the task has ended.")
        return opened

    def _ask(
        self, plan_id: str, resource: str, asked: type[Message], content: bytes, answer: type[M]
    ) -> M:
        """Send a request to the helper of a plan; return its answer."""
        opened = self._opened(plan_id)
        parties, task = opened.task.plan.parties, opened.task.path
        assert isinstance(parties, Aggregators)
        if parties.helper not in self._helpers:
            self._helpers[parties.helper] = self._new_helper(parties.helper)
        headers = {
            "Content-Type": asked.content_type(),
            "Authorization": f"Bearer {self._helper_token}",
        }
        reply = self._helpers[parties.helper].ask(
            "POST", f"/dap/{task}/tasks/{task}/{resource}", content, headers
        )
        if not 200 <= reply.status < 300:  # DAP leaves the choice
            kind = re.search(rb'"urn:ietf:params:ppm:dap:error:(\w+)"', reply.content)
            fault = kind[1].decode() if kind else ""
            refused = resource == "aggregate_shares" and fault in _NEVER
            sentence = f"the helper answered {reply.status}{f' ({fault})' if fault else ''}."
            raise (_BatchRefusedError if refused else TransportError)(sentence)
        words = [word.strip() for word in reply.headers.get("content-type", "").split(";")]
        if words != [MEDIA_TYPE, f"message={answer.media_type}"]:
            raise TransportError("the helper answered with something else.")
        return answer.from_bytes(reply.content)


def _started(
    opened: OpenTask, verification: PingPong, report: Report
) -> tuple[VerifyState, bytes] | None:
    """Return the leader's state and message for a report; None if its share is not valid."""
    metadata = report.report_metadata
    key = opened.keys.get(metadata.time)
    if key is None:
        return None
    try:
        payload = opened.task.open_input_share(
            Role.LEADER, key, metadata, report.public_share, report.leader_encrypted_input_share
        )
        share = AggregatorInput(metadata.report_id, report.public_share, payload)
        return verification.leader_init(share)
    except (ReportError, VdafError):
        return None


def serve_leader(
    folder: Path | str,
    settings: LeaderSettings | None = None,
    *,
    plans: Sequence[Plan] = (),
    never_published: bool = False,
    ready: Callable[[dict[str, str]], None] = lambda urls: None,
) -> None:
    """Run a leader until it is told to stop; see `serve_aggregator`."""
    leader = Leader(folder, settings or LeaderSettings())
    serve_aggregator(leader, plans, never_published=never_published, ready=ready)
