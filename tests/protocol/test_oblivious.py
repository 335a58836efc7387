"""Binary HTTP and Oblivious HTTP: the test vectors of RFC 9180, 9292 and 9458, and damage."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyhpke import AEADId, CipherSuite, KDFId, KEMId, KEMKeyPair

from shoal.errors import InputError, ReportError
from shoal.protocol.oblivious import (
    OVERHEAD,
    BinaryRequest,
    BinaryResponse,
    GatewayKey,
    KeyConfiguration,
)
from tests.strategies import bounded

HEX = bytes.fromhex
SUITE = CipherSuite.new(KEMId.DHKEM_X25519_HKDF_SHA256, KDFId.HKDF_SHA256, AEADId.AES128_GCM)

# RFC 9458, appendix A
SECRET = HEX("3c168975674b2fa8e465970b79c8dcf09f1c741626480bd4c6162fc5b6a98e1a")
CONFIGURATION = HEX(
    "01002031e1f05a740102115220e9af918f738674aec95f54db6e04eb705aae8e79815500080001000100010003"
)
REQUEST = HEX("00034745540568747470730b6578616d706c652e636f6d012f")
EPHEMERAL = HEX("bc51d5e930bda26589890ac7032f70ad12e4ecb37abb1b65b1256c9c48999c73")
ENCRYPTED_REQUEST = HEX(
    "010020000100014b28f881333e7c164ffc499ad9796f877f4e1051ee6d31bad19dec96c208b472"
    "6374e469135906992e1268c594d2a10c695d858c40a026e7965e7d86b83dd440b2c0185204b4d63525"
)
NONCE = HEX("c789e7151fcba46158ca84b04464910d")
ENCRYPTED_RESPONSE = HEX("c789e7151fcba46158ca84b04464910d86f9013e404feea014e7be4a441f234f857fbd")


def key_pair(secret: bytes) -> KEMKeyPair:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    public = X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()
    kem = SUITE.kem
    return KEMKeyPair(kem.deserialize_private_key(secret), kem.deserialize_public_key(public))


class TestKnownAnswers:
    def test_hpke_with_pyhpke(self):
        """RFC 9180, appendix A.1.1: base mode, X25519, HKDF-SHA256, AES-128-GCM."""
        info = HEX("4f6465206f6e2061204772656369616e2055726e")
        receiver = key_pair(HEX("4612c550263fc8ad58375df3f557aac531d26850903e55a9f23f21d8534e8ac8"))
        sender = key_pair(HEX("52c4a758a802cd8b936eceea314432798d5baf2d7e9235dc084ab1b9cfa2f736"))
        encapsulated, context = SUITE.create_sender_context(receiver.public_key, info, eks=sender)
        assert encapsulated.hex() == (
            "37fda3567bdbd628e88668c3c8d7e97d1d1253b6d4ea6d44c150f741f1bf4431"
        )
        text = HEX("4265617574792069732074727574682c20747275746820626561757479")
        encrypted = context.seal(text, b"Count-0")
        assert encrypted.hex() == (
            "f938558b5d72f1a23810b4be2ab4f84331acc02fc97babc53a52ae8218a355a9"
            "6d8770ac83d07bea87e13c512a"
        )
        other = SUITE.create_recipient_context(encapsulated, receiver.private_key, info)
        assert other.open(encrypted, b"Count-0") == text
        for context_text, value in (
            (b"", "3853fe2b4035195a573ffc53856e77058e15d9ea064de3e59f4961d0095250ee"),
            (b"\0", "2e8f0b54673c7029649d4eb9d5e33bf1872cf76d623ff164ac185da9e88c21a5"),
            (b"TestContext", "e9e43065102c3836401bed8c3c3c75ae46be1639869391d62c61f1ec7af54931"),
        ):
            assert context.export(context_text, 32).hex() == value
            assert other.export(context_text, 32).hex() == value

    def test_oblivious_http(self):
        """RFC 9458, appendix A: a request and its response."""
        key, gateway = KeyConfiguration.from_bytes(CONFIGURATION), GatewayKey(SECRET, 1)
        assert gateway.configuration == key
        encrypted, client = key.encrypt(REQUEST, ephemeral=key_pair(EPHEMERAL))
        assert encrypted == ENCRYPTED_REQUEST
        assert len(encrypted) == len(REQUEST) + OVERHEAD
        opened, server = gateway.decrypt(ENCRYPTED_REQUEST)
        assert opened == REQUEST
        assert server.encrypt(HEX("0140c8"), nonce=NONCE) == ENCRYPTED_RESPONSE
        assert client.decrypt(ENCRYPTED_RESPONSE) == HEX("0140c8")

    def test_binary_http(self):
        """The messages of RFC 9458; RFC 9292 lets what is empty at the end be left out."""
        request = BinaryRequest.from_bytes(REQUEST)
        assert request == BinaryRequest("GET", "https", "example.com", "/")
        assert request.to_bytes() == REQUEST + bytes(3)
        assert BinaryResponse.from_bytes(HEX("0140c8")) == BinaryResponse(200)


class TestBinaryHttp:
    @given(
        st.text("abcdefghijklmnopqrstuvwxyz/0123456789", max_size=80),
        st.dictionaries(st.binary(min_size=1, max_size=70).map(bytes.lower), st.binary(max_size=90),
                        max_size=4),
        st.binary(max_size=20_000),
        st.integers(0, 400),
    )  # fmt: skip
    @bounded(60)
    def test_round_trip(self, path: str, headers: dict[bytes, bytes], body: bytes, padding: int):
        request = BinaryRequest("POST", "https", "collector.example", path, headers, body)
        plain = request.to_bytes()
        assert BinaryRequest.from_bytes(request.to_bytes(len(plain) + padding)) == request
        response = BinaryResponse(202, headers, body)
        assert BinaryResponse.from_bytes(response.to_bytes(len(plain) + padding)) == response

    @given(st.binary(max_size=200))
    @bounded(300)
    def test_only_our_error_comes_out(self, content: bytes):
        for kind in (BinaryRequest, BinaryResponse):
            for first in (b"", b"\0", b"\1\x40\xc8"):
                with contextlib.suppress(ReportError):
                    kind.from_bytes(first + content)

    @pytest.mark.parametrize(
        "damaged",
        [
            HEX("02"),  # of unknown length
            HEX("0140641234"),  # an informational response
            BinaryRequest("GET", "https", "a", "/").to_bytes() + b"\1",  # something in the padding
            BinaryRequest("GET", "https", "a", "/").to_bytes()[:-1] + HEX("0201410142"),  # trailers
            HEX("0003474554ff"),  # a length of eight bytes, cut off
            HEX("0003474554") + HEX("c0ffffffffffffff"),  # a length that nothing has
        ],
    )
    def test_damaged(self, damaged: bytes):
        for kind in (BinaryRequest, BinaryResponse):
            with pytest.raises(ReportError):
                kind.from_bytes(damaged)

    def test_headers_are_few_and_different(self):
        many = {b"h%d" % i: b"" for i in range(17)}
        with pytest.raises(ReportError):
            BinaryResponse.from_bytes(BinaryResponse(200, many).to_bytes())
        twice = BinaryResponse(200, {b"A": b"1", b"a": b"2"}).to_bytes()
        with pytest.raises(ReportError):
            BinaryResponse.from_bytes(twice)


class TestObliviousHttp:
    def test_lists_of_keys(self):
        key = GatewayKey(SECRET, 7).configuration
        other_suite = HEX("0029") + HEX("010010") + bytes(38)
        assert KeyConfiguration.read_list(other_suite + key.to_list())[0] == key
        for bad in (b"", b"\0", HEX("0029") + bytes(10), other_suite, key.to_list()[:-1]):
            with pytest.raises(InputError):
                KeyConfiguration.read_list(bad)[0]

    @given(st.binary(max_size=120))
    @bounded(100)
    def test_only_our_errors_come_out(self, content: bytes):
        gateway = GatewayKey(SECRET, 1)
        for encrypted in (content, gateway.configuration.header + content):
            with pytest.raises(ReportError):
                gateway.decrypt(encrypted)
        _, exchange = gateway.configuration.encrypt(b"request")
        with pytest.raises(ReportError):
            exchange.decrypt(content)
        with contextlib.suppress(InputError):
            KeyConfiguration.read_list(content)[0]

    def test_every_message_is_new_and_a_response_is_for_one_request(self):
        gateway = GatewayKey(SECRET, 1)
        (first, mine), (second, other) = (gateway.configuration.encrypt(REQUEST) for _ in range(2))
        assert first != second
        _, exchange = gateway.decrypt(first)
        response = exchange.encrypt(b"202")
        assert response != exchange.encrypt(b"202")
        assert mine.decrypt(response) == b"202"
        with pytest.raises(ReportError):
            other.decrypt(response)

    def test_a_damaged_request_is_not_opened(self):
        gateway = GatewayKey(SECRET, 1)
        for place in (0, 3, 6, 10, len(ENCRYPTED_REQUEST) - 1):
            damaged = bytearray(ENCRYPTED_REQUEST)
            damaged[place] ^= 1
            with pytest.raises(ReportError):
                gateway.decrypt(bytes(damaged))
