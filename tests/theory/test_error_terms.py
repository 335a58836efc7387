"""Every error term of the certified engine, one by one: each test fails if its term is dropped.

A term that is far above round-off is tested against an exact value. One that is of the order of
round-off cannot be seen in a value, so it is made large where it arises and must arrive in the
bracket.
"""

import itertools
import math
import random
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from shoal.theory import one_bit as one_bit_sums
from shoal.theory import stop_loss as engine
from shoal.theory.brackets import UNIT, Bracket
from shoal.theory.stop_loss import inversion, reduction
from shoal.theory.stop_loss.inversion import Inverted
from shoal.theory.stop_loss.reduction import Draw, Reduced, reduce_draw
from shoal.theory.stop_loss.tilt import Pivoted, Soft, saddle, soften
from tests.theory.plain_draws import draw_of

from .oracle import count_law, hockey_stick
from .test_stop_loss import exactly

THREE_ATOMS = draw_of([-1.0, 1.0, 0.3], [0.5, 0.25, 0.25])
DRAWS = 50
SETTLED = (-math.inf, 0.0, -math.inf, -math.inf, 0.0, 0.0)
"""The fields of a problem that say that nothing was settled exactly."""


@pytest.fixture
def problem() -> Reduced:
    reduced = reduce_draw(THREE_ATOMS, DRAWS)
    assert reduced.x.size == 3
    return reduced


LINEAR = draw_of([-1.0, 1000.0], [0.5, 0.5])

DOUBTS: dict[str, tuple[Any, str, Callable[[Any], Any], Draw, bool]] = {
    "round-off": (engine, "invert", lambda r: r._replace(roundoff=1e-3), THREE_ATOMS, False),
    "cut-off": (engine, "invert", lambda r: r._replace(cutoff=1e-3), THREE_ATOMS, False),
    "leak": (engine, "reach", lambda r: r._replace(leak=1e-3), THREE_ATOMS, False),
    "samples": (
        inversion,
        "sample",
        lambda r: r._replace(error=r.error + 1e-4),
        THREE_ATOMS,
        False,
    ),
    "weights": (inversion, "pivoted", lambda r: r._replace(own=1e-4), THREE_ATOMS, False),
    "mgf": (inversion, "pivoted", lambda r: r._replace(rounding=1e-4), THREE_ATOMS, False),
    "atoms": (engine, "reduce_draw", lambda r: r._replace(dx=r.dx + 1e-4), THREE_ATOMS, False),
    "atoms, few": (engine, "reduce_draw", lambda r: r._replace(dx=r.dx + 1e-4), THREE_ATOMS, True),
    "chances": (reduction, "outcome_chances", lambda r: (r[0], r[1] + 1e-3), THREE_ATOMS, True),
    "linear": (engine, "reduce_draw", lambda r: r._replace(linear_error=1e-3), LINEAR, True),
}
"""Where a doubt arises, how it is made large, a law that it matters for, if it is enumerated."""


class TestRefinement:
    @pytest.mark.parametrize(("owner", "name", "spoil", "law", "few"), DOUBTS.values(), ids=DOUBTS)
    def test_doubts_arrive(self, owner, name, spoil, law, few, monkeypatch):
        """Whatever is doubted is in the bracket: on both sides, but a leak only below."""
        monkeypatch.setattr(engine, "few_outcomes", lambda n, parts: few)
        plain = engine.stop_loss_of(law, 20)
        real = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *given: spoil(real(*given)))
        doubted = engine.stop_loss_of(law, 20)
        assert doubted.low < plain.low * (1 - 5e-4)
        assert doubted.high > plain.high * (1 + 5e-4) or name == "reach"

    def test_noise_makes_an_upper_bound_and_twice_the_noise_a_lower_one(self, problem, monkeypatch):
        monkeypatch.setattr(
            engine, "invert", lambda *arguments: Inverted(0.010, 0.012, 0.0, 0.0, 0.0)
        )
        scale = math.exp(problem.log_scale)
        low, high = engine.refine(problem, DRAWS, 1e-4, 0.0, 1 << 13)
        assert high >= scale * 0.010
        assert low <= scale * (2 * 0.010 - 0.012) * (1 + 1e-9)

    def test_the_rounding_of_the_unit_arrives(self, problem, monkeypatch):
        """M(t)^n is an exponential of a rounded number; with 1e9 units that is a part in 1e5."""
        monkeypatch.setattr(
            engine, "invert", lambda *arguments: Inverted(1e-2, 1e-2, 0.0, 0.0, 0.0)
        )
        monkeypatch.setattr(engine, "UNIT", 2.0**-20)
        scale = math.exp(problem.log_scale)
        low, high = engine.refine(problem, DRAWS, 1e-4, 0.0, 1 << 13)
        assert high > scale * 1e-2 * (1 + 2.0**-15)
        assert low < scale * 1e-2 * (1 - 2.0**-15)


