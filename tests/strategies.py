"""Hypothesis strategies: surveys, flip probabilities, plans, answers, rows, and broken input."""

from __future__ import annotations

import unicodedata
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from shoal import Choice, Date, Flags, Number, Plan, Survey, YesNo
from shoal.device.arrays.randomize import pack
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Memory, Parties, Promise
from shoal.protocol.questions import MISSING, OTHER, folded
from shoal.protocol.survey import Arm, Funnel, Question
from shoal.protocol.wire import Rows


def bounded(examples: int) -> settings:
    """So many examples, half of them in the fast tests; the same ones every time."""
    return settings(
        max_examples=examples * settings().max_examples // 100,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )


def _is_label(text: str) -> bool:
    normal = unicodedata.normalize("NFC", text) == text
    return (
        normal
        and text.isprintable()
        and text == text.strip()
        and folded(text) not in (MISSING, OTHER)
    )


_LETTERS = st.characters(categories=["L", "N", "P", "S"], exclude_characters=";")
labels = st.text(_LETTERS, min_size=1, max_size=6).filter(_is_label)


def options(fewest: int, most: int = 6) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(labels, min_size=fewest, max_size=most, unique_by=folded).map(tuple)


@st.composite
def questions(draw: st.DrawFn, name: str | None = None) -> Question:
    called = draw(labels) if name is None else name
    kind = draw(st.sampled_from([*"flags choice number yes/no date arm funnel".split(), "at most"]))
    missing: Any = draw(st.sampled_from([None, "option"]))
    fold, other = draw(st.booleans()), draw(st.booleans())
    column = f"column of {called}" if draw(st.booleans()) else None
    if kind == "flags":
        return Flags(called, draw(options(1)), fold=fold, other=other, column=column)
    if kind == "choice":
        named = draw(options(1 if other else 2))
        return Choice(called, named, missing, other=other, fold=fold, column=column)
    if kind == "at most":
        named = draw(options(1))
        most = draw(st.integers(1, len(named)))
        return Flags(called, named, at_most=most, fold=fold, column=column)
    if kind == "yes/no":
        return YesNo(called, missing, column=column)
    if kind == "arm":
        arms = draw(options(2))
        weights = draw(st.sampled_from([(), range(1, len(arms) + 1)]))
        return Arm(called, arms, weights, missing, column=column)
    if kind == "funnel":
        return Funnel(called, draw(options(2)), missing, column=column)
    if kind == "date":
        by: Any = draw(st.sampled_from(["month", "weekday", "week"]))
        return Date(called, by, missing, column=column)
    edges = draw(
        st.lists(
            st.decimals(-1000, 1000, places=2).map(lambda number: number + 0),
            min_size=1,
            max_size=5,
            unique=True,
        )
    )
    if draw(st.booleans()):
        low = draw(st.integers(-100, 100))
        high, points = low + draw(st.sampled_from((1, 3, 10))), draw(st.integers(2, 9))
        return Number(called, (), missing, low=low, high=high, points=points, column=column)
    return Number(called, tuple(str(edge) for edge in sorted(edges)), missing, column=column)


@st.composite
def surveys(draw: st.DrawFn) -> Survey:
    names = draw(st.lists(labels, min_size=1, max_size=4, unique=True))
    asked = tuple(_titled(draw(questions(name))) if draw(st.booleans()) else draw(questions(name))
                  for name in names)  # fmt: skip
    survey = Survey(draw(labels), asked, title=draw(st.none() | labels))
    sides = [side for question in survey.asked for side in _sides(question, names)]
    if len(sides) >= 2 and draw(st.booleans()):
        most = 2 if max(question.bits for question in survey.asked) > 50 else 4  # weeks are many
        crossed = draw(st.lists(st.sampled_from(sides), min_size=2, max_size=most, unique=True))
        survey = survey.cross(*crossed, name=f"cross of {survey.name}")
    return survey


def _titled(question: Any) -> Any:
    """Give a question and its first option words that people read in place of their names."""
    name = question.option_names[0]
    words: dict[str, Any] = {"unit": "cm"} if isinstance(question, Number) else {}
    return question.replaced(
        title=f"{question.name}!", text="Which\none?", titles={name: f"{name} ☃"}, **words
    )


def _sides(question: Question, names: list[str]) -> list[str]:
    """Whatever of a question may be crossed, by its name in a cross."""
    if isinstance(question, Flags) and question.at_most:
        return []
    if not isinstance(question, Flags):
        return [question.name]
    flags = [f"{question.name}={option}" for option in question.options]
    return [] if "=" in question.name else [flag for flag in flags if flag not in names]


@st.composite
def flips(draw: st.DrawFn, most_digits: int = 16, blind: bool = True) -> FlipProbability:
    digits = draw(st.integers(1 if blind else 2, most_digits))
    half = draw(st.integers(0, max(0, 2 ** (digits - 2) - 1)))
    return FlipProbability(2 * half + 1, digits)


promises = st.one_of(
    st.builds(Promise, st.just("local"), st.just("1e9")),
    st.builds(Promise, st.just("three-sigma"), st.just("1")),
    st.builds(Promise, st.just("proven"), st.just("0.7"), st.sampled_from(["1e-6", "0.005"])),
    st.builds(Promise, st.just("sufficient"), st.just("1"), st.none(), st.just("0.01")),
)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    survey = draw(surveys())
    promise = draw(promises)
    crowds = st.integers(1, 10**12)
    memory = None
    q = draw(flips())
    if draw(st.booleans()):
        memory = Memory(draw(flips(10)), draw(flips(10)))
        q = memory.q
    joint: tuple[tuple[tuple[str, str], ...], ...] = ()
    if survey.bits >= 2 and draw(st.booleans()):
        group = draw(
            st.lists(st.sampled_from(survey.labels), min_size=2, max_size=4, unique=True).map(tuple)
        )
        joint = (group,)
    crowd_size = draw(st.none() | crowds if promise.kind == "local" else crowds)
    parties = st.sampled_from([None, Parties("https://a.example", "https://b.example")])
    return Plan(
        survey,
        q,
        promise,
        crowd_size=crowd_size,
        max_reports_per_person=draw(st.integers(1, 10**6)),
        cohorts=draw(st.none() | st.integers(1, 2**16)),
        window=draw(st.none() | st.integers(1, 10**9)),
        memory=memory,
        joint=joint,
        honest_fraction=draw(st.sampled_from([None, "0.5", "0.999"])),
        parties=None if crowd_size is None else draw(parties),
    )


@st.composite
def rows(draw: st.DrawFn, bits: int, most: int = 20) -> Rows:
    count = draw(st.integers(0, most))
    seed = draw(st.integers(0, 2**32 - 1))
    return pack(np.random.default_rng(seed).random((count, bits)) < 0.5)


@st.composite
def answers(draw: st.DrawFn, survey: Survey) -> dict[str, Any]:
    """One allowed answer to every question, as Python values."""
    given: dict[str, Any] = {}
    for question in survey.asked:
        if isinstance(question, Flags):
            most = question.max_set_bits
            chosen = st.lists(st.sampled_from(question.options), max_size=most, unique=True)
            given[question.name] = [draw(spellings(question, one)) for one in draw(chosen)]
            continue
        assert isinstance(question, (Choice, Date, Number, YesNo))
        if question.missing is not None and draw(st.sampled_from([True, False])):
            given[question.name] = None
        elif isinstance(question, Choice):
            listed = draw(spellings(question, draw(st.sampled_from(question.options))))
            given[question.name] = draw(st.just(listed) | labels) if question.other else listed
        elif isinstance(question, YesNo):
            given[question.name] = draw(st.sampled_from(["yes", "No", " TRUE", "false", "1", "0"]))
        elif isinstance(question, Date):
            given[question.name] = draw(st.dates()).isoformat()
        else:
            near = st.sampled_from([float(edge) for edge in question.edges or question.grid])
            # Between two points of a grid chance decides.
            away = st.floats(-2000, 2000) if question.edges else st.sampled_from([-2000.0, 2000.0])
            given[question.name] = draw(near | away)
    return given


def spellings(question: Question, option: str) -> st.SearchStrategy[str]:
    """How a person may write an option: whatever its case and blanks, where they are folded."""
    if not isinstance(question, (Flags, Choice)) or not question.fold:
        return st.just(option)
    ways = [option, option.upper(), option.upper().lower(), f"  {option} "]
    return st.sampled_from([way for way in ways if ";" not in way])


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)


