"""Who may ask for keys and bring chunks, and what happens to what does not fit."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shoal import Flags
from shoal.errors import InputError
from shoal.protocol.encryption import Chunk, CrowdKey, chunk_header_bytes
from shoal.protocol.plan import Aggregators
from shoal.protocol.signatures import check_public_key, check_signature
from shoal.server import Collector, Settings
from shoal.server.core import problems
from shoal.server.core.problems import Problem
from shoal.server.core.tokens import Token
from shoal.server.storage.key_file import Signer
from shoal.server.storage.records import Declaration
from tests.server.analyzer.relay_help import (
    PLANS,
    WHOLE,
    FakeRelay,
    beside_analyzer,
    contents_of,
    cut,
    digest,
    sealed,
)
from tests.server.privacy_help import address_of
from tests.server.store_help import DAY, NOON, Clock, counted_by_hand, make_plan, told, upload

DAILY = PLANS["daily"]
AGGREGATORS = Aggregators("https://leader.example", "https://helper.example", 5)
SHARED = make_plan(
    Flags("f", tuple("abcde")), crowd=20, view="counts", parties=AGGREGATORS, window=DAY
)
TODAY = int(NOON // DAY)


def problem_of(answer: Any) -> Problem:
    """Return the problem that was answered."""
    found = [one for one in problems.PROBLEMS if one.body == answer.content]
    assert found, answer.text
    assert answer.status_code == found[0].status
    return found[0]


async def chunks_of(relay: FakeRelay, plan: Any = WHOLE, seed: int = 1, crowd: int = 1) -> Any:
    """Return the chunks of a crowd, not sent yet, and its reports."""
    batch = upload(plan, plan.reports_needed, seed)
    window = 0 if plan.window is None else TODAY
    key = await relay.crowd_key(plan, window, crowd)
    return cut(plan, key, sealed(plan, key, contents_of(batch))), batch


def verified(answer: Any, relay: FakeRelay) -> bytes:
    """Check the analyzer's signature, as a relay does."""
    assert answer.headers["shoal-key"] == relay.analyzer.service.signer.public_key
    content: bytes = answer.content
    key = check_public_key(answer.headers["shoal-key"])
    check_signature(key, content, answer.headers["shoal-signature"])
    return content


