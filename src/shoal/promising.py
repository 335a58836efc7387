"""A Plan to whether it keeps its promise, computed at the exact q that devices flip bits with.

A plan says of itself what was asked for. Whoever prints a promise computes it here first, once for
each plan in a process, and refuses a plan that does not keep it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from shoal._files import strict_json
from shoal.errors import InputError, PlanError, PrivacyRefusal
from shoal.plans import Plan, Promise
from shoal.rounding import text_up

__all__ = [
    "ComputedPromise",
    "check_promise",
    "compute_promise",
    "read_certificate",
    "shortfall",
]

_NEAR_MISS = 1.001
"""A delta of at most so many times the promised one is computed once more, more finely."""


@dataclass(frozen=True)
class ComputedPromise:
    """What was asked for, and what a computation says about it.

    `delta` is the proven delta at the promised epsilon, for all reports that a person may send to
    a release, rounded up; None where the promise is local and needs no crowd. `refusal` is the
    sentence that says why the promise does not hold, None where it holds.
    """

    promise: Promise
    delta: float | None
    refusal: str | None

    @property
    def holds(self) -> bool:
        """Whether the plan keeps what it promises."""
        return self.refusal is None

    @property
    def is_guarantee(self) -> bool:
        """Whether a theorem says so: of the sufficient and the three-sigma kind none does."""
        return self.holds and self.promise.kind in ("proven", "local")

    @property
    def in_words(self) -> str:
        """What holds, in one line.

        >>> ComputedPromise(Promise("proven", "1", delta="1e-6"), 9.9e-7, None).in_words
        'proven: epsilon 1, delta 1e-6, whatever the others answer'
        """
        if self.refusal is not None:
            return f"broken: {self.refusal}"
        asked, proven = self.promise, ""
        if self.delta is not None:
            proven = f"; proven at this epsilon is delta {text_up(self.delta, 3)}"
        return {
            "proven": f"proven: epsilon {asked.epsilon}, delta {asked.delta}, whatever the others"
            " answer",
            "sufficient": f"sufficient: epsilon {asked.epsilon}, eta {asked.eta}, on homogeneous"
            f" crowds only; not a guarantee{proven}",
            "three-sigma": f"three-sigma: epsilon {asked.epsilon}, a rule of thumb; not a"
            f" guarantee{proven}",
            "local": f"local: epsilon {asked.epsilon} for each report by itself",
        }[asked.kind]


def check_promise(plan: Plan) -> ComputedPromise:
    """Return the plan's promise as it was computed, or refuse a plan that does not keep it.

    >>> from dataclasses import replace
    >>> from shoal import Flags, LieProbability, Survey, plan
    >>> survey = Survey("browser", (Flags("features", ("sync", "vpn")),))
    >>> agreed = plan(survey, crowd_size=1000, epsilon=1, delta="1e-6")
    >>> check_promise(agreed).in_words
    'proven: epsilon 1, delta 1e-6, whatever the others answer'
    >>> check_promise(replace(agreed, q=LieProbability(1, 6)))
    Traceback (most recent call last):
    ...
    shoal.errors.PrivacyRefusal: the plan promises a proven delta of 1e-6 at epsilon 1, and a...
    """
    computed = compute_promise(plan)
    if computed.refusal is not None:
        raise PrivacyRefusal(computed.refusal)
    return computed


@lru_cache(maxsize=256)
def compute_promise(plan: Plan) -> ComputedPromise:
    """Compute what a plan promises: its crowd, its q, and every report a person may send count.

    A local promise is about one report, and `Plan` itself checks it exactly.
    """
    asked, eta = plan.promise, None
    if asked.kind == "local":
        return ComputedPromise(asked, None, None)
    try:
        delta = _delta(plan)
    except PrivacyRefusal as refusal:  # of what nothing is proven about
        return ComputedPromise(asked, None, str(refusal))
    wanted = float(asked.delta or 0)
    if wanted < delta <= _NEAR_MISS * wanted:
        delta = min(delta, _delta(plan, rtol=1e-6))
    if asked.eta is not None:
        eta = _eta(plan)
    return ComputedPromise(asked, delta, _refusal(plan, delta, eta))


def read_certificate(plan: Plan, content: bytes) -> ComputedPromise:
    """Return a plan's promise as the maker of a certificate computed it; nothing is computed here.

    The certificate is what a collector publishes a plan with. It must be of this very plan.
    """
    asked, eta = plan.promise, None
    try:
        document: Any = strict_json(content)
        if document["plan"] != plan.id:
            raise PlanError(f"the certificate is of another plan, not of {plan.id}.")
        inner = document["certificate"]
        same = (inner["q"], inner["crowd_size"]) == (float(plan.q), plan.crowd_size)
        if not same or inner["epsilon"] != float(asked.epsilon):
            raise PlanError("the certificate has another q, crowd or epsilon than its plan.")
        delta = _probability(inner["proven"]["delta"][1])
        if asked.eta is not None:
            eta = _probability(inner["homogeneous"]["worst"]["eta"][1])
    except InputError:
        raise
    except (ValueError, KeyError, IndexError, TypeError, RecursionError) as problem:
        raise PlanError("what came is not a certificate of a plan.") from problem
    if asked.kind == "local":
        return ComputedPromise(asked, None, None)
    return ComputedPromise(asked, delta, _refusal(plan, delta, eta))


def _probability(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise ValueError("not a probability")
    return float(value)


def shortfall(plan: Plan) -> float:
    """Return by how much the certified delta or eta exceeds the one that is promised."""
    if plan.promise.delta is not None:
        return _delta(plan) - float(plan.promise.delta)
    assert plan.promise.eta is not None
    return _eta(plan) - float(plan.promise.eta)


def _delta(plan: Plan, rtol: float = 1e-4) -> float:
    from shoal.auditing import audit

    return audit(plan).delta(epsilon=float(plan.promise.epsilon), rtol=rtol).high


def _eta(plan: Plan) -> float:
    from shoal.auditing import audit

    return audit(plan).eta(epsilon=float(plan.promise.epsilon)).high


def _refusal(plan: Plan, delta: float, eta: float | None) -> str | None:
    """Return why a plan with a crowd, this proven delta and this eta is broken, or None."""
    asked, reports = plan.promise, plan.max_reports_per_person
    unconfirmed = "and a computation does not confirm it"
    if asked.kind != "proven" and reports > 1:
        return (
            f"a {asked.kind} promise is about one report of a person, the plan allows {reports},"
            f" {unconfirmed}; allow 1, or plan for a proven promise."
        )
    place = f"with q = {float(plan.q):.6g} in a crowd of {plan.crowd_size:,}"
    if asked.kind == "three-sigma":
        if _within_three_sigma(plan):
            return None
        return (
            f"the plan promises the three-sigma rule at epsilon {asked.epsilon}, {unconfirmed}"
            f" {place}; make the plan anew with shoal plan."
        )
    name, wanted = ("eta", asked.eta) if eta is not None else ("delta", asked.delta)
    reached = delta if eta is None else eta
    if reached <= float(wanted or 0):
        return None
    several = "" if reports == 1 else f" and {reports} reports of a person"
    return (
        f"the plan promises a {asked.kind} {name} of {wanted} at epsilon {asked.epsilon},"
        f" {unconfirmed}: {place}{several} {name} is {text_up(reached, 3)}; make the plan anew"
        " with shoal plan."
    )


def _within_three_sigma(plan: Plan) -> bool:
    from shoal.theory.three_sigma import gap_312

    assert plan.crowd_size is not None
    ratio = math.exp(min(float(plan.promise.epsilon), 700.0))
    try:
        gap = gap_312(float(plan.q), plan.survey.differing_bits, plan.crowd_size, ratio)
    except (OverflowError, ZeroDivisionError):
        return False
    return gap <= 1e-12 * ratio
