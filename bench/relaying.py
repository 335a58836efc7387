"""The relay under load: durable encrypted reports a second."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import uvloop
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bench.collecting import _ECHO, _fsyncs
from bench.load import Target, load
from bench.measuring import LIMIT, Options, Table
from bench.serving import running
from shoal import Flags, Plan, Survey
from shoal.protocol.encryption import CrowdKey, EncryptedReports, encrypted_report_bytes
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Parties, Promise
from shoal.protocol.signatures import key_text
from shoal.protocol.wire import ENCRYPTED_TYPE

CROWD = 10**6
"""So many that no crowd becomes whole."""
_RELAY = """
import json, sys
from types import SimpleNamespace
from urllib.request import urlopen
from shoal.cli import main
from shoal.server.relay import service
keys = json.load(urlopen("{url}/v1/keys"))["ed25519"]
analyzer = SimpleNamespace(url="{url}", signing_key=keys[0])
service.known_agreement = lambda *_: SimpleNamespace(
    others=dict(analyzer=analyzer), token=lambda role: "")
sys.exit(main())
"""
"""Runs a relay that was set up with the analyzer at a URL, which gives keys to any plan."""


def measure(options: Options) -> Table:
    """Measure single encrypted reports, and the limits in the same rounds."""
    plan = _plan()
    requests = options.size(20_000)
    best: dict[str, tuple[float, float, float, int]] = {}
    with tempfile.TemporaryDirectory() as scratch, _analyzer(plan) as url:
        folder = Path(scratch)
        plan.write(folder / "plan.json")
        command = [sys.executable, "-c", _RELAY.format(url=url), "relay"]
        command += ["--data", str(folder / "data"), "--public", "127.0.0.1:0"]
        command += ["--console", "127.0.0.1:0"]
        command += ["--json", "--min-free-megabytes", "0", "--max-share-percent", "100"]
        command.append(str(folder / "plan.json"))
        with running(command) as ours, running([sys.executable, "-c", _ECHO]) as echo:
            key, path = _key(ours.port, plan), f"/v1/plans/{plan.id}/encrypted"
            for _ in range(options.rounds):
                bodies = [_body(plan, key) for _ in range(requests)]
                _run(best, "**Shoal**", ours.port, path, bodies)
                name = f"{LIMIT}Starlette echo, nothing stored"
                _run(best, name, echo.port, "/echo", bodies)
                best["fsync"] = max(best.get("fsync", (0.0, 0.0, 0.0, 0)), _fsyncs(folder))
    disk = best.pop("fsync")
    rows: list[list[object]] = [
        [name, rate, size, 1000 * p50, 1000 * p99] for name, (rate, p50, p99, size) in best.items()
    ]
    rows.append([LIMIT + "4 KiB written and on the disk", disk[0], 4096, 1000 * disk[1],
                 1000 * disk[2]])  # fmt: skip
    return Table(
        "Relaying encrypted reports of 40 bits",
        ["candidate", "reports/s", "bytes", "p50 ms", "p99 ms"],
        rows,
        "A relay on one core; 64 senders at a time, a report a request, over loopback. It answers"
        " when the report is on disk, and forwards each report exactly once.",
    )


def _plan() -> Plan:
    return Plan(
        Survey("load", (Flags("answer", tuple(map(str, range(40)))),)),
        FlipProbability(1, 2),
        Promise("local", "99"),
        crowd_size=CROWD,
        parties=Parties("https://relay.example", "https://analyzer.example"),
    )


def _body(plan: Plan, key: CrowdKey) -> bytes:
    """Return a request's body with noise for a message: the relay cannot tell the difference."""
    length = encrypted_report_bytes(plan)
    return EncryptedReports(plan.id, 0, key.digest, length, os.urandom(length)).to_bytes()


def _run(
    best: dict[str, tuple[float, float, float, int]],
    name: str,
    port: int,
    path: str,
    bodies: list[bytes],
) -> None:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: {ENCRYPTED_TYPE}\r\nContent-Length: "
    )
    requests = [f"{head}{len(body)}\r\n\r\n".encode() + body for body in bodies]

    async def work() -> dict[str, object]:
        return await load(Target(port), requests, 64)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found = runner.run(work())
    assert found["statuses"] == {"202": len(requests)}, found["statuses"]
    seconds, p50, p99 = (float(str(found[part])) for part in ("seconds", "p50", "p99"))
    rate = len(requests) / seconds
    if name not in best or rate > best[name][0]:
        best[name] = (rate, p50, p99, len(bodies[0]))


def _key(port: int, plan: Plan) -> CrowdKey:
    """Return the key of the open crowd, as soon as the relay has it."""
    for _ in range(600):
        connection = HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", f"/v1/plans/{plan.id}/crowd-key")
        with connection.getresponse() as answer:
            content = answer.read()
            if answer.status == 200:
                return CrowdKey.from_bytes(content)
        connection.close()
        time.sleep(0.1)
    raise RuntimeError("the relay got no key.")


@contextmanager
def _analyzer(*plans: Plan) -> Iterator[str]:
    """Give out signed documents and keys, which is all that a relay needs while it fills."""
    signing = Ed25519PrivateKey.generate()
    public = key_text(signing.public_key().public_bytes_raw())

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            parts = self.path.split("/")
            document: object = {"ed25519": [public], "links": []}
            if parts[2] == "plans":
                plan = next(one for one in plans if one.id == parts[3])
                document = {"id": plan.id} | plan.to_json()
            content = json.dumps(document).encode()
            if body:
                asked = json.loads(body)
                content = CrowdKey(parts[3], asked["window"], asked["crowd"], bytes(32)).to_bytes()
            self.send_response(200)
            self.send_header("Shoal-Signature", key_text(signing.sign(content)))
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = answer  # noqa: N815  its names

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
