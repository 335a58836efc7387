"""The trusted curator: sensitivities, exact noise, and a budget that cannot be overspent.

OpenDP's noise cannot be seeded. Each statistical test says with what probability it fails although
all is well; none is above 1e-11.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import subprocess
import sys
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from shoal.cli import run
from shoal.curator import Budget, Curator, Predicate, Release, noise
from shoal.curator import curator as module
from shoal.curator.columns import Columns, read_columns
from shoal.curator.noise import (
    Neighbours,
    count_sensitivity,
    exact_sum,
    histogram_sensitivity,
    lattice_step,
    on_lattice,
    sum_sensitivity,
)
from shoal.errors import InputError, PrivacyRefusal, ShoalError
from shoal.theory import laplace as law

RELATIONS: tuple[Neighbours, ...] = ("replace", "add-remove")
ALARM = 1e-12
DRAWS = 20_000


def curator(
    values: Any = (), *, neighbours: Any = "replace", budget: Budget | None = None
) -> Curator:
    """A curator of one column, x."""
    return Curator({"x": values}, budget, neighbours=neighbours)


def neighbours_of(values: Sequence[Any], people: int, relation: str):
    """All pairs of neighbouring tables of at most that many people."""
    for size in range(people + 1):
        for x in itertools.product(values, repeat=size):
            if relation == "replace" and size:
                yield from ((x, (*x[:-1], other)) for other in values)
            if relation == "add-remove" and size:
                yield x, x[:-1]


def without_noise(patch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Leave out the noise; keep what the mechanism was asked for."""
    asked: list[dict[str, Any]] = []

    def fake(sensitivity, epsilon, values, *, whole):
        asked.append({"sensitivity": sensitivity, "values": list(values), "whole": whole})
        scale = noise.float_at_least(sensitivity / Fraction(Decimal(epsilon)))
        return noise.Mechanism(scale, whole, lambda given: given)

    patch.setattr(module, "mechanism", fake)
    return asked


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    return without_noise(monkeypatch)


class TestSensitivity:
    """Against brute force over all neighbouring tables of up to four people."""

    @pytest.mark.parametrize("relation", RELATIONS)
    def test_counts_and_histograms(self, relation: Neighbours):
        pairs = list(neighbours_of((0, 1), 4, relation))
        assert count_sensitivity(relation) == max(abs(sum(x) - sum(y)) for x, y in pairs)
        rows = max(abs(len(x) - len(y)) for x, y in pairs)
        assert count_sensitivity(relation, all_rows=True) == rows
        worst = max(
            sum(abs(x.count(c) - y.count(c)) for c in "abc")
            for x, y in neighbours_of("abc", 4, relation)
        )
        assert histogram_sensitivity(relation) == worst

    @pytest.mark.parametrize("relation", RELATIONS)
    @pytest.mark.parametrize(("low", "high"), [(-3, 2), (0, 5), (4, 9), (-9, -2)])
    def test_sum(self, relation: Neighbours, low: int, high: int):
        pairs = neighbours_of((low, 0, high) if low < 0 < high else (low, high), 4, relation)
        worst = max(abs(sum(x) - sum(y)) for x, y in pairs)
        assert sum_sensitivity(relation, Fraction(low), Fraction(high)) == worst

    def test_fraction_and_mean(self, silent):
        for n in (1, 2, 4):
            pairs = [p for p in neighbours_of((0, 1), n, "replace") if len(p[0]) == n]
            worst = max(abs(Fraction(sum(x), n) - Fraction(sum(y), n)) for x, y in pairs)
            fraction = curator([True] * n).fraction("x=true", epsilon=1)
            assert fraction.sensitivity == worst == Fraction(1, n)
            mean = curator([1.0] * n).mean("x", bounds=(0, 1), epsilon=1)
            assert mean.sensitivity == worst

    @given(
        st.lists(st.floats(-3.7, 11.3), min_size=1, max_size=30),
        st.floats(-3.7, 11.3),
        st.sampled_from(RELATIONS),
    )
    @example([0.1] * 29 + [11.3], -3.7, "replace")
    def test_what_opendp_gets_moves_no_further_than_it_is_told(self, values, last, relation):
        """Rounding included: the sum as a float, on two neighbouring tables."""
        other = [*values[:-1], last] if relation == "replace" else values[:-1]
        told, moved = self._moved(values, other, (-3.7, 11.3), relation)
        assert moved <= told
        exact = sum_sensitivity(relation, Fraction(-3.7), Fraction(11.3))
        assert exact <= told <= exact * (1 + Fraction(1, 2**20))

    def test_nor_does_a_sum_that_floats_would_round_up(self):
        """1 - 2^-53 and 1 are 2 as floats: one row more, and more than 1 more."""
        short = 1 - 2.0**-53
        assert Fraction(short + 1.0) - Fraction(short + 0.0) > 1
        told, moved = self._moved([short, 0.0], [short, 1.0], (0, 1), "replace")
        assert moved <= told == 1

    def _moved(self, values, other, bounds, relation) -> tuple[Fraction, Fraction]:
        """Return the sensitivity that OpenDP is told, and how far its input moves."""
        with pytest.MonkeyPatch.context() as patch:
            asked = without_noise(patch)
            for table in (values, other):
                curator(table, neighbours=relation).sum("x", bounds=bounds, epsilon=1)
        told, same = (one["sensitivity"] for one in asked)
        assert told == same
        (x,), (y,) = (one["values"] for one in asked)
        return told, abs(Fraction(x) - Fraction(y))


