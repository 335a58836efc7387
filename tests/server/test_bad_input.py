"""Whatever is sent, the collector answers with a problem document that repeats nothing of it.

One server is sent everything: after each attack it must still take a good report, and in the end
its memory and its log are looked at.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
import os
import re
import select
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple, get_args

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.analysis.intervals import IntervalKind
from shoal.analysis.report_files import Batch
from shoal.protocol.wire import MAGIC
from shoal.server.console.app import OPERATIONS
from shoal.server.console.planner import PlanRequest
from shoal.server.console.schemas import NewToken, TextSearch
from shoal.server.core.problems import PROBLEMS

from ..strategies import bounded
from .privacy_help import (
    BINARY,
    FLAGS_PLAN,
    TEXT_PLAN,
    Server,
    World,
    make_reports,
    serving,
    with_world,
)

PATH = f"/v1/plans/{FLAGS_PLAN.id}/reports"
FIELDS = {name for kind in (NewToken, PlanRequest, TextSearch) for name in kind.__struct_fields__}
NAMES = FIELDS | {one.name for operation in OPERATIONS for one in operation.parameters}
DOCUMENTS = {problem.body for problem in PROBLEMS} | {
    problem.about(name).body for problem in PROBLEMS for name in NAMES
}
"""Every problem, and with the name of each parameter: nothing of a request is in them."""
LARGEST_BODY = 2 << 20
GIGABYTES = float(os.environ.get("SHOAL_GIGABYTES", "0.1"))
"""How much an endless body sends."""
TEXT = replace(TEXT_PLAN, window=None)


@pytest.fixture(scope="module")
def server(tmp_path_factory: Any) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    settings: dict[str, Any] = {"max_body_bytes": LARGEST_BODY, "request_timeout": 2}
    with serving(folder, FLAGS_PLAN, TEXT, log_level="debug", **settings) as running:
        yield running
        running.stop()
        lines = [json.loads(line) for line in running.log.read_text().splitlines()]
        assert {line["level"] for line in lines} == {"info"}, lines


class Answer(NamedTuple):
    status: int
    head: bytes
    body: bytes


def raw(server: Server, *parts: bytes, side: str = "public") -> list[Answer]:
    """Send bytes as they are, and no more; return all answers until the connection ends."""
    with server.connect(side) as connection:
        try:
            for part in parts:
                connection.sendall(part)
            connection.shutdown(socket.SHUT_WR)
        except OSError:  # it may have been closed before everything was sent
            pass
        content = b""
        try:
            while more := connection.recv(1 << 16):
                content += more
        except ConnectionResetError:
            pass
    return list(answers(content))


def answers(content: bytes) -> Iterator[Answer]:
    while content:
        head, _, rest = content.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        assert length is not None, head
        size = int(length[1])
        yield Answer(int(head.split()[1]), head, rest[:size])
        content = rest[size:]


def check(answer: Answer | httpx.Response, *sent: bytes) -> int:
    """Whatever the answer is, it is one of the known documents, and no failure of ours."""
    if isinstance(answer, httpx.Response):
        head = b"\r\n".join(b"%s: %s" % header for header in answer.headers.raw)
        answer = Answer(answer.status_code, head, answer.content)
    assert answer.status < 500 or answer.status in (503, 507)
    assert b"internal" not in answer.body
    if answer.status == 202:
        assert answer.body == b""
    else:
        assert answer.status >= 400
        assert answer.body in DOCUMENTS
        assert b"application/problem+json" in answer.head
        assert json.loads(answer.body)["status"] == answer.status
    for text in sent:
        assert text not in answer.head + answer.body
    return answer.status


def post(server: Server, body: bytes, media: str = BINARY["content-type"], **more: str) -> int:
    headers = {"content-type": media} | {name.replace("_", "-"): more[name] for name in more}
    return check(server.client.post(f"{server.public}{PATH}", content=body, headers=headers))


def good(count: int = 3, seed: int = 0) -> Batch:
    return make_reports(FLAGS_PLAN, count, np.random.default_rng(seed))


def assert_still_serving(server: Server) -> None:
    assert post(server, good(1).to_bytes()) == 202


def request(body: bytes, *headers: str, path: str = PATH, length: bool = True) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: c", "Content-Type: application/octet-stream"]
    lines += [f"Content-Length: {len(body)}"] if length else []
    return "\r\n".join([*lines, *headers, "", ""]).encode() + body


# Bodies


def test_truncated_at_every_length(server: Server) -> None:
    """One connection is used for all, with the length that was cut off declared."""
    whole = good().to_bytes()
    json_form = good().to_json()
    with httpx.Client(base_url=str(server.public)) as client:
        for body, media in ((whole, BINARY["content-type"]), (json_form, "application/json")):
            for end in range(len(body)):
                answer = client.post(PATH, content=body[:end], headers={"content-type": media})
                assert check(answer) == 400
            assert check(client.post(PATH, content=body, headers={"content-type": media})) == 202


def test_cut_off_before_the_declared_length(server: Server) -> None:
    """Nothing is counted of a body whose rest never comes, and nothing is answered amiss."""
    whole = request(good().to_bytes())
    for end in range(0, len(whole), 7):
        assert all(check(answer) in (400, 431) for answer in raw(server, whole[:end]))
    assert_still_serving(server)


def changed(offset: int, value: bytes) -> bytes:
    body = good().to_bytes()
    return body[:offset] + value + body[offset + len(value) :]


RECORD = base64.b64encode(good(1).to_bytes()[42:]).decode()
BAD_BODIES = {
    "nothing": b"",
    "other magic": changed(0, b"SHOAX"),
    "later version": changed(5, b"\x02"),
    "other plan": changed(6, b"\x00" * 32),
    "no reports": MAGIC + bytes.fromhex(FLAGS_PLAN.id) + b"\x00" * 4,
    "count too small": changed(38, b"\x02\x00\x00\x00"),
    "count too large": changed(38, b"\x04\x00\x00\x00"),
    "largest count": changed(38, b"\xff\xff\xff\xff"),
    "padding bits": changed(62, b"\xff"),
    "window to come": changed(58, b"\x01\x00\x00\x00"),
    "too long": good().to_bytes() + b"\x00",
    "twice": good().to_bytes() * 2,
    "JSON by another name": good().to_json(),
}
BAD_JSON = {
    "binary by another name": good().to_bytes(),
    "a list": b"[" + good().to_json() + b"]",
    "deep": b'{"plan": ' + b"[" * 60_000,
    "deep and closed": b'{"plan": "x", "reports": ' + b"[" * 30_000 + b"]" * 30_000 + b"}",
    "deep plan": b'{"reports": [], "plan": ' + b"[" * 900 + b"]" * 900 + b"}",
    "NaN": f'{{"plan": NaN, "reports": ["{RECORD}"]}}'.encode(),
    "infinity": f'{{"plan": "{FLAGS_PLAN.id}", "reports": [1e999]}}'.encode(),
    "long number": b'{"plan": ' + b"9" * 60_000 + b', "reports": []}',
    "duplicate keys": (
        f'{{"plan": "{FLAGS_PLAN.id}", "reports": ["{RECORD}"], "reports": ["{RECORD}"]}}'.encode()
    ),
    "more keys": f'{{"plan": "{FLAGS_PLAN.id}", "reports": ["{RECORD}"], "user": 1}}'.encode(),
    "no reports": f'{{"plan": "{FLAGS_PLAN.id}", "reports": []}}'.encode(),
    "reports are a text": f'{{"plan": "{FLAGS_PLAN.id}", "reports": "{RECORD}"}}'.encode(),
    "not base64": f'{{"plan": "{FLAGS_PLAN.id}", "reports": ["{RECORD[:-1]}*"]}}'.encode(),
    "not ASCII": f'{{"plan": "{FLAGS_PLAN.id}", "reports": ["{RECORD[:-1]}é"]}}'.encode(),
    "half a character": f'{{"plan": "{FLAGS_PLAN.id}", "reports": ["\\ud800"]}}'.encode(),
    "too short": f'{{"plan": "{FLAGS_PLAN.id}", "reports": ["{RECORD[:-4]}"]}}'.encode(),
    "invalid UTF-8": b'{"plan": "\xff\xfe", "reports": []}',
    "UTF-16": good().to_json().decode().encode("utf-16"),
    "a mark before it": b"\xef\xbb\xbf" + good().to_json(),
}


def test_bad_bodies(server: Server) -> None:
    for name, body in BAD_BODIES.items():
        assert post(server, body) == 400, name
        assert post(server, body, "application/octet-stream") == 400, name
    for name, body in BAD_JSON.items():
        assert post(server, body, "application/json") == 400, name


def test_cohorts_out_of_range(server: Server) -> None:
    batch = make_reports(TEXT, 2, np.random.default_rng(1))
    assert batch.cohorts is not None
    batch = replace(batch, windows=batch.windows * 0)
    path = f"{server.public}/v1/plans/{TEXT.id}/reports"
    for cohort, status in ((3, 202), (4, 400), (65_535, 400)):
        body = replace(batch, cohorts=np.array([0, cohort], np.uint16))
        for content, media in ((body.to_bytes(), BINARY["content-type"]),
                               (body.to_json(), "application/json")):  # fmt: skip
            answer = server.client.post(path, content=content, headers={"content-type": media})
            assert check(answer) == status


def test_media_types_and_encodings(server: Server) -> None:
    body = good().to_bytes()
    for media in ("text/plain", "", "application/x-www-form-urlencoded", "application/json5",
                  "application/octet-stream2", "*/*", "application/gzip"):  # fmt: skip
        assert post(server, body, media) == 415
    for encoding in ("gzip", "deflate", "br", "zstd", "identity", "x-canary"):
        assert post(server, gzip.compress(body), content_encoding=encoding) == 415
    assert post(server, body, "Application/Octet-Stream ; x=y") == 202


def test_methods_and_addresses(server: Server) -> None:
    with httpx.Client(base_url=str(server.public)) as client:
        for method in ("GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
            answer = client.request(method, PATH)
            assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
        for path in ("/canary", "/v1/plans/canary", "/v1/plans/../canary", f"{PATH}/canary",
                     "/v1/plans/%00canary", f"/v1/plans/{'0' * 64}/reports", "//canary",
                     f"/v1/plans/{FLAGS_PLAN.id.upper()}/reports", "/v1/plans/%ff%fe"):  # fmt: skip
            for method in ("GET", "POST"):
                answer = client.request(method, path, content=b"canary", headers=BINARY)
                assert check(answer, b"canary") in (404, 405)


@given(body=st.binary(max_size=300))
@bounded(100)
def test_any_bytes(server: Server, body: bytes) -> None:
    assert post(server, body) == 400
    assert post(server, b"{" + body, "application/json") == 400


@given(
    cut=st.integers(0, 200),
    put=st.binary(max_size=8),
    at=st.integers(0, 150),
    gone=st.integers(0, 9),
)
@bounded(100)
def test_almost_a_batch(server: Server, cut: int, put: bytes, at: int, gone: int) -> None:
    body = good().to_bytes()
    body = (body[:at] + put + body[at + gone :])[: max(cut, at)]
    assert post(server, body) in (202, 400)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


# Sizes


def test_an_endless_body_is_cut(server: Server) -> None:
    """The answer comes when the limit is passed, and the rest is thrown away as it comes."""
    assert_still_serving(server)
    before = server.resident(peak=True)
    head = request(b"", "Transfer-Encoding: chunked", length=False)
    chunk = b"%x\r\n" % (1 << 20) + b"\x55" * (1 << 20) + b"\r\n"
    count = math.ceil(GIGABYTES * 1024)
    (answer, *rest) = raw(server, head, *[chunk] * count)
    assert check(answer) == 413
    assert rest == []
    assert server.resident(peak=True) - before < 16 * LARGEST_BODY
    declared = request(b"", f"Content-Length: {1 << 30}", length=False)
    assert [check(answer) for answer in raw(server, declared)] == [413]
    assert_still_serving(server)


def test_bodies_that_wait_share_bounded_room(server: Server) -> None:
    """Sixty connections of a relay with almost the largest body each, whose end does not come."""
    before = server.resident(peak=True)
    token = f"Authorization: {server.relay()['authorization']}"
    head = request(b"", f"Content-Length: {LARGEST_BODY - 1}", token, length=False)
    connections = [server.connect() for _ in range(60)]
    try:
        for connection in connections:
            connection.sendall(head + bytes(LARGEST_BODY - 2))
        refused = sum(b" 503 " in connection.recv(64) for connection in ready(connections))
        assert refused >= 40
        assert server.resident(peak=True) - before < 24 * LARGEST_BODY
        assert_still_serving(server)
    finally:
        for connection in connections:
            connection.close()
    assert_still_serving(server)


def ready(connections: list[socket.socket]) -> list[socket.socket]:
    """Return those that were answered within a second."""
    time.sleep(1)
    return select.select(connections, [], [], 0)[0]


ENDLESS = {
    "header": [b"GET / HTTP/1.1\r\nX-A: ", b"a" * 65536],
    "header name": [b"GET / HTTP/1.1\r\n", b"a" * 65536],
    "headers": [b"GET / HTTP/1.1\r\n", b"X-A: canary\r\n" * 4096],
    "empty headers": [b"GET / HTTP/1.1\r\n", b"a:\r\n" * 16384],
    "address": [b"GET /", b"a" * 65536],
    "query": [b"GET /?", b"a" * 65536],
    "method": [b"", b"A" * 65536],
    "chunk extension": [request(b"", "Transfer-Encoding: chunked", length=False) + b"1;",
                        b"a" * 65536],
    "trailer": [request(b"", "Transfer-Encoding: chunked", length=False) + b"0\r\nX-A: ",
                b"a" * 65536],
    "trailers": [request(b"", "Transfer-Encoding: chunked", length=False) + b"0\r\n",
                 b"X-A: canary\r\n" * 4096],
}  # fmt: skip


@pytest.mark.parametrize("name", ENDLESS)
def test_endless_heads_end(server: Server, name: str) -> None:
    """Two gigabytes would be sent if they were taken."""
    before = server.resident(peak=True)
    start, more = ENDLESS[name]
    with server.connect() as connection:
        connection.sendall(start)
        sent = 0
        try:
            while sent < 1 << 31 and not select.select([connection], [], [], 0)[0]:
                connection.sendall(more)
                sent += len(more)
        except OSError:
            pass
        assert sent < 1 << 26
        try:
            content = connection.recv(1 << 16)
        except ConnectionResetError:
            content = b""
    for answer in answers(content):
        assert check(answer, b"canary", b"aaaa") in (400, 404, 431)
    assert server.resident(peak=True) - before < 8 << 20


# HTTP that means two things

TWO_MEANINGS = {
    "length and chunks": [f"Content-Length: {len(good().to_bytes())}",
                          "Transfer-Encoding: chunked"],
    "two lengths": ["Content-Length: 5", f"Content-Length: {len(good().to_bytes())}"],
    "a list of lengths": ["Content-Length: 5, 5"],
    "negative length": ["Content-Length: -1"],
    "plus sign": ["Content-Length: +105"],
    "hexadecimal length": ["Content-Length: 0x69"],
    "huge length": ["Content-Length: 99999999999999999999999999"],
    "chunks and length": ["Transfer-Encoding: chunked", "Content-Length: 5"],
    "not quite chunked": ["Transfer-Encoding: xchunked"],
    "chunked twice": ["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"],
    "chunked, then not": ["Transfer-Encoding: chunked, identity"],
    "space before the colon": ["Transfer-Encoding : chunked"],
    "folded header": ["X-A: b", " Transfer-Encoding: chunked"],
    "a null": ["X-A: \0"],
    "bare line feed": ["X-A: b\nTransfer-Encoding: chunked"],
    "bare return": ["X-A: b\rTransfer-Encoding: chunked"],
    "no name": [": b"],
}  # fmt: skip


def test_what_means_two_things_is_refused(server: Server) -> None:
    """Nothing after it on the same connection is taken for a request."""
    after = b"GET /v1/keys HTTP/1.1\r\nHost: c\r\n\r\n"
    body = good().to_bytes()
    for name, headers in TWO_MEANINGS.items():
        found = raw(server, request(body, *headers, length=False) + after)
        assert [check(answer) for answer in found] in ([400], [413]), name


def test_bad_chunks(server: Server) -> None:
    head = request(b"", "Transfer-Encoding: chunked", length=False)
    for body in (b"zz\r\n", b"-1\r\n\r\n", b"5\r\nab", b"1\r\nabc\r\n0\r\n\r\n",
                 b"0x5\r\nabcde\r\n0\r\n\r\n", b"fffffffffffffffff\r\n", b"5\nabcde\n0\n\n",
                 b" 5\r\nabcde\r\n0\r\n\r\n"):  # fmt: skip
        assert [check(answer) for answer in raw(server, head + body)] in ([], [400]), body
    assert_still_serving(server)


@given(st.binary(min_size=1, max_size=200))
@bounded(60)
def test_bytes_that_are_no_http(server: Server, content: bytes) -> None:
    for answer in raw(server, content + b"\r\n\r\n"):
        assert check(answer) in (400, 404, 405)


def test_pipelined_requests_are_answered_in_order(server: Server) -> None:
    keys = b"GET /v1/keys HTTP/1.1\r\nHost: c\r\n\r\n"
    fine = request(good().to_bytes())
    found = raw(server, (fine + keys) * 8)
    assert [answer.status for answer in found] == [202, 200] * 8
    # What cannot be read after a good request is not taken for that one's answer.
    found = raw(server, fine + b"canary\r\n\r\n")
    assert [answer.status for answer in found] in ([], [202], [202, 400])


# Slow ones


@pytest.mark.slow
def test_slow_connections_do_not_stop_the_others(server: Server) -> None:
    """Three hundred connections of all kinds owe something; all are closed, and others served."""
    kinds = [
        (b"", b""),
        (b"POST ", b"a"),
        (b"GET / HTTP/1.1\r\nX-A: ", b"a"),
        (request(b"", "Content-Length: 1000", length=False), b"a"),
        (request(b"", "Transfer-Encoding: chunked", length=False), b"1\r\na\r\n"),
        (b"GET /v1/keys HTTP/1.1\r\nHost: c\r\n\r\n", b"\r\n"),
    ]
    slow = [(server.connect(), kinds[number % len(kinds)]) for number in range(300)]
    closed: set[int] = set()
    stop = threading.Event()

    def drip() -> None:
        for connection, (start, _) in slow:
            connection.sendall(start)
        while not stop.wait(0.2):
            for number, (connection, (_, more)) in enumerate(slow):
                try:
                    connection.send(more)
                    while select.select([connection], [], [], 0)[0]:
                        if not connection.recv(1 << 16):
                            raise ConnectionResetError
                except OSError:
                    closed.add(number)

    dripping = threading.Thread(target=drip)
    dripping.start()
    try:
        for _ in range(100):
            assert_still_serving(server)
            if len(closed) == len(slow):
                break
            time.sleep(0.2)
    finally:
        stop.set()
        dripping.join()
        for connection, _ in slow:
            connection.close()
    assert len(closed) == len(slow), sorted({n % len(kinds) for n in range(300)} - closed)


def test_too_many_requests_at_once(server: Server) -> None:
    """What waits on one connection takes memory, so the connection ends."""
    keys = b"GET /v1/keys HTTP/1.1\r\nHost: c\r\n\r\n"
    before = server.resident(peak=True)
    assert len(raw(server, keys * 5000)) < 5000
    assert server.resident(peak=True) - before < 8 << 20
    assert_still_serving(server)


def test_who_does_not_read_is_left(server: Server) -> None:
    """Answers that nobody reads end the connection, whatever else is asked on it."""
    keys = b"GET /v1/keys HTTP/1.1\r\nHost: c\r\n\r\n"
    with server.connect() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(0.1)
        end, ended = time.monotonic() + 60, False
        while not ended and time.monotonic() < end:
            try:
                connection.send(keys * 8)
            except TimeoutError:
                continue
            except OSError:
                ended = True
        assert ended
    assert_still_serving(server)


# The console

BAD_PLANS = {
    "nothing": b"",
    "deep": b"[" * 100_000,
    "deep inside": b'{"survey": ' + b"[" * 100_000,
    "NaN": b'{"q": NaN}',
    "infinity": b'{"q": Infinity}',
    "duplicate keys": b'{"q": 1, "q": 2}',
    "not UTF-8": b'{"q": "\xff"}',
    "long number": b'{"q": ' + b"9" * 100_000 + b"}",
    "canary": b'{"canary": "canary"}',
}


def test_bad_plans(server: Server) -> None:
    headers = server.admin() | {"content-type": "application/json"}
    with httpx.Client(base_url=str(server.console), headers=headers) as client:
        for body in BAD_PLANS.values():
            for path in ("/v1/plans", "/v1/tokens"):
                assert check(client.post(path, content=body), b"canary") in (400, 422)
        large = client.post("/v1/plans", content=b" " * (5 << 20))
        assert check(large) == 413


WISH = {"survey": "", "crowd": 1, "epsilon": "1", "delta": "1e-6"}
BAD_FIELDS: list[tuple[str, dict[str, Any]]] = [
    # Unknown names and values may look like the words of an error about a field.
    ("/v1/prospect", WISH | {"canary - at `$.canary": 1}),
    ("/v1/prospect", WISH | {"view": "canary - at `$.canary`"}),
    ("/v1/prospect", WISH | {"crowd": 10**400, "share": 10**400}),
    ("/v1/tokens", {"role": "canary - at `$.canary`", "label": "x"}),
    ("/v1/tokens", {"role": "viewer", "label": "x", "y - at `$.canary": 1}),
    # JSON may hold half a surrogate pair.
    ("/v1/prospect", WISH | {"\ud800": 1}),
    ("/v1/prospect", WISH | {"view": "\ud800"}),
    ("/v1/tokens", {"role": "\ud800", "label": "x"}),
    ("/v1/tokens", {"role": "viewer", "label": "\ud800"}),
    ("/v1/tokens", {"role": "viewer", "label": "x\n"}),
    ("/v1/tokens", {"role": "viewer", "label": "x", "\ud800": 1}),
]


def test_bad_fields(server: Server) -> None:
    headers = server.admin() | {"content-type": "application/json"}
    for path, document in BAD_FIELDS:
        body = json.dumps(document).encode()
        answer = server.client.post(f"{server.console}{path}", content=body, headers=headers)
        assert check(answer, b"canary") in (400, 422), document


@given(
    place=st.sampled_from(["survey", "q", "promise", "crowd_size", "window", "joint", "cohorts",
                           "id", "memory", "version", "honest_fraction"]),
    value=JSON_VALUES,
)  # fmt: skip
@bounded(50)
def test_almost_a_plan(server: Server, place: str, value: Any) -> None:
    document = {"id": FLAGS_PLAN.id} | FLAGS_PLAN.to_json() | {place: value}
    try:
        body = json.dumps(document, allow_nan=False).encode()
    except ValueError:
        body = json.dumps(document).encode()
    headers = server.admin() | {"content-type": "application/json"}
    answer = server.client.post(f"{server.console}/v1/plans", content=body, headers=headers)
    assert answer.status_code == 201 or check(answer) in (400, 422)


LEVELS = (5e-324, 1e-17, 0.5, 1 - 2**-53, 1 - 1e-15)
"""Floats can hardly tell some of them from 0 and 1."""


@given(
    level=st.floats() | st.floats(0, 1) | st.sampled_from(LEVELS) | st.text(max_size=8),
    kind=st.sampled_from(get_args(IntervalKind)) | st.text(max_size=8),
)
@bounded(50)
def test_any_level_of_a_sealed_crowd(sealed: httpx.Client, level: Any, kind: str) -> None:
    path = f"/v1/plans/{FLAGS_PLAN.id}/crowds/1/estimates"
    at_level = {"level": level}
    for parameters in (
        at_level | {"interval": kind},
        {"interval": kind},
        at_level | {"format": "csv"},
    ):
        answer = sealed.get(path, params=parameters)
        assert answer.status_code == 200 or check(answer) == 400


@pytest.fixture(scope="module")
def sealed(server: Server) -> Iterator[httpx.Client]:
    # On a connection of its own, which may bring a whole crowd here.
    body = good(100, seed=6).to_bytes()
    assert check(httpx.post(f"{server.public}{PATH}", content=body, headers=BINARY)) == 202
    with httpx.Client(base_url=str(server.console), headers=server.admin()) as client:
        yield client


@with_world()
async def test_a_failure_inside_is_told_without_its_message(world: World) -> None:
    """The document says that something failed, the log says where, neither says with what."""

    def fail(*_: Any) -> None:
        raise RuntimeError("canary")

    world.collector.store.crowds = fail  # type: ignore[assignment, method-assign]
    await world.publish(FLAGS_PLAN)
    path = f"/v1/plans/{FLAGS_PLAN.id}/crowds"
    answer, log = await world.ask("console", "GET", path, world.admin()), world.log.getvalue()
    assert answer.status_code == 503
    assert json.loads(answer.content)["type"] == "urn:shoal:problem:internal"
    assert "RuntimeError" in log
    assert "canary" not in log + answer.text
