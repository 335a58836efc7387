"""The pages of sealed crowds: what they show is what the API answers."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import Any
from urllib.parse import urlencode

import jsonschema_rs
import numpy as np
import pytest

import shoal
from shoal import Choice, Survey, Tally
from shoal.analysis.text.decode import decode
from shoal.analysis.trends import crowd_difference, trend
from shoal.reports.formatting import option_shares
from shoal.server.console.app import OPERATIONS
from shoal.server.console.planner import EXAMPLE
from tests.server.store_help import stored_tally, told

from .console_help import every_kind, reports, response_schemas
from .privacy_help import FLAGS_PLAN, TEXT_PLAN, Headers, World, address_of, in_world, make_reports

PLAN = every_kind(400, epsilon="6")
FORM = {"content-type": "application/x-www-form-urlencoded"}


async def sealed(world: World, crowds: int = 2) -> Headers:
    await world.publish(PLAN)
    relay = await world.relay()
    for seed in range(crowds):
        assert (await world.upload(reports(PLAN, seed, 400), relay)).status_code == 202
    return {"authorization": f"Bearer {await world.make_token('analyst')}"}


async def tally(world: World, number: int) -> Tally:
    collector = world.collector
    found = await collector.service.in_store(stored_tally, collector.store, PLAN.id, number)
    assert found is not None
    return found[1]


@told(in_world)
async def test_a_crowd_shows_each_kind_in_its_form(world: World) -> None:
    reader = await sealed(world, 1)
    path = f"/v1/plans/{PLAN.id}/crowds/1/results"
    document = (await world.ask("console", "GET", path, reader)).json()
    answer = await world.ask("console", "GET", f"/surveys/{address_of(PLAN)}/crowds/1", reader)
    page = unescape(answer.text)
    estimates = document["estimates"]
    assert estimates == shoal.estimate(PLAN, await tally(world, 1)).to_json()
    for name in ("channel", "age"):
        shares = option_shares(PLAN.survey[name], estimates["questions"][name], 400)
        numbers = [float(one.number.split("\u202f")[0]) for one in shares.values()]
        assert sum(numbers) == pytest.approx(100, abs=1e-9)
        for one in shares.values():
            assert one.sentence in page
    assert "age: histogram" in page
    assert "Median" in page
    assert document["numbers"]["age"]["quantiles"][2]["label"] in page
    (cross,) = document["crosses"].values()
    assert "channel (rows) by smokes (columns)" in page
    assert cross["sensitivity"]["in_words"] in page
    # The groups of either question: shares of the row, and of the column.
    for of, by in (("channel", "smokes"), ("smokes", "channel")):
        assert f"Of the people in each row ({of}), the share in each column ({by})" in page
    for finding in document["screening"]["findings"]:
        assert finding in page
    assert "style=" not in answer.text
    assert "<script" not in answer.text


@told(in_world)
async def test_every_level_is_answered_or_refused(world: World) -> None:
    """A level is split between options, and its complement is a test's: both have an end."""
    reader = await sealed(world, 2)
    api, page = f"/v1/plans/{PLAN.id}", f"/surveys/{address_of(PLAN)}"
    paths = [f"{api}/crowds/1/estimates?", f"{api}/crowds/1/results?", f"{api}/difference?"]
    paths += [f"{page}/crowds/1?", f"{page}/difference?"]
    asked = [one.name for one in PLAN.survey if one.kind != "text"]
    paths += [f"{side}/trend?question={name}&" for side in (api, page) for name in asked]
    for level, status in (
        ("5e-324", 400), ("0.1", 400), ("0.4999", 400), ("0.5", 200), ("0.999999", 200),
        ("0.9999991", 400), ("0.9999999999999999", 400), ("nan", 400),
    ):  # fmt: skip
        for path in paths:
            answer = await world.ask("console", "GET", f"{path}level={level}", reader)
            assert answer.status_code == status, path
            if status == 400 and path.startswith("/v1"):
                assert answer.json()["parameter"] == "level"