class TestKeys:
    @told(beside_analyzer, WHOLE, DAILY)
    async def test_one_for_each_crowd_for_ever_and_signed(self, relay: FakeRelay):
        places = [(plan, window, crowd) for plan, window in ((WHOLE, 0), (DAILY, TODAY))
                  for crowd in (1, 2)]  # fmt: skip
        first = {place: verified(await relay.ask_key(*place), relay) for place in places}
        again = {place: verified(await relay.ask_key(*place), relay) for place in places}
        assert first == again
        keys = [CrowdKey.from_bytes(document) for document in first.values()]
        assert len({key.public_key for key in keys}) == 4
        for (plan, window, crowd), key in zip(first, keys, strict=True):
            assert (key.plan_id, key.window, key.crowd) == (plan.id, window, crowd)

    def test_the_same_after_a_restart(self, tmp_path: Path):
        async def work(relay: FakeRelay) -> bytes:
            return (await relay.ask_key(WHOLE)).content

        assert beside_analyzer(work, tmp_path, WHOLE) == beside_analyzer(work, tmp_path, WHOLE)

    @pytest.mark.parametrize(
        ("window", "crowd", "expected"),
        [
            (TODAY, 8, None),
            (TODAY, 9, problems.CROWD_NOT_DUE),
            (TODAY - 1, 1, None),
            (TODAY + 1, 1, None),
            (TODAY - 2, 1, problems.WINDOW_EXPIRED),
            (TODAY + 2, 1, problems.CROWD_NOT_DUE),
            (TODAY, 0, problems.BAD_REQUEST),
            (-1, 1, problems.BAD_REQUEST),
            (True, 1, problems.BAD_REQUEST),
            (2**32, 1, problems.BAD_REQUEST),
        ],
    )
    @told(beside_analyzer, DAILY)
    async def test_which_are_due(self, window: int, crowd: int, expected: Any, relay: FakeRelay):
        answer = await relay.ask_key(DAILY, window, crowd)
        assert (None if answer.status_code == 200 else problem_of(answer)) == expected

    @told(beside_analyzer, WHOLE)
    async def test_a_crowd_that_ended_makes_room_for_another(self, relay: FakeRelay):
        chunks, _ = await chunks_of(relay)
        for crowd in range(2, 9):
            assert (await relay.ask_key(WHOLE, 0, crowd)).status_code == 200
        assert problem_of(await relay.ask_key(WHOLE, 0, 9)) == problems.CROWD_NOT_DUE
        await relay.forward(chunks)
        await relay.released(WHOLE)
        assert (await relay.ask_key(WHOLE, 0, 9)).status_code == 200

    @told(beside_analyzer, WHOLE)
    async def test_no_key_of_a_crowd_that_has_ended(self, relay: FakeRelay):
        """Reports for it could never be opened. The next free crowd is given, always the same."""
        chunks, _ = await chunks_of(relay)
        await relay.crowd_key(WHOLE, 0, 2)
        await relay.forward(chunks)
        await relay.released(WHOLE)
        for new in ("relay-new", "relay-new", "relay-third"):
            given = await relay.ask_key(WHOLE, 0, 1, relay=new)
            assert CrowdKey.from_bytes(given.content).crowd == (3 if new == "relay-new" else 4)
        assert (await relay.crowd_key(WHOLE, 0, 1)).crowd == 2  # its own, and not used yet

    @told(beside_analyzer, WHOLE)
    async def test_no_key_of_a_crowd_that_other_data_fill(self, relay: FakeRelay):
        first = await relay.crowd_key(WHOLE)
        other = CrowdKey.from_bytes((await relay.ask_key(WHOLE, relay="relay-new")).content)
        assert (first.crowd, other.crowd) == (1, 2)
        assert first.public_key != other.public_key

    @told(beside_analyzer, WHOLE)
    async def test_no_key_of_a_crowd_of_which_chunks_have_come(self, relay: FakeRelay):
        """Whoever asks again has lost its data: other chunks of the same crowd would not fit."""
        chunks, _ = await chunks_of(relay)
        await relay.forward(chunks[:1])
        assert (await relay.crowd_key(WHOLE)).crowd == 2
        assert (await relay.forward(chunks[1:]))[-1] == "complete"
        await relay.released(WHOLE)

    @pytest.mark.parametrize(
        ("analyzer", "relay_days", "fits"),
        [(90, 45, True), (90, 46, False), (90, 0, False), (0, 0, True), (0, 9999, True)],
    )
    def test_deadlines_must_fit(self, analyzer: int, relay_days: int, fits: bool, tmp_path: Path):
        """A relay may keep a crowd for its deadline, and again as long when it is complete."""

        async def work(relay: FakeRelay) -> None:
            answer = await relay.ask_key(WHOLE, deadline_days=relay_days)
            if fits:
                assert answer.status_code == 200
            else:
                assert problem_of(answer) == problems.DEADLINES_MISFIT

        beside_analyzer(work, tmp_path, WHOLE, deadline_days=analyzer)

    @pytest.mark.parametrize(
        "changes",
        [{"relay": "x"}, {"relay": 5}, {"relay": "relay-data\n"}, {"relay": "A" * 20},
         {"deadline_days": -1}, {"more": 1}, {"deadline_days": True}, {"deadline_days": 10**9}],
    )  # fmt: skip
    @told(beside_analyzer, WHOLE)
    async def test_what_is_not_asked_for(self, changes: dict[str, Any], relay: FakeRelay):
        answer = await relay.ask_key(WHOLE, **changes)
        assert problem_of(answer) == problems.BAD_REQUEST


