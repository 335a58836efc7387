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
    Fragments,
    Memory,
    Parties,
    Promise,
    PromiseKind,
    View,
)
from shoal.support.checks import canonical_decimal, check_decimal
from shoal.support.files import canonical_json
from tests.strategies import bounded, json_values, mutated_bytes, mutated_json, plans

STORED = json.loads((Path(__file__).parents[1] / "data" / "plans.json").read_text("utf-8"))
DOCUMENT = STORED[1]["plan"]
SURVEY = Survey("s", (Flags("f", ("a", "b")), Choice("c", ("x", "y", "z"))))
QUARTER = FlipProbability(1, 2)
LOCAL = Promise("local", "9")
PARTIES = Parties("https://relay.example", "https://analyzer.example")


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
    @bounded(100)
    def test_canonical_json_is_rfc_8785(self, plan: Plan):
        text = rfc8785.dumps(plan.to_json())
        assert canonical_json(plan.to_json()) == text
        assert plan.id == hashlib.sha256(text).hexdigest()

    @pytest.mark.slow
    @given(plans())
    @bounded(100)
    def test_round_trip(self, plan: Plan):
        again = Plan.from_json(json.loads(json.dumps(plan.to_json())))
        assert again == plan
        assert again.id == plan.id

    @given(plans())
    @bounded(20)
    def test_round_trip_through_a_file(self, tmp_path: Path, plan: Plan):
        plan.write(tmp_path / "plan.json")
        assert Plan.read(tmp_path / "plan.json") == plan
        assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]

    @given(plans())
    @bounded(50)
    def test_there_are_no_floats(self, plan: Plan):
        def leaves(value: Any) -> list[Any]:
            if isinstance(value, dict):
                return [leaf for inner in value.values() for leaf in leaves(inner)]
            return (
                [leaf for inner in value for leaf in leaves(inner)]
                if type(value) is list
                else [value]
            )

        assert {type(leaf) for leaf in leaves(plan.to_json())} <= {int, str, bool, type(None)}


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

    @pytest.mark.parametrize(
        ("number", "canonical"),
        [(1e-6, "1e-6"), (1.0, "1"), (0.5, "0.5"), (1e22, "1e22"), (2.5e-7, "2.5e-7"), (3, "3")],
    )
    def test_numbers_of_python(self, number: float, canonical: str):
        assert check_decimal("x", number, above=0) == canonical
        assert check_decimal("x", Decimal(str(number)), above=0) == canonical

    @given(st.decimals(allow_nan=False, allow_infinity=False))
    @bounded(300)
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

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("promise.delta", "0.000001"),
            ("promise.delta", "1e-06"),
            ("promise.delta", "1E-6"),
            ("promise.epsilon", "0.69310"),
            ("promise.epsilon", "6931e-4"),
            ("honest_fraction", "0.90"),
            ("honest_fraction", "9e-1"),
        ],
    )
    def test_a_document_with_another_spelling_is_refused(self, field: str, value: str):
        document = copy.deepcopy(DOCUMENT)
        place = document["promise"] if field.startswith("promise") else document
        place[field.rpartition(".")[2]] = value
        with pytest.raises(PlanError, match=f"not in its canonical form: {field} must be"):
            Plan.from_json(document)

    def test_every_value_is_in_its_one_form(self):
        """What a survey leaves to its defaults is left out, and nothing is filled in."""
        for change in (
            {"missing": None},
            {"column": None},
            {"column": "age"},
            {"edges": ["18.0", "65.5"]},
        ):
            document = copy.deepcopy(DOCUMENT)
            document["survey"]["questions"][2].update(change)
            with pytest.raises(PlanError, match="canonical form: survey"):
                Plan.from_json(document)

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
            "messages": 1,
            "relay": "https://relay.example",
        }
        assert Plan.from_json(plan.to_json()) == plan

    @pytest.mark.parametrize(
        "origin",
        [
            "http://relay.example",
            "https://relay.example/",
            "https://relay.example/path",
            "https://Relay.example",
            "https://relay.example:443",
            "https://relay.example:0",
            "https://relay.example:65536",
            "https://user@relay.example",
            "https://relay.example?x",
            "https://",
            "https://relay..example",
            "https://rel\u00e4y.example",
            "https://relay.example\n",
            "relay.example",
            "",
            None,
            5,
        ],
    )
    def test_only_https_origins(self, origin: Any):
        with pytest.raises(PlanError, match="analyzer must be an origin"):
            Parties("https://relay.example:8443", origin)
        parties = {"relay": origin, "analyzer": "https://a.b", "messages": 1}
        with pytest.raises(PlanError, match="relay must be an origin"):
            Plan.from_json(DOCUMENT | {"parties": parties})

    @pytest.mark.parametrize(
        "origin", ["http://127.0.0.1:8402", "http://localhost:1", "http://[::1]:65535"]
    )
    def test_this_machine_needs_no_https(self, origin: str):
        assert Parties("https://relay.example", origin).analyzer == origin

    @pytest.mark.parametrize(
        "origin", ["http://127.0.0.1:80", "http://127.0.0.2:8402", "http://::1"]
    )
    def test_others_do(self, origin: str):
        with pytest.raises(PlanError, match="must be an origin"):
            Parties("https://relay.example", origin)

    def test_parties_on_one_host(self):
        assert Parties("https://a.example", "https://a.example:8443").share_a_host
        assert Parties("http://[::1]:1", "http://[::1]:2").share_a_host
        assert not PARTIES.share_a_host

    def test_a_relay_waits_for_a_crowd(self):
        with pytest.raises(PlanError, match="needs a crowd_size"):
            Plan(SURVEY, QUARTER, LOCAL, parties=PARTIES)

    @pytest.mark.parametrize("messages", [0, 2**16 + 1, True, "1", 1.0])
    def test_messages_are_a_number(self, messages: Any):
        with pytest.raises(PlanError, match="messages"):
            replace(PARTIES, messages=messages)

    def test_messages_fit_the_view(self):
        several = replace(PARTIES, messages=2)
        with pytest.raises(PlanError, match="one message"):
            Plan(SURVEY, QUARTER, LOCAL, 1000, parties=several)
        proven = Promise("proven", "1", delta="1e-6")
        assert Plan(SURVEY, QUARTER, proven, 1000, view="counts", parties=several)
        too_many = replace(PARTIES, messages=SURVEY.bits + 1)
        with pytest.raises(PlanError, match="at most"):
            Plan(SURVEY, QUARTER, proven, 1000, view="counts", parties=too_many)

    def test_fragments_have_one_cohort(self):
        proven = Promise("proven", "1", delta="1e-6")
        for cohorts in (None, 1):
            Plan(SURVEY, QUARTER, proven, 1000, view="counts", parties=PARTIES, cohorts=cohorts)
        with pytest.raises(PlanError, match="one cohort"):
            Plan(SURVEY, QUARTER, proven, 1000, view="counts", parties=PARTIES, cohorts=2)

    def test_two_parties_are_two(self):
        with pytest.raises(PlanError, match="two parties"):
            Parties("https://a.example", "https://a.example")

    @pytest.mark.parametrize(
        "parties", [{}, [], "x", {"relay": "https://a.example", "analyzer": "https://b.c"}]
    )
    def test_what_is_none(self, parties: object):
        with pytest.raises(PlanError, match="parties"):
            Plan.from_json(DOCUMENT | {"parties": parties})


