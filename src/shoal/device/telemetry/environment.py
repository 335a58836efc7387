"""Where a tool runs: whether anything speaks against telemetry, and whether a person can be asked.

Whatever speaks against it wins over a yes that was given earlier, and nothing turns it on but a
person's own yes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

__all__ = ["can_be_asked", "switch_name", "why_off"]

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
"""What services that build and test set, and tools that run tests: nobody is there."""


def switch_name(tool: str) -> str:
    """Return the variable that turns a tool's telemetry off.

    >>> switch_name("my-tool")
    'MY_TOOL_TELEMETRY'
    """
    return "".join(letter if letter.isalnum() else "_" for letter in tool.upper()) + "_TELEMETRY"


def why_off(tool: str, environ: Mapping[str, str]) -> str | None:
    """Return what speaks against telemetry in this run, or None.

    >>> why_off("mytool", {"DO_NOT_TRACK": "1"})
    'DO_NOT_TRACK is set'
    >>> why_off("mytool", {"MYTOOL_TELEMETRY": "off"})
    'MYTOOL_TELEMETRY is off'
    >>> why_off("mytool", {"DO_NOT_TRACK": "0", "CI": "false"})
    """
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