@told(in_world)
async def test_texts_are_found_from_candidates(world: World) -> None:
    reader = await sealed(world, 1)
    where = f"/surveys/{address_of(PLAN)}/crowds/1"
    fields = {"candidates": "tea\n coffee \n\ncocoa\n<b>", "fdr": "0.1", "question": "word"}
    answer = await world.ask(
        "console", "POST", f"{where}/texts", reader | FORM, urlencode(fields).encode()
    )
    assert answer.status_code == 200
    assert "2 of 4 candidates were found" in answer.text
    assert "at most 10 % of the texts found are wrong" in answer.text
    assert re.findall(r'<th scope="row"><bdi>(tea|coffee|cocoa)', answer.text) == ["tea", "coffee"]
    api = f"/v1/plans/{PLAN.id}/crowds/1/decode"
    body = json.dumps({"candidates": ["tea", "coffee", "cocoa", "<b>"], "fdr": 0.1}).encode()
    typed = reader | {"content-type": "application/json"}
    document = (await world.ask("console", "POST", api, typed, body)).json()
    decoded = decode(PLAN, await tally(world, 1), ["tea", "coffee", "cocoa", "<b>"], fdr=0.1)
    assert document == decoded.to_json()
    for wrong, name in (
        ({"candidates": []}, "candidates"),
        ({"candidates": "tea"}, "candidates"),
        ({"candidates": [""]}, "candidates"),
        ({"candidates": ["tea"], "fdr": 0}, "fdr"),
        ({"candidates": ["tea"], "level": True}, "level"),
        ({"candidates": ["tea"], "level": 0.1}, "level"),
        ({"candidates": ["tea"], "question": 5}, "question"),
    ):
        refused = await world.ask("console", "POST", api, typed, json.dumps(wrong).encode())
        assert (refused.status_code, refused.json()["parameter"]) == (400, name)
    other = b'{"candidates": ["tea"], "question": "uses"}'
    assert (await world.ask("console", "POST", api, typed, other)).status_code == 404
    unknown = await world.ask("console", "POST", api, typed, b'{"candidates": ["a"], "x": 1}')
    assert unknown.status_code == 400
    for fdr in ("x", "2", "nan"):
        wrong_form = urlencode(fields | {"fdr": fdr}).encode()
        refused = await world.ask("console", "POST", f"{where}/texts", reader | FORM, wrong_form)
        assert refused.status_code == 400
        assert "It is about fdr." in refused.text
    open_crowd = await world.ask("console", "POST", api.replace("/1/", "/2/"), typed, body)
    assert open_crowd.status_code == 409


@told(in_world)
async def test_a_trend_and_a_difference(world: World) -> None:
    reader = await sealed(world, 3)
    tallies = [await tally(world, number) for number in (1, 2, 3)]
    base, page = f"/v1/plans/{PLAN.id}", f"/surveys/{address_of(PLAN)}"

    async def get(path: str) -> Any:
        answer = await world.ask("console", "GET", path, reader)
        assert answer.status_code == 200, path
        return answer

    document = (await get(f"{base}/trend?question=channel")).json()
    assert document == trend(PLAN, tallies).to_json(["channel"])
    shown = (await get(f"{page}/trend?question=channel")).text
    assert [f"crowd {n}" in shown for n in (1, 2, 3, 4)] == [True, True, True, False]
    assert (await get(f"{base}/trend?question=age&crowds=2&level=0.9")).json() == trend(
        PLAN, tallies[1:], 0.9
    ).to_json(["age"])
    expected = crowd_difference((PLAN, tallies[2]), (PLAN, tallies[1])).to_json()
    assert (await get(f"{base}/difference")).json() == expected
    chosen = crowd_difference((PLAN, tallies[0]), (PLAN, tallies[2])).to_json()
    assert (await get(f"{base}/difference?first=1&second=3")).json() == chosen
    assert "crowd 1 minus crowd 3" in unescape(
        (await get(f"{page}/difference?first=1&second=3")).text
    )
    for path, status, name in (
        (f"{base}/trend?question=word", 404, "question"),
        (f"{base}/trend?question=nothing", 404, "question"),
        (f"{base}/trend?crowds=1", 400, "crowds"),
        (f"{base}/difference?first=0", 400, "first"),
        (f"{base}/difference?first=4", 409, None),
        (f"{base}/difference?second=9", 404, None),
        (f"{base}/difference?with_plan=x", 404, None),
        (f"{base}/difference?level=2", 400, "level"),
    ):
        refused = await world.ask("console", "GET", path, reader)
        assert (refused.status_code, refused.json().get("parameter")) == (status, name), path


