"""Shuffled and summed reports of every channel, against all crowds and outcomes in fractions."""

from __future__ import annotations

import itertools
import math
import re
import subprocess
import sys
from fractions import Fraction

import pytest
from scipy import integrate, stats

from shoal.theory import aggregated, channel, shuffled
from shoal.theory.blanket import blanket_delta
from shoal.theory.domains import flags as flags_domain
from shoal.theory.one_bit import worst_one_bit_delta
from tests.adversary import oracle
from tests.adversary.channels import (
    flags_rows,
    k_ary_rows,
    law,
    pair,
    unary_rows,
    whole_reports,
)

from .oracle import neighbouring_releases as pairs_of


def fractions(*rows):
    return [[Fraction(w, sum(row)) for w in row] for row in rows]


BOUNDS = [
    shuffled(channel.k_ary(4, 3.0), 3),
    shuffled(channel.flags(3, 0.0625), 2),
    shuffled(channel.from_matrix(fractions([2, 1, 0], [0, 1, 2])), 3),
    aggregated(channel.flags(2, 0.25), 3),
    aggregated(channel.unary(3, 0.5, 0.25), 3),
]


@pytest.mark.parametrize("bound", BOUNDS, ids=str)
def test_delta_and_epsilon_are_inverse(bound):
    """Whether they hold in small crowds is judged by the adversary."""
    target = 0.05
    epsilon = bound.epsilon(target)
    if math.isinf(epsilon.high):
        assert bound.delta(59.0).high > target
        return
    assert bound.delta(epsilon.high).high <= target
    assert bound.delta(epsilon.high * (1 - 1e-3)).high > target * (1 - 1e-9)
    assert bound.delta(epsilon.low).low > target


@pytest.mark.parametrize("bound", BOUNDS[:3], ids=str)
def test_the_delta_of_an_attack_on_reports_is_known_well(bound):
    attack = bound.attack(math.log(1.5))
    assert attack.delta.is_within(2e-3)
    assert "among" in str(attack)


def test_the_attack_on_sums_of_unlike_bits():
    """One description for each bit; the product of the two is its delta."""
    p, q, lam = Fraction(1, 2), Fraction(1, 8), Fraction(3, 2)
    attack = aggregated(channel.unary(3, 0.5, 0.125), 4).attack(math.log(lam))
    laws = [law(row, whole_reports) for row in ([1 - q, q], [1 - p, p])]
    bits = [
        pair(laws, [int(z) for z, count in bit.others.items() for _ in range(count)],
             int(bit.first), int(bit.second))
        for bit in attack.neighbours
    ]  # fmt: skip
    exact = oracle.product(bits, lam)
    assert len(attack.neighbours) == 2
    assert float(exact) * (1 - 1e-3) <= attack.delta.low <= float(exact)


class TestExactRoutes:
    """Where the bound is known by another computation it is that number, not only above it."""

    def test_one_flag_is_exact_over_all_crowds(self):
        for q, n, epsilon in ((0.25, 3, 0.1), (0.3, 200, 0.2), (0.01, 5000, 0.5)):
            found = shuffled(channel.flags(1, q), n).delta(epsilon)
            exact = worst_one_bit_delta(n, q, epsilon).value
            assert found.high == pytest.approx(exact.high, rel=2e-3)
            assert found.low <= exact.high
            assert exact.low <= found.high

    def test_flags_have_the_blanket_of_plans(self):
        for L, q, n, epsilon in ((5, 0.21, 5000, 0.7), (12, 0.3, 10**6, 1.0)):
            found = shuffled(channel.flags(L, q), n).delta(epsilon).high
            plans = blanket_delta((flags_domain(L),), n, q, epsilon).high
            assert found == pytest.approx(plans, rel=1e-3)

    def test_a_matrix_of_k_ary_responses(self):
        """The same numbers as in closed form, from all pairs of rows."""
        rows = k_ary_rows(4, Fraction(math.nextafter(math.exp(2.0), math.inf)))
        for n in (1, 50, 10**4):
            one = shuffled(channel.from_matrix(rows), n).delta(0.2)
            other = shuffled(channel.k_ary(4, 2.0), n).delta(0.2)
            assert one == pytest.approx(other, rel=1e-9, abs=1e-300)

    def test_one_person(self):
        """n = 1: the pair itself. k-RR: (e^eps_0 - e^eps) / (e^eps_0 + k - 1)."""
        for k in (2, 3, 7):
            delta = shuffled(channel.k_ary(k, 2.0), 1).delta(0.5)
            exact = (math.exp(2.0) - math.exp(0.5)) / (math.exp(2.0) + k - 1)
            assert delta.low == pytest.approx(exact, rel=1e-4)
            assert delta.high == pytest.approx(exact, rel=1e-4)

    @pytest.mark.parametrize(("local", "epsilon"), [(0.5, 0.1), (2.0, 1.0), (6.0, 0.0)])
    def test_laplace_of_one_person(self, local, epsilon):
        exact = -math.expm1((epsilon - local) / 2)
        delta = shuffled(channel.laplace(local), 1).delta(epsilon)
        assert exact * 0.999 < delta.low <= exact * (1 + 1e-12)
        assert exact * (1 - 1e-12) <= delta.high < exact * 1.001

    @pytest.mark.parametrize(("sigma", "n", "k"), [(1.0, 1, 1), (2.0, 100, 1), (0.3, 10, 7)])
    def test_gaussian_is_exact(self, sigma, n, k):
        mu = math.sqrt(k / n) / sigma
        for epsilon in (0.0, 0.3, 1.0):

            def gain(x, epsilon=epsilon):
                towards, away = stats.norm.pdf(x, mu, 1), stats.norm.pdf(x, 0, 1)
                return max(towards - math.exp(epsilon) * away, 0.0)

            start = epsilon / mu + mu / 2
            exact = integrate.quad(gain, start, start + 14, epsabs=1e-14)[0]
            delta = aggregated(channel.gaussian(sigma), n).compose(k).delta(epsilon)
            assert delta.low == pytest.approx(exact, rel=1e-6)
            assert delta.is_within(1e-12)


