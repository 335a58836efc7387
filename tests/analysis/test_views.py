"""The view counts: nothing that links the bits of one report enters or leaves a tally."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal import (
    Choice,
    Flags,
    Plan,
    PrivacyRefusal,
    Survey,
    Tally,
    Text,
    YesNo,
    estimate,
    publish,
    tally,
)
from shoal.analysis.association import associate
from shoal.analysis.count_table import CountTable
from shoal.analysis.joint import suggest_cross
from shoal.analysis.screening import CLEAN, COUNTS_ONLY, screen
from shoal.analysis.tally import Tallying
from shoal.device.arrays.randomize import Original, pack
from shoal.device.arrays.simulation_bits import SimulationBits
from shoal.device.randomize import flip
from shoal.errors import TallyError
from shoal.planning.certificate import certify
from shoal.planning.threats import observers
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Promise, View
from shoal.protocol.survey import Question
from shoal.protocol.wire import Synthetic
from shoal.reports.protection import release_note, what_holds

EPSILON = Promise("proven", "2000", delta="1e-6")
"""More than the local epsilon of every plan here, so that it holds in either view."""

FLAGS = Flags("has", ("car", "cat", "cow", "owl"))
AGE = Choice("age", ("young", "old", "ancient"))
BRAND = Choice("brand", ("a", "b"))


def plan_of(
    *questions: Question, view: View = "counts", q: object = "0.01", size: int = 100
) -> Plan:
    survey = Survey("s", questions)
    return Plan(survey, FlipProbability.at_least(q), EPSILON, crowd_size=size, view=view)


def crowd_of(plan: Plan, people: int = 200, seed: int = 1) -> Synthetic:
    generator = np.random.default_rng(seed)
    cohorts = None
    if plan.cohorts is not None:
        cohorts = generator.integers(plan.cohorts, size=people).astype(np.uint16)
    return Synthetic(pack(generator.random((people, plan.bits)) < 0.4), plan.bits, cohorts=cohorts)


PLANS = {
    "flags": plan_of(FLAGS),
    "many flags": plan_of(Flags("f", tuple(map(str, range(70))))),
    "questions": plan_of(AGE, BRAND, FLAGS),
    "text": plan_of(Text("t", bits=16, hashes=1, cohorts=4)),
}


@pytest.fixture(params=PLANS)
def plan(request: pytest.FixtureRequest) -> Plan:
    return PLANS[request.param]


class TestCounting:
    def test_only_single_bits_are_counted(self, plan: Plan):
        """The same counts of bits as under view reports, and no table beside them."""
        reports = crowd_of(plan)
        counts = tally(plan, reports)
        other = replace(plan, view="reports")
        whole = tally(other, reports).to_json()
        links: dict[str, Any] = {"by_set_bits": None, "by_vector": None, "joint": []}
        assert counts.to_json() == whole | links | {"plan": plan.id}
        assert counts.view == "counts"
        assert tally(other, reports).view == "reports"

    def test_the_array_that_is_stored_has_room_for_nothing_else(self, plan: Plan):
        """What a collector writes to its disk: reports, and counts by bit or by cohort and bit."""
        table = CountTable(plan, [], vectors=False)
        assert table.numbers.size == 1 + (plan.cohorts or 0) + plan.bits * (plan.cohorts or 1)
        assert Tallying(plan).table.numbers.size == table.numbers.size

    def test_rows_of_weight_0(self, plan: Plan):
        reports = crowd_of(plan)
        tallying = Tallying(plan)
        weights = (np.arange(len(reports)) % 2).astype(np.int64)
        tallying.add(reports.rows, cohorts=reports.cohorts, weights=weights)
        kept = None if reports.cohorts is None else reports.cohorts[1::2]
        assert tallying.result() == tally(
            plan, Synthetic(reports.rows[1::2], plan.bits, cohorts=kept)
        )

    def test_tallies_add(self, plan: Plan):
        parts = [crowd_of(plan, seed=seed) for seed in (1, 2)]
        added = tally(plan, parts[0]) + tally(plan, parts[1])
        assert added.view == "counts"
        assert added.named("a").of_different_people().view == "counts"
        assert added.by_bit.tolist() == tally(plan, parts).by_bit.tolist()

    def test_what_links_bits_is_refused(self):
        plan = PLANS["questions"]
        for wish in ({"vectors": True}, {"joint": [(0, 3)]}):
            with pytest.raises(PrivacyRefusal, match="view is counts"):
                Tallying(plan, **wish)
        with pytest.raises(PrivacyRefusal, match='--cross "age;brand"'):
            Tallying(plan, joint=[(0, 3)])
        assert Tallying(plan, vectors=False).result().view == "counts"

    def test_views_do_not_add(self):
        plan = PLANS["flags"]
        counts = tally(plan, crowd_of(plan))
        forged = replace(counts, by_set_bits=np.array([200, 0, 0, 0, 0]))
        with pytest.raises(TallyError, match="set bits"):
            counts + forged

    @pytest.mark.parametrize("link", [{"by_vector": {}}, {"joint": {(0, 1): np.zeros(4, int)}}])
    def test_a_tally_without_set_bits_takes_no_links(self, link: dict[str, Any]):
        counts = tally(PLANS["flags"], crowd_of(PLANS["flags"]))
        with pytest.raises(TallyError, match="no vectors and no joint counts"):
            replace(counts, **link)


class TestFiles:
    def test_round_trip(self, plan: Plan, tmp_path: Path):
        counts = tally(plan, crowd_of(plan))
        counts.write(tmp_path / "t.json")
        assert Tally.read(tmp_path / "t.json", plan) == counts

    @pytest.mark.parametrize(
        "link",
        [
            {"by_set_bits": [200, 0, 0, 0, 0]},
            {"by_set_bits": []},
            {"by_set_bits": 0},
            {"by_vector": {}},
            {"by_vector": {"00": 200}},
            {"joint": [{"bits": [0, 1], "counts": [200, 0, 0, 0]}]},
            {"joint": None},
            {"joint": False},
            {"by_set_bits": [200, 0, 0, 0, 0], "by_vector": {"00": 200}},
        ],
    )
    def test_a_file_with_links_is_refused(self, link: dict[str, Any]):
        plan = PLANS["flags"]
        document = json.loads(json.dumps(tally(plan, crowd_of(plan)).to_json()))
        assert Tally.from_json(copy.deepcopy(document), plan).reports == 200
        with pytest.raises(PrivacyRefusal, match=" and ".join(link)):
            Tally.from_json(document | link, plan)

    def test_a_real_tally_of_the_other_view_is_refused(self):
        """Every count in it is right; it only shows more."""
        plan = PLANS["flags"]
        whole = tally(replace(plan, view="reports"), crowd_of(plan)).to_json() | {"plan": plan.id}
        with pytest.raises(PrivacyRefusal, match="by_set_bits and by_vector"):
            Tally.from_json(whole, plan)

    def test_a_reports_plan_still_needs_set_bits(self):
        plan = replace(PLANS["flags"], view="reports")
        document = tally(plan, crowd_of(plan)).to_json()
        with pytest.raises(TallyError, match="by_set_bits"):
            Tally.from_json(document | {"by_set_bits": None}, plan)


class TestWherePlanAndTallyMeet:
    @pytest.mark.parametrize("use", [estimate, publish, screen])
    def test_a_tally_that_shows_more_is_refused(self, use: Any):
        plan = PLANS["flags"]
        counts = tally(plan, crowd_of(plan))
        use(plan, counts)
        whole = tally(replace(plan, view="reports"), crowd_of(plan))
        with pytest.raises(PrivacyRefusal, match="set bits"):
            use(plan, replace(whole, plan_id=plan.id))

    @pytest.mark.parametrize("use", [estimate, publish, screen])
    def test_a_tally_that_shows_less_is_refused(self, use: Any):
        plan = PLANS["flags"]
        other = replace(plan, view="reports")
        counts = replace(tally(plan, crowd_of(plan)), plan_id=other.id)
        with pytest.raises(TallyError, match="view is reports"):
            use(other, counts)

    def test_estimates_are_those_of_view_reports(self):
        plan = PLANS["questions"]
        other = replace(plan, view="reports")
        mine, theirs = (
            estimate(p, tally(p, crowd_of(plan))).to_json()["questions"] for p in (plan, other)
        )
        assert mine == theirs

    def test_joint_answers_name_their_cross(self):
        plan = PLANS["questions"]
        counts = tally(plan, crowd_of(plan))
        with pytest.raises(PrivacyRefusal, match='--cross "age;has=owl"'):
            estimate(plan, counts).joint(("age", "old"), ("has", "owl"))
        with pytest.raises(PrivacyRefusal, match='--cross "age;brand"'):
            associate(plan, counts, "age", "brand")
        with pytest.raises(PrivacyRefusal, match='--cross "has=car;has=cat"'):
            associate(plan, counts, "has=car", "has=cat")

    def test_a_cross_that_is_there(self):
        survey = Survey("s", (AGE, BRAND, YesNo("smokes"), FLAGS)).cross("age", "brand", "has=cat")
        bits = [survey.bit("age", "old"), survey.bit("has", "cat")]
        assert suggest_cross(survey, bits).startswith("cross 'age x brand x has=cat' counts them")
        other = [survey.bit("smokes", "yes"), survey.bit("has", "cat")]
        assert '--cross "smokes;has=cat"' in suggest_cross(survey, other)

    def test_what_no_cross_allows(self):
        survey = Survey("s", (AGE, Flags("sports", ("a", "b", "c"), at_most=2)))
        assert suggest_cross(survey, [0, 4]) == (
            "question 'sports' is choices, which cannot be crossed either."
        )
        assert '--cross "A;B"' in suggest_cross(survey, [0, 1])

    def test_the_page_says_what_is_released(self):
        plan = plan_of(FLAGS, q="0.00002092")
        publication = publish(plan, tally(plan, crowd_of(plan)))
        for text in (publication.to_html(), publication.to_markdown()):
            assert "how many reports set each bit, and nothing that links the bits of one" in text
            assert "0.00002092, once in 47,798 bits" in text
            assert "Whoever sees a single report learns the answer: each bit is true" in text
        other = plan_of(FLAGS, view="reports")
        assert "nothing that links" not in publish(other, tally(other, crowd_of(other))).to_html()
        assert "each bit of each cohort" in release_note(PLANS["text"])[0]

    @pytest.mark.parametrize("view", ["reports", "counts"])
    def test_the_page_has_every_observer(self, view):
        plan = plan_of(FLAGS, view=view)
        publication = publish(plan, tally(plan, crowd_of(plan)))
        document = publication.to_json()
        listed = document["certificate"]["observers"]
        assert listed == [one.to_json() for one in observers(certify(plan), 2000.0)]
        for text in (unescape(publication.to_html()), publication.to_markdown()):
            shown = text.split("protected")[1]
            for one in listed:
                for words in (one["who"], one["sees"], what_holds(one), one["assumption"]):
                    assert words in shown
        assert f"whoever sees the {view} of the whole crowd" in document["promise"]["plain"]

    def test_a_local_promise_has_no_table(self):
        survey, q = Survey("s", (FLAGS,)), FlipProbability.at_least(0.25)
        plan = Plan(survey, q, Promise("local", "9"))
        assert "Who sees what" not in publish(plan, tally(plan, crowd_of(plan))).to_html()

    def test_the_page_has_no_links(self):
        plan = PLANS["questions"]
        publication = publish(plan, tally(plan, crowd_of(plan)))
        for text in (publication.to_html(), publication.to_markdown(), publication.to_csv()):
            assert "by_set_bits" not in text
            assert "by_vector" not in text


class TestScreening:
    def test_what_was_tested_is_said(self):
        plan = plan_of(AGE, FLAGS, q="0.001")
        honest = np.zeros((200, plan.bits), bool)
        honest[:, 0] = True
        original = Original(pack(honest), plan.bits)
        counts = tally(plan, flip(plan, original, random_bits=SimulationBits(3)))
        assert screen(plan, counts).findings == (CLEAN, COUNTS_ONLY)

    def test_choices_that_do_not_add_up(self):
        """20 of 200 reports set all three ages: 40 ones too many, where flips make 0.6."""
        plan = plan_of(AGE, q="0.001")
        rows = np.zeros((200, 3), bool)
        rows[:, 0] = True
        rows[:20] = True
        screening = screen(plan, tally(plan, Synthetic(pack(rows), 3)))
        assert screening.suspicious
        assert 0.05 < screening.smallest_share_of_fakes <= 0.1
        assert "The reports set 240 bits of question 'age'" in screening.findings[0]
        assert screening.findings[-1] == COUNTS_ONLY

    def test_fakes_among_flags_leave_no_trace(self):
        """Every count of flags is allowed: this is what the last sentence warns of."""
        plan = plan_of(FLAGS, q="0.001")
        rows = np.zeros((200, 4), bool)
        rows[:50] = True
        assert not screen(plan, tally(plan, Synthetic(pack(rows), 4))).suspicious
