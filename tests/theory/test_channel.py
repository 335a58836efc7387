"""Pairs and blankets of every channel, against the matrix of its probabilities."""

from __future__ import annotations

import itertools
import math
import random
import re
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy import integrate

from shoal.theory.channel import (
    Atom,
    flags,
    from_matrix,
    gaussian,
    k_ary,
    laplace,
    log_of,
    merged,
    unary,
)
from tests.adversary.channels import flags_rows, k_ary_rows, unary_rows

HALF = Fraction(1, 2)


def classes(rows, x, y, base):
    """Reports in the same proportion together, by sorting them."""
    triples = sorted(
        ([rows[y][v], rows[x][v], base[v]] for v in range(len(base))),
        key=lambda t: [part / sum(t) if sum(t) else Fraction(-1) for part in t],
    )
    found: list[list[Fraction]] = []
    for triple in triples:
        if not sum(triple):
            continue
        last = found[-1] if found else None
        if last and all(
            a * sum(triple) == b * sum(last) for a, b in zip(last, triple, strict=True)
        ):
            found[-1] = [a + b for a, b in zip(last, triple, strict=True)]
        else:
            found.append(triple)
    return sorted(tuple(triple) for triple in found)


def least(rows):
    return [min(column) for column in zip(*rows, strict=True)]


FINITE = [
    *(
        (flags(L, q), flags_rows(L, Fraction(q)), 0, 2**L - 1)
        for L in (1, 2, 3)
        for q in (0.25, 0.0)
    ),
    *(
        (unary(L, p, q), unary_rows(L, Fraction(p), Fraction(q)), 0, 1)
        for L in (2, 3, 4)
        for p, q in [(0.75, 0.25), (0.5, 0.25), (0.625, 0.125), (1.0, 0.25), (0.5, 0.0), (1.0, 0.0)]
    ),
    (k_ary(3, 40.0), k_ary_rows(3, Fraction(math.nextafter(math.exp(40.0), math.inf))), 0, 1),
    (k_ary(6, 1.0), k_ary_rows(6, Fraction(math.nextafter(math.e, math.inf))), 0, 1),
]


@pytest.mark.parametrize(("made", "rows", "x", "y"), FINITE, ids=lambda part: str(part)[:40])
class TestClosedForms:
    def test_the_blanket_is_the_least_over_all_inputs(self, made, rows, x, y):
        (pair,) = made.pairs
        assert sorted(map(tuple, pair.atoms)) == classes(rows, x, y, least(rows))
        assert Fraction(made.gamma) == pytest.approx(sum(least(rows)))

    def test_crowds_of_equal_answers(self, made, rows, x, y):
        names = {"0": x, "1": y, "2": 2} if len(rows) < 9 else {}
        names |= {made.pairs[0].first: x, made.pairs[0].second: y}
        for crowd in made.crowds:
            if crowd.others not in names:
                continue
            given = names[crowd.first], names[crowd.second]
            # bits beside x and x' say nothing, unless z is another option
            assert sorted(map(tuple, crowd.atoms)) == classes(
                rows, *given, rows[names[crowd.others]]
            )

    def test_local_epsilon(self, made, rows, x, y):
        columns = [column for column in zip(*rows, strict=True) if max(column)]
        if any(not min(column) for column in columns):
            assert math.isinf(made.epsilon_0)
            return
        worst = max(max(column) / min(column) for column in columns)
        with mpmath.workdps(50):
            exact = mpmath.log(mpmath.mpf(worst.numerator) / worst.denominator)
            assert 0 <= made.epsilon_0 - exact < 1e-12


