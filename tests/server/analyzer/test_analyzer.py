"""What a relay forwards is counted bit for bit, whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal import Plan
from tests.server.analyzer.relay_help import (
    PLANS,
    FakeRelay,
    beside_analyzer,
    contents_of,
    cut,
    sealed,
)
from tests.server.store_help import NOON, counted_by_hand, upload


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_the_tally_is_that_of_the_reports(plan: Plan, tmp_path: Path):
    window = 0 if plan.window is None else int(NOON // plan.window)
    batch = upload(plan, plan.reports_needed, 7)

    async def forwarded(relay: FakeRelay):
        key = await relay.crowd_key(plan, window)
        chunks = cut(plan, key, sealed(plan, key, contents_of(batch)))
        assert await relay.forward(chunks) == ["receiving", "receiving", "complete"]
        return await relay.released(plan)

    expected = counted_by_hand(plan, batch)
    expected["crowds"][0]["window"] = None if plan.window is None else window
    assert beside_analyzer(forwarded, tmp_path / "data", plan) == expected