class TestSums:
    @given(st.lists(st.floats(-1e150, 1e150), max_size=40))
    @example([5e-324, 1e150, -1e150])
    def test_exact(self, values):
        assert exact_sum(np.array(values, float)) == sum(map(Fraction, values), Fraction(0))

    @given(st.fractions(-100, 100), st.fractions(-100, 100), st.fractions(1, 100))
    def test_lattice(self, x, y, sensitivity):
        step = lattice_step(sensitivity)
        assert sensitivity / 2**21 <= step <= sensitivity / 2**20
        assert abs(on_lattice(x, step) - x) <= step / 2
        moved = abs(on_lattice(x, step) - on_lattice(y, step))
        assert moved <= math.ceil(abs(x - y) / step) * step


class TestExactValues:
    """With the noise left out, what remains is the answer."""

    def test_counts(self, silent):
        rows = [True, False, True]
        made = curator(rows).count("x=true", epsilon=1)
        assert (made.value, made.rows) == (2, 3)
        private = curator(rows, neighbours="add-remove").count(epsilon=1)
        assert (private.value, private.rows) == (3, None)
        assert curator(rows).fraction("x=true", epsilon=1).value == 2 / 3
        assert all(one["whole"] for one in silent)

    @pytest.mark.parametrize("whole", [False, True])
    @pytest.mark.parametrize("relation", RELATIONS)
    def test_sums(self, silent, whole: bool, relation: Neighbours):
        values = [3, 7, -2, 11]
        made = curator(values, neighbours=relation).sum(
            "x", bounds=(-5, 20), epsilon=1, whole=whole
        )
        assert made.value == pytest.approx(19, abs=made.rounding or 1e-12)
        assert silent[0]["whole"] is whole
        assert made.whole is whole

    def test_far_from_zero(self, silent):
        """A narrow range of large values keeps its digits."""
        values = [1e9 + i / 1000 for i in range(1000)]
        made = curator(values).mean("x", bounds=(1e9, 1e9 + 1), epsilon=1)
        assert made.value == pytest.approx(1e9 + 0.4995, abs=1e-6)

    def test_histogram(self, silent):
        made = curator(["x", "z", "x", ""]).histogram(
            "x", categories=["x", "y"], other=True, epsilon=1
        )
        assert made.values == (2, 0, 2)
        assert made.labels == ("x", "y", "(other)")

    def test_clamping_is_said_but_not_how_often(self, silent):
        def clamped(values: list[float]) -> Release:
            private = curator(values, neighbours="add-remove")
            return private.sum("x", bounds=(0, 10), epsilon=1, clamp=True)

        made = clamped([5.0, 50.0])
        assert made.value == pytest.approx(15, abs=1e-4)
        unneeded = clamped([5.0, 5.0])
        for one in (made, unneeded):
            assert one.clamped
            assert "moved to the nearer bound" in " ".join(one.assumptions)
        assert made.assumptions == unneeded.assumptions


