"""Public results: who is shown what, with which headers, and for how long."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from shoal import Choice, Plan, Survey, plan
from shoal.cli import run
from shoal.reports.formatting import slug
from shoal.server import Analyzer, AnalyzerSettings
from shoal.server.console.app import report_page
from tests.axe import obstacles
from tests.server.console_help import browser, every_kind, reports
from tests.server.privacy_help import (
    BINARY,
    COUNTS_PLAN,
    FLAGS_PLAN,
    World,
    in_world,
    make_reports,
    serving,
    with_world,
)
from tests.server.store_help import Clock
from tests.server.test_publication import HINT

RESULTS = f"/results/{FLAGS_PLAN.survey.name}/"
ON: dict[str, Any] = {"public_results": True}


def release(agreed: Plan, number: int) -> str:
    return f"/results/{slug(agreed.survey.name)}/releases/{agreed.id[:12]}-{number}/"


async def fill(world: World, agreed: Plan, seed: int = 1, count: int = 100) -> None:
    answer = await world.upload(make_reports(agreed, count, np.random.default_rng(seed)))
    assert answer.status_code == 202


async def set_public(world: World, agreed: Plan, public: bool = True) -> httpx.Response:
    headers = world.admin() | {"content-type": "application/json"}
    body = json.dumps({"public": public}).encode()
    return await world.ask("console", "PUT", f"/v1/plans/{agreed.id}/public", headers, body)


async def swept(world: World) -> None:
    """Release complete crowds, and look at what is public."""
    await world.collector.service.on_store_thread(world.collector.sweep)
    world.collector.after_sweep()


async def get(world: World, path: str, **headers: str) -> httpx.Response:
    return await world.ask("public", "GET", path, headers)


async def until(
    world: World,
    path: str,
    holds: Callable[[httpx.Response], bool] = lambda answer: True,
) -> httpx.Response:
    """Ask for a page until something holds; if it never does, the test fails."""
    for _ in range(600):
        answer = await get(world, path)
        if answer.is_success and holds(answer):
            return answer
        await asyncio.sleep(0.05)
    raise AssertionError(f"{path}: {answer.status_code}, {world.log.getvalue()[-2000:]}")


async def written(world: World, agreed: Plan, number: int) -> None:
    """Wait until a release is on all pages: the feed of all surveys is written last."""
    mark = f"{agreed.id}:{number}<"
    await until(world, "/results/feed.atom", lambda answer: mark in answer.text)


async def shown(world: World, agreed: Plan, crowds: int = 1) -> None:
    """Publish a plan, fill crowds of it, and show them."""
    await world.publish(agreed)
    for number in range(crowds):
        await fill(world, agreed, number)
    assert (await set_public(world, agreed)).json() == {"public": True}
    await swept(world)
    await written(world, agreed, crowds)


@with_world()
async def test_they_are_off_by_default(world: World) -> None:
    await world.publish(FLAGS_PLAN)
    await fill(world, FLAGS_PLAN)
    assert (await set_public(world, FLAGS_PLAN)).status_code == 200
    await swept(world)
    for path in ("/results", "/results/", RESULTS, "/results/feed.atom"):
        assert (await get(world, path)).status_code == 404


@with_world(**ON)
async def test_a_plan_is_hidden_until_an_admin_makes_it_public(world: World) -> None:
    await shown(world, COUNTS_PLAN)
    await world.publish(FLAGS_PLAN)
    await fill(world, FLAGS_PLAN)
    await swept(world)
    index = await get(world, "/results/")
    assert COUNTS_PLAN.survey.name in index.text
    assert FLAGS_PLAN.survey.name not in index.text
    assert (await get(world, RESULTS)).status_code == 404
    for role in ("viewer", "analyst", "relay", "app"):
        headers = {"authorization": f"Bearer {await world.make_token(role)}"}
        path = f"/v1/plans/{FLAGS_PLAN.id}/public"
        headers["content-type"] = "application/json"
        answer = await world.ask("console", "PUT", path, headers, b'{"public": true}')
        assert answer.status_code in (401, 403)
    actions = await world.ask("console", "GET", "/v1/actions", world.admin())
    assert "results made public" in {one["action"] for one in actions.json()["actions"]}


@with_world(**ON)
async def test_only_releases_are_shown_and_nothing_of_an_open_crowd(world: World) -> None:
    await shown(world, FLAGS_PLAN)
    paths = ["/results/", RESULTS, f"{RESULTS}feed.atom", f"{RESULTS}latest.json"]
    before = [(await get(world, path)).content for path in paths]
    for seed, count in ((7, 55), (8, 44)):  # 99 of 100
        await fill(world, FLAGS_PLAN, seed, count)
        await swept(world)
        await asyncio.sleep(0.1)
        assert [(await get(world, path)).content for path in paths] == before
    assert (await get(world, release(FLAGS_PLAN, 2))).status_code == 404
    await fill(world, FLAGS_PLAN, 9, 1)
    await swept(world)
    assert "crowd 2" in (await until(world, release(FLAGS_PLAN, 2))).text


@with_world(**ON)
@pytest.mark.slow
async def test_what_is_served_is_the_publication(world: World) -> None:
    await shown(world, FLAGS_PLAN, 2)
    content = world.collector.store.release(FLAGS_PLAN.id, 2)
    assert content is not None
    told = await world.ask(
        "console", "GET", f"/v1/plans/{FLAGS_PLAN.id}/crowds/2/report.html", world.admin()
    )
    for path in (f"{RESULTS}latest.json", f"{release(FLAGS_PLAN, 2)}estimates.json"):
        answer = await get(world, path)
        assert answer.headers["content-type"] == "application/json"
        page = report_page(FLAGS_PLAN, content)
        (block,) = re.findall(r'id="publication">(.*?)</script>', page)
        assert json.loads(block) == answer.json()
        assert page == told.text
    answer = await get(world, f"{RESULTS}latest.csv")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert answer.text.startswith("question,option,count")
    badge = await get(world, f"{RESULTS}badge/uses/sync.svg")
    assert badge.headers["content-type"] == "image/svg+xml"


@with_world(**ON)
async def test_headers(world: World) -> None:
    await shown(world, FLAGS_PLAN)
    for path, kept in (
        ("/results/", "public, max-age=300"),
        (RESULTS, "public, max-age=300"),
        (f"{RESULTS}feed.atom", "public, max-age=300"),
        (release(FLAGS_PLAN, 1), "public, max-age=31536000, immutable"),
        (f"{release(FLAGS_PLAN, 1)}estimates.csv", "public, max-age=31536000, immutable"),
    ):
        answer = await get(world, path)
        assert answer.headers["cache-control"] == kept
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["access-control-allow-origin"] == "*"
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'")
        assert "unsafe" not in policy
        assert ("style-src 'sha256-" in policy) == answer.text.startswith("<!doctype html>")
        tag = answer.headers["etag"]
        assert re.fullmatch('"[0-9a-f]{32}"', tag)
        for asked in (tag, f'"other", {tag}', f"W/{tag}", "*"):
            again = await get(world, path, **{"if-none-match": asked})
            assert (again.status_code, again.content) == (304, b"")
            assert again.headers["etag"] == tag
            assert again.headers["cache-control"] == kept
        assert (await get(world, path, **{"if-none-match": '"other"'})).status_code == 200
        head = await world.ask("public", "HEAD", path)
        assert head.status_code == 200
        assert head.headers["content-length"] == str(len(answer.content))
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            refused = await world.ask("public", method, path)
            assert refused.status_code == 405
            assert refused.headers["allow"] == "GET, HEAD"


@with_world(**ON)
async def test_addresses_that_are_none(world: World) -> None:
    await shown(world, FLAGS_PLAN)
    for path in (
        "/results/nobody/", f"{RESULTS}releases/", f"{RESULTS}releases/1/", f"{RESULTS}no.json",
        release(FLAGS_PLAN, 2), "/results/.shoal-site.json", "/results/../admin-token",
        "/results/%2e%2e/admin-token", "/results/browser/..%2f..%2fadmin-token",
        "/results//", "/results/browser//latest.json", "/results/Browser/", "/results/\u00e9/",
        "/results/browser/index.html/x.html", "/results/browser/latest.json%00",
        f"{RESULTS}badge/uses.exe", f"{RESULTS}badge/", f"/results/{'x' * 300}/",
        f"{RESULTS}{'a/' * 3000}", f"{RESULTS}badge/{'x' * 300}.svg", f"{RESULTS}badge/uses/",
    ):  # fmt: skip
        answer = await get(world, path)
        assert answer.status_code == 404, path
        assert answer.headers["cache-control"] == "no-store"
    for path, to in (("/results", "results/"), ("/results/browser", "browser/")):
        answer = await get(world, path)
        assert (answer.status_code, answer.headers["location"]) == (308, to)
    assert (await get(world, "/results/browser/index.html")).content == (
        await get(world, RESULTS)
    ).content
    assert (await get(world, "/resultsx")).status_code == 404


@with_world(**ON)
async def test_hidden_results_are_gone_at_once(world: World) -> None:
    await shown(world, FLAGS_PLAN)
    await shown(world, COUNTS_PLAN)
    assert (await set_public(world, FLAGS_PLAN, public=False)).json() == {"public": False}
    for path in (RESULTS, release(FLAGS_PLAN, 1), f"{RESULTS}latest.csv"):
        assert (await get(world, path)).status_code == 404
    await until(world, "/results/", lambda index: FLAGS_PLAN.survey.name not in index.text)
    await until(world, "/results/feed.atom", lambda feed: FLAGS_PLAN.id not in feed.text)
    assert not (world.collector.service.folder / "results" / FLAGS_PLAN.survey.name).exists()
    assert (await get(world, release(COUNTS_PLAN, 1))).status_code == 200


@with_world(**ON)
async def test_destroyed_releases_are_not_kept_as_pages(world: World) -> None:
    await shown(world, FLAGS_PLAN)
    for state in ("closed", "destroyed"):
        assert await world.collector.administration.move_plan(FLAGS_PLAN.id, state) is None
        expected = 200 if state == "closed" else 404
        assert (await get(world, release(FLAGS_PLAN, 1))).status_code == expected
    await until(world, "/results/feed.atom", lambda feed: FLAGS_PLAN.id not in feed.text)
    assert not (world.collector.service.folder / "results" / FLAGS_PLAN.survey.name).exists()


def test_bytes_are_the_same_after_a_restart(tmp_path: Path) -> None:
    paths = [
        "/results/",
        RESULTS,
        release(FLAGS_PLAN, 1),
        f"{release(FLAGS_PLAN, 1)}estimates.json",
    ]

    async def read(world: World) -> list[tuple[str, bytes]]:
        await written(world, FLAGS_PLAN, 1)
        answers = [await get(world, path) for path in paths]
        return [(answer.headers["etag"], answer.content) for answer in answers]

    async def first(world: World) -> list[tuple[str, bytes]]:
        await shown(world, FLAGS_PLAN)
        return await read(world)

    before = in_world(first, tmp_path, **ON)
    assert in_world(read, tmp_path, **ON) == before

    async def anew(world: World) -> list[tuple[str, bytes]]:
        """All pages are made again from the release."""
        return await read(world)

    in_world(nothing, tmp_path)  # without the flag, so that the pages are removed
    assert not (tmp_path / "results").exists()
    assert in_world(anew, tmp_path, **ON) == before


async def nothing(world: World) -> None:
    assert (await get(world, "/results/")).status_code == 404


@pytest.mark.parametrize(
    ("agreed", "state", "problem"),
    [(FLAGS_PLAN, "draft", "wrong-state"), (HINT, "published", "not-for-readers")],
)
def test_what_is_not_made_public(agreed: Plan, state: str, problem: str, tmp_path: Path) -> None:
    async def work(world: World) -> None:
        assert await world.collector.administration.add_plan(agreed) is None
        if state == "published":
            await world.publish(agreed)
        answer = await set_public(world, agreed)
        assert answer.status_code in (409, 422)
        assert answer.json()["type"] == f"urn:shoal:problem:{problem}"
        line = await world.ask("console", "GET", f"/v1/plans/{agreed.id}", world.admin())
        assert line.json()["public"] is False

    in_world(work, tmp_path, allow_unproven=True, **ON)


@with_world(**ON)
async def test_two_plans_of_one_survey_share_an_address(world: World) -> None:
    other = replace(FLAGS_PLAN, joint=())
    await shown(world, FLAGS_PLAN)
    await shown(world, other)
    page = await until(world, RESULTS, lambda found: "The survey had 2 plans" in found.text)
    keys = re.findall(r'href="releases/([0-9a-f]{12})-1/index', page.text)
    assert set(keys) == {FLAGS_PLAN.id[:12], other.id[:12]}
    await set_public(world, other, public=False)
    assert (await get(world, release(other, 1))).status_code == 404
    assert (await get(world, release(FLAGS_PLAN, 1))).status_code == 200


@pytest.mark.slow
def test_a_release_is_dated_by_its_last_report(tmp_path: Path) -> None:
    clock = Clock()

    async def work(world: World) -> None:
        await world.publish(FLAGS_PLAN)
        assert (await set_public(world, FLAGS_PLAN)).status_code == 200
        assert "There is no release yet" in (await until(world, "/results/")).text
        days: list[str] = []
        for seed in (1, 2):
            await fill(world, FLAGS_PLAN, seed, 60)
            clock.now += 3 * 86_400
            await fill(world, FLAGS_PLAN, seed + 10, 40)
            days.insert(0, time.strftime("%Y-%m-%dT00:00:00Z", time.gmtime(clock.now)))
            await swept(world)
        await written(world, FLAGS_PLAN, 2)
        feed = (await get(world, f"{RESULTS}feed.atom")).text
        assert re.findall("<updated>(.*)</updated>", feed) == [days[0], *days]

    in_world(work, tmp_path, clock, **ON)


@with_world(**ON)
async def test_the_console_shows_who_can_read(world: World) -> None:
    await world.publish(FLAGS_PLAN)
    path = f"/surveys/{slug(FLAGS_PLAN.survey.name)}"
    form = world.admin() | {"content-type": "application/x-www-form-urlencoded"}

    async def page() -> str:
        return (await world.ask("console", "GET", path, world.admin())).text

    assert "Make results public" in await page()
    for body, status in ((b"public=yes", 400), (b"public=yes&confirm=yes", 303)):
        answer = await world.ask("console", "POST", f"{path}/public", form, body)
        assert answer.status_code == status
    assert RESULTS in await page()
    assert "copies that others made" in await page()
    await world.ask("console", "POST", f"{path}/public", form, b"public=no")
    assert "Make results public" in await page()


def test_the_flag_and_origins_survive_and_are_backed_up(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        await world.publish(FLAGS_PLAN)
        await set_public(world, FLAGS_PLAN)
        await world.collector.administration.set_origins(FLAGS_PLAN.id, ["https://page.example"])

    async def check(world: World) -> None:
        record = world.collector.administration.plans[FLAGS_PLAN.id]
        assert (record.is_public, record.origins) == (True, ("https://page.example",))

    in_world(work, tmp_path / "data")
    in_world(check, tmp_path / "data")
    target = tmp_path / "shoal.backup"
    assert run(["collector", "backup", str(tmp_path / "data"), str(target)]) == 0
    assert run(["collector", "restore", str(target), str(tmp_path / "restored")]) == 0
    in_world(check, tmp_path / "restored")


def test_an_analyzer_serves_them_too(tmp_path: Path) -> None:
    async def work(on: bool) -> int:
        settings = AnalyzerSettings(public_results=on, min_free_megabytes=0)
        async with Analyzer(tmp_path, settings) as analyzer:
            transport = httpx.ASGITransport(analyzer.public)
            async with httpx.AsyncClient(transport=transport, base_url="http://a") as client:
                for _ in range(600):
                    answer = await client.get("/results/")
                    if answer.status_code == 200 or not on:
                        break
                    await asyncio.sleep(0.05)
                return answer.status_code

    assert [asyncio.run(work(on)) for on in (False, True)] == [404, 200]


SMALL = plan(
    Survey("weekly", (Choice("way", ("bus", "bike")),)), crowd_size=100, epsilon=4, delta="1e-6"
)


@pytest.mark.slow
@pytest.mark.system
def test_the_commands_on_a_running_collector(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(tmp_path, SMALL, public_results=True) as server:
        file, data = str(tmp_path / f"{SMALL.id[:12]}.json"), str(server.folder)
        token = str(server.folder / "admin-token")
        out = tmp_path / "site"
        words = ["site", str(out), "--collector", str(server.console), "--token-file", token]
        assert run(words) == 0
        assert "the site is empty" in capsys.readouterr().out
        assert "There is no release yet" in (out / "index.html").read_text()
        assert run(["collector", "public", data, file]) == 0
        for seed in (1, 2):
            batch = make_reports(SMALL, 100, np.random.default_rng(seed))
            path = f"{server.public}/v1/plans/{SMALL.id}/reports"
            assert server.client.post(path, headers=BINARY, content=batch.to_bytes()).is_success
            server.client.get(
                f"{server.console}/v1/plans/{SMALL.id}/crowds", headers=server.admin()
            )
            assert run(words) == 0
        served = eventually(
            lambda: server.client.get(f"{server.public}/results/feed.atom"),  # written last
            lambda answer: answer.text.count("<entry>") == 2,
        )
        assert served.text == (out / "feed.atom").read_text()
        for file_ in out.rglob("*.*"):
            if file_.name not in (".nojekyll", ".shoal-site.json"):
                answer = server.client.get(f"{server.public}/results/{file_.relative_to(out)}")
                assert answer.content == file_.read_bytes(), file_
        assert run(["collector", "public", data, file, "--hide"]) == 0
        assert server.client.get(f"{server.public}/results/weekly/").status_code == 404
        assert run(words) == 0
        assert "the site is empty" in capsys.readouterr().out
        assert not (out / "weekly").exists(), "pages that are hidden now"


def eventually(
    ask: Callable[[], httpx.Response], holds: Callable[[httpx.Response], bool]
) -> httpx.Response:
    for _ in range(600):
        answer = ask()
        if holds(answer):
            return answer
        time.sleep(0.1)
    raise AssertionError(answer.text)


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light")])
def test_pages_in_a_browser(width: int, scheme: str, tmp_path: Path) -> None:
    """The strict policy lets the style through; nothing keeps people out or is loaded."""
    agreed = every_kind(200, epsilon="8")
    with serving(tmp_path, agreed, public_results=True) as server, browser() as chromium:
        document = {"public": True}
        path = f"{server.console}/v1/plans/{agreed.id}/public"
        assert server.client.put(path, json=document, headers=server.admin()).is_success
        for seed in range(2):
            batch = reports(agreed, seed, 200).to_bytes()
            path = f"{server.public}/v1/plans/{agreed.id}/reports"
            assert httpx.post(path, headers=BINARY | server.relay(), content=batch).is_success
            server.client.get(
                f"{server.console}/v1/plans/{agreed.id}/crowds", headers=server.admin()
            )
        eventually(
            lambda: server.client.get(f"{server.public}/results/feed.atom"),  # written last
            lambda answer: answer.text.count("<entry>") == 2,
        )
        size = {"width": width, "height": 844}
        page = chromium.new_context(viewport=size, color_scheme=scheme).new_page()
        wrong: list[str] = []
        page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
        page.on("request", lambda one: wrong.append(one.url) if one.resource_type != "document"
                and not one.url.endswith("/favicon.ico") else None)  # fmt: skip
        for address in ("/results/", f"/results/{agreed.survey.name}/", release(agreed, 1)):
            page.goto(f"{server.public}{address}")
            page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            assert (
                page.evaluate("getComputedStyle(document.querySelector('main')).maxWidth") != "none"
            )
            assert obstacles(page) == [], address
        page.goto(f"{server.public}/results/")
        page.click("h2 a")
        page.click("a:has-text('crowd 1')")
        assert page.url == f"{server.public}{release(agreed, 1)}index.html"
        assert [one for one in wrong if "favicon" not in one] == []
