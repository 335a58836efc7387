"""What fake reports can do: how far one of them, or a share of them, moves an estimate.

An honest report moves the estimate of an option by one person on average. A fake one flips nothing:
a one that was never randomized moves it by p / (p - q), a zero by -q / (p - q), and it may do so
for every option at once. Replacing a part s of the people by fakes moves an estimated share by at
most s p / (p - q), up where nobody has the option and down where everybody has, since
1 + q / (p - q) = p / (p - q).

Where a report is sent as W messages, one for each set bit, a fake can name one option W times. That
moves its estimate by (W - q) / (p - q).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from shoal.errors import InputError
from shoal.protocol.encryption import messages_of
from shoal.protocol.plan import Plan
from shoal.support.checks import check_number
from shoal.support.rounding import round_down, round_up
from shoal.theory import randomized_response as coin

__all__ = ["Poisoning", "poisoning"]


@dataclass(frozen=True)
class Poisoning:
    """What fakes can do to the estimates of one plan.

    `up` and `down` are people by which one fake report moves the estimate of an option, and
    `options` how many it moves at once. `messages` is as how many messages a report is sent: with
    more than one, a fake can spend all of them on one option. `up_if_local` is what one fake would
    do under local differential privacy at the epsilon that the plan promises; infinite at q = 1/2.
    `reports` and `sigma` are those of a whole crowd, if the plan has one and something can be
    estimated.
    """

    up: float
    down: float
    options: int
    reports: int | None
    sigma: float | None
    epsilon: float
    up_if_local: float
    messages: int = 1

    def shift(self, share: float) -> float:
        """Return by how much fakes that replace a share of the people move any estimated share."""
        if not 0 <= check_number("share", share) <= 1:
            raise InputError(f"share must be between 0 and 1, got share={share}.")
        return share * self.up if share else 0.0

    @property
    def fakes_for_one_sigma(self) -> float | None:
        """How many fakes in a whole crowd move a count by as much as its noise does."""
        return None if self.sigma is None else self.sigma / self.up

    @property
    def sentences(self) -> tuple[str, ...]:
        """The same in words."""
        if math.isinf(self.up):
            return ("q is 1/2: nothing is estimated, so there is nothing to poison.",)
        moved = (
            f"and all {self.options} options at once"
            if self.messages == 1
            else f"with all of its {self.messages} messages on that option, or {self.options}"
            " options by one message each"
        )
        said = [
            f"One fake report moves the estimate of an option by up to {round_up(self.up):.4g}"
            f" people up or {round_up(-self.down):.4g} down, {moved}; an honest one moves it by one"
            " on average.",
            f"Fakes in place of 1 % of the people move an estimated share by up to"
            f" {round_up(self.shift(0.01)):.2%}.",
            f"Under local differential privacy at epsilon {self.epsilon:g} one fake would move it"
            f" by up to {round_up(self.up_if_local):.4g} people.",
        ]
        if self.fakes_for_one_sigma is not None:
            said.append(
                f"In a crowd of {self.reports:,} reports {self.fakes_for_one_sigma:,.0f} fakes"
                " move a count by one sigma of the noise."
            )
        return tuple(said)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values, null where nothing can be estimated; rounded up."""
        blind = math.isinf(self.up)
        one_sigma = self.fakes_for_one_sigma
        return {
            "up": None if blind else round_up(self.up),
            "down": None if blind else -round_up(-self.down),
            "options": self.options,
            "messages": self.messages,
            "one_percent_of_fakes": None if blind else round_up(self.shift(0.01)),
            "fakes_for_one_sigma": None if one_sigma is None else round_down(one_sigma),
            "epsilon": self.epsilon,
            "up_if_local": None if math.isinf(self.up_if_local) else round_up(self.up_if_local),
            "sentences": list(self.sentences),
        }


def poisoning(plan: Plan) -> Poisoning:
    """Return what fake reports can do under a plan.

    Examples
    --------
    >>> from shoal import Flags, Survey, plan
    >>> agreed = plan(Survey("s", (Flags("f", ("a", "b")),)), q="0.25")
    >>> can = poisoning(agreed)
    >>> can.up, can.down, can.shift(0.02)
    (1.5, -0.5, 0.03)
    """
    epsilon = float(plan.promise.epsilon)
    local_q = coin.local_q(plan.survey.differing_bits, epsilon)
    q = float(plan.q)
    blind = plan.q.is_blind
    messages = messages_of(plan)
    up = coin.shift_of_a_fake(q, messages)
    return Poisoning(
        up,
        1 - coin.shift_of_a_fake(q),
        messages if plan.parties is not None and plan.view == "counts" else plan.bits,
        None if plan.crowd_size is None else plan.reports_needed,
        None if plan.crowd_size is None or blind else coin.count_sigma(plan.reports_needed, q),
        epsilon,
        up if plan.promise.kind == "local" else coin.shift_of_a_fake(local_q),
        messages,
    )
