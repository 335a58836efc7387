"""The outbox: whatever crashes, an answer that was taken arrives, in one version."""

from __future__ import annotations

import base64
import datetime
import json
import os
import random
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import shoal
from shoal import Flags, FlipProbability, Memory, Plan, PrivacyRefusal, Promise, Survey, parse_batch
from shoal.agreement.local_privacy import repeated_epsilon
from shoal.cli import run
from shoal.device.ledger import Ledger
from shoal.device.outbox import (
    HttpTransport,
    Outbox,
    Reply,
    Ticket,
    TransportError,
    check_plan,
    check_promise,
    read_plan,
)
from shoal.device.outbox.folder import Folder
from shoal.device.outbox.outbox import LONGEST_BACKOFF, LONGEST_WAIT, uniform
from shoal.device.outbox.records import Record
from shoal.errors import AnswerError, InputError, PlanError
from shoal.support.disk import Disk
from shoal.support.files import canonical_json
from tests.faults import Clock, Crash, Faults, FaultyDisk, QuickDisk
from tests.strategies import bounded

# 64 bits: two vectors of one answer, drawn afresh, are the same by chance with 2^-40 at most.
SURVEY = Survey("browser", (Flags("features", tuple(f"f{i}" for i in range(64))),))
PLAN = Plan(SURVEY, FlipProbability(3, 3), Promise("local", "40"))
ANSWER = {"features": ["f1", "f7"]}
QUICK: dict[str, Any] = {"spread": 0.0, "jitter": lambda: 0.5}


class Collector:
    """A collector in this process, which counts each report id once."""

    def __init__(self, *script: Reply | Exception, plans: tuple[Plan, ...] = (PLAN,)) -> None:
        self.script = list(script)
        self.plans = {plan.id: plan for plan in plans}
        self.posted: list[bytes] = []
        self.accepted: dict[bytes, bytes] = {}
        self.fetched = 0
        self.faults = Faults()

    def fetch_plan(self, plan_id: str) -> bytes:
        self.fetched += 1
        self.faults.step("before fetch")
        content = canonical_json(self.plans[plan_id].to_json())
        self.faults.step("after fetch")
        return content

    def post_report(self, plan_id: str, content: bytes) -> Reply:
        self.faults.step("before post")
        self.posted.append(content)
        outcome = self.script.pop(0) if self.script else Reply(202)
        if isinstance(outcome, Reply) and outcome.status == 202:
            batch = parse_batch(self.plans[plan_id], content)
            self.accepted.setdefault(batch.ids.tobytes(), content)
        self.faults.step("after post")
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def box(folder: Path, collector: Any, clock: Clock | None = None, **options: Any) -> Outbox:
    clock = clock or Clock()
    options = QUICK | {"disk": QuickDisk()} | options
    return Outbox(folder, collector, clock=clock, sleep=clock.sleep, **options)


SCRIPTS: dict[str, tuple[Reply | Exception, ...]] = {
    "accepted": (),
    "retried": (TransportError("no answer."), Reply(503, 5.0), ConnectionResetError()),
    "refused": (Reply(400),),
    "gone": (Reply(410),),
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
            folder, clock, collector = tmp_path / str(k), Clock(), Collector(Reply(400))
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
        settle = Folder.settle

        def hasty(self: Folder, name: str, *rest: Any) -> Ticket:
            self._disk.remove(self._file(name, "waiting"))
            return settle(self, name, *rest)

        monkeypatch.setattr(Folder, "settle", hasty)
        assert crash_everywhere(tmp_path, "accepted", False)

    def test_sending_before_storing(self, tmp_path, monkeypatch):
        """Flips drawn afresh for an attempt are a second version."""
        from shoal import encode, pack_reports, randomize

        fresh = lambda: pack_reports(PLAN, randomize(encode(PLAN, ANSWER), PLAN))  # noqa: E731
        tried = Record.tried

        def again(self: Record, due: float) -> Record:
            return replace(tried(self, due), batch=fresh().to_bytes())

        monkeypatch.setattr(Record, "tried", again)
        assert crash_everywhere(tmp_path, "retried", False, every=9)


KILLS = """
import json, os, random, signal, sys, time
from pathlib import Path
from shoal import *
from shoal.device.outbox import Outbox, Reply

folder, kills = Path(sys.argv[1]), int(sys.argv[2])
survey = Survey("browser", (Flags("features", tuple(f"f{i}" for i in range(64))),))
plan = Plan(survey, FlipProbability(3, 3), Promise("local", "40"), max_reports_per_person=10**6)

def append(name, line):
    handle = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(handle, line.encode() + b"\\n")
    os.close(handle)

class Log:
    def post_report(self, plan_id, content):
        append("received", content.hex())
        return Reply(202)

def life(count, keys):
    outbox = Outbox(folder / "outbox", Log(), spread=0, jitter=lambda: 0.0)
    for key in keys:
        append("begun", str(key))
        outbox.answer(plan, {"features": ["f1"]}, answer_key=str(key))
        append("taken", str(key))
        outbox.send_due()
    outbox.finish(60) if count is None else None

def read(name):
    return (folder / name).read_text().split() if (folder / name).exists() else []

def written():
    return sum(len(read(name)) for name in ("begun", "taken", "received"))

def child(work):
    pid = os.fork()
    if not pid:
        work()
        os._exit(0)
    return pid

randomize(encode(plan, {"features": []}), plan)
chance = random.Random(7)
died = 0
for number in range(kills):
    start = len(set(read("taken")))
    steps = written() + chance.randrange(8)
    pid = child(lambda: life(number, range(start, start + 1000)))
    # Killed after so many steps, however long they take, and somewhere within the next one.
    while written() < steps:
        time.sleep(0.001)
    time.sleep(chance.uniform(0, 0.004))
    os.kill(pid, signal.SIGKILL)
    died += os.WIFSIGNALED(os.waitpid(pid, 0)[1])
begun = sorted(set(map(int, read("begun"))))
os.waitpid(child(lambda: life(None, begun)), 0)
if sys.argv[3:]:
    racers = [child(lambda: life(None, range(10_000, 10_020))) for _ in range(int(sys.argv[3]))]
    for pid in racers:
        os.waitpid(pid, 0)
received = read("received")
print(json.dumps({
    "died": died,
    "keys": len(set(read("begun"))),
    "taken": len(set(read("taken"))),
    "versions": len(set(received)),
    "ids": len({line[84:116] for line in received}),
    "posts": len(received),
    "waiting": len(list((folder / "outbox").glob("*.waiting"))),
    "sent": len(list((folder / "outbox").glob("*.sent"))),
}))
"""


class TestProcesses:
    @staticmethod
    def counts(folder: Path, *words: str) -> dict[str, int]:
        done = subprocess.run(
            [sys.executable, "-c", KILLS, str(folder), *words],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        counts: dict[str, int] = json.loads(done.stdout)
        return counts

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked children")
    def test_killed_at_random(self, tmp_path):
        counts = self.counts(tmp_path, "60")
        assert counts["died"] == 60
        assert counts["keys"] >= 20
        assert counts["taken"] == counts["keys"] == counts["sent"]
        assert counts["versions"] == counts["ids"] == counts["keys"]
        assert counts["waiting"] == 0

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="forks racers")
    def test_processes_that_share_a_folder(self, tmp_path):
        counts = self.counts(tmp_path, "0", "4")
        assert counts["keys"] == counts["versions"] == counts["ids"] == counts["sent"] == 20
        assert counts["waiting"] == 0

    def test_threads_that_share_an_outbox(self, tmp_path):
        plan = replace(PLAN, max_reports_per_person=100)
        collector = Collector(plans=(plan,))
        outbox = box(tmp_path, collector)

        def work() -> None:
            for key in range(10):
                outbox.answer(plan, ANSWER, answer_key=str(key))
                outbox.send_due()

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        outbox.finish(1e6)
        assert len(set(collector.posted)) == len(collector.accepted) == 10

    def test_a_device_loads_only_its_side(self):
        names = ["encoding", "randomizing", "memory", "reports", "sending", "ledger"]
        script = f"import sys, {', '.join(f'shoal.{n}' for n in names)}; print(*sys.modules)"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        loaded = set(done.stdout.split())
        heavy = {"scipy", "pyarrow", "pandas", "polars", "rich", "click", "starlette", "requests"}
        assert not loaded & heavy
        # Loaded when something is sent or a survey is read; bench/device.py says what that saves.
        assert not loaded & {"ssl", "socket", "http.client", "email.utils", "tomllib"}
        server = "tallying estimating joint intervals combining counting anonymizing decoding"
        server += " laplace publishing collector console auditing planning theory cli"
        assert not loaded & {f"shoal.{name}" for name in server.split()}

    def test_sending_loads_no_more(self, tmp_path):
        """From the answer to the wire, without the mathematics."""
        script = (
            "import sys; from shoal import Plan, Survey, Flags, FlipProbability, Promise;"
            "from shoal.device.outbox import HttpTransport, Outbox;"
            "plan = Plan(Survey('s', (Flags('f', ('a',)),)), FlipProbability(1, 2),"
            " Promise('local', '2'));"
            f"box = Outbox({str(tmp_path)!r}, HttpTransport('http://127.0.0.1:9'), spread=0);"
            "box.answer(plan, {'f': ['a']}); (t,) = box.send_due(); assert t.state == 'waiting';"
            "print(*sys.modules)"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert not set(done.stdout.split()) & {"scipy", "pyarrow", "shoal.planning.certificate"}


class TestChecking:
    def test_the_plan_that_was_asked_for(self):
        other = replace(PLAN, max_reports_per_person=2)
        content = canonical_json(other.to_json())
        assert read_plan(content, other.id) == other
        with pytest.raises(PlanError, match=r"asked for plan .* got plan"):
            read_plan(content, PLAN.id)

    @pytest.mark.parametrize("plan_id", ["", "x" * 64, "A" * 64, "../" * 21 + "a", None, 5])
    def test_ids(self, plan_id):
        with pytest.raises(PlanError, match="64 hexadecimal digits"):
            read_plan(b"{}", plan_id)

    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"\xff",
            b"[" * 100_000,
            b"NaN",
            b'{"a":1,"a":2}',
            b"9" * 10_000,
            b"{}",
            b"null",
            b'"\\ud800"',
            b" " * ((16 << 20) + 1),
        ],
        ids=range(10),
    )
    def test_what_is_no_plan(self, content):
        with pytest.raises(PlanError):
            read_plan(content, "0" * 64)

    @given(st.data())
    @bounded(150)
    def test_changed_plans(self, data):
        """Whatever byte of a plan is changed, it is not the plan that was asked for."""
        content = bytearray(canonical_json(PLAN.to_json()))
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] = data.draw(st.integers(0, 255).filter(lambda byte: byte != content[at]))
        with pytest.raises(PlanError):
            read_plan(bytes(content), PLAN.id)

    def test_the_limit_is_exact(self):
        # 64 ln(5/3) = 32.692838...
        assert check_plan(PLAN, limit="32.693") is PLAN
        assert check_plan(PLAN) is PLAN
        with pytest.raises(PrivacyRefusal, match=r"32\.6929.* limit of 32\.69\b"):
            check_plan(PLAN, limit="32.69")
        for limit in (0, -1, "nan", True):
            with pytest.raises(InputError):
                check_plan(PLAN, limit=limit)

    def test_with_memory_the_permanent_flips_count(self):
        memory = Memory(FlipProbability(1, 2), FlipProbability(1, 2))
        plan = replace(PLAN, q=memory.q, memory=memory)
        with pytest.raises(PrivacyRefusal, match=r"70\.31"):  # 64 ln 3
            check_plan(plan, limit=40)

    def test_several_reports_add_up(self):
        with pytest.raises(PrivacyRefusal, match=r"2 reports of this plan reveal .* 65\.3857"):
            check_plan(PLAN, limit=40, reports=2)
        check_plan(PLAN, limit="65.3857", reports=2)

    def test_short_windows_tell_the_time(self):
        with pytest.raises(PrivacyRefusal, match="would tell when"):
            check_plan(replace(PLAN, window=60))
        check_plan(replace(PLAN, window=60), shortest_window=60)

    def test_blind_plans(self):
        with pytest.raises(PlanError, match="says nothing"):
            check_plan(Plan(SURVEY, FlipProbability(1, 1), Promise("local", "1")))

    def test_recomputing(self):
        small = Survey("s", (Flags("f", ("a", "b")),))
        kept = shoal.plan(small, crowd_size=1000, epsilon=1, delta="1e-6")
        check_promise(kept)
        check_promise(PLAN)
        sufficient = shoal.plan(small, crowd_size=1000, epsilon=1, eta="1e-6")
        check_promise(sufficient)
        for broken in (
            replace(kept, q=FlipProbability(1, 4)),
            replace(kept, max_reports_per_person=5),
            replace(sufficient, max_reports_per_person=2),
        ):
            with pytest.raises(PrivacyRefusal, match="does not confirm"):
                check_promise(broken)
        with pytest.raises(PrivacyRefusal, match="rule of thumb"):
            check_promise(replace(kept, promise=Promise("three-sigma", "1")))


