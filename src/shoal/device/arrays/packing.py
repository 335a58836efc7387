"""Many synthetic vectors to the reports of one batch."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.errors import ReportError
from shoal.protocol import wire
from shoal.protocol.plan import Plan
from shoal.protocol.random_bits import SystemBits
from shoal.protocol.vectors import Cohorts, Synthetic

__all__ = ["pack_rows"]


def pack_rows(
    plan: Plan, synthetic: Synthetic, window: int, cohorts: Cohorts | None
) -> wire.Reports:
    """Wrap vectors that `shoal.device.packing.pack_reports` has looked at as reports."""
    cohorts = synthetic.cohorts if cohorts is None else cohorts
    if (plan.cohorts is None) != (cohorts is None):
        raise ReportError("cohorts are given exactly when the plan has them.")
    if len(synthetic) > wire.MOST_REPORTS:
        raise ReportError(
            f"a batch holds at most {wire.MOST_REPORTS} reports, got {len(synthetic)}."
        )
    fields = wire.report_fields(plan.bits, plan.cohorts is not None)
    records = np.empty(len(synthetic), np.dtype(fields))
    if cohorts is not None:
        records["cohort"] = _checked_cohorts(np.asarray(cohorts), plan, len(synthetic))
    ids = np.frombuffer(SystemBits().draw(wire.ID_BYTES * len(synthetic)), np.uint8)
    records["id"] = ids.reshape(-1, wire.ID_BYTES)
    records["window"], records["bits"] = window, synthetic.rows
    return wire.Reports(plan.id, records.itemsize, records.tobytes())


def _checked_cohorts(cohorts: NDArray[Any], plan: Plan, count: int) -> NDArray[Any]:
    if cohorts.shape != (count,) or cohorts.dtype.kind not in "iu":
        raise ReportError(f"{count} reports need {count} cohorts, each a whole number.")
    assert plan.cohorts is not None
    outside = cohorts[(cohorts < 0) | (cohorts >= plan.cohorts)]
    if outside.size:
        raise ReportError(f"a cohort must be below {plan.cohorts}, got {outside[0]}.")
    return cohorts