def side_by_side_truth(parts, lam):
    """The worst of all crowds of all releases, in fractions."""
    return max(oracle.product(list(chosen), lam) for chosen in itertools.product(*parts))


def summed(bits):
    """The key of the sums of bits."""
    return lambda report: oracle.counted(bits)(0, report)


class TestSeveralReleases:
    binary = fractions([3, 1], [1, 3])
    leaky = fractions([3, 1, 0], [1, 3, 1])

    @pytest.mark.parametrize("lam", [Fraction(1), Fraction(3, 2), Fraction(5)])
    def test_compose_holds_the_exact_product(self, lam):
        for bound, parts in (
            (shuffled(channel.flags(1, 0.25), 2).compose(3),
             [pairs_of(self.binary, whole_reports, 2)] * 3),
            (shuffled(channel.from_matrix(self.leaky), 2).compose(2),
             [pairs_of(self.leaky, whole_reports, 2)] * 2),
            (shuffled(channel.k_ary(3, math.log(4)), 1).compose(2),
             [pairs_of(k_ary_rows(3, Fraction(4)), whole_reports, 1)] * 2),
            (aggregated(channel.unary(2, 0.5, 0.125), 2).compose(2),
             [pairs_of(unary_rows(2, Fraction(1, 2), Fraction(1, 8)), summed(2), 2)]
             * 2),
        ):  # fmt: skip
            exact, bracket = float(side_by_side_truth(parts, lam)), bound.delta(math.log(lam))
            assert bracket.low <= exact * (1 + 1e-12)
            assert exact * (1 - 1e-12) <= bracket.high
            if exact:
                assert bracket.low > 0.3 * exact
                assert bracket.high < 2.0 * exact + 1e-9

    @pytest.mark.parametrize("lam", [Fraction(1), Fraction(3, 2), Fraction(5)])
    def test_parallel_holds_the_exact_product(self, lam):
        one = shuffled(channel.from_matrix(self.leaky), 2)
        other = aggregated(channel.flags(2, 0.25), 1)
        exact = float(
            side_by_side_truth(
                [
                    pairs_of(self.leaky, whole_reports, 2),
                    pairs_of(flags_rows(2, Fraction(1, 4)), summed(2), 1),
                ],
                lam,
            )
        )
        for bound in (one.parallel(other), other.parallel(one)):
            bracket = bound.delta(math.log(lam))
            assert bracket.low <= exact * (1 + 1e-12)
            assert exact * (1 - 1e-12) <= bracket.high < 1.5 * exact
            assert bound.view == "reports"

    def test_a_release_again_is_a_composition(self):
        """Channels with the same arguments are one channel."""
        one = shuffled(channel.flags(1, 0.2), 50)
        twice = one.parallel(shuffled(channel.flags(1, 0.2), 50))
        assert twice == one.compose(2)
        assert twice.delta(0.3) == one.compose(2).delta(0.3)
        assert "2 times" in repr(twice)

    def test_sums_of_a_choice_are_two_bits(self):
        """That is a composition of its two bits, whatever the number of options."""
        for L in (2, 7):
            whole = aggregated(channel.unary(L, 0.75, 0.25), 100).delta(0.3)
            bits = shuffled(channel.flags(1, 0.25), 100).compose(2).delta(0.3)
            assert whole == bits

    def test_whole_reports_of_two_questions_tell_more_than_both_apart(self):
        """So they need the Kronecker product; shuffled apart, the questions are in parallel."""
        joint = [
            [a * b for a in one for b in other] for one in self.binary for other in self.binary
        ]
        lam, n = Fraction(2), 2
        together = max(oracle.delta(a, b, lam) for a, b in pairs_of(joint, whole_reports, n))
        parts = [pairs_of(self.binary, whole_reports, n)] * 2
        apart = side_by_side_truth(parts, lam)
        assert together > apart
        whole = shuffled(channel.from_matrix(joint), n).delta(math.log(2))
        assert whole.low <= float(together) <= whole.high
        one = shuffled(channel.flags(1, 0.25), n)
        both = one.parallel(one).delta(math.log(2))
        assert both.low <= float(apart) <= both.high

    def test_against_dp_accounting(self):
        """The peer composes randomized response of one person; its rounding is up to 1e-4."""
        losses = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
        local, k = 0.5, 20
        share = 2 / (1 + math.exp(local))  # of uniform answers
        peer = losses.from_randomized_response(share, 2, value_discretization_interval=2e-5)
        peer = peer.self_compose(k)
        ours = shuffled(channel.k_ary(2, local), 1).compose(k)
        for epsilon in (1.0, 3.0):
            known = peer.get_delta_for_epsilon(epsilon)
            assert ours.delta(epsilon).high == pytest.approx(known, rel=1e-3)
        many = shuffled(channel.k_ary(5, 1.0), 1).compose(10)
        share = 5 / (4 + math.exp(1.0))
        peer = losses.from_randomized_response(share, 5, value_discretization_interval=2e-5)
        known = peer.self_compose(10).get_delta_for_epsilon(4.0)
        bracket = many.delta(4.0)
        assert bracket.low <= known * (1 + 1e-3)
        assert known * (1 - 1e-3) <= bracket.high <= known * 1.05

    def test_many_releases_of_little_noise_each(self):
        """A grid for losses that are all tiny: their sum is close to that of the attack."""
        bracket = shuffled(channel.k_ary(100, 0.1), 10**4).compose(1000).epsilon(1e-6)
        assert bracket.high < 1.1 * bracket.low

    def test_a_report_that_shows_itself_is_in_the_sum_of_many(self):
        """Each release shows a person with probability 1/1000."""
        rows = fractions([999, 1, 0], [999, 0, 1])
        bound = shuffled(channel.from_matrix(rows), 10)
        assert bound.delta(5.0).high == pytest.approx(1e-3, rel=1e-9)
        bracket = bound.compose(10).delta(5.0)
        exact = 1 - 0.999**10
        assert exact * (1 - 1e-9) <= bracket.high < exact * 1.02
        assert exact * 0.98 < bracket.low <= exact * (1 + 1e-9)


