"""A backup holds whole crowds only, and no report gets into two releases by a restore."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from shoal.analysis.report_files import Batch
from shoal.cli import run
from shoal.errors import InputError
from shoal.server.core import problems
from shoal.server.core.backup import _END, _sign, back_up, backup_digest, restore
from shoal.server.core.tokens import Token, Tokens
from shoal.server.storage.database import NAME, StorageError, data_lock
from shoal.server.storage.encryption import CROWD_KEY_FILE
from shoal.server.storage.key_file import SIGNING_FILE, Signer
from shoal.server.storage.records import CrowdRecord
from shoal.server.storage.recovery import Restoration
from shoal.server.storage.store import Store
from tests.server.crash_help import Devices, Served, all_made
from tests.server.store_help import (
    DAY,
    NOON,
    Clock,
    make_plan,
    published,
    released,
    tally_of,
    upload,
)

WEEK = 7 * DAY
NOW = int(NOON // WEEK)
ENDLESS = make_plan(crowd=50)
WEEKLY = make_plan(crowd=40, window=WEEK)
SEALED = {ENDLESS: 1, WEEKLY: 2}
"""The number of each plan's sealed crowd: a window has one before and one after it."""


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def data(tmp_path: Path, clock: Clock) -> Iterator[Path]:
    """Data with a sealed and an open crowd of two plans, while the collector runs."""
    folder = tmp_path / "data"
    folder.mkdir()
    Signer(folder)
    with closing(published(folder, ENDLESS, WEEKLY, clock=clock)) as store:
        Tokens(store.database.connection).add(Token.new("analyst", "kept"), "secret of an analyst")
        store.accept([upload(ENDLESS, 83, 1), upload(WEEKLY, 77, 2, NOW)])
        store.sweep()
        yield folder


@pytest.fixture
def kept(data: Path, tmp_path: Path, clock: Clock) -> Path:
    """A backup of them."""
    return back_up(data, tmp_path / "kept", clock=clock)


def sign_again(backup: Path, *statements: str) -> None:
    """Change a backup as somebody who has its signing key can."""
    backup.write_bytes(backup.read_bytes()[:-_END])
    with closing(sqlite3.connect(backup, isolation_level=None)) as database:
        for statement in statements:
            database.execute(statement)
        (key,) = database.execute("SELECT max(signing_key) FROM backup").fetchone()
    _sign(backup, key or "00" * 32)


