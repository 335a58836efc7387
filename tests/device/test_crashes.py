"""From the answer to the acknowledgement, with memory and ledger, crashing at every step.

One disk is under the outbox, the memory and the ledger, so that a crash can come before, within
and after every write of any of them, and around every network call; as a kill, or as a power cut
that undoes whatever was not synced.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from shoal import Outbox, Plan
from shoal.analysis.report_files import parse_batch
from shoal.device.encode import encode
from shoal.device.ledger import Ledger
from shoal.device.memory import DeviceMemory
from shoal.device.outbox import PostResult, Ticket, TransportError
from shoal.device.outbox.queue import Record, ReportQueue
from shoal.device.randomize import flip, pack_reports
from shoal.errors import InputError
from shoal.protocol.flip_probability import FlipProbability, local_epsilon, repeated_epsilon
from shoal.protocol.plan import Memory
from shoal.protocol.wording import permanent_key
from shoal.support.files import canonical_json
from tests.device.outbox_help import ANSWER, Collector, box
from tests.device.outbox_help import PLAN as ENDLESS
from tests.faults import Clock, Crash, Faults, FaultyDisk, QuickDisk

DAY = 86_400
KEY = bytes(range(32))
LAYERS = Memory(FlipProbability(1, 2), FlipProbability(1, 2))
PLAIN = replace(ENDLESS, window=DAY)
PLAN = replace(PLAIN, q=LAYERS.q, memory=LAYERS)

SETUPS = {
    "memory and ledger": (PLAN, True, True),
    "memory": (PLAN, True, False),
    "ledger": (PLAIN, False, True),
    "neither": (ENDLESS, False, False),
}
SCRIPTS: dict[str, tuple[PostResult | Exception, ...]] = {
    "sent": (),
    "retried": (TransportError("no answer."), PostResult(503, 5.0), ConnectionResetError()),
    "failed": (PostResult(400),),
    "expired": (PostResult(410),),
}
POWER = pytest.mark.parametrize("power", [False, True], ids=["killed", "power cut"])


@dataclass
class World:
    """One person's device and the collector, through all lives of the device."""

    folder: Path
    setup: str = "neither"
    days: int = 1
    script: str = "sent"
    clock: Clock = field(default_factory=Clock)
    faults: Faults = field(default_factory=Faults)
    posted: list[bytes] = field(default_factory=list)
    accepted: dict[bytes, bytes] = field(default_factory=dict)
    taken: set[int] = field(default_factory=set)
    done: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.plan, self.remembers, self.charges = SETUPS[self.setup]
        self.answers = list(SCRIPTS[self.script])
        self.folder.mkdir()
        self.began = self.clock.now

    def fetch_plan(self, plan_id: str) -> bytes:
        self.faults.step("before fetch")
        content = canonical_json(self.plan.to_json())
        self.faults.step("after fetch")
        return content

    def post_report(self, plan_id: str, content: bytes) -> PostResult:
        self.faults.step("before post")
        self.posted.append(content)
        answer = self.answers.pop(0) if self.answers else PostResult(202)
        if answer == PostResult(202):
            self.accepted.setdefault(parse_batch(self.plan, content).ids.tobytes(), content)
        self.faults.step("after post")
        if isinstance(answer, Exception):
            raise answer
        return answer

    def memory(self, disk: Any = None) -> DeviceMemory:
        return DeviceMemory(self.folder / "memory", KEY, disk=disk or QuickDisk())

    def ledger(self, disk: Any = None) -> Ledger:
        return Ledger(self.folder / "ledger", disk=disk or QuickDisk())

    def outbox(self, disk: Any) -> Outbox:
        memory = self.memory(disk) if self.remembers else None
        ledger = self.ledger(disk) if self.charges else None
        return box(
            self.folder / "outbox", self, self.clock, disk=disk, memory=memory, ledger=ledger
        )

    def live(self, disk: Any) -> bool:
        """Answer once a day, or send what waits, until the days are over; False if it crashed."""
        self.faults = getattr(disk, "faults", Faults())
        try:
            outbox = self.outbox(disk)
            plan = outbox.plan(self.plan.id)
            for day in range(self.days):
                if day in self.done:
                    continue
                self.clock.now = max(self.clock.now, self.began + day * DAY)
                if day not in self.taken:
                    outbox.answer(plan, ANSWER, answer_key=f"day {day}")
                    self.taken.add(day)
                outbox.finish(DAY / 4)
                self.done.add(day)
        except Crash:
            return False
        return True

    def wrong(self) -> list[str]:
        """Return what does not hold after the last life."""
        found = []
        states = {one.state for one in self.outbox(QuickDisk()).tickets()}
        versions, counted = len(set(self.posted)), len(self.accepted)
        # A crash may eat a refusal; the next attempt is then accepted.
        refused = states == {self.script} != {"sent"}
        if versions != self.days or counted != self.days * (not refused):
            found.append(f"{versions} versions, {counted} counted")
        if not refused and states != {"sent"}:
            found.append(f"{states}")
        if self.charges:
            account = self.ledger().read()
            (mine,) = account.plans
            if mine.reports != self.days or account.pending:
                found.append(f"{mine.reports} charges, {len(account.pending)} pending")
            if self.remembers:
                digest = self.memory().digest(self.plan, encode(self.plan, ANSWER))
                if mine.answers != {digest: self.days}:
                    found.append("charged for another answer")
        if self.remembers and self.memory().counts() != {permanent_key(self.plan): 1}:
            found.append(f"remembered {self.memory().counts()}")
        return found


