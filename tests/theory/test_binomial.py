"""How many people to count on: valid for every answer, and near the best one."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import pytest

from shoal.theory.binomial import (
    best_crowd,
    chance_of_fewer,
    overflow_chance,
    smallest_cohort,
    smallest_weight,
    truncation_price,
)

from .oracle import count_law


def test_fewer_than_so_many_by_adding_up():
    for people, cohorts in ((1, 3), (5, 2), (12, 3), (40, 7)):
        for t in range(1, people + 1):
            exact = math.fsum(
                math.comb(people - 1, k)
                * cohorts ** -float(k)
                * (1 - 1 / cohorts) ** (people - 1 - k)
                for k in range(t - 1)
            )
            assert exact * (1 - 1e-12) <= chance_of_fewer(people, cohorts, t)
            assert chance_of_fewer(people, cohorts, t) <= exact * (1 + 1e-9) + 1e-300


def test_the_smallest_cohort_is_the_largest_that_chance_allows():
    size, chance = smallest_cohort(1000, 4, 1e-6)
    assert chance == chance_of_fewer(1000, 4, size) <= 1e-6 < chance_of_fewer(1000, 4, size + 1)


def cases():
    rng = random.Random(7)
    for _ in range(300):
        most = int(10 ** rng.uniform(0, 4))
        rate, bend = 10 ** rng.uniform(-4, 0.5), rng.choice([0.7, 1.0, 1.2])
        floor = rng.choice([0.0, 0.0, 1e-38])

        def delta(t, rate=rate, bend=bend, floor=floor):
            return max(math.exp(-rate * t**bend), floor)

        if rng.random() < 0.5:
            each = 10 ** rng.uniform(-16, -3)
            yield delta, lambda t, each=each: min(each * t, 1.0), most
        else:
            cohorts = rng.choice([1, 2, 4, 64])
            yield delta, lambda t, m=most, c=cohorts: chance_of_fewer(m, c, t), most


@pytest.mark.slow
def test_no_crowd_is_much_better():
    for number, (delta, price, most) in enumerate(cases()):
        asked: list[int] = []

        def counted(t, delta=delta, asked=asked):
            asked.append(t)
            return delta(t)

        size = best_crowd(counted, price, most)
        assert 1 <= size <= most
        assert len(asked) == len(set(asked)) <= 12
        best = min(delta(t) + price(t) for t in range(1, most + 1))
        assert delta(size) + price(size) <= 1.02 * best + 1e-299, number


def exact_tail(bits: int, ones: int, weight: int, q: Fraction) -> Fraction:
    """P[more than so many set bits] of an original with so many ones, bit by bit."""
    return sum(count_law(ones, bits - ones, q)[weight + 1 :], Fraction(0))


CASES = [
    (100, 1, 12, Fraction(869, 100_000)),
    (100, 1, 14, Fraction(869, 100_000)),
    (40, 40, 39, Fraction(1, 7)),
    (60, 5, 9, Fraction(1, 1024)),
    (200, 3, 40, Fraction(1, 2)),
    (3, 0, 1, Fraction(1, 2**30)),
    (25, 25, 1, Fraction(3, 8)),
]


@pytest.mark.parametrize(("bits", "ones", "weight", "q"), CASES)
def test_the_tail_is_just_above_the_exact_one(bits: int, ones: int, weight: int, q: Fraction):
    exact = exact_tail(bits, ones, weight, q)
    bound = overflow_chance(bits, ones, weight, float(q))
    assert exact <= bound <= float(exact) * (1 + 1e-11) + 1e-280


@pytest.mark.parametrize("q", [Fraction(1, 100), Fraction(1, 5), Fraction(1, 2)])
def test_no_original_overflows_more_often_than_the_largest(q: Fraction):
    """Of a question with at most 3 of 7, one with exactly 1 of 4, and two flags: at most 6 set."""
    for weight in range(1, 13):
        largest = overflow_chance(13, 6, weight, float(q))
        assert all(exact_tail(13, ones, weight, q) <= largest for ones in range(1, 7))


def test_every_device_on_both_sides_is_paid_for():
    assert truncation_price(1e-9, 1000, 0.0) == pytest.approx(2e-6)
    assert truncation_price(1e-9, 1000, math.log(3)) == pytest.approx(4e-6)
    assert truncation_price(1e-3, 1000, 1.0) == 1.0
    assert truncation_price(1e-30, 1, 800.0) == 1.0
    assert truncation_price(0.0, 10**12, 800.0) == 0.0


def test_nothing_is_dropped_where_all_bits_may_be_set():
    assert overflow_chance(5, 5, 5, 0.4) == 0.0
    assert smallest_weight(5, 5, 0.001, 100, 1.0, 1e-9) == 5


def test_the_smallest_weight_is_the_smallest():
    for budget in (1e-3, 1e-8, 1e-20):
        weight = smallest_weight(100, 1, 0.00869, 10_000, 1.0, budget)

        def price(limit: int) -> float:
            return truncation_price(overflow_chance(100, 1, limit, 0.00869), 10_000, 1.0)

        assert price(weight) <= budget < price(weight - 1)


@pytest.mark.parametrize("bad", [(5, 6, 1, 0.1), (5, 1, 0, 0.1), (5, 1, 1, 0.0), (5, 1, 1, 0.6)])
def test_what_is_no_report_is_refused(bad: tuple[int, int, int, float]):
    with pytest.raises(ValueError, match="no report"):
        overflow_chance(*bad)