class TestDiscarding:
    @told(beside_analyzer, WHOLE)
    async def test_the_key_and_the_chunks_go(self, relay: FakeRelay):
        chunks, _ = await chunks_of(relay)
        await relay.forward(chunks[:1])
        for _ in range(2):
            answer = await relay.discard(WHOLE)
            assert json.loads(verified(answer, relay))["state"] == "discarded"
        store = relay.analyzer.store
        secret = await relay.analyzer.service.in_store(
            lambda: store.database.execute("SELECT 1 FROM wrapped_keys").fetchone()
        )
        assert secret is None
        assert not any((relay.analyzer.service.folder / "chunks").iterdir())
        (crowd,) = (await relay.console(f"/v1/plans/{WHOLE.id}/crowds")).json()["crowds"]
        assert (crowd["state"], crowd["reason"]) == ("discarded", "relay")
        assert problem_of(await relay.put(chunks[1])) == problems.CROWD_GONE

    @told(beside_analyzer, WHOLE)
    async def test_a_crowd_that_arrived_stays(self, relay: FakeRelay):
        chunks, _ = await chunks_of(relay)
        await relay.forward(chunks)
        assert (await relay.discard(WHOLE)).json()["state"] == "complete"
        await relay.released(WHOLE)
        assert (await relay.discard(WHOLE)).json()["state"] == "complete"

    @told(beside_analyzer, WHOLE)
    async def test_only_signed_and_of_a_crowd_that_there_is(self, relay: FakeRelay):
        await relay.crowd_key(WHOLE)
        assert problem_of(await relay.discard(WHOLE, signature="")) == problems.UNSIGNED
        for said in ({"crowd": 2}, {"plan": "ab" * 32}, {"state": "open"}, {"more": 1}):
            assert problem_of(await relay.discard(WHOLE, said=said)) == problems.BAD_REQUEST
        assert problem_of(await relay.discard(WHOLE, 2)) == problems.UNKNOWN_CROWD
        relay.token = ""
        assert problem_of(await relay.discard(WHOLE)) == problems.NO_TOKEN


class TestDamage:
    def damage(self, folder: Path, number: int = 0, *, lost: bool = False) -> None:
        path = folder / "chunks" / f"{WHOLE.id}-1" / str(number)
        path.unlink() if lost else path.write_bytes(b"\0" + path.read_bytes()[1:])

    @pytest.mark.parametrize("lost", [False, True], ids=["other bytes", "lost"])
    def test_the_same_bytes_heal_a_chunk(self, lost: bool, tmp_path: Path):
        async def work(relay: FakeRelay) -> str:
            chunks, batch = await chunks_of(relay)
            await relay.forward(chunks[:2])
            self.damage(relay.analyzer.service.folder, lost=lost)
            assert await relay.forward(chunks) == ["receiving", "receiving", "complete"]
            assert await relay.released(WHOLE) == counted_by_hand(WHOLE, batch)
            return relay.analyzer.administration.metrics_text().decode()

        text = beside_analyzer(work, tmp_path, WHOLE)
        assert "shoal_chunks_damaged_total 1.0" in text
        assert "shoal_chunks_healed_total 1.0" in text

    def test_the_last_chunk_does_not_complete_a_damaged_crowd(self, tmp_path: Path):
        """The relay deletes what it was told is complete. Else it sends all of it again."""

        async def work(relay: FakeRelay) -> str:
            chunks, batch = await chunks_of(relay)
            await relay.forward(chunks[:2])
            self.damage(relay.analyzer.service.folder)
            assert await relay.forward(chunks[2:]) == ["receiving"]
            assert problem_of(await relay.put(other(chunks[0]))) == problems.OTHER_CHUNK
            assert await relay.forward(chunks) == ["complete"] * 3
            assert await relay.released(WHOLE) == counted_by_hand(WHOLE, batch)
            return relay.analyzer.administration.metrics_text().decode()

        def other(chunk: Chunk) -> Chunk:
            return replace(chunk, content=chunk.content[::-1])

        text = beside_analyzer(work, tmp_path, WHOLE)
        assert "shoal_chunks_damaged_total 1.0" in text
        assert "shoal_chunks_healed_total 1.0" in text

    @told(beside_analyzer, WHOLE)
    async def test_closing_destroys_a_damaged_crowd(self, relay: FakeRelay):
        chunks, _ = await chunks_of(relay)
        await relay.forward(chunks[:2])
        self.damage(relay.analyzer.service.folder)
        await relay.forward(chunks[2:])
        assert await relay.analyzer.administration.move_plan(WHOLE.id, "closed") is None
        assert not any((relay.analyzer.service.folder / "chunks").iterdir())
        store = relay.analyzer.store
        left = await relay.analyzer.service.in_store(
            lambda: [
                store.database.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
                for table in ("wrapped_keys", "chunks", "damaged_chunks")
            ]
        )
        assert left == [0, 0, 0]


