"""The survey builder: a survey as the texts of a form, and back.

A draft is what somebody typed. `read_draft` takes it from a form, `checked` turns it into a survey
and its TOML, or into a sentence for each field that is invalid, and `draft_of` shows a survey as a
draft. Which fields a kind of question has follows from its class; `FIELDS` says how each is
written. So a new kind needs an entry here only for fields that no other kind has.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypedDict

from shoal.errors import SurveyError
from shoal.protocol.questions import MISSING, OTHER, PERIODS
from shoal.protocol.survey import KINDS, Cross, Flags, Survey, Text
from shoal.support.checks import seconds

MAX_QUESTIONS = 100
"""Questions and crosses that a form may have."""


class QuestionDraft(TypedDict):
    """A question or a cross as it was typed; `rows` are its options with their labels, or sides."""

    kind: str
    values: dict[str, str]
    rows: list[list[str]]


class Draft(TypedDict):
    """A survey as it was typed; `values` are its name, title and text."""

    values: dict[str, str]
    questions: list[QuestionDraft]


class Field(NamedTuple):
    """A field of a question: its name on the form, its control, and how it is read and written.

    A folded one is seldom needed.
    """

    label: str
    control: str = "line"
    help: str = ""
    folded: bool = False
    read: Callable[[str], Any] = str
    write: Callable[[Any], str] = str
    choices: Sequence[str] = ()


def _whole(text: str) -> int | str:
    return int(text) if re.fullmatch(r"-?\d{1,18}", text, re.A) else text


def _pairs(text: str) -> dict[str, int | str]:
    length, _, alphabet = text.partition(" ")
    letters: dict[str, int | str] = {"alphabet": alphabet.strip()} if alphabet else {}
    return {"length": _whole(length), **letters}


def _time_text(length: int | str) -> str:
    """Return a length of time as people write it.

    >>> _time_text(604_800), _time_text(5400)
    ('1w', '5400')
    """
    for unit in ("w", "d", "h"):
        if isinstance(length, int) and length % (size := seconds(f"1{unit}")) == 0:
            return f"{length // size}{unit}"
    return str(length)


FIELDS: Mapping[str, Field] = {
    "name": Field("Name", help="in data and tables"),
    "title": Field("Title", help="shown in place of the name"),
    "text": Field("Text", "paragraphs", "as people read it"),
    "by": Field("Counted by", "choice", choices=tuple(PERIODS)),
    "low": Field("From", help="numbers below count as this"),
    "high": Field("To", help="numbers above count as this"),
    "points": Field("Points", help="of the grid from the first number to the last", read=_whole),
    "whole": Field("Every whole number is a point", "switch", read=bool),
    "edges": Field(
        "Edges of bins", help="in place of a grid, such as 18, 35, 65",
        read=lambda text: [one.strip() for one in text.split(",")], write=", ".join,
    ),
    "unit": Field("Unit", help="such as hours"),
    "weights": Field(
        "Weights", help="of the arms, such as 2, 1, 1; empty for all the same",
        read=lambda text: [_whole(one.strip()) for one in text.split(",")],
        write=lambda weights: ", ".join(map(str, weights)),
    ),
    "periods": Field("Periods", help="after the first one", read=_whole),
    "period": Field("Length of a period", help="such as 1d or 1w", write=_time_text),
    "design": Field("Reported", "choice", "at each age, or once", choices=("age", "once")),
    "at_most": Field("At most", help="how many options a person may choose", read=_whole),
    "bits": Field("Bits", help="of the Bloom filter, such as 256", read=_whole),
    "hashes": Field("Hashes", help="bits that a text sets, such as 2", read=_whole),
    "cohorts": Field("Cohorts", help="such as 64", read=_whole),
    "pairs": Field(
        "Letters of words to discover", help="the longest word, such as 6, and its alphabet",
        folded=True,
        read=_pairs, write=lambda pairs: f"{pairs['length']} {pairs['alphabet']}",
    ),
    "missing": Field(
        "No answer is an answer too", "switch", folded=True, read=lambda text: "option"
    ),
    "other": Field("Any other answer is an option too", "switch", folded=True, read=bool),
    "fold": Field("Ignore case and blanks", "switch", folded=True, read=bool),
    "column": Field("Column", help="of a table with answers, if not the name", folded=True),
}  # fmt: skip
"""Fields in the order of the form. Options and labels are rows, which every form has."""

_WORDS = {
    "edge": "edges", "option": "options", "question": "questions", "weight": "weights",
    "length": "pairs", "alphabet": "pairs",
}  # fmt: skip
"""Words of sentences about a field that do not name it."""


def fields_of(kind: str) -> dict[str, Field]:
    """Return the fields of a kind by their names in TOML, without its rows."""
    known = [name for name in _names(kind) if name not in (_listed(kind), "titles")]
    listed = [name for name in FIELDS if name in known]
    rest = {name: Field(name.replace("_", " ")) for name in known if name not in FIELDS}
    return {name: FIELDS[name] for name in listed} | rest


def _names(kind: str) -> Sequence[str]:
    return ("name", "questions") if kind == Cross.kind else tuple(KINDS[kind].json_fields())


def _listed(kind: str) -> str | None:
    """Return the field that a kind's rows list: options, arms, steps, or the sides of a cross."""
    if kind == Cross.kind:
        return "questions"
    fields = KINDS[kind].json_fields().items()
    return next((name for name, one in fields if one.name == "options"), None)


