"""Several relays on one PostgreSQL database: each report once, always the same bytes forwarded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from shoal import Plan
from shoal.errors import InputError
from shoal.protocol.signatures import key_text
from shoal.server.core import problems
from shoal.server.core.problems import Problem
from shoal.server.core.service import Service
from shoal.server.relay import forwarding, shuffled_chunks
from shoal.server.relay.documents import RelayPlans, refresh_on_miss
from shoal.server.storage.database import StorageError
from shoal.server.storage.windows import IncompleteCrowd
from tests.server.cutting_proxy import CuttingProxy
from tests.server.postgres_help import needs_postgres, second_folder, store_in, the_server
from tests.server.privacy_help import NOW

from .relay_help import LONG, WEEKLY, WHOLE, FakeAnalyzer, check_once, made, party_plan, sealed
from .shared_help import SharedRelay, two_relays

pytestmark = [needs_postgres, pytest.mark.system, pytest.mark.slow]

LARGE = party_plan("large", bits=2, crowd=700)
WEEK = 7 * 86_400


@pytest.fixture(autouse=True)
def several_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try again at once, and cut small crowds into several chunks."""
    monkeypatch.setattr(forwarding, "FIRST_PAUSE", 0.0)
    monkeypatch.setattr(forwarding, "ELSEWHERE_PAUSE", 0.0)
    monkeypatch.setattr(shuffled_chunks, "LARGEST_CHUNK", 600)


@pytest.fixture
def url() -> str:
    return the_server().new_database()


@pytest.fixture
def analyzer() -> FakeAnalyzer:
    return FakeAnalyzer(WHOLE, LONG, WEEKLY, LARGE)


@pytest.fixture
def pair(
    url: str, tmp_path: Path, analyzer: FakeAnalyzer
) -> Iterator[tuple[SharedRelay, SharedRelay]]:
    both = two_relays(url, tmp_path, analyzer, WHOLE, LONG, LARGE)
    yield both
    for one in both:
        one.close()


def test_signatures_that_one_relay_fetched_again_are_shown_by_both(
    pair: tuple[SharedRelay, SharedRelay], analyzer: FakeAnalyzer
):
    first, second = pair
    before = second.store.open_keys()[(WHOLE.id, 0)]
    analyzer.signing.change()
    first.analyzer.keys()
    signers = ", ".join(map(key_text, analyzer.signing.keys))
    stale = first.store.signed_otherwise(signers)
    assert {one.plan_id for one in stale} == {WHOLE.id, LONG.id, LARGE.id}
    for one in stale:
        assert first.store.sign_again(
            one, first.analyzer.crowd_key(one, first.store.data_name(), 30)
        )
    shown = second.store.open_keys()[(WHOLE.id, 0)]
    assert (shown.content, shown.signer) == (before.content, signers)
    assert second.store.signed_otherwise(signers) == []


