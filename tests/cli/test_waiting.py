"""The line on a terminal while a promise is computed."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from contextlib import nullcontext

import pytest

from shoal.cli import output, run
from shoal.cli.output import waiting

ERASE = "\x1b[2K"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class NoPatience:
    """A timer that is over at once."""

    daemon = False

    def __init__(self, seconds: float, function: Callable[[], None]) -> None:
        assert seconds == 1.0
        self.start = function

    def cancel(self) -> None:
        pass

    def join(self) -> None:
        pass


def terminal_in(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Return a terminal as stderr; no fixture, since pytest sets stderr anew before the test."""
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    return shown


@pytest.mark.parametrize("error", [None, ZeroDivisionError])
def test_it_is_shown_and_erased_after_an_error_too(monkeypatch: pytest.MonkeyPatch, error):
    terminal = terminal_in(monkeypatch)
    monkeypatch.setattr(output, "Timer", NoPatience)
    with nullcontext() if error is None else pytest.raises(error), waiting("thinking"):
        assert "thinking ... 0 s" in terminal.getvalue()
        if error is not None:
            raise error
    assert ERASE in terminal.getvalue().rpartition("thinking")[2]


def test_what_is_done_soon_shows_nothing(monkeypatch: pytest.MonkeyPatch):
    terminal = terminal_in(monkeypatch)
    with waiting("thinking"):
        pass
    assert "thinking" not in terminal.getvalue()


def test_commands_show_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(output, "Timer", NoPatience)
    for words in (
        "plan --flags 2 --crowd 100 --epsilon 1 --delta 1e-3 --json",
        "audit --flags 2 --crowd 100 --q 0.2 --epsilon 1 --json",
    ):
        terminal = terminal_in(monkeypatch)
        assert run(words.split()) == 0
        assert "computing the promise ..." in terminal.getvalue()
        assert capsys.readouterr().out.startswith("{")


def test_nothing_without_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(output, "Timer", NoPatience)
    assert run("audit --flags 2 --crowd 100 --q 0.2 --epsilon 1 --json".split()) == 0
    assert capsys.readouterr().err == ""
