"""Joint estimates: unbiased, counts and variances, by enumerating every output."""

from __future__ import annotations

import copy
import itertools
import json
import math
from dataclasses import replace
from fractions import Fraction
from html import unescape
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

from shoal import (
    Choice,
    Estimates,
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
from shoal.analysis.joint import estimate_joint, suggest_cross
from shoal.analysis.screening import CLEAN, COUNTS_ONLY, screen
from shoal.analysis.tally import Tallying
from shoal.device.arrays.randomize import Original, pack
from shoal.device.arrays.simulation_bits import SimulationBits
from shoal.device.randomize import flip
from shoal.errors import InputError, TallyError
from shoal.planning.certificate import certify
from shoal.planning.threats import observers, what_holds
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Promise, View
from shoal.protocol.survey import Question
from shoal.protocol.wire import Synthetic
from shoal.reports.formatting import release_note

BITS = [("f", "a"), ("f", "b"), ("f", "c"), ("f", "d")]


def outputs(people: tuple[int, ...], j: int, q: Fraction):
    """Every collection of reports with its exact probability."""
    weight = [q**k * (1 - q) ** (j - k) for k in range(j + 1)]
    for reports in itertools.product(range(1 << j), repeat=len(people)):
        chance = Fraction(1)
        for truth, seen in zip(people, reports, strict=True):
            chance *= weight[(truth ^ seen).bit_count()]
        yield np.bincount(reports, minlength=1 << j), chance


COLLECTIONS = [((0,), 1), ((0, 1, 1), 1), ((0, 3), 2), ((1, 1, 2), 2), ((5, 2), 3), ((7, 0), 3)]


class TestUnbiased:
    @pytest.mark.parametrize("q", [Fraction(1, 8), Fraction(3, 8), Fraction(7, 16)])
    @pytest.mark.parametrize(("people", "j"), COLLECTIONS)
    def test_variances(self, people: tuple[int, ...], j: int, q: Fraction):
        mean, square, claimed = (np.zeros(1 << j) for _ in range(3))
        for counts, chance in outputs(people, j, q):
            made = estimate_joint(counts, float(q), BITS[:j])
            cells = [made[index_values(v, j)] for v in range(1 << j)]
            mean += float(chance) * np.array([cell.count for cell in cells])
            square += float(chance) * np.array([cell.count**2 for cell in cells])
            claimed += float(chance) * np.array([cell.variance for cell in cells])
        assert np.allclose(mean, np.bincount(people, minlength=1 << j), atol=1e-11)
        assert np.allclose(claimed, square - mean**2, rtol=1e-9)

    @pytest.mark.parametrize("q", [0.01, 0.1, 0.25])
    @pytest.mark.parametrize("j", [1, 2, 3])
    def test_sigma_is_never_below_what_any_crowd_has(self, q: float, j: int):
        """However the reports fall, n people give a cell at least n times the least variance.

        A person at distance d from the cell adds a^(j-d) b^d, minus 1 if d = 0, with
        a = E[w^2 | same bit] and b = E[w^2 | other bit]; an estimate that is cut off at zero would
        claim to know the cell exactly.
        """
        keep, flip = (1 - q) / (1 - 2 * q), -q / (1 - 2 * q)
        a, b = (1 - q) * keep**2 + q * flip**2, (1 - q) * flip**2 + q * keep**2
        least = min(a ** (j - d) * b**d - (d == 0) for d in range(j + 1))
        for shown in range(1 << j):
            counts = np.zeros(1 << j, np.int64)
            counts[shown] = 3
            for cell in estimate_joint(counts, q, BITS[:j]).cells:
                assert cell.sigma**2 >= 3 * least * (1 - 1e-9)


def index_values(index: int, j: int) -> tuple[int, ...]:
    return tuple(index >> place & 1 for place in range(j))


class TestInverse:
    @pytest.mark.parametrize("j", [1, 2, 3, 4, 8])
    @pytest.mark.parametrize("q", [0.01, 0.25, 0.45])
    def test_against_the_dense_inverse(self, j: int, q: float):
        counts = np.random.default_rng(j).integers(0, 1000, 1 << j)
        channel = np.ones((1, 1))
        for _ in range(j):
            channel = np.kron(channel, np.array([[1 - q, q], [q, 1 - q]]))
        inverse = np.linalg.inv(channel)
        wanted = inverse @ counts
        spread = (inverse**2) @ counts - wanted
        made = estimate_joint(counts, q, [("f", str(i)) for i in range(j)])
        for cell in made.cells:
            index = sum(value << place for place, value in enumerate(cell.values))
            assert math.isclose(cell.count, wanted[index], rel_tol=1e-6, abs_tol=1e-6)
            assert math.isclose(cell.variance, spread[index], rel_tol=1e-6, abs_tol=1e-5)
        assert math.isclose(sum(cell.count for cell in made.cells), counts.sum())


class TestThroughEstimates:
    PLAN = Plan(
        Survey("s", (Flags("f", ("a", "b")), Flags("g", ("c",)))),
        FlipProbability(1, 2),
        Promise("local", "9"),
    )

    def estimates(self) -> Estimates:
        rows = np.array([[1]] * 4 + [[3]] * 2 + [[5]] * 3 + [[0]] * 3, np.uint8)
        return estimate(self.PLAN, tally(self.PLAN, Synthetic(rows, 3)))

    def test_by_names_in_any_order(self):
        one = self.estimates().joint(("f", "a"), ("g", "c"))
        two = self.estimates().joint(("g", "c"), ("f", "a"))
        for a, c in itertools.product((0, 1), repeat=2):
            assert math.isclose(one[a, c].count, two[c, a].count)
        channel = np.array([[0.75, 0.25], [0.25, 0.75]])
        table = np.array([[3, 0], [6, 3]])  # [a][c] as reported
        undone = np.linalg.inv(channel) @ table @ np.linalg.inv(channel)
        assert math.isclose(one[1, 1].count, undone[1, 1])
        assert math.isclose(one[1, 0].count, undone[1, 0])

    def test_unknown(self):
        for bits in ((), (("f", "a"), ("f", "a"))):
            with pytest.raises(InputError, match="different bits"):
                self.estimates().joint(*bits)
        with pytest.raises(InputError, match="no option"):
            self.estimates().joint(("f", "z"))
        with pytest.raises(InputError, match="2 values of 0 or 1"):
            self.estimates().joint(("f", "a"), ("f", "b"))[1, 2]

    def test_a_population_varies_by_who_was_drawn_too(self):
        """Few flips: the count of both is that of a sample, and its interval Wilson's."""
        rows = np.array([[3]] * 30 + [[0]] * 70, np.uint8)
        plan = Plan(self.PLAN.survey, FlipProbability.at_least("1e-12"), Promise("local", "99"))
        counts = tally(plan, Synthetic(rows, 3))
        crowd, population = (
            estimate(plan, counts, target=target).joint(("f", "a"), ("f", "b"))[1, 1]
            for target in ("crowd", "population")
        )
        assert crowd.sigma < 1e-3
        assert math.isclose(population.sigma, math.sqrt(100 * 0.3 * 0.7), rel_tol=1e-6)
        wilson = binomtest(30, 100).proportion_ci(0.95, "wilson")
        made = population.interval(0.95)
        assert math.isclose(made.low, 100 * wilson.low, rel_tol=1e-6)
        assert math.isclose(made.high, 100 * wilson.high, rel_tol=1e-6)

    def test_counts_of_another_size(self):
        with pytest.raises(InputError, match="2 bits have 4 joint counts, got 3"):
            estimate_joint(np.zeros(3, np.int64), 0.25, BITS[:2])


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
    def test_a_tally_of_the_other_view_is_refused(self, use: Any):
        plan = PLANS["flags"]
        other = replace(plan, view="reports")
        counts, whole = tally(plan, crowd_of(plan)), tally(other, crowd_of(plan))
        use(plan, counts)
        with pytest.raises(PrivacyRefusal, match="set bits"):
            use(plan, replace(whole, plan_id=plan.id))
        with pytest.raises(TallyError, match="view is reports"):
            use(other, replace(counts, plan_id=other.id))

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
            "question 'sports' is flags with at_most, which cannot be crossed either."
        )
        assert '--cross "A;B"' in suggest_cross(survey, [0, 1])

    def test_the_page_says_what_is_released(self):
        plan = plan_of(FLAGS, q="0.00002092")
        publication = publish(plan, tally(plan, crowd_of(plan)))
        for text in (publication.to_html(), publication.to_markdown()):
            assert "how many reports set each bit, and nothing that links the bits of one" in text
            assert "0.00002092, once in 47,798 bits" in text
            assert "An observer of a single report learns the answer: each bit is true" in text
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
        assert f"anyone who sees the {view} of the whole crowd" in document["promise"]["plain"]

    def test_a_local_promise_has_no_table(self):
        survey, q = Survey("s", (FLAGS,)), FlipProbability.at_least(0.25)
        plan = Plan(survey, q, Promise("local", "9"))
        assert 'id="observers"' not in publish(plan, tally(plan, crowd_of(plan))).to_html()

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
