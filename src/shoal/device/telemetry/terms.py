"""What was agreed to, read back from its text: plan, address, limit and key."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.device.outbox.http import HttpTransport
from shoal.device.outbox.plan_checks import check_plan
from shoal.errors import InputError, PlanError
from shoal.protocol.plan import Plan
from shoal.support.files import first_line, strict_json

__all__ = ["Terms"]


@dataclass(frozen=True)
class Terms:
    """The plan that is answered, where reports go, and how much they may reveal."""

    plan: Plan
    to: str
    limit: str | None
    public_key: str | None

    @property
    def window(self) -> int:
        """The length of the plan's windows in seconds."""
        assert self.plan.window is not None
        return self.plan.window

    @classmethod
    def read(cls, agreement: bytes) -> Terms:
        """Read what `agreement_text` wrote; a plan that this device never answers is an error."""
        head, _, content = agreement.partition(b"\n\n")
        lines = head.decode("utf-8", "replace").splitlines()[1:]
        fields = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
        try:
            plan = Plan.from_json(strict_json(content))
        except InputError:
            raise
        except (ValueError, RecursionError) as problem:
            raise PlanError(f"telemetry needs a plan: {first_line(problem)}.") from problem
        terms = cls(plan, fields["to"], fields["limit"] or None, fields["key"] or None)
        if plan.window is None:
            raise PlanError(
                "telemetry needs a plan with a window, in which a device reports once: shoal plan"
                " --window."
            )
        check_plan(plan, limit=terms.limit)
        HttpTransport(terms.to, public_key=terms.public_key)  # whether it is an address at all
        return terms