class TestPlans:
    def test_fetched_once_and_kept(self, tmp_path):
        collector = Collector()
        assert box(tmp_path, collector).plan(PLAN.id) == PLAN
        assert box(tmp_path, collector).plan(PLAN.id) == PLAN
        assert collector.fetched == 1

    def test_a_kept_plan_is_checked_again(self, tmp_path):
        collector = Collector()
        box(tmp_path, collector).plan(PLAN.id)
        with pytest.raises(PrivacyRefusal):
            box(tmp_path, collector, limit=1).plan(PLAN.id)
        (tmp_path / "plans" / f"{PLAN.id}.json").write_bytes(b"{")
        assert box(tmp_path, collector).plan(PLAN.id) == PLAN
        assert collector.fetched == 2

    def test_another_plan_is_refused_and_not_kept(self, tmp_path):
        collector = Collector()
        collector.plans[PLAN.id] = replace(PLAN, max_reports_per_person=9)
        with pytest.raises(PlanError, match="asked for"):
            box(tmp_path, collector).plan(PLAN.id)
        assert not list((tmp_path / "plans").iterdir())


CROWD = shoal.plan(
    Survey("crowd", (Flags("features", ("f1", "f7")),)), crowd_size=1000, epsilon=1, delta="1e-6"
)
BROKEN = replace(CROWD, q=FlipProbability(1, 4))


class Certifying(Collector):
    """A collector whose certificates are its word: the signature is `HttpTransport`'s business."""

    def __init__(self, plan: Plan = CROWD, key: str | None = "k") -> None:
        super().__init__(plans=(plan,))
        self.pinned_key, self.asked = key, 0
        self.certificate: bytes | Exception = certificate_of(CROWD)

    def fetch_certificate(self, plan_id: str) -> bytes:
        self.asked += 1
        if isinstance(self.certificate, Exception):
            raise self.certificate
        return self.certificate


@cache
def certificate_of(plan: Plan) -> bytes:
    from shoal.collector.publication import certificate
    from shoal.collector.settings import Settings

    return certificate(plan, Settings())


