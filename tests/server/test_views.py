"""The console's pages of surveys: what is seen, by whom, and in which words."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal import Choice, Plan, Survey, Text, estimate, plan
from shoal.analysis.report_files import Batch
from shoal.analysis.screening import Screening, screen
from shoal.planning.certificate import certify
from shoal.planning.threats import observers, what_holds
from shoal.reports.formatting import option_shares, window_in_words
from shoal.server.console import console, views
from shoal.server.console.views import expected_in_words
from shoal.server.core.problems import STORAGE_FULL
from shoal.server.storage.records import CrowdRecord, Declaration
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
async def test_addresses_are_names_with_ids_where_a_survey_has_several_plans(world: World) -> None:
    await world.publish(PLAN)
    assert 'href="/surveys/travel"' in await page(world, "/")
    second = replace(PLAN, crowd_size=300)
    assert await world.collector.administration.add_plan(second) is None
    home = await page(world, "/")
    assert 'href="/surveys/travel"' not in home
    both = await page(world, "/surveys/travel")
    for one in (PLAN, second):
        path = f"/surveys/travel~{one.id[:12]}"
        assert f'href="{path}"' in home
        assert f'href="{path}"' in both
        assert one.id in await page(world, path)
    for unknown in (PLAN.id, f"travel~{'0' * 12}", "travel~", f"other~{PLAN.id[:12]}"):
        answer = await world.ask("console", "GET", f"/surveys/{unknown}", world.admin())
        assert answer.status_code == 404
    for path in ("/surveys/travel/crowds/1", "/surveys/travel/trend"):
        assert (await world.ask("console", "GET", path, world.admin())).status_code == 404


@with_world()
async def test_a_name_of_any_letters_has_an_address(world: World) -> None:
    names = ("a/b", "..", "Füße ~ & ?#%2F", "تجربة", "'\"><b>")
    for name in names:
        await world.publish(replace(PLAN, survey=replace(ASKED, name=name)))
    found = re.findall(r'href="(/surveys/[^"]*)"', await page(world, "/"))
    assert len(set(found)) == len(names)
    shown = [await page(world, path) for path in found]
    assert all(any(f"<bdi>{name}</bdi>" in text for text in shown) for name in names)


def shares(plan: Plan, first: float, random: np.random.Generator) -> Batch:
    """Return a crowd in which a part gave the first answer, as devices would report it."""
    batch = make_reports(plan, plan.reports_needed, random)
    bits = np.zeros((len(batch), plan.bits), bool)
    bits[np.arange(len(batch)), np.where(random.random(len(batch)) < first, 0, 1)] = True
    bits ^= random.random(bits.shape) < float(plan.q)
    return replace(batch, rows=np.packbits(bits, axis=1, bitorder="little"))


@with_world()
async def test_home_tells_what_people_do(world: World) -> None:
    """Figures, lines with words, and traces are for those who may look at releases."""
    asked = Survey("trips", (Choice("way", ("bus", "train")), Text("place", 8, 1, 1)))
    agreed = plan(asked, crowd_size=2000, epsilon=4, delta="1e-7")
    await world.publish(agreed)
    random = np.random.default_rng(7)
    assert "Nothing is released yet" in await page(world, "/")
    await world.upload(shares(agreed, 0.9, random), await world.relay())
    one = await page(world, "/")
    assert "of people answered <bdi>bus</bdi>" in one
    assert "<svg" not in one
    await world.upload(shares(agreed, 0.7, random), await world.relay())
    both = await page(world, "/")
    said = re.search(r"way: bus over 2 crowds</title><desc[^>]*>(.*?)</desc>", both)
    assert said is not None
    texts = []
    for number in (1, 2):
        path = f"/v1/plans/{agreed.id}/crowds/{number}/estimates"
        estimates = (await world.ask("console", "GET", path, world.admin())).json()
        rows = estimates["questions"]["way"]
        texts.append(option_shares(asked["way"], rows, 2000)["bus"].text)
    assert said[1] == f"First {texts[0]}, last {texts[1]}."
    assert f"<strong>{texts[1]}</strong>" in both
    assert 'href="/surveys/trips/crowds/2"' in both
    viewer = {"authorization": f"Bearer {await world.make_token('viewer')}"}
    hidden = await page(world, "/", viewer)
    for word in ("<svg", "answered", "/crowds/2", texts[1]):
        assert word not in hidden
    assert "Last release: crowd 2" in hidden


@with_world()
async def test_home_says_why_no_reports_are_accepted(world: World) -> None:
    assert "No reports are accepted now." not in await page(world, "/")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.collector.service, "has_space", False)
        assert f"No reports are accepted now. {STORAGE_FULL.title}" in await page(world, "/")


@with_world()
async def test_figures_are_computed_once_for_each_release(world: World) -> None:
    await world.publish(FLAGS_PLAN)
    counted: list[int] = []

    def watched(*given: Any) -> Any:
        counted.append(1)
        return estimate(*given)

    random = np.random.default_rng(5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(console, "estimate", watched)
        for number in range(1, 4):
            await world.upload(make_reports(FLAGS_PLAN, 100, random))
            for _ in range(3):
                await page(world, "/")
            assert len(counted) == number


def open_crowd(day: int | None, progress: int, window: int = 0) -> CrowdRecord:
    return CrowdRecord(1, window, "open", None, progress, opened_day=day)


@pytest.mark.parametrize(
    ("days", "progress", "words"),
    [
        (0, 50, ""), (4, 0, ""), (1, 90, "probably within a day"),
        # 45 % after six days: 55 % take another 7.3
        (6, 40, "probably in about 7 days"), (10, 80, "probably in about 2 days"),
        (1, 40, "probably in about 1 day"), (10, 30, "probably in about 3 weeks"),
        (30, 10, "probably in about 6 months"),
    ],
)  # fmt: skip
def test_when_a_crowd_will_probably_be_complete(days: int, progress: int, words: str) -> None:
    today = int(NOW // 86_400)
    assert expected_in_words(FLAGS_PLAN, open_crowd(today - days, progress), NOW) == words


def test_a_crowd_may_not_be_complete_before_its_window_ends() -> None:
    today = int(NOW // 86_400)
    monthly = replace(TEXT_PLAN, window=30 * 86_400)
    crowd = open_crowd(today - 5, 10, int(NOW // (30 * 86_400)))
    ends = (crowd.window + 1) * 30 - NOW / 86_400
    assert 16 < ends < 17
    assert expected_in_words(monthly, crowd, NOW) == "probably not before its window ends"
    crowd = replace(crowd, progress=50)
    assert expected_in_words(monthly, crowd, NOW) == "probably in about 4 days"
    apart = plan(ASKED, crowd_size=2000, epsilon=2, delta="1e-7", relay="https://relay.example",
                 analyzer="https://analyzer.example")  # fmt: skip
    assert expected_in_words(apart, open_crowd(today - 5, 50), NOW) == ""
    assert expected_in_words(FLAGS_PLAN, open_crowd(None, 50), NOW) == ""


def test_the_last_problem_is_a_crowd_that_was_lost(tmp_path: Path) -> None:
    clock = Clock(NOW)

    async def live(world: World) -> None:
        await world.publish(TEXT_PLAN)
        random = np.random.default_rng(1)
        await world.upload(make_reports(TEXT_PLAN, 100, random))
        await world.upload(make_reports(TEXT_PLAN, 40, random))
        # Random reports have traces, which viewers do not see.
        assert "Last problem. Crowd 2: fake reports in at least" in await page(world, "/")
        viewer = {"authorization": f"Bearer {await world.make_token('viewer')}"}
        assert "Last problem" not in await page(world, "/", viewer)
        clock.now += 2 * 3600
        await world.collector.service.in_store(world.collector.store.sweep)
        # What is left of a window with a whole crowd is no loss; the next window has none.
        text = await page(world, "/", viewer)
        lost = re.search(r"Last problem. Crowd (\d+): discarded: its window ended", text)
        assert lost is not None
        path = f"/v1/plans/{TEXT_PLAN.id}/crowds"
        crowds = (await world.ask("console", "GET", path, world.admin())).json()["crowds"]
        whole = {one["window"] for one in crowds if one["state"] == "released"}
        told = {one["number"]: one for one in crowds}[int(lost[1])]
        assert told["window"] not in whole
        assert all("opened" in one for one in crowds if one["state"] == "open")

    in_world(live, tmp_path / "data", clock)


@with_world()
async def test_crowds_are_chosen_from_lists(world: World) -> None:
    other = replace(FLAGS_PLAN, survey=replace(FLAGS_PLAN.survey, name="again"))
    random = np.random.default_rng(3)
    for agreed, crowds in ((FLAGS_PLAN, 3), (other, 1)):
        await world.publish(agreed)
        await world.upload(make_reports(agreed, 100 * crowds, random), await world.relay())
    text = await page(world, "/surveys/browser/difference?first=3")
    assert re.findall(r'<option value="(\d+)"( selected)?>crowd', text) == [
        ("3", " selected"), ("2", ""), ("1", ""),
    ]  # fmt: skip
    assert f'<option value="{other.id}.1">crowd 1</option>' in text
    assert f'<option value="{FLAGS_PLAN.id}.2" selected>crowd 2</option>' in text
    assert 'type="number"' not in text
    text = await page(world, f"/surveys/browser/difference?first=1&second={other.id}.1")
    assert "browser, crowd 1 minus again, crowd 1" in text
    assert f'<option value="{other.id}.1" selected>' in text
    text = await page(world, "/surveys/browser/trend?crowds=3")
    assert '<option value="3" selected>the last 3</option>' in text
    for wrong, status in (("x", 400), ("0", 400), ("9", 404), (f"{'0' * 64}.1", 404)):
        path = f"/surveys/browser/difference?second={wrong}"
        assert (await world.ask("console", "GET", path, world.admin())).status_code == status


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
