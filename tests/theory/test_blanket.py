"""Products of tables against exact fractions: masses are as far off as they say, at most."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from shoal.theory import blanket
from shoal.theory import stop_loss as engine
from shoal.theory.blanket import Doubt, Ratios
from shoal.theory.brackets import UNIT
from shoal.theory.domains import Block, at_most, choice, flags
from shoal.theory.stop_loss.reduction import Draw
from tests.theory.plain_draws import draw_of

Exact = dict[tuple[int, int], Fraction]


def exact_table(block: Block, size: int, size_other: int, q: float) -> Exact:
    """Mass of the blanket on each pair of powers, by its definition, over all vectors."""
    flip = Fraction(q)
    subsets = [
        y for y in itertools.product((0, 1), repeat=block.bits)
        if block.lowest <= sum(y) <= block.highest
    ]  # fmt: skip
    overlap = max(0, size + size_other - block.bits)
    x = [1] * size + [0] * (block.bits - size)
    other = [0] * (size - overlap) + [1] * size_other
    other += [0] * (block.bits - len(other))
    found: Exact = defaultdict(Fraction)
    for v in itertools.product((0, 1), repeat=block.bits):
        distances = [sum(a != b for a, b in zip(v, y, strict=True)) for y in subsets]
        furthest = max(distances)
        mass = flip**furthest * (1 - flip) ** (block.bits - furthest)
        powers = [furthest - sum(a != b for a, b in zip(v, y, strict=True)) for y in (other, x)]
        found[powers[0], powers[1]] += mass
    return found


def multiplied(left: Exact, right: Exact) -> Exact:
    found: Exact = defaultdict(Fraction)
    for (a, b), mass in left.items():
        for (c, d), other in right.items():
            found[a + c, b + d] += mass * other
    return found


def log_of(mass: Fraction) -> mpmath.mpf:
    return mpmath.log(mpmath.mpf(mass.numerator)) - mpmath.log(mpmath.mpf(mass.denominator))


def error_in_doubts(table: Ratios, exact: Exact) -> float:
    """The largest error of a mass, as a part of what the table says; every mass is there."""
    assert len(exact) == table.log_mass.size
    flat, slope = table.doubt
    worst = 0.0
    with mpmath.workdps(60):
        for towards, away, log_mass in zip(*table[:3], strict=True):
            truth = log_of(exact[int(towards), int(away)])
            allowed = 8 * UNIT * (flat + slope * abs(float(truth)))
            worst = max(worst, float(abs(mpmath.mpf(float(log_mass)) - truth)) / allowed)
    return worst


@pytest.mark.parametrize("q", [0.499, 0.3, 0.01, 1e-6])
class TestMasses:
    @pytest.mark.parametrize(
        ("block", "size", "other"),
        [(choice(3), 1, 1), (Block(4, 2, 2), 2, 2), (Block(5, 3, 3), 3, 3), (at_most(2, 4), 0, 2)],
    )
    def test_of_one_block(self, block: Block, size: int, other: int, q: float):
        table = blanket._exact(block, size, other, q)
        assert error_in_doubts(table, exact_table(block, size, other, q)) <= 1.0

    @pytest.mark.slow
    @pytest.mark.parametrize("by_pairs", [False, True])
    def test_of_products(self, q: float, by_pairs: bool, monkeypatch: pytest.MonkeyPatch):
        """Both routes, by squaring and by a last factor of another kind."""
        if by_pairs:
            monkeypatch.setattr(blanket, "_convolved", lambda left, right: None)
        three = exact_table(choice(3), 1, 1, q)
        exact: Exact = {(0, 0): Fraction(1)}
        for _ in range(13):
            exact = multiplied(exact, three)
        table = blanket.power(blanket._exact(choice(3), 1, 1, q), 13, q)
        assert error_in_doubts(table, exact) <= 1.0
        table = blanket.product(table, blanket._flags(6, q), q)
        exact = multiplied(exact, flags_table(6, q))
        assert error_in_doubts(table, exact) <= 1.0
        assert table.doubt.flat < 1000  # 1e-12: no mass is far off

    def test_of_masses_in_bands(self, q: float, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(blanket, "_RANGE", 8.0)
        monkeypatch.setattr(blanket, "_MAX_BANDS", 1000)
        three = exact_table(choice(3), 1, 1, q)
        table = blanket._exact(choice(3), 1, 1, q)
        squared = blanket._convolved(table, table)
        assert squared is not None
        assert error_in_doubts(squared, multiplied(three, three)) <= 1.0


def flags_table(bits: int, q: float) -> Exact:
    """Two answers that differ in every bit."""
    flip = Fraction(q)
    return {(i, bits - i): math.comb(bits, i) * flip**bits for i in range(bits + 1)}


@pytest.mark.parametrize(("part", "whole"), [(1, 2), (1, 64), (63, 64), (3, 4), (0, 4), (4, 4)])
@pytest.mark.parametrize("unit", [1e-9, 1e-3, 0.7, 13.0])
def test_shares_of_a_spread(part: int, whole: int, unit: float):
    stay, rise = blanket.log_shares(np.array([part]), whole, unit)
    with mpmath.workdps(60):
        u = mpmath.mpf(unit)
        top, down = mpmath.expm1(part * u), mpmath.expm1(whole * u)
        for found, truth in ((stay[0], 1 - top / down), (rise[0], top / down)):
            if truth == 0:
                assert found == -math.inf
                continue
            log_truth = mpmath.log(truth)
            allowed = UNIT * (20 + 8 * whole * unit + 3 * abs(float(log_truth)))
            assert abs(mpmath.mpf(float(found)) - log_truth) <= allowed


class TestErrorsThatAreMadeLarge:
    """Errors of round-off cannot be seen one by one. Larger ones go the same way."""

    ERROR = 1e-6

    @pytest.mark.parametrize("by_pairs", [False, True])
    def test_of_a_product(self, by_pairs: bool, monkeypatch: pytest.MonkeyPatch):
        if by_pairs:
            monkeypatch.setattr(blanket, "_convolved", lambda left, right: None)
        three, exact = exact_table(choice(3), 1, 1, 0.3), {(0, 0): Fraction(1)}
        for _ in range(13):
            exact = multiplied(exact, three)
        table = blanket._exact(choice(3), 1, 1, 0.3)
        off = table._replace(
            log_mass=table.log_mass + self.ERROR,
            doubt=table.doubt.more(self.ERROR / (8 * UNIT), 0.0),
        )
        assert 0.9 <= error_in_doubts(blanket.power(off, 13, 0.3), exact) <= 1.0

    def test_of_logarithms_that_are_longer_than_that_of_their_sum(self):
        """A hundred equal masses, each off in proportion to its logarithm."""
        count, log_mass = 100, -10.0
        doubt = Doubt(1.0, self.ERROR / (8 * UNIT))
        off = np.full(count, log_mass * (1 + self.ERROR))
        table = blanket.merged(np.zeros(count, int), np.zeros(count, int), off, doubt)
        truth = math.log(count) + log_mass
        flat, slope = table.doubt
        error = abs(float(table.log_mass[0]) - truth) / (8 * UNIT * (flat + slope * abs(truth)))
        assert 0.9 <= error <= 1.0

    def test_of_additions(self):
        """What is added to 1 is lost each time, and would be a part in 1e11 together."""
        count = 100_000
        logs = np.append(0.0, np.full(count, math.log(2.0**-54)))
        place = np.zeros(count + 1, int)
        table = blanket.merged(place, place, logs, Doubt(1.0, 1.0))
        error = abs(float(table.log_mass[0]) - math.log1p(count * 2.0**-54))
        assert 5e-12 < error <= 8 * UNIT * table.doubt.flat

    def test_of_additions_in_a_rectangle(self):
        count = 2000
        line = Ratios(
            np.zeros(count + 1, int),
            np.arange(count + 1),
            np.append(np.full(count, math.log(2.0**-54)), 0.0),
            Doubt(1.0, 1.0),
        )
        flat = Ratios(
            np.zeros(count + 1, int), np.arange(count + 1), np.zeros(count + 1), Doubt(1.0, 1.0)
        )
        both = blanket._convolved(line, flat)
        assert both is not None
        error = abs(float(both.log_mass[count]) - math.log1p(count * 2.0**-54))
        assert error <= 8 * UNIT * both.doubt.flat
        assert both.doubt.flat > count / 8


class TestArrival:
    """Doubt that is made large must widen the brackets of every method of the engine."""

    def law(self, atoms: int, blur: float) -> tuple[Draw, Draw]:
        """A law with blurred weights, and one that it may stand for."""
        generator = np.random.default_rng(5)
        values = np.concatenate([[0.0, -1.0, 0.9], generator.uniform(-1.0, 0.9, atoms - 3)])
        weights = np.concatenate([[0.5], np.full(atoms - 1, 0.5 / (atoms - 1))])
        sharp = draw_of(values, weights)
        change = np.where(values > 0, 1.0, -1.0) * 7 * UNIT * blur
        change[0] = 0.0
        moved = weights * np.exp(change)
        moved[0] = 1.0 - moved[1:].sum()
        return sharp._replace(blur=blur), draw_of(values, moved)

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("atoms", "draws", "blur"),
        [(3, 20, 2.0**24), (40, 4000, 2.0**24), (engine.MANY + 500, 4000, 2.0**32)],
        ids=["all outcomes", "inversion", "merged atoms"],
    )  # fmt: skip
    def test_of_weights(self, atoms: int, draws: int, blur: float):
        blurred, moved = self.law(atoms, blur)
        wide = engine.stop_loss_of(blurred, draws, 1e-9)
        sharp = engine.stop_loss_of(blurred._replace(blur=0.0), draws, 1e-9)
        other = engine.stop_loss_of(moved, draws, 1e-9)
        assert wide.low <= other.low
        assert other.high <= wide.high
        # The blur can be seen: without it the bracket would leave out what it stands for.
        assert sharp.high < other.low

    def test_of_what_is_linear(self):
        """One draw decides, so that the payoff is a mean."""
        blur = 2.0**24
        law = draw_of([-1e-9, 1.0], [0.75, 0.25])._replace(blur=blur)
        wide, sharp = (engine.stop_loss_of(one, 10) for one in (law, law._replace(blur=0.0)))
        assert wide.high >= sharp.high * (1 + 7 * UNIT * blur)

    @pytest.mark.parametrize("method", ["summed", "times"])
    def test_of_tables(self, method: str, monkeypatch: pytest.MonkeyPatch):
        domain = (choice(3), choice(4), flags(2))
        before = blanket.blanket_delta(domain, 5000, 0.3, 1.0, 1e-9)
        plain = getattr(Doubt, method)
        monkeypatch.setattr(
            Doubt, method, lambda self, *more: plain(self, *more).more(self.flat + 2.0**24, 0.0)
        )
        after = blanket.blanket_delta(domain, 5000, 0.3, 1.0, 1e-9)
        assert after.relative_width > before.relative_width + 1e-7


def test_what_the_blanket_leaves_is_larger_than_its_error():
    """Close to q = 1/2 all mass is common, up to less than round-off can tell."""
    for offset in (1e-3, 1e-6, 1e-9, 1e-12, 2.0**-53):
        (law,) = blanket.blanket_draws((choice(2),), 0.5 - offset, 0.0)
        left = math.exp(law.log_weight[-1])
        blur = np.broadcast_to(law.blur, law.log_weight.shape)[-1]
        assert 8 * UNIT * blur <= 1 / 512
        assert left > 0.0
        assert math.fsum(np.exp(law.log_weight)) == pytest.approx(1.0, abs=1e-12)
        bracket = blanket.blanket_delta((choice(2),), 100, 0.5 - offset, 0.0)
        assert 0.0 <= bracket.low <= bracket.high < 10 * offset + 1e-9
