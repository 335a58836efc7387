"""The measurements of `capacity`: real reports through the production code.

The content of a report does not change its cost, so the bits are noise. Each probe works until its
seconds are over.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from shoal.analysis.report_files import Batch
from shoal.analysis.tally import Tallying
from shoal.errors import ShoalError
from shoal.lab.demo import running_collector
from shoal.protocol.encryption import (
    Chunk,
    CrowdKey,
    EncryptedReports,
    content_bytes,
    decrypt_message,
    encrypt_message,
    encrypted_report_bytes,
    encryption_info,
    public_key_of,
)
from shoal.protocol.plan import Plan
from shoal.protocol.random_bits import SystemBits
from shoal.protocol.wire import ID_BYTES, Rows, padding_mask, row_bytes
from shoal.server.analyzer.decryption import Stop, decrypt_crowd
from shoal.server.analyzer.plan import Place
from shoal.server.analyzer.store import AnalyzerStore, Receipt
from shoal.server.relay.open_plan import Document
from shoal.server.relay.store import RelayStore
from shoal.server.storage.store import Store
from shoal.support.rounding import text_near

TOGETHER = 64
"""Reports that come while the disk is busy, and are committed together."""

CHUNK = 4096
"""Messages of a chunk that the analyzer takes."""

_STORED = 50_000
_LANES = 32
_BLOCK = 1024


def synced_writes(folder: Path, seconds: float) -> Work:
    """Write 4 KiB and sync, again and again: every commit waits for this."""
    meter, writes = Meter(), 0
    handle = os.open(folder / "probe", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        with meter:
            for _ in _until(seconds):
                os.write(handle, bytes(4096))
                os.fsync(handle)
                writes += 1
    finally:
        os.close(handle)
    return meter.work("4 KiB written and on the disk", "write", writes)


def store(
    plan: Plan, folder: Path, seconds: float, opening: Callable[[Path], Store] = Store
) -> Work:
    """Count reports in a collector's store, 64 devices a commit; `opening` opens the store."""
    with closing(opening(folder)) as kept:
        kept.add_plan(plan)
        assert kept.move(plan.id, "published", b"{}")
        before = _swept(kept)
        meter, reports = _filled(kept, lambda: _batch(plan, 1), seconds)
        more = range(reports, _STORED, _BLOCK)  # the first thousands fill free pages
        for _ in more:
            kept.accept([_batch(plan, _BLOCK)])
        grown = (_swept(kept) - before) / (reports + len(more) * _BLOCK)
    return meter.work("collector's store, 64 reports a commit", "report", reports, grown)


def _filled(
    kept: Store | RelayStore, upload: Callable[[], Any], seconds: float
) -> tuple[Meter, int]:
    meter, reports = Meter(), 0
    for _ in _until(seconds):
        uploads = [upload() for _ in range(TOGETHER)]
        with meter:
            refused = [one for one in kept.accept(uploads) if one is not None]
        if refused:
            raise ShoalError(f"{type(kept).__name__} refused a report: {refused[0].title}")
        reports += TOGETHER
    return meter, reports


def _swept(kept: Store | RelayStore) -> int:
    """Return the size of a store on the disk with an empty log (a log grows to a fixed size)."""
    kept.sweep()
    database = kept.database
    return database.data_bytes if database.is_shared else folder_bytes(kept.folder)


def collector_over_http(plan: Plan, folder: Path, seconds: float) -> tuple[Work, int]:
    """Send reports to a collector, a connection for each; also return the bytes of an exchange."""
    with running_collector(folder, plan, "--min-free-megabytes", "0") as service:
        meter = Meter(partial(processor_seconds, int(service["process"])))
        port, reports, exchanged = int(service["public"].rpartition(":")[2]), 0, 0
        asyncio.run(_send(port, _requests(plan, TOGETHER)))  # the first requests load modules
        for _ in _until(seconds):
            requests = _requests(plan, _BLOCK)
            with meter:
                exchanged += asyncio.run(_send(port, requests))
            reports += _BLOCK
    work = meter.work("collector over HTTP, a connection a report", "report", reports)
    return work, exchanged // reports


def _requests(plan: Plan, count: int) -> list[bytes]:
    bodies = [_batch(plan, 1).to_bytes() for _ in range(count)]
    head = (
        f"POST /v1/plans/{plan.id}/reports HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        "Content-Type: application/vnd.shoal.reports\r\nConnection: close\r\n"
        f"Content-Length: {len(bodies[0])}\r\n\r\n"
    ).encode()
    return [head + body for body in bodies]


