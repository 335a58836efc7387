"""The console's page: what is seen, by whom, and in which words."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from shoal import Choice, Survey, plan
from tests.collector.privacy_help import World, in_world, make_reports

ASKED = Survey("travel", (Choice("way", tuple("abcdefghijklmnop")),))
PLAN = plan(ASKED, crowd_size=200, epsilon=1, delta="1e-6")
SENTENCES = "an honest crowd is expected"


def test_traces_and_links_are_for_those_who_may_look(tmp_path: Path) -> None:
    """Every bit of each report is a fair coin, which no crowd with a choice of 16 sends."""

    async def live(world: World) -> None:
        await world.publish(PLAN)
        answer = await world.upload(make_reports(PLAN, 200, np.random.default_rng(1)))
        assert answer.status_code == 202
        pages = {}
        for role in ("viewer", "analyst"):
            token = await world.make_token(role)
            headers = {"authorization": f"Bearer {token}"}
            pages[role] = (await world.ask("console", "GET", "/", headers)).text
            assert "sealed, 200 reports" in pages[role]
            assert "open, 0 tenths full" in pages[role]
        assert SENTENCES not in pages["viewer"]
        assert "href" not in pages["viewer"]
        assert SENTENCES in pages["analyst"]
        assert "Traces of fake reports in crowd 1" in pages["analyst"]
        assert f"/v1/plans/{PLAN.id}/epochs/1/report.html" in pages["analyst"]
        assert f"/v1/plans/{PLAN.id}/epochs/2" not in pages["analyst"]

    in_world(live, tmp_path / "data")
