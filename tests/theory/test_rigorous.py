"""The usual engine against the evaluation in ball arithmetic, which shares no code with it."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations_with_replacement, pairwise, product
from random import Random
from typing import Any, NamedTuple

import pytest
from flint import arb

from shoal.planning.bounds import CountsBound, Overflow
from shoal.planning.share_noise import NoiseBound
from shoal.protocol.plan import Aggregators, ShareNoise
from shoal.theory import adapted_search
from shoal.theory.brackets import Bracket
from shoal.theory.domains import Block, Domain, at_most, choice, differing_bits, flags
from shoal.theory.proven import Proven, proven_delta
from shoal.theory.randomized_response import local_epsilon
from shoal.theory.rigorous import NotCoveredError, rigorous_delta, verifier
from tests.theory.oracle import count_law, histogram_pair, hockey_stick

PLANS = 1000
ONE_BLANKET = 1.1e-4
"""Where a coarser bracket will do, the usual engine takes a single blanket, as the rigorous one."""
ABOVE = 1e-4
"""The rigorous high end is at most so much above the usual one, in parts of delta."""


class Case(NamedTuple):
    """A plan as the theory sees it, and delta by the usual engine."""

    domain: Domain
    view: str
    q: float
    crowd: int
    epsilon: float
    usual: Proven

    @property
    def claim(self) -> dict[str, Any]:
        local = local_epsilon(differing_bits(self.domain), self.q) * (1.0 + 1e-12)
        return {
            "view": self.view,
            "parties": None,
            "dropped": None,
            "domain": [list(block) for block in self.domain],
            "q": self.q,
            "crowd_size": self.crowd,
            "relies_on": self.crowd,
            "reports_per_person": 1,
            "releases": 1,
            "cohorts": 1,
            "epsilon": self.epsilon,
            "delta": self.usual.delta.high,
            "proven": {"method": self.usual.method},
            "local": {"epsilon": local},
        }


def case_of(domain: Domain, view: str, q: float, crowd: int, epsilon: float) -> Case:
    if view == "reports":
        usual = proven_delta(domain, crowd, q, epsilon, ONE_BLANKET)
    else:
        usual = CountsBound(differing_bits(domain)).proven(crowd, q, epsilon)
    return Case(domain, view, q, crowd, epsilon, usual)


def random_domain(draw: Random) -> Domain:
    def block() -> Block:
        kind = draw.choice("fffcca")
        if kind == "f":
            return flags(draw.randint(1, 8))
        if kind == "c":
            return choice(draw.randint(2, 30))
        return at_most(draw.randint(1, 2), draw.randint(2, 8))

    return tuple(block() for _ in range(draw.choice((1, 1, 1, 2, 3))))


def random_case(number: int) -> Case:
    """Return a plan whose delta says something; two in ten show counts."""
    draw = Random(f"rigorous {number}")
    view = "counts" if number % 10 in (3, 7) else "reports"
    domain = random_domain(draw) if view == "reports" else (flags(draw.randint(1, 6)),)
    crowd = round(2 ** draw.uniform(1, 13 if view == "reports" else 7))
    q = round(draw.uniform(0.02, 0.48), draw.choice((2, 4, 9)))
    epsilon = local_epsilon(differing_bits(domain), q) * draw.uniform(0.02, 0.9)
    while (case := case_of(domain, view, q, crowd, epsilon)).usual.delta.high < 1e-12:
        epsilon *= 0.7
    return case


def compare(case: Case) -> None:
    """Both brackets hold the same number; only whole reports have low ends."""
    rigorous, usual = rigorous_delta(case.claim), case.usual.delta
    assert usual.high >= rigorous.low, case
    assert rigorous.high >= usual.low, case
    assert rigorous.high <= usual.high * (1.0 + ABOVE), case


class TestRandomPlans:
    def test_every_51st_of_them(self):
        cases = [random_case(number) for number in range(3, PLANS, 51)]
        assert {case.view for case in cases} == {"reports", "counts"}
        for case in cases:
            compare(case)

    @pytest.mark.slow
    @pytest.mark.parametrize("tenth", range(10))
    def test_all_of_them(self, tenth: int):
        numbers = range(tenth * PLANS // 10, (tenth + 1) * PLANS // 10)
        for number in numbers:
            compare(random_case(number))


class TestTruth:
    """Delta of every crowd, in fractions: no bound may be below it."""

    @pytest.mark.parametrize("crowd", [1, 2, 3, 5])
    @pytest.mark.parametrize("q", ["0.1", "0.25", "0.4"])
    def test_one_bit_is_exact(self, crowd: int, q: str):
        case = case_of((flags(1),), "reports", float(q), crowd, 0.3)
        lam = Fraction(math.exp(0.3))
        laws = [count_law(ones, crowd - ones, Fraction(q)) for ones in range(crowd + 1)]
        pairs = [*pairwise(laws), *pairwise(laws[::-1])]
        truth = float(max(hockey_stick(one, other, lam) for one, other in pairs))
        assert truth * (1 - 1e-12) <= rigorous_delta(case.claim).high <= truth * (1 + 2e-4)

    @pytest.mark.parametrize("crowd", [2, 3])
    def test_two_flags_are_covered(self, crowd: int):
        q, lam = Fraction(1, 5), Fraction(math.exp(0.5))
        case = case_of((flags(2),), "reports", 0.2, crowd, 0.5)
        answers = list(product((0, 1), repeat=2))
        truth = max(
            hockey_stick(*histogram_pair(others, x, other, q), lam)
            for others in combinations_with_replacement(answers, crowd - 1)
            for x, other in product(answers, repeat=2)
        )
        assert rigorous_delta(case.claim).high >= float(truth) * (1 - 1e-12)


class TestEdges:
    @pytest.mark.parametrize("view", ["reports", "counts"])
    @pytest.mark.parametrize("crowd", [1, 2, 40])
    @pytest.mark.parametrize(
        "domain",
        [
            (flags(1),),
            (choice(3),),
            pytest.param((flags(2), at_most(1, 3)), marks=pytest.mark.slow),
        ],
    )
    @pytest.mark.parametrize("epsilon", [0.0, 0.4])
    def test_small_crowds_and_epsilon_zero(
        self, domain: Domain, view: str, crowd: int, epsilon: float
    ):
        compare(case_of(domain, view, 0.2, crowd, epsilon))

    @pytest.mark.parametrize("view", ["reports", "counts"])
    def test_without_any_signal(self, view: str):
        case = case_of((flags(3),), view, 0.5, 10, 0.0)
        assert case.usual.delta.high == 0.0
        assert rigorous_delta(case.claim) == Bracket(0.0, 0.0)

    @pytest.mark.parametrize("view", ["reports", "counts"])
    def test_from_the_local_epsilon_on_delta_is_0(self, view: str):
        epsilon = local_epsilon(3, 0.2) * (1 + 1e-12)
        assert rigorous_delta(case_of((flags(3),), view, 0.2, 10, epsilon).claim).high == 0.0

    @pytest.mark.parametrize("domain", [(Block(4, 0, 0),), (Block(2, 2, 2), Block(3, 3, 3))])
    def test_bits_that_are_the_same_in_all_answers_reveal_nothing(self, domain: Domain):
        case = case_of((flags(1),), "reports", 0.2, 10, 0.1)
        claim = {**case.claim, "domain": [list(block) for block in domain]}
        assert rigorous_delta(claim) == Bracket(0.0, 0.0)
        both = {**case.claim, "domain": [[1, 0, 1], *claim["domain"]]}
        assert rigorous_delta(both) == rigorous_delta(case.claim)

    @pytest.mark.parametrize(
        "changes",
        [
            {"dropped": {"max_weight": 2}},
            {
                "parties": {
                    "leader": "",
                    "helper": "",
                    "noise": {"kind": "gaussian", "scale": "9e4"},
                }
            },
            {"proven": {"method": "intuition"}},
        ],
    )
    def test_other_plans_are_declined(self, changes: dict[str, Any]):
        claim = case_of((flags(2),), "reports", 0.2, 10, 0.1).claim
        with pytest.raises(NotCoveredError, match=r"not covered|too many terms"):
            rigorous_delta({**claim, **changes})

    def test_at_epsilon_zero_answers_of_no_bits_differ_in_nothing(self):
        """Their ratio less itself is a ball around 0: 0.3 is no fraction of two."""
        compare(case_of((at_most(1, 3),), "reports", 0.3, 40, 0.0))

    def test_a_cohort_in_a_report_changes_nothing(self):
        claim = case_of((at_most(2, 4),), "reports", 0.2, 10, 0.3).claim
        assert rigorous_delta({**claim, "cohorts": 4}) == rigorous_delta(claim)

    def test_a_sum_that_is_not_finite_bounds_nothing(self, monkeypatch: pytest.MonkeyPatch):
        claim = case_of((flags(3),), "reports", 0.22, 500, 1.0).claim
        monkeypatch.setattr(verifier(), "stop_loss", lambda *about: (arb("nan"), arb("nan")))
        claim["proven"] = {"method": "blanket"}
        alone = rigorous_delta({**claim, "crowd_size": 1, "relies_on": 1})
        assert rigorous_delta(claim).high == alone.high
        with pytest.raises(NotCoveredError, match="not finite"):
            rigorous_delta({**claim, "proven": {"method": "adapted blankets"}})


class TestAdapted:
    """Adapted blankets, whose distributions are found by the usual engine and trusted nowhere."""

    def claim(self, case: Case) -> dict[str, Any]:
        return {**case.claim, "proven": {"method": "adapted blankets"}}

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("bits", "crowd", "q", "epsilon"),
        [
            (3, 100, 0.3, 0.8),
            (3, 1000, 0.2203125, 1.0),
            (4, 10_000, 0.17, 1.0),
            (5, 10**6, 0.0693, 2.0),
            (6, 3000, 0.31, 0.7),
        ],
    )
    def test_both_engines_agree(self, bits: int, crowd: int, q: float, epsilon: float):
        usual = proven_delta((flags(bits),), crowd, q, epsilon)
        assert usual.method == "adapted blankets"
        case = Case((flags(bits),), "reports", q, crowd, epsilon, usual)
        rigorous = rigorous_delta(case.claim)
        assert usual.delta.low * (1 - 1e-3) <= rigorous.low <= rigorous.high
        assert rigorous.high == pytest.approx(usual.delta.high, rel=0.02)
        twice = rigorous_delta({**case.claim, "reports_per_person": 2, "epsilon": 2 * epsilon})
        assert twice.high == pytest.approx(rigorous.high * (1 + math.exp(epsilon)), rel=1e-9)

    @pytest.mark.parametrize(
        ("bits", "crowd"), [(1, 7), pytest.param(2, 4, marks=pytest.mark.slow)]
    )
    @pytest.mark.parametrize("q", [0.375, 0.4999])
    def test_every_crowd_is_covered(self, bits: int, crowd: int, q: float):
        epsilon = 0.3 * local_epsilon(bits, q)
        claim = self.claim(case_of((flags(bits),), "reports", q, crowd, epsilon))
        answers = list(product((0, 1), repeat=bits))
        truth = max(
            hockey_stick(
                *histogram_pair(others, x, other, Fraction(q)), Fraction(math.exp(epsilon))
            )
            for others in combinations_with_replacement(answers, crowd - 1)
            for x, other in product(answers, repeat=2)
        )
        assert rigorous_delta(claim).high >= float(truth) * (1 - 1e-12)

    def test_too_many_people_are_not_relied_on(self, monkeypatch: pytest.MonkeyPatch):
        """A proposal that asks for ten times the people that are there hides nobody better."""
        found = adapted_search.adapted_delta(3, 1000, 0.22, 1.0)

        def greedy(*about: Any) -> adapted_search.Adapted:
            mixtures = [
                one._replace(parts=tuple(p._replace(people=10 * p.people) for p in one.parts))
                for one in found.certificates
                if one is not None
            ]
            return found._replace(certificates=tuple(mixtures))

        monkeypatch.setattr(adapted_search, "adapted_delta", greedy)
        case = case_of((flags(3),), "reports", 0.22, 1000, 1.0)
        assert rigorous_delta(self.claim(case)).high == pytest.approx(found.delta.high, rel=0.02)


class TestNoise:
    """Noise of one aggregator, against the usual engine and a sum over all outcomes."""

    def claim(self, noise: ShareNoise, domain: Domain, epsilon: float) -> dict[str, Any]:
        case = case_of((flags(1),), "reports", 0.25, 10, epsilon)
        parties = Aggregators("https://a.example", "https://b.example", 1, noise=noise).to_json()
        return {**case.claim, "view": "counts", "domain": domain, "q": 2.0**-52, "parties": parties}

    @pytest.mark.parametrize("releases", [1, 3])
    @pytest.mark.parametrize("domain", [(flags(1),), (choice(5), flags(2))])
    @pytest.mark.parametrize(
        "noise", [ShareNoise("laplace", "2.5"), ShareNoise("gaussian", "3.7")], ids=str
    )
    def test_both_engines_agree(self, noise: ShareNoise, domain: Domain, releases: int):
        for epsilon in (0.6, 2.0):
            bound = NoiseBound(differing_bits(domain), noise, releases=releases)
            usual = bound.proven(10, 2.0**-52, epsilon).delta.high
            claim = self.claim(noise, domain, epsilon)
            rigorous = rigorous_delta({**claim, "releases": releases}).high
            assert rigorous == pytest.approx(usual, rel=1e-9)

    @pytest.mark.parametrize("kind", ["laplace", "gaussian"])
    def test_one_number_by_adding_up_all_outcomes(self, kind: Any):
        scale, lam = 1.5, math.exp(0.4)
        power = {"laplace": abs, "gaussian": lambda k: k * k / (2 * scale)}[kind]
        masses = [math.exp(-power(k) / scale) for k in range(-60, 61)]
        pairs = zip([0.0, *masses], [*masses, 0.0], strict=True)
        truth = sum(max(b - lam * a, 0.0) for a, b in pairs) / sum(masses)
        claim = self.claim(ShareNoise(kind, str(scale)), (flags(1),), 0.4)
        assert rigorous_delta(claim).high == pytest.approx(truth, rel=1e-9)

    def test_dropped_bits_are_paid_for_and_flips_may_be_enough(self):
        noise, domain = ShareNoise("laplace", "2"), (choice(12),)
        claim = {**self.claim(noise, domain, 1.0), "q": 0.125, "dropped": {"max_weight": 4}}
        overflow = Overflow(12, 1, 4)
        usual = NoiseBound(2, noise, overflow).proven(10, 0.125, 1.0).delta.high
        assert usual > 2 * overflow.chance(0.125) > 0
        assert rigorous_delta(claim).high == pytest.approx(usual, rel=1e-9)
        whole = {**claim, "dropped": {"max_weight": 12}}
        assert rigorous_delta(whole) == Bracket(0.0, 0.0)  # discrete Laplace has an epsilon
        assert rigorous_delta({**claim, "q": 0.4}) == Bracket(0.0, 0.0)
