"""Which plans a collector takes, beside those that it has."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from shoal import Flags, Plan, Survey, Text, plan
from shoal.errors import PlanError
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Memory, Promise
from shoal.protocol.promise import read_certificate
from shoal.protocol.signatures import check_public_key, check_signature
from shoal.server.core import problems
from shoal.server.core.administration import objection
from shoal.server.core.problems import Problem
from shoal.server.core.settings import Settings
from shoal.server.storage.records import Declaration
from tests.server.privacy_help import World, with_world

SURVEY = Survey("browser", (Flags("features", ("sync",)),))
STRONG = plan(SURVEY, crowd_size=200, epsilon=1, delta="1e-6")
WEAK = plan(SURVEY, crowd_size=200, epsilon=2, delta="1e-6")
WIDER = plan(
    Survey("browser", (Flags("features", ("sync", "vpn")),)),
    crowd_size=200,
    epsilon=1,
    delta="1e-6",
)
ELSEWHERE = plan(Survey("another", SURVEY.questions), crowd_size=200, epsilon=2, delta="1e-6")
MEMORY = Memory(FlipProbability(1, 3), FlipProbability(1, 3))
WORDS = Survey("words", (Text("word", bits=16, hashes=1, cohorts=4),))
HINT = plan(SURVEY, crowd_size=200, epsilon=1, promise="three-sigma")


@pytest.mark.parametrize(
    ("wanted", "others", "problem"),
    [
        (STRONG, (), None),
        (STRONG, (WEAK,), None),
        (WEAK, (STRONG,), problems.PROTECTS_LESS),
        (WEAK, (WEAK,), None),
        (replace(STRONG, window=3600), (STRONG,), problems.PROTECTS_LESS),
        (STRONG, (replace(STRONG, window=3600),), None),
        (WIDER, (STRONG,), problems.PROTECTS_LESS),
        (ELSEWHERE, (STRONG,), None),
        (HINT, (), problems.PROMISE_UNPROVEN),
        (replace(STRONG, q=FlipProbability.at_least("0.1")), (), problems.PROMISE_BROKEN),
        (plan(SURVEY, crowd_size=99, epsilon=1, delta="1e-6"), (), problems.CROWD_TOO_SMALL),
        (plan(SURVEY, q="0.25"), (), problems.CROWD_TOO_SMALL),
        (
            Plan(SURVEY, FlipProbability(1, 1), Promise("local", "1"), crowd_size=200),
            (),
            problems.PROMISE_BROKEN,
        ),
        *(
            (
                Plan(survey, MEMORY.q, promise, 10**5, reports, memory=MEMORY),
                (),
                None if (survey, reports) == (SURVEY, 1) else problems.PROMISE_BROKEN,
            )
            for survey, reports in ((SURVEY, 1), (SURVEY, 2), (WORDS, 1))
            for promise in (Promise("local", "9"), Promise("proven", "1", "1e-6"))
        ),
    ],
)
def test_objections(wanted: Plan, others: tuple[Plan, ...], problem: Problem | None) -> None:
    found = objection(wanted, Settings(), others)
    assert (found and found.name) == (problem and problem.name)
    if found is not None and problem is not problems.CROWD_TOO_SMALL:
        assert found == problem


@pytest.mark.parametrize("size", [99, None])
def test_a_small_crowd_is_told_the_minimum_and_its_setting(size: int | None) -> None:
    small = plan(SURVEY, q="0.25") if size is None else replace(STRONG, crowd_size=size)
    title = getattr(objection(small, Settings(min_crowd=1234), ()), "title", "")
    assert "1,234" in title
    assert "min_crowd" in title
    assert ("99" in title) == (size == 99)


def test_a_hint_is_taken_where_that_is_set() -> None:
    assert objection(HINT, Settings(allow_unproven=True), ()) is None


def test_eta_is_about_one_report_of_a_person() -> None:
    once = plan(SURVEY, crowd_size=200, epsilon=1, eta="1e-3")
    allowing = Settings(allow_unproven=True)
    assert objection(once, allowing, ()) is None
    twice = replace(once, max_reports_per_person=2)
    assert objection(twice, allowing, ()) == problems.PROMISE_BROKEN


@with_world()
async def test_a_device_verifies_the_certificate_of_a_published_plan(world: World) -> None:
    """The signature is the pinned key's, and what was computed is what the plan promises."""
    assert await world.collector.administration.add_plan(STRONG) is None
    path = f"/v1/plans/{STRONG.id}/certificate"
    assert (await world.ask("public", "GET", path)).status_code == 404
    declared = Declaration(all_honest=True)
    assert await world.collector.administration.move_plan(STRONG.id, "published", declared) is None
    answer = await world.ask("public", "GET", path)
    key = check_public_key(world.collector.service.signer.public_key)
    check_signature(key, answer.content, answer.headers["Shoal-Signature"], "certificate")
    assert read_certificate(STRONG, answer.content).holds
    with pytest.raises(PlanError, match="another plan"):
        read_certificate(WEAK, answer.content)


@with_world()
async def test_a_draft_is_looked_at_again_when_it_is_published(world: World) -> None:
    """Two drafts do not know of each other; of two that are published at once, one is."""
    collector = world.collector
    for draft in (STRONG, WEAK):
        assert await collector.administration.add_plan(draft) is None
    strong, weak = await asyncio.gather(
        *(
            collector.administration.move_plan(draft.id, "published", Declaration(all_honest=True))
            for draft in (STRONG, WEAK)
        )
    )
    assert (strong, weak) == (None, problems.PROTECTS_LESS)
    answer = await world.ask(
        "console", "POST", f"/v1/plans/{WEAK.id}/publish?honest=all", world.admin()
    )
    assert (answer.status_code, answer.json()["title"]) == (422, problems.PROTECTS_LESS.title)
    assert await collector.administration.move_plan(STRONG.id, "closed") is None
    assert (
        await collector.administration.move_plan(WEAK.id, "published", Declaration(all_honest=True))
        is None
    )
