"""`shoal simulate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shoal.cli._commands import Command
from shoal.cli._options import (
    IN_FILE,
    check_plot,
    interval_option,
    json_option,
    level_option,
    output_option,
    plan_argument,
    plot_option,
    table_format_options,
    target_option,
)
from shoal.cli._printing import outward, print_json, printer, progress
from shoal.cli._types import DECIMAL, WHOLE
from shoal.errors import InputError
from shoal.protocol.plan import Plan

if TYPE_CHECKING:
    from shoal.support.table_format import TableFormat


@click.command(cls=Command, example="shoal simulate plan.json --users 10000")
@plan_argument
@click.option("--users", type=WHOLE, metavar="N", help="How many people to simulate.")
@click.option("--answers", type=IN_FILE, help="Draw the people from these answers.")
@click.option(
    "--texts",
    type=IN_FILE,
    help="What people answer to text questions: one text per line, the text at rank r with weight"
    " 1/r, or a .csv of text,weight.",
)
@click.option("--zipf", type=DECIMAL, metavar="S", help="With --texts: weight 1/r^S instead.")
@click.option("--seed", type=WHOLE, help="Seed of the simulated data.  [default: random]")
@click.option("--repeat", type=WHOLE, metavar="R", help="Study R runs on the same people.")
@click.option(
    "--vary", metavar="NAME=A,B,...", help="With --repeat: a study at each users, q or epsilon."
)
@click.option(
    "--through",
    type=click.Choice(["law", "path"]),
    help="Draw counts from their distribution (law), or make every report (path).  [default: law"
    " with --repeat or text, else path]",
)
@table_format_options
@output_option("the simulated tally")
@plot_option
@level_option
@interval_option
@target_option
@json_option
def command(
    plan_file: Path,
    users: int | None,
    answers: Path | None,
    texts: Path | None,
    zipf: float | None,
    seed: int | None,
    repeat: int | None,
    vary: str | None,
    through: Any,
    table_format: TableFormat,
    output: Path | None,
    plot: Path | None,
    level: float,
    kind: Any,
    target: Any,
    as_json: bool,
) -> None:
    """Try a plan on simulated people.

    The truth is shown beside each estimate. With --repeat the same people report again and again,
    and you see the bias, sigma against theory, and how often each kind of interval holds the truth.
    """
    from shoal.lab.simulation import simulate

    if repeat is None and (vary or plot):
        raise InputError("--vary and --plot are for a study; give --repeat too.")
    if repeat is not None and (texts or output):
        raise InputError("--texts and --output are for one run; leave out --repeat.")
    if zipf is not None and texts is None:
        raise InputError("--zipf gives weights to texts; give --texts too.")
    if repeat is not None and target != "crowd":
        raise InputError("a study repeats the flips on the same people; use --target crowd.")
    plan = Plan.read(plan_file)
    originals = None
    if answers is not None:
        from shoal.device.arrays.answer_files import read_answers

        originals = read_answers(plan.survey, answers, table_format)
    if repeat is not None:
        _study(plan, users, repeat, vary, originals, seed, level, through, plot, as_json)
        return
    with progress("simulating", users) as advance:
        run = simulate(
            plan,
            users=users,
            answers=originals,
            texts=_read_weights(texts, zipf),
            through=through,
            seed=seed,
            target=target,
            progress=advance,
        )
    if output is not None:
        run.estimates.tally.write(output)
    document = run.to_json(level, kind)
    if as_json:
        print_json(document)
    else:
        from shoal.cli._estimates import show_estimates

        # Texts are shown below, with the truth.
        notes = [] if "texts" in document else document["notes"]
        show_estimates(document | {"notes": notes}, plan.survey.name)
        for question, decoded in document.get("texts", {}).items():
            _show_texts(question, decoded)
        if output is not None:
            click.echo(f"tally written to {output}")


def _read_weights(path: Path | None, exponent: float | None) -> dict[str, float] | None:
    """Read texts and how likely each is."""
    if path is None:
        return None
    from shoal.analysis.text.decode import read_candidates
    from shoal.lab.populations import read_weights, zipf

    if path.suffix.lower() == ".csv":
        if exponent is not None:
            raise InputError("--zipf is for a file of lines; a .csv gives the weights itself.")
        return read_weights(path)
    texts = [text for text in read_candidates(path) if text]
    return zipf(texts, 1.0 if exponent is None else exponent)


def _show_texts(question: str, decoded: dict[str, Any], most: int = 20) -> None:
    from rich.markup import escape
    from rich.table import Table

    console = printer()
    rows = [row for row in decoded["candidates"] if row["found"]]
    false = [row for row in rows if row["truth"] == 0]
    table = Table(title=escape(question), title_justify="left", box=None, pad_edge=False)
    table.add_column("text", overflow="fold")
    for name in ("truth", "count", "low", "high"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows[:most]:
        numbers = f"{row['truth']:,}", f"{row['count']:,.0f}", *outward(row["low"], row["high"])
        table.add_row(escape(" = ".join([row["value"], *row.get("same_as", [])[:3]])), *numbers)
    console.print()
    console.print(table)
    console.print(
        f"{len(rows):,} of {len(decoded['candidates']):,} texts found,"
        f" {len(false):,} of them false (nobody answered them)"
    )


def _study(
    plan: Plan,
    users: int | None,
    repetitions: int,
    vary: str | None,
    originals: Any,
    seed: int | None,
    level: float,
    through: Any,
    plot: Path | None,
    as_json: bool,
) -> None:
    from shoal.lab.study import study

    check_plot(plot)
    grid = _grid(vary)
    points = len(next(iter(grid.values()))) if grid else 1
    with progress("repeating", repetitions * points) as advance:
        result = study(
            plan,
            users=users,
            repetitions=repetitions,
            vary=grid,
            answers=originals,
            seed=seed,
            level=level,
            through=through or "law",
            progress=advance,
        )
    if plot is not None:
        result.save_plot(plot)
    if as_json:
        print_json(result.to_json())
    else:
        from shoal.cli._study import show_study

        show_study(result.to_json(), plan.survey.name, plot)


def _grid(vary: str | None) -> Any:
    """Read NAME=A,B,...; the values stay text, except numbers of people."""
    if vary is None:
        return None
    name, _, values = vary.partition("=")
    grid: list[Any] = [value.strip() for value in values.split(",")]
    if name not in ("users", "q", "epsilon") or not all(grid):
        raise InputError(f"--vary takes users=, q= or epsilon= and values, got {vary[:80]!r}.")
    if name == "users":
        if not all(value.isascii() and value.isdigit() and len(value) < 16 for value in grid):
            raise InputError(f"users must be whole numbers, got {vary[:80]!r}.")
        grid = [int(value) for value in grid]
    return {name: grid}
