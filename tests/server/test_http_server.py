"""The HTTP server: who is closed when there is no room, pipelining, deadlines, odd requests."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from shoal.server.core.http_server import HttpConnection, HttpServer

from .privacy_help import FLAGS_PLAN, Server, serving
from .test_bad_input import assert_still_serving, check, good, raw, request

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def listening(
    app: Any, grace: float = 1, **options: Any
) -> AsyncIterator[tuple[HttpServer, Callable[[bytes], Awaitable[Streams]]]]:
    """Run a server with an app; yield it, and a function that connects and sends."""
    server = HttpServer(app, **{"max_connections": 10, "timeout": 5.0} | options)
    bound = socket.create_server(("127.0.0.1", 0))
    await server.start(bound)

    async def connect(sent: bytes) -> Streams:
        reader, writer = await asyncio.open_connection(*bound.getsockname(), limit=1)
        writer.write(sent)
        return reader, writer

    try:
        yield server, connect
    finally:
        await server.stop(grace)


async def exchange(app: Any, sent: bytes) -> bytes:
    """Return what a server with an app writes until it closes the connection."""
    async with listening(app) as (_, connect):
        reader, writer = await connect(sent)
        try:
            return await asyncio.wait_for(reader.read(), 10)
        finally:
            writer.close()


async def respond(
    send: Send, body: bytes, status: int = 200, *headers: tuple[bytes, bytes]
) -> None:
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [length, *headers]})
    await send({"type": "http.response.body", "body": body})


def get(path: str = "/", *headers: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: c", *headers, "", ""]).encode()


CLOSE = "Connection: close"


async def echo(scope: Any, receive: Any, send: Send) -> None:
    """Answer with what the scope tells about the sender, and the body."""
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message["body"], message["more_body"]
    await respond(send, repr((scope["client"], scope["server"], scope["path"], body)).encode())


async def stream(scope: Any, receive: Any, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for part in (b"one", b"two"):
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body"})


async def fail(scope: Any, receive: Any, send: Send) -> None:
    raise RuntimeError("canary")


async def forget(scope: Any, receive: Any, send: Send) -> None:
    return


async def stop_halfway(scope: Any, receive: Any, send: Send) -> None:
    headers = [(b"content-length", b"100")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"abc", "more_body": True})


async def inject(scope: Any, receive: Any, send: Send) -> None:
    await respond(send, b"", 200, (b"x-a", b"a\r\nset-cookie: b"))


def ask(app: Any, sent: bytes) -> bytes:
    return asyncio.run(exchange(app, sent))


def test_an_app_never_sees_an_address() -> None:
    found = ask(echo, get("/a%20b", CLOSE))
    assert found.endswith(repr((None, None, "/a b", b"")).encode())
    assert found.lower().count(b"connection: close") == 1


@pytest.mark.parametrize("headers", [("Content-Length: 4",), ("Transfer-Encoding: chunked",)])
def test_a_body_in_either_form(headers: tuple[str, ...]) -> None:
    head = get("/", *headers, CLOSE).replace(b"GET", b"POST")
    body = b"ab\r\n" if "chunked" not in headers[0] else b"2\r\nab\r\n2\r\n\r\n\r\n0\r\n\r\n"
    assert repr(b"ab\r\n").encode() in ask(echo, head + body)


def test_the_client_is_told_to_go_on() -> None:
    head = get("/", "Content-Length: 2", "Expect: 100-continue", CLOSE).replace(b"GET", b"POST")
    assert ask(echo, head + b"ab").startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")


def test_a_response_of_unknown_length_is_chunked() -> None:
    head, _, body = ask(stream, get("/", CLOSE)).partition(b"\r\n\r\n")
    assert b"transfer-encoding: chunked" in head
    assert body == b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"
    assert ask(stream, get("/", CLOSE).replace(b"GET", b"HEAD")).endswith(b"\r\n\r\n")


@pytest.mark.parametrize("app", [fail, forget])
def test_an_app_that_does_not_respond(app: Any) -> None:
    found = ask(app, get("/", CLOSE))
    assert b"urn:shoal:problem:internal" in found
    assert b"canary" not in found


@pytest.mark.parametrize("app", [stop_halfway, inject])
def test_a_wrong_response_ends_the_connection(app: Any) -> None:
    found = ask(app, get())
    assert b"set-cookie" not in found
    assert not found.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("sent", "statuses"),
    [
        (get() + get("/", CLOSE), [b"200", b"200"]),
        (get("/", CLOSE) + get(), [b"200"]),
        (get("/", "Connection: Upgrade", "Upgrade: websocket") + b"canary", [b"200"]),
        (get().replace(b"1.1", b"1.0"), [b"200"]),
        (b"CONNECT c:80 HTTP/1.1\r\nHost: c\r\n\r\n", [b"400"]),
        (b"canary\r\n\r\n", [b"400"]),
        (get("/" + "a" * 70_000), [b"431"]),
    ],
)  # fmt: skip
def test_what_is_answered_before_the_end(sent: bytes, statuses: list[bytes]) -> None:
    found = ask(echo, sent)
    assert [part[:3] for part in found.split(b"HTTP/1.1 ")[1:]] == statuses


def test_an_idle_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.server.core.http_server.KEEP_ALIVE", 0.2)
    assert ask(echo, get()).startswith(b"HTTP/1.1 200")


@pytest.mark.slow
def test_an_idle_connection_with_an_unread_response_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Closing an idle connection waits until the response is read; the timeout still counts."""
    monkeypatch.setattr("shoal.server.core.http_server.KEEP_ALIVE", 0.2)
    refused: list[str] = []

    async def app(scope: Any, receive: Any, send: Send) -> None:
        await respond(send, bytes(32 << 20))

    async def live() -> None:
        async with listening(
            app, timeout=1.5, refused=lambda problem: refused.append(problem.name)
        ) as (server, connect):
            _, writer = await connect(get())
            await asyncio.sleep(0.2)
            assert server.connections
            for _ in range(100):
                await asyncio.sleep(0.1)
                if not server.connections:
                    break
            assert refused == ["too-slow"]
            writer.close()

    asyncio.run(live())


