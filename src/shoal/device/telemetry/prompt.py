"""The one question: on a terminal, once, with no as its answer where nobody answers."""

from __future__ import annotations

import select
import sys
from typing import TYPE_CHECKING

from shoal.device.telemetry import consent
from shoal.device.telemetry.describe import terms_in_words
from shoal.device.telemetry.environment import switch_name
from shoal.device.telemetry.terms import Terms

if TYPE_CHECKING:
    from shoal.device.telemetry.telemetry import Telemetry

__all__ = ["ask", "question_text"]

PATIENCE = 60.0
"""Seconds that a terminal may stay silent. Then nobody is there, and the answer is no."""


def question_text(telemetry: Telemetry) -> str:
    """Return what a person reads before they answer."""
    tool = telemetry.tool
    changed = telemetry.choice() == "changed"
    first = (
        f"{tool} asks something else than what you said yes to."
        if changed
        else f"{tool} would like to report how it is used. Nothing was sent so far."
    )
    last = (
        f"See every byte that left with `{tool} telemetry show`. Turn it off with `{tool} telemetry"
        f" off`, {switch_name(tool)}=0 or DO_NOT_TRACK=1."
    )
    lines = [first, *terms_in_words(Terms.read(telemetry.agreement())), last]
    return "\n".join(["", *lines, "Send these reports? [y/N] "])


def ask(telemetry: Telemetry) -> None:
    """Put the question, and keep the answer: yes if it is yes, and no whatever else it is."""
    try:
        sys.stderr.write(question_text(telemetry))
        sys.stderr.flush()
        ready, _, _ = select.select([sys.stdin], [], [], PATIENCE)
        answer = sys.stdin.readline() if ready else ""
    except KeyboardInterrupt:
        answer = ""
    if answer.strip().lower() in ("y", "yes"):
        telemetry.turn_on()
        sys.stderr.write("Thank you.\n")
    else:
        assert telemetry.folder is not None
        consent.say_no(telemetry.folder)
        newline = "" if answer.endswith("\n") else "\n"
        sys.stderr.write(f"{newline}Nothing will be sent, and you will not be asked again.\n")