class TestBackup:
    def test_what_was_released_comes_back(
        self, data: Path, kept: Path, tmp_path: Path, clock: Clock
    ):
        assert kept == tmp_path / "kept"
        restore(kept, tmp_path / "new", clock=clock)
        with closing(Store(data)) as before, closing(Store(tmp_path / "new")) as after:
            for plan, number in SEALED.items():
                assert before.release(plan.id, number) is not None
                assert after.release(plan.id, number) == before.release(plan.id, number)
                assert after.plan(plan.id) is not None
            token = Tokens(after.database.connection).find("secret of an analyst")
        assert token is not None
        assert token.role == "analyst"
        assert Signer(tmp_path / "new").public_key == Signer(data).public_key

    def test_nothing_of_an_open_crowd_is_in_it(self, data: Path, tmp_path: Path):
        with closing(sqlite3.connect(data / NAME)) as database:
            secrets = [
                bytes(key) for (key,) in database.execute("SELECT wrapped FROM wrapped_keys")
            ]
            for query in ("SELECT digests FROM seen", "SELECT numbers FROM counts"):
                for (sealed,) in database.execute(query):
                    secrets += [sealed[at : at + 32] for at in range(0, len(sealed), 32)]
        assert len(secrets) > 160
        keys = [line for line in (data / CROWD_KEY_FILE).read_text().split() if len(line) == 64]
        assert keys
        secrets += [key.encode() for key in keys] + [bytes.fromhex(key) for key in keys]
        held = back_up(data, tmp_path / "kept").read_bytes()
        assert not any(secret in held for secret in secrets)
        with closing(sqlite3.connect(tmp_path / "kept")) as kept:
            for table in ("counts", "seen", "wrapped_keys"):
                assert kept.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
            lines = kept.execute(
                "SELECT state, reports, progress FROM crowds ORDER BY plan, number"
            )
            assert sorted(lines.fetchall()) == [
                *[("discarded", 0, 0)] * 4, ("released", 40, 100), ("released", 50, 100)
            ]  # fmt: skip

    def test_one_private_file_and_nothing_beside_it(self, data: Path, tmp_path: Path, clock: Clock):
        (tmp_path / "backups").mkdir()
        made = back_up(data, tmp_path / "backups", clock=clock)
        assert list((tmp_path / "backups").iterdir()) == [made]
        assert made.name == "shoal-20241004T120000Z.backup"
        assert made.stat().st_mode & 0o777 == 0o600
        with pytest.raises(InputError, match="exists already"):
            back_up(data, tmp_path / "backups", clock=clock)

    def test_it_changes_nothing(self, data: Path, tmp_path: Path, clock: Clock):
        def dumped() -> list[str]:
            with closing(sqlite3.connect(data / NAME)) as database:
                return list(database.iterdump())

        before = dumped()
        back_up(data, tmp_path / "kept", clock=clock)
        assert dumped() == before

    def test_while_the_collector_does_not_run(self, data: Path, tmp_path: Path, clock: Clock):
        copied = tmp_path / "stopped"
        back_up(data, tmp_path / "running", clock=clock)
        with closing(Store(data)):
            pass
        shutil.copytree(data, copied)
        back_up(copied, tmp_path / "not running", clock=clock)
        with (
            closing(sqlite3.connect(tmp_path / "running")) as one,
            closing(sqlite3.connect(tmp_path / "not running")) as other,
        ):
            assert list(one.iterdump()) == list(other.iterdump())

    def test_it_is_not_served(self, data: Path, tmp_path: Path):
        (tmp_path / "wrong").mkdir()
        back_up(data, tmp_path / "wrong" / NAME)
        with pytest.raises(InputError, match="shoal collector restore"):
            Store(tmp_path / "wrong")

    def test_what_cannot_be_backed_up(self, data: Path, tmp_path: Path):
        with pytest.raises(InputError, match="no collector data"):
            back_up(tmp_path / "nowhere", tmp_path / "kept")
        made = tmp_path / "other"
        made.mkdir()
        shutil.copy(data / SIGNING_FILE, made)
        back_up(data, made / NAME)
        with pytest.raises(InputError, match="not this Shoal's"):
            back_up(made, tmp_path / "kept")
        with pytest.raises(StorageError):
            back_up(data, tmp_path / "no folder" / "kept")
        (data / SIGNING_FILE).unlink()
        with pytest.raises(StorageError):
            back_up(data, tmp_path / "kept")
        assert not list(tmp_path.glob("kept*"))

    def test_what_a_killed_backup_left_is_no_part_of_the_next(self, data: Path, tmp_path: Path):
        """A log beside a new database would be taken for its own."""
        (tmp_path / "kept.part").write_bytes(b"half")
        (tmp_path / "kept.part-wal").write_bytes((data / f"{NAME}-wal").read_bytes())
        back_up(data, tmp_path / "kept")
        assert [path.name for path in tmp_path.glob("kept*")] == ["kept"]
        restore(tmp_path / "kept", tmp_path / "new")