def row_heads(kind: str) -> Sequence[str]:
    """Return the heads of the columns of a kind's rows; none if it has no rows."""
    listed = _listed(kind)
    if kind == Cross.kind:
        return ("Side",)
    first = "Answer" if listed is None else listed.removesuffix("s").capitalize()
    return (first, "Label") if "titles" in _names(kind) else ()


def new_question(kind: str = "choice") -> QuestionDraft:
    return {"kind": kind, "values": {}, "rows": []}


def read_draft(fields: Iterable[tuple[str, str]]) -> Draft:
    """Return the draft in the fields of a form, in their order; unknown ones are left out."""
    draft: Draft = {"values": {}, "questions": []}
    questions = draft["questions"]
    for key, value in fields:
        place = re.fullmatch(r"q(\d{1,2})\.(\w+)", key, re.A)
        if place is None:
            draft["values"] |= {key: value} if key in ("name", "title", "text") else {}
            continue
        number, name = int(place[1]), place[2]
        questions += [new_question() for _ in range(number + 1 - len(questions))]
        question = questions[number]
        if name == "kind":
            question["kind"] = value if value in (*KINDS, Cross.kind) else question["kind"]
        elif name == "options":
            question["rows"].append([value, ""])
        elif name == "labels" and question["rows"]:
            question["rows"][-1][1] = value
        else:
            question["values"][name] = value
    for question in questions:
        question["rows"] = [row for row in question["rows"] if any(row)]
    return draft


def changed(draft: Draft, change: str) -> Draft:
    """Return a draft after one of the form's buttons: add, remove or move up a question."""
    what, _, which = change.partition(" ")
    questions = draft["questions"]
    place = int(which) if re.fullmatch(r"\d{1,2}", which, re.A) else len(questions)
    if what == "add" and len(questions) < MAX_QUESTIONS:
        questions.append(new_question(Cross.kind if which == Cross.kind else "choice"))
    elif what == "remove" and place < len(questions):
        del questions[place]
    elif what == "up" and 0 < place < len(questions):
        questions[place - 1 : place + 1] = questions[place], questions[place - 1]
    return draft


def sides(draft: Draft) -> list[str]:
    """Return what can be crossed: questions with one answer, and single flags of others."""
    found = []
    for question in draft["questions"]:
        name = question["values"].get("name", "")
        if question["kind"] == Flags.kind:
            found += [f"{name}={option}" for option, _ in question["rows"]]
        elif question["kind"] not in (Text.kind, Cross.kind) and name:
            found.append(name)
    return found


