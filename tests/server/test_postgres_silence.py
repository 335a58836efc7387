"""PostgreSQL's host vanishes: nothing is answered and nothing is closed."""

from __future__ import annotations

import asyncio
import http.client
import os
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal.server.storage.database import StorageError, StorageTimeout
from shoal.server.storage.store import Store
from tests.server.crash_help import LONGEST, Served, send
from tests.server.postgres_help import needs_postgres, second_folder, store_in, the_server, wait_for
from tests.server.privacy_help import World, in_world
from tests.server.relay.relay_help import WHOLE, FakeAnalyzer, RelayWorld, in_relay, made, sealed
from tests.server.silent_proxy import SilentProxy
from tests.server.store_help import NOON, PLANS, open_reports, upload
from tests.server.test_crashes import WIDE
from tests.server.test_model import ENDLESS, WEEK, WEEKLY
from tests.server.test_postgres import KILLS, check

pytestmark = [needs_postgres, pytest.mark.system, pytest.mark.slow]

FLAGS = PLANS["flags"]
SHORT = 1.0
"""A deadline for stores whose calls may fail: then they are done again."""
STRIDE = 1 if KILLS >= 100 else 6
"""Messages between those at which a host falls silent."""
TIMEOUT = 5
"""A deadline for services whose calls must not fail because the machine is busy."""


@pytest.fixture
def url() -> str:
    return the_server().new_database()


@pytest.fixture
def proxy() -> Iterator[SilentProxy]:
    with SilentProxy(the_server().port) as made:
        yield made


def through(url: str, *proxies: SilentProxy) -> str:
    """Return the URL of a database behind proxies; each is a host of its own."""
    hosts = ",".join(f"127.0.0.1:{one.port}" for one in proxies)
    return f"postgresql://shoal@{hosts}/{url.rpartition('/')[2]}?target_session_attrs=read-write"


def until_done(work: Callable[..., Any], *args: Any) -> Any:
    """Do something again until it succeeds, as senders do."""
    end = time.monotonic() + LONGEST
    while True:
        try:
            return work(*args)
        except StorageError:
            assert time.monotonic() < end


def store_threads() -> int:
    return sum(one.name.startswith("store") for one in threading.enumerate())


class TestConnection:
    """What libpq and the server are told about a host that may vanish."""

    def test_both_sides_notice(self, url: str):
        from shoal.server.storage.postgres_connection import PostgresConnection

        database = PostgresConnection(url, 7)
        connection: Any = database._connection
        with socket.socket(fileno=os.dup(connection.pgconn.socket)) as ours:
            assert ours.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 10
            assert ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 7000
        assert connection.info.get_parameters()["connect_timeout"] == "3"
        limits = {
            "lock_timeout": "5600ms", "statement_timeout": "6300ms", "tcp_user_timeout": "30000",
            "idle_in_transaction_session_timeout": "30s", "tcp_keepalives_idle": "10",
        }  # fmt: skip
        found = {name: database.execute(f"SHOW {name}").fetchall() for name in limits}
        assert found == {name: [(value,)] for name, value in limits.items()}
        database.close()

    def test_the_url_is_respected(self, url: str):
        from shoal.server.storage.postgres_connection import PostgresConnection

        own = "keepalives_idle=77&connect_timeout=4&tcp_user_timeout=1234"
        database = PostgresConnection(f"{url}?{own}&options=-cstatement_timeout%3D99s", 7)
        connection: Any = database._connection
        found = connection.info.get_parameters()
        assert [found[name] for name in ("keepalives_idle", "connect_timeout")] == ["77", "4"]
        assert found["tcp_user_timeout"] == "1234"
        assert found["keepalives_interval"] == "5"
        assert database.execute("SHOW statement_timeout").fetchone() == ("99s",)
        assert database.execute("SHOW lock_timeout").fetchone() == ("5600ms",)
        database.close()

    def test_a_silent_server_at_the_start(self, url: str, proxy: SilentProxy, tmp_path: Path):
        proxy.fall_silent()
        with pytest.raises(StorageError, match="PostgreSQL cannot be used: connection timeout"):
            store_in(through(url, proxy), tmp_path / "first", timeout=SHORT)

    def test_one_statement(self, url: str, proxy: SilentProxy):
        from shoal.server.storage.postgres_connection import PostgresConnection

        database = PostgresConnection(through(url, proxy), SHORT)
        proxy.fall_silent()
        with pytest.raises(StorageTimeout, match="did not answer within 1 seconds"):
            database.execute("SELECT 1")
        proxy.heal()
        assert until_done(lambda: database.execute("SELECT 1").fetchone()) == (1,)
        database.close()

    def test_an_interrupt_ends_a_wait(self, url: str, proxy: SilentProxy):
        """From another thread, long before the deadline."""
        from shoal.server.storage.postgres_connection import PostgresConnection

        database = PostgresConnection(through(url, proxy), 600.0)
        proxy.fall_silent()
        threading.Timer(0.2, database.interrupt).start()
        with pytest.raises(StorageTimeout):
            database.execute("SELECT 1")
        with pytest.raises(StorageError, match="stopping"):
            database.execute("SELECT 1")
        database.close()


