"""Output that commands share: JSON, tables, lists, numbers and progress."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import click

from shoal.support.rounding import text_near


def print_json(document: object) -> None:
    """Print one JSON document on stdout, and nothing else."""
    click.echo(json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False))


def outward(low: float, high: float) -> list[str]:
    """Write the ends of an interval as whole people, rounded so that it never gets narrower."""
    return [f"{math.floor(low):,}", f"{math.ceil(high):,}"]


def grouped(value: float, digits: int = 4) -> str:
    """Write a number with its thousands apart, rounded to significant digits."""
    return f"{Decimal(text_near(value, digits)):,f}"


def printer() -> Any:
    """Return the console for tables that people read."""
    from rich.console import Console

    return Console(highlight=False)


def show_bullets(console: Any, sentences: Iterable[str]) -> None:
    """Print sentences as a list, each indented behind its dash."""
    from rich.markup import escape
    from rich.table import Table

    table = Table.grid(padding=(0, 1))
    for sentence in sentences:
        table.add_row("-", escape(sentence))
    console.print(table)


def show_simulated(console: Any, document: dict[str, Any]) -> None:
    """Print a warning above numbers that are about nobody."""
    if document["simulated"]:
        console.print("[yellow]simulated: these numbers are about nobody[/yellow]")


@contextmanager
def progress(what: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Yield a function to call with the work done; shows a bar on a terminal after a second."""
    done = 0

    def advance(more: int) -> None:
        nonlocal done
        done += more
        reached(done, total)

    with progress_to(what) as reached:
        yield advance


@contextmanager
def progress_to(what: str) -> Iterator[Callable[[int, int | None], None]]:
    """Yield a function to call with all the work done so far, and how much there is.

    The bar shows the rate, and the time left where it is known how much there is.
    """
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    import time

    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Any) -> Text:
            return Text("" if task.speed is None else f"{task.speed:,.0f}/s")

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f}"),
        Rate(),
        TimeRemainingColumn(),
    )
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(what, total=None)
    began = time.monotonic()

    def reached(done: int, total: int | None) -> None:
        bar.update(task, completed=done, total=total)
        if not bar.live.is_started and time.monotonic() - began > 1:
            bar.start()

    try:
        yield reached
    finally:
        bar.stop()