@told(in_world)
async def test_two_surveys_are_compared_where_they_ask_the_same(world: World) -> None:
    other = shoal.plan(
        Survey("again", (Choice("channel", ("beta", "other")),)), crowd_size=200, epsilon="6",
        delta="1e-6",
    )  # fmt: skip
    reader = await sealed(world, 1)
    await world.publish(other)
    await world.upload(make_reports(other, 200, np.random.default_rng(1)))
    await world.publish(TEXT_PLAN)
    await world.upload(make_reports(TEXT_PLAN, 100, np.random.default_rng(1)))
    path = f"/v1/plans/{PLAN.id}/difference?with_plan={other.id}"
    document = (await world.ask("console", "GET", path, reader)).json()
    assert {name: list(rows) for name, rows in document["questions"].items()} == {
        "channel": ["beta"]
    }
    path = f"/surveys/{address_of(PLAN)}/difference?second={other.id}.1"
    page = unescape((await world.ask("console", "GET", path, reader)).text)
    assert "people, crowd 1 minus again, crowd 1" in page
    path = f"/v1/plans/{PLAN.id}/difference?with_plan={TEXT_PLAN.id}"
    refused = await world.ask("console", "GET", path, reader)
    assert refused.json()["type"] == "urn:shoal:problem:nothing-in-common"


@pytest.mark.parametrize("word", ["trend", "difference"])
@told(in_world)
async def test_one_crowd_is_too_few(word: str, world: World) -> None:
    await world.publish(FLAGS_PLAN)
    answer = await world.ask("console", "GET", f"/v1/plans/{FLAGS_PLAN.id}/{word}", world.admin())
    assert answer.json()["type"] == "urn:shoal:problem:too-few-crowds"
    page = await world.ask(
        "console", "GET", f"/surveys/{address_of(FLAGS_PLAN)}/{word}", world.admin()
    )
    assert page.status_code == 409
    assert "needs two released crowds" in page.text


def test_every_json_answer_has_a_shape() -> None:
    """But those that are signed documents of their own, and the description itself."""
    json_ones = {(one.method, one.path) for one in OPERATIONS if "application/json" in one.media}
    own = {("GET", "/v1/plans/{plan_id}/certificate"), ("GET", "/openapi.json")}
    assert json_ones - own == set(response_schemas())


@pytest.mark.slow
@told(in_world)
async def test_answers_have_the_shape_they_are_said_to_have(world: World) -> None:
    """Of a survey with a question of every kind, and of crowds in every state."""
    await sealed(world, 2)
    typed = world.admin() | {"content-type": "application/json"}
    wish = {"survey": EXAMPLE, "crowd": 1000, "epsilon": "4", "delta": "1e-6"}
    bodies: dict[str, object] = {
        "/v1/plans/{plan_id}/crowds/{number}/decode": {"candidates": ["tea", "coffee"]},
        "/v1/plans/{plan_id}/origins": {"origins": ["https://page.example"]},
        "/v1/plans/{plan_id}/public": {"public": True},
        "/v1/prospect": wish,
        "/v1/tokens": {"role": "viewer", "label": "x"},
        "/v1/plans": {"id": FLAGS_PLAN.id} | FLAGS_PLAN.to_json(),
    }
    moves = [f"/v1/plans/{{plan_id}}/{word}" for word in ("pause", "publish", "close", "destroy")]
    tried, schemas = set(), response_schemas()
    order = sorted(schemas, key=lambda place: place[1] in moves and moves.index(place[1]) + 1)
    for method, path in [*order, ("GET", "/v1/plans/{plan_id}/crowds")]:
        where = path.replace("{plan_id}", PLAN.id).replace("{number}", "1")
        body = json.dumps(bodies[path]).encode() if method != "GET" and path in bodies else b""
        answer = await world.ask("console", method, where, typed, body)
        assert answer.status_code in (200, 201), (path, answer.text)
        jsonschema_rs.validate(schemas[method, path], answer.json())
        tried.add((method, path))
    assert tried == set(schemas)
    with pytest.raises(jsonschema_rs.ValidationError):
        jsonschema_rs.validate(schemas["GET", "/healthz"], {"status": 5})