class TestLateCommits:
    """The bytes of a transaction that was given up arrive late, after a failover.

    The store is on a new connection by then, to another host. The old transaction is open at the
    server with all its locks, and may commit meanwhile.
    """

    @pytest.fixture
    def hosts(self) -> Iterator[tuple[SilentProxy, SilentProxy]]:
        with SilentProxy(the_server().port) as first, SilentProxy(the_server().port) as second:
            yield first, second

    @pytest.mark.parametrize("kind", ["reports", "sweeps"])
    def test_silence_at_every_message(
        self, kind: str, url: str, tmp_path: Path, hosts: tuple[SilentProxy, SilentProxy]
    ):
        other = store_in(url, tmp_path / "first", ENDLESS, WEEKLY)
        window = {ENDLESS.id: 0, WEEKLY.id: int(NOON // WEEK)}
        folder, (first, _) = second_folder(tmp_path / "first"), hosts
        store = until_done(lambda: store_in(through(url, *hosts), folder, timeout=SHORT))
        made: list[Any] = []
        message, was_silent = 0, True
        while was_silent:
            message += STRIDE
            batches = [
                upload(plan, 8 + message % 5, 2 * message + k, window[plan.id])
                for k, plan in enumerate((ENDLESS, WEEKLY))
            ]
            work = work_of(kind, store, batches)
            was_silent = fell_silent(first, store, work, at_message=message)
            first.refuse()  # the next connection is to the second host
            healing = threading.Timer(0.3, first.heal)
            healing.start()
            until_done(work)
            healing.join()
            assert until_done(other.accept, [*batches, *made[-4:]])[:2] == [None] * 2
            made += batches
            first.refuse(False)
        assert message > 4 * STRIDE
        store.close()
        check(other, made, window)
        other.close()

    def test_a_commit_after_the_deadline(
        self, url: str, tmp_path: Path, hosts: tuple[SilentProxy, SilentProxy]
    ):
        """Its locks keep others away until it has ended; then its reports are recognized."""
        impatient = f"{url}?options=-clock_timeout%3D100"
        other = store_in(impatient, tmp_path / "first", FLAGS)
        folder, (first, _) = second_folder(tmp_path / "first"), hosts
        store = until_done(lambda: store_in(through(url, *hosts), folder, timeout=SHORT))
        batch = upload(FLAGS, 4, 1)
        assert fell_silent(first, store, lambda: store.accept([batch]), at_words=b"COMMIT\0")
        with pytest.raises(StorageError, match="lock timeout"):
            other.accept([upload(FLAGS, 1, 2)])
        first.refuse()
        first.heal()
        wait_for(lambda: until_done(open_reports, other, FLAGS) == 4)
        assert until_done(store.accept, [batch]) == [None]
        assert open_reports(store, FLAGS) == 4
        store.close()
        other.close()


def fell_silent(host: SilentProxy, store: Any, work: Callable[[], object], **when: Any) -> bool:
    """Do something while a host falls silent at some point; return whether it came to that."""
    while True:
        store.database.close()
        until_done(store.database.keep_up)  # it is connected anew
        host.fall_silent(**when)
        try:
            work()
        except StorageError:
            if not host.is_silent:  # the machine was busy
                host.heal()
                continue
        return host.is_silent


def work_of(kind: str, store: Store, batches: list[Any]) -> Callable[[], object]:
    return store.sweep if kind == "sweeps" else lambda: store.accept(batches)


class TestCollector:
    """Senders, probes and operators get an answer while the database is silent."""

    def test_in_process(self, url: str, proxy: SilentProxy, tmp_path: Path):
        made = [upload(FLAGS, 5, seed) for seed in range(4)]

        async def story(world: World) -> None:
            await world.publish(FLAGS)
            relay, admin = await world.relay(), world.admin()
            assert (await world.upload(made[0], relay)).status_code == 202
            assert (await world.ask("console", "GET", "/readyz")).status_code == 200
            proxy.fall_silent()
            refused = await asyncio.gather(*(world.upload(one, relay) for one in made))
            assert [one.status_code for one in refused] == [503] * 4
            for answer in refused:
                assert answer.headers["retry-after"] == "30"
                assert answer.json()["type"] == "urn:shoal:problem:storage-unavailable"
            await until(lambda: status(world, "console", "/readyz"), 503)
            assert await status(world, "console", "/healthz") == 200
            crowds = f"/v1/plans/{FLAGS.id}/crowds"
            assert (await world.ask("console", "GET", crowds, admin)).status_code == 503
            unknown = f"/v1/plans/{'0' * 64}"
            assert (await world.ask("public", "GET", unknown)).status_code == 503
            assert store_threads() == 1
            proxy.heal()
            await until(lambda: status(world, "console", "/readyz"), 200)
            for one in made:
                await until(lambda one=one: posted(world, one, relay), 202)  # type: ignore[misc]
            assert (
                await world.collector.service.in_store(open_reports, world.collector.store, FLAGS)
                == 20
            )

        settings: dict[str, Any] = {"database": through(url, proxy), "store_timeout": TIMEOUT}
        in_world(story, tmp_path / "data", min_crowd=1, **settings)

    def test_failover(self, url: str, tmp_path: Path):
        """The first host vanishes for good; the second one takes over."""
        made = [upload(FLAGS, 5, seed) for seed in range(3)]

        async def story(world: World) -> None:
            await world.publish(FLAGS)
            relay = await world.relay()
            first.fall_silent()
            for one in made:
                await until(lambda one=one: posted(world, one, relay), 202)  # type: ignore[misc]
            assert first.is_silent
            assert (
                await world.collector.service.in_store(open_reports, world.collector.store, FLAGS)
                == 15
            )

        with SilentProxy(the_server().port) as first, SilentProxy(the_server().port) as second:
            both = through(url, first, second)
            settings: dict[str, Any] = {"database": both, "store_timeout": TIMEOUT, "min_crowd": 1}
            in_world(story, tmp_path / "data", **settings)

    def test_it_stops_in_process(self, url: str, proxy: SilentProxy, tmp_path: Path):
        async def story(world: World) -> None:
            await world.publish(FLAGS)
            proxy.fall_silent()

        in_world(
            story, tmp_path / "data", database=through(url, proxy), min_crowd=1
        )  # and it returns
        assert store_threads() == 0

    def test_a_process_is_told_to_stop(self, url: str, proxy: SilentProxy, tmp_path: Path):
        """While a sender waits; it is started again when the host is back."""
        options = ("--database", through(url, proxy), "--store-timeout", str(TIMEOUT))
        batch = upload(WIDE, 1, 1)
        with Served(tmp_path / "first", WIDE, *options, "--shutdown-timeout", "10") as served:
            served.start()
            connection = http.client.HTTPConnection(*served.address(), timeout=LONGEST)
            assert send(connection, batch) == (202, "")
            proxy.fall_silent()
            answers: list[tuple[int, str]] = []
            sending = threading.Thread(target=lambda: answers.append(send(connection, batch)))
            sending.start()
            time.sleep(0.5)
            served.stop()  # and it returns
            sending.join(LONGEST)
            connection.close()
            assert answers == [(503, "storage-unavailable")]
            proxy.heal()
            served.start()
            connection = http.client.HTTPConnection(*served.address(), timeout=LONGEST)
            assert send(connection, batch) == (202, "")
            connection.close()


class TestRelay:
    def test_in_process(self, url: str, proxy: SilentProxy, tmp_path: Path):
        plan, reports = WHOLE, made(WHOLE, 3, 1)

        async def story(world: RelayWorld) -> None:
            await world.publish(plan)
            await until(lambda: relay_status(world, "/readyz"), 200)
            message = sealed(plan, await world.key(plan), reports)
            proxy.fall_silent()
            assert await world.post(message) == 503
            await until(lambda: relay_status(world, "/readyz"), 503)
            assert await relay_status(world, "/healthz") == 200
            proxy.heal()
            await until(lambda: world.post(message), 202)
            await until(lambda: relay_status(world, "/readyz"), 200)
            proxy.fall_silent()  # and it stops nevertheless

        in_relay(
            story, tmp_path / "data", FakeAnalyzer(plan),
            database=through(url, proxy), store_timeout=TIMEOUT,
        )  # fmt: skip


async def until(work: Callable[[], Awaitable[int]], wanted: int) -> None:
    """Ask again until a status comes, as a probe or a sender does."""
    async with asyncio.timeout(LONGEST):
        while await work() != wanted:
            await asyncio.sleep(0.05)


async def status(world: World, side: str, path: str) -> int:
    return (await world.ask(side, "GET", path)).status_code


async def posted(world: World, batch: Any, headers: dict[str, str]) -> int:
    return (await world.upload(batch, headers)).status_code


async def relay_status(world: RelayWorld, path: str) -> int:
    return (await world.clients["console"].get(path)).status_code