class TestFlags:
    def test_no_other_pair_has_a_larger_bound(self):
        """The theorem of `theory.blanket`, for every pair of three flags and four people."""
        rows = flags_rows(3, Fraction(1, 4))
        every = from_matrix(rows)
        for lam in (Fraction(1), Fraction(3, 2), Fraction(4), Fraction(20)):
            found = {}
            for pair in every.pairs:
                differing = (int(pair.first) ^ int(pair.second)).bit_count()
                found[differing] = draws_delta(pair.atoms, 4, lam)
            assert found[1] <= found[2] <= found[3]
            (worst,) = flags(3, 0.25).pairs
            assert draws_delta(worst.atoms, 4, lam) == found[3]


def draws_delta(atoms, n, lam):
    """The bound in fractions: all ways to draw n times."""
    values = [((a.second - lam * a.first) / a.base, a.base) for a in atoms if a.base]
    values.append((Fraction(0), 1 - sum(weight for _, weight in values)))
    total = Fraction(0)
    for counts in itertools.combinations_with_replacement(range(len(values)), n):
        ways = math.factorial(n)
        for place in set(counts):
            ways //= math.factorial(counts.count(place))
        chance = ways * math.prod(values[place][1] for place in counts)
        total += chance * max(sum(values[place][0] for place in counts), Fraction(0))
    alone = sum(
        (max(a.second - lam * a.first, Fraction(0)) for a in atoms if not a.base), Fraction(0)
    )
    return total / n + alone


class TestUnary:
    def test_round_off_of_the_complement_is_no_asymmetry(self):
        made = unary(4, 0.9, 0.1)
        assert Fraction(0.9) + Fraction(0.1) != 1
        other = unary(4, 0.9, 0.11)
        assert made.coordinate is not None
        assert other.coordinate is not None
        assert made.coordinate.flip == min(0.1, float(1 - Fraction(0.9)))
        assert other.coordinate.flip == 0.0
        assert unary(4, 1.0, 1e-30).epsilon_0 == math.inf  # 1 - 1e-30 is 1 in floats

    def test_oue_has_its_epsilon(self):
        for local in (0.5, 1.0, 3.0):
            made = unary(5, 0.5, 1 / (math.exp(local) + 1))
            assert made.epsilon_0 == pytest.approx(local, abs=1e-12)

    def test_a_pair_of_crowds_for_each_way_that_others_answer(self):
        """x', x or a third option: of the bit of x', and of the bit of x."""
        made = unary(3, 0.75, 0.125)
        one = unary_rows(3, Fraction(3, 4), Fraction(1, 8))
        bits = {v: Fraction(3, 4) if v else Fraction(1, 8) for v in (0, 1)}
        single = [[1 - bits[0], bits[0]], [1 - bits[1], bits[1]]]
        assert len(one) == 3
        seen = set()
        for rising, falling in made.sums:
            seen.add((rising[0].others, falling[0].others))
            for (crowd, copies), (x, y) in zip((rising, falling), ((0, 1), (1, 0)), strict=True):
                assert copies == 1
                expected = classes(single, x, y, single[int(crowd.others)])
                assert sorted(map(tuple, crowd.atoms)) == expected
        assert seen == {("0", "1"), ("1", "0"), ("0", "0")}
        assert len(unary(2, 0.75, 0.125).sums) == 2


