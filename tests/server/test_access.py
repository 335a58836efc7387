"""Tokens, roles and pages: who may do what, and that pages show text as text."""

from __future__ import annotations

import asyncio
import base64
import csv
import hmac
import os
import stat
from collections.abc import Awaitable, Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import numpy as np
import pytest

from shoal import Choice, Flags, Plan, Survey, YesNo
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Promise
from shoal.server.console.app import OPERATIONS, PAGES
from shoal.server.core import tokens
from shoal.server.core.openapi import Operation
from shoal.server.core.tokens import ROLES, Role

from .privacy_help import (
    BINARY,
    FLAGS_PLAN,
    Headers,
    World,
    address_of,
    in_world,
    make_reports,
    with_world,
)

MAY: dict[str, set[Role]] = {
    "app": {"app"},
    "relay": {"app", "relay"},
    "viewer": {"viewer"},
    "analyst": {"viewer", "analyst"},
    "admin": {"viewer", "analyst", "admin"},
}
"""What each role may do, written down a second time."""


def bearer(secret: str) -> Headers:
    return {"authorization": f"Bearer {secret}"}


async def all_tokens(world: World) -> dict[str, str]:
    return {role: await world.make_token(role) for role in ROLES}


def path_of(operation: Operation) -> str:
    """Return an address of the operation that does no harm if it is allowed."""
    path = operation.path.replace("{number}", "1").replace("{token_id}", "unknown")
    plan_id = FLAGS_PLAN.id if operation.method == "GET" else "unknown"
    survey = address_of(FLAGS_PLAN, several=True) if operation.method == "GET" else "unknown"
    return path.replace("{plan_id}", plan_id).replace("{survey}", survey)


def run(work: Callable[[World], Awaitable[Any]], folder: Path, **settings: Any) -> Any:
    return in_world(work, folder / "data", **settings)


@with_world()
async def test_every_operation_with_every_role(world: World) -> None:
    await world.publish(FLAGS_PLAN)
    made = {role: bearer(secret) for role, secret in (await all_tokens(world)).items()}
    readers = {"nobody": {}, "stranger": bearer("shoal_admin_" + "0" * 64)} | made
    for operation in (*OPERATIONS, *PAGES):
        is_page = operation in PAGES and operation.method == "GET"
        for reader, headers in readers.items():
            answer = await world.ask("console", operation.method, path_of(operation), headers)
            status = answer.status_code
            if operation.role is None:  # who signs in or out must come from a page of the console
                assert status == (403 if operation.method == "POST" else 200)
            elif reader not in MAY:
                assert status == (303 if is_page else 401)
            elif operation.role in MAY[reader]:
                assert status in (200, 201, 303, 404, 409, 415)
            else:
                assert status == 403


def test_what_is_open_and_who_may_change_things() -> None:
    """The roles that the operations ask for, so that a change of one is seen."""
    asked = {(one.method, one.path): one.role for one in OPERATIONS}
    no_token = {path for (_, path), role in asked.items() if role is None}
    assert no_token == {"/openapi.json", "/healthz", "/readyz", "/metrics"}
    changing = {(role, path) for (method, path), role in asked.items() if method != "GET"}
    # These only compute.
    changing -= {("analyst", "/v1/plans/{plan_id}/crowds/{number}/decode"),
                 ("viewer", "/v1/prospect")}  # fmt: skip
    assert {role for role, _ in changing} == {"admin"}
    pages = {(one.method, one.path): one.role for one in PAGES}
    open_pages = {place for place, role in pages.items() if role is None}
    assert open_pages == {("GET", "/sign-in"), ("POST", "/sign-in"), ("POST", "/sign-out"),
                        ("GET", "/static/console.css"), ("GET", "/static/icon.svg"),
                          ("GET", "/static/console.js")}  # fmt: skip
    changing = {(role, path) for (method, path), role in pages.items() if method != "GET" and role}
    changing -= {("analyst", "/surveys/{survey}/crowds/{number}/texts"), ("viewer", "/planner"),
                 ("viewer", "/builder")}  # fmt: skip
    assert {role for role, _ in changing} == {"admin"}
    crowds = {role for (_, path), role in asked.items() if "{number}" in path or "report" in path}
    assert crowds == {"analyst"}


@with_world(ingest="token")
async def test_reports_need_an_apps_token_if_so_set(world: World) -> None:
    await world.publish(FLAGS_PLAN)
    batch = make_reports(FLAGS_PLAN, 1, np.random.default_rng(1))
    readers: dict[str, Headers] = {"nobody": {}}
    readers |= {role: bearer(secret) for role, secret in (await all_tokens(world)).items()}
    for name, headers in readers.items():
        answer = await world.upload(batch, headers)
        assert answer.status_code == (202 if name in ("app", "relay") else 401)


