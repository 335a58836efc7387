"""Questions about a device's own past: its arm, its age, and the one report of its first windows.

A device begins to answer a survey when its person says yes. Windows are counted from there:

* With ages, the report of a window is made in that window, since people who leave never report
  later. It is the window's number from 0; after P there is none.
* Otherwise one report is made, about the first two windows, or all P + 1 of a retention question,
  when they are over.

Before a report is made, its number and plan are stored under the survey's name. A smaller number,
or the same one for another plan, is refused: so neither a kill, nor a clock that is set, nor an
upgrade of the tool makes a second report of the same kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from shoal.device.telemetry import state
from shoal.protocol.plan import Plan
from shoal.protocol.survey import Retention
from shoal.protocol.wire import current_window

_FIRST = 2
"""Windows that a single report is about: at least one whole window after a person's yes."""


def windows_until_report(plan: Plan) -> int:
    """Return after how many windows a single report, or the last of several, is made."""
    periods = [one.periods + 1 for one in plan.survey.retention]
    if periods:
        return periods[0]
    return _FIRST if plan.survey.about_past else 1


@dataclass(frozen=True)
class Past:
    """What a device keeps about a plan's survey, at a time."""

    home: Path
    plan: Plan
    began: int
    now: int

    @classmethod
    def read(cls, home: Path, plan: Plan, clock: float) -> Past | None:
        """Return what is kept; None if the device has not begun to answer the survey."""
        began = state.read_file(str(home), state.began_name(plan.survey.name))
        if began is None or not began.isdigit():
            return None
        return cls(home, plan, current_window(plan, int(began)), current_window(plan, clock))

    @property
    def last(self) -> int:
        """The last window that is reported about."""
        return self.began + windows_until_report(self.plan) - 1

    @property
    def number(self) -> int | None:
        """The number of the report that is due now, or None."""
        if not self.plan.survey.has_ages:
            return 0 if self.now > self.last else None
        age = self.now - self.began
        endless = self.plan.survey.reports_per_device is None
        return age if age >= 0 and (endless or self.now <= self.last) else None

    @property
    def is_over(self) -> bool:
        """Whether no later window can have a report."""
        done = self.now >= self.last if self.plan.survey.has_ages else self.now > self.last
        return done and self.plan.survey.reports_per_device is not None

    def windows(self, found: list[int]) -> list[int]:
        """Return those windows, of some with events, that the report is about."""
        last = self.now if self.plan.survey.has_ages else self.last
        return sorted(window for window in found if self.began <= window <= last)

    def answers(self, windows: list[int]) -> dict[str, object]:
        """Return the answers that are not recorded: arms and ages, None where there is none."""
        kept: dict[str, object] = {}
        for arm in self.plan.survey.arms:
            drawn = state.read_file(str(self.home), state.arm_name(arm.name, arm.options))
            kept[arm.name] = None if drawn is None else drawn.decode()
        for one in self.plan.survey.retention:
            age = self.now - self.began
            if isinstance(one, Retention):
                kept[one.name] = str(age) if age <= one.periods else None
            else:
                kept[one.name] = [
                    str(window - self.began) for window in windows if window > self.began
                ]
        return kept

    def claim(self, number: int) -> bool:
        """Store that a report is being made; False if it, or a later one, was made before."""
        name = state.began_name(self.plan.survey.name).replace("began", "made")
        made, _, plan_id = (state.read_file(str(self.home), name) or b"-1 ").partition(b" ")
        if number < int(made) or (number == int(made) and plan_id.decode() != self.plan.id):
            return False
        state.store_file(str(self.home), name, f"{number} {self.plan.id}".encode(), durable=True)
        return True
