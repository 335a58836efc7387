"""An HTTP/1.1 server for ASGI apps that records no address and bounds every wait.

It parses with httptools and adds what no server offers as public API: it never reads the client's
address, it limits how long and how much a connection may owe, and when all connections are taken it
closes the one that has kept it waiting longest. So a request that arrives at once always finds
room. See `docs/decisions/0012-http-server.md`.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections import deque
from collections.abc import Callable, MutableMapping
from http import HTTPStatus
from typing import Any, cast
from urllib.parse import unquote

import httptools

from shoal.server.core import problems
from shoal.server.core.http import App, Scope
from shoal.server.core.observability import LOG
from shoal.server.core.problems import Problem

MAX_HEAD = 64 << 10
"""Bytes of a request's URL and headers together."""
MAX_PIPELINED = 16
"""Requests of a connection that may wait for the response to an earlier one."""
KEEP_ALIVE = 10.0
"""Seconds that an idle connection stays open."""

_HIGH_WATER = 64 << 10
_HEADER_COST = 32
_LINGER = 1.0
_MAX_DROPPED = 1 << 20
_MAX_REFUSED = 100
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}
_ASGI = {"version": "3.0", "spec_version": "2.3"}


class HttpServer:
    """Serves an ASGI app on a socket.

    The state of a request's scope has `connection`, a dictionary that lives as long as the
    connection, and `hung_up`, an event that is set when the client has gone. A request must arrive
    within `timeout` seconds, and its response must be read within the same time. `refused` is
    called with each problem that ends a connection.
    """

    def __init__(
        self,
        app: App,
        *,
        max_connections: int,
        timeout: float,
        refused: Callable[[Problem], None] = lambda problem: None,
    ) -> None:
        self.app, self.max_connections, self._timeout = app, max_connections, timeout
        self.refused = refused
        self.connections: set[HttpConnection] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self._waiting: dict[HttpConnection, None] = {}
        """Connections that owe a request or its rest, or do not read, the longest wait first."""

    async def start(self, bound: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: HttpConnection(self, loop), sock=bound, backlog=4096
        )
        self._watching = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(1)
            for connection in list(self.connections):
                connection.check(self._timeout)

    async def stop(self, timeout: float) -> None:
        """Accept no more connections, finish the requests under way, and close everything."""
        self._server.close()
        for connection in list(self.connections):
            connection.finish()
        deadline = asyncio.get_running_loop().time() + timeout
        while (self.connections or self.tasks) and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.05)
        if self.tasks:
            LOG.error("requests were cancelled", extra={"facts": {"requests": len(self.tasks)}})
        for task in (*self.tasks, self._watching):
            task.cancel()
        await asyncio.wait((*self.tasks, self._watching), timeout=1)
        for connection in list(self.connections):
            connection.transport.abort()

    def begin_wait(self, connection: HttpConnection) -> None:
        """Start to wait for a client, behind all other connections."""
        self._waiting.pop(connection, None)
        self._waiting[connection] = None

    def end_wait(self, connection: HttpConnection) -> None:
        """Stop waiting: it is our turn, or the connection has closed."""
        self._waiting.pop(connection, None)

    def make_room(self) -> bool:
        """Abort the connection with the longest wait; return whether there was one."""
        if not self._waiting:
            return False
        slowest = next(iter(self._waiting))
        del self._waiting[slowest]
        self.refused(problems.CROWDED)
        slowest.transport.abort()
        return True


