"""Plans and reports over HTTP, with as little about the sender as HTTP allows."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

import shoal
from shoal.analysis.report_files import parse_batch
from shoal.device.outbox import HttpTransport, PostResult, TransportError, read_plan
from shoal.errors import InputError, PlanError
from tests.certificates import make_certificate
from tests.device.outbox_help import ANSWER, PLAN, Answer, Server, box, reply


@contextmanager
def serving(*answers: Answer, certificate: Path | None = None) -> Iterator[Server]:
    """A server that keeps connections open, with TLS if there is a certificate."""
    context = None
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, certificate.with_name("key.pem"))
    made = Server(context, version="HTTP/1.1")
    made.answers = list(answers)
    try:
        yield made
    finally:
        made.close()


class TestHttp:
    def test_a_report_travels_with_nothing_else(self, server):
        transport = HttpTransport(server.url)
        server.answers = [reply(202, Set_Cookie="id=1; Path=/", ETag='"x"')]
        assert transport.post_report(PLAN.id, b"report") == PostResult(202)
        assert transport.post_report(PLAN.id, b"report") == PostResult(202)
        assert server.requests[0] == server.requests[1]
        method, path, headers, body = server.requests[0]
        assert (method, path, body) == ("POST", f"/v1/plans/{PLAN.id}/reports", b"report")
        assert sorted(headers) == [
            ("Accept-Encoding", "identity"),
            ("Content-Length", "6"),
            ("Content-Type", "application/vnd.shoal.reports"),
            ("Host", f"127.0.0.1:{server.port}"),
            ("User-Agent", f"shoal/{shoal.__version__}"),
        ]

    @pytest.mark.parametrize("tls", [False, True])
    def test_one_go_is_one_connection_for_each_plan(self, tmp_path, tls, certificate):
        """Several reports of a plan share one; two plans on one would be linked to each other."""
        several = replace(PLAN, max_reports_per_person=4)
        other = replace(several, crowd_size=7000)
        trust = ssl.create_default_context(cafile=str(certificate)) if tls else None
        with serving(certificate=certificate if tls else None) as made:
            outbox = box(tmp_path / "box", HttpTransport(made.url, context=trust))
            for key in "abcd":
                for plan in (several, other):
                    outbox.answer(plan, ANSWER, answer_key=key)
            assert {ticket.state for ticket in outbox.send_due()} == {"sent"}
        assert made.connections == [4, 4]
        paths = [path for _, path, *_ in made.requests]
        assert paths == sorted(paths)
        assert len({tuple(headers) for _, _, headers, _ in made.requests}) == 1

    def test_a_connection_that_was_closed_is_opened_anew(self):
        """By a header, after an answer with a body, and without a word."""

        def hang_up(handler: BaseHTTPRequestHandler) -> None:
            reply(202)(handler)
            handler.close_connection = True

        answers = [reply(202, Connection="close"), reply(503, b"busy"), hang_up]
        with serving(*answers) as made, HttpTransport(made.url).kept_open() as sending:
            found = [sending.post_report(PLAN.id, b"report").status for _ in range(6)]
        assert found == [202, 503, 202, 202, 202, 202]
        assert made.connections == [1, 1, 1, 3]

    def test_a_new_connection_that_fails_is_not_tried_twice(self):
        def hang_up(handler: BaseHTTPRequestHandler) -> None:
            handler.close_connection = True

        with serving(hang_up, hang_up, hang_up) as made, pytest.raises(TransportError):
            HttpTransport(made.url).post_report(PLAN.id, b"report")
        assert made.connections == [1]

    def test_a_token_is_the_applications(self, server):
        transport = HttpTransport(server.url, token=" shoal_app_1 ")
        transport.fetch_plan(PLAN.id)
        transport.post_report(PLAN.id, b"report")
        sent = [dict(headers).get("Authorization") for _, _, headers, _ in server.requests]
        assert sent == [None, "Bearer shoal_app_1"]
        for token in ("", " ", "a\r\nX-A: b", "é", 5):
            with pytest.raises(InputError, match="in one line"):
                HttpTransport(server.url, token=token)  # type: ignore[arg-type]

    def test_a_plan_is_asked_for_with_nothing_else(self, server):
        content = HttpTransport(server.url + "/").fetch_plan(PLAN.id)
        assert read_plan(content, PLAN.id) == PLAN
        method, path, headers, _ = server.requests[0]
        assert (method, path) == ("GET", f"/v1/plans/{PLAN.id}")
        assert {name for name, _ in headers} == {
            "Accept-Encoding", "Connection", "Host", "User-Agent",
        }  # fmt: skip

    def test_from_the_answer_to_the_collector(self, server, tmp_path):
        server.answers = [server.usual, reply(503, Retry_After="7"), reply(429)]
        outbox = box(tmp_path, HttpTransport(f"{server.url}/base"))
        outbox.answer(outbox.plan(PLAN.id), ANSWER)
        assert [one.state for one in outbox.finish(1e6)] == ["sent"]
        bodies = [body for method, *_, body in server.requests if method == "POST"]
        assert len(bodies) == 3
        assert len(set(bodies)) == 1
        assert len(parse_batch(PLAN, bodies[0])) == 1

    def test_retry_after(self, server):
        transport = HttpTransport(server.url, clock=lambda: 1_800_000_000.0)
        date = "Fri, 15 Jan 2027 08:01:00 GMT"  # a minute later
        cases = {"120": 120.0, date: 60.0, "soon": None, "-1": None, "9" * 50: 999_999_999.0}
        for text, seconds in cases.items():
            server.answers = [reply(503, Retry_After=text)]
            assert transport.post_report(PLAN.id, b"") == PostResult(503, seconds), text

    def test_redirects_on_the_same_host(self, server):
        there = reply(308, Location="/elsewhere/plan?a=1")
        server.answers = [there, reply(302, Location=f"{server.url}/{PLAN.id}")]
        assert read_plan(HttpTransport(server.url).fetch_plan(PLAN.id), PLAN.id) == PLAN
        assert [path for _, path, *_ in server.requests][1:] == [
            "/elsewhere/plan?a=1",
            f"/{PLAN.id}",
        ]

    @pytest.mark.parametrize(
        "location",
        [
            "https://127.0.0.1:{port}/x",
            "http://localhost:{port}/x",
            "http://127.0.0.1:{other}/x",
            "http://127.0.0.1/x",
            "//example.org/x",
            "http://user@127.0.0.1:{port}/x",
            "file:///etc/passwd",
            "http://[",
            "",
        ],
    )
    def test_redirects_elsewhere_are_refused(self, server, location):
        with serving() as other:
            where = location.format(port=server.port, other=other.port)
            server.answers = [reply(302, Location=where)]
            with pytest.raises(TransportError, match="redirects to"):
                HttpTransport(server.url).fetch_plan(PLAN.id)
        assert other.requests == []
        assert len(server.requests) == 1

    def test_a_report_is_never_redirected(self, server):
        server.answers = [reply(307, Location="/other")]
        assert HttpTransport(server.url).post_report(PLAN.id, b"x").status == 307
        assert len(server.requests) == 1

    @pytest.mark.parametrize(
        ("answer", "told"),
        [
            *((reply(status), str(status)) for status in (404, 500, 204, 206)),
            (reply(200, b"x", Content_Encoding="gzip"), "compressed"),
            (reply(302, Location="/again"), "more than 3 redirects"),
            (lambda handler: handler.wfile.write(b"hello\r\n\r\n"), "no answer"),
        ],
    )
    def test_no_plan(self, server, answer, told):
        server.answers = [answer] * 9
        with pytest.raises(TransportError, match=told):
            HttpTransport(server.url).fetch_plan(PLAN.id)
        assert len(server.requests) == (4 if "redirects" in told else 1)

    @pytest.mark.parametrize("says", [True, False])
    def test_huge_answers_are_not_read(self, server, says):
        def huge(handler: BaseHTTPRequestHandler) -> None:
            handler.send_response(200)
            if says:
                handler.send_header("Content-Length", str(10**12))
            handler.end_headers()
            while True:
                handler.wfile.write(bytes(1 << 16))

        server.answers = [huge, huge]
        transport = HttpTransport(server.url, max_plan_bytes=100_000)
        with pytest.raises(TransportError, match="larger than 100000"):
            transport.fetch_plan(PLAN.id)
        assert transport.post_report(PLAN.id, b"x").status == 200

    @pytest.mark.parametrize("part", ["headers", "body", "status", "nothing"])
    def test_a_slow_server_is_cut_off(self, server, part):
        def slow(handler: BaseHTTPRequestHandler) -> None:
            if part in ("headers", "body"):
                handler.wfile.write(b"HTTP/1.0 200 OK\r\n")
            if part == "body":
                handler.wfile.write(b"Content-Length: 100000\r\n\r\n")
            for _ in range(200):
                if part != "nothing":
                    handler.wfile.write(b"H")
                time.sleep(0.05)

        server.answers = [slow]
        began = time.monotonic()
        with pytest.raises(TransportError, match=r"no (answer|response)"):
            HttpTransport(server.url, timeout=0.3).fetch_plan(PLAN.id)
        assert time.monotonic() - began < 3

    def test_nobody_there_and_no_proxy_of_the_environment(self, server, monkeypatch):
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
        assert HttpTransport(server.url).post_report(PLAN.id, b"x").status == 202
        with pytest.raises(TransportError, match="no answer from 127"):
            HttpTransport("http://127.0.0.1:9", timeout=2).post_report(PLAN.id, b"x")

    @pytest.mark.parametrize(
        "url",
        [
            "", "example.org", "ftp://example.org", "https://", "https://user:pw@example.org",
            "https://example.org?q=1", "https://example.org/#x", "https://example.org:99999",
            "https://exa mple.org", "https://example.org/\r\nX: 1", "https://éxample.org", 5,
        ],
    )  # fmt: skip
    def test_addresses(self, url):
        with pytest.raises(InputError, match="address"):
            HttpTransport(url)

    @pytest.mark.parametrize("host", ["example.org", "10.0.0.1", "127.example.org", "[fe80::1]"])
    def test_plain_http_is_for_this_machine(self, host):
        with pytest.raises(InputError, match="travel over https"):
            HttpTransport(f"http://{host}/")
        HttpTransport(f"http://{host}/", allow_plain=True)
        for here in ("localhost", "127.0.0.1", "127.8.9.1", "[::1]"):
            HttpTransport(f"http://{here}:1/")

    @pytest.mark.parametrize("plan_id", ["../../admin", "x", "0" * 63, "0" * 64 + "?"])
    def test_ids_do_not_build_paths(self, server, plan_id):
        for call in (
            lambda: HttpTransport(server.url).fetch_plan(plan_id),
            lambda: HttpTransport(server.url).post_report(plan_id, b""),
        ):
            with pytest.raises(PlanError):
                call()
        assert server.requests == []


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificate(tmp_path_factory.mktemp("tls"), "127.0.0.1")[0]


class TestTls:
    @pytest.fixture
    def secure(self, certificate: Path) -> Iterator[Server]:
        with serving(certificate=certificate) as made:
            yield made

    def test_verified_by_default(self, secure):
        with pytest.raises(TransportError, match=r"(?i)certificate"):
            HttpTransport(secure.url).post_report(PLAN.id, b"x")
        assert secure.requests == []

    def test_with_a_context_that_trusts_it(self, secure, certificate):
        context = ssl.create_default_context(cafile=str(certificate))
        transport = HttpTransport(secure.url, context=context)
        assert transport.post_report(PLAN.id, b"x").status == 202
        assert read_plan(transport.fetch_plan(PLAN.id), PLAN.id) == PLAN
        assert dict(secure.requests[0][2])["Host"] == f"127.0.0.1:{secure.port}"
        other = HttpTransport(f"https://localhost:{secure.port}", context=context)
        with pytest.raises(TransportError, match=r"(?i)certificate"):  # another name
            other.post_report(PLAN.id, b"x")

    def test_no_downgrade(self, secure, certificate):
        context = ssl.create_default_context(cafile=str(certificate))
        secure.answers = [reply(302, Location=f"http://127.0.0.1:{secure.port}/x")]
        with pytest.raises(TransportError, match="somewhere else"):
            HttpTransport(secure.url, context=context).fetch_plan(PLAN.id)

    def test_a_handshake_that_never_ends(self):
        import socket

        with socket.create_server(("127.0.0.1", 0)) as listener:
            url = f"https://127.0.0.1:{listener.getsockname()[1]}"
            began = time.monotonic()
            with pytest.raises(TransportError):
                HttpTransport(url, timeout=0.3).post_report(PLAN.id, b"x")
            assert time.monotonic() - began < 3
