"""The leader's endpoint for uploads."""

from __future__ import annotations

import re
from typing import Any

from shoal.errors import ReportError
from shoal.protocol.dap.messages import (
    MEDIA_TYPE,
    ReportUploadStatus,
    UploadErrors,
    UploadRequest,
)
from shoal.protocol.dap.task import Task
from shoal.protocol.plan import Plan
from shoal.server.aggregation import problems as dap
from shoal.server.aggregation.plan import Upload
from shoal.server.core import problems
from shoal.server.core.http import NO_STORE, send_response
from shoal.server.core.ingest import DeviceIngest, ReportFormat
from shoal.server.core.problems import CLOSE, Problem, Send


def _parse(plan: Plan, body: bytes) -> Upload:
    reports = UploadRequest.from_bytes(body).reports
    ids = {one.report_metadata.report_id for one in reports}
    if not reports or len(ids) < len(reports):
        raise ReportError("an upload has one or more reports with different ids.")
    return Upload(plan.id, reports)


def _bytes(plan: Plan, count: int) -> int:
    return count * Task(plan).report_bytes


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
