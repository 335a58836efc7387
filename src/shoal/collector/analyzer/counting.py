"""From opened messages to a tally, whatever is in them.

A crowd has as many reports as its plan says, and that is public. A message that cannot be read, is
out of range or came before must not void the crowd, so it counts as nothing:

* As a fragment it is a dummy, as if a device had set one bit fewer. A position that more messages
  name than the crowd has reports counts once for each report.
* As a whole report it is a report that sets no bit, spread evenly over the cohorts where there are
  cohorts. To leave it out would make the crowd smaller than was promised, and one such message
  would keep the crowd from being released.

Either way it does what its sender could have done with a valid report: bounds on fake reports hold
as they are. How many there were is released with the tally.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shoal.agreement.fragments import DUMMY
from shoal.agreement.plan import Plan
from shoal.agreement.vectors import padding_mask, row_bytes
from shoal.agreement.wire import ID_BYTES
from shoal.analysis.tallying import CohortCounts, Tally, Tallying
from shoal.collector.analyzer.spill import Messages

__all__ = ["Counting", "OpenedCrowd", "counting_for"]

_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class OpenedCrowd:
    """The tally of a crowd that was opened, and how many of its messages could not be read.

    `unopened` were not sealed for the crowd; `out_of_range` name no bit or no cohort of the plan;
    `repeated` have the identifier of another message; `excess` name a bit more often than there are
    reports.
    """

    tally: Tally
    unopened: int
    out_of_range: int
    repeated: int
    excess: int = 0

    @property
    def unreadable(self) -> int:
        """How many messages count as nothing."""
        return self.unopened + self.out_of_range + self.repeated + self.excess


class Counting:
    """Counts the messages of one crowd, of which no two have the same identifier."""

    out_of_range = 0

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def add(self, messages: Messages) -> None:
        """Count messages."""
        raise NotImplementedError

    def result(self, *, unopened: int, repeated: int) -> OpenedCrowd:
        """Return the tally of the whole crowd, with what was not even counted here."""
        raise NotImplementedError


def counting_for(plan: Plan) -> Counting:
    """Return what counts the messages of a plan."""
    return _FragmentCounting(plan) if plan.view == "counts" else _ReportCounting(plan)


class _FragmentCounting(Counting):
    """Each message is a position of a set bit, or a dummy."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._by_bit = np.zeros(plan.bits, np.int64)

    def add(self, messages: Messages) -> None:
        positions = np.ascontiguousarray(messages[:, ID_BYTES:]).view("<u4").reshape(-1)
        inside = positions[positions < self._plan.bits]
        self._by_bit += np.bincount(inside, minlength=self._plan.bits)
        dummies = int((positions == DUMMY).sum())
        self.out_of_range += len(positions) - len(inside) - dummies

    def result(self, *, unopened: int, repeated: int) -> OpenedCrowd:
        reports = self._plan.reports_needed
        by_bit = np.minimum(self._by_bit, reports)
        cohorts = None
        if self._plan.cohorts is not None:  # a plan with fragments has one at most
            cohorts = (CohortCounts(reports, by_bit.copy()),)
        tally = Tally(self._plan.id, reports, by_bit, cohorts=cohorts)
        excess = int((self._by_bit - by_bit).sum())
        return OpenedCrowd(tally, unopened, self.out_of_range, repeated, excess)


class _ReportCounting(Counting):
    """Each message is a whole report."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._tallying = Tallying(plan)

    def add(self, messages: Messages) -> None:
        plan, start = self._plan, ID_BYTES
        cohorts: NDArray[np.uint16] | None = None
        if plan.cohorts is not None:
            cohorts = np.ascontiguousarray(messages[:, start : start + 2]).view("<u2").reshape(-1)
            start += 2
        rows = messages[:, start : start + row_bytes(plan.bits)]
        inside = np.ones(len(rows), bool)
        if plan.bits % 8:
            inside &= (rows[:, -1] & (0xFF ^ padding_mask(plan.bits))) == 0
        if cohorts is not None and plan.cohorts is not None:
            inside &= cohorts < plan.cohorts
            cohorts = cohorts[inside].astype(np.uint16)
        self._tallying.add(rows[inside], cohorts=cohorts)
        self.out_of_range += len(rows) - int(inside.sum())

    def result(self, *, unopened: int, repeated: int) -> OpenedCrowd:
        plan = self._plan
        empty = unopened + repeated + self.out_of_range
        for start in range(0, empty, _AT_ONCE):
            places = np.arange(start, min(start + _AT_ONCE, empty))
            cohorts = None if plan.cohorts is None else (places % plan.cohorts).astype(np.uint16)
            rows = np.zeros((len(places), row_bytes(plan.bits)), np.uint8)
            self._tallying.add(rows, cohorts=cohorts)
        return OpenedCrowd(self._tallying.result(), unopened, self.out_of_range, repeated)
