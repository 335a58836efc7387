"""A process that goes on when the tool has ended, and holds nothing of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

__all__ = ["bury", "spawn", "worker_command"]

_RUN = (
    "import sys; sys.path.append(sys.argv[1]);"
    " from shoal.device.telemetry.worker import main; main(sys.argv[2:])"
)


def worker_command(*words: str) -> list[str] | None:
    """Return the command that runs the worker, or None where there is no Python to run.

    A tool that was frozen into one file is its own executable, and no Python.
    """
    if getattr(sys, "frozen", False) or not sys.executable:
        return None
    parts = os.path.abspath(__file__).split(os.sep)[:-4]  # the folder that holds `shoal`
    return [sys.executable, "-I", "-c", _RUN, os.sep.join(parts), *words]


def bury(child: int | None) -> None:
    """Let the system forget a process that has ended, in a tool that goes on for long."""
    if child is not None and hasattr(os, "WNOHANG"):
        try:  # noqa: SIM105  contextlib takes longer to load than all of this
            os.waitpid(child, os.WNOHANG)
        except ChildProcessError:  # the tool itself has waited for it
            pass


def spawn(command: list[str], environ: Mapping[str, str]) -> int | None:
    """Start a process without waiting for it; it has no terminal and none of our files.

    Returns its number, where somebody must bury it.
    """
    if sys.platform == "win32":
        import subprocess

        flags = subprocess.DETACHED_PROCESS | subprocess.CREATE_NEW_PROCESS_GROUP
        nothing = subprocess.DEVNULL
        subprocess.Popen(  # noqa: S603  the Python that runs this very tool
            command, env=environ, creationflags=flags, stdin=nothing, stdout=nothing, stderr=nothing
        )
        return None
    nowhere = os.open(os.devnull, os.O_RDWR)
    actions = [(os.POSIX_SPAWN_DUP2, nowhere, number) for number in range(3)]
    try:
        try:
            return os.posix_spawn(command[0], command, environ, file_actions=actions, setsid=True)
        except NotImplementedError:  # a system without it; a group of its own has to do
            return os.posix_spawn(command[0], command, environ, file_actions=actions, setpgroup=0)
    finally:
        os.close(nowhere)
