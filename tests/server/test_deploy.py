"""The files in deploy/: what they promise holds, as far as this machine can run them."""

from __future__ import annotations

import configparser
import hashlib
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPSConnection
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.cli.commands import shoal
from shoal.cli.services import analyzer as analyzer_command
from shoal.cli.services import relay as relay_command
from shoal.cli.services import serve as serve_command
from shoal.device.outbox import HttpTransport, Outbox
from shoal.device.outbox.oblivious import ObliviousTransport
from shoal.lab.demo import free_port
from shoal.protocol.oblivious import KEYS_TYPE, KeyConfiguration
from shoal.server.doctor.examine import examine
from shoal.server.doctor.proxies import check_proxy
from tests.certificates import make_certificate
from tests.server.privacy_help import make_reports
from tests.server.serving_help import QuietHandler, Served, handled_by, served, small_plan

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CANARY = "canary-6b1f"


def options_of(words: list[str], word: str = "serve") -> dict[str, Any]:
    """Parse the words after `shoal serve`, `relay` or `analyzer`, as the command does."""
    # Below its group: a command remembers the options for help that its first context had.
    parent = shoal.make_context("shoal", [word])
    command = COMMANDS_OF[word]
    return command.make_context(word, list(words), parent=parent).params


COMMANDS_OF = {"serve": serve_command, "relay": relay_command, "analyzer": analyzer_command}
UNITS = {
    "shoal.service": "serve",
    "shoal-relay.service": "relay",
    "shoal-analyzer.service": "analyzer",
}


