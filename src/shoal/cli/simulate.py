"""`shoal simulate`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from shoal.agreement.plan import Plan
from shoal.cli._common import (
    IN_FILE,
    OUT_FILE,
    interval_option,
    json_option,
    level_option,
    outward,
    print_json,
    printer,
    progress,
    target_option,
)
from shoal.errors import InputError


@click.command()
@click.argument("plan_file", type=IN_FILE, metavar="PLAN.json")
@click.option("--users", type=int, metavar="N", help="How many people to simulate.")
@click.option("--answers", type=IN_FILE, help="Draw the people from these answers.")
@click.option(
    "--texts",
    type=IN_FILE,
    help="What they answer to text: lines that fall off like 1 / rank, or a .csv of text,weight.",
)
@click.option("--zipf", type=float, metavar="S", help="With --texts of lines: like 1 / rank^S.")
@click.option("--seed", type=int, help="Repeat a run exactly.")
@click.option("--repeat", type=int, metavar="R", help="Study R runs on the same people.")
@click.option(
    "--vary", metavar="NAME=A,B,...", help="With --repeat: a study at each users, q or epsilon."
)
@click.option(
    "--through",
    type=click.Choice(["law", "path"]),
    help="Draw counts from their law (the default of --repeat and of text), or make every report.",
)
@click.option("-o", "--output", type=OUT_FILE, help="Where to write the simulated tally.")
@click.option("--plot", type=OUT_FILE, help="With --repeat: draw it, as .png, .svg or .pdf.")
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
    output: Path | None,
    plot: Path | None,
    level: float,
    kind: Any,
    target: Any,
    as_json: bool,
) -> None:
    """Try a plan on people who do not exist, and see the truth beside each estimate.

    With --repeat the same people report again and again: bias, sigma against theory, and how often
    each kind of interval holds the truth.
    """
    from shoal.evidence.simulation import simulate

    if repeat is None and (vary or plot):
        raise InputError("--vary and --plot belong to a study; give --repeat too.")
    if repeat is not None and (texts or output):
        raise InputError("--texts and --output are for one run; leave out --repeat.")
    if zipf is not None and texts is None:
        raise InputError("--zipf says how texts fall off; give --texts too.")
    if repeat is not None and target != "crowd":
        raise InputError("a study keeps the people and repeats the flips: its target is the crowd.")
    plan = Plan.read(plan_file)
    originals = None
    if answers is not None:
        from shoal.device.bulk.answer_files import read_answers

        originals = read_answers(plan.survey, answers)
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

        # What is text stands below, with its truth.
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
    from shoal.analysis.text.candidates import read_candidates
    from shoal.evidence.populations import read_weights, zipf

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
    false = sum(row["truth"] == 0 for row in rows)
    table = Table(title=escape(question), title_justify="left", box=None, pad_edge=False)
    table.add_column("text", overflow="fold")
    for name in ("truth", "count", "low", "high"):
        table.add_column(name, justify="right")
    for row in rows[:most]:
        numbers = f"{row['truth']:,}", f"{row['count']:,.0f}", *outward(row["low"], row["high"])
        table.add_row(escape(" = ".join([row["value"], *row.get("same_as", [])[:3]])), *numbers)
    console.print()
    console.print(table)
    console.print(
        f"{len(rows):,} of {len(decoded['candidates']):,} texts found, {false:,} of them nobody's"
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
    from shoal.evidence.study import study

    if plot is not None:
        from shoal.charts import check_suffix

        check_suffix(plot)
    grid = _grid(vary)
    points = len(next(iter(grid.values()))) if grid else 1
    with progress("repeating", repetitions * points) as advance:
        found = study(
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
        found.save_plot(plot)
    if as_json:
        print_json(found.to_json())
    else:
        _show(found.to_json(), plan.survey.name, plot)


def _grid(vary: str | None) -> Any:
    """Read NAME=A,B,...; the values stay text, except numbers of people."""
    if vary is None:
        return None
    name, _, values = vary.partition("=")
    listed: list[Any] = [value.strip() for value in values.split(",")]
    if name not in ("users", "q", "epsilon") or not all(listed):
        raise InputError(f"--vary takes users=, q= or epsilon= and values, got {vary[:80]!r}.")
    if name == "users":
        if not all(value.isascii() and value.isdigit() and len(value) < 16 for value in listed):
            raise InputError(f"users must be whole numbers, got {vary[:80]!r}.")
        listed = [int(value) for value in listed]
    return {name: listed}


def _show(document: dict[str, Any], name: str, plot: Path | None) -> None:
    from rich.markup import escape
    from rich.table import Table

    console = printer()
    console.print(
        f"[bold]{escape(name)}[/bold]: {document['repetitions']:,} repetitions through the"
        f" {document['through']}, intervals at {document['level']:.4g}, for the crowd; seed"
        f" {document['seed']}"
    )
    console.print("[yellow]simulated: these numbers are about nobody[/yellow]")
    for point in document["points"]:
        promise = point["promise"]
        title = f"{point['users']:,} people, q = {point['q']:.5g}"
        if document["vary"] == "epsilon":
            title += f", {promise['kind']} at epsilon {promise['epsilon']}"
        table = Table(title=title, title_justify="left", box=None, pad_edge=False)
        table.add_column("", overflow="fold")
        for column in ("truth", "bias", "sigma", "/theory", *_KINDS.values()):
            table.add_column(column, justify="right", no_wrap=True)
        for question, options in point["questions"].items():
            table.add_row(f"[bold]{escape(question)}[/bold]")
            for label, row in options.items():
                for cells, style in _lines(label, row):
                    table.add_row(*map(escape, cells), style=style)
        console.print()
        console.print(table)
        for question, one in point["together"].items():
            console.print(
                f"all of {escape(question)} held by simultaneous intervals:"
                f" {one['measured']:.2%}, by the law {one['expected']:.2%}"
            )
    if plot is not None:
        console.print(f"\nwritten to {escape(str(plot))}", soft_wrap=True)


_KINDS = {"exact": "exact", "normal": "normal", "simultaneous": "simult.", "chebyshev": "cheb."}


def _lines(label: str, row: dict[str, Any]) -> list[tuple[list[str], str]]:
    """Return what was measured, and below it what the law says; coverages in per cent."""
    covered = [
        [f"{100 * row['coverage'][kind][which]:.2f}" for kind in _KINDS]
        for which in ("measured", "expected")
    ]
    bias = f"{row['bias']:,.2f}±{row['bias_error']:.2f}"
    measured = [f"{row['truth']:,}", bias, f"{row['sigma']:,.1f}", f"{row['sigma_ratio']:.4f}"]
    law = ["", "0", f"{row['sigma_theory']:,.1f}", "1"]
    return [([label, *measured, *covered[0]], ""), (["  by the law", *law, *covered[1]], "dim")]
