"""Checks of a deployment: each has a verdict, a sentence and a way out.

`shoal.server.doctor.examine` runs all of them. They change nothing and show nothing about open
crowds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Literal

__all__ = ["Finding", "Verdict", "fail", "ok", "warn", "worst"]

Verdict = Literal["ok", "warn", "fail"]
_ORDER: tuple[Verdict, ...] = ("ok", "warn", "fail")


@dataclass(frozen=True)
class Finding:
    """The result of one check: its subject, its status, and the fix if it failed."""

    check: str
    verdict: Verdict
    sentence: str
    way_out: str = ""

    def to_json(self) -> dict[str, str]:
        """Return the finding as JSON values."""
        return asdict(self)


def ok(check: str, sentence: str) -> Finding:
    return Finding(check, "ok", sentence)


def warn(check: str, sentence: str, way_out: str) -> Finding:
    return Finding(check, "warn", sentence, way_out)


def fail(check: str, sentence: str, way_out: str) -> Finding:
    return Finding(check, "fail", sentence, way_out)


def worst(findings: Iterable[Finding]) -> Verdict:
    """Return the worst verdict of all.

    >>> worst([Finding("disk", "ok", ""), Finding("clock", "warn", "")])
    'warn'
    """
    return max((finding.verdict for finding in findings), key=_ORDER.index, default="ok")
