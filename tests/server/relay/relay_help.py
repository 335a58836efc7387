"""Plans with two parties, sealed reports, and an analyzer in plain Python that relays can reach."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import httpx
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from shoal import Flags, Plan, Survey
from shoal.protocol.encryption import (
    CrowdKey,
    EncryptedReports,
    content_bytes,
    decrypt_message,
    encrypt_message,
    encrypted_report_bytes,
    encryption_info,
    key_digest,
    message_bytes,
    public_key_of,
    split_chunk,
)
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Parties, Promise
from shoal.protocol.signatures import check_signature, key_text, link_content
from shoal.server import Relay, RelaySettings
from shoal.server.core.parties import PeerReply
from tests.server.privacy_help import NOW, logged_to
from tests.server.serving_help import QuietHandler, handled_by

R = TypeVar("R")
RELAY, ANALYZER = "https://relay.example", "https://analyzer.example"
LONGEST = 60.0
"""Seconds that anything here may take before it counts as hanging."""
SEALED = {"content-type": "application/vnd.shoal.encrypted"}
WIDE = {"reports_per_request": 1 << 16, "max_share_percent": 100}
"""Settings that let anybody fill a crowd at once, for tests that are about something else."""


def party_plan(name: str = "s", *, bits: int = 8, crowd: int = 20, **fields: Any) -> Plan:
    """Return a plan with a relay."""
    return Plan(
        Survey(name, (Flags("f", tuple(f"option {bit}" for bit in range(bits))),)),
        FlipProbability(1, 2),
        Promise("local", "99"),
        crowd_size=crowd,
        parties=Parties(RELAY, ANALYZER),
        **fields,
    )


WHOLE = party_plan("whole")
LONG = party_plan("long", bits=90)
WEEKLY = party_plan("weekly", window=7 * 86_400)


class _Signing:
    """The analyzer's signing keys, the newest first; two of them while they overlap."""

    def __init__(self) -> None:
        self.secrets = [Ed25519PrivateKey.generate()]

    @property
    def keys(self) -> list[bytes]:
        return [secret.public_key().public_bytes_raw() for secret in self.secrets]

    def document(self) -> dict[str, object]:
        newest, *earlier = self.keys
        links = [
            {
                "key": key_text(key),
                "next": key_text(newest),
                "signature": key_text(secret.sign(link_content(newest))),
            }
            for key, secret in zip(earlier, self.secrets[1:], strict=True)
        ]
        return {"ed25519": [key_text(key) for key in self.keys], "expired": [], "links": links}

    def change(self) -> None:
        self.secrets = [Ed25519PrivateKey.generate(), self.secrets[0]]

    def end_overlap(self) -> None:
        self.secrets = self.secrets[:1]


@dataclass
class Received:
    """What came of one crowd: chunks by their numbers, and every byte string that was sent."""

    chunks: dict[int, bytes] = field(default_factory=dict)
    tries: list[tuple[int, bytes]] = field(default_factory=list)
    complete: bool = False


