"""What of uvicorn the connections use, and who goes when there is no room for one more."""

from __future__ import annotations

import inspect
import socket
import struct
import time
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from shoal.server.core.connections import Connection, Door

from .privacy_help import FLAGS_PLAN, Server, serving
from .test_bad_input import assert_still_serving, check, good, raw, request

METHODS = {
    "connection_made": ["self", "transport"],
    "connection_lost": ["self", "exc"],
    "data_received": ["self", "data"],
    "eof_received": ["self"],
    "on_message_begin": ["self"],
    "on_url": ["self", "url"],
    "on_header": ["self", "name", "value"],
    "on_headers_complete": ["self"],
    "on_body": ["self", "body"],
    "on_message_complete": ["self"],
    "on_response_complete": ["self"],
    "send_400_response": ["self", "msg"],
}
"""The methods that are overridden, with their arguments."""

OF_A_CONNECTION = (
    "client connections config cycle limit_concurrency loop pipeline scope transport"
).split()
OF_A_CYCLE = (
    "disconnected keep_alive message_event more_body response_complete response_started"
).split()


async def app(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError("nobody asked")


@pytest.mark.parametrize("name", METHODS)
def test_uvicorn_has_the_method(name: str) -> None:
    method = getattr(HttpToolsProtocol, name, None)
    assert method is not None, f"uvicorn {version('uvicorn')} calls {name} no more"
    assert list(inspect.signature(method).parameters) == METHODS[name], name
    assert getattr(Connection, name) is not method, f"{name} is not overridden any more"


def test_uvicorn_has_the_attributes() -> None:
    class Loop:
        def time(self) -> float:
            return 0.0

    protocol = HttpToolsProtocol(
        uvicorn.Config(app, log_config=None),
        ServerState(),
        {},
        Loop(),  # type: ignore[arg-type]
    )
    missing = [name for name in OF_A_CONNECTION if not hasattr(protocol, name)]
    assert missing == [], f"uvicorn {version('uvicorn')} has no such attributes of a connection"
    cycle = inspect.getsource(RequestResponseCycle.__init__)
    missing = [name for name in OF_A_CYCLE if f"self.{name}" not in cycle]
    assert missing == [], f"uvicorn {version('uvicorn')} has no such attributes of a request"
    assert hasattr(uvicorn.Server, "capture_signals")
    assert '"state": self.app_state.copy()' in inspect.getsource(HttpToolsProtocol), (
        "each request has a state of its own"
    )


def test_the_version_of_uvicorn_is_bounded() -> None:
    project = Path(__file__).parent.parent.parent / "pyproject.toml"
    extras = tomllib.loads(project.read_text("utf-8"))["project"]["optional-dependencies"]
    (line,) = [one for one in extras["server"] if one.startswith("uvicorn")]
    bound = line.partition("<")[2].split(".")
    have = version("uvicorn").split(".")
    assert [int(part) for part in have[:2]] < [int(part) for part in bound]


class Gone:
    """A connection that can be ended."""

    def __init__(self) -> None:
        self.transport, self.aborted = self, False

    def abort(self) -> None:
        self.aborted = True


def test_the_longest_wait_goes_first() -> None:
    door = Door()
    first, second, third = Gone(), Gone(), Gone()
    for one in (first, second, third):
        door.begins(one)  # type: ignore[arg-type]
    door.begins(first)  # type: ignore[arg-type]  # it has sent a whole request meanwhile
    door.ends(second)  # type: ignore[arg-type]  # it is being answered
    assert door.make_room()
    assert (first.aborted, second.aborted, third.aborted) == (False, False, True)
    assert door.make_room()
    assert first.aborted
    assert not door.make_room()
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
    with serving(tmp_path_factory.mktemp("small"), FLAGS_PLAN, most_connections=5) as server:
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
        assert '"level": "error"' not in server.errors.read_text()


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