def test_a_foreign_file_among_the_chunks_is_left_alone(
    tmp_path: Path, service_log: pytest.LogCaptureFixture
):
    (tmp_path / "chunks" / "a folder").mkdir(parents=True)
    foreign = tmp_path / "chunks" / ".DS_Store"
    foreign.write_bytes(b"x")

    async def work(relay: FakeRelay) -> None:
        chunks, _ = await chunks_of(relay)
        await relay.forward(chunks)
        await relay.released(WHOLE)
        await relay.analyzer.service.in_store(relay.analyzer.store.sweep)

    beside_analyzer(work, tmp_path, WHOLE)
    assert foreign.read_bytes() == b"x"
    found = [one for one in service_log.messages if one == "a foreign file is left alone"]
    assert len(found) == 2


class TestWhoMay:
    @told(beside_analyzer, WHOLE)
    async def test_only_registered_relays(self, relay: FakeRelay):
        chunks, _ = await chunks_of(relay)
        tokens = relay.analyzer.service.tokens
        add = relay.analyzer.service.in_store
        other = "ab" * 32
        secrets = {
            "": problems.NO_TOKEN,
            "shoal_relay_" + "0" * 64: problems.NO_TOKEN,
            await add(tokens.add, Token.new("app", "a")): problems.WRONG_ROLE,
            await add(tokens.add, Token.new("admin", "a")): problems.WRONG_ROLE,
            await add(
                tokens.add, Token.new("relay", "a", plans=[other], key=relay.public_key)
            ): problems.WRONG_ROLE,
        }
        for secret, expected in secrets.items():
            relay.token = secret
            assert problem_of(await relay.ask_key(WHOLE)) == expected
            assert problem_of(await relay.put(chunks[0])) == expected

    @told(beside_analyzer, WHOLE)
    async def test_not_with_another_key_or_none(self, relay: FakeRelay):
        chunks, batch = await chunks_of(relay)
        body = chunks[0].to_bytes()
        foreign = FakeRelay(relay.analyzer, relay.client)
        for signature in ("", "AAAA", "!", foreign.key.sign(body).hex()):
            answer = await relay.put(chunks[0], signature=signature)
            assert problem_of(answer) == problems.UNSIGNED
        foreign.token = relay.token  # whoever has the token does not have the key
        assert problem_of(await foreign.put(chunks[0])) == problems.UNSIGNED
        await relay.register(key=None)
        assert problem_of(await relay.put(chunks[0])) == problems.UNSIGNED
        await relay.register()
        await relay.forward(chunks)
        assert await relay.released(WHOLE) == counted_by_hand(WHOLE, batch)

    def test_a_relay_that_changes_its_key_signs_with_both(self, tmp_path: Path):
        async def work(relay: FakeRelay) -> None:
            chunks, _ = await chunks_of(relay)
            (tmp_path / "relay").mkdir()
            signer = Signer(tmp_path / "relay")
            await relay.register(key=signer.public_key)
            signer.keys.rotate(overlap=3600)
            signature = signer.headers(chunks[0].to_bytes())["Shoal-Signature"]
            assert (await relay.put(chunks[0], signature=signature)).status_code == 200
            signer.keys.end_overlap()
            signature = signer.headers(chunks[0].to_bytes())["Shoal-Signature"]
            answer = await relay.put(chunks[0], signature=signature)
            assert problem_of(answer) == problems.UNSIGNED
            await relay.register(key=signer.public_key)
            assert (await relay.put(chunks[0], signature=signature)).status_code == 200

        beside_analyzer(work, tmp_path / "data", WHOLE)

    @told(beside_analyzer, WHOLE)
    async def test_not_after_it_was_revoked(self, relay: FakeRelay):
        chunks, _ = await chunks_of(relay)
        token = await relay.register()
        await relay.put(chunks[0])
        await relay.analyzer.service.in_store(relay.analyzer.service.tokens.remove, token.id)
        assert problem_of(await relay.put(chunks[1])) == problems.NO_TOKEN
        assert problem_of(await relay.ask_key(WHOLE)) == problems.NO_TOKEN

    def test_only_a_relay_has_a_key(self):
        with pytest.raises(InputError, match="only a relay has a key"):
            Token.new("viewer", "a", key="A" * 43)
        with pytest.raises(InputError, match="43 letters"):
            Token.new("relay", "a", key="A" * 42)