class FakeAnalyzer:
    """Keeps to the contract of an analyzer, and remembers all it was sent.

    `fault` is called before each answer with the method and the path. It may return a reply to give
    instead, raise, or return a function that changes the right reply.
    """

    def __init__(self, *plans: Plan, relay_key: str | None = None) -> None:
        self.plans = {plan.id: plan for plan in plans}
        self.signing = _Signing()
        self.private: dict[tuple[str, int, int], X25519PrivateKey] = {}
        self.crowds: dict[tuple[str, int, int], Received] = {}
        self.discarded: list[tuple[str, int, int]] = []
        self.asked: list[tuple[str, str]] = []
        self.tokens: list[str | None] = []
        self.relay_key = relay_key
        self.fault: Callable[[str, str], Any] = lambda method, path: None
        self._lock = threading.Lock()

    @property
    def public_key(self) -> bytes:
        return self.signing.keys[0]

    def stop(self) -> None:
        pass

    def ask(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> PeerReply:
        with self._lock:
            self.asked.append((method, path))
            self.tokens.append(headers.get("Authorization"))
            given = self.fault(method, path)
            if isinstance(given, PeerReply):
                return given
            reply = self._answer(method, path.split("/")[1:], body or b"", headers)
            return given(reply) if given is not None else reply

    def _answer(
        self, method: str, parts: list[str], body: bytes, headers: Mapping[str, str]
    ) -> PeerReply:
        if parts == ["v1", "keys"]:
            return self._reply(self.signing.document(), signed=False)
        plan = self.plans.get(parts[2]) if len(parts) > 2 else None
        if plan is None:
            return problem(404, "unknown-plan")
        if method == "GET" and len(parts) == 3:
            return self._reply({"id": plan.id} | plan.to_json())
        if method == "GET" and parts[3:] == ["certificate"]:
            return self._reply({"plan": plan.id, "certificate": {}})
        if method == "POST" and parts[3:] == ["crowd-keys"]:
            asked = json.loads(body)
            return self.signed(self.crowd_key(plan, asked["window"], asked["crowd"]).to_bytes())
        if method == "POST" and parts[3] == "crowds" and parts[6:] == ["discard"]:
            if self.relay_key is not None:
                check_signature(_decoded(self.relay_key), body, headers["Shoal-Signature"])
            said = json.loads(body)
            assert said.pop("state") == "discarded"
            self.discarded.append((plan.id, said["window"], said["crowd"]))
            return self._reply(said | {"state": "discarded"})
        if method == "PUT" and parts[3] == "crowds" and parts[6] == "chunks":
            where = (plan.id, int(parts[4]), int(parts[5]))
            return self._chunk(plan, where, int(parts[7]), body, headers)
        return problem(404, "not-found")

    def crowd_key(self, plan: Plan, window: int, crowd: int) -> CrowdKey:
        private = self.private.setdefault((plan.id, window, crowd), X25519PrivateKey.generate())
        return CrowdKey(plan.id, window, crowd, private.public_key().public_bytes_raw())

    def _chunk(
        self,
        plan: Plan,
        where: tuple[str, int, int],
        number: int,
        body: bytes,
        headers: Mapping[str, str],
    ) -> PeerReply:
        private = self.private[where]
        received = self.crowds.setdefault(where, Received())
        received.tries.append((number, body))
        if self.relay_key is not None:
            check_signature(_decoded(self.relay_key), body, headers["Shoal-Signature"])
        chunk = split_chunk(plan, body)
        assert chunk.key == key_digest(private.public_key().public_bytes_raw())
        assert (chunk.number, chunk.window) == (number, where[1])
        assert len(body) <= 8 << 20
        if received.chunks.get(number, body) != body:
            return problem(409, "chunk-differs")
        received.chunks[number] = body
        received.complete |= len(received.chunks) == chunk.chunks
        return self._reply(
            {
                "plan": plan.id,
                "window": where[1],
                "crowd": where[2],
                "chunk": number,
                "digest": hashlib.sha256(body).hexdigest(),
                "state": "complete" if received.complete else "receiving",
            }
        )

    def signed(self, content: bytes) -> PeerReply:
        headers = {
            "shoal-signature": ", ".join(
                key_text(one.sign(content)) for one in self.signing.secrets
            ),
            "shoal-key": ", ".join(map(key_text, self.signing.keys)),
        }
        return PeerReply(200, headers, content)

    def _reply(self, document: object, *, signed: bool = True) -> PeerReply:
        content = json.dumps(document).encode()
        return self.signed(content) if signed else PeerReply(200, {}, content)

    # What a test wants to know

    def complete(self, plan: Plan) -> list[tuple[str, int, int]]:
        """The crowds of a plan that are complete."""
        found = [where for where, one in self.crowds.items() if one.complete]
        return sorted(where for where in found if where[0] == plan.id)

    def sealed_messages(self, where: tuple[str, int, int]) -> list[bytes]:
        """The messages of a crowd as they came, in their order."""
        plan, chunks = self.plans[where[0]], self.crowds[where].chunks
        length = message_bytes(plan)
        content = b"".join(split_chunk(plan, chunks[number]).content for number in sorted(chunks))
        return [content[at : at + length] for at in range(0, len(content), length)]

    def opened(self, where: tuple[str, int, int]) -> list[bytes]:
        """The contents of a crowd's messages, in their order."""
        private, info = self.private[where], encryption_info(self.plans[where[0]], where[1])
        return [decrypt_message(one, private, info) for one in self.sealed_messages(where)]


def problem(status: int, name: str) -> PeerReply:
    """Return the reply of an analyzer that refuses."""
    document = {"type": f"urn:shoal:problem:{name}", "title": name, "status": status}
    return PeerReply(status, {}, json.dumps(document).encode())


def _decoded(text: str) -> bytes:
    import base64

    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


@contextmanager
def reachable(analyzer: FakeAnalyzer) -> Iterator[str]:
    """Let an analyzer answer at an address of this machine."""

    class Handler(QuietHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            try:
                reply = analyzer.ask(self.command, self.path, body, dict(self.headers.items()))
            except ConnectionError:
                self.close_connection = True
                return
            self.send_response(reply.status)
            for name, text in reply.headers.items():
                self.send_header(name, text)
            self.send_header("Content-Length", str(len(reply.content)))
            self.end_headers()
            self.wfile.write(reply.content)

        do_GET = do_POST = do_PUT = answer  # noqa: N815  its names

    with handled_by(Handler) as port:
        yield f"http://127.0.0.1:{port}"


@dataclass(frozen=True)
class Made:
    """A report before it is sealed: its id and the content of its message."""

    name: bytes
    content: bytes


def made(plan: Plan, count: int, seed: int) -> list[Made]:
    """Return reports with random contents, all different, the same for the same seed."""
    chance = Random(f"{plan.id} {seed}")
    size = content_bytes(plan)
    return [Made(chance.randbytes(16), chance.randbytes(size)) for _ in range(count)]


def sealed(plan: Plan, key: CrowdKey, reports: Sequence[Made]) -> EncryptedReports:
    """Seal reports for a crowd as a device does."""
    public, info = public_key_of(key.public_key), encryption_info(plan, key.window)
    content = b"".join(
        report.name + encrypt_message(report.content, public, info) for report in reports
    )
    return EncryptedReports(plan.id, key.window, key.digest, encrypted_report_bytes(plan), content)


def contents_of(reports: Sequence[Made]) -> Counter[bytes]:
    return Counter(report.content for report in reports)


def check_once(analyzer: FakeAnalyzer, plan: Plan, reports: Sequence[Made]) -> None:
    """All reports arrived once, in whole crowds, and no crowd was cut twice."""
    arrived = Counter[bytes]()
    for where in analyzer.complete(plan):
        contents = analyzer.opened(where)
        assert len(contents) == plan.reports_needed
        arrived.update(contents)
    for received in analyzer.crowds.values():
        assert all(body == received.chunks[number] for number, body in received.tries)
    assert arrived == contents_of(reports)


class RelayWorld:
    """A relay in process, a fake analyzer behind it, and a log that is kept."""

    def __init__(self, relay: Relay, analyzer: FakeAnalyzer, log: io.StringIO) -> None:
        self.relay, self.analyzer, self.log = relay, analyzer, log
        self.clients: dict[str, httpx.AsyncClient] = {}

    @classmethod
    async def open(
        cls,
        stack: AsyncExitStack,
        folder: Path,
        analyzer: FakeAnalyzer,
        clock: Callable[[], float],
        key: bytes,
        **settings: Any,
    ) -> RelayWorld:
        log = io.StringIO()
        stack.enter_context(logged_to(log, clock))
        chosen: dict[str, Any] = {
            "min_free_megabytes": 0, "log_level": "debug", "min_crowd": 1,
        } | WIDE | settings  # fmt: skip
        relay = Relay(folder, analyzer, RelaySettings(**chosen), analyzer_key=key, clock=clock)
        # How long a commit takes is the machine's.
        setattr(relay.metrics, "committed", lambda seconds: None)  # noqa: B010
        await stack.enter_async_context(relay)
        world = cls(relay, analyzer, log)
        for side, app in (("public", relay.public), ("console", relay.console)):
            transport = httpx.ASGITransport(app, raise_app_exceptions=False)
            client = httpx.AsyncClient(transport=transport, base_url="http://relay")
            world.clients[side] = await stack.enter_async_context(client)
        return world

    def admin(self) -> dict[str, str]:
        token = (self.relay.service.folder / "admin-token").read_text().strip()
        return {"authorization": f"Bearer {token}"}

    async def publish(self, plan: Plan) -> None:
        await self.relay.publish(plan)
        await until(lambda: self._has_key(plan))

    def _has_key(self, plan: Plan) -> bool:
        return (plan.id, this_window(plan)) in self.relay.cache.open_keys

    async def key(self, plan: Plan, window: int | None = None) -> CrowdKey:
        async with asyncio.timeout(LONGEST):
            while (answer := await self.get_key(plan, window)).status_code == 503:
                await asyncio.sleep(0.01)  # the key of the next crowd is on its way
        assert answer.status_code == 200, answer.text
        return CrowdKey.from_bytes(answer.content)

    async def get_key(self, plan: Plan, window: int | None = None) -> httpx.Response:
        window = this_window(plan) if window is None else window
        return await self.clients["public"].get(f"/v1/plans/{plan.id}/crowd-key?window={window}")

    async def post(self, upload: EncryptedReports) -> int:
        return (await self.send(upload)).status_code

    async def send(self, upload: EncryptedReports) -> httpx.Response:
        path = f"/v1/plans/{upload.plan_id}/encrypted"
        return await self.clients["public"].post(path, content=upload.to_bytes(), headers=SEALED)

    async def report(self, plan: Plan, reports: Sequence[Made]) -> None:
        """Seal and send as devices do: again for the new key, if the crowd is full."""
        for start in range(0, len(reports), plan.reports_needed):
            some = reports[start : start + plan.reports_needed]
            while (status := await self.post(sealed(plan, await self.key(plan), some))) != 202:
                assert status == 412

    async def forwarded(self, plan: Plan, crowds: int) -> list[tuple[str, int, int]]:
        """Wait until so many crowds have arrived, and the relay knows."""
        await until(lambda: len(self.analyzer.complete(plan)) >= crowds)

        async def ended() -> bool:
            found = await self.relay.service.in_store(self.relay.store.crowds, plan.id)
            return sum(one.state == "forwarded" for one in found) >= crowds

        async with asyncio.timeout(LONGEST):
            while not await ended():
                await asyncio.sleep(0.01)
        return self.analyzer.complete(plan)


def this_window(plan: Plan) -> int:
    return 0 if plan.window is None else int(NOW // plan.window)


async def until(holds: Callable[[], bool]) -> None:
    """Wait for something, with a generous deadline."""
    async with asyncio.timeout(LONGEST):
        while not holds():
            await asyncio.sleep(0.005)


def in_relay(
    work: Callable[[RelayWorld], Awaitable[R]],
    folder: Path,
    analyzer: FakeAnalyzer | Plan,
    clock: Callable[[], float] = lambda: NOW,
    *,
    key: bytes | None = None,
    **settings: Any,
) -> R:
    """Do something with a relay in process, whose analyzer is given or knows one plan."""
    analyzer = FakeAnalyzer(analyzer) if isinstance(analyzer, Plan) else analyzer

    async def inside() -> R:
        async with AsyncExitStack() as stack:
            given = key or analyzer.public_key
            return await work(
                await RelayWorld.open(stack, folder, analyzer, clock, given, **settings)
            )

    return asyncio.run(inside())


def story(
    live: Callable[[RelayWorld], Awaitable[None]],
    folder: Path,
    plan: Plan,
    analyzer: FakeAnalyzer | None = None,
    clock: Callable[[], float] = lambda: NOW,
    **settings: Any,
) -> FakeAnalyzer:
    """Publish a plan at a relay in process, do something with it, and return the analyzer."""
    analyzer = analyzer or FakeAnalyzer(plan)

    async def told(world: RelayWorld) -> None:
        await world.publish(plan)
        await live(world)

    in_relay(told, folder, analyzer, clock, **settings)
    return analyzer
