"""Data and backups that Shoal 0.1.0 wrote become this version's, and nothing is lost or told."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from shoal.agreement.plan import Plan
from shoal.collector.backup import back_up, restore
from shoal.collector.consistency import check_signer
from shoal.collector.console.tokens import Tokens
from shoal.collector.intake.database import NAME, VERSION
from shoal.collector.intake.encryption import CROWD_KEY_FILE
from shoal.collector.intake.store import Store
from shoal.collector.signing import KEY_FILE
from shoal.errors import InputError
from tests.collector.store_help import (
    NOON,
    Clock,
    data_bytes,
    open_crowds,
    released,
    summed,
    tally_of,
    upload,
)

WEEK = 7 * 86_400
NOW = NOON // WEEK
WRITTEN = json.loads((Path(__file__).parents[1] / "data" / "version_1.json").read_text())


def write(part: dict[str, Any], path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.executescript("\n".join(part["sql"]))
        database.execute(f"PRAGMA user_version = {part['user_version']}")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder as Shoal 0.1.0 left it."""
    made = tmp_path / "data"
    made.mkdir()
    write(WRITTEN["data"], made / NAME)
    (made / KEY_FILE).write_text(WRITTEN["signing_key"])
    return made


def plans_of(store: Store) -> list[Plan]:
    found = [store.plan(plan_id) for plan_id in WRITTEN["plans"]]
    return [kept.plan for kept in found if kept is not None]


def test_everything_is_counted_once(folder: Path):
    with closing(Store(folder, clock=Clock())) as store:
        endless, weekly = plans_of(store)
        assert store.database.execute("PRAGMA user_version").fetchone() == (VERSION,)
        assert open_crowds(store, endless) == {0: 33}
        assert open_crowds(store, weekly) == {NOW - 1: 0, NOW: 37, NOW + 1: 0}
        releases = [store.release(endless.id, 1), store.release(weekly.id, 2)]
        assert [one.decode() for one in releases if one] == WRITTEN["releases"]
        sent = [upload(weekly, 1, seed, NOW) for seed in range(77)]
        store.accept([upload(endless, 83, 1), *sent])
        assert open_crowds(store, endless) == {0: 33}
        assert open_crowds(store, weekly)[NOW] == 37
        rest = [upload(endless, 17, 5), upload(weekly, 3, 600, NOW)]
        store.accept(rest)
        assert summed(released(store, endless)) == tally_of(
            endless, upload(endless, 83, 1), rest[0]
        )
        assert summed(released(store, weekly)) == tally_of(weekly, *sent, rest[1])
        assert Tokens(store.database).find("secret of an analyst") is not None
        assert check_signer(store.database, folder).public_key == WRITTEN["public_key"]


def test_nothing_of_an_open_crowd_stays_readable(folder: Path):
    with closing(sqlite3.connect(folder / NAME)) as database:
        secrets = [bytes(key) for (key,) in database.execute("SELECT key FROM window_keys")]
        for (chunk,) in database.execute("SELECT digests FROM seen"):
            secrets += [chunk[at : at + 16] for at in range(0, len(chunk), 16)]
        counts = [bytes(row[0]) for row in database.execute("SELECT numbers FROM counts")]
        secrets += [numbers for numbers in counts if len(set(numbers)) > 3]
    assert len(secrets) > 160
    assert all(secret in data_bytes(folder) for secret in secrets)
    with closing(Store(folder, clock=Clock())):
        assert not any(secret in data_bytes(folder) for secret in secrets)
    assert not any(secret in data_bytes(folder) for secret in secrets)


def test_a_killed_upgrade_is_done_again(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """The key is in its file, and the database is what it was."""

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("shoal.collector.intake.upgrades._encrypt_digests", dies)
    with pytest.raises(KeyboardInterrupt):
        Store(folder, clock=Clock())
    monkeypatch.undo()
    assert (folder / CROWD_KEY_FILE).exists()
    test_everything_is_counted_once(folder)


def test_an_upgraded_folder_does_not_take_the_old_database_back(folder: Path):
    before = (folder / NAME).read_bytes()
    Store(folder, clock=Clock()).close()
    (folder / NAME).write_bytes(before)
    with pytest.raises(InputError, match="is older than"):
        Store(folder, clock=Clock())


def test_a_backup_is_restored(tmp_path: Path):
    write(WRITTEN["backup"], tmp_path / "backup")
    restored = restore(tmp_path / "backup", tmp_path / "new", clock=Clock())
    endless, weekly = WRITTEN["plans"]
    assert restored.closed == [endless]
    assert restored.waiting == {weekly: (NOW + 2) * WEEK}
    with closing(Store(tmp_path / "new", clock=Clock())) as store:
        assert [store.release(endless, 1), store.release(weekly, 2)] == [
            release.encode() for release in WRITTEN["releases"]
        ]
        assert check_signer(store.database, tmp_path / "new").public_key == WRITTEN["public_key"]


def test_old_data_are_backed_up(folder: Path, tmp_path: Path):
    back_up(folder, tmp_path / "backup", clock=Clock())
    restore(tmp_path / "backup", tmp_path / "new", clock=Clock())
    with closing(Store(tmp_path / "new", clock=Clock())) as store:
        assert store.release(WRITTEN["plans"][0], 1) == WRITTEN["releases"][0].encode()
