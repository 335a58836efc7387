"""Kill it, cut its log, fill its disk: no report is lost, none is counted twice.

The environment variables `SHOAL_KILLS` and `SHOAL_LOGS` ask for more of each than the default.
"""

from __future__ import annotations

import asyncio
import http.client
import os
import resource
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from shoal import Flags
from shoal.analysis.report_files import Batch
from shoal.errors import InputError
from shoal.protocol.plan import Plan
from shoal.server import Collector, Settings
from shoal.server.core.tokens import Token
from shoal.server.storage.database import NAME, StorageError
from shoal.server.storage.encryption import CROWD_KEY_FILE
from shoal.server.storage.key_file import SIGNING_FILE, private_file
from shoal.server.storage.records import Declaration
from shoal.server.storage.sqlite import SqliteDatabase
from shoal.server.storage.store import Store
from tests.server.crash_help import LONGEST, Devices, Served, all_made, send
from tests.server.store_help import (
    PLANS,
    Clock,
    chosen,
    content,
    make_plan,
    open_reports,
    published,
    released,
    stored_tally,
    summed,
    tally_of,
    upload,
)

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("SHOAL_KILLS", "4"))
LOGS = int(os.environ.get("SHOAL_LOGS", "60"))

WIDE = make_plan(Flags("f", tuple(f"option {number}" for number in range(40))), crowd=100)
COUNTS = make_plan(*WIDE.survey, crowd=100, view="counts")


def check_total(folder: Path, plan: Plan, made: list[Batch]) -> int:
    """Check that everything made is in whole crowds, once; return how many there are."""
    with closing(Store(folder)) as store:
        tallies = released(store, plan)
        assert open_reports(store, plan) == 0
        assert [one.reports for one in tallies] == [plan.reports_needed] * len(tallies)
        assert sum(map(len, made)) == plan.reports_needed * len(tallies)
        assert summed(tallies) == tally_of(plan, *made)
    return len(tallies)


def filled_up(plan: Plan, made: list[Batch]) -> Batch:
    """Return the reports that complete the last crowd, so that every report is in a release."""
    missing = -sum(map(len, made)) % plan.reports_needed
    return upload(plan, missing or plan.reports_needed, seed=10**9)  # of no device


def released_now(served: Served) -> dict[int, object]:
    """Return what the console shows of all sealed crowds."""
    at = f"/v1/plans/{served.plan.id}/crowds"
    crowds = served.ask(at)["crowds"]
    released = [crowd["number"] for crowd in crowds if crowd["state"] == "released"]
    return {number: served.ask(f"{at}/{number}")["tally"] for number in released[-3:]}


class TestKills:
    @pytest.mark.parametrize("plan", [WIDE, COUNTS], ids=lambda plan: plan.view)
    def test_random_kills_under_load(self, plan: Plan, tmp_path: Path):
        """Each comes at a random moment: while it starts, while it commits, while it seals."""
        chance, kills = Random(8), KILLS // 2
        seen: dict[int, object] = {}
        with Served(tmp_path / "data", plan) as served:
            devices = [Devices(served, seed) for seed in (1, 2, 3)]
            for one in devices:
                one.start()
            for kill in range(kills):
                if kill % 5 == 0:
                    served.launch()
                    time.sleep(chance.random() * 1.5)
                else:
                    served.start()
                    time.sleep(chance.random() * 0.8)
                    seen |= released_now(served)
                    time.sleep(chance.random() * 0.1)
                served.kill()
            served.start()
            for one in devices:
                one.finish()
            made = all_made(devices)
            made.append(filled_up(plan, made))
            assert served.post(made[-1]) == (202, "")
            assert served.stop() == 0
        assert [one.surprises for one in devices] == [[], [], []]
        crowds = check_total(served.folder, plan, made)
        assert crowds >= 2
        # What anybody was shown before a kill is what is there in the end.
        with closing(Store(served.folder)) as store:
            for number, document in seen.items():
                found = stored_tally(store, plan.id, number)
                assert found is not None
                assert found[1].to_json() == document
        print(f"{kills} kills, {sum(map(len, made))} reports in {crowds} crowds")

    def test_a_stop_under_load_loses_nothing_either(self, tmp_path: Path):
        with Served(tmp_path / "data", WIDE) as served:
            devices = [Devices(served, seed) for seed in (4, 5)]
            for one in devices:
                one.start()
            for _ in range(2):
                served.start()
                time.sleep(0.4)
                assert served.stop() == 0
            served.start()
            for one in devices:
                one.finish()
            made = all_made(devices)
            made.append(filled_up(WIDE, made))
            assert served.post(made[-1]) == (202, "")
            assert served.stop() == 0
        check_total(served.folder, WIDE, made)

    def test_killed_while_a_secret_is_written(self, tmp_path: Path, monkeypatch):
        class Killed(BaseException):
            pass

        def dies(handle: int) -> None:
            raise Killed

        path = tmp_path / "admin-token"
        monkeypatch.setattr(os, "fsync", dies)
        with pytest.raises(Killed):
            private_file(path, "secret\n")
        monkeypatch.undo()
        assert not path.exists()
        private_file(path, "secret\n")
        assert path.read_text() == "secret\n"
        assert path.stat().st_mode & 0o777 == 0o600
        assert [one.name for one in tmp_path.iterdir()] == ["admin-token"]