async def _send(port: int, requests: list[bytes]) -> int:
    """Send requests, some at a time; return how many bytes were exchanged."""
    waiting, exchanged = iter(requests), 0

    async def lane() -> None:
        nonlocal exchanged
        for request in waiting:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request)
            answer = await reader.read()
            writer.close()
            await writer.wait_closed()
            if b" 202 " not in answer.partition(b"\r\n")[0]:
                raise ShoalError(f"the collector answered {answer[:60].decode('latin-1')!r}.")
            exchanged += len(request) + len(answer)

    await asyncio.gather(*(lane() for _ in range(_LANES)))
    return exchanged


def relay_store(plan: Plan, folder: Path, seconds: float) -> Work:
    """Accept encrypted reports in a relay's store, 64 devices a commit."""
    length = encrypted_report_bytes(plan)
    with closing(RelayStore(folder)) as kept:
        kept.publish(plan)
        (wanted,) = kept.wanted()[:1]
        key = CrowdKey(plan.id, wanted.window, wanted.place, SystemBits().draw(32))
        assert kept.open_crowd(wanted, Document(key.to_bytes(), "", ""))
        before = _swept(kept)
        header = plan.id, wanted.window, key.digest, length
        meter, reports = _filled(
            kept, lambda: EncryptedReports(*header, SystemBits().draw(length)), seconds
        )
        grown = (_swept(kept) - before) / reports
    return meter.work("relay's store, 64 encrypted reports a commit", "report", reports, grown)


def hpke_opens(plan: Plan, seconds: float) -> Work:
    """Decrypt messages."""
    key, info = X25519PrivateKey.generate(), encryption_info(plan, 0)
    content = SystemBits().draw(content_bytes(plan))
    message, meter, opened = encrypt_message(content, key.public_key(), info), Meter(), 0
    with meter:
        for _ in _until(seconds):
            for _ in range(64):
                decrypt_message(message, key, info)
            opened += 64
    return meter.work("HPKE messages decrypted", "message", opened)


def analyzer(plan: Plan, folder: Path) -> Work:
    """Receive a complete crowd in chunks, decrypt it in one process, and tally it."""
    total = plan.reports_needed
    with closing(AnalyzerStore(folder)) as kept:
        kept.add_plan(plan)
        assert kept.move(plan.id, "published", b"{}")
        document = kept.crowd_key(plan.id, Place(0, 1), "relay-data")
        assert isinstance(document, bytes)
        chunks = list(_chunks(plan, CrowdKey.from_bytes(document), total))
        before, meter = folder_bytes(folder), Meter()
        with meter:
            for chunk in chunks:
                receipt = kept.keep_chunk(Place(0, 1), chunk, chunk.to_bytes())
                assert isinstance(receipt, Receipt), receipt
        grown = (folder_bytes(folder) - before) / total
        with meter:
            whole = kept.next_complete()
            assert whole is not None
            opened = decrypt_crowd(whole, kept.scratch, 1, Stop())
            assert kept.release_crowd(whole, opened)
    return meter.work("reports received, decrypted and counted", "report", total, grown)


