"""Nothing stays of who sent a report: not in the data, not in the log, not in the release."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from shoal import Plan
from shoal.analysis.report_files import Batch
from shoal.protocol.plan import Promise

from .privacy_help import (
    COUNTS_PLAN,
    FLAGS_PLAN,
    LONG_PLAN,
    TEXT_PLAN,
    Server,
    World,
    address_of,
    in_world,
    make_reports,
    serving,
    some_of,
)
from .store_help import all_blocks, on_the_disk

ADDRESS = "127.7.7.7"
CANARIES = {
    "User-Agent": "canary-agent/7.7",
    "Cookie": "session=canary-cookie",
    "X-Forwarded-For": "203.0.113.77",
    "Forwarded": "for=203.0.113.78;by=canary-proxy",
    "X-Real-IP": "203.0.113.79",
    "Referer": "https://canary-referer.example/page",
    "X-Request-Id": "canary-request-id",
    "Accept-Language": "x-canary-language",
}
QUERY = "who=canary-query"


PLANS = [FLAGS_PLAN, TEXT_PLAN, COUNTS_PLAN]
LONG_COUNTS = replace(LONG_PLAN, promise=Promise("proven", "600", delta="1e-6"), view="counts")


def needles(port: int) -> list[bytes]:
    """Everything that must not be found, long enough not to be there by chance.

    False alarm: 1e-11. Of 1e5 random bytes eight in a row are the packed address with 1e-14, of
    the 128 hexadecimal digits in the folder twelve in a row are a canary's with 1e-12.
    """
    words = [b"canary", ADDRESS.encode(), b"203.0.113."]
    packed = bytes([2, 0]) + port.to_bytes(2, "big") + bytes([127, 7, 7, 7])
    return [*words, packed, *(word.hex().encode() for word in (*words, packed))]


def send_raw(server: Server, batch: Batch, body: bytes | None = None, media: str = "") -> int:
    """Send reports from the canary's address, with all its headers; return the port used."""
    content = batch.to_bytes() if body is None else body
    media = media or "application/vnd.shoal.reports"
    lines = [
        f"POST /v1/plans/{batch.plan_id}/reports?{QUERY} HTTP/1.1",
        "Host: canary-host.example",
        f"Content-Type: {media}; boundary=canary-parameter",
        f"Content-Length: {len(content)}",
        "Connection: close",
        *(f"{name}: {value}" for name, value in CANARIES.items()),
    ]
    with server.connect(source=ADDRESS) as connection:
        port = connection.getsockname()[1]
        connection.sendall("\r\n".join([*lines, "", ""]).encode() + content)
        answer = b""
        while more := connection.recv(65536):
            answer += more
    status = int(answer.split()[1])
    assert status == (202 if body is None else 400)
    assert b"canary" not in answer
    return int(port)


def remains(server: Server) -> Iterator[tuple[str, bytes]]:
    """All that the collector has left anywhere: every file, standard output and error."""
    for path in sorted(server.folder.rglob("*")):
        yield path.name, path.read_bytes()
    yield "stderr", server.log.read_bytes()
    yield "stdout", server.said.encode()


def found(server: Server, words: list[bytes]) -> list[str]:
    return [name for name, content in remains(server) for word in words if word in content]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serving(tmp_path, LONG_PLAN, log_level="debug") as running:
        yield running


@pytest.mark.slow
@pytest.mark.parametrize("plan", [LONG_PLAN, LONG_COUNTS], ids=lambda p: p.view)
def test_nothing_of_a_sender_or_a_report_stays(plan: Plan, tmp_path: Path) -> None:
    """Searched for after an upload, while the crowd is open, after it was sealed, and at the end.

    The log is known to the letter, so a port or a time in seconds would be seen in it too.
    """
    with serving(tmp_path, plan, log_level="debug") as server:
        check_remains(server, plan)


def check_remains(server: Server, plan: Plan) -> None:
    reports = make_reports(plan, 103, np.random.default_rng(2))
    contents = [row.tobytes() for row in (*reports.ids, *reports.rows)]
    contents += [base64.b64encode(content)[:16] for content in contents]
    contents += [content.hex().encode() for content in contents[:206]]
    assert (server.folder / "shoal.db-wal").exists()
    for start, end in pairwise([0, 1, 40, 99, 103]):
        port = send_raw(server, some_of(reports, slice(start, end)))
        send_raw(server, some_of(reports, slice(start, end)))
        send_raw(server, reports, body=b'{"canary": ', media="application/json")
        words = needles(port)
        assert found(server, words) == []
        assert found(server, contents) == []
    files = {path.name for path in server.folder.iterdir()}
    assert files == {"addresses.json", "admin-token", "crowd-key", "lock", "shoal.db",
                     "shoal.db-shm", "shoal.db-wal", "signing-key"}  # fmt: skip
    server.stop()
    assert '"crowd released"' in server.log.read_text()
    assert found(server, words) == []
    assert found(server, contents) == []
    log = [json.loads(line) for line in server.log.read_text().splitlines()]
    assert all(len(line.pop("time")) == len("2027-01-15T08:00Z") for line in log)
    of_plan = {"plan": plan.id}
    assert log == [
        {"level": "info", "event": "plan published"} | of_plan | {"by": "the command line"},
        {"level": "info", "event": "ready"},
        {"level": "info", "event": "crowd released"} | of_plan | {"crowd": 1},
        {"level": "info", "event": "stopped"},
    ]