class TestMatrix:
    def test_random_matrices(self):
        """Zeros, equal rows, disjoint supports, more inputs than reports and the reverse."""
        rng = random.Random(1)
        for _ in range(60):
            inputs, reports = rng.choice([(1, 3), (2, 2), (2, 5), (4, 2), (3, 3), (3, 1)])
            rows = []
            for _ in range(inputs):
                weights = [rng.choice([0, 0, 1, 2, 3]) for _ in range(reports)]
                weights[rng.randrange(reports)] += 1
                rows.append([Fraction(w, sum(weights)) for w in weights])
            if inputs > 2 and rng.random() < 0.3:
                rows[1] = rows[0]
            made = from_matrix(rows)
            pairs = {
                tuple(classes(rows, x, y, least(rows)))
                for x, y in itertools.permutations(range(inputs), 2)
                if rows[x] != rows[y]
            }
            assert {tuple(sorted(map(tuple, pair.atoms))) for pair in made.pairs} == pairs
            for crowd in made.crowds:
                x, y, z = map(int, (crowd.first, crowd.second, crowd.others))
                assert sorted(map(tuple, crowd.atoms)) == classes(rows, x, y, rows[z])

    def test_any_kind_of_number(self):
        given = [[1, 0], [Fraction(1, 4), Fraction(3, 4)]]
        kinds: list[Any] = [given, np.array(given, dtype=np.float32), np.array([[1, 0], [1, 0]])]
        assert [from_matrix(kind).epsilon_0 for kind in kinds] == [math.inf, math.inf, 0.0]

    def test_a_row_is_divided_by_its_exact_sum(self):
        thirds = [1 / 3] * 3
        row = from_matrix([thirds, [0.5, 0.25, 0.25]]).pairs[0]
        assert sum(a.first for a in row.atoms) == sum(a.second for a in row.atoms) == 1


