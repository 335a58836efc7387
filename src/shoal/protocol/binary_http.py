"""Binary HTTP (RFC 9292), in the form with known lengths: a request or a response in one piece.

Only what reports need is written and read: no informational responses, no trailers, few headers.
Zeros may follow a message, so that all messages of a kind are equally long.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from shoal.errors import ReportError

__all__ = ["BinaryRequest", "BinaryResponse"]

_REQUEST, _RESPONSE = 0, 1
"""How a message with known lengths begins."""

MOST_HEADERS = 16


@dataclass(frozen=True)
class BinaryRequest:
    """A request: its method, where it goes, a few headers and a body.

    >>> request = BinaryRequest("GET", "https", "example.com", "/")
    >>> request.to_bytes().hex()
    '00034745540568747470730b6578616d706c652e636f6d012f000000'
    >>> BinaryRequest.from_bytes(request.to_bytes(100)) == request
    True
    """

    method: str
    scheme: str
    authority: str
    path: str
    headers: dict[bytes, bytes] = field(default_factory=dict)
    body: bytes = b""

    def to_bytes(self, length: int = 0) -> bytes:
        """Return the message, with zeros up to a length."""
        control = (self.method, self.scheme, self.authority, self.path)
        parts = [_number(_REQUEST), *(_text(text.encode("ascii")) for text in control)]
        return _finished(parts, self.headers, self.body, length)

    @classmethod
    def from_bytes(cls, content: bytes) -> BinaryRequest:
        """Read a message; anything else raises `ReportError`."""
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
    """A response: its status, a few headers and a body.

    >>> BinaryResponse(200).to_bytes().hex()
    '0140c8000000'
    >>> BinaryResponse.from_bytes(bytes.fromhex("0140c8")).status
    200
    """

    status: int
    headers: dict[bytes, bytes] = field(default_factory=dict)
    body: bytes = b""

    def to_bytes(self, length: int = 0) -> bytes:
        """Return the message, with zeros up to a length."""
        return _finished(
            [_number(_RESPONSE), _number(self.status)], self.headers, self.body, length
        )

    @classmethod
    def from_bytes(cls, content: bytes) -> BinaryResponse:
        """Read a message; anything else raises `ReportError`."""
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
    """Reads a message from its beginning; it never looks further than the message is long."""

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
            if name in headers or len(headers) == MOST_HEADERS:
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