@pytest.mark.parametrize("name", UNITS)
class TestTheUnits:
    def unit(self, name: str) -> configparser.ConfigParser:
        parser = configparser.ConfigParser(strict=False, interpolation=None)
        parser.optionxform = str  # type: ignore[assignment, method-assign]
        parser.read_string((DEPLOY / name).read_text("utf-8"))
        return parser

    def test_its_command_is_one(self, name: str):
        service = self.unit(name)["Service"]
        program, word, *rest = service["ExecStart"].split()
        assert (program, word) == ("/opt/shoal/bin/shoal", UNITS[name])
        assert options_of(rest, word)["data"] == Path("/var/lib") / service["StateDirectory"]
        assert (service["UMask"], service["StateDirectoryMode"]) == ("0077", "0700")

    @pytest.mark.system
    @pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
    def test_systemd_takes_it(self, name: str, tmp_path: Path):
        text = (DEPLOY / name).read_text("utf-8")
        text = text.replace("/opt/shoal/bin/shoal", sys.executable)
        text = re.sub(r"^(User|Group)=.*", r"\1=root", text, flags=re.M)
        (tmp_path / "shoal.service").write_text(text)
        command = ["systemd-analyze", "verify", "--man=no", str(tmp_path / "shoal.service")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")


class TestContainers:
    def test_the_image_does_not_run_as_root(self):
        text = (DEPLOY / "Dockerfile").read_text("utf-8").replace("\\\n", "")
        lines = dict(re.findall(r"^(USER|ENTRYPOINT|HEALTHCHECK) (.*)$", text, re.M))
        assert int(lines["USER"]) > 0
        program, word, *rest = json.loads(lines["ENTRYPOINT"])
        assert (program, word) == ("/opt/shoal/bin/shoal", "serve")
        assert options_of(rest)["data"] == Path("/data")

    def test_images_and_actions_are_pinned(self):
        """By digest and by commit; only tests run in images that are named by a tag."""
        workflows = [path.read_text("utf-8") for path in (ROOT / ".github").rglob("*.yml")]
        uses = [line for text in workflows for line in re.findall(r"uses: (\S+)", text)]
        assert len(uses) >= 6
        assert all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", one) for one in uses)
        texts = [
            path.read_text("utf-8") for path in (DEPLOY / "Dockerfile", *DEPLOY.glob("*.yaml"))
        ]
        texts.append((ROOT / ".github" / "workflows" / "release.yml").read_text("utf-8"))
        images = [
            image
            for text in texts
            for image in re.findall(r"^(?:FROM|\s*image:|\s*container:) (\S+)", text, re.M)
        ]
        assert len(images) == 6
        assert all(re.fullmatch(r"[\w.:/-]+@sha256:[0-9a-f]{64}", one) for one in images)

    def test_the_image_installs_nothing_without_a_hash(self):
        text = (DEPLOY / "Dockerfile").read_text("utf-8").replace("\\\n", "")
        installing = re.findall(r"pip (?:install|wheel) [^&\n]*", text)
        assert len(installing) == 4
        assert all("--require-hashes" in one or "--no-index" in one for one in installing)

    @pytest.mark.slow
    def test_the_wheel_can_be_built_from_what_docker_sends(self, tmp_path: Path):
        """The context has all that the package is built from, and little else."""
        lines = (DEPLOY / "Dockerfile.dockerignore").read_text("utf-8").splitlines()
        for name in (line[1:] for line in lines if line.startswith("!")):
            source, target = ROOT / name, tmp_path / "src" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(
                    source, target, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
                )
            else:
                shutil.copy(source, target)
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index"]
        command += ["--no-build-isolation", "-w", str(tmp_path / "wheels")]
        command.append(str(tmp_path / "src"))
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        names = {path.name.split("-")[0] for path in (tmp_path / "wheels").iterdir()}
        assert names == {"shoal"}

    @pytest.mark.parametrize("role", ["collector", "relay", "analyzer"])
    def test_compose_shows_only_the_proxy(self, role: str):
        yaml = pytest.importorskip("yaml", reason="no reader of YAML here")
        end = "" if role == "collector" else f"-{role}"
        document = yaml.safe_load((DEPLOY / f"compose{end}.yaml").read_text("utf-8"))
        collector, proxy = document["services"][role], document["services"]["proxy"]
        assert collector["read_only"] is True
        assert collector["cap_drop"] == ["ALL"]
        assert collector["security_opt"] == ["no-new-privileges:true"]
        port, people = (8410, 8411) if role == "relay" else (8400, 8401)
        assert collector["ports"] == [f"127.0.0.1:{people}:{people}"]
        # A relay goes out to its analyzer; devices reach none of them but through the proxy.
        assert ("outside" in collector["networks"]) == (role == "relay")
        assert document["networks"]["inside"] == {"internal": True}
        assert proxy["environment"] == {"SHOAL_PUBLIC_LISTENER": f"{role}:{port}"}
        file = "Caddyfile-analyzer" if role == "analyzer" else "Caddyfile"
        assert "{$SHOAL_PUBLIC_LISTENER:127.0.0.1:8400}" in (DEPLOY / file).read_text()
        mounted = {volume.split(":")[0] for volume in collector["volumes"] + proxy["volumes"]}
        assert mounted - {f"./{file}", "./plans"} == set(document["volumes"])
        if role != "collector":
            program, word, *rest = collector["entrypoint"]
            assert (program, word) == ("/opt/shoal/bin/shoal", role)
            chosen = options_of(rest, word)
            assert chosen["data"] == Path("/data")


def nginx_command(at: Path, port: int, upstream: int, file: str = "nginx.conf") -> list[str]:
    """Our configuration with the places of this test, inside the least that nginx needs."""
    cert, key = at / "cert.pem", at / "key.pem"
    text = (DEPLOY / file).read_text("utf-8")
    text = text.replace("https://collect.example.org", f"http://127.0.0.1:{upstream}")
    text = text.replace("/var/cache/nginx", str(at))
    text = text.replace("/etc/ssl/certs/ca-certificates.crt", str(cert))
    text = text.replace("listen 443 ssl;", f"listen 127.0.0.1:{port} ssl;")
    text = text.replace("    listen [::]:443 ssl;\n", "")
    text = text.replace("127.0.0.1:8400", f"127.0.0.1:{upstream}")
    text = re.sub(r"ssl_certificate .*;", f"ssl_certificate {cert};", text)
    text = re.sub(r"ssl_certificate_key .*;", f"ssl_certificate_key {key};", text)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    places = "".join(f"{kind}_temp_path {at}/temp_{kind};\n" for kind in kinds)
    user = "user root;\n" if os.geteuid() == 0 else ""
    (at / "nginx.conf").write_text(
        f"{user}daemon off;\npid {at}/pid;\nerror_log {at}/main.log;\n"
        "events { worker_connections 1000; }\n"
        f"http {{\naccess_log {at}/access.log;\n{places}{text}}}\n"
    )
    return ["nginx", "-p", str(at), "-e", str(at / "main.log"), "-c", str(at / "nginx.conf")]


def caddy_command(at: Path, port: int, upstream: int, file: str = "Caddyfile") -> list[str]:
    text = (DEPLOY / file).read_text("utf-8")
    tls = f"https://localhost:{port} {{\n\ttls {at}/cert.pem {at}/key.pem"
    text = re.sub(r"^\w+\.example\.org \{", tls, text, flags=re.M)
    text = text.replace("{\n", "{\n\tadmin off\n\tauto_https disable_redirects\n", 1)
    text = text.replace("{$SHOAL_PUBLIC_LISTENER:127.0.0.1:8400}", f"127.0.0.1:{upstream}")
    version = subprocess.run(["caddy", "version"], capture_output=True, text=True, check=True)
    if [int(part) for part in re.findall(r"\d+", version.stdout)[:2]] < [2, 7]:
        text = text.replace("request_buffers 2MiB", "buffer_requests\n\t\t\tmax_buffer_size 2MiB")
    (at / "Caddyfile").write_text(text)
    return ["caddy", "run", "--config", str(at / "Caddyfile"), "--adapter", "caddyfile"]


COMMANDS = {"nginx": nginx_command, "caddy": caddy_command}
FOR_ANALYZERS, OBLIVIOUS_RELAY = "Caddyfile-analyzer", "nginx-oblivious-relay.conf"


@contextmanager
def proxied(name: str, at: Path, upstream: int) -> Iterator[int]:
    """Run a proxy with our configuration before a port, and yield its own."""
    port = free_port()
    make_certificate(at)
    if name in COMMANDS:
        command = COMMANDS[name](at, port, upstream)
    else:
        make = caddy_command if name == FOR_ANALYZERS else nginx_command
        command = make(at, port, upstream, name)
    homes = {"HOME": str(at), "XDG_DATA_HOME": str(at), "XDG_CONFIG_HOME": str(at)}
    with (at / "said").open("wb") as said:
        proxy = subprocess.Popen(command, stdout=said, stderr=said, env=os.environ | homes)
        try:
            for _ in range(600):
                assert proxy.poll() is None, (at / "said").read_text()
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.05)
            yield port
        finally:
            proxy.terminate()
            proxy.wait(30)


