"""The outbox: an answer is taken once, charged first, and stored before anything travels."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from shoal import PrivacyRefusal
from shoal.analysis.report_files import parse_batch
from shoal.device.ledger import Ledger
from shoal.device.outbox import (
    Outbox,
)
from shoal.device.outbox.queue import Record
from shoal.errors import AnswerError, InputError
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Memory, Promise
from shoal.support.disk import Disk
from tests.device.outbox_help import (
    ANSWER,
    PLAN,
    Charges,
    Collector,
    box,
)
from tests.faults import Clock


class TestAnswering:
    def test_stored_before_it_returns(self, tmp_path):
        ticket = box(tmp_path, Collector()).answer(PLAN, ANSWER)
        (file,) = tmp_path.glob("*.waiting")
        record = Record.from_bytes(file.read_bytes())
        assert len(parse_batch(PLAN, record.batch)) == 1
        assert file.stat().st_mode & 0o077 == tmp_path.joinpath("lock").stat().st_mode & 0o077 == 0
        assert file.name == f"{ticket.name}.waiting"

    def test_an_outbox_is_closed_to_other_users(self, tmp_path):
        for name in ("new", "old", "shared"):
            folder = tmp_path / name
            if name != "new":
                folder.mkdir()
                (folder / "plans").mkdir()
                for loose in (folder, folder / "plans"):
                    loose.chmod(0o755)
            if name == "shared":  # somebody uses the folder for other things
                (folder / "letters").mkdir()
            box(folder, Collector()).answer(PLAN, ANSWER)
            box(folder, Collector())
            wanted = 0o755 if name == "shared" else 0o700
            assert folder.stat().st_mode & 0o777 == wanted
            assert (folder / "plans").stat().st_mode & 0o777 == 0o700
            files = [path for path in folder.rglob("*") if path.is_file()]
            assert files
            assert all(path.stat().st_mode & 0o777 == 0o600 for path in files)

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
        with pytest.raises(PrivacyRefusal, match=r"allows 1 report.*; no report was made\.$"):
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

    def test_counts_above_the_limit(self, tmp_path):
        plan = replace(PLAN, view="counts", promise=Promise("proven", "100", delta="1e-6"),
                       crowd_size=100)  # fmt: skip
        outbox = box(tmp_path, Collector(plans=(plan,)), limit=30)
        for ask in (lambda: outbox.plan(plan.id), lambda: outbox.answer(plan, ANSWER)):
            with pytest.raises(PrivacyRefusal, match="an observer of counts"):
                ask()
        assert outbox.tickets() == []

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


class TestCollaborators:
    def test_the_ledger_is_charged_first(self, tmp_path, monkeypatch):
        charges = Charges(0)
        drawn: list[object] = []
        monkeypatch.setattr("shoal.device.outbox.outbox.flip", lambda *a: drawn.append(a))
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
        from shoal.device.ledger import Ledger
        from shoal.device.memory import DeviceMemory
        from shoal.protocol.random_bits import SystemBits

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


KILLS = """
import json, os, random, signal, sys, time
from pathlib import Path
from shoal import Flags, Plan, Survey, randomize
from shoal.device.outbox import Outbox, PostResult
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Promise

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
        return PostResult(202)

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

randomize(plan, {"features": []})
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


@pytest.mark.slow
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
