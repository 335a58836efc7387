"""Kill the relay, lose answers, deliver twice: every accepted report is in exactly one crowd."""

from __future__ import annotations

import http.client
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from shoal.protocol.encryption import CrowdKey

from .relay_help import (
    LONGEST,
    SEALED,
    FakeAnalyzer,
    Made,
    check_once,
    made,
    party_plan,
    reachable,
    sealed,
)
from .relay_process import Process

pytestmark = pytest.mark.slow

KILLS = max(int(os.environ.get("SHOAL_KILLS", "4")) // 2, 2)
MOST = 150
"""Reports of one sender: a start of the process takes far longer than they do."""
PLAN = party_plan("killed", crowd=25)


class Devices(threading.Thread):
    """Devices that seal, send and send again until their reports are accepted."""

    most = MOST

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
            if len(waiting) < 3 and len(self.made) < self.most:
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
        address = self._process.address()
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
            path = f"/v1/plans/{PLAN.id}/encrypted"
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
    analyzer.fault = losing_answers(chance)
    with reachable(analyzer) as url, Process(tmp_path, PLAN, url) as process:
        process.start()
        devices = [Devices(process, seed) for seed in (1, 2)]
        for one in devices:
            one.start()
        for _ in range(KILLS):
            time.sleep(0.3 + chance.random())
            process.kill()
            process.start()
        for one in devices:
            one.finish()
        everything = all_arrived(analyzer, devices, Devices(process, 9))
        process.stop()
    assert [one.surprises for one in devices] == [[], []]
    check_once(analyzer, PLAN, everything)


def losing_answers(chance: Random) -> Callable[[str, str], Any]:
    """Let an analyzer lose chunks, before it has read them and after."""

    def loses(method: str, path: str) -> Any:
        if method == "PUT" and chance.random() < 0.3:
            if chance.random() < 0.5:
                raise ConnectionError
            return cut_off
        return None

    def cut_off(reply: object) -> Any:
        raise ConnectionError

    return loses


def all_arrived(analyzer: FakeAnalyzer, devices: Sequence[Devices], last: Devices) -> list[Made]:
    """Let last devices fill the open crowd, wait until all crowds have come; return all reports."""
    analyzer.fault = lambda method, path: None
    last.made = made(PLAN, -sum(len(one.made) for one in devices) % 25, 99)
    last.finish()
    everything = [report for one in (*devices, last) for report in one.made]
    end = time.monotonic() + LONGEST
    while len(analyzer.complete(PLAN)) < len(everything) // 25:
        assert time.monotonic() < end, "crowds did not arrive"
        time.sleep(0.05)
    return everything
