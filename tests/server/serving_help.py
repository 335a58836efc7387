"""A collector in a process of its own, for tests that need the real thing."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import NamedTuple, Self
from urllib.parse import urlsplit

from shoal import Choice, Flags, Plan, Survey, plan

LONGEST = 600.0
"""Seconds that anything here may take before it counts as hanging."""
SURVEY = Survey(
    "browser",
    (
        Flags("features", ("sync", "vpn", "reader")),
        Choice("channel", ("release", "beta", "nightly")),
    ),
)


class Served(NamedTuple):
    """A running collector."""

    folder: Path
    public: str
    console: str
    plan: Plan

    @property
    def token(self) -> str:
        return (self.folder / "admin-token").read_text().strip()


def small_plan(crowd: int = 100) -> Plan:
    return plan(SURVEY, crowd_size=crowd, epsilon="1", delta="1e-6")


def clean_environment() -> dict[str, str]:
    return {key: text for key, text in os.environ.items() if not key.startswith("SHOAL_")}


@contextmanager
def served(folder: Path, agreed: Plan, *options: str) -> Iterator[Served]:
    """Run `shoal serve` on free ports until the block ends; it must stop in order."""
    file = folder.with_name(folder.name + "-plan.json")
    agreed.write(file)
    command = [sys.executable, "-m", "shoal", "serve", "--data", str(folder), "--json"]
    command += ["--public", "127.0.0.1:0", "--console", "127.0.0.1:0", "--honest", "all"]
    command += [*options, str(file)]
    server = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=clean_environment()
    )
    assert server.stdout is not None
    try:
        urls = json.loads(server.stdout.readline())
        yield Served(folder, urls["public"], urls["console"], agreed)
        server.send_signal(signal.SIGTERM)
        assert server.wait(30) == 0
    finally:
        server.kill()
        server.wait()
        server.stdout.close()


class ServiceProcess:
    """A service in a process of its own, which tests kill and start again.

    `words` follow `shoal`, and `log` gets what it says on standard error. `program` is Python that
    runs it in place of the command.
    """

    def __init__(self, log: Path, *words: str, program: str = "") -> None:
        runs = ("-c", program) if program else ("-m", "shoal")
        self.log, self._words = log, [sys.executable, *runs, *words, "--json"]
        self.urls: dict[str, str] = {}
        """Where it listens; nowhere while it does not run."""
        self.said = ""
        """What it said on standard output."""
        self._process: subprocess.Popen[str] | None = None

    def start(self, *more: str) -> None:
        """Start it and wait until it is ready."""
        with self.log.open("a") as log:
            self._process = subprocess.Popen(
                [*self._words, *more],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=clean_environment() | {"OPENBLAS_NUM_THREADS": "1"},
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.communicate(timeout=LONGEST)
        assert line, f"it did not start: {self.log.read_text()[-2000:]}"
        self.urls, self.said = json.loads(line), line

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def address(self, name: str = "public") -> tuple[str, int] | None:
        """Return where a listener is; None while it does not run."""
        parts = urlsplit(self.urls.get(name, ""))
        return (
            None
            if parts.hostname is None or parts.port is None
            else (
                parts.hostname,
                parts.port,
            )
        )

    def kill(self) -> None:
        """End it with no chance to do anything."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Ask it to stop, and wait until it has."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        self.urls = {}
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(how)
            self.said += self._process.communicate(timeout=LONGEST)[0]

    def connect(self, name: str = "public", source: str = "127.0.0.1") -> socket.socket:
        """Connect to a listener from an address of this machine."""
        address = self.address(name)
        assert address is not None
        return socket.create_connection(address, LONGEST, (source, 0))

    def resident(self, *, peak: bool = False) -> int:
        """Return the memory of the process, in bytes; its peak if asked for."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        name = "VmHWM:" if peak else "VmRSS:"
        return next(int(line.split()[1]) for line in status.splitlines() if name in line) << 10

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


class QuietHandler(BaseHTTPRequestHandler):
    """Answers requests in a test and says nothing about them."""

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def handled_by(handler: type[QuietHandler]) -> Iterator[int]:
    """Run a small server that is no collector, and yield its port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = Thread(target=server.serve_forever, args=(0.01,))  # it stops that soon
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
