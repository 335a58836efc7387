"""The store in PostgreSQL: several collectors, each report once, whoever and whatever breaks."""

from __future__ import annotations

import asyncio
import http.client
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import rule

from shoal import Survey
from shoal.errors import InputError
from shoal.server import Collector, Settings
from shoal.server.core.ingest import Allowance
from shoal.server.storage.database import StorageError
from shoal.server.storage.records import Declaration, State
from shoal.server.storage.store import Store
from tests.server.crash_help import LONGEST, Devices, Served, all_made, send
from tests.server.cutting_proxy import CuttingProxy
from tests.server.postgres_help import needs_postgres, second_folder, store_in, the_server
from tests.server.silent_proxy import SilentProxy
from tests.server.store_help import (
    NOON,
    PLANS,
    Clock,
    counted_by_hand,
    json_of,
    make_plan,
    open_reports,
    released,
    summed,
    tally_of,
    upload,
)
from tests.server.test_crashes import WIDE, filled_up
from tests.server.test_model import DEADLINE, ENDLESS, WEEK, WEEKLY, Life

pytestmark = [needs_postgres, pytest.mark.system, pytest.mark.slow]

FLAGS = PLANS["flags"]


@pytest.fixture
def url() -> str:
    return the_server().new_database()


@pytest.fixture
def pair(url: str, tmp_path: Path) -> Iterator[tuple[Store, Store]]:
    """Two collectors of one database, each with its folder."""
    first = store_in(url, tmp_path / "first", *PLANS.values())
    second = store_in(url, second_folder(tmp_path / "first"))
    yield first, second
    first.close()
    second.close()


class TestTwoCollectors:
    @pytest.mark.parametrize("name", list(PLANS))
    def test_a_release_is_the_tally_of_its_reports(self, name: str, pair: tuple[Store, Store]):
        plan = PLANS[name]
        parts = [upload(plan, size, seed) for seed, size in enumerate((1, 7, 3, 20))]
        parts.append(upload(plan, plan.reports_needed - 31, 9))
        for number, part in enumerate(parts):
            for turn in (0, 1):  # each report comes at both
                assert pair[(number + turn) % 2].accept([part]) == [None]
        assert json_of(pair[0].release(plan.id, 1)) == counted_by_hand(plan, *parts)
        assert pair[1].release(plan.id, 1) == pair[0].release(plan.id, 1)
        assert open_reports(pair[1], plan) == 0

    def test_many_rows_of_digests(self, pair: tuple[Store, Store]):
        """What the other one remembered is recognized, across rows that are full and that grow."""
        plan = PLANS["thirteen bits"]
        made = [upload(plan, size, size) for size in (1, 479, 480, 481, 1500, 9000, 20_000)]
        for number, part in enumerate(made):
            assert pair[number % 2].accept([part]) == [None]
            assert pair[1 - number % 2].accept(made[: number + 1]) == [None] * (number + 1)
            pair[number % 2].sweep()
        for store in pair:
            assert store.accept(made) == [None] * len(made)
        total = sum(map(len, made))
        rest = upload(plan, -total % plan.reports_needed, 77)
        assert pair[0].accept([rest]) == [None]
        assert summed(released(pair[1], plan)) == tally_of(plan, *made, rest)


class TestSealedStays:
    @pytest.mark.parametrize(
        "change",
        [
            "UPDATE crowds SET release = NULL WHERE number = 1",
            "UPDATE crowds SET reports = 7 WHERE number = 1",
            "UPDATE crowds SET state = 'open' WHERE number = 1",
            "UPDATE crowds SET state = 'destroyed', release = NULL WHERE number = 1",
            "DELETE FROM crowds WHERE number = 1",
        ],
    )
    def test_no_statement_changes_it(self, change: str, url: str, tmp_path: Path):
        store = store_in(url, tmp_path / "first", FLAGS)
        store.accept([upload(FLAGS, 51, 1)])
        release = store.release(FLAGS.id, 1)
        with pytest.raises(StorageError, match="a released crowd does not change"):
            store.database.execute(change)
        assert store.release(FLAGS.id, 1) == release
        store.close()


