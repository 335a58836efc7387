"""How many people to count on: valid for every answer, and near the best one."""

import itertools
import math
import random

import pytest

from shoal.theory.binomial import best_crowd, chance_of_fewer, smallest_cohort


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


@pytest.mark.parametrize("cohorts", [2, 8])
def test_more_people_are_worth_no_less(cohorts):
    """With cohorts: the best sum falls as the crowd grows, person by person."""

    def delta(t):
        return math.exp(-0.2 * t)

    def best(people):
        def price(t):
            return chance_of_fewer(people, cohorts, t)

        size = best_crowd(delta, price, people)
        return delta(size) + price(size)

    sums = [best(people) for people in range(1, 400)]
    assert all(b <= a * 1.001 for a, b in itertools.pairwise(sums))
