"""A real `shoal serve` that tests kill and restart, and devices that go on sending."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

from shoal.analysis.report_files import Batch
from shoal.protocol.plan import Plan
from tests.server.serving_help import clean_environment
from tests.server.store_help import chosen, together, upload

LONGEST = 300.0
"""Seconds that anything here may take before it counts as hanging."""


class Served:
    """A collector, or another service, in a process of its own."""

    def __init__(self, folder: Path, plan: Plan, *options: str, service: str = "serve") -> None:
        self.folder, self.plan, self._service = folder, plan, service
        self._plan_file = folder.with_name(f"{folder.name}-plan.json")
        plan.write(self._plan_file)
        self._options = options
        self.process: subprocess.Popen[str] | None = None
        self.log: list[str] = []
        self._urls: dict[str, str] = {}
        self._ready = threading.Condition()
        self._token = ""

    def launch(self) -> None:
        """Start the process, and do not wait for it."""
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  a pipe that nobody reads fills
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "shoal", self._service, "--json", "--min-crowd", "1"),
                *("--honest", "all"),
                *("--public", "127.0.0.1:0", "--console", "127.0.0.1:0"),
                *("--data", str(self.folder), *self._options, str(self._plan_file)),
            ],
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=clean_environment() | {"OPENBLAS_NUM_THREADS": "1"},
        )

    def start(self) -> None:
        """Start the process and wait until it is ready."""
        self.launch()
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"the collector did not start: {self.ended()}")
        with self._ready:
            self._urls = json.loads(line)
            self._ready.notify_all()

    def kill(self) -> None:
        """End the process with no chance to do anything."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """Ask the process to stop, and wait until it has."""
        return self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> int:
        assert self.process is not None
        with self._ready:
            self._urls = {}
        self.process.send_signal(how)
        self.ended()
        code, self.process = self.process.returncode, None
        return code

    def ended(self) -> str:
        """Wait for the end of the process, and return what it logged."""
        assert self.process is not None
        self.process.communicate(timeout=LONGEST)
        with self._errors as file:
            file.seek(0)
            errors = file.read()
        self.log += errors.splitlines()
        return errors

    def address(self, name: str = "public", wait: float = LONGEST) -> tuple[str, int]:
        """Return where a listener is, as soon as there is one."""
        with self._ready:
            if not self._ready.wait_for(lambda: bool(self._urls), wait):
                raise ConnectionError("no collector")
            parts = urlsplit(self._urls[name])
        assert parts.hostname
        assert parts.port
        return parts.hostname, parts.port

    def post(self, batch: Batch) -> tuple[int, str]:
        """Send a relay's upload on a connection of its own; return status and problem's name."""
        token = self.relay_token()
        connection = http.client.HTTPConnection(*self.address(), timeout=LONGEST)
        try:
            return send(connection, batch, token)
        finally:
            connection.close()

    def relay_token(self) -> str:
        """Return a relay's token, made the first time: it may send any number of reports."""
        if not self._token:
            self._token = self.ask("/v1/tokens", {"role": "relay", "label": "test"})["token"]
        return self._token

    def ask(self, path: str, document: object = None) -> Any:
        """Ask the console as its admin, or send it a document."""
        token = (self.folder / "admin-token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        connection = http.client.HTTPConnection(*self.address("console"), timeout=LONGEST)
        try:
            body = None if document is None else json.dumps(document)
            connection.request("GET" if body is None else "POST", path, body, headers)
            answer = connection.getresponse()
            content = answer.read()
            assert answer.status in (200, 201), content
            return json.loads(content)
        finally:
            connection.close()

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.kill()


NONE_REFUSED: dict[str, dict[str, list[int]]] = {
    "refused": {"window-expired": [], "window-not-open": []}
}
"""What a relay is told about a batch that was taken whole."""


def send(connection: http.client.HTTPConnection, batch: Batch, token: str = "") -> tuple[int, str]:
    headers = {"Content-Type": "application/vnd.shoal.reports"}
    headers |= {"Authorization": f"Bearer {token}"} if token else {}
    path = f"/v1/plans/{batch.plan_id}/reports"
    connection.request("POST", path, batch.to_bytes(), headers)
    answer = connection.getresponse()
    content = answer.read()
    if answer.status == 202:
        assert json.loads(content) == NONE_REFUSED if token else content == b""
        return 202, ""
    return answer.status, json.loads(content)["type"].rpartition(":")[2]


class Devices(threading.Thread):
    """Sends uploads one after another, repeats some, and retries what was not acknowledged."""

    def __init__(self, served: Served, seed: int, most: int = 30) -> None:
        super().__init__(daemon=True)
        self._served, self._seed, self._most = served, seed, most
        self._chance = Random(seed)
        self.made: list[Batch] = []
        self.acknowledged: set[int] = set()
        self.surprises: list[tuple[int, str]] = []
        self.longest = 0.0
        """The longest time that an answer took."""
        self._enough = threading.Event()
        self._connection: http.client.HTTPConnection | None = None

    def run(self) -> None:
        while not self._enough.is_set():
            waiting = [k for k in range(len(self.made)) if k not in self.acknowledged]
            if waiting and self._chance.random() < 0.5:
                self._try(waiting[0])
            elif self.made and self._chance.random() < 0.2:
                self._repeat()
            else:
                size = self._chance.choice((1, 1, 1, self._most))
                self.made.append(
                    upload(self._served.plan, size, self._seed * 10**6 + len(self.made))
                )
                self._try(len(self.made) - 1)

    def finish(self) -> None:
        """Make nothing new, and retry until everything is acknowledged."""
        self._enough.set()
        self.join(LONGEST)
        assert not self.is_alive()
        end = time.monotonic() + LONGEST
        while len(self.acknowledged) < len(self.made):
            assert time.monotonic() < end, "reports are still not taken"
            for number in range(len(self.made)):
                if number not in self.acknowledged:
                    self._try(number)
        if self._connection is not None:
            self._connection.close()

    def _try(self, number: int) -> None:
        if self._post(self.made[number]):
            self.acknowledged.add(number)

    def _repeat(self) -> None:
        """Send parts of what was sent before again, acknowledged or not."""
        parts = [self._chance.choice(self.made) for _ in range(self._chance.choice((1, 2, 5)))]
        whole = together(*parts)
        some = self._chance.sample(range(len(whole)), self._chance.randint(1, len(whole)))
        self._post(chosen(whole, some))

    def _post(self, batch: Batch) -> bool:
        try:
            if self._connection is None:
                address = self._served.address(wait=0.2)
                self._connection = http.client.HTTPConnection(*address, timeout=LONGEST)
            token = self._served.relay_token()
            began = time.monotonic()
            status, problem = send(self._connection, batch, token)
            self.longest = max(self.longest, time.monotonic() - began)
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, TimeoutError):
                self.surprises.append((0, "no answer"))
            if self._connection is not None:
                self._connection.close()
            self._connection = None
            return False
        if status not in (202, 503, 507):
            self.surprises.append((status, problem))
        return status == 202


def all_made(devices: Sequence[Devices]) -> list[Batch]:
    return [batch for one in devices for batch in one.made]