class SharedLife(Life):
    """The same life as in a folder, of two collectors that take turns."""

    def __init__(self) -> None:
        super().__init__()
        self.url = the_server().new_database()
        self.turn = 0
        self.folders = [self.folder / "first", self.folder / "second"]
        self.stores: list[Any] = []

    def _open(self) -> None:
        for place, folder in enumerate(self.folders):
            if place:
                second_folder(self.folders[0])
            options = {"clock": self.clock, "deadline_days": DEADLINE}
            self.stores.append(store_in(self.url, folder, **options))
        self._use()

    def _use(self) -> None:
        """Let the other one do the next step, and look at what the first has done."""
        self.turn = 1 - self.turn
        self.store = self.stores[self.turn]
        self.folder = self.folders[self.turn]

    def _happens(self, fault: str, action: Any) -> bool:
        happened = super()._happens(fault, action)
        self._use()
        return happened

    @rule()
    def restart(self) -> None:
        for store in self.stores:
            store.close()
        self.stores.clear()
        self._open()

    @rule()
    def kill(self) -> None:
        """End one of them without a word, and start it again."""
        place = self.turn
        self.stores[place].database.connection._connection.pgconn.finish()
        options = {"clock": self.clock, "deadline_days": DEADLINE}
        self.stores[place] = store_in(self.url, self.folders[place], **options)
        self._use()

    def teardown(self) -> None:
        whole = self.folders[0].parent
        self.folder = Path(tempfile.mkdtemp())  # the base removes one
        super().teardown()
        for store in self.stores:
            store.close()
        shutil.rmtree(whole)


