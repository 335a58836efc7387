"""A Plan to whether it keeps its promise, computed at the exact q that devices flip bits with.

A plan says of itself what was asked for. Whoever prints a promise computes it here first, once for
each plan in a process, and refuses a plan that does not keep it.
"""

from __future__ import annotations

import math
from functools import lru_cache

from shoal.errors import PrivacyRefusal
from shoal.protocol.plan import Plan
from shoal.protocol.promise import ComputedPromise, refusal_of

__all__ = [
    "check_promise",
    "compute_promise",
    "shortfall",
]

_NEAR_MISS = 1.001
"""A delta of at most so many times the promised one is computed once more, more finely."""


def check_promise(plan: Plan) -> ComputedPromise:
    """Return the plan's promise as it was computed, or refuse a plan that does not keep it.

    >>> from dataclasses import replace
    >>> from shoal import Flags, Survey, plan
    >>> from shoal.protocol.flip_probability import FlipProbability
    >>> survey = Survey("browser", (Flags("features", ("sync", "vpn")),))
    >>> agreed = plan(survey, crowd_size=1000, epsilon=1, delta="1e-6")
    >>> check_promise(agreed).in_words
    'proven: epsilon 1, delta 1e-6, for the reports of every crowd'
    >>> check_promise(replace(agreed, q=FlipProbability(1, 6)))
    Traceback (most recent call last):
    ...
    shoal.errors.PrivacyRefusal: the plan promises a proven delta of 1e-6 at epsilon 1, but a...
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
    promise, eta = plan.promise, None
    if promise.kind == "local":
        return ComputedPromise(promise, None, None, plan.view)
    try:
        delta = _delta(plan)
    except PrivacyRefusal as refusal:  # of what nothing is proven about
        return ComputedPromise(promise, None, str(refusal), plan.view)
    wanted = float(promise.delta or 0)
    if wanted < delta <= _NEAR_MISS * wanted:
        delta = min(delta, _delta(plan, rtol=1e-6))
    if promise.eta is not None:
        eta = _eta(plan)
    return ComputedPromise(promise, delta, _refusal(plan, delta, eta), plan.view)


def shortfall(plan: Plan) -> float:
    """Return by how much the certified delta or eta exceeds the one that is promised."""
    if plan.promise.delta is not None:
        return _delta(plan) - float(plan.promise.delta)
    assert plan.promise.eta is not None
    return _eta(plan) - float(plan.promise.eta)


@lru_cache(maxsize=256)
def _delta(plan: Plan, rtol: float = 1e-4) -> float:
    from shoal.planning.certificate import certify

    return certify(plan).delta(epsilon=float(plan.promise.epsilon), rtol=rtol).high


def _eta(plan: Plan) -> float:
    from shoal.planning.certificate import certify

    return certify(plan).eta(epsilon=float(plan.promise.epsilon)).high


def _refusal(plan: Plan, delta: float, eta: float | None) -> str | None:
    """Return why a plan with a crowd, this proven delta and this eta is broken, or None."""
    refusal = refusal_of(plan, delta, eta)
    if refusal is None and plan.promise.kind == "three-sigma" and not _within_three_sigma(plan):
        return (
            f"the plan promises the three-sigma rule at epsilon {plan.promise.epsilon}, and a"
            f" computation does not confirm it with q = {float(plan.q):.6g} in a crowd of"
            f" {plan.crowd_size:,}; make the plan anew with shoal plan."
        )
    return refusal


def _within_three_sigma(plan: Plan) -> bool:
    from shoal.theory.sufficient import gap_312

    assert plan.crowd_size is not None
    ratio = math.exp(min(float(plan.promise.epsilon), 700.0))
    try:
        gap = gap_312(float(plan.q), plan.survey.differing_bits, plan.crowd_size, ratio)
    except (OverflowError, ZeroDivisionError):
        return False
    return gap <= 1e-12 * ratio