class HttpConnection(asyncio.Protocol):
    transport: asyncio.Transport

    def __init__(self, server: HttpServer, loop: asyncio.AbstractEventLoop) -> None:
        self._server, self._loop = server, loop
        self._parser = httptools.HttpRequestParser(self)
        self._queue: deque[_Exchange] = deque()  # the first is being responded to
        self._current: _Exchange | None = None  # the last one whose head has arrived
        self.waiting_since: float | None = loop.time()
        """Since when the client owes a request, or the rest of one."""
        self._idle_since: float | None = None
        self._head = self._events = self._silent = 0
        self._unread, self._unread_since = 0, loop.time()
        self._ended, self._dropped = False, 0
        self._hung_up = asyncio.Event()
        self._state = {"connection": dict[str, Any](), "hung_up": self._hung_up}
        self._reading_paused = False
        self.writable = asyncio.Event()
        self.writable.set()

    # Of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        connections, limit = self._server.connections, self._server.max_connections
        connections.add(self)
        if len(connections) > limit and not self._server.make_room():
            self._refuse(problems.CROWDED)
            if len(connections) > limit + _MAX_REFUSED:
                self.transport.abort()
            return
        self._server.begin_wait(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.discard(self)
        self._server.end_wait(self)
        self._hung_up.set()
        self.writable.set()
        for exchange in self._queue:
            exchange.disconnect()

    def data_received(self, data: bytes) -> None:
        if self._ended:
            self._dropped += len(data)
            if self._dropped > _MAX_DROPPED:
                self.transport.pause_reading()
            return
        self._idle_since = None
        if self.waiting_since is None and not self._queue:
            self.waiting_since = self._loop.time()  # an empty line is not yet a request
        events = self._events
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._end_input()
        except httptools.HttpParserError:
            last = self._current
            if last is not None and not last.keep_alive and not last.more_body:
                self._end_input()  # it said that nothing follows
            else:
                too_large = self._head > MAX_HEAD
                self._refuse(problems.HEAD_TOO_LARGE if too_large else problems.BAD_REQUEST)
            return
        # The parser holds an incomplete header back and reports nothing until it ends.
        self._silent = self._silent + len(data) if events == self._events else 0
        if self._silent > MAX_HEAD and not self._ended:
            self._refuse(problems.HEAD_TOO_LARGE)

    def eof_received(self) -> bool:
        """Return whether to keep the connection, because a response is still to be sent."""
        self._hung_up.set()
        if self._ended or not self._queue or self._queue[-1].more_body:
            return False
        self._queue[-1].keep_alive = False
        return True

    def pause_writing(self) -> None:
        # The client does not read its responses.
        self.writable.clear()
        self._server.begin_wait(self)

    def resume_writing(self) -> None:
        self.writable.set()
        if self._queue and self.waiting_since is None:
            self._server.end_wait(self)

    # Of the parser

    def on_message_begin(self) -> None:
        self._url, self._headers, self._expects_continue = b"", list[tuple[bytes, bytes]](), False
        self.waiting_since = self._loop.time()
        self._server.begin_wait(self)
        self._head = 0
        self._events += 1

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._grow(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self._expects_continue = True
        self._headers.append((name, value))
        self._grow(len(name) + len(value) + _HEADER_COST)

    def on_headers_complete(self) -> None:
        """Start to respond, or queue the request behind earlier ones."""
        parser = self._parser
        url = httptools.parse_url(self._url)
        if url.path is None:
            raise ValueError("the request has no path")  # ends the parsing
        path = url.path.decode("ascii")
        version = parser.get_http_version()
        scope = {
            "type": "http",
            "asgi": _ASGI,
            "http_version": version,
            "method": parser.get_method().decode("ascii"),
            "scheme": "http",
            "path": unquote(path) if "%" in path else path,
            "raw_path": url.path,
            "query_string": url.query or b"",
            "root_path": "",
            "headers": self._headers,
            "client": None,
            "server": None,
            "state": self._state.copy(),
        }
        keep_alive = version != "1.0" and parser.should_keep_alive()
        exchange = _Exchange(self, scope, keep_alive, self._expects_continue)
        self._current = exchange
        self._headers = []  # trailers are not headers: a proxy may have checked only these
        self._queue.append(exchange)
        if len(self._queue) == 1:
            self._start(exchange)
            return
        self.pause_reading()
        if len(self._queue) - 1 > MAX_PIPELINED:
            raise ValueError("too many pipelined requests")  # ends the parsing

    def on_body(self, body: bytes) -> None:
        self._events += 1
        assert self._current is not None
        self._current.add_body(body)

    def on_message_complete(self) -> None:
        self.waiting_since = None
        self._events += 1
        exchange = self._current
        assert exchange is not None
        exchange.end_body()
        if exchange.is_complete:  # the response came before the request was complete
            self._server.begin_wait(self)
        elif self.writable.is_set():
            self._server.end_wait(self)

    def _grow(self, count: int) -> None:
        self._events += 1
        self._head += count
        if self._head > MAX_HEAD:
            raise ValueError("the head is too large")  # ends the parsing

    # Of requests and the server

    def _start(self, exchange: _Exchange) -> None:
        task = self._loop.create_task(exchange.run(self._server.app))
        self._server.tasks.add(task)
        task.add_done_callback(self._server.tasks.discard)

    def response_complete(self, exchange: _Exchange) -> None:
        """Start the response to the next request, or wait for one."""
        self._queue.popleft()
        if self.transport.is_closing():
            return
        if exchange.more_body:  # a request refused before it is complete is not read to its end
            self._server.begin_wait(self)
            self._linger()
        elif not exchange.keep_alive:
            self._server.begin_wait(self)  # until the response is read
            self.transport.close()
        else:
            self.resume_reading()
            if self._queue:
                self._start(self._queue[0])
            else:
                self._idle_since = self._loop.time()
                self._server.begin_wait(self)

    def pause_reading(self) -> None:
        if not self._reading_paused:
            self._reading_paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        if self._reading_paused and not self._ended:
            self._reading_paused = False
            self.transport.resume_reading()

    def finish(self) -> None:
        if self._queue:
            self._queue[-1].keep_alive = False
        else:
            self.transport.close()

    def check(self, timeout: float) -> None:
        """Close the connection if it is idle, or if the client is too slow."""
        if self.is_stuck(timeout):  # first: `close` waits until the response is read
            self._server.refused(problems.TOO_SLOW)
            self.transport.abort()
        elif self._idle_since is not None and self._loop.time() - self._idle_since > KEEP_ALIVE:
            self.transport.close()

    def is_stuck(self, timeout: float) -> bool:
        """Return whether the client neither sends its request nor reads its response."""
        now = self._loop.time()
        if self.waiting_since is not None and now - self.waiting_since > timeout:
            return True
        unread = self.transport.get_write_buffer_size()
        if unread != self._unread:
            self._unread, self._unread_since = unread, now
        return unread > 0 and now - self._unread_since > timeout

    def _end_input(self) -> None:
        """Ignore data after the last request, and close after its response."""
        self._ended = True
        if self._queue:
            self._queue[-1].keep_alive = False
        else:
            self.transport.close()

    def _refuse(self, problem: Problem) -> None:
        """Respond with a problem, if it cannot be taken for the response to another request."""
        self._server.refused(problem)
        if self._queue:
            first = self._queue[0]
            if len(self._queue) > 1 or first.is_started or not first.more_body:
                self._ended = True
                self.transport.abort()
                return
            first.disconnect()
        self.transport.write(problem.raw_response)
        self._linger()

    def _linger(self) -> None:
        """Send no more, and drop data that still arrive, until the client has the response."""
        self.resume_reading()
        self._ended = True
        # If it were closed at once, the system would discard the response while data still arrive.
        self.transport.write_eof()
        self._loop.call_later(_LINGER, self.transport.abort)


class _Exchange:
    __slots__ = (
        "_arrived", "_body", "_chunked", "_connection", "_expects_continue", "_head", "_left",
        "_scope", "is_complete", "is_disconnected", "is_started", "keep_alive", "more_body",
    )  # fmt: skip

    def __init__(
        self, connection: HttpConnection, scope: Scope, keep_alive: bool, expects_continue: bool
    ) -> None:
        self._connection, self._scope = connection, scope
        self.keep_alive, self._expects_continue = keep_alive, expects_continue
        self._arrived, self._body, self.more_body = asyncio.Event(), bytearray(), True
        self.is_started = self.is_complete = self.is_disconnected = False
        self._head, self._chunked, self._left = b"", False, 0

    async def run(self, app: App) -> None:
        """Let the app respond; if it fails, respond for it."""
        try:
            await app(self._scope, self._receive, self._send)
        except Exception as error:
            LOG.error("a request failed", exc_info=error)
        if self.is_complete or self.is_disconnected:
            return
        if self.is_started:
            self._connection.transport.abort()
        else:
            await problems.INTERNAL.send(self._send, last=True)

    def add_body(self, body: bytes) -> None:
        """Take a part of the body, unless the app no longer reads it."""
        if not self.is_complete:
            self._body += body
            if len(self._body) > _HIGH_WATER:
                self._connection.pause_reading()
            self._arrived.set()

    def end_body(self) -> None:
        if not self.is_complete:
            self.more_body = False
            self._arrived.set()

    def disconnect(self) -> None:
        self.is_disconnected = True
        self._arrived.set()

    async def _receive(self) -> MutableMapping[str, Any]:
        connection = self._connection
        if self._expects_continue and not connection.transport.is_closing():
            connection.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._expects_continue = False
        if not (self.is_disconnected or self.is_complete):
            connection.resume_reading()
            await self._arrived.wait()
            self._arrived.clear()
        if self.is_disconnected or self.is_complete:
            return {"type": "http.disconnect"}
        body, self._body = bytes(self._body), bytearray()
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        connection = self._connection
        if not connection.writable.is_set():
            await connection.writable.wait()
        if self.is_disconnected:
            return
        if message["type"] == "http.response.start" and not self.is_started:
            self._begin(message["status"], message.get("headers", ()))
        elif message["type"] == "http.response.body" and self.is_started and not self.is_complete:
            self._write(message.get("body", b""), message.get("more_body", False))
        else:
            raise RuntimeError(f"{message['type']} is not expected now")

    def _begin(self, status: int, headers: Any) -> None:
        """Prepare the head, which is written together with the first part of the body."""
        self.is_started, self._expects_continue = True, False
        lines = [_STATUS_LINES[status]]
        length, says_close = None, False
        for name, value in headers:
            if _CONTROL.search(value) or _CONTROL.search(name):
                raise RuntimeError("a header has control characters")
            if name == b"content-length":
                length = int(value)
            elif name == b"connection" and value == b"close":
                self.keep_alive, says_close = False, True
            lines.append(b"%s: %s\r\n" % (name, value))
        if not self.keep_alive and not says_close:
            lines.append(b"connection: close\r\n")
        has_body = self._scope["method"] != "HEAD" and status not in (204, 304)
        if length is None and has_body:
            self._chunked = True
            lines.append(b"transfer-encoding: chunked\r\n")
        self._left = length or 0
        lines.append(b"\r\n")
        self._head = b"".join(lines)

    def _write(self, body: bytes, more: bool) -> None:
        content, self._head = self._head, b""
        if self._scope["method"] != "HEAD":
            if self._chunked:
                content += b"%x\r\n%s\r\n" % (len(body), body) if body else b""
                content += b"" if more else b"0\r\n\r\n"
            else:
                self._left -= len(body)
                if self._left < 0 or (self._left and not more):
                    raise RuntimeError("the body does not have its Content-Length")
                content += body
        if content:
            self._connection.transport.write(content)
        if not more:
            self.is_complete = True
            self._arrived.set()
            self._connection.response_complete(self)