class TestChunks:
    @told(beside_analyzer, WHOLE)
    async def test_in_any_order_and_twice(self, relay: FakeRelay):
        chunks, batch = await chunks_of(relay, WHOLE)
        for number, state in ((2, "receiving"), (0, "receiving"), (2, "receiving"),
                              (1, "complete"), (0, "complete")):  # fmt: skip
            answer = await relay.put(chunks[number])
            assert json.loads(verified(answer, relay)) == {
                "plan": WHOLE.id, "window": 0, "crowd": 1, "chunk": number,
                "digest": digest(chunks[number]), "state": state,
            }  # fmt: skip
        assert await relay.released(WHOLE) == counted_by_hand(WHOLE, batch)
        assert (await relay.put(chunks[1])).json()["state"] == "complete"
        other = replace(chunks[1], content=chunks[0].content)
        assert problem_of(await relay.put(other)) == problems.OTHER_CHUNK
        crowds = await relay.analyzer.service.in_store(relay.analyzer.store.crowds, WHOLE.id)
        assert [crowd.state for crowd in crowds] == ["released"]

    @told(beside_analyzer, WHOLE)
    async def test_what_does_not_fit_changes_nothing(self, relay: FakeRelay):
        (first, second, third), batch = await chunks_of(relay)
        assert (await relay.put(first)).status_code == 200
        size = len(first.content) // 6
        others = [
            replace(first, content=second.content[: len(first.content)]),
            replace(second, chunks=4),
            replace(second, key=bytes(32)),
            replace(second, content=second.content + 13 * second.content[:size]),
        ]
        for other in others:
            assert problem_of(await relay.put(other)) == problems.OTHER_CHUNK
        assert (await relay.put(second)).status_code == 200
        for content in (third.content[:-size], third.content + third.content[:size]):
            last = replace(third, content=content)
            assert problem_of(await relay.put(last)) == problems.OTHER_CHUNK
        assert (await relay.put(third)).json()["state"] == "complete"
        assert await relay.released(WHOLE) == counted_by_hand(WHOLE, batch)

    @told(beside_analyzer, WHOLE)
    async def test_what_is_no_chunk(self, relay: FakeRelay):
        chunks, _ = await chunks_of(relay)
        first: Chunk = chunks[0]
        body = first.to_bytes()
        for other in (b"", body[:-1], b"X" + body[1:], body[: chunk_header_bytes()]):
            answer = await relay.put(first, body=other)
            assert problem_of(answer) == problems.MALFORMED_CHUNK
        answer = await relay.put(replace(first, plan_id=DAILY.id), body=body)
        assert problem_of(answer) == problems.UNKNOWN_PLAN
        for change in ({"number": 1}, {"window": 1}):
            answer = await relay.put(first, **change)
            assert problem_of(answer) == problems.MALFORMED_CHUNK
        assert problem_of(await relay.put(first, crowd=2)) == problems.UNKNOWN_CROWD
        assert problem_of(await relay.put(first, media="text/plain")) == problems.WRONG_TYPE
        answer = await relay.put(first, body=bytes((8 << 20) + 1), signature="")
        assert problem_of(answer) == problems.TOO_LARGE
        address = f"/v1/plans/{WHOLE.id}/crowds/0/1/chunks/0"
        assert problem_of(await relay.client.get(address)) == problems.ONLY_PUT
        crowds = await relay.analyzer.service.in_store(relay.analyzer.store.crowds, WHOLE.id)
        assert [crowd.state for crowd in crowds] == ["open"]

    @told(beside_analyzer, WHOLE)
    async def test_two_crowds_at_a_time(self, relay: FakeRelay):
        one, batch_one = await chunks_of(relay, seed=1, crowd=1)
        two, batch_two = await chunks_of(relay, seed=2, crowd=2)
        for a, b in zip(one, two, strict=True):
            assert problem_of(await relay.put(a, crowd=2)) == problems.OTHER_CHUNK
            await relay.forward([b], crowd=2)
            await relay.forward([a], crowd=1)
        for number, batch in ((1, batch_one), (2, batch_two)):
            release = await relay.released(WHOLE, number)
            assert release["by_bit"] == counted_by_hand(WHOLE, batch)["by_bit"]
            assert release["crowds"][0]["name"] == str(number)

    @told(beside_analyzer, WHOLE)
    async def test_a_full_disk(self, relay: FakeRelay):
        chunks, _ = await chunks_of(relay)
        relay.analyzer.store._spare = 1 << 60
        assert problem_of(await relay.put(chunks[0])) == problems.STORAGE_FULL
        relay.analyzer.store._spare = 0
        await relay.forward(chunks)


