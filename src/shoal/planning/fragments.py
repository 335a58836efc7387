"""Reports that a relay and an analyzer receive in pieces: how many messages, and what they cost.

Where the analyzer may see single bits only, a report is sent as W messages, one for each set bit
and dummies for the rest. A report with more set bits drops some, and that is paid for in delta
(`shoal.theory.binomial` has the theorem).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from shoal.errors import InputError
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Parties, Plan, View
from shoal.protocol.survey import Survey
from shoal.support.checks import check_integer
from shoal.support.rounding import round_up
from shoal.theory.binomial import min_messages, overflow_chance, truncation_price

PART_OF_DELTA = 0.01
"""The planner takes the fewest messages whose price is at most this part of delta."""


@dataclass(frozen=True)
class Overflow:
    """Reports of so many bits, sent as so many messages: what those with more set bits cost.

    `max_set` is how many bits the largest original has set. `q` is the flip probability of what
    is sent where that is not the one that is asked about: with memory, several statements are about
    the permanent or the fresh flips alone. `reports` is how many reports each device sends in all.
    """

    bits: int
    max_set: int
    messages: int
    q: float | None = None
    reports: int = 1

    @classmethod
    def of(cls, survey: Survey, messages: int) -> Overflow:
        """Return what a survey's reports cost if they are sent as so many messages."""
        return cls(survey.bits, sum(q.max_set_bits for q in survey), messages)

    def chance(self, q: float) -> float:
        """Return how often a report has more set bits than messages, at most."""
        return _chance(self.bits, self.max_set, self.messages, self.q or q)

    def price(self, crowd: int, q: float, epsilon: float, releases: int = 1) -> float:
        """Return what a crowd of such reports costs in delta."""
        return truncation_price(self.chance(q), crowd * self.reports * releases, epsilon)

    def fewest(self, crowd: int, q: float, epsilon: float, budget: float) -> int:
        """Return the fewest messages whose price is within a budget."""
        return min_messages(self.bits, self.max_set, q, crowd, epsilon, budget)

    def to_json(self, crowd: int, released: int, q: float, epsilon: float) -> dict[str, Any]:
        """Return the messages, how often a report has more, the price, and the bias of a count."""
        chance = self.chance(q)
        return {
            "messages": self.messages,
            "chance_of_more": round_up(chance) if chance else 0.0,
            "price": round_up(self.price(crowd, q, epsilon)) if chance else 0.0,
            "bias": round_up(released * chance) if chance else 0.0,
        }


@dataclass(frozen=True)
class Pieces:
    """A relay and an analyzer that were asked for, before it is known how a report is sent.

    `messages` is None where the planner chooses.
    """

    survey: Survey
    view: View
    whole: Parties
    messages: int | None

    @classmethod
    def of(
        cls,
        survey: Survey,
        view: View,
        relay: str | None,
        analyzer: str | None,
        messages: int | None,
    ) -> Pieces | None:
        """Return what was asked for; None without a relay and an analyzer."""
        if relay is None or analyzer is None:
            if relay is not None or analyzer is not None:
                missing = "an analyzer" if analyzer is None else "a relay"
                raise InputError(f"a relay and an analyzer go together; {missing} is missing.")
            if messages is not None:
                raise InputError("messages need a relay and an analyzer.")
            return None
        if messages is not None and view == "reports":
            raise InputError("with view reports a report is one message; messages are for counts.")
        if messages is not None:
            check_integer("messages", messages, lowest=1, highest=survey.bits)
        return cls(survey, view, Parties(relay, analyzer), messages)

    @property
    def overflow(self) -> Overflow | None:
        """How a report overflows, if the number of its messages is given."""
        return None if self.messages is None else Overflow.of(self.survey, self.messages)

    @property
    def left(self) -> float:
        """The part of delta that is left where the planner is yet to choose the messages."""
        return 1.0 if self.view == "reports" or self.messages is not None else 1.0 - PART_OF_DELTA

    def chosen(self, crowd: int, q: FlipProbability, epsilon: str, delta: float) -> Overflow:
        """Return the fewest messages that cost at most a hundredth of delta, or those given."""
        if self.messages is not None:
            return Overflow.of(self.survey, self.messages)
        every = Overflow.of(self.survey, self.survey.bits)
        budget = PART_OF_DELTA * delta
        fewest = every.fewest(crowd, float(q), float(epsilon), budget)
        return Overflow.of(self.survey, fewest)

    def parties(self, crowd: int, q: FlipProbability, epsilon: str, delta: float) -> Parties:
        """Return the parties with the number of messages that a plan needs."""
        if self.view == "reports":
            return self.whole
        return replace(self.whole, messages=self.chosen(crowd, q, epsilon, delta).messages)


_chance = lru_cache(maxsize=1024)(overflow_chance)


def overflow_of(plan: Plan) -> Overflow | None:
    """Return how the reports of a plan overflow; None where they are not sent in pieces."""
    if plan.parties is None or plan.view != "counts":
        return None
    return Overflow.of(plan.survey, plan.parties.messages)
