"""Plans with a leader and a helper: the weight of a report, who sees what, what fakes can do."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from shoal import Choice, Flags, Plan, PrivacyRefusal, Survey, Tally, plan
from shoal.analysis.crowds import Crowd
from shoal.analysis.screening import screen
from shoal.device.encode import SyntheticVector
from shoal.device.encryption import check_parties
from shoal.device.randomize import fit_to_weight
from shoal.errors import InputError, PlanError
from shoal.planning.bounds import CountsBound, Overflow, bound_of, other_view, overflow_of
from shoal.planning.certificate import certify, check_promise, compute_promise
from shoal.planning.guarantees import guarantees_over_time
from shoal.planning.memory import plan_with_memory
from shoal.planning.plan_diff import plan_diff
from shoal.planning.threats import observers, poisoning
from shoal.protocol.plan import EXPERIMENTAL, Aggregators
from shoal.theory.binomial import overflow_chance
from tests.adversary import oracle

DAP: dict[str, Any] = {"leader": "https://leader.example", "helper": "https://helper.example"}
TWO: dict[str, Any] = {"relay": "https://relay.example", "analyzer": "https://analyzer.example"}
FIVE = Survey("flags", (Flags("f", tuple("abcde")),))
ONE_OF_MANY = Survey("choice", (Choice("c", tuple(f"option {j}" for j in range(60))),))
WISH: dict[str, Any] = {
    "crowd_size": 2000, "epsilon": 1, "delta": "1e-5", "view": "counts", "window": 604_800
}  # fmt: skip


@pytest.fixture(scope="module")
def sparse() -> Plan:
    return plan(ONE_OF_MANY, **WISH, **DAP)


class TestPlanning:
    def test_the_smallest_weight_within_a_hundredth_of_delta(self, sparse: Plan):
        weight, q = sparse.max_weight, float(sparse.q)
        assert weight is not None
        prices = [
            (1 + math.e) * 2000 * overflow_chance(60, 1, limit, q) for limit in (weight, weight - 1)
        ]
        assert prices[0] <= 1e-7 < prices[1]
        assert check_promise(sparse).holds

    @pytest.mark.slow
    def test_flags_may_all_be_set(self):
        assert plan(FIVE, **WISH, **DAP).max_weight == 5

    def test_a_smaller_weight_is_refused_or_breaks_the_promise(self, sparse: Plan):
        assert isinstance(sparse.parties, Aggregators)
        with pytest.raises(PrivacyRefusal, match="max_weight must be larger for reports of 60"):
            plan(ONE_OF_MANY, **WISH, **DAP, max_weight=2)
        broken = replace(sparse, parties=replace(sparse.parties, max_weight=2))
        with pytest.raises(PrivacyRefusal, match="with max_weight 2, delta is"):
            check_promise(broken)
        with pytest.raises(PrivacyRefusal, match=r"with max_weight 2,.*with max_weight \d+ would"):
            plan(ONE_OF_MANY, q=sparse.q, **WISH, **DAP, max_weight=2)

    def test_a_plan_is_read_as_it_was_written(self, sparse: Plan):
        assert Plan.from_json(sparse.to_json() | {"id": sparse.id}) == sparse
        named = {**DAP, "max_weight": sparse.max_weight, "one_operator": False, "noise": None}
        assert sparse.to_json()["parties"] == named

    @pytest.mark.parametrize(
        ("words", "sentence"),
        [
            ({"leader": DAP["leader"]}, "helper= is missing"),
            ({"helper": DAP["helper"]}, "leader= is missing"),
            ({"max_weight": 3}, "max_weight= needs leader= and helper="),
            ({**DAP, "max_weight": 6}, "max_weight must be between 1 and 5"),
            ({**DAP, "window": None}, "a leader and a helper need window="),
            ({**DAP, "view": "reports"}, "plan with view='counts'"),
            ({**DAP, **TWO}, "not both"),
            ({**DAP, "helper": DAP["leader"]}, "must be two parties"),
            ({**DAP, "leader": "leader"}, "leader"),
        ],
    )
    def test_bad_wishes(self, words: dict[str, Any], sentence: str):
        with pytest.raises(InputError, match=sentence):
            plan(FIVE, **WISH | words)

    def test_bad_plans(self, sparse: Plan):
        document = sparse.to_json()
        for change, sentence in (
            ({"max_weight": 61}, "max_weight"),
            ({"max_weight": 0}, "max_weight"),
            ({"relay": "https://relay.example"}, "relay"),
        ):
            with pytest.raises(PlanError, match=sentence):
                Plan.from_json(document | {"parties": document["parties"] | change})
        with pytest.raises(PlanError, match="need view counts"):
            replace(plan(ONE_OF_MANY, q="0.3"), crowd_size=9, parties=sparse.parties)

    def test_no_other_view_is_offered(self, sparse: Plan):
        assert other_view(sparse) is None

    @pytest.mark.slow
    def test_with_memory(self):
        wish = {name: value for name, value in WISH.items() if name != "window"}
        agreed = plan_with_memory(ONE_OF_MANY, **wish, **DAP, horizon="weekly for 3 weeks")
        assert isinstance(agreed.parties, Aggregators)
        assert check_promise(agreed).holds


class TestObservers:
    def test_who_sees_what(self, sparse: Plan):
        certificate = certify(sparse)
        table = {one.who: one for one in observers(certificate, 1.0)}
        assert list(table) == [
            "reader of a release",
            "collector",
            "leader",
            "helper",
            "aggregator + collector (OAMC)",
            "aggregator + collector + clients (OAMC)",
            "malicious aggregator + collector (OAOC)",
            "leader + helper (OC)",
            "network observer",
        ]
        proven = certificate.delta(epsilon=1.0).high
        for who in ("reader of a release", "collector", "aggregator + collector (OAMC)"):
            assert (table[who].epsilon, table[who].delta) == (1.0, proven)
            assert table[who].holds == "theorem"
        fakes = table["aggregator + collector + clients (OAMC)"]
        assert fakes.delta == certificate.with_colluders(20).delta(epsilon=1.0).high > proven
        for who in ("malicious aggregator + collector (OAOC)", "leader + helper (OC)"):
            assert table[who].holds == "local"
            assert table[who].epsilon >= certificate.local_epsilon
        for who in ("leader", "helper"):
            assert (table[who].epsilon, table[who].holds) == (0.0, "shared")
            assert "Prio3 and HPKE are not broken" in table[who].assumption

    def test_one_operator_of_both_sees_every_report(self, sparse: Plan):
        assert isinstance(sparse.parties, Aggregators)
        one = replace(sparse, parties=replace(sparse.parties, one_operator=True))
        table = {row.who: row.holds for row in observers(certify(one), 1.0)}
        assert table["operator of leader and helper"] == "local"
        assert "shared" not in table.values()

    def test_the_certificate_names_price_and_state(self, sparse: Plan):
        document = certify(sparse).to_json(epsilon=1.0)
        dropped = document["dropped"]
        assert dropped["max_weight"] == sparse.max_weight
        assert dropped["price"] >= price(sparse) * (1 - 1e-9)
        assert dropped["bias"] >= 2000 * dropped["chance_of_more"] * 0.99
        assert any("paid for in delta" in one for one in document["assumptions"])
        assert EXPERIMENTAL in document["assumptions"]
        assert any("Against leader and helper together" in one for one in document["assumptions"])

    @pytest.mark.slow
    def test_diff(self, sparse: Plan):
        relayed = plan(ONE_OF_MANY, **WISH | {"view": "reports"}, **TWO)
        assert "Other parties aggregate the reports." in plan_diff(relayed, sparse).reasons


class TestFakes:
    def test_each_count_moves_once(self, sparse: Plan):
        """Compare with the estimates themselves, for the vectors that the proof accepts."""
        q, weight, can = float(sparse.q), sparse.max_weight, poisoning(sparse)
        assert weight is not None

        def estimate(ones: int, reports: int) -> float:
            return (ones - q * reports) / (1 - 2 * q)

        moved = [estimate(700 + bit, 2001) - estimate(700, 2000) for bit in (0, 1)]
        assert [can.down, can.up] == pytest.approx(moved)
        assert can.options == weight
        assert certify(sparse).shift_of_a_fake == can.up
        instead = estimate(701, 2000) - estimate(700, 2000)
        assert instead == pytest.approx(1 / (1 - 2 * q))
        said = " ".join(can.sentences)
        assert f"up to {weight} options up at once, as a proof shows" in said
        assert f"at most {math.ceil(instead * 1e3) / 1e3:.4g} people" in said


class TestDevices:
    def test_a_transport_must_lead_to_the_leader(self, sparse: Plan):
        assert sparse.parties is not None
        with pytest.raises(PrivacyRefusal, match="does not lead to one"):
            check_parties(sparse.parties, object())  # type: ignore[arg-type]

    def test_a_random_excess_is_dropped(self, sparse: Plan):
        full = SyntheticVector(2**60 - 1, 60)
        fitted = {fit_to_weight(full, sparse.max_weight).value for _ in range(50)}
        assert {value.bit_count() for value in fitted} == {sparse.max_weight}
        assert len(fitted) > 40


def test_without_its_price_the_bound_would_be_false():
    """Six people, two flags, weight 1: one who drops a bit reveals that the other was set."""
    neither, both = (oracle.truncated(x, 2, Fraction(1, 4), 1) for x in (0b00, 0b11))
    one, other = (oracle.crowd([both] * 5 + [law]) for law in (neither, both))
    truth = float(oracle.delta(one, other, Fraction(1)))
    free = CountsBound(2).proven(6, 0.25, 0.0).delta.high
    assert truth > 1.2 * free
    assert truth <= CountsBound(2, overflow=Overflow(2, 2, 1)).proven(6, 0.25, 0.0).delta.high


@pytest.mark.parametrize("q", [Fraction(1, 100), Fraction(1, 4), Fraction(49, 100)])
def test_no_estimate_is_lower_than_its_bias_says(q: Fraction):
    """The mean estimate of each bit of each original in exact fractions; the truth is the bit."""
    closest = 0.0
    for bits, ones in ((2, 1), (2, 2), (4, 1), (4, 4)):
        originals = [x for x in range(2**bits) if x.bit_count() <= ones]
        for weight in range(1, bits):
            said = Overflow(bits, ones, weight).bias(1, float(q))
            for original, place in itertools.product(originals, range(bits)):
                law = oracle.truncated(original, bits, q, weight)
                sent = sum(w for one, w in law.items() if one >> oracle.DIGIT * place & 1)
                mean = Fraction(sent, sum(law.values()))
                low = float((original >> place & 1) - (mean - q) / (1 - 2 * q))
                assert -1e-12 <= low <= said
                closest = max(closest, low / said)
    assert closest >= 0.49  # two set bits, of which one is dropped


def test_at_a_coin_toss_no_bias_is_stated():
    bound = certify(FIVE, q="0.5", crowd_size=9, view="counts", max_weight=2)
    dropped = bound.to_json(epsilon=1.0)["dropped"]
    assert dropped["bias"] is None  # nothing is estimated
    assert dropped["chance_of_more"] >= 0.5
    assert any("which is paid for in delta." in one for one in bound.assumptions)


def with_weight(agreed: Plan, max_weight: int) -> Plan:
    assert isinstance(agreed.parties, Aggregators)
    return replace(agreed, parties=replace(agreed.parties, max_weight=max_weight))


def price(agreed: Plan) -> float:
    """Return what a plan's weight costs, by the formula."""
    assert agreed.max_weight is not None
    chance = overflow_chance(agreed.bits, 1, agreed.max_weight, float(agreed.q))
    return (1 + math.exp(float(agreed.promise.epsilon))) * (agreed.crowd_size or 0) * chance


