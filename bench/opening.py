"""The analyzer: encrypted reports received, opened and counted a second, beside HPKE's limit."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from bench.measuring import LIMIT, Options, Table
from shoal import Flags, Plan, Survey
from shoal.protocol.encryption import (
    Chunk,
    CrowdKey,
    content_bytes,
    decrypt_message,
    encrypt_message,
    encryption_info,
    message_bytes,
    public_key_of,
)
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Parties, Promise
from shoal.protocol.random_bits import SystemBits
from shoal.server.analyzer.decryption import Stop, decrypt_crowd
from shoal.server.analyzer.plan import Place
from shoal.server.analyzer.store import AnalyzerStore, CompleteCrowd, Receipt

CORES = os.cpu_count() or 1
CHUNK = 4096
"""Messages in a chunk; a relay's are larger, so that this is on the safe side."""


class _Crowd(NamedTuple):
    """A crowd that is at the analyzer's door."""

    plan: Plan
    messages: list[bytes]
    chunks: list[Chunk]


def measure(options: Options) -> Table:
    """Measure opening and counting, and the opens alone."""
    return Table(
        "Opening crowds at the analyzer",
        ["candidate", "reports/s", "core hours for a million reports"],
        [*_rows(options)],
        "A crowd of 80,000 reports of 40 bits. Receiving is a chunk that is written to the"
        " disk, synced and noted, without HTTP and signature. Opening includes the start of the"
        " processes, the search for messages that arrived twice, and the tally.",
    )


def _rows(options: Options) -> Iterator[list[object]]:
    with tempfile.TemporaryDirectory() as scratch, closing(AnalyzerStore(Path(scratch))) as store:
        crowd = _crowd(store, _plan(options.size(80_000)))
        received = _spent(lambda: _receive(store, crowd))
        whole = store.next_complete()
        assert whole is not None
        ways: dict[str, Callable[[], object]] = {
            "**Shoal**, one process": lambda: decrypt_crowd(whole, store.scratch, 1, Stop()),
            f"**Shoal**, {CORES} processes": (
                lambda: decrypt_crowd(whole, store.scratch, CORES, Stop())
            ),
            f"{LIMIT}HPKE opens on one core, nothing counted": (
                lambda: _open(whole, crowd.messages)
            ),
        }
        never = _Spent(float("inf"), float("inf"))
        best = dict.fromkeys(ways, never)
        for number in range(options.rounds):
            for way, run in ways.items():
                best[way] = min(best[way], _spent(run))
            print(f"\r  round {number + 1} of {options.rounds}", end="", flush=True)
        print()
    total = len(crowd.messages)
    yield _row("**Shoal**, received", total, received)
    for way in ways:
        yield _row(way, total, best[way])


def _row(name: str, reports: int, spent: _Spent) -> list[object]:
    return [name, reports / spent.seconds, 1e6 / reports * spent.processor / 3600]


def _plan(reports: int) -> Plan:
    survey = Survey("load", (Flags("answer", tuple(map(str, range(40)))),))
    parties = Parties("https://relay.example", "https://analyzer.example")
    q = FlipProbability.at_least(0.25)
    return Plan(survey, q, Promise("local", "99"), reports, parties=parties)


def _crowd(store: AnalyzerStore, plan: Plan) -> _Crowd:
    """Publish a plan and seal a crowd of it."""
    store.add_plan(plan)
    assert store.move(plan.id, "published", b"{}")
    document = store.crowd_key(plan.id, Place(0, 1), "relay")
    assert isinstance(document, bytes)
    key = CrowdKey.from_bytes(document)
    public, info = public_key_of(key.public_key), encryption_info(plan, 0)
    total, size = plan.reports_needed, content_bytes(plan)
    messages = [encrypt_message(SystemBits().draw(size), public, info) for _ in range(total)]
    count = -(-total // CHUNK)
    parts = [b"".join(messages[start : start + CHUNK]) for start in range(0, total, CHUNK)]
    chunks = [
        Chunk(plan.id, 0, key.digest, number, count, part) for number, part in enumerate(parts)
    ]
    assert len(messages[0]) == message_bytes(plan)
    return _Crowd(plan, messages, chunks)


def _receive(store: AnalyzerStore, crowd: _Crowd) -> None:
    for chunk in crowd.chunks:
        receipt = store.keep_chunk(Place(0, 1), chunk, chunk.to_bytes())
        assert isinstance(receipt, Receipt)


def _open(whole: CompleteCrowd, messages: list[bytes]) -> None:
    key = X25519PrivateKey.from_private_bytes(whole.secret)
    for message in messages:
        decrypt_message(message, key, whole.info)


class _Spent(NamedTuple):
    """Time that passed, and processor time of this process and those that it started."""

    seconds: float
    processor: float


def _spent(work: Callable[[], object]) -> _Spent:
    start, before = time.perf_counter(), sum(os.times()[:4])
    work()
    return _Spent(time.perf_counter() - start, sum(os.times()[:4]) - before)
