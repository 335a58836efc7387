"""The tool's environment: may it send telemetry, can a person be asked, can a worker start."""

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
    """Whether a person is at a terminal; reading from it would stop a background process."""
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


def is_frozen() -> bool:
    """Whether the tool was made into one file, without a Python that could be started."""
    return bool(getattr(sys, "frozen", False))


def worker_command() -> list[str] | None:
    """Return the command that runs the worker, or None where Python does not say where it is."""
    if is_frozen() or not sys.executable:
        return None
    parts = os.path.abspath(__file__).split(os.sep)[:-4]  # the folder that holds `shoal`
    return [sys.executable, "-I", "-c", _RUN, os.sep.join(parts)]


def reap(child: int | None) -> None:
    """Reap the worker, in a tool that runs for long."""
    if child is not None and hasattr(os, "WNOHANG"):
        try:  # noqa: SIM105  contextlib takes longer to load than all of this
            os.waitpid(child, os.WNOHANG)
        except ChildProcessError:  # the tool itself has waited for it
            pass


def spawn(command: list[str], environ: Mapping[str, str]) -> int | None:
    """Start a detached process; return its id, where it must be reaped."""
    if sys.platform == "win32":
        import subprocess

        flags = subprocess.DETACHED_PROCESS | subprocess.CREATE_NEW_PROCESS_GROUP
        nothing = subprocess.DEVNULL
        subprocess.Popen(  # noqa: S603  the Python that runs this very tool
            command, env=environ, creationflags=flags, stdin=nothing, stdout=nothing, stderr=nothing
        )
        return None
    null = os.open(os.devnull, os.O_RDWR)
    actions = [(os.POSIX_SPAWN_DUP2, null, number) for number in range(3)]
    try:
        try:
            return os.posix_spawn(command[0], command, environ, file_actions=actions, setsid=True)
        except NotImplementedError:  # a system without setsid
            return os.posix_spawn(command[0], command, environ, file_actions=actions, setpgroup=0)
    finally:
        os.close(null)
