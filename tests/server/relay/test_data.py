"""What the relay's disk holds: the same for any content of an open crowd, nothing afterwards."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from shoal import Plan
from shoal.errors import InputError
from shoal.server.collector import Collector
from shoal.server.core.backup import back_up, restore
from shoal.server.core.tokens import COOKIE
from shoal.server.doctor.examine import examine
from shoal.server.relay.store import RELAY, RelayStore
from shoal.server.storage.encryption import CROWD_KEY_FILE
from tests.server.privacy_help import NOW
from tests.server.store_help import told

from .relay_help import LONG, WEEKLY, WHOLE, FakeAnalyzer, Made, RelayWorld, made, sealed, story


def all_bytes(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def rows_of(world: RelayWorld) -> dict[str, list[tuple[object, ...]]]:
    """Every row of every table; of what is encrypted, and of the analyzer's signatures, the length.

    Facts, documents and tokens are about the relay and its analyzer.
    """
    database = world.relay.store.database
    query = "SELECT name FROM sqlite_schema WHERE type = 'table'"
    tables = {name for (name,) in database.execute(query)} - {"facts", "documents", "tokens"}

    def plain(cell: object) -> object:
        is_signature = isinstance(cell, str) and len(cell) in (43, 86)
        return len(cell) if isinstance(cell, bytes) or is_signature else cell  # type: ignore[arg-type]

    return {
        table: sorted(tuple(map(plain, row)) for row in database.execute(f"SELECT * FROM {table}"))
        for table in tables
    }


def sizes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("plan", [WHOLE, LONG], ids=lambda plan: plan.survey.name)
def test_two_contents_of_an_open_crowd_look_the_same(plan: Plan, tmp_path: Path) -> None:
    """Files have the same sizes, tables the same rows where nothing is sealed or encrypted; pages,
    log and metrics the same bytes; repetitions included.
    """
    seen = []
    for number, repeated in ((1, False), (2, False), (3, True)):
        reports = made(plan, 9, seed=number)
        later = [*reports[:6], *reports[4:7]] if repeated else reports
        found: dict[str, object] = {}

        async def live(
            world: RelayWorld, later: list[Made] = later, found: dict[str, object] = found
        ) -> None:
            key = await world.key(plan)
            for start in range(0, 9, 3):
                assert await world.post(sealed(plan, key, later[start : start + 3])) == 202
            await world.relay.service.in_store(world.relay.store.sweep)
            pages = [f"/v1/plans/{plan.id}/crowds", "/v1/plans", "/metrics", "/readyz"]
            console = world.clients["console"]
            for page in pages:
                found[page] = (await console.get(page, headers=world.admin())).content
            found["log"] = world.log.getvalue()
            found["files"] = sizes(world.relay.service.folder)
            found["rows"] = await world.relay.service.in_store(rows_of, world)

        folder = tmp_path / str(number)
        story(live, folder, plan)
        content = all_bytes(folder)
        for report in reports:
            for part in (report.name, report.content):
                assert part not in content
        if repeated:
            found.pop(f"/v1/plans/{plan.id}/crowds")  # two reports fewer
        seen.append(found)
    assert seen[0] == seen[1]
    seen[0].pop(f"/v1/plans/{plan.id}/crowds")
    assert seen[0] == seen[2]


@told(story, WHOLE)
async def test_operators_show_a_token_and_its_last_day_is_stored(world: RelayWorld) -> None:
    (token,) = world.relay.service.tokens
    assert world.relay.service.tokens.last_used(token) is None
    console = world.clients["console"]
    cookie = {"cookie": f"{COOKIE}={'a' * 64}"}  # only the console has sessions
    assert (await console.get("/v1/plans", headers=cookie)).status_code == 401
    assert world.relay.service.tokens.last_used(token) is None
    assert (await console.get("/v1/plans", headers=world.admin())).status_code == 200
    assert world.relay.service.tokens.last_used(token) is not None


def test_nothing_is_left_of_a_crowd_that_has_arrived(tmp_path: Path) -> None:
    reports = made(LONG, 20, seed=1)
    uploads = []

    async def live(world: RelayWorld) -> None:
        uploads.append(sealed(LONG, await world.key(LONG), reports))
        assert await world.post(uploads[0]) == 202
        await world.forwarded(LONG, 1)
        await world.relay.forwarder._tidy()

    story(live, tmp_path, LONG)
    store = RelayStore(tmp_path)
    rows = store.database.execute("SELECT id >> 32, count(*) FROM messages GROUP BY 1").fetchall()
    keys = store.database.execute("SELECT number FROM wrapped_keys WHERE kind = 'crowd'").fetchall()
    store.close()
    assert 1 not in {number for number, _ in rows}
    assert (1,) not in keys
    assert not list((tmp_path / "chunks").iterdir())
    content = all_bytes(tmp_path)
    length = uploads[0].length
    ends = uploads[0].content[16:length], uploads[0].content[16 - length :]
    assert not any(message in content for message in ends)


class TestLosses:
    def fill(self, folder: Path, plan: Plan, analyzer: FakeAnalyzer, count: int = 9) -> None:
        async def live(world: RelayWorld) -> None:
            await world.report(plan, made(plan, count, seed=1))

        story(live, folder, plan, analyzer)

    def test_a_backup_holds_no_messages_and_gives_up(self, tmp_path: Path) -> None:
        analyzer = FakeAnalyzer(WEEKLY)
        self.fill(tmp_path / "data", WEEKLY, analyzer)
        backup = back_up(
            tmp_path / "data", tmp_path / "backup", schemas=(RELAY,), clock=lambda: NOW
        )
        restoration = restore(backup, tmp_path / "again", clock=lambda: NOW)
        assert set(restoration.waiting) == {WEEKLY.id}
        store = RelayStore(tmp_path / "again", clock=lambda: NOW)
        assert store.database.execute("SELECT count(*) FROM messages").fetchone() == (0,)
        assert {crowd.state for crowd in store.crowds(WEEKLY.id)} == {"discarded"}
        assert store.wanted() == []  # all open windows are before the first that is safe
        assert store.pinned_key() == analyzer.public_key
        store.close()
        first, second = tmp_path / "data", tmp_path / "again"
        assert (first / "signing-key").read_text() == (second / "signing-key").read_text()

    def test_a_lost_key_gives_everything_up(self, tmp_path: Path) -> None:
        self.fill(tmp_path, WEEKLY, FakeAnalyzer(WEEKLY))
        (tmp_path / CROWD_KEY_FILE).unlink()
        store = RelayStore(tmp_path, clock=lambda: NOW)
        assert {crowd.state for crowd in store.crowds(WEEKLY.id)} == {"discarded"}
        assert store.wanted() == []
        while store.frozen.tidy():
            pass
        assert store.database.execute("SELECT count(*) FROM messages").fetchone() == (0,)
        store.close()

    def test_a_collector_does_not_open_it(self, tmp_path: Path) -> None:
        self.fill(tmp_path, WHOLE, FakeAnalyzer(WHOLE))

        async def opens() -> None:
            async with Collector(tmp_path):
                pass

        import asyncio

        with pytest.raises(InputError, match="not of a collector"):
            asyncio.run(opens())


def test_a_crowd_past_its_window_is_given_up(tmp_path: Path) -> None:
    now = [NOW]
    late = made(WEEKLY, 20, seed=3)

    async def live(world: RelayWorld) -> None:
        key = await world.key(WEEKLY)
        assert await world.post(sealed(WEEKLY, key, late[:9])) == 202
        now[0] += 2 * 7 * 86_400
        await world.relay.service.in_store(world.relay.sweep)
        crowds = await world.relay.service.in_store(world.relay.store.crowds, WEEKLY.id)
        first = next(one for one in crowds if one.window == key.window)
        assert (first.state, first.progress) == ("discarded", 40)
        assert (await world.get_key(WEEKLY, key.window)).status_code == 410
        old = replace(sealed(WEEKLY, key, late[9:]), window=key.window)
        assert await world.post(old) == 410

    analyzer = story(live, tmp_path, WEEKLY, clock=lambda: now[0])
    assert analyzer.crowds == {}


def test_the_doctor_knows_a_relay(tmp_path: Path) -> None:
    async def live(world: RelayWorld) -> None:
        pass

    story(live, tmp_path, WHOLE)
    (tmp_path / "shoal.toml").write_text('public = "0.0.0.0:8410"\n')
    found = {one.check: one.verdict for one in examine(tmp_path, environment={})}
    assert found["settings"] == found["data"] == found["console address"] == "ok"
    assert found["public address"] == "fail"