class TestLaplace:
    @staticmethod
    def density(v, x, local):
        return local / 2 * math.exp(-local * abs(v - x))

    @pytest.mark.parametrize("local", [0.1, 1.0, 2.0, 8.0])
    def test_cells_have_the_masses_of_the_density(self, local):
        """Each cell of the attack is an interval of reports, in the order of its ratio."""
        made = laplace(local)
        crowd = made.crowds[0]
        place = -math.inf
        ends: list[float] = []
        atoms = sorted(crowd.atoms, key=lambda a: a.second / a.first)
        for atom in atoms[: len(atoms) // 2]:
            start = max(place, -60.0 / local)
            # the end of a cell from its mass given 0; then its mass given 1 must fit
            below = (0.5 if start <= 0 else 1 - math.exp(-local * start) / 2) if ends else 0.0
            share = below + float(atom.first)
            end = 0.0 if not ends else -math.log(2 * (1 - share)) / local
            mass, _ = integrate.quad(self.density, start, end, (1, local), epsabs=1e-13)
            assert mass == pytest.approx(float(atom.second), rel=1e-6)
            ends.append(end)
            place = end
        assert place == pytest.approx(0.5, rel=1e-6)
        for part in (0, 1, 2):
            assert sum(atom[part] for atom in crowd.atoms) == 1

    @pytest.mark.parametrize("local", [0.1, 1.0, 4.0])
    def test_the_spread_is_larger_in_convex_order(self, local):
        """Stop-losses of Y of the cells are above those of the density, and close."""
        (pair,) = laplace(local).pairs
        gamma = 2 * integrate.quad(self.density, 0.5, math.inf, (0, local))[0]
        assert sum(float(a.base) for a in pair.atoms) == pytest.approx(gamma, rel=1e-9)
        for lam, threshold in itertools.product((1.0, 1.3), (-1.0, -0.1, 0.0, 0.2, 1.0)):

            def payoff(v, lam=lam, threshold=threshold):
                zero, one = self.density(v, 0, local), self.density(v, 1, local)
                return max(one - lam * zero - threshold * min(zero, one), 0.0)

            exact = sum(
                integrate.quad(payoff, a, b, limit=200)[0]
                for a, b in itertools.pairwise([-40 / local, 0.0, 0.5, 1.0, 1 + 40 / local])
            )
            found = sum(
                max(float(a.second - Fraction(lam) * a.first - Fraction(threshold) * a.base), 0.0)
                for a in pair.atoms
            )
            assert exact * (1 - 1e-6) - 1e-9 <= found <= exact * 1.01 + 0.01 * local / 48


def test_one_class_of_reports_in_any_proportion():
    one, two = Atom(Fraction(1), Fraction(2), Fraction(3)), Atom(HALF, Fraction(1), Fraction(3, 2))
    other = Atom(Fraction(1), Fraction(1), Fraction(0))
    nothing = Atom(Fraction(0), Fraction(0), Fraction(0))
    assert merged([one, other, two, nothing]) == (
        other,
        Atom(Fraction(3, 2), Fraction(3), Fraction(9, 2)),
    )


def test_a_matrix_of_whole_numbers_of_numpy():
    """Their products would overflow in silence."""
    for kind in (int, np.uint8, bool, object):
        rows: Any = np.eye(3, dtype=kind)
        made = from_matrix(rows)
        assert (made.gamma, made.epsilon_0) == (0.0, math.inf)
        assert all(type(a.first.numerator) is int for a in made.pairs[0].atoms)


def test_numbers_of_numpy_are_those_of_python():
    some, half, quarter = np.int64(4), np.float32(0.5), np.float64(0.25)
    for make, numpys, plain in (
        (flags, (some, quarter), (4, 0.25)),
        (k_ary, (some, half), (4, 0.5)),
        (unary, (some, half, quarter), (4, 0.5, 0.25)),
    ):
        make.cache_clear()
        made: Any = make(*numpys)
        make.cache_clear()
        usual: Any = make(*plain)
        assert [pair.atoms for pair in made.pairs] == [pair.atoms for pair in usual.pairs]
        assert made.epsilon_0 == usual.epsilon_0


def test_logarithms_of_fractions_of_any_size():
    rng = random.Random(2)
    for _ in range(300):
        ratio = Fraction(rng.getrandbits(rng.choice([8, 60, 3000])) + 1, rng.getrandbits(2000) + 1)
        with mpmath.workdps(60):
            exact = mpmath.log(mpmath.mpf(ratio.numerator) / ratio.denominator)
            assert abs(log_of(ratio) - exact) <= 2.0**-52 * (1 + abs(exact))


@pytest.mark.parametrize(
    ("make", "rule", "value", "fix"),
    [
        (lambda: flags(0, 0.1), "L >= 1", "L=0", "q = f / 2"),
        (lambda: flags(2.5, 0.1), "a whole L", "L=2.5", "q = f / 2"),
        (lambda: flags(2, 0.6), "q in [0, 1/2]", "q=0.6", "q = f / 2"),
        (lambda: flags(2, math.nan), "q in [0, 1/2]", "q=nan", "q = f / 2"),
        (lambda: k_ary(1, 1.0), "k >= 2", "k=1", "from_matrix"),
        (lambda: k_ary(2.5, 1.0), "a whole k", "k=2.5", "from_matrix"),
        (lambda: k_ary(3, -1.0), "[0, 700)", "epsilon_0=-1.0", "from_matrix"),
        (lambda: unary(1, 0.5, 0.1), "L >= 2", "L=1", "complement"),
        (lambda: unary(2.5, 0.5, 0.1), "a whole L", "L=2.5", "complement"),
        (lambda: unary(3, 0.1, 0.5), "q <= p", "p=0.1, q=0.5", "complement"),
        (lambda: laplace(0.0), "(0, 700)", "epsilon_0=0.0", "1 / b"),
        (lambda: gaussian(math.inf), "1e100", "sigma=inf", "divide"),
        (lambda: gaussian(1e-300), "1e-100", "sigma=1e-300", "divide"),
        (lambda: from_matrix([]), "a row for each input", "[]", "entry for each report"),
        (lambda: from_matrix([[1.0], [0.5, 0.5]]), "a row", "[1, 2]", "entry for each report"),
        (lambda: from_matrix([[0.5, 0.4]]), "sum to 1", "[0.5, 0.4]", "divide"),
        (lambda: from_matrix([[1.5, -0.5]]), ">= 0", "-0.5", "divide"),
        (lambda: from_matrix([[math.nan, 1.0]]), "finite", "nan", "divide"),
    ],
)
def test_errors_say_rule_value_and_fix(make, rule, value, fix):
    with pytest.raises(ValueError, match=re.escape(rule)) as error:
        make()
    for words in (value, fix):
        assert words in str(error.value)
