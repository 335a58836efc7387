"""A clock that does not jump: a wrong one would close windows and give up crowds, for good.

Windows pass by the clock, and what has passed is destroyed. So the wall clock is held against how
long the machine has been running, which nobody sets. As long as both agree, the wall clock counts.
Where they part by more than a step, time goes on from where they agreed, nothing is destroyed
early, and somebody has to say that the wall clock is right.

A process that starts again asks the same of the last time that the data know. If the machine has
been restarted meanwhile, it cannot tell how long it was off: a wall clock that is behind, or ahead
by more than the longest outage, is not believed.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["GuardedClock", "Moment", "read_moment", "write_moment"]

STEP = 600.0
"""Seconds by which the wall clock may be corrected without a question."""
LONGEST_OUTAGE = 72 * 3600.0
"""Seconds that a machine may have been off without a question."""


@dataclass(frozen=True)
class Moment:
    """A time that was believed, and how long the machine had been running then, since a boot."""

    seconds: float
    uptime: float
    boot: str


class GuardedClock:
    """Seconds since 1970, without jumps.

    Parameters
    ----------
    wall
        The clock that people set.
    uptime
        Seconds for which the machine has been running, sleep included.
    boot
        Tells one start of the machine from another; empty where the system does not.

    Examples
    --------
    >>> wall, running = [1_000_000.0], [50.0]
    >>> clock = GuardedClock(wall=lambda: wall[0], uptime=lambda: running[0], boot=lambda: "b")
    >>> wall[0] += 864_000.0
    >>> clock(), clock.is_held
    (1000000.0, True)
    >>> clock.accept()
    >>> clock(), clock.is_held
    (1864000.0, False)
    """

    def __init__(
        self,
        *,
        wall: Callable[[], float] = time.time,
        uptime: Callable[[], float] | None = None,
        boot: Callable[[], str] | None = None,
    ) -> None:
        self._wall, self._uptime = wall, uptime or _uptime
        self._boot = (boot or _boot)()
        self._anchor = self._now()
        self._must_be_accepted = False

    def __call__(self) -> float:
        """Return the time that is believed."""
        return self._steady() if self.is_held else self._wall()

    def wall(self) -> float:
        """Return the time that the wall clock says."""
        return self._wall()

    @property
    def is_held(self) -> bool:
        """Whether the wall clock is not believed."""
        return self._must_be_accepted or abs(self._wall() - self._steady()) > STEP

    @property
    def moment(self) -> Moment:
        """What to go on from after a restart."""
        return Moment(self(), self._uptime(), self._boot)

    def resume(self, last: Moment) -> None:
        """Go on from the last time that the data know."""
        now = self._now()
        same_boot = bool(last.boot) and last.boot == now.boot and last.uptime <= now.uptime
        if same_boot:
            self._anchor = last
        elif not last.seconds - STEP <= now.seconds <= last.seconds + LONGEST_OUTAGE:
            self._anchor = Moment(last.seconds, now.uptime, now.boot)
            # How far it is off is not known here: if it comes near, that is by chance.
            self._must_be_accepted = True

    def accept(self) -> None:
        """Believe the wall clock as it is now."""
        self._anchor, self._must_be_accepted = self._now(), False

    def _now(self) -> Moment:
        return Moment(self._wall(), self._uptime(), self._boot)

    def _steady(self) -> float:
        return self._anchor.seconds + self._uptime() - self._anchor.uptime


def _uptime() -> float:
    # A machine that sleeps or is suspended goes on ageing by this clock, where there is one.
    kind = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if kind is None else time.clock_gettime(kind)


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


def read_moment(database: sqlite3.Connection) -> Moment | None:
    """Return the last time that the data know, if they know one."""
    facts = dict(
        database.execute("SELECT name, value FROM facts WHERE name IN ('time', 'uptime', 'boot')")
    )
    if len(facts) < 3:
        return None
    return Moment(float(facts["time"]), float(facts["uptime"]), str(facts["boot"]))


def write_moment(database: sqlite3.Connection, moment: Moment) -> None:
    """Keep a time in the data, in a transaction; to the minute, which is all that is needed."""
    rest = moment.seconds % 60
    database.executemany(
        "INSERT OR REPLACE INTO facts VALUES (?, ?)",
        [
            ("time", int(moment.seconds - rest)),
            ("uptime", int(moment.uptime - rest)),
            ("boot", moment.boot),
        ],
    )