class TestReports:
    @pytest.mark.parametrize("plan", [WHOLE, LONG], ids=lambda plan: plan.survey.name)
    def test_each_report_once(
        self, plan: Plan, pair: tuple[SharedRelay, SharedRelay], analyzer: FakeAnalyzer
    ):
        reports = made(plan, 60, seed=1)
        for number in range(0, 60, 3):
            for turn in (0, 1):  # each report comes at both
                pair[(number + turn) % 2].take(plan, reports[number : number + 3])
            if number % 7 == 0:
                pair[number % 2].store.sweep()
        for one in pair:
            one.store.sweep()
            one.forward()
            assert one.failures == 0
        assert len(analyzer.complete(plan)) == 3
        check_once(analyzer, plan, reports)

    def test_many_rows(self, pair: tuple[SharedRelay, SharedRelay], analyzer: FakeAnalyzer):
        """What the other one remembered is recognized, across rows of digests that are full."""
        reports = made(LARGE, 1400, seed=2)
        sizes = (1, 479, 1, 19, 200, 480, 220)
        start = 0
        for number, size in enumerate(sizes):
            pair[number % 2].take(LARGE, reports[start : start + size])
            start += size
            pair[1 - number % 2].take(LARGE, reports[max(0, start - 500) : start])
        assert start == 1400
        pair[0].store.sweep()
        pair[1].forward()
        check_once(analyzer, LARGE, reports)

    def test_a_crowd_that_the_other_one_filled(self, pair: tuple[SharedRelay, SharedRelay]):
        first, second = pair
        old = second.key(WHOLE)
        first.take(WHOLE, made(WHOLE, 20, seed=1))
        late = made(WHOLE, 2, seed=2)
        upload = sealed(WHOLE, old, late)
        before = second.store.known_keys({})[(WHOLE.id, 0)]
        assert second.store.accept([upload]) == [problems.KEY_CHANGED]
        assert second.store.known_keys({})[(WHOLE.id, 0)] != before
        assert second.key(WHOLE).crowd == 2
        assert second.store.is_behind  # it sees that a crowd waits to be frozen
        second.take(WHOLE, late)

    def test_rows_belong_to_whoever_made_them(self, pair: tuple[SharedRelay, SharedRelay]):
        """So what another relay has written need not be read."""
        for number, report in enumerate(made(WHOLE, 18, seed=3)):
            pair[number % 2].take(WHOLE, [report])
            pair[number % 2].store.sweep()
        spare = [one.store._plans.known()[WHOLE.id]._crowds[0][0].rows._spare for one in pair]
        assert all(spare)
        assert not set(spare[0]) & set(spare[1])

    def test_a_repetition_writes_as_much(self, pair: tuple[SharedRelay, SharedRelay]):
        first, _ = pair
        reports = made(WHOLE, 5, seed=4)
        first.store.sweep()
        for one in pair:
            one.take(WHOLE, made(WHOLE, 1, seed=5))
        written = []
        for report in [*reports, *reports]:
            upload = first.sealed(WHOLE, [report])
            before = rows_written(first)
            first.store.accept([upload])
            written.append([b - a for a, b in zip(before, rows_written(first), strict=True)])
        assert [one == written[0] for one in written] == [True] * 10
        assert sum(written[0]) >= 4

    def test_what_one_does_the_other_knows(self, url: str, tmp_path: Path, analyzer: FakeAnalyzer):
        now = [NOW]
        first, second = two_relays(url, tmp_path, analyzer, WHOLE, WEEKLY, clock=lambda: now[0])
        second.take(WEEKLY, made(WEEKLY, 4, seed=1))
        upload = second.sealed(WHOLE, made(WHOLE, 4, seed=1))
        assert first.store.close_plan(WHOLE.id)
        assert second.store.accept([upload]) == [problems.PLAN_CLOSED]
        assert not second.store.close_plan(WHOLE.id)
        late = second.sealed(WEEKLY, made(WEEKLY, 4, seed=2))
        now[0] += 2 * WEEK
        first.store.sweep()
        assert second.store.accept([late]) == [problems.WINDOW_EXPIRED]
        states = {one.state: one.progress for one in second.store.crowds(WEEKLY.id) if one.progress}
        assert states == {"discarded": 20}
        for one in (first, second):
            one.close()

    def test_a_plan_that_was_closed_elsewhere_leaves_memory(
        self, pair: tuple[SharedRelay, SharedRelay]
    ):
        """Also with a crowd that is whole: nobody here waits for it to be frozen."""
        first, second = pair
        first.take(LONG, made(LONG, LONG.reports_needed, seed=9))
        assert first.store.is_behind
        assert second.store.close_plan(LONG.id)
        first.store.sweep()
        assert not first.store.is_behind
        assert LONG.id not in first.store._plans.known()

    def test_a_warned_commit_is_not_believed(self, pair: tuple[SharedRelay, SharedRelay]):
        """The server warns if it was told not to wait for its standbys any longer."""
        store = pair[0].store
        warning = "DO $$ BEGIN RAISE WARNING 'not replicated'; END $$"
        with pytest.raises(StorageError, match="standbys"):
            store.database.run("warn", lambda: store.database.execute(warning), exclusive=False)
        store.database.check()

    def test_a_crowd_is_opened_once(self, pair: tuple[SharedRelay, SharedRelay]):
        first, second = pair
        wanted = [one.store.wanted() for one in pair]
        assert wanted == [[], []]
        numbers = "SELECT count(*), count(DISTINCT number) FROM crowds"
        for one in pair:
            one.take(WHOLE, made(WHOLE, 10, seed=one is first))
        wishes = second.store.wanted()
        first.fetch_keys()
        signed = first.store.open_keys()[(WHOLE.id, 0)]
        assert [second.store.open_crowd(one, signed) for one in wishes] == [False]
        assert len(set(first.store.database.execute(numbers).fetchone())) == 1

    def test_the_key_that_the_given_one_led_to_counts_for_all(
        self, pair: tuple[SharedRelay, SharedRelay]
    ):
        first, second = pair
        assert first.store.agree_on_key(b"1" * 32) == b"1" * 32
        assert second.store.pin_key(b"2" * 32) == b"2" * 32
        assert first.store.agree_on_key(b"1" * 32) == b"2" * 32  # a restart
        assert first.store.agree_on_key(b"3" * 32) == b"3" * 32  # another setup
        assert second.store.pinned_key() == b"3" * 32


