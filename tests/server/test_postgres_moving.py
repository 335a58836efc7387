"""From a folder to PostgreSQL, and out of it again in a backup."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from shoal.cli import run
from shoal.errors import InputError
from shoal.server.core.backup import back_up, restore
from shoal.server.core.tokens import Token, Tokens
from shoal.server.doctor.data_folder import check_database
from shoal.server.storage.database import NAME, SqlConnection, StorageError, transaction, write_fact
from shoal.server.storage.encryption import CROWD_KEY_FILE
from shoal.server.storage.import_sqlite import move
from shoal.server.storage.key_file import Signer
from shoal.server.storage.records import UnverifiedError
from shoal.server.storage.store import Store
from shoal.support.disk import Disk
from tests.server.postgres_help import needs_postgres, second_folder, store_in, the_server
from tests.server.store_help import (
    NOON,
    PLANS,
    Clock,
    open_reports,
    published,
    released,
    summed,
    tally_of,
    upload,
)
from tests.server.test_model import WEEK, WEEKLY

pytestmark = [needs_postgres, pytest.mark.system, pytest.mark.slow]

FLAGS, TEXT = PLANS["flags"], PLANS["text and flags"]
NOW = int(NOON // WEEK)


@pytest.fixture
def url() -> str:
    return the_server().new_database()


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A collector's folder with sealed and open crowds, reports that wait to be sealed, a token."""
    folder = tmp_path / "old"
    folder.mkdir()
    Signer(folder)
    with closing(published(folder, FLAGS, TEXT, WEEKLY)) as store:
        store.accept([upload(FLAGS, 70, 1), upload(TEXT, 33, 1), upload(WEEKLY, 6, 1, NOW)])
        store.sweep()
        store.accept([upload(FLAGS, 55, 2)])  # fills a crowd, which is not sealed yet
        Tokens(store.database.connection).add(Token.new("viewer", "reader"), "secret")
    return folder


def go_on(store: Store) -> None:
    """Everything is sent again, and the rest of each crowd: each report is in one release."""
    made = {
        FLAGS: [upload(FLAGS, 70, 1), upload(FLAGS, 55, 2)],
        TEXT: [upload(TEXT, 33, 1)],
        WEEKLY: [upload(WEEKLY, 6, 1, NOW)],
    }
    for plan, parts in made.items():
        missing = -sum(map(len, parts)) % plan.reports_needed
        parts.append(upload(plan, missing, 9, int(parts[0].windows[0])))
        assert store.accept(parts) == [None] * len(parts)
        assert open_reports(store, plan) == 0
        assert summed(released(store, plan)) == tally_of(plan, *parts)


def test_open_crowds_go_on_exactly(old: Path, url: str, tmp_path: Path, capsys):
    key = Signer(old).public_key
    assert run(["collector", "move", str(old), str(tmp_path / "new"), "--database", url]) == 0
    assert "Moved 3 plans, 1 released and" in capsys.readouterr().out
    assert Signer(tmp_path / "new").public_key == key
    with closing(store_in(url, tmp_path / "new")) as store:
        assert Tokens(store.database.connection).find("secret") is not None
        go_on(store)


def test_the_old_folder_does_not_start_again(old: Path, url: str, tmp_path: Path):
    from shoal.server.storage.import_sqlite import move

    copy = shutil.copytree(old, tmp_path / "copy")
    move(old, tmp_path / "new", url)
    assert not (old / CROWD_KEY_FILE).exists()
    with pytest.raises(InputError, match="were moved to PostgreSQL"):
        Store(old, clock=Clock())
    shutil.copy(copy / CROWD_KEY_FILE, old)  # not with its key either
    with pytest.raises(InputError, match="were moved to PostgreSQL"):
        Store(old, clock=Clock())


@pytest.mark.parametrize("when", ["before the commit", "after the commit"])
def test_interrupted_it_goes_on(when: str, old: Path, url: str, tmp_path: Path, monkeypatch):
    """The old folder is marked by then, and the database has nothing, or everything."""
    from shoal.server.storage import import_sqlite as moving

    def writing(database: SqlConnection, name: str, value: str) -> None:
        if name == "moved_from":
            raise StorageError("the connection to PostgreSQL was lost.")
        write_fact(database, name, value)

    def counting(database: SqlConnection) -> None:
        raise StorageError("the connection to PostgreSQL was lost.")

    if when == "before the commit":
        monkeypatch.setattr(moving, "write_fact", writing)
    else:
        monkeypatch.setattr(moving, "_counted", counting)
    with pytest.raises(StorageError, match="was lost"):
        moving.move(old, tmp_path / "new", url)
    monkeypatch.undo()
    with pytest.raises(InputError, match="were moved to PostgreSQL"):
        Store(old, clock=Clock())
    assert moving.move(old, tmp_path / "new", url).plans == 3
    assert moving.move(old, tmp_path / "new", url).plans == 3
    with closing(store_in(url, tmp_path / "new")) as store:
        go_on(store)


