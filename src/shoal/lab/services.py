"""Services in processes of their own, for the time of a demonstration."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from shoal.errors import InputError, ShoalError

TIMEOUT = 60.0
"""Seconds until a request times out."""
_PORTS = range(20_000, 32_000)
"""Below those that systems give to outgoing connections."""
_NUMBERS = count(os.getpid() * 101)


@contextmanager
def scratch_folder(below: Path | None = None) -> Iterator[Path]:
    """Yield a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="shoal-demo-", dir=below) as name:
        yield Path(name)


def free_port() -> int:
    """Return a free port below those of outgoing connections.

    On Linux a connection to a port that it was itself given would connect to itself.
    """
    for number in _NUMBERS:
        with suppress(OSError), socket.create_server(("127.0.0.1", _PORTS[number % len(_PORTS)])):
            return _PORTS[number % len(_PORTS)]
    raise AssertionError("numbers do not end")


@contextmanager
def running(what: str, words: list[str], data: Path) -> Iterator[dict[str, str]]:
    """Run `shoal` as a service, and yield its addresses when it is ready, and its `process`."""
    log_file = data / "log"
    command = [sys.executable, "-m", "shoal", *words, "--data", str(data), "--json"]
    with log_file.open("wb") as log, _ended_by_signals():
        server = subprocess.Popen(  # noqa: S603  this very program
            command, stdout=subprocess.PIPE, stderr=log, env=_settings(), start_new_session=True
        )
        try:
            assert server.stdout is not None
            ready = server.stdout.readline()
            if not ready:
                log_lines = log_file.read_text("utf-8", "replace").strip().splitlines()
                reason = log_lines[-1].removeprefix("shoal: ") if log_lines else "it said nothing."
                raise InputError(f"the {what} did not start: {reason}")
            yield json.loads(ready) | {"process": str(server.pid)}
        finally:
            _stop(server)


def run_command(*words: str) -> str:
    """Run a `shoal` command, and return its output."""
    command = [sys.executable, "-m", "shoal", *words]
    done = subprocess.run(command, capture_output=True, text=True, env=_settings(), check=False)  # noqa: S603
    if done.returncode:
        raise ShoalError(f"shoal {words[0]} failed: {done.stderr.strip()}")
    return done.stdout


def _settings() -> dict[str, str]:
    """Return the environment without settings of other services."""
    return {key: text for key, text in os.environ.items() if not key.startswith("SHOAL_")}


def _stop(server: subprocess.Popen[bytes]) -> None:
    """Stop a service; kill it if it does not end."""
    with suppress(ProcessLookupError):
        server.terminate()
    try:
        server.wait(20)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        server.kill()
        server.wait()
    if server.stdout is not None:
        server.stdout.close()


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Treat SIGTERM and SIGHUP like Ctrl-C, so that services and folders are removed."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    names = [name for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    try:
        before = {name: signal.signal(getattr(signal, name), interrupt) for name in names}
    except ValueError:  # not the main thread, which handles signals
        yield
        return
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(getattr(signal, name), handler)


def console_get(url: str, path: str, token: str) -> tuple[int, bytes]:
    """Send a GET request to the console; return the status and the body."""
    from http.client import HTTPConnection, HTTPException

    connection = HTTPConnection(url.removeprefix("http://"), timeout=TIMEOUT)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        with connection.getresponse() as answer:
            return answer.status, answer.read()
    except (OSError, HTTPException) as error:
        raise ShoalError("the console did not answer; nothing can be shown.") from error
    finally:
        connection.close()
