"""What PostgreSQL keeps tells nothing of an open crowd, and old data are not taken for new ones."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal import Flags
from shoal.errors import InputError
from shoal.server.core import problems
from shoal.server.core.clock import GuardedClock
from shoal.server.storage.database import StorageError
from shoal.server.storage.encryption import CROWD_KEY_FILE, decrypt
from shoal.server.storage.store import Store
from tests.server.postgres_help import Server, needs_postgres, second_folder, store_in, the_server
from tests.server.store_help import (
    DAY,
    NOON,
    PLANS,
    Clock,
    make_plan,
    released,
    summed,
    tally_of,
    upload,
)
from tests.server.test_model import WEEK, WEEKLY

pytestmark = [needs_postgres, pytest.mark.system, pytest.mark.slow]

FLAGS = PLANS["flags"]
WIDE = make_plan(Flags("f", tuple(f"option {number}" for number in range(80))), crowd=300)


@pytest.fixture
def url() -> str:
    return the_server().new_database()


def name_of(url: str) -> str:
    return url.rpartition("/")[2]


def copied(url: str) -> str:
    """Return a copy of a database as it is now, as a backup of the server would hold it."""
    copy = f"{name_of(url)}_copy"
    the_server().execute(f"DROP DATABASE IF EXISTS {copy}")
    the_server().execute(f"CREATE DATABASE {copy} TEMPLATE {name_of(url)}")
    return the_server().url(copy)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server of their own: the log of the shared one grows with every test."""
    own = Server()
    yield own
    own.remove()


class TestRemnants:
    """Tables, their dead rows, indexes and the write-ahead log, searched byte by byte."""

    @pytest.fixture
    def story(self, server: Server, tmp_path: Path) -> Iterator[dict[str, Any]]:
        """Count reports one by one at two collectors, and note every state on the way."""
        url = server.new_database()
        stores = [store_in(url, tmp_path / "first", WIDE)]
        stores.append(store_in(url, second_folder(tmp_path / "first")))
        plain: list[bytes] = []
        ciphertexts: list[bytes] = []
        wrapped: list[tuple[str, bytes]] = []
        for seed in range(60):
            store = stores[seed % 2]
            batch = upload(WIDE, 1, seed)
            assert store.accept([batch]) == [None]
            open_plan = store._plans.known()[WIDE.id]
            crowd = open_plan._crowds[0]
            numbers = crowd.counts._table.numbers
            plain += [numbers[start : start + 8].astype("<u4").tobytes() for start in (2, 40, 100)]
            plain += [batch.ids.tobytes(), batch.rows.tobytes(), crowd.key]
            window_key = open_plan._seen[0]._key
            digest = blake2b(batch.ids.tobytes(), digest_size=16, key=window_key).digest()[:8]
            root = store.database.keys._root.current()
            plain += [digest, window_key, root, root.hex().encode()]
            query = "SELECT numbers FROM counts WHERE plan = ?"
            ciphertexts += [row[0] for row in store.database.execute(query, (WIDE.id,))]
            query = "SELECT kind, wrapped FROM wrapped_keys WHERE plan = ? AND number = 1"
            wrapped += store.database.execute(query, (WIDE.id,)).fetchall()
            if seed % 20 == 19:
                store.sweep()
        yield {"stores": stores, "plain": plain, "sealed": ciphertexts, "wrapped": wrapped}
        for store in stores:
            store.close()

    def test_nothing_plain_is_left(self, server: Server, story: dict[str, Any]):
        """Every count has more than eight bytes that are not zero by then, every id sixteen.

        False alarm: 60 digests of 8 random bytes, in less than 2^28 bytes: 60 * 2^28 / 2^64 < 1e-9.
        """
        plain = {one for one in story["plain"] if len(set(one)) > 4}
        assert len(plain) > 250
        left = server.content()
        assert len(left) < 1 << 28
        # The search can find something: overwritten states are there, encrypted.
        overwritten = [one for one in set(story["sealed"][:-1]) if one[:200] in left]
        assert len(overwritten) > 40
        assert not [one for one in plain if one in left]

    def test_old_states_cannot_be_read_with_the_key_of_today(self, story: dict[str, Any]):
        """The key of a crowd, as it was wrapped before a sweep, is noise by now."""
        store = story["stores"][0]
        key = store.database.read("read the key", store.database.keys._root.current)
        for kind, wrapped in story["wrapped"]:
            with pytest.raises(StorageError):
                decrypt(key, wrapped, f"{WIDE.id} {kind} 1")
        assert len(story["wrapped"]) > 50

    def test_what_is_written_has_one_length(self, story: dict[str, Any]):
        assert len({len(one) for one in story["sealed"]}) == 1
        assert len(set(story["sealed"])) == len(story["sealed"])
        store = story["stores"][0]
        query = "SELECT DISTINCT length(digests) FROM seen"
        assert len(store.database.execute(query).fetchall()) == 1