class TestPricePlanned:
    @pytest.mark.slow
    def test_q_is_hardly_larger_than_without_a_limit(self, sparse: Plan):
        whole = plan(ONE_OF_MANY, **WISH)
        assert float(whole.q) <= float(sparse.q) <= 1.005 * float(whole.q)

    @pytest.mark.slow
    def test_a_smaller_weight_needs_more_flips_until_none_are_enough(self, sparse: Plan):
        assert sparse.max_weight is not None
        tight = plan(ONE_OF_MANY, **WISH, **DAP, max_weight=sparse.max_weight - 1)
        assert tight.q.fraction > sparse.q.fraction
        assert compute_promise(tight).holds
        with pytest.raises(
            PrivacyRefusal, match=r"max_weight must be larger for reports of 60 bits, got"
        ):
            plan(ONE_OF_MANY, **WISH, **DAP, max_weight=2)

    @pytest.mark.slow
    @pytest.mark.parametrize("unknown", ["epsilon", "delta", "crowd_size"])
    def test_the_unknown_pays_the_price_too(self, unknown: str):
        wish = {name: value for name, value in WISH.items() if name != unknown}
        agreed = plan(ONE_OF_MANY, q="0.012", **wish, **DAP)
        assert compute_promise(agreed).holds
        assert not compute_promise(with_weight(agreed, 1)).holds


