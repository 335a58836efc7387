"""Sealed reports in, whole shuffled crowds out: each report in exactly one, or none."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal import Plan

from .relay_help import (
    PIECES,
    WEEKLY,
    WHOLE,
    FakeAnalyzer,
    RelayWorld,
    contents_of,
    in_relay,
    made,
    this_window,
)


@pytest.mark.parametrize("plan", [WHOLE, PIECES, WEEKLY], ids=lambda plan: plan.survey.name)
def test_a_whole_crowd_arrives_and_nothing_else(plan: Plan, tmp_path: Path) -> None:
    analyzer = FakeAnalyzer(plan)
    reports = made(plan, 30, seed=1)

    async def live(world: RelayWorld) -> None:
        analyzer.relay_key = world.relay.signer.public_key
        await world.publish(plan)
        for report in reports[:19]:
            await world.report(plan, [report])
        assert analyzer.crowds == {}
        await world.report(plan, [reports[19]])
        (where,) = await world.forwarded(plan, 1)
        assert where == (plan.id, this_window(plan), 1)
        for report in reports[20:]:
            await world.report(plan, [report])
        arrived = analyzer.opened(where)
        assert len(arrived) == 20 * (plan.parties.messages if plan.parties else 1)
        assert contents_of(reports[:20]) == {one: arrived.count(one) for one in arrived}

    in_relay(live, tmp_path, analyzer)
    assert len(analyzer.crowds) == 1
