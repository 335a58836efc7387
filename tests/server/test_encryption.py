"""What the disk tells without the key: nothing of an open crowd, however often one looks."""

from __future__ import annotations

import itertools
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from shoal.errors import InputError
from shoal.server.core.backup import back_up
from shoal.server.storage.database import NAME, StorageError
from shoal.server.storage.encryption import CROWD_KEY_FILE, decrypt, encrypt
from shoal.server.storage.key_file import Signer
from shoal.server.storage.sqlite import log_size
from shoal.server.storage.store import Store
from shoal.support.disk import Disk
from tests.server.store_help import (
    EVERY_PLAN,
    PLANS,
    Clock,
    all_blocks,
    data_bytes,
    make_plan,
    on_the_disk,
    open_reports,
    published,
    upload,
)

FLAGS = PLANS["flags"]
FRAME, PAGE = 24, 4096


def frames(folder: Path) -> list[tuple[int, bytes]]:
    """Return the pages in the log: their numbers and contents, in the order of the commits."""
    log = (folder / f"{NAME}-wal").read_bytes()
    starts = range(32, len(log) - PAGE, FRAME + PAGE)
    return [
        (int.from_bytes(log[start : start + 4]), log[start + FRAME : start + FRAME + PAGE])
        for start in starts
    ]


def looks_random(content: bytes) -> bool:
    """Whether bytes are as spread as random ones.

    False alarm: of 3,000 random bytes none of the 256 values comes 60 times but with 1e-18.
    """
    return max(Counter(content).values()) * 3000 / len(content) < 60


@pytest.mark.parametrize("name", ["flags", "twelve bits", "joint", "text"])
def test_steps_of_the_log_tell_no_report(name: str, tmp_path: Path):
    """Report after report, two states of a page differ as two random ones do, and as much.

    Every commit writes the same pages, a repeated report too, and what differs between a page and
    its next state is ciphertext under a fresh key.
    """
    plan = PLANS[name]
    store = published(tmp_path, plan)
    store.sweep()
    parts = [upload(plan, 1, seed) for seed in range(20)]
    parts[10:] = parts[:10]
    before = len(frames(tmp_path)) if (tmp_path / f"{NAME}-wal").stat().st_size else 0
    numbers = []
    for part in parts:
        store.accept([part])
        pages = frames(tmp_path)
        numbers.append([number for number, _ in pages[before:]])
        before = len(pages)
    assert all(sorted(one) == sorted(numbers[0]) for one in numbers)
    states: dict[int, list[bytes]] = {}
    for number, page in frames(tmp_path):
        states.setdefault(number, []).append(page)
    assert len(states) >= 2
    for seen in states.values():
        for one, other in pairwise(seen):
            steps = np.array(bytearray(one)) ^ np.array(bytearray(other))
            changed = steps[steps != 0]
            if not len(changed):  # written again as it was: a crowd that was opened for show
                continue
            assert len(changed) > 100
            assert looks_random(changed.tobytes()) or len(changed) < 2000
    assert open_reports(store, plan) == 10


@pytest.mark.parametrize("name", EVERY_PLAN)
def test_no_count_report_or_id_is_found_without_the_key(name: str, tmp_path: Path):
    """Two worlds with other reports, and with other numbers of them, hold the same lengths."""
    plan = PLANS[name]
    lengths = []
    for world, count in (("one", 3), ("other", 41)):
        folder = tmp_path / world
        folder.mkdir()
        Signer(folder)
        store = published(folder, plan)
        batch = upload(plan, count, 7)
        store.accept([batch])
        blocks = [
            numbers
            for crowd in on_the_disk(store, plan)._crowds.values()
            for _, numbers in all_blocks(crowd.counts)
        ]
        window = on_the_disk(store, plan)._seen_in(0)
        secrets = [one.tobytes() for one in batch.ids]
        secrets += [*(word.tobytes() for word in window._open), window._key]
        secrets += [block[:64] for block in blocks if len(set(block[:64])) > 4]
        back_up(folder, tmp_path / f"{world}.backup", clock=Clock())
        left = data_bytes(folder) + (tmp_path / f"{world}.backup").read_bytes()
        assert len(secrets) > count
        assert not any(secret in left for secret in secrets if len(secret) >= 8)
        key = (folder / CROWD_KEY_FILE).read_text().split()[0]
        assert bytes.fromhex(key) not in left
        assert key.encode() not in left
        store.sweep()
        queries = (
            "SELECT plan, number, part, length(numbers) FROM counts",
            "SELECT plan, window, place, length(digests) FROM seen",
            "SELECT plan, kind, number, length(wrapped) FROM wrapped_keys",
            "SELECT number, window, state, reports, progress FROM crowds",
        )
        lengths.append([store.database.execute(query).fetchall() for query in queries])
        store.close()
    assert lengths[0] == lengths[1]


