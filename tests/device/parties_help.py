"""Relay and analyzer, or leader and helper, in this process, for the tests of the device."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from shoal import Flags, Outbox, Plan, Survey
from shoal.device.outbox import PostResult
from shoal.device.outbox.retry import KEY_CHANGED
from shoal.device.sharing import task_of
from shoal.protocol.dap import SecretKey, Undecryptable
from shoal.protocol.dap.messages import HpkeConfigList, Role, UploadRequest
from shoal.protocol.encryption import CrowdKey, decrypt_message, encryption_info, split_encrypted
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Aggregators, Parties, Promise
from shoal.protocol.vdaf import AggregatorInput
from shoal.protocol.wire import ID_BYTES, SHARED_MAGIC, split_batch
from shoal.support.files import canonical_json
from tests.device.outbox_help import box, stored_record
from tests.faults import Clock, Faults

WEEK = 7 * 86_400
WEIGHT = 12
SURVEY = Survey("browser", (Flags("features", tuple(f"f{i}" for i in range(64))),))
WHOLE = Plan(
    SURVEY,
    FlipProbability(3, 3),
    Promise("local", "40"),
    1000,
    parties=Parties("https://relay.example", "https://analyzer.example"),
)
SHARED = Plan(
    SURVEY,
    FlipProbability(1, 3),
    Promise("proven", "900", delta="1e-6"),
    crowd_size=100,
    window=WEEK,
    view="counts",
    parties=Aggregators("https://leader.example", "https://helper.example", WEIGHT),
)


class TwoParties:
    """Takes encrypted reports, each report id once, and decrypts them for the tests."""

    address: str
    fetches: int
    """How many documents with keys a device fetches for one report."""

    def __init__(self, plan: Plan, script: tuple[PostResult | Exception, ...]) -> None:
        self.plan, self.script = plan, list(script)
        self.clock = Clock(WEEK * 2000.0 + 1000)
        self.posted: list[bytes] = []
        self.accepted: dict[bytes, int] = {}
        self.asked: list[object] = []
        self.faults = Faults()
        self.key = 0

    def replace_key(self) -> None:
        self.key += 1

    def box(self, folder: Path, **options: Any) -> Outbox:
        trusted = {"limit": 1000, "recompute": False}
        return box(folder, self, self.clock, **trusted | options)

    def stored(self, folder: Path) -> tuple[bytes, int]:
        """The id and the bits of the report that waits in a folder."""
        content = split_batch(self.plan, stored_record(folder).batch).content
        return content[:ID_BYTES], int.from_bytes(content[ID_BYTES + 4 :], "little")

    def fetch_plan(self, plan_id: str) -> bytes:
        return canonical_json(self.plan.to_json())

    def post_report(self, plan_id: str, content: bytes) -> PostResult:
        self.faults.step("before post")
        self.posted.append(content)
        outcome: PostResult | Exception = PostResult(202)
        if self.script:
            outcome = self.script.pop(0)
        elif (found := self.opened(content)) is not None:
            self.accepted.setdefault(*found)
        elif self.report_id(content) not in self.accepted:
            outcome = PostResult(KEY_CHANGED)
        self.faults.step("after post")
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    @abstractmethod
    def report_id(self, content: bytes) -> bytes:
        """Return the id that is outside."""

    @abstractmethod
    def opened(self, content: bytes) -> tuple[bytes, int] | None:
        """Return a report's id and bits; None if it is encrypted for another key."""


class Relay(TwoParties):
    """A relay, and the analyzer whose keys it passes on."""

    address = "https://relay.example:443"
    pinned_key: str | None = "analyzer"
    fetches = 1

    def __init__(self, *script: PostResult | Exception, plan: Plan = WHOLE) -> None:
        super().__init__(plan, script)

    def crowd_key(self, window: int) -> tuple[X25519PrivateKey, CrowdKey]:
        private = X25519PrivateKey.from_private_bytes(bytes([self.key]) * 32)
        public = private.public_key().public_bytes_raw()
        return private, CrowdKey(self.plan.id, window, self.key + 1, public)

    def fetch_certificate(self, plan_id: str) -> bytes:
        raise NotImplementedError

    def fetch_crowd_key(self, plan_id: str, window: int) -> bytes:
        self.faults.step("before keys")
        self.asked.append(window)
        return self.crowd_key(window)[1].to_bytes()

    def report_id(self, content: bytes) -> bytes:
        return split_encrypted(self.plan, content).ids[0]

    def opened(self, content: bytes) -> tuple[bytes, int] | None:
        reports = split_encrypted(self.plan, content)
        private, public = self.crowd_key(reports.window)
        if reports.key != public.digest:
            return None
        (report_id,), info = reports.ids, encryption_info(self.plan, reports.window)
        message = decrypt_message(reports.content[ID_BYTES:], private, info)
        assert report_id != message[:ID_BYTES]  # the identifier inside is another one
        return report_id, int.from_bytes(message[ID_BYTES:], "little")


class Pair(TwoParties):
    """A leader and a helper, who verify each report together."""

    address = "https://leader.example:443"
    windows = (1999, 2000, 3001, 3002)
    fetches = 2

    def __init__(self, *script: PostResult | Exception, plan: Plan = SHARED) -> None:
        super().__init__(plan, script)

    def endpoint(self, role: Role) -> str | None:
        both = (Role.LEADER, Role.HELPER)
        return task_of(self.plan).endpoint(role) if role in both else None

    def secret(self, role: Role, window: int) -> SecretKey:
        return SecretKey(window % 256, bytes([role, window % 256, self.key]).ljust(32, b"s"))

    def fetch_hpke_keys(self, endpoint: str) -> bytes:
        self.faults.step("before keys")
        self.asked.append(endpoint)
        (role,) = (one for one in Role if self.endpoint(one) == endpoint)
        keys = (self.secret(role, window).public for window in self.windows)
        return HpkeConfigList(tuple(keys)).to_bytes()

    def report_id(self, content: bytes) -> bytes:
        (report,) = UploadRequest.from_bytes(content.removeprefix(SHARED_MAGIC)).reports
        return report.report_metadata.report_id

    def opened(self, content: bytes) -> tuple[bytes, int] | None:
        (report,) = UploadRequest.from_bytes(content.removeprefix(SHARED_MAGIC)).reports
        task, metadata, public = task_of(self.plan), report.report_metadata, report.public_share
        encrypted = {
            Role.LEADER: report.leader_encrypted_input_share,
            Role.HELPER: report.helper_encrypted_input_share,
        }
        inputs = []
        for role, ciphertext in encrypted.items():
            secret = self.secret(role, metadata.time)
            try:
                share = task.open_input_share(role, secret, metadata, public, ciphertext)
            except Undecryptable:
                return None
            inputs.append(AggregatorInput(metadata.report_id, public, share))
        both = task.verification(b"seed")
        state, request = both.leader_init(inputs[0])
        share, response = both.helper_init(inputs[1], request)
        shares = [both.leader_finish(state, response), share]
        found = task.prio3.unshard([task.prio3.aggregate([one]) for one in shares], 1)
        return metadata.report_id, sum(bit << place for place, bit in enumerate(found))
