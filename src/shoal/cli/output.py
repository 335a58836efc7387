"""What commands print: a result as JSON or as text, tables, lists, numbers, progress.

The text of a result is a string, printed as it is, or pieces that rich prints one after another.
In those, a string may have markup, so that names are escaped; `Plain` has none and never wraps.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from threading import Timer
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from shoal.errors import ShoalError
from shoal.support.rounding import text_near, text_up

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

COMPUTING = "computing the promise"
_DELAY = 1.0
"""Seconds before progress is shown."""


class Plain(NamedTuple):
    """Text without markup whose lines are never broken, so that it can be copied."""

    text: str | Text


if TYPE_CHECKING:
    Pieces = Iterator[RenderableType | Plain]


class Result(NamedTuple):
    """What a command found, for `--json` and for people; `error` is raised once it is printed.

    A document that takes long to compute is a function, which is called for `--json`.
    """

    document: Any
    text: str | Iterable[RenderableType | Plain]
    exit_code: int = 0
    error: ShoalError | None = None


def print_json(document: object) -> None:
    """Print one JSON document on stdout, and nothing else."""
    click.echo(json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False))


def show(text: str | Iterable[RenderableType | Plain], *, stderr: bool = False) -> None:
    if isinstance(text, str):
        click.echo(text, err=stderr)
        return
    console = printer(stderr=stderr)
    for piece in text:
        if isinstance(piece, Plain):
            console.print(piece.text, soft_wrap=True, markup=False)
        else:
            console.print(piece)


def printer(*, stderr: bool = False) -> Console:
    import rich.console

    return rich.console.Console(highlight=False, stderr=stderr)


def outward(low: float, high: float) -> list[str]:
    """Write the ends of an interval as whole people, rounded so that it never gets narrower."""
    return [f"{math.floor(low):,}", f"{math.ceil(high):,}"]


def grouped(value: float, digits: int = 4) -> str:
    """Write a number with its thousands apart, rounded to significant digits."""
    return f"{Decimal(text_near(value, digits)):,f}"


def bits_in_words(bits: int) -> str:
    return "1 bit" if bits == 1 else f"{bits} bits"


def reports_in_words(reports: int) -> str:
    return "1 report" if reports == 1 else f"{reports:,} reports"


def escape(text: str) -> str:
    """Return text that is printed as it is, whatever markup it looks like."""
    from rich.markup import escape

    return escape(text)


def bold(text: str) -> Text:
    from rich.text import Text

    return Text(text, "bold")


def table(
    columns: Sequence[str], rows: Iterable[Sequence[Any]] = (), *, left: int = 1, title: str = ""
) -> Table:
    """Return a table without lines: `left` columns of text that may wrap, then numbers."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False, title=escape(title) or None, title_justify="left")
    for place, name in enumerate(columns):
        if place < left:
            made.add_column(escape(name), overflow="fold")
        else:
            made.add_column(escape(name), justify="right", no_wrap=True)
    for row in rows:
        made.add_row(*(escape(cell) if isinstance(cell, str) else cell for cell in row))
    return made


def statements(rows: Iterable[tuple[str, str, str]]) -> Table:
    from rich.table import Table

    made = Table(box=None, pad_edge=False, show_header=False)
    made.add_column(style="bold", no_wrap=True)
    made.add_column(no_wrap=True)
    made.add_column(overflow="fold")
    for row in rows:
        made.add_row(*map(escape, row))
    return made


class IfItFits(NamedTuple):
    """A table and an empty line, or nothing on a terminal that is too narrow for it."""

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Any]:
        from rich.measure import Measurement

        wide = options.update(max_width=10_000)
        if Measurement.get(console, wide, self.table).maximum <= console.width:
            yield self.table
            yield ""


def title(name: str, rest: str, simulated: bool = False) -> str:
    """Return the first line of a result; simulated data gets a warning below it."""
    warning = "\n[yellow]simulated data[/yellow]" if simulated else ""
    return f"[bold]{escape(name)}[/bold]: {rest}{warning}"


def bullets(sentences: Iterable[str]) -> Table:
    """Return a list of sentences, each indented behind its dash."""
    from rich.table import Table

    grid = Table.grid(padding=(0, 1))
    for sentence in sentences:
        grid.add_row("-", escape(sentence))
    return grid


def warnings(sentences: Iterable[str]) -> Iterator[str]:
    for sentence in sentences:
        yield f"[yellow]Warning: {escape(sentence)}[/yellow]"


def indented(text: str, width: int) -> Padding:
    """Return text whose lines all begin at this column."""
    from rich.padding import Padding

    return Padding(text, (0, 0, 0, width))


def written(path: object, what: str = "written to") -> Iterator[Plain]:
    """Yield the name of a file that was written, unless it is None."""
    if path is not None:
        yield Plain(f"{what} {path}")


def over_time(guarantees: list[dict[str, Any]]) -> Pieces:
    """Yield guarantees over time: the number in one line, what it covers below it."""
    yield "\nOver time, for people who report again:"
    for one in guarantees:
        delta = f", delta {text_up(one['delta'], 3)}" if one["delta"] else ""
        name = f"[bold]{one['holds_for']:34}[/bold]"
        yield f"{one['kind']:6}  {name}  epsilon {text_up(one['epsilon'])}{delta}"
        yield indented(one["words"], 8)


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
def progress_to(
    what: str, *, counted: bool = True
) -> Iterator[Callable[[int, int | None], object]]:
    """Yield a function to call with all the work done so far, and the total if it is known.

    On a terminal the progress is shown after a second, and erased at the end.
    """
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Any) -> Text:
            return Text("" if task.speed is None else f"{task.speed:,.0f}/s")

    bar = ("{task.description}", BarColumn(), TextColumn("{task.completed:,.0f}"), Rate())
    time_taken = "{task.description} ... {task.elapsed:.0f} s"
    line = Progress(
        *((*bar, TimeRemainingColumn()) if counted else (time_taken,)),
        console=printer(stderr=True),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    task = line.add_task(what, total=None)
    timer = Timer(_DELAY, line.start)
    timer.daemon = True
    timer.start()
    try:
        yield lambda done, total: line.update(task, completed=done, total=total)
    finally:
        timer.cancel()
        timer.join()  # a line that is just being started is erased too
        line.stop()


@contextmanager
def waiting(what: str = COMPUTING) -> Iterator[None]:
    """Show on a terminal what is computed and for how long, after a second; erase it at the end."""
    with progress_to(what, counted=False):
        yield
