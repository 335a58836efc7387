"""A line on a terminal while something is computed that does not say how far it is."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer

__all__ = ["COMPUTING", "waiting"]

COMPUTING = "computing the promise"

_PATIENCE = 1.0
"""Seconds without a word."""


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show what is computed, and for how long, after a second; the line is erased at the end.

    Nothing is shown where stderr is not a terminal.
    """
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import Progress, TextColumn

    column = TextColumn("{task.description} ... {task.elapsed:.0f} s")
    line = Progress(
        column,
        console=Console(stderr=True),
        transient=True,
        refresh_per_second=2,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    line.add_task(what, total=None)
    timer = Timer(_PATIENCE, line.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()  # a line that is just being started is erased too
        line.stop()
