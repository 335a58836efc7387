"""What a device checks of a plan before it answers: who sent it does not matter, what it says does.

A plan is known by its id, the hash of its content. The application should ship the ids it answers:
a collector that may hand out any plan could hand everybody a plan of their own, and a crowd of one.
"""

from __future__ import annotations

import decimal
import re

from shoal.errors import InputError, PlanError, PrivacyRefusal
from shoal.protocol.local_privacy import EXACT, local_epsilon
from shoal.protocol.plan import SHORTEST_WINDOW, Plan
from shoal.support.checks import check_decimal, shown
from shoal.support.files import first_line, strict_json

__all__ = ["check_certificate", "check_plan", "check_promise", "read_plan"]

LARGEST_PLAN = 16 << 20

_ID = r"[0-9a-f]{64}"


def check_plan_id(plan_id: object) -> str:
    """Return a plan's id if it is one: 64 hexadecimal digits."""
    if not isinstance(plan_id, str) or not re.fullmatch(_ID, plan_id):
        raise PlanError(f"a plan's id is 64 hexadecimal digits, got {shown(plan_id)}.")
    return plan_id


def read_plan(content: bytes, plan_id: str) -> Plan:
    """Read a plan from bytes of whatever origin; it must be the plan that was asked for."""
    check_plan_id(plan_id)
    if len(content) > LARGEST_PLAN:
        raise PlanError(f"a plan takes at most {LARGEST_PLAN >> 20} MiB, got more.")
    try:
        document = strict_json(content)
        plan = Plan.from_json(document)
        actual_id = plan.id
    except InputError:
        raise
    except (ValueError, RecursionError) as problem:
        raise PlanError(f"what came is not a plan: {first_line(problem)}.") from problem
    if actual_id != plan_id:
        raise PlanError(f"asked for plan {plan_id}, got plan {actual_id}.")
    return plan


def check_plan(
    plan: Plan,
    *,
    limit: object = None,
    reports: int = 1,
    shortest_window: int = SHORTEST_WINDOW,
) -> Plan:
    """Return the plan if a device with this limit may answer it, by what its reports reveal.

    Parameters
    ----------
    plan
        A well-formed plan: its survey takes at most 65536 bits and its q is in (0, 1/2].
    limit
        The largest local epsilon that the device agrees to, above 0, or None for any. For a plan
        with memory, the permanent flips count: they are all that protects over time.
    reports
        How many reports the device will have made then; without memory they add up.
    shortest_window
        The shortest window in seconds, since a report carries its number.

    Examples
    --------
    >>> from shoal import Flags, Survey
    >>> from shoal.protocol.flip_probability import FlipProbability
    >>> from shoal.protocol.plan import Promise
    >>> survey = Survey("browser", (Flags("features", ("sync", "vpn")),))
    >>> plan = Plan(survey, FlipProbability.at_least(0.25), Promise("local", "2.2"))
    >>> check_plan(plan, limit="2.2") is plan
    True
    >>> check_plan(plan, limit=2)
    Traceback (most recent call last):
    ...
    shoal.errors.PrivacyRefusal: one report of this plan reveals up to a local epsilon of 2.1973,...
    """
    if plan.q.is_blind:
        raise PlanError("the plan's q is 1/2, where a report says nothing; there is no use in it.")
    if plan.window is not None and plan.window < shortest_window:
        raise PrivacyRefusal(
            f"the plan's window of {plan.window} seconds would tell when a report was made;"
            f" this device takes windows of {shortest_window} seconds and more."
        )
    if limit is not None:
        most = decimal.Decimal(check_decimal("limit", limit, above=0))
        if plan.memory is not None:
            reports = 1
        q = plan.memory.q1 if plan.memory else plan.q
        revealed = reports * local_epsilon(plan.survey.differing_bits, q, places=EXACT)
        if revealed > most:
            only = "; its promise is for whoever sees only counts" * (plan.view == "counts")
            shown_up = revealed.quantize(decimal.Decimal("0.0001"), rounding=decimal.ROUND_CEILING)
            raise PrivacyRefusal(
                f"{'one report' if reports == 1 else f'{reports} reports'} of this plan"
                f" {'reveals' if reports == 1 else 'reveal'} up to a local epsilon of {shown_up},"
                f" more than this device's limit of {most}{only}."
            )
    return plan


def check_certificate(plan: Plan, content: bytes) -> None:
    """Raise `PrivacyRefusal` unless a certificate, signed by whom the device trusts, confirms it.

    This needs no SciPy. A three-sigma promise is a rule of thumb, which no certificate proves.
    """
    from shoal.protocol.promise import read_certificate

    _refuse_rule_of_thumb(plan)
    if (refusal := read_certificate(plan, content).refusal) is not None:
        raise PrivacyRefusal(refusal)


def check_promise(plan: Plan) -> None:
    """Compute the plan's promise; this loads SciPy and may take seconds.

    A three-sigma promise is a rule of thumb and cannot be proven, so it is refused.
    """
    from shoal.planning.promise import check_promise as confirm

    _refuse_rule_of_thumb(plan)
    confirm(plan)


def _refuse_rule_of_thumb(plan: Plan) -> None:
    if plan.promise.kind == "three-sigma":
        raise PrivacyRefusal("a three-sigma promise is a rule of thumb, which nothing can prove.")