class TestPrice:
    def test_the_price_is_added_for_every_release(self):
        epsilon, q, overflow = 0.5, 0.01, Overflow.of(ONE_OF_MANY, 8)
        for releases in (1, 3):
            whole = bound_of(ONE_OF_MANY, "counts", releases=releases)
            cut = bound_of(ONE_OF_MANY, "counts", releases=releases, overflow=overflow)
            low = whole.proven(1000, q, epsilon).delta.high
            paid = (1 + math.exp(0.5)) * 1000 * releases * overflow.chance(q)
            assert 1e-9 < paid < low
            said = cut.proven(1000, q, epsilon).delta.high
            assert said - low == pytest.approx(paid, rel=1e-6)

    def test_a_local_epsilon_costs_nothing(self):
        certificate = certify(ONE_OF_MANY, q="0.01", crowd_size=50, view="counts", max_weight=1)
        local = certificate.local_epsilon * (1 + 1e-9)
        assert certificate.delta(epsilon=local).high == 0.0
        assert certificate.delta(epsilon=0.99 * local).high == 1.0
        assert certificate.epsilon(delta=1e-6) == pytest.approx(local)

    def test_delta_and_epsilon_invert_each_other(self, sparse: Plan):
        certificate = certify(sparse)
        epsilon = certificate.epsilon(delta=1e-5)
        assert certificate.delta(epsilon=epsilon).high <= 1e-5
        assert certificate.delta(epsilon=epsilon * 0.9999).high > 0.9e-5
        assert epsilon <= 1.0

    def test_the_attack_pays_too(self, sparse: Plan):
        whole = certify(sparse.survey, q=sparse.q, crowd_size=2000, view="counts")
        attack, paid = certify(sparse).attack(1.0), price(sparse)
        assert attack.delta.low <= whole.attack(1.0).delta.low - 0.99 * paid

    def test_releases_compose_with_their_prices(self, sparse: Plan):
        whole = certify(sparse.survey, q=sparse.q, crowd_size=2000, view="counts").compose(4)
        cut = certify(sparse).compose(4)
        at = 2.0
        paid = 4 * (1 + math.exp(at)) * 2000 * certify(sparse).overflow.chance(float(sparse.q))  # type: ignore[union-attr]
        assert cut.delta(epsilon=at) >= whole.delta(epsilon=at) + 0.9 * paid
        assert cut.epsilon(delta=1e-5) > whole.epsilon(delta=1e-5)