def test_interrupted_it_does_not_go_elsewhere(old: Path, url: str, tmp_path: Path, monkeypatch):
    """One state in two databases would be released twice."""
    from shoal.server.storage import import_sqlite as moving

    def removing(self: Disk, path: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Disk, "remove", removing)
        with pytest.raises(KeyboardInterrupt):
            moving.move(old, tmp_path / "new", url)
    assert (old / CROWD_KEY_FILE).exists()
    with pytest.raises(InputError, match="was being moved to another database"):
        moving.move(old, tmp_path / "elsewhere", the_server().new_database())
    with pytest.raises(InputError, match=r"there is no .*elsewhere"):
        moving.move(old, tmp_path / "elsewhere", url)
    assert moving.move(old, tmp_path / "new", url).plans == 3
    assert not (old / CROWD_KEY_FILE).exists()


def test_the_key_that_is_copied_does_not_begin_an_empty_database(
    old: Path, url: str, tmp_path: Path
):
    from shoal.server.storage.import_sqlite import move

    move(old, tmp_path / "new", url)
    with pytest.raises(InputError, match="belongs to other data"):
        store_in(the_server().new_database(), second_folder(tmp_path / "new"))
    with closing(store_in(url, tmp_path / "new")) as store:
        go_on(store)


def test_what_is_not_moved(old: Path, url: str, tmp_path: Path):
    from shoal.server.storage.import_sqlite import move

    store_in(url, tmp_path / "other", FLAGS).close()
    with pytest.raises(InputError, match="holds a collector's data; name an empty one"):
        move(old, tmp_path / "new", url)
    with pytest.raises(InputError, match="name a new folder"):
        move(old, old, url)
    Store(old, clock=Clock()).close()  # it goes on where it is
    with pytest.raises(InputError, match="holds a collector's"):
        move(published_folder(tmp_path), tmp_path / "other", the_server().new_database())


def published_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "third"
    folder.mkdir()
    published(folder, FLAGS).close()
    return folder


def test_a_backup_of_the_database_restores_into_a_folder(url: str, tmp_path: Path):
    """Releases come back; open crowds are discarded, as from any backup."""
    store = store_in(url, tmp_path / "first", FLAGS)
    Signer(tmp_path / "first")
    store.accept([upload(FLAGS, 70, 1)])
    release = store.release(FLAGS.id, 1)
    made = back_up(tmp_path / "first", tmp_path / "shoal.backup", url=url, clock=Clock())
    assert restore(made, tmp_path / "restored", clock=Clock()).closed == [FLAGS.id]
    with closing(Store(tmp_path / "restored", clock=Clock())) as again:
        assert again.release(FLAGS.id, 1) == release
        assert [crowd.state for crowd in again.crowds(FLAGS.id)] == ["released", "discarded"]
    with transaction(store.database.connection):  # it is not in the way of the collector
        pass
    store.close()


def test_a_release_that_the_operator_of_the_database_changed_is_refused(
    old: Path, url: str, tmp_path: Path
):
    """Signatures are moved too; whoever can write to the database cannot make one."""
    move(old, tmp_path / "new", url)
    with closing(store_in(url, tmp_path / "new")) as store:
        content = store.release(FLAGS.id, 1)
        assert content is not None
        checks = {one.check: one for one in check_database(tmp_path / "new", url)}
        assert checks["signatures"].verdict == "ok"
        with transaction(store.database.connection):
            store.database.execute("ALTER TABLE crowds DISABLE TRIGGER ALL")
            store.database.execute(
                "UPDATE crowds SET release = ? WHERE plan = ? AND number = 1",
                (content.replace(b"1", b"2"), FLAGS.id),
            )
        with pytest.raises(UnverifiedError):
            store.release(FLAGS.id, 1)
    checks = {one.check: one for one in check_database(tmp_path / "new", url)}
    assert checks["signatures"].verdict == "fail"


def test_a_damaged_release_does_not_become_whole_by_a_move(old: Path, url: str, tmp_path: Path):
    with closing(sqlite3.connect(old / NAME, isolation_level=None)) as database:
        database.execute("DROP TRIGGER releases_are_final")
        database.execute("UPDATE crowds SET release = replace(release, '1', '2')")
    move(old, tmp_path / "new", url)
    with closing(store_in(url, tmp_path / "new")) as store, pytest.raises(UnverifiedError):
        store.release(FLAGS.id, 1)
