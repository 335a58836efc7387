"""Options and output that commands share."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import click

from shoal.agreement.plan import Plan
from shoal.agreement.survey import Choice, Choices, Flags, Question, Survey
from shoal.errors import InputError

P = ParamSpec("P")
R = TypeVar("R")

IN_FILE = click.Path(path_type=Path)
OUT_FILE = click.Path(path_type=Path, dir_okay=False)

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")

level_option = click.option(
    "--level", type=float, default=0.95, show_default=True, help="Confidence level."
)
interval_option = click.option(
    "--interval",
    "kind",
    type=click.Choice(["exact", "normal", "simultaneous", "chebyshev"]),
    default="exact",
    show_default=True,
    help="Kind of interval.",
)
target_option = click.option(
    "--target",
    type=click.Choice(["crowd", "population"]),
    default="crowd",
    show_default=True,
    help="Who is estimated: those who reported, or those they are a sample of.",
)


def plot_options(picture: str) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Add `--plot FILE` and which picture it draws; a wrong suffix is told before the work."""

    def decorate(command: Callable[..., R]) -> Callable[..., R]:
        @click.option("--plot", type=OUT_FILE, help="Draw a picture: .png, .svg or .pdf.")
        @click.option(
            "--picture",
            type=click.Choice(["privacy", "ratio", "precision", "noise", "bounds"]),
            default=picture,
            show_default=True,
            help="What --plot draws.",
        )
        @wraps(command)
        def with_plot(*args: Any, plot: Path | None, **kwargs: Any) -> R:
            if plot is not None:
                from shoal.charts import check_suffix

                check_suffix(plot)
            return command(*args, plot=plot, **kwargs)

        return with_plot

    return decorate


def survey_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add a survey file, or the options that stand in for one, as argument `survey`.

    A plan file is taken too, by commands that have an argument `plan`.
    """
    takes_plan = "plan" in signature(command).parameters

    @click.argument(
        "survey_file",
        type=IN_FILE,
        required=False,
        metavar="[PLAN.json | SURVEY.toml]" if takes_plan else "[SURVEY.toml]",
    )
    @click.option("--flags", type=int, metavar="L", help="Instead of a file: L yes-or-no flags.")
    @click.option("--choice", type=int, metavar="K", help="Instead of a file: one of K options.")
    @click.option("--choices", type=int, metavar="K", help="Instead of a file: some of K options.")
    @click.option("--at-most", type=int, metavar="k", help="With --choices: at most k of them.")
    @wraps(command)
    def with_survey(
        *args: Any,
        survey_file: Path | None,
        flags: int | None,
        choice: int | None,
        choices: int | None,
        at_most: int | None,
        **kwargs: Any,
    ) -> R:
        given = [value for value in (survey_file, flags, choice, choices) if value is not None]
        if len(given) > 1:
            raise InputError("give one of a survey file, --flags, --choice and --choices.")
        if (choices is None) != (at_most is None):
            raise InputError("--choices and --at-most go together.")
        survey: Survey | None = None
        if takes_plan:
            kwargs["plan"] = None
        if takes_plan and survey_file is not None and survey_file.suffix == ".json":
            kwargs["plan"] = Plan.read(survey_file)
        elif survey_file is not None:
            survey = Survey.from_toml(survey_file)
        elif given:
            survey = _plain_survey(flags, choice, choices, at_most)
        return command(*args, survey=survey, **kwargs)

    return with_survey


def _plain_survey(
    flags: int | None, choice: int | None, choices: int | None, at_most: int | None
) -> Survey:
    """One question named `answer` with options named 1, 2, 3, ..."""
    count = flags if flags is not None else choice if choice is not None else choices
    assert count is not None
    if not 1 <= count <= 65_536:
        raise InputError(f"a question has 1 to 65536 options, got {count}.")
    options = tuple(str(number) for number in range(1, count + 1))
    question: Question
    if flags is not None:
        question = Flags("answer", options)
    elif choice is not None:
        question = Choice("answer", options)
    else:
        assert at_most is not None
        question = Choices("answer", options, at_most)
    return Survey("answer", (question,))


def check_not_same(source: Path, output: Path) -> None:
    """Refuse to write over what is read."""
    if output.resolve() == source.resolve():
        raise InputError(f"{output} is what is read; name another file to write to.")


def print_json(document: object) -> None:
    """Print one JSON document on stdout, and nothing else."""
    click.echo(json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False))


def outward(low: float, high: float) -> list[str]:
    """Write the ends of an interval as whole people, rounded so that it never gets narrower."""
    return [f"{math.floor(low):,}", f"{math.ceil(high):,}"]


def printer() -> Any:
    """Return the console for tables that people read."""
    from rich.console import Console

    return Console(highlight=False)


@contextmanager
def progress(what: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Yield a function to call with the work done; shows a bar on a terminal after a second."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    import time

    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f}"),
        TimeRemainingColumn(),
    )
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(what, total=total)
    began = time.monotonic()

    def advance(done: int) -> None:
        bar.advance(task, done)
        if not bar.live.is_started and time.monotonic() - began > 1:
            bar.start()

    try:
        yield advance
    finally:
        bar.stop()