def test_the_search_would_find_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Without encryption the same search finds the ids' hashes and the counts."""
    monkeypatch.setattr(
        "shoal.server.storage.windows.encrypt",
        lambda key, *pieces: [content for content, _ in pieces],
    )
    monkeypatch.setattr(
        "shoal.server.storage.open_plan.encrypt",
        lambda key, *pieces: [content for content, _ in pieces],
    )
    monkeypatch.setattr("shoal.server.storage.windows.decrypt", lambda key, content, about: content)
    monkeypatch.setattr(
        "shoal.server.storage.open_plan.decrypt", lambda key, content, about: content
    )
    store = published(tmp_path, FLAGS)
    store.accept([upload(FLAGS, 7, 1)])
    window = store._plans.known()[FLAGS.id]._seen_in(0)
    crowd = store._plans.known()[FLAGS.id]._crowds[0].counts
    assert all(word.tobytes() in data_bytes(tmp_path) for word in window._open)
    assert all(block in data_bytes(tmp_path) for _, block in all_blocks(crowd))


def test_a_copy_from_before_the_sealing_cannot_be_read_after_it(tmp_path: Path):
    """Whoever kept the database, and gets the key later, has nothing."""
    live, kept = tmp_path / "live", tmp_path / "kept"
    live.mkdir()
    store = published(live, FLAGS)
    store.accept([upload(FLAGS, 49, 1)])
    shutil.copytree(live, kept)
    readable = on_the_disk(store, FLAGS)._crowds[0]
    store.accept([upload(FLAGS, 1, 2)])
    assert store.release(FLAGS.id, 1) is not None
    shutil.copy(live / CROWD_KEY_FILE, kept)
    with pytest.raises(InputError, match="is older than"):
        Store(kept, clock=Clock())
    with closing(sqlite3.connect(kept / NAME)) as copy:
        assert copy.execute("SELECT count(*) FROM wrapped_keys").fetchone() == (2,)
        for (wrapped,) in copy.execute("SELECT wrapped FROM wrapped_keys WHERE kind = 'crowd'"):
            (key, *_) = (live / CROWD_KEY_FILE).read_text().split()
            with pytest.raises(StorageError, match="cannot be decrypted"):
                decrypt(bytes.fromhex(key), wrapped, f"{FLAGS.id} crowd 1")
    # The very key that the crowd had is nowhere.
    assert readable.key not in data_bytes(live)
    assert readable.key.hex() not in (live / CROWD_KEY_FILE).read_text()
    store.close()


def test_the_key_of_a_crowd_goes_with_it(tmp_path: Path):
    """A copy of an earlier database could be read with a key that stays in today's."""
    store = published(tmp_path, FLAGS)

    def keys() -> list[int]:
        rows = store.database.execute("SELECT number FROM wrapped_keys WHERE kind = 'crowd'")
        return sorted(number for (number,) in rows)

    store.accept([upload(FLAGS, 120, 1)])
    assert keys() == [1, 2, 3]
    store.sweep()  # seals two of them
    assert keys() == [3]
    store.move(FLAGS.id, "closed")  # gives the last one up
    assert keys() == []
    store.close()


