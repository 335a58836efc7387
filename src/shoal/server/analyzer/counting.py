"""From opened messages to a tally of the reports that can be read.

A message counts if it was encrypted for the crowd, names a bit and a cohort of the plan, and has an
identifier of its own. Nothing else counts towards the size of the crowd:

* Whole reports: each message is a report, so the readable messages are the readable reports.
* Fragments: a report is W messages that nothing links. With u unreadable messages, at least N - u
  and at most N - u / W of the N reports arrived complete, and the messages do not say how many. The
  promise relies on the lower bound: a report that may be incomplete hides nobody. The tally states
  the upper bound, rounded down: that is how many reports the readable messages make up, which is
  what an estimate needs. A position that more messages name counts once for each report.

A fake report with g unreadable messages moves a count by no more than one with valid messages only:
it loses g votes for a bit, and the size of the crowd falls by g / W, which adds back q for each. So
bounds on fake reports still hold.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shoal.analysis.tally import CohortCounts, Tally, Tallying
from shoal.protocol.fragments import DUMMY, messages_of
from shoal.protocol.plan import Plan
from shoal.protocol.vectors import padding_mask, row_bytes
from shoal.protocol.wire import ID_BYTES
from shoal.server.analyzer.spill import Messages

__all__ = ["Counting", "OpenedCrowd", "counting_for"]


@dataclass(frozen=True)
class OpenedCrowd:
    """The tally of a crowd that was opened, and how many of its messages could not be read.

    `unopened` were not encrypted for the crowd; `out_of_range` name no bit or no cohort of the
    plan; `repeated` have the identifier of another message; `excess` can be read and name a bit
    more often than there are reports. `complete` is a lower bound on the reports that
    arrived complete.
    """

    tally: Tally
    complete: int
    unopened: int
    out_of_range: int
    repeated: int
    excess: int = 0

    @property
    def unreadable(self) -> int:
        """How many messages do not count towards the size of the crowd."""
        return self.unopened + self.out_of_range + self.repeated


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
        unreadable = unopened + repeated + self.out_of_range
        needed, messages = self._plan.reports_needed, messages_of(self._plan)
        complete, reports = max(needed - unreadable, 0), needed - -(-unreadable // messages)
        by_bit = np.minimum(self._by_bit, reports)
        cohorts = None
        if self._plan.cohorts is not None:  # a plan with fragments has one at most
            cohorts = (CohortCounts(reports, by_bit.copy()),)
        tally = Tally(self._plan.id, reports, by_bit, cohorts=cohorts)
        excess = int((self._by_bit - by_bit).sum())
        return OpenedCrowd(tally, complete, unopened, self.out_of_range, repeated, excess)


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
        tally = self._tallying.result()
        return OpenedCrowd(tally, tally.reports, unopened, self.out_of_range, repeated)