@pytest.mark.parametrize("sent", [get("/", CLOSE), get() + get()], ids=["last", "pipelined"])
def test_a_response_that_nobody_reads_makes_room(sent: bytes) -> None:
    """It makes room for others even if the client reads just enough to meet the timeout."""

    async def app(scope: Any, receive: Any, send: Send) -> None:
        await respond(send, bytes(32 << 20) if scope["path"] == "/" else b"")

    async def live() -> None:
        async with listening(app, max_connections=2, timeout=60) as (_, connect):
            slow = [await connect(sent) for _ in range(2)]
            await asyncio.sleep(0.5)
            reader, writer = await connect(get("/small", CLOSE))
            assert (await reader.read()).startswith(b"HTTP/1.1 200")
            for _, one in (*slow, (reader, writer)):
                one.close()

    asyncio.run(live())


def test_a_refused_body_that_has_filled_the_buffer_does_not_reset_the_connection() -> None:
    """The rest of the body is read and dropped, otherwise the system would send a reset."""

    async def app(scope: Any, receive: Any, send: Send) -> None:
        await asyncio.sleep(0.3)  # meanwhile the buffer fills and reading is paused
        await respond(send, b"", 413, (b"connection", b"close"))

    head = get("/", "Content-Length: 800000").replace(b"GET", b"POST")
    assert ask(app, head + bytes(799_999)).startswith(b"HTTP/1.1 413")


def test_trailers_are_not_headers() -> None:
    async def app(scope: Any, receive: Any, send: Send) -> None:
        while (await receive())["more_body"]:
            pass
        await respond(send, repr(scope["headers"]).encode())

    head = get("/", "Transfer-Encoding: chunked", CLOSE).replace(b"GET", b"POST")
    found = ask(app, head + b"2\r\nab\r\n0\r\nAuthorization: Bearer canary\r\n\r\n")
    assert found.startswith(b"HTTP/1.1 200")
    assert b"transfer-encoding" in found
    assert b"canary" not in found


def test_an_app_is_told_that_nobody_waits() -> None:
    async def live() -> None:
        hung_up = asyncio.Event()

        async def app(scope: Any, receive: Any, send: Send) -> None:
            assert (await receive())["more_body"] is False
            await scope["state"]["hung_up"].wait()
            hung_up.set()
            await respond(send, b"")

        async with listening(app) as (_, connect):
            _, writer = await connect(get())
            await asyncio.sleep(0.1)
            writer.transport.abort()
            await asyncio.wait_for(hung_up.wait(), 5)

    asyncio.run(live())


def test_a_stop_waits_for_requests_and_then_cancels_them() -> None:
    async def live() -> None:
        begun, cancelled, going_on = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def app(scope: Any, receive: Any, send: Send) -> None:
            begun.set()
            try:
                await asyncio.wait_for(going_on.wait(), 0.2 if scope["path"] == "/quick" else 60)
            except asyncio.CancelledError:
                cancelled.set()
                raise
            except TimeoutError:
                await echo(scope, receive, send)

        for path, answered in (("/quick", True), ("/slow", False)):
            async with listening(app, grace=0.5) as (_, connect):
                reader, writer = await connect(get(path))
                await begun.wait()
                begun.clear()
            assert (await reader.read()).startswith(b"HTTP/1.1 200") == answered
            writer.close()
        assert cancelled.is_set()

    asyncio.run(live())


class Gone:
    """A connection that can be ended."""

    def __init__(self) -> None:
        self.transport, self.aborted = self, False

    def abort(self) -> None:
        self.aborted = True


