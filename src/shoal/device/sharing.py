"""Split a report into shares for a leader and a helper, each encrypted for one of them.

Neither sees anything in its share. The report's id is DAP's too, so a report that is sent twice
counts once; nevertheless a device makes the message once and sends the same bytes again.
"""

from __future__ import annotations

from functools import lru_cache

from shoal.errors import ReportError
from shoal.protocol.dap.messages import (
    HpkeConfigList,
    Report,
    ReportMetadata,
    Role,
    UploadRequest,
)
from shoal.protocol.dap.task import Task, usable_key
from shoal.protocol.plan import Plan
from shoal.protocol.random_bits import RandomBits, SystemBits
from shoal.protocol.wire import ID_BYTES, split_batch

task_of = lru_cache(maxsize=8)(Task)


def share_report(
    plan: Plan,
    batch: bytes,
    leader: HpkeConfigList,
    helper: HpkeConfigList,
    random_bits: RandomBits | None = None,
) -> bytes:
    """Return the upload of one report, packed by `pack_reports`, for both aggregators' keys.

    `random_bits` are those of the shares; HPKE draws its own.
    """
    reports = split_batch(plan, batch)
    if len(reports) != 1:
        raise ReportError(f"one report is shared at a time, got {len(reports)}.")
    window, content = reports.windows[0], reports.content
    report_id, row = content[:ID_BYTES], content[ID_BYTES + 4 :]
    bits = int.from_bytes(row if plan.cohorts is None else row[2:], "little")
    task, source = task_of(plan), SystemBits() if random_bits is None else random_bits
    random = bytearray(task.prio3.rand_size)
    source.fill(random)
    measurement = [bits >> place & 1 for place in range(plan.bits)]
    public, shares = task.prio3.shard(task.context, measurement, report_id, bytes(random))
    metadata = ReportMetadata(report_id, window)
    sealed = [
        task.seal_input_share(role, usable_key(keys, window), metadata, public, share)
        for role, keys, share in zip(
            (Role.LEADER, Role.HELPER), (leader, helper), shares, strict=True
        )
    ]
    return UploadRequest((Report(metadata, public, *sealed),)).to_bytes()
