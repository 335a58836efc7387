"""Synthetic vectors to reports: what is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.device.vectors import SyntheticVector
from shoal.errors import ReportError
from shoal.protocol.plan import Plan
from shoal.protocol.random_bits import SystemBits
from shoal.protocol.vectors import Synthetic
from shoal.protocol.wire import ID_BYTES, Reports, checked_window, join_report, report_bytes

if TYPE_CHECKING:
    from shoal.protocol.vectors import Cohorts

__all__ = ["pack_reports"]


def pack_reports(
    plan: Plan,
    synthetic: SyntheticVector | Synthetic,
    *,
    window: int | None = None,
    cohorts: Cohorts | None = None,
) -> Reports:
    """Wrap one synthetic vector, or many, as reports, each with a fresh random id.

    Unless `window` says otherwise, they are of the window that this machine's clock says is open.
    A plan without windows has window 0 only. `cohorts` are those of many vectors that do not say
    theirs.

    >>> from shoal import Flags, Survey, randomize
    >>> from shoal.device.encode import encode
    >>> from shoal.device.randomize import flip
    >>> from shoal.protocol.flip_probability import FlipProbability
    >>> from shoal.protocol.plan import Promise
    >>> survey = Survey("browser", (Flags("features", ("sync", "vpn")),))
    >>> plan = Plan(survey, FlipProbability.at_least(0.25), Promise("local", "2.2"))
    >>> reports = pack_reports(plan, flip(plan, encode(plan, {"features": ["vpn"]})))
    >>> len(reports), len(reports.to_bytes())
    (1, 63)
    """
    if not isinstance(synthetic, (SyntheticVector, Synthetic)):
        raise ReportError(f"only synthetic vectors are sent, got {type(synthetic).__name__}.")
    if synthetic.bits != plan.bits:
        raise ReportError(f"the plan has {plan.bits} bits, the vectors have {synthetic.bits}.")
    if synthetic.simulated:
        raise ReportError("simulated vectors are not for release; randomize without a seed.")
    window = checked_window(plan, window)
    if isinstance(synthetic, Synthetic):
        from shoal.device.arrays.packing import pack_rows

        return pack_rows(plan, synthetic, window, cohorts)
    if cohorts is not None or (plan.cohorts is None) != (synthetic.cohort is None):
        raise ReportError("a vector has a cohort exactly when its plan has cohorts.")
    if synthetic.cohort is not None and not 0 <= synthetic.cohort < (plan.cohorts or 0):
        raise ReportError(f"a cohort must be below {plan.cohorts}, got {synthetic.cohort}.")
    report = join_report(SystemBits().draw(ID_BYTES), window, synthetic.cohort, synthetic.row)
    return Reports(plan.id, report_bytes(plan), report)
