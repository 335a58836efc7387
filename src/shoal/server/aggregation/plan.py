"""A plan at a leader or a helper: the keys of its windows, and its batches.

Every open window has an HPKE key of its own, for which devices encrypt their shares; it is
destroyed with the window. The aggregate share of a batch is encrypted under a key of its own until
the batch is collected or discarded. So what is stolen from both later reconstructs nothing.

Noise of an aggregator is added when a batch becomes full, and the sum without it is overwritten,
under a new key. Whatever fails later finds the same sum: no batch ever gets a second draw.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from shoal.errors import missing_extra
from shoal.protocol.dap import SecretKey, Task
from shoal.protocol.dap.messages import (
    BATCH_ID_BYTES,
    CHECKSUM_BYTES,
    ID_BYTES,
    Report,
    ReportFault,
)
from shoal.protocol.plan import ShareNoise
from shoal.protocol.random_bits import SystemBits
from shoal.server.core import problems
from shoal.server.core.problems import Problem
from shoal.server.storage.database import StorageError
from shoal.server.storage.encryption import decrypt, encrypt
from shoal.server.storage.records import Reason
from shoal.server.storage.windows import (
    ALL,
    IncompleteCrowd,
    OpenWindows,
    WindowedPlan,
    progress,
)

LARGEST_JOB = 32 << 20
"""Bytes of an aggregation job that a helper reads; a leader does not make larger ones."""

_HEAD = struct.Struct(f">Q{CHECKSUM_BYTES}s")


@dataclass
class BatchRecord:
    """A batch that is not collected yet, with its aggregate share."""

    number: int
    id: bytes
    window: int
    state: str
    reports: int
    checksum: bytes
    share: bytes


@dataclass
class Upload:
    """The reports of one request to a leader; `faults` says which were not accepted, and why."""

    plan_id: str
    reports: tuple[Report, ...]
    faults: dict[bytes, ReportFault] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.reports)


_FAULTS: dict[Problem, ReportFault] = {
    problems.WINDOW_EXPIRED: ReportFault.REPORT_DROPPED,
    problems.WINDOW_NOT_OPEN: ReportFault.REPORT_TOO_EARLY,
}
"""What a report is told whose window is not open."""


class AggregatorPlan(WindowedPlan):
    """A plan at a leader or a helper; everything here happens inside a transaction."""

    @cached_property
    def task(self) -> Task:
        return Task(self.plan)

    # Keys of windows

    def open_windows(self, time: OpenWindows) -> range:
        """Return the windows that are open now."""
        return range(max(time.first_window, self.oldest_window), time.last_window + 1)

    def open_crowds(self, time: OpenWindows) -> None:
        """Draw the keys of windows that are open now."""
        if self.state == "published":
            for window in self.open_windows(time):
                if self._keys.key(self.plan.id, "hpke", window) is None:
                    self._keys.draw(self.plan.id, "hpke", window)

    def key(self, window: int) -> SecretKey | None:
        """Return the key of a window, if it is open."""
        secret = self._keys.key(self.plan.id, "hpke", window)
        return None if secret is None else SecretKey(window % 256, secret)

    def forget_windows(self, before: int = ALL) -> None:
        super().forget_windows(before)
        self._connection.execute(
            "DELETE FROM uploads WHERE plan = ? AND window < ?", (self.plan.id, before)
        )

    # Reports

    def accept(self, uploads: Sequence[Upload], time: OpenWindows) -> list[Problem | None]:
        """Store uploaded reports that have not come before; each upload notes its faults."""
        return [self._accept(upload, time) for upload in uploads]

    def _accept(self, upload: Upload, time: OpenWindows) -> Problem | None:
        for window in {one.report_metadata.time for one in upload.reports}:
            here = [one for one in upload.reports if one.report_metadata.time == window]
            problem = self.problem(window, window, time)
            if problem is not None and problem not in _FAULTS:
                return problem
            fault = None if problem is None else _FAULTS[problem]
            good = []
            for one in here:
                found = fault or self._fault(one, window)
                if found is None:
                    good.append(one)
                else:
                    upload.faults[one.report_metadata.report_id] = found
            self._store(window, good)
        return None

    def _fault(self, report: Report, window: int) -> ReportFault | None:
        is_whole = len(report.to_bytes()) == self.task.report_bytes
        if not is_whole or report.report_metadata.public_extensions:
            return ReportFault.INVALID_MESSAGE
        shares = (report.leader_encrypted_input_share, report.helper_encrypted_input_share)
        is_outdated = any(one.config_id != window % 256 for one in shares)
        return ReportFault.OUTDATED_CONFIG if is_outdated else None

    def _store(self, window: int, reports: Sequence[Report]) -> None:
        """Store reports; one that came before is accepted again, and not stored."""
        new = self.remember(window, [one.report_metadata.report_id for one in reports])
        self._connection.executemany(
            "INSERT INTO uploads (plan, window, report) VALUES (?, ?, ?)",
            [
                (self.plan.id, window, one.to_bytes())
                for one, is_new in zip(reports, new, strict=True)
                if is_new
            ],
        )

    def remember(self, window: int, ids: Sequence[bytes]) -> list[bool]:
        """Remember reports by their ids, and return which are new."""
        if not ids:
            return []
        table = np.frombuffer(b"".join(ids), np.uint8).reshape(-1, ID_BYTES)
        new: list[bool] = self._seen_in(window).remember(table).tolist()
        return new

    # Batches

    def batch(self, batch_id: bytes) -> BatchRecord | None:
        """Return a batch by its name; of one that has ended only that it was."""
        return self._batch("batch = ?", batch_id)

    def open_batch(
        self, window: int, time: OpenWindows, batch_id: bytes | None = None
    ) -> BatchRecord:
        """Return the batch that reports of a window go to, or begin one."""
        if batch_id is None:
            found = self._batch("window = ? AND state = 'open'", window)
            if found is not None:
                return found
        (last,) = self._connection.execute(
            "SELECT coalesce(max(number), 0) FROM batches"
        ).fetchone()
        name = SystemBits().draw(BATCH_ID_BYTES) if batch_id is None else batch_id
        share = self.task.prio3.aggregate([])
        batch = BatchRecord(last + 1, name, window, "open", 0, bytes(CHECKSUM_BYTES), share)
        day = self._opening_day(window, time.day)
        self._keys.draw(self.plan.id, "crowd", batch.number)
        self._connection.execute(
            "INSERT INTO batches VALUES (?, ?, ?, ?, 'open', ?, ?)",
            (batch.number, self.plan.id, window, name, day, self._encrypted(batch)),
        )
        return batch

    def full_batch(self) -> BatchRecord | None:
        """Return the oldest batch that has all its reports and is not being collected."""
        return self._batch(
            "state = 'full' AND number NOT IN (SELECT batch FROM collections"
            " WHERE batch IS NOT NULL)"
        )

    def _batch(self, where: str, *values: object) -> BatchRecord | None:
        row = self._connection.execute(
            "SELECT number, batch, window, state, content FROM batches"  # noqa: S608  fixed
            f" WHERE plan = ? AND {where} ORDER BY number LIMIT 1",
            (self.plan.id, *values),
        ).fetchone()
        if row is None:
            return None
        number, name, window, state, content = row
        if content is None:
            return BatchRecord(number, bytes(name), window, state, 0, b"", b"")
        key = self._keys.key(self.plan.id, "crowd", number)
        if key is None:
            raise StorageError("the key of a batch is missing; restore a backup.")
        opened = decrypt(key, bytes(content), self._about(number))
        reports, checksum = _HEAD.unpack_from(opened)
        return BatchRecord(
            number, bytes(name), window, state, reports, checksum, opened[_HEAD.size :]
        )

    def _about(self, number: int) -> str:
        return f"{self.plan.id} batch {number}"

    def _encrypted(self, batch: BatchRecord) -> bytes:
        key = self._keys.key(self.plan.id, "crowd", batch.number)
        assert key is not None
        content = _HEAD.pack(batch.reports, batch.checksum) + batch.share
        return encrypt(key, (content, self._about(batch.number)))[0]

    def commit(self, batch: BatchRecord, ids: Sequence[bytes], shares: Sequence[bytes]) -> None:
        """Add the output shares of reports to an open batch, which has room for them.

        With the last ones a batch gets the noise of its plan, and only the sum is kept.
        """
        assert batch.state == "open"
        assert batch.reports + len(ids) <= self.plan.reports_needed
        batch.share = self.task.prio3.aggregate([batch.share, *shares])
        batch.reports += len(ids)
        checksum = int.from_bytes(batch.checksum)
        for one in ids:
            checksum ^= int.from_bytes(hashlib.sha256(one).digest())
        batch.checksum = checksum.to_bytes(CHECKSUM_BYTES)
        if batch.reports == self.plan.reports_needed:
            batch.state = "full"
            if (noise := self.plan.noise) is not None:
                drawn = draw_noise(noise, self.plan.bits)
                batch.share = self.task.prio3.add_numbers(batch.share, drawn)
            # Earlier sums, of fewer reports and without noise, may stay in the database's log.
            self._keys.forget(self.plan.id, "crowd", batch.number)
            self._keys.draw(self.plan.id, "crowd", batch.number)
        self._connection.execute(
            "UPDATE batches SET content = ?, state = ? WHERE number = ?",
            (self._encrypted(batch), batch.state, batch.number),
        )

    def end(self, number: int, state: str) -> None:
        """End a batch: its share and its jobs are destroyed."""
        self._connection.execute(
            "UPDATE batches SET state = ?, content = NULL WHERE number = ?", (state, number)
        )
        self._connection.execute("DELETE FROM jobs WHERE batch = ?", (number,))
        self._keys.forget(self.plan.id, "crowd", number)

    def discard_crowds(
        self, reason: Reason, *, before_window: int = ALL, before_day: int = ALL
    ) -> list[IncompleteCrowd]:
        """Discard batches that are not full, and those that nobody collected by the deadline."""
        rows = self._connection.execute(
            "SELECT batch FROM batches WHERE plan = ? AND window < ? AND day < ?"
            " AND (state = 'open' OR state = 'full' AND ?) ORDER BY number",
            (
                self.plan.id,
                before_window,
                before_day,
                before_day < ALL,
            ),
        ).fetchall()
        ended = []
        for (name,) in rows:
            batch = self.batch(bytes(name))
            assert batch is not None
            self.end(batch.number, "discarded")
            ended.append(IncompleteCrowd(batch.number, progress(batch.reports, self.plan)))
        return ended

    def progress(self) -> dict[int, tuple[str, int]]:
        """Return the state of each batch by its number, with its progress in per cent."""
        rows = self._connection.execute(
            "SELECT batch FROM batches WHERE plan = ? ORDER BY number", (self.plan.id,)
        ).fetchall()
        batches = [self.batch(bytes(name)) for (name,) in rows]
        return {
            one.number: (one.state, progress(one.reports, self.plan) if one.share else 100)
            for one in batches
            if one is not None
        }


def draw_noise(noise: ShareNoise, count: int) -> list[int]:
    """Return independent whole numbers of the distribution, drawn by OpenDP.

    It samples both distributions exactly (Canonne, Kamath, Steinke, NeurIPS 2020), with random bits
    of a cryptographic generator that the operating system seeds.

    >>> len(draw_noise(ShareNoise("gaussian", "2.5"), 4))
    4
    """
    dp = check_sampler()
    whole = dp.vector_domain(dp.atom_domain(T="i64"))
    if noise.kind == "laplace":
        draw = dp.m.make_laplace(whole, dp.l1_distance(T="i64"), scale=noise.value)
    else:
        draw = dp.m.make_gaussian(whole, dp.l2_distance(T="f64"), scale=noise.value)
    drawn: list[int] = draw([0] * count)
    return drawn


def check_sampler() -> Any:
    """Return OpenDP; without it an aggregator refuses to publish a plan with noise."""
    try:
        import opendp.prelude as dp
    except ImportError as error:
        raise missing_extra(error, "noise of aggregators") from None
    dp.enable_features("contrib")
    return dp
