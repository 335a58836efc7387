"""Connections: nobody's address is kept, and nobody may keep one busy for long."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["Connection", "close_slow_ones"]

LARGEST_HEAD = 64 << 10
"""Bytes that the address and the headers of a request may have together."""


class Connection(HttpToolsProtocol):
    """One connection, without its address and with an eye on how long its request takes."""

    waiting_since: float | None
    """Since when the connection owes a request, or the rest of one."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin a connection."""
        super().connection_made(transport)
        self.client = None
        self.waiting_since = self.loop.time()
        self._head = 0

    def on_message_begin(self) -> None:
        """Begin a request."""
        super().on_message_begin()
        self.waiting_since = self.loop.time()
        self._head = 0

    def on_url(self, url: bytes) -> None:
        """Take a part of the address."""
        super().on_url(url)
        self._grow(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""
        super().on_header(name, value)
        self._grow(len(name) + len(value))

    def on_message_complete(self) -> None:
        """End a request."""
        super().on_message_complete()
        self.waiting_since = None

    def _grow(self, count: int) -> None:
        self._head += count
        if self._head > LARGEST_HEAD:
            self.transport.abort()


def close_slow_ones(connections: set[Any], patience: float) -> None:
    """Close the connections that have owed a request for too long."""
    for connection in list(connections):
        since = connection.waiting_since
        if since is not None and connection.loop.time() - since > patience:
            connection.transport.abort()
