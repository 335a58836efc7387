"""A plan as a task of DAP: its id, its configuration, its VDAF, and what is encrypted for whom.

The task's id is the plan's. Aggregators have one endpoint for each task, so that the key a device
is given is the key of the task's window: its number, modulo 256, names it. `messages` has the
messages of draft-ietf-ppm-dap-18.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from shoal.errors import PlanError, ReportError
from shoal.protocol.dap.messages import (
    ID_BYTES,
    VERSION,
    AggregateShareAad,
    BatchMode,
    CollectionJobReq,
    HpkeCiphertext,
    HpkeConfig,
    HpkeConfigList,
    MultihotCountVecConfig,
    PlaintextInputShare,
    Query,
    Report,
    ReportMetadata,
    Role,
    TaskConfiguration,
    opaque,
)
from shoal.protocol.encryption import AEAD, KDF, KEM, exporting_suite
from shoal.protocol.plan import Aggregators, Plan
from shoal.protocol.signatures import check_public_key, key_text
from shoal.protocol.vdaf import VERIFY_KEY_SIZE, PingPong, Prio3
from shoal.protocol.vdaf.circuits import MultihotCountVec, best_chunk_length

if TYPE_CHECKING:
    from pyhpke import CipherSuite

KEY_BYTES, TAG_BYTES = 32, 16
_PLAINTEXT = 6
"""Bytes of a `PlaintextInputShare` beside the share."""

TASK_INFO = b"shoal"
COLLECTOR_KEY_ID = 0
NEXT_BATCH = CollectionJobReq(Query(BatchMode.LEADER_SELECTED))
"""The one question of a collector: the next batch."""


class Undecryptable(ReportError):  # noqa: N818  it says what the message is
    """A message was not encrypted for this key and task."""


def _suite() -> CipherSuite:
    return exporting_suite("a leader and a helper")


def bytes_of(text: str, size: int) -> bytes | None:
    """Return the bytes that a part of a URL stands for; None unless it is their one form."""
    try:
        content = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        return None
    return content if len(content) == size and key_text(content) == text else None


class Task:
    """A plan with a leader and a helper, as DAP sees it."""

    def __init__(self, plan: Plan) -> None:
        if not isinstance(plan.parties, Aggregators):
            raise PlanError("the plan has no leader and no helper.")
        assert plan.window is not None
        self.plan, self.id = plan, bytes.fromhex(plan.id)
        self.context = VERSION + self.id
        weight = plan.parties.max_weight
        chunk = best_chunk_length(plan.bits + weight.bit_length())
        self.prio3 = Prio3(MultihotCountVec(plan.bits, weight, chunk))
        self.configuration = TaskConfiguration(
            TASK_INFO,
            self.endpoint(Role.LEADER).encode(),
            self.endpoint(Role.HELPER).encode(),
            plan.window,
            plan.reports_needed,
            BatchMode.LEADER_SELECTED,
            b"",
            MultihotCountVec.algorithm,
            MultihotCountVecConfig(plan.bits, chunk, weight).to_bytes(),
        )

    @property
    def path(self) -> str:
        """The part of an address that names the task."""
        return key_text(self.id)

    def endpoint(self, role: Role) -> str:
        """Return the base address of the task at the leader or the helper."""
        assert isinstance(self.plan.parties, Aggregators)
        origin = self.plan.parties.origins[role.name.lower()]
        return f"{origin}/dap/{self.path}/"

    def verification(self, seed: bytes) -> PingPong:
        """Return the verification of reports, with the key that both aggregators derive."""
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        key = HKDF(SHA256(), VERIFY_KEY_SIZE, b"verify_key", self.id).derive(seed)
        return PingPong(self.prio3, self.context, key)

    @cached_property
    def _about(self) -> bytes:
        return self.id + self.configuration.to_bytes()

    @cached_property
    def report_bytes(self) -> int:
        """How many bytes an uploaded report has, which is the same for all of the task."""
        shares = [self.prio3.input_share_size(aggregator) for aggregator in (0, 1)]
        filled = [
            HpkeCiphertext(0, bytes(KEY_BYTES), bytes(_PLAINTEXT + size + TAG_BYTES))
            for size in shares
        ]
        metadata = ReportMetadata(bytes(ID_BYTES), 0)
        return len(Report(metadata, bytes(self.prio3.public_share_size), *filled).to_bytes())

    # Input shares: from a device to an aggregator

    def _input_share_words(
        self, role: Role, metadata: ReportMetadata, public_share: bytes
    ) -> tuple[bytes, bytes]:
        """Return HPKE's info and authenticated data, the draft's `InputShareAad`."""
        info = VERSION + b" input share" + bytes([Role.CLIENT, role])
        return info, self._about + metadata.to_bytes() + opaque(4).write(public_share)

    def seal_input_share(
        self,
        role: Role,
        key: HpkeConfig,
        metadata: ReportMetadata,
        public_share: bytes,
        share: bytes,
    ) -> HpkeCiphertext:
        """Encrypt a device's share for the leader or the helper."""
        info, aad = self._input_share_words(role, metadata, public_share)
        return seal(key, info, aad, PlaintextInputShare(b"", share).to_bytes())

    def open_input_share(
        self,
        role: Role,
        secret: SecretKey,
        metadata: ReportMetadata,
        public_share: bytes,
        ciphertext: HpkeCiphertext,
    ) -> bytes:
        """Return the share that a device encrypted for an aggregator; else `ReportError`."""
        info, aad = self._input_share_words(role, metadata, public_share)
        content = PlaintextInputShare.from_bytes(secret.open(info, aad, ciphertext))
        if content.private_extensions or metadata.public_extensions:
            raise ReportError("the report has extensions, of which none is known.")
        if len(content.payload) != self.prio3.input_share_size(role - Role.LEADER):
            raise ReportError("the input share has a wrong length.")
        return content.payload

    # Aggregate shares: from an aggregator to the collector

    def _aggregate_share_words(self, role: Role, request: CollectionJobReq) -> tuple[bytes, bytes]:
        info = VERSION + b" aggregate share" + bytes([role, Role.COLLECTOR])
        return info, AggregateShareAad(self.id, self.configuration, request).to_bytes()

    def seal_aggregate_share(
        self, role: Role, key: HpkeConfig, request: CollectionJobReq, share: bytes
    ) -> HpkeCiphertext:
        """Encrypt an aggregate share for the collector."""
        return seal(key, *self._aggregate_share_words(role, request), share)

    def open_aggregate_share(
        self, role: Role, secret: SecretKey, request: CollectionJobReq, ciphertext: HpkeCiphertext
    ) -> bytes:
        """Return the aggregate share of the leader or the helper; else `ReportError`."""
        return secret.open(*self._aggregate_share_words(role, request), ciphertext)


