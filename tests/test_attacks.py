"""The attacks among the examples do what is predicted, no less and no more.

All noise is seeded. A check of a share against its prediction is an exact two-sided binomial test
that would fail for one seed in 10,000; what passed once passes always.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from shoal.planning.memory import linking_probability
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Memory
from tests import checks
from tests.lab.test_peers import example

RARE = 1e-4
SLOW = pytest.mark.slow


def judged(share: float, trials: int, predicted: float) -> float:
    return float(checks.two_sided(np.int64(round(share * trials)), trials, predicted))  # type: ignore[arg-type]


averaging = example("attack_averaging")
linking = example("attack_linking")
differencing = example("attack_differencing")


class TestAveraging:
    @pytest.mark.parametrize("reports", [1, 5, 15, 25])
    def test_without_memory_the_majority_errs_as_predicted(self, reports: int):
        predicted = averaging.majority_error(reports, averaging.MEMORY.q)
        found = averaging.attack(reports, None, 3000, 20, seed=reports)
        assert judged(found, 60_000, predicted) > RARE

    @pytest.mark.parametrize("error", [0.1, 0.01, 1e-6])
    def test_the_number_of_reports_that_are_needed(self, error: float):
        q = averaging.MEMORY.q
        needed = averaging.reports_needed(q, error)
        assert averaging.majority_error(needed, q) <= error
        assert averaging.majority_error(needed - 2, q) > error
        # Chernoff: it grows with the logarithm of the error, no faster.
        rate = -math.log(2 * math.sqrt(float(q) * (1 - float(q))))
        assert needed <= math.log(1 / error) / rate + 2

    def test_with_memory_never(self):
        predicted = [
            averaging.majority_error_with_memory(n, averaging.MEMORY) for n in (1, 25, 801)
        ]
        q1 = float(averaging.MEMORY.q1)
        assert min(predicted) >= q1
        assert predicted[0] == pytest.approx(float(averaging.MEMORY.q))
        assert predicted[2] == pytest.approx(q1, abs=1e-9)
        found = averaging.attack(301, averaging.MEMORY, 1000, 20, seed=2)
        assert judged(found, 20_000, q1) > RARE


class TestLinking:
    def test_a_bare_permanent_vector_is_an_identifier(self):
        predicted = linking.bare_linking_probability(40, linking.Q1, 200)
        assert predicted > 0.999
        assert judged(linking.attack(None, 200, 300, 1), 300, predicted) > RARE

    def test_fewer_fresh_flips_come_close_to_it(self):
        nearly = Memory(linking.Q1, FlipProbability(1, 30))
        bare = linking.bare_linking_probability(40, linking.Q1, 200)
        assert linking_probability(40, nearly, 200) == pytest.approx(bare, abs=1e-5)

    @pytest.mark.parametrize(
        "q2", ["0.15", *(pytest.param(q, marks=SLOW) for q in ("0.05", "0.3"))]
    )
    def test_with_fresh_flips_as_predicted(self, q2: str):
        memory = Memory(linking.Q1, FlipProbability.at_least(q2))
        predicted = linking_probability(40, memory, 200)
        assert judged(linking.attack(memory, 200, 1000, 3), 1000, predicted) > RARE


class TestDifferencing:
    def test_two_looks_show_the_last_report_exactly(self):
        agreed = differencing.make_plan()
        for seed in range(5):
            _, difference, report = differencing.last_report(agreed, seed)
            assert (difference == report).all()

    def test_then_only_the_local_epsilon_protects(self):
        agreed = differencing.make_plan()
        predicted = differencing.predicted_success(float(agreed.q), differencing.OPTIONS)
        assert judged(differencing.success(agreed, 400), 400, predicted) > RARE
        assert predicted > 3 / differencing.OPTIONS
        assert agreed.local_epsilon > 2 * float(agreed.promise.epsilon)


@pytest.mark.slow
@pytest.mark.parametrize("module", [averaging, linking, differencing])
def test_they_run_and_draw(module, tmp_path, capsys, monkeypatch):
    pytest.importorskip("matplotlib")
    real = module.__dict__.get("attack")
    if module is linking:  # a few trials show that it runs
        monkeypatch.setattr(
            module, "attack", lambda memory, crowd, _, seed: real(memory, crowd, 5, seed)
        )
    module.main([str(tmp_path / "picture.png")])
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    assert "predicted" in capsys.readouterr().out