class TestRefusals:
    def test_what_no_noise_hides(self):
        for verb in (curator([1.0]).mean, curator([1.0]).sum):
            with pytest.raises(PrivacyRefusal, match="without bounds"):
                verb("x", bounds=None, epsilon=1)
        private = curator([1.0], neighbours="add-remove")
        with pytest.raises(PrivacyRefusal, match="release the sum and the count"):
            private.mean("x", bounds=(0, 1), epsilon=1)
        with pytest.raises(PrivacyRefusal, match="count of all rows"):
            private.fraction("x>0", epsilon=1)

    def test_sums(self):
        values: Any
        for values, change, said in (
            ([1, 2, 300], {}, "row 3 must be within"),
            ([1.0, math.nan], {}, "row 2 must hold a finite"),
            ([1.0, math.inf], {"clamp": True}, "row 2 must hold a finite"),
            ([1.0, 1.5], {"whole": True}, "row 2 must hold a whole number"),
            ([1.0], {"bounds": (5, 5)}, "must be below"),
            ([1.0], {"bounds": (0, math.inf)}, "finite"),
            ([1.0], {"bounds": (0, 1, 2)}, "two numbers"),
            ([1.0], {"bounds": (0, 1e200)}, "within 1e150"),
            ([1.0], {"bounds": (0.5, 2), "whole": True}, "whole numbers"),
            ([1.0], {"bounds": (0, 2**40), "whole": True}, "within 2"),
            (["a"], {}, "row 1 of column 'x' is not a number"),
            ([[1.0]], {}, "row 1 of column 'x' is not a number"),
            ([True], {}, "row 1 of column 'x' is not a number"),
            ([2**60], {"bounds": (0, 1e20)}, "2\\^53"),
            ([1.0], {"epsilon": 0}, "epsilon must be"),
            ([1.0], {"epsilon": "1e-50"}, "epsilon must be"),
            ([1.0], {"epsilon": "x"}, "epsilon must be"),
        ):
            wish: dict[str, Any] = {"bounds": (0, 200), "epsilon": 1} | change
            with pytest.raises(InputError, match=said):
                curator(values).sum("x", **wish)

    def test_the_relation_and_the_table_are_never_guessed(self):
        with pytest.raises(InputError, match="neighbours must be"):
            curator([1.0], neighbours=None)
        for data in (3, None, [1, 2], {"x": [1, 2], "y": [1]}, {"x": "a secret"}, {"x": 3}):
            with pytest.raises(InputError, match="column names to lists of one length") as error:
                Curator(data, neighbours="replace")
            assert "secret" not in str(error.value)

    def test_histograms(self):
        many: Any
        for many, other, said in (
            (["a", "b"], False, "^row 2 holds a value that is not a declared category; declare it"),
            (["a", "a"], False, "declared twice"),
            (["a", "(other)"], True, "declared twice"),
            (["a"], False, "needs 2"),
            ("ab", False, "list of texts"),
            ([1, 2], False, "list of texts"),
        ):
            with pytest.raises(InputError, match=said):
                curator(["a", "c"]).histogram("x", categories=many, other=other, epsilon=1)

    def test_vectors(self):
        values: Any
        for values, sensitivity, said in (
            ([], 1, "1 to"),
            (["a"], 1, "numbers"),
            ([1], "1.5", "whole numbers change"),
            ([1.0], 0, "above 0"),
            ([1.0], "inf", "sensitivity"),
            ([math.nan], 1, "finite"),
            ([2**63 - 1], 1, "2\\^62"),
        ):
            with pytest.raises(InputError, match=said):
                curator().vector(values, sensitivity=sensitivity, epsilon=1)

    def test_no_rows(self):
        with pytest.raises(InputError, match="a fraction of no rows"):
            curator([]).fraction("x>0", epsilon=1)
        with pytest.raises(InputError, match="a mean of no rows"):
            curator([]).mean("x", bounds=(0, 1), epsilon=1)

    def test_several_values(self, silent):
        with pytest.raises(InputError, match="one label for each"):
            curator().vector([1, 2], sensitivity=1, epsilon=1, labels=["a"])
        with pytest.raises(InputError, match="several values"):
            _ = curator().vector([1, 2], sensitivity=1, epsilon=1).value

    @pytest.mark.parametrize("missing", [True, False])
    def test_nothing_is_spent_on_noise_that_cannot_be_had(self, monkeypatch, missing: bool):
        if missing:
            monkeypatch.setitem(sys.modules, "opendp.prelude", None)
            refused: tuple[type, str] = InputError, "pip install 'shoal\\[curator\\]'"
        else:
            monkeypatch.setattr(noise, "_laplace", lambda *_: (lambda values: values, 1.0000001))
            refused = PrivacyRefusal, "nothing was released"
        budget = Budget(1)
        with pytest.raises(refused[0], match=refused[1]):
            curator([True], budget=budget).count("x=true", epsilon=1)
        assert budget.spent == "0"


