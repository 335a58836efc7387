"""Plans with memory: both layers, lifetimes and horizons."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest

from shoal import Choice, Flags, Plan, PrivacyRefusal, Survey, Text, plan
from shoal.errors import InputError
from shoal.planning.certificate import certify
from shoal.planning.memory import (
    linking_probability,
    parse_horizon,
    plan_with_memory,
    releases_in_a_year,
)
from shoal.protocol.flip_probability import FlipProbability, repeated_epsilon
from shoal.protocol.plan import Memory

FIVE = Survey("browser", (Flags("features", ("a", "b", "c", "d", "e")),))


class TestPlanning:
    @pytest.mark.parametrize(
        ("survey", "crowd", "epsilon", "delta"),
        [
            (FIVE, 10_000, "1", "1e-6"),
            (Survey("c", (Choice("x", tuple("abcdefgh")),)), 5_000, "0.7", "1e-5"),
            (Survey("f", (Flags("x", ("a",)),)), 1_000_000, "3", "1e-7"),
        ],
    )
    def test_the_promise_is_certified_at_the_q_that_two_layers_make(
        self, survey, crowd, epsilon, delta
    ):
        made = plan_with_memory(
            survey, crowd_size=crowd, epsilon=epsilon, delta=delta, releases=100
        )
        assert made.memory is not None
        assert made.memory.q == made.q
        assert max(made.memory.q1.digits, made.memory.q2.digits) <= 26
        assert certify(made).delta(epsilon=float(epsilon)).high <= float(delta)
        single = plan(survey, crowd_size=crowd, epsilon=epsilon, delta=delta)
        assert made.q.fraction <= single.q.fraction * (1 + 2e-3)
        # Half of the flips, in logarithms, are fresh.
        fresh = math.log1p(-2 * float(made.memory.q2)) / math.log1p(-2 * float(made.q))
        assert fresh == pytest.approx(0.5, abs=0.02)
        assert Plan.from_json(made.to_json()) == made

    @pytest.mark.parametrize("share", ["0.1", "0.9"])
    def test_the_share_of_fresh_flips(self, share: str):
        made = plan_with_memory(
            FIVE, crowd_size=10_000, epsilon=1, delta="1e-6", releases=9, fresh=share
        )
        assert made.memory is not None
        fresh = math.log1p(-2 * float(made.memory.q2)) / math.log1p(-2 * float(made.q))
        assert fresh == pytest.approx(float(share), abs=0.01)

    @pytest.mark.parametrize(("releases", "distinct"), [(10, 1), (10, 3), (1000, 2)])
    def test_a_lifetime(self, releases: int, distinct: int):
        made = plan_with_memory(
            FIVE,
            crowd_size=10_000,
            epsilon=1,
            delta="1e-6",
            releases=releases,
            lifetime_epsilon="8",
            distinct_answers=distinct,
        )
        memory = made.memory
        assert memory is not None
        most = releases - distinct + 1
        assert distinct * repeated_epsilon(5, memory, most) <= 8
        less = FlipProbability.of_fraction(memory.q1.fraction - FlipProbability(1, 20).fraction)
        assert distinct * repeated_epsilon(5, Memory(less, memory.q2), most) > 8
        # However the reports fall on the answers, the lifetime's limit holds.
        for first in range(1, most + 1, 37):
            rest = [releases - first - (distinct - 2)] if distinct > 1 else []
            counts = [first, *rest, *[1] * (distinct - 2)]
            total = sum((repeated_epsilon(5, memory, n) for n in counts), Decimal(0))
            assert total <= 8
        assert certify(made).delta(epsilon=1).high <= 1e-6

    @pytest.mark.parametrize(
        ("words", "window", "releases"),
        [
            ("daily for a year", 86_400, 367),
            ("Weekly  for 2 years", 7 * 86_400, 106),
            ("hourly for a day", 3600, 25),
            ("monthly for a year", 30 * 86_400, 14),
            ("every 14 days for 6 months", 14 * 86_400, 15),
            ("every 3 days for a week", 3 * 86_400, 4),
        ],
    )
    def test_a_horizon_in_words(self, words: str, window: int, releases: int):
        assert parse_horizon(words) == (window, releases)
        wish: dict[str, Any] = {
            "crowd_size": 10_000,
            "epsilon": 1,
            "delta": "1e-6",
            "lifetime_epsilon": "20",
        }
        made = plan_with_memory(FIVE, horizon=words, **wish)
        assert made.window == window
        assert made.memory == plan_with_memory(FIVE, releases=releases, **wish).memory

    @pytest.mark.parametrize(
        ("words", "days"),
        [("weekly for 2 weeks", 14), ("weekly for a week", 7), ("every 3 days for a week", 7)],
    )
    def test_a_horizon_counts_the_windows_it_cuts_at_both_ends(self, words: str, days: int):
        """Windows are aligned to 1970 and people start at any second: counted one by one."""
        window, releases = parse_horizon(words)
        touched = {
            len({time // window for time in range(start, start + days * 86_400, 600)})
            for start in range(0, window, 1800)
        }
        assert max(touched) == releases

    @pytest.mark.parametrize(
        ("window", "touched"), [(3600, 8785), (86_400, 367), (7 * 86_400, 54), (366 * 86_400, 2)]
    )
    def test_a_year_of_windows(self, window: int, touched: int):
        assert releases_in_a_year(window) == touched

    @pytest.mark.parametrize("words", ["", "daily", "daily for ever", "every 0 days for a year", 5])
    def test_what_is_no_horizon(self, words):
        with pytest.raises(InputError, match="a horizon is written like"):
            parse_horizon(words)

    @pytest.mark.parametrize(
        ("change", "refusal", "words"),
        [
            ({"lifetime_epsilon": "1e-6"}, PrivacyRefusal, "coin toss"),
            ({"crowd_size": 2, "epsilon": "1e-9", "delta": "1e-12"}, PrivacyRefusal, "coin toss"),
            ({"max_reports_per_person": 2}, PrivacyRefusal, "one report per release"),
            ({"survey": Survey("t", (Text("word", 16, 2, 4),))}, InputError, "splits the crowd"),
            ({"releases": None}, InputError, "give either releases or a horizon"),
            ({"horizon": "daily for a week"}, InputError, "give either releases or a horizon"),
            ({"fresh": "0"}, InputError, "fresh"),
            ({"fresh": "1"}, InputError, "fresh"),
            ({"distinct_answers": 6}, InputError, "distinct_answers"),
            ({"releases": 0}, InputError, "releases"),
            ({"delta": "2"}, InputError, "delta"),
            ({"crowd_size": 0}, InputError, "crowd_size"),
        ],
    )
    def test_refusals(self, change: dict[str, Any], refusal: type, words: str):
        wish = {"survey": FIVE, "crowd_size": 1000, "epsilon": 1, "delta": "1e-6", "releases": 5}
        with pytest.raises(refusal, match=words):
            plan_with_memory(**(wish | change))  # type: ignore[arg-type]

    def test_following_a_person_is_as_hard_as_documented(self):
        made = plan_with_memory(FIVE, crowd_size=10_000, epsilon=1, delta="1e-6", releases=52)
        assert made.memory is not None
        assert linking_probability(5, made.memory, 10_000) < 0.001
