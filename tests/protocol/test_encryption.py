"""Encrypted messages, their contents, key documents, and the wire forms around them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from pyhpke import AEADId, CipherSuite, KDFId, KEMId, KEMKey

from shoal import Choice, Flags, Plan, Survey, Text
from shoal.errors import InputError, ReportError
from shoal.protocol.encryption import (
    KEY_BYTES,
    OVERHEAD,
    Chunk,
    CrowdKey,
    EncryptedReports,
    chunk_header_bytes,
    content_bytes,
    decrypt_message,
    encrypt_message,
    encrypted_batch_bytes,
    encrypted_report_bytes,
    encryption_info,
    key_digest,
    message_bytes,
    public_key_of,
    split_chunk,
    split_encrypted,
)
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Parties, Promise
from shoal.protocol.random_bits import SystemBits
from tests.server.analyzer.relay_help import PLANS, contents_of
from tests.server.store_help import upload

PROVEN = Promise("proven", "1", delta="1e-6")
PARTIES = Parties("https://relay.example", "https://analyzer.example")
SURVEY = Survey("b", (Flags("f", ("a", "b", "c")), Choice("c", ("x", "y", "z"))))
WHOLE = Plan(SURVEY, FlipProbability(1, 3), PROVEN, 1000, parties=PARTIES)
TEXT = replace(WHOLE, survey=Survey("t", (Text("t", bits=20, hashes=2, cohorts=7),)), cohorts=None)
PRIVATE = X25519PrivateKey.from_private_bytes(bytes(range(32)))
KEY = CrowdKey(WHOLE.id, 0, 1, PRIVATE.public_key().public_bytes_raw())


class TestMessages:
    @pytest.mark.parametrize("plan", [WHOLE, TEXT], ids=["flags", "text"])
    def test_only_the_key_opens_and_only_as_what_it_was_sealed_for(self, plan: Plan):
        info = encryption_info(plan, 7)
        content = bytes(content_bytes(plan))
        message = encrypt_message(content, PRIVATE.public_key(), info)
        assert len(message) == message_bytes(plan)
        assert decrypt_message(message, PRIVATE, info) == content
        other = X25519PrivateKey.from_private_bytes(bytes(32))
        for key, about in (
            (other, info),
            (PRIVATE, encryption_info(plan, 8)),
            (PRIVATE, encryption_info(replace(plan, window=3600), 7)),
            (PRIVATE, encryption_info(TEXT if plan is WHOLE else WHOLE, 7)),
            (PRIVATE, b""),
        ):
            with pytest.raises(ReportError, match="not encrypted for"):
                decrypt_message(message, key, about)

    def test_every_message_has_its_own_encapsulation(self):
        info = encryption_info(WHOLE, 0)
        sealed = {
            encrypt_message(b"same", PRIVATE.public_key(), info)[:KEY_BYTES] for _ in range(9)
        }
        assert len(sealed) == 9

    @given(st.binary(max_size=120))
    def test_anything_else_is_refused(self, noise: bytes):
        with pytest.raises(ReportError):
            decrypt_message(noise, PRIVATE, encryption_info(WHOLE, 0))
        with pytest.raises(InputError, match="32 bytes"):
            public_key_of(noise[:31])

    def test_info_has_no_ambiguity(self):
        about = {
            encryption_info(plan, window) for plan in (WHOLE, TEXT) for window in (0, 1, 2**31)
        }
        assert len(about) == 6
        assert len({len(one) for one in about}) == 1


class TestKeyDocument:
    def test_round_trip(self):
        assert CrowdKey.from_bytes(KEY.to_bytes()) == KEY
        assert KEY.digest == key_digest(KEY.public_key)

    @pytest.mark.parametrize(
        "change",
        [
            *({"version": 2}, {"version": True}, {"suite": "P-256"}, {"key": "AAAA"}),
            *({"key": None}, {"window": -1}, {"window": 2**32}, {"crowd": 1.0}, {"crowd": "1"}),
            *({"more": 1}, {"plan": 5}),
        ],
    )
    def test_anything_else_is_refused(self, change: dict[str, object]):
        document = json.loads(KEY.to_bytes()) | change
        with pytest.raises(ReportError):
            CrowdKey.from_bytes(json.dumps(document, sort_keys=True).encode())

    def test_one_text(self):
        spaced = json.dumps(json.loads(KEY.to_bytes()), sort_keys=True).encode()
        with pytest.raises(ReportError, match="canonical"):
            CrowdKey.from_bytes(spaced)

    @given(st.binary(max_size=300))
    def test_noise(self, noise: bytes):
        for content in (noise, b" " * 5000):
            with pytest.raises(ReportError):
                CrowdKey.from_bytes(content)


class TestWire:
    def sealed(self, plan: Plan, count: int) -> EncryptedReports:
        length = encrypted_report_bytes(plan)
        return EncryptedReports(plan.id, 5, KEY.digest, length, bytes(count * length))

    @pytest.mark.parametrize("plan", [WHOLE, TEXT], ids=["flags", "text"])
    def test_reports(self, plan: Plan):
        reports = self.sealed(plan, 3)
        content = reports.to_bytes()
        assert len(content) == encrypted_batch_bytes(plan, 3)
        assert split_encrypted(plan, content) == reports
        assert len(reports) == len(reports.ids) == 3

    def test_reports_that_are_none(self):
        content = self.sealed(WHOLE, 2).to_bytes()
        for wrong in (
            content[:-1],
            content + b"\0",
            content[:20],
            b"ENCRYP\x02" + content[7:],
            content[:7] + bytes(32) + content[39:],
            content[:75] + (0).to_bytes(4, "little") + content[79:],
            content[:75] + (2**32 - 1).to_bytes(4, "little") + content[79:],
        ):
            with pytest.raises(ReportError):
                split_encrypted(WHOLE, wrong)
        with pytest.raises(ReportError, match="another plan"):
            split_encrypted(TEXT, content)

    def test_chunks(self):
        chunk = Chunk(WHOLE.id, 5, KEY.digest, 1, 3, bytes(10 * message_bytes(WHOLE)))
        content = chunk.to_bytes()
        assert len(content) == chunk_header_bytes() + len(chunk.content)
        assert split_chunk(WHOLE, content) == chunk
        for wrong in (
            content[:-1],
            content[:40],
            b"SHUFFL\x02" + content[7:],
            replace(chunk, number=3).to_bytes(),
            replace(chunk, plan_id="00" * 32).to_bytes(),
        ):
            with pytest.raises(ReportError):
                split_chunk(WHOLE, wrong)


SUITE = CipherSuite.new(KEMId.DHKEM_X25519_HKDF_SHA256, KDFId.HKDF_SHA256, AEADId.AES128_GCM)
"""The suite of `shoal.protocol.encryption`, in the other library."""


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_each_library_opens_what_the_other_sealed(plan):
    key = X25519PrivateKey.from_private_bytes(SystemBits().draw(32))
    ours, theirs = key.public_key(), KEMKey.from_pyca_cryptography_key(key.public_key())
    info = encryption_info(plan, 0)
    for content in contents_of(upload(plan, 3, 1)):
        message = encrypt_message(content, public_key_of(ours.public_bytes_raw()), info)
        assert len(message) == message_bytes(plan) == len(content) + OVERHEAD
        secret = KEMKey.from_pyca_cryptography_key(key)
        context = SUITE.create_recipient_context(message[:KEY_BYTES], secret, info)
        assert context.open(message[KEY_BYTES:]) == content
        encapsulated, sender = SUITE.create_sender_context(theirs, info=info)
        assert decrypt_message(encapsulated + sender.seal(content), key, info) == content