def draft_of(survey: Survey) -> Draft:
    """Return the draft of a survey; `checked` makes the same survey of it."""
    questions: list[QuestionDraft] = []
    for question in survey:
        known = question.to_json()
        kind, titles = known.pop("kind"), dict(known.pop("titles", {}))
        rows = dict.fromkeys([*known.pop(_listed(kind) or "", ()), *titles])
        if isinstance(question, Cross) and known["name"] == Cross.of(survey.asked, list(rows)).name:
            del known["name"]
        fields = fields_of(kind)
        values = {
            name: "yes" if fields[name].control == "switch" else fields[name].write(value)
            for name, value in known.items()
        }
        labelled = [[name, titles.get(name, "")] for name in rows]
        questions.append({"kind": kind, "values": values, "rows": labelled})
    words = {key: str(text) for key, text in survey.to_json().items() if key != "questions"}
    return {"values": words, "questions": questions}


def checked(given: Draft | str) -> dict[str, Any]:
    """Return the draft, its TOML, and the mistakes by field; `given` is a draft or TOML.

    TOML that is no survey is a `SurveyError`. A draft that is none has no TOML, and a mistake for
    each question that is invalid by itself, or of the whole: `name`, `q0.options`.
    """
    if isinstance(given, str):
        return {"draft": draft_of(Survey.from_toml(given)), "toml": given, "mistakes": {}}
    documents = [_document(one) for one in given["questions"]]
    asked = [one for one in documents if one["kind"] != Cross.kind]
    crosses = [one for one in documents if one["kind"] == Cross.kind]
    mistakes: dict[str, str] = {}
    for place, one in enumerate(documents):
        named = [other.get("name") for other in documents[:place]]
        if one.get("name") and one["name"] in named:
            mistakes[f"q{place}.name"] = "another question has this name; names must differ."
        elif one in asked or not mistakes:  # a cross needs valid questions
            alone = [one] if one in asked else [*asked, one]
            mistakes |= _mistakes({"name": "survey", "questions": alone}, f"q{place}.", one["kind"])
    words = {"name": "", **{key: text for key, text in given["values"].items() if text}}
    survey = words | {"questions": [*asked, *crosses]}
    mistakes = mistakes or _mistakes(survey, "", None)
    toml = None if mistakes else Survey.from_json(survey).to_toml()
    return {"draft": given, "toml": toml, "mistakes": mistakes}


def _document(draft: QuestionDraft) -> dict[str, Any]:
    """Return the fields that a question would have in JSON; empty ones are left out."""
    kind, rows = draft["kind"], draft["rows"]
    document: dict[str, Any] = {"kind": kind} | ({} if kind == Cross.kind else {"name": ""})
    for name, field in fields_of(kind).items():
        if text := draft["values"].get(name, ""):
            document[name] = field.read(text)
    if listed := _listed(kind):
        # The options that switches add have labels, but are not listed.
        document[listed] = [option for option, _ in rows if option not in (OTHER, MISSING)]
    if "titles" in _names(kind) and (titles := {option: label for option, label in rows if label}):
        document["titles"] = titles
    return document


def _mistakes(survey: Mapping[str, Any], part: str, kind: str | None) -> dict[str, str]:
    """Return what is wrong with a survey, at the field that it is about."""
    try:
        Survey.from_json(survey)
    except SurveyError as error:
        return {part + _field(str(error), _names(kind) if kind else ("name", "title", "text"))
                : str(error)}  # fmt: skip
    return {}


def _field(sentence: str, names: Sequence[str]) -> str:
    """Return the field that a sentence is about: the first that it names outside of quotes."""
    if missing := re.search(r"has no field '(\w+)'", sentence):
        return missing[1] if missing[1] in names else "name"
    if re.search("title of option|same title", sentence):
        return "options"
    said = re.sub(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", "", sentence.replace("question's", ""))
    for word in re.findall(r"[a-z_]+", said):
        name = _WORDS.get(word, word)
        if name in names:
            return name if name in FIELDS else "options"
    return "name"
