"""Kill the analyzer at any step: a crowd is released once, bit for bit, or not at all.

The environment variable `SHOAL_KILLS` asks for more random kills than the default.
"""

from __future__ import annotations

import http.client
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from shoal import Flags, Plan
from shoal.analysis.report_files import Batch
from shoal.protocol.encryption import CHUNK_TYPE, Chunk, CrowdKey
from shoal.protocol.signatures import key_text
from shoal.server.analyzer.decryption import Stop, decrypt_crowd
from shoal.server.analyzer.plan import Place
from shoal.server.analyzer.store import AnalyzerStore, ArrivedChunks, Receipt
from shoal.server.storage.database import StorageError
from tests.server.analyzer.relay_help import (
    DATA,
    PARTIES,
    PLANS,
    WHOLE,
    contents_of,
    cut,
    sealed,
)
from tests.server.crash_help import LONGEST, Served
from tests.server.store_help import DAY, Clock, counted_by_hand, make_plan, upload

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("SHOAL_KILLS", "4"))
FIRST = Place(0, 1)
DAILY = PLANS["daily"]


class Killed(BaseException):
    """Stands for the end of the process."""


def opened_store(folder: Path) -> AnalyzerStore:
    return AnalyzerStore(folder, clock=Clock())


def published(folder: Path, plan: Plan) -> AnalyzerStore:
    folder.mkdir()
    store = opened_store(folder)
    store.add_plan(plan)
    assert store.move(plan.id, "published", b"{}")
    return store


def chunks_in(store: AnalyzerStore, plan: Plan, batch: Batch) -> list[Chunk]:
    document = store.crowd_key(plan.id, FIRST, DATA)
    assert isinstance(document, bytes)
    key = CrowdKey.from_bytes(document)
    return cut(plan, key, sealed(plan, key, contents_of(batch)))


def states(store: AnalyzerStore, chunks: list[Chunk]) -> list[str]:
    receipts = [store.keep_chunk(FIRST, chunk, chunk.to_bytes()) for chunk in chunks]
    assert all(isinstance(receipt, Receipt) for receipt in receipts), receipts
    return [receipt.document["state"] for receipt in receipts if isinstance(receipt, Receipt)]


def seal_next(store: AnalyzerStore) -> bool:
    crowd = store.next_complete()
    assert crowd is not None
    return store.release_crowd(crowd, decrypt_crowd(crowd, store.scratch, 1, Stop()))


