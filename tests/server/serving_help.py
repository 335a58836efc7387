"""A collector in a process of its own, for tests that need the real thing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import NamedTuple

from shoal import Choice, Flags, Plan, Survey, plan

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
