"""The consent prompt: three sentences, the maintainer's reason, and ``[y/N/?]``.

It appears once, at a terminal. ``?`` shows the details and asks again; no answer within a minute
means no, and so does everything but a yes in the language of the prompt.
"""

from __future__ import annotations

import os
import select
import sys
import unicodedata
from collections.abc import Mapping
from typing import TYPE_CHECKING, TextIO

from shoal.device.telemetry import state
from shoal.device.telemetry.describe import (
    Terms,
    Words,
    often,
    probability,
    read_translations,
    terminal_width,
    terms_in_words,
    words_for,
)
from shoal.device.telemetry.state import switch_name
from shoal.support.results import wrapped

if TYPE_CHECKING:
    from shoal.device.telemetry import Telemetry

PATIENCE = 60.0
"""Seconds to wait at the prompt. Then the answer is no."""

_ROOM = 8
"""Columns behind the prompt for what is typed."""


class Consent:
    """The prompt of one tool, in the language of one person."""

    def __init__(self, telemetry: Telemetry, stream: TextIO) -> None:
        self._telemetry, self._stream = telemetry, stream
        self._terms = Terms.read(telemetry.agreement())
        translations = read_translations(telemetry.translations)
        self.language, self._words = words_for(telemetry.environ, translations, stream)

    def text(self) -> str:
        """Return the question: three sentences, and the reason if the maintainer gave one."""
        plan, tool = self._terms.plan, self._telemetry.tool
        again = self._telemetry.choice() == "changed"
        values = {
            "tool": tool,
            "often": often(self._terms.plan, self._words),
            "host": self._terms.to.partition("://")[2].partition("/")[0],
            "questions": self._words["separator"].join(one.name for one in plan.survey.asked),
            "bits": plan.bits,
            "q": probability(plan),
        }
        keys = ("asks again" if again else "asks", "how", "choice")
        sentences = [self._words[key].format_map(values) for key in keys]
        if (why := self._why()) is not None:
            sentences.insert(1, why)
        return "\n".join(sentences)

    def details(self) -> str:
        """Return every question, number and address that a yes is to."""
        tool = self._telemetry.tool
        last = self._words["control"].format(tool=tool, switch=switch_name(tool))
        return "\n".join([*terms_in_words(self._terms, self._words), last])

    def _why(self) -> str | None:
        why = self._telemetry.why
        if isinstance(why, Mapping):
            return why.get(self.language) or why.get("en") or next(iter(why.values()), None)
        return why

    def ask(self) -> None:
        """Show the prompt and keep the answer."""
        import termios  # not on Windows, where nobody is asked

        self._terms.check_here()  # before anybody is bothered
        answer = None
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)  # typed before it was asked
        try:
            self._show(f"\n{self.text()}")
            while (answer := self._read()) is not None and answer.strip() in ("?", "？"):
                self._show(self.details())
        except KeyboardInterrupt:
            answer = None
        if answer is None or not answer.endswith("\n"):
            self._show("")
        if is_yes(answer or "", self._words):
            self._telemetry.turn_on()
            self._show(self._words["thanks"])
        else:
            assert self._telemetry.folder is not None
            state.say_no(self._telemetry.folder)
            self._show(self._words["refused"])

    def _read(self) -> str | None:
        """Return the line that the person types, or None: none came in time, or the end."""
        width = terminal_width(self._stream) - _ROOM
        self._stream.write(f"{wrapped(self._words['prompt'], width)} ")
        self._stream.flush()
        ready, _, _ = select.select([sys.stdin], [], [], PATIENCE)
        # Not a line of sys.stdin: what that reads ahead, the next select would wait for.
        line = os.read(sys.stdin.fileno(), 4096) if ready else b""
        return line.decode(sys.stdin.encoding or "utf-8", "replace") or None

    def _show(self, text: str) -> None:
        self._stream.write(wrapped(text, terminal_width(self._stream)) + "\n")
        self._stream.flush()


def is_yes(answer: str, words: Words) -> bool:
    r"""Whether an answer is one of the yes words of a language.

    >>> from shoal.device.telemetry.describe import catalogue
    >>> is_yes(" JA\n", catalogue()["de"]), is_yes("y", catalogue()["de"]), is_yes("", words={})
    (True, False, False)
    """
    plain = unicodedata.normalize("NFKC", answer).strip().casefold()
    return bool(plain) and plain in words["yes"]