@pytest.mark.slow
def test_the_search_would_find_a_report(server: Server) -> None:
    """The signing key, the token's file and the plan are found by the same search."""
    key = (server.folder / "signing-key").read_bytes().strip()
    assert found(server, [key]) == ["signing-key"]
    assert set(found(server, [LONG_PLAN.id.encode()])) & {"shoal.db", "shoal.db-wal"}
    assert "stderr" in found(server, [LONG_PLAN.id.encode()])


def released(plan: Plan, folder: Path, uploads: list[Batch]) -> list[bytes]:
    async def live(world: World) -> list[bytes]:
        await world.publish(plan)
        for upload in uploads:
            assert (await world.upload(upload)).status_code == 202
        store = world.collector.store

        def releases() -> list[bytes | None]:
            return [store.release(plan.id, crowd.number) for crowd in store.crowds(plan.id)]

        found = await world.collector.service.in_store(releases)
        return [release for release in found if release is not None]

    return in_world(live, folder)


@pytest.mark.parametrize("plan", PLANS, ids=lambda p: p.survey.name)
def test_the_order_of_reports_is_not_released(plan: Plan, tmp_path: Path) -> None:
    """Two permutations, in other uploads and with repetitions, release the same bytes."""
    random = np.random.default_rng(4)
    reports = make_reports(plan, 100, random)
    orders = [np.arange(100), np.arange(100)[::-1], random.permutation(100)]
    cuts = [[50], [1, 2, 3, 90], []]
    releases = []
    for number, (order, cut) in enumerate(zip(orders, cuts, strict=True)):
        uploads = [some_of(reports, part) for part in np.split(order, cut)]
        uploads += [some_of(reports, order[:7])]
        releases.append(released(plan, tmp_path / str(number), uploads))
    assert [len(one) for one in releases] == [1, 1, 1]
    assert releases[0] == releases[1] == releases[2]


def shuffled_bits(batch: Batch, bits: int, random: np.random.Generator) -> Batch:
    """Return reports with the same counts of every bit, each bit in other reports."""
    table = np.unpackbits(batch.rows, axis=1, count=bits, bitorder="little")
    return replace(
        batch, rows=np.packbits(random.permuted(table, axis=0), axis=1, bitorder="little")
    )


def everything_released(plan: Plan, folder: Path, uploads: list[Batch]) -> dict[str, bytes]:
    """What is shown of a sealed crowd, and what the store held of it while it was open."""

    async def live(world: World) -> dict[str, bytes]:
        await world.publish(plan)
        for upload in uploads:
            assert (await world.upload(upload)).status_code == 202
        kept = world.collector.store

        def stored() -> dict[str, bytes]:
            (crowd,) = on_the_disk(kept, plan)._crowds.values()
            return {f"block {block}": content for block, content in all_blocks(crowd.counts)}

        seen = await world.collector.service.in_store(stored)
        assert (await world.upload(last)).status_code == 202
        headers = {"authorization": f"Bearer {await world.make_token('analyst')}"}
        base = f"/v1/plans/{plan.id}/crowds/1"
        pages = ("/", f"/surveys/{address_of(plan)}", f"/surveys/{address_of(plan)}/crowds/1")
        for path in (base, f"{base}/estimates", f"{base}/report.html", f"{base}/results", *pages):
            answer = await world.ask("console", "GET", path, headers)
            assert answer.status_code == 200
            seen[path] = answer.content
        document = json.loads(seen.pop(base))  # signed with a key of each folder's own
        seen["release"] = json.dumps(document["tally"]).encode()
        return seen

    *uploads, last = uploads
    return in_world(live, folder)


@pytest.mark.parametrize("plan", [COUNTS_PLAN, FLAGS_PLAN], ids=lambda p: p.view)
def test_what_links_the_bits_of_a_report_is_neither_stored_nor_released(
    plan: Plan, tmp_path: Path
) -> None:
    """Crowds with the same counts of bits are the same, whatever else their reports were.

    Under the view of reports the same search finds the links in the blocks and in the release.
    """
    random = np.random.default_rng(4)
    parts = [make_reports(plan, 60, random), make_reports(plan, 40, random)]
    others = [shuffled_bits(part, plan.bits, random) for part in parts]
    assert not (parts[0].rows == others[0].rows).all()
    one = everything_released(plan, tmp_path / "one", parts)
    other = everything_released(plan, tmp_path / "other", others)
    assert one.keys() == other.keys()
    changed = {name for name, content in one.items() if content != other[name]}
    assert changed >= {"block 0", "release"} if plan.view == "reports" else not changed
