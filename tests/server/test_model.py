"""The store against a model in plain Python, through any sequence of operations.

The model knows which reports were counted in which window, and how many each crowd took. Reports
carry a mark of their window in three bits, so a release that mixes windows shows it. Faults come
before the commit (nothing has happened) and after it (everything has, but the caller is told
otherwise). After every step what the store shows, and what its file holds, is what the model says.
`SHOAL_SEQUENCES` asks for more sequences than the default.
"""

from __future__ import annotations

import itertools
import os
import shutil
import sqlite3
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shoal.analysis.count_table import unpack
from shoal.analysis.crowds import Crowd as TalliedCrowd
from shoal.analysis.report_files import Batch
from shoal.analysis.tally import Tally
from shoal.device.arrays.randomize import pack
from shoal.protocol.plan import Plan
from shoal.protocol.survey import Flags
from shoal.server.core import problems
from shoal.server.core.problems import Problem
from shoal.server.storage.database import StorageError, transaction
from shoal.server.storage.encryption import CROWD_KEY_FILE
from shoal.server.storage.records import STATES, CrowdRecord, Reason, State
from shoal.server.storage.store import Store
from tests.server.store_help import (
    DAY,
    NOON,
    Clock,
    chosen,
    make_plan,
    on_the_disk,
    released,
    stored_tally,
    summed,
    tally_of,
    together,
    upload,
)

pytestmark = pytest.mark.slow

DEADLINE = 10
WEEK = 7 * DAY
ENDLESS = make_plan(crowd=7)
MARKS = 3
WEEKLY = make_plan(
    Flags("f", tuple("abcdefgh")), crowd=5, window=WEEK, honest_fraction="0.6", cohorts=3
)
BY_PLAN = {plan.id: plan for plan in (ENDLESS, WEEKLY)}


def mark(window: int) -> list[int]:
    """The lowest bits of a window's number."""
    return [window >> place & 1 for place in range(MARKS)]


def report(plan: Plan, count: int, seed: int, window: int) -> Batch:
    """Make an upload whose reports carry the mark of their window, if the plan has windows."""
    batch = upload(plan, count, seed, window)
    if plan.window is not None:
        bits = unpack(batch.rows, plan.bits)
        bits[:, :MARKS] = mark(window)
        batch.rows[:] = pack(bits)
    return batch


class Fault(Exception):  # noqa: N818  it is a fault
    """Stands for whatever went wrong."""


@dataclass
class Crowd:
    """A crowd as the model knows it."""

    window: int
    opened: int
    state: str = "open"
    reports: int = 0
    progress: int = 0
    reason: Reason | None = None


