"""Requests of one party to another, over HTTP."""

from __future__ import annotations

import ssl
import time
from collections.abc import Mapping
from contextlib import suppress
from socket import SHUT_RDWR, socket
from typing import NamedTuple, Protocol

from shoal.errors import InputError, TransportError
from shoal.support.checks import is_loopback, shown
from shoal.support.connections import cut_off_at, network_errors, open_connection, parse_address

MAX_RESPONSE_BYTES = 16 << 20
"""Bytes of a response that are read before giving up: a certificate may be long."""


class PeerReply(NamedTuple):
    """What the other party answered; the names of headers are in small letters."""

    status: int
    headers: Mapping[str, str]
    content: bytes


class Peer(Protocol):
    """Brings requests to another party."""

    def ask(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> PeerReply:
        """Return the answer to a request; without one there is a `TransportError`."""
        ...

    def stop(self) -> None:
        """Cancel requests in progress: this party stops."""
        ...


class HttpPeer:
    """Reaches another party over HTTP, each request on a connection of its own."""

    def __init__(self, url: str, timeout: float, *, context: ssl.SSLContext | None = None) -> None:
        self._origin, path = parse_address(url)
        if self._origin.scheme == "http" and not is_loopback(self._origin.host):
            raise InputError(
                f"parties talk over https, got {shown(url)}; plain http is for this machine only."
            )
        self._path, self._timeout, self._context = path.rstrip("/"), timeout, context
        self._open: set[socket] = set()
        self._stopped = False

    def ask(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> PeerReply:
        if self._stopped:
            raise TransportError("this party is stopping.")
        deadline = time.monotonic() + self._timeout
        if self._origin.scheme == "https" and self._context is None:
            self._context = ssl.create_default_context()
        connection = open_connection(self._origin, self._context, deadline)
        wire = connection.sock
        self._open.add(wire)
        try:
            with network_errors(self._origin.host), cut_off_at(deadline, wire):
                connection.request(
                    method, self._path + path, body, {"Connection": "close", **headers}
                )
                with connection.getresponse() as response:
                    content = response.read(MAX_RESPONSE_BYTES + 1)
                    # A body that was cut off looks like one that ended.
                    if response.length or len(content) > MAX_RESPONSE_BYTES:
                        raise TransportError("the answer is too long, or cut off.")
                    found = {name.lower(): text for name, text in response.getheaders()}
                    return PeerReply(response.status, found, content)
        finally:
            self._open.discard(wire)
            connection.close()

    def stop(self) -> None:
        self._stopped = True
        for wire in list(self._open):
            with suppress(OSError):
                socket.shutdown(wire, SHUT_RDWR)
