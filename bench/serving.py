"""A collector, or another server, in a process of its own on a core of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

SERVER_CORE, LOAD_CORE = 0, 1


class Running(NamedTuple):
    """A server that runs: its addresses by name, and its process."""

    urls: dict[str, str]
    process: subprocess.Popen[bytes]

    @property
    def port(self) -> int:
        return urlsplit(self.urls["public"]).port or 0

    def memory(self, peak: bool = False) -> int:
        """Return the resident memory in MiB, or its peak since `forget_peak`."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmHWM:" if peak else "VmRSS:")[1].split()[0]) >> 10

    def forget_peak(self) -> None:
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")


@contextmanager
def running(command: list[str], core: int | None = SERVER_CORE) -> Iterator[Running]:
    """Run a server that prints its addresses as one line of JSON, on one core or on all."""
    environment = {key: text for key, text in os.environ.items() if not key.startswith("SHOAL_")}
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        preexec_fn=None if core is None else lambda: pin(core),
    )
    try:
        assert process.stdout is not None
        yield Running(json.loads(process.stdout.readline()), process)
    finally:
        process.terminate()
        process.wait()


def collector(folder: Path, *words: str) -> list[str]:
    """Return the command that runs a collector on free ports."""
    return [sys.executable, "-m", "shoal", "serve", "--data", str(folder), "--json",
            "--public", "127.0.0.1:0", "--console", "127.0.0.1:0", "--min-free-megabytes", "0",
            "--honest", "all", *words]  # fmt: skip


def relay_token(folder: Path, console: str) -> str:
    """Make a relay's token at a collector's console."""
    admin = (folder / "admin-token").read_text().strip()
    headers = {"Authorization": f"Bearer {admin}", "Content-Type": "application/json"}
    connection = HTTPConnection(urlsplit(console).netloc, timeout=30)
    connection.request("POST", "/v1/tokens", '{"role": "relay", "label": "bench"}', headers)
    with connection.getresponse() as answer:
        document: Any = json.load(answer)
    connection.close()
    return str(document["token"])


def pin(core: int) -> None:
    os.sched_setaffinity(0, {core % (os.cpu_count() or 1)})
