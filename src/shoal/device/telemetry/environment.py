"""The tool's environment: does it forbid telemetry, can a person be asked, can a worker start.

Anything that forbids telemetry overrides an earlier yes. Only a person's own yes turns it on.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

_NO = {"0", "false", "no", "off"}

CI_VARIABLES = (
    "CI",
    "CONTINUOUS_INTEGRATION",
    "APPVEYOR",
    "BITBUCKET_BUILD_NUMBER",
    "BUILDKITE",
    "BUILD_NUMBER",
    "CIRCLECI",
    "CODEBUILD_BUILD_ID",
    "DRONE",
    "GITHUB_ACTIONS",
    "GITLAB_CI",
    "JENKINS_URL",
    "TEAMCITY_VERSION",
    "TF_BUILD",
    "TRAVIS",
    "PYTEST_CURRENT_TEST",
    "TOX_ENV_NAME",
)
"""Variables that CI services and test runners set: no person is present."""


def switch_name(tool: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in tool.upper()) + "_TELEMETRY"


def why_off(tool: str, environ: Mapping[str, str]) -> str | None:
    """Return the reason why telemetry is off in this run, or None."""
    if _is_set("DO_NOT_TRACK", environ):
        return "DO_NOT_TRACK is set"
    switch = switch_name(tool)
    if environ.get(switch, "").strip().lower() in _NO:
        return f"{switch} is {environ[switch].strip()}"
    for name in CI_VARIABLES:
        if _is_set(name, environ):
            return f"{name} is set, so no person is at work here"
    return None


def _is_set(name: str, environ: Mapping[str, str]) -> bool:
    return environ.get(name, "").strip().lower() not in _NO | {""}


def can_be_asked() -> bool:
    """Whether a person sits at a terminal that is ours to read from.

    A process in the background of its terminal would be stopped if it read from it.
    """
    try:
        terminal = sys.stdin.isatty() and sys.stderr.isatty()
        if not terminal or sys.platform == "win32" or os.environ.get("TERM") == "dumb":
            return False
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (AttributeError, OSError, ValueError):  # no stdin at all, or one that is closed
        return False


_RUN = (
    "import sys; sys.path.append(sys.argv[1]);"
    " from shoal.device.telemetry.worker import main; main(sys.argv[2:])"
)


def worker_command() -> list[str] | None:
    """Return the command that runs the worker, or None where there is no Python to run.

    A tool that was frozen into one file is its own executable, and no Python.
    """
    if getattr(sys, "frozen", False) or not sys.executable:
        return None
    parts = os.path.abspath(__file__).split(os.sep)[:-4]  # the folder that holds `shoal`
    return [sys.executable, "-I", "-c", _RUN, os.sep.join(parts)]


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
