"""Signing in at the console: whose cookie counts, for how long, and from which pages."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from urllib.parse import urlencode

import httpx
import numpy as np
import pytest

from shoal.server.console.app import PAGES
from shoal.server.core import tokens as sessions_module
from shoal.server.core.tokens import COOKIE, Sessions, Token
from shoal.server.storage.database import StorageFull

from .privacy_help import (
    FLAGS_PLAN,
    NOW,
    Headers,
    World,
    address_of,
    in_world,
    make_reports,
    with_world,
)

SAME = {"sec-fetch-site": "same-origin"}
FORM = {"content-type": "application/x-www-form-urlencoded"}


async def post(
    world: World, path: str, fields: dict[str, str] | None = None, headers: Headers | None = None
) -> httpx.Response:
    body = urlencode(fields or {}).encode()
    return await world.ask("console", "POST", path, FORM | (headers or {}), body)


async def signed_in(world: World, secret: str, brought: str = "") -> Headers:
    """Sign in with a token and return the cookie, as a browser sends it back."""
    headers = SAME | ({"cookie": f"{COOKIE}={brought}"} if brought else {})
    answer = await post(world, "/sign-in", {"token": secret, "next": "/tokens"}, headers)
    assert (answer.status_code, answer.headers["location"]) == (303, "/tokens")
    cookie = answer.headers["set-cookie"]
    world.clients["console"].cookies.clear()
    name, *rest = cookie.split("; ")
    assert rest == ["Max-Age=43200", "Path=/", "Secure", "HttpOnly", "SameSite=Strict"]
    assert name.startswith("__Host-shoal=")
    return {"cookie": name}


def admin_secret(world: World) -> str:
    return world.admin()["authorization"].split()[1]


@with_world()
async def test_a_cookie_looks_and_acts(world: World) -> None:
    mine = await signed_in(world, admin_secret(world))
    assert (await world.ask("console", "GET", "/tokens", mine)).status_code == 200
    assert (await world.ask("console", "GET", "/v1/plans", mine)).status_code == 200
    fields = {"role": "viewer", "label": "wall screen", "expires": "", "plan": ""}
    made = await post(world, "/tokens", fields, mine | SAME)
    assert made.status_code == 200
    assert "shoal_viewer_" in made.text
    assert "shoal_viewer_" not in (await world.ask("console", "GET", "/tokens", mine)).text
    assert "admin" in (await world.ask("console", "GET", "/", mine)).text
    relay = fields | {"role": "relay", "label": "forwards", "key": "A" * 43}
    assert (await post(world, "/tokens", relay, mine | SAME)).status_code == 200
    assert {one.label: one.key for one in world.collector.service.tokens}["forwards"] == "A" * 43
    wrong = await post(world, "/tokens", fields | {"key": "A" * 43}, mine | SAME)
    assert wrong.status_code == 400
    out = await post(world, "/sign-out", {}, mine | SAME)
    assert "Max-Age=0" in out.headers["set-cookie"]
    assert (await world.ask("console", "GET", "/tokens", mine)).status_code == 303


@with_world()
async def test_another_port_changes_nothing(world: World) -> None:
    """Another port of the same host is the same site, so the browser sends the cookie with it."""
    await world.publish(FLAGS_PLAN)
    mine = await signed_in(world, admin_secret(world))
    before = world.log.getvalue()
    close = ("POST", f"/v1/plans/{FLAGS_PLAN.id}/close")
    for site in ("same-site", "cross-site", "none", ""):
        headers = mine | ({"sec-fetch-site": site} if site else {})
        for operation in PAGES:
            if operation.method == "POST":
                path = operation.path.replace("{number}", "1").replace("{token_id}", "x")
                answer = await post(world, path, {"confirm": "yes", "token": "x"}, headers)
                assert answer.status_code == 403, path
                assert "set-cookie" not in answer.headers
        for method, path in (close, ("DELETE", "/v1/tokens/x")):
            answer = await world.ask("console", method, path, headers)
            assert answer.json()["type"] == "urn:shoal:problem:cross-site"
    record = world.collector.administration.plans.get(FLAGS_PLAN.id)
    assert record is not None
    assert record.state == "published"
    assert world.log.getvalue() == before


@with_world()
async def test_a_cookie_that_was_brought_along_is_not_taken_over(world: World) -> None:
    """Whoever plants a cookie in a browser must not own the session that begins there."""
    planted = "a" * 64
    mine = await signed_in(world, admin_secret(world), brought=planted)
    assert mine["cookie"] != f"{COOKIE}={planted}"
    theirs = {"cookie": f"{COOKIE}={planted}"}
    assert (await world.ask("console", "GET", "/", theirs)).status_code == 303
    again = await signed_in(world, admin_secret(world), mine["cookie"].partition("=")[2])
    assert (await world.ask("console", "GET", "/", mine)).status_code == 303  # it has ended
    assert (await world.ask("console", "GET", "/", again)).status_code == 200
    both = {"cookie": f"{COOKIE}={planted}; {again['cookie']}"}
    assert (await world.ask("console", "GET", "/", both)).status_code == 303


@with_world()
async def test_a_session_ends_with_its_token(world: World) -> None:
    secret = await world.make_token("analyst")
    mine = await signed_in(world, secret)
    assert (await world.ask("console", "GET", "/", mine)).status_code == 200
    (token,) = [one for one in world.collector.service.tokens if one.label == "analyst"]
    admin = await signed_in(world, admin_secret(world))
    gone = await post(world, f"/tokens/{token.id}/revoke", {}, admin | SAME)
    assert gone.status_code == 303
    assert (await world.ask("console", "GET", "/", mine)).status_code == 303
    assert (await world.ask("console", "GET", "/v1/plans", mine)).status_code == 401


def test_a_session_ends_with_the_last_day_of_its_token(tmp_path: Path) -> None:
    now = [NOW]

    async def live(world: World) -> None:
        token = Token.new("viewer", "today", expires=date(2027, 1, 15))
        secret = await world.collector.service.in_store(world.collector.service.tokens.add, token)
        mine = await signed_in(world, secret)
        assert (await world.ask("console", "GET", "/", mine)).status_code == 200
        now[0] += 86_400
        assert (await world.ask("console", "GET", "/", mine)).status_code == 303

    in_world(live, tmp_path / "data", lambda: now[0])


@with_world()
async def test_a_role_stays_what_it_is(world: World) -> None:
    """A cookie gives the permissions of its token; those of applications give none."""
    mine = (await signed_in(world, await world.make_token("viewer"))) | SAME
    wanted = {"role": "admin", "label": "mine", "expires": "", "plan": ""}
    assert (await post(world, "/tokens", wanted, mine)).status_code == 403
    assert (await world.ask("console", "GET", "/tokens", mine)).status_code == 403
    for role in ("app", "relay"):
        fields = {"token": await world.make_token(role)}
        answer = await post(world, "/sign-in", fields, SAME)
        assert answer.status_code == 401
        assert "set-cookie" not in answer.headers


def test_time_and_number_are_limited() -> None:
    class AllTokens:
        def by_id(self, token_id: str) -> str:
            return token_id

    now = [0.0]
    kept = Sessions(AllTokens(), lambda: now[0])  # type: ignore[arg-type]
    first = kept.begin(Token.new("viewer", "one"))
    assert kept.find(first) is not None
    now[0] = 12 * 3600 - 1
    assert kept.find(first) is not None
    now[0] += 1
    assert kept.find(first) is None
    many = [kept.begin(Token.new("viewer", "x")) for _ in range(sessions_module._MAX_SESSIONS + 1)]
    assert kept.find(many[0]) is None
    assert kept.find(many[1]) is not None
    assert kept.find("") is None
    assert len({*many}) == len(many)


@with_world()
async def test_signing_in_leads_nowhere_else(world: World) -> None:
    for wanted in ("//evil.example", "https://evil.example", "/\\evil.example", "/\r\nX: y",
                   "javascript:x", "a"):  # fmt: skip
        form = await world.clients["console"].get("/sign-in", params={"next": wanted})
        assert 'name="next" value="/"' in form.text
        fields = {"token": admin_secret(world), "next": wanted}
        assert (await post(world, "/sign-in", fields, SAME)).headers["location"] == "/"


@with_world()
async def test_a_wrong_token_is_counted_and_told_to_nobody(world: World) -> None:
    answer = await post(world, "/sign-in", {"token": "shoal_admin_wrong"}, SAME)
    assert answer.status_code == 401
    assert "shoal_admin_wrong" not in answer.text
    assert "set-cookie" not in answer.headers
    assert world.collector.service.tokens.failures == 1
    large = await post(world, "/sign-in", {"token": "x" * 70_000}, SAME)
    assert large.status_code == 413
    plain = await world.ask("console", "POST", "/sign-in", SAME | {"content-type": "text/plain"})
    assert plain.status_code == 415
    raw = await world.ask("console", "POST", "/sign-in", SAME | FORM, b"token=%ff\xff")
    assert raw.status_code == 400


def test_the_last_day_of_use_is_stored_for_people_only(tmp_path: Path) -> None:
    async def live(world: World) -> None:
        await world.publish(FLAGS_PLAN)
        relay, viewer = await world.relay(), await world.make_token("viewer")
        await world.make_token("analyst")
        await world.upload(make_reports(FLAGS_PLAN, 5, np.random.default_rng(1)), relay)
        await world.ask("console", "GET", "/v1/plans", {"authorization": f"Bearer {viewer}"})
        listed = (await world.ask("console", "GET", "/v1/tokens", world.admin())).json()["tokens"]
        used = {one["role"]: one["last_used"] for one in listed}
        day = "2027-01-15"
        assert used == {"admin": day, "viewer": day, "analyst": None, "relay": None}
        page = (await world.ask("console", "GET", "/tokens", world.admin())).text
        assert "not stored: it would tell when reports came" in page

    in_world(live, tmp_path / "data")
    in_world(lambda world: _still_known(world), tmp_path / "data")


@with_world()
async def test_a_full_disk_keeps_nobody_from_looking(world: World) -> None:
    def full(*_: object) -> None:
        raise StorageFull("no space left")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.collector.service.tokens, "store_uses", full)
        assert (await world.ask("console", "GET", "/", world.admin())).status_code == 200
        patch.setattr(world.collector.store, "crowd_counts", full)
        await world.publish(FLAGS_PLAN)
        answer = await world.ask("console", "GET", "/", world.admin())
        assert answer.status_code == 507
        assert "No disk space is left" in answer.text
        assert answer.headers["content-type"].startswith("text/html")


async def _still_known(world: World) -> None:
    listed = (await world.ask("console", "GET", "/v1/tokens", world.admin())).json()["tokens"]
    assert {one["role"] for one in listed if one["last_used"]} == {"admin", "viewer"}


@with_world()
async def test_the_life_of_a_plan_by_forms_and_what_was_done(world: World) -> None:
    """Draft, publish, pause, resume, close, destroy; each is in the list, with who did it."""
    mine = (await signed_in(world, admin_secret(world))) | SAME
    base = f"/surveys/{address_of(FLAGS_PLAN)}"

    async def state() -> str:
        path = f"/v1/plans/{FLAGS_PLAN.id}"
        return str((await world.ask("console", "GET", path, mine)).json()["state"])

    document = json.dumps({"id": FLAGS_PLAN.id} | FLAGS_PLAN.to_json())
    for wrong in ("{}", "[", "not JSON", ""):
        assert (await post(world, "/drafts", {"plan": wrong}, mine)).status_code == 422
    added = await post(world, "/drafts", {"plan": document}, mine)
    assert (added.status_code, added.headers["location"]) == (303, base)
    refused = await post(world, f"{base}/publish", {}, mine)
    assert refused.status_code == 422
    assert "honest" in refused.text
    for path, fields, wanted in (
        ("publish", {"honest": "all"}, "published"),
        ("pause", {}, "paused"),
        ("publish", {}, "published"),
        ("close", {"confirm": "yes"}, "closed"),
        ("destroy", {"confirm": "yes"}, "destroyed"),
    ):
        if "confirm" in fields:
            assert (await post(world, f"{base}/{path}", {}, mine)).status_code == 400
        answer = await post(world, f"{base}/{path}", fields, mine)
        assert (answer.status_code, answer.headers["location"]) == (303, base)
        assert await state() == wanted
    assert (await post(world, f"{base}/pause", {}, mine)).status_code == 409
    made = await post(world, "/backups", {}, mine)
    assert made.status_code == 303
    (backup,) = world.collector.administration.backups()
    assert backup in (await world.ask("console", "GET", "/backups", mine)).text
    listed = (await world.ask("console", "GET", "/v1/actions", mine)).json()["actions"]
    moves = ["plan destroyed", "plan closed", "plan published", "plan paused", "plan published"]
    assert [one["action"] for one in listed] == ["backup made", *moves, "draft added"]
    assert {one["by"] for one in listed} == {"first"}
    told = [json.loads(line) for line in world.log.getvalue().splitlines()]
    assert [one["event"] for one in told if one.get("by") == "first"][:5] == moves[::-1]
    assert {one["time"] for one in listed} == {"2027-01-15T08:00Z"}
    page = (await world.ask("console", "GET", "/actions", mine)).text
    assert "plan destroyed" in page
    assert FLAGS_PLAN.survey.name in page
