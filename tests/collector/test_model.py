"""The store against a model in plain Python, through any sequence of operations.

The model knows which reports were counted, in which windows, and how many each crowd took. Faults
come before the commit (nothing has happened) and after it (everything has, but the caller is told
otherwise). After every step what the store shows, and what its file holds, is what the model says.
`SHOAL_SEQUENCES` asks for more sequences than the default.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shoal.collector import problems
from shoal.collector import store as store_module
from shoal.collector.database import StorageError, transaction
from shoal.collector.life import STATES, State
from shoal.collector.problems import Problem
from shoal.collector.store import Epoch, Store
from shoal.plans import Plan
from shoal.reports import Batch
from shoal.tallying import Tally
from tests.collector.store_help import (
    DAY,
    NOON,
    Clock,
    chosen,
    make_plan,
    released,
    summed,
    tally_of,
    together,
    upload,
)

DEADLINE = 20
WEEK = 7 * DAY
ENDLESS = make_plan(crowd=7)
WEEKLY = make_plan(crowd=5, window=WEEK, honest_fraction="0.6", cohorts=3)
BY_PLAN = {plan.id: plan for plan in (ENDLESS, WEEKLY)}


class Fault(Exception):  # noqa: N818  it is a fault
    """Stands for whatever went wrong."""


@dataclass
class Crowd:
    """A crowd as the model knows it."""

    state: str
    opened: int
    reports: int = 0
    tenths: int = 0


@dataclass
class Modelled:
    """A plan as the model knows it."""

    plan: Plan
    state: State = "draft"
    oldest_window: int = 0
    crowds: list[Crowd] = field(default_factory=list)
    known: dict[int, set[bytes]] = field(default_factory=dict)
    counted: list[Batch] = field(default_factory=list)

    @property
    def open(self) -> Crowd:
        return self.crowds[-1]

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
        first = max(self.window(now) - 1, self.oldest_window)
        last = self.window(now) + (1 if self.plan.window else 0)
        windows = batch.windows.tolist()
        if min(windows) < first:
            return problems.WINDOW_EXPIRED
        return problems.WINDOW_NOT_OPEN if max(windows) > last else None

    def count(self, batch: Batch, now: float) -> None:
        for place in range(len(batch)):
            window, name = int(batch.windows[place]), batch.ids[place].tobytes()
            known = self.known.setdefault(window, set())
            if name in known:
                continue
            known.add(name)
            self.counted.append(chosen(batch, [place]))
            self.open.reports += 1
            if self.open.reports == self.plan.reports_needed:
                self.open.state, self.open.tenths = "sealed", 10
                self.crowds.append(Crowd("open", int(now // DAY)))

    def give_up(self) -> None:
        crowd = self.open
        crowd.state, crowd.tenths = "given up", crowd.reports * 10 // self.plan.reports_needed

    def shown(self) -> list[Epoch]:
        needed = self.plan.reports_needed
        return [
            Epoch(
                number,
                crowd.state,
                needed if crowd.state == "sealed" else None,
                crowd.reports * 10 // needed if crowd.state == "open" else crowd.tenths,
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
        patch.setattr(store_module, "transaction", failing)
        yield


plans = st.sampled_from([ENDLESS, WEEKLY])
faults = st.sampled_from(["none", "none", "none", "before the commit", "after the commit"])


class Life(RuleBasedStateMachine):
    """What happens to a collector's store in its life."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.clock = Clock(NOON)
        self.made: list[Batch] = []
        self.releases: dict[tuple[str, int], bytes] = {}
        self.model = {plan.id: Modelled(plan) for plan in (ENDLESS, WEEKLY)}
        self.store: Store

    def _open(self) -> None:
        self.store = Store(self.folder, clock=self.clock, deadline_days=DEADLINE)
        self.store.database.execute("PRAGMA synchronous = OFF")  # no power is cut here

    @initialize()
    def begin(self) -> None:
        self._open()
        for plan in (ENDLESS, WEEKLY):
            assert self.store.add_plan(plan)
            self._move(plan, "published", "none")

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.folder)

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
        batch = upload(plan, count, seed=len(self.made), window=window)
        self.made.append(batch)
        self._accept([batch] * times, fault)

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
            self.made.append(upload(plan, count, len(self.made), int(old.windows[0])))
            parts.append(self.made[-1])
        whole = together(*parts)
        order = np.random.default_rng(len(self.made)).permutation(len(whole))
        self._accept([chosen(whole, order.tolist())], fault)

    @rule(plan=plans, fault=faults)
    def fill(self, plan: Plan, fault: str) -> None:
        """Exactly the reports that seal the crowd."""
        model = self.model[plan.id]
        missing = plan.reports_needed - (model.open.reports if model.state == "published" else 0)
        batch = upload(plan, missing, len(self.made), model.window(self.clock.now))
        self.made.append(batch)
        self._accept([batch], fault)

    @rule(plan=plans, fault=faults)
    def pause(self, plan: Plan, fault: str) -> None:
        self._move(plan, "paused", fault)

    @rule(plan=plans, fault=faults)
    def resume(self, plan: Plan, fault: str) -> None:
        self._move(plan, "published", fault)

    @precondition(lambda self: len(self.made) > 8)
    @rule(plan=plans, fault=faults)
    def close_plan(self, plan: Plan, fault: str) -> None:
        self._move(plan, "closed", fault)

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
                    self._sweep(model)

    def _sweep(self, model: Modelled) -> None:
        oldest = model.window(self.clock.now) - 1
        if oldest > model.oldest_window:
            model.oldest_window = oldest
            model.known = {w: ids for w, ids in model.known.items() if w >= oldest}
        today = int(self.clock.now // DAY)
        if today >= model.open.opened + DEADLINE:
            model.give_up()
            model.crowds.append(Crowd("open", today))

    def _accept(self, batches: list[Batch], fault: str) -> None:
        wanted = [self.model[b.plan_id].objection(b, self.clock.now) for b in batches]
        answers: list[Problem | None] = []
        happened = self._happens(fault, lambda: answers.extend(self.store.accept(batches)))
        if fault == "none":
            assert answers == wanted
        if happened:
            for batch, problem in zip(batches, wanted, strict=True):
                if problem is None:
                    self.model[batch.plan_id].count(batch, self.clock.now)

    def _move(self, plan: Plan, wanted: State, fault: str) -> None:
        model = self.model[plan.id]
        allowed = wanted in STATES[model.state]
        moved: list[bool] = []
        happened = self._happens(
            fault, lambda: moved.append(self.store.move(plan.id, wanted, b"{}"))
        )
        if fault == "none":
            assert moved == [allowed]
        if not (happened and allowed):
            return
        if model.state == "draft":
            model.crowds.append(Crowd("open", int(self.clock.now // DAY)))
        if wanted == "closed":
            model.give_up()
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
            assert self.store.epochs(plan_id) == model.shown()
            is_open = model.state in ("published", "paused")
            tenths = model.open.reports * 10 // model.plan.reports_needed if is_open else 0
            assert self.store.progress(plan_id) == tenths

    @invariant()
    def holds_what_the_model_says(self) -> None:
        database = self.store.database
        for plan_id, model in self.model.items():
            rows = database.execute(
                "SELECT reports FROM epochs WHERE plan = ? AND state = 'open'", (plan_id,)
            ).fetchall()
            is_open = model.state in ("published", "paused")
            assert rows == ([(model.open.reports,)] if is_open else [])
            windows = database.execute(
                "SELECT DISTINCT window FROM seen WHERE plan = ?", (plan_id,)
            )
            assert {window for (window,) in windows} == set(model.known)

    @invariant()
    def releases_stay_and_add_up(self) -> None:
        """Whole crowds, the same bytes for ever; and no report is in them that did not come."""
        for plan_id, model in self.model.items():
            tallies: list[Tally] = []
            for number, crowd in enumerate(model.crowds, 1):
                release = self.store.release(plan_id, number)
                assert (release is not None) == (crowd.state == "sealed")
                if release is not None:
                    assert self.releases.setdefault((plan_id, number), release) == release
                    found = self.store.tally(plan_id, number)
                    assert found is not None
                    tallies.append(found[1])
            if model.state == "destroyed" or not model.counted:
                continue
            assert all(one.reports == model.plan.reports_needed for one in tallies)
            unreleased = any(one.state != "sealed" and one.reports for one in model.crowds)
            total = tally_of(model.plan, *model.counted)
            if not tallies:
                continue
            shown = summed(tallies)
            if not unreleased:
                assert shown == total
            assert (shown.by_bit <= total.by_bit).all()
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

    def test_at_each_statement(self, tmp_path: Path):
        store = Store(tmp_path, clock=Clock())
        store.database.execute("PRAGMA synchronous = OFF")
        for plan in (ENDLESS, WEEKLY):
            store.add_plan(plan)
            store.move(plan.id, "published", b"{}")
        window = {ENDLESS.id: 0, WEEKLY.id: int(NOON // WEEK)}
        made: list[Batch] = []
        database, statement, failed = store.database, 0, True
        while failed:
            statement += 1
            batches = [
                upload(plan, 8 + statement % 5, 2 * statement + k, window[plan.id])
                for k, plan in enumerate((ENDLESS, WEEKLY))
            ]
            store._open.clear()
            store._database = Breaking(database, statement)  # type: ignore[assignment]
            try:
                store.accept(batches)
                failed = False
            except StorageError:
                failed = True
            store._database = database
            store._open.clear()
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


class Breaking:
    """A connection whose n-th statement from now fails."""

    def __init__(self, database: sqlite3.Connection, statement: int) -> None:
        self._real, self._left = database, statement

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)

    def _step(self, sql: str) -> None:
        if sql == "ROLLBACK":
            return
        self._left -= 1
        if self._left == 0:
            raise sqlite3.OperationalError("disk I/O error")

    def execute(self, sql: str, *args: object) -> object:
        self._step(sql)
        return self._real.execute(sql, *args)  # type: ignore[arg-type]

    def executemany(self, sql: str, *args: object) -> object:
        self._step(sql)
        return self._real.executemany(sql, *args)  # type: ignore[arg-type]
