"""The console's page: what is seen, by whom, and in which words."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import numpy as np
import pytest

from shoal import Choice, Plan, Survey, Tally, audit, plan, screen
from shoal.analysis.publishing.observers import what_holds
from shoal.analysis.screening import Screening
from shoal.collector.console import handlers, pages
from shoal.collector.plan_states import Declaration
from shoal.planning.observers import observers
from tests.collector.privacy_help import COUNTS_PLAN, FLAGS_PLAN, World, in_world, make_reports

ASKED = Survey("travel", (Choice("way", tuple("abcdefghijklmnop")),))
PLAN = plan(ASKED, crowd_size=200, epsilon=1, delta="1e-6")
SENTENCES = "an honest crowd is expected"


def test_traces_and_links_are_for_those_who_may_look(tmp_path: Path) -> None:
    """Every bit of each report is a fair coin, which no crowd with a choice of 16 sends."""

    async def live(world: World) -> None:
        await world.publish(PLAN)
        answer = await world.upload(make_reports(PLAN, 200, np.random.default_rng(1)))
        assert answer.status_code == 202
        seen = {}
        for role in ("viewer", "analyst"):
            token = await world.make_token(role)
            headers = {"authorization": f"Bearer {token}"}
            seen[role] = (await world.ask("console", "GET", "/", headers)).text
            assert "sealed, 200 reports" in seen[role]
            assert "open, 0 tenths full" in seen[role]
        assert SENTENCES not in seen["viewer"]
        assert "href" not in seen["viewer"]
        assert SENTENCES in seen["analyst"]
        assert "Traces of fake reports in crowd 1" in seen["analyst"]
        assert f"/v1/plans/{PLAN.id}/crowds/1/report.html" in seen["analyst"]
        assert f"/v1/plans/{PLAN.id}/crowds/2" not in seen["analyst"]

    in_world(live, tmp_path / "data")


def test_a_counts_plan_says_what_its_releases_hold(tmp_path: Path) -> None:
    async def live(world: World) -> None:
        await world.publish(FLAGS_PLAN)
        await world.publish(COUNTS_PLAN)
        headers = {"authorization": f"Bearer {await world.make_token('viewer')}"}
        shown = (await world.ask("console", "GET", "/", headers)).text
        assert shown.count("This release holds how many reports set each bit, and nothing") == 1

    in_world(live, tmp_path / "data")


@pytest.mark.parametrize("agreed", [FLAGS_PLAN, COUNTS_PLAN], ids=["reports", "counts"])
def test_a_plan_says_who_sees_what(agreed: Plan, tmp_path: Path) -> None:
    """On the page and in the API: the observers of the certificate; a draft has none yet."""

    async def live(world: World) -> None:
        headers = {"authorization": f"Bearer {await world.make_token('admin')}"}
        assert await world.collector.add_plan(agreed) is None
        path = f"/v1/plans/{agreed.id}"
        assert (await world.ask("console", "GET", path, headers)).json()["observers"] is None
        assert "Who sees what" not in (await world.ask("console", "GET", "/", headers)).text
        everybody = Declaration(all_honest=True)
        assert await world.collector.move_plan(agreed.id, "published", everybody) is None
        shown = (await world.ask("console", "GET", path, headers)).json()
        expected = observers(audit(agreed), float(agreed.promise.epsilon))
        assert shown["observers"] == [one.to_json() for one in expected]
        assert (shown["view"], shown["local_epsilon"]) == (agreed.view, agreed.local_epsilon)
        page = unescape((await world.ask("console", "GET", "/", headers)).text)
        assert f"view {agreed.view};" in page
        for one in shown["observers"]:
            for words in (one["who"], one["sees"], what_holds(one), one["assumption"]):
                assert words in page

    in_world(live, tmp_path / "data")


def test_it_comes_in_pages(tmp_path: Path) -> None:
    """However many crowds there are, a page looks at a few of them."""
    screened = []

    async def live(world: World) -> None:
        asked = [replace(FLAGS_PLAN.survey, name=f"s{number}") for number in range(3)]
        plans = [replace(FLAGS_PLAN, survey=survey) for survey in asked]
        for one in plans:
            await world.publish(one)
        busy = plans[0]
        relay = await world.relay()
        await world.upload(make_reports(busy, 1200, np.random.default_rng(1)), relay)

        def watched(plan: Plan, crowd: Tally) -> Screening:
            screened.append(plan.id)
            return screen(plan, crowd)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(handlers, "screen", watched)
            patch.setattr(pages, "PLANS", 2)
            patch.setattr(pages, "CROWDS_OF_ONE", 6)

            async def page(path: str) -> str:
                answer = await world.ask("console", "GET", path, world.admin())
                assert answer.status_code == 200
                return answer.text

            both = [await page("/"), await page("/?page=1")]
            assert [text.count("<section>") for text in both] == [2, 1]
            (with_crowds,) = [text for text in both if f"/?plan={busy.id}" in text]
            assert with_crowds.count("sealed, 100 reports") == 4  # of five, one is open
            assert len(screened) == 4
            assert 'href="/?page=1"' in both[0]
            assert 'href="/?page=0"' in both[1]
            assert 'href="/?page=2"' not in both[1]
            seen = set()
            for number in range(3):
                text = await page(f"/?plan={busy.id}&page={number}")
                seen |= {int(found) for found in re.findall(r"/crowds/(\d+)/report.html", text)}
            assert seen == set(range(1, 13))
        for wrong in ("/?page=-1", "/?page=x", "/?page=1e9", "/?page=" + "9" * 5000):
            assert (await world.ask("console", "GET", wrong, world.admin())).status_code == 400
        unknown = await world.ask("console", "GET", "/?plan=canary", world.admin())
        assert unknown.status_code == 404

    in_world(live, tmp_path / "data")
