"""What the tests of the outbox share: a plan, a collector in this process, and an HTTP server."""

from __future__ import annotations

import ssl
import subprocess
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import shoal
from shoal import Flags, Plan, PrivacyRefusal, Survey
from shoal.analysis.report_files import parse_batch
from shoal.device.outbox import Outbox, PostResult
from shoal.device.outbox.queue import Record
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Promise
from shoal.support.files import canonical_json
from tests.faults import Clock, Faults, QuickDisk

# 64 bits: two vectors of one answer, drawn afresh, are the same by chance with 2^-40 at most.
SURVEY = Survey("browser", (Flags("features", tuple(f"f{i}" for i in range(64))),))
PLAN = Plan(SURVEY, FlipProbability(3, 3), Promise("local", "40"))
ANSWER = {"features": ["f1", "f7"]}
QUICK: dict[str, Any] = {"spread": 0.0, "jitter": lambda: 0.5}


class Collector:
    """A collector in this process, which counts each report id once."""

    def __init__(self, *script: PostResult | Exception, plans: tuple[Plan, ...] = (PLAN,)) -> None:
        self.script = list(script)
        self.plans = {plan.id: plan for plan in plans}
        self.posted: list[bytes] = []
        self.accepted: dict[bytes, bytes] = {}
        self.fetched = 0
        self.faults = Faults()

    def fetch_plan(self, plan_id: str) -> bytes:
        self.fetched += 1
        self.faults.step("before fetch")
        content = canonical_json(self.plans[plan_id].to_json())
        self.faults.step("after fetch")
        return content

    def post_report(self, plan_id: str, content: bytes) -> PostResult:
        self.faults.step("before post")
        self.posted.append(content)
        outcome = self.script.pop(0) if self.script else PostResult(202)
        if isinstance(outcome, PostResult) and outcome.status == 202:
            batch = parse_batch(self.plans[plan_id], content)
            self.accepted.setdefault(batch.ids.tobytes(), content)
        self.faults.step("after post")
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def box(folder: Path, collector: Any, clock: Clock | None = None, **options: Any) -> Outbox:
    clock = clock or Clock()
    options = QUICK | {"disk": QuickDisk()} | options
    return Outbox(folder, collector, clock=clock, sleep=clock.sleep, **options)


def waiting(
    folder: Path, *script: PostResult | Exception, plan: Plan = PLAN, **options: Any
) -> tuple[Outbox, Collector, Clock]:
    """An outbox with one report that waits, its collector and its clock."""
    clock = options.pop("clock", None) or Clock()
    collector = Collector(*script, plans=(plan,))
    outbox = box(folder, collector, clock, **options)
    outbox.answer(plan, ANSWER)
    return outbox, collector, clock


class Charges:
    def __init__(self, most: int = 100) -> None:
        self.made: list[str | None] = []
        self.most = most

    def charge(
        self, plan: Plan, answer_digest: str | None = None, *, token: str | None = None
    ) -> None:
        if len(self.made) >= self.most:
            raise PrivacyRefusal("the ledger is full.")
        self.made.append(answer_digest)

    def settle(self, token: str) -> None:
        pass


CROWD = shoal.plan(
    Survey("crowd", (Flags("features", ("f1", "f7")),)), crowd_size=1000, epsilon=1, delta="1e-6"
)
BROKEN = replace(CROWD, q=FlipProbability(1, 4))


class Certifying(Collector):
    """A collector whose certificates are its word: the signature is `HttpTransport`'s business."""

    def __init__(self, plan: Plan = CROWD, key: str | None = "k") -> None:
        super().__init__(plans=(plan,))
        self.pinned_key, self.asked = key, 0
        self.certificate: bytes | Exception = certificate_of(CROWD)

    def fetch_certificate(self, plan_id: str) -> bytes:
        self.asked += 1
        if isinstance(self.certificate, Exception):
            raise self.certificate
        return self.certificate


@cache
def certificate_of(plan: Plan) -> bytes:
    from shoal.server.core.administration import certificate
    from shoal.server.core.settings import Settings

    return certificate(plan, Settings())


def stored_record(folder: Path) -> Record:
    (file,) = folder.glob("*.waiting")
    return Record.from_bytes(file.read_bytes())


def run_together(commands: list[list[str]]) -> list[str]:
    """Run processes that print "ready" and wait for a line; return what each says then."""
    pipe = subprocess.PIPE
    running = [subprocess.Popen(one, stdin=pipe, stdout=pipe, text=True) for one in commands]
    for process in running:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    said = [process.communicate("go\n", timeout=60)[0] for process in running]
    assert all(process.returncode == 0 for process in running)
    return said


Answer = Callable[[BaseHTTPRequestHandler], None]


class Server:
    """An HTTP server on this machine whose answers a test sets."""

    def __init__(self, context: ssl.SSLContext | None = None, version: str = "HTTP/1.0") -> None:
        self.connections: list[int] = []
        self.requests: list[tuple[str, str, list[tuple[str, str]], bytes]] = []
        self.answers: list[Answer] = []
        self.plans: dict[str, Plan] = {PLAN.id: PLAN}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = version

            def setup(self) -> None:
                super().setup()
                outer.connections.append(0)
                self.number = len(outer.connections) - 1

            def handle_any(self) -> None:
                outer.connections[self.number] += 1
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                outer.requests.append((self.command, self.path, self.headers.items(), body))
                answer = outer.answers.pop(0) if outer.answers else outer.usual
                try:
                    answer(self)
                except OSError:
                    self.close_connection = True

            do_GET = do_POST = handle_any  # noqa: N815

            def log_message(self, *args: object) -> None:
                pass

        class Quiet(ThreadingHTTPServer):
            def handle_error(self, *args: object) -> None:
                pass  # clients that hang up

        self.http = Quiet(("127.0.0.1", 0), Handler)
        if context is not None:
            self.http.socket = context.wrap_socket(self.http.socket, server_side=True)
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()
        scheme = "http" if context is None else "https"
        self.port = self.http.server_address[1]
        self.url = f"{scheme}://127.0.0.1:{self.port}"

    def usual(self, handler: BaseHTTPRequestHandler) -> None:
        if handler.command == "POST":
            reply(202)(handler)
        elif plan := self.plans.get(handler.path.rpartition("/")[2]):
            reply(200, canonical_json(plan.to_json()))(handler)
        else:
            reply(404)(handler)

    def close(self) -> None:
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()


def reply(status: int, body: bytes = b"", **headers: str) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return answer
