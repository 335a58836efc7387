"""A clock that does not jump: a wrong one would close windows and discard crowds for good.

Windows end by the clock, and the data of a window that has ended are destroyed. So the wall clock
is compared with the machine's uptime, which cannot be set. If they differ by more than a step, time
continues from the last agreement until an operator confirms that the wall clock is right.

A process that restarts compares the wall clock with the time stored in the data. After a reboot the
length of the outage is unknown: a wall clock behind the stored time, or ahead of it by more than
the longest outage, is not trusted. And since a machine may show a wrong time until it has
synchronized, nothing is destroyed for a quarter of an hour.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from shoal.server.storage.database import SqlConnection, write_fact

STEP = 600.0
"""Seconds by which the wall clock may be corrected without a question."""
LONGEST_OUTAGE = 72 * 3600.0
"""Seconds that a machine may have been off without a question."""
SETTLING = 900.0
"""Seconds that a clock gets after a boot to be set right, before anything is destroyed."""


@dataclass(frozen=True)
class Moment:
    """The state of a clock: the last trusted time, when the machine booted by it, and the boot."""

    seconds: float
    origin: float
    boot: str


class GuardedClock:
    """Seconds since 1970, without jumps.

    `wall` is the clock that people set, `uptime` the seconds since the machine booted, sleep
    included, and `boot` the id of this boot, empty where the system has none.

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
        self._origin = self._wall() - self._uptime()
        self._must_be_accepted = False
        self._settles_at = self._uptime()

    def __call__(self) -> float:
        return self._read()[0]

    @property
    def is_held(self) -> bool:
        return self._read()[1]

    def _read(self) -> tuple[float, bool]:
        """Return the trusted time, and whether it differs from the wall clock."""
        wall, uptime = self._wall(), self._uptime()  # once: the clock may jump in between
        if self._must_be_accepted:
            return self._origin + uptime, True
        if uptime < self._settles_at:  # whatever it shows, until it has been set
            self._origin = wall - uptime
        steady = self._origin + uptime
        is_held = abs(wall - steady) > STEP
        return (steady if is_held else wall), is_held

    @property
    def is_settled(self) -> bool:
        """Whether expired data may be destroyed, because the clock was set since the boot."""
        return self._uptime() >= self._settles_at

    def wall(self) -> float:
        return self._wall()

    @property
    def moment(self) -> Moment:
        return Moment(self(), self._origin, self._boot)

    def resume(self, last: Moment) -> None:
        if last.boot and last.boot == self._boot:
            self._origin = last.origin  # kept, so that small corrections do not add up
            return
        wall, uptime = self._wall(), self._uptime()
        if last.seconds - STEP <= wall <= last.seconds + LONGEST_OUTAGE:
            self._settles_at = uptime + SETTLING
        else:
            self._origin, self._must_be_accepted = last.seconds - uptime, True

    def accept(self, *, settling: float = 0.0) -> None:
        """Accept the wall clock; suspend expiry for `settling` seconds."""
        self._origin = self._wall() - self._uptime()
        self._must_be_accepted, self._settles_at = False, self._uptime() + settling


def _uptime() -> float:
    # A machine that sleeps or is suspended goes on ageing by this clock, where there is one.
    kind = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if kind is None else time.clock_gettime(kind)


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


def read_moment(database: SqlConnection) -> Moment | None:
    facts = dict(
        database.execute("SELECT name, value FROM facts WHERE name IN ('time', 'origin', 'boot')")
    )
    if len(facts) < 3:
        return None
    return Moment(float(facts["time"]), float(facts["origin"]), str(facts["boot"]))


def write_moment(database: SqlConnection, moment: Moment) -> None:
    """Keep a moment in the data, in a transaction; to the minute, which is all that is needed."""
    write_fact(database, "time", int(moment.seconds // 60 * 60))
    write_fact(database, "origin", moment.origin)
    write_fact(database, "boot", moment.boot)
