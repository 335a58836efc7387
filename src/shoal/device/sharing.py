"""Split a report into shares for a leader and a helper, each encrypted for one of them.

Neither sees anything in its share. The report's id is DAP's too, so a report that is sent twice
counts once; nevertheless a device makes the message once and sends the same bytes again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from shoal.device.outbox.queue import Record
from shoal.errors import ReportError, TransportError
from shoal.protocol.dap import Task, usable_key
from shoal.protocol.dap.messages import (
    HpkeConfigList,
    Report,
    ReportFault,
    ReportMetadata,
    Role,
    UploadErrors,
    UploadRequest,
)
from shoal.protocol.plan import Plan
from shoal.protocol.random_bits import SystemBits
from shoal.protocol.signatures import key_text
from shoal.protocol.wire import ID_BYTES, SHARED_MAGIC, split_batch

if TYPE_CHECKING:
    from http.client import HTTPResponse

UPLOAD_TYPE = UploadRequest.content_type()
_STATUS = {
    ReportFault.REPORT_DROPPED: 410,
    ReportFault.TASK_EXPIRED: 410,
    ReportFault.REPORT_TOO_EARLY: 425,
    ReportFault.TASK_NOT_STARTED: 425,
    ReportFault.OUTDATED_CONFIG: 412,
    ReportFault.HPKE_UNKNOWN_CONFIG_ID: 412,
    ReportFault.BATCH_COLLECTED: 202,
    ReportFault.REPORT_REPLAYED: 202,
}
"""What a leader says about a report, as a status that a collector would answer with."""

task_of = lru_cache(maxsize=8)(Task)


def share_report(plan: Plan, batch: bytes, leader: HpkeConfigList, helper: HpkeConfigList) -> bytes:
    """Return the upload of one report, packed by `pack_reports`, for both aggregators' keys."""
    reports = split_batch(plan, batch)
    if len(reports) != 1:
        raise ReportError(f"one report is shared at a time, got {len(reports)}.")
    window, content = reports.windows[0], reports.content
    report_id, row = content[:ID_BYTES], content[ID_BYTES + 4 :]
    bits = int.from_bytes(row if plan.cohorts is None else row[2:], "little")
    task = task_of(plan)
    random = SystemBits().draw(task.prio3.rand_size)
    measurement = [bits >> place & 1 for place in range(plan.bits)]
    public, shares = task.prio3.shard(task.context, measurement, report_id, random)
    metadata = ReportMetadata(report_id, window)
    sealed = [
        task.seal_input_share(role, usable_key(keys, window), metadata, public, share)
        for role, keys, share in zip(
            (Role.LEADER, Role.HELPER), (leader, helper), shares, strict=True
        )
    ]
    return UploadRequest((Report(metadata, public, *sealed),)).to_bytes()


def share_record(plan: Plan, fetch: Callable[[str], bytes], record: Record) -> bytes:
    """Return a stored report as it is sent; this asks both aggregators for their keys."""
    task = task_of(plan)
    try:
        leader, helper = (
            HpkeConfigList.from_bytes(fetch(task.endpoint(role)))
            for role in (Role.LEADER, Role.HELPER)
        )
        return SHARED_MAGIC + share_report(plan, record.batch, leader, helper)
    except ReportError as error:
        raise TransportError(f"the keys of leader and helper cannot be used: {error}") from error


def upload_path(plan_id: str) -> str:
    """Return where a leader takes the reports of a plan."""
    task = key_text(bytes.fromhex(plan_id))
    return f"/dap/{task}/tasks/{task}/reports"


def upload_status(response: HTTPResponse) -> int:
    """Return the status of an upload of one report; 202 if the leader has it."""
    if not 200 <= response.status < 300:
        return response.status
    content = response.read(ID_BYTES + 2)
    if not content:
        return 202
    if response.getheader("Content-Type", "").replace(" ", "") != UploadErrors.content_type():
        return response.status  # it may be a hotel's login page
    try:
        (status,) = UploadErrors.from_bytes(content).status
    except (ReportError, ValueError):
        return 400
    return _STATUS.get(status.error, 400)
