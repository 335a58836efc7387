"""The console's pages of surveys: what is seen, by whom, and in which words."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import numpy as np
import pytest

from shoal import Choice, Plan, Survey, plan
from shoal.analysis.screening import Screening, screen
from shoal.planning.certificate import certify
from shoal.planning.threats import observers, what_holds
from shoal.reports.formatting import window_in_words
from shoal.server.console import console, views
from shoal.server.storage.records import Declaration
from tests.server.privacy_help import (
    COUNTS_PLAN,
    FLAGS_PLAN,
    NOW,
    TEXT_PLAN,
    Headers,
    World,
    address_of,
    in_world,
    make_reports,
    with_world,
)
from tests.server.store_help import Clock

ASKED = Survey("travel", (Choice("way", tuple("abcdefghijklmnop")),))
PLAN = plan(ASKED, crowd_size=200, epsilon=1, delta="1e-6")


async def page(world: World, path: str, headers: Headers | None = None) -> str:
    answer = await world.ask("console", "GET", path, headers or world.admin())
    assert answer.status_code == 200, (path, answer.text)
    return unescape(answer.text)


@with_world()
async def test_traces_and_links_are_for_those_who_may_look(world: World) -> None:
    """Every bit of each report is a fair coin, which no crowd with a choice of 16 sends."""
    await world.publish(PLAN)
    answer = await world.upload(make_reports(PLAN, 200, np.random.default_rng(1)))
    assert answer.status_code == 202
    seen = {}
    for role in ("viewer", "analyst"):
        headers = {"authorization": f"Bearer {await world.make_token(role)}"}
        seen[role] = await page(world, f"/surveys/{address_of(PLAN)}", headers)
        assert "released, 200 reports" in seen[role]
        assert "open, about 0\u202f%" in seen[role]
    crowd, second = f"/surveys/{address_of(PLAN)}/crowds/1", "/crowds/2"
    for word in (crowd, "traces of fake reports", "report.html", "format=csv"):
        assert word not in seen["viewer"]
        assert word in seen["analyst"]
    assert second not in seen["analyst"]
    assert "in at least" in seen["analyst"]
    assert "an honest crowd is expected" in await page(world, crowd)


@with_world()
async def test_what_can_be_done_is_shown_to_admins_only(world: World) -> None:
    await world.publish(FLAGS_PLAN)
    analyst = {"authorization": f"Bearer {await world.make_token('analyst')}"}
    path = f"/surveys/{address_of(FLAGS_PLAN)}"
    assert f"{path}/close" in await page(world, path)
    assert f"{path}/close" not in await page(world, path, analyst)
    assert 'href="/tokens"' in await page(world, "/")
    assert 'href="/tokens"' not in await page(world, "/", analyst)


@with_world()
async def test_a_counts_plan_says_what_its_releases_hold(world: World) -> None:
    words = "This release holds how many reports set each bit, and nothing"
    for agreed in (FLAGS_PLAN, COUNTS_PLAN):
        await world.publish(agreed)
        shown = await page(world, f"/surveys/{address_of(agreed)}")
        assert (words in shown) == (agreed is COUNTS_PLAN)


@pytest.mark.parametrize("agreed", [FLAGS_PLAN, COUNTS_PLAN], ids=["reports", "counts"])
@with_world()
async def test_a_plan_says_who_sees_what(agreed: Plan, world: World) -> None:
    """On the page and in the API: the observers of the certificate; a draft has none yet."""
    assert await world.collector.administration.add_plan(agreed) is None
    path, shown_at = f"/v1/plans/{agreed.id}", f"/surveys/{address_of(agreed)}"
    draft = await world.ask("console", "GET", path, world.admin())
    assert draft.json()["observers"] is None
    assert 'id="observers"' not in await page(world, shown_at)
    everybody = Declaration(all_honest=True)
    assert await world.collector.administration.move_plan(agreed.id, "published", everybody) is None
    shown = (await world.ask("console", "GET", path, world.admin())).json()
    expected = observers(certify(agreed), float(agreed.promise.epsilon))
    assert shown["observers"] == [one.to_json() for one in expected]
    text = await page(world, shown_at)
    assert f"view {agreed.view}." in text
    for one in shown["observers"]:
        for words in (one["who"], one["sees"], what_holds(one), one["assumption"]):
            assert words in text


def test_windows_are_dates_and_an_end_has_a_reason(tmp_path: Path) -> None:
    """An hour after an hour, the crowd of the first window did not fill and is discarded."""

    clock = Clock(NOW)

    async def live(world: World) -> None:
        await world.publish(TEXT_PLAN)
        await world.upload(make_reports(TEXT_PLAN, 40, np.random.default_rng(1)))
        text = await page(world, f"/surveys/{address_of(TEXT_PLAN)}")
        assert "2027-01-15 08:00 to 09:00 UTC" in text
        assert "open, about 40\u202f%" in text
        clock.now += 2 * 3600
        await world.collector.service.in_store(world.collector.store.sweep)
        text = await page(world, f"/surveys/{address_of(TEXT_PLAN)}")
        why = "discarded: its window ended before it was complete; it was about 40\u202f% complete"
        assert why in text
        path = f"/v1/plans/{TEXT_PLAN.id}/crowds"
        crowds = (await world.ask("console", "GET", path, world.admin())).json()["crowds"]
        (ended,) = [one for one in crowds if one["state"] == "discarded" and one["progress"]]
        assert (ended["reason"], ended["from"]) == ("window", "2027-01-15T08:00:00Z")

    in_world(live, tmp_path / "data", clock)


def test_a_window_in_words() -> None:
    for seconds, words in (
        (86_400, "2027-01-15"),
        (7 * 86_400, "2027-01-14 to 2027-01-20"),
        (3600, "2027-01-15 08:00 to 09:00 UTC"),
        (10 * 3600, "2027-01-15 08:00 to 18:00 UTC"),
        (36 * 3600, "2027-01-14 00:00 to 2027-01-15 12:00 UTC"),
    ):
        agreed = replace(TEXT_PLAN, window=seconds)
        assert window_in_words(agreed, int(NOW // seconds)) == words
    assert window_in_words(FLAGS_PLAN, 0) == "no window"


@with_world()
async def test_it_comes_in_pages(world: World) -> None:
    """However many crowds there are, a page looks at a few of them."""
    screened = []
    asked = [replace(FLAGS_PLAN.survey, name=f"s{number}") for number in range(3)]
    plans = [replace(FLAGS_PLAN, survey=survey) for survey in asked]
    for one in plans:
        await world.publish(one)
    busy = plans[0]
    relay = await world.relay()
    await world.upload(make_reports(busy, 1200, np.random.default_rng(1)), relay)

    def watched(agreed: Plan, *rest: object) -> Screening:
        screened.append(agreed.id)
        return screen(agreed, *rest)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(console, "screen", watched)
        patch.setattr(views, "SURVEYS_PER_PAGE", 2)
        patch.setattr(views, "CROWDS_PER_PAGE", 6)
        both = [await page(world, "/"), await page(world, "/?page=1")]
        assert [text.count('class="card"') for text in both] == [2, 1]
        assert 'href="/?page=1"' in both[0]
        assert 'href="/?page=0"' in both[1]
        assert 'href="/?page=2"' not in both[1]
        assert screened == [busy.id]  # its last release
        assert "12 released" in both[0]
        seen = set()
        for number in range(3):
            text = await page(world, f"/surveys/{address_of(busy)}?page={number}")
            found = {int(one) for one in re.findall(r"/crowds/(\d+)/report.html", text)}
            assert len(found) <= 6
            seen |= found
        assert seen == set(range(1, 13))
        assert len(screened) == 12  # once for each crowd
        await page(world, f"/surveys/{address_of(busy)}?page=1")
        assert len(screened) == 12
    for wrong in ("/?page=-1", "/?page=x", "/?page=1e9", "/?page=" + "9" * 5000):
        answer = await world.ask("console", "GET", wrong, world.admin())
        assert answer.status_code == 400
        assert "It is about page." in answer.text
    unknown = await world.ask("console", "GET", "/surveys/canary", world.admin())
    assert unknown.status_code == 404