class TestInversion:
    def test_the_cut_off_covers_what_is_cut_off(self, problem):
        """The same integral with ten times the frequencies differs by less than the bound."""
        tilt = saddle(problem.x, problem.log_weight, DRAWS)
        width, period = 1.0 / tilt.t, 60.0
        for cut in (0.8, 1.2, 1.6):
            short = inversion.invert(problem, DRAWS, tilt, width, period, cut)
            long = inversion.invert(problem, DRAWS, tilt, width, period, 10 * cut)
            difference = abs((2 * short.narrow - short.wide) - (2 * long.narrow - long.wide))
            assert difference <= short.cutoff + long.cutoff + short.roundoff + long.roundoff
            assert short.cutoff < 0.5
        # Without the term the test could not hold: the difference is far above round-off.
        first = inversion.invert(problem, DRAWS, tilt, width, period, 0.8)
        last = inversion.invert(problem, DRAWS, tilt, width, period, 8.0)
        assert abs(first.narrow - last.narrow) > 1e3 * (first.roundoff + last.roundoff)

    def test_the_error_of_the_atoms_is_covered(self, problem):
        """Atoms moved by as much as their error give another sample, within the bound."""
        shift = 1e-6
        doubtful = problem._replace(dx=np.full(problem.x.size, shift))
        claimed = inversion.sample(doubtful, DRAWS, 1.0, 0.3, 64)
        for signs in ((1, 1, -1), (1, -1, 1), (-1, 1, 1), (1, 1, 1)):
            moved = problem._replace(x=problem.x + shift * np.array(signs))
            other = inversion.sample(moved, DRAWS, 1.0, 0.3, 64)
            # M(z) itself, in units of M(t) of the plain problem.
            z = 1.0 + 1j * claimed.frequency
            plain_value = (1 + claimed.deviation) * np.exp(z * claimed.shift - claimed.shift)
            factor = math.exp(other.k - claimed.k)
            value = factor * (1 + other.deviation) * np.exp(z * other.shift - other.shift)
            assert (np.abs(value - plain_value) <= 1.01 * claimed.error).all()

    def test_dropped_weights_are_counted(self, monkeypatch):
        """Weights too small to matter are left out, and their sum is part of the error."""
        n = 10
        tiny = np.full(400, 1e-22)
        atoms = np.concatenate([[-1.0, 1.0, 0.3], np.linspace(-1.0, 1.0, 400)])
        weights = np.concatenate([[0.5, 0.25, 0.25], tiny])
        problems = [
            Reduced(atoms[:k], np.zeros(k), np.log(weights[:k]), *SETTLED) for k in (403, 3)
        ]
        monkeypatch.setattr(
            inversion,
            "pivoted",
            lambda problem, t: Pivoted(0, np.exp(problem.log_weight), 0.0, 0.0, 0.0),
        )
        # Without round-off the two differ by what was dropped alone.
        monkeypatch.setattr(inversion, "UNIT", 0.0)
        many, none = (inversion.sample(one, n, 0.0, 0.1, 8) for one in problems)
        assert (none.error == 0.0).all()
        assert (many.error >= 2.0 * tiny.sum() * (1 - 1e-9)).all()

    @pytest.mark.parametrize(("atoms", "draws"), [(3, 50), (40, 10**11), (700, 50)])
    def test_every_rounding_is_in_the_error_of_a_sample(self, atoms, draws, monkeypatch):
        """With a coarse unit the error is at least the sum that the module's proof asks for."""
        unit = 2.0**-40 if draws < 1000 else UNIT
        monkeypatch.setattr(inversion, "UNIT", unit)
        x = np.linspace(-1.0, 1.0, atoms)
        weights = np.full(atoms, 1.0 / atoms)
        problem = Reduced(x, np.zeros(atoms), np.log(weights), *SETTLED)
        monkeypatch.setattr(
            inversion, "pivoted", lambda problem, t: Pivoted(0, weights, 0.0, 0.0, 0.0)
        )
        v, deviation, error, _, _ = inversion.sample(problem, draws, 0.0, 0.1, 64)
        wanted = 6 * unit * v * float(weights @ np.abs(x - x[0]))
        wanted += 8 * unit * np.abs(deviation)
        wanted += (atoms + 8) * unit * np.sqrt(2.0 * np.maximum(-deviation.real, 0.0))
        if atoms == 3:
            wanted += (atoms + 16) * unit  # the factored sum is relative to the whole weight
        if atoms == 700:
            _, gridding = inversion._gridded(weights, x - x[0], 0.1, 64)
            # A Taylor series of order 17 and, by this unit, 16 log2(M) of the transformed weight.
            assert (gridding[1:] > 16 * unit * 8 * 0.9).all()
            wanted += gridding
        assert (error >= wanted * (1 - 1e-9)).all()

    def test_the_remainder_of_the_series_is_covered(self, monkeypatch):
        """A series cut at a low order leaves what the next term is, and an error says so."""
        x = np.linspace(-1.0, 1.0, 700)
        weights = np.full(700, 1.0 / 700)
        v = 0.1 * np.arange(64, dtype=np.float64)
        exact = inversion._direct(weights, x, v)
        gridded, error = inversion._gridded(weights, x, 0.1, 64)
        assert (np.abs(gridded - exact) <= error + 1e-14).all()
        monkeypatch.setattr(inversion, "UNIT", 0.0)
        _, series = inversion._gridded(weights, x, 0.1, 64)
        # (pi/4)^17 / 17! relative to the weight, at the highest frequency.
        assert series[-1] >= (math.pi / 4) ** inversion._TAYLOR_ORDER / math.factorial(17)


