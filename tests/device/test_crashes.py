"""From the answer to the acknowledgement, with memory and ledger, crashing at every step.

One disk is under the outbox, the memory and the ledger, so that a crash can come before, within
and after every write of any of them, and around every network call; as a kill, or as a power cut
that undoes whatever was not synced.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from shoal import Flags, Outbox, Plan, Survey
from shoal.analysis.report_files import parse_batch
from shoal.device.encode import encode
from shoal.device.ledger import Ledger
from shoal.device.memory import DeviceMemory
from shoal.device.outbox import PostResult
from shoal.errors import InputError
from shoal.protocol.flip_probability import FlipProbability, local_epsilon, repeated_epsilon
from shoal.protocol.plan import Memory, Promise
from shoal.protocol.wording import permanent_key
from shoal.support.files import canonical_json
from tests.faults import Clock, Crash, Faults, FaultyDisk, QuickDisk

DAY = 86_400
KEY = bytes(range(32))
# 64 bits: two vectors of one answer, drawn afresh, are the same by chance with 2^-40 at most.
SURVEY = Survey("browser", (Flags("features", tuple(f"f{i}" for i in range(64))),))
LAYERS = Memory(FlipProbability(1, 2), FlipProbability(1, 2))
PLAIN = Plan(SURVEY, FlipProbability(3, 3), Promise("local", "40"), window=DAY)
PLAN = replace(PLAIN, q=LAYERS.q, memory=LAYERS)
ANSWER = {"features": ["f1", "f7"]}

SETUPS = {
    "memory and ledger": (PLAN, True, True),
    "memory": (PLAN, True, False),
    "ledger": (PLAIN, False, True),
}


@dataclass
class World:
    """One person's device and the collector, through all lives of the device."""

    folder: Path
    setup: str
    days: int = 1
    clock: Clock = field(default_factory=Clock)
    faults: Faults = field(default_factory=Faults)
    posted: list[bytes] = field(default_factory=list)
    accepted: dict[bytes, bytes] = field(default_factory=dict)
    taken: set[int] = field(default_factory=set)
    done: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.plan, self.remembers, self.charges = SETUPS[self.setup]
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
        self.accepted.setdefault(parse_batch(self.plan, content).ids.tobytes(), content)
        self.faults.step("after post")
        return PostResult(202)

    def memory(self, disk: Any = None) -> DeviceMemory:
        return DeviceMemory(self.folder / "memory", KEY, disk=disk or QuickDisk())

    def ledger(self, disk: Any = None) -> Ledger:
        return Ledger(self.folder / "ledger", disk=disk or QuickDisk())

    def live(self, disk: Any) -> bool:
        """Answer once a day, or send what waits, until the days are over; False if it crashed."""
        self.faults = getattr(disk, "faults", Faults())
        try:
            outbox = Outbox(
                self.folder / "outbox",
                self,
                memory=self.memory(disk) if self.remembers else None,
                ledger=self.ledger(disk) if self.charges else None,
                spread=0.0,
                jitter=lambda: 0.5,
                clock=self.clock,
                sleep=self.clock.sleep,
                disk=disk,
            )
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
        versions, counted = len(set(self.posted)), len(self.accepted)
        if not versions == counted == self.days:
            found.append(f"{versions} versions, {counted} counted")
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


@pytest.fixture
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
    setup: str,
    power: bool,
    permanent: list[bytes],
    *,
    days: int = 1,
    every: int = 1,
    forgetful: bool = False,
    make: Callable[[Faults], FaultyDisk] = FaultyDisk,
) -> tuple[int, list[str]]:
    """Crash at each step, restart, finish; return how many steps there are and what went wrong.

    A forgetful application does not know after a crash what was taken, and answers again.
    """
    clean = World(tmp_path / "clean", setup, days)
    disk = make(Faults())
    assert clean.live(disk)
    assert clean.wrong() == []
    wrong: list[str] = []
    for k, label in list(enumerate(disk.faults.labels))[::every]:
        permanent.clear()
        world = World(tmp_path / str(k), setup, days)
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
    @pytest.mark.parametrize("power", [False, True], ids=["killed", "power cut"])
    @pytest.mark.parametrize("forgetful", [False, True], ids=["knows", "forgetful"])
    @pytest.mark.parametrize("setup", SETUPS)
    def test_one_version_one_vector_one_charge(self, tmp_path, setup, forgetful, power, permanent):
        steps, wrong = crash_everywhere(tmp_path, setup, power, permanent, forgetful=forgetful)
        assert wrong == []
        assert steps > 60

    @pytest.mark.slow
    @pytest.mark.parametrize("power", [False, True], ids=["killed", "power cut"])
    def test_the_same_answer_on_three_days(self, tmp_path, power, permanent):
        """Every report comes from the vector of the first day, and each day is charged once."""
        steps, wrong = crash_everywhere(
            tmp_path, "memory and ledger", power, permanent, days=3, every=2, forgetful=True
        )
        assert wrong == []
        assert steps > 200

    def test_every_file_is_written_in_steps_that_crash(self, tmp_path, monkeypatch):
        paths: set[str] = set()
        write = FaultyDisk.write

        def noted(self: FaultyDisk, path: Path, content: bytes) -> None:
            paths.add(path.name)
            write(self, path, content)

        monkeypatch.setattr(FaultyDisk, "write", noted)
        assert World(tmp_path / "w", "memory and ledger").live(FaultyDisk(Faults()))
        assert paths == {"part", "memory.part", "ledger.part"}

    def test_crashing_again_and_again(self, tmp_path, permanent):
        """Five lives, each cut off a little later, then one that finishes."""
        for first in range(0, 60, 7):
            permanent.clear()
            world = World(tmp_path / str(first), "memory and ledger")
            disk = None
            for life in range(5):
                disk = FaultyDisk(Faults(first + 4 * life), disk)
                world.live(disk)
            assert disk is not None
            disk.power_cut()
            world.taken.clear()
            world.done.clear()
            assert world.live(QuickDisk())
            assert world.wrong() == []
            assert len(set(permanent)) == 1


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

