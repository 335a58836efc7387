"""Studies: theory against repetition, by the law and along the real path."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from scipy.stats import binom

from shoal import Choice, Flags, Plan, PrivacyRefusal, Survey, plan, simulate
from shoal.analysis.intervals import interval
from shoal.cli import run
from shoal.device.arrays.randomize import Original
from shoal.device.encode import encode
from shoal.errors import InputError
from shoal.lab.simulation import Through
from shoal.lab.study import KINDS, Study, study
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Promise
from shoal.protocol.survey import Text
from shoal.theory.binomial import pmf, tails
from tests.checks import bonferroni, two_sided

SURVEY = Survey(
    "browser",
    (
        Flags("features", ("sync", "vpn", "reader")),
        Choice("channel", ("release", "beta", "nightly")),
    ),
)
PLAN = plan(SURVEY, q="0.25")
ALARM = 1e-7
"""Each statistical check raises a false alarm with at most this probability; all are seeded."""


def coverage_p_value(found: Study) -> float:
    """The exact binomial p-value of every coverage against the law, Bonferroni over all."""
    p_values = []
    for point in found.points:
        both = [bit.coverage[kind] for bit in point.bits for kind in KINDS]
        for one in [*both, *point.together.values()]:
            held = round(one.measured * found.repetitions)
            p_values.append(two_sided(np.array([held]), found.repetitions, one.expected))
    return bonferroni(*p_values)


@pytest.fixture(scope="module")
def by_q() -> Study:
    return study(
        PLAN, users=2000, repetitions=20_000, vary={"q": ["0.01", "0.1", "0.25", "0.4"]}, seed=11
    )


@pytest.fixture(scope="module")
def by_users() -> Study:
    return study(PLAN, repetitions=20_000, vary={"users": [50, 1000, 100_000]}, seed=12)


class TestViewCounts:
    """40 flags, a crowd of ten million, epsilon 2 and delta 1e-6 flip one of 47,800 bits.

    `SHOAL_STUDY_PEOPLE` asks for more people than a tenth of them.
    """

    PEOPLE = int(os.environ.get("SHOAL_STUDY_PEOPLE", "1000000"))
    PLAN = Plan(
        Survey("s", (Flags("f", tuple(map(str, range(40)))),)),
        FlipProbability.at_least("0.0000212"),
        Promise("proven", "2", delta="1e-6"),
        crowd_size=10**7,
        view="counts",
    )

    @pytest.mark.slow
    def test_two_thousand_crowds(self):
        """All bits together measure sigma within 0.3 %, and 3 % is ten times that."""
        found = study(self.PLAN, users=self.PEOPLE, repetitions=2000, seed=1)
        bits = found.points[0].bits
        ratio = np.sqrt(np.mean([bit.sigma_ratio**2 for bit in bits]))
        assert abs(ratio - 1) < 0.03
        for bit in bits:
            assert bit.coverage["exact"].expected >= 0.95
            assert bit.coverage["simultaneous"].expected >= 0.95 ** (1 / 40)
        assert np.mean([bit.coverage["exact"].measured for bit in bits]) >= 0.95
        assert found.points[0].together["f"].expected >= 0.95
        assert coverage_p_value(found) > ALARM
        print(
            f"{self.PEOPLE:,} people, sigma {bits[0].sigma_theory:.2f}, measured {ratio:.4f} of it"
        )

    def test_the_path_counts_bits_only(self):
        found = study(self.PLAN, users=2000, repetitions=20, seed=1, through="reports")
        assert len(found.points[0].bits) == 40
        for through in ("distribution", "reports"):
            run = simulate(self.PLAN, users=2000, seed=1, through=through)
            assert run.estimates.tally.view == "counts"

    @pytest.mark.slow
    def test_other_epsilons_have_the_same_view(self):
        asked = Survey("s", (Flags("f", ("a", "b")),))
        small = plan(asked, crowd_size=1000, epsilon=1, delta="1e-6", view="counts")
        found = study(small, users=1000, repetitions=5, vary={"epsilon": [2]}, seed=1)
        (point,) = found.points
        assert point.plan.view == "counts"
        assert 0 < float(point.plan.q) < float(small.q)


class TestTheory:
    def test_sigma_is_the_one_of_theory(self, by_q: Study, by_users: Study):
        """A measured sigma has a relative standard error of 0.5 %; 3 % is six of them: 2e-9."""
        for found in (by_q, by_users):
            for point in found.points:
                q, n = float(point.plan.q), point.users
                for bit in point.bits:
                    assert bit.sigma_theory == pytest.approx((n * q * (1 - q)) ** 0.5 / (1 - 2 * q))
                    assert abs(bit.sigma_ratio - 1) < 0.03
                    assert bit.sigma_ratio == bit.sigma / bit.sigma_theory

    def test_estimates_are_unbiased(self, by_q: Study, by_users: Study):
        """The sum of the ones of all repetitions has the law A for R times as many people."""
        for found in (by_q, by_users):
            p_values = []
            for point in found.points:
                q, n = float(point.plan.q), point.users * found.repetitions
                for bit in point.bits:
                    assert bit.bias == bit.mean - bit.truth
                    assert bit.bias_error == pytest.approx(bit.sigma / found.repetitions**0.5)
                    ones = (bit.mean * (1 - 2 * q) + q * point.users) * found.repetitions
                    both = tails(round(ones), n, bit.truth * found.repetitions, q)
                    p_values.append(np.array([2 * min(both.at_most, both.at_least)]))
            assert bonferroni(*p_values) > ALARM

    def test_coverage_is_the_one_of_the_law(self, by_q: Study, by_users: Study):
        for found in (by_q, by_users):
            assert coverage_p_value(found) > ALARM

    def test_exact_intervals_keep_their_level(self, by_q: Study, by_users: Study):
        for point in (*by_q.points, *by_users.points):
            for bit in point.bits:
                for kind in ("exact", "simultaneous", "chebyshev"):
                    assert bit.coverage[kind].expected >= 0.95
                assert 0.9 < bit.coverage["normal"].expected < 1
            assert all(one.expected >= 0.95 for one in point.together.values())

    def test_the_law_is_computed_right(self):
        """Against every interval there is, weighed by another way to the law."""
        for n, q, level in ((1, 0.2, 0.9), (7, 0.4, 0.5), (30, 0.05, 0.95), (30, 0.45, 0.99)):
            agreed = plan(SURVEY, q=str(q))
            flip = float(agreed.q)
            answers = encode(SURVEY, [{"features": ["sync"], "channel": "beta"}] * (n // 3 + 1))
            found = study(agreed, users=n, repetitions=2, answers=answers, seed=1, level=level)
            for bit in found.points[0].bits:
                m = bit.truth
                law = np.convolve(
                    binom.pmf(np.arange(m + 1), m, 1 - flip),
                    binom.pmf(np.arange(n - m + 1), n - m, flip),
                )
                assert law == pytest.approx(pmf(n, m, flip))
                for kind in KINDS:
                    intervals = [
                        interval(s, n, flip, level=level, kind=kind, options=3)
                        for s in range(n + 1)
                    ]
                    held = sum(p for p, one in zip(law, intervals, strict=True) if m in one)
                    assert bit.coverage[kind].expected == pytest.approx(held, abs=1e-12)


class TestThePath:
    def test_it_has_the_same_law(self):
        """Every report made: the same people, and each number agrees with the law."""
        path, law = (
            study(PLAN, users=1000, repetitions=2000, seed=8, through=through)
            for through in ("reports", "distribution")
        )
        assert coverage_p_value(path) > ALARM
        q = float(PLAN.q)
        p_values = []
        for one, other in zip(path.points[0].bits, law.points[0].bits, strict=True):
            assert one.truth == other.truth
            for kind in KINDS:
                assert one.coverage[kind].expected == other.coverage[kind].expected
            # six standard errors of the difference of two measured sigmas
            assert abs(one.sigma - other.sigma) / one.sigma_theory < 6 * (1 / 2000) ** 0.5
            ones = round((one.mean * (1 - 2 * q) + q * 1000) * 2000)
            both = tails(ones, 1000 * 2000, one.truth * 2000, q)
            p_values.append(np.array([2 * min(both.at_most, both.at_least)]))
        assert bonferroni(*p_values) > ALARM

    def test_a_plan_with_joint_counts(self):
        agreed = Plan(
            SURVEY, PLAN.q, PLAN.promise, joint=((("features", "sync"), ("features", "vpn")),)
        )
        found = study(agreed, users=50, repetitions=5, seed=1, through="reports")
        assert found.points[0].users == 50


class TestGrid:
    def test_the_same_seed_the_same_study(self):
        for through in ("distribution", "reports"):
            one, two, other = (
                study(PLAN, users=100, repetitions=20, seed=seed, through=through).to_json()[
                    "points"
                ]
                for seed in (1, 1, 2)
            )
            assert one == two != other

    def test_without_a_seed_it_is_fresh_and_told(self):
        one, two = (study(PLAN, users=1000, repetitions=20) for _ in range(2))
        assert one.seed != two.seed
        again = study(PLAN, users=1000, repetitions=20, seed=one.seed)
        assert again.to_json() == one.to_json()

    def test_the_people_of_simulate(self):
        found = study(PLAN, users=3000, repetitions=2, seed=5)
        truth = [bit.truth for bit in found.points[0].bits]
        assert truth == simulate(PLAN, users=3000, seed=5).truth.tolist()

    @pytest.mark.slow
    def test_epsilon_plans_anew_with_the_same_promise(self):
        one = Survey("s", (Flags("f", ("a",)),))
        for old in (
            plan(SURVEY, crowd_size=1000, epsilon=1, delta="1e-4"),
            plan(one, crowd_size=100, epsilon=1, eta="0.01"),
            plan(SURVEY, crowd_size=1000, epsilon=1, promise="three-sigma"),
            plan(SURVEY, epsilon=1, promise="local"),
        ):
            found = study(old, users=500, repetitions=10, vary={"epsilon": ["0.7", 1, 2]}, seed=1)
            assert [point.plan.promise.epsilon for point in found.points] == ["0.7", "1", "2"]
            kinds = {point.plan.promise.kind for point in found.points}
            assert kinds == {old.promise.kind}
            assert found.points[1].plan == old
            flips = [point.plan.q.fraction for point in found.points]
            assert flips == sorted(flips, reverse=True)

    def test_given_answers(self):
        answers = encode(SURVEY, [{"features": ["sync"], "channel": "beta"}] * 30)
        found = study(PLAN, repetitions=10, answers=answers, seed=1)
        point = found.points[0]
        assert point.users == 30
        assert point["features", "sync"].truth == point["channel", "beta"].truth == 30
        more = study(PLAN, repetitions=10, answers=iter([answers]), seed=1,
                     vary={"users": [10, 40]})  # fmt: skip
        assert [one["channel", "beta"].truth for one in more.points] == [10, 40]

    def test_progress(self):
        grid: Any = {"q": ["0.1", "0.2"]}
        for through in get_args(Through):
            done: list[int] = []
            wanted: Any = {"vary": grid, "seed": 1, "through": through, "progress": done.append}
            study(PLAN, users=10, repetitions=25, **wanted)
            assert sum(done) == 50


CANNOT_BE_STUDIED: list[dict[str, Any]] = [
    {"repetitions": 1},
    {"repetitions": 10**8},
    {"users": None},
    {"users": 0},
    {"level": 95},
    {"seed": -1},
    {"through": "both"},
    {"vary": {}},
    {"vary": {"delta": [1]}},
    {"vary": {"q": []}},
    {"vary": {"q": "0.1"}},
    {"vary": {"q": ["0.1"], "users": [1]}},
    {"vary": {"q": [0.7]}},
    {"vary": {"users": [0]}},
    {"vary": {"epsilon": [-1]}},
    {"answers": []},
    {"answers": Original(np.zeros((3, 1), np.uint8), 3)},
]


class TestRefusals:
    def test_what_cannot_be_studied(self):
        usual: dict[str, Any] = {"users": 10, "repetitions": 10, "seed": 1}
        for wrong in CANNOT_BE_STUDIED:
            with pytest.raises(InputError):
                study(PLAN, **(usual | wrong))

    def test_a_text(self):
        with pytest.raises(InputError, match="text"):
            study(plan(Survey("s", (Text("w", 8, 1, 2),)), q="0.25"), users=5, repetitions=5)

    def test_an_epsilon_that_cannot_be_kept(self):
        alone = plan(SURVEY, epsilon=1, promise="local")
        with pytest.raises(PrivacyRefusal):
            study(alone, users=10, repetitions=10, vary={"epsilon": ["1e-30"]})


@pytest.mark.slow
def test_the_picture_shows_every_ratio_and_kind(by_q: Study, tmp_path: Path):
    pytest.importorskip("matplotlib")
    figure: Any = by_q.plot()
    upper, lower = figure.axes
    assert [text.get_text() for text in lower.get_legend().get_texts()] == list(KINDS)
    dots = [line for line in upper.lines if line.get_marker() == "o"]
    ratios = [y for line in dots for y in line.get_ydata()]
    assert ratios == [bit.sigma_ratio for point in by_q.points for bit in point.bits]
    by_q.save_plot(tmp_path / "s.svg")
    assert "<svg" in (tmp_path / "s.svg").read_text("utf-8")
    with pytest.raises(InputError, match="must end in"):
        by_q.save_plot(tmp_path / "s.txt")


class TestCommand:
    @pytest.fixture(autouse=True)
    def at(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        PLAN.write("plan.json")

    def test_bad_usage(self, capsys: pytest.CaptureFixture[str]):
        for words in (
            "--users 10 --vary q=0.1",
            "--users 10 --plot s.png",
            "--users 10 --repeat 9 --texts words.txt",
            "--users 10 --repeat 9 -o tally.json",
            "--users 10 --repeat 1",
            "--users 10 --repeat 9 --target population",
            "--users 10 --repeat 9 --vary q",
            "--users 10 --repeat 9 --vary q=0.1,,",
            "--users 10 --repeat 9 --vary q=x",
            "--users 10 --repeat 9 --vary users=1e3",
            "--users 10 --repeat 9 --vary delta=0.1",
            "--users 10 --repeat 9 --plot s.txt",
            "--repeat 9",
        ):
            assert run(["simulate", "plan.json", *words.split()]) == 2, words
            said = capsys.readouterr()
            assert said.out == ""
            assert len(said.err.splitlines()) == 1, words