class TestThePromise:
    """A device that is told nothing about a plan's promise does not answer."""

    @pytest.mark.parametrize("options", [{}, {"recompute": True}, {"limit": 20}])
    def test_it_is_computed_by_default(self, tmp_path, options):
        with pytest.raises(PrivacyRefusal, match="does not confirm"):
            box(tmp_path, Collector(), **options).answer(BROKEN, ANSWER)
        assert not list(tmp_path.glob("*.waiting"))
        assert box(tmp_path, Collector(), **options).answer(CROWD, ANSWER).state == "waiting"

    def test_several_reports_count(self, tmp_path):
        with pytest.raises(PrivacyRefusal, match="3 reports of a person"):
            box(tmp_path, Collector()).answer(replace(CROWD, max_reports_per_person=3), ANSWER)

    def test_a_fetched_plan_is_computed_too(self, tmp_path):
        with pytest.raises(PrivacyRefusal, match="does not confirm"):
            box(tmp_path, Collector(plans=(BROKEN,))).plan(BROKEN.id)
        assert not list((tmp_path / "plans").iterdir())

    def test_nothing_tells(self, tmp_path):
        for transport in (Collector(), Certifying(key=None)):
            outbox = box(tmp_path, transport, recompute=False)
            with pytest.raises(PrivacyRefusal, match=r"nothing tells.*--limit.*--key"):
                outbox.answer(CROWD, ANSWER)
        assert outbox.answer(PLAN, ANSWER).state == "waiting"  # its local promise is exact

    def test_a_limit_of_its_own_needs_no_crowd(self, tmp_path):
        outbox = box(tmp_path, Collector(), recompute=False, limit=20)
        assert outbox.answer(BROKEN, ANSWER).state == "waiting"
        with pytest.raises(PrivacyRefusal, match="limit of 1"):
            box(tmp_path, Collector(), recompute=False, limit=1).answer(CROWD, ANSWER)

    def test_a_certificate(self, tmp_path):
        collector = Certifying()
        assert box(tmp_path, collector, recompute=False).answer(CROWD, ANSWER).state == "waiting"
        for _ in range(2):
            box(tmp_path, collector, recompute=False).plan(CROWD.id)
        assert collector.asked == 1
        # Another key is another word, and so is a computation.
        other = Certifying(key="other")
        box(tmp_path, other, recompute=False).plan(CROWD.id)
        assert other.asked == 1

    @pytest.mark.parametrize("kind", ["another plan", "a larger delta", "nonsense", "none"])
    def test_a_certificate_that_does_not_confirm(self, tmp_path, kind):
        collector = Certifying(BROKEN if kind == "another plan" else CROWD)
        plan = BROKEN if kind == "another plan" else CROWD
        if kind == "a larger delta":
            document = json.loads(certificate_of(CROWD))
            document["certificate"]["proven"]["delta"][1] = 0.5
            collector.certificate = json.dumps(document).encode()
        if kind == "nonsense":
            collector.certificate = b"{}"
        if kind == "none":
            collector.certificate = TransportError("404.")
        errors = {"a larger delta": PrivacyRefusal, "none": TransportError}
        with pytest.raises(errors.get(kind, PlanError)):
            box(tmp_path, collector, recompute=False).answer(plan, ANSWER)
        assert not list(tmp_path.glob("*.waiting"))
        assert not list((tmp_path / "plans").glob("*.promise"))

    def test_a_rule_of_thumb_has_no_certificate(self, tmp_path):
        rule = shoal.plan(CROWD.survey, crowd_size=1000, epsilon=1, promise="three-sigma")
        for recompute in (None, False):
            with pytest.raises(PrivacyRefusal, match="rule of thumb"):
                box(tmp_path, Certifying(rule), recompute=recompute).answer(rule, ANSWER)

    def test_it_is_computed_once_for_a_folder(self, tmp_path, monkeypatch):
        computed: list[Plan] = []
        monkeypatch.setattr("shoal.device.outbox.outbox.check_promise", computed.append)
        for _ in range(3):
            box(tmp_path, Collector()).answer(CROWD, ANSWER)
        assert len(computed) == 1
        monkeypatch.setattr("shoal.__version__", "another")
        box(tmp_path, Collector()).answer(CROWD, ANSWER)
        assert len(computed) == 2

    def test_where_there_is_no_scipy(self, tmp_path, monkeypatch):
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(PrivacyRefusal, match="nothing tells"):
            box(tmp_path, Collector()).answer(CROWD, ANSWER)
        with pytest.raises(InputError, match="pip install scipy"):
            box(tmp_path, Collector(), recompute=True)

    def test_a_certified_answer_loads_no_mathematics(self, tmp_path):
        (tmp_path / "certificate").write_bytes(certificate_of(CROWD))
        CROWD.write(tmp_path / "plan")
        script = """
import sys
from pathlib import Path
from shoal import Plan
from shoal.device.outbox import Outbox, Reply
folder = Path(sys.argv[1])
class Carrier:
    pinned_key = "k"
    def fetch_plan(self, plan_id): ...
    def fetch_certificate(self, plan_id): return (folder / "certificate").read_bytes()
    def post_report(self, plan_id, content): return Reply(202)
outbox = Outbox(folder / "box", Carrier(), recompute=False, spread=0)
outbox.answer(Plan.read(folder / "plan"), {"features": ["f1"]})
assert [one.state for one in outbox.send_due()] == ["sent"]
print(*sys.modules)
"""
        done = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert not {"scipy", "shoal.planning.certificate"} & set(done.stdout.split())