folder, plan = Path(sys.argv[1]), Plan.read(sys.argv[2])
key, answer = bytes(range(32)), {"features": ["f1", "f7"]}

def append(name, line):
    handle = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(handle, line.encode() + b"\\n")
    os.close(handle)

def read(name):
    return (folder / name).read_text().split() if (folder / name).exists() else []

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
for number in range(int(sys.argv[3])):
    start = len(set(read("taken")))
    pid = child(lambda: life(range(start, start + 1000)))
    time.sleep(chance.uniform(0.005, 0.15))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
begun = sorted(set(map(int, read("begun"))))
racers = [child(lambda: life(begun)) for _ in range(3)]
for pid in racers:
    os.waitpid(pid, 0)
account = Ledger(folder / "ledger").read()
received = set(read("received"))
print(json.dumps({
    "days": len(begun),
    "versions": len(received),
    "ids": len({line[84:116] for line in received}),
    "charges": account.of(plan).reports,
    "distinct": account.of(plan).distinct_answers,
    "pending": len(account.pending),
    "remembered": list(DeviceMemory(folder / "memory", key).counts().values()),
    "waiting": len(list((folder / "outbox").glob("*.waiting"))),
}))
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked children")
def test_killed_at_random_and_finished_by_three_at_once(tmp_path):
    """Real files, real syncs, real kills; every answer has one version and one charge.

    The plan has no window, whose end would drop what was not sent in time.
    """
    replace(PLAN, window=None, max_reports_per_person=10**6).write(tmp_path / "plan.json")
    words = [sys.executable, "-c", KILLS, str(tmp_path), str(tmp_path / "plan.json"), "40"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    days = found.pop("days")
    assert days >= 3
    assert found == {
        "versions": days,
        "ids": days,
        "charges": days,
        "distinct": 1,
        "pending": 0,
        "remembered": [1],
        "waiting": 0,
    }


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
        world = World(tmp_path / "w", "ledger")
        for name in ("a", "b"):
            Outbox(tmp_path / name, world, ledger=ledger, disk=QuickDisk()).answer(PLAIN, ANSWER)
        assert ledger.read().of(PLAIN).reports == 2


class TestTheTestsCanFail:
    def test_without_a_token(self, tmp_path, monkeypatch, permanent):
        real = Ledger.charge

        def forgetting(self: Ledger, plan: Plan, digest: Any = None, *, token: Any = None) -> Any:
            return real(self, plan, digest)

        monkeypatch.setattr(Ledger, "charge", forgetting)
        _, wrong = crash_everywhere(tmp_path, "ledger", False, permanent, forgetful=True)
        assert any("2 charges" in one for one in wrong)

    def test_settling_before_storing(self, tmp_path, monkeypatch, permanent):
        real = Outbox._make

        def hasty(self: Outbox, plan: Plan, answers: Any, window: int, digest: str) -> bytes:
            batch = real(self, plan, answers, window, digest)
            self._settle(plan, digest)
            return batch

        monkeypatch.setattr(Outbox, "_make", hasty)
        _, wrong = crash_everywhere(tmp_path, "ledger", False, permanent, forgetful=True)
        assert any("2 charges" in one for one in wrong)

    @pytest.mark.slow
    def test_a_memory_that_does_not_sync(self, tmp_path, permanent):
        class Lazy(FaultyDisk):
            def store(self, path: Path, content: bytes, scratch: str) -> None:
                if scratch != "memory.part":
                    return super().store(path, content, scratch)
                self.write(path.with_name(scratch), content)
                self.replace(path.with_name(scratch), path)

        work = partial(crash_everywhere, forgetful=True, make=Lazy)
        assert work(tmp_path, "memory and ledger", False, permanent)[1] == []  # kills undo nothing
        (tmp_path / "power").mkdir()
        assert work(tmp_path / "power", "memory and ledger", True, permanent)[1]
