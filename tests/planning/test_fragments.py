"""Plans with a relay and an analyzer: as how many messages a report is sent, and who sees what."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from shoal import Choice, Flags, Plan, PrivacyRefusal, Survey, Tally, plan
from shoal.analysis.crowds import Crowd
from shoal.analysis.screening import screen
from shoal.errors import InputError, PlanError
from shoal.planning.bounds import Overflow, bound_of, overflow_of
from shoal.planning.certificate import certify, check_promise, compute_promise
from shoal.planning.guarantees import guarantees_over_time
from shoal.planning.memory import plan_with_memory
from shoal.planning.plan_diff import plan_diff
from shoal.planning.threats import observers, poisoning
from shoal.protocol.plan import ONE_OPERATOR, Aggregators, Parties
from shoal.theory.binomial import overflow_chance

TWO: dict[str, Any] = {"relay": "https://relay.example", "analyzer": "https://analyzer.example"}
FIVE = Survey("flags", (Flags("f", tuple("abcde")),))
ONE_OF_MANY = Survey("choice", (Choice("c", tuple(f"option {j}" for j in range(60))),))
WISH: dict[str, Any] = {"crowd_size": 2000, "epsilon": 1, "delta": "1e-5", "view": "counts"}


@pytest.fixture(scope="module")
def sparse() -> Plan:
    return plan(ONE_OF_MANY, **WISH, **TWO)


def price(agreed: Plan, messages: int) -> float:
    """Return what so many messages cost, by the formula."""
    chance = overflow_chance(agreed.bits, 1, messages, float(agreed.q))
    return (1 + math.exp(float(agreed.promise.epsilon))) * (agreed.crowd_size or 0) * chance


class TestPlanning:
    def test_the_fewest_messages_within_a_hundredth_of_delta(self, sparse: Plan):
        assert isinstance(sparse.parties, Parties)
        messages = sparse.parties.messages
        assert price(sparse, messages) <= 1e-7 < price(sparse, messages - 1)
        assert compute_promise(sparse).holds

    @pytest.mark.slow
    def test_q_is_hardly_larger_than_without_a_relay(self, sparse: Plan):
        whole = plan(ONE_OF_MANY, **WISH)
        assert float(whole.q) <= float(sparse.q) <= 1.005 * float(whole.q)

    @pytest.mark.slow
    def test_fewer_messages_need_more_flips_until_none_are_enough(self, sparse: Plan):
        assert isinstance(sparse.parties, Parties)
        fewer = sparse.parties.messages - 1
        tight = plan(ONE_OF_MANY, **WISH, **TWO, messages=fewer)
        assert tight.q.fraction > sparse.q.fraction
        assert compute_promise(tight).holds
        with pytest.raises(
            PrivacyRefusal, match=r"messages must be larger for reports of 60 bits, got"
        ):
            plan(ONE_OF_MANY, **WISH, **TWO, messages=2)

    @pytest.mark.slow
    @pytest.mark.parametrize("unknown", ["epsilon", "delta", "crowd_size"])
    def test_the_unknown_pays_the_price_too(self, sparse: Plan, unknown: str):
        wish = {name: value for name, value in WISH.items() if name != unknown}
        agreed = plan(ONE_OF_MANY, q="0.012", **wish, **TWO)
        assert isinstance(agreed.parties, Parties)
        assert compute_promise(agreed).holds
        fewer = replace(agreed, parties=replace(agreed.parties, messages=1))
        assert not compute_promise(fewer).holds

    def test_too_few_messages_break_the_promise(self, sparse: Plan):
        assert isinstance(sparse.parties, Parties)
        broken = replace(sparse, parties=replace(sparse.parties, messages=2))
        with pytest.raises(PrivacyRefusal, match="with 2 messages, delta is"):
            check_promise(broken)
        with pytest.raises(PrivacyRefusal, match=r"with 2 messages,.*with \d+ messages"):
            plan(ONE_OF_MANY, q=sparse.q, **WISH, **TWO, messages=2)

    @pytest.mark.parametrize(
        ("words", "sentence"),
        [
            ({"relay": "https://relay.example"}, "analyzer= is missing"),
            ({"analyzer": "https://analyzer.example"}, "relay= is missing"),
            ({"messages": 3}, "messages= needs relay="),
            ({**TWO, "messages": 0}, "messages"),
            ({**TWO, "messages": 6}, "messages"),
            ({**TWO, "messages": 1, "view": "reports"}, "one message"),
        ],
    )
    def test_bad_wishes(self, words: dict[str, Any], sentence: str):
        with pytest.raises(InputError, match=sentence):
            plan(FIVE, **WISH | words)


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
        certificate = certify(ONE_OF_MANY, q="0.01", crowd_size=50, view="counts", messages=1)
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
        assert isinstance(sparse.parties, Parties)
        certificate, at = certify(sparse), 1.0
        whole = certify(sparse.survey, q=sparse.q, crowd_size=2000, view="counts")
        paid = price(sparse, sparse.parties.messages)
        assert certificate.attack(at).delta.low <= whole.attack(at).delta.low - 0.99 * paid

    def test_releases_compose_with_their_prices(self, sparse: Plan):
        assert isinstance(sparse.parties, Parties)
        whole = certify(sparse.survey, q=sparse.q, crowd_size=2000, view="counts").compose(4)
        cut = certify(sparse).compose(4)
        at = 2.0
        paid = 4 * (1 + math.exp(at)) * 2000 * certify(sparse).overflow.chance(float(sparse.q))  # type: ignore[union-attr]
        assert cut.delta(epsilon=at) >= whole.delta(epsilon=at) + 0.9 * paid
        assert cut.epsilon(delta=1e-5) > whole.epsilon(delta=1e-5)

    def test_only_counts_are_cut(self):
        with pytest.raises(InputError, match="sent in pieces"):
            certify(FIVE, q="0.2", crowd_size=100, messages=2)


@pytest.mark.slow
class TestMemory:
    def test_every_report_that_may_overflow_is_paid_for(self):
        wish = WISH | {"releases": 20}
        agreed = plan_with_memory(ONE_OF_MANY, **wish, **TWO)
        assert isinstance(agreed.parties, Parties)
        assert agreed.parties.messages < 60
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


class TestObservers:
    @pytest.mark.slow
    @pytest.mark.parametrize("view", ["counts", "reports"])
    def test_who_sees_what(self, view: Any):
        agreed = plan(FIVE, **WISH | {"view": view}, **TWO)
        certificate = certify(agreed)
        table = {one.who: one for one in observers(certificate, 1.0)}
        assert list(table) == [
            "reader of a release",
            "analyzer",
            "analyzer with fake devices",
            "relay",
            "relay with fake reports",
            "relay and analyzer together",
            "network observer",
        ]
        proven = certificate.delta(epsilon=1.0).high
        assert (table["analyzer"].delta, table["analyzer"].holds) == (proven, "theorem")
        fakes = table["analyzer with fake devices"]
        assert fakes.delta == certificate.with_colluders(20).delta(epsilon=1.0).high > proven
        for who in ("relay with fake reports", "relay and analyzer together"):
            assert table[who].holds == "local"
            assert table[who].epsilon >= certificate.local_epsilon
        for who in ("relay", "network observer"):
            assert (table[who].epsilon, table[who].holds) == (0.0, "encrypted")
            assert "HPKE is not broken" in table[who].assumption
        assert "Times are not hidden" in table["network observer"].assumption

    @pytest.mark.parametrize("kind", [Parties, Aggregators])
    def test_one_operator_of_both_is_promised_only_the_local_epsilon(self, kind: Any):
        two = certify(FIVE, q="0.2", crowd_size=2000, view="counts")
        parties = kind("https://a.example", "https://b.example", one_operator=True)
        one, both = replace(two, parties=parties), " and ".join(parties.origins)
        table = {row.who: row for row in observers(one, 1.0)}
        assert list(table) == [
            "reader of a release",
            f"operator of {both}",
            "network observer",
        ]
        operator = table[f"operator of {both}"]
        assert (operator.holds, operator.delta) == ("local", 0.0)
        assert operator.epsilon >= one.local_epsilon > 1.0
        assert operator.assumption.startswith("One operator: local epsilon only.")
        document = one.to_json(epsilon=1.0)
        assert document["warnings"][0].startswith(ONE_OPERATOR)
        assert not any("do not share what they see" in words for words in document["assumptions"])

    def test_parties_on_one_host_have_one_operator_whatever_a_plan_says(self, sparse: Plan):
        assert isinstance(sparse.parties, Parties)
        shared = replace(sparse.parties, analyzer=f"{sparse.parties.relay}:8443")
        local = replace(sparse, parties=shared)
        assert compute_promise(local).in_words.endswith(ONE_OPERATOR)
        document = local.to_json()
        document["parties"]["one_operator"] = False
        with pytest.raises(PlanError, match=r"parties.one_operator must be True"):
            Plan.from_json(document)
        assert plan_diff(sparse, local).kind == "forbidden"
        assert plan_diff(local, sparse).kind == "new plan"

    def test_a_crowd_of_one_hides_nobody_from_fakes(self):
        certificate = replace(certify(FIVE, q="0.2", crowd_size=1), parties=Parties(**TWO))
        fakes = observers(certificate, 1.0)[2]
        assert (fakes.who, fakes.holds) == ("analyzer with fake devices", "local")

    def test_the_certificate_names_the_price(self, sparse: Plan):
        assert isinstance(sparse.parties, Parties)
        document = certify(sparse).to_json(epsilon=1.0)
        assert document["parties"] == sparse.parties.to_json()
        pieces = document["pieces"]
        assert pieces["messages"] == sparse.parties.messages
        assert pieces["price"] >= price(sparse, sparse.parties.messages) * (1 - 1e-9)
        assert pieces["bias"] >= 2000 * pieces["chance_of_more"] * 0.99
        assert any("paid for in delta" in one for one in document["assumptions"])
        assert not any("collector" in one for one in document["assumptions"])


class TestFakes:
    def test_one_position_many_times(self, sparse: Plan):
        assert isinstance(sparse.parties, Parties)
        messages, q = sparse.parties.messages, float(sparse.q)
        can = poisoning(sparse)
        assert can.up == pytest.approx((messages - q) / (1 - 2 * q))
        assert can.down == pytest.approx(-q / (1 - 2 * q))
        assert certify(sparse).shift_of_a_fake == can.up
        assert f"all of its {messages} messages on that option" in can.sentences[0]
        assert can.to_json()["messages"] == messages
        for truth in (0.0, 0.3, 1.0):
            for sent in (can.up, can.down):
                assert abs(0.9 * truth + 0.1 * sent - truth) <= can.shift(0.1) + 1e-12

    def test_screening_counts_devices_not_messages(self):
        agreed = plan(FIVE, **WISH, **TWO)
        whole = replace(agreed, parties=None)
        found, alone = (
            screen(one, _tally(one, [2000, 900, 900, 900, 900])) for one in (agreed, whole)
        )
        assert found.suspicious
        assert alone.suspicious
        assert 0 < found.smallest_share_of_fakes < alone.smallest_share_of_fakes
        assert any("on one option" in one for one in found.findings)
        assert not any("on one option" in one for one in alone.findings)

    def test_screening_allows_for_what_is_dropped(self, sparse: Plan):
        """No p-value is below the probability that an honest crowd drops bits at all."""
        assert isinstance(sparse.parties, Parties)
        dropped = 2000 * overflow_chance(60, 1, sparse.parties.messages, float(sparse.q))
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
        assert isinstance(sparse.parties, Parties)
        alone = replace(sparse, parties=None)
        assert plan_diff(sparse, alone).kind == "forbidden"
        assert "One collector sees" in plan_diff(sparse, alone).reasons[0]
        step = plan_diff(alone, sparse)  # reports that do not fit cost a little delta
        assert (step.kind, step.reasons[0].split(" to its")[0]) == (
            "forbidden",
            "One release reveals epsilon 0.9987 instead of 0.9985",
        )
        assert plan_diff(alone, sparse, accept_weak_promise=True).kind == "new plan"
        other = replace(sparse, parties=replace(sparse.parties, relay="https://other.example"))
        assert plan_diff(sparse, other).reasons == ("Other parties relay and analyze the reports.",)
        more = replace(sparse, parties=replace(sparse.parties, messages=60))
        step = plan_diff(sparse, more)
        assert step.kind == "new plan"
        assert step.reasons[0].startswith("A report is sent as 60 messages instead of")
