"""Good and bad deployments: the doctor tells them apart, with a sentence and a way out."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from shoal import __version__
from shoal.cli import run
from shoal.errors import InputError
from shoal.server.doctor import Finding, worst
from shoal.server.doctor import data_folder as premises
from shoal.server.doctor.examine import examine
from tests.server.serving_help import QuietHandler, Served, handled_by

NGINX = Path(__file__).parent.parent.parent / "deploy" / "nginx.conf"


@pytest.fixture
def data(stopped: Path) -> Path:
    return stopped


def findings_of(folder: Path, **options: Any) -> dict[str, Finding]:
    """What is found, by check; nothing else of this machine is looked at."""
    return {one.check: one for one in examine(folder, environment={}, **options)}


def verdicts(folder: Path, **options: Any) -> dict[str, str]:
    return {name: one.verdict for name, one in findings_of(folder, **options).items()}


class TestLimits:
    """What keeps one sender from filling a crowd, as far as it is enforced."""

    def limits(self, data: Path, at: Path, *, proxy: bool = False, **settings: object) -> Finding:
        config = at / "limits.toml"
        config.write_text("".join(f"{name} = {json.dumps(settings[name])}\n" for name in settings))
        return findings_of(data, config=config, proxies=[NGINX] if proxy else [])["limits"]

    def test_they_are_said(self, data: Path, tmp_path: Path):
        alone = self.limits(data, tmp_path)
        assert alone.verdict == "warn"
        assert "Anyone may send reports: 100 a request, and 1 % of a crowd" in alone.sentence
        assert "Limits per address were not checked" in alone.sentence
        assert self.limits(data, tmp_path, proxy=True).verdict == "ok"
        with_token = self.limits(data, tmp_path, ingest="token", reports_per_request=7)
        assert with_token.verdict == "ok"
        assert "Only apps and relays with a token may send reports: 7 a" in with_token.sentence
        wide = self.limits(data, tmp_path, proxy=True, max_share_percent=50)
        assert (wide.verdict, wide.way_out) == ("warn", "Set max_share_percent to 10 or less.")


class TestAGoodDeployment:
    def test_nothing_fails(self, running: Served):
        findings = findings_of(running.folder, url=running.public, console_url=running.console)
        assert worst(findings.values()) == "warn"
        unwell = {name for name, one in findings.items() if one.verdict != "ok"}
        # The public listener is asked without a proxy, and a test's folder may be anywhere.
        assert unwell <= {"TLS", "limits", "disk", "file system"}
        assert findings["TLS"].verdict == "warn"
        assert {"folder", "shoal.db", "signing-key", "admin-token", "signing key", "data", "clock",
                "public listener", "console listener", "version", "cookies",
                "headers"} <= set(findings)  # fmt: skip

    def test_the_command(self, running: Served, capsys: pytest.CaptureFixture[str]):
        words = ["collector", "doctor", str(running.folder), "--url", running.public]
        words += ["--console-url", running.console]
        assert run([*words, "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert document["verdict"] == "warn"
        assert {"check", "verdict", "sentence", "way_out"} == set(document["findings"][0])
        assert run(words) == 0
        assert "The collector answers at" in capsys.readouterr().out

    def test_nothing_is_changed(self, data: Path):
        before = {path.name: path.read_bytes() for path in data.iterdir()}
        examine(data, environment={})
        after = {path.name: path.read_bytes() for path in data.iterdir()}
        assert {name: after[name] for name in before} == before
        assert set(after) - set(before) <= {"shoal.db-wal", "shoal.db-shm"}


class TestTheFolder:
    def test_every_finding_that_is_not_well_has_a_way_out(self, tmp_path: Path):
        for one in examine(tmp_path / "none", environment={}):
            assert one.sentence.endswith(".")
            assert (one.verdict == "ok") == (one.way_out == "")

    def test_no_folder_is_exit_code_one(self, tmp_path: Path):
        assert verdicts(tmp_path / "none")["folder"] == "fail"
        assert run(["collector", "doctor", str(tmp_path / "none")]) == 1

    def test_open_permissions(self, data: Path):
        data.chmod(0o750)
        (data / "admin-token").chmod(0o644)
        (data / "shoal.db").chmod(0o640)
        found = findings_of(data)
        assert found["folder"].verdict == found["admin-token"].verdict == "fail"
        assert found["shoal.db"].verdict == "fail"
        assert found["signing-key"].verdict == "ok"
        assert found["admin-token"].way_out == f"chmod 600 {data / 'admin-token'}"

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
    def test_another_owner(self, data: Path):
        os.chown(data / "shoal.db", 12345, -1)
        found = findings_of(data)
        assert found["owner"].verdict == "fail"
        assert "sudo -u 12345" in found["data"].way_out
        assert not (data / "shoal.db-shm").exists()

    def test_keys_that_are_none(self, data: Path):
        (data / "signing-key").write_text("nonsense")
        assert verdicts(data)["signing key"] == "fail"
        (data / "signing-key").unlink()
        assert verdicts(data)["signing key"] == "fail"
        assert not (data / "signing-key").exists()

    def test_settings(self, data: Path):
        assert verdicts(data)["settings"] == "ok"
        (data / "shoal.toml").write_text("allow_unproven = true")
        assert verdicts(data)["settings"] == "warn"
        (data / "shoal.toml").write_text("colour = 'blue'")
        assert "no setting 'colour'" in findings_of(data)["settings"].sentence

    def test_a_folder_that_one_may_not_look_into(self, data: Path, monkeypatch):
        monkeypatch.setattr("os.access", lambda *_: False)

        def refused(folder: Path) -> None:
            raise PermissionError(folder)

        monkeypatch.setattr(Path, "iterdir", refused)
        found = findings_of(data)
        assert "sudo -u" in found["owner"].way_out
        assert "data" not in found

    def test_disk_space(self, data: Path, monkeypatch: pytest.MonkeyPatch):
        def free(megabytes: int) -> str:
            usage = type("usage", (), {"free": megabytes << 20})
            monkeypatch.setattr("shutil.disk_usage", lambda folder: usage)
            return verdicts(data)["disk"]

        assert [free(10), free(500), free(5000)] == ["fail", "warn", "ok"]

    @pytest.mark.parametrize(
        ("kind", "verdict"),
        [("ext4", "ok"), ("nfs4", "fail"), ("fuse.sshfs", "fail"), ("tmpfs", "fail"),
         ("overlay", "warn")],
    )  # fmt: skip
    def test_file_systems(self, kind: str, verdict: str, data: Path, tmp_path: Path, monkeypatch):
        """The deepest mount counts, and of two at one place the later."""
        table = tmp_path / "mountinfo"
        place = str(data.resolve()).replace(" ", "\\040")
        table.write_text(
            "1 0 8:1 / / rw - xfs /dev/a rw\n"
            f"2 1 0:5 / {place} rw shared:2 - zfs b rw\n"
            f"3 1 0:5 / {place} rw shared:2 - {kind} b rw\n"
            f"4 1 0:6 / {place}2 rw - nfs c rw\n"
        )
        assert premises._kind_of_file_system(data, str(table)) == kind
        assert premises._kind_of_file_system(tmp_path, str(table)) == "xfs"
        assert premises._kind_of_file_system(data, str(tmp_path / "none")) is None
        monkeypatch.setattr(premises, "_kind_of_file_system", lambda folder: kind)
        assert verdicts(data)["file system"] == verdict


def damaged(content: bytes) -> bytes:
    return content[:4096] + bytes(1904) + content[6000:]


class TestTheData:
    @pytest.mark.parametrize("spoil", [damaged, lambda content: b"not a database" * 500, None])
    def test_damaged_or_none(self, data: Path, spoil: Callable[[bytes], bytes] | None):
        file = data / "shoal.db"
        if spoil is None:
            file.unlink()
        else:
            file.write_bytes(spoil(file.read_bytes()))
        assert verdicts(data)["data"] == "fail"

    @pytest.mark.parametrize("version", [99, 1])
    def test_of_another_version(self, data: Path, version: int):
        with closing(sqlite3.connect(data / "shoal.db")) as database:
            database.execute(f"PRAGMA user_version = {version}")
        found = findings_of(data)["data"]
        assert found.verdict == "fail"
        assert found.sentence.startswith(f"The data have version {version}; ")
        assert found.way_out == "Use the Shoal that wrote them."

    def test_a_log_that_nobody_empties(self, data: Path, monkeypatch: pytest.MonkeyPatch):
        assert "log" not in findings_of(data)
        for megabytes, verdict in ((65, "warn"), (1025, "fail")):
            monkeypatch.setattr(
                "shoal.server.doctor.data_folder.log_size",
                lambda folder, size=megabytes: size << 20,
            )
            assert verdicts(data)["log"] == verdict

    def test_another_journal(self, data: Path):
        with closing(sqlite3.connect(data / "shoal.db")) as database:
            database.execute("PRAGMA journal_mode = DELETE")
        assert verdicts(data)["data"] == "warn"


def test_the_clock(data: Path):
    """Before this program was written, before the last change of the data, and after it."""
    now = time.time()
    found = [
        verdicts(data, clock=lambda at=at: at)["clock"] for at in (1e9, now - 3600, now + 3600)
    ]
    assert found == ["fail", "fail", "ok"]


@pytest.mark.parametrize(
    ("public", "console", "url", "expected"),
    [
        ("0.0.0.0:1", "203.0.113.7:2", None, ("fail", "fail")),
        ("0.0.0.0:1", "127.0.0.1:2", "https://127.0.0.1:1", ("warn", "ok")),
        ("127.0.0.1:1", "8.8.8.8:8401", "https://127.0.0.1:1", ("ok", "fail")),
    ],
)
def test_addresses(
    public: str, console: str, url: str | None, expected: tuple[str, str], data: Path
):
    (data / "shoal.toml").write_text(f'public = "{public}"\nconsole = "{console}"')
    found = verdicts(data, url=url)
    assert (found["public address"], found["console address"]) == expected


def test_what_is_no_address(data: Path):
    with pytest.raises(InputError, match="address is https"):
        examine(data, url="ftp://host")


Answers = dict[str, tuple[int, dict[str, str], bytes]]


@contextmanager
def answering(answers: Answers) -> Iterator[str]:
    """A server that answers what it is told, as a bad proxy would."""

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            status, headers, body = answers.get(self.path, (404, {}, b""))
            self.send_response_only(status)
            for name, value in ({"Content-Length": str(len(body))} | headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

    with handled_by(Handler) as port:
        yield f"http://127.0.0.1:{port}"


class TestAnswers:
    def keys(self, folder: Path) -> bytes:
        from shoal.server.storage.key_file import Signer

        return json.dumps({"ed25519": [Signer(folder).public_key]}).encode()

    def test_nobody_answers(self, data: Path):
        found = verdicts(data, url="http://127.0.0.1:9", console_url="http://127.0.0.1:9")
        assert found["public listener"] == found["console listener"] == "fail"

    def test_cookies_and_servers(self, data: Path):
        headers = {"Set-Cookie": "a=b", "Server": "proxy/1.0", "X-Powered-By": "steam"}
        with answering({"/v1/keys": (200, headers, self.keys(data))}) as url:
            found = findings_of(data, url=url)
        assert found["public listener"].verdict == "ok"
        assert found["cookies"].verdict == "fail"
        assert found["headers"].sentence == "The responses carry Server, X-Powered-By."

    @pytest.mark.parametrize(("server", "verdict"), [("nginx", "ok"), ("nginx/1.22", "warn")])
    def test_a_name_without_a_version(self, data: Path, server: str, verdict: str):
        with answering({"/v1/keys": (200, {"Server": server}, self.keys(data))}) as url:
            assert verdicts(data, url=url)["headers"] == verdict

    def test_another_collector(self, data: Path):
        with answering({"/v1/keys": (200, {}, b'{"ed25519": ["other"]}')}) as url:
            assert "different collector" in findings_of(data, url=url)["public listener"].sentence

    @pytest.mark.parametrize("body", [b"", b"[]", b"<html>", b"[" * 100_000, b'{"ed25519": 1}'])
    def test_no_collector_at_all(self, data: Path, body: bytes):
        with answering({"/v1/keys": (200, {}, body), "/readyz": (503, {}, b"")}) as url:
            found = findings_of(data, url=url, console_url=url)
        assert "not a collector" in found["public listener"].sentence
        assert found["console listener"].verdict == "fail"
        assert found["version"].verdict == "warn"

    def test_the_console_in_public(self, data: Path):
        answers: Answers = {"/v1/keys": (200, {}, self.keys(data)), "/healthz": (200, {}, b"{}")}
        with answering(answers) as url:
            assert verdicts(data, url=url)["console"] == "fail"

    def test_public_results_behind_a_proxy(self, data: Path):
        answers: Answers = {"/v1/keys": (200, {}, self.keys(data))}
        with answering(answers) as url:
            assert "public results" not in verdicts(data, url=url)
            (data / "results").mkdir()
            found = findings_of(data, url=url)["public results"]
            assert found.verdict == "warn"
            assert "the response was 404" in found.sentence
            answers["/results/"] = (200, {}, b"")
            assert verdicts(data, url=url)["public results"] == "ok"

    def test_clocks_apart(self, data: Path):
        def found(date: str) -> str:
            with answering({"/v1/keys": (200, {"Date": date}, self.keys(data))}) as url:
                return verdicts(data, url=url).get("clocks", "none")

        now = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime())
        assert found(now) == "ok"
        assert found("Sat, 14 Nov 2026 00:00:00 GMT") == "fail"
        assert found("yesterday") == "none"

    def test_another_version_is_running(self, data: Path):
        def found(version: str) -> str:
            document = json.dumps({"info": {"version": version}}).encode()
            answers: Answers = {"/readyz": (200, {}, b"{}"), "/openapi.json": (200, {}, document)}
            with answering(answers) as url:
                return verdicts(data, console_url=url)["version"]

        assert found(__version__) == "ok"
        assert found("0.0.1") == "warn"

    def test_in_the_open(self, data: Path, monkeypatch: pytest.MonkeyPatch):
        """http to another machine fails whether or not anybody answers there."""
        monkeypatch.setattr("shoal.server.doctor.examine._TIMEOUT", 0.01)
        found = findings_of(data, url="http://192.0.2.1", console_url="http://192.0.2.1")
        assert "are sent without encryption" in found["TLS"].sentence
        assert found["console listener"].verdict == "fail"