@dataclass
class Modelled:
    """A plan as the model knows it."""

    plan: Plan
    state: State = "draft"
    oldest_window: int = 0
    crowds: list[Crowd] = field(default_factory=list)
    known: dict[int, set[bytes]] = field(default_factory=dict)
    counted: dict[int, list[Batch]] = field(default_factory=dict)

    @property
    def open(self) -> dict[int, Crowd]:
        return {crowd.window: crowd for crowd in self.crowds if crowd.state == "open"}

    def progress(self, crowd: Crowd) -> int:
        return crowd.reports * 10 // self.plan.reports_needed * 10

    def window(self, now: float) -> int:
        return 0 if self.plan.window is None else int(now // self.plan.window)

    def objection(self, batch: Batch, now: float) -> Problem | None:
        answers = {
            "draft": problems.UNKNOWN_PLAN,
            "paused": problems.PAUSED,
            "closed": problems.PLAN_CLOSED,
            "destroyed": problems.PLAN_CLOSED,
        }
        if self.state != "published":
            return answers[self.state]
        first, last = self.taken(now)
        windows = batch.windows.tolist()
        if self.plan.window is None and max(windows):
            return problems.MALFORMED
        if min(windows) < first:
            return problems.WINDOW_EXPIRED
        return problems.WINDOW_NOT_OPEN if max(windows) > last else None

    def taken(self, now: float) -> tuple[int, int]:
        """The first and the last window whose reports are taken."""
        last = self.window(now) + (1 if self.plan.window else 0)
        return max(self.window(now) - 1, self.oldest_window), last

    def open_crowds(self, now: float) -> None:
        first, last = self.taken(now)
        for window in range(first, last + 1):
            if window not in self.open:
                self.open_crowd(window, now)

    def open_crowd(self, window: int, now: float) -> None:
        begins = window * (self.plan.window or 0)
        self.crowds.append(Crowd(window, int(max(now, begins) // DAY)))

    def count(self, batches: list[Batch], now: float) -> None:
        """Count what came in one commit, window by window, and seal what is whole after it.

        The next crowd is opened when a report needs it, or else with the sealing.
        """
        self.open_crowds(now)
        whole = together(*batches)
        for place in np.argsort(whole.windows, kind="stable").tolist():
            window, name = int(whole.windows[place]), whole.ids[place].tobytes()
            known = self.known.setdefault(window, set())
            if name in known:
                continue
            known.add(name)
            self.counted.setdefault(window, []).append(chosen(whole, [place]))
            if self.seal(self.open[window]):
                self.open_crowd(window, now)
            self.open[window].reports += 1
        for window in sorted(self.open):
            if self.seal(self.open[window]):
                self.open_crowd(window, now)

    def seal(self, crowd: Crowd) -> bool:
        if crowd.reports < self.plan.reports_needed:
            return False
        crowd.state, crowd.progress = "released", 100
        return True

    def discard_crowds(self, crowd: Crowd, reason: Reason) -> None:
        crowd.state, crowd.progress, crowd.reason = "discarded", self.progress(crowd), reason

    def sweep(self, now: float) -> None:
        oldest = self.window(now) - 1
        if oldest > self.oldest_window:
            self.oldest_window = oldest
            self.known = {w: ids for w, ids in self.known.items() if w >= oldest}
        for window, crowd in self.open.items():
            if window < self.oldest_window or int(now // DAY) >= crowd.opened + DEADLINE:
                self.discard_crowds(crowd, "window" if window < self.oldest_window else "deadline")
        self.open_crowds(now)

    def shown(self) -> list[CrowdRecord]:
        needed = self.plan.reports_needed
        return [
            CrowdRecord(
                number,
                crowd.window,
                crowd.state,
                needed if crowd.state == "released" else None,
                self.progress(crowd) if crowd.state == "open" else crowd.progress,
                crowd.reason,
                opened_day=crowd.opened if crowd.state == "open" else None,
            )
            for number, crowd in enumerate(self.crowds, 1)
        ]


@contextmanager
def fault_at(when: str) -> Iterator[None]:
    """Let the next transaction fail before or after its commit."""

    @contextmanager
    def failing(connection: sqlite3.Connection) -> Iterator[None]:
        with transaction(connection):
            yield
            if when == "before the commit":
                raise Fault
        if when == "after the commit":
            raise Fault

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shoal.server.storage.database.transaction", failing)
        yield


plans = st.sampled_from([ENDLESS, WEEKLY])
faults = st.sampled_from(["none", "none", "none", "before the commit", "after the commit"])


class Life(RuleBasedStateMachine):
    """What happens to a collector's store in its life."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.patch = pytest.MonkeyPatch()
        self.clock = Clock(NOON)
        self.made: list[Batch] = []
        self.releases: dict[tuple[str, int], bytes] = {}
        self.model = {plan.id: Modelled(plan) for plan in (ENDLESS, WEEKLY)}
        self.store: Store

    def _open(self) -> None:
        self.store = Store(self.folder, clock=self.clock, deadline_days=DEADLINE)

    @initialize()
    def begin(self) -> None:
        self._open()
        for plan in (ENDLESS, WEEKLY):
            assert self.store.add_plan(plan)
            self._move(plan, "published", "none")

    def teardown(self) -> None:
        try:
            if sys.exc_info()[0] is None:  # else the sequence has failed already
                self._end()
        finally:
            self.store.close()
            shutil.rmtree(self.folder)
            self.patch.undo()

    def _end(self) -> None:
        """Every life ends in the same way, since chance closes plans too seldom."""
        steps: tuple[State, ...] = ("closed", "destroyed")
        for wanted in steps:
            for plan in (ENDLESS, WEEKLY):
                self._move(plan, wanted, "none")
            self.shows_what_the_model_says()
            self.holds_what_the_model_says()
            self.releases_stay_and_add_up()
            self.every_release_is_of_one_window()

    # What is done

    @rule(
        plan=plans,
        count=st.integers(1, 20),
        ahead=st.integers(-2, 2),
        times=st.integers(1, 2),
        fault=faults,
    )
    def upload(self, plan: Plan, count: int, ahead: int, times: int, fault: str) -> None:
        """New reports, mostly of windows that are taken, at times twice in one commit."""
        window = max(self.model[plan.id].window(self.clock.now) + ahead, 0)
        window = window if plan.window else max(ahead - 1, 0)
        batch = report(plan, count, len(self.made), window)
        self.made.append(batch)
        self._accept([batch] * times, fault)

    @rule(
        counts=st.lists(st.integers(1, 12), min_size=2, max_size=3),
        ahead=st.integers(-2, 0),
        fault=faults,
    )
    def upload_of_windows(self, counts: list[int], ahead: int, fault: str) -> None:
        """One upload with reports of two or three windows in a row, in no order."""
        first = self.model[WEEKLY.id].window(self.clock.now) + ahead
        parts = [
            report(WEEKLY, count, 100_000 + 10 * len(self.made) + place, first + place)
            for place, count in enumerate(counts)
        ]
        whole = together(*parts)
        order = np.random.default_rng(len(self.made)).permutation(len(whole))
        self.made.append(chosen(whole, order.tolist()))
        self._accept([self.made[-1]], fault)

    @precondition(lambda self: self.made)
    @rule(data=st.data(), fault=faults)
    def replay(self, data: st.DataObject, fault: str) -> None:
        """Several uploads of before in one commit, some twice."""
        number = st.integers(0, len(self.made) - 1)
        self._accept(
            [self.made[k] for k in data.draw(st.lists(number, min_size=1, max_size=4))], fault
        )

    @precondition(lambda self: self.made)
    @rule(data=st.data(), count=st.integers(0, 6), fault=faults)
    def replay_in_part(self, data: st.DataObject, count: int, fault: str) -> None:
        """Some reports of before, again, shuffled among new ones."""
        old = self.made[data.draw(st.integers(0, len(self.made) - 1))]
        places = data.draw(st.lists(st.integers(0, len(old) - 1), min_size=1, max_size=8))
        parts = [chosen(old, places)]
        if count:
            plan = BY_PLAN[old.plan_id]
            self.made.append(report(plan, count, len(self.made), int(old.windows[0])))
            parts.append(self.made[-1])
        whole = together(*parts)
        order = np.random.default_rng(len(self.made)).permutation(len(whole))
        self._accept([chosen(whole, order.tolist())], fault)

    @rule(plan=plans, ahead=st.integers(-1, 1), fault=faults)
    def fill(self, plan: Plan, ahead: int, fault: str) -> None:
        """Exactly the reports that seal the crowd of a window."""
        model = self.model[plan.id]
        window = model.window(self.clock.now) + (ahead if plan.window else 0)
        crowd = model.open.get(window)
        missing = plan.reports_needed - (0 if crowd is None else crowd.reports)
        batch = report(plan, missing, len(self.made), window)
        self.made.append(batch)
        self._accept([batch], fault)

    @rule(plan=plans, fault=faults)
    def pause(self, plan: Plan, fault: str) -> None:
        self._move(plan, "paused", fault)

    @rule(plan=plans, fault=faults)
    def resume(self, plan: Plan, fault: str) -> None:
        self._move(plan, "published", fault)

    @precondition(lambda self: len(self.made) > 4)
    @rule(plan=plans, fault=faults)
    def close_plan(self, plan: Plan, fault: str) -> None:
        self._move(plan, "closed", fault)

    @precondition(lambda self: len(self.made) > 4)
    @rule(plan=plans, fault=faults)
    def destroy(self, plan: Plan, fault: str) -> None:
        self._move(plan, "destroyed", fault)

    @rule()
    def restart(self) -> None:
        self.store.close()
        self._open()

    @rule()
    def kill(self) -> None:
        """Leave the files as they are, with the log, and start from a copy of them."""
        copied = Path(tempfile.mkdtemp())
        for path in self.folder.iterdir():
            if not path.name.endswith("-shm"):
                shutil.copy(path, copied)
        self.store.close()
        shutil.rmtree(self.folder)
        self.folder = copied
        self._open()

    @rule(days=st.sampled_from([0.1, 1, 6, 7, 8, 14, 15, 21, 40]))
    def time_passes(self, days: float) -> None:
        self.clock.now += days * DAY

    @rule(days=st.integers(2, 12))
    def days_pass_with_sweeps(self, days: int) -> None:
        """Crowds of several windows come to their deadline one after the other."""
        for _ in range(days):
            self.clock.now += DAY
            self.sweep("none")
            self.shows_what_the_model_says()

    @rule(days=st.sampled_from([0.1, 1, 7, 8, 15, 30]))
    def clock_goes_back(self, days: float) -> None:
        self.clock.now -= days * DAY

    @precondition(lambda self: self.made)
    @rule(weeks=st.integers(1, 3))
    def forget_and_go_back(self, weeks: int) -> None:
        """The clock is wrong for a while, long enough that windows are forgotten."""
        self.clock.now += weeks * WEEK
        self.sweep("none")
        self.clock.now -= weeks * WEEK
        self._accept(self.made[-3:], "none")

    @rule(fault=faults)
    def sweep(self, fault: str) -> None:
        if self._happens(fault, self.store.sweep):
            for model in self.model.values():
                if model.state in ("published", "paused"):
                    model.sweep(self.clock.now)

    def _accept(self, batches: list[Batch], fault: str) -> None:
        wanted = [self.model[b.plan_id].objection(b, self.clock.now) for b in batches]
        answers: list[Problem | None] = []
        happened = self._happens(fault, lambda: answers.extend(self.store.accept(batches)))
        if fault == "none":
            assert answers == wanted
        if happened:
            taken = [b for b, problem in zip(batches, wanted, strict=True) if problem is None]
            for plan_id, model in self.model.items():
                if mine := [batch for batch in taken if batch.plan_id == plan_id]:
                    model.count(mine, self.clock.now)

    def _move(self, plan: Plan, wanted: State, fault: str) -> None:
        model = self.model[plan.id]
        allowed = wanted in STATES[model.state]
        fault = fault if allowed else "none"  # nothing is written then
        moved: list[bool] = []
        happened = self._happens(
            fault, lambda: moved.append(self.store.move(plan.id, wanted, b"{}"))
        )
        if fault == "none":
            assert moved == [allowed]
        if not (happened and allowed):
            return
        if model.state == "draft":
            model.open_crowds(self.clock.now)
        if wanted == "closed":
            for crowd in model.open.values():
                model.discard_crowds(crowd, "closed")
            model.known = {}
        if wanted == "destroyed":
            for crowd in model.crowds:
                crowd.state = "destroyed"
            self.releases = {at: one for at, one in self.releases.items() if at[0] != plan.id}
        model.state = wanted

    def _happens(self, fault: str, action) -> bool:
        """Do something that may fail; tell whether it happened all the same."""
        with fault_at(fault):
            if fault == "none":
                action()
                return True
            with pytest.raises(Fault):
                action()
        return fault == "after the commit"

    # What must hold

    @invariant()
    def shows_what_the_model_says(self) -> None:
        for plan_id, model in self.model.items():
            kept = self.store.plan(plan_id)
            assert kept is not None
            assert kept.state == model.state
            assert self.store.crowds(plan_id) == model.shown()
            crowd = model.open.get(model.window(self.clock.now))
            progress = 0 if crowd is None else model.progress(crowd)
            assert self.store.progress(plan_id) == progress

    @invariant()
    def holds_what_the_model_says(self) -> None:
        database = self.store.database
        for plan_id, model in self.model.items():
            rows = database.execute(
                "SELECT number, window, reports FROM crowds"
                " WHERE plan = ? AND state = 'open' ORDER BY number",
                (plan_id,),
            ).fetchall()
            opened = {
                number: crowd
                for number, crowd in enumerate(model.crowds, 1)
                if crowd.state == "open"
            }
            assert rows == [(number, crowd.window, 0) for number, crowd in opened.items()]
            assert bool(opened) == (model.state in ("published", "paused"))
            found = on_the_disk(self.store, model.plan).reports()
            assert found == {crowd.window: crowd.reports for crowd in opened.values()}
            for query, wanted in (
                ("SELECT DISTINCT number FROM counts WHERE plan = ?", set(opened)),
                ("SELECT DISTINCT window FROM seen WHERE plan = ?", set(model.open)),
                ("SELECT number FROM wrapped_keys WHERE plan = ? AND kind = 'crowd'", set(opened)),
                (
                    "SELECT number FROM wrapped_keys WHERE plan = ? AND kind = 'window'",
                    set(model.open),
                ),
            ):
                assert {number for (number,) in database.execute(query, (plan_id,))} == wanted
            keys = (self.folder / CROWD_KEY_FILE).read_text().split()
            assert sum(len(key) == 64 for key in keys) == 1, "no old key is left"

    @invariant()
    def releases_stay_and_add_up(self) -> None:
        """Whole crowds, the same bytes for ever; and no report is in them that did not come."""
        for plan_id, model in self.model.items():
            tallies: list[Tally] = []
            for number, crowd in enumerate(model.crowds, 1):
                release = self.store.release(plan_id, number)
                assert (release is not None) == (crowd.state == "released")
                if release is not None:
                    assert self.releases.setdefault((plan_id, number), release) == release
                    found = stored_tally(self.store, plan_id, number)
                    assert found is not None
                    tallies.append(found[1])
            if model.state == "destroyed" or not model.counted:
                continue
            assert all(one.reports == model.plan.reports_needed for one in tallies)
            unreleased = any(one.state != "released" and one.reports for one in model.crowds)
            total = tally_of(model.plan, *itertools.chain(*model.counted.values()))
            if not tallies:
                continue
            check_part(summed(tallies), total, whole=not unreleased)

    @invariant()
    def every_release_is_of_one_window(self) -> None:
        """What was released of a window is of what was counted in it, and has its mark."""
        for plan_id, model in self.model.items():
            by_window: dict[int, list[Tally]] = {}
            for number, crowd in enumerate(model.crowds, 1):
                found = stored_tally(self.store, plan_id, number)
                if found is None:
                    continue
                window = None if model.plan.window is None else crowd.window
                assert found[1].crowds == (
                    TalliedCrowd(model.plan.reports_needed, str(number), window, released=True),
                )
                by_window.setdefault(crowd.window, []).append(found[1])
                if model.plan.window is not None:
                    marked = [bit * model.plan.reports_needed for bit in mark(crowd.window)]
                    assert found[1].by_bit[:MARKS].tolist() == marked
            for place, tallies in by_window.items():
                unreleased = any(
                    crowd.reports and crowd.state != "released" and crowd.window == place
                    for crowd in model.crowds
                )
                total = tally_of(model.plan, *model.counted[place])
                check_part(summed(tallies), total, whole=not unreleased)


def check_part(shown: Tally, total: Tally, *, whole: bool) -> None:
    """Check that reports are some of others, or all of them."""
    if whole:
        assert shown == total
    assert (shown.by_bit <= total.by_bit).all()
    assert shown.by_set_bits is not None
    assert total.by_set_bits is not None
    assert (shown.by_set_bits <= total.by_set_bits).all()
    assert shown.by_vector is not None
    assert total.by_vector is not None
    assert Counter(shown.by_vector) <= Counter(total.by_vector)


Life.TestCase.settings = settings(
    max_examples=int(os.environ.get("SHOAL_SEQUENCES", "40")),
    stateful_step_count=30,
    deadline=None,
    derandomize="SHOAL_SEQUENCES" not in os.environ,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestLife = Life.TestCase


class TestFaultsOfTheDatabase:
    """The same with SQLite itself failing, at each statement of a transaction in turn."""

    def test_at_each_statement(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        connect = partial(sqlite3.connect, factory=Breaking)
        monkeypatch.setattr(sqlite3, "connect", connect)
        store = Store(tmp_path, clock=Clock())
        for plan in (ENDLESS, WEEKLY):
            store.add_plan(plan)
            store.move(plan.id, "published", b"{}")
        window = {ENDLESS.id: 0, WEEKLY.id: int(NOON // WEEK)}
        made: list[Batch] = []
        connection, statement, failed = store.database.connection, 0, True
        assert isinstance(connection, Breaking)
        while failed:
            statement += 1
            batches = [
                upload(plan, 8 + statement % 5, 2 * statement + k, window[plan.id])
                for k, plan in enumerate((ENDLESS, WEEKLY))
            ]
            store._plans.forget_all()
            connection.left = statement
            try:
                store.accept(batches)
                failed = False
            except StorageError:
                failed = True
            connection.left = -1
            store._plans.forget_all()
            assert store.accept([*batches, *made[-4:]])[:2] == [None, None]
            made += batches
        assert statement > 20
        for plan in (ENDLESS, WEEKLY):
            mine = [batch for batch in made if batch.plan_id == plan.id]
            missing = -sum(map(len, mine)) % plan.reports_needed or plan.reports_needed
            mine.append(upload(plan, missing, 0, window[plan.id]))
            assert store.accept([mine[-1]]) == [None]
            assert summed(released(store, plan)) == tally_of(plan, *mine)
        store.close()


class Breaking(sqlite3.Connection):
    """A connection whose n-th statement from now fails."""

    left = -1

    def _step(self, sql: str) -> None:
        if sql == "ROLLBACK":
            return
        self.left -= 1
        if self.left == 0:
            raise sqlite3.OperationalError("disk I/O error")

    def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
        self._step(sql)
        return super().execute(sql, *args)

    def executemany(self, sql: str, *args: Any) -> sqlite3.Cursor:
        self._step(sql)
        return super().executemany(sql, *args)
