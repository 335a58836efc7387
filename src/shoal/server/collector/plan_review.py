"""Whether a collector accepts a plan, and the certificate it is published with."""

from __future__ import annotations

import json
from collections.abc import Iterable

from shoal import __version__
from shoal.errors import PrivacyRefusal
from shoal.planning.certificate import certify, check_promise, compute_promise
from shoal.planning.plan_diff import plan_diff
from shoal.planning.threats import oblivious_collector, poisoning
from shoal.protocol.plan import Plan
from shoal.server.core import problems
from shoal.server.core.ingest import limits_document
from shoal.server.core.problems import Problem
from shoal.server.core.settings import Settings

__all__ = ["certificate", "objection"]


def objection(plan: Plan, settings: Settings, others: Iterable[Plan]) -> Problem | None:
    """Return why a plan is refused beside others that accept reports, or None.

    This computes its promise again. A plan that protects less than another one of the same survey
    is refused while the other is open, since the same people would answer both.
    """
    if plan.crowd_size is None or plan.crowd_size < settings.smallest_crowd:
        return problems.CROWD_TOO_SMALL
    if plan.promise.kind not in ("proven", "local") and not settings.allow_unproven:
        return problems.PROMISE_UNPROVEN
    try:
        certify(plan)  # it refuses a plan about which nothing is proven, whatever the plan promises
        holds = not plan.q.is_blind and compute_promise(plan).holds
    except PrivacyRefusal:
        holds = False
    if not holds:
        return problems.PROMISE_BROKEN
    if any(
        other.survey.name == plan.survey.name and plan_diff(other, plan).kind == "forbidden"
        for other in others
    ):
        return problems.PROTECTS_LESS
    return None


def certificate(plan: Plan, settings: Settings) -> bytes:
    """Return the certificate of a plan as JSON; a plan that breaks its promise has none.

    The promise holds for the honest fraction. So the certificate also states the limits for
    senders that this collector enforces on the day of publication.
    """
    check_promise(plan)
    audited = certify(plan)
    promised = audited.to_json(epsilon=float(plan.promise.epsilon))
    if settings.oblivious != "off" and (plan.view == "reports" or settings.oblivious == "trusted"):
        promised["observers"].append(oblivious_collector(audited).to_json())
    document = {
        "plan": plan.id,
        "shoal": __version__,
        "promise": plan.promise.to_json(),
        "reports_per_release": plan.reports_needed,
        "honest_fraction": plan.honest_fraction or "1",
        "honest_fraction_said_by": "plan" if plan.honest_fraction else "publisher",
        # Where reports come through a relay, senders are known there only.
        "limits_when_published": None if plan.parties else limits_document(plan, settings),
        "poisoning": poisoning(plan).to_json(),
        "certificate": promised,
    }
    return json.dumps(document, ensure_ascii=False, allow_nan=False).encode()
