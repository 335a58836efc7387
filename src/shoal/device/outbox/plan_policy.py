"""Which plans this device answers, and what tells it that they keep their promise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import shoal
from shoal.device.outbox.plan_checks import check_certificate, check_plan, check_promise
from shoal.device.outbox.queue import Folder
from shoal.errors import InputError, PrivacyRefusal
from shoal.protocol.plan import Plan

if TYPE_CHECKING:
    from shoal.device.outbox.transport import Transport

__all__ = ["PlanGate"]


class PlanGate:
    """The device's own limits on plans, and the promises that were confirmed already."""

    def __init__(
        self,
        folder: Folder,
        transport: Transport,
        *,
        has_memory: bool,
        limit: object,
        recompute: bool | None,
        shortest_window: int,
        one_operator: bool = False,
    ) -> None:
        self._folder, self._transport, self._has_memory = folder, transport, has_memory
        self._limit, self._shortest_window = limit, shortest_window
        self._one_operator = one_operator
        from importlib.util import find_spec

        # The whole of Shoal computes promises; its light device alone does not.
        computes = all(find_spec(name) for name in ("scipy", "shoal.planning"))
        if recompute and not computes:
            raise InputError(
                "computing a promise needs the whole of Shoal, with SciPy: pip install shoal."
            )
        self._recompute = computes if recompute is None else recompute
        self._confirmed: set[str] = set()

    def check(self, plan: Plan, reports: int = 1) -> Plan:
        """Return the plan if this device may make so many reports of it, in all, or refuse."""
        check_plan(plan, limit=self._limit, reports=reports, shortest_window=self._shortest_window)
        if plan.memory is not None and not self._has_memory:
            raise PrivacyRefusal(
                "the plan needs permanent flips, and this outbox has no memory; give it one:"
                " --memory FILE, or memory=."
            )
        if plan.parties is not None:
            from shoal.device.outbox.encryption import (
                check_parties,  # most plans have one collector
            )

            check_parties(plan.parties, self._transport, one_operator=self._one_operator)
        if plan.id not in self._confirmed:
            self._confirm(plan)
            self._confirmed.add(plan.id)
        return plan

    def _confirm(self, plan: Plan) -> None:
        """Refuse a plan unless something tells that it keeps its promise; this is done once.

        A local promise is checked wherever a plan is read, and a limit of the device's own holds
        without any crowd.
        """
        if plan.promise.kind == "local" or (self._limit is not None and not self._recompute):
            return
        from shoal.device.outbox.transport import CertifyingTransport

        carrier = self._transport
        key = carrier.pinned_key if isinstance(carrier, CertifyingTransport) else None
        if key is None and not self._recompute:
            raise PrivacyRefusal(
                "this device cannot confirm the plan's promise; use --recompute (needs SciPy),"
                " --limit or --key (in Python recompute=, limit=, public_key=)."
            )
        source = "computed" if self._recompute else f"certified by {key}"
        note = f"{source}, shoal {shoal.__version__}"
        if self._folder.promise_note(plan.id) == note:
            return
        if self._recompute:
            check_promise(plan)
        else:
            assert isinstance(carrier, CertifyingTransport)
            check_certificate(plan, carrier.fetch_certificate(plan.id))
        with self._folder.changing():
            self._folder.keep_promise_note(plan.id, note)