def rows_written(relay: SharedRelay) -> list[int]:
    """Return how often each table's rows were inserted, updated and deleted by now."""
    query = (
        "SELECT n_tup_ins, n_tup_upd, n_tup_del FROM pg_stat_user_tables WHERE relname IN"
        " ('messages', 'fills', 'seen', 'crowds', 'plans', 'wrapped_keys') ORDER BY relname"
    )
    relay.store.database.execute("SELECT pg_stat_force_next_flush()")
    return [int(number) for row in relay.store.database.execute(query) for number in row]


class TestForwarding:
    @pytest.fixture
    def frozen(self, pair: tuple[SharedRelay, SharedRelay]) -> list[Any]:
        reports = made(LONG, 20, seed=1)
        pair[0].take(LONG, reports)
        pair[0].store.sweep()
        assert [one.chunks for one in pair[1].store.frozen.on_their_way()] == [None]
        return reports

    def shuffle(self, relay: SharedRelay) -> int:
        """Shuffle the crowd on its way and write its chunks; the data do not know of it yet."""
        (crowd,) = relay.store.frozen.on_their_way()
        key = relay.store.frozen.crowd_key(crowd)

        def reports(after: int, most: int) -> tuple[list[bytes], int | None]:
            return relay.store.frozen.reports(crowd, after, most)

        return relay.files.write(LONG, crowd, key, reports)

    def test_a_relay_that_dies_after_a_shuffle(
        self, frozen: list[Any], pair: tuple[SharedRelay, SharedRelay], analyzer: FakeAnalyzer
    ):
        """The other one forwards the same bytes, whatever had been sent before."""
        first, second = pair
        (crowd,) = first.store.frozen.on_their_way()
        assert first.store.frozen.claim(crowd) == crowd
        chunks = self.shuffle(first)
        assert chunks > 2
        assert first.store.frozen.shuffled(crowd, chunks)
        key = first.store.frozen.crowd_key(crowd)
        content = first.files.read(crowd, key, 0)
        first.analyzer.send_chunk(crowd, 0, content)
        second.forward()
        assert second.arrivals == 0  # it is under way elsewhere
        first.lose_connection()
        (now,) = second.store.frozen.on_their_way()
        assert now.chunks == chunks
        second.forward()
        assert second.arrivals == 1
        assert second.failures == 0
        sent = [number for number, _ in analyzer.crowds[LONG.id, 0, 1].tries]
        assert sent == [0, *range(chunks)]
        check_once(analyzer, LONG, frozen)

    def test_a_relay_that_dies_before_its_shuffle_counts(
        self, frozen: list[Any], pair: tuple[SharedRelay, SharedRelay], analyzer: FakeAnalyzer
    ):
        """The other one shuffles anew; who was slow learns that its chunks are not the ones."""
        first, second = pair
        (crowd,) = first.store.frozen.on_their_way()
        chunks = self.shuffle(first)
        second.forward()
        check_once(analyzer, LONG, frozen)
        assert not first.store.frozen.shuffled(crowd, chunks)
        first.forward()
        while first.store.frozen.tidy():
            pass
        for table in ("chunks", "leftovers", "receipts"):
            assert first.store.database.execute(f"SELECT 1 FROM {table}").fetchall() == []
        numbers = first.store.database.execute("SELECT DISTINCT id >> 32 FROM messages").fetchall()
        assert (crowd.number,) not in numbers

    def test_two_shuffles_of_a_crowd(
        self, frozen: list[Any], pair: tuple[SharedRelay, SharedRelay], analyzer: FakeAnalyzer
    ):
        """The first that is stated counts, and the other is discarded, whoever sends."""
        first, second = pair
        (crowd,) = first.store.frozen.on_their_way()
        chunks = self.shuffle(first)
        second.store.frozen._attempts[crowd.number] = b"2" * 16  # begun before
        for number in range(chunks):
            second.store.frozen.add_chunk(crowd, number, second.store.frozen.crowd_key(crowd))
        assert first.store.frozen.shuffled(crowd, chunks)
        assert not second.store.frozen.shuffled(crowd, chunks)
        content = [second.store.frozen.chunk(crowd, number) for number in range(chunks)]
        while second.store.frozen.tidy():
            pass
        assert content == [first.store.frozen.chunk(crowd, number) for number in range(chunks)]
        (kept,) = second.store.database.execute("SELECT count(*) FROM chunks").fetchone()
        assert kept == chunks
        second.forward()
        check_once(analyzer, LONG, frozen)

    def test_a_shuffle_that_another_one_removed(
        self, frozen: list[Any], pair: tuple[SharedRelay, SharedRelay], analyzer: FakeAnalyzer
    ):
        """Chunks that are not all there are never what is forwarded."""
        first, second = pair
        (crowd,) = first.store.frozen.on_their_way()
        chunks = self.shuffle(first)
        again = self.shuffle(second)
        assert not first.store.frozen.shuffled(crowd, chunks)
        assert [one.chunks for one in first.store.frozen.on_their_way()] == [None]
        assert second.store.frozen.shuffled(crowd, again)
        first.forward()
        check_once(analyzer, LONG, frozen)

    def test_a_shuffle_begun_when_another_one_counts(
        self, frozen: list[Any], pair: tuple[SharedRelay, SharedRelay], analyzer: FakeAnalyzer
    ):
        """To begin one removes others, but for the one that is forwarded."""
        first, second = pair
        (crowd,) = first.store.frozen.on_their_way()
        assert first.store.frozen.shuffled(crowd, self.shuffle(first))
        second.store.frozen.begin_attempt(crowd)
        second.forward()
        check_once(analyzer, LONG, frozen)

    def test_one_at_a_time_states_or_removes_a_shuffle(
        self, url: str, tmp_path: Path, analyzer: FakeAnalyzer
    ):
        """Else one could be stated after a look at its chunks, while they are removed."""
        impatient = f"{url}?options=-clock_timeout%3D100"
        first, second = two_relays(impatient, tmp_path, analyzer, LONG)
        first.take(LONG, made(LONG, 20, seed=1))
        first.store.sweep()
        (crowd,) = first.store.frozen.on_their_way()
        chunks = self.shuffle(second)

        def meanwhile() -> None:
            first.store.database.lock_plan(LONG.id)
            with pytest.raises(StorageError, match="lock timeout"):
                second.store.frozen.begin_attempt(crowd)
            with pytest.raises(StorageError, match="lock timeout"):
                second.store.frozen.shuffled(crowd, chunks)

        first.store.database.run("hold a plan", meanwhile, exclusive=False)
        for one in (first, second):
            one.close()

    def test_claims(self, frozen: list[Any], pair: tuple[SharedRelay, SharedRelay]):
        first, second = pair
        (crowd,) = first.store.frozen.on_their_way()
        assert first.store.frozen.claim(crowd) == crowd
        assert second.store.frozen.claim(crowd) is None
        first.store.frozen.let_go(crowd)
        assert second.store.frozen.claim(crowd) == crowd
        second.lose_connection()
        assert first.store.frozen.claim(crowd) == crowd
        assert first.store.frozen.end(crowd, forwarded=False)
        first.store.frozen.let_go(crowd)
        assert second.store.frozen.claim(crowd) is None  # it has ended
        assert first.store.frozen.claim(crowd) is None  # and nobody holds it

    def test_a_claim_ends_if_nothing_can_be_read(
        self,
        frozen: list[Any],
        pair: tuple[SharedRelay, SharedRelay],
        monkeypatch: pytest.MonkeyPatch,
    ):
        first, second = pair
        (crowd,) = first.store.frozen.on_their_way()

        def fail() -> list[Any]:
            raise StorageError("no.")

        with monkeypatch.context() as patch:
            patch.setattr(first.store.frozen, "on_their_way", fail)
            with pytest.raises(StorageError):
                first.store.frozen.claim(crowd)
        assert second.store.frozen.claim(crowd) == crowd

    def test_a_receipt_that_comes_late_is_not_kept(
        self, frozen: list[Any], pair: tuple[SharedRelay, SharedRelay]
    ):
        first, second = pair
        (crowd,) = first.store.frozen.on_their_way()
        first.forward()
        assert first.arrivals
        second.store.frozen.keep_receipt(crowd, 0)
        assert second.store.frozen.receipts(crowd) == set()

    def test_no_chunk_leaves_before_a_commit_has_arrived(
        self,
        frozen: list[Any],
        pair: tuple[SharedRelay, SharedRelay],
        analyzer: FakeAnalyzer,
        monkeypatch: pytest.MonkeyPatch,
    ):
        """The commit that chose the chunks may be known here and to no standby."""
        first, second = pair
        (crowd,) = first.store.frozen.on_their_way()
        assert first.store.frozen.shuffled(crowd, self.shuffle(first))

        def fail() -> None:
            raise StorageError("no standby answers.")

        with monkeypatch.context() as patch:
            patch.setattr(second.store.database, "check", fail)
            second.forward()
        assert not analyzer.crowds
        second.forward()
        assert second.arrivals

    def test_a_crowd_ends_once(
        self, frozen: list[Any], url: str, tmp_path: Path, analyzer: FakeAnalyzer
    ):
        ended: list[Any] = []
        folder = second_folder(tmp_path / "first", "third")
        third = SharedRelay(url, folder, analyzer, discarded=lambda *crowd: ended.append(crowd))
        (crowd,) = third.store.frozen.on_their_way()
        assert third.store.frozen.end(crowd, forwarded=False)
        assert not third.store.frozen.end(crowd, forwarded=False)
        assert not third.store.frozen.end(crowd, forwarded=True)
        assert ended == [(LONG, IncompleteCrowd(1, 100))]
        assert "discarded" in {one.state for one in third.store.crowds(LONG.id)}
        third.close()

    @pytest.mark.parametrize(
        "change",
        [
            "UPDATE crowds SET state = 'open' WHERE state = 'frozen'",
            "UPDATE crowds SET state = 'forwarded' WHERE state = 'frozen'",
            "UPDATE crowds SET state = 'shuffled', chunks = 1 WHERE state = 'frozen'",
            "UPDATE crowds SET window = 5 WHERE state = 'frozen'",
            "DELETE FROM crowds WHERE state = 'frozen'",
        ],
    )
    def test_crowds_go_forward_only(
        self, change: str, frozen: list[Any], pair: tuple[SharedRelay, SharedRelay]
    ):
        with pytest.raises(StorageError, match="a crowd goes forward only"):
            pair[0].store.database.execute(change)