def test_rows_that_are_swapped_or_changed_are_refused(tmp_path: Path):
    other = make_plan(crowd=60)
    with closing(published(tmp_path, FLAGS, other)) as store:
        store.accept([upload(FLAGS, 5, 1), upload(other, 9, 2)])
    changes = (
        "UPDATE counts SET numbers = (SELECT numbers FROM counts ORDER BY plan DESC LIMIT 1)",
        "UPDATE seen SET digests = (SELECT digests FROM seen WHERE place = 0 LIMIT 1)",
        "UPDATE wrapped_keys SET wrapped = (SELECT wrapped FROM wrapped_keys LIMIT 1)",
        "UPDATE counts SET numbers = zeroblob(length(numbers))",
    )
    for number, change in enumerate(changes):
        folder = tmp_path / str(number)
        folder.mkdir()
        for name in (NAME, CROWD_KEY_FILE):
            shutil.copy(tmp_path / name, folder)
        with closing(sqlite3.connect(folder / NAME)) as database, database:
            database.execute(change)
        store = Store(folder, clock=Clock())
        with closing(store), pytest.raises(StorageError, match="cannot be decrypted"):
            store.accept([upload(FLAGS, 1, 3), upload(other, 1, 3)])


def test_sealing_is_bound_to_key_and_place():
    [sealed] = encrypt(bytes(32), (b"content", "here"))
    assert decrypt(bytes(32), sealed, "here") == b"content"
    assert encrypt(bytes(32), (b"content", "here")) != [sealed]
    for key, content, about in (
        (b"1" * 32, sealed, "here"),
        (bytes(32), sealed, "there"),
        (bytes(32), sealed[:-1] + bytes([sealed[-1] ^ 1]), "here"),
        (bytes(32), bytes(16) + sealed[16:], "here"),
    ):
        with pytest.raises(StorageError):
            decrypt(key, content, about)


@pytest.mark.parametrize("content", ["", "nonsense", "00ff", "é", "="])
def test_a_key_file_that_is_none(content: str, tmp_path: Path):
    Store(tmp_path).close()
    (tmp_path / CROWD_KEY_FILE).write_text(content)
    with pytest.raises(StorageError, match="put back the newest"):
        Store(tmp_path)


def test_only_the_owner_reads_the_key(tmp_path: Path):
    with closing(published(tmp_path, FLAGS)) as store:
        store.sweep()
    assert (tmp_path / CROWD_KEY_FILE).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("step", range(1, 10))
def test_a_change_of_the_key_that_is_cut_short(
    step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Killed at any write or sync, the next start reads everything."""

    class Killed(BaseException):
        pass

    steps = itertools.count(1)

    def dying(real: Callable[..., None]) -> Callable[..., None]:
        def does(disk: Disk, *args: object) -> None:
            if next(steps) == step:
                raise Killed
            real(disk, *args)

        return does

    store = published(tmp_path, FLAGS)
    store.accept([upload(FLAGS, 50, 1)])
    with monkeypatch.context() as patch, suppress(Killed):
        for name in ("write", "sync_file", "replace", "sync_folder"):
            patch.setattr(Disk, name, dying(getattr(Disk, name)))
        store.sweep()
    assert next(steps) == min(step, 8) + 1
    store.database.close()
    with closing(Store(tmp_path, clock=Clock())) as again:
        assert again.release(FLAGS.id, 1) is not None
        again.accept([upload(FLAGS, 50, 1)])
        assert open_reports(again, FLAGS) == 0
        assert len((tmp_path / CROWD_KEY_FILE).read_text().split("\n")[0]) == 64


def test_a_reader_that_goes_on_reading_keeps_the_log(tmp_path: Path):
    """The log cannot be emptied then; the collector takes no reports beyond its limit."""
    plan = make_plan(crowd=1000)
    with closing(published(tmp_path, plan)) as store:
        store.sweep()
        assert log_size(tmp_path) == 0
        with closing(sqlite3.connect(tmp_path / NAME, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM plans").fetchall()
            for seed in range(20):
                store.accept([upload(plan, 1, seed)])
            store.sweep()
            assert log_size(tmp_path) > 20 * PAGE
        store.sweep()
        assert log_size(tmp_path) == 0
