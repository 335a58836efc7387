"""What PostgreSQL keeps of a relay's crowds tells nothing, and operators' commands know relays."""

from __future__ import annotations

import time
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest

from shoal.errors import InputError
from shoal.server.core.backup import back_up, restore
from shoal.server.doctor.examine import examine
from shoal.server.relay import shuffled_chunks
from shoal.server.relay.store import RELAY, RelayStore
from shoal.server.storage.database import StorageError
from shoal.server.storage.encryption import CROWD_KEY_FILE, decrypt
from tests.server.postgres_help import Server, needs_postgres, second_folder, the_server

from .relay_help import LONG, WEEKLY, WHOLE, FakeAnalyzer, check_once, made
from .shared_help import SharedRelay, two_relays

pytestmark = [needs_postgres, pytest.mark.system, pytest.mark.slow]

WEEK = 7 * 86_400


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server of their own: the log of the shared one grows with every test."""
    own = Server()
    yield own
    own.remove()


@pytest.fixture(scope="module")
def story(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Reports come one by one at two relays, and the crowd is forwarded; note all on the way."""
    folder, analyzer = tmp_path_factory.mktemp("story"), FakeAnalyzer(LONG)
    pair = two_relays(server.new_database(), folder, analyzer, LONG)
    reports = made(LONG, 25, seed=1)
    plain: list[bytes] = []
    fills: list[bytes] = []
    wrapped: list[tuple[str, int, bytes]] = []
    lengths: set[tuple[str, int]] = set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shuffled_chunks, "LARGEST_CHUNK", 600)
        for number, report in enumerate(reports):
            relay = pair[number % 2]
            upload = relay.sealed(LONG, [report])
            assert relay.store.accept([upload]) == [None]
            sealed_bytes = upload.content[16:]
            plain += [sealed_bytes[at : at + 32] for at in (0, 30, len(sealed_bytes) - 32)]
            plain += [report.name, report.content]
            plan = relay.store._plans.known()[LONG.id]
            window_key = plan._seen[0]._key
            digest = blake2b(report.name, digest_size=16, key=window_key).digest()[:8]
            crowd_keys = [crowd.rows._key for crowd in plan._all()]
            plain += [digest, window_key, *crowd_keys, relay.store.database.keys._root.current()]
            database = relay.store.database
            fills += [row[0] for row in database.execute("SELECT content FROM fills")]
            wrapped += database.execute("SELECT kind, number, wrapped FROM wrapped_keys").fetchall()
            for table in ("messages", "fills"):
                query = f"SELECT DISTINCT length(content) FROM {table}"
                lengths |= {(table, length) for (length,) in database.execute(query)}
            if number % 8 == 7:
                relay.store.sweep()
                relay.fetch_keys()
        pair[0].store.sweep()
        pair[1].forward()
    assert len(analyzer.complete(LONG)) == 1
    for body in analyzer.crowds[LONG.id, 0, 1].chunks.values():
        plain += [body[at : at + 32] for at in (200, len(body) - 32)]
    found = {"plain": plain, "fills": fills, "wrapped": wrapped, "lengths": lengths}
    yield found | {"pair": pair, "analyzer": analyzer, "reports": reports}
    for one in pair:
        one.close()


class TestRemnants:
    """Tables, their dead rows, indexes and the write-ahead log, searched byte by byte."""

    def test_nothing_plain_is_left(self, server: Server, story: dict[str, Any]):
        """No message, id or key, of a crowd that is open or that was forwarded.

        False alarm: 25 digests of 8 random bytes, in less than 2^28 bytes: 25 * 2^28 / 2^64 < 1e-9.
        """
        plain = {one for one in story["plain"] if len(set(one)) > 4}
        assert len(plain) > 150
        left = server.content()
        assert len(left) < 1 << 28
        # The search can find something: overwritten states are there, encrypted.
        overwritten = [one for one in set(story["fills"]) if one in left]
        assert len(overwritten) > 20
        assert not [one for one in plain if one in left]

    def test_what_is_written_has_one_length(self, story: dict[str, Any]):
        assert len(story["lengths"]) == 2
        assert {table for table, _ in story["lengths"]} == {"messages", "fills"}

    def test_what_was_forwarded_cannot_be_read_any_more(self, story: dict[str, Any]):
        """Its key is gone, and the wrapped key of before is noise with the key of today."""
        store = story["pair"][0].store
        today = store.database.read("read the key", store.database.keys._root.current)
        query = "SELECT number FROM wrapped_keys WHERE kind = 'crowd'"
        assert 1 not in {number for (number,) in store.database.execute(query)}
        old = [one for one in story["wrapped"] if one[:2] == ("crowd", 1)]
        assert len(old) == 25
        for kind, number, wrapped in old:
            with pytest.raises(StorageError):
                decrypt(today, wrapped, f"{LONG.id} {kind} {number}")

    def test_all_of_it_arrived(self, story: dict[str, Any]):
        arrived = set(story["analyzer"].opened((LONG.id, 0, 1)))
        assert arrived == {report.content for report in story["reports"][:20]}


