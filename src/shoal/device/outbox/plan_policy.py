"""Which plans this device answers, and how it confirms that they keep their promise.

A plan is identified by the hash of its content, so its sender does not matter. The application
should ship the ids that it answers: a collector that chooses the plan could give everybody a plan
of their own, and a crowd of one.
"""

from __future__ import annotations

import decimal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import shoal
from shoal.device.outbox.queue import ReportQueue
from shoal.errors import InputError, PlanError, PrivacyRefusal
from shoal.protocol.flip_probability import EXACT, local_epsilon
from shoal.protocol.plan import MIN_WINDOW, Plan
from shoal.support.checks import check_decimal

if TYPE_CHECKING:
    from shoal.device.outbox.retry import Transport


@dataclass
class PlanPolicy:
    """The device's own limits on plans, and the promises that were confirmed already."""

    queue: ReportQueue
    transport: Transport
    has_memory: bool
    limit: object
    recompute: bool | None
    min_window: int
    one_operator: bool
    confirmed: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        from importlib.util import find_spec

        computes = find_spec("scipy") is not None
        if self.recompute and not computes:
            raise InputError("computing a promise needs scipy: pip install 'shoal[analysis]'.")
        self.recompute = computes if self.recompute is None else self.recompute

    def check(self, plan: Plan, reports: int = 1) -> Plan:
        """Return the plan if this device may make `reports` reports of it in all, or refuse."""
        check_plan(plan, limit=self.limit, reports=reports, min_window=self.min_window)
        if plan.memory is not None and not self.has_memory:
            raise PrivacyRefusal(
                "the plan needs permanent flips, and this outbox has no memory; give it one:"
                " --memory FILE, or memory=."
            )
        if plan.parties is not None:
            from shoal.device.encryption import check_parties  # most plans have one collector

            check_parties(plan.parties, self.transport, one_operator=self.one_operator)
        if plan.id not in self.confirmed:
            self._confirm(plan)
            self.confirmed.add(plan.id)
        return plan

    def _confirm(self, plan: Plan) -> None:
        """Refuse a plan unless its promise is computed or certified; this is done once.

        A local promise is checked when a plan is read, and the device's own limit needs no crowd.
        """
        if plan.promise.kind == "local" or (self.limit is not None and not self.recompute):
            return
        fetch = getattr(self.transport, "fetch_certificate", None)
        key = None if fetch is None else getattr(self.transport, "pinned_key", None)
        if key is None and not self.recompute:
            raise PrivacyRefusal(
                "this device cannot confirm the plan's promise; use --recompute (needs SciPy),"
                " --limit or --key (in Python the arguments recompute, limit, public_key)."
            )
        source = "computed" if self.recompute else f"certified by {key}"
        note = f"{source}, shoal {shoal.__version__}"
        if self.queue.promise_note(plan.id) == note:
            return
        if self.recompute:
            check_promise(plan)
        else:
            assert fetch is not None
            check_certificate(plan, fetch(plan.id))
        with self.queue.changing():
            self.queue.keep_promise_note(plan.id, note)


def check_plan(
    plan: Plan, *, limit: object = None, reports: int = 1, min_window: int = MIN_WINDOW
) -> Plan:
    """Return the plan if a device with this limit may answer it, or refuse it.

    `limit` is the largest local epsilon that the device agrees to, above 0, or None for any. For a
    plan with memory, the permanent flips count: they are all that protects over time. Without
    memory, several `reports` add up. A report carries the number of its window, so windows shorter
    than `min_window` seconds are refused.
    """
    if plan.q.is_blind:
        raise PlanError("the plan's q is 1/2, so its reports carry no information.")
    if plan.window is not None and plan.window < min_window:
        raise PrivacyRefusal(
            f"the plan's window of {plan.window} seconds would tell when a report was made;"
            f" this device takes windows of {min_window} seconds and more."
        )
    if limit is not None:
        most = decimal.Decimal(check_decimal("limit", limit, above=0))
        if plan.memory is not None:
            reports = 1
        q = plan.memory.q1 if plan.memory else plan.q
        revealed = reports * local_epsilon(plan.survey.differing_bits, q, places=EXACT)
        if revealed > most:
            only = "; its promise holds only against an observer of counts" * (
                plan.view == "counts"
            )
            shown_up = revealed.quantize(decimal.Decimal("0.0001"), rounding=decimal.ROUND_CEILING)
            raise PrivacyRefusal(
                f"{'one report' if reports == 1 else f'{reports} reports'} of this plan"
                f" {'reveals' if reports == 1 else 'reveal'} up to a local epsilon of {shown_up},"
                f" more than this device's limit of {most}{only}."
            )
    return plan


def check_certificate(plan: Plan, content: bytes) -> None:
    """Raise `PrivacyRefusal` unless a certificate, whose signature was checked, confirms a plan."""
    from shoal.protocol.promise import read_certificate

    _refuse_rule_of_thumb(plan)
    if (refusal := read_certificate(plan, content).refusal) is not None:
        raise PrivacyRefusal(refusal)


def check_promise(plan: Plan) -> None:
    """Compute the plan's promise, or refuse the plan; this loads SciPy and may take seconds."""
    from shoal.planning.certificate import check_promise as confirm

    _refuse_rule_of_thumb(plan)
    confirm(plan)


def _refuse_rule_of_thumb(plan: Plan) -> None:
    if plan.promise.kind == "three-sigma":
        raise PrivacyRefusal("a three-sigma promise is a rule of thumb, which nothing can prove.")
