"""Files that are lost, old or another's: the collector starts safely or says what is wrong.

Reports carry who they are in their bits, so a release shows whether it has one of them. After every
loss an operator does what the documents say (`shoal serve plan.json`) and everybody sends again
whatever they have ever sent; no two releases may share a report.
"""

from __future__ import annotations

import asyncio
import itertools
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from shoal import Flags, Survey
from shoal.analysis.report_files import Batch
from shoal.cli import run
from shoal.device.arrays.randomize import pack
from shoal.errors import InputError, PrivacyRefusal
from shoal.protocol.plan import Plan
from shoal.server import Collector, Settings
from shoal.server.core import problems
from shoal.server.core.backup import back_up, restore
from shoal.server.storage.database import NAME, StorageError, data_lock
from shoal.server.storage.encryption import CROWD_KEY_FILE, generation_without_log
from shoal.server.storage.key_file import SIGNING_FILE, Signer, change_key
from shoal.server.storage.records import Declaration
from shoal.server.storage.store import Store
from tests.server.crash_help import Served
from tests.server.store_help import DAY, NOON, Clock, json_of, make_plan, upload

WEEK = 7 * DAY
PEOPLE, CROWD = 13, 10
FLAGS = Flags("f", tuple(f"option {number}" for number in range(PEOPLE + 3)))
PLAN = make_plan(FLAGS, crowd=CROWD)
WEEKLY = replace(PLAN, survey=Survey("weekly", (FLAGS,)), window=WEEK)
LOG = f"{NAME}-wal"


def reports(plan: Plan, people: range, window: int = 0) -> Batch:
    """The reports of some people: each sets the bit with their number, and keeps their id."""
    batch = upload(plan, len(people), people.start, window)
    for row, person in enumerate(people):
        batch.ids[row] = np.random.default_rng(person).integers(0, 256, 16, np.uint8)
    bits = np.zeros((len(people), plan.bits), bool)
    for row, person in enumerate(people):
        bits[row, min(person, PEOPLE)] = True
    batch.rows[:] = pack(bits)
    return batch


@contextmanager
def started(folder: Path, now: float = NOON) -> Iterator[Store]:
    """Start a collector up to where it would listen, and kill it in the end."""
    collector = Collector(folder, Settings(min_crowd=1), clock=Clock(now))
    collector.store = collector.open_store(Store)
    with collector.service._held:
        collector.store._released = lambda plan_id, number: None  # it counts plans it has loaded
        yield collector.store


def people_in(release: bytes) -> set[int]:
    return {bit for bit, count in enumerate(json_of(release)["by_bit"][:PEOPLE]) if count}


def releases(store: Store) -> set[bytes]:
    found = set()
    for kept in store.plans():
        for crowd in store.crowds(kept.plan.id):
            found.add(store.release(kept.plan.id, crowd.number))
    return {release for release in found if release is not None}