class TestLostConnections:
    """The connection is cut at each message in turn, before it arrives or before its answer."""

    @pytest.mark.parametrize("when", ["before", "within", "after"])
    def test_reports_at_every_statement(
        self, when: str, url: str, tmp_path: Path, analyzer: FakeAnalyzer
    ):
        other = SharedRelay(url, tmp_path / "first", analyzer)
        other.publish(WHOLE)
        everything = []
        with through_a_proxy(url, tmp_path, analyzer) as (relay, proxy):
            message, lost = 0, True
            while lost:
                message += 1
                reports = made(WHOLE, 3, seed=message)
                upload = relay.sealed(WHOLE, reports)
                lost = cut(proxy, message, when, partial(relay.store.accept, [upload]))
                # It may have been taken or not: a sender asks again, here or there.
                everything += reports
                (relay, other)[message % 2].take(WHOLE, reports)
                other.take(WHOLE, everything[-5:])
        assert message > 4
        finish(other, analyzer, everything)

    @pytest.mark.parametrize("when", ["before", "within", "after"])
    def test_forwarding_at_every_statement(
        self, when: str, url: str, tmp_path: Path, analyzer: FakeAnalyzer
    ):
        """Freezing, shuffling, sending, ending: this relay goes on, or the other one does."""
        other = SharedRelay(url, tmp_path / "first", analyzer)
        other.publish(WHOLE)
        everything = []
        with through_a_proxy(url, tmp_path, analyzer) as (relay, proxy):
            message, lost = 0, True

            def forwards() -> None:
                relay.store.sweep()
                relay.forward()

            while lost:
                message += 1 if message < 8 else 3
                reports = made(WHOLE, 20, seed=message)
                everything += reports
                other.take(WHOLE, reports)
                lost = cut(proxy, message, when, forwards)
                (relay, other)[message % 2].fetch_keys()
        assert message > 25
        finish(other, analyzer, everything)


