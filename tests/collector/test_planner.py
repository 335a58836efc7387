"""The planner: the numbers of plan, audit and compare, on a page and in the API."""

from __future__ import annotations

import json
from html import unescape
from pathlib import Path
from urllib.parse import urlencode

import pytest

from shoal import InputError, Plan, Survey, audit, compare, plan
from shoal.collector.console.planning import EXAMPLE, MOST_BITS, Wish, prospect
from shoal.planning.observers import observers

from .privacy_help import World, in_world

FIELDS = {
    "survey": EXAMPLE, "crowd": "2000", "epsilon": "4", "delta": "1e-6", "share": "0.05",
    "view": "counts",
}  # fmt: skip
JSON = {"content-type": "application/json"}
FORM = {"content-type": "application/x-www-form-urlencoded"}


def test_its_numbers_are_those_of_the_functions() -> None:
    survey = Survey.from_toml(EXAMPLE)
    found = prospect(Wish.from_form(FIELDS | {"compare": "yes"}))
    agreed = plan(survey, crowd_size=2000, epsilon="4", delta="1e-6", view="counts")
    assert Plan.from_json(found["plan"]) == agreed
    certificate = audit(agreed)
    assert (found["q"], found["sigma"]) == (float(agreed.q), certificate.sigma)
    assert found["observers"] == [one.to_json() for one in observers(certificate, 4.0)]
    costs = compare(survey, crowd_size=2000, epsilon="4", delta="1e-6", share=0.05)
    assert found["compare"] == costs.to_json()
    # 1.96 and 0.8416 are the normal quantiles of 0.975 and 0.8.
    assert found["smallest_group"]["people"] == pytest.approx(2.8016 * certificate.sigma, abs=1)
    for kind, cost in (("local", "local"), ("reports", "proven"), ("counts", "counts")):
        assert found["views"][kind]["q"] == pytest.approx(costs[cost].q, rel=1e-3)
        assert found["views"][kind]["sigma"] == pytest.approx(costs[cost].sigma, rel=1e-3)
    (power,) = found["crosses"].values()
    assert power["least"] == pytest.approx(power["most"])  # equal cells


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"survey": "no TOML"}, "not valid TOML"),
        ({"survey": EXAMPLE.replace("choice", "riddle")}, "riddle"),
        ({"crowd": "many"}, "crowd and share are numbers"),
        ({"share": "0"}, "share is a part"),
        ({"view": "everything"}, "view is one of"),
        ({"crowd": "0"}, "crowd"),
        ({"epsilon": "-1"}, "epsilon"),
        ({"delta": "2"}, "delta"),
        ({"survey": f'name = "s"\n[[question]]\nname = "n"\nkind = "number"\nedges = '
                    f"{list(range(MOST_BITS))}"}, "at most 512 bits"),
    ],
)  # fmt: skip
def test_what_cannot_be_planned(change: dict[str, str], words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=words):
        prospect(Wish.from_form(FIELDS | change))

    async def live(world: World) -> None:
        body = urlencode(FIELDS | change).encode()
        answer = await world.ask("console", "POST", "/planner", world.admin() | FORM, body)
        assert answer.status_code == 422
        assert words in unescape(answer.text)
        assert "<textarea" in answer.text  # what was typed is still there

    in_world(live, tmp_path / "data")


def test_the_page_the_api_and_a_draft(tmp_path: Path) -> None:
    async def live(world: World) -> None:
        admin = world.admin()
        empty = await world.ask("console", "GET", "/planner", admin)
        assert "<textarea" in empty.text
        body = urlencode(FIELDS).encode()
        page = unescape((await world.ask("console", "POST", "/planner", admin | FORM, body)).text)
        wish = {**FIELDS, "crowd": 2000, "share": 0.05}
        api = await world.ask(
            "console", "POST", "/v1/prospect", admin | JSON, json.dumps(wish).encode()
        )
        document = api.json()
        assert document == prospect(Wish.from_form(FIELDS))
        assert f"about {document['smallest_group']['people']} people" in page
        assert document["single_report"] in page
        for one in document["observers"]:
            assert one["assumption"] in page
        (power,) = document["crosses"].values()
        assert power["in_words"] in page
        viewer = {"authorization": f"Bearer {await world.make_token('viewer')}"}
        theirs = await world.ask("console", "POST", "/planner", viewer | FORM, body)
        assert theirs.status_code == 200
        assert "as a draft" not in theirs.text
        assert "Add this plan as a draft" in page
        draft = urlencode({"plan": json.dumps(document["plan"])}).encode()
        added = await world.ask("console", "POST", "/drafts", admin | FORM, draft)
        assert added.headers["location"] == f"/surveys/{document['plan']['id']}"
        assert world.collector.plan(document["plan"]["id"]) is not None
        wrong: list[tuple[object, str | None]] = [
            ([], None), ({"number": 1} | wish, None), ({}, "survey"), ({"survey": 1}, "survey"),
            (wish | {"survey": "no TOML"}, "survey"), (wish | {"crowd": "2000"}, "crowd"),
            (wish | {"crowd": 0}, "crowd"), (wish | {"epsilon": 4}, "epsilon"),
            (wish | {"epsilon": "-1"}, "epsilon"), (wish | {"delta": "2"}, "delta"),
            (wish | {"share": 2}, "share"), (wish | {"view": "all"}, "view"),
            (wish | {"compare": "yes"}, "compare"),
        ]  # fmt: skip
        for document, parameter in wrong:
            refused = await world.ask(
                "console", "POST", "/v1/prospect", admin | JSON, json.dumps(document).encode()
            )
            assert refused.status_code == 422
            assert refused.json().get("parameter") == parameter

    in_world(live, tmp_path / "data")