class TestOperations:
    @pytest.fixture
    def url(self) -> str:
        return the_server().new_database()

    def test_a_backup_becomes_the_folder_of_a_relay(self, url: str, tmp_path: Path):
        analyzer = FakeAnalyzer(WEEKLY, WHOLE)
        first, second = two_relays(url, tmp_path, analyzer, WEEKLY, WHOLE, clock=time.time)
        first.store.pin_key(analyzer.public_key)
        window = int(time.time() // WEEK)
        upload = second.store.open_keys()[WEEKLY.id, window]
        assert upload.content
        backup = back_up(second.folder, tmp_path / "backup", schemas=(RELAY,), url=url)
        for one in (first, second):
            one.close()
        restoration = restore(backup, tmp_path / "again")
        assert restoration.closed == [WHOLE.id]
        assert set(restoration.waiting) == {WEEKLY.id}
        store = RelayStore(tmp_path / "again")
        assert store.pinned_key() == analyzer.public_key
        assert {one.state for one in store.crowds(WEEKLY.id)} == {"discarded"}
        store.close()

    def test_a_backup_of_nothing(self, url: str, tmp_path: Path):
        (tmp_path / "signing-key").write_text("x")
        with pytest.raises(InputError, match="the database is empty"):
            back_up(tmp_path, tmp_path / "backup", schemas=(RELAY,), url=url)
        assert not (tmp_path / "backup").exists()

    def test_renewing(self, url: str, tmp_path: Path):
        """Crowds that have not arrived are given up; the others need the new key."""
        from shoal.server.storage.postgres import renew

        analyzer = FakeAnalyzer(WEEKLY, WHOLE)
        first, second = two_relays(url, tmp_path, analyzer, WEEKLY, WHOLE, clock=time.time)
        first.take(WHOLE, made(WHOLE, 20, seed=1))
        first.store.sweep()
        first.fetch_keys()
        first.take(WHOLE, made(WHOLE, 5, seed=2))
        for one in (first, second):
            one.close()
        (first.folder / CROWD_KEY_FILE).unlink()
        restoration = renew(first.folder, url, (RELAY,))
        assert restoration.closed == [WHOLE.id]
        assert set(restoration.waiting) == {WEEKLY.id}
        with pytest.raises(StorageError, match="from a relay that runs"):
            SharedRelay(url, second.folder, analyzer)
        again = SharedRelay(url, second_folder(first.folder, "third"), analyzer, time.time)
        for plan in (WHOLE, WEEKLY):
            assert {one.state for one in again.store.crowds(plan.id)} == {"discarded"}
        assert again.store.wanted() == []
        while again.store.frozen.tidy():
            pass
        for table in ("messages", "fills", "chunks"):
            assert again.store.database.execute(f"SELECT 1 FROM {table}").fetchall() == []
        again.forward()
        again.close()
        check_once(analyzer, WHOLE, [])

    def test_the_doctor_knows_a_relay(self, url: str, tmp_path: Path):
        first, second = two_relays(url, tmp_path, FakeAnalyzer(WHOLE), WHOLE, clock=time.time)
        for one in (first, second):
            one.close()
        (first.folder / "shoal.toml").write_text(f'public = "0.0.0.0:8410"\ndatabase = "{url}"\n')
        found = {one.check: one.verdict for one in examine(first.folder, environment={})}
        assert found["settings"] == found["database"] == found["console address"] == "ok"
        assert found["public address"] == "fail"
        environment = {"SHOAL_DATABASE": url}
        found = {one.check: one.verdict for one in examine(second.folder, environment=environment)}
        assert found["database"] == found["public address"] == "ok"