class TestLostState:
    """Data that forgot what was counted are refused: a report would be in two releases."""

    def test_an_older_database(self, url: str, tmp_path: Path):
        store = store_in(url, tmp_path / "first", FLAGS)
        store.accept([upload(FLAGS, 20, 1)])
        store.close()
        older = copied(url)
        again = store_in(url, tmp_path / "first")
        again.accept([upload(FLAGS, 20, 2)])
        again.sweep()
        again.close()
        with pytest.raises(StorageError, match=r"is older than .*crowd-key, or another"):
            store_in(older, tmp_path / "first")
        store_in(url, tmp_path / "first").close()

    def test_an_older_database_in_the_place_of_the_running_one(self, url: str, tmp_path: Path):
        """The server is restored under collectors that run; every later commit is refused."""
        store = store_in(url, tmp_path / "first", FLAGS)
        store.accept([upload(FLAGS, 20, 1)])
        store.database.close()
        older = copied(url)
        store.sweep()
        store.accept([upload(FLAGS, 20, 2)])
        store.database.close()
        the_server().execute(f"DROP DATABASE {name_of(url)} WITH (FORCE)")
        the_server().execute(f"ALTER DATABASE {name_of(older)} RENAME TO {name_of(url)}")
        for _ in range(2):
            with pytest.raises(StorageError, match="is older than"):
                store.accept([upload(FLAGS, 20, 2)])
        with pytest.raises(StorageError, match="is older than"):
            store.sweep()
        store.close()

    def test_a_database_that_went_its_own_way(self, url: str, tmp_path: Path):
        """A collector that was behind did not see that the data are old, and went on with them.

        Whoever has seen more does not join it.
        """
        first = store_in(url, tmp_path / "first", FLAGS)
        behind = second_folder(tmp_path / "first")
        first.accept([upload(FLAGS, 20, 1)])
        first.close()
        older = copied(url)
        first = store_in(url, tmp_path / "first")
        first.accept([upload(FLAGS, 20, 2)])
        first.sweep()
        first.close()
        other = store_in(older, behind)
        for _ in range(5):
            other.sweep()
        other.close()
        with pytest.raises(StorageError, match="is not of this database"):
            store_in(older, tmp_path / "first")

    def test_another_database(self, url: str, tmp_path: Path):
        store_in(url, tmp_path / "first", FLAGS).close()
        other = the_server().new_database()
        with pytest.raises(InputError, match="belongs to other data"):
            store_in(other, tmp_path / "first")
        store_in(other, tmp_path / "other", FLAGS).close()
        with pytest.raises(StorageError, match=r"is older than|is not of this database"):
            store_in(other, tmp_path / "first")

    def test_no_key(self, url: str, tmp_path: Path):
        """A new collector gets the key of another one; it does not begin anew by itself."""
        store_in(url, tmp_path / "first", FLAGS).close()
        with pytest.raises(InputError, match="copy crowd-key and signing-key"):
            store_in(url, tmp_path / "second")
        assert not (tmp_path / "second" / CROWD_KEY_FILE).exists()

    @pytest.mark.parametrize("content", ["", "x", "3 00", "1 2 3", "- " + "0" * 64])
    def test_a_damaged_key(self, content: str, url: str, tmp_path: Path):
        store_in(url, tmp_path / "first", FLAGS).close()
        (tmp_path / "first" / CROWD_KEY_FILE).write_text(content)
        with pytest.raises(StorageError, match="holds no key"):
            store_in(url, tmp_path / "first")

    def test_a_key_too_old_to_follow(self, url: str, tmp_path: Path, monkeypatch):
        from shoal.server.storage import postgres

        monkeypatch.setattr(postgres, "KEPT", 5)
        first = store_in(url, tmp_path / "first", FLAGS)
        behind = second_folder(tmp_path / "first")
        for _ in range(4):
            first.sweep()
        second = store_in(url, behind)
        second.close()
        for _ in range(10):
            first.sweep()
        with pytest.raises(StorageError, match="older than the state in the database"):
            store_in(url, behind)
        shutil.copy(first.folder / CROWD_KEY_FILE, behind)
        store_in(url, behind).close()
        first.close()

    def test_killed_between_the_first_key_and_the_database(self, url: str, tmp_path: Path):
        """The file is there, the database knows nothing of it: the next start goes on."""
        folder = tmp_path / "first"
        folder.mkdir()
        (folder / CROWD_KEY_FILE).write_text(f"0 {'ab' * 32}\n")
        store_in(url, folder, FLAGS).close()

    def test_renewing(self, url: str, tmp_path: Path, monkeypatch):
        """Open crowds are given up; only reports that nobody can have sent before are accepted."""
        from shoal.server.storage import postgres
        from shoal.server.storage.postgres import renew

        clock = Clock()
        monkeypatch.setattr(postgres, "_database_time", lambda database: clock())
        store = store_in(url, tmp_path / "first", FLAGS, WEEKLY, clock=clock)
        second_folder(tmp_path / "first")
        window = int(NOON // WEEK)
        store.accept([upload(FLAGS, 60, 1), upload(WEEKLY, 3, 1, window)])
        release = store.release(FLAGS.id, 1)
        store.close()
        (tmp_path / "first" / CROWD_KEY_FILE).unlink()
        restoration = renew(tmp_path / "first", url, clock=clock)
        assert restoration.closed == [FLAGS.id]
        assert restoration.waiting == {WEEKLY.id: (window + 2) * WEEK}
        again = store_in(url, tmp_path / "first", clock=clock)
        assert again.release(FLAGS.id, 1) == release
        assert again.accept([upload(FLAGS, 5, 1)]) == [problems.PLAN_CLOSED]
        late = upload(WEEKLY, 3, 1, window)
        assert again.accept([late]) == [problems.WINDOW_EXPIRED]
        clock.now += 2 * WEEK
        fresh = upload(WEEKLY, WEEKLY.reports_needed, 5, window + 2)
        assert again.accept([fresh]) == [None]
        assert summed(released(again, WEEKLY)) == tally_of(WEEKLY, fresh)
        # Who has not got the new key stays out.
        with pytest.raises(StorageError, match=r"is older than|is not of this database"):
            store_in(url, tmp_path / "second", clock=clock)
        again.close()


class TestRenewing:
    """No clock makes it believe that a window has not begun for which reports were counted."""

    def test_a_clock_that_is_behind(self, url: str, tmp_path: Path):
        from shoal.server.storage.postgres import renew

        store_in(url, tmp_path / "first", WEEKLY).close()
        key = (tmp_path / "first" / CROWD_KEY_FILE).read_text()
        with pytest.raises(InputError, match="clock here and that of the database differ"):
            renew(tmp_path / "first", url, clock=lambda: time.time() - 3 * DAY)
        assert (tmp_path / "first" / CROWD_KEY_FILE).read_text() == key
        store_in(url, tmp_path / "first").close()  # nothing has happened

    @pytest.mark.parametrize(
        ("here", "there", "stored"), [(-300, -300, 0), (-840, -300, 0), (-2000, -2000, -300)]
    )
    def test_the_latest_of_all_clocks_counts(
        self, here: int, there: int, stored: int, url: str, tmp_path: Path, monkeypatch
    ):
        """Before a window began, a collector whose clock was ahead took reports for the next."""
        from shoal.server.storage import postgres
        from shoal.server.storage.postgres import renew

        window = int(NOON // WEEK) + 1
        begin = window * WEEK
        clock = Clock(begin + 240)
        store = store_in(url, tmp_path / "first", WEEKLY, clock=clock)
        early = upload(WEEKLY, WEEKLY.reports_needed, 1, window + 1)
        assert store.accept([early]) == [None]
        if stored:
            store.database.execute("INSERT INTO facts VALUES ('time', ?)", (str(begin + stored),))
        store.close()
        monkeypatch.setattr(postgres, "_database_time", lambda database: begin + there)
        restoration = renew(tmp_path / "first", url, clock=lambda: begin + here)
        assert restoration.waiting == {WEEKLY.id: (window + 2) * WEEK}
        again = store_in(url, tmp_path / "first", clock=clock)
        assert again.accept([early]) == [problems.WINDOW_EXPIRED]
        again.close()

    def test_the_key_that_is_copied_does_not_begin_an_empty_database(
        self, url: str, tmp_path: Path
    ):
        from shoal.server.storage.postgres import renew

        renew(tmp_path / "first", url)
        second = second_folder(tmp_path / "first")
        store_in(url, second).close()
        for folder in ("first", "second"):
            with pytest.raises(InputError, match="belongs to other data"):
                store_in(the_server().new_database(), tmp_path / folder)


class TestVersions:
    def test_newer_data_are_refused(self, url: str, tmp_path: Path):
        store = store_in(url, tmp_path / "first")
        store.database.execute("UPDATE facts SET value = '99' WHERE name = 'version'")
        store.close()
        with pytest.raises(InputError, match="have version 99"):
            store_in(url, tmp_path / "first")


def test_clocks_that_differ(url: str, tmp_path: Path):
    """Windows are shared: a collector whose clock is elsewhere would close them for all."""
    ahead = [0.0]

    def wall() -> float:
        return time.time() + ahead[0]

    store = store_in(url, tmp_path / "first", clock=GuardedClock(wall=wall))
    store.close()
    ahead[0] = 2 * 86_400.0
    with pytest.raises(InputError, match="clock here and that of the database differ"):
        store_in(url, tmp_path / "first", clock=GuardedClock(wall=wall, boot=lambda: "other"))


def test_after_four_days_off(url: str, tmp_path: Path):
    """The database's clock confirms the own one; nothing is destroyed for a while all the same."""
    store = store_in(url, tmp_path / "first", clock=GuardedClock(boot=lambda: "one"))
    store.sweep()
    store.database.execute(
        "UPDATE facts SET value = (value::bigint - 4 * 86400)::text WHERE name = 'time'"
    )
    store.close()
    clock = GuardedClock(boot=lambda: "two")
    store_in(url, tmp_path / "first", clock=clock).close()
    assert not clock.is_held
    assert not clock.is_settled


def test_numbers_of_rows(url: str, tmp_path: Path):
    """A repeated report writes the same rows as a new one."""
    store = store_in(url, tmp_path / "first", FLAGS)
    parts = [upload(FLAGS, 1, seed) for seed in range(5)]
    written = []
    for part in parts + parts:
        before = rows_written(store)
        store.accept([part])
        written.append(tuple(np.subtract(rows_written(store), before).tolist()))
    assert len(set(written)) == 1
    assert sum(written[0]) >= 6
    store.close()


def rows_written(store: Store) -> list[int]:
    """Return how often each table's rows were inserted, updated and deleted by now."""
    query = (
        "SELECT n_tup_ins, n_tup_upd, n_tup_del FROM pg_stat_user_tables"
        " WHERE relname IN ('counts', 'seen', 'crowds', 'wrapped_keys') ORDER BY relname"
    )
    store.database.execute("SELECT pg_stat_force_next_flush()")
    return [int(number) for row in store.database.execute(query) for number in row]
