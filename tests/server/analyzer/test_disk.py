"""What is on the analyzer's disk: nothing opens without the key file, or after a release."""

from __future__ import annotations

import hashlib
import json
import shutil
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from shoal.analysis.report_files import Batch
from shoal.errors import InputError
from shoal.protocol.encryption import Chunk, CrowdKey
from shoal.server.analyzer.decryption import Stop, decrypt_crowd
from shoal.server.analyzer.plan import Place
from shoal.server.analyzer.store import AnalyzerStore, CompleteCrowd
from shoal.server.analyzer.worker import Messages, Spilling, first_of_each
from shoal.server.core import problems
from shoal.server.core.backup import back_up, restore
from shoal.server.storage.encryption import CROWD_KEY_FILE
from shoal.server.storage.key_file import Signer
from shoal.server.storage.recovery import check_role
from tests.server.analyzer.relay_help import DATA, PLANS, WHOLE, contents_of, cut, sealed
from tests.server.analyzer.test_crashes import opened_store, published, seal_next, states
from tests.server.store_help import DAY, NOON, Clock, counted_by_hand, upload

DAILY = PLANS["daily"]
TODAY = int(NOON // DAY)


def all_bytes(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def whole(store: AnalyzerStore) -> tuple[CompleteCrowd, list[Chunk], list[bytes], Batch]:
    """Bring a crowd of which the contents of the messages are known."""
    batch = upload(WHOLE, WHOLE.reports_needed, 9)
    document = store.crowd_key(WHOLE.id, Place(0, 1), DATA)
    assert isinstance(document, bytes)
    key = CrowdKey.from_bytes(document)
    contents = contents_of(batch)
    chunks = cut(WHOLE, key, sealed(WHOLE, key, contents))
    states(store, chunks)
    crowd = store.next_complete()
    assert crowd is not None
    return crowd, chunks, contents, batch


def test_private_keys_are_wrapped_and_messages_sealed(tmp_path: Path):
    with closing(published(tmp_path / "data", WHOLE)) as store:
        crowd, chunks, contents, _ = whole(store)
        disk = all_bytes(tmp_path / "data")
        assert all(chunk.content in disk for chunk in chunks)  # it is looked at the right bytes
        assert crowd.secret not in disk
        assert not any(content[:16] in disk for content in contents)


def test_nothing_readable_is_written_while_a_crowd_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """What a process that is killed in the middle leaves is noise."""
    with closing(published(tmp_path / "data", WHOLE)) as store:
        crowd, _, contents, _ = whole(store)
        looked: list[bytes] = []

        def look(messages: Messages) -> Messages:
            looked.append(all_bytes(tmp_path / "data"))
            return first_of_each(messages)

        monkeypatch.setattr("shoal.server.analyzer.decryption.first_of_each", look)
        decrypt_crowd(crowd, store.scratch, 1, Stop())
        assert len(looked) == 1
        assert not any(content[:16] in looked[0] for content in contents)
        assert not store.scratch.exists()


def test_after_the_release_neither_key_nor_message_is_left(tmp_path: Path):
    folder, before = tmp_path / "data", tmp_path / "before"
    store = published(folder, WHOLE)
    crowd, chunks, _, batch = whole(store)
    shutil.copytree(folder, before)
    assert seal_next(store)
    store.close()
    disk = all_bytes(folder)
    assert crowd.secret not in disk
    assert not any(chunk.content[:64] in disk for chunk in chunks)
    # The data of before the release do not open with the key file of after it.
    shutil.copy(folder / CROWD_KEY_FILE, before / CROWD_KEY_FILE)
    with pytest.raises(InputError, match="older than"):
        opened_store(before)
    with closing(opened_store(folder)) as store:
        assert json.loads(store.release(WHOLE.id, 1) or b"") == counted_by_hand(WHOLE, batch)


def test_without_the_key_file_crowds_are_given_up(tmp_path: Path):
    folder = tmp_path / "data"
    store = published(folder, WHOLE)
    _, chunks, _, _ = whole(store)
    store.close()
    (folder / CROWD_KEY_FILE).unlink()
    with closing(opened_store(folder)) as store:
        assert store.next_complete() is None
        assert not any((folder / "chunks").iterdir())
        answer = store.keep_chunk(Place(0, 1), chunks[0], chunks[0].to_bytes())
        assert answer in (problems.PLAN_CLOSED, problems.WINDOW_EXPIRED, problems.UNKNOWN_CROWD)
        assert store.crowd_key(WHOLE.id, Place(0, 1), DATA) == problems.PLAN_CLOSED


class TestBackups:
    def test_they_hold_no_key_and_no_message(self, tmp_path: Path):
        folder = tmp_path / "data"
        with closing(published(folder, WHOLE)) as store:
            Signer(folder)
            crowd, chunks, _, _ = whole(store)
            content = back_up(folder, tmp_path / "backup", clock=Clock()).read_bytes()
        assert crowd.secret not in content
        digests = [hashlib.sha256(chunk.to_bytes()).digest() for chunk in chunks]
        assert not any(digest in content for digest in digests)
        assert not any(chunk.content[:64] in content for chunk in chunks)

    def test_crowds_under_way_are_given_up_and_none_is_released_twice(self, tmp_path: Path):
        folder, again = tmp_path / "data", tmp_path / "again"
        clock = Clock()
        with closing(published(folder, WHOLE)) as store:
            Signer(folder)
            store.add_plan(DAILY)
            assert store.move(DAILY.id, "published", b"{}")
            assert isinstance(store.crowd_key(DAILY.id, Place(TODAY, 1), DATA), bytes)
            _, chunks, _, _ = whole(store)
            late = back_up(folder, tmp_path / "early", clock=clock)
            assert seal_next(store)
            release = store.release(WHOLE.id, 1)
            done = back_up(folder, tmp_path / "late", clock=clock)
        restore(late, again, clock=clock)
        with closing(AnalyzerStore(again, clock=clock)) as store:
            assert [crowd.state for crowd in store.crowds(WHOLE.id)] == ["discarded"]
            assert store.next_complete() is None
            gone = store.keep_chunk(Place(0, 1), chunks[0], chunks[0].to_bytes())
            assert isinstance(gone, problems.Problem)
            assert gone.status in (404, 410)
            assert store.crowd_key(WHOLE.id, Place(0, 1), DATA) == problems.PLAN_CLOSED
            for window in (TODAY - 1, TODAY, TODAY + 1):
                answer = store.crowd_key(DAILY.id, Place(window, 1), DATA)
                assert answer == problems.WINDOW_EXPIRED
            clock.now += DAY
            assert isinstance(store.crowd_key(DAILY.id, Place(TODAY + 2, 1), DATA), bytes)
        restore(done, tmp_path / "third", clock=clock)
        with closing(AnalyzerStore(tmp_path / "third", clock=clock)) as store:
            assert store.release(WHOLE.id, 1) == release
            assert store.crowds(WHOLE.id)[0].unreadable == 0

    def test_the_role_comes_back(self, tmp_path: Path):
        folder = tmp_path / "data"
        with closing(published(folder, WHOLE)) as store:
            Signer(folder)
            check_role(store.database.connection, folder, "analyzer")
            backup = back_up(folder, tmp_path / "backup", clock=Clock())
        restore(backup, tmp_path / "again", clock=Clock())
        with (
            closing(opened_store(tmp_path / "again")) as store,
            pytest.raises(InputError, match="the data of the analyzer"),
        ):
            check_role(store.database.connection, tmp_path / "again", "collector")


class TestSpilling:
    def test_partitions_find_what_came_twice_wherever_it_was(self, tmp_path: Path):
        """Equal identifiers meet, however many partitions there are."""
        chance = np.random.default_rng(4)
        messages = chance.integers(0, 256, (5000, 20), np.uint8)
        messages[4000:] = messages[:1000]  # in another chunk
        spilling = Spilling(20, 16, (2**63 + 5, 2**61 + 9), bytes(32))
        paths = [tmp_path / "0", tmp_path / "1"]
        for chunk, part in enumerate((messages[:2500], messages[2500:])):
            spilling.write(paths[chunk], chunk, part)
        found = [first_of_each(spilling.read(paths, partition)) for partition in range(16)]
        kept = np.concatenate(found)
        assert sorted(map(bytes, kept)) == sorted(map(bytes, messages[:4000]))
        assert max(map(len, found)) < 500  # they are spread; 250 are expected in each

    def test_memory_is_bounded_by_partitions(self):
        small, large = (Spilling.new(count, 20) for count in (10**6, 10**8))
        assert (small.partitions, large.partitions) == (2, 128)
        assert small.key != large.key

    def test_the_first_counts(self):
        messages = np.zeros((4, 20), np.uint8)
        messages[:, 0] = [2, 1, 2, 1]
        messages[:, 16] = range(4)
        assert first_of_each(messages)[:, 16].tolist() == [0, 1]


def test_chunks_of_no_crowd_are_removed(tmp_path: Path):
    folder = tmp_path / "data"
    published(folder, WHOLE).close()
    stray = folder / "chunks" / f"{WHOLE.id}-7"
    stray.mkdir(parents=True)
    (stray / "0").write_bytes(b"x")
    opened_store(folder).close()
    assert not stray.exists()
