"""Noise of aggregators: small worlds enumerated by an oracle of its own, plans, observers."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from shoal import Choice, Flags, Plan, Survey, estimate, plan, publish, simulate
from shoal.analysis import contrasts
from shoal.analysis.crowds import Crowd
from shoal.analysis.intervals import Noise, Target, interval
from shoal.analysis.screening import screen
from shoal.analysis.tally import Tally
from shoal.cli.commands import invoke
from shoal.errors import InputError, PlanError, PrivacyRefusal, TallyError, WeakPromiseWarning
from shoal.planning.bounds import Overflow
from shoal.planning.certificate import compute_promise
from shoal.planning.plan_diff import plan_diff
from shoal.planning.share_noise import (
    NO_FLIPS,
    NoiseBound,
    both_kinds,
    noise_window,
    sigma_in,
    sigma_of,
)
from shoal.planning.threats import observers
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Aggregators, Promise, ShareNoise
from shoal.support.rounding import text_up

LEADER, HELPER = "https://leader.example", "https://helper.example"
DAP: dict[str, Any] = {"leader": LEADER, "helper": HELPER, "window": "1w", "view": "counts"}
WISH: dict[str, Any] = {"crowd_size": 10_000, "epsilon": 1, "delta": "1e-7"}
CHOICE = Survey("c", (Choice("x", ("a", "b", "c", "d")),))
Law = dict[tuple[int, ...], float]


def with_noise(made: Plan, noise: ShareNoise | None) -> Plan:
    assert isinstance(made.parties, Aggregators)
    return replace(made, parties=replace(made.parties, noise=noise))


# An oracle: it shares no code with the library


def masses(noise: ShareNoise) -> NDArray[np.float64]:
    scale = float(noise.scale)
    far = math.ceil(scale * (45 if noise.kind == "laplace" else 12)) + 1
    weights = [
        math.exp(-abs(k) / scale) if noise.kind == "laplace" else math.exp(-k * k / 2 / scale**2)
        for k in range(-far, far + 1)
    ]
    return np.array(weights) / sum(weights)


def sent(answer: Sequence[int], q: float, weight: int) -> Law:
    """Return the distribution of the report that is sent: flipped, and a random excess dropped."""
    law: defaultdict[tuple[int, ...], float] = defaultdict(float)
    for flips in itertools.product((0, 1), repeat=len(answer)):
        chance = math.prod(q if one else 1 - q for one in flips)
        flipped = [a ^ b for a, b in zip(answer, flips, strict=True)]
        ones = [place for place, one in enumerate(flipped) if one]
        kept = list(itertools.combinations(ones, min(len(ones), weight)))
        for some in kept:
            law[tuple(int(place in some) for place in range(len(answer)))] += chance / len(kept)
    return dict(law)


def sum_law(answers: Sequence[Sequence[int]], q: float, weight: int) -> Law:
    law: Law = {(0,) * len(answers[0]): 1.0}
    for answer in answers:
        more: defaultdict[tuple[int, ...], float] = defaultdict(float)
        for (total, p), (report, r) in itertools.product(
            law.items(), sent(answer, q, weight).items()
        ):
            more[tuple(a + b for a, b in zip(total, report, strict=True))] += p * r
        law = dict(more)
    return law


def seen(law: Law, noise: NDArray[np.float64], most: int) -> NDArray[np.float64]:
    """Return the distribution of the noised sums, on a grid."""
    bits = len(next(iter(law)))
    grid = np.zeros((noise.size + most,) * bits)
    for total, chance in law.items():
        sides = []
        for count in total:
            side = np.zeros(noise.size + most)
            side[count : count + noise.size] = noise
            sides.append(side)
        part = sides[0]
        for side in sides[1:]:
            part = np.multiply.outer(part, side)
        grid += chance * part
    return grid


def worlds(seed: int, count: int) -> list[tuple[Plan, list[tuple[int, ...]]]]:
    chance, found = np.random.default_rng(seed), []
    kinds = ((Flags("f", ("a",)), 1), (Flags("f", ("a", "b")), 2), (Choice("f", ("a", "b")), 1))
    noises = [ShareNoise("laplace", scale) for scale in ("0.7", "1.3", "2.5")]
    noises += [ShareNoise("gaussian", scale) for scale in ("0.8", "1.5")]
    for _ in range(count):
        question, weight = kinds[chance.integers(3)]
        survey = Survey("s", (question,))
        q = [NO_FLIPS, FlipProbability(1, 6), FlipProbability(3, 4)][chance.integers(3)]
        noise = noises[chance.integers(len(noises))]
        crowd = int(chance.integers(1, 4))
        parties = Aggregators(LEADER, HELPER, weight, noise=noise)
        made = Plan(
            survey, q, Promise("proven", "1", "0.5"), crowd, window=604_800, view="counts",
            parties=parties,
        )  # fmt: skip
        every = list(itertools.product((0, 1), repeat=survey.bits))
        if isinstance(question, Choice):
            every = [one for one in every if sum(one) == 1]
        found.append((made, every))
    return found


def test_no_small_world_exceeds_the_proven_delta():
    """One draw of one aggregator, and all answers of all people: at any epsilon."""
    tight = 0
    for made, every in worlds(seed=1, count=60):
        noise, crowd = made.noise, made.crowd_size
        assert noise is not None
        assert crowd is not None
        assert made.max_weight is not None
        certificate, drawn = made.certificate(), masses(noise)
        differ = made.survey.differing_bits
        neighbours = [
            tuple(
                seen(sum_law([one, *others], float(made.q), made.max_weight), drawn, crowd)
                for one in (first, second)
            )
            for first, second in itertools.permutations(every, 2)
            for others in itertools.combinations_with_replacement(every, crowd - 1)
        ]
        for part in (0.0, 0.3, 0.7, 0.95, 1.05):
            epsilon = part * differ / float(noise.scale)
            worst = max(
                float(np.maximum(p - math.exp(epsilon) * other, 0.0).sum())
                for p, other in neighbours
            )
            proven, attack = certificate.delta(epsilon=epsilon).high, certificate.attack(epsilon)
            assert worst <= proven * (1 + 1e-9) + 1e-14, (made, epsilon)
            assert attack.delta.low <= worst + 1e-12, (made, epsilon)
            if made.q == NO_FLIPS and 1e-6 < proven < 1:  # 1: not resolved
                assert worst == pytest.approx(proven, rel=1e-6)
                assert attack.delta.low == pytest.approx(proven, rel=1e-4)
                tight += 1
    assert tight > 20


def test_several_releases_are_more_numbers():
    """Two releases of one bit beside one release of two bits, without flips."""
    one = Survey("s", (Flags("f", ("a",)),))
    two = Survey("s", (Flags("f", ("a", "b")),))
    parties = Aggregators(LEADER, HELPER, 1, noise=ShareNoise("laplace", "3"))
    first, second = (
        Plan(s, NO_FLIPS, Promise("proven", "1", "0.5"), 5, window=604_800, view="counts",
             parties=replace(parties, max_weight=s.bits))
        for s in (one, two)
    )  # fmt: skip
    for epsilon in (0.1, 0.4, 0.6, 0.7):
        composed = first.certificate().compose(2).delta(epsilon=epsilon)
        assert composed == pytest.approx(second.certificate().delta(epsilon=epsilon).high, rel=1e-4)


def test_epsilon_and_delta_are_inverses():
    for by in ("laplace", "gaussian"):
        certificate = plan(CHOICE, **WISH, **DAP, noise=by).certificate()
        for delta in (1e-3, 1e-7, 1e-10):
            epsilon = certificate.epsilon(delta=delta)
            assert certificate.delta(epsilon=epsilon).high <= delta
            assert certificate.delta(epsilon=0.999 * epsilon).high > delta
    pure = plan(CHOICE, **WISH, **DAP, noise="laplace").certificate()
    assert pure.epsilon(delta=1e-14) <= 1.0 + 1e-12  # discrete Laplace noise needs no delta
    assert pure.epsilon(delta=0.0) == pytest.approx(pure.local_epsilon)  # dropping does, a little


def test_the_published_figures():
    """Flips need 7.08; noise of an aggregator has 2.80, that of both 3.96."""
    wish = WISH | {"delta": "1e-6"}
    with pytest.warns(WeakPromiseWarning):
        flips = plan(CHOICE, **wish, **DAP)
    with pytest.warns(WeakPromiseWarning):
        added = plan(CHOICE, **wish, **DAP, noise="aggregators")
    assert added.noise == ShareNoise("laplace", "2")
    assert (added.q, added.max_weight) == (NO_FLIPS, 1)
    assert round(flips.certificate().sigma, 2) == 7.08
    assert round(added.certificate().sigma, 2) == 3.96
    assert round(sigma_of(added.noise), 2) == 2.8
    geometric = math.exp(-1 / 2)  # sqrt(2 a) / (1 - a), the sigma of a two-sided geometric variable
    assert sigma_of(added.noise) == pytest.approx(math.sqrt(2 * geometric) / (1 - geometric))
    for one in (flips, added):
        kinds = both_kinds(one)
        assert kinds is not None
        assert [round(kinds.sigma, 2), round(kinds.sigma_if_one_adds, 2)] == [7.08, 2.8]
        assert round(kinds.sigma_if_both_add, 2) == 3.96


def test_flips_that_remain_are_part_of_both_kinds():
    """With a floor of epsilon 4 as for flips alone: its sigma is that of the plan."""
    made = plan(CHOICE, **WISH, **DAP, noise="aggregators", local_epsilon=4)
    alone = plan(CHOICE, **WISH, **DAP, local_epsilon=4)
    kinds = both_kinds(made)
    assert kinds is not None
    assert kinds.q == float(alone.q)
    assert kinds.local_epsilon <= 4
    assert kinds.sigma_if_both_add == pytest.approx(made.certificate().sigma)
    assert kinds.sigma == pytest.approx(alone.certificate().sigma)
    assert kinds.sigma < kinds.sigma_if_one_adds < kinds.sigma_if_both_add


def test_the_kind_with_less_noise_is_chosen():
    few = plan(CHOICE, **WISH, **DAP, noise="aggregators").noise
    many = Survey("f", (Flags("x", tuple(f"{j}" for j in range(100))),))
    chosen = plan(many, **WISH, **DAP, noise="aggregators").noise
    assert few is not None
    assert chosen is not None
    assert (few.kind, chosen.kind) == ("laplace", "gaussian")
    other = plan(many, **WISH, **DAP, noise="laplace").noise
    assert other is not None
    assert sigma_of(chosen) < sigma_of(other)


def test_less_noise_would_not_do():
    for by in ("laplace", "gaussian"):
        made = plan(CHOICE, **WISH, **DAP, noise=by)
        assert made.noise is not None
        less = ShareNoise(made.noise.kind, str(round(0.99 * float(made.noise.scale), 6)))
        weak = with_noise(made, less)
        assert compute_promise(weak).refusal is not None
        assert compute_promise(made).refusal is None


def test_what_holds_against_whom():
    flips, added = (plan(CHOICE, **WISH, **DAP, noise=by) for by in ("flips", "aggregators"))
    floor = plan(CHOICE, **WISH, **DAP, noise="aggregators", local_epsilon=4)
    found = {
        name: {one["who"]: one for one in made.certificate().to_json(epsilon=1.0)["observers"]}
        for name, made in (("flips", flips), ("added", added), ("floor", floor))
    }
    malicious, both = "malicious aggregator + collector (OAOC)", "leader + helper (OC)"
    assert found["flips"][malicious]["holds"] == "local"
    for name in ("added", "floor"):
        one = found[name][malicious]
        assert (one["holds"], one["epsilon"]) == ("theorem", 1.0)
        assert one["delta"] <= 1e-7
        assert "other aggregator is honest and adds its noise" in one["assumption"]
    assert found["added"][both]["epsilon"] > 70  # true answers, in effect
    assert "learns the answer" in found["added"][both]["assumption"]
    assert found["floor"][both]["epsilon"] <= 4
    assert floor.local_epsilon <= 4
    words = " ".join(added.certificate().assumptions)
    assert "The leader or the helper adds its noise" in words
    assert "with t colluders" not in words
    # no crowd is relied on, so that colluders take nothing away
    certificate = added.certificate()
    alone = certificate.with_colluders(9_999)
    assert alone.delta(epsilon=1) == certificate.delta(epsilon=1)
    guarantees = [
        {one.who: one.guarantee for one in observers(of, 1.0)} for of in (certificate, alone)
    ]
    assert guarantees[0] == guarantees[1]


def test_a_plan_is_read_as_it_was_written():
    made = plan(CHOICE, **WISH, **DAP, noise="aggregators")
    document = made.to_json()
    assert document["parties"]["noise"] == {"kind": "laplace", "scale": "2"}
    assert Plan.from_json(json.loads(json.dumps(document)) | {"id": made.id}) == made
    without = with_noise(made, None)
    assert without.id != made.id
    wrong: list[Any] = [
        {"kind": "laplace", "scale": "2.0"},
        {"kind": "laplace", "scale": 2},
        {"kind": "laplace", "scale": "0"},
        {"kind": "laplace", "scale": "1e9"},
        {"kind": "uniform", "scale": "2"},
        {"kind": "laplace"},
        {"kind": "laplace", "scale": "2", "who": "leader"},
        "laplace",
        [],
    ]
    for noise in wrong:
        changed = document | {"parties": document["parties"] | {"noise": noise}}
        with pytest.raises(PlanError):
            Plan.from_json(changed)


def test_noise_needs_a_leader_and_numbers():
    others: list[dict[str, Any]] = [
        {"view": "counts"},
        {"relay": "https://relay.example", "analyzer": "https://a.example"},
    ]
    for more in others:
        with pytest.raises(InputError, match="needs leader="):
            plan(CHOICE, **WISH, noise="aggregators", **more)
    with pytest.raises(InputError, match="needs crowd_size="):
        plan(CHOICE, epsilon=1, delta="1e-7", **DAP, noise="aggregators")
    with pytest.raises(InputError, match="noise must be"):
        plan(CHOICE, **WISH, **DAP, noise="uniform")  # type: ignore[arg-type]
    with pytest.raises(PrivacyRefusal, match="leave max_weight to the planner"):
        plan(CHOICE, **WISH, **DAP, noise="aggregators", q="0.1", max_weight=1)


def test_a_step_from_one_kind_to_the_other_is_less_protection_against_someone():
    flips, added = (plan(CHOICE, **WISH, **DAP, noise=by) for by in ("flips", "aggregators"))
    floor = plan(CHOICE, **WISH, **DAP, noise="aggregators", q=str(float(flips.q)))
    there, back = plan_diff(flips, added), plan_diff(added, flips)
    assert there.kind == back.kind == "forbidden"
    assert "The leader and the helper no longer add noise." in back.reasons
    assert any("add noise, discrete Laplace, scale 2" in one for one in there.reasons)
    assert plan_diff(floor, flips).kind == "forbidden"  # a malicious aggregator
    less = with_noise(floor, ShareNoise("laplace", "1.9"))
    more = with_noise(floor, ShareNoise("laplace", "2.1"))
    assert plan_diff(floor, less).kind == "forbidden"
    assert plan_diff(floor, more).kind == "new plan"


def test_noise_of_another_kind_is_judged_by_its_guarantees():
    floor = plan(CHOICE, **WISH, **DAP, noise="gaussian")
    much = with_noise(floor, ShareNoise("laplace", "500"))
    assert compute_promise(floor).holds
    assert compute_promise(much).holds
    less, more = plan_diff(much, floor), plan_diff(floor, much)
    assert less.kind == "forbidden"
    assert any(change.covers == "one release" and change.weaker for change in less.changes)
    assert more.kind == "new plan"


def test_fewer_options_need_less_noise():
    wish = WISH | {"delta": "1e-6", "epsilon": "0.7"}
    asked = {
        bits: plan(
            Survey("s", (Flags("f", tuple(f"{j}" for j in range(bits))),)),
            **wish, **DAP, noise="gaussian",
        )
        for bits in (5, 7)
    }  # fmt: skip
    scales = {bits: float(made.noise.scale) for bits, made in asked.items() if made.noise}
    assert scales[5] < scales[7]
    # the promise is the same, and rounding of scales is not less protection
    assert plan_diff(asked[7], asked[5]).kind == "new plan"
    less = with_noise(asked[5], ShareNoise("gaussian", text_up(0.99 * scales[5])))
    assert plan_diff(asked[7], less).kind == "forbidden"


@pytest.mark.parametrize("delta", ["1e-19", "1e-30", "1e-60"])
def test_tiny_deltas_have_noise(delta: str):
    wish = WISH | {"delta": delta}
    made = plan(CHOICE, **wish, **DAP, noise="gaussian")
    assert made.noise is not None
    # the tail beyond epsilon: a normal law of this sigma has about this delta
    assert 9 < float(made.noise.scale) < 60
    assert compute_promise(made).holds
    weak = with_noise(made, ShareNoise("gaussian", text_up(0.99 * float(made.noise.scale))))
    assert not compute_promise(weak).holds


def test_an_attack_pays_for_dropped_bits():
    noise = ShareNoise("laplace", "0.7")
    bound = NoiseBound(2, noise, Overflow(2, 2, 1))
    laws = [sum_law([answer], float(NO_FLIPS), 1) for answer in ((0, 0), (1, 1))]
    first, second = (seen(law, masses(noise), 1) for law in laws)
    truth = max(
        float(np.maximum(one - math.e * other, 0).sum())
        for one, other in ((first, second), (second, first))
    )
    assert bound.attack(1, float(NO_FLIPS), 1.0).delta.low <= truth


def test_the_command_says_what_each_kind_gives(capsys: pytest.CaptureFixture[str]):
    words = ["plan", "--choice", "4", "--epsilon", "1", "--delta", "1e-7"]
    words += ["--view", "counts", "--window", "1w", "--leader", LEADER, "--helper", HELPER]
    for option in ("flips", "aggregators"):
        assert invoke([*words, "--crowd", "10000", "--noise", option]) == 0
        output = capsys.readouterr().out
        text = " ".join(output.split())
        assert "sigma 2.8 each, 3.96 together; holds against a malicious aggregator" in text
        assert "leader + helper: true answers" in text
        assert "devices flip: sigma 7.83; holds against one aggregator that forges" in text
        assert all(len(line) <= 80 for line in output.splitlines() if "plan id" not in line)
    with pytest.raises(InputError, match="plan for flips"):
        invoke([*words, "--noise", "aggregators", "--within", "1%"])


def test_a_plan_for_flips_is_made_where_aggregators_could_not_keep_its_promise(
    capsys: pytest.CaptureFixture[str],
):
    """The other kind of noise is only shown beside it: at delta 0, and beyond every scale."""
    words = "plan --flags 2 --view counts --window 1w".split()
    words += ["--leader", LEADER, "--helper", HELPER]
    assert invoke([*words, *"--q 0.1 --crowd 100 --epsilon 5 --json".split()]) == 0
    local = json.loads(capsys.readouterr().out)
    assert local["delta"] == 0
    assert local["noise"]["aggregators"]["kind"] == "laplace"
    assert Fraction(local["noise"]["aggregators"]["scale"]) * 5 >= 2
    few = [*words, *"--crowd 1000000 --epsilon 0.00001 --delta 1e-9".split()]
    assert invoke([*few, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["noise"]["aggregators"] is None
    assert invoke(few) == 0
    assert "aggregators add noise: no scale keeps this promise" in " ".join(
        capsys.readouterr().out.split()
    )


# Estimates


def law_of_ones(truth: int, people: int, q: float, noise: NDArray[np.float64]) -> dict[int, float]:
    """Return the distribution of the noised count, by plain convolution."""
    ones = np.array([1.0])
    for person in range(people):
        rate = 1 - q if person < truth else q
        ones = np.convolve(ones, [1 - rate, rate])
    total = np.convolve(np.convolve(ones, noise), noise)
    return dict(enumerate(total.tolist(), start=-(noise.size - 1)))


@pytest.mark.parametrize("kind", ["exact", "chebyshev", "simultaneous"])
@pytest.mark.parametrize(
    "noise", [ShareNoise("laplace", "1.5"), ShareNoise("gaussian", "2")], ids=str
)
def test_intervals_cover_every_truth(kind: Any, noise: ShareNoise):
    """With flips and the noise of both; 2^-52 stands for no flips."""
    people, drawn = 14, masses(noise)
    for q in (2.0**-52, 1 / 16):
        ends = {}
        for truth in range(people + 1):
            covered = 0.0
            for ones, chance in law_of_ones(truth, people, q, drawn).items():
                if chance < 1e-15:
                    continue
                if ones not in ends:
                    found = interval(ones, people, q, kind=kind, noise=Noise(noise, 2))
                    ends[ones] = (found.low, found.high)
                covered += chance * (ends[ones][0] <= truth <= ends[ones][1])
            assert covered >= 0.95 - 1e-9, (q, truth)


def test_intervals_of_a_population_cover_every_share():
    people, noise = 14, ShareNoise("laplace", "1.5")
    drawn, q = masses(noise), 1 / 16
    ends: dict[int, tuple[float, float]] = {}
    for share in (0.0, 0.03, 0.2, 0.5, 0.9, 1.0):
        rate, covered = q + (1 - 2 * q) * share, 0.0
        ones = np.array([math.comb(people, k) * rate**k * (1 - rate) ** (people - k)
                         for k in range(people + 1)])  # fmt: skip
        total = np.convolve(np.convolve(ones, drawn), drawn)
        for seen_ones, chance in enumerate(total.tolist(), start=-(drawn.size - 1)):
            if chance < 1e-15:
                continue
            if seen_ones not in ends:
                found = interval(seen_ones, people, q, target="population", noise=Noise(noise, 2))
                ends[seen_ones] = (found.low, found.high)
            low, high = ends[seen_ones]
            covered += chance * (low - 1e-9 <= people * share <= high + 1e-9)
        assert covered >= 0.95 - 1e-9, share


def test_a_sum_of_draws_has_its_distribution():
    for noise in (ShareNoise("laplace", "1.5"), ShareNoise("gaussian", "2")):
        one = masses(noise)
        for draws in (1, 2, 5):
            expected = one
            for _ in range(draws - 1):
                expected = np.convolve(expected, one)
            window = noise_window(noise, draws)
            middle = (expected.size - 1) // 2 + window.first
            part = expected[middle : middle + window.mass.size]
            assert np.abs(part - window.mass).max() < 1e-13
            variance = float(window.mass @ np.square(window.first + np.arange(window.mass.size)))
            assert variance == pytest.approx(draws * sigma_of(noise) ** 2, rel=1e-9)


def test_the_distribution_of_many_draws_is_as_wide_as_its_sigma():
    """Round-off of the Fourier transform is not taken for tails that must be kept."""
    noise, draws = ShareNoise("laplace", "7"), 20_000
    window, sigma = noise_window(noise, draws), sigma_of(noise) * draws**0.5
    assert window.mass.size < 20 * sigma
    assert window.omitted < 1e-11
    places = window.first + np.arange(window.mass.size)
    assert float(window.mass @ np.square(places)) == pytest.approx(sigma**2, rel=1e-8)
    for far in (1, 3, 5):  # the draws are so many that their sum is nearly normal
        tail = float(window.mass[places > far * sigma].sum())
        assert tail == pytest.approx(NormalDist().cdf(-far), rel=0.02)


@pytest.mark.parametrize("target", ["crowd", "population"])
def test_a_tally_that_says_it_has_endless_reports_takes_no_endless_memory(target: Target):
    noise = Noise(ShareNoise("laplace", "7"), 2 * (2**53 // 20))
    with pytest.raises(InputError, match="choose intervals of the kind normal"):
        interval(2**51, 2**53 - 1, 0.25, target=target, noise=noise)
    normal = interval(2**51, 2**53 - 1, 0.25, target=target, noise=noise, kind="normal")
    assert math.isfinite(normal.high)


def test_simulated_estimates_have_the_sigma_that_the_plan_says():
    """4,000 errors of seeded runs: their variance is within 15 % of the theory."""
    made = plan(CHOICE, **WISH | {"crowd_size": 500}, **DAP, noise="aggregators", local_epsilon=8)
    errors, inside = [], 0
    for seed in range(1000):
        run = simulate(made, users=500, seed=seed, through="distribution")
        for label, one in run.estimates["x"].items():
            truth = run.true_count("x", label)
            errors.append(one.count - truth)
            inside += truth in one.interval(0.9) if seed < 100 else 0
    sigma = made.certificate().sigma
    assert sigma == pytest.approx(sigma_in(made, 500))
    assert sigma > 1.2 * float(np.sqrt(2) * 2.8)
    assert np.var(errors) == pytest.approx(sigma**2, rel=0.15)
    assert abs(np.mean(errors)) < 6 * sigma / 4000**0.5
    assert inside >= 0.85 * 400


def test_combinations_of_options_have_the_noise_of_each():
    """Without flips all their width is noise; 400 seeded runs at 0.9 cover 345 times or more."""
    made = plan(CHOICE, **WISH | {"crowd_size": 500}, **DAP, noise="aggregators")
    kinds: dict[str, Any] = {
        "total": lambda a, b: contrasts.total((a, b), 0.9),
        "difference": lambda a, b: contrasts.difference(a, b, 0.9),
        "normal difference": lambda a, b: contrasts.difference(a, b, 0.9, kind="normal"),
    }
    covered: Counter[str] = Counter()
    for seed in range(400):
        run = simulate(made, users=500, seed=seed, through="distribution")
        first, second = (run.estimates["x"][label] for label in "ab")
        truths = [run.true_count("x", label) for label in "ab"]
        for name, make in kinds.items():
            found = make(first, second)
            truth = sum(truths) if name == "total" else truths[0] - truths[1]
            covered[name] += found.low <= truth <= found.high
    assert all(covered[name] >= 345 for name in kinds), covered


def test_a_bound_relies_on_no_crowd():
    bound = NoiseBound(2, ShareNoise("laplace", "2"))
    assert bound.proven(1, 0.25, 0.5) == bound.proven(10**6, 0.25, 0.5)


def test_a_page_names_the_noise():
    made = plan(CHOICE, **WISH | {"crowd_size": 500}, **DAP, noise="aggregators")
    run = simulate(made, users=500, seed=3)
    page = publish(made, run.estimates.tally).to_html()
    assert "The leader and the helper each added discrete Laplace, scale 2." in page
    assert f"sigma {text_up(sigma_in(made, 500), 4)} people" in page
    assert screen(made, run.estimates.tally).p_value == 1.0
    floor = plan(CHOICE, **WISH | {"crowd_size": 500}, **DAP, noise="aggregators", local_epsilon=4)
    page = publish(floor, simulate(floor, users=500, seed=3).estimates.tally).to_html()
    assert "Revealed by one report alone, to leader and helper together." in page


def test_a_tally_with_noise_is_read_as_it_was_written():
    made = plan(CHOICE, **WISH | {"crowd_size": 500}, **DAP, noise="aggregators")
    counts = np.array([-7, 505, 1, 2])
    written = Tally(made.id, 500, counts).to_json()
    assert Tally.from_json(json.loads(json.dumps(written)), made).by_bit.tolist() == counts.tolist()
    lowest, highest = made.possible_counts(500)
    assert (lowest, highest) == (-480, 980)
    for absurd in (lowest - 1, highest + 1):
        with pytest.raises(TallyError):
            Tally.from_json(written | {"by_bit": [absurd, 0, 0, 0]}, made)
    found = estimate(made, Tally(made.id, 500, counts))["x"]
    assert found["a"].interval().low == 0.0
    assert found["a"].count == pytest.approx(-7)
    flips = plan(CHOICE, **WISH | {"crowd_size": 500}, **DAP)
    with pytest.raises(TallyError):
        Tally.from_json(written | {"plan": flips.id}, flips)


def test_two_crowds_have_the_noise_of_four_draws():
    made = plan(CHOICE, **WISH | {"crowd_size": 500}, **DAP, noise="aggregators")
    first, second = (
        Tally(made.id, 500, np.full(4, 125), crowds=(Crowd(500, name),)) for name in ("1", "2")
    )
    one, both = (estimate(made, some)["x"]["a"] for some in (first, first + second))
    assert both.sigma == pytest.approx(math.sqrt(2) * one.sigma)
    assert both.noise.draws == 4
