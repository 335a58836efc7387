"""The survey builder: a form and its TOML are two views of one survey."""

from __future__ import annotations

from html import unescape
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import example, given
from starlette.requests import Request

from shoal import Choice, Date, Flags, Number, Survey, Text, YesNo
from shoal.protocol.survey import KINDS, Pairs
from shoal.server.console import forms
from shoal.server.console.builder import (
    FIELDS,
    Draft,
    changed,
    checked,
    draft_of,
    fields_of,
    read_draft,
    sides,
)
from shoal.server.console.planner import EXAMPLE
from shoal.server.core.tokens import Token
from tests.strategies import bounded, surveys

from .console_help import SURVEY
from .privacy_help import World, with_world
from .test_access import NASTY, Elements

FORM = {"content-type": "application/x-www-form-urlencoded"}
EVERY_FIELD = Survey(
    "every field",
    (
        Flags("uses", ("sync", "vpn"), at_most=1, fold=True, other=True, column="Uses of it",
              title="What do you use?", text="Tick all.\n\nOr none.",
              titles={"sync": "Synchronization", "(other)": "Something else"}),
        Choice("channel", ("a", "b = c"), missing="option", titles={"(missing)": "No answer"}),
        YesNo("smokes", missing="option", titles={"yes": "I do", "no": "I do not"}),
        Number("age", (18, "35.5", 65), titles={"below 18": "child"}, unit="years"),
        Number("hours", low=-2, high=10, points=5, missing="option"),
        Date("visit", "week"),
        Text("word", bits=32, hashes=1, cohorts=10, pairs=Pairs(6, "abc")),
        Flags("signs", ("=", "x=y")),
    ),
    title="A <b>title</b>",
    text="Two\n\nparagraphs",
).cross("visit", "smokes").cross("signs=x=y", "channel", name="named")  # fmt: skip


def on_page(draft: Draft, toml: str = "") -> str:
    request = Request({"type": "http", "state": {"token": Token.new("viewer", "v")}})
    return bytes(forms._builder_page(request, draft, toml).body).decode()