class TestNoFloats:
    """Python and JavaScript write floats differently; a plan's id must not depend on them."""

    @pytest.mark.parametrize("value", [0.7, 1, 1e-7, "1_0", " 0.7", "0.7 ", "٣"])
    def test_epsilon_is_plain_decimal_text(self, value: object):
        document = copy.deepcopy(DOCUMENT)
        document["promise"]["epsilon"] = value
        with pytest.raises(PlanError, match="epsilon"):
            Plan.from_json(document)

    @pytest.mark.parametrize("value", [1e-6, 0.005])
    def test_delta_is_text(self, value: object):
        document = copy.deepcopy(DOCUMENT)
        document["promise"]["delta"] = value
        with pytest.raises(PlanError, match="delta"):
            Plan.from_json(document)

    @pytest.mark.parametrize("value", [0.5, 1, 1.0, " 0.5"])
    def test_honest_fraction_is_text(self, value: object):
        with pytest.raises(PlanError, match="honest_fraction"):
            Plan.from_json(DOCUMENT | {"honest_fraction": value})

    def test_numpy_integers_become_integers(self):
        plan = Plan(SURVEY, QUARTER, LOCAL, crowd_size=np.int64(5))  # type: ignore[arg-type]
        assert plan.id == Plan(SURVEY, QUARTER, LOCAL, crowd_size=5).id


