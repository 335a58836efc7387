"""What became of a plan's promise when it was computed, and the certificate that says so.

Nothing is computed here: `shoal.planning.certificate` does that. A device without SciPy reads the
certificate of somebody it trusts instead.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Self

from shoal.errors import InputError, PlanError
from shoal.protocol.plan import ONE_OPERATOR, Plan, Promise, View
from shoal.support.files import strict_json
from shoal.support.rounding import text_up


@dataclass(frozen=True)
class ComputedPromise:
    """What was asked for, and what a computation says about it.

    `delta` is the proven delta at the promised epsilon, for all reports that a person may send to
    a release, rounded up; None where the promise is local and needs no crowd. `refusal` is the
    sentence that says why the promise does not hold, None where it holds. `view` is what the
    observer sees against whom a promise of a crowd holds. With `one_operator` it does not hold
    against relay and analyzer, which the same people run.
    """

    promise: Promise
    delta: float | None
    refusal: str | None
    view: View = "reports"
    one_operator: bool = False

    @classmethod
    def of(cls, plan: Plan, delta: float | None = None, refusal: str | None = None) -> Self:
        one = plan.parties is not None and plan.parties.one_operator
        return cls(plan.promise, delta, refusal, plan.view, one)

    @property
    def holds(self) -> bool:
        return self.refusal is None

    @property
    def is_guarantee(self) -> bool:
        """Whether a theorem says so: of the sufficient and the three-sigma kind none does."""
        return self.holds and self.promise.kind in ("proven", "local")

    @property
    def in_words(self) -> str:
        if self.refusal is not None:
            return f"broken: {self.refusal}"
        promise, proven = self.promise, ""
        if self.delta is not None:
            proven = f"; proven at this epsilon is delta {text_up(self.delta, 3)}"
        words = {
            "proven": f"proven: epsilon {promise.epsilon}, delta {promise.delta}, for the"
            f" {self.view} of every crowd",
            "sufficient": f"sufficient: epsilon {promise.epsilon}, eta {promise.eta}, on"
            f" homogeneous crowds only; not a guarantee{proven}",
            "three-sigma": f"three-sigma: epsilon {promise.epsilon}, a rule of thumb; not a"
            f" guarantee{proven}",
            "local": f"local: epsilon {promise.epsilon} for each report by itself",
        }[promise.kind]
        return f"{words}; {ONE_OPERATOR}" if self.one_operator else words


_MAX_EPSILON = 10
"""Above this epsilon a promise is weak: it allows odds to change by a factor of 22,026."""

_MAX_EXPOSED = Decimal("0.01")
"""From this expected number of exposed people on a promise is weak; from 1 on it is refused."""


def exposed_people(delta: str | float, people: int) -> Decimal:
    """Return how many people a delta allows to be exposed: each with probability delta."""
    return Decimal(str(delta)) * people


def promise_warnings(epsilon: float, delta: str | float | None, people: int | None) -> list[str]:
    """Return a sentence for each weakness of a promise to a crowd, or to a single person.

    A mechanism that publishes each person's answer with probability delta is (0, delta)-private.
    """
    found = []
    if delta is not None and people is not None:
        exposed = exposed_people(delta, people)
        if exposed >= _MAX_EXPOSED:
            safe = Decimal(1).scaleb(-(len(str(people)) + 2))  # times people it is below 0.01
            found.append(
                f"delta {delta} allows {_people(exposed)} of {people:,} people, on average, to be"
                f" fully exposed; use a delta of {safe:e} or less."
            )
    if epsilon > _MAX_EPSILON:
        value = text_up(epsilon)
        factor = f" = {math.ceil(math.exp(epsilon)):,}" if epsilon < 30 else ""
        found.append(
            f"epsilon {value} allows an observer's odds about a person to change by a factor of"
            f" e^{value}{factor}."
        )
    return found


def _people(exposed: Decimal) -> str:
    return f"{Decimal(text_up(float(exposed), 3)):,f}"


def read_certificate(plan: Plan, content: bytes) -> ComputedPromise:
    """Return a plan's promise as the maker of a certificate computed it; nothing is computed here.

    The certificate is what a collector publishes a plan with. It must be of this very plan.
    """
    promise, eta = plan.promise, None
    try:
        document: Any = strict_json(content)
        if document["plan"] != plan.id:
            raise PlanError(f"the certificate belongs to another plan, not to {plan.id}.")
        inner = document["certificate"]
        same = (inner["q"], inner["crowd_size"]) == (float(plan.q), plan.crowd_size)
        if not same or inner["epsilon"] != float(promise.epsilon):
            raise PlanError("the certificate and the plan differ in q, crowd size or epsilon.")
        if inner["view"] != plan.view:
            raise PlanError(f"the certificate's view is not {plan.view}, which is the plan's.")
        delta = _probability(inner["proven"]["delta"][1])
        if promise.eta is not None:
            eta = _probability(inner["homogeneous"]["worst"]["eta"][1])
    except InputError:
        raise
    except (ValueError, KeyError, IndexError, TypeError, RecursionError) as problem:
        raise PlanError("this is not a certificate of a plan.") from problem
    if promise.kind == "local":
        return ComputedPromise.of(plan)
    return ComputedPromise.of(plan, delta, refusal_of(plan, delta, eta))


def _probability(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise ValueError("not a probability")
    return float(value)


def refusal_of(plan: Plan, delta: float, eta: float | None) -> str | None:
    """Return why a plan with a crowd, this proven delta and this eta is broken, or None."""
    promise, reports = plan.promise, plan.max_reports_per_person
    unconfirmed = "but a computation does not confirm it"
    if promise.kind != "proven" and reports > 1:
        return (
            f"a {promise.kind} promise is about one report of a person, the plan allows {reports},"
            f" {unconfirmed}; allow 1, or plan for a proven promise."
        )
    counts = " for counts" if plan.view == "counts" else ""
    place = f"with q = {float(plan.q):.6g} in a crowd of {plan.crowd_size:,}"
    if plan.max_weight is not None:
        place += f", with max_weight {plan.max_weight},"
    if promise.kind == "three-sigma":
        return None  # a rule of thumb, which no delta proves or disproves
    name, wanted = ("eta", promise.eta) if eta is not None else ("delta", promise.delta)
    reached = delta if eta is None else eta
    if reached <= float(wanted or 0):
        return None
    several = "" if reports == 1 else f" and {reports} reports of a person"
    return (
        f"the plan promises a {promise.kind} {name} of {wanted} at epsilon {promise.epsilon}"
        f"{counts}, {unconfirmed}: {place}{several} {name} is {text_up(reached, 3)}; make a new"
        " plan with shoal plan."
    )