class TestAnswering:
    def test_stored_before_it_returns(self, tmp_path):
        ticket = box(tmp_path, Collector()).answer(PLAN, ANSWER)
        (file,) = tmp_path.glob("*.waiting")
        record = Record.from_bytes(file.read_bytes())
        assert len(parse_batch(PLAN, record.batch)) == 1
        assert file.stat().st_mode & 0o077 == tmp_path.joinpath("lock").stat().st_mode & 0o077 == 0
        assert file.name == f"{ticket.name}.waiting"

    def test_the_same_key_is_the_same_report(self, tmp_path):
        collector = Collector()
        first = box(tmp_path, collector).answer(PLAN, ANSWER, answer_key="a")
        again = box(tmp_path, collector).answer(PLAN, {"features": []}, answer_key="a")
        assert again == first
        box(tmp_path, collector).send_due()
        done = box(tmp_path, collector).answer(PLAN, ANSWER, answer_key="a")
        assert (done.name, done.state) == (first.name, "sent")
        assert box(tmp_path, collector).send_due() == []
        assert len(collector.posted) == 1

    def test_another_key_is_refused_where_one_report_is_agreed(self, tmp_path):
        outbox = box(tmp_path, Collector())
        outbox.answer(PLAN, ANSWER, answer_key="a")
        with pytest.raises(PrivacyRefusal, match=r"takes 1 report.*; nothing was made\.$"):
            outbox.answer(PLAN, ANSWER, answer_key="b")
        with pytest.raises(PrivacyRefusal):
            outbox.answer(PLAN, ANSWER)
        outbox.send_due()
        with pytest.raises(PrivacyRefusal):
            outbox.answer(PLAN, ANSWER, answer_key="b")

    def test_a_second_day_names_what_it_takes(self, tmp_path):
        daily, clock = replace(PLAN, window=86_400), Clock()
        outbox = box(tmp_path, Collector(), clock=clock)
        outbox.answer(daily, ANSWER, answer_key="monday")
        clock.now += 86_400
        with pytest.raises(PrivacyRefusal, match=r"--ledger FILE.*--memory FILE\)\.$"):
            outbox.answer(daily, ANSWER, answer_key="tuesday")

    def test_without_a_key_a_plan_has_one_answer(self, tmp_path):
        clock = Clock()
        outbox = box(tmp_path, Collector(), clock)
        plan = replace(PLAN, window=86_400)
        first = outbox.answer(plan, ANSWER)
        clock.now += 10 * 86_400
        assert outbox.answer(plan, ANSWER) == first

    def test_nothing_of_the_answer_is_kept_once_it_is_sent(self, tmp_path):
        collector = Collector()
        outbox = box(tmp_path, collector)
        outbox.answer(PLAN, ANSWER, answer_key="visit 17")
        outbox.send_due()
        report = parse_batch(PLAN, collector.posted[0])
        for file in tmp_path.rglob("*"):
            if file.is_file():
                content = file.read_bytes()
                for secret in (report.ids.tobytes(), report.rows.tobytes(), b"visit 17"):
                    assert secret not in content
                    assert secret.hex().encode() not in content
        assert not (tmp_path / "part").exists()

    @pytest.mark.parametrize("answers", [[ANSWER], "f1", {"features": ["no"]}, {}])
    def test_wrong_answers_leave_nothing(self, tmp_path, answers):
        charges = Charges()
        with pytest.raises(AnswerError):
            box(tmp_path, Collector(), ledger=charges).answer(PLAN, answers)
        assert charges.made == []
        assert not list(tmp_path.glob("*.*"))

    @pytest.mark.parametrize("key", ["", " ", "a\n", "x" * 1001, 5])
    def test_wrong_keys(self, tmp_path, key):
        with pytest.raises(InputError, match="answer_key"):
            box(tmp_path, Collector()).answer(PLAN, ANSWER, answer_key=key)

    def test_above_the_limit(self, tmp_path):
        with pytest.raises(PrivacyRefusal, match="limit"):
            box(tmp_path, Collector(), limit=1).answer(PLAN, ANSWER)

    def test_above_the_limit_with_several_reports(self, tmp_path):
        """A plan may take many reports of one person; the device's limit is on all of them."""
        plan = replace(PLAN, max_reports_per_person=1000)
        outbox = box(tmp_path, Collector(plans=(plan,)), limit=70)
        for key in ("a", "b", "a"):
            outbox.answer(plan, ANSWER, answer_key=key)
        with pytest.raises(PrivacyRefusal, match=r"3 reports of this plan reveal"):
            outbox.answer(plan, ANSWER, answer_key="c")
        outbox.finish(1e6)
        with pytest.raises(PrivacyRefusal, match=r"3 reports"):
            outbox.answer(plan, ANSWER, answer_key="c")
        charges = Charges()
        with pytest.raises(PrivacyRefusal, match=r"3 reports"):
            box(tmp_path, Collector(), limit=70, ledger=charges).answer(
                plan, ANSWER, answer_key="c"
            )
        assert charges.made == []
        box(tmp_path, Collector(), ledger=charges).answer(plan, ANSWER, answer_key="c")
        assert len(charges.made) == 1

    def test_above_the_limit_window_after_window(self, tmp_path):
        """A ledger without a limit of its own does not take the device's away."""
        plan, clock = replace(PLAN, window=86_400), Clock()
        ledger = Ledger(tmp_path / "ledger.json")
        outbox = box(tmp_path / "box", Collector(), limit=70, ledger=ledger, clock=clock)
        for _ in range(2):
            outbox.answer(plan, ANSWER)
            clock.now += 86_400
        with pytest.raises(PrivacyRefusal, match=r"3 reports"):
            outbox.answer(plan, ANSWER)
        assert ledger.read().epsilon < 70

    def test_a_link_in_our_place_is_not_followed(self, tmp_path):
        outbox = box(tmp_path / "box", Collector())
        (tmp_path / "precious").write_text("precious")
        (tmp_path / "box" / "part").symlink_to(tmp_path / "precious")
        with pytest.raises(InputError, match="cannot be used"):
            outbox.answer(PLAN, ANSWER)
        assert (tmp_path / "precious").read_text() == "precious"

    def test_a_folder_that_cannot_be(self, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(InputError, match="cannot be used"):
            Outbox(tmp_path / "file", Collector())

    def test_a_full_disk(self, tmp_path):
        class Full(Disk):
            def write(self, path: Path, content: bytes) -> None:
                raise OSError(28, "No space left on device")

        with pytest.raises(InputError, match="No space left"):
            box(tmp_path, Collector(), disk=Full()).answer(PLAN, ANSWER)
        assert box(tmp_path, Collector()).answer(PLAN, ANSWER).state == "waiting"

    def test_the_spread_is_bounded(self, tmp_path):
        for spread in (-1.0, 1e9, float("nan")):
            with pytest.raises(InputError, match="spread"):
                box(tmp_path, Collector(), spread=spread)


class Charges:
    def __init__(self, most: int = 100) -> None:
        self.made: list[str | None] = []
        self.most = most

    def charge(
        self, plan: Plan, answer_digest: str | None = None, *, token: str | None = None
    ) -> None:
        if len(self.made) >= self.most:
            raise PrivacyRefusal("the ledger is full.")
        self.made.append(answer_digest)

    def settle(self, token: str) -> None:
        pass


class TestCollaborators:
    def test_the_ledger_is_charged_first(self, tmp_path, monkeypatch):
        charges = Charges(0)
        drawn: list[object] = []
        monkeypatch.setattr("shoal.device.outbox.outbox.randomize", lambda *a: drawn.append(a))
        with pytest.raises(PrivacyRefusal, match="full"):
            box(tmp_path, Collector(), ledger=charges).answer(PLAN, ANSWER)
        assert drawn == []
        assert not list(tmp_path.glob("*.waiting"))

    def test_charged_once_for_one_key(self, tmp_path):
        charges = Charges()
        outbox = box(tmp_path, Collector(), ledger=charges)
        for _ in range(3):
            outbox.answer(PLAN, ANSWER, answer_key="a")
        assert charges.made == [None]

    def test_with_a_ledger_each_window_has_an_answer(self, tmp_path):
        clock, charges = Clock(), Charges()
        plan = replace(PLAN, window=86_400)
        outbox = box(tmp_path, Collector(plans=(plan,)), clock, ledger=charges)
        names = {outbox.answer(plan, ANSWER).name for _ in range(2)}
        clock.now += 86_400
        names |= {outbox.answer(plan, ANSWER).name for _ in range(2)}
        assert len(names) == len(charges.made) == 2

    def test_a_plan_with_memory_needs_one(self, tmp_path):
        memory = Memory(FlipProbability(1, 2), FlipProbability(1, 2))
        plan = replace(PLAN, q=memory.q, memory=memory)
        with pytest.raises(PrivacyRefusal, match="no memory"):
            box(tmp_path, Collector(), memory=None).answer(plan, ANSWER)

    def test_with_the_real_ones(self, tmp_path):
        from shoal import SystemBits
        from shoal.device.ledger import Ledger
        from shoal.device.memory import DeviceMemory

        memory = Memory(FlipProbability(1, 2), FlipProbability(1, 2))
        plan = replace(PLAN, q=memory.q, memory=memory, window=86_400)
        clock, collector = Clock(), Collector(plans=(plan,))
        ledger = Ledger(tmp_path / "ledger")
        device = DeviceMemory(tmp_path / "memory", SystemBits().draw(32))
        outbox = box(tmp_path / "outbox", collector, clock, memory=device, ledger=ledger)
        for _ in range(3):
            outbox.answer(plan, ANSWER)
            outbox.answer(plan, ANSWER)
            outbox.send_due()
            clock.now += 86_400
        assert len(set(collector.posted)) == len(collector.accepted) == 3
        assert list(device.counts().values()) == [1]
        assert ledger.read().epsilon > 0


class TestSending:
    def test_the_first_wait_is_spread(self, tmp_path):
        clock, collector = Clock(), Collector()
        outbox = box(tmp_path, collector, clock, spread=3600.0, jitter=lambda: 0.25)
        ticket = outbox.answer(PLAN, ANSWER)
        assert ticket.due == clock.now + 900
        clock.now += 899
        assert outbox.send_due() == []
        clock.now += 1
        assert [one.state for one in outbox.send_due()] == ["sent"]

    def test_in_a_hurry(self, tmp_path):
        collector = Collector(Reply(503, 100.0))
        outbox = box(tmp_path, collector, spread=3600.0)
        outbox.answer(PLAN, ANSWER)
        assert [one.state for one in outbox.send_due(hurry=True)] == ["waiting"]
        assert outbox.send_due(hurry=True) == []  # what the collector asked for is kept

    def test_backoff_doubles_up_to_a_bound_with_full_jitter(self, tmp_path):
        clock, collector = Clock(), Collector(*[TransportError("no.")] * 14)
        outbox = box(tmp_path, collector, clock, jitter=lambda: 1 - 2**-53)
        outbox.answer(PLAN, ANSWER)
        waits = []
        for _ in range(14):
            (ticket,) = outbox.send_due()
            assert ticket.state == "waiting"
            assert ticket.reason == "no"
            assert ticket.due is not None
            waits.append(round(ticket.due - clock.now))
            clock.now = ticket.due + 0.01
        assert waits[:4] == [30, 60, 120, 240]
        assert max(waits) == waits[-1] == LONGEST_BACKOFF
        assert len(set(collector.posted)) == 1

    def test_jitter_is_uniform(self):
        drawn = [uniform() for _ in range(2000)]
        assert 0 <= min(drawn) < 0.01
        assert 0.99 < max(drawn) < 1
        # The mean of 2000 is off by 0.04 with probability 6e-10.
        assert abs(sum(drawn) / 2000 - 0.5) < 0.04

    @pytest.mark.parametrize("status", [429, 503, 408, 425])
    def test_retry_after_is_honoured(self, tmp_path, status):
        clock, collector = Clock(), Collector(Reply(status, 500.0))
        outbox = box(tmp_path, collector, clock)
        outbox.answer(PLAN, ANSWER)
        (ticket,) = outbox.send_due()
        assert ticket.due == clock.now + 500 + 15
        clock.now += 514
        assert box(tmp_path, collector, clock).send_due() == []
        clock.now += 2
        assert box(tmp_path, collector, clock).send_due()[0].state == "sent"
        assert len(set(collector.posted)) == 1

    def test_nobody_is_told_to_wait_for_ever(self, tmp_path):
        clock, collector = Clock(), Collector(Reply(503, 1e12), Reply(503, -5.0))
        outbox = box(tmp_path, collector, clock)
        outbox.answer(PLAN, ANSWER)
        (ticket,) = outbox.send_due()
        assert ticket.due == clock.now + LONGEST_WAIT + 15
        assert [one.state for one in outbox.finish(1e7)] == ["sent"]

    @pytest.mark.parametrize("status", [200, 201, 204, 301, 307, 500, 502, 100, 999])
    def test_only_202_is_an_acknowledgment(self, tmp_path, status):
        collector = Collector(Reply(status))
        outbox = box(tmp_path, collector)
        outbox.answer(PLAN, ANSWER)
        assert [one.state for one in outbox.send_due()] == ["waiting"]
        assert [one.state for one in outbox.finish(1e6)] == ["sent"]
        assert len(set(collector.posted)) == 1

    @pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 415, 422])
    def test_refused_for_good_is_kept_aside(self, tmp_path, status):
        collector = Collector(Reply(status))
        outbox = box(tmp_path, collector)
        outbox.answer(PLAN, ANSWER, answer_key="a")
        (ticket,) = outbox.finish(1e6)
        assert ticket.state == "failed"
        assert str(status) in (ticket.reason or "")
        assert box(tmp_path, collector).tickets() == [ticket]
        assert outbox.answer(PLAN, ANSWER, answer_key="a") == ticket
        assert len(collector.posted) == 1
        outbox.retry(ticket)
        assert [one.state for one in outbox.finish(1e6)] == ["sent"]
        assert len(set(collector.posted)) == 1
        with pytest.raises(InputError, match="only a failed"):
            outbox.retry(ticket)

    @pytest.mark.parametrize("status", [409, 410])
    def test_closed_is_dropped_with_a_note(self, tmp_path, status):
        outbox = box(tmp_path, Collector(Reply(status)))
        outbox.answer(PLAN, ANSWER)
        (ticket,) = outbox.send_due()
        assert (ticket.state, ticket.reason) == (
            "expired",
            f"the collector no longer takes it ({status})",
        )
        (file,) = tmp_path.glob("*.expired")
        assert Record.from_bytes(file.read_bytes()).batch == b""

    @pytest.mark.parametrize("status", [410, 425])
    def test_a_collector_with_a_wrong_clock_loses_no_report(self, tmp_path, status):
        """It says that the window has passed, or not begun; by the device's clock it is open."""
        clock = Clock()
        plan = replace(PLAN, window=86_400)
        collector = Collector(*[Reply(status)] * 3, plans=(plan,))
        outbox = box(tmp_path, collector, clock)
        ticket = outbox.answer(plan, ANSWER)
        for _ in range(3):
            (tried,) = outbox.send_due()
            assert tried.state == "waiting"
            clock.now = (tried.due or clock.now) + 1
        assert clock.now < (ticket.window + 2) * 86_400
        (sent,) = outbox.send_due()
        assert sent.state == "sent"
        assert len(set(collector.posted)) == 1

    def test_a_plan_that_was_closed_is_given_up_with_its_window(self, tmp_path):
        clock = Clock()
        plan = replace(PLAN, window=86_400)
        outbox = box(tmp_path, Collector(*[Reply(410)] * 99, plans=(plan,)), clock)
        ticket = outbox.answer(plan, ANSWER)
        assert outbox.send_due()[0].state == "waiting"
        clock.now = (ticket.window + 2) * 86_400
        assert outbox.send_due()[0].state == "expired"

    def test_refused_bytes_are_kept_until_their_window_ends(self, tmp_path):
        clock = Clock()
        plan = replace(PLAN, window=86_400)
        outbox = box(tmp_path, Collector(Reply(404), plans=(plan,)), clock)
        outbox.answer(plan, ANSWER, answer_key="a")
        (ticket,) = outbox.send_due()
        assert ticket.reason == "the collector refused it (404: it does not know the plan)"
        (file,) = tmp_path.glob("*.failed")
        assert Record.from_bytes(file.read_bytes()).batch
        clock.now = (ticket.window + 2) * 86_400 - 1
        outbox.send_due()
        assert file.exists()
        clock.now += 1
        outbox.send_due()
        assert not file.exists()
        (note,) = outbox.tickets()
        assert (note.state, note.reason) == ("expired", ticket.reason)
        (left,) = tmp_path.glob("*.expired")
        assert Record.from_bytes(left.read_bytes()).batch == b""
        assert outbox.answer(plan, ANSWER, answer_key="a") == note

    def test_without_a_window_they_are_kept_for_a_month(self, tmp_path):
        clock = Clock()
        outbox = box(tmp_path, Collector(Reply(400)), clock)
        outbox.answer(PLAN, ANSWER)
        outbox.send_due()
        clock.now += 29 * 86_400
        outbox.send_due()
        assert outbox.tickets()[0].state == "failed"
        clock.now += 2 * 86_400
        outbox.send_due()
        assert outbox.tickets()[0].state == "expired"

    def test_a_crash_while_they_are_deleted(self, tmp_path):
        for k in range(12):
            clock = Clock()
            outbox = box(tmp_path / str(k), Collector(Reply(400)), clock)
            outbox.answer(PLAN, ANSWER)
            outbox.send_due()
            clock.now += 31 * 86_400
            disk = FaultyDisk(Faults())
            other = box(tmp_path / str(k), Collector(), clock, disk=disk)
            disk.faults.crash_at, disk.faults.labels = k, []
            try:
                other.send_due()
            except Crash:
                disk.power_cut()
            outbox.send_due()
            assert [one.state for one in outbox.tickets()] == ["expired"]
            assert not list((tmp_path / str(k)).glob("*.failed"))

    def test_a_report_goes_to_the_address_it_was_made_for(self, tmp_path):
        class Addressed(Collector):
            def __init__(self, address: str) -> None:
                super().__init__()
                self.address = address

        here, there = Addressed("https://a.example:443"), Addressed("https://b.example:443")
        box(tmp_path, here).answer(PLAN, ANSWER)
        assert box(tmp_path, there).send_due() == []
        assert there.posted == []
        assert [one.state for one in box(tmp_path, here).send_due()] == ["sent"]

        box(tmp_path, here).answer(replace(PLAN, max_reports_per_person=2), ANSWER)
        clock = Clock()
        box(tmp_path, there, clock).finish(1e6)  # ends at once: nothing here is its own
        assert clock.now == Clock().now

    def test_a_full_collector_is_tried_again(self, tmp_path):
        clock, collector = Clock(), Collector(Reply(507, 60.0))
        outbox = box(tmp_path, collector, clock)
        outbox.answer(PLAN, ANSWER)
        (ticket,) = outbox.send_due()
        assert (ticket.state, ticket.due) == ("waiting", clock.now + 60 + 15)
        assert [one.state for one in outbox.finish(1e6)] == ["sent"]

    def test_a_window_that_passed(self, tmp_path):
        clock = Clock(1_800_000_000 // 86_400 * 86_400 + 86_399.0)
        plan = replace(PLAN, window=86_400)
        collector = Collector(*[TransportError("offline.")] * 99, plans=(plan,))
        outbox = box(tmp_path, collector, clock)
        ticket = outbox.answer(plan, ANSWER)
        assert parse_batch(plan, _stored(tmp_path).batch).windows.tolist() == [ticket.window]
        clock.now += 86_400  # the next window: still taken
        assert outbox.send_due()[0].state == "waiting"
        clock.now += 2
        assert outbox.send_due()[0].state == "expired"
        assert [one.reason for one in outbox.tickets()] == ["its window has passed"]

    def test_a_clock_that_was_set_back(self, tmp_path):
        clock = Clock()
        outbox = box(tmp_path, Collector(), clock)
        outbox.answer(PLAN, ANSWER)
        clock.now -= 10 * 365 * 86_400
        assert outbox.send_due()[0].state == "sent"

    def test_damaged_records_are_kept_aside(self, tmp_path):
        collector = Collector()
        outbox = box(tmp_path, collector)
        outbox.answer(PLAN, ANSWER)
        (file,) = tmp_path.glob("*.waiting")
        content = json.loads(file.read_bytes())
        content["batch"] = content["batch"][:-8] + "AAAAAAA="
        file.write_text(json.dumps(content))
        assert outbox.send_due() == []
        (ticket,) = outbox.tickets()
        assert (ticket.state, ticket.reason) == ("failed", "a stored report is damaged")
        with pytest.raises(InputError, match="damaged"):
            outbox.retry(ticket)
        assert collector.posted == []

    def test_files_of_others_are_left_alone(self, tmp_path):
        outbox = box(tmp_path, Collector())
        for name in ("a.b.c.waiting", "part", f"{'0' * 64}.x.{'0' * 32}.waiting"):
            (tmp_path / name).write_text("not ours")
        assert outbox.send_due() == outbox.tickets() == []
        with pytest.raises(InputError, match="no ticket"):
            outbox.retry(Ticket("a.b.c", PLAN.id, 0, "failed"))

    def test_one_sends_at_a_time(self, tmp_path):
        inner: list[list[Ticket]] = []

        class Slow(Collector):
            def post_report(self, plan_id: str, content: bytes) -> Reply:
                inner.append(box(tmp_path, self).send_due())
                box(tmp_path, self).tickets()  # answering goes on meanwhile
                return super().post_report(plan_id, content)

        collector = Slow()
        outbox = box(tmp_path, collector)
        outbox.answer(PLAN, ANSWER)
        assert [one.state for one in outbox.send_due()] == ["sent"]
        assert inner == [[]]
        assert len(collector.posted) == 1


def _stored(folder: Path) -> Record:
    (file,) = folder.glob("*.waiting")
    return Record.from_bytes(file.read_bytes())


Answer = Callable[[BaseHTTPRequestHandler], None]


class Server:
    """An HTTP server on this machine whose answers a test sets."""

    def __init__(self, context: ssl.SSLContext | None = None, version: str = "HTTP/1.0") -> None:
        self.connections: list[int] = []
        self.requests: list[tuple[str, str, list[tuple[str, str]], bytes]] = []
        self.answers: list[Answer] = []
        self.plans: dict[str, Plan] = {PLAN.id: PLAN}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = version

            def setup(self) -> None:
                super().setup()
                outer.connections.append(0)
                self.number = len(outer.connections) - 1

            def handle_any(self) -> None:
                outer.connections[self.number] += 1
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                outer.requests.append((self.command, self.path, self.headers.items(), body))
                answer = outer.answers.pop(0) if outer.answers else outer.usual
                try:
                    answer(self)
                except OSError:
                    self.close_connection = True

            do_GET = do_POST = handle_any  # noqa: N815

            def log_message(self, *args: object) -> None:
                pass

        class Quiet(ThreadingHTTPServer):
            def handle_error(self, *args: object) -> None:
                pass  # clients that hang up

        self.http = Quiet(("127.0.0.1", 0), Handler)
        if context is not None:
            self.http.socket = context.wrap_socket(self.http.socket, server_side=True)
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()
        scheme = "http" if context is None else "https"
        self.port = self.http.server_address[1]
        self.url = f"{scheme}://127.0.0.1:{self.port}"

    def usual(self, handler: BaseHTTPRequestHandler) -> None:
        if handler.command == "POST":
            reply(202)(handler)
        elif plan := self.plans.get(handler.path.rpartition("/")[2]):
            reply(200, canonical_json(plan.to_json()))(handler)
        else:
            reply(404)(handler)

    def close(self) -> None:
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()


def reply(status: int, body: bytes = b"", **headers: str) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return answer


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


class TestHttp:
    def test_a_report_travels_with_nothing_else(self, server):
        transport = HttpTransport(server.url)
        server.answers = [reply(202, Set_Cookie="id=1; Path=/", ETag='"x"')]
        assert transport.post_report(PLAN.id, b"report") == Reply(202)
        assert transport.post_report(PLAN.id, b"report") == Reply(202)
        assert server.requests[0] == server.requests[1]
        method, path, headers, body = server.requests[0]
        assert (method, path, body) == ("POST", f"/v1/plans/{PLAN.id}/reports", b"report")
        assert sorted(headers) == [
            ("Accept-Encoding", "identity"),
            ("Content-Length", "6"),
            ("Content-Type", "application/vnd.shoal.reports"),
            ("Host", f"127.0.0.1:{server.port}"),
            ("User-Agent", f"shoal/{shoal.__version__}"),
        ]

    @pytest.mark.parametrize("tls", [False, True])
    def test_one_go_is_one_connection_for_each_plan(self, tmp_path, tls, certificate):
        """Several reports of a plan share one; two plans on one would be linked to each other."""
        several = replace(PLAN, max_reports_per_person=4)
        other = replace(several, crowd_size=7000)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        made = Server(context if tls else None, version="HTTP/1.1")
        trust = ssl.create_default_context(cafile=str(certificate))
        outbox = box(tmp_path / "box", HttpTransport(made.url, context=trust if tls else None))
        for key in "abcd":
            for plan in (several, other):
                outbox.answer(plan, ANSWER, answer_key=key)
        try:
            assert {ticket.state for ticket in outbox.send_due()} == {"sent"}
        finally:
            made.close()
        assert made.connections == [4, 4]
        paths = [path for _, path, *_ in made.requests]
        assert paths == sorted(paths)
        assert len({tuple(headers) for _, _, headers, _ in made.requests}) == 1

    def test_a_connection_that_was_closed_is_opened_anew(self):
        """By a header, after an answer with a body, and without a word."""

        def hang_up(handler: BaseHTTPRequestHandler) -> None:
            reply(202)(handler)
            handler.close_connection = True

        made = Server(version="HTTP/1.1")
        made.answers = [reply(202, Connection="close"), reply(503, b"busy"), hang_up]
        try:
            with HttpTransport(made.url).kept_open() as sending:
                found = [sending.post_report(PLAN.id, b"report").status for _ in range(6)]
        finally:
            made.close()
        assert found == [202, 503, 202, 202, 202, 202]
        assert made.connections == [1, 1, 1, 3]

    def test_a_new_connection_that_fails_is_not_tried_twice(self):
        made = Server(version="HTTP/1.1")

        def hang_up(handler: BaseHTTPRequestHandler) -> None:
            handler.close_connection = True

        made.answers = [hang_up, hang_up, hang_up]
        try:
            with pytest.raises(TransportError):
                HttpTransport(made.url).post_report(PLAN.id, b"report")
        finally:
            made.close()
        assert made.connections == [1]

    def test_a_token_is_the_applications(self, server):
        transport = HttpTransport(server.url, token=" shoal_app_1 ")
        transport.fetch_plan(PLAN.id)
        transport.post_report(PLAN.id, b"report")
        sent = [dict(headers).get("Authorization") for _, _, headers, _ in server.requests]
        assert sent == [None, "Bearer shoal_app_1"]
        for token in ("", " ", "a\r\nX-A: b", "é", 5):
            with pytest.raises(InputError, match="in one line"):
                HttpTransport(server.url, token=token)  # type: ignore[arg-type]

    def test_a_plan_is_asked_for_with_nothing_else(self, server):
        content = HttpTransport(server.url + "/").fetch_plan(PLAN.id)
        assert read_plan(content, PLAN.id) == PLAN
        method, path, headers, _ = server.requests[0]
        assert (method, path) == ("GET", f"/v1/plans/{PLAN.id}")
        assert sorted(headers) == [
            ("Accept-Encoding", "identity"),
            ("Connection", "close"),
            ("Host", f"127.0.0.1:{server.port}"),
            ("User-Agent", f"shoal/{shoal.__version__}"),
        ]

    def test_from_the_answer_to_the_collector(self, server, tmp_path):
        server.answers = [server.usual, reply(503, Retry_After="7"), reply(429)]
        outbox = box(tmp_path, HttpTransport(f"{server.url}/base"))
        outbox.answer(outbox.plan(PLAN.id), ANSWER)
        assert [one.state for one in outbox.finish(1e6)] == ["sent"]
        bodies = [body for method, *_, body in server.requests if method == "POST"]
        assert len(bodies) == 3
        assert len(set(bodies)) == 1
        assert len(parse_batch(PLAN, bodies[0])) == 1

    def test_retry_after(self, server):
        transport = HttpTransport(server.url, clock=lambda: 1_800_000_000.0)
        date = "Fri, 15 Jan 2027 08:01:00 GMT"  # a minute later
        cases = {"120": 120.0, date: 60.0, "soon": None, "-1": None, "9" * 50: 999_999_999.0}
        for text, seconds in cases.items():
            server.answers = [reply(503, Retry_After=text)]
            assert transport.post_report(PLAN.id, b"") == Reply(503, seconds), text

    def test_redirects_on_the_same_host(self, server):
        there = reply(308, Location="/elsewhere/plan?a=1")
        server.answers = [there, reply(302, Location=f"{server.url}/{PLAN.id}")]
        assert read_plan(HttpTransport(server.url).fetch_plan(PLAN.id), PLAN.id) == PLAN
        assert [path for _, path, *_ in server.requests][1:] == [
            "/elsewhere/plan?a=1",
            f"/{PLAN.id}",
        ]

    @pytest.mark.parametrize(
        "location",
        [
            "https://127.0.0.1:{port}/x",
            "http://localhost:{port}/x",
            "http://127.0.0.1:{other}/x",
            "http://127.0.0.1/x",
            "//example.org/x",
            "http://user@127.0.0.1:{port}/x",
            "file:///etc/passwd",
            "http://[",
            "",
        ],
    )
    def test_redirects_elsewhere_are_refused(self, server, location):
        other = Server()
        where = location.format(port=server.port, other=other.port)
        server.answers = [reply(302, Location=where)]
        try:
            with pytest.raises(TransportError, match="redirects to"):
                HttpTransport(server.url).fetch_plan(PLAN.id)
            assert other.requests == []
            assert len(server.requests) == 1
        finally:
            other.close()

    def test_redirects_in_a_circle(self, server):
        server.answers = [reply(302, Location="/again")] * 9
        with pytest.raises(TransportError, match="more than 3 redirects"):
            HttpTransport(server.url).fetch_plan(PLAN.id)
        assert len(server.requests) == 4

    def test_a_report_is_never_redirected(self, server):
        server.answers = [reply(307, Location="/other")]
        assert HttpTransport(server.url).post_report(PLAN.id, b"x").status == 307
        assert len(server.requests) == 1

    @pytest.mark.parametrize("status", [404, 500, 204, 206])
    def test_no_plan(self, server, status):
        server.answers = [reply(status)]
        with pytest.raises(TransportError, match=str(status)):
            HttpTransport(server.url).fetch_plan(PLAN.id)

    def test_a_compressed_plan(self, server):
        server.answers = [reply(200, b"x", Content_Encoding="gzip")]
        with pytest.raises(TransportError, match="compressed"):
            HttpTransport(server.url).fetch_plan(PLAN.id)

    @pytest.mark.parametrize("says", [True, False])
    def test_huge_answers_are_not_read(self, server, says):
        def huge(handler: BaseHTTPRequestHandler) -> None:
            handler.send_response(200)
            if says:
                handler.send_header("Content-Length", str(10**12))
            handler.end_headers()
            while True:
                handler.wfile.write(bytes(1 << 16))

        server.answers = [huge, huge]
        transport = HttpTransport(server.url, largest_plan=100_000)
        with pytest.raises(TransportError, match="larger than 100000"):
            transport.fetch_plan(PLAN.id)
        assert transport.post_report(PLAN.id, b"x").status == 200

    @pytest.mark.parametrize("part", ["headers", "body", "status", "nothing"])
    def test_a_slow_server_is_cut_off(self, server, part):
        def slow(handler: BaseHTTPRequestHandler) -> None:
            if part in ("headers", "body"):
                handler.wfile.write(b"HTTP/1.0 200 OK\r\n")
            if part == "body":
                handler.wfile.write(b"Content-Length: 100000\r\n\r\n")
            for _ in range(200):
                if part != "nothing":
                    handler.wfile.write(b"H")
                time.sleep(0.05)

        server.answers = [slow]
        began = time.monotonic()
        with pytest.raises(TransportError, match="no answer"):
            HttpTransport(server.url, timeout=0.3).fetch_plan(PLAN.id)
        assert time.monotonic() - began < 3

    def test_a_server_that_talks_nonsense(self, server):
        def nonsense(handler: BaseHTTPRequestHandler) -> None:
            handler.wfile.write(b"hello\r\n\r\n")

        server.answers = [nonsense]
        with pytest.raises(TransportError, match="no answer"):
            HttpTransport(server.url).post_report(PLAN.id, b"x")

    def test_nobody_there(self):
        with pytest.raises(TransportError, match="no answer from 127"):
            HttpTransport("http://127.0.0.1:9", timeout=2).post_report(PLAN.id, b"x")

    def test_the_environment_sets_no_proxy(self, server, monkeypatch):
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
        assert HttpTransport(server.url).post_report(PLAN.id, b"x").status == 202

    @pytest.mark.parametrize(
        "url",
        [
            "",
            "example.org",
            "ftp://example.org",
            "https://",
            "https://user:pw@example.org",
            "https://example.org?q=1",
            "https://example.org/#x",
            "https://example.org:99999",
            "https://exa mple.org",
            "https://example.org/\r\nX: 1",
            "https://éxample.org",
            5,
        ],
    )
    def test_addresses(self, url):
        with pytest.raises(InputError, match="address"):
            HttpTransport(url)

    @pytest.mark.parametrize("host", ["example.org", "10.0.0.1", "127.example.org", "[fe80::1]"])
    def test_plain_http_is_for_this_machine(self, host):
        with pytest.raises(InputError, match="travel over https"):
            HttpTransport(f"http://{host}/")
        HttpTransport(f"http://{host}/", allow_plain=True)

    @pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.9.1", "[::1]"])
    def test_loopback(self, host):
        HttpTransport(f"http://{host}:1/")

    @pytest.mark.parametrize("plan_id", ["../../admin", "x", "0" * 63, "0" * 64 + "?"])
    def test_ids_do_not_build_paths(self, server, plan_id):
        for call in (
            lambda: HttpTransport(server.url).fetch_plan(plan_id),
            lambda: HttpTransport(server.url).post_report(plan_id, b""),
        ):
            with pytest.raises(PlanError):
                call()
        assert server.requests == []


class TestSigned:
    @pytest.fixture
    def signer(self) -> Any:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return Ed25519PrivateKey.from_private_bytes(bytes(range(32)))

    @staticmethod
    def text(content: bytes) -> str:
        return base64.urlsafe_b64encode(content).decode().rstrip("=")

    def test_a_plan_of_the_pinned_key(self, server, signer):
        body = canonical_json({"id": PLAN.id} | PLAN.to_json())
        key = signer.public_key().public_bytes_raw()
        server.answers = [
            reply(200, body, Shoal_Signature=text, Shoal_Key=self.text(key))
            for text in (self.text(signer.sign(body)), self.text(signer.sign(body)) + "==")
        ]
        for pinned in (key, self.text(key)):
            content = HttpTransport(server.url, public_key=pinned).fetch_plan(PLAN.id)
            assert read_plan(content, PLAN.id) == PLAN

    @pytest.mark.parametrize("kind", ["none", "other key", "other bytes", "short", "nonsense"])
    def test_anything_else_is_not_used(self, server, signer, kind, tmp_path):
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        body = canonical_json(PLAN.to_json())
        other = Ed25519PrivateKey.generate()
        text = {
            "other key": self.text(other.sign(body)),
            "other bytes": self.text(signer.sign(body + b" ")),
            "short": self.text(signer.sign(body)[:-1]),
            "nonsense": "%" * 86,
        }.get(kind)
        # The key that comes along proves nothing: whoever sends the plan sends it too.
        headers = {"Shoal_Key": self.text(other.public_key().public_bytes_raw())}
        server.answers = [reply(200, body, **headers | ({"Shoal_Signature": text} if text else {}))]
        transport = HttpTransport(server.url, public_key=signer.public_key().public_bytes_raw())
        with pytest.raises(TransportError, match=r"signature of the pinned|signed with the pinned"):
            box(tmp_path, transport).plan(PLAN.id)
        assert not list((tmp_path / "plans").iterdir())

    @pytest.fixture
    def changed(self, tmp_path) -> tuple[list[str], Any]:
        """The public keys of a collector that changed its key twice, and its signer."""
        from shoal.collector.signing import Signer, change_key

        (tmp_path / "collector").mkdir()
        keys = [Signer(tmp_path / "collector").public_key]
        for _ in range(2):
            old, new = change_key(tmp_path / "collector")
            assert old == keys[-1]
            keys.append(new)
        return keys, Signer(tmp_path / "collector")

    def answers(self, signer, links=None) -> list[Answer]:
        body = canonical_json({"id": PLAN.id} | PLAN.to_json())
        links = [link._asdict() for link in signer.links] if links is None else links
        return [
            reply(200, body, Shoal_Signature=signer.sign(body), Shoal_Key=signer.public_key),
            reply(200, json.dumps({"ed25519": signer.public_keys, "links": links}).encode()),
        ]

    def test_a_pinned_key_leads_to_the_one_of_today(self, server, changed):
        keys, signer = changed
        assert signer.public_keys == keys[::-1]
        for pinned in keys:
            server.answers = self.answers(signer)
            content = HttpTransport(server.url, public_key=pinned).fetch_plan(PLAN.id)
            assert read_plan(content, PLAN.id) == PLAN
        assert len(server.requests) == 5, "the newest key needs no list"

    @pytest.mark.parametrize(
        "change",
        [
            lambda links: [],
            lambda links: links[1:],
            lambda links: links[::-1],
            lambda links: [links[0] | {"signature": links[1]["signature"]}, links[1]],
            lambda links: [links[0] | {"next": "A" * 43}, links[1]],
            lambda links: [links[0] | {"next": "A"}, links[1]],
            lambda links: [5, None, links[0] | {"signature": 7}, links[1]],
            lambda links: "links",
            lambda links: [links[0]] * 1001,
        ],
    )
    def test_no_link_no_trust(self, server, changed, change):
        """A list of keys is worth what the pinned key signed of it."""
        keys, signer = changed
        links = change([link._asdict() for link in signer.links])
        server.answers = self.answers(signer, links)
        with pytest.raises(TransportError, match="signed with the pinned"):
            HttpTransport(server.url, public_key=keys[0]).fetch_plan(PLAN.id)

    def test_a_signature_of_a_document_is_no_link(self, changed):
        from shoal.device.outbox.signatures import check_signature
        from shoal.support.keys import link_content

        keys, signer = changed
        content = base64.urlsafe_b64decode(keys[0] + "=")
        public = base64.urlsafe_b64decode(signer.public_key + "=")
        with pytest.raises(TransportError):
            check_signature(public, link_content(content), signer.sign(content))

    @pytest.mark.parametrize("key", [b"", bytes(31), "A" * 42, "!" * 43, 5, "é" * 43])
    def test_what_is_no_key(self, key):
        with pytest.raises(InputError, match="32 bytes, or 43 characters"):
            HttpTransport("https://example.org", public_key=key)

    def test_a_certificate_of_the_pinned_key(self, server, signer, tmp_path):
        body, key = certificate_of(CROWD), signer.public_key().public_bytes_raw()
        transport = HttpTransport(server.url, public_key=key)
        server.answers = [
            reply(
                200,
                body,
                Shoal_Signature=self.text(signer.sign(body + b" ")),
                Shoal_Key=self.text(key),
            ),
            reply(200, body, Shoal_Signature=self.text(signer.sign(body))),
        ]
        with pytest.raises(TransportError, match="the certificate was not signed with the pinned"):
            box(tmp_path, transport, recompute=False).answer(CROWD, ANSWER)
        assert box(tmp_path, transport, recompute=False).answer(CROWD, ANSWER).state == "waiting"
        assert [path for _, path, *_ in server.requests] == [
            f"/v1/plans/{CROWD.id}/certificate"
        ] * 2
        with pytest.raises(InputError, match="pinned key"):
            HttpTransport(server.url).fetch_certificate(CROWD.id)

    def test_without_a_pinned_key_the_id_is_what_counts(self, server):
        server.answers = [reply(200, canonical_json(PLAN.to_json()), Shoal_Signature="x")]
        assert read_plan(HttpTransport(server.url).fetch_plan(PLAN.id), PLAN.id) == PLAN


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a certificate for 127.0.0.1 that nobody else trusts."""
    from ipaddress import ip_address

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    day = datetime.timedelta(days=1)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - day)
        .not_valid_after(now + day)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), False
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + made.public_bytes(serialization.Encoding.PEM)
    )
    return path


class TestTls:
    @pytest.fixture
    def secure(self, certificate: Path) -> Iterator[Server]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        made = Server(context)
        yield made
        made.close()

    def test_verified_by_default(self, secure):
        with pytest.raises(TransportError, match=r"(?i)certificate"):
            HttpTransport(secure.url).post_report(PLAN.id, b"x")
        assert secure.requests == []

    def test_with_a_context_that_trusts_it(self, secure, certificate):
        context = ssl.create_default_context(cafile=str(certificate))
        transport = HttpTransport(secure.url, context=context)
        assert transport.post_report(PLAN.id, b"x").status == 202
        assert read_plan(transport.fetch_plan(PLAN.id), PLAN.id) == PLAN
        assert dict(secure.requests[0][2])["Host"] == f"127.0.0.1:{secure.port}"
        other = HttpTransport(f"https://localhost:{secure.port}", context=context)
        with pytest.raises(TransportError, match=r"(?i)certificate"):  # another name
            other.post_report(PLAN.id, b"x")

    def test_no_downgrade(self, secure, certificate):
        context = ssl.create_default_context(cafile=str(certificate))
        secure.answers = [reply(302, Location=f"http://127.0.0.1:{secure.port}/x")]
        with pytest.raises(TransportError, match="somewhere else"):
            HttpTransport(secure.url, context=context).fetch_plan(PLAN.id)

    def test_a_handshake_that_never_ends(self):
        import socket

        with socket.create_server(("127.0.0.1", 0)) as listener:
            url = f"https://127.0.0.1:{listener.getsockname()[1]}"
            began = time.monotonic()
            with pytest.raises(TransportError):
                HttpTransport(url, timeout=0.3).post_report(PLAN.id, b"x")
            assert time.monotonic() - began < 3


class TestCommand:
    @pytest.fixture(autouse=True)
    def _here(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        PLAN.write("plan.json")

    @staticmethod
    def send(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> Any:
        capsys.readouterr()
        assert run(["send", *map(str, words)]) == code
        out, err = capsys.readouterr()
        return json.loads(out) if "--json" in words and code != 2 and code != 3 else out + err

    def test_sent_at_once(self, server, capsys):
        words = ["plan.json", "--answer", "features=f1;f7", "--to", server.url, "--outbox", "box"]
        told = self.send(capsys, *words, "--now", "--json")
        assert told["answer"]["state"] == "sent"
        assert told["outbox"] == {"waiting": 0, "sent": 1, "failed": 0, "expired": 0}
        assert len(parse_batch(PLAN, server.requests[0][3])) == 1
        self.send(capsys, *words, "--now")
        assert len(server.requests) == 1

    def test_from_a_url(self, server, capsys, tmp_path):
        (tmp_path / "answers.json").write_text(json.dumps(ANSWER))
        url = f"{server.url}/v1/plans/{PLAN.id}"
        told = self.send(capsys, url, "--from", "answers.json", "--outbox", "box", "--json")
        assert told["answer"]["state"] == "waiting"
        assert [method for method, *_ in server.requests] == ["GET"]
        text = self.send(capsys, "--to", server.url, "--outbox", "box", "--now")
        assert "1 sent" in text
        assert len(server.requests) == 2

    def test_with_memory_and_ledger(self, server, capsys, tmp_path):
        layers = Memory(FlipProbability(1, 2), FlipProbability(1, 2))
        plan = replace(PLAN, q=layers.q, memory=layers, window=86_400)
        plan.write("plan.json")
        words = ["plan.json", "--answer", "features=f1", "--to", server.url, "--outbox", "box"]
        assert "no memory" in self.send(capsys, *words, code=3)
        assert "--memory-key FILE" in self.send(capsys, *words, "--memory", "memory", code=2)
        kept = ["--memory", "memory", "--memory-key", "key", "--ledger", "ledger.json", "--now"]
        assert run(["ledger", "ledger.json", "--set-limit", "33"]) == 0
        for _ in range(2):
            told = self.send(capsys, *words, *kept, "--json")
            assert told["answer"]["state"] == "sent"
        assert len(server.requests) == 1
        account = Ledger("ledger.json").read()
        assert account.of(plan).reports == 1
        assert account.epsilon == repeated_epsilon(64, layers, 1)
        # Another outbox of the same person: the limit is the person's.
        words[-1] = "other"
        assert "past the limit of 33" in self.send(capsys, *words, *kept, code=3)
        assert len(server.requests) == 1
        assert not list(tmp_path.glob("other/*.waiting"))

    def test_a_key_from_the_environment(self, server, capsys, monkeypatch):
        words = ["plan.json", "--answer", "features=f1", "--to", server.url, "--outbox", "box"]
        monkeypatch.setenv("SHOAL_MEMORY_KEY", "nonsense")
        told = self.send(capsys, *words, "--memory", "memory", code=2)
        assert "SHOAL_MEMORY_KEY must hold" in told
        assert "nonsense" not in told
        monkeypatch.setenv("SHOAL_MEMORY_KEY", bytes(range(32)).hex())
        self.send(capsys, *words, "--memory", "memory", "--now")
        assert len(server.requests) == 1
        assert "name it with --memory" in self.send(capsys, *words, "--memory-key", "k", code=2)

    def test_a_pinned_key(self, server, capsys):
        url = f"{server.url}/v1/plans/{PLAN.id}"
        words = [url, "--answer", "features=f1", "--outbox", "box", "--key", "A" * 43]
        assert "without a signature of the pinned key" in self.send(capsys, *words, code=1)

    def test_waiting(self, server, capsys, monkeypatch):
        monkeypatch.setattr("shoal.device.outbox.outbox.FIRST_BACKOFF", 0.1)
        server.answers = [reply(503), reply(503)]
        words = ["plan.json", "--answer", "features=", "--to", server.url, "--outbox", "box"]
        told = self.send(capsys, *words, "--now", "--wait", 20, "--json")
        assert told["answer"]["state"] == "sent"

    def test_privacy_is_refused_with_3(self, server, capsys):
        words = ["plan.json", "--answer", "features=f1", "--to", server.url, "--outbox", "box"]
        assert "limit of 1" in self.send(capsys, *words, "--limit", "1", "--now", code=3)
        kept = shoal.plan(SURVEY, crowd_size=1000, epsilon=1, delta="1e-6")
        replace(kept, q=FlipProbability(3, 3)).write("plan.json")
        assert "does not confirm" in self.send(capsys, *words, "--recompute", code=3)
        assert "does not confirm" in self.send(capsys, *words, code=3)
        assert "nothing tells this device" in self.send(capsys, *words, "--no-recompute", code=3)
        assert server.requests == []

    def test_a_refusal_is_told(self, server, capsys):
        server.answers = [reply(400)]
        words = ["plan.json", "--answer", "features=f1", "--to", server.url, "--outbox", "box"]
        assert "refused it (400: it is not what the plan says)" in self.send(
            capsys, *words, "--now", code=1
        )

    def test_nobody_there_is_no_failure(self, capsys):
        words = ["plan.json", "--answer", "features=f1", "--to", "http://127.0.0.1:9"]
        text = self.send(capsys, *words, "--outbox", "box", "--now")
        assert "is kept (no answer from 127.0.0.1: Connection refused)" in text
        assert "or later: shoal send --outbox box --to http://127.0.0.1:9\n" in text

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["plan.json", "--answer", "features=f1"], "--to URL"),
            (["plan.json", "--to", "http://127.0.0.1:9"], "--from FILE"),
            (["plan.json", "--to", "http://127.0.0.1:9", "--answer", "features"], "QUESTION=VALUE"),
            (["--to", "http://127.0.0.1:9", "--answer", "features=f1"], "need the plan"),
            (["http://127.0.0.1:9/x", "--answer", "features=f1"], "/v1/plans/ID"),
            (["plan.json", "--to", "http://example.org", "--answer", "features=f1"], "--plain"),
            (["none.json", "--to", "http://127.0.0.1:9", "--answer", "features=f1"], "cannot read"),
            (
                ["plan.json", "--to", "http://127.0.0.1:9", *["--answer", "features=f1"] * 2],
                "answered twice",
            ),
            (
                ["plan.json", "--to", "http://127.0.0.1:9", "--from", "none"],
                "cannot read file of answers",
            ),
        ],
    )
    def test_usage(self, capsys, words, message):
        assert message in self.send(capsys, *words, "--outbox", "box", code=2)