SharedLife.TestCase.settings = settings(
    max_examples=8,
    stateful_step_count=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@needs_postgres
class TestLife(SharedLife.TestCase):  # type: ignore[misc,valid-type]
    """Two collectors against the model in plain Python."""


class TestLostConnections:
    """The connection is cut at each message in turn, before it arrives or before its answer.

    A message may hold several statements. Cut within one, the server gets a part of them.
    """

    @pytest.mark.parametrize("when", ["before", "within", "after"])
    @pytest.mark.parametrize("kind", ["reports", "sweeps and moves"])
    def test_at_every_statement(self, kind: str, when: str, url: str, tmp_path: Path):
        """Reports count or do not, the key turns or does not; both collectors go on."""
        other = store_in(url, tmp_path / "first", ENDLESS, WEEKLY)
        window = {ENDLESS.id: 0, WEEKLY.id: int(NOON // WEEK)}
        made: list[Any] = []
        with CuttingProxy(the_server().port) as proxy:
            through = the_server().url(url.rpartition("/")[2], proxy.port)
            store = store_in(through, second_folder(tmp_path / "first"))
            message, lost = 0, True
            while lost:
                message += 1
                batches = [
                    upload(plan, 8 + message % 5, 2 * message + k, window[plan.id])
                    for k, plan in enumerate((ENDLESS, WEEKLY))
                ]
                wanted: State = "paused" if message % 2 else "published"

                def work(batches: Any = batches, wanted: State = wanted) -> None:
                    if kind == "reports":
                        assert store.accept(batches) == [None, None]
                    else:
                        store.sweep()
                        store.move(WEEKLY.id, wanted)

                proxy.cut(message, when)
                try:
                    work()
                    lost = proxy.has_cut
                except StorageError:
                    assert proxy.has_cut
                proxy.leave_alone()
                # It may have happened or not: it is done again, here or there.
                work()
                if kind != "reports":
                    record = other.plan(WEEKLY.id)
                    assert record is not None
                    assert record.state == wanted
                    other.sweep()
                    other.move(WEEKLY.id, "published")
                assert (store, other)[message % 2].accept([*batches, *made[-4:]])[:2] == [None] * 2
                made += batches
            store.close()
        assert message > (4 if kind == "reports" else 12)
        check(other, made, window)
        other.close()

    def test_the_server_restarts(self, url: str, tmp_path: Path):
        """Everybody is disconnected; the next commit connects anew."""
        store = store_in(url, tmp_path / "first", FLAGS)
        made = [upload(FLAGS, 25, seed) for seed in range(4)]
        store.accept(made[:1])
        the_server().stop("immediate")
        for _ in range(2):
            with pytest.raises(StorageError, match="PostgreSQL cannot be used"):
                store.accept([made[1]])
        the_server().start()
        assert store.accept(made) == [None] * 4
        assert summed(released(store, FLAGS)) == tally_of(FLAGS, *made)
        store.close()


def check(store: Store, made: list[Any], window: dict[str, int]) -> None:
    """Check that the releases hold each report once."""
    for plan in (ENDLESS, WEEKLY):
        mine = [batch for batch in made if batch.plan_id == plan.id]
        if not mine:
            continue
        missing = -sum(map(len, mine)) % plan.reports_needed or plan.reports_needed
        mine.append(upload(plan, missing, 0, window[plan.id]))
        assert store.accept([mine[-1]]) == [None]
        tallies = released(store, plan)
        assert {one.reports for one in tallies} == {plan.reports_needed}
        assert summed(tallies) == tally_of(plan, *mine)


class TestServer:
    def test_a_url_that_is_none_is_not_shown(self, tmp_path: Path):
        with pytest.raises(InputError, match="database is a URL") as caught:
            store_in("postgresql://:secret@[", tmp_path / "first")
        assert "secret" not in str(caught.value)

    def test_nobody_there(self, tmp_path: Path):
        with pytest.raises(StorageError, match="PostgreSQL cannot be used") as caught:
            store_in("postgresql://shoal:secret@127.0.0.1:1/x", tmp_path / "first")
        assert "secret" not in str(caught.value)

    def test_commits_are_on_the_disk(self, url: str, tmp_path: Path):
        """Even if the database is set to answer before they are."""
        name = url.rpartition("/")[2]
        the_server().execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
        store = store_in(url, tmp_path / "first")
        assert store.database.execute("SHOW synchronous_commit").fetchone() == ("on",)
        store.close()

    def test_a_folder_with_data_of_its_own(self, url: str, tmp_path: Path):
        Store(tmp_path, clock=Clock()).close()
        with pytest.raises(InputError, match="shoal collector move"):
            store_in(url, tmp_path)

    def test_one_that_holds_a_lock_and_says_nothing(self, url: str, tmp_path: Path):
        """Others are told to try again, and are not kept for ever."""
        first = store_in(url, tmp_path / "first", FLAGS)
        impatient = f"{url}?options=-clock_timeout%3D100"
        second = store_in(impatient, second_folder(tmp_path / "first"))

        def meanwhile() -> None:
            with pytest.raises(StorageError, match="lock timeout"):
                second.accept([upload(FLAGS, 5, 1)])

        first.database.run("hold all plans", meanwhile)
        assert second.accept([upload(FLAGS, 5, 1)]) == [None]
        first.close()
        second.close()


KILLS = int(os.environ.get("TEST_POSTGRES_KILLS", "4"))
"""How many events befall two collectors and their database; no setting has such a name."""


class Mishaps:
    """Events that befall two collectors, each with a proxy before the database."""

    def __init__(self, url: str, served: list[Served], proxies: list[SilentProxy]) -> None:
        self._url, self._served, self._proxies = url, served, proxies
        self._chance = Random(8)
        self._kinds = (self.kill, self.restart, self.lose_connections, self.vanish)
        self.counts: Counter[str] = Counter()

    def happen(self, count: int) -> None:
        """Let so many events happen, of each kind equally many, in some order."""
        events = [self._kinds[k % len(self._kinds)] for k in range(count)]
        self._chance.shuffle(events)
        for event in events:
            time.sleep(self._chance.random())
            event()
            self.counts[event.__name__] += 1

    def kill(self) -> None:
        """A collector ends without a word, and is started again."""
        victim = self._chance.choice(self._served)
        victim.kill()
        time.sleep(self._chance.random() * 0.3)
        victim.start()

    def restart(self) -> None:
        """PostgreSQL crashes and comes back."""
        the_server().stop("immediate")
        time.sleep(self._chance.random())
        the_server().start()

    def lose_connections(self) -> None:
        """All connections to the database are cut."""
        the_server().lose_connections(self._url)

    def vanish(self) -> None:
        """The database's host vanishes, for one collector or both, and comes back.

        What was on its way arrives late, or never.
        """
        gone = self._chance.sample(self._proxies, self._chance.choice((1, 2)))
        for proxy in gone:
            proxy.fall_silent()
        time.sleep(self._chance.random() * 2 * PATIENCE)
        for proxy in gone:
            if self._chance.random() < 0.5:
                proxy.drop()
            proxy.heal()


PATIENCE = 2
"""The collectors' `store_timeout` in these events."""


class TestProcesses:
    """Two real collectors on one database, killed in turn while devices go on sending."""

    def test_kills_of_both(self, url: str, tmp_path: Path):
        with SilentProxy(the_server().port) as near, SilentProxy(the_server().port) as far:
            self.tell(url, tmp_path, [near, far])

    def tell(self, url: str, tmp_path: Path, proxies: list[SilentProxy]) -> None:
        name = url.rpartition("/")[2]
        first, second = (
            Served(
                tmp_path / folder, WIDE, "--store-timeout", str(PATIENCE),
                "--database", the_server().url(name, proxy.port),
            )
            for folder, proxy in zip(("first", "second"), proxies, strict=True)
        )  # fmt: skip
        mishaps = Mishaps(url, [first, second], proxies)
        with first, second:
            first.start()
            second_folder(tmp_path / "first")
            shutil.copy(first.folder / "admin-token", second.folder)
            second.start()
            devices = [
                Devices(one, seed) for seed, one in enumerate((first, first, second, second))
            ]
            # The same reports come at both: what one has counted the other must recognize.
            both = [Twice(first, second, 10), Twice(second, first, 11)]
            for one in (*devices, *both):
                one.start()
            mishaps.happen(KILLS)
            for one in (*devices, *both):
                one.finish()
            made = all_made([*devices, *both])
            made.append(filled_up(WIDE, made))
            assert first.post(made[-1]) == (202, "")
            assert [one.surprises for one in (*devices, *both)] == [[]] * 6
            assert second.stop() == 0
            assert first.stop() == 0
        store = store_in(url, first.folder, clock=time.time)
        tallies = released(store, WIDE)
        assert open_reports(store, WIDE) == 0
        assert {one.reports for one in tallies} == {WIDE.reports_needed}
        assert summed(tallies) == tally_of(WIDE, *made)
        store.close()
        longest = max(one.longest for one in (*devices, *both))
        print(f"{dict(mishaps.counts)}: {sum(map(len, made))} reports in {len(tallies)} crowds,")
        print(f"each in one; the longest answer took {longest:.1f} s")

    def test_a_plan_and_a_token_of_the_other_collector(self, url: str, tmp_path: Path):
        """A device that got a plan from one collector sends its report to the other."""
        first = Served(tmp_path / "first", WIDE, "--database", url)
        second = Served(tmp_path / "second", WIDE, "--database", url)
        with first, second:
            first.start()
            second_folder(tmp_path / "first")
            shutil.copy(first.folder / "admin-token", second.folder)
            second.start()
            plan = replace(make_plan(crowd=60), survey=Survey("another", FLAGS.survey.questions))
            first.ask("/v1/plans", plan.to_json())
            first.ask(f"/v1/plans/{plan.id}/publish?honest=all", {})
            connection = http.client.HTTPConnection(*second.address(), timeout=LONGEST)
            assert send(connection, upload(plan, 1, 1)) == (202, "")
            connection.close()
            crowds = second.ask(f"/v1/plans/{plan.id}/crowds")["crowds"]
            assert [crowd["state"] for crowd in crowds] == ["open"]


def test_names_that_somebody_made_up_are_soon_not_asked_for(url: str, tmp_path: Path):
    """Plans and tokens; what is known is answered as ever."""
    asked: list[str] = []

    async def told() -> list[int]:
        chosen = Settings(database=url, min_free_megabytes=0, min_crowd=1)
        async with Collector(tmp_path / "data", chosen) as collector:
            assert await collector.administration.add_plan(FLAGS) is None
            declared = Declaration(all_honest=True)
            assert await collector.administration.move_plan(FLAGS.id, "published", declared) is None
            collector._lookups.allowance = Allowance(6, lambda: 0.0)  # no time passes
            reload, look_up = collector.administration.reload, collector.service.tokens.look_up

            async def counted(plan_id: str) -> None:
                asked.append(plan_id)
                await reload(plan_id)

            def counted_token(secret: str) -> None:
                asked.append(secret)
                look_up(secret)

            collector.administration.reload = counted  # type: ignore[method-assign]
            collector.service.tokens.look_up = counted_token  # type: ignore[method-assign]
            transport = httpx.ASGITransport(collector.public)
            async with httpx.AsyncClient(transport=transport, base_url="http://c") as client:
                paths = [f"/v1/plans/{number:064x}" for number in range(5)]
                found = [(await client.get(path)).status_code for path in paths]
                token = {"authorization": "Bearer made-up"}
                other = {"authorization": "Bearer another"}
                known = f"/v1/plans/{FLAGS.id}"
                for headers in (token, other, {}):
                    found.append((await client.get(known, headers=headers)).status_code)
                found.append((await client.get(paths[0])).status_code)

                async def broken(plan_id: str) -> None:
                    raise StorageError("no connection.")

                # Then nobody knows whether there is such a plan, and a device must not give up.
                collector.administration.reload = broken  # type: ignore[method-assign]
                collector._lookups.allowance = Allowance(6, lambda: 0.0)
                found.append((await client.get(paths[0])).status_code)
                found.append((await client.get(known)).status_code)
        return found

    assert asyncio.run(told()) == [404] * 5 + [200, 503, 200, 503, 503, 200]
    assert len(asked) == 6


class Twice(Devices):
    """Devices that send what one collector has acknowledged to another one too."""

    def __init__(self, served: Served, other: Served, seed: int) -> None:
        super().__init__(served, seed)
        self._other = other

    def _repeat(self) -> None:
        self._served, self._other = self._other, self._served
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        super()._repeat()