class TestTime:
    def test_a_crowd_on_its_way_when_its_window_ends(self, tmp_path: Path):
        clock = Clock()

        async def work(relay: FakeRelay) -> None:
            chunks, _ = await chunks_of(relay, DAILY)
            late, _ = await chunks_of(relay, DAILY, seed=2, crowd=2)
            sweep = relay.analyzer.store.sweep
            clock.now += 2 * DAY  # its window is over, and no new crowd of it begins
            await relay.analyzer.service.in_store(sweep)
            assert problem_of(await relay.ask_key(DAILY, TODAY, 3)) == problems.WINDOW_EXPIRED
            await relay.forward(chunks)
            await relay.released(DAILY)
            await relay.put(late[0], crowd=2)
            clock.now += 2 * DAY
            await relay.analyzer.service.in_store(sweep)
            assert problem_of(await relay.put(late[1], crowd=2)) == problems.CROWD_GONE
            assert problem_of(await relay.put(late[0], crowd=2)) == problems.CROWD_GONE
            database = relay.analyzer.store.database
            assert database.execute("SELECT count(*) FROM wrapped_keys").fetchone() == (0,)
            assert database.execute("SELECT count(*) FROM chunks").fetchone() == (0,)
            crowds = await relay.analyzer.service.in_store(relay.analyzer.store.crowds, DAILY.id)
            assert [crowd.state for crowd in crowds] == ["released", "discarded"]
            assert not any((tmp_path / "chunks").iterdir())

        beside_analyzer(work, tmp_path, DAILY, clock=clock)

    def test_crowds_past_their_deadline(self, tmp_path: Path):
        clock = Clock()

        async def work(relay: FakeRelay) -> None:
            chunks, _ = await chunks_of(relay)
            clock.now += 40 * DAY
            await relay.analyzer.service.in_store(relay.analyzer.store.sweep)
            assert problem_of(await relay.put(chunks[0])) == problems.CROWD_GONE
            assert (await relay.crowd_key(WHOLE)).crowd == 2

        beside_analyzer(work, tmp_path, WHOLE, clock=clock, deadline_days=30)


