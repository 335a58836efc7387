"""Reports become batches of exactly one crowd, which the analyst collects once."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from tests.server.aggregation.world import NOW, PLAN, Parties, some_vectors, sums


def test_a_crowd_is_collected_and_nothing_else(tmp_path: Path):
    vectors = some_vectors(23)

    async def story() -> list[dict[str, object]]:
        async with Parties(tmp_path, lambda: NOW, job_reports=7) as parties:
            await parties.publish()
            reports = await parties.reports(vectors)
            for one in reports:
                answer = await parties.upload(one)
                assert (answer.status_code, answer.content) == (200, b"")
            again = await parties.upload(reports[0])
            assert (again.status_code, again.content) == (200, b"")
            await _collected(parties, 1)
            assert (await parties.batches(parties.leader))[0]["state"] == "collected"
            store = parties.analyst.store
            content = await parties.analyst.service.in_store(store.release, PLAN.id, 1)
            assert content is not None
            return json.loads(content)

    release = asyncio.run(story())
    assert release["reports"] == 20
    assert release["by_bit"] == sums(vectors[:20])


async def _collected(parties: Parties, count: int) -> None:
    store, plan = parties.analyst.store, PLAN
    for _ in range(3000):
        await parties.analyst._collect_plan(plan)
        numbers = await parties.analyst.service.in_store(store.released_numbers, plan.id, 100)
        if len(numbers) >= count:
            return
        await asyncio.sleep(0.02)
    raise AssertionError("nothing was collected")