@st.composite
def mutated_json(draw: st.DrawFn, document: Any) -> Any:
    """A valid document with one value, one key or one item changed, added or left out."""
    if isinstance(document, dict) and document:
        key = draw(st.sampled_from(sorted(document)))
        action = draw(st.sampled_from(["into", "into", "into", "replace", "drop", "add"]))
        if action == "into":
            return document | {key: draw(mutated_json(document[key]))}
        if action == "replace":
            return document | {key: draw(json_values)}
        if action == "drop":
            return {name: value for name, value in document.items() if name != key}
        return document | {draw(st.text(max_size=6)): draw(json_values)}
    if isinstance(document, list) and document:
        place = draw(st.integers(0, len(document) - 1))
        action = draw(st.sampled_from(["into", "into", "replace", "drop", "twice"]))
        if action == "into":
            changed = [draw(mutated_json(document[place]))]
        elif action == "replace":
            changed = [draw(json_values)]
        else:
            changed = [] if action == "drop" else [document[place]] * 2
        return document[:place] + changed + document[place + 1 :]
    if isinstance(document, int) and draw(st.booleans()):
        return document + draw(st.integers(-3, 3))
    if isinstance(document, str) and draw(st.booleans()):
        return document + draw(st.text(max_size=3))
    return draw(json_values)


@st.composite
def mutated_bytes(draw: st.DrawFn, content: bytes) -> bytes:
    """Valid bytes with a few of them changed, cut out or added."""
    broken = bytearray(content)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, max(0, len(broken) - 1)))
        action = draw(st.sampled_from(["change", "cut", "insert", "remove", "append"]))
        if action == "change" and broken:
            broken[place] = draw(st.integers(0, 255))
        elif action == "cut":
            del broken[place:]
        elif action == "insert":
            broken[place:place] = draw(st.binary(min_size=1, max_size=4))
        elif action == "remove":
            del broken[place : place + draw(st.integers(1, 8))]
        else:
            broken += draw(st.binary(min_size=1, max_size=40))
    return bytes(broken)
