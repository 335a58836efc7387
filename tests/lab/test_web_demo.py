"""The demonstration in a browser: a visitor, a crowd that fills, and only its progress before."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from shoal import Plan, ShoalError, plan
from shoal.cli.demo import SURVEY
from shoal.device.outbox import HttpTransport
from shoal.errors import InputError
from shoal.lab import demo, web_demo
from shoal.lab.demo import Answer, made_up_answers, send_one
from shoal.lab.web_demo import client_files, web_demonstration
from tests.axe import obstacles
from tests.server.console_help import browser
from tests.server.test_browser import watched

pytestmark = pytest.mark.slow
USERS = 100
SEED = 5
PAGE = {"Sec-Fetch-Site": "same-origin"}


@pytest.fixture(scope="module")
def agreed() -> Plan:
    return plan(SURVEY, crowd_size=USERS, epsilon="1", delta="1e-6")


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A place for everything temporary, so that what is left behind is seen."""
    folder = tmp_path_factory.mktemp("scratch")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(folder))
        patch.setattr(demo, "_IN_MEMORY", folder)
        yield folder
    assert list(folder.iterdir()) == []


def ask(
    address: str, path: str, method: str = "GET", headers: dict[str, str] | None = None
) -> tuple[int, bytes, dict[str, str]]:
    connection = http.client.HTTPConnection(address.split("/")[2], timeout=120)
    try:
        connection.request(method, path, headers=headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read(), dict(answer.getheaders())
    finally:
        connection.close()


def state(address: str, visitor: str = "me") -> dict[str, Any]:
    document: dict[str, Any] = json.loads(ask(address, f"/state.json?visitor={visitor}")[1])
    return document


OPEN = {"state", "seat", "progress", "early"}


def until(address: str, wanted: str) -> list[dict[str, Any]]:
    """Every state until one; the demonstration has minutes for what takes seconds."""
    end = time.monotonic() + 300
    seen = [state(address)]
    while seen[-1]["state"] != wanted:
        assert seen[-1]["state"] in ("waiting", "filling"), seen[-1]
        assert time.monotonic() < end
        time.sleep(0.02)
        seen.append(state(address))
    return seen


@pytest.mark.slow
def test_everybody_else_waits_for_the_visitor(agreed: Plan, scratch: Path, tmp_path: Path) -> None:
    """The visitor is a device of ours: before the crowd is complete, progress and nothing else."""
    with web_demonstration(agreed, seed=SEED) as address:
        settings = json.loads(ask(address, "/settings.json")[1])
        assert settings["client"]["plan"] == agreed.id
        assert settings["client"]["limit"] == agreed.local_epsilon
        waiting = {"state": "waiting", "seat": "free", "progress": 0, "early": 409}
        assert state(address) == waiting
        assert ask(address, "/report.html")[0] == 409
        # Nobody but the page itself starts anything, and no other name leads here.
        assert ask(address, "/begin", "POST")[0] == 403
        assert ask(address, "/begin", "POST", {"Sec-Fetch-Site": "same-site"})[0] == 403
        assert ask(address, "/other", "POST", PAGE)[0] == 403
        assert ask(address, "/", headers={"Host": "shoal.example"})[0] == 403
        assert ask(address, "/state.json", headers={"Host": "shoal.example"})[0] == 403
        assert ask(address, "/begin", "POST", PAGE | {"Host": "shoal.example"})[0] == 403
        assert ask(address, "/src/../page.js")[0] == 404
        assert state(address)["state"] == "waiting"

        # Only the visitor who took the seat starts the others, once.
        assert ask(address, "/seat?visitor=me", "POST")[0] == 403
        assert ask(address, "/begin?visitor=me", "POST", PAGE)[0] == 200
        assert state(address)["state"] == "waiting"
        for name in ("me", "you"):
            assert ask(address, f"/seat?visitor={name}", "POST", PAGE)[0] == 200
        assert (state(address)["seat"], state(address, "you")["seat"]) == ("yours", "taken")
        assert ask(address, "/begin?visitor=you", "POST", PAGE)[0] == 200
        assert state(address)["state"] == "waiting"
        assert ask(address, "/begin?visitor=me", "POST", PAGE)[0] == 200
        assert ask(address, "/begin?visitor=me", "POST", PAGE)[0] == 200
        end = time.monotonic() + 300
        while (found := state(address))["progress"] < 90:
            assert time.monotonic() < end
            assert set(found) == OPEN
            assert found["early"] == 409
        time.sleep(0.2)
        assert state(address)["state"] == "filling"
        collector = HttpTransport(settings["client"]["to"])
        visitor: Answer = {"features": ["sync"], "channel": "beta"}
        send_one(agreed.id, visitor, collector, tmp_path / "visitor", Event())
        *open_states, complete = until(address, "complete")
        assert all(set(one) == OPEN for one in open_states)
        assert complete["reports"] == USERS
        people = list(made_up_answers(SURVEY, USERS - 1, SEED))
        for label, row in complete["questions"]["channel"].items():
            assert row["truth"] == sum(one["channel"] == label for one in people)
            assert row["low"] < row["high"]
        status, page, headers = ask(address, "/report.html")
        assert (status, page[:15]) == (200, b"<!doctype html>")
        assert "script-src" not in headers["Content-Security-Policy"]


@pytest.mark.slow
def test_a_visitor_in_a_browser(agreed: Plan, scratch: Path) -> None:
    """Answers, sees what left, watches the progress, and reads the estimates beside the truth."""
    with web_demonstration(agreed, seed=SEED) as address, browser() as chromium:
        context = chromium.new_context(viewport={"width": 1280, "height": 900})
        tab = context.new_page()
        tab.set_default_timeout(240_000)
        to = json.loads(ask(address, "/settings.json")[1])["client"]["to"]
        wrong = watched(tab, "http://127.0.0.1:")
        requests: list[Any] = []
        tab.on("request", lambda one: requests.append(one))
        tab.goto(address)
        tab.wait_for_selector("#survey:not([hidden])")
        assert obstacles(tab) == []
        assert_inputs_are_beside_their_labels(tab)
        tab.check("label:has-text('sync') >> input")
        tab.check("label:has-text('beta') >> input")
        assert not tab.locator("#left").is_visible()
        tab.click("button:has-text('Answer')")
        tab.wait_for_selector("#bits tr >> nth=7")
        (sent,) = [one for one in requests if one.url.startswith(to) and one.method == "POST"]
        body = sent.post_data_buffer
        row = body[62:]
        shown = [one.inner_text().split("\t") for one in tab.locator("#bits tr").all()]
        assert [cells[1] for cells in shown] == list("10000010")
        assert [int(cells[2]) for cells in shown] == [
            row[place >> 3] >> (place & 7) & 1 for place in range(8)
        ]
        assert [bool(cells[3].strip()) for cells in shown] == [a != b for _, a, b, *_ in shown]
        assert body.hex() in tab.locator("#requests").text_content()
        seen: set[str] = set()
        while len(seen) < 2:  # other draws differ, and are shown only
            tab.click("#again")
            seen.add(tab.locator("#bits").inner_text())
            assert "not sent" in tab.locator("#bits-caption").inner_text()

        tab.wait_for_selector("#results:not([hidden])")
        complete = state(address)
        assert complete["state"] == "complete"
        rows = tab.locator("#tables tbody tr").all()
        expected = [one for options in complete["questions"].values() for one in options.values()]
        assert len(rows) == len(expected) == 8
        for one, numbers in zip(rows, expected, strict=True):
            cells = one.locator("td").all_inner_texts()
            assert cells[:2] == [f"{numbers['truth']:,}", f"{round(numbers['count']):,}"]
        assert obstacles(tab) == []
        tab.emulate_media(color_scheme="dark")
        tab.set_viewport_size({"width": 390, "height": 844})
        assert obstacles(tab) == []
        assert tab.evaluate("document.documentElement.scrollWidth") <= 390
        # Whoever comes again sees the same crowd; the answer itself the browser has forgotten.
        tab.reload()
        tab.wait_for_selector("#results:not([hidden])")
        assert not tab.locator("#survey").is_visible()
        assert (
            len([one for one in requests if one.method == "POST" and one.url.startswith(to)]) == 1
        )
        assert {one.url.split("/")[2] for one in requests} == {
            address.split("/")[2],
            to.split("/")[2],
        }
        assert wrong == []


def assert_inputs_are_beside_their_labels(tab: Any) -> None:
    """Each box or button is small, on its label's line and left of the words, in its question."""
    labels = tab.locator("#questions label").all()
    assert len(labels) == 8
    bottom = 0.0
    for label in labels:
        row, box = label.bounding_box(), label.locator("input").bounding_box()
        question = label.locator("xpath=..").bounding_box()
        assert box["width"] < 30
        assert row["x"] <= box["x"] < row["x"] + 10
        assert row["y"] <= box["y"] + box["height"] / 2 <= row["y"] + row["height"] < 50 + row["y"]
        assert (
            question["x"] < row["x"] < row["x"] + row["width"] < question["x"] + question["width"]
        )
        assert row["y"] >= bottom
        bottom = row["y"] + row["height"]


def test_a_second_browser_only_watches(agreed: Plan, scratch: Path) -> None:
    """A crowd has one visitor; nobody else is told that a report of theirs is in it."""
    with web_demonstration(agreed, seed=SEED) as address, browser() as chromium:
        first, second = (chromium.new_context().new_page() for _ in range(2))
        for tab in (first, second):
            tab.set_default_timeout(240_000)
            tab.goto(address)
            tab.wait_for_selector("#survey:not([hidden])")
            tab.check("label:has-text('beta') >> input")
        requests: list[Any] = []
        second.on("request", lambda one: requests.append(one))
        for tab in (first, second):
            tab.click("button:has-text('Answer')")
            tab.wait_for_selector("#results:not([hidden])")
        second.wait_for_selector("#told:has-text('Another visitor answered first')")
        assert "yours among them" in first.locator("#complete").inner_text()
        late = chromium.new_context().new_page()
        late.goto(address)
        for tab in (second, late):
            tab.wait_for_selector("#results:not([hidden])")
            assert not tab.locator("#survey").is_visible()
            assert not tab.locator("#left").is_visible()
            assert "another visitor's among them" in tab.locator("#complete").inner_text()
        to = json.loads(ask(address, "/settings.json")[1])["client"]["to"]
        assert not [one for one in requests if one.method == "POST" and one.url.startswith(to)]


@pytest.mark.slow
def test_people_who_do_not_get_through(
    agreed: Plan, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*about: object, **more: object) -> None:
        raise ShoalError("a device's report is waiting: it was not accepted.")

    monkeypatch.setattr("shoal.lab.web_demo.send_one", refused)
    with web_demonstration(agreed, seed=SEED) as address:
        ask(address, "/seat?visitor=me", "POST", PAGE)
        ask(address, "/begin?visitor=me", "POST", PAGE)
        end = time.monotonic() + 120
        while (found := state(address))["state"] != "failed":
            assert time.monotonic() < end
        assert found["reason"] == "a device's report is waiting: it was not accepted."


def test_the_client_is_found_where_shoal_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = client_files()
    assert "shoal.js" in checkout
    assert "src/plan.js" in checkout
    monkeypatch.setattr(web_demo, "_CHECKOUT", tmp_path / "nowhere")
    with pytest.raises(InputError, match="not installed here"):
        client_files()
    installed = tmp_path / "client"
    for name, content in checkout.items():
        (installed / name).parent.mkdir(parents=True, exist_ok=True)
        (installed / name).write_bytes(content)
    monkeypatch.setattr(web_demo, "_INSTALLED", installed)
    assert client_files() == checkout


@pytest.mark.slow
def test_the_command_runs_until_it_is_interrupted(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "shoal", "demo", "--web", "--no-open", "--json", "--users"]
    running = subprocess.Popen(
        [*command, "100"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    try:
        assert running.stdout is not None
        said = json.loads(running.stdout.readline())
        assert ask(said["page"], "/")[0] == 200
        running.send_signal(signal.SIGINT)
        _, told = running.communicate(timeout=120)
    finally:
        running.kill()
        running.wait()
    assert (running.returncode, told) == (0, "Stopped; all data are deleted.\n")
    assert list(tmp_path.iterdir()) == []
