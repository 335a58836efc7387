"""Kill the relay, lose answers, deliver twice: every accepted report is in exactly one crowd."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

from shoal import Plan
from shoal.agreement.crowd_keys import CrowdKey
from tests.collector.serving_help import clean_environment

from .relay_help import LONGEST, SEALED, FakeAnalyzer, Made, made, party_plan, reachable, sealed

KILLS = max(int(os.environ.get("SHOAL_KILLS", "4")) // 2, 2)
MOST = 150
"""Reports of one sender: a start of the process takes far longer than they do."""
PLAN = party_plan("killed", messages=3, crowd=25)


class Process:
    """A relay in a process of its own, which is killed and started again."""

    def __init__(self, folder: Path, analyzer: str) -> None:
        self._file = folder / "plan.json"
        PLAN.write(self._file)
        self._words = [
            *("relay", "--json", "--data", str(folder / "data"), "--analyzer", analyzer),
            *("--listen", "127.0.0.1:0", "--ops", "127.0.0.1:0", "--smallest-crowd", "1"),
            *("--largest-share", "100", "--spare-megabytes", "0", str(self._file)),
        ]
        self.address: tuple[str, int] | None = None
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "shoal", *self._words],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=clean_environment() | {"OPENBLAS_NUM_THREADS": "1"},
        )
        assert self._process.stdout is not None
        url = urlsplit(json.loads(self._process.stdout.readline())["public"])
        assert url.hostname
        assert url.port
        self.address = url.hostname, url.port

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self.end(kill=True)

    def end(self, *, kill: bool) -> None:
        assert self._process is not None
        self.address = None
        (self._process.kill if kill else self._process.terminate)()
        self._process.communicate(timeout=LONGEST)


class Devices(threading.Thread):
    """Devices that seal, send and send again until their reports are accepted."""

    def __init__(self, process: Process, seed: int) -> None:
        super().__init__(daemon=True)
        self._process, self._chance, self._seed = process, Random(seed), seed
        self.made: list[Made] = []
        self.accepted: set[int] = set()
        self.enough = threading.Event()
        self.surprises: list[object] = []

    def run(self) -> None:
        while not self.enough.is_set():
            waiting = [one for one in range(len(self.made)) if one not in self.accepted]
            if len(waiting) < 3 and len(self.made) < MOST:
                self.made += made(PLAN, 1, self._seed * 10**6 + len(self.made))
                waiting.append(len(self.made) - 1)
            if not waiting:
                time.sleep(0.01)
                continue
            self.attempt(self._chance.choice(waiting))
            if self._chance.random() < 0.3:  # delivered twice, whatever became of it
                self.attempt(self._chance.randrange(len(self.made)))

    def finish(self) -> None:
        self.enough.set()
        if self.is_alive():
            self.join(LONGEST)
        end = time.monotonic() + LONGEST
        while len(self.accepted) < len(self.made):
            assert time.monotonic() < end, self.surprises
            for number in range(len(self.made)):
                if number not in self.accepted:
                    self.attempt(number)

    def attempt(self, number: int) -> None:
        address = self._process.address
        if address is None:
            time.sleep(0.01)
            return
        connection = http.client.HTTPConnection(*address, timeout=LONGEST)
        try:
            status, content = ask(connection, "GET", f"/v1/plans/{PLAN.id}/crowd-key")
            if status != 200:
                time.sleep(0.01)
                return
            upload = sealed(PLAN, CrowdKey.from_bytes(content), [self.made[number]])
            path = f"/v1/plans/{PLAN.id}/sealed"
            status, content = ask(connection, "POST", path, upload.to_bytes())
        except (OSError, http.client.HTTPException):
            return
        finally:
            connection.close()
        if status == 202:
            self.accepted.add(number)
        elif status not in (412, 503):
            self.surprises.append((status, content))


def ask(
    connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None = None
) -> tuple[int, bytes]:
    connection.request(method, path, body, SEALED if body else {})
    answer = connection.getresponse()
    return answer.status, answer.read()


def test_random_kills_under_load(tmp_path: Path) -> None:
    """The analyzer's answers get lost too, before it has read a chunk and after."""
    analyzer, chance = FakeAnalyzer(PLAN), Random(3)

    def loses(method: str, path: str) -> Any:
        if method == "PUT" and chance.random() < 0.3:
            if chance.random() < 0.5:
                raise ConnectionError
            return cut_off
        return None

    def cut_off(reply: object) -> Any:
        raise ConnectionError

    analyzer.fault = loses
    with reachable(analyzer) as url, Process(tmp_path, url) as process:
        process.start()
        devices = [Devices(process, seed) for seed in (1, 2)]
        for one in devices:
            one.start()
        for _ in range(KILLS):
            time.sleep(0.3 + chance.random())
            process.end(kill=True)
            process.start()
        for one in devices:
            one.finish()
        analyzer.fault = lambda method, path: None
        last = Devices(process, 9)
        last.made = made(PLAN, -sum(len(one.made) for one in devices) % 25, 99)
        last.finish()
        everything = [report for one in (*devices, last) for report in one.made]
        end = time.monotonic() + LONGEST
        while len(analyzer.complete(PLAN)) < len(everything) // 25:
            assert time.monotonic() < end, "crowds did not arrive"
            time.sleep(0.05)
        process.end(kill=False)
    assert [one.surprises for one in devices] == [[], []]
    check_arrived(analyzer, PLAN, everything)


def check_arrived(analyzer: FakeAnalyzer, plan: Plan, reports: list[Made]) -> None:
    """All messages arrived once, all of a report in one crowd, in whole crowds."""
    crowd_of: dict[bytes, tuple[str, int, int]] = {}
    arrived = Counter[bytes]()
    for where in analyzer.complete(plan):
        contents = analyzer.opened(where)
        assert len(contents) == 3 * plan.reports_needed
        arrived.update(contents)
        crowd_of |= dict.fromkeys(contents, where)
        for number, body in analyzer.crowds[where].tries:
            assert body == analyzer.crowds[where].chunks[number]
    assert arrived == Counter(content for report in reports for content in report.contents)
    for report in reports:
        assert len({crowd_of[content] for content in report.contents}) == 1