def _chunks(plan: Plan, key: CrowdKey, total: int) -> Iterator[Chunk]:
    public, info = public_key_of(key.public_key), encryption_info(plan, 0)
    count = -(-total // CHUNK)
    for number in range(count):
        some = range(number * CHUNK, min((number + 1) * CHUNK, total))
        messages = b"".join(encrypt_message(_content(plan), public, info) for _ in some)
        yield Chunk(plan.id, 0, key.digest, number, count, messages)


def _content(plan: Plan) -> bytes:
    """Return the plain content of a message, made of noise."""
    rows, cohorts = _rows(plan, 1)
    middle = b"" if cohorts is None else cohorts.astype("<u2").tobytes()
    return SystemBits().draw(ID_BYTES) + middle + rows.tobytes()


def tally(plan: Plan, seconds: float) -> Work:
    """Count reports that are in memory, as a tally of files does."""
    rows, cohorts = _rows(plan, 1 << 18)
    tallying, meter, reports = Tallying(plan, vectors=False), Meter(), 0
    with meter:
        for _ in _until(seconds):
            tallying.add(rows, cohorts=cohorts)
            reports += len(rows)
    return meter.work("reports counted by `shoal tally`", "report", reports)


def _until(seconds: float) -> Iterable[int]:
    """Yield 0, 1, 2 until the seconds are over, and 0 in any case."""
    end, number = time.perf_counter() + seconds, 0
    while not number or time.perf_counter() < end:
        yield number
        number += 1


def _batch(plan: Plan, reports: int) -> Batch:
    ids = np.frombuffer(SystemBits().draw(ID_BYTES * reports), np.uint8).reshape(-1, ID_BYTES)
    rows, cohorts = _rows(plan, reports)
    return Batch(plan.id, ids, np.zeros(reports, np.uint32), cohorts, rows)


def _rows(
    plan: Plan, reports: int
) -> tuple[Rows, np.ndarray[tuple[int], np.dtype[np.uint16]] | None]:
    width = row_bytes(plan.bits)
    rows = np.frombuffer(bytearray(SystemBits().draw(width * reports)), np.uint8)
    rows = rows.reshape(-1, width)
    if plan.bits % 8:
        rows[:, -1] &= padding_mask(plan.bits)
    if plan.cohorts is None:
        return rows, None
    drawn = np.frombuffer(SystemBits().draw(4 * reports), np.uint32)
    return rows, (drawn % plan.cohorts).astype(np.uint16)


@dataclass(frozen=True)
class Work:
    """Some units of work, the time they took, and the bytes each leaves on the disk."""

    name: str
    unit: str
    count: int
    seconds: float
    core_seconds: float
    disk_bytes_each: float = 0.0

    @property
    def rate(self) -> float:
        """Units a second, as the clock on the wall shows."""
        return self.count / self.seconds

    @property
    def core_seconds_each(self) -> float:
        """Processor time of one unit."""
        return self.core_seconds / self.count

    @property
    def cells(self) -> tuple[str, str, str]:
        disk = f"{self.disk_bytes_each:,.0f} B" if self.disk_bytes_each else ""
        return scaled(self.rate), f"{scaled(self.core_seconds_each)}s", disk

    def to_json(self) -> dict[str, Any]:
        """Return what was measured and what follows for one unit."""
        numbers = vars(self) | {"core_seconds_each": self.core_seconds_each}
        return {"work": numbers.pop("name"), "per_second": self.rate} | numbers


def scaled(number: float) -> str:
    """Write a number with a prefix for its size, and a space before the unit.

    >>> scaled(999.6), scaled(0.0000216)
    ('1 k', '21.6 µ')
    """
    if not number:
        return "0 "
    power = min(max(math.floor(math.log10(float(text_near(abs(number), 3))) / 3), -3), 5)
    return f"{text_near(number / 1000.0**power, 3)} {'nµm kMGTP'[power + 3].strip()}"


class Meter:
    """Adds up the time that passes, and the processor time of this process and its children.

    >>> meter = Meter()
    >>> with meter:
    ...     total = sum(range(1000))
    >>> meter.work("adding", "number", 1000).count
    1000
    """

    def __init__(self, processor: Callable[[], float] | None = None) -> None:
        self._processor = _own_seconds if processor is None else processor
        self.seconds = self.core_seconds = 0.0

    def __enter__(self) -> Self:
        self._start = time.perf_counter(), self._processor()
        return self

    def __exit__(self, *error: object) -> None:
        start, processor = self._start
        self.seconds += time.perf_counter() - start
        self.core_seconds += self._processor() - processor

    def work(self, name: str, unit: str, count: int, disk_bytes_each: float = 0.0) -> Work:
        """Return what was measured, for so many units."""
        return Work(name, unit, count, self.seconds, self.core_seconds, disk_bytes_each)


def _own_seconds() -> float:
    return sum(os.times()[:4])


def processor_seconds(process: int) -> float:
    """Return the processor time of another process, or the wall clock where it is unknown.

    A service is one process on at most one core, so the wall clock errs on the safe side.
    """
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return time.perf_counter()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def folder_bytes(folder: Path) -> int:
    """Return how many bytes the files of a folder take on the disk."""
    found = [path.stat() for path in folder.rglob("*") if path.is_file()]
    # Blocks where the system counts them: sparse files are shorter on the disk.
    return sum(getattr(state, "st_blocks", -(-state.st_size // 512)) * 512 for state in found)
