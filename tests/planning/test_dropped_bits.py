"""Plans with a leader and a helper: the price of set bits that a report has no room for."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from shoal import Choice, Flags, Plan, PrivacyRefusal, Survey, Tally, plan
from shoal.analysis.crowds import Crowd
from shoal.analysis.screening import screen
from shoal.errors import InputError
from shoal.planning.bounds import Overflow, bound_of, overflow_of
from shoal.planning.certificate import certify, compute_promise
from shoal.planning.guarantees import guarantees_over_time
from shoal.planning.memory import plan_with_memory
from shoal.planning.plan_diff import plan_diff
from shoal.protocol.plan import Aggregators
from shoal.theory.binomial import overflow_chance

DAP: dict[str, Any] = {"leader": "https://leader.example", "helper": "https://helper.example"}
FIVE = Survey("flags", (Flags("f", tuple("abcde")),))
ONE_OF_MANY = Survey("choice", (Choice("c", tuple(f"option {j}" for j in range(60))),))
WISH: dict[str, Any] = {
    "crowd_size": 2000, "epsilon": 1, "delta": "1e-5", "view": "counts", "window": 604_800
}  # fmt: skip


@pytest.fixture(scope="module")
def sparse() -> Plan:
    return plan(ONE_OF_MANY, **WISH, **DAP)


def with_weight(agreed: Plan, max_weight: int) -> Plan:
    assert isinstance(agreed.parties, Aggregators)
    return replace(agreed, parties=replace(agreed.parties, max_weight=max_weight))


def price(agreed: Plan) -> float:
    """Return what a plan's weight costs, by the formula."""
    assert agreed.max_weight is not None
    chance = overflow_chance(agreed.bits, 1, agreed.max_weight, float(agreed.q))
    return (1 + math.exp(float(agreed.promise.epsilon))) * (agreed.crowd_size or 0) * chance


class TestPlanning:
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


class TestBound:
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

    def test_only_counts_have_a_weight(self):
        with pytest.raises(InputError, match="have a max_weight"):
            certify(FIVE, q="0.2", crowd_size=100, max_weight=2)

    def test_the_certificate_names_the_price(self, sparse: Plan):
        document = certify(sparse).to_json(epsilon=1.0)
        dropped = document["dropped"]
        assert dropped["max_weight"] == sparse.max_weight
        assert dropped["price"] >= price(sparse) * (1 - 1e-9)
        assert dropped["bias"] >= 2000 * dropped["chance_of_more"] * 0.99
        assert any("paid for in delta" in one for one in document["assumptions"])


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


class TestDiff:
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
