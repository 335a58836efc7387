"""A standby takes over that lacks commits: what a collector has seen is not undone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from shoal.server.storage.database import StorageError, read_fact
from shoal.server.storage.encryption import CROWD_KEY_FILE
from tests.server.postgres_help import (
    Server,
    needs_postgres,
    second_folder,
    store_in,
    the_server,
    wait_for,
)
from tests.server.store_help import make_plan, open_reports, upload

pytestmark = [needs_postgres, pytest.mark.system, pytest.mark.slow]

SMALL = make_plan(crowd=3)
NEEDED = SMALL.reports_needed


@pytest.fixture
def url() -> str:
    return the_server().new_database()


def name_of(url: str) -> str:
    return url.rpartition("/")[2]


def standby_of(url: str) -> str:
    """Make a standby as it is now, which gets no later commits; return its name."""
    name = f"{name_of(url)}_standby"
    the_server().execute(f"CREATE DATABASE {name} TEMPLATE {name_of(url)}")
    return name


def fail_over(url: str, standby: str) -> None:
    """Let the standby take over, under the same URL."""
    the_server().execute(f"DROP DATABASE {name_of(url)} WITH (FORCE)")
    the_server().execute(f"ALTER DATABASE {standby} RENAME TO {name_of(url)}")


def disconnect(*stores: Any) -> None:
    """Let go of connections: a database that is in use cannot be copied."""
    for store in stores:
        store.database.close()


class TestSealing:
    """A crowd was sealed, and the standby does not know of it."""

    def test_who_has_followed_does_not_seal_it_again(self, url: str, tmp_path: Path):
        """Its file is settled at once, so it does not after a restart either."""
        one = store_in(url, tmp_path / "first", SMALL)
        two = store_in(url, second_folder(tmp_path / "first"))
        one.database.keep_up()
        one.accept([upload(SMALL, NEEDED - 1, 1)])
        disconnect(one, two)
        standby = standby_of(url)
        one.accept([upload(SMALL, 1, 2)])
        one.sweep()
        assert one.released_numbers(SMALL.id, 9) == [1]
        two.accept([upload(SMALL, 1, 3)])
        fail_over(url, standby)
        for store in (one, two):
            with pytest.raises(StorageError, match=r"connection|cannot be used"):
                store.accept([upload(SMALL, 1, 4)])
            for _ in range(2):
                with pytest.raises(StorageError, match="is older than"):
                    store.accept([upload(SMALL, 1, 4)])
            for work in (store.sweep, lambda store=store: store.release(SMALL.id, 1)):
                with pytest.raises(StorageError, match="is older than"):
                    work()
            store.close()
        with pytest.raises(StorageError, match="is older than"):
            store_in(url, tmp_path / "second")

    def test_a_standby_that_went_on_by_itself_is_refused(self, url: str, tmp_path: Path):
        """Another collector turned it on, past the generation that this one has seen."""
        one = store_in(url, tmp_path / "first", SMALL)
        two = store_in(url, second_folder(tmp_path / "first"))
        behind = second_folder(tmp_path / "second", "third")
        filed = (two.folder / CROWD_KEY_FILE).read_text()
        disconnect(one, two)
        standby = standby_of(url)
        one.sweep()
        # It has seen it, and was not yet able to write it down.
        two.database.read("look", lambda: None)
        assert (two.folder / CROWD_KEY_FILE).read_text() == filed
        one.close()
        fail_over(url, standby)
        three = store_in(url, behind)
        for _ in range(3):
            three.sweep()
        three.close()
        with pytest.raises(StorageError, match=r"connection|cannot be used"):
            two.accept([upload(SMALL, 1, 1)])
        with pytest.raises(StorageError, match="is not of this database"):
            two.accept([upload(SMALL, 1, 1)])
        two.close()


class TestTimeLines:
    """A collector that had no contact between the last commit and the failover."""

    @pytest.fixture
    def server(self) -> Iterator[Server]:
        server = Server()
        yield server
        server.remove()

    def test_a_standby_that_may_lack_commits_is_refused_until_keys_are_renewed(
        self, server: Server, tmp_path: Path
    ):
        from shoal.server.storage.postgres import renew

        url = server.new_database()
        store = store_in(url, tmp_path / "first", SMALL, clock=time.time)
        store.database.close()
        server.begin_time_line()
        with pytest.raises(StorageError, match="replaced by a standby that may lack commits"):
            store.accept([upload(SMALL, 1, 1)])
        store.close()
        with pytest.raises(StorageError, match="replaced by a standby that may lack commits"):
            store_in(url, tmp_path / "first")
        assert renew(tmp_path / "first", url).closed == [SMALL.id]
        store_in(url, tmp_path / "first").close()

    def test_one_that_the_server_waited_for_goes_on(self, server: Server, tmp_path: Path):
        url = server.new_database()
        store = store_in(url, tmp_path / "first", SMALL)
        assert read_fact(store.database.connection, "timeline") == "00000001"
        server.execute("ALTER SYSTEM SET synchronous_standby_names = 'other'")
        server.execute("SELECT pg_reload_conf()")
        wait_for(lambda: store.database.execute(
            "SHOW synchronous_standby_names").fetchone() == ("other",))  # fmt: skip
        noted = []

        def work() -> None:
            store.database.keys.rotate()
            noted.append(read_fact(store.database.connection, "timeline"))
            raise KeyboardInterrupt  # there is no standby that a commit could wait for

        with suppress(KeyboardInterrupt):
            store.database.run("rotate", work)
        assert noted == [""]
        server.execute("ALTER SYSTEM RESET synchronous_standby_names")
        server.execute("SELECT pg_reload_conf()")
        server.execute("UPDATE facts SET value = '' WHERE name = 'timeline'", name_of(url))
        store.database.close()
        server.begin_time_line()
        assert store.accept([upload(SMALL, 1, 1)]) == [None]
        store.sweep()
        assert read_fact(store.database.connection, "timeline") == "00000002"
        store.close()


class TestMemory:
    """Reports were counted, and the standby does not know of them; no key has changed since."""

    def test_after_as_many_commits_on_both(self, url: str, tmp_path: Path):
        """The standby goes on and seals the crowd; its reports are not counted once more."""
        one = store_in(url, tmp_path / "first", SMALL)
        two = store_in(url, second_folder(tmp_path / "first"))
        for store in (two, one):
            store.accept([upload(SMALL, 1, 1)])
            store.database.keep_up()
        disconnect(one, two)
        standby = standby_of(url)
        for _ in range(2):
            one.accept([upload(SMALL, 1, 2)])
        disconnect(two)
        fail_over(url, standby)
        rest = upload(SMALL, NEEDED - 1, 3)
        two.accept([rest])
        two.sweep()
        with pytest.raises(StorageError, match=r"connection|cannot be used"):
            one.accept([rest])
        one.accept([rest])  # its sender did not see the other one's answer
        for store in (one, two):
            assert open_reports(store, SMALL) == 0
            assert store.released_numbers(SMALL.id, 9) == [1]
            store.close()

    def test_a_row_of_digests_that_is_full_with_others(self, url: str, tmp_path: Path):
        plan = make_plan(crowd=2000)
        one = store_in(url, tmp_path / "first", plan)
        two = store_in(url, second_folder(tmp_path / "first"))
        for store in (one, two):
            store.accept([upload(plan, 479, 1)])
        disconnect(one, two)
        standby = standby_of(url)
        one.accept([upload(plan, 2, 2)])
        disconnect(two)
        fail_over(url, standby)
        counted = [upload(plan, 1, seed) for seed in (3, 4)]
        for part in counted:
            two.accept([part])
        with pytest.raises(StorageError, match=r"connection|cannot be used"):
            one.accept(counted)
        one.accept(counted)
        for store in (one, two):
            assert open_reports(store, plan) == 481
            store.close()

    def test_versions_tell_databases_apart_though_the_connection_stays(
        self, url: str, tmp_path: Path
    ):
        """Behind a pool a connection outlives its server."""
        one = store_in(url, tmp_path / "first", SMALL)
        versions = set()
        for seed in range(4):
            one.accept([upload(SMALL, 1, seed)])
            versions |= set(one.database.execute("SELECT version FROM plans").fetchall())
        assert len(versions) == 4
        assert min(versions)[0] > 1000  # false alarm: 4e-16
        one.close()