@pytest.fixture(autouse=True)
def permanent(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Every permanent vector that a device worked with, in all lives."""
    used: list[bytes] = []
    real = DeviceMemory._permanent

    def noted(self: DeviceMemory, *rest: Any) -> Any:
        kept = real(self, *rest)
        used.append(kept.row)
        return kept

    monkeypatch.setattr(DeviceMemory, "_permanent", noted)
    return used


def crash_everywhere(
    tmp_path: Path,
    permanent: list[bytes],
    power: bool,
    *,
    every: int = 1,
    forgetful: bool = False,
    make: Callable[[Faults], FaultyDisk] = FaultyDisk,
    **world_of: Any,
) -> tuple[int, list[str]]:
    """Crash at each step, restart, finish; return how many steps there are and what went wrong.

    A forgetful application does not know after a crash what was taken, and answers again.
    """
    clean = World(tmp_path / f"clean {forgetful}", **world_of)
    disk = make(Faults())
    assert clean.live(disk)
    assert clean.wrong() == []
    wrong: list[str] = []
    for k, label in list(enumerate(disk.faults.labels))[::every]:
        permanent.clear()
        world = World(tmp_path / f"{k} {forgetful}", **world_of)
        broken = make(Faults(k))
        assert not world.live(broken)
        if power:
            broken.power_cut()
        if forgetful:
            world.taken.clear()
        try:
            assert world.live(QuickDisk())
            found = world.wrong()
        except InputError as error:
            found = [str(error)]
        if world.remembers and len(set(permanent)) > 1:
            found.append(f"{len(set(permanent))} permanent vectors")
        wrong += [f"{k} {label}: {one}" for one in found]
    return len(disk.faults.labels), wrong


class TestOncePerAnswer:
    @pytest.mark.slow
    @POWER
    @pytest.mark.parametrize("forgetful", [False, True], ids=["knows", "forgetful"])
    @pytest.mark.parametrize("setup", SETUPS)
    def test_one_version_one_vector_one_charge(self, tmp_path, setup, forgetful, power, permanent):
        steps, wrong = crash_everywhere(
            tmp_path, permanent, power, setup=setup, forgetful=forgetful
        )
        assert wrong == []
        assert steps > 40

    @pytest.mark.slow
    @POWER
    @pytest.mark.parametrize("script", SCRIPTS)
    def test_one_version_arrives_whatever_the_collector_says(
        self, tmp_path, script, power, permanent
    ):
        for forgetful in (False, True):
            _, wrong = crash_everywhere(
                tmp_path, permanent, power, script=script, forgetful=forgetful
            )
            assert wrong == []

    @pytest.mark.slow
    @POWER
    def test_the_same_answer_on_three_days(self, tmp_path, power, permanent):
        """Every report comes from the vector of the first day, and each day is charged once."""
        options: dict[str, Any] = {"setup": "memory and ledger", "days": 3}
        steps, wrong = crash_everywhere(
            tmp_path, permanent, power, every=2, forgetful=True, **options
        )
        assert wrong == []
        assert steps > 200

    def test_every_kind_of_step_crashes_in_every_file(self, tmp_path, monkeypatch):
        paths: set[str] = set()
        write = FaultyDisk.write

        def noted(self: FaultyDisk, path: Path, content: bytes) -> None:
            paths.add(path.name)
            write(self, path, content)

        monkeypatch.setattr(FaultyDisk, "write", noted)
        disk = FaultyDisk(Faults())
        assert World(tmp_path / "w", "memory and ledger").live(disk)
        assert paths == {"part", "memory.part", "ledger.part"}
        calls = ("mkdir", "write", "sync_file", "replace", "sync_folder", "unlink", "fetch", "post")
        around = {f"{when} {what}" for when in ("before", "after") for what in calls}
        assert set(disk.faults.labels) == {*around, "within write"}

    @pytest.mark.parametrize("setup", ["memory and ledger", "neither"])
    def test_crashing_again_and_again(self, tmp_path, setup, permanent):
        """Lives cut short at random steps by kills, then by a power cut, which undoes what none of
        them synced; what one of them took is then sent without being answered again."""
        chance = random.Random(5)
        for number in range(15):
            permanent.clear()
            world, disk = World(tmp_path / str(number), setup), None
            for _ in range(4):
                disk = FaultyDisk(Faults(chance.randrange(70)), disk)
                world.live(disk)
            assert disk is not None
            if chance.random() < 0.7:
                disk.power_cut()
            world.done.clear()
            assert world.live(QuickDisk())
            assert world.wrong() == []
            assert len(set(permanent)) == world.remembers

    def test_a_ticket_of_a_life_that_was_killed_holds(self, tmp_path):
        """Killed before it synced; another process is given the ticket, and the power fails."""
        for k in range(30):
            world, disk = World(tmp_path / str(k)), FaultyDisk(Faults())
            other = world.outbox(disk)
            disk.faults = Faults(k)
            world.live(disk)
            world.faults = disk.faults = Faults()
            other.answer(ENDLESS, ANSWER, answer_key="day 0")
            disk.power_cut()
            assert [one.state for one in world.outbox(QuickDisk()).finish(1e6)] == ["sent"]
            assert world.wrong() == []

    def test_a_crash_while_reviving(self, tmp_path):
        for k in range(30):
            folder, clock, collector = tmp_path / str(k), Clock(), Collector(PostResult(400))
            outbox = box(folder, collector, clock)
            ticket = outbox.answer(ENDLESS, ANSWER)
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


KILLS = """
import json, os, random, signal, sys, time
from pathlib import Path
import cryptography.hazmat.primitives.ciphers.aead  # before the forks, whose lives are short
from shoal import Outbox, Plan
from shoal.device.encode import encode
from shoal.device.ledger import Ledger
from shoal.device.memory import DeviceMemory
from shoal.device.outbox import PostResult
from shoal.device.randomize import flip

folder, plan, kills = Path(sys.argv[1]), Plan.read(sys.argv[2]), int(sys.argv[3])
key, answer = bytes(range(32)), {"features": ["f1", "f7"]}

def append(name, line):
    handle = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(handle, line.encode() + b"\\n")
    os.close(handle)

def read(name):
    return (folder / name).read_text().split() if (folder / name).exists() else []

def written():
    return sum(len(read(name)) for name in ("begun", "taken", "received"))

class Log:
    def post_report(self, plan_id, content):
        append("received", content.hex())
        return PostResult(202)

def life(days):
    outbox = Outbox(
        folder / "outbox", Log(), spread=0, jitter=lambda: 0.0,
        memory=DeviceMemory(folder / "memory", key), ledger=Ledger(folder / "ledger"),
    )
    for day in days:
        append("begun", str(day))
        outbox.answer(plan, answer, answer_key=f"day {day}")
        append("taken", str(day))
        outbox.send_due()

def child(work):
    pid = os.fork()
    if not pid:
        work()
        os._exit(0)
    return pid

flip(plan, encode(plan, answer))
chance = random.Random(3)
died = 0
for number in range(kills):
    start, steps = len(set(read("taken"))), written() + chance.randrange(8)
    pid = child(lambda: life(range(start, start + 1000)))
    # Killed after so many steps, however long they take, and somewhere within the next one.
    while written() < steps:
        time.sleep(0.001)
    time.sleep(chance.uniform(0, 0.03))
    os.kill(pid, signal.SIGKILL)
    died += os.WIFSIGNALED(os.waitpid(pid, 0)[1])
begun = [*sorted(set(map(int, read("begun")))), *range(10_000, 10_010)]
racers = [child(lambda: life(begun)) for _ in range(4)]
for pid in racers:
    os.waitpid(pid, 0)
account = Ledger(folder / "ledger").read()
received = set(read("received"))
print(json.dumps({
    "died": died,
    "days": len(begun),
    "taken": len(set(read("taken"))),
    "versions": len(received),
    "ids": len({line[84:116] for line in received}),
    "charges": account.of(plan).reports,
    "distinct": account.of(plan).distinct_answers,
    "pending": len(account.pending),
    "remembered": list(DeviceMemory(folder / "memory", key).counts().values()),
    "waiting": len(list((folder / "outbox").glob("*.waiting"))),
    "sent": len(list((folder / "outbox").glob("*.sent"))),
}))
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked children")
def test_killed_at_random_and_finished_by_four_at_once(tmp_path):
    """Real files, real syncs, real kills; every answer has one version and one charge.

    The plan has no window, whose end would drop what was not sent in time.
    """
    replace(PLAN, window=None, max_reports_per_person=10**6).write(tmp_path / "plan.json")
    words = [sys.executable, "-c", KILLS, str(tmp_path), str(tmp_path / "plan.json"), "50"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    days = found.pop("days")
    assert days >= 25
    every = dict.fromkeys(("taken", "versions", "ids", "charges", "sent"), days)
    assert found == every | {
        "died": 50, "distinct": 1, "pending": 0, "remembered": [1], "waiting": 0,
    }  # fmt: skip


class TestThePrice:
    def test_is_that_of_the_reports_that_left(self, tmp_path):
        for setup, price in (
            ("memory and ledger", repeated_epsilon(64, LAYERS, 3)),
            ("ledger", 3 * local_epsilon(64, PLAIN.q)),
        ):
            world = World(tmp_path / setup, setup, days=3)
            assert world.live(QuickDisk())
            assert world.ledger().read().epsilon == price

    def test_another_answer_after_the_crash_is_another_charge(self, tmp_path):
        """The crash came after the charge; the person changed the answer before trying again."""
        labels = FaultyDisk(Faults())
        assert World(tmp_path / "clean", "memory and ledger").live(labels)
        for k in range(len(labels.faults.labels)):
            world = World(tmp_path / str(k), "memory and ledger")
            world.live(FaultyDisk(Faults(k)))
            if world.ledger().read().plans and not world.posted and not world.taken:
                break
        original = encode(PLAN, {"features": ["f9"]})
        world.memory().report(PLAN, original, ledger=world.ledger(), token="a token of its own")
        assert world.ledger().read().of(PLAN).distinct_answers == 2

    def test_two_folders_never_share_a_charge(self, tmp_path):
        """The same key in two outboxes is two reports, even if one of them crashed in between."""
        ledger = Ledger(tmp_path / "ledger", disk=QuickDisk())
        for name in ("a", "b"):
            box(tmp_path / name, Collector(), ledger=ledger).answer(PLAIN, ANSWER)
        assert ledger.read().of(PLAIN).reports == 2


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


class UnsyncedMemory(FaultyDisk):
    def store(self, path: Path, content: bytes, scratch: str) -> None:
        if scratch != "memory.part":
            return super().store(path, content, scratch)
        self.write(path.with_name(scratch), content)
        self.replace(path.with_name(scratch), path)


@pytest.mark.slow
class TestTheTestsCanFail:
    @pytest.mark.parametrize(
        ("disk", "power"), [(NoFolderSync, True), (NoFileSync, True), (NotAtomic, False)]
    )
    def test_on_another_disk(self, tmp_path, disk, power, permanent):
        assert crash_everywhere(tmp_path, permanent, power, make=disk)[1]

    @POWER
    def test_a_memory_that_does_not_sync(self, tmp_path, power, permanent):
        """Kills undo nothing."""
        options: dict[str, Any] = {"make": UnsyncedMemory, "setup": "memory and ledger"}
        _, wrong = crash_everywhere(tmp_path, permanent, power, forgetful=True, **options)
        assert bool(wrong) is power

    def test_deleting_before_the_note(self, tmp_path, monkeypatch, permanent):
        settle = ReportQueue.settle

        def hasty(self: ReportQueue, name: str, *rest: Any) -> Ticket:
            self._disk.remove(self._file(name, "waiting"))
            return settle(self, name, *rest)

        monkeypatch.setattr(ReportQueue, "settle", hasty)
        assert crash_everywhere(tmp_path, permanent, False)[1]

    def test_sending_before_storing(self, tmp_path, monkeypatch, permanent):
        """Flips drawn afresh for an attempt are a second version."""
        tried = Record.tried

        def again(self: Record, due: float) -> Record:
            fresh = pack_reports(ENDLESS, flip(ENDLESS, encode(ENDLESS, ANSWER)))
            return tried(self, due)._replace(batch=fresh.to_bytes())

        clean = World(tmp_path / "retried", script="retried")
        monkeypatch.setattr(Record, "tried", again)
        assert clean.live(QuickDisk())
        assert clean.wrong()

    @pytest.mark.parametrize("order", ["no token", "settled before it is stored"])
    def test_another_order(self, tmp_path, monkeypatch, permanent, order):
        charge, make = Ledger.charge, Outbox._make

        def forgetting(self: Ledger, plan: Plan, digest: Any = None, *, token: Any = None) -> Any:
            return charge(self, plan, digest)

        def hasty(self: Outbox, plan: Plan, answers: Any, window: int, digest: str) -> bytes:
            batch = make(self, plan, answers, window, digest)
            self._settle(plan, digest)
            return batch

        if order == "no token":
            monkeypatch.setattr(Ledger, "charge", forgetting)
        else:
            monkeypatch.setattr(Outbox, "_make", hasty)
        _, wrong = crash_everywhere(tmp_path, permanent, False, setup="ledger", forgetful=True)
        assert any("2 charges" in one for one in wrong)