class TestReduction:
    @pytest.mark.parametrize("seed", range(8))
    def test_entries_may_be_off_by_what_a_law_allows(self, seed, monkeypatch):
        """Entries are exact up to 8 u (1 + |entry|); atoms and the linear part cover that."""
        unit = 2.0**-30
        monkeypatch.setattr(reduction, "UNIT", unit)
        rng = np.random.default_rng(seed)
        plus = rng.uniform(-6.0, 3.0, 12)
        # Half of the atoms nearly cancel, so that the error of each side outweighs the rest.
        minus = np.where(rng.random(12) < 0.5, plus + rng.normal(0, 1e-3, 12), plus - 3.0)
        minus[:3] = plus[:3] + 1.0
        weight = np.log(rng.dirichlet(np.ones(12)))
        law = Draw(plus, minus, weight)
        for n in (1, 4):
            reduced = reduce_draw(law, n)
            for _ in range(20):
                moved = Draw(
                    *(one + 8 * unit * rng.choice([-1, 1], 12) * (1 + np.abs(one)) for one in law)
                )
                other = reduce_draw(moved, n)
                if n == 1:
                    ratio = math.exp(other.log_linear - reduced.log_linear)
                    assert abs(ratio - 1.0) <= 1.01 * self._linear_doubt(reduced, law, unit)
                elif other.x.size == reduced.x.size:
                    scale = math.exp(other.log_scale - reduced.log_scale)
                    assert (np.abs(other.x * scale - reduced.x) <= 1.01 * reduced.dx).all()

    def _linear_doubt(self, reduced: Reduced, law: Draw, unit: float) -> float:
        """What is claimed, and what the cancelling of the atoms adds to it."""
        atoms = np.exp(law.log_plus) - np.exp(law.log_minus)
        moved = (
            8
            * unit
            * (
                (1 + np.abs(law.log_plus)) * np.exp(law.log_plus)
                + (1 + np.abs(law.log_minus)) * np.exp(law.log_minus)
            )
        )
        weights = np.exp(law.log_weight)
        total = float(weights @ np.maximum(atoms, 0.0))
        return reduced.linear_error + float(weights @ moved) / total

    @pytest.mark.parametrize("sign", [-1, 1])
    def test_weights_may_all_be_off_the_same_way(self, sign, monkeypatch):
        """Nothing cancels and the atoms are exact; the error of the linear part is all there is."""
        unit = 2.0**-30
        monkeypatch.setattr(reduction, "UNIT", unit)
        law = draw_of([0.0, 1.0, 2.0], [0.9989, 1e-3, 1e-4])
        weight = law.log_weight
        moved = law._replace(log_weight=weight + sign * 8 * unit * (1 + np.abs(weight)))
        reduced, other = reduce_draw(law, 1), reduce_draw(moved, 1)
        ratio = math.exp(other.log_linear - reduced.log_linear)
        assert 0.0 < abs(ratio - 1.0) <= reduced.linear_error


class TestOutcomes:
    def test_chances_cover_the_error_of_the_weights(self, monkeypatch):
        unit = 2.0**-30
        monkeypatch.setattr(reduction, "UNIT", unit)
        counts = reduction.compositions(6, 3)
        weight = np.log([0.7, 0.2, 0.1])
        chance, wobble = reduction.outcome_chances(counts, weight)
        for signs in ((1, 1, 1), (-1, 1, 1), (1, -1, -1)):
            moved = weight + 8 * unit * np.array(signs) * (1 + np.abs(weight))
            other, _ = reduction.outcome_chances(counts, moved)
            assert (np.abs(other / chance - 1.0) <= wobble).all()


