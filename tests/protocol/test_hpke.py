"""Sealing is HPKE as RFC 9180 defines it: its published answers, and a second library.

`cryptography` takes no associated data and no fixed ephemeral key, so the published answers are
those of pyhpke; then each of the two opens what the other sealed.
"""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from pyhpke import AEADId, CipherSuite, KDFId, KEMId, KEMKey, OpenError

from shoal.errors import ReportError
from shoal.protocol.encryption import (
    KEY_BYTES,
    OVERHEAD,
    decrypt_message,
    encrypt_message,
    encryption_info,
    message_bytes,
    public_key_of,
)
from shoal.protocol.random_bits import SystemBits
from tests.server.analyzer.relay_help import COUNTS, PLANS, WHOLE, contents_of
from tests.server.store_help import upload

SUITE = CipherSuite.new(KEMId.DHKEM_X25519_HKDF_SHA256, KDFId.HKDF_SHA256, AEADId.AES128_GCM)
"""The suite of `shoal.protocol.encryption`, in the other library."""

# RFC 9180, appendix A.1.1: base mode of the suite.
INFO = bytes.fromhex("4f6465206f6e2061204772656369616e2055726e")
EPHEMERAL_SEED = bytes.fromhex("7268600d403fce431561aef583ee1613527cff655c1343f29812e66706df3234")
SECRET = bytes.fromhex("4612c550263fc8ad58375df3f557aac531d26850903e55a9f23f21d8534e8ac8")
PUBLIC = bytes.fromhex("3948cfe0ad1ddb695d780e59077195da6c56506b027329794ab02bca80815c4d")
ENCAPSULATED = bytes.fromhex("37fda3567bdbd628e88668c3c8d7e97d1d1253b6d4ea6d44c150f741f1bf4431")
TEXT = bytes.fromhex("4265617574792069732074727574682c20747275746820626561757479")
ABOUT = bytes.fromhex("436f756e742d30")
SEALED = bytes.fromhex(
    "f938558b5d72f1a23810b4be2ab4f84331acc02fc97babc53a52ae8218a355a96d8770ac83d07bea87e13c512a"
)
EXPORTED = bytes.fromhex("3853fe2b4035195a573ffc53856e77058e15d9ea064de3e59f4961d0095250ee")


def key_of(secret: bytes) -> X25519PrivateKey:
    return X25519PrivateKey.from_private_bytes(secret)


class TestPublishedAnswers:
    def test_the_sender(self):
        ephemeral = SUITE.kem.derive_key_pair(EPHEMERAL_SEED)
        recipient = KEMKey.from_pyca_cryptography_key(key_of(SECRET).public_key())
        encapsulated, context = SUITE.create_sender_context(recipient, info=INFO, eks=ephemeral)
        assert (encapsulated, context.seal(TEXT, aad=ABOUT)) == (ENCAPSULATED, SEALED)

    def test_the_recipient(self):
        assert key_of(SECRET).public_key().public_bytes_raw() == PUBLIC
        secret = KEMKey.from_pyca_cryptography_key(key_of(SECRET))
        context = SUITE.create_recipient_context(ENCAPSULATED, secret, INFO)
        assert context.open(SEALED, aad=ABOUT) == TEXT
        assert context.export(b"", 32) == EXPORTED


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_each_library_opens_what_the_other_sealed(plan):
    key = key_of(SystemBits().draw(32))
    ours, theirs = key.public_key(), KEMKey.from_pyca_cryptography_key(key.public_key())
    info = encryption_info(plan, 0)
    for content in contents_of(plan, upload(plan, 3, 1)):
        message = encrypt_message(content, public_key_of(ours.public_bytes_raw()), info)
        assert len(message) == message_bytes(plan) == len(content) + OVERHEAD
        secret = KEMKey.from_pyca_cryptography_key(key)
        context = SUITE.create_recipient_context(message[:KEY_BYTES], secret, info)
        assert context.open(message[KEY_BYTES:]) == content
        encapsulated, sender = SUITE.create_sender_context(theirs, info=info)
        assert decrypt_message(encapsulated + sender.seal(content), key, info) == content


@pytest.mark.parametrize(
    "change",
    [
        lambda key, info: (key_of(bytes(range(32))), info),
        lambda key, info: (key, encryption_info(COUNTS, 1)),
        lambda key, info: (key, encryption_info(WHOLE, 0)),
        lambda key, info: (key, b""),
    ],
    ids=["another key", "another window", "another plan", "no info"],
)
def test_a_message_opens_only_as_what_it_was_sealed_for(change):
    key, info = key_of(SystemBits().draw(32)), encryption_info(COUNTS, 0)
    message = encrypt_message(b"content", key.public_key(), info)
    assert decrypt_message(message, key, info) == b"content"
    other_key, other_info = change(key, info)
    with pytest.raises(ReportError):
        decrypt_message(message, other_key, other_info)
    secret = KEMKey.from_pyca_cryptography_key(other_key)
    context = SUITE.create_recipient_context(message[:KEY_BYTES], secret, other_info)
    with pytest.raises(OpenError):
        context.open(message[KEY_BYTES:])
