"""What holds for the sum of several crowds whose people may be the same.

The sum is made from the crowds' tallies, so whatever these tallies promise together holds for it
too. Each is randomized afresh, so that their promises compose (theorem). Memory's permanent flips
are not fresh; sums of such crowds are refused before anything comes here.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from shoal.analysis.tally import Tally
from shoal.planning.composition import composed_delta, composed_epsilon
from shoal.protocol.flip_probability import EXACT, local_epsilon
from shoal.protocol.plan import Plan, View
from shoal.reports.words import ratio_in_words
from shoal.support.rounding import float_up, round_up, text_up

if TYPE_CHECKING:
    from shoal.planning.certificate import Certificate

__all__ = ["PromiseOfSum", "promise_of_sum"]


@dataclass(frozen=True)
class PromiseOfSum:
    """What is proven for a person who is in every crowd of a sum; rounded up.

    `epsilon` holds at `delta`, and `delta_at_promised` at the plan's epsilon. A local promise has
    no delta, and its `epsilon` holds for all reports of the person with no crowd.
    """

    crowds: int
    epsilon: float
    delta: float
    promised_epsilon: float
    delta_at_promised: float | None
    method: str
    view: View

    @property
    def in_words(self) -> str:
        """What is promised, in one line."""
        epsilon = f"epsilon {text_up(self.epsilon, 4)}"
        person = f"for a person who is in all {self.crowds:,} crowds of this sum"
        if self.delta_at_promised is None:
            return f"local: {epsilon}, {person}"
        delta = f"delta {text_up(self.delta, 3)}"
        return f"proven: {epsilon}, {delta}, {person}, in the view of {self.view}"

    @property
    def plain(self) -> str:
        """What that means for one person."""
        ratio = ratio_in_words(self.epsilon)
        if self.delta_at_promised is None:
            return (
                f"To anyone who sees all reports of a person who is in all {self.crowds:,} crowds"
                f" of this sum, the collector included, they are at most {ratio} times as likely"
                " under one answer as under another. This needs no crowd and no trust in anyone."
            )
        return (
            "Suppose one person had given different answers in every one of the"
            f" {self.crowds:,} crowds of this sum. Whatever the others answered, and whatever else"
            f" an observer knows, any result of these counts would have been at most {ratio} times"
            f" as likely, plus a probability of {text_up(self.delta, 3)}. This is a theorem: the"
            " promises of the crowds compose."
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)


def promise_of_sum(
    plan: Plan, tally: Tally, certificate: Certificate | None
) -> PromiseOfSum | None:
    """Return what holds for a sum of crowds; None where the tally is one crowd."""
    if not tally.people_may_repeat:
        return None
    crowds, promised = len(tally.crowds), float(plan.promise.epsilon)
    one = local_epsilon(plan.survey.differing_bits, plan.q, places=EXACT)
    local = float_up(crowds * plan.max_reports_per_person * one)
    if certificate is None:
        return PromiseOfSum(
            crowds, round_up(local), 0.0, promised, None, "epsilons add up", plan.view
        )
    delta = float(plan.promise.delta or "1e-6")
    epsilon = composed_epsilon(certificate, crowds, delta)
    at_promised = composed_delta(certificate, crowds, promised) if promised < local else 0.0
    return PromiseOfSum(
        crowds,
        round_up(min(epsilon, local), 6),
        delta,
        promised,
        at_promised,
        "composition of the crowds" if epsilon < local else "local epsilons add up",
        plan.view,
    )
