"""The same answers, sent whole and in fragments: both estimates are right, one is far sharper."""

from __future__ import annotations

import json
import math
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

import shoal
from shoal import Flags, Plan, Survey, Tally
from shoal.analysis.estimates import Estimate
from shoal.device.encode import encode
from shoal.device.encryption import encrypt_report
from shoal.device.randomize import flip, pack_reports
from shoal.protocol.encryption import CrowdKey, message_bytes
from shoal.protocol.plan import View
from shoal.server.analyzer.plan import Place
from tests.server.analyzer.relay_help import DATA, cut, fragments
from tests.server.analyzer.test_crashes import published, seal_next, states

PEOPLE, BITS = 800, 12
OPTIONS = tuple(f"option {bit}" for bit in range(BITS))
SURVEY = Survey("s", (Flags("f", OPTIONS),))
LEVEL = 1 - 1e-12
"""Of 24 intervals one misses its truth in 1e-11 of all runs; the flips are the system's."""
FARTHEST = 16.0
"""Standard deviations by which the sum of the squares of 12 normal errors is never off: 1e-12."""


def plan_of(view: View) -> Plan:
    made = shoal.plan(SURVEY, crowd_size=PEOPLE, epsilon=2, delta="1e-4", view=view)
    return replace(made, parties=fragments(BITS if view == "counts" else 1))


def through_both_parties(plan: Plan, chosen: list[list[str]], folder: Path) -> list[Estimate]:
    """Let devices seal, an analyzer open, count and release; return the estimates."""
    with closing(published(folder, plan)) as store:
        document = store.crowd_key(plan.id, Place(0, 1), DATA)
        assert isinstance(document, bytes)
        key, length = CrowdKey.from_bytes(document), message_bytes(plan)
        messages: list[bytes] = []
        for names in chosen:
            synthetic = flip(plan, encode(plan, {"f": names}))
            content = encrypt_report(plan, pack_reports(plan, synthetic).to_bytes(), key).content
            messages += [content[at : at + length] for at in range(16, len(content), length)]
        assert states(store, cut(plan, key, messages))[-1] == "complete"
        assert seal_next(store)
        release = json.loads(store.release(plan.id, 1) or b"")
    return list(shoal.estimate(plan, Tally.from_json(release, plan))["f"].values())


@pytest.mark.slow
def test_whole_and_fragmented_reports_of_the_same_answers(tmp_path: Path) -> None:
    chance = Random(7)
    shares = [(bit + 0.5) / BITS for bit in range(BITS)]
    chosen = [
        [name for name, share in zip(OPTIONS, shares, strict=True) if chance.random() < share]
        for _ in range(PEOPLE)
    ]
    truths = [sum(name in names for names in chosen) for name in OPTIONS]
    views: list[View] = ["reports", "counts"]
    found, sigmas = {}, {}
    for view in views:
        plan = plan_of(view)
        found[view] = through_both_parties(plan, chosen, tmp_path / view)
        q = float(plan.q)
        sigmas[view] = math.sqrt(PEOPLE * q * (1 - q)) / (1 - 2 * q)
        squares = 0.0
        for estimate, truth in zip(found[view], truths, strict=True):
            interval = estimate.interval(LEVEL)
            assert interval.low <= truth <= interval.high
            squares += ((estimate.count - truth) / sigmas[view]) ** 2
        # The errors have the size that the view's own noise has, not the other one's.
        assert abs(squares - BITS) < FARTHEST * math.sqrt(2 * BITS)
    for one, other in zip(found["reports"], found["counts"], strict=True):
        apart, spread = abs(one.count - other.count), math.hypot(*sigmas.values())
        assert apart < 8 * spread
    assert sigmas["counts"] < sigmas["reports"] / 2