class TestChanged:
    @pytest.mark.parametrize("field", ["crowd_size", "max_reports_per_person", "window"])
    def test_a_changed_plan_is_refused(self, field: str):
        document = DOCUMENT | {"id": STORED[1]["id"], field: 7}
        with pytest.raises(PlanError, match="changed after it was made"):
            Plan.from_json(document)

    @pytest.mark.parametrize("wrong", ["", "0" * 64, None, 5, [], STORED[0]["id"]])
    def test_a_wrong_id_is_refused(self, wrong: object):
        with pytest.raises(PlanError, match="changed after it was made"):
            Plan.from_json(DOCUMENT | {"id": wrong})

    def test_every_field_changes_the_id(self):
        base = Plan(SURVEY, QUARTER, LOCAL, 1000)
        others = [
            Plan(SURVEY, FlipProbability(3, 3), LOCAL, 1000),
            Plan(SURVEY, QUARTER, Promise("local", "9.1"), 1000),
            Plan(SURVEY, QUARTER, LOCAL, 1001),
            Plan(SURVEY, QUARTER, LOCAL, 1000, max_reports_per_person=2),
            Plan(SURVEY, QUARTER, LOCAL, 1000, cohorts=2),
            Plan(SURVEY, QUARTER, LOCAL, 1000, window=60),
            Plan(SURVEY, QUARTER, LOCAL, 1000, joint=((("f", "a"), ("f", "b")),)),
            Plan(SURVEY, QUARTER, LOCAL, 1000, honest_fraction="0.5"),
            Plan(SURVEY, QUARTER, LOCAL, 1000, parties=PARTIES),
            Plan(Survey("t", SURVEY.questions), QUARTER, LOCAL, 1000),
        ]
        assert len({plan.id for plan in [base, *others]}) == 11

    def test_a_plan_is_immutable(self):
        with pytest.raises(AttributeError):
            Plan(SURVEY, QUARTER, LOCAL).crowd_size = 5  # type: ignore[misc]


