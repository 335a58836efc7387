"""Connections: nobody's address is kept, and nobody may keep one busy for long.

There is room for so many connections. When it is full and one more comes, the one that has kept us
waiting longest goes: a request that comes at once always finds room, however many come slowly.

uvicorn has no public hook for any of this, so its protocol is derived from. What of it is used here
is listed in `tests/server/test_connections.py`, which says what changed when a version is new.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from shoal.server.core import problems
from shoal.server.core.ingest import Sender
from shoal.server.core.problems import Problem

__all__ = ["Connection", "Door", "close_slow_ones"]

LARGEST_HEAD = 64 << 10
"""Bytes that the address and the headers of a request may have together."""

MOST_WAITING = 16
"""Requests that may wait on a connection for the answer to an earlier one."""

_HEADER_COST = 32
_LINGER = 1.0
_MOST_DROPPED = 1 << 20
_MOST_REFUSED = 100


class Door:
    """The connections of one listener that we wait for, the longest wait first.

    `refused` is called with each problem that ends a connection.
    """

    def __init__(self, refused: Callable[[Problem], None] = lambda problem: None) -> None:
        self._waiting: dict[Connection, None] = {}
        self.refused = refused

    def begins(self, connection: Connection) -> None:
        """Begin to wait for a request or its rest, behind all the others."""
        self._waiting.pop(connection, None)
        self._waiting[connection] = None

    def ends(self, connection: Connection) -> None:
        """End a wait: the request is whole, or the connection is gone."""
        self._waiting.pop(connection, None)

    def make_room(self) -> bool:
        """End the connection that we have waited for longest; whether there was one."""
        if not self._waiting:
            return False
        slowest = next(iter(self._waiting))
        del self._waiting[slowest]
        self.refused(problems.CROWDED)
        slowest.transport.abort()
        return True


class Connection(HttpToolsProtocol):
    """One connection, without its address and with an eye on how long its request takes."""

    door: Door
    """The listener's; each has a class of its own, from `at`."""

    waiting_since: float | None
    """Since when the connection owes a request, or the rest of one."""

    @classmethod
    def at(cls, door: Door) -> type[Connection]:
        """Return the class of the connections of one listener."""
        return type(cls.__name__, (cls,), {"door": door})

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin a connection."""
        super().connection_made(transport)
        self.client = None
        self.waiting_since = self.loop.time()
        self._head = self._heard = self._silent = 0
        self._unread, self._unread_since = 0, self.loop.time()
        self._ended, self._dropped = False, 0
        self._hung_up = asyncio.Event()
        self._unanswered: deque[Any] = deque()
        self._sender = Sender()
        most, self.limit_concurrency = self.config.limit_concurrency, None
        if most is not None and len(self.connections) > most and not self.door.make_room():
            self._end(problems.CROWDED)
            if len(self.connections) > most + _MOST_REFUSED:
                transport.abort()
            return
        self.door.begins(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """End a connection."""
        self._hung_up.set()
        self.door.ends(self)
        # uvicorn tells the last request only; an earlier one would write to a closed connection.
        for cycle in self._unanswered:
            cycle.disconnected = True
            cycle.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what came."""
        if self._ended:
            self._dropped += len(data)
            if self._dropped > _MOST_DROPPED:
                self.transport.pause_reading()
            return
        if self.waiting_since is None and (self.cycle is None or self.cycle.response_complete):
            self.waiting_since = self.loop.time()  # an empty line is not yet a request
        heard = self._heard
        super().data_received(data)
        # The parser keeps the part of a header that has come and says nothing until it ends.
        self._silent = self._silent + len(data) if heard == self._heard else 0
        if self._silent > LARGEST_HEAD and not self._ended:
            self._end(problems.HEAD_TOO_LARGE)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Whether to stay, because the other side sends no more but has an answer to come."""
        self._hung_up.set()
        last = self.cycle
        if self._ended or last is None or last.response_complete or last.more_body:
            return False
        last.keep_alive = False
        return True

    def on_message_begin(self) -> None:
        """Begin a request."""
        super().on_message_begin()
        self.scope["state"] |= {"sender": self._sender, "hung_up": self._hung_up}
        self.waiting_since = self.loop.time()
        self.door.begins(self)
        self._head = 0
        self._heard += 1

    def on_url(self, url: bytes) -> None:
        """Take a part of the address."""
        super().on_url(url)
        self._grow(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""
        super().on_header(name, value)
        self._grow(len(name) + len(value) + _HEADER_COST)

    def on_headers_complete(self) -> None:
        """Begin to answer, or let the request wait for its turn."""
        super().on_headers_complete()
        self._unanswered.append(self.cycle)
        if len(self.pipeline) > MOST_WAITING:
            raise ValueError("too many requests wait")  # ends the parsing

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        super().on_body(body)
        self._heard += 1

    def on_message_complete(self) -> None:
        """End a request."""
        super().on_message_complete()
        self.waiting_since = None
        self._heard += 1
        if self.cycle.response_complete:  # it was answered before it was whole
            self.door.begins(self)
        else:
            self.door.ends(self)

    def on_response_complete(self) -> None:
        """End an answer, and wait for the next request."""
        self._unanswered.popleft()
        super().on_response_complete()
        if self.pipeline or not self.cycle.response_complete or self.transport.is_closing():
            return
        self.door.begins(self)
        if self.cycle.more_body:  # what is refused before it is whole is not read to its end
            self._linger()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP, or too much of it."""
        self._end(problems.HEAD_TOO_LARGE if self._head > LARGEST_HEAD else problems.BAD_REQUEST)

    def is_stuck(self, patience: float) -> bool:
        """Whether the other side has neither sent what it owes nor read what it got."""
        now = self.loop.time()
        if self.waiting_since is not None and now - self.waiting_since > patience:
            return True
        unread = self.transport.get_write_buffer_size()
        if unread != self._unread:
            self._unread, self._unread_since = unread, now
        return unread > 0 and now - self._unread_since > patience

    def _grow(self, count: int) -> None:
        self._heard += 1
        self._head += count
        if self._head > LARGEST_HEAD:
            raise ValueError("the head is too large")  # ends the parsing

    def _end(self, problem: Problem) -> None:
        """Say a last thing, if it cannot be taken for the answer to an earlier request."""
        self.door.refused(problem)
        last = self.cycle
        if last is not None and not last.response_complete:
            if self.pipeline or last.response_started or not last.more_body:
                self._ended = True
                self.transport.abort()
                return
            last.disconnected = True
            last.message_event.set()
        self.transport.write(problem.last_words)
        self._linger()

    def _linger(self) -> None:
        """Say no more, and throw away what still comes, until the other side has our answer."""
        self._ended = True
        # Closed at once, the system would take the answer back while the other side still sends.
        self.transport.write_eof()
        self.loop.call_later(_LINGER, self.transport.abort)


def close_slow_ones(connections: set[Any], patience: float) -> None:
    """Close the connections whose other side has let us wait for too long."""
    for connection in list(connections):
        if connection.is_stuck(patience):
            connection.door.refused(problems.TOO_SLOW)
            connection.transport.abort()
