"""A Tally to a Screening: the traces of fake reports that a whole crowd shows.

The question is whether *any* honest crowd explains the tally: any answers of the survey's domain,
randomized with the plan's q. The answers are not known, so a p-value must hold for all of them
(theorems: `honest_counts` and `mixtures` of `shoal.theory.honest_crowds`). Fakes that follow the
noise of an allowed answer cannot be told from people who give it; nothing here, or anywhere, sees
those.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shoal.analysis.estimates import check_crowd
from shoal.analysis.screening_tests import Family, families
from shoal.analysis.tally import Tally
from shoal.errors import InputError
from shoal.planning.fragments import overflow_of
from shoal.protocol.plan import Plan
from shoal.support.checks import check_number
from shoal.support.rounding import round_down, round_up
from shoal.theory.calibration import largest

__all__ = ["Screening", "screen"]

_PRECISION = 0.01
"""How closely the smallest share of fakes is searched for, relative to itself."""

SMALLEST = 1e-300
"""P-values below what floats hold are rounded up to this."""

CLEAN = "No sign of fake reports."
COUNTS_ONLY = (
    "Only the counts of single bits and their totals were tested; under view counts nothing else"
    " is counted, so fakes that set an allowed number of bits leave no trace."
)
IN_PIECES = (
    "A fake device can spend all {messages} messages of its report on one option, so that fewer"
    " fakes explain a trace than of whole reports."
)
NOT_TESTED = "Not tested: with memory and several reports per person, reports are not independent."


@dataclass(frozen=True)
class Screening:
    """What was seen: an honest crowd has a `p_value` of at most a with probability at most a.

    `suspicious` says that it is at most `alarm`. `smallest_share_of_fakes` is a lower bound of the
    part of the reports that no honest crowd explains, at confidence 1 - alarm; there may be more.
    """

    p_value: float
    alarm: float
    findings: tuple[str, ...]
    smallest_share_of_fakes: float
    reports: int
    plan_id: str
    crowds: int = 1

    @property
    def suspicious(self) -> bool:
        """Whether the p-value is at most the alarm."""
        return self.p_value <= self.alarm

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; the p-value is rounded up, the share down."""
        return {
            "plan": self.plan_id,
            "reports": self.reports,
            "crowds": self.crowds,
            "p_value": min(round_up(self.p_value), 1.0),
            "alarm": self.alarm,
            "suspicious": self.suspicious,
            "smallest_share_of_fakes": round_down(self.smallest_share_of_fakes),
            "findings": list(self.findings),
        }


def screen(plan: Plan, tally: Tally, *, alarm: float = 1e-3) -> Screening:
    """Look for traces of fake reports in the tally of a whole crowd.

    Parameters
    ----------
    plan, tally
        The plan, and the tally of its reports; fewer than a whole crowd are refused as by
        `estimate`, and so are crowds whose people may be the same if the plan has memory.
    alarm
        The probability, in (0, 1), with which an honest crowd may be called suspicious.

    Examples
    --------
    >>> import numpy as np
    >>> from shoal import Flags, Survey, plan, tally
    >>> from shoal.protocol.wire import Synthetic
    >>> agreed = plan(Survey("s", (Flags("f", ("a", "b", "c", "d")),)), q="0.25")
    >>> rows = np.repeat(np.array([[0], [1], [15]], np.uint8), [500, 200, 300], axis=0)
    >>> screening = screen(agreed, tally(agreed, Synthetic(rows, bits=4)))
    >>> screening.suspicious, round(screening.smallest_share_of_fakes, 3)
    (True, 0.932)
    >>> screening.findings[-1]
    '500 reports are the vector 00; an honest crowd is expected to send it at most 316.5 times.'
    """
    if not 0 < check_number("alarm", alarm) < 1:
        raise InputError(f"alarm must be strictly between 0 and 1, got alarm={alarm}.")
    check_crowd(plan, tally)
    about = tally.reports, plan.id, len(tally.crowds)
    if plan.memory is not None and plan.max_reports_per_person > 1:
        return Screening(1.0, alarm, (NOT_TESTED,), 0.0, *about)
    limits = [COUNTS_ONLY] if plan.view == "counts" else []
    overflow = overflow_of(plan)
    if overflow is not None and overflow.messages > 1:
        limits.append(IN_PIECES.format(messages=overflow.messages))
    # honest reports that drop bits are as whole ones but for this probability
    dropped = 0.0 if overflow is None else tally.reports * overflow.chance(float(plan.q))
    looked_at = families(plan, tally)
    traces = [
        (len(looked_at) * p + dropped, say) for family in looked_at for p, say in family.traces(0)
    ]
    traces.sort(key=lambda trace: trace[0])
    p_value = min(max(traces[0][0], SMALLEST), 1.0)
    if p_value > alarm:
        return Screening(p_value, alarm, (CLEAN, *limits), 0.0, *about)
    findings = (*(say() for p, say in traces if p <= alarm), *limits)
    share = _fewest_fakes(looked_at, tally.reports, alarm - dropped) / tally.reports
    return Screening(p_value, alarm, findings, share, *about)


def _fewest_fakes(looked_at: list[Family], reports: int, alarm: float) -> int:
    """Return the least number of fakes that is not rejected; the p-value rises with the number.

    None at all was rejected before, and rounding is downward: it is a lower bound.
    """

    def rejected(fakes: int) -> bool:
        limit = alarm / len(looked_at)
        return any(p <= limit for family in looked_at for p, _ in family.traces(fakes))

    return largest(rejected, 0, reports - 1, rtol=_PRECISION) + 1