class Fields(Elements):
    """The fields that a browser would send of the first form on a page."""

    def __init__(self, page: str) -> None:
        self.fields: list[tuple[str, str]] = []
        self._name, self._area, self._done = "", False, False
        super().__init__(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        super().handle_starttag(tag, attributes)
        known = {name: value or "" for name, value in attributes}
        if self._done:
            return
        if tag == "input" and (known["type"] != "checkbox" or "checked" in known):
            self.fields.append((known["name"], known.get("value", "")))
        elif tag in ("select", "textarea"):
            self._name, self._area = known["name"], tag == "textarea"
            self.fields += [(self._name, "")] * self._area
        elif tag == "option" and "selected" in known:
            self.fields.append((self._name, known.get("value", "?")))
            self._area = "value" not in known

    def handle_endtag(self, tag: str) -> None:
        self._area = False
        self._done = self._done or (tag == "form" and bool(self._name))

    def handle_data(self, data: str) -> None:
        super().handle_data(data)
        if self._area:
            self.fields[-1] = (self._name, data.strip())


def through_the_form(survey: Survey) -> Survey:
    """Show a survey as a page, send its form back, and read the TOML that is made of it."""
    sent = read_draft(Fields(on_page(draft_of(survey))).fields)
    found = checked(sent)
    assert found["mistakes"] == {}
    return Survey.from_toml(found["toml"])


@pytest.mark.parametrize("survey", [EVERY_FIELD, SURVEY, Survey.from_toml(EXAMPLE)])
def test_a_survey_goes_through_the_form_unchanged(survey: Survey) -> None:
    assert through_the_form(survey) == survey


@bounded(60)
@given(surveys())
@example(EVERY_FIELD)
def test_every_survey_is_its_draft(survey: Survey) -> None:
    found = checked(draft_of(survey))
    assert found["mistakes"] == {}
    assert Survey.from_toml(found["toml"]) == survey


def test_every_kind_has_a_form() -> None:
    """Each field is a control with a name for people, or a row."""
    for kind, question in KINDS.items():
        fields = question.json_fields().items()
        known = {name for name, one in fields if one.name not in ("options", "titles")}
        assert known == fields_of(kind).keys()
        assert known <= FIELDS.keys(), f"{kind} has a field without an entry"


def typed(**values: str) -> dict[str, Any]:
    kind, rows = values.pop("kind", "choice"), values.pop("rows", "a b").split()
    return {"kind": kind, "values": {"name": "x"} | values, "rows": [[row, ""] for row in rows]}


@pytest.mark.parametrize(
    ("question", "field"),
    [
        (typed(name=""), "q0.name"),
        (typed(name="a\u202eb"), "q0.name"),
        (typed(rows="a"), "q0.options"),
        (typed(rows="a a"), "q0.options"),
        (typed(rows="a ;"), "q0.options"),
        (typed(title="t" * 201), "q0.title"),
        (typed(text="t" * 2001), "q0.text"),
        (typed(column="options\x07"), "q0.column"),
        (typed(kind="flags", at_most="9"), "q0.at_most"),
        (typed(kind="flags", at_most="many"), "q0.at_most"),
        (typed(kind="number", edges="5, 1", rows=""), "q0.edges"),
        (typed(kind="number", edges="five", rows=""), "q0.edges"),
        (typed(kind="number", rows=""), "q0.low"),
        (typed(kind="number", low="0", high="9", points="1", rows=""), "q0.points"),
        (typed(kind="number", edges="1", unit="u" * 41, rows=""), "q0.unit"),
        (typed(kind="text", bits="8", hashes="99", cohorts="1", rows=""), "q0.hashes"),
        (typed(kind="text", bits="8", hashes="1", cohorts="5", pairs="1", rows=""), "q0.pairs"),
        (typed(kind="text", bits="8", hashes="1", rows=""), "q0.cohorts"),
        (typed(kind="yes/no", rows="") | {"rows": [["maybe", "perhaps"]]}, "q0.options"),
        (typed() | {"rows": [["a", "same"], ["b", "same"]]}, "q0.options"),
    ],
)
def test_a_mistake_is_told_at_its_field(question: Any, field: str) -> None:
    found = checked({"values": {"name": "s"}, "questions": [question]})
    assert list(found["mistakes"]) == [field]
    assert found["toml"] is None


def test_mistakes_of_a_survey_and_of_a_cross() -> None:
    def mistakes(values: dict[str, str], *crossed: str, names: str = "xy") -> dict[str, str]:
        cross = {"kind": "cross", "values": {}, "rows": [[side, ""] for side in crossed]}
        questions: Any = [cross] * bool(crossed) + [typed(name=name) for name in names]
        found: dict[str, str] = checked({"values": values, "questions": questions})["mistakes"]
        return found

    assert mistakes({"name": "s"}) == mistakes({"name": "s"}, "x", "y") == {}
    assert list(mistakes({})) == ["name"]
    assert list(mistakes({"name": "s", "title": "t" * 999})) == ["title"]
    assert list(mistakes({"name": "s"}, "x")) == ["q0.options"]
    assert "no question 'z'" in mistakes({"name": "s"}, "x", "z")["q0.options"]
    assert list(mistakes({"name": "s"}, names="xx")) == ["q1.name"]
    assert list(mistakes({"name": "s"}, names="")) == ["name"]


def test_buttons_change_a_draft() -> None:
    draft = draft_of(SURVEY)
    names = [one["values"].get("name", "") for one in draft["questions"]]

    def after(change: str) -> list[str]:
        questions = changed(draft_of(SURVEY), change)["questions"]
        return [one["values"].get("name", "") for one in questions]

    assert after("add") == [*names, ""]
    assert after("remove 1") == [names[0], *names[2:]]
    assert after("up 1") == [names[1], names[0], *names[2:]]
    for nothing in ("up 0", "remove 99", "remove x", "", "up", "remove -1", "show"):
        assert after(nothing) == names
    assert changed(draft_of(SURVEY), "add cross")["questions"][-1]["kind"] == "cross"
    assert sides(draft) == ["uses=sync", "uses=vpn", "uses=reader", "channel", "age", "smokes"]


def test_a_form_cannot_ask_for_endless_questions() -> None:
    assert read_draft([("q999.name", "x"), ("q-1.name", "x")])["questions"] == []
    draft = read_draft([("q99.name", "x")])
    assert len(changed(draft, "add")["questions"]) == 100


@with_world()
async def test_a_survey_is_built_without_a_script(world: World) -> None:
    """With the fields and buttons of the pages only, from nothing to a planner with its TOML."""
    viewer = {"authorization": f"Bearer {await world.make_token('viewer')}"}

    async def send(fields: list[tuple[str, str]], todo: str) -> str:
        body = urlencode([*fields, ("do", todo)]).encode()
        answer = await world.ask("console", "POST", "/builder", viewer | FORM, body)
        assert answer.status_code == (422 if "told refused" in answer.text else 200)
        return answer.text

    def fill(page: str, **values: str) -> list[tuple[str, str]]:
        given = {name.replace("_", "."): text for name, text in values.items()}
        fields = Fields(page).fields
        assert given.keys() <= {name for name, _ in fields}
        return [(name, given.pop(name, value)) for name, value in fields]

    page = (await world.ask("console", "GET", "/builder", viewer)).text
    page = await send(fill(page, name="pets", q0_name="has", q0_kind="yes/no"), "show")
    page = await send(Fields(page).fields, "add")
    page = await send(fill(page, q1_name="which", q1_options="cat"), "check")
    assert "needs at least 2 options" in page
    fields = fill(page)
    blank = next(n for n, one in enumerate(fields) if one == ("q1.options", ""))
    fields[blank] = ("q1.options", "<dog>")
    page = await send(fields, "add cross")
    fields = Fields(page).fields
    blank = fields.index(("q2.options", ""))
    fields[blank : blank + 2] = [("q2.options", "has"), ("q2.options", "which")]
    page = await send(fields, "plan")
    toml = unescape(page.partition('name="survey"')[2].partition(">\n")[2].partition("<")[0])
    expected = Survey("pets", (YesNo("has"), Choice("which", ("cat", "<dog>"))))
    assert Survey.from_toml(toml) == expected.cross("has", "which")
    again = await send([("survey", toml)], "toml")  # as the planner's button sends it
    assert 'value="&lt;dog&gt;"' in again


@with_world()
async def test_toml_that_is_no_survey(world: World) -> None:
    for toml in ("no TOML", "a = 1", "#" * (64 << 10) + "#"):
        body = urlencode({"survey": toml, "do": "toml"}).encode()
        answer = await world.ask("console", "POST", "/builder", world.admin() | FORM, body)
        assert answer.status_code == 422
        assert 'class="mistake"' in answer.text
        assert toml in answer.text
        assert "The form appears when" in answer.text


def test_hostile_text_is_text() -> None:
    usual = Elements(on_page(draft_of(EVERY_FIELD)))
    for word in NASTY:
        values = dict.fromkeys((*FIELDS, "kind", "x"), word)
        kinds = (*KINDS, "cross")
        questions: Any = [
            {"kind": kind, "values": values, "rows": [[word, word]]} for kind in kinds
        ]
        draft: Draft = {"values": values, "questions": questions}
        found = checked(draft)
        shown = Elements(on_page(draft, word))
        assert found["toml"] is None
        assert set(shown.names) <= set(usual.names)
        assert {name for name, _ in shown.attributes} <= {name for name, _ in usual.attributes}