class TestDegenerate:
    @pytest.mark.parametrize(
        "made",
        [
            channel.flags(3, 0.5),
            channel.k_ary(5, 0.0),
            channel.unary(4, 0.25, 0.25),
            channel.from_matrix([[0.5, 0.5]]),
            channel.from_matrix([[0.25, 0.75], [0.25, 0.75]]),
        ],
        ids=str,
    )
    def test_reports_that_tell_nothing(self, made):
        for bound in (shuffled(made, 1), aggregated(made, 10).compose(3)):
            assert bound.delta(0.0) == (0.0, 0.0)
            assert bound.epsilon(0.0) == (0.0, 0.0)
            assert bound.epsilon(1e-9) == (0.0, 0.0)
            assert bound.attack(0.0).neighbours == ()
            assert "nothing to tell apart" in str(bound.attack(0.0))
            assert made.gamma == 1.0

    def test_beside_one_that_tells_something(self):
        one = shuffled(channel.k_ary(3, 1.0), 20)
        both = one.parallel(shuffled(channel.flags(3, 0.5), 10))
        assert both.delta(0.2) == one.delta(0.2)

    def test_answers_without_noise(self):
        for made in (channel.flags(1, 0.0), channel.unary(3, 1.0, 0.0)):
            for bound in (shuffled(made, 5), aggregated(made, 5)):
                assert tuple(bound.delta(50.0)) == pytest.approx((1.0, 1.0))
                low, high = bound.epsilon(1e-3)
                assert low == pytest.approx(60.0, rel=1e-3)
                assert math.isinf(high)
                assert bound.epsilon(0.0) == (math.inf, math.inf)

    @pytest.mark.parametrize("epsilon", [1e6, 1e308])
    def test_an_epsilon_whose_odds_fit_nowhere(self, epsilon):
        for made in (channel.flags(1, 0.0), channel.from_matrix([[0.5, 0.5, 0], [0.5, 0, 0.5]])):
            shown = 1.0 if made.gamma == 0.0 else 0.5
            for bound in (shuffled(made, 3), shuffled(made, 3).compose(2)):
                assert shown <= bound.delta(epsilon).high
        assert aggregated(channel.gaussian(1.0), 3).delta(epsilon).high < 1e-300

    @pytest.mark.parametrize("tiny", [1e-308, 5e-324])
    def test_a_report_that_hardly_ever_shows_itself(self, tiny):
        """Two releases tell no less than one, however small the float."""
        bound = shuffled(channel.from_matrix([[1.0, tiny], [1.0, 0.0]]), 2)
        assert bound.delta(5.0).high > 0.0
        assert bound.delta(5.0).low <= bound.compose(2).delta(5.0).high > 0.0

    def test_a_large_local_epsilon_is_an_upper_end(self):
        """Beyond where epsilons are tried; and an odd place where a float ends."""
        low, high = shuffled(channel.k_ary(3, 690.0), 3).epsilon(1e-3)
        assert 59.0 < low <= high == pytest.approx(690.0)
        made = channel.from_matrix([[1, 0], [1 - Fraction(1, 10**400), Fraction(1, 10**400)]])
        assert shuffled(made, 2).delta(900.0).low == 0.0
        assert shuffled(made, 2).delta(0.0).high >= 0.0

    def test_tiny_flips(self):
        for q in (1e-300, 1e-13, 1e-11):
            assert shuffled(channel.flags(1, q), 3).delta(1.0) == pytest.approx(
                (1.0, 1.0), rel=1e-4
            )

    def test_two_words_for_one_person(self):
        """n = 1 has no others, whatever is seen of the report."""
        assert "1 person" in repr(shuffled(channel.k_ary(3, 1.0), 1))
        assert shuffled(channel.laplace(1.0), 1).attack(0.1).neighbours[0].others == {}
        assert aggregated(channel.laplace(1.0), 1).delta(0.1) == shuffled(
            channel.laplace(1.0), 1
        ).delta(0.1)
        assert shuffled(channel.gaussian(1.0), 1).delta(0.1).high == pytest.approx(
            aggregated(channel.gaussian(1.0), 1).delta(0.1).high
        )


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: shuffled(channel.k_ary(3, 1.0), 0), "at least 1, got n=0"),
        (lambda: shuffled(channel.k_ary(3, 1.0), 2.5), "a whole number of people"),  # type: ignore[arg-type]
        (lambda: shuffled(channel.k_ary(3, 1.0), math.inf), "a whole number of people"),  # type: ignore[arg-type]
        (lambda: shuffled(channel.k_ary(3, 1.0), math.nan), "a whole number of people"),  # type: ignore[arg-type]
        (lambda: shuffled(channel.gaussian(1.0), 5), "sigma = 1: use aggregated"),
        (lambda: aggregated(channel.laplace(1.0), 5), "epsilon_0 = 1: use shuffled"),
        (lambda: shuffled(channel.k_ary(3, 1.0), 5).compose(0), "at least 1, got k=0"),
        (lambda: shuffled(channel.k_ary(3, 1.0), 5).compose(math.nan), "a whole number of rel"),  # type: ignore[arg-type]
        (lambda: shuffled(channel.k_ary(3, 1.0), 5).delta(-1.0), "at least 0, got epsilon=-1.0"),
        (lambda: shuffled(channel.k_ary(3, 1.0), 5).delta(math.inf), "finite"),
        (lambda: shuffled(channel.k_ary(3, 1.0), 5).epsilon(1.0), "strictly between 0 and 1"),
        (lambda: shuffled(channel.k_ary(3, 1.0), 5).epsilon(-0.1), "strictly between 0 and 1"),
    ],
)
def test_errors(make, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        make()


def test_a_whole_float_is_a_number_of_people():
    assert shuffled(channel.k_ary(3, 1.0), 1e4) == shuffled(channel.k_ary(3, 1.0), 10_000)  # type: ignore[arg-type]


def test_the_library_needs_numpy_and_scipy_alone():
    code = """
import sys
from shoal.theory import aggregated, channel, shuffled
shuffled(channel.k_ary(3, 1.0), 100).compose(2).epsilon(1e-6)
aggregated(channel.unary(3, 0.5, 0.25), 100).delta(0.1)
ours = {name for name in sys.modules if name.startswith("shoal.")}
print(sorted(name for name in ours if not name.startswith("shoal.theory")))
roots = {name.partition(".")[0] for name in sys.modules}
print(sorted(roots & {"pyarrow", "pandas", "polars", "cryptography", "jinja2", "matplotlib"}))
"""
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    ).stdout
    assert shown.splitlines() == ["[]", "[]"]