class TestFields:
    @pytest.mark.parametrize("field", sorted(DOCUMENT))
    def test_missing(self, field: str):
        document = {key: value for key, value in DOCUMENT.items() if key != field}
        with pytest.raises(PlanError, match=f"has no field '{field}'"):
            Plan.from_json(document)

    def test_unknown(self):
        with pytest.raises(PlanError, match="has an unknown field 'owner'"):
            Plan.from_json(DOCUMENT | {"owner": "me"})

    def test_the_cohorts_of_its_survey(self):
        """A document is what its plan would write: nothing is filled in."""
        documents = [one["plan"] for one in STORED]
        stored = next(one for one in documents if Plan.from_json(one).survey.cohorts)
        with pytest.raises(PlanError, match="canonical form: cohorts must be 60, got None"):
            Plan.from_json(stored | {"cohorts": None})

    @pytest.mark.parametrize("version", [0, 1, 3, "2", None, True, 2.0])
    def test_another_version(self, version: object):
        with pytest.raises(PlanError, match="version"):
            Plan.from_json(DOCUMENT | {"version": version})

    def test_a_plan_of_version_1(self):
        """Its fields are others, but what is said is not about them."""
        later = {"fragments", "parties", "view"}
        old = {name: value for name, value in DOCUMENT.items() if name not in later}
        with pytest.raises(PlanError, match="got version 1; make the plan anew from its survey"):
            Plan.from_json(old | {"version": 1})

    @pytest.mark.parametrize(
        "q",
        [
            [0, 1],
            [1, 1, 1],
            [2, 2],
            [3, 2],
            "1/4",
            0.25,
            [0.25, 1],
            [1, 2.0],
            None,
            [1],
            [True, 1],
            [1, 60],
            [[1], [2]],
            {"n": 1},
        ],
    )
    def test_q(self, q: object):
        with pytest.raises(PlanError):
            Plan.from_json(DOCUMENT | {"q": q})

    @pytest.mark.parametrize("crowd", [0, -1, 1.5, "1000", True, 10**13, []])
    def test_crowd_size(self, crowd: object):
        with pytest.raises(PlanError, match="crowd_size"):
            Plan.from_json(DOCUMENT | {"crowd_size": crowd})

    def test_an_absurd_crowd_size(self):
        with pytest.raises(PlanError, match="crowd_size"):
            Plan.from_json(DOCUMENT | {"crowd_size": 10**5000})

    def test_a_crowd_of_one_is_a_crowd(self):
        assert Plan(SURVEY, QUARTER, LOCAL, crowd_size=1).crowd_size == 1

    def test_a_promise_about_a_crowd_needs_one(self):
        with pytest.raises(PlanError, match="needs a crowd_size"):
            Plan(SURVEY, QUARTER, Promise("proven", "1", delta="1e-6"))

    @pytest.mark.parametrize(
        "promise",
        [
            ("proven", "1"),
            ("proven", "1", "1"),
            ("proven", "1", "1e-6", "0.1"),
            ("sufficient", "1"),
            ("sufficient", "1", "1e-6", "0.1"),
            ("local", "1", "1e-6"),
            ("local", "0"),
            ("local", "-1"),
            ("local", "nan"),
            ("local", "inf"),
            ("local", ""),
            ("strong", "1"),
            (["local"], "1"),
            ("local", None),
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

    def test_memory_that_needs_too_many_digits(self):
        document = DOCUMENT | {"memory": {"q1": [1, 50], "q2": [1, 50]}}
        with pytest.raises(PlanError, match="digits"):
            Plan.from_json(document)

    @pytest.mark.parametrize(
        "joint",
        [
            [[["f", "a"]]],
            [[["f", "a"], ["f", "a"]]],
            [[["f", "a"], ["f", "q"]]],
            [[["f", "a"], ["g", "a"]]],
            [["f", "a"]],
            [[["f", "a", "b"], ["f", "b"]]],
            {"f": "a"},
            [[["f", 1], ["f", "b"]]],
            None,
        ],
    )
    def test_joint_groups(self, joint: object):
        document = Plan(SURVEY, QUARTER, LOCAL).to_json() | {"joint": joint}
        with pytest.raises(PlanError):
            Plan.from_json(document)

    def test_a_plan_for_counts_has_no_joint_groups(self):
        plan = Plan(SURVEY, QUARTER, Promise("proven", "9", delta="1e-6"), 10, view="counts")
        assert plan.fragments == Fragments(5, 4)
        with pytest.raises(PlanError, match="cross the questions in the survey instead"):
            replace(plan, joint=((("f", "a"), ("f", "b")),))

    def test_local_epsilon(self):
        assert math.isclose(Plan(SURVEY, QUARTER, LOCAL).local_epsilon, 4 * math.log(3))
        assert Plan(SURVEY, FlipProbability(1, 1), LOCAL).local_epsilon == 0

    def test_bad_survey(self):
        with pytest.raises(PlanError, match="survey is not valid"):
            Plan.from_json(DOCUMENT | {"survey": {"name": "s", "questions": []}})


class TestFiles:
    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"null",
            b"[]",
            b"{",
            b"\xff",
            b'{"a": NaN}',
            b'{"version": 1, "version": 1}',
            b"[" * 100_000,
            b"1" * 5000,
            b'"\\ud800"',
        ],
    )
    def test_what_is_no_plan(self, content: bytes, tmp_path: Path):
        (tmp_path / "plan.json").write_bytes(content)
        with pytest.raises(PlanError):
            Plan.read(tmp_path / "plan.json")

    def test_a_key_that_stands_twice(self, tmp_path: Path):
        text = json.dumps(DOCUMENT)
        (tmp_path / "plan.json").write_text(text[:-1] + ', "crowd_size": 5}', "utf-8")
        with pytest.raises(PlanError, match="twice"):
            Plan.read(tmp_path / "plan.json")

    def test_a_file_that_is_not_there(self, tmp_path: Path):
        with pytest.raises(PlanError, match="cannot read plan"):
            Plan.read(tmp_path / "plan.json")

    def test_a_place_that_cannot_be_written(self, tmp_path: Path):
        with pytest.raises(InputError, match="cannot write"):
            Plan(SURVEY, QUARTER, LOCAL).write(tmp_path / "none" / "plan.json")


class TestFuzz:
    @given(json_values)
    @bounded(100)
    def test_any_json(self, document: object):
        with pytest.raises(ShoalError):
            Plan.from_json(document)

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
    @bounded(200)
    def test_no_change_goes_unnoticed(self, document: Any):
        try:
            plan = Plan.from_json(document)
        except ShoalError:
            return
        assert "id" not in document or plan.id == STORED[1]["id"]

    @given(mutated_bytes(json.dumps(DOCUMENT).encode()))
    @bounded(150)
    def test_broken_files(self, tmp_path: Path, content: bytes):
        (tmp_path / "plan.json").write_bytes(content)
        try:
            Plan.read(tmp_path / "plan.json")
        except ShoalError:
            return
