"""Oblivious HTTP (RFC 9458) and the binary HTTP (RFC 9292) inside it.

A relay forwards a request that only the gateway can decrypt. The suite is X25519, HKDF-SHA256 and
AES-128-GCM. Both ends derive the response's key from the request, which needs HPKE's exporter:
`pyhpke` has it.

This hides a sender's address from the gateway, as long as all senders use the same key and the
relay keeps addresses to itself. The relay forwards each request at once, without shuffling.

Of binary HTTP, only messages with known lengths are written and read: no informational responses,
no trailers, few headers. Zeros may follow a message, so that all messages have one length.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from shoal.errors import InputError, ReportError
from shoal.protocol.encryption import AEAD, KDF, KEM, exporting_suite
from shoal.protocol.random_bits import SystemBits

if TYPE_CHECKING:
    from pyhpke import CipherSuite, ContextInterface


KEYS_TYPE = "application/ohttp-keys"
REQUEST_TYPE = "message/ohttp-req"
RESPONSE_TYPE = "message/ohttp-res"

KEY_BYTES, NONCE_BYTES, SECRET_BYTES = 32, 12, 16
OVERHEAD = 7 + KEY_BYTES + 16
"""Bytes that encryption adds to a request: its header, the encapsulated key and the tag."""
MAX_LIST = 4096
"""The maximum size of a list of keys, in bytes."""

_HEADER = struct.Struct(">BHHH")
_REQUEST_LABEL, _RESPONSE_LABEL = b"message/bhttp request", b"message/bhttp response"


def _undecryptable() -> ReportError:
    return ReportError("this was not encrypted for this key of Oblivious HTTP.")


def _suite() -> CipherSuite:
    return exporting_suite("Oblivious HTTP")


@dataclass(frozen=True)
class KeyConfiguration:
    """The public key of a gateway and its number."""

    number: int
    public_key: bytes

    @property
    def header(self) -> bytes:
        return _HEADER.pack(self.number, KEM, KDF, AEAD)

    def to_bytes(self) -> bytes:
        """Return the key configuration (RFC 9458, section 3.1)."""
        return (
            struct.pack(">BH", self.number, KEM)
            + self.public_key
            + struct.pack(">HHH", 4, KDF, AEAD)
        )

    def to_list(self) -> bytes:
        """Return a list with this one key; lists are joined by concatenation."""
        content = self.to_bytes()
        return struct.pack(">H", len(content)) + content

    @classmethod
    def from_bytes(cls, content: bytes) -> KeyConfiguration:
        """Read one key configuration that allows the suite."""
        head = 3 + KEY_BYTES
        if len(content) < head + 6 or content[1:3] != struct.pack(">H", KEM):
            raise InputError("this key of Oblivious HTTP is for another suite.")
        (length,) = struct.unpack_from(">H", content, head)
        suites = content[head + 2 :]
        if length != len(suites) or length % 4:
            raise InputError("this is no key configuration of Oblivious HTTP.")
        if struct.pack(">HH", KDF, AEAD) not in {suites[i : i + 4] for i in range(0, length, 4)}:
            raise InputError("this key of Oblivious HTTP is for another suite.")
        return cls(content[0], content[3:head])

    @classmethod
    def read_list(cls, content: bytes) -> list[KeyConfiguration]:
        """Return the usable keys of a list, in order; there is at least one."""
        if len(content) > MAX_LIST:
            raise InputError(f"a list of Oblivious HTTP keys has at most {MAX_LIST} bytes.")
        at, keys = 0, []
        problem = InputError("this is not a list of Oblivious HTTP keys.")
        while at + 2 <= len(content):
            (length,) = struct.unpack_from(">H", content, at)
            one = content[at + 2 : at + 2 + length]
            at += 2 + length
            if len(one) < length:
                break
            try:
                keys.append(cls.from_bytes(one))
            except InputError as error:
                problem = error
        if not keys:
            raise problem
        return keys

    def encrypt(self, request: bytes, *, ephemeral: Any = None) -> tuple[bytes, Exchange]:
        """Encrypt a request; return it and the exchange that decrypts its response."""
        key = _suite().kem.deserialize_public_key(self.public_key)
        info = _REQUEST_LABEL + b"\0" + self.header
        encapsulated, context = _suite().create_sender_context(key, info, eks=ephemeral)
        encrypted = self.header + encapsulated + context.seal(request)
        return encrypted, Exchange(context, encapsulated)


class GatewayKey:
    """Decrypts requests with a private key of 32 bytes."""

    def __init__(self, private_key: bytes, number: int | None = None) -> None:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        self._key = _suite().kem.deserialize_private_key(private_key)
        public = X25519PrivateKey.from_private_bytes(private_key).public_key().public_bytes_raw()
        self.configuration = KeyConfiguration(public[0] if number is None else number, public)

    def knows(self, encrypted: bytes) -> bool:
        return encrypted.startswith(self.configuration.header)

    def decrypt(self, encrypted: bytes) -> tuple[bytes, Exchange]:
        """Decrypt a request; return it and the exchange that encrypts its response."""
        from pyhpke import PyHPKEError

        if not self.knows(encrypted) or len(encrypted) < OVERHEAD:
            raise _undecryptable()
        encapsulated, ciphertext = encrypted[7 : 7 + KEY_BYTES], encrypted[7 + KEY_BYTES :]
        info = _REQUEST_LABEL + b"\0" + self.configuration.header
        try:
            context = _suite().create_recipient_context(encapsulated, self._key, info)
            return context.open(ciphertext), Exchange(context, encapsulated)
        except (PyHPKEError, ValueError) as error:
            raise _undecryptable() from error


@dataclass(frozen=True)
class Exchange:
    """One request and its response, at either end (RFC 9458, section 4.4)."""

    context: ContextInterface
    encapsulated: bytes

    def encrypt(self, response: bytes, *, nonce: bytes | None = None) -> bytes:
        """Encrypt the response for the sender of the request."""
        nonce = SystemBits().draw(SECRET_BYTES) if nonce is None else nonce
        cipher, iv = self._cipher(nonce)
        encrypted: bytes = cipher.encrypt(iv, response, None)
        return nonce + encrypted

    def decrypt(self, encrypted: bytes) -> bytes:
        """Decrypt the response; anything else raises `ReportError`."""
        from cryptography.exceptions import InvalidTag

        if len(encrypted) < 2 * SECRET_BYTES:
            raise _undecryptable()
        cipher, iv = self._cipher(encrypted[:SECRET_BYTES])
        try:
            opened: bytes = cipher.decrypt(iv, encrypted[SECRET_BYTES:], None)
        except InvalidTag as error:
            raise _undecryptable() from error
        return opened

    def _cipher(self, nonce: bytes) -> tuple[Any, bytes]:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.hmac import HMAC
        from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

        extract = HMAC(self.encapsulated + nonce, SHA256())
        extract.update(self.context.export(_RESPONSE_LABEL, SECRET_BYTES))
        drawn = extract.finalize()
        key = HKDFExpand(SHA256(), SECRET_BYTES, b"key").derive(drawn)
        return AESGCM(key), HKDFExpand(SHA256(), NONCE_BYTES, b"nonce").derive(drawn)


_REQUEST, _RESPONSE = 0, 1
"""How a message with known lengths begins."""

MAX_HEADERS = 16


@dataclass(frozen=True)
class BinaryRequest:
    """A request: its method, where it goes, a few headers and a body."""

    method: str
    scheme: str
    authority: str
    path: str
    headers: dict[bytes, bytes] = field(default_factory=dict)
    body: bytes = b""

    def to_bytes(self, length: int = 0) -> bytes:
        control = (self.method, self.scheme, self.authority, self.path)
        parts = [_number(_REQUEST), *(_text(text.encode("ascii")) for text in control)]
        return _finished(parts, self.headers, self.body, length)

    @classmethod
    def from_bytes(cls, content: bytes) -> BinaryRequest:
        reader = _Reader(content)
        if reader.number() != _REQUEST:
            raise _malformed()
        try:
            method, scheme, authority, path = (reader.text().decode("ascii") for _ in range(4))
        except UnicodeDecodeError:
            raise _malformed() from None
        return cls(method, scheme, authority, path, *reader.rest())


@dataclass(frozen=True)
class BinaryResponse:
    """A response: its status, a few headers and a body."""

    status: int
    headers: dict[bytes, bytes] = field(default_factory=dict)
    body: bytes = b""

    def to_bytes(self, length: int = 0) -> bytes:
        return _finished(
            [_number(_RESPONSE), _number(self.status)], self.headers, self.body, length
        )

    @classmethod
    def from_bytes(cls, content: bytes) -> BinaryResponse:
        reader = _Reader(content)
        if reader.number() != _RESPONSE:
            raise _malformed()
        status = reader.number()
        if not 200 <= status <= 599:
            raise _malformed()
        return cls(status, *reader.rest())


def _malformed() -> ReportError:
    return ReportError("this is no message in binary HTTP with known lengths.")


def _number(value: int) -> bytes:
    """Return a whole number in as few of 1, 2, 4 or 8 bytes as hold it (RFC 9000, section 16)."""
    for power in range(4):
        size = 1 << power
        if value < 1 << 8 * size - 2:
            return (value | power << 8 * size - 2).to_bytes(size)
    raise ValueError(f"{value} is too large for binary HTTP.")


def _text(content: bytes) -> bytes:
    return _number(len(content)) + content


def _finished(parts: list[bytes], headers: dict[bytes, bytes], body: bytes, length: int) -> bytes:
    lines = b"".join(_text(name) + _text(value) for name, value in headers.items())
    message = b"".join((*parts, _text(lines), _text(body), _number(0)))
    return message.ljust(length, b"\0")


class _Reader:
    def __init__(self, content: bytes) -> None:
        self._content, self._at = content, 0

    def _take(self, count: int) -> bytes:
        taken = self._content[self._at : self._at + count]
        if len(taken) < count:
            raise _malformed()
        self._at += count
        return taken

    def number(self) -> int:
        first = self._take(1)[0]
        rest = self._take((1 << (first >> 6)) - 1)
        return int.from_bytes(bytes([first & 63]) + rest)

    def text(self) -> bytes:
        return self._take(self.number())

    def rest(self) -> tuple[dict[bytes, bytes], bytes]:
        """Return headers and body; what ends early has none of either (RFC 9292, section 3.8)."""
        headers: dict[bytes, bytes] = {}
        lines = _Reader(self.text() if self._more else b"")
        while lines._more:
            name, value = lines.text().lower(), lines.text()
            if name in headers or len(headers) == MAX_HEADERS:
                raise _malformed()
            headers[name] = value
        body = self.text() if self._more else b""
        if self._more and self.text():
            raise _malformed()  # trailers
        if any(self._content[self._at :]):
            raise _malformed()
        return headers, body

    @property
    def _more(self) -> bool:
        return self._at < len(self._content)