class TestRestore:
    def test_what_becomes_of_each_plan(self, kept: Path, tmp_path: Path, clock: Clock):
        clock.now += 3 * WEEK
        restored = restore(kept, tmp_path / "new", clock=clock)
        first = NOW + 3 + 2
        assert restored == Restoration([ENDLESS.id], {WEEKLY.id: first * WEEK})
        with closing(Store(tmp_path / "new", clock=clock)) as store:
            assert store.crowds(ENDLESS.id) == [
                CrowdRecord(1, 0, "released", 50, 100),
                CrowdRecord(2, 0, "discarded", None, 0, "restored"),
            ]
            assert store.crowds(WEEKLY.id) == [
                CrowdRecord(1, NOW - 1, "discarded", None, 0, "restored"),
                CrowdRecord(2, NOW, "released", 40, 100),
                CrowdRecord(3, NOW + 1, "discarded", None, 0, "restored"),
                CrowdRecord(4, NOW, "discarded", None, 0, "restored"),
            ]
            assert store.accept([upload(ENDLESS, 1, 7)]) == [problems.PLAN_CLOSED]
            taken = []
            for window in range(NOW, first + 2):
                for now in range(NOW + 3, first + 2):
                    clock.now = now * WEEK
                    if store.accept([upload(WEEKLY, 1, window * 99 + now, window)]) == [None]:
                        taken.append((window - first, now - first))
            assert taken == [(0, -1), (0, 0), (0, 1), (1, 0), (1, 1)]
            opened = [crowd for crowd in store.crowds(WEEKLY.id) if crowd.state == "open"]
            assert [crowd.window - first for crowd in opened] == [0, 1, 2]

    @pytest.mark.parametrize("steps", [[], ["paused"], ["closed"], ["closed", "destroyed"]])
    def test_states(self, steps: list[str], data: Path, tmp_path: Path, clock: Clock):
        with closing(Store(data, clock=clock)) as store:
            release = store.release(WEEKLY.id, SEALED[WEEKLY])
            for step in steps:
                for plan in (ENDLESS, WEEKLY):
                    assert store.move(plan.id, step)  # type: ignore[arg-type]
            store.add_plan(make_plan(crowd=123))
        held = back_up(data, tmp_path / "kept", clock=clock).read_bytes()
        restore(tmp_path / "kept", tmp_path / "new", clock=clock)
        state = steps[-1] if steps else "published"
        ends = state if state in ("closed", "destroyed") else "closed"
        with closing(Store(tmp_path / "new", clock=clock)) as store:
            found = {kept.plan.id: kept.state for kept in store.plans()}
        assert found == {WEEKLY.id: state, ENDLESS.id: ends, make_plan(crowd=123).id: "draft"}
        assert release is not None
        assert (release in held) == (state != "destroyed")

    def test_no_report_is_released_twice(self, data: Path, tmp_path: Path, clock: Clock):
        """The collector goes on after the backup, releases more, and its disk is lost."""
        sent: list[Batch] = [upload(ENDLESS, 83, 1), upload(WEEKLY, 77, 2, NOW)]
        back_up(data, tmp_path / "kept", clock=clock)
        with closing(Store(data, clock=clock)) as store:
            for week in (0, 1):
                clock.now = NOON + week * WEEK
                for ahead in (-1, 0, 1):
                    window = NOW + week + ahead
                    sent.append(upload(WEEKLY, 60, 10 * window + week, window))
                    assert store.accept([sent[-1]]) == [None]
            assert len(released(store, WEEKLY)) > 5
        restore(tmp_path / "kept", tmp_path / "new", clock=clock)
        fresh: dict[int, list[Batch]] = {}
        with closing(Store(tmp_path / "new", clock=clock)) as store:
            for step in range(-20, 40):
                clock.now = NOON + WEEK + step * DAY
                store.sweep()
                assert all(answer is not None for answer in store.accept(sent))
                window = int(clock.now // WEEK)
                batch = upload(WEEKLY, 8, 2000 + step, window)
                if len(fresh.get(window, [])) < 5 and store.accept([batch]) == [None]:
                    fresh.setdefault(window, []).append(batch)
            filled = [parts for parts in fresh.values() if len(parts) == 5]
            assert len(filled) > 2
            assert released(store, WEEKLY)[1:] == [tally_of(WEEKLY, *parts) for parts in filled]

    def test_a_new_admin_token(self, data: Path, kept: Path, tmp_path: Path):
        restore(kept, tmp_path / "new")
        path = tmp_path / "new" / "admin-token"
        assert path.stat().st_mode & 0o777 == 0o600
        with closing(Store(tmp_path / "new")) as store:
            token = Tokens(store.database.connection).find(path.read_text().strip())
        assert token is not None
        assert (token.role, token.label) == ("admin", "restored")
        assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
        # The key and the mark of a backup are nowhere but in their own file.
        key = (data / SIGNING_FILE).read_bytes().strip()
        assert key not in (tmp_path / "new" / NAME).read_bytes()

    @pytest.mark.parametrize(
        "name", [NAME, f"{NAME}-wal", SIGNING_FILE, "admin-token", "crowd-key"]
    )
    def test_not_over_other_data(self, name: str, kept: Path, tmp_path: Path):
        new = tmp_path / "new"
        new.mkdir()
        (new / name).write_text("something")
        with pytest.raises(InputError, match="new folder"):
            restore(kept, new)
        assert (new / name).read_text() == "something"
        assert {path.name for path in new.iterdir()} <= {name, "lock"}

    def test_not_while_a_collector_runs_there(self, kept: Path, tmp_path: Path):
        (tmp_path / "new").mkdir()
        with data_lock(tmp_path / "new"), pytest.raises(InputError, match="another collector"):
            restore(kept, tmp_path / "new")

    def test_after_a_restore_that_was_killed(self, kept: Path, tmp_path: Path):
        new = tmp_path / "new"
        new.mkdir()
        for name in (f"{NAME}.part", f"{NAME}.part-journal", SIGNING_FILE, "admin-token"):
            (new / name).write_text("half")
        restore(kept, new)
        assert {path.name for path in new.iterdir()} == {NAME, SIGNING_FILE, "admin-token", "lock"}

    def test_a_clock_before_the_backup(self, kept: Path, tmp_path: Path, clock: Clock):
        clock.now -= 60
        with pytest.raises(InputError, match="clock"):
            restore(kept, tmp_path / "new", clock=clock)
        assert [path.name for path in (tmp_path / "new").iterdir()] == ["lock"]

    @pytest.mark.parametrize("version", [99, 1])
    def test_another_version(self, data: Path, kept: Path, tmp_path: Path, version: int):
        """Neither is it backed up, nor is a backup of it restored."""
        with closing(sqlite3.connect(data / NAME)) as database:
            database.execute(f"PRAGMA user_version = {version}")
        sign_again(kept, f"PRAGMA user_version = {-version}")
        with pytest.raises(InputError, match=f"have version {version}; .*wrote them"):
            back_up(data, tmp_path / "again")
        with pytest.raises(InputError, match=f"have version {version}; .*wrote them"):
            restore(kept, tmp_path / "new")
        assert not list(tmp_path.glob("again*"))
        assert [path.name for path in (tmp_path / "new").iterdir()] == ["lock"]

    def test_what_is_no_backup(self, data: Path, tmp_path: Path):
        new = tmp_path / "new"
        with pytest.raises(InputError, match="no backup"):
            restore(tmp_path / "nothing", new)
        (tmp_path / "text").write_text("not a database, but long enough to be read as one" * 9)
        with pytest.raises(InputError, match="not a backup"):
            restore(tmp_path / "text", new)
        with pytest.raises(InputError, match="not a backup"):
            restore(data / NAME, new)
        held = bytearray(back_up(data, tmp_path / "kept").read_bytes())
        for page in range(1, len(held) // 4096):
            held[page * 4096 : page * 4096 + 64] = b"\xff" * 64
        (tmp_path / "damaged").write_bytes(held)
        with pytest.raises(StorageError):
            restore(tmp_path / "damaged", new)
        assert [path.name for path in new.iterdir()] == ["lock"]


class TestChanges:
    """A backup comes back as it was made, or not at all, with one sentence."""

    def refused(self, backup: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
        assert run(["collector", "restore", str(backup), str(folder)]) in (1, 2)
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.count("\n") == 1
        assert [path.name for path in folder.iterdir()] == ["lock"]
        return printed.err

    def test_one_changed_byte_or_bit(self, kept: Path, tmp_path: Path, capsys):
        held = kept.read_bytes()
        chance, changed = random.Random(20241004), tmp_path / "changed"
        places = [chance.randrange(len(held)) for _ in range(40)]
        for case, place in enumerate([*places, *range(len(held) - _END, len(held), 4)]):
            content = bytearray(held)
            content[place] ^= chance.randrange(1, 256) if case % 2 else 1 << chance.randrange(8)
            changed.write_bytes(content)
            self.refused(changed, tmp_path / "new", capsys)
        changed.write_bytes(held)
        assert run(["collector", "restore", str(changed), str(tmp_path / "new")]) == 0

    def test_cut_and_longer_ones(self, kept: Path, tmp_path: Path, capsys):
        held = kept.read_bytes()
        cut = [held[:-1], held[1:], held[:-4096], held[:_END], b"", held[:4096] + held[8192:]]
        for content in [*cut, held + b"\0", b"\0" + held, held + held]:
            (tmp_path / "changed").write_bytes(content)
            self.refused(tmp_path / "changed", tmp_path / "new", capsys)

    def test_a_key_of_somebody_else(self, kept: Path, tmp_path: Path, capsys):
        """It is signed, but not with the key that is in it."""
        kept.write_bytes(kept.read_bytes()[:-_END])
        _sign(kept, f"{'11' * 32} {'A' * 43} 0 0")
        assert "another key" in self.refused(kept, tmp_path / "new", capsys)

    def test_somebody_who_has_the_key_is_found_by_the_digest(self, kept: Path, tmp_path: Path):
        """The signature alone cannot: the key is in every backup."""
        digest = backup_digest(kept)
        sign_again(kept, "UPDATE tokens SET role = 'admin'")
        with pytest.raises(InputError, match="not the one given"):
            restore(kept, tmp_path / "new", digest=digest)
        restore(kept, tmp_path / "new")

    @pytest.mark.parametrize(
        "statement",
        [
            "DROP TABLE backup",
            "DELETE FROM backup",
            "UPDATE backup SET made = 'noon'",
            "UPDATE backup SET signing_key = 'no key'",
            "UPDATE plans SET document = '[' WHERE state = 'published'",
            "DROP TABLE plans",
        ],
    )
    def test_signed_nonsense(self, statement: str, data: Path, kept: Path, tmp_path: Path, capsys):
        key = (data / SIGNING_FILE).read_text()
        kept.write_bytes(kept.read_bytes()[:-_END])
        with closing(sqlite3.connect(kept, isolation_level=None)) as database:
            database.execute(statement)
        _sign(kept, key)
        self.refused(kept, tmp_path / "new", capsys)


@pytest.mark.slow
class TestUnderLoad:
    def test_every_backup_is_a_moment_of_the_collector(self, tmp_path: Path):
        """Whole crowds, the same that the collector shows in the end, and ever more of them."""
        with Served(tmp_path / "data", make_plan(crowd=20)) as served:
            served.start()
            devices = [Devices(served, seed) for seed in (1, 2)]
            for one in devices:
                one.start()
            backups = []
            for number in range(12):
                backups.append(back_up(served.folder, tmp_path / f"{number}"))
                served.ask(f"/v1/plans/{served.plan.id}/crowds")  # seals what is whole
            words = ["collector", "backup", str(served.folder), "last", "--json"]
            command = [sys.executable, "-m", "shoal", *words]
            done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
            backups.append(tmp_path / json.loads(done.stdout)["backup"])
            for one in devices:
                one.finish()
            assert served.stop() == 0
        assert [one.surprises for one in devices] == [[], []]
        with closing(Store(served.folder)) as store:
            final = [store.release(served.plan.id, n) for n in range(1, 10_000)]
            total = sum(map(len, all_made(devices)))
            assert sum(one is not None for one in final) == total // 20
        lengths = []
        for number, backup in enumerate(backups):
            restore(backup, tmp_path / f"new {number}")
            with closing(Store(tmp_path / f"new {number}")) as store:
                crowds = store.crowds(served.plan.id)
                states = [crowd.state for crowd in crowds]
                lengths.append(states.count("released"))
                given_up = len(states) - lengths[-1]
                assert given_up > 0
                assert states == ["released"] * lengths[-1] + ["discarded"] * given_up
                for crowd in crowds[: lengths[-1]]:
                    assert store.release(served.plan.id, crowd.number) == final[crowd.number - 1]
        assert lengths == sorted(lengths)
        assert lengths[-1] > 0


class TestCommands:
    def test_there_and_back(self, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
        kept, new = tmp_path / "kept", tmp_path / "new"
        assert run(["collector", "backup", str(data), str(kept)]) == 0
        digest = hashlib.sha256(kept.read_bytes()).hexdigest()
        assert capsys.readouterr().out == f"Backup written to {kept}\nSHA-256 {digest}\n"
        words = ["collector", "restore", str(kept), str(new), "--json", "--digest"]
        assert run([*words, "0" * 64]) == 2
        assert f"has the SHA-256 {digest}" in capsys.readouterr().err
        assert run([*words, digest]) == 0
        document = json.loads(capsys.readouterr().out)
        assert document["key"] == Signer(data).public_key
        assert document["closed"] == [ENDLESS.id]
        assert list(document["waiting"]) == [WEEKLY.id]
        shutil.rmtree(new)
        assert run(["collector", "restore", str(kept), str(new)]) == 0
        out = capsys.readouterr().out
        assert f"It signs with the key {Signer(data).public_key}\n" in out
        assert f"Plan {ENDLESS.id[:12]} has no window and is closed" in out
        assert f"Plan {WEEKLY.id[:12]} accepts reports from " in out

    @pytest.mark.parametrize(
        "words", [["backup", "nowhere", "kept"], ["restore", "nothing", "new"]]
    )
    def test_one_sentence(self, words: list[str], tmp_path: Path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        assert run(["collector", *words]) == 2
        assert capsys.readouterr().err.count("\n") == 1