@contextmanager
def through_a_proxy(
    url: str, folder: Path, analyzer: FakeAnalyzer
) -> Iterator[tuple[SharedRelay, CuttingProxy]]:
    """A second relay whose connections to the database can be cut."""
    with CuttingProxy(the_server().port) as proxy:
        through = the_server().url(url.rpartition("/")[2], proxy.port)
        relay = SharedRelay(through, second_folder(folder / "first"), analyzer)
        yield relay, proxy
        relay.close()


def cut(proxy: CuttingProxy, message: int, when: str, action: Callable[[], object]) -> bool:
    """Cut the connection at a message of an action; return whether it had that many."""
    proxy.cut(message, when)
    try:
        action()
    except StorageError:
        assert proxy.has_cut
    proxy.leave_alone()
    return proxy.has_cut


def finish(relay: SharedRelay, analyzer: FakeAnalyzer, reports: list[Any]) -> None:
    """Fill the last crowd, forward all, and compare with what was sent."""
    more = made(WHOLE, -len(reports) % 20, seed=10**6)
    if more:
        relay.take(WHOLE, more)
    relay.store.sweep()
    while relay.store.frozen.on_their_way():
        relay.forward()
    check_once(analyzer, WHOLE, [*reports, *more])
    relay.close()


class TestWhoseDatabase:
    def test_a_collector_does_not_open_it(self, url: str, tmp_path: Path, analyzer: FakeAnalyzer):
        SharedRelay(url, tmp_path / "first", analyzer).close()
        with pytest.raises(InputError, match="the data of a relay, not of a collector"):
            store_in(url, second_folder(tmp_path / "first"))

    def test_a_relay_does_not_open_a_collectors(
        self, url: str, tmp_path: Path, analyzer: FakeAnalyzer
    ):
        store_in(url, tmp_path / "first").close()
        with pytest.raises(InputError, match="the data of a collector, not of a relay"):
            SharedRelay(url, second_folder(tmp_path / "first"), analyzer)

    def test_a_folder_with_data_of_its_own(self, url: str, tmp_path: Path, analyzer: FakeAnalyzer):
        from shoal.server.relay.store import RelayStore

        RelayStore(tmp_path).close()
        with pytest.raises(InputError, match=r"holds data of its own in shoal.db; name a new"):
            SharedRelay(url, tmp_path, analyzer)


