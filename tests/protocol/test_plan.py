"""Plans: one canonical form, one id, nothing changed unnoticed."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import typing
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from shoal import Choice, Flags, Plan, ShoalError, Survey
from shoal.device.outbox.queue import SETTLED, State
from shoal.errors import InputError, PlanError
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import (
    PROMISES,
    VIEWS,
    Aggregators,
    Fragments,
    Memory,
    Parties,
    Promise,
    PromiseKind,
    View,
)
from shoal.support.checks import canonical_decimal, check_decimal
from shoal.support.files import canonical_json
from tests.strategies import bounded, mutated_bytes, mutated_json, plans

STORED = json.loads((Path(__file__).parents[1] / "data" / "plans.json").read_text("utf-8"))
DOCUMENT = STORED[1]["plan"]
SURVEY = Survey("s", (Flags("f", ("a", "b")), Choice("c", ("x", "y", "z"))))
QUARTER = FlipProbability(1, 2)
LOCAL = Promise("local", "9")
PARTIES = Parties("https://relay.example", "https://analyzer.example")
SHARED = Aggregators("https://leader.example", "https://helper.example", 2)


def test_the_names_that_are_checked_are_those_of_the_types() -> None:
    for alias, names in ((View, VIEWS), (PromiseKind, PROMISES), (State, ("waiting", *SETTLED))):
        assert typing.get_args(eval(str(alias), vars(typing))) == names


class TestCanonical:
    @pytest.mark.parametrize("stored", STORED, ids=lambda stored: stored["plan"]["survey"]["name"])
    def test_ids_never_change(self, stored: dict[str, Any]):
        """The stored ids were made by rfc8785 and hashlib, see `data/generate_plans.py`."""
        made = Plan.from_json(stored["plan"])
        assert made.id == stored["id"]
        assert made.to_json() == stored["plan"]
        assert Plan.from_json(stored["plan"] | {"id": stored["id"]}) == made

    def test_the_stored_file_is_what_its_script_makes(self):
        for stored in STORED:
            assert stored["id"] == hashlib.sha256(rfc8785.dumps(stored["plan"])).hexdigest()

    @given(plans())
    @bounded(50)
    def test_canonical_json_is_rfc_8785_without_floats(self, plan: Plan):
        document = plan.to_json()
        text = rfc8785.dumps(document)
        assert canonical_json(document) == text
        assert plan.id == hashlib.sha256(text).hexdigest()
        json.loads(text, parse_float=pytest.fail)
        assert Plan.from_json(json.loads(text)) == plan

    def test_round_trip_through_a_file(self, tmp_path: Path):
        for stored in STORED:
            plan = Plan.from_json(stored["plan"])
            plan.write(tmp_path / "plan.json")
            assert Plan.read(tmp_path / "plan.json") == plan
        assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


class TestDecimals:
    """One number has one spelling, so that one plan has one id."""

    @pytest.mark.parametrize(
        ("written", "canonical"),
        [
            ("1e-6 0.000001 1E-06 1.0e-6 10e-7 0.0000010", "1e-6"),
            ("1 1.0 1.00 01 10e-1 1e0 1e+0", "1"),
            ("0.0001 1e-4 1.0E-04", "0.0001"),
            ("0.00001 1e-5", "1e-5"),
            ("0.00025e-3 2.50e-7", "2.5e-7"),
            ("1e3 1000 1000.0", "1000"),
            ("9999999999999999 9.999999999999999e15", "9999999999999999"),
            ("10000000000000000 1e16 1e+16", "1e16"),
            ("12300000000000000000 1.23e19", "1.23e19"),
            ("0.6931 6.931e-1 00.6931", "0.6931"),
            (f"1{'2' * 40}.5", f"1.{'2' * 40}5e40"),
        ],
    )
    def test_every_spelling_is_one(self, written: str, canonical: str):
        for text in written.split():
            assert check_decimal("x", text, above=0) == canonical
            assert Promise("local", text).epsilon == canonical

    def test_numbers_of_python(self):
        canonical = {1e-6: "1e-6", 1.0: "1", 1e22: "1e22", 2.5e-7: "2.5e-7", 3: "3"}
        for number, text in canonical.items():
            assert check_decimal("x", number, above=0) == text
            assert check_decimal("x", Decimal(str(number)), above=0) == text

    @given(st.decimals(allow_nan=False, allow_infinity=False))
    @bounded(100)
    def test_the_number_stays_and_its_spelling_is_kept(self, number: Decimal):
        text = canonical_decimal(number)
        again = Decimal(text)
        assert again == number
        assert canonical_decimal(again) == text
        assert "+" not in text
        assert "E" not in text
        plain = number == 0 or Decimal("1e-4") <= abs(number) < Decimal("1e16")
        assert ("e" not in text) == plain

    def test_one_plan_however_its_numbers_are_written(self):
        ids = {
            Plan(SURVEY, QUARTER, Promise("proven", epsilon, delta), 1000, honest_fraction=part).id
            for epsilon in ("1", "1.0", "10e-1")
            for delta in ("1e-6", "0.000001", "1e-06", repr(1e-6))
            for part in ("0.9", "0.90", "9e-1")
        }
        assert len(ids) == 1

    @pytest.mark.parametrize("text", ["1e9999", f"0.{'1' * 62}", "9" * 60])
    def test_what_is_kept_can_be_read_again(self, text: str):
        assert Promise("local", Promise("local", text).epsilon).epsilon

    @pytest.mark.parametrize("text", ["1234e9999", f"1.{'1' * 59}e-4", "1e99999", "+1", ".5", "5."])
    def test_what_could_not_be_is_refused(self, text: str):
        with pytest.raises(PlanError, match="epsilon"):
            Promise("local", text)


class TestParties:
    def test_a_plan_names_them(self):
        plan = Plan(SURVEY, QUARTER, LOCAL, 1000, parties=PARTIES)
        assert plan.to_json()["parties"] == {
            "analyzer": "https://analyzer.example",
            "one_operator": False,
            "relay": "https://relay.example",
        }
        assert Plan.from_json(plan.to_json()) == plan

    @pytest.mark.parametrize(
        "origin",
        [
            *("http://relay.example", "https://relay.example/", "https://relay.example/path"),
            *("https://Relay.example", "https://relay.example:443", "https://relay.example:0"),
            *("https://relay.example:65536", "https://user@relay.example"),
            *("https://relay.example?x", "https://", "https://relay..example"),
            *("https://rel\u00e4y.example", "https://relay.example\n", "relay.example", "", None),
            *(5,),
        ],
    )
    def test_only_https_origins(self, origin: Any):
        with pytest.raises(PlanError, match="analyzer must be an origin"):
            Parties("https://relay.example:8443", origin)
        parties = {"relay": origin, "analyzer": "https://a.b"}
        parties |= {"one_operator": False}
        with pytest.raises(PlanError, match="relay must be an origin"):
            Plan.from_json(DOCUMENT | {"parties": parties})

    def test_only_this_machine_needs_no_https(self):
        for origin in ("http://127.0.0.1:8402", "http://localhost:1", "http://[::1]:65535"):
            assert Parties("https://relay.example", origin).analyzer == origin
        for origin in ("http://127.0.0.1:80", "http://127.0.0.2:8402", "http://::1"):
            with pytest.raises(PlanError, match="must be an origin"):
                Parties("https://relay.example", origin)

    def test_parties_on_one_host(self):
        assert Parties("https://a.example", "https://a.example:8443").one_operator
        assert Parties("http://[::1]:1", "http://[::1]:2").one_operator
        assert not PARTIES.one_operator

    @pytest.mark.parametrize("weight", [0, 2**16 + 1, True, "1", 1.0])
    def test_the_weight_is_a_number(self, weight: Any):
        with pytest.raises(PlanError, match="max_weight"):
            Aggregators("https://leader.example", "https://helper.example", weight)

    @pytest.mark.parametrize(
        ("change", "why"),
        [
            (
                {"crowd_size": None, "promise": LOCAL, "view": "reports", "parties": PARTIES},
                "needs a crowd_size",
            ),
            ({"view": "reports"}, "need view counts"),
            ({"parties": PARTIES}, "view must be reports with a relay and an analyzer"),
            ({"parties": replace(SHARED, max_weight=SURVEY.bits + 1)}, "at most"),
            ({"window": None}, "needs a window"),
            ({"cohorts": 2}, "one cohort"),
            ({"joint": ((("f", "a"), ("f", "b")),)}, "cross the questions in the survey instead"),
            ({"view": "bits"}, "view must be one of"),
            ({"promise": LOCAL}, "a plan with view counts is proven"),
        ],
    )
    def test_what_does_not_fit_the_view(self, change: dict[str, Any], why: str):
        proven = Promise("proven", "9", delta="1e-6")
        plan = Plan(SURVEY, QUARTER, proven, 1000, view="counts", parties=SHARED, window=604_800)
        assert plan.fragments == Fragments(5, 4)
        assert replace(plan, cohorts=1)
        with pytest.raises(PlanError, match=why):
            replace(plan, **change)

    def test_two_parties_are_two(self):
        with pytest.raises(PlanError, match="two parties"):
            Parties("https://a.example", "https://a.example")


CANONICAL = "not in its canonical form"
CROWDS: tuple[Any, ...] = (0, -1, 1.5, "1000", True, 10**13, [])
PARTS: tuple[Any, ...] = ({}, [], "x", {"relay": "https://a.example"})
JOINT: tuple[Any, ...] = ([["f", "a"]], {"f": "a"}, None, [[["f", 1], ["f"]]])
Q: tuple[Any, ...] = (
    *([0, 1], [1, 1, 1], [2, 2], [3, 2], "1/4", 0.25, [0.25, 1]),
    *([1, 2.0], None, [1], [True, 1], [1, 60], [[1], [2]], {"n": 1}),
)
REFUSED: list[tuple[str, Any, str]] = [
    # Python and JavaScript write floats differently; a plan's id must not depend on them.
    *(("promise.epsilon", one, "epsilon") for one in (0.7, 1, 1e-7, "1_0", " 0.7", "0.7 ", "٣")),
    *(("promise.delta", one, "delta") for one in (1e-6, 0.005)),
    *(("honest_fraction", one, "honest_fraction") for one in (0.5, 1, 1.0, " 0.5")),
    # One number has one spelling, and what is left to its default is left out.
    *(("promise.delta", one, CANONICAL) for one in ("0.000001", "1e-06", "1E-6")),
    *(("promise.epsilon", one, CANONICAL) for one in ("0.69310", "6931e-4")),
    *(("honest_fraction", one, CANONICAL) for one in ("0.90", "9e-1")),
    *((f"survey.questions.2.{name}", None, CANONICAL) for name in ("missing", "column")),
    ("survey.questions.2.column", "age", "canonical form: survey"),
    ("survey.questions.2.edges", ["18.0", "65.5"], "canonical form: survey"),
    ("survey.questions", [], "survey is not valid"),
    *(("q", one, "q") for one in Q),
    *(("crowd_size", one, "crowd_size") for one in CROWDS),
    ("crowd_size", 10**5000, "crowd_size"),
    *(("version", one, "version") for one in (0, 1, 3, "2", None, True, 2.0)),
    ("memory", {"q1": [1, 50], "q2": [1, 50]}, "digits"),
    *(("parties", one, "parties") for one in PARTS),
    ("owner", "me", "has an unknown field 'owner'"),
    *(("joint", one, "joint") for one in JOINT),
    *(("joint", [[["languages", "en"]] * n], "joint group holds 2 to 16") for n in (1, 2)),
    ("joint", [[["languages", "en"], ["languages", "q"]]], "has no option 'q'"),
    ("joint", [[["languages", "en"], ["g", "a"]]], "has no question 'g'"),
]


@pytest.mark.parametrize(("place", "value", "why"), REFUSED, ids=lambda _: "")
def test_one_changed_value_is_refused(place: str, value: Any, why: str):
    document = copy.deepcopy(DOCUMENT)
    *outer, name = (int(part) if part.isdigit() else part for part in place.split("."))
    inner: Any = document
    for part in outer:
        inner = inner[part]
    inner[name] = value
    with pytest.raises(PlanError, match=why):
        Plan.from_json(document)


def test_numpy_integers_become_integers():
    plan = Plan(SURVEY, QUARTER, LOCAL, crowd_size=np.int64(5))  # type: ignore[arg-type]
    assert plan.id == Plan(SURVEY, QUARTER, LOCAL, crowd_size=5).id


class TestChanged:
    def test_another_field_or_id_is_refused(self):
        fields = ("crowd_size", "max_reports_per_person", "window")
        changes: list[dict[str, object]] = [{"id": STORED[1]["id"], field: 7} for field in fields]
        wrong: list[object] = ["", "0" * 64, None, 5, [], STORED[0]["id"]]
        changes += [{"id": one} for one in wrong]
        for change in changes:
            with pytest.raises(PlanError, match="changed after it was made"):
                Plan.from_json(DOCUMENT | change)

    def test_every_field_changes_the_id(self):
        base = Plan(SURVEY, QUARTER, LOCAL, 1000)
        changes: list[dict[str, Any]] = [
            {"q": FlipProbability(3, 3)},
            {"promise": Promise("local", "9.1")},
            {"crowd_size": 1001},
            {"max_reports_per_person": 2},
            {"cohorts": 2},
            {"window": 60},
            {"joint": ((("f", "a"), ("f", "b")),)},
            {"honest_fraction": "0.5"},
            {"parties": PARTIES},
            {"survey": Survey("t", SURVEY.questions)},
        ]
        assert len({replace(base, **change).id for change in [{}, *changes]}) == 11

    def test_a_plan_is_immutable(self):
        with pytest.raises(AttributeError):
            Plan(SURVEY, QUARTER, LOCAL).crowd_size = 5  # type: ignore[misc]


class TestFields:
    def test_missing(self):
        for field in DOCUMENT:
            document = {key: value for key, value in DOCUMENT.items() if key != field}
            with pytest.raises(PlanError, match=f"has no field '{field}'"):
                Plan.from_json(document)

    def test_the_cohorts_of_its_survey(self):
        """A document is what its plan would write: nothing is filled in."""
        documents = [one["plan"] for one in STORED]
        stored = next(one for one in documents if Plan.from_json(one).survey.cohorts)
        with pytest.raises(PlanError, match="canonical form: cohorts must be 60, got None"):
            Plan.from_json(stored | {"cohorts": None})

    def test_a_plan_of_version_1(self):
        """Its fields are others, but what is said is not about them."""
        later = {"fragments", "parties", "view"}
        old = {name: value for name, value in DOCUMENT.items() if name not in later}
        with pytest.raises(PlanError, match="got version 1; make the plan anew from its survey"):
            Plan.from_json(old | {"version": 1})

    def test_a_crowd_of_one_is_a_crowd(self):
        assert Plan(SURVEY, QUARTER, LOCAL, crowd_size=1).crowd_size == 1

    def test_a_promise_about_a_crowd_needs_one(self):
        with pytest.raises(PlanError, match="needs a crowd_size"):
            Plan(SURVEY, QUARTER, Promise("proven", "1", delta="1e-6"))

    @pytest.mark.parametrize(
        "promise",
        [
            *(("proven", "1"), ("proven", "1", "1"), ("proven", "1", "1e-6", "0.1")),
            *(("sufficient", "1"), ("sufficient", "1", "1e-6", "0.1"), ("local", "1", "1e-6")),
            *(("local", one) for one in ("0", "-1", "nan", "inf", "", None)),
            *(("strong", "1"), (["local"], "1")),
        ],
    )
    def test_promises_that_are_none(self, promise: Any):
        with pytest.raises(PlanError):
            Promise(*promise)

    def test_memory_must_make_q(self):
        memory = Memory(FlipProbability(1, 3), FlipProbability(1, 2))
        assert memory.q.fraction == memory.q1.fraction * 3 / 4 + memory.q2.fraction * 7 / 8
        assert Plan(SURVEY, memory.q, LOCAL, memory=memory).memory == memory
        with pytest.raises(PlanError, match="memory's q1 and q2 give q"):
            Plan(SURVEY, QUARTER, LOCAL, memory=memory)

    def test_local_epsilon(self):
        assert math.isclose(Plan(SURVEY, QUARTER, LOCAL).local_epsilon, 4 * math.log(3))
        assert Plan(SURVEY, FlipProbability(1, 1), LOCAL).local_epsilon == 0


class TestFiles:
    @pytest.mark.parametrize(
        "content",
        [
            *(b"", b"null", b"[]", b"{", b"\xff", b'{"a": NaN}', b'{"version": 1, "version": 1}'),
            *(b"[" * 100_000, b"1" * 5000, b'"\\ud800"'),
        ],
    )
    def test_what_is_no_plan(self, content: bytes, tmp_path: Path):
        (tmp_path / "plan.json").write_bytes(content)
        with pytest.raises(PlanError):
            Plan.read(tmp_path / "plan.json")

    def test_places_that_cannot_be_read_or_written(self, tmp_path: Path):
        with pytest.raises(PlanError, match="cannot read plan"):
            Plan.read(tmp_path / "plan.json")
        with pytest.raises(InputError, match="cannot write"):
            Plan(SURVEY, QUARTER, LOCAL).write(tmp_path / "none" / "plan.json")


class TestFuzz:
    @pytest.mark.slow
    @given(st.sampled_from(STORED).flatmap(lambda stored: mutated_json(stored["plan"])))
    @bounded(400)
    def test_mutated_json(self, document: Any):
        try:
            plan = Plan.from_json(document)
        except ShoalError:
            return
        # What is accepted has a canonical form of its own, which rfc8785 writes the same way.
        assert plan.to_json() == document
        assert canonical_json(plan.to_json()) == rfc8785.dumps(document)

    @given(mutated_json(DOCUMENT | {"id": STORED[1]["id"]}))
    @bounded(100)
    def test_no_change_goes_unnoticed(self, document: Any):
        try:
            plan = Plan.from_json(document)
        except ShoalError:
            return
        assert "id" not in document or plan.id == STORED[1]["id"]

    @given(mutated_bytes(json.dumps(DOCUMENT).encode()))
    @bounded(80)
    def test_broken_files(self, tmp_path: Path, content: bytes):
        (tmp_path / "plan.json").write_bytes(content)
        try:
            Plan.read(tmp_path / "plan.json")
        except ShoalError:
            return
