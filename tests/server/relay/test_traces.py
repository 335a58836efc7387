"""Nothing stays at a relay of who sent a report, though it is the party that sees addresses."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from shoal import Plan
from shoal.protocol.encryption import EncryptedReports
from tests.server.test_traces import ADDRESS, CANARIES, QUERY, needles

from .relay_help import LONG, LONGEST, WHOLE, FakeAnalyzer, made, reachable, sealed
from .relay_process import Process


def send_raw(relay: Process, upload: EncryptedReports, body: bytes | None = None) -> int:
    """Send reports from the canary's address, with all its headers; return the port used."""
    content = upload.to_bytes() if body is None else body
    lines = [
        f"POST /v1/plans/{upload.plan_id}/encrypted?{QUERY} HTTP/1.1",
        "Host: canary-host.example",
        "Content-Type: application/vnd.shoal.encrypted; boundary=canary-parameter",
        f"Content-Length: {len(content)}",
        "Connection: close",
        *(f"{name}: {value}" for name, value in CANARIES.items()),
    ]
    with relay.connect(source=ADDRESS) as connection:
        port = connection.getsockname()[1]
        connection.sendall("\r\n".join([*lines, "", ""]).encode() + content)
        answer = b""
        while more := connection.recv(65536):
            answer += more
    assert int(answer.split()[1]) == (202 if body is None else 400)
    assert b"canary" not in answer
    return int(port)


def remains(relay: Process, plan: Plan) -> Iterator[tuple[str, bytes]]:
    """All that a relay has left or shows anywhere: every file, its log, its pages."""
    for path in sorted(relay.data.rglob("*")):
        if path.is_file():
            yield path.name, path.read_bytes()
    yield "log", relay.log.read_bytes()
    if relay.urls:
        for page in ("/v1/plans", f"/v1/plans/{plan.id}/crowds", "/metrics", "/readyz"):
            yield page, relay.get(page, console=True)[1]


@pytest.mark.slow
@pytest.mark.parametrize("plan", [WHOLE, LONG], ids=lambda plan: plan.survey.name)
def test_nothing_of_a_sender_stays(plan: Plan, tmp_path: Path) -> None:
    """Searched for after every upload, when the crowd has been forwarded, and at the end.

    The log is known to the letter, so a port or a time in seconds would be seen in it too. The
    search finds what is there: the plan's id.
    """
    analyzer, reports = FakeAnalyzer(plan), made(plan, 20, seed=1)
    with reachable(analyzer) as url, Process(tmp_path, plan, url, log_level="debug") as relay:
        relay.start()

        def found(words: list[bytes]) -> list[str]:
            return [name for name, one in remains(relay, plan) for word in words if word in one]

        contents = [piece for one in reports for piece in (one.name, one.content)]
        key = relay.crowd_key(plan)
        assert found([plan.id.encode()])
        for start, end in pairwise([0, 1, 9, 19, 20]):
            upload = sealed(plan, key, reports[start:end])
            # A sealed message is on the disk only under the crowd's own key.
            pieces = [upload.content[at : at + 32] for at in range(0, len(upload.content), 32)]
            ports = [send_raw(relay, upload) for _ in range(2)]
            ports.append(send_raw(relay, upload, body=b"canary"))
            for port in ports:
                assert found(needles(port)) == []
            assert found([*contents, *pieces]) == []
        deadline = time.monotonic() + LONGEST
        while '"crowd forwarded"' not in relay.log.read_text():
            assert time.monotonic() < deadline, relay.log.read_text()
            time.sleep(0.01)
        relay.stop()
        assert found(needles(ports[0])) == []
        assert found([*contents, *pieces]) == []
        log = [json.loads(line) for line in relay.log.read_text().splitlines()]
    assert all(len(line.pop("time")) == len("2027-01-15T08:00Z") for line in log)
    known = {"plan published", "ready", "crowd complete", "crowd forwarded", "stopped"}
    for line in log:
        assert line.pop("event") in known, line
        assert set(line) <= {"level", "plan", "by", "window", "crowd", "key"}, line
    assert b"canary" not in b"".join(body for _, body in analyzer.crowds.popitem()[1].tries)