@with_world()
async def test_only_a_bearer_token_is_taken(world: World) -> None:
    """A browser sends a password by itself, whichever page makes it ask."""
    secret = world.admin()["authorization"].split()[1]
    password = base64.b64encode(f"me:{secret}".encode()).decode()
    for bad in ("Basic", f"Basic {password}", f"Digest {secret}", f"Bearer{secret}", "Bearer",
                secret):  # fmt: skip
        answer = await world.ask("console", "GET", "/v1/plans", {"authorization": bad})
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")
    head = await world.ask("console", "HEAD", "/v1/plans")
    assert head.status_code == 401


def test_secrets_are_compared_in_constant_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every token is compared, by digests of one length, whether an earlier one fits or none."""
    compared: list[tuple[int, int]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((len(one), len(other)))
        return hmac.compare_digest(one, other)

    class Watched:
        compare_digest = staticmethod(compare)

    async def live(world: World) -> None:
        secrets = await all_tokens(world)
        monkeypatch.setattr(tokens, "hmac", Watched)
        for secret in (*secrets.values(), "", "wrong", secrets["app"][:-1]):
            compared.clear()
            found = world.collector.service.tokens.find(secret)
            assert (found is not None) == (secret in secrets.values())
            assert compared == [(32, 32)] * 6

    run(live, tmp_path)


def test_a_token_is_told_once_and_kept_as_a_hash(tmp_path: Path) -> None:
    async def live(world: World) -> list[str]:
        admin = world.admin()
        headers = admin | {"content-type": "application/json"}
        body = b'{"role": "viewer", "label": "wall screen"}'
        made = await world.ask("console", "POST", "/v1/tokens", headers, body)
        secret = made.json()["token"]
        assert secret.startswith("shoal_viewer_")
        listed = await world.ask("console", "GET", "/v1/tokens", admin)
        assert secret not in listed.text
        assert [one["label"] for one in listed.json()["tokens"]].count("wall screen") == 1
        path = f"/v1/tokens/{made.json()['id']}"
        assert (await world.ask("console", "GET", "/v1/plans", bearer(secret))).status_code == 200
        assert (await world.ask("console", "DELETE", path, bearer(secret))).status_code == 403
        assert (await world.ask("console", "DELETE", path, admin)).status_code == 204
        assert (await world.ask("console", "GET", "/v1/plans", bearer(secret))).status_code == 401
        assert (await world.ask("console", "DELETE", path, admin)).status_code == 404
        for word in ("wrong", secret[:-1] + "x"):
            await world.ask("console", "GET", "/", bearer(word))
        secrets = [secret, admin["authorization"].split()[1], *(await all_tokens(world)).values()]
        assert not [s for s in secrets if s in world.log.getvalue()]
        return secrets

    secrets = run(live, tmp_path)
    for path in (tmp_path / "data").iterdir():
        content = path.read_bytes()
        kept = [secret for secret in secrets if secret.split("_")[2].encode() in content]
        assert kept == ([secrets[1]] if path.name == "admin-token" else [])


@with_world()
async def test_the_last_admin_stays_though_all_go_at_once(world: World) -> None:
    """Else nobody is left, and the next start takes the first token back that was taken away."""
    admin = world.admin()
    for _ in range(4):
        await world.make_token("admin")
    listed = (await world.ask("console", "GET", "/v1/tokens", admin)).json()["tokens"]
    listed.sort(key=lambda token: token["label"] == "first")  # the one that asks goes last
    paths = [f"/v1/tokens/{token['id']}" for token in listed]
    gone = [world.ask("console", "DELETE", path, admin) for path in paths]
    statuses = [answer.status_code for answer in await asyncio.gather(*gone)]
    assert len(statuses) == 5
    # 401 where a request came after the token it was made with had gone.
    assert 204 in statuses
    assert set(statuses) <= {204, 401, 409}
    assert any(token.role == "admin" for token in world.collector.service.tokens)


@with_world()
async def test_a_draft_is_not_told_from_nothing(world: World) -> None:
    """Who knows what a plan might say could else find out that it is about to be published."""
    assert await world.collector.administration.add_plan(FLAGS_PLAN) is None
    good = make_reports(FLAGS_PLAN, 1, np.random.default_rng(1)).to_bytes()
    for body in (good, b"x", b"{"):
        answers = [
            await world.ask("public", "POST", f"/v1/plans/{plan_id}/reports", BINARY, body)
            for plan_id in (FLAGS_PLAN.id, "0" * 64)
        ]
        assert answers[0].status_code == 404
        assert answers[0].content == answers[1].content


def test_files_and_the_next_start(tmp_path: Path) -> None:
    """Only the owner reads them, whatever the umask; a later start makes no new token."""

    async def live(world: World) -> str:
        assert await world.collector.administration.add_plan(FLAGS_PLAN) is None
        folder = world.collector.service.folder
        assert (folder / "shoal.db-wal").exists()
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
        assert set(modes.values()) == {0o600}, modes
        answer = await world.ask("console", "GET", "/v1/tokens", world.admin())
        assert len(answer.json()["tokens"]) == 1
        return world.admin()["authorization"]

    before = os.umask(0)
    try:
        assert run(live, tmp_path) == run(live, tmp_path)
    finally:
        os.umask(before)


# Pages

NASTY = (
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "' onclick='alert(1)",
    "</title><svg onload=alert(1)>",
    "=cmd|' /C calc'!A0",
    "@SUM(1+1)*cmd",
    "{{7*7}} ${7*7} <b>&amp",
)  # fmt: skip


class Elements(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.scripts: list[str | None] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += attrs
        if tag == "script":
            self.scripts.append(dict(attrs).get("type"))

    def handle_data(self, data: str) -> None:
        self.text += data


def plan_with(name: str, *words: str) -> Plan:
    survey = Survey(name, (Flags(words[0], words[1:]),))
    promise = Promise("local", "20")
    return Plan(survey, FlipProbability.at_least(0.25), promise, crowd_size=100)


def pages_of(plan: Plan, folder: Path) -> list[httpx.Response]:
    async def live(world: World) -> list[httpx.Response]:
        await world.publish(plan)
        await world.upload(make_reports(plan, 100, np.random.default_rng(1)))
        await world.upload(make_reports(plan, 100, np.random.default_rng(2)))
        base = f"/surveys/{address_of(plan)}"
        paths = ("/", f"/v1/plans/{plan.id}/crowds/1/report.html", base, f"{base}/crowds/1",
                 f"{base}/trend", f"{base}/difference", "/actions", "/tokens",
                 f"/v1/plans/{plan.id}/crowds/1/estimates?format=csv")  # fmt: skip
        return [await world.ask("console", "GET", path, world.admin()) for path in paths]

    found: list[httpx.Response] = run(live, folder)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("word", NASTY)
@with_world()
async def test_the_planner_shows_what_was_typed_as_text(word: str, world: World) -> None:
    """In every field, and in the result of a survey whose names are hostile."""

    async def planned(name: str, **fields: str) -> Elements:
        crossed = Survey(name, (YesNo(name), Choice("c", (name, "other")))).cross(name, "c")
        usual = {"survey": crossed.to_toml(), "crowd": "2000", "epsilon": "4",
                 "delta": "1e-6", "share": "0.05", "view": "counts"}  # fmt: skip
        head = world.admin() | {"content-type": "application/x-www-form-urlencoded"}
        body = urlencode(usual | fields).encode()
        page = await world.ask("console", "POST", "/planner", head, body)
        assert page.status_code == (422 if fields else 200)
        return Elements(page.text)

    usual = await planned("plain")
    nasty = await planned(word)
    assert word in nasty.text
    wrong = [await planned("plain", **{field: word})
             for field in ("survey", "crowd", "epsilon", "delta", "share", "view")]  # fmt: skip
    for found in (nasty, *wrong):
        assert set(found.names) <= set(usual.names)
        names = {name for name, _ in found.attributes}
        assert names <= {name for name, _ in usual.attributes} | {"role"}


def test_pages_show_names_as_text(tmp_path: Path) -> None:
    """The pages have no other elements and attributes than those of a survey with plain names."""
    plain = pages_of(plan_with(*"abcdefgh"), tmp_path / "plain")
    *pages, table = pages_of(plan_with(NASTY[0], NASTY[1], *NASTY[1:]), tmp_path / "nasty")
    for page, model in zip(pages, plain, strict=False):
        assert page.status_code == 200
        found, usual = Elements(page.text), Elements(model.text)
        assert any(word in found.text for word in NASTY)
        assert set(found.names) == set(usual.names)
        assert {name for name, _ in found.attributes} == {name for name, _ in usual.attributes}
        assert set(found.scripts) <= {"application/json"}  # data, which no browser runs
        assert not {"iframe", "object", "base"} & set(usual.names)
        assert not [name for name, _ in usual.attributes if name.startswith("on")]
        assert not [
            name
            for name, value in found.attributes
            if name in ("href", "src", "action") and not str(value).startswith(("/", "#"))
        ]
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy or "report.html" in str(page.url)
        assert "frame-ancestors 'none'" in policy
    assert all(word in Elements(pages[3].text).text for word in NASTY)
    assert table.headers["content-disposition"] == 'attachment; filename="estimates.csv"'
    cells = [cell for line in csv.reader(table.text.splitlines()) for cell in line]
    for word in NASTY[1:]:
        assert (f"'{word}" if word[0] in "=+-@" else word) in cells


@with_world()
async def test_every_answer_of_the_console_is_safe_to_open(world: World) -> None:
    await world.publish(FLAGS_PLAN)
    other = replace(FLAGS_PLAN, crowd_size=300)
    assert await world.collector.administration.add_plan(other) is None
    for seed in (1, 2):
        await world.upload(make_reports(FLAGS_PLAN, 100, np.random.default_rng(seed)))
    reading = [one for one in (*OPERATIONS, *PAGES) if one.method == "GET"]
    assert len(reading) > 20
    for operation in reading:
        answer = await world.ask("console", "GET", path_of(operation), world.admin())
        assert answer.status_code == 200, answer.url
        assert answer.headers["x-content-type-options"] == "nosniff"
        is_static = "/static/" in str(answer.url)
        assert (answer.headers["cache-control"] == "no-store") is not is_static
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert not {"set-cookie", "server", "date", "etag"} & set(answer.headers)
