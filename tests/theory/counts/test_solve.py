import math

import pytest

from shoal.theory.counts import (
    _log_noise,
    _q_of,
    counts_crowd,
    counts_delta,
    counts_epsilon,
    counts_q,
    proven_counts,
)
from shoal.theory.randomized_response import local_q, log_theta


@pytest.mark.parametrize(
    ("d", "N", "epsilon", "delta", "reference", "attack"),
    [
        (5, 10_000, 1.0, 1e-6, 0.00996, 0.00993),
        (5, 5_000, math.log(2), 0.005, 0.00871, 0.00846),
        (2, 10_000, math.log(2), 1e-6, 0.00869, 0.00868),
        (40, 10**7, 2.0, 1e-6, 2.092e-5, 2.062e-5),
    ],
)
def test_reference_values(d, N, epsilon, delta, reference, attack):
    """Two other programs agreed on these to 1 %; lower is better, but never below the attack."""
    answer = counts_q(d, N, epsilon, delta)
    assert answer.delta <= delta
    assert attack * 0.999 < answer.value < reference * 1.001
    assert counts_delta(d, N, answer.value, epsilon).low > 0.8 * delta


def test_round_trips():
    answer = counts_q(4, 1500, 1.2, 1e-4)
    q = answer.value
    assert answer.delta <= 1e-4 < proven_counts(4, 1500, q * (1 - 3e-3), 1.2)
    assert counts_epsilon(4, 1500, q, 1e-4).value == pytest.approx(1.2, rel=2e-3)
    crowd = counts_crowd(4, q, 1.2, 1e-4)
    assert crowd.value == pytest.approx(1500, rel=3e-3)
    assert crowd.delta <= 1e-4
    assert proven_counts(4, int(crowd.value * 0.99), q, 1.2) > 1e-4


def test_small_crowds_to_the_person():
    answer = counts_crowd(2, 0.3, 1.0, 0.01)
    assert proven_counts(2, int(answer.value), 0.3, 1.0) <= 0.01
    assert proven_counts(2, int(answer.value) - 1, 0.3, 1.0) > 0.01


def test_ends():
    assert counts_q(0, 10, 1.0, 1e-6).value == 1e-12
    assert counts_q(1, 10, 30.0, 1e-6).value == 1e-12
    # nobody else: at most the local q, less where delta allows it
    alone = counts_q(3, 1, 1.0, 1e-9)
    assert alone.value == pytest.approx(local_q(3, 1.0), rel=1e-3)
    assert alone.delta <= 1e-9
    assert counts_crowd(2, 0.4, 2.0, 1e-9).value == 1
    assert counts_crowd(1000, 1e-9, 0.01, 1e-9).value == math.inf
    assert counts_epsilon(3, 100, 0.2, 0.0).value == pytest.approx(3 * log_theta(0.2))
    assert counts_epsilon(3, 10**6, 0.2, 0.5).value == 0.0


def test_epsilon_zero():
    """Then delta is a distance, and q near 1/2 is the answer for a small crowd."""
    answer = counts_q(2, 5, 0.0, 1e-3)
    assert 0.49 < answer.value < 0.5
    assert answer.delta <= 1e-3


def test_refusals():
    for wrong in ((1, 10, 1.0, 0.0), (1, 10, 1.0, 1.0), (-1, 10, 1.0, 0.1), (1, 0, 1.0, 0.1)):
        with pytest.raises(ValueError, match="got"):
            counts_q(*wrong)


def test_start_of_a_search():
    for q in (1e-12, 1e-3, 0.3, 0.499):
        assert _q_of(_log_noise(q)) == pytest.approx(q, rel=1e-12)