class Came(list[tuple[dict[str, str], bytes]]):
    """What reached a server: headers and bodies, and how many connections brought them."""

    connections = 0


@contextmanager
def listening() -> Iterator[tuple[int, Came]]:
    """A server that keeps what reaches it: the headers and the body."""
    came = Came()

    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            came.connections += 1

        def do_POST(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            if headers.get("transfer-encoding") == "chunked":
                body = b""
                while size := int(self.rfile.readline(), 16):
                    body += self.rfile.read(size + 2)[:-2]
                self.rfile.readline()
            else:
                body = self.rfile.read(int(headers.get("content-length", 0)))
            came.append((headers, body))
            self.send_response_only(202)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_PUT = do_POST  # noqa: N815  its name

    with handled_by(Handler) as port:
        yield port, came


@contextmanager
def connected(at: Path, port: int, source: str = "127.0.0.1") -> Iterator[ssl.SSLSocket]:
    """A connection through TLS, from an address of this machine."""
    trust = ssl.create_default_context(cafile=at / "cert.pem")
    with (
        socket.create_connection(("127.0.0.1", port), 20, (source, 0)) as plain,
        trust.wrap_socket(plain, server_hostname="localhost") as wire,
    ):
        yield wire


def asked(
    at: Path, port: int, method: str, path: str, body: Any = None, headers: Any = None
) -> tuple[int, Any]:
    """Return the status and the headers of a response through TLS."""
    trust = ssl.create_default_context(cafile=at / "cert.pem")
    with closing(HTTPSConnection("localhost", port, context=trust, timeout=60)) as connection:
        connection.request(method, path, body, headers or {})
        with connection.getresponse() as answer:
            answer.read()
            return answer.status, answer.headers


def assert_nothing_kept(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            assert CANARY.encode() not in path.read_bytes(), path


def assert_nobody_named(headers: dict[str, str]) -> None:
    assert CANARY not in str(headers)
    assert "127.0.0.1" not in {value for key, value in headers.items() if key != "host"}


def post_head(length: int) -> bytes:
    return (
        "POST /v1/x HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/octet-stream\r\n"
        f"Content-Length: {length}\r\n\r\n"
    ).encode()


@pytest.fixture(params=sorted(COMMANDS))
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    if shutil.which(found) is None:
        pytest.skip(f"no {found} here")
    return found


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(
        tmp_path_factory.mktemp("deploy") / "data", small_plan(), "--public-results"
    ) as one:
        yield one


@pytest.mark.slow
@pytest.mark.system
class TestRealProxies:
    @pytest.mark.parametrize("path", ["/v1/plans/x/reports", "/dap/tasks/x/reports"])
    @pytest.mark.parametrize("chunked", [False, True])
    def test_what_reaches_the_service_and_what_stays(
        self, name: str, tmp_path: Path, chunked: bool, path: str
    ):
        """Headers, and the largest body that is passed on: passed on or dropped, nowhere kept."""
        body = CANARY.encode() * (2_000_000 // len(CANARY))
        sent = {
            "Content-Type": "application/vnd.shoal.reports",
            "Authorization": "Bearer app",
            "User-Agent": CANARY,
            "Cookie": f"a={CANARY}",
            "Referer": f"https://{CANARY}/",
            "X-Forwarded-For": CANARY,
            "X-Forwarded-Host": CANARY,
        }
        with listening() as (upstream, came), proxied(name, tmp_path, upstream) as port:
            content = (body[at : at + 9999] for at in range(0, len(body), 9999))
            sending = asked(
                tmp_path, port, "POST", f"{path}?{CANARY}", content if chunked else body, sent
            )
            assert sending[0] == 202
            status, answer = asked(tmp_path, port, "GET", f"/healthz?{CANARY}", None, sent)
            assert status == 404
            assert "nginx/" not in answer.get("Server", "")
        ((headers, arrived),) = came
        assert arrived == body
        assert_nobody_named(headers)
        assert headers["content-type"] == sent["Content-Type"]
        assert headers["authorization"] == sent["Authorization"]
        assert_nothing_kept(tmp_path)

    @pytest.mark.skipif(shutil.which("caddy") is None, reason="no caddy here")
    def test_a_relay_reaches_an_analyzer(self, tmp_path: Path):
        """The largest chunk passes with its token and signature, and nothing of it is kept."""
        body = CANARY.encode() * ((8 << 20) // len(CANARY))
        sent = {"Authorization": "Bearer relay", "Shoal-Signature": "abc", "User-Agent": CANARY}
        with listening() as (upstream, came), proxied(FOR_ANALYZERS, tmp_path, upstream) as port:
            path = "/v1/plans/x/crowds/0/1/chunks/0"
            assert asked(tmp_path, port, "PUT", path, body, sent)[0] == 202
            assert asked(tmp_path, port, "GET", "/metrics")[0] == 404
        ((headers, arrived),) = came
        assert arrived == body
        assert headers["authorization"] == sent["Authorization"]
        assert headers["shoal-signature"] == sent["Shoal-Signature"]
        assert_nobody_named(headers)
        assert_nothing_kept(tmp_path)

    def test_slow_senders_wait_at_the_proxy(self, name: str, tmp_path: Path):
        """Half a body has come, and nobody has connected to the collector; then the rest comes."""
        with listening() as (upstream, came), proxied(name, tmp_path, upstream) as port:
            before = came.connections  # the proxy may have looked whether somebody is there
            with connected(tmp_path, port) as wire:
                wire.sendall(post_head(1000) + bytes(500))
                time.sleep(0.5)
                assert (came.connections, len(came)) == (before, 0)
                wire.sendall(bytes(500))
                assert b" 202 " in wire.recv(4096)
            assert [len(body) for _, body in came] == [1000]

    def test_connections_to_the_collector_are_kept(self, name: str, tmp_path: Path):
        with listening() as (upstream, came), proxied(name, tmp_path, upstream) as port:
            for _ in range(10):
                with connected(tmp_path, port) as wire:
                    wire.sendall(post_head(3) + b"abc")
                    assert b" 202 " in wire.recv(4096)
            assert len(came) == 10
            assert came.connections < 5

    def test_nginx_limits_each_address_and_no_other(self, name: str, tmp_path: Path):
        """One address floods, with slow bodies and with quick ones; another one does not notice."""
        if name != "nginx":  # Caddy has no limits by itself, and the doctor says so
            findings = check_proxy(DEPLOY / "Caddyfile")
            assert any("nothing limits" in finding.sentence for finding in findings)
            return
        with listening() as (upstream, came), proxied(name, tmp_path, upstream) as port:
            with ExitStack() as held:
                flood = [held.enter_context(connected(tmp_path, port)) for _ in range(70)]
                for wire in flood:
                    wire.sendall(post_head(1000) + bytes(500))
                readers = held.enter_context(ThreadPoolExecutor(70))
                waiting = {readers.submit(wire.recv, 4096): wire for wire in flood}
                # All but 20 are refused, whichever come first, while no body is complete.
                for answer in islice(as_completed(list(waiting), timeout=120), 50):
                    assert b" 429 " in answer.result()
                    del waiting[answer]
                assert len(came) == 0
                for answer, wire in waiting.items():
                    wire.sendall(bytes(500))
                    assert b" 202 " in answer.result(timeout=120)
            with connected(tmp_path, port) as wire:
                answers, sent = b"", 0
                while answers.count(b"HTTP/1.1 429 ") < 10:  # a slow machine is below the limit
                    wire.sendall((post_head(3) + b"abc") * 80)
                    sent += 80
                    while answers.count(b"HTTP/1.1 ") < sent:
                        answers += wire.recv(1 << 16)
            with connected(tmp_path, port, "127.0.0.2") as wire:
                wire.sendall(post_head(3) + b"abc")
                assert b" 202 " in wire.recv(4096)

    def test_an_error_is_not_written_down(self, name: str, tmp_path: Path):
        """Nobody listens behind the proxy."""
        with proxied(name, tmp_path, free_port()) as port:
            sent = {"User-Agent": CANARY}
            assert asked(tmp_path, port, "POST", f"/v1/{CANARY}", b"x", sent)[0] == 502
        assert_nothing_kept(tmp_path)

    def test_a_device_and_the_doctor_go_through(
        self, name: str, tmp_path: Path, collector: Served, monkeypatch: pytest.MonkeyPatch
    ):
        with proxied(name, tmp_path, int(collector.public.rpartition(":")[2])) as port:
            url = f"https://localhost:{port}"
            trust = ssl.create_default_context(cafile=tmp_path / "cert.pem")
            outbox = Outbox(tmp_path / "outbox", HttpTransport(url, context=trust), spread=0)
            answer = {"features": ["sync"], "channel": "beta"}
            outbox.answer(outbox.plan(collector.plan.id), answer)
            assert [ticket.state for ticket in outbox.send_due()] == ["sent"]

            def verdicts() -> dict[str, str]:
                found = examine(
                    collector.folder, url=url, console_url=collector.console, environment={}
                )
                return {one.check: one.verdict for one in found}

            assert verdicts()["TLS"] == "fail"  # nobody vouches for the certificate yet
            monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
            found = verdicts()
            assert {found[check] for check in ("TLS", "public listener", "cookies", "clocks")} == {
                "ok"
            }
            assert found["headers"] == found["public results"] == "ok"
            assert "console" not in found
            file = "nginx.conf" if name == "nginx" else "Caddyfile"
            findings = examine(
                collector.folder,
                url=url,
                console_url=collector.console,
                proxies=[at / file for at in (DEPLOY, tmp_path)],
                environment={},
            )
            # The other checks are of the machine that runs this.
            of_proxy = [one for one in findings if one.check not in ("disk", "file system")]
            assert sum(one.check.startswith("proxy") for one in of_proxy) >= 2
            if name == "nginx":
                assert [one for one in of_proxy if one.verdict != "ok"] == []


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nginx") is None, reason="no nginx here")
def test_an_oblivious_relay_has_one_copy_of_the_key(tmp_path: Path):
    """A collector that forbids caching and has a key for each fetch gets no second fetch."""
    fetches: list[dict[str, str]] = []

    class Collector(QuietHandler):
        def do_GET(self) -> None:
            fetches.append({name.lower(): text for name, text in self.headers.items()})
            key = KeyConfiguration(1, hashlib.sha256(b"%d" % len(fetches)).digest())
            self.send_response(200)
            self.send_header("Content-Type", KEYS_TYPE)
            self.send_header("Cache-Control", "no-store, max-age=0")
            self.send_header("Set-Cookie", f"{CANARY}=1")
            self.send_header("Vary", "*")
            self.send_header("Content-Length", str(len(key.to_list())))
            self.end_headers()
            self.wfile.write(key.to_list())

    with handled_by(Collector) as upstream, proxied(OBLIVIOUS_RELAY, tmp_path, upstream) as port:
        trust = ssl.create_default_context(cafile=tmp_path / "cert.pem")

        def fetched(number: int) -> tuple[bytes, str | None]:
            connection = HTTPSConnection("localhost", port, context=trust, timeout=60)
            path, cookie = f"/shoal?{number}", {"Cookie": f"{CANARY}={number}"}
            connection.request("GET", path, headers=cookie)
            with connection.getresponse() as answer:
                content = answer.read(), answer.getheader("Set-Cookie")
            connection.close()
            return content

        with ThreadPoolExecutor(5) as pool:
            copies = set(pool.map(fetched, range(30)))
    assert len(copies) == len(fetches) == 1
    assert {cookie for _, cookie in copies} == {None}
    assert CANARY not in str(fetches)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nginx") is None, reason="no nginx here")
def test_reports_go_through_an_oblivious_relay(tmp_path: Path):
    agreed = small_plan()
    with served(tmp_path / "data", agreed, "--oblivious", "reports") as collector:
        upstream = int(collector.public.rpartition(":")[2])
        (tmp_path / "proxy").mkdir()
        with proxied(OBLIVIOUS_RELAY, tmp_path / "proxy", upstream) as port:
            trust = ssl.create_default_context(cafile=tmp_path / "proxy" / "cert.pem")
            transport = ObliviousTransport(
                collector.public, f"https://localhost:{port}/shoal", context=trust
            )
            batch = make_reports(agreed, 1, np.random.default_rng(5)).to_bytes()
            assert transport.post_report(agreed.id, batch).status == 202