class TestMechanism:
    @given(st.decimals("1e-6", "1e3", places=9), st.fractions("1e-3", 1000), st.booleans())
    @settings(max_examples=120, deadline=None)
    def test_opendp_s_own_map_never_exceeds_epsilon(
        self, epsilon: Decimal, sensitivity: Fraction, whole: bool
    ):
        if whole:
            sensitivity = Fraction(math.ceil(sensitivity))
        made = noise.mechanism(sensitivity, str(epsilon), [0 if whole else 0.0], whole=whole)
        assert sensitivity / Fraction(made.scale) <= Fraction(epsilon)
        near = sensitivity / Fraction(epsilon)
        assert made.scale == pytest.approx(float(near), rel=1e-15)

    def test_values(self):
        """Types and sizes; a whole release stays whole, however it falls out."""
        made = curator().vector([10**15] * 50, sensitivity=1, epsilon="0.1", labels=None)
        assert all(isinstance(value, int) for value in made.values)
        assert all(abs(value - 10**15) < 10_000 for value in made.values)  # 50 exp(-1000)
        real = curator(neighbours="add-remove").vector([0.5] * 3, sensitivity="0.1", epsilon=1)
        assert all(isinstance(value, float) for value in real.values)
        assert not real.whole


class TestAccuracy:
    def two_sided(self, misses: int, chance: float) -> float:
        """The p-value of that many misses."""
        below = binom.cdf(misses, DRAWS, chance)
        above = binom.sf(misses - 1, DRAWS, chance)
        return float(min(1.0, 2 * min(below, above)))

    @pytest.mark.parametrize("epsilon", ["1", "0.05"])
    def test_whole_noise_has_its_exact_tail(self, epsilon: str):
        """An exact binomial test of 20,000 draws; false alarm at most 1e-12 per assertion."""
        made = curator().vector([0] * DRAWS, sensitivity=1, epsilon=epsilon)
        drawn = np.abs(np.array(made.values))
        for miss in (0.5, 0.05, 0.001):
            reach = made.half_width(1 - miss)
            chance = law.discrete_tail(int(reach) + 1, made.scale)
            assert chance <= miss * (1 + 1e-9)
            assert self.two_sided(int((drawn > reach).sum()), chance) > ALARM

    def test_real_noise_keeps_theorems_9_and_12(self):
        """20,000 draws, exact binomial tests; false alarm at most 1e-12 per assertion."""
        made = curator().vector([0.25] * DRAWS, sensitivity=2, epsilon="0.5")
        assert made.scale == 4
        error = np.abs(np.array(made.values) - 0.25)
        for delta in (0.5, 0.05, 0.001):
            misses = int((error >= math.log(1 / delta) * 4).sum())
            assert self.two_sided(misses, delta) > ALARM
        largest = error.reshape(-1, 10).max(axis=1)
        misses = int((largest >= math.log(10 / 0.05) * 4).sum())
        assert binom.sf(misses - 1, len(largest), 0.05) > ALARM

    def test_statements(self, silent):
        real = curator().vector([0.0], sensitivity=1, epsilon="0.5").accuracy(0.05)
        assert real.kind == "LEC Theorem 9"
        assert real.alpha == pytest.approx(math.log(20) * 2)
        assert real.alpha >= real.lecture
        many = curator().vector([0.0] * 10, sensitivity=1, epsilon="0.5").accuracy(0.05)
        assert many.kind == "LEC Theorem 12"
        assert many.alpha == pytest.approx(math.log(200) * 2)
        whole = curator([1]).count("x=1", epsilon="0.5").accuracy(0.05)
        assert "exact" in whole.kind
        assert whole.alpha == law.discrete_radius(0.05, 2.0) == 6
        fraction = curator([1] * 1000).fraction("x=1", epsilon="0.5")
        assert fraction.accuracy(0.05).alpha == pytest.approx(0.006)
        assert fraction.sigma == pytest.approx(law.discrete_sigma(2.0) / 1000)

    def test_simultaneous_is_wider_and_the_interval_is_around_the_value(self, silent):
        made = curator([*"aab"]).histogram("x", categories=["a", "b", "c"], epsilon=1)
        each, together = made.half_width(0.95), made.half_width(0.95, simultaneous=True)
        assert each < together == made.accuracy(0.05).alpha
        assert made.interval(0.95)[0] == (2 - each, 2 + each)

    def test_public_rows_need_no_noise(self):
        budget = Budget(1)
        made = curator([1] * 12, budget=budget).count(epsilon=1)
        assert made.value == 12
        assert made.scale == made.sensitivity == made.sigma == 0
        assert made.accuracy(0.01).alpha == made.half_width() == 0
        assert budget.spent == "0"

    def test_bad_delta(self, silent):
        delta: Any
        made = curator([1]).count("x=1", epsilon=1)
        for delta in (0, 1, -1, math.nan, True, "x"):
            with pytest.raises(InputError, match="delta must be"):
                made.accuracy(delta)