@dataclass(frozen=True)
class SecretKey:
    """The private half of an HPKE key, and its number."""

    id: int
    secret: bytes

    @cached_property
    def _key(self) -> Any:
        return _suite().kem.deserialize_private_key(self.secret)

    @cached_property
    def public(self) -> HpkeConfig:
        """The public half, as it is given out."""
        _suite()  # says which extra is missing
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        public = X25519PrivateKey.from_private_bytes(self.secret).public_key()
        return HpkeConfig(self.id, KEM, KDF, AEAD, public.public_bytes_raw())

    def open(self, info: bytes, aad: bytes, ciphertext: HpkeCiphertext) -> bytes:
        """Decrypt; `ReportError` unless it was encrypted for this key, info and data."""
        _suite()
        from pyhpke import PyHPKEError

        if ciphertext.config_id != self.id:
            raise Undecryptable("the share was encrypted for another key.")
        try:
            context = _suite().create_recipient_context(ciphertext.enc, self._key, info)
            opened: bytes = context.open(ciphertext.payload, aad)
        except (PyHPKEError, ValueError) as error:
            raise Undecryptable("the share was not encrypted for this key and task.") from error
        return opened


def collector_config(public_key: str) -> HpkeConfig:
    """Return the key that aggregate shares are encrypted for, from the analyst's public file."""
    return HpkeConfig(COLLECTOR_KEY_ID, KEM, KDF, AEAD, check_public_key(public_key))


def seal(key: HpkeConfig, info: bytes, aad: bytes, content: bytes) -> HpkeCiphertext:
    """Encrypt under an encapsulated key of its own."""
    suite = _suite()
    try:
        public = suite.kem.deserialize_public_key(key.public_key)
    except ValueError as error:
        raise ReportError("an aggregator's key cannot be used.") from error
    encapsulated, context = suite.create_sender_context(public, info)
    return HpkeCiphertext(key.id, encapsulated, context.seal(content, aad))


def usable_key(keys: HpkeConfigList, window: int) -> HpkeConfig:
    """Return the key of a window from an aggregator's list."""
    for key in keys.configs:
        if (key.kem_id, key.kdf_id, key.aead_id) == (KEM, KDF, AEAD) and key.id == window % 256:
            return key
    raise ReportError("the aggregator has no key for this window and these algorithms.")