def serve_again(folder: Path, plan: Plan = PLAN, now: float = NOON) -> set[bytes]:
    """Do what an operator and all people do after a loss; return all releases there are then."""
    with started(folder, now) as store:
        store.add_plan(plan)
        kept = store.plan(plan.id)
        assert kept is not None
        if kept.state == "draft":
            try:
                store.move(plan.id, "published", b"{}")
            except PrivacyRefusal:
                return releases(store)
        for window in range(int(now // WEEK) - 1, int(now // WEEK) + 2) if plan.window else (0,):
            store.accept([reports(plan, range(PEOPLE), window)])
            store.accept([reports(plan, range(100, 100 + 2 * CROWD), window)])
        store.sweep()
        return releases(store)


def copied(folder: Path, to: Path) -> Path:
    """Copy what a killed process leaves: the log is not emptied."""
    to.mkdir()
    for path in folder.iterdir():
        if not path.name.endswith("-shm"):
            shutil.copy(path, to)
    return to


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copies of a collector's folder at three moments, and backups of each.

    `draft`: the plan is known, `open`: published, six reports have come, `now`: a crowd was
    released and three reports have come for the next. `other` is another collector's.
    """
    base = tmp_path_factory.mktemp("history")
    live = base / "live"

    def keep(name: str) -> None:
        copied(live, base / name)
        back_up(live, base / f"{name}.backup", clock=Clock())

    with started(live) as store:
        store.add_plan(PLAN)
        store.sweep()
        keep("draft")
        store.move(PLAN.id, "published", b"{}")
        store.accept([reports(PLAN, range(6))])
        keep("open")
        store.accept([reports(PLAN, range(6, CROWD))])
        store.sweep()
        store.accept([reports(PLAN, range(CROWD, PEOPLE))])
        keep("now")
        (release,) = releases(store)
    assert people_in(release) == set(range(CROWD))
    (base / "release").write_bytes(release)
    with started(base / "made") as store:
        store.add_plan(PLAN)
        store.move(PLAN.id, "published", b"{}")
        store.accept([reports(PLAN, range(6))])
        copied(base / "made", base / "other")
    return base


def share_none(base: Path, found: set[bytes]) -> None:
    """Check that no release shares a report with the first one, or with another."""
    first = (base / "release").read_bytes()
    for one, other in itertools.combinations(found | {first}, 2):
        assert not people_in(one) & people_in(other)


MOMENTS = ("now", "open", "draft", "other", None)
COMBINATIONS = [
    (database, log, key, crowd_key)
    for database, log, key, crowd_key in itertools.product(
        MOMENTS, ("now", "open", None), ("now", "other", None), MOMENTS
    )
]


def is_a_whole_copy(database: str | None, key: str | None, crowd_key: str | None) -> bool:
    """Nothing in a folder tells that all of it was put back, or that it is a new collector's.

    Of the two older moments the database is the same without its log.
    """
    if key == "now":
        return {database, crowd_key} <= {"open", "draft"}
    return database == crowd_key == key


def test_every_combination_of_lost_and_old_files(history: Path, tmp_path: Path):
    refused, began = 0, []
    for number, (database, log, key, crowd_key) in enumerate(COMBINATIONS):
        if is_a_whole_copy(database, key, crowd_key):
            continue
        folder = tmp_path / str(number)
        folder.mkdir()
        files = {NAME: database, LOG: log, SIGNING_FILE: key, CROWD_KEY_FILE: crowd_key}
        for name, moment in files.items():
            if moment is not None and (history / moment / name).exists():
                shutil.copy(history / moment / name, folder)
        if number % 2:
            shutil.copy(history / "now" / "lock", folder)
        try:
            found = serve_again(folder)
        except (InputError, StorageError) as error:
            refused += 1
            check_sentence(str(error))
        else:
            began.append((database, log, key, crowd_key))
            share_none(history, found)
        shutil.rmtree(folder)
    assert ("now", "now", "now", "now") in began
    assert ("now", "now", "now", None) in began
    assert refused > 100
    print(f"{refused} refused, {len(began)} began")


def check_sentence(text: str) -> None:
    assert text.endswith(".")
    assert "\n" not in text
    assert len(text) < 400


def test_nothing_lost_goes_on(history: Path, tmp_path: Path):
    folder = copied(history / "now", tmp_path / "new")
    found = serve_again(folder)
    assert len(found) == 3
    share_none(history, found)
    assert sum(len(people_in(release)) for release in found) == PEOPLE


def test_killed_after_any_page_while_the_log_is_emptied(tmp_path: Path):
    """SQLite writes the first page first, with the number of pages that follow."""
    with started(tmp_path / "live") as store:
        store.add_plan(PLAN)
        store.sweep()
        store.move(PLAN.id, "published", b"{}")
        store.accept([reports(PLAN, range(6))])
        folder = copied(tmp_path / "live", tmp_path / "before")
        store.database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        after = (tmp_path / "live" / NAME).read_bytes()
    before, cut_short = (folder / NAME).read_bytes(), 0
    for end in range(0, len(after) + 1, 4096):
        killed = copied(folder, tmp_path / str(end))
        (killed / NAME).write_bytes(after[:end] + before[end:])
        cut_short += generation_without_log(killed / NAME) == b""
        with started(killed) as store:
            store.accept([reports(PLAN, range(6, CROWD))])
            store.sweep()
            (release,) = releases(store)
        assert people_in(release) == set(range(CROWD))
    assert cut_short > 5


@pytest.mark.parametrize("moment", ["draft", "open", "now"])
def test_restored_backups(moment: str, history: Path, tmp_path: Path):
    """The one made before the plan was published too, with `shoal serve plan.json` after it."""
    restore(history / f"{moment}.backup", tmp_path / "new", clock=Clock())
    share_none(history, serve_again(tmp_path / "new"))


@pytest.mark.parametrize("loss", ["restore", "key"])
def test_a_plan_that_may_have_been_published(loss: str, history: Path, tmp_path: Path):
    """Who states that it was not may publish it; who has a window needs no statement."""
    folder = tmp_path / "new"
    if loss == "restore":
        restore(history / "draft.backup", folder, clock=Clock())
    else:
        copied(history / "draft", folder)
        (folder / CROWD_KEY_FILE).unlink()

    async def publish(plan: Plan, never_published: bool = False) -> problems.Problem | None:
        declared = Declaration(all_honest=True, never_published=never_published)
        async with Collector(folder, Settings(min_crowd=1), clock=Clock()) as collector:
            assert await collector.administration.add_plan(plan) is None
            return await collector.administration.move_plan(plan.id, "published", declared)

    assert asyncio.run(publish(PLAN)) is problems.MAYBE_PUBLISHED
    assert asyncio.run(publish(PLAN)) is problems.MAYBE_PUBLISHED, "it is remembered"
    assert asyncio.run(publish(replace(PLAN, crowd_size=11), never_published=True)) is None
    assert asyncio.run(publish(WEEKLY)) is None
    with closing(Store(folder, clock=Clock())) as store:
        week = int(NOON // WEEK)
        for window in range(week - 1, week + 2):
            answer = store.accept([reports(WEEKLY, range(3), window)])
            assert answer == [problems.WINDOW_EXPIRED]
    # In later weeks nobody can have reported before.
    found = serve_again(folder, WEEKLY, NOON + 2 * WEEK)
    assert {frozenset(people_in(release)) for release in found} != {frozenset()}


def test_a_lost_crowd_key_gives_open_crowds_up(history: Path, tmp_path: Path):
    folder = copied(history / "now", tmp_path / "new")
    (folder / CROWD_KEY_FILE).unlink()
    with started(folder) as store:
        kept = store.plan(PLAN.id)
        assert kept is not None
        assert kept.state == "closed"
        assert [crowd.state for crowd in store.crowds(PLAN.id)] == ["released", "discarded"]
        assert releases(store) == {(history / "release").read_bytes()}
    with started(folder) as store:
        assert store.database.begun_anew is None


@pytest.mark.slow
def test_a_second_collector_though_the_lock_was_deleted(tmp_path: Path):
    with Served(tmp_path / "data", PLAN) as served:
        served.start()
        assert served.post(reports(PLAN, range(6))) == (202, "")
        (served.folder / "lock").unlink()
        second = subprocess.run(
            [
                *(sys.executable, "-m", "shoal", "serve", "--data", str(served.folder)),
                *("--public", "127.0.0.1:0", "--console", "127.0.0.1:0"),
            ],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert second.returncode == 2
        assert second.stderr == f"shoal: another collector is using {served.folder}.\n"
        assert served.post(reports(PLAN, range(6, CROWD))) == (202, "")
        assert served.process is not None
        served.process.send_signal(signal.SIGSTOP)  # nor while it hangs
        try:
            with pytest.raises(InputError, match="another collector"), started(served.folder):
                pass
        finally:
            served.process.send_signal(signal.SIGCONT)
        assert served.stop() == 0
    with started(served.folder) as store:
        (release,) = releases(store)
    assert people_in(release) == set(range(CROWD))


def test_a_changed_signing_key_and_the_data(history: Path, tmp_path: Path, capsys):
    """The data follow to the new key; the old one is refused, and so is another's new one."""
    folder = copied(history / "now", tmp_path / "new")
    old = (folder / SIGNING_FILE).read_text()
    public = Signer(folder).public_key
    assert run(["collector", "rotate", str(folder), "--overlap", "0"]) == 0
    changed = Signer(folder)
    lines = [f"{changed.public_key}  active", f"{public}  expired"]
    assert capsys.readouterr().out.splitlines() == lines
    assert changed.public_keys == [changed.public_key, public]
    assert old.split()[0] not in (folder / SIGNING_FILE).read_text()
    share_none(history, serve_again(folder))
    back_up(folder, tmp_path / "backup", clock=Clock())
    restore(tmp_path / "backup", tmp_path / "restored", clock=Clock())
    assert Signer(tmp_path / "restored").public_keys == changed.public_keys
    (folder / SIGNING_FILE).write_text(old)
    with pytest.raises(InputError, match="signing-key is older than"), started(folder):
        pass
    assert run(["collector", "rotate", str(tmp_path / "nowhere")]) == 2
    with data_lock(folder), pytest.raises(InputError, match="another collector"):
        change_key(folder, overlap_days=0)
