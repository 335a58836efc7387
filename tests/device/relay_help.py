"""A relay and an analyzer in this process, for the tests of the device."""

from __future__ import annotations

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from shoal import Flags, Plan, Survey
from shoal.device.outbox import PostResult
from shoal.device.outbox.retry import KEY_CHANGED
from shoal.protocol.encryption import (
    DUMMY,
    CrowdKey,
    decrypt_message,
    encryption_info,
    message_bytes,
    split_encrypted,
)
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Parties, Promise
from shoal.protocol.wire import ID_BYTES
from shoal.support.files import canonical_json
from tests.faults import Faults

SURVEY = Survey("browser", (Flags("features", tuple(f"f{i}" for i in range(64))),))
PARTIES = Parties("https://relay.example", "https://analyzer.example")
WHOLE = Plan(SURVEY, FlipProbability(3, 3), Promise("local", "40"), 1000, parties=PARTIES)
COUNTS = Plan(
    SURVEY,
    FlipProbability(1, 6),
    Promise("proven", "1", delta="1e-6"),
    1000,
    view="counts",
    parties=Parties(PARTIES.relay, PARTIES.analyzer, messages=64),
)


class Relay:
    """Takes sealed reports for one key, each report id once, and opens them for the tests."""

    address = "https://relay.example:443"
    pinned_key: str | None = "analyzer"

    def __init__(self, plan: Plan, *script: PostResult | Exception) -> None:
        self.plan, self.script = plan, list(script)
        self.crowd, self.private = 0, X25519PrivateKey.generate()
        self.posted: list[bytes] = []
        self.accepted: dict[bytes, list[bytes]] = {}
        self.asked = 0
        self.faults = Faults()
        self.next_crowd()

    def next_crowd(self) -> None:
        self.crowd, self.private = self.crowd + 1, X25519PrivateKey.generate()

    def fetch_plan(self, plan_id: str) -> bytes:
        return canonical_json(self.plan.to_json())

    def fetch_certificate(self, plan_id: str) -> bytes:
        raise NotImplementedError

    def fetch_crowd_key(self, plan_id: str, window: int) -> bytes:
        self.faults.step("before key")
        self.asked += 1
        public = self.private.public_key().public_bytes_raw()
        return CrowdKey(plan_id, window, self.crowd, public).to_bytes()

    def post_report(self, plan_id: str, content: bytes) -> PostResult:
        self.faults.step("before post")
        self.posted.append(content)
        if self.script:
            outcome = self.script.pop(0)
            if isinstance(outcome, Exception):
                raise outcome
            return outcome
        reports = split_encrypted(self.plan, content)
        (report_id,) = reports.ids
        if report_id not in self.accepted:
            public = self.private.public_key().public_bytes_raw()
            if reports.key != CrowdKey(plan_id, 0, 1, public).digest:
                return PostResult(KEY_CHANGED)
            length = message_bytes(self.plan)
            info = encryption_info(self.plan, reports.window)
            places = range(ID_BYTES, reports.length, length)
            messages = [reports.content[place : place + length] for place in places]
            assert len(messages) == self.plan.messages
            self.accepted[report_id] = [
                decrypt_message(one, self.private, info) for one in messages
            ]
        self.faults.step("after post")
        return PostResult(202)


def vector(plan: Plan, contents: list[bytes]) -> int:
    """The bits that the messages of one report hold together."""
    if plan.view == "reports":
        return int.from_bytes(contents[0][ID_BYTES:], "little")
    positions = [int.from_bytes(content[ID_BYTES:], "little") for content in contents]
    return sum(1 << place for place in positions if place != DUMMY)
