"""Plans with a relay and an analyzer: their view, and who sees what."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shoal import Flags, Plan, Survey, plan
from shoal.errors import InputError, PlanError
from shoal.planning.bounds import other_view
from shoal.planning.certificate import certify, compute_promise
from shoal.planning.memory import plan_with_memory
from shoal.planning.plan_diff import plan_diff
from shoal.planning.threats import observers
from shoal.protocol.plan import ONE_OPERATOR, RELAY_SHOWS_REPORTS, Aggregators, Parties

TWO: dict[str, Any] = {"relay": "https://relay.example", "analyzer": "https://analyzer.example"}
FLAGS = Survey("flags", (Flags("f", ("a", "b")),))
WISH: dict[str, Any] = {"crowd_size": 2000, "epsilon": 1, "delta": "1e-5"}


@pytest.fixture(scope="module")
def relayed() -> Plan:
    return plan(FLAGS, **WISH, **TWO)


class TestPlanning:
    def test_the_view_is_reports(self, relayed: Plan):
        assert relayed.view == "reports"
        assert relayed.q == plan(FLAGS, **WISH).q
        assert relayed.max_weight is None
        assert other_view(relayed) is None
        assert relayed.to_json()["parties"] == {**TWO, "one_operator": False}

    def test_counts_are_refused_with_the_way_out(self, relayed: Plan):
        said = RELAY_SHOWS_REPORTS
        assert "must be reports" in said
        assert "name a leader and a helper" in said
        for make in (
            lambda: plan(FLAGS, **WISH, **TWO, view="counts"),
            lambda: plan_with_memory(FLAGS, **WISH, **TWO, view="counts", releases=3),
        ):
            with pytest.raises(InputError) as refused:
                make()
            assert str(refused.value) == said
        counts = plan(FLAGS, **WISH, view="counts")
        with pytest.raises(PlanError) as broken:
            replace(counts, parties=relayed.parties)
        assert str(broken.value) == said
        document = counts.to_json() | {"parties": relayed.to_json()["parties"]}
        with pytest.raises(PlanError, match="view must be reports"):
            Plan.from_json(document)

    @pytest.mark.parametrize(
        ("words", "sentence"),
        [
            ({"relay": "https://relay.example"}, "analyzer= is missing"),
            ({"analyzer": "https://analyzer.example"}, "relay= is missing"),
            ({**TWO, "max_weight": 3}, "max_weight= needs leader= and helper="),
        ],
    )
    def test_bad_wishes(self, words: dict[str, Any], sentence: str):
        with pytest.raises(InputError, match=sentence):
            plan(FLAGS, **WISH | words)


class TestObservers:
    def test_who_sees_what(self, relayed: Plan):
        certificate = certify(relayed)
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
        two = certify(FLAGS, q="0.2", crowd_size=2000, view="counts")
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

    def test_parties_on_one_host_have_one_operator_whatever_a_plan_says(self, relayed: Plan):
        assert isinstance(relayed.parties, Parties)
        shared = replace(relayed.parties, analyzer=f"{relayed.parties.relay}:8443")
        local = replace(relayed, parties=shared)
        assert compute_promise(local).in_words.endswith(ONE_OPERATOR)
        document = local.to_json()
        document["parties"]["one_operator"] = False
        with pytest.raises(PlanError, match=r"parties.one_operator must be True"):
            Plan.from_json(document)
        assert plan_diff(relayed, local).kind == "forbidden"
        assert plan_diff(local, relayed).kind == "new plan"

    def test_a_crowd_of_one_hides_nobody_from_fakes(self):
        certificate = replace(certify(FLAGS, q="0.2", crowd_size=1), parties=Parties(**TWO))
        fakes = observers(certificate, 1.0)[2]
        assert (fakes.who, fakes.holds) == ("analyzer with fake devices", "local")

    def test_no_collector_is_assumed(self, relayed: Plan):
        document = certify(relayed).to_json(epsilon=1.0)
        assert document["dropped"] is None
        assert not any("collector" in one for one in document["assumptions"])


def test_diff(relayed: Plan):
    assert isinstance(relayed.parties, Parties)
    alone = replace(relayed, parties=None)
    assert plan_diff(relayed, alone).kind == "forbidden"
    assert "One collector sees" in plan_diff(relayed, alone).reasons[0]
    assert plan_diff(alone, relayed).kind == "new plan"
    other = replace(relayed, parties=replace(relayed.parties, relay="https://other.example"))
    assert plan_diff(relayed, other).reasons == ("Other parties relay and analyze the reports.",)
