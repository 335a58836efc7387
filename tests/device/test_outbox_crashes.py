"""Whatever crashes, an answer that was taken arrives, in one version."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shoal.device.outbox import (
    PostResult,
    Ticket,
    TransportError,
)
from shoal.device.outbox.queue import Record, ReportQueue
from tests.device.outbox_help import (
    ANSWER,
    PLAN,
    Charges,
    Collector,
    box,
)
from tests.faults import Clock, Crash, Faults, FaultyDisk

SCRIPTS: dict[str, tuple[PostResult | Exception, ...]] = {
    "accepted": (),
    "retried": (TransportError("no answer."), PostResult(503, 5.0), ConnectionResetError()),
    "refused": (PostResult(400),),
    "gone": (PostResult(410),),
}
ENDS = {"accepted": "sent", "retried": "sent", "refused": "failed", "gone": "expired"}


class Run:
    """One life of a device: what happened until it crashed or finished."""

    def __init__(self, folder: Path, collector: Collector, disk: FaultyDisk, clock: Clock) -> None:
        self.taken = self.finished = False
        collector.faults = disk.faults
        try:
            outbox = box(folder, collector, clock, disk=disk)
            plan = outbox.plan(PLAN.id)
            outbox.answer(plan, ANSWER, answer_key="mine")
            self.taken = True
            outbox.finish(1e6)
            self.finished = True
        except Crash:
            pass


DISK_STEPS = [
    *(f"{when} {what}" for when in ("before", "after") for what in ("mkdir", "write", "sync_file")),
    *(f"{when} {what}" for when in ("before", "after") for what in ("replace", "sync_folder")),
    *("before unlink", "after unlink", "within write"),
]


def crash_everywhere(
    tmp_path: Path,
    script: str,
    power: bool,
    make: Callable[[Faults], FaultyDisk] = FaultyDisk,
    every: int = 1,
) -> list[str]:
    """Crash at each step (or every so many), restart, finish; return what went wrong."""
    clean = make(Faults())
    assert Run(tmp_path / "clean", Collector(*SCRIPTS[script]), clean, Clock()).finished
    wrong: list[str] = []
    for k, label in list(enumerate(clean.faults.labels))[::every]:
        for answers_again in (True, False):
            folder, clock = tmp_path / f"{k}-{answers_again}", Clock()
            collector, disk = Collector(*SCRIPTS[script]), make(Faults(k))
            life = Run(folder, collector, disk, clock)
            assert not life.finished
            if power:
                disk.power_cut()
            if not answers_again and not life.taken:
                continue  # an answer that was not taken may be lost: the application knows
            collector.faults = Faults()
            outbox = box(folder, collector, clock)
            if answers_again:
                outbox.answer(PLAN, ANSWER, answer_key="mine")
            states = [ticket.state for ticket in outbox.finish(1e6)]
            versions, counted = len(set(collector.posted)), len(collector.accepted)
            # A crash may eat a refusal; the next attempt is then accepted.
            good = states in ([ENDS[script]], ["sent"]) and counted == (states == ["sent"])
            if versions != 1 or not good:
                wrong.append(f"{k} {label}: {versions} versions, {states}, {counted} counted")
            assert not list(folder.glob("*.waiting"))
    return wrong


class TestCrashes:
    @pytest.mark.parametrize("power", [False, True], ids=["killed", "power cut"])
    @pytest.mark.parametrize("script", SCRIPTS)
    def test_one_version_arrives_wherever_it_crashes(self, tmp_path, script, power):
        assert crash_everywhere(tmp_path, script, power) == []

    def test_every_kind_of_step_is_tried(self, tmp_path):
        disk = FaultyDisk(Faults())
        Run(tmp_path / "o", Collector(*SCRIPTS["retried"]), disk, Clock())
        network = {f"{when} {what}" for when in ("before", "after") for what in ("fetch", "post")}
        assert set(disk.faults.labels) == set(DISK_STEPS) | network
        assert len(disk.faults.labels) > 90

    def test_crashing_again_and_again(self, tmp_path):
        """Lives cut short at random steps by kills, then by a power cut, which undoes what none of
        them synced; what one of them took is then sent without being answered again."""
        chance = random.Random(5)
        for number in range(60):
            folder, clock, collector = tmp_path / str(number), Clock(), Collector()
            taken, disk = False, None
            for _ in range(3):
                disk = FaultyDisk(Faults(chance.randrange(60)), disk)
                taken |= Run(folder, collector, disk, clock).taken
            assert disk is not None
            if chance.random() < 0.7:
                disk.power_cut()
            collector.faults = Faults()
            outbox = box(folder, collector, clock)
            if not taken:
                outbox.answer(PLAN, ANSWER, answer_key="mine")
            assert [ticket.state for ticket in outbox.finish(1e6)] == ["sent"]
            assert len(set(collector.posted)) == len(collector.accepted) == 1

    def test_a_ticket_of_a_life_that_was_killed_holds(self, tmp_path):
        """Killed before it synced; another process is given the ticket, and the power fails."""
        for k in range(30):
            folder, clock, collector = tmp_path / str(k), Clock(), Collector()
            disk = FaultyDisk(Faults())
            other = box(folder, collector, clock, disk=disk)
            disk.faults = Faults(k)
            Run(folder, collector, disk, clock)
            collector.faults = disk.faults = Faults()
            other.answer(PLAN, ANSWER, answer_key="mine")
            disk.power_cut()
            assert [one.state for one in box(folder, collector, clock).finish(1e6)] == ["sent"]
            assert len(set(collector.posted)) == len(collector.accepted) == 1

    def test_a_crash_costs_budget_at_most(self, tmp_path):
        """What was sent was charged; a life that crashed after charging charges once more."""
        for k in range(60):
            charges, collector, clock = Charges(), Collector(), Clock()
            for disk in (FaultyDisk(Faults(k)), FaultyDisk(Faults())):
                collector.faults = disk.faults
                try:
                    outbox = box(tmp_path / str(k), collector, clock, disk=disk, ledger=charges)
                    outbox.answer(PLAN, ANSWER, answer_key="mine")
                    outbox.finish(1e6)
                except Crash:
                    disk.power_cut()
            assert 1 <= len(charges.made) <= 2
            assert len(set(collector.posted)) == 1

    def test_a_crash_while_reviving(self, tmp_path):
        for k in range(30):
            folder, clock, collector = tmp_path / str(k), Clock(), Collector(PostResult(400))
            outbox = box(folder, collector, clock)
            ticket = outbox.answer(PLAN, ANSWER)
            outbox.send_due()
            disk = FaultyDisk(Faults(k))
            try:
                box(folder, collector, clock, disk=disk).retry(ticket)
            except Crash:
                disk.power_cut()
            (after,) = box(folder, collector, clock).tickets()
            if after.state == "failed":
                outbox.retry(after)
            outbox.send_due()
            assert outbox.tickets()[0].state == "sent"
            assert len(set(collector.posted)) == 1


class NoFolderSync(FaultyDisk):
    def sync_folder(self, folder: Path) -> None:
        self.faults.step("no sync_folder")


class NoFileSync(FaultyDisk):
    def sync_file(self, path: Path) -> None:
        self.faults.step("no sync_file")


class NotAtomic(FaultyDisk):
    def store(self, path: Path, content: bytes, scratch: str) -> None:
        self.write(path, content)
        self.sync_file(path)
        self.sync_folder(path.parent)


class TestTheCrashTestsCanFail:
    @pytest.mark.parametrize("mutant", [NoFolderSync, NoFileSync])
    def test_without_syncing(self, tmp_path, mutant):
        assert crash_everywhere(tmp_path, "accepted", True, mutant)

    def test_without_renaming(self, tmp_path):
        assert crash_everywhere(tmp_path, "accepted", False, NotAtomic)

    def test_deleting_before_the_note(self, tmp_path, monkeypatch):
        settle = ReportQueue.settle

        def hasty(self: ReportQueue, name: str, *rest: Any) -> Ticket:
            self._disk.remove(self._file(name, "waiting"))
            return settle(self, name, *rest)

        monkeypatch.setattr(ReportQueue, "settle", hasty)
        assert crash_everywhere(tmp_path, "accepted", False)

    def test_sending_before_storing(self, tmp_path, monkeypatch):
        """Flips drawn afresh for an attempt are a second version."""
        from shoal.device.encode import encode
        from shoal.device.randomize import flip, pack_reports

        fresh = lambda: pack_reports(PLAN, flip(PLAN, encode(PLAN, ANSWER)))  # noqa: E731
        tried = Record.tried

        def again(self: Record, due: float) -> Record:
            return tried(self, due)._replace(batch=fresh().to_bytes())

        monkeypatch.setattr(Record, "tried", again)
        assert crash_everywhere(tmp_path, "retried", False, every=9)