def cut(log: bytearray, chance: Random) -> bytearray:
    """The last part was never written."""
    return log[: chance.randrange(len(log))]


def flip(log: bytearray, chance: Random) -> bytearray:
    """A few bytes were written wrong."""
    at = chance.randrange(len(log) - 8)
    log[at : at + 8] = bytes(byte ^ chance.randrange(1, 256) for byte in log[at : at + 8])
    return log


def hole(log: bytearray, chance: Random) -> bytearray:
    """A page of the disk was not written though later ones were."""
    at = chance.randrange(len(log) // 4096) * 4096
    log[at : at + 4096] = bytes(len(log[at : at + 4096]))
    return log


def head(log: bytearray, chance: Random) -> bytearray:
    """The log's own header is wrong."""
    log[chance.randrange(32)] ^= chance.randrange(1, 256)
    return log


def cut_and_flip(log: bytearray, chance: Random) -> bytearray:
    """Both: the end was never written, and what is before it is wrong."""
    return flip(log[: chance.randrange(100, len(log))], chance)


DAMAGES = [cut, flip, hole, head, cut_and_flip]

TOLD = [PLANS[name] for name in ("counts", "joint", "text and flags")]


class TestLogs:
    """A log that is cut or damaged gives some state that was committed, and no other.

    A state from before the last sealing is refused: what was released since would be again.
    """

    @pytest.mark.parametrize("used_before", [False, True])
    def test_every_image_opens_to_a_prefix(self, used_before: bool, tmp_path: Path, monkeypatch):
        monkeypatch.setattr(SqliteDatabase, "_empty_log", lambda self: False)
        written = tmp_path / "written"
        written.mkdir()
        states, oldest, uploads = self._write(written, used_before)
        database = (written / NAME).read_bytes()
        log = (written / f"{NAME}-wal").read_bytes()
        chance = Random(LOGS)
        found, refused = [], 0
        for number in range(LOGS // 2):
            image = tmp_path / str(number)
            image.mkdir()
            damage = DAMAGES[number % len(DAMAGES)]
            (image / NAME).write_bytes(database)
            (image / f"{NAME}-wal").write_bytes(damage(bytearray(log), chance))
            for secret in (CROWD_KEY_FILE, SIGNING_FILE):
                shutil.copy(written / secret, image)
            with closing(sqlite3.connect(image / NAME)) as left:
                state = states.index(content(left))
            if state < oldest:
                refused += 1
                with pytest.raises(InputError, match="is older than"):
                    Store(image, clock=Clock())
            else:
                with closing(Store(image, clock=Clock())) as store:
                    found.append(states.index(content(store.database.connection)))
                    if number % 10 == 0:
                        self._send_again(store, uploads)
            for file in image.iterdir():
                file.unlink()
        assert len(set(found)) > min(LOGS // 10, len(states) // 4)
        assert refused > LOGS // 20
        print(f"{len(found)} images, {refused} refused, {len(set(found))} of {len(states)} states")

    def _write(self, folder: Path, used_before: bool) -> tuple[list[Any], int, list[Batch]]:
        """Commit for a while without a checkpoint.

        Return every state, the number of the oldest one that fits the key, and all uploads.
        """
        chance = Random(5)
        with closing(Store(folder, clock=Clock())) as fresh:
            states = [content(fresh.database.connection)]
        store = Store(folder, clock=Clock())
        store.database.execute("PRAGMA wal_autocheckpoint = 0")
        for plan in TOLD:
            store.add_plan(plan)
            states.append(content(store.database.connection))
            store.move(plan.id, "published", b"{}")
            states.append(content(store.database.connection))
        uploads: list[Batch] = []
        for step in range(80):
            if used_before and step == 15:
                # The log starts again from its beginning, with old frames after the new ones.
                store.database.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
                states = [content(store.database.connection)]
            if step == 25:
                store.sweep()
                oldest = len(states)
                states.append(content(store.database.connection))
            fresh_ones = [upload(plan, chance.randint(1, 12), step) for plan in TOLD]
            old = [chance.choice(uploads)] if uploads else []
            assert set(store.accept(fresh_ones + old)) == {None}
            states.append(content(store.database.connection))
            uploads += fresh_ones
        # The connection stays open: closing it would empty the log.
        self._kept_open = store
        return states, oldest, uploads

    def _send_again(self, store: Store, uploads: list[Batch]) -> None:
        """Everything is sent again, as after a power cut: the totals are right."""
        for plan in TOLD:
            if store.plan(plan.id) is None:
                store.add_plan(plan)
            store.move(plan.id, "published", b"{}")
        for number in range(0, len(uploads), 20):
            assert set(store.accept(uploads[number : number + 20])) == {None}
        for plan in TOLD:
            mine = [one for one in uploads if one.plan_id == plan.id]
            rest = upload(plan, -sum(map(len, mine)) % plan.reports_needed or 50, 99)
            store.accept([rest])
            tallies = released(store, plan)
            assert {one.reports for one in tallies} == {plan.reports_needed}
            assert summed(tallies) == tally_of(plan, *mine, rest)


Post = Callable[[Batch], Awaitable[tuple[int, str]]]
Execute = Callable[[str], Awaitable[Any]]


def in_process(folder: Path, story: Callable[[Collector, Post, Execute], Awaitable[None]]) -> None:
    """Run a story with a collector in this process, a way to post and one to its database."""

    async def told() -> None:
        async with Collector(folder, Settings(min_crowd=1)) as collector:
            await collector.administration.add_plan(WIDE)
            assert (
                await collector.administration.move_plan(
                    WIDE.id, "published", Declaration(all_honest=True)
                )
                is None
            )
            token = await collector.service.in_store(
                collector.service.tokens.add, Token.new("relay", "test")
            )
            transport = httpx.ASGITransport(collector.public)
            async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:

                async def post(batch: Batch) -> tuple[int, str]:
                    answer = await client.post(
                        f"/v1/plans/{batch.plan_id}/reports",
                        content=batch.to_bytes(),
                        headers={
                            "Content-Type": "application/octet-stream",
                            "Authorization": f"Bearer {token}",
                        },
                    )
                    assert answer.status_code < 500 or answer.headers["retry-after"]
                    problem = "" if answer.status_code == 202 else answer.json()["type"]
                    return answer.status_code, problem.rpartition(":")[2]

                async def execute(statement: str) -> Any:
                    database = collector.store.database
                    return await collector.service.in_store(
                        lambda: database.execute(statement).fetchall()
                    )

                await story(collector, post, execute)

    asyncio.run(told())


class TestStorageInProcess:
    @pytest.mark.parametrize(
        ("broken", "mended", "answer"),
        [
            ("max_page_count = {0}", "max_page_count = {1}", (507, "storage-full")),
            ("query_only = ON", "query_only = OFF", (503, "storage-unavailable")),
        ],
    )
    def test_full_or_read_only_and_then_not(
        self, tmp_path: Path, broken: str, mended: str, answer: tuple[int, str]
    ):
        made = [upload(WIDE, 700, seed) for seed in range(10)]

        async def story(collector: Collector, post: Post, execute: Execute) -> None:
            async def stored() -> Any:
                return await collector.service.in_store(
                    content, collector.store.database.connection
                )

            assert await post(made[0]) == (202, "")
            assert await collector.service.obstacle() is None
            ((pages,),) = await execute("PRAGMA page_count")
            before = await stored()
            await execute(f"PRAGMA {broken.format(pages)}")
            for _ in range(3):
                assert await post(made[1]) == answer
            if answer == (503, "storage-unavailable"):
                assert await collector.service.obstacle() is not None
            assert await stored() == before
            await execute(f"PRAGMA {mended.format(pages, pages + 1000)}")
            assert await collector.service.obstacle() is None
            for batch in made:
                assert await post(batch) == (202, "")

        in_process(tmp_path, story)
        check_total(tmp_path, WIDE, made)

    def test_a_log_that_nobody_empties(self, tmp_path: Path, monkeypatch):
        """Beyond its limit no reports are accepted, until whoever reads the data has ended."""
        made = [upload(WIDE, 50, seed) for seed in range(2)]

        async def story(collector: Collector, post: Post, execute: Execute) -> None:
            assert await post(made[0]) == (202, "")
            monkeypatch.setattr("shoal.server.core.service.LONGEST_LOG", 0)
            collector.service.check_space()
            assert await post(made[1]) == (507, "storage-full")
            assert await collector.service.obstacle() is not None
            await collector.service.in_store(collector.store.sweep)
            collector.service.check_space()
            assert await post(made[1]) == (202, "")

        in_process(tmp_path, story)
        check_total(tmp_path, WIDE, made)

    def test_locked_by_another_process_and_then_not(self, tmp_path: Path, monkeypatch):
        """Somebody opens the database with another tool and writes."""
        made = [upload(WIDE, 50, seed) for seed in range(2)]

        async def story(collector: Collector, post: Post, execute: Execute) -> None:
            await execute("PRAGMA busy_timeout = 10")
            other = published(tmp_path)
            other.database.execute("BEGIN IMMEDIATE")
            assert await post(made[0]) == (503, "storage-unavailable")
            other.close()
            for batch in made:
                assert await post(batch) == (202, "")

        in_process(tmp_path, story)
        check_total(tmp_path, WIDE, made)

    def test_a_move_that_fails_after_its_commit_is_shown(self, tmp_path: Path, monkeypatch):
        """The plan is closed, but emptying the log fails."""

        def fails(database: SqliteDatabase) -> None:
            raise StorageError("the collector's data cannot be used: disk I/O error.")

        async def story(collector: Collector, post: Post, execute: Execute) -> None:
            monkeypatch.setattr(SqliteDatabase, "_empty_log", fails)
            with pytest.raises(StorageError):
                await collector.administration.move_plan(WIDE.id, "closed")
            monkeypatch.undo()
            kept = collector.administration.plans.get(WIDE.id)
            assert kept is not None
            assert kept.state == "closed"
            assert await post(upload(WIDE, 1, 1)) == (410, "plan-closed")

        in_process(tmp_path, story)


def open_files(served: Served) -> int:
    assert served.process is not None
    return len(os.listdir(f"/proc/{served.process.pid}/fd"))


def limit(served: Served, what: int, most: int) -> None:
    assert served.process is not None
    _, hard = resource.prlimit(served.process.pid, what)
    resource.prlimit(served.process.pid, what, (most, hard))


needs_linux = pytest.mark.skipif(
    not Path("/proc/self/fd").exists() or not hasattr(resource, "prlimit"),
    reason="limits of a running process are Linux's",
)


@needs_linux
class TestLimits:
    def test_a_file_that_may_not_grow(self, tmp_path: Path):
        made = [upload(WIDE, 500, seed) for seed in range(8)]
        with Served(tmp_path / "data", WIDE) as served:
            served.start()
            assert served.post(made[0]) == (202, "")
            limit(served, resource.RLIMIT_FSIZE, 4096)
            for batch in made[1:3]:
                assert served.post(batch)[0] in (503, 507)
            limit(served, resource.RLIMIT_FSIZE, resource.RLIM_INFINITY)
            for batch in made:
                assert served.post(batch) == (202, "")
            assert served.stop() == 0
        check_total(served.folder, WIDE, made)

    def test_too_many_open_files(self, tmp_path: Path):
        made = [upload(WIDE, 50, seed) for seed in range(8)]
        with Served(tmp_path / "data", WIDE) as served:
            served.start()
            token = served.relay_token()
            kept = http.client.HTTPConnection(*served.address(), timeout=LONGEST)
            assert send(kept, made[0], token) == (202, "")
            limit(served, resource.RLIMIT_NOFILE, open_files(served) + 2)
            others = [http.client.HTTPConnection(*served.address(), timeout=2) for _ in range(6)]
            answers = []
            for other, batch in zip(others, made[1:], strict=False):
                try:
                    answers.append(send(other, batch, token)[0])
                except (OSError, http.client.HTTPException):
                    answers.append(0)
            assert set(answers) <= {0, 202, 503}
            assert 0 in answers or 503 in answers
            # Who was connected is served on.
            assert send(kept, made[1], token) == (202, "")
            for other in (kept, *others):
                other.close()
            limit(served, resource.RLIMIT_NOFILE, 1024)
            for batch in made:
                assert served.post(batch) == (202, "")
            assert served.stop() == 0
        check_total(served.folder, WIDE, made)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of three megabytes."""
    place = tmp_path / "small"
    place.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=3m,mode=700", "none", str(place)]
    try:
        done = subprocess.run(mounting, capture_output=True, text=True, timeout=LONGEST)
    except FileNotFoundError:
        pytest.skip("there is no mount here")
    if done.returncode:
        pytest.skip(f"no small file system can be mounted here: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True, timeout=LONGEST)


@pytest.mark.system
class TestSmallDisk:
    def test_full_and_then_not(self, small_disk: Path, tmp_path: Path):
        """The disk fills up under load; whatever was refused goes in once space is back."""
        filler = small_disk / "filler"
        filler.write_bytes(bytes(1 << 20))
        folder = small_disk / "data"
        answers: list[tuple[int, str]] = []
        made: list[Batch] = []
        with Served(folder, WIDE, "--min-free-megabytes", "0") as served:
            served.start()
            while answers.count((507, "storage-full")) < 5:
                assert len(made) < 400, "the disk did not fill up"
                made.append(upload(WIDE, 700, len(made)))
                answers.append(served.post(made[-1]))
                served.post(chosen(made[-1], range(100)))
            assert {status for status, _ in answers} <= {202, 503, 507}
            filler.unlink()
            for batch, (status, _) in zip(made, answers, strict=True):
                if status != 202:
                    assert served.post(batch) == (202, "")
            assert served.post(made[0]) == (202, "")
            assert served.stop() == 0
        assert (202, "") in answers
        check_total(folder, WIDE, made)

    def test_spare_space_is_kept(self, small_disk: Path):
        with Served(small_disk / "data", WIDE) as served:
            served.start()
            assert served.post(upload(WIDE, 1, 1)) == (507, "storage-full")

    def test_a_read_only_disk_is_told_in_a_sentence(self, small_disk: Path):
        with Served(small_disk / "data", WIDE) as served:
            served.start()
            assert served.stop() == 0
            subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
            served.launch()
            errors = served.ended()
            assert served.process is not None
            assert served.process.returncode == 1
            served.process = None
        assert errors.startswith("shoal: ")
        assert errors.count("\n") == 1
