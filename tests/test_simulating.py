"""Simulation: repeats itself, knows the truth, and is marked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shoal import (
    Choice,
    Choices,
    Flags,
    InputError,
    Number,
    Original,
    Survey,
    encode,
    plan,
    simulate,
)
from shoal.randomness import simulation_generator
from shoal.simulating import populate
from shoal.vectors import pack, unpack

SURVEY = Survey(
    "s",
    (
        Flags("f", ("a", "b", "c")),
        Choice("c", ("x", "y"), missing="option"),
        Choices("l", tuple("pqrst"), at_most=2),
        Number("n", ("1", "2")),
    ),
)
PLAN = plan(SURVEY, q="0.25")


class TestPeople:
    def test_answers_are_allowed(self):
        people = list(populate(SURVEY, 300_000, simulation_generator(1)))
        assert sum(map(len, people)) == 300_000
        for original in people:
            vectors = unpack(original.rows, SURVEY.bits)
            for question in SURVEY:
                set_bits = vectors[:, SURVEY.slice_of(question.name)].sum(axis=1)
                assert set_bits.min() >= question.fewest_set_bits
                assert set_bits.max() <= question.most_set_bits

    def test_every_option_has_somebody(self):
        run = simulate(PLAN, users=10_000, seed=1)
        assert (run.truth > 100).all()


class TestRun:
    def test_the_same_seed_the_same_numbers(self):
        one, two, other = (simulate(PLAN, users=5000, seed=seed) for seed in (3, 3, 4))
        assert one.to_json() == two.to_json()
        assert one.to_json() != other.to_json()

    def test_without_a_seed_each_run_is_fresh(self):
        """Equal only if thousands of bits agree. False alarm: below 1e-20."""
        one, two = (simulate(PLAN, users=2000) for _ in range(2))
        assert one.to_json() != two.to_json()

    def test_it_is_marked(self):
        run = simulate(PLAN, users=100, seed=1)
        assert run.estimates.tally.simulated
        assert run.to_json()["simulated"] is True

    def test_a_smaller_crowd_than_planned_may_be_simulated(self):
        crowd = plan(SURVEY, q="0.25", crowd_size=10**6)
        assert simulate(crowd, users=100, seed=1).estimates.tally.reports == 100

    def test_the_truth_of_given_answers(self):
        answers = [
            {"f": ["a"], "c": "x", "l": ["p"], "n": 0},
            {"f": ["a", "b"], "c": None, "l": [], "n": 2},
        ] * 500
        original = encode(SURVEY, answers)
        run = simulate(PLAN, answers=original, seed=1)
        assert run.true_count("f", "a") == 1000
        assert run.true_count("f", "b") == 500
        assert run.true_count("c", "(missing)") == 500
        assert run.estimates.tally.reports == 1000
        halves = [Original(part, SURVEY.bits) for part in np.split(original.rows, 2)]
        assert (simulate(PLAN, answers=iter(halves), seed=1).truth == run.truth).all()
        document = run.to_json()
        assert document["questions"]["f"]["a"]["truth"] == 1000

    def test_users_drawn_from_answers(self):
        original = Original(pack(np.eye(1, SURVEY.bits, dtype=bool)), SURVEY.bits)
        run = simulate(PLAN, users=300_000, answers=original, seed=1)
        assert run.truth.tolist() == [300_000] + [0] * (SURVEY.bits - 1)
        assert run.estimates.tally.reports == 300_000

    def test_intervals_cover_the_truth(self):
        """Seeded: of 14 * 60 exact intervals at 99 % about 8 miss, never 30."""
        missed = 0
        for seed in range(60):
            run = simulate(PLAN, users=3000, seed=seed)
            for question, options in run.estimates.items():
                for label, one in options.items():
                    missed += run.true_count(question, label) not in one.interval(0.99)
        assert missed < 30

    def test_progress(self):
        done: list[int] = []
        simulate(PLAN, users=200_000, seed=1, progress=done.append)
        assert sum(done) == 200_000
        assert len(done) > 1


class TestRefusals:
    def test_nobody(self):
        with pytest.raises(InputError, match="how many users"):
            simulate(PLAN)

    @pytest.mark.parametrize("users", [0, -1, 1.5, True])
    def test_users_that_are_none(self, users: object):
        with pytest.raises(InputError, match="users"):
            simulate(PLAN, users=users, seed=1)  # type: ignore[arg-type]

    def test_no_answers_to_draw_from(self):
        empty = Original(np.zeros((0, 2), np.uint8), SURVEY.bits)
        given: list[Any] = [empty, [empty], [], iter([])]
        for answers in given:
            with pytest.raises(InputError):
                simulate(PLAN, users=10, answers=answers, seed=1)

    def test_answers_to_another_survey(self):
        with pytest.raises(InputError):
            simulate(PLAN, answers=Original(np.zeros((5, 1), np.uint8), 3), seed=1)

    @pytest.mark.parametrize("seed", [-1, 2**63, 0.5, "x"])
    def test_seeds_that_are_none(self, seed: object):
        with pytest.raises(InputError, match="seed"):
            simulate(PLAN, users=10, seed=seed)  # type: ignore[arg-type]
