"""What becomes of a tool's report: a collector and a person on this machine, in one command.

    python examples/telemetry/demo.py

It starts a collector on loopback, uses `wordy.py` as a person would, last week and today, and shows
what left. Everything happens in a folder of its own, which is deleted at the end.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shoal.device.telemetry.environment import CI_VARIABLES

HERE = Path(__file__).parent
PATIENCE = 60.0


@contextmanager
def collector(data: Path) -> Iterator[str]:
    """Run `shoal serve` with the tool's plan, and yield its address."""
    command = [sys.executable, "-m", "shoal", "serve", "--data", str(data), "--json"]
    command += ["--public", "127.0.0.1:0", "--console", "127.0.0.1:0", "--honest", "all"]
    server = subprocess.Popen(
        [*command, str(HERE / "plan.json")], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        assert server.stdout is not None
        yield json.loads(server.stdout.readline())["public"]
    finally:
        server.terminate()
        server.communicate()


def run(home: Path, to: str, words: str, days_ago: int = 0) -> str:
    """Run the tool as a person would who has this home, and show what it prints."""
    environ = {name: text for name, text in os.environ.items() if name not in CI_VARIABLES}
    for name in ("DO_NOT_TRACK", "WORDY_TELEMETRY", "XDG_STATE_HOME"):
        environ.pop(name, None)
    environ |= {"HOME": str(home), "WORDY_COLLECTOR": to, "WORDY_DAYS_AGO": str(days_ago)}
    environ |= {"LOCALAPPDATA": str(home)}
    print(f"$ wordy {words}" + f"    ({days_ago} days ago)" * bool(days_ago), flush=True)
    command = [sys.executable, str(HERE / "wordy.py"), *words.split()]
    printed = subprocess.run(
        command, env=environ, check=True, text=True, capture_output=True, stdin=subprocess.DEVNULL
    ).stdout
    print(printed, flush=True)
    return printed


def has_left(home: Path) -> bool:
    """Whether the log says that a request was answered."""
    return any(b"status" in log.read_bytes() for log in home.rglob("log"))


def main() -> None:
    """Use the tool last week and today, and show what left."""
    text = str(HERE / "survey.toml")
    with tempfile.TemporaryDirectory(prefix="wordy-") as name, collector(Path(name) / "c") as to:
        home = Path(name) / "home"
        home.mkdir()
        run(home, to, f"count {text}", days_ago=7)
        run(home, to, "telemetry show")
        run(home, to, "telemetry on", days_ago=7)
        for word in ("count", "longest", "count"):
            run(home, to, f"{word} {text}", days_ago=7)
        run(home, to, f"count {text}")
        # The report is sent by a process of its own, after the tool has ended.
        end = time.monotonic() + PATIENCE
        while not has_left(home) and time.monotonic() < end:
            time.sleep(0.1)
        run(home, to, "telemetry show")
        run(home, to, "telemetry status")
        run(home, to, "telemetry delete")


if __name__ == "__main__":
    main()
