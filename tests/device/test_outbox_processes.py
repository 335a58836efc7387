"""Several processes and threads on one outbox, and what a process of the device loads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tests.device.outbox_help import (
    ANSWER,
    PLAN,
    Collector,
    box,
)

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