class TestStates:
    @told(beside_analyzer, WHOLE)
    async def test_paused_closed_destroyed(self, relay: FakeRelay):
        chunks, _ = await chunks_of(relay)
        done, batch = await chunks_of(relay, seed=2, crowd=2)
        move = relay.analyzer.administration.move_plan
        await relay.forward(done, crowd=2)
        expected = await relay.released(WHOLE, 2)
        assert expected["by_bit"] == counted_by_hand(WHOLE, batch)["by_bit"]
        assert await move(WHOLE.id, "paused") is None
        assert problem_of(await relay.ask_key(WHOLE)) == problems.PAUSED
        assert problem_of(await relay.put(chunks[0])) == problems.PAUSED
        assert await move(WHOLE.id, "closed") is None
        assert problem_of(await relay.ask_key(WHOLE)) == problems.PLAN_CLOSED
        assert problem_of(await relay.put(chunks[0])) == problems.PLAN_CLOSED
        assert (await relay.put(done[0], crowd=2)).json()["state"] == "complete"
        assert await relay.released(WHOLE, 2) == expected
        assert await move(WHOLE.id, "destroyed") is None
        database = relay.analyzer.store.database
        for table in ("wrapped_keys", "chunks", "crowd_keys"):
            assert not database.execute(f"SELECT * FROM {table}").fetchall()
        assert problem_of(await relay.put(done[0], crowd=2)) == problems.UNKNOWN_CROWD


class TestOtherParty:
    @told(beside_analyzer, WHOLE)
    async def test_an_analyzer_takes_no_plan_without_parties(self, relay: FakeRelay):
        plan = make_plan(crowd=20)
        assert await relay.analyzer.administration.add_plan(plan) == problems.NEEDS_COLLECTOR
        assert relay.analyzer.administration.plans.get(plan.id) is None
        assert (
            (await relay.client.get("/openapi.json")).json()["info"]["title"].endswith("analyzer")
        )
        answer = await relay.client.post(f"/v1/plans/{WHOLE.id}/reports", content=b"")
        assert problem_of(answer) == problems.NOT_FOUND

    @told(beside_analyzer, WHOLE)
    async def test_nobody_takes_a_plan_of_a_leader_and_a_helper(self, relay: FakeRelay):
        assert await relay.analyzer.administration.add_plan(SHARED) == problems.NEEDS_AGGREGATORS
        assert relay.analyzer.administration.plans.get(SHARED.id) is None

    def test_a_collector_takes_no_plan_with_parties(self, tmp_path: Path):
        async def work() -> None:
            async with Collector(tmp_path, Settings(min_crowd=1)) as collector:
                assert await collector.administration.add_plan(WHOLE) == problems.NEEDS_ANALYZER
                refusal = await collector.administration.add_plan(SHARED)
                assert refusal == problems.NEEDS_AGGREGATORS
                assert collector.administration.plans.get(WHOLE.id) is None
                plan = make_plan(crowd=20)
                assert await collector.administration.add_plan(plan) is None
                declared = Declaration(all_honest=True)
                assert (
                    await collector.administration.move_plan(plan.id, "published", declared) is None
                )

        import asyncio

        asyncio.run(work())

        async def nothing(relay: FakeRelay) -> None:
            pass

        with pytest.raises(InputError, match="holds the data of the collector"):
            beside_analyzer(nothing, tmp_path)

    def test_a_collector_does_not_start_on_its_data(self, tmp_path: Path):
        async def nothing(relay: FakeRelay) -> None:
            pass

        beside_analyzer(nothing, tmp_path)

        async def work() -> None:
            async with Collector(tmp_path, Settings()):
                pass

        import asyncio

        with pytest.raises(InputError, match="holds the data of the analyzer"):
            asyncio.run(work())


@told(beside_analyzer, WHOLE)
async def test_nothing_is_known_of_a_crowd_at_the_relay(relay: FakeRelay):
    chunks, _ = await chunks_of(relay, WHOLE)
    await relay.forward(chunks[:2])
    at = f"/v1/plans/{WHOLE.id}"
    answer = await relay.console(f"{at}/progress")
    assert answer.json() == {"state": "published", "progress": None}
    for path in ("/", f"/surveys/{address_of(WHOLE)}"):
        page = (await relay.console(path)).text
        assert "waiting for the relay" in page
        assert "\u202f%" not in page
    for path in (f"{at}/crowds/1", f"{at}/crowds/1/estimates", f"{at}/crowds/1/report.html"):
        assert problem_of(await relay.console(path)) == problems.CROWD_OPEN
    assert await relay.analyzer.administration.move_plan(WHOLE.id, "closed") is None
    page = (await relay.console(f"/surveys/{address_of(WHOLE)}")).text
    assert "discarded: its plan was closed" in page
    assert "\u202f%" not in page
