"""A relay and an analyzer in this process, for the tests of the device."""

from __future__ import annotations

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from shoal import Flags, Plan, Survey
from shoal.device.outbox import PostResult
from shoal.device.outbox.retry import KEY_CHANGED
from shoal.protocol.encryption import (
    CrowdKey,
    decrypt_message,
    encryption_info,
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


class Relay:
    """Takes sealed reports for one key, each report id once, and opens them for the tests."""

    address = "https://relay.example:443"
    pinned_key: str | None = "analyzer"

    def __init__(self, plan: Plan, *script: PostResult | Exception) -> None:
        self.plan, self.script = plan, list(script)
        self.crowd, self.private = 0, X25519PrivateKey.generate()
        self.posted: list[bytes] = []
        self.accepted: dict[bytes, bytes] = {}
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
            info = encryption_info(self.plan, reports.window)
            message = reports.content[ID_BYTES:]
            self.accepted[report_id] = decrypt_message(message, self.private, info)
        self.faults.step("after post")
        return PostResult(202)


def vector(content: bytes) -> int:
    """The bits of a report, from the content of its message."""
    return int.from_bytes(content[ID_BYTES:], "little")