def test_plans_that_somebody_made_up_are_soon_not_asked_for(monkeypatch: pytest.MonkeyPatch):
    """Those that are known are answered, and keys are read again at most once a second."""
    now, asked, again, refused = [0.0], list[str](), list[float](), list[Problem]()
    known, unreachable = "a" * 64, "b" * 64

    async def public(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    class Told(RelayPlans):
        def __init__(self) -> None:
            """Nothing is read."""

        def knows(self, plan_id: str) -> bool:
            return plan_id == known

        async def look_up(self, plan_id: str) -> None:
            asked.append(plan_id)
            if plan_id == unreachable:
                raise StorageError("no connection.")

        async def look_again(self) -> None:
            again.append(now[0])

    class FakeService(Service):
        def __init__(self) -> None:
            """It counts refusals."""

        def refused(self, problem: Problem) -> None:
            refused.append(problem)

    app = refresh_on_miss(public, Told(), FakeService(), lambda: now[0])

    def ask(path: str) -> int:
        answers = []

        async def send(message: Any) -> None:
            answers.append(message.get("status"))

        asyncio.run(app({"type": "http", "path": path}, None, send))  # type: ignore[arg-type]
        return int(answers[0])

    # If the database does not answer there may be such a plan, and a device must not give up.
    assert ask(f"/v1/plans/{unreachable}") == 503
    assert (asked.pop(), refused.pop()) == (unreachable, problems.NOT_KNOWN_YET)
    now[0] += 0.01  # what it cost is made up for

    found = [ask(f"/v1/plans/{number:064x}") for number in range(102)]
    assert found == [200] * 100 + [503] * 2
    assert len(asked) == 100
    assert refused == [problems.NOT_KNOWN_YET] * 2
    assert ask(f"/v1/plans/{known}/crowd-key") == 200
    assert again == []
    for second in (0.5, 1.5, 2.0, 2.6, 9.0):
        now[0] = second
        assert ask(f"/v1/plans/{known}/crowd-key") == 200
    assert again == [1.5, 2.6, 9.0]
    assert ask("/healthz") == 200