def test_the_longest_wait_goes_first() -> None:
    limiter = HttpServer(echo, max_connections=10, timeout=5)
    first, second, third = Gone(), Gone(), Gone()
    for one in (first, second, third):
        limiter.begin_wait(one)  # type: ignore[arg-type]
    limiter.begin_wait(first)  # type: ignore[arg-type]  # it has sent a whole request meanwhile
    limiter.end_wait(second)  # type: ignore[arg-type]  # it is being answered
    assert limiter.make_room()
    assert (first.aborted, second.aborted, third.aborted) == (False, False, True)
    assert limiter.make_room()
    assert first.aborted
    assert not limiter.make_room()
    assert not second.aborted


SLOW = {
    "nothing": b"",
    "a head": b"POST / HTTP/1.1\r\nX-A: ",
    "a body": request(b"", "Content-Length: 60", length=False) + b"SHOAL",
    "an answer and then nothing": b"GET /v1/keys HTTP/1.1\r\nHost: c\r\n\r\n",
    "a body that was refused": request(b"", "Content-Length: 9999999", length=False),
}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("small"), FLAGS_PLAN, max_connections=5) as server:
        yield server


@pytest.mark.parametrize("name", SLOW)
def test_whoever_is_slow_makes_room(name: str, small: Server) -> None:
    """The listener is full, three times over; a request that comes at once is answered."""
    held = []
    for _ in range(15):
        held.append(small.connect())
        held[-1].sendall(SLOW[name])
    time.sleep(0.2)
    assert [check(answer) for answer in raw(small, request(good().to_bytes()))] == [202]
    for connection in held:
        connection.close()
    assert_still_serving(small)


@pytest.mark.slow
def test_pipelined_requests_of_a_connection_that_is_gone_are_no_failures(tmp_path: Path) -> None:
    """The first is still being answered when the connection ends; an alert counts failures."""
    with serving(tmp_path, FLAGS_PLAN, log_level="debug") as server:
        progress = (
            f"GET /v1/plans/{FLAGS_PLAN.id}/progress HTTP/1.1\r\nHost: c\r\n"
            f"Authorization: {server.admin()['authorization']}\r\n\r\n"
        ).encode()
        for _ in range(5):
            raw(server, request(good().to_bytes()) * 100)
            raw(server, progress * 100, side="console")
            for side, sent in (("public", request(good().to_bytes())), ("console", progress)):
                with server.connect(side) as connection:  # this side ends it
                    connection.sendall(sent * 5)
                    connection.setsockopt(
                        socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                    )
        assert_still_serving(server)
        assert 'problem="internal"' not in server.client.get(f"{server.console}/metrics").text
        server.stop()
        assert '"level": "error"' not in server.log.read_text()


@pytest.mark.parametrize("header", ["Content-Length: 9999999999", "Transfer-Encoding: chunked"])
def test_a_body_that_was_refused_is_not_read_to_its_end(header: str, small: Server) -> None:
    """The answer comes, then the end; what is sent on goes nowhere, and not for long."""
    chunk = b"100000\r\n" + bytes(1 << 20) + b"\r\n"
    with small.connect() as connection:
        connection.sendall(request(b"", header, length=False))
        sent = 0
        with suppress(OSError):
            while sent < 1 << 30:
                connection.sendall(chunk)
                sent += len(chunk)
        assert sent < 1 << 25
        with suppress(ConnectionResetError):  # some systems take the answer back
            assert connection.recv(64).startswith(b"HTTP/1.1 413 ")
    assert_still_serving(small)


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (b"415", ["Content-Encoding: gzip", "Content-Length: 100"]),
        (b"413", ["Content-Length: 9999999"]),
    ],
)
def test_a_refusal_before_the_body_says_that_the_connection_ends(
    status: bytes, headers: list[str], small: Server
) -> None:
    """Else a client that sends the rest might use the connection again while it closes."""
    with small.connect() as connection:
        connection.sendall(request(b"", *headers, length=False))
        head = connection.recv(1 << 16).partition(b"\r\n\r\n")[0].lower()
    assert status in head.partition(b"\r\n")[0]
    assert b"\r\nconnection: close" in head
    assert_still_serving(small)


def test_a_response_that_nobody_reads_ends_the_connection() -> None:
    """Any progress counts; none within the timeout ends the connection."""

    class Transport:
        unread = 0

        def get_write_buffer_size(self) -> int:
            return self.unread

    class Loop:
        now = 0.0

        def time(self) -> float:
            return self.now

    transport, loop = Transport(), Loop()
    server = HttpServer(echo, max_connections=10, timeout=20)
    connection = HttpConnection(server, loop)  # type: ignore[arg-type]
    connection.connection_made(transport)  # type: ignore[arg-type]
    connection.waiting_since = None
    for now, unread, stuck in (
        (0, 0, False), (30, 0, False), (31, 500, False), (50, 500, False), (51.5, 500, True),
        (52, 400, False), (70, 400, False), (73, 400, True), (74, 0, False), (99, 0, False),
    ):  # fmt: skip
        loop.now, transport.unread = now, unread
        assert connection.is_stuck(20) == stuck, now