@pytest.mark.slow
class TestMemory:
    def test_every_report_that_may_overflow_is_paid_for(self):
        wish = {name: value for name, value in WISH.items() if name != "window"}
        agreed = plan_with_memory(ONE_OF_MANY, **wish, **DAP, horizon="weekly for 18 weeks")
        assert agreed.max_weight is not None
        assert agreed.max_weight < 60
        assert compute_promise(agreed).holds
        tight = {one.holds_for: one for one in guarantees_over_time(agreed, 20)}
        loose = replace(agreed, parties=None)
        whole = {one.holds_for: one for one in guarantees_over_time(loose, 20)}
        for name in ("one release", "same crowd, every release"):
            assert tight[name].epsilon >= whole[name].epsilon
        same = tight["same crowd, every release"]
        assert "20 of them" in same.words
        assert "however many" in whole["same crowd, every release"].words
        # the proven epsilon of the permanent flips leaves room for the drops of all 20 releases
        overflow = overflow_of(agreed)
        assert overflow is not None
        assert agreed.memory is not None
        chance = overflow.chance(float(agreed.q))
        paid = (1 + math.exp(same.epsilon)) * 20 * 2000 * chance
        base = certify(ONE_OF_MANY, q=agreed.memory.q1, crowd_size=2000, view="counts")
        assert base.delta(epsilon=same.epsilon).high + paid <= 1e-5 * (1 + 1e-6)


