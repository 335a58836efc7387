"""The leader's endpoint for uploads."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from shoal.errors import ReportError
from shoal.protocol.dap.messages import (
    MEDIA_TYPE,
    Reader,
    Report,
    ReportUploadStatus,
    UploadErrors,
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