class TestBudget:
    def test_decimals_do_not_drift(self, tmp_path: Path):
        for budget in (Budget("1"), Budget("1.0", tmp_path / "b.json")):
            for _ in range(10):
                budget.spend(0.1, neighbours="replace")
            assert (budget.spent, budget.left) == ("1", "0")
            with pytest.raises(PrivacyRefusal):
                budget.spend("1e-25", neighbours="replace")
            assert len(budget.releases) == 10

    def test_nothing_is_released_beyond_it(self, tmp_path: Path, monkeypatch):
        drawn: list[int] = []

        def draw(*_: object) -> list[int]:
            drawn.append(1)
            return [0]

        monkeypatch.setattr(noise.Mechanism, "__call__", draw)
        budget = Budget("0.5", tmp_path / "b.json")
        one = curator([1], budget=budget)
        one.count("x=1", epsilon="0.3")
        assert drawn == [1]
        before = (tmp_path / "b.json").read_bytes()
        with pytest.raises(PrivacyRefusal, match=r"only 0\.2 is left of the budget of 0\.5"):
            one.count("x=1", epsilon="0.21")
        assert drawn == [1]
        assert (tmp_path / "b.json").read_bytes() == before
        one.count("x=1", epsilon="0.2")
        assert budget.left == "0"

    def test_bad_input_spends_nothing(self):
        budget = Budget(1)
        with pytest.raises(InputError):
            curator([5], budget=budget).sum("x", bounds=(0, 1), epsilon=1)
        assert budget.spent == "0"

    def test_continued_from_its_file(self, tmp_path: Path):
        path = tmp_path / "b.json"
        Budget("2", path).spend("0.5", neighbours="add-remove", what="count of rows")
        again = Budget(path=path)
        assert (again.epsilon, again.left) == ("2", "1.5")
        assert again.releases[0].what == "count of rows"
        assert Budget("2.00", path).left == "1.5"
        with pytest.raises(InputError, match="not changed once it exists"):
            Budget("3", path)
        with pytest.raises(InputError, match="for add-remove neighbours"):
            again.spend("0.5", neighbours="replace")
        assert again.to_json() == {
            "file": str(path), "epsilon": "2", "spent": "0.5", "left": "1.5",
            "delta": "0", "delta_spent": "0", "delta_left": "0",
        }  # fmt: skip

    def test_deltas_add_up_too(self, tmp_path: Path):
        path = tmp_path / "b.json"
        budget = Budget("9", path, delta="3e-7")
        for _ in range(3):
            budget.spend("1", neighbours="replace", delta="1e-7")
        again = Budget(path=path)
        assert (again.delta, again.delta_left, again.left) == ("3e-7", "0", "6")
        with pytest.raises(PrivacyRefusal, match="would spend delta 1e-9, but only delta 0"):
            again.spend("1", neighbours="replace", delta="1e-9")
        again.spend("1", neighbours="replace")
        assert (again.left, len(again.releases)) == ("5", 4)
        with pytest.raises(PrivacyRefusal, match="delta"):
            Budget("9").spend("1", neighbours="replace", delta="1e-9")
        with pytest.raises(InputError, match="has delta 3e-7, not 1e-6"):
            Budget(path=path, delta="1e-6")

    def test_names_of_one_file_share_a_lock(self, tmp_path: Path):
        path, link = tmp_path / "b.json", tmp_path / "link.json"
        link.symlink_to(path)
        one, two, linked = Budget("1", path), Budget("1", path), Budget("1", link)
        one.spend("0.7", neighbours="replace")
        for other in (two, linked):
            with pytest.raises(PrivacyRefusal):
                other.spend("0.7", neighbours="replace")
        assert {p.name for p in tmp_path.iterdir()} == {"b.json", "b.json.lock", "link.json"}

    @pytest.mark.slow
    def test_processes_cannot_overspend(self, tmp_path: Path):
        """Three processes try a hundred times a tenth each: ten succeed, in all."""
        path = tmp_path / "b.json"
        Budget("1", path)
        script = (
            "import sys\n"
            "from shoal.curator.budget import Budget\n"
            "from shoal.errors import PrivacyRefusal\n"
            "budget, done = Budget(path=sys.argv[1]), 0\n"
            "for _ in range(100):\n"
            "    try:\n"
            "        budget.spend('0.1', neighbours='replace')\n"
            "        done += 1\n"
            "    except PrivacyRefusal:\n"
            "        pass\n"
            "print(done)\n"
        )
        running = [
            subprocess.Popen([sys.executable, "-c", script, path], stdout=subprocess.PIPE)
            for _ in range(3)
        ]
        done = [int(process.communicate(timeout=60)[0]) for process in running]
        assert sum(done) == 10
        assert len(Budget(path=path).releases) == 10

    @pytest.mark.slow
    def test_a_crash_before_the_noise_has_spent(self, tmp_path: Path):
        """The process dies between spending and drawing: never under-counted."""
        path = tmp_path / "b.json"
        script = (
            "import os, sys\n"
            "from shoal.curator import Budget, Curator, curator, noise\n"
            "die = noise.Mechanism(1.0, True, lambda values: os._exit(9))\n"
            "curator.mechanism = lambda *a, **k: die\n"
            "budget = Budget('1', sys.argv[1])\n"
            "Curator({'x': [1]}, budget, neighbours='replace').count('x=1', epsilon='0.4')\n"
        )
        died = subprocess.run([sys.executable, "-c", script, path], timeout=60)
        assert died.returncode == 9
        after = Budget(path=path)
        assert after.spent == "0.4"
        after.spend("0.6", neighbours="replace")  # and the lock is free

    def test_a_failure_to_write_releases_nothing(self, tmp_path: Path, monkeypatch, silent):
        budget = Budget("1", tmp_path / "b.json")

        def full(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("os.fsync", full)
        with pytest.raises(InputError, match="No space left"):
            curator([True], budget=budget).count("x=true", epsilon=1)
        monkeypatch.undo()
        assert budget.spent == "0"

    def test_a_broken_file_is_not_a_fresh_budget(self, tmp_path: Path):
        path = tmp_path / "b.json"
        Budget("1", path).spend("0.5", neighbours="replace")
        good = json.loads(path.read_text("utf-8"))
        (spent,) = good["releases"]
        changes: Any = ({"version": 2}, {"epsilon": "-1"}, {"epsilon": 1}, {"delta": "2"},
                   {"releases": {}}, {"releases": [{}]}, {"releases": [spent | {"epsilon": "-5"}]},
                   {"releases": [spent | {"neighbours": "both"}]})  # fmt: skip
        for content in ("", "[]", "{}", *(json.dumps(good | change) for change in changes)):
            path.write_text(content, "utf-8")
            with pytest.raises(InputError):
                Budget("1", path)
            assert path.read_text("utf-8") == content

    def test_bad_arguments(self, tmp_path: Path):
        for epsilon in (None, 0, -1, "x", "1e-50", math.nan, True):
            with pytest.raises(InputError):
                Budget(epsilon)
        with pytest.raises(InputError, match="there is no budget"):
            Budget(path=tmp_path / "none.json")
        with pytest.raises(InputError, match="cannot open"):
            Budget("1", tmp_path / "no" / "b.json")

    @given(st.lists(st.decimals("0.000001", "0.2", places=6), max_size=12))
    def test_never_more_than_the_whole(self, wishes: list[Decimal]):
        budget, granted = Budget("1"), Decimal(0)
        for wish in wishes:
            try:
                budget.spend(str(wish), neighbours="replace")
                granted += wish
            except PrivacyRefusal:
                assert granted + wish > 1
        assert granted <= 1
        assert Decimal(budget.spent) == granted
        assert Decimal(budget.left) == 1 - granted


def table(**columns: Any) -> Columns:
    made = pa.table(columns)
    return Columns(made.num_rows, {name: made.column(name) for name in columns})


class TestPredicates:
    PEOPLE = table(age=["30", "17", "", "44.5"], city=["Paris", "New York", "", "a and b"])

    def test_rows(self):
        for text, rows in (
            ("age>=18", [1, 0, 0, 1]),
            ("age > 17", [1, 0, 0, 1]),
            ("age<=17", [0, 1, 0, 0]),
            ("age < 1e9", [1, 1, 0, 1]),
            ("city=New York and age<18", [0, 1, 0, 0]),
            ("city = 'a and b'", [0, 0, 0, 1]),
            ("city!=Paris", [0, 1, 1, 1]),
            ("city!=", [1, 1, 0, 1]),
            ("city= and age=", [0, 0, 1, 0]),
            ("age=30 AND city=Paris", [1, 0, 0, 0]),
            ("'age'=\"30\"", [1, 0, 0, 0]),
            ("age=30.0", [0, 0, 0, 0]),  # a CSV is text
        ):
            predicate = Predicate.parse(text)
            assert predicate.rows(self.PEOPLE).tolist() == rows, text
            assert Predicate.parse(str(predicate)) == predicate, text

    def test_numbers_by_schema(self):
        people = table(age=[30, None, 17], big=[1.5, 2.0, math.nan], on=[True, False, None])
        for text, rows in (
            ("age=30.0", [1, 0, 0]), ("age!=30", [0, 1, 1]), ("age=", [0, 1, 0]),
            ("big>1", [1, 1, 0]), ("on=true", [1, 0, 0]),
        ):  # fmt: skip
            assert Predicate.parse(text).rows(people).tolist() == rows, text
        for text, said in (("age=old", "needs a number"), ("on>0", "not numbers")):
            with pytest.raises(InputError, match=said):
                Predicate.parse(text).rows(people)

    def test_what_is_none(self):
        for text in (
            "", " ", "age", "=3", "age==3", "age<old", "age<nan", "age<", "age=1 or age=2",
            "age=1 or 2", "age=1 and", "and age=1", "age='1", "'age", "age='1' x", "age<1<2",
            "age=1 and and b=2", "__import__('os')", "a=" + "x" * 20_000, "a<1e999",
            " and ".join(["a=1"] * 200),
        ):  # fmt: skip
            with pytest.raises(InputError):
                Predicate.parse(text).rows(self.PEOPLE)

    @given(st.text(alphabet="ab=<>!'\" 1.eand\t\n\\;()or", max_size=30) | st.text(max_size=60))
    @settings(max_examples=150)
    def test_fuzz(self, text: str):
        """Any text parses, to something that reads back the same, or is an InputError."""
        try:
            predicate = Predicate.parse(text)
        except ShoalError:
            return
        assert Predicate.parse(str(predicate)) == predicate
        columns = {name: pa.chunked_array([["1", "", "x"]]) for name in predicate.columns}
        with contextlib.suppress(ShoalError):
            assert len(predicate.rows(Columns(3, columns))) == 3


CSV = "age,city,score\n30,Paris,0.5\n17,New York,1.25\n44,Paris,3\n61,,2\n"


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SHOAL_DEBUG", raising=False)
    monkeypatch.setenv("COLUMNS", "120")
    (tmp_path / "d.csv").write_text(CSV, "utf-8")
    pq.write_table(
        pa.table(
            {
                "age": [30, 17, 44, 61],
                "city": pa.array(["Paris", "New York", "Paris", None]).dictionary_encode(),
                "score": [0.5, 1.25, 3.0, 2.0],
                "when": pa.array([1, 2, 3, 4], pa.timestamp("s")),
            }
        ),
        tmp_path / "d.parquet",
    )
    return tmp_path


class TestColumns:
    @pytest.mark.parametrize("name", ["d.csv", "d.parquet"])
    def test_read(self, at: Path, name: str):
        read = read_columns(at / name, ["age", "city"])
        assert read.rows == 4
        assert read.numbers("age").tolist() == [30, 17, 44, 61]
        assert read.texts("city") == ["Paris", "New York", "Paris", ""]
        assert read_columns(at / name, []).rows == 4

    def test_bad_files(self, at: Path):
        for name, content, said in (
            ("x.csv", b'a,b\n1,2\n"3,4\n5,6\n', "row 2 has a quote that is not closed"),
            ("x.csv", b"b\n1\n", "no column 'a'"),
            ("x.csv", b"a\n1\n\xff\x81\n", "row 2 of column 'a' is not valid utf-8"),
            ("x.csv", b"a\n1\nx\n", "row 2 of column 'a' is not a number"),
            ("x.parquet", b"PAR1", "cannot read"),
            ("x.txt", b"a\n1\n", "come as .csv, .xlsx or .parquet"),
        ):
            (at / name).write_bytes(content)
            with pytest.raises(InputError, match=said):
                read_columns(at / name, ["a"]).numbers("a")
        with pytest.raises(InputError, match="not numbers"):
            read_columns(at / "d.parquet", ["when"]).numbers("when")


class TestCommand:
    COMMON = ("--epsilon", "0.5", "--neighbours", "replace")

    def ok(self, capsys, *words: str) -> Any:
        assert run(["curator", *words, "--json"]) == 0, capsys.readouterr().err
        said = capsys.readouterr()
        assert said.err == ""
        return json.loads(said.out)

    def refused(self, capsys, code: int, *words: str) -> str:
        assert run(["curator", *words]) == code
        said = capsys.readouterr()
        assert said.out == ""
        assert len(said.err.splitlines()) == 1
        assert "unexpected" not in said.err
        return str(said.err)

    def test_histogram_of_categories_in_a_file(self, at, capsys):
        (at / "c.txt").write_text("Paris\nNew York\n\n", "utf-8")
        words = "d.csv --histogram city --categories-file c.txt --epsilon 1 --simultaneous"
        document = self.ok(capsys, *words.split(), "--neighbours", "add-remove")
        assert list(document["values"]) == ["Paris", "New York", ""]
        assert (document["sensitivity"], document["rows"]) == (1, None)
        assert document["interval"]["kind"] == "simultaneous"

    def test_budget(self, at, capsys):
        count = ["d.csv", "--count", "age>=18", *self.COMMON, "--budget", "b.json"]
        assert "--budget-total" in self.refused(capsys, 2, *count)
        document = self.ok(capsys, *count, "--budget-total", "0.9")
        told = {"file": "b.json", "epsilon": "0.9", "spent": "0.5", "left": "0.4"}
        assert document["budget"] == document["budget"] | told
        assert "only 0.4 is left" in self.refused(capsys, 3, *count)
        assert Budget(path="b.json").releases[0].what == "count of rows with age>=18"

    def test_refusals(self, at, capsys):
        """What the command itself refuses, and one refusal of each kind from below."""
        before = {path.name: path.read_bytes() for path in at.iterdir()}
        for code, words in (
            (3, ["--mean", "age", "--bounds", "0", "99", "--neighbours", "add-remove"]),
            (2, []),
            (2, ["--mean", "age", "--sum", "age", "--bounds", "0", "100"]),
            (2, ["--mean", "city", "--bounds", "0", "50"]),
            (2, ["--count", "age>=18", "--bounds", "0", "5"]),
            (2, ["--fraction", ""]),
            (2, ["--histogram", "city"]),
            (2, ["--histogram", "city", "--categories-file", "none.txt"]),
            (2, ["--count", "age=3", "--delta", "0"]),
            (2, ["--count", "age=3", "--budget-total", "1"]),
            (2, ["--count", "age=3", "--budget", "d.csv"]),
        ):
            self.refused(capsys, code, "d.csv", *self.COMMON, *words)
        after = {p.name: p.read_bytes() for p in at.iterdir() if p.suffix != ".lock"}
        assert after == before

    def test_help_does_not_load_opendp(self):
        script = (
            "import sys, shoal.cli; shoal.cli.run(['curator', '--help']);"
            "assert not {'opendp', 'pyarrow'} & set(sys.modules)"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60)
        assert done.returncode == 0, done.stderr
