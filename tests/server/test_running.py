"""A store that does not answer: requests are refused, probes say no, and the service stops."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from shoal.server import Collector
from shoal.server.storage.database import NAME, StorageTimeout
from shoal.server.storage.key_file import DAY, SIGNING_FILE, open_keys
from tests.server.crash_help import Served
from tests.server.privacy_help import World, in_world
from tests.server.store_help import PLANS, Clock, told, upload
from tests.server.test_crashes import WIDE

FLAGS = PLANS["flags"]


@pytest.mark.slow
def test_a_store_that_hangs(tmp_path: Path):
    """In a folder as in PostgreSQL: everybody is answered, and the service stops."""
    answered = threading.Event()
    collectors: list[Collector] = []

    async def story(world: World) -> None:
        collectors.append(world.collector)
        await world.publish(FLAGS)
        assert (await world.ask("console", "GET", "/readyz")).status_code == 200
        relay = await world.relay()
        hanging = asyncio.create_task(world.collector.service.on_store_thread(answered.wait))
        await asyncio.sleep(0)  # it has begun
        requests = [
            world.upload(upload(FLAGS, 3, 1), relay),
            world.ask("console", "GET", f"/v1/plans/{FLAGS.id}/crowds", world.admin()),
        ]
        assert [one.status_code for one in await asyncio.gather(*requests)] == [503, 503]
        ready = await world.ask("console", "GET", "/readyz")
        assert ready.status_code == 503
        assert ready.headers["retry-after"] == "30"
        assert (await world.ask("console", "GET", "/healthz")).status_code == 200
        hanging.cancel()

    try:
        in_world(story, tmp_path, min_crowd=1, store_timeout=6, shutdown_timeout=2)
        assert collectors[0].service.is_stuck
    finally:
        answered.set()
    for thread in collectors[0].service._threads:
        thread._executor.shutdown()
    collectors[0].service._held.close()


def test_work_that_was_refused_does_not_happen_later(tmp_path: Path):
    begun: list[str] = []

    async def story(world: World) -> None:
        collector, answered = world.collector, threading.Event()
        hanging = asyncio.create_task(collector.service.on_store_thread(answered.wait))
        await asyncio.sleep(0)  # it has begun
        with pytest.raises(StorageTimeout):
            await collector.service.in_store(begun.append, "late")
        answered.set()
        await hanging
        await collector.service.on_store_thread(begun.append, "next")

    in_world(story, tmp_path, store_timeout=1)
    assert begun == ["next"]


@pytest.mark.slow
@told(in_world)
async def test_a_busy_store_is_ready(world: World):
    """Much work waits, and the data answer all of it, one after the other."""
    work = [world.collector.service.on_store_thread(time.sleep, 0.1) for _ in range(40)]
    busy = asyncio.gather(*work)
    await asyncio.sleep(0)  # all of it waits
    assert (await world.ask("console", "GET", "/readyz")).status_code == 200
    assert not busy.done()
    await busy


@pytest.mark.slow
def test_a_process_ends_though_a_thread_does_not(tmp_path: Path):
    """Another process holds the data for longer than the process may take to stop."""
    with Served(tmp_path / "data", WIDE, "--shutdown-timeout", "2") as served:
        served.start()
        with closing(sqlite3.connect(tmp_path / "data" / "shoal.db")) as other:
            other.execute("BEGIN IMMEDIATE")
            assert served.stop() == 1
        served.start()
        assert served.stop() == 0


def test_a_key_file_that_cannot_be_written_does_not_stop_the_sweeps(tmp_path: Path):
    """For example on a full disk: the sweep is what frees space, and keeps deadlines."""
    clock = Clock()
    open_keys(tmp_path, SIGNING_FILE, clock).rotate(overlap=DAY)
    (tmp_path / NAME).touch()  # of a collector that had the key before

    async def story(world: World) -> None:
        await world.publish(FLAGS)
        await world.upload(upload(FLAGS, 3, 1), await world.relay())
        (tmp_path / f"{SIGNING_FILE}.part").mkdir()
        clock.now += 100 * DAY
        async with asyncio.timeout(60):
            while "crowd discarded" not in world.log.getvalue():
                world.collector.service._sweep_now.set()
                await asyncio.sleep(0.01)
        assert "an expired key is still in its file" in world.log.getvalue()
        (tmp_path / f"{SIGNING_FILE}.part").rmdir()
        async with asyncio.timeout(60):  # it is tried again
            while "\n- " not in (tmp_path / SIGNING_FILE).read_text():
                world.collector.service._sweep_now.set()
                await asyncio.sleep(0.01)

    in_world(story, tmp_path, clock, min_crowd=1)


@told(in_world, min_crowd=1, store_timeout=1)
async def test_what_happened_after_the_answer_is_known_at_the_next_sweep(world: World):
    """Its request was refused as too late, and a restart is not needed to see what it did."""
    collector, answered = world.collector, threading.Event()
    await world.publish(FLAGS)
    await collector.administration.set_origins(FLAGS.id, ["https://page.example"])
    store = collector.store
    set_origins = store.set_origins

    def late(plan_id: str, origins: Sequence[str]) -> None:
        answered.wait()
        set_origins(plan_id, origins)

    store.set_origins = late  # type: ignore[method-assign]
    with pytest.raises(StorageTimeout):
        await collector.administration.set_origins(FLAGS.id, [])
    answered.set()
    async with asyncio.timeout(60):
        while (record := collector.administration.plans.get(FLAGS.id)) is None or record.origins:
            collector.service._sweep_now.set()
            await asyncio.sleep(0.01)
