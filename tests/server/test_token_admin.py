"""`shoal collector token`: at a running collector's console, or in the folder of a stopped one."""

from __future__ import annotations

import json
from contextlib import closing
from datetime import date
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from shoal.cli import run
from shoal.errors import InputError
from shoal.server.console.token_admin import open_token_admin
from shoal.server.core.settings import ADDRESSES_FILE, read_addresses, write_addresses
from shoal.server.core.tokens import TOKEN_FILE, Token

from .serving_help import Served, served, small_plan


def status(one: Served, secret: str) -> int:
    """What the console answers to a token."""
    with closing(HTTPConnection(urlsplit(one.console).netloc, timeout=30)) as connection:
        connection.request("GET", "/v1/plans", headers={"Authorization": f"Bearer {secret}"})
        return connection.getresponse().status


def output(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert run(["collector", "token", *words, "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def life(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Make a token with every option, see it listed, revoke it, see it gone."""
    plan = small_plan().id
    options = ["--role", "analyst", "--label", "Ada", "--expires", "2099-01-31", "--plan", plan]
    made = output(capsys, "make", str(folder), *options)
    secret = made.pop("token")
    assert secret.startswith("shoal_analyst_")
    assert made == {
        "id": made["id"], "role": "analyst", "label": "Ada", "expires": "2099-01-31",
        "plans": [plan], "key": None,
    }  # fmt: skip
    assert made in output(capsys, "list", str(folder))["tokens"]
    assert run(["collector", "token", "list", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert made["id"] in shown
    assert secret not in shown
    assert output(capsys, "revoke", str(folder), made["id"]) == {"revoked": made["id"]}
    assert made not in output(capsys, "list", str(folder))["tokens"]
    assert run(["collector", "token", "revoke", str(folder), made["id"]]) == 2
    assert "no such token" in capsys.readouterr().err


def test_while_it_runs(running: Served, capsys: pytest.CaptureFixture[str]):
    life(running.folder, capsys)


def test_while_it_is_stopped(stopped: Path, capsys: pytest.CaptureFixture[str]):
    life(stopped, capsys)


def test_a_running_collector_takes_the_token_at_once(running: Served):
    """And one that was made while it was stopped holds after a start."""
    with open_token_admin(running.folder) as admin:
        token, secret = admin.make(Token.new("viewer", "a viewer"))
        assert status(running, secret) == 200
        admin.revoke(token.id)
    assert status(running, secret) == 401


@pytest.mark.slow
def test_a_token_of_a_stopped_collector_holds_after_a_start(stopped: Path):
    with open_token_admin(stopped) as admin:
        _, secret = admin.make(Token.new("viewer", "a viewer", expires=date(2099, 1, 1)))
    with served(stopped, small_plan()) as one:
        assert status(one, secret) == 200


def test_the_last_admin_stays(stopped: Path, capsys: pytest.CaptureFixture[str]):
    (admin,) = output(capsys, "list", str(stopped))["tokens"]
    assert run(["collector", "token", "revoke", str(stopped), admin["id"]]) == 2
    assert "last admin" in capsys.readouterr().err


def test_addresses_are_there_while_it_runs(running: Served, stopped: Path):
    assert read_addresses(running.folder) == {"public": running.public, "console": running.console}
    assert (running.folder / ADDRESSES_FILE).stat().st_mode & 0o077 == 0
    assert read_addresses(stopped) == {}


class TestRefusals:
    def refused(self, capsys: pytest.CaptureFixture[str], *words: str) -> str:
        assert run(["collector", "token", *words]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        return error

    def test_no_data(self, tmp_path: Path, capsys):
        assert "holds no collector" in self.refused(capsys, "list", str(tmp_path))

    def test_a_wrong_admin_token(self, running: Served, tmp_path: Path, capsys):
        (tmp_path / "wrong").write_text("shoal_admin_0")
        words = ("list", str(running.folder), "--admin-token", str(tmp_path / "wrong"))
        assert "This needs a token" in self.refused(capsys, *words)
        words = ("list", str(running.folder), "--admin-token", str(tmp_path / "none"))
        assert "--admin-token" in self.refused(capsys, *words)

    def test_a_console_that_is_not_there(self, running: Served, capsys):
        words = ("list", str(running.folder), "--console-url", "http://127.0.0.1:9")
        assert "no console answers" in self.refused(capsys, *words)

    def test_an_admin_token_does_not_travel_in_the_open(self, running: Served, capsys):
        words = ("list", str(running.folder), "--console-url", "http://collector.example")
        assert "without TLS" in self.refused(capsys, *words)

    def test_what_cannot_be(self, stopped: Path, capsys):
        words = ("make", str(stopped), "--role", "viewer", "--label", "a\nb")
        assert "label" in self.refused(capsys, *words)

    def test_addresses_that_nobody_can_read(self, running: Served, tmp_path: Path):
        for content in (b"{", b"[]", b'{"console": 1}'):
            (tmp_path / ADDRESSES_FILE).write_bytes(content)
            assert read_addresses(tmp_path) == {}
        write_addresses(tmp_path, {"console": "http://127.0.0.1:1"})
        assert read_addresses(tmp_path) == {"console": "http://127.0.0.1:1"}

    def test_a_collector_whose_address_is_not_known(self, running: Served):
        addresses = (running.folder / ADDRESSES_FILE).read_bytes()
        (running.folder / ADDRESSES_FILE).unlink()
        try:
            with pytest.raises(InputError, match="--console-url"), open_token_admin(running.folder):
                pass
        finally:
            (running.folder / ADDRESSES_FILE).write_bytes(addresses)
            (running.folder / ADDRESSES_FILE).chmod(0o600)
        assert (running.folder / TOKEN_FILE).exists()