@pytest.mark.parametrize("plan", [WHOLE, PLANS["text"]], ids=["flags", "text"])
@pytest.mark.parametrize("where", ["before the file", "after the file", "after the note"])
def test_while_it_receives(where: str, plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder, batch = tmp_path / "data", upload(plan, plan.reports_needed, 4)
    store = published(folder, plan)
    chunks = chunks_in(store, plan, batch)
    assert states(store, chunks[:2]) == ["receiving"] * 2
    write = ArrivedChunks.write

    def dying(self: Any, *arguments: Any) -> None:
        if where != "before the file":
            write(self, *arguments)
        raise Killed

    if where == "after the note":
        states(store, chunks[2:])
    else:
        with monkeypatch.context() as patch:
            patch.setattr(ArrivedChunks, "write", dying)
            with pytest.raises(Killed):
                store.keep_chunk(FIRST, chunks[2], chunks[2].to_bytes())
    store.close()
    with closing(opened_store(folder)) as store:
        assert (store.next_complete() is not None) == (where == "after the note")
        assert states(store, chunks) == (
            ["complete"] * 3 if where == "after the note" else ["receiving"] * 2 + ["complete"]
        )
        assert seal_next(store)
        assert json.loads(store.release(plan.id, 1) or b"") == counted_by_hand(plan, batch)


@pytest.mark.parametrize("where", ["while opening", "before the release", "after the release"])
def test_while_it_opens_and_releases(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder, batch = tmp_path / "data", upload(WHOLE, WHOLE.reports_needed, 5)
    store = published(folder, WHOLE)
    chunks = chunks_in(store, WHOLE, batch)
    states(store, chunks)
    crowd = store.next_complete()
    assert crowd is not None

    def dying(*arguments: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        if where == "while opening":
            patch.setattr("shoal.server.analyzer.decryption.first_of_each", dying)
            patch.setattr("shutil.rmtree", lambda *_, **__: None)  # a process that died tidies not
        elif where == "before the release":
            patch.setattr("shoal.server.analyzer.plan.AnalyzerPlan.release", dying)
        else:
            patch.setattr(AnalyzerStore, "_sweep_files", dying)
        with pytest.raises(Killed):
            seal_next(store)
    left = store.scratch.exists()
    assert left == (where == "while opening")
    store.close()
    with closing(opened_store(folder)) as store:
        assert not store.scratch.exists()
        if where == "after the release":
            assert store.next_complete() is None
            assert not any((folder / "chunks").iterdir())
            assert not store.release_crowd(crowd, open_crowd_of(batch)), "it is not released twice"
        else:
            assert store.release(WHOLE.id, 1) is None
            assert seal_next(store)
        assert states(store, chunks) == ["complete"] * 3
        assert json.loads(store.release(WHOLE.id, 1) or b"") == counted_by_hand(WHOLE, batch)
        (keys,) = store.database.execute("SELECT count(*) FROM wrapped_keys").fetchone()
        assert keys == 0


def open_crowd_of(batch: Batch) -> Any:
    """Return a crowd as if it had been opened."""
    from shoal.server.analyzer.store import OpenedCrowd
    from tests.server.store_help import tally_of

    return OpenedCrowd(tally_of(WHOLE, batch), 0, 0, 0)


def test_a_damaged_chunk_is_not_counted(tmp_path: Path):
    from shoal.server.analyzer.decryption import DamagedCrowd

    batch = upload(WHOLE, WHOLE.reports_needed, 6)
    with closing(published(tmp_path / "data", WHOLE)) as store:
        states(store, chunks_in(store, WHOLE, batch))
        crowd = store.next_complete()
        assert crowd is not None
        path = crowd.chunks[1].path
        content = path.read_bytes()
        for other in (content[:-1], content[:-1] + bytes([content[-1] ^ 1]), None):
            path.unlink() if other is None else path.write_bytes(other)
            with pytest.raises(DamagedCrowd, match="chunk 1"):
                decrypt_crowd(crowd, store.scratch, 2, Stop())
        assert store.note_damage(WHOLE.id, 1, [1])
        store.sweep()
        assert store.next_complete() is None
        path.write_bytes(content)  # an operator puts it back
        store.sweep()
        assert seal_next(store)


def test_a_worker_that_dies_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with closing(published(tmp_path / "data", WHOLE)) as store:
        states(store, chunks_in(store, WHOLE, upload(WHOLE, WHOLE.reports_needed, 6)))
        crowd = store.next_complete()
        assert crowd is not None
        with monkeypatch.context() as patch:
            patch.setattr(sys, "executable", "/bin/false")
            with pytest.raises(StorageError):
                decrypt_crowd(crowd, store.scratch, 1, Stop())
        assert seal_next(store)


def served_analyzer(folder: Path, plan: Plan) -> Served:
    return Served(folder, plan, "--opening-processes", "2", service="analyzer")


class Relay(threading.Thread):
    """Forwards one crowd after another, each chunk until it is acknowledged, some twice."""

    def __init__(self, served: Served, plan: Plan) -> None:
        super().__init__(daemon=True)
        self._served, self._plan, self._chance = served, plan, Random(3)
        self._key = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
        self._token = ""
        self.enough = threading.Event()
        self.made: list[Batch] = []
        self.surprises: list[tuple[int, bytes]] = []

    def run(self) -> None:
        while not self.enough.is_set():
            number = len(self.made) + 1
            batch = upload(self._plan, self._plan.reports_needed, number)
            asked = {"window": 0, "crowd": number, "relay": DATA, "deadline_days": 45}
            ask = json.dumps(asked).encode()
            at = f"/v1/plans/{self._plan.id}"
            key = CrowdKey.from_bytes(self._until_done("POST", f"{at}/crowd-keys", ask))
            chunks = cut(self._plan, key, sealed(self._plan, key, contents_of(batch)), 5)
            self._chance.shuffle(chunks)
            for chunk in [*chunks, self._chance.choice(chunks)]:
                path = f"{at}/crowds/0/{number}/chunks/{chunk.number}"
                receipt = json.loads(self._until_done("PUT", path, chunk.to_bytes()))
            assert receipt["state"] == "complete"
            self.made.append(batch)

    def _until_done(self, method: str, path: str, body: bytes) -> bytes:
        end = time.monotonic() + LONGEST
        while time.monotonic() < end:
            try:
                return self._once(method, path, body)
            except (OSError, http.client.HTTPException, ValueError):
                time.sleep(0.02)
        raise AssertionError("the analyzer does not take it")

    def _once(self, method: str, path: str, body: bytes) -> bytes:
        if not self._token:
            public = key_text(self._key.public_key().public_bytes_raw())
            document = {"role": "relay", "label": "test", "key": public}
            self._token = self._served.ask("/v1/tokens", document)["token"]
        connection = http.client.HTTPConnection(*self._served.address(wait=0.2), timeout=LONGEST)
        headers = {
            "Authorization": f"Bearer {self._token}",
            "Content-Type": "application/json" if method == "POST" else CHUNK_TYPE,
            "Shoal-Signature": key_text(self._key.sign(body)),
        }
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        if answer.status != 200:
            if answer.status != 409 or b"crowd-not-due" not in content:  # it has much to open
                self.surprises.append((answer.status, content))
            raise ConnectionError(content)
        return content


def released(served: Served) -> Iterator[dict[str, Any]]:
    at = f"/v1/plans/{served.plan.id}/crowds"
    for crowd in served.ask(at)["crowds"]:
        if crowd["state"] == "released":
            yield served.ask(f"{at}/{crowd['number']}")


def test_random_kills_under_load(tmp_path: Path):
    """Each comes at a random moment: while it starts, receives, opens or releases."""
    options = tuple(f"option {number}" for number in range(8))
    plan = make_plan(Flags("f", options), crowd=200, parties=PARTIES)
    chance = Random(11)
    with served_analyzer(tmp_path / "data", plan) as served:
        relay = Relay(served, plan)
        relay.start()
        seen: dict[int, object] = {}
        for kill in range(KILLS):
            if kill % 4 == 3:
                served.launch()
                time.sleep(chance.random())
            else:
                served.start()
                time.sleep(chance.random() * 2)
                seen |= {one["number"]: one["tally"] for one in released(served)}
            served.kill()
        served.start()
        relay.enough.set()
        relay.join(LONGEST)
        assert not relay.is_alive()
        assert relay.made
        end = time.monotonic() + LONGEST
        while len(shown := list(released(served))) < len(relay.made):
            assert time.monotonic() < end, "crowds are still not opened"
            time.sleep(0.05)
        assert served.stop() == 0
    assert relay.surprises == []
    assert [one["number"] for one in shown] == list(range(1, len(relay.made) + 1))
    for one, batch in zip(shown, relay.made, strict=True):
        assert one["unreadable"] == 0
        expected = counted_by_hand(plan, batch)
        expected["crowds"][0]["name"] = str(one["number"])
        assert one["tally"] == expected
        assert seen.get(one["number"], expected) == expected
    assert not any((served.folder / "chunks").iterdir())
    print(f"{KILLS} kills, {len(shown)} crowds")


def test_a_whole_crowd_is_opened_whatever_happens_to_its_plan(tmp_path: Path):
    """The relay was told that it is complete, and has deleted it."""
    batch, clock = upload(DAILY, DAILY.reports_needed, 8), Clock()
    place, late = Place(int(clock.now // DAY), 1), Place(int(clock.now // DAY), 2)
    (tmp_path / "data").mkdir()
    with closing(AnalyzerStore(tmp_path / "data", clock=clock, deadline_days=3)) as store:
        store.add_plan(DAILY)
        assert store.move(DAILY.id, "published", b"{}")
        document = store.crowd_key(DAILY.id, place, DATA)
        assert isinstance(document, bytes)
        assert isinstance(store.crowd_key(DAILY.id, late, DATA), bytes)
        key = CrowdKey.from_bytes(document)
        for chunk in cut(DAILY, key, sealed(DAILY, key, contents_of(batch))):
            assert isinstance(store.keep_chunk(place, chunk, chunk.to_bytes()), Receipt)
        clock.now += 30 * DAY
        store.sweep()
        assert store.move(DAILY.id, "closed")
        assert [crowd.state for crowd in store.crowds(DAILY.id)] == ["open", "discarded"]
        assert seal_next(store)
        release = json.loads(store.release(DAILY.id, 1) or b"")
        assert release["by_bit"] == counted_by_hand(DAILY, batch)["by_bit"]
