"""Plans, certificates and costs in the view of counts."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from shoal import Choice, Flags, Survey, Text, plan
from shoal.cli import run
from shoal.errors import InputError, PlanError, PrivacyRefusal
from shoal.planning.bounds import CountsBound, other_view
from shoal.planning.certificate import certify, check_promise, compute_promise
from shoal.planning.composition import composed_epsilon
from shoal.planning.guarantees import guarantees_over_time
from shoal.planning.memory import plan_with_memory
from shoal.planning.plan_diff import plan_diff
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Promise
from shoal.protocol.promise import read_certificate
from shoal.theory.binomial import chance_of_fewer, smallest_cohort
from shoal.theory.counts import proven_counts

FIVE = Survey("browser", (Flags("features", tuple("abcde")),))
TWO = Survey("browser", (Flags("features", ("a", "b")),))
WISH: dict[str, Any] = {"crowd_size": 10_000, "epsilon": 1, "delta": "1e-6", "view": "counts"}
AGREED = plan(FIVE, **WISH)
SLOW = pytest.mark.slow


def answer(capsys, words):
    code = run([*words.split(), "--json"])
    out = capsys.readouterr().out
    return code, json.loads(out) if out else None


@pytest.mark.parametrize(
    ("domain", "crowd", "epsilon", "delta", "reference", "attack", "differing"),
    [
        ("--flags 5", 10_000, "1", "1e-6", 0.00996, 0.00993, 5),
        pytest.param(
            *("--flags 5", 5_000, "0.6931471805599453", "0.005", 0.00871, 0.00846, 5),
            marks=SLOW,
        ),
        pytest.param(
            *("--choice 100", 10_000, "0.6931471805599453", "1e-6", 0.00869, 0.00868, 2),
            marks=SLOW,
        ),
        pytest.param(*("--flags 40", 10**7, "2", "1e-6", 2.092e-5, 2.062e-5, 40), marks=SLOW),
    ],
)
def test_reference_values(capsys, domain, crowd, epsilon, delta, reference, attack, differing):
    """Two other programs agreed to 1 %; lower is better, but never below the attack."""
    words = f"plan {domain} --crowd {crowd} --epsilon {epsilon} --delta {delta} --view counts"
    words += " --accept-weak-promise"
    code, document = answer(capsys, words)
    assert code == 0
    assert document["view"] == "counts"
    assert document["fragments"] == {"count": int(domain.split()[1]), "differing": differing}
    assert 0.999 * attack < document["q"] <= reference
    q = document["q"]
    assert document["sigma_count"] == pytest.approx(math.sqrt(crowd * q * (1 - q)) / (1 - 2 * q))
    assert document["local_epsilon"] == pytest.approx(differing * math.log((1 - q) / q))
    assert document["other_view"]["view"] == "reports"
    assert document["other_view"]["q"] > 5 * q
    low, high = document["certificate"]["proven"]["delta"]
    assert 0.8 * float(delta) < low <= high <= float(delta)


class TestAnyOneUnknown:
    @pytest.mark.parametrize(
        ("unknown", "low", "high"),
        [
            pytest.param("crowd_size", 9_800, 10_050, marks=SLOW),
            ("epsilon", 0.99, 1),
            ("delta", 8e-7, 1e-6),
        ],
    )
    def test_it_is_solved_for(self, unknown: str, low: float, high: float):
        agreed = plan(FIVE, q="0.01", **{**WISH, unknown: None})
        solved = {"crowd_size": agreed.crowd_size} | vars(agreed.promise)
        assert low < float(solved[unknown]) < high
        assert compute_promise(agreed).holds

    def test_a_q_that_is_too_small_is_refused_with_one_that_is_not(self):
        with pytest.raises(PrivacyRefusal, match=r"delta of counts at epsilon 1 .* q = 0.00995"):
            plan(FIVE, q="0.005", **WISH)


class TestTheFloorOfOneReport:
    def test_q_is_the_larger_of_the_two(self):
        assert plan(TWO, **WISH | {"view": "reports"}, local_epsilon=2).local_epsilon <= 2
        floor = plan(FIVE, **WISH, local_epsilon=10)
        assert floor.local_epsilon <= 10
        assert float(floor.q) == pytest.approx(1 / (1 + math.exp(2)), rel=1e-3)
        assert plan(FIVE, **WISH, local_epsilon=100) == AGREED

    def test_a_given_q_below_it_is_refused(self):
        with pytest.raises(PrivacyRefusal, match=r"more than 10; q must be at least 0.119"):
            plan(FIVE, q="0.02", crowd_size=10_000, epsilon=1, view="counts", local_epsilon=10)

    @pytest.mark.parametrize("name", ["view", "local_epsilon"])
    def test_only_a_proven_promise_has_one(self, name):
        options: dict[str, Any] = {"view": "counts", "local_epsilon": 3}
        with pytest.raises(InputError, match=f"{name} is part of a proven promise"):
            plan(FIVE, epsilon=1, promise="local", **{name: options[name]})


SHARED: dict[str, Any] = {
    "leader": "https://leader.example",
    "helper": "https://helper.example",
    "window": 604_800,
}


def test_a_cohort_may_be_small_in_any_release():
    """The best cohort to count on, found by trying all: its chance is paid for in each release."""
    bound, q, epsilon, crowd = CountsBound(1, cohorts=2, releases=5), 0.2, 2.0, 30
    best = min(
        proven_counts(5, size, q, epsilon) + 5 * chance_of_fewer(crowd, 2, size)
        for size in range(1, crowd + 1)
    )
    assert best <= bound.proven(crowd, q, epsilon).delta.high <= 1.001 * best


class TestLargerCrowds:
    """At the same q a larger crowd hides no less (theorem), and so it is promised no less."""

    @pytest.mark.parametrize(
        ("questions", "crowd", "epsilon", "delta", "how"),
        [
            # a cohort that is counted on must be the best one, not the first that will do
            ((Flags("f", ("a", "b")), Text("t", 64, 1, 2)), 73, "4", "1e-9", {}),
            ((Text("t", 32, 2, 4),), 400, "2", "1e-6", {}),
            # what does not fit into the weight costs more with each person
            ((Text("t", 16, 1, 1), Text("u", 16, 2, 1)), 1595, "1", "1e-9", SHARED),
            (
                (Choice("c", tuple("abcd")), Choice("d", tuple("efghijklmn"))),
                2427,
                "1",
                "1e-9",
                SHARED,
            ),
            ((Choice("c", ("a", "b")), Text("t", 32, 1, 1)), 17, "0.1", "5.26e-10", SHARED),
        ],
    )
    @pytest.mark.slow
    def test_they_are_promised_no_less(self, questions, crowd, epsilon, delta, how):
        wish = {"epsilon": epsilon, "delta": delta, "view": "counts"} | how
        certificate = certify(plan(Survey("s", questions), crowd_size=crowd, **wish))
        at = float(epsilon)
        least = certificate.delta(epsilon=at).high
        for more in (crowd + 1, crowd + 2, math.ceil(1.1 * crowd), 2 * crowd, 10 * crowd):
            said = replace(certificate, crowd_size=more).delta(epsilon=at).high
            assert said <= least * 1.001
            least = min(said, least)

    @pytest.mark.slow
    def test_where_delta_is_negligible(self):
        """Losses are cut there, at a place that depends on the crowd."""
        survey = Survey("s", (Flags("c", ("a", "b", "c"), at_most=3),))
        certificate = certify(survey, q="0.01976", crowd_size=504_466, view="counts")
        deltas = [
            replace(certificate, crowd_size=crowd).delta(epsilon=0.1).high
            for crowd in (504_466, 1_008_932, 2_500_000, 5_044_660)
        ]
        assert deltas == sorted(deltas, reverse=True)


class TestOtherView:
    def test_both_ways(self):
        assert other_view(plan(FIVE, q="0.25")) is None
        there = other_view(AGREED)
        reports = plan(FIVE, **{**WISH, "view": "reports"})
        back = other_view(reports)
        assert there is not None
        assert back is not None
        assert (there.view, back.view) == ("reports", "counts")
        assert there.q == pytest.approx(float(reports.q), rel=0.01)
        assert back.q == pytest.approx(float(AGREED.q), rel=0.01)

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            ({"max_reports_per_person": 2}, "one report of a person"),
            ({"promise": Promise("three-sigma", "1"), "view": "reports"}, "with a delta"),
            ({"survey": Survey("one", (Flags("f", ("a",)),))}, "one bit"),
            (
                {"survey": Survey("wide", (Flags("f", tuple(map(str, range(501)))),))},
                "takes long to compute here; plan with --view reports",
            ),
            (
                {
                    "survey": Survey("wide", (Flags("f", tuple(map(str, range(100)))),)),
                    "crowd_size": 1499,
                },
                "takes long to compute here; plan with --view reports",
            ),
        ],
    )
    def test_what_is_not_compared_has_a_reason(self, change, reason):
        other = other_view(replace(AGREED, **change))
        assert other is not None
        assert (other.q, other.sigma) == (None, None)
        assert reason in (other.reason or "")


class TestPromise:
    def test_a_plan_of_reports_does_not_keep_it_with_the_q_of_counts(self):
        broken = compute_promise(replace(AGREED, view="reports"))
        assert not broken.holds
        assert (broken.delta or 0) > 0.9

    def test_a_smaller_q_breaks_it(self):
        weaker = replace(AGREED, q=FlipProbability.at_least("0.009"))
        with pytest.raises(PrivacyRefusal, match="at epsilon 1 for counts, but"):
            check_promise(weaker)

    def test_q_for_one_bit_fewer_breaks_it(self):
        fewer = FlipProbability.at_least(CountsBound(4).q(10_000, 1.0, 1e-6, rough=True))
        assert not compute_promise(replace(AGREED, q=fewer)).holds

    def test_a_certificate_of_another_view_is_refused(self):
        certificate = certify(AGREED).to_json(epsilon=1.0)
        document = {"plan": AGREED.id, "certificate": certificate}
        content = json.dumps(document).encode()
        assert read_certificate(AGREED, content).holds
        certificate["view"] = "reports"
        with pytest.raises(PlanError, match="view is not counts"):
            read_certificate(AGREED, json.dumps(document).encode())


class TestCertificate:
    def test_audit_on_the_command_line(self, capsys):
        words = "audit --flags 5 --view counts --q 0.00997 --crowd 10000 --epsilon 1"
        code, document = answer(capsys, words)
        assert (code, document["view"]) == (0, "counts")
        (low, high), (attack, most) = document["proven"]["delta"], document["attack"]["delta"]
        assert 0.95 * high < attack <= most <= high < 1e-6
        assert low <= high
        assert document["homogeneous"] is None

    def test_a_plan_has_its_own_view(self, capsys, tmp_path):
        AGREED.write(tmp_path / "plan.json")
        code, document = answer(capsys, f"audit {tmp_path / 'plan.json'}")
        assert (code, document["view"], document["promise_kept"]) == (0, "counts", True)
        assert run(["audit", str(tmp_path / "plan.json"), "--view", "reports"]) == 2

    def test_eta_is_about_whole_reports(self):
        with pytest.raises(InputError, match="eta is about whole reports"):
            certify(AGREED).eta(epsilon=1.0)

    def test_an_unknown_view_is_refused(self):
        with pytest.raises(InputError, match="view must be one of 'reports', 'counts'"):
            certify(FIVE, q="0.1", crowd_size=10, view="each")  # type: ignore[arg-type]

    def test_counts_are_never_worse_than_reports(self):
        for crowd, q in ((3, "0.3"), (50, "0.2"), (1_000, "0.1")):
            counts = certify(TWO, q=q, crowd_size=crowd, view="counts").delta(epsilon=0.5).high
            assert counts <= 1.001 * certify(TWO, q=q, crowd_size=crowd).delta(epsilon=0.5).high


class TestObservers:
    def rows(self, certificate, epsilon=1.0):
        document = certificate.to_json(epsilon=epsilon)
        rows = document["observers"]
        assert all(
            {"who", "sees", "epsilon", "delta", "holds", "assumption"} == set(row) for row in rows
        )
        return {row["who"]: row for row in rows}

    def test_of_a_plan_for_counts(self):
        rows = self.rows(certify(AGREED))
        reader = rows["reader of a release"]
        assert (reader["holds"], reader["epsilon"]) == ("theorem", 1.0)
        assert 9e-7 < reader["delta"] <= 1e-6
        for who in ("analyzer of anonymized reports", "collector", "any of these colluding"):
            assert (rows[who]["holds"], rows[who]["delta"]) == ("local", 0.0)
            assert AGREED.local_epsilon <= rows[who]["epsilon"] < 1.01 * AGREED.local_epsilon
            assert "An observer of a single report learns the answer" in rows[who]["assumption"]
        assert "No promise for the crowd" in rows["analyzer of anonymized reports"]["assumption"]

    def test_of_a_plan_for_reports(self):
        rows = self.rows(certify(FIVE, q="0.2147", crowd_size=10_000))
        analyzer = rows["analyzer of anonymized reports"]
        assert analyzer["holds"] == rows["reader of a release"]["holds"] == "theorem"
        assert analyzer["delta"] == rows["reader of a release"]["delta"] < 1e-6
        assert "learns" not in rows["collector"]["assumption"]

    def test_an_analyzer_of_whole_reports_gets_what_is_proven_for_them(self):
        """With much noise the crowd hides whole reports too, by less than it hides counts."""
        floor = plan(FIVE, **WISH, local_epsilon=7)
        analyzer = self.rows(certify(floor))["analyzer of anonymized reports"]
        assert analyzer["holds"] == "theorem"
        whole = certify(FIVE, q=floor.q, crowd_size=10_000).delta(epsilon=1.0).high
        assert whole == pytest.approx(analyzer["delta"], rel=1e-2)
        assert 1e-6 < analyzer["delta"] < 0.5


class TestManyReleases:
    def test_releases_are_more_bits(self):
        together = certify(AGREED).compose(20)
        assert together.delta(epsilon=6.0) == pytest.approx(
            proven_counts(100, 10_000, float(AGREED.q), 6.0), rel=1e-5
        )
        epsilon = together.epsilon(delta=1e-6)
        assert together.delta(epsilon=epsilon) <= 1e-6 < together.delta(epsilon=0.99 * epsilon)
        assert epsilon < 0.5 * together.basic_epsilon(delta=1e-6)
        assert composed_epsilon(certify(AGREED), 20, 1e-6) == epsilon

    def test_a_person_with_several_reports_in_each(self):
        both = replace(certify(AGREED), reports_per_person=2)
        assert both.compose(3).delta(epsilon=8.0) > certify(AGREED).compose(3).delta(epsilon=8.0)

    def test_with_memory(self):
        agreed = plan_with_memory(FIVE, **WISH, releases=52)
        assert agreed.view == "counts"
        assert check_promise(agreed).holds
        assert float(agreed.q) == pytest.approx(float(AGREED.q), rel=0.01)
        said = {one.holds_for: one for one in guarantees_over_time(agreed, 52)}
        assert said["one release"].epsilon <= 1
        same, changing = (
            said["same crowd, every release"],
            said["changing crowds, every release"],
        )
        assert (same.kind, changing.kind) == ("proven", "proven")
        assert agreed.memory is not None
        q1 = certify(FIVE, q=agreed.memory.q1, crowd_size=10_000, view="counts")
        assert same.epsilon == pytest.approx(q1.epsilon(delta=1e-6), rel=1e-4)
        assert said["one release"].epsilon < same.epsilon < changing.epsilon
        assert "of counts" in same.words


class TestCohorts:
    WORDS = Survey("words", (Text("word", bits=32, hashes=2, cohorts=4),))

    @pytest.mark.slow
    def test_the_smallest_cohort_is_the_crowd(self):
        agreed = plan(self.WORDS, **WISH)
        assert compute_promise(agreed).holds
        size, price = smallest_cohort(10_000, 4, 0.05e-6)
        q = float(agreed.q)
        assert proven_counts(4, size, q, 1.0) + price <= 1e-6
        # a cohort of a fourth of the people, which is too large half of the time
        assert proven_counts(4, 2_500, q, 1.0) < 0.9e-6

    @pytest.mark.parametrize(
        "missing", ["delta", *(pytest.param(one, marks=SLOW) for one in ("epsilon", "crowd_size"))]
    )
    def test_any_one_unknown(self, missing):
        wish = {**WISH, "q": "0.1", "crowd_size": 4_000}
        del wish[missing]
        assert compute_promise(plan(self.WORDS, **wish)).holds

    @pytest.mark.parametrize(
        ("differing", "cohorts", "q", "epsilon", "delta"),
        [(4, 3, 0.2, 1.0, 1e-3), (4, 16, 0.05, 0.5, 1e-6), (4, 4, 0.1, 0.0, 0.05)],
    )
    @pytest.mark.slow
    def test_the_crowd_is_hardly_larger_than_it_must_be(
        self, differing, cohorts, q, epsilon, delta
    ):
        bound = CountsBound(differing, cohorts=cohorts)
        crowd = int(bound.crowd_size(q, epsilon, delta))
        assert bound.proven(crowd, q, epsilon).delta.high <= delta
        fewer = int(crowd * 0.995) - 1
        assert bound.proven(fewer, q, epsilon).delta.high > delta

    def test_one_person_is_enough_in_any_cohort(self):
        alone = proven_counts(2, 1, 0.3, 0.5)
        assert CountsBound(2, cohorts=3_000).crowd_size(0.3, 0.5, 1.02 * alone) == 1

    def test_the_mixture_of_all_cohort_sizes_is_below(self):
        """Delta is at most the mean over a cohort's size of what that size has."""
        bound, q, size = CountsBound(2, cohorts=3), 0.2, 12
        total = 0.0
        for others in range(size):
            ways = math.comb(size - 1, others) * Fraction(1, 3) ** others
            weight = ways * Fraction(2, 3) ** (size - 1 - others)
            total += float(weight) * proven_counts(2, 1 + others, q, 0.5)
        assert total <= bound.proven(size, q, 0.5).delta.high <= proven_counts(2, 1, q, 0.5)

    def test_each_release_may_have_a_small_cohort(self):
        """The chance that one of several is smaller, in fractions, is what is paid."""
        size, price = CountsBound(2, cohorts=3, releases=4)._cohort(60, 1e-3)
        ways = (math.comb(59, n) * Fraction(2) ** (59 - n) for n in range(size - 1))
        smaller = sum(ways) / Fraction(3) ** 59
        assert 0.1e-3 < 1 - (1 - smaller) ** 4 <= price <= 1e-3


def test_counts_protect_less_than_reports():
    counts = plan(TWO, **WISH)
    reports = replace(counts, view="reports")
    step = plan_diff(reports, counts)
    assert step.kind == "forbidden"
    assert "The promise is about an observer of counts only" in step.reasons[0]
    back = plan_diff(counts, reports)  # with the same flips, whole reports tell more than counts
    assert back.kind == "forbidden"
    assert back.reasons[0].startswith("One release reveals epsilon")
    assert plan_diff(counts, plan(TWO, **(WISH | {"view": "reports"}))).kind == "new plan"
