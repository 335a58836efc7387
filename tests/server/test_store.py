"""The store against counting in plain Python: every report once, every crowd whole."""

from __future__ import annotations

import sqlite3
import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, cast, get_args

import pytest

from shoal import Flags, Survey
from shoal.analysis.report_files import Batch, parse_batch
from shoal.errors import InputError, TallyError
from shoal.protocol.plan import Plan, Promise
from shoal.protocol.wire import Rows
from shoal.server.core import problems
from shoal.server.storage import windows as seen
from shoal.server.storage.database import NAME, StorageError
from shoal.server.storage.open_plan import OpenCrowd
from shoal.server.storage.records import STATES, CrowdRecord, State
from shoal.server.storage.schema import Schema
from shoal.server.storage.sqlite import SqliteDatabase, open_database
from shoal.server.storage.store import Store
from tests.server.store_help import (
    DAY,
    EVERY_PLAN,
    NOON,
    PLANS,
    Clock,
    chosen,
    content,
    counted_by_hand,
    data_bytes,
    json_of,
    make_plan,
    open_crowds,
    open_reports,
    published,
    released,
    stored_tally,
    summed,
    tally_of,
    together,
    upload,
)

FLAGS = PLANS["flags"]


@pytest.fixture(autouse=True)
def closed_at_the_end(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close every database that a test opened."""
    opened: list[sqlite3.Connection] = []

    def opening(path: Path, schema: Schema) -> sqlite3.Connection:
        opened.append(open_database(path, schema=schema))
        opened[-1].execute("PRAGMA synchronous = OFF")
        return opened[-1]

    monkeypatch.setattr("shoal.server.storage.sqlite.open_database", opening)
    yield
    for connection in opened:
        connection.close()


@pytest.fixture(params=EVERY_PLAN)
def plan(request: pytest.FixtureRequest) -> Plan:
    return PLANS[request.param]


TODAY = int(Clock().now // DAY)


class TestCounts:
    @pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
    def test_a_release_is_the_tally_of_its_reports(self, plan: Plan, tmp_path: Path):
        store = published(tmp_path, plan)
        needed = plan.reports_needed
        parts = [upload(plan, size, seed) for seed, size in enumerate((1, 7, needed - 8))]
        for part in parts:
            assert store.accept([part]) == [None]
        document = json_of(store.release(plan.id, 1))
        assert document == counted_by_hand(plan, *parts)
        assert released(store, plan) == [tally_of(plan, *parts)]
        stored = stored_tally(store, plan.id, 1)
        assert stored is not None
        with pytest.raises(TallyError, match="crowd 1 was released complete"):
            stored[1] + stored[1]

    def test_what_the_wire_brought(self, plan: Plan, tmp_path: Path):
        """Parsed batches are views into the request's bytes, with strides of their own."""
        store = published(tmp_path, plan)
        sent = upload(plan, plan.reports_needed, 5)
        assert store.accept([parse_batch(plan, sent.to_bytes())]) == [None]
        assert released(store, plan) == [tally_of(plan, sent)]


class TestSealing:
    def test_exactly_at_the_crowd(self, plan: Plan, tmp_path: Path):
        store = published(tmp_path, plan)
        needed = plan.reports_needed
        assert needed == (72 if plan.honest_fraction else 50)
        store.accept([upload(plan, needed - 1, 1)])
        assert store.crowds(plan.id) == [CrowdRecord(1, 0, "open", None, 90, opened_day=TODAY)]
        assert store.release(plan.id, 1) is None
        store.accept([upload(plan, 1, 2)])
        assert store.crowds(plan.id) == [
            CrowdRecord(1, 0, "released", needed, 100),
            CrowdRecord(2, 0, "open", None, 0, opened_day=TODAY),
        ]
        assert open_reports(store, plan) == 0

    def test_the_sealing_is_told_once_and_after_the_commit(self, tmp_path: Path):
        told: list[tuple[str, int, bool]] = []

        def sealed(plan: Plan, number: int) -> None:
            told.append((plan.id, number, store.release(plan.id, number) is not None))

        store = published(tmp_path, FLAGS, released=sealed)
        store.accept([upload(FLAGS, 120, 1)])
        store.accept([upload(FLAGS, 120, 1), upload(FLAGS, 20, 2)])
        assert told == []
        store.sweep()
        assert told == [(FLAGS.id, number, True) for number in (1, 2)]
        store.accept([upload(FLAGS, 10, 3)])
        assert [crowd.state for crowd in store.crowds(FLAGS.id)] == ["released"] * 3 + ["open"]
        assert told[2:] == [(FLAGS.id, 3, True)]
        store.sweep()
        assert len(told) == 3

    @pytest.mark.parametrize("restart", [False, True])
    def test_no_answer_waits_for_the_sealing(self, restart: bool, tmp_path: Path):
        """A commit that completes a crowd leaves it for later, and the next ones go on."""
        store = published(tmp_path, FLAGS)
        parts = [upload(FLAGS, size, seed) for seed, size in enumerate((49, 1, 1, 130))]
        states = "SELECT state FROM crowds ORDER BY number"
        for part, crowds in zip(parts, (1, 1, 2, 4), strict=True):
            store.accept([part])
            if restart:
                store.close()
                store = Store(tmp_path, clock=Clock())
            assert store.database.execute(states).fetchall() == [("open",)] * crowds
        store.sweep()
        found = [state for (state,) in store.database.execute(states)]
        assert found == ["released", "released", "released", "open"]
        assert open_crowds(store, FLAGS) == {0: 31}
        assert [one.reports for one in released(store, FLAGS)] == [50, 50, 50]
        rest = upload(FLAGS, 19, 9)
        store.accept([rest])
        assert summed(released(store, FLAGS)) == tally_of(FLAGS, *parts, rest)

    def test_every_commit_does_the_work_of_opening_a_crowd(self, tmp_path: Path):
        """An answer that takes longer would tell its sender that a crowd was complete."""
        plan = make_plan(crowd=3)
        store = published(tmp_path, plan)
        store.accept([upload(plan, 1, 0)])
        for seed in range(1, 8):
            done: set[str] = set()  # a statement with a trigger is told twice
            cast(sqlite3.Connection, store.database.connection).set_trace_callback(done.add)
            store.accept([upload(plan, 1, seed)])
            cast(sqlite3.Connection, store.database.connection).set_trace_callback(None)
            for table in ("crowds", "wrapped_keys"):
                assert sum(one.startswith(f"INSERT INTO {table} ") for one in done) == 1
        assert store.database.execute("SELECT count(*) FROM crowds").fetchone() == (3,)

    @pytest.mark.parametrize("count", [99, 100, 777])
    def test_several_crowds_in_one_upload(self, plan: Plan, count: int, tmp_path: Path):
        store = published(tmp_path, plan)
        needed = plan.reports_needed
        first = upload(plan, count, 1)
        store.accept([first])
        whole, left = divmod(count, needed)
        assert [crowd.reports for crowd in store.crowds(plan.id)] == [needed] * whole + [None]
        assert open_reports(store, plan) == left
        rest = upload(plan, needed - left, 2)
        store.accept([rest])
        assert all(one.reports == needed for one in released(store, plan))
        assert summed(released(store, plan)) == tally_of(plan, first, rest)

    def test_chance_says_which_reports_fill_the_crowd(self, tmp_path: Path):
        """A hundred of one kind before a hundred of the other: no crowd is of one kind.

        False alarm: a crowd of 100 among 200 is of one kind with probability 2 / C(200, 100) <
        1e-58.
        """
        plan = make_plan(crowd=100)
        store = published(tmp_path, plan)
        parts = [upload(plan, 100, seed) for seed in (1, 2)]
        for part, value in zip(parts, (0, 31), strict=True):
            part.rows[:] = value
        store.accept(parts)
        assert all(0 < one.by_bit[0] < 100 for one in released(store, plan))


class TestBounds:
    """Work and memory grow with the request, and nothing with what came before."""

    def test_every_report_is_looked_at_once(self, tmp_path: Path, monkeypatch):
        """However many crowds an upload fills."""
        counted = []
        add = OpenCrowd.add

        def counting(crowd: OpenCrowd, rows: Rows, *others: Any) -> None:
            counted.append(len(rows))
            add(crowd, rows, *others)

        monkeypatch.setattr(OpenCrowd, "add", counting)
        plan = make_plan(crowd=7)
        store = published(tmp_path, plan)
        one = upload(plan, 1000, 1)
        store.accept([one, chosen(one, range(300))])
        assert sum(counted) == 1300
        assert len(counted) == 1000 // 7 + 1
        assert len(store.crowds(plan.id)) == 1000 // 7 + 1

    def test_memory_is_a_small_multiple_of_the_request(self, tmp_path: Path):
        flags = Flags("f", tuple(f"option {number}" for number in range(4096)))
        plan = replace(make_plan(crowd=10**6), survey=Survey("wide", (flags,)),
                       promise=Promise("local", "5000"))  # fmt: skip
        store = published(tmp_path, plan)
        store.accept([upload(plan, 1, 1)])
        big = upload(plan, 4000, 2)
        tracemalloc.start()
        store.accept([big])
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        request = big.rows.nbytes + big.ids.nbytes
        assert peak < 5 * request + (16 << 20)
        assert peak < big.rows.nbytes * 8 * 8 / 4, "its bits as numbers would take four times that"

    def test_no_row_grows(self, tmp_path: Path):
        """A row of digests or of counts fills a page at most, however many reports came."""
        plan = make_plan(crowd=10**6)
        store = published(tmp_path, plan, PLANS["text"], PLANS["twelve bits"])
        for seed in range(3):
            store.accept([upload(plan, 20_000, seed), upload(PLANS["text"], 30, seed)])
        for query in (
            "SELECT max(length(digests)) FROM seen",
            "SELECT max(length(numbers)) FROM counts",
        ):
            assert 0 < store.database.execute(query).fetchone()[0] < 4000
        (rows,) = store.database.execute(
            "SELECT count(*) FROM seen WHERE plan = ?", (plan.id,)
        ).fetchone()
        assert 60_000 / 480 < rows < 2 * 60_000 / 480


class TestDuplicates:
    def test_in_one_upload(self, plan: Plan, tmp_path: Path):
        store = published(tmp_path, plan)
        one = upload(plan, plan.reports_needed, 1)
        half = range(len(one) // 2)
        store.accept([together(chosen(one, half), chosen(one, half), chosen(one, half[:3]))])
        assert open_reports(store, plan) == len(half)
        store.accept([one])
        assert released(store, plan) == [tally_of(plan, one)]
        assert open_reports(store, plan) == 0

    def test_through_every_form_of_memory(self, tmp_path: Path, monkeypatch):
        """Rows fill up and are added, recent digests become runs; all are still remembered."""
        sizes = {"_ROW": 5, "_FIRST_ROWS": 2, "_RECENT": 8, "_LONGEST_RUN": 16}
        for name, size in sizes.items():
            monkeypatch.setattr(seen, name, size)
        plan = make_plan(crowd=10**6)
        store = published(tmp_path, plan)
        parts = [upload(plan, 1 + seed * seed % 13, seed) for seed in range(60)]
        for number, part in enumerate(parts):
            store.accept([part, parts[number // 2]])
            if number % 7 == 6:
                store.sweep()
        total = open_reports(store, plan)
        assert total == sum(map(len, parts))
        held = store._plans.known()[plan.id]._seen[0]._digests
        assert len(held._runs) > 5
        assert max(map(len, held._runs)) <= 16
        store.accept(parts[::2])
        store.close()
        store = Store(tmp_path, clock=Clock())
        store.accept(parts)
        assert open_reports(store, plan) == total
        rows = store.database.execute("SELECT place FROM seen ORDER BY place").fetchall()
        assert rows == [(place,) for place in range(len(rows))]
        assert 5 * len(rows) > 1.1 * total

    def test_the_same_id_in_another_plan_is_another_report(self, tmp_path: Path):
        other = make_plan(crowd=60)
        store = published(tmp_path, FLAGS, other)
        one = upload(FLAGS, 10, 1)
        two = Batch(other.id, one.ids, one.windows, None, one.rows)
        store.accept([one])
        store.accept([two])
        assert [open_reports(store, plan) for plan in (FLAGS, other)] == [10, 10]

    def test_repeated_reports_leave_nothing_behind(self, tmp_path: Path):
        """However often they come, neither the data nor the memory grow."""
        store = published(tmp_path, FLAGS)
        one = upload(FLAGS, 8, 1)
        store.accept([one])
        digests = store._plans.known()[FLAGS.id]._seen[0]._digests

        def sizes() -> tuple[object, ...]:
            rows = store.database.execute("SELECT count(*), sum(length(digests)) FROM seen")
            pages = store.database.execute("PRAGMA page_count").fetchone()
            return (*rows.fetchone(), *pages, digests._count, len(digests._runs))

        before, rows = sizes(), set()
        for _ in range(100):
            store.accept([one] * 3)
            rows.add(store.database.execute("SELECT digests FROM seen").fetchone())
        assert sizes() == before
        assert len(rows) == 100, "they are written anew all the same"

    def test_digests_say_nothing_about_ids(self, tmp_path: Path):
        """The same reports leave other digests in another folder: the key is drawn anew."""
        kept = []
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            store = published(tmp_path / name, FLAGS)
            store.accept([upload(FLAGS, 8, 1)])
            store.sweep()
            kept.append(set(store._plans.known()[FLAGS.id]._seen[0]._digests._runs[0].tolist()))
        assert [len(one) for one in kept] == [8, 8]
        assert kept[0].isdisjoint(kept[1])


WEEK = 7 * DAY
WINDOWED = make_plan(window=WEEK)
NOW = NOON // WEEK


class TestWindows:
    def test_one_report_out_of_its_window_refuses_the_whole_upload(self, tmp_path: Path):
        store = published(tmp_path, WINDOWED)
        mixed = together(upload(WINDOWED, 5, 1, NOW), upload(WINDOWED, 1, 2, NOW - 2))
        good = upload(WINDOWED, 5, 3, NOW)
        assert store.accept([mixed, good]) == [problems.WINDOW_EXPIRED, None]
        assert open_reports(store, WINDOWED) == 5

    @pytest.mark.parametrize("restart", [False, True])
    def test_a_forgotten_window_stays_closed(self, restart: bool, tmp_path: Path):
        """The clock goes back after its reports were forgotten: they are not counted again."""
        clock = Clock()
        store = published(tmp_path, WINDOWED, clock=clock)
        one = upload(WINDOWED, 5, 1, NOW)
        store.accept([one])
        clock.now = NOON + 2 * WEEK
        store.sweep()
        for query in (
            "SELECT count(*) FROM seen WHERE window <= ?",
            "SELECT count(*) FROM wrapped_keys WHERE kind = 'window' AND number <= ?",
        ):
            assert store.database.execute(query, (NOW,)).fetchone() == (0,)
        clock.now = NOON
        if restart:
            store.close()
            store = Store(tmp_path, clock=clock)
        store.sweep()
        assert store.accept([one]) == [problems.WINDOW_EXPIRED]
        assert open_reports(store, WINDOWED) == 0
        assert [crowd.progress for crowd in store.crowds(WINDOWED.id) if crowd.window == NOW] == [
            10
        ]

    def test_expired_digests_and_keys_are_gone_from_the_files(self, tmp_path: Path):
        clock = Clock()
        store = published(tmp_path, WINDOWED, clock=clock)
        store.accept([upload(WINDOWED, 40, 1, NOW)])
        secrets = keys_and_digests(store)
        assert on_the_files(tmp_path, secrets) == secrets
        clock.now = NOON + 3 * WEEK
        store.sweep()
        assert not on_the_files(tmp_path, secrets)


def on_the_files(folder: Path, secrets: list[bytes]) -> list[bytes]:
    """Return those of some byte strings that are in the database or in its log."""
    content = data_bytes(folder)
    return [secret for secret in secrets if secret in content]


def of_windows(store: Store, state: str) -> list[tuple[int, int]]:
    """The windows of the crowds in a state, from this one on, and their progress."""
    found = [crowd for crowd in store.crowds(WINDOWED.id) if crowd.state == state]
    return [(crowd.window - NOW, crowd.progress) for crowd in found]


class TestCrowdsOfWindows:
    def test_the_deadline_waits_for_the_window(self, tmp_path: Path):
        """A crowd that is opened before its window begins has all its days from then on."""
        clock = Clock()
        store = published(tmp_path, WINDOWED, clock=clock, deadline_days=6)
        store.accept([upload(WINDOWED, 20, 1, NOW + 1)])
        begins = (NOW + 1) * WEEK
        for day in range(6):
            clock.now = begins + day * DAY + DAY - 1
            store.sweep()
            assert (1, 40) in of_windows(store, "open")
        clock.now = begins + 6 * DAY
        store.sweep()
        assert (1, 40) in of_windows(store, "discarded")
        assert (1, 0) in of_windows(store, "open")


def keys_and_digests(store: Store) -> list[bytes]:
    """The keys of windows and their digests, as they are written."""
    query = "SELECT wrapped FROM wrapped_keys WHERE kind = 'window'"
    found = [bytes(key) for (key,) in store.database.execute(query)]
    for (row,) in store.database.execute("SELECT digests FROM seen"):
        found += [row[start : start + 64] for start in range(0, len(row), 64)]
    assert len(found) > 20
    return found


def counts_of(store: Store) -> list[bytes]:
    """The counts of open crowds and their keys, as they are written."""
    query = "SELECT wrapped FROM wrapped_keys WHERE kind = 'crowd'"
    found = [bytes(key) for (key,) in store.database.execute(query)]
    for (block,) in store.database.execute("SELECT numbers FROM counts"):
        found += [block[start : start + 64] for start in range(0, len(block), 64)]
    assert found
    return found


def secrets_of(store: Store) -> list[bytes]:
    """What must not outlive its use: keys, digests and counts."""
    return keys_and_digests(store) + counts_of(store)


class TestDeadline:
    def test_a_crowd_that_never_fills_is_discarded_with_its_progress(self, tmp_path: Path):
        clock = Clock()
        store = published(tmp_path, FLAGS, clock=clock, deadline_days=30)
        first = upload(FLAGS, 37, 1)
        store.accept([first])
        clock.now += 29 * DAY
        store.sweep()
        assert store.crowds(FLAGS.id) == [CrowdRecord(1, 0, "open", None, 70, opened_day=TODAY)]
        clock.now += DAY
        store.sweep()
        assert store.crowds(FLAGS.id) == [
            CrowdRecord(1, 0, "discarded", None, 70, "deadline"),
            CrowdRecord(2, 0, "open", None, 0, opened_day=TODAY + 30),
        ]
        rows = store.database.execute("SELECT reports, release FROM crowds").fetchall()
        assert rows == [(0, None), (0, None)]
        second = upload(FLAGS, 50, 2)
        store.accept([second])
        assert released(store, FLAGS) == [tally_of(FLAGS, second)]
        # Reports of the crowd that was given up do not come back.
        store.accept([first])
        assert open_reports(store, FLAGS) == 0

    @pytest.mark.parametrize("count", [0, 4, 5, 49])
    def test_progress_rounds_down(self, count: int, tmp_path: Path):
        store = published(tmp_path, FLAGS)
        if count:
            store.accept([upload(FLAGS, count, 1)])
        assert store.progress(FLAGS.id) == count * 10 // 50 * 10
        shown = CrowdRecord(1, 0, "open", None, count * 10 // 50 * 10, opened_day=TODAY)
        assert store.crowds(FLAGS.id) == [shown]
        store.move(FLAGS.id, "closed")
        ended = CrowdRecord(1, 0, "discarded", None, count * 10 // 50 * 10, "closed")
        assert store.crowds(FLAGS.id) == [ended]


class TestRemains:
    """What is deleted is in no file any more."""

    def test_after_closing(self, plan: Plan, tmp_path: Path):
        store = published(tmp_path, plan)
        store.accept([upload(plan, plan.reports_needed + 23, 1)])
        store.sweep()
        secrets = secrets_of(store)
        assert len(on_the_files(tmp_path, secrets)) > 0.9 * len(secrets)
        release = store.release(plan.id, 1)
        assert store.move(plan.id, "closed")
        assert not on_the_files(tmp_path, secrets)
        assert store.release(plan.id, 1) == release
        assert [crowd.state for crowd in store.crowds(plan.id)] == ["released", "discarded"]

    def test_after_destroying(self, plan: Plan, tmp_path: Path):
        store = published(tmp_path, plan)
        store.accept([upload(plan, 2 * plan.reports_needed + 23, 1)])
        releases = [store.release(plan.id, number) for number in (1, 2)]
        store.move(plan.id, "closed")
        assert all(release[:200] in data_bytes(tmp_path) for release in releases if release)
        assert store.move(plan.id, "destroyed")
        left = data_bytes(tmp_path)
        for release in releases:
            assert release is not None
            # A long release spans pages of the file; look for every stretch of it. The plan's id
            # in its middle stays.
            counts, _ = release.split(plan.id.encode())
            stretches = [counts[start : start + 40] for start in range(0, len(counts) - 40, 40)]
            assert stretches
            assert not any(stretch in left for stretch in stretches)
        assert [crowd.state for crowd in store.crowds(plan.id)] == ["destroyed"] * 3
        assert store.release(plan.id, 1) is None
        assert stored_tally(store, plan.id, 1) is None

    def test_after_a_crash_between_commit_and_cleaning(self, tmp_path: Path, monkeypatch):
        """The log still holds what was deleted; the next start takes it out."""
        store = published(tmp_path, FLAGS)
        store.accept([upload(FLAGS, 23, 1)])
        secrets = secrets_of(store)
        monkeypatch.setattr(SqliteDatabase, "_empty_log", lambda self: False)
        store.move(FLAGS.id, "closed")
        monkeypatch.undo()
        # Files as a killed process leaves them: closing would clean them up.
        left = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        store.close()
        for name, held in left.items():
            (tmp_path / name).write_bytes(held)
        assert on_the_files(tmp_path, secrets)
        again = Store(tmp_path, clock=Clock())
        again.sweep()
        assert not on_the_files(tmp_path, secrets)

    def test_a_reader_puts_the_cleaning_off_to_the_next_sweep(self, tmp_path: Path):
        """A backup reads the file while a plan is closed."""
        store = published(tmp_path, FLAGS)
        store.accept([upload(FLAGS, 23, 1)])
        secrets = secrets_of(store)
        reader = sqlite3.connect(tmp_path / NAME, isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM plans").fetchall()
        assert store.move(FLAGS.id, "closed")
        assert on_the_files(tmp_path, secrets)
        reader.close()
        store.sweep()
        assert not on_the_files(tmp_path, secrets)

    def test_steps_of_a_sealed_crowd_after_a_sweep(self, tmp_path: Path):
        """Each commit's counts, encrypted, are in the log until then."""
        store = published(tmp_path, FLAGS)
        steps = []
        for seed in range(50):
            store.accept([upload(FLAGS, 1, seed)])
            steps += [bytes(row[0]) for row in store.database.execute("SELECT numbers FROM counts")]
        assert len(set(steps)) == 50
        assert on_the_files(tmp_path, steps)
        store.sweep()
        assert not on_the_files(tmp_path, steps)


class TestSealedStays:
    @pytest.mark.parametrize(
        "change",
        [
            "UPDATE crowds SET release = x'00' WHERE number = 1",
            "UPDATE crowds SET reports = 7 WHERE number = 1",
            "UPDATE crowds SET state = 'open' WHERE number = 1",
            "UPDATE crowds SET state = 'discarded' WHERE number = 1",
            "UPDATE crowds SET number = 9 WHERE number = 1",
            "UPDATE crowds SET state = 'destroyed' WHERE number = 1",
            "DELETE FROM crowds WHERE number = 1",
            "INSERT OR REPLACE INTO crowds"
            " SELECT plan, 1, 0, 'open', 0, 0, 0, NULL, NULL, NULL FROM crowds",
        ],
    )
    def test_no_statement_changes_it(self, change: str, tmp_path: Path):
        store = published(tmp_path, FLAGS)
        store.accept([upload(FLAGS, 51, 1)])
        store.sweep()
        before = content(store.database.connection)
        with pytest.raises(sqlite3.IntegrityError, match="released crowd"):
            store.database.execute(change)
        assert content(store.database.connection) == before


def in_state(folder: Path, state: State) -> Store:
    """Return a store whose plan is in a state; one crowd is sealed, one is open."""
    store = Store(folder, clock=Clock())
    store.add_plan(FLAGS)
    ways: dict[State, list[State]] = {
        "draft": [],
        "published": ["published"],
        "paused": ["published", "paused"],
        "closed": ["published", "closed"],
        "destroyed": ["published", "closed", "destroyed"],
    }
    for step in ways[state]:
        assert store.move(FLAGS.id, step, b"{}")
        if step == "published":
            store.accept([upload(FLAGS, 60, 1)])
    return store


ANSWERS = {
    "draft": problems.UNKNOWN_PLAN,
    "published": None,
    "paused": problems.PAUSED,
    "closed": problems.PLAN_CLOSED,
    "destroyed": problems.PLAN_CLOSED,
}


class TestLife:
    @pytest.mark.parametrize(("now", "wanted"), list(product(get_args(State), repeat=2)))
    def test_every_move(self, now: State, wanted: State, tmp_path: Path):
        store = in_state(tmp_path, now)
        before = content(store.database.connection)
        moved = store.move(FLAGS.id, wanted, b"{}")
        kept = store.plan(FLAGS.id)
        assert kept is not None
        assert moved == (wanted in STATES[now])
        assert kept.state == (wanted if moved else now)
        if not moved:
            assert content(store.database.connection) == before

    @pytest.mark.parametrize("state", get_args(State))
    @pytest.mark.parametrize("restart", [False, True])
    def test_who_takes_reports(self, state: State, restart: bool, tmp_path: Path):
        store = in_state(tmp_path, state)
        if restart:
            store.close()
            store = Store(tmp_path, clock=Clock())
        before = {
            name: rows
            for name, rows in content(store.database.connection).items()
            if name != "facts"
        }
        assert store.accept([upload(FLAGS, 3, 7)]) == [ANSWERS[state]]
        after = {
            name: rows
            for name, rows in content(store.database.connection).items()
            if name != "facts"
        }
        assert (before == after) == (ANSWERS[state] is not None)

    def test_publishing_needs_a_certificate_once(self, tmp_path: Path):
        store = Store(tmp_path)
        assert store.add_plan(FLAGS)
        assert not store.add_plan(FLAGS)
        with pytest.raises(InputError, match="certificate"):
            store.move(FLAGS.id, "published")
        store.move(FLAGS.id, "published", b"first")
        store.move(FLAGS.id, "paused")
        store.move(FLAGS.id, "published", b"second")
        kept = store.plan(FLAGS.id)
        assert kept is not None
        assert kept.certificate == b"first"

    def test_an_unknown_plan(self, tmp_path: Path):
        store = Store(tmp_path)
        assert store.plan(FLAGS.id) is None
        assert store.accept([upload(FLAGS, 1, 1)]) == [problems.UNKNOWN_PLAN]
        assert store.progress(FLAGS.id) == 0
        assert store.crowds(FLAGS.id) == []
        with pytest.raises(InputError, match="no such plan"):
            store.move(FLAGS.id, "published", b"{}")


class TestFile:
    def test_settings_of_the_connection(self, tmp_path: Path):
        with closing(open_database(tmp_path / NAME)) as database:
            names = ("journal_mode", "synchronous", "secure_delete")
            found = [database.execute(f"PRAGMA {name}").fetchone()[0] for name in names]
        assert found == ["wal", 2, 1]
        assert (tmp_path / NAME).stat().st_mode & 0o777 == 0o600

    def test_a_damaged_file_is_refused(self, tmp_path: Path):
        store = published(tmp_path, FLAGS)
        store.accept([upload(FLAGS, 60, 1)])
        store.close()
        path = tmp_path / NAME
        held = bytearray(path.read_bytes())
        for page in range(1, len(held) // 4096):
            held[page * 4096 : page * 4096 + 64] = b"\xff" * 64
        path.write_bytes(held)
        with pytest.raises(StorageError):
            Store(tmp_path)

    @pytest.mark.parametrize("version", [99, 1])
    def test_data_of_another_version_are_refused(self, tmp_path: Path, version: int):
        store = Store(tmp_path)
        store.database.execute("UPDATE facts SET value = ?", (b"as another version has it",))
        store.database.execute(f"PRAGMA user_version = {version}")
        store.close()
        with pytest.raises(InputError, match=f"have version {version}; .*wrote them"):
            Store(tmp_path)
        with closing(sqlite3.connect(tmp_path / NAME)) as database:
            assert database.execute("PRAGMA user_version").fetchone() == (version,)

    def test_no_file_where_there_should_be_one(self, tmp_path: Path):
        with pytest.raises(InputError, match="no collector data"):
            open_database(tmp_path / NAME, create=False)
        assert list(tmp_path.iterdir()) == []


def test_crowds_of_one(tmp_path: Path):
    plan = make_plan(crowd=1)
    store = published(tmp_path, plan)
    store.accept([upload(plan, 20, 1)])
    assert [one.reports for one in released(store, plan)] == [1] * 20


def test_a_complete_crowd_is_released_before_its_plan_is_closed(tmp_path: Path):
    store = published(tmp_path, FLAGS)
    whole = upload(FLAGS, 50, 1)
    store.accept([whole])
    store.move(FLAGS.id, "closed")
    assert released(store, FLAGS) == [tally_of(FLAGS, whole)]
    assert [crowd.state for crowd in store.crowds(FLAGS.id)] == ["released", "discarded"]
