"""A relay in a process of its own, which tests kill, start again, measure and search."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

from shoal import Plan
from shoal.protocol.encryption import CrowdKey
from tests.server.serving_help import clean_environment

from .relay_help import LONGEST

Address = tuple[str, int]


_KNOWN = """
import json, sys
from types import SimpleNamespace
from urllib.request import urlopen
from shoal.cli import main
from shoal.server.relay import service
keys = json.load(urlopen("{url}/v1/keys"))["ed25519"]
analyzer = SimpleNamespace(url="{url}", signing_key=keys[0])
service.known_agreement = lambda *_: SimpleNamespace(
    others=dict(analyzer=analyzer), token=lambda role: "")
sys.exit(main())
"""
"""Runs a relay that was set up with the fake analyzer at a URL."""


class Process:
    """A relay for one plan; `before` is Python that it runs first.

    Parameters
    ----------
    folder
        Where its data, plan and log are.
    plan, analyzer
        The plan, and the analyzer's URL.
    settings
        Settings of `shoal relay`, over those that let anybody fill a crowd at once.
    """

    def __init__(
        self, folder: Path, plan: Plan, analyzer: str, before: str = "", **settings: object
    ) -> None:
        self.data, self.log = folder / "data", folder / "log"
        file = folder / "plan.json"
        plan.write(file)
        options: dict[str, object] = {
            "public": "127.0.0.1:0", "console": "127.0.0.1:0", "min_crowd": 1,
            "max_share_percent": 100, "min_free_megabytes": 0,
        } | settings  # fmt: skip
        program = f"{before}\n{_KNOWN.format(url=analyzer)}"
        self._words = [
            *(sys.executable, "-c", program, "relay", "--json"),
            *("--data", str(self.data), str(file)),
            *(f"--{name.replace('_', '-')}={value}" for name, value in options.items()),
        ]
        self.address: Address | None = None
        self.console: Address | None = None
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        with self.log.open("a") as log:
            self._process = subprocess.Popen(
                self._words,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=clean_environment() | {"OPENBLAS_NUM_THREADS": "1"},
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self.log.read_text()
        urls = json.loads(line)
        self.console = _address(urls["console"])
        self.address = _address(urls["public"])

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self.end(kill=True)

    def end(self, *, kill: bool) -> None:
        assert self._process is not None
        self.address = self.console = None
        (self._process.kill if kill else self._process.terminate)()
        self._process.communicate(timeout=LONGEST)

    def connect(self, source: str = "127.0.0.1") -> socket.socket:
        """Connect to its public side from an address of this machine."""
        assert self.address is not None
        return socket.create_connection(self.address, LONGEST, (source, 0))

    def get(self, path: str, *, console: bool = False) -> tuple[int, bytes]:
        """Fetch something; from the console as its administrator."""
        address = self.console if console else self.address
        assert address is not None
        headers = {}
        if console:
            token = (self.data / "admin-token").read_text().strip()
            headers["Authorization"] = f"Bearer {token}"
        connection = http.client.HTTPConnection(*address, timeout=LONGEST)
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def crowd_key(self, plan: Plan) -> CrowdKey:
        """Return the key of the open crowd, as soon as the analyzer has given one."""
        end = time.monotonic() + LONGEST
        while (answer := self.get(f"/v1/plans/{plan.id}/crowd-key"))[0] != 200:
            assert time.monotonic() < end, answer
            time.sleep(0.01)
        return CrowdKey.from_bytes(answer[1])

    def resident(self) -> int:
        """Return the most memory that the process has had, in bytes."""
        assert self._process is not None
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if "VmHWM:" in line) << 10


def _address(url: str) -> Address:
    parts = urlsplit(url)
    assert parts.hostname
    assert parts.port
    return parts.hostname, parts.port
