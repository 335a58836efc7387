"""Data of earlier versions go on: releases, open crowds, and which reports have come.

`tests/data/generate_collector_data.py` wrote the archives, each with the Shoal of its version.
"""

from __future__ import annotations

import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path

import pytest

from shoal.analysis.report_rows import Batch, parse_batch
from shoal.collector.backup import back_up, restore
from shoal.collector.console.tokens import Tokens
from shoal.collector.doctor.data_folder import check_folder
from shoal.collector.intake import schema as schemas
from shoal.collector.intake.database import NAME, StorageError, open_database
from shoal.collector.intake.schema import COLLECTOR, VERSION, Schema
from shoal.collector.intake.store import Store
from shoal.collector.relay.schema import RELAY
from shoal.errors import InputError
from tests.collector.store_help import (
    Clock,
    make_plan,
    nameless,
    released,
    summed,
    tally_of,
    upload,
)

ARCHIVES = Path(__file__).parents[1] / "data"
VERSIONS = sorted(
    int(path.name.removeprefix("collector_version_").removesuffix(".tar.xz"))
    for path in ARCHIVES.glob("collector_version_*.tar.xz")
)
EARLIER = [version for version in VERSIONS if version < VERSION]
PLAN = make_plan(crowd=50)


def extracted(version: int, folder: Path) -> Path:
    with tarfile.open(ARCHIVES / f"collector_version_{version}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


def reports_of(folder: Path) -> Batch:
    return parse_batch(PLAN, (folder / "reports").read_bytes())


def release_in(folder: Path) -> bytes:
    with closing(sqlite3.connect(folder / "data" / NAME)) as database:
        (release,) = database.execute("SELECT release FROM crowds WHERE number = 1").fetchone()
    assert isinstance(release, bytes)
    return release


def version_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as database:
        return int(database.execute("PRAGMA user_version").fetchone()[0])


def layout(database: sqlite3.Connection) -> dict[str, object]:
    """All that statements can tell of the tables: columns in their order, indexes, triggers."""
    found: dict[str, object] = {}
    for kind, name, text in database.execute("SELECT type, name, sql FROM sqlite_master"):
        columns = database.execute(f"PRAGMA table_info({name})").fetchall()
        found[f"{kind} {name}"] = columns if kind == "table" else text
    return found


def test_every_version_that_is_converted_is_tried() -> None:
    assert [*EARLIER, VERSION] == VERSIONS
    assert list(COLLECTOR.steps) == EARLIER


@pytest.mark.parametrize("version", VERSIONS)
class TestData:
    def test_an_open_crowd_goes_on(self, version: int, tmp_path: Path):
        """Its reports are known, so that they count once, and those that lack complete it."""
        folder = extracted(version, tmp_path)
        assert version_of(folder / "data" / NAME) == version
        sent, more, first = reports_of(folder), upload(PLAN, 17, 2), release_in(folder)
        with closing(Store(folder / "data", clock=Clock())) as store:
            assert store.release(PLAN.id, 1) == first
            assert Tokens(store.database).find("secret of an analyst") is not None
            store.accept([sent, sent])
            store.sweep()
            assert len(released(store, PLAN)) == 1
            store.accept([sent, more])
            store.sweep()
            assert store.release(PLAN.id, 1) == first
            assert len(released(store, PLAN)) == 2
            assert summed(released(store, PLAN)) == nameless(tally_of(PLAN, sent, more))
        assert version_of(folder / "data" / NAME) == VERSION

    def test_the_tables_are_those_of_new_data(self, version: int, tmp_path: Path):
        path = extracted(version, tmp_path) / "data" / NAME
        with closing(open_database(path)) as old, closing(open_database(tmp_path / "new")) as new:
            assert layout(old) == layout(new)

    def test_a_backup_is_restored(self, version: int, tmp_path: Path):
        """What was released is there. The plan is closed: its reports could come again."""
        folder = extracted(version, tmp_path)
        restored = restore(folder / "backup", tmp_path / "new", clock=Clock())
        assert restored.closed == [PLAN.id]
        with closing(Store(tmp_path / "new", clock=Clock())) as store:
            assert store.release(PLAN.id, 1) == release_in(folder)
            states = [row[0] for row in store.database.execute("SELECT state FROM crowds")]
        assert sorted(states) == ["given up", "sealed"]


@pytest.mark.parametrize("version", EARLIER)
class TestEarlierData:
    def test_all_steps_or_none(self, version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        path = extracted(version, tmp_path) / "data" / NAME
        with closing(sqlite3.connect(path)) as database:
            before = layout(database)
        broken = dict(COLLECTOR.steps)
        broken[VERSION - 1] += "ALTER TABLE nothing ADD COLUMN here;\n"
        with pytest.raises(StorageError, match="nothing"):
            open_database(path, schema=COLLECTOR._replace(steps=broken))
        assert version_of(path) == version
        with closing(sqlite3.connect(path)) as database:
            assert layout(database) == before
        Store(tmp_path / "data", clock=Clock()).close()
        assert version_of(path) == VERSION

    def test_only_whoever_holds_the_data_converts_them(self, version: int, tmp_path: Path):
        folder = extracted(version, tmp_path)
        with pytest.raises(InputError, match=rf"version {version}; .* start the collector once"):
            back_up(folder / "data", tmp_path / "kept")
        found = {finding.check: finding for finding in check_folder(folder / "data", 0)}["data"]
        assert found.verdict == "warn"
        assert found.way_out == "Start the collector once, which converts them."
        assert version_of(folder / "data" / NAME) == version


@pytest.mark.parametrize("version", [v for v in VERSIONS if v in RELAY.steps or v == VERSION])
def test_the_tables_of_a_relay(version: int, tmp_path: Path) -> None:
    script = (extracted(version, tmp_path) / "relay.sql").read_text()
    with closing(sqlite3.connect(tmp_path / "old")) as database:
        database.executescript(script)
        database.execute(f"PRAGMA user_version = {version}")
        database.execute(f"PRAGMA application_id = {RELAY.application}")
    with (
        closing(open_database(tmp_path / "old", schema=RELAY)) as old,
        closing(open_database(tmp_path / "new", schema=RELAY)) as new,
    ):
        assert layout(old) == layout(new)
    assert version_of(tmp_path / "old") == VERSION


@pytest.mark.parametrize("schema", [COLLECTOR, RELAY], ids=lambda schema: schema.word)
def test_steps_lead_to_this_version(schema: Schema) -> None:
    assert list(schema.steps) == list(range(min(schema.steps), schemas.VERSION))
