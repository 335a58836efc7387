"""Plans with a leader and a helper: the weight of a report, who sees what, what fakes can do."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from shoal import Choice, Flags, Plan, PrivacyRefusal, Survey, plan
from shoal.device.encode import SyntheticVector
from shoal.device.encryption import check_parties
from shoal.device.randomize import fit_to_weight
from shoal.errors import InputError, PlanError
from shoal.planning.bounds import CountsBound, Overflow, other_view
from shoal.planning.certificate import certify, check_promise
from shoal.planning.memory import plan_with_memory
from shoal.planning.plan_diff import plan_diff
from shoal.planning.threats import observers, poisoning
from shoal.protocol.plan import EXPERIMENTAL, Aggregators
from shoal.theory.binomial import overflow_chance, truncation_price

DAP: dict[str, Any] = {"leader": "https://leader.example", "helper": "https://helper.example"}
TWO: dict[str, Any] = {"relay": "https://relay.example", "analyzer": "https://analyzer.example"}
FIVE = Survey("flags", (Flags("f", tuple("abcde")),))
ONE_OF_MANY = Survey("choice", (Choice("c", tuple(f"option {j}" for j in range(60))),))
WISH: dict[str, Any] = {
    "crowd_size": 2000, "epsilon": 1, "delta": "1e-5", "view": "counts", "window": 604_800
}  # fmt: skip

Counts = dict[tuple[int, ...], Fraction]


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
        dropped, q = document["dropped"], float(sparse.q)
        assert dropped["max_weight"] == sparse.max_weight
        chance = overflow_chance(60, 1, dropped["max_weight"], q)
        assert dropped["price"] >= truncation_price(chance, 2000, 1.0) * (1 - 1e-9)
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


def _report(original: tuple[int, ...], q: Fraction, weight: int) -> Counts:
    """Return the distribution of a report: flips, then a random excess is dropped."""
    law: Counts = defaultdict(Fraction)
    for flips in itertools.product((0, 1), repeat=len(original)):
        flipped = tuple(bit ^ flip for bit, flip in zip(original, flips, strict=True))
        chance = math.prod((q if flip else 1 - q for flip in flips), start=Fraction(1))
        ones = [j for j, bit in enumerate(flipped) if bit]
        kept = list(itertools.combinations(ones, min(weight, len(ones))))
        for some in kept:
            law[tuple(int(j in some) for j in range(len(original)))] += chance / len(kept)
    return law


def _counts(laws: Iterable[Counts], bits: int) -> Counts:
    total: Counts = {(0,) * bits: Fraction(1)}
    for law in laws:
        more: Counts = defaultdict(Fraction)
        for (sums, one), (vector, other) in itertools.product(total.items(), law.items()):
            more[tuple(a + b for a, b in zip(sums, vector, strict=True))] += one * other
        total = more
    return total


def _delta(first: Counts, second: Counts, lam: Fraction) -> Fraction:
    gaps = (p - lam * second.get(s, Fraction(0)) for s, p in first.items())
    return sum((gap for gap in gaps if gap > 0), Fraction(0))


@pytest.mark.parametrize(
    ("bits", "ones", "people"),
    [
        (2, 2, 1),
        (2, 1, 3),
        (3, 1, 1),
        pytest.param(3, 1, 3, marks=pytest.mark.slow),
        pytest.param(3, 2, 2, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("q", [Fraction(1, 100), Fraction(1, 4), Fraction(1, 2)])
def test_dropping_costs_no_more_than_its_price(bits: int, ones: int, people: int, q: Fraction):
    """Try every crowd and pair of originals of a small world, in exact fractions.

    Among them are the ends: one person, q = 1/2, a weight of 1, lam = 1 and one no loss exceeds.
    """
    originals = [x for x in itertools.product((0, 1), repeat=bits) if sum(x) <= ones]
    differing, whole = min(2 * ones, bits), {x: _report(x, q, bits) for x in originals}
    ratios = [Fraction(1), Fraction(11, 10), Fraction(3), ((1 - q) / q) ** differing]
    for weight in range(1, bits + 1):
        sent = {x: _report(x, q, weight) for x in originals}
        # the worst original's
        overflow = max(sum(p for v, p in whole[x].items() if sum(v) > weight) for x in originals)
        bound = CountsBound(differing, overflow=Overflow(bits, ones, weight))
        said = [
            bound.proven(people, float(q), math.nextafter(math.log(lam), 0.0)).delta.high
            for lam in ratios
        ]
        for others in itertools.combinations_with_replacement(originals, people - 1):
            ends = {
                x: [_counts([laws[y] for y in (*others, x)], bits) for laws in (sent, whole)]
                for x in originals
            }
            for x, y in itertools.permutations(originals, 2):
                for lam, high in zip(ratios, said, strict=True):
                    truth, undropped = (_delta(ends[x][i], ends[y][i], lam) for i in (0, 1))
                    assert truth <= undropped + (1 + lam) * people * overflow
                    assert truth <= high * (1 + 1e-9) + 1e-12


def test_without_its_price_the_bound_would_be_false():
    """Six people, two flags, weight 1: one who drops a bit reveals that the other was set."""
    q = Fraction(1, 4)
    others = [_report((1, 1), q, 1)] * 5
    ends = [_counts([*others, _report(x, q, 1)], 2) for x in ((0, 0), (1, 1))]
    truth = float(_delta(ends[0], ends[1], Fraction(1)))
    free = CountsBound(2).proven(6, 0.25, 0.0).delta.high
    assert truth > 1.2 * free
    assert truth <= CountsBound(2, overflow=Overflow(2, 2, 1)).proven(6, 0.25, 0.0).delta.high


@pytest.mark.parametrize("q", [Fraction(1, 100), Fraction(1, 4), Fraction(49, 100)])
def test_no_estimate_is_lower_than_its_bias_says(q: Fraction):
    """The mean estimate of each bit of each original in exact fractions; the truth is the bit."""
    closest = 0.0
    for bits, ones in ((2, 1), (2, 2), (4, 1), (4, 4)):
        originals = [x for x in itertools.product((0, 1), repeat=bits) if sum(x) <= ones]
        for weight in range(1, bits):
            said = Overflow(bits, ones, weight).bias(1, float(q))
            for original in originals:
                law = _report(original, q, weight)
                for place, truth in enumerate(original):
                    mean = sum((p for sent, p in law.items() if sent[place]), Fraction(0))
                    low = float(truth - (mean - q) / (1 - 2 * q))
                    assert -1e-12 <= low <= said
                    closest = max(closest, low / said)
    assert closest >= 0.49  # two set bits, of which one is dropped


def test_at_a_coin_toss_no_bias_is_stated():
    bound = certify(FIVE, q="0.5", crowd_size=9, view="counts", max_weight=2)
    dropped = bound.to_json(epsilon=1.0)["dropped"]
    assert dropped["bias"] is None  # nothing is estimated
    assert dropped["chance_of_more"] >= 0.5
    assert any("which is paid for in delta." in one for one in bound.assumptions)