class TestScreening:
    def test_a_fake_sets_no_more_bits_than_the_proof_allows(self, sparse: Plan):
        """With a small weight it takes more fakes to explain that too many bits are set."""
        ones = [2000 // 6] * 60  # ten bits a report, where an honest one sets about 1.6
        found, alone = (
            screen(one, _tally(one, ones)) for one in (sparse, replace(sparse, parties=None))
        )
        assert found.suspicious
        assert alone.suspicious
        assert found.smallest_share_of_fakes > alone.smallest_share_of_fakes > 0
        # No share of fakes below this makes up the total: each sets max_weight bits at most.
        assert sparse.max_weight is not None
        honest = 1 - float(sparse.q) + 59 * float(sparse.q)
        needed = (sum(ones) / 2000 - honest) / (sparse.max_weight - honest)
        assert found.smallest_share_of_fakes <= needed * 1.02

    def test_it_allows_for_what_is_dropped(self, sparse: Plan):
        """No p-value is below the probability that an honest crowd drops bits at all."""
        assert sparse.max_weight is not None
        dropped = 2000 * overflow_chance(60, 1, sparse.max_weight, float(sparse.q))
        found = [
            screen(one, _tally(one, [2000, *[0] * 59]))
            for one in (sparse, replace(sparse, parties=None))
        ]
        assert found[1].p_value < 1e-29
        assert found[0].p_value >= dropped > 1e-15


def _tally(agreed: Plan, ones: list[int]) -> Tally:
    crowds = (Crowd(2000, "one"),)
    return Tally(
        agreed.id, 2000, np.array(ones, np.int64), None, None, {}, False, None, crowds, None
    )


class TestPriceDiff:
    def test_steps(self, sparse: Plan):
        alone = replace(sparse, parties=None)
        assert plan_diff(sparse, alone).kind == "forbidden"
        assert "One collector sees" in plan_diff(sparse, alone).reasons[0]
        step = plan_diff(alone, sparse)  # reports that do not fit cost a little delta
        assert (step.kind, step.reasons[0].split(" to its")[0]) == (
            "forbidden",
            "One release reveals epsilon 0.9987 instead of 0.9985",
        )
        assert plan_diff(alone, sparse, accept_weak_promise=True).kind == "new plan"
        step = plan_diff(sparse, with_weight(sparse, 60))
        assert step.kind == "new plan"
        assert step.reasons[0].startswith("A report has max_weight 60 instead of")