@pytest.mark.slow
class TestOneBit:
    @pytest.mark.parametrize("exponent", [2.0, 4.0, 8.0, 45.0])
    def test_a_short_window_is_still_right(self, exponent, monkeypatch):
        """What aliases in and what is beyond the window is bounded, however short it is."""
        monkeypatch.setattr(one_bit_sums, "_EXPONENT", exponent)
        for q, others, epsilon in itertools.product(
            (Fraction(1, 16), Fraction(1, 4)), (40, 90), (0.1, 0.7)
        ):
            ones = np.array([0, others // 3, others], np.int64)
            ends = one_bit_sums.upward(ones, others - ones, float(q), epsilon)
            for m, low, high in zip(ones.tolist(), *ends, strict=True):
                # e^epsilon is rounded; the difference is far below what a short window costs.
                lam = Fraction(math.exp(epsilon))
                exact = hockey_stick(
                    count_law(m + 1, others - m, q), count_law(m, others - m + 1, q), lam
                )
                assert Fraction(float(low)) <= exact <= Fraction(float(high))


def heavy_law(seed: int) -> tuple[list[Fraction], list[Fraction]]:
    """Powers of 7 on both sides of 0, the large ones rare."""
    rng = random.Random(seed)
    atoms = [Fraction(7) ** k * rng.choice([1, -1, -1]) for k in range(-4, 5)]
    atoms += [Fraction(-1, 7), Fraction(1, 11), Fraction(-(7**4)), Fraction(7**4)]
    raw = [Fraction(1, 1 + int(abs(y)) ** 2) for y in atoms]
    total = Fraction(sum(raw))
    return atoms, [w / total for w in raw]


def as_law(atoms: list[Fraction], weights: list[Fraction]) -> Draw:
    return draw_of([float(y) for y in atoms], [float(w) for w in weights])


class TestSoftening:
    @pytest.mark.parametrize("seed", range(6))
    def test_what_is_cut_off_is_paid_for(self, seed):
        """The exact value is between the soft one less the price and the soft one plus extra."""
        n = 3
        atoms, weights = heavy_law(seed)
        exact = exactly(atoms, weights, n, 0)
        problem = reduce_draw(as_law(atoms, weights), n)
        assert problem.log_linear == -math.inf, "an exact cut bit; the law is not heavy enough"
        soft = soften(problem, n, math.log(0.3 * float(exact)))
        assert soft is not None
        scale = Fraction(math.exp(soft.problem.log_scale))
        mild = [Fraction(float(x)) * scale for x in soft.problem.x]
        chances = [Fraction(math.exp(w)) for w in soft.problem.log_weight]
        value = float(exactly(mild, chances, n, 0))
        extra, price = math.exp(soft.log_extra), math.exp(soft.log_price)
        assert value + extra - price <= float(exact) * (1 + 1e-9)
        assert float(exact) <= (value + extra) * (1 + 1e-9)
        # The price is not idle: without it the first inequality would be false.
        assert value + extra > float(exact) * (1 + 1e-9)

    def test_price_and_extra_arrive(self, problem, monkeypatch):
        """The first attempt is wide, the soft one narrow: its lower end pays the price."""
        price, extra = 0.25, 0.125
        answers = iter([Bracket(0.5, 4.0), Bracket(1.0, 1.0), Bracket(1.0, 1.0)])
        monkeypatch.setattr(engine, "refine", lambda *arguments: next(answers))
        monkeypatch.setattr(
            engine,
            "soften",
            lambda problem, n, budget: Soft(problem, math.log(extra), math.log(price)),
        )
        low, high = engine._refined(problem, DRAWS, 1e-4, Bracket(0.0, 0.0), 10.0, 1 << 18)
        assert low <= 1.0 + extra - price
        assert low > 0.5
        assert high >= 1.0 + extra


class TestBracket:
    def test_products_are_widened(self):
        """The exact product of two floats is inside, whichever way the float product rounds."""
        rng = random.Random(14)
        rounded = {"up": 0, "down": 0}
        for _ in range(2_000):
            value, factor = rng.uniform(0, 1), math.exp(rng.uniform(-40, 40))
            exact = Fraction(value) * Fraction(factor)
            low, high = Bracket(value, value).times(factor)
            assert Fraction(low) <= exact <= Fraction(high)
            rounded["up" if Fraction(value * factor) > exact else "down"] += 1
        assert min(rounded.values()) > 500

    def test_a_tiny_product_does_not_vanish(self):
        assert Bracket(5e-324, 5e-324).times(0.25) == (0.0, 5e-324)

    def test_scaling_by_an_exponential_is_widened(self):
        """e^x is rounded, x too: the bracket holds the exact product, here with x = k ln 2."""
        for k in range(-900, 901, 37):
            log_scale = k * math.log(2.0)
            low, high = engine.rescaled(Bracket(0.75, 0.75), log_scale)
            # The float k ln 2 is off by at most |k ln 2| 2^-53 of itself, a relative |k| 2^-53.
            assert low < math.ldexp(0.75, k) < high
