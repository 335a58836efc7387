"""`shoal simulate`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shoal.cli import options as cli
from shoal.cli import output as out
from shoal.errors import InputError
from shoal.protocol.plan import Plan
from shoal.support.rounding import text_near

if TYPE_CHECKING:
    from rich.table import Table

    from shoal.support.table_format import TableFormat

_KINDS = ("exact", "normal", "simultaneous", "chebyshev")


@cli.command("shoal simulate plan.json --users 10000")
@cli.plan_argument
@cli.option("--users", "How many people to simulate.", type=cli.WHOLE, metavar="N")
@cli.option("--answers", "Draw the people from these answers.", type=cli.IN_FILE)
@cli.option(
    "--texts",
    "Answers to text questions: one text per line, the text at rank r with weight 1/r, or a"
    " .csv of text,weight.",
    type=cli.IN_FILE,
)
@cli.option("--zipf", "With --texts: weight 1/r^S instead.", type=cli.DECIMAL, metavar="S")
@cli.option("--seed", "Seed of the simulated data.  [default: random]", type=cli.WHOLE)
@cli.option("--repeat", "Study R runs on the same people.", type=cli.WHOLE, metavar="R")
@cli.option("--vary", "With --repeat: a study at each users, q or epsilon.", metavar="NAME=A,B,...")
@cli.option(
    "--through",
    "Draw counts from their exact distribution, or make every report.  [default: distribution"
    " with --repeat or text, else reports]",
    type=click.Choice(["distribution", "reports"]),
)
@cli.table_format_options
@cli.output_option("the simulated tally")
@cli.plot_option
@cli.estimate_options
@cli.json_option
def simulate(
    plan: Plan,
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
    if repeat is None and (vary or plot):
        raise InputError("--vary and --plot are for a study; give --repeat too.")
    if repeat is not None and (texts or output):
        raise InputError("--texts and --output are for one run; leave out --repeat.")
    if zipf is not None and texts is None:
        raise InputError("--zipf gives weights to texts; give --texts too.")
    if repeat is not None and target != "crowd":
        raise InputError("a study repeats the flips on the same people; use --target crowd.")
    people: dict[str, Any] = {"users": users, "answers": None, "seed": seed}
    if answers is not None:
        from shoal.device.arrays.answer_files import read_answers

        people["answers"] = read_answers(plan.survey, answers, table_format)
    if repeat is not None:
        _study(plan, people, repeat, vary, level, through or "distribution", plot, as_json)
        return
    from shoal.lab.simulation import simulate

    with out.progress("simulating", users) as advance:
        run = simulate(
            plan,
            **people,
            texts=_read_weights(texts, zipf),
            through=through,
            target=target,
            progress=advance,
        )
    if output is not None:
        run.estimates.tally.write(output)
    document = run.to_json(level, kind)
    if as_json:
        out.print_json(document)
        return
    from shoal.cli.estimate import show_estimates

    notes = [] if "texts" in document else document["notes"]  # texts are shown below
    show_estimates(document | {"notes": notes}, plan.survey.name)
    for question, decoded in document.get("texts", {}).items():
        _show_texts(question, decoded)
    out.show_written(out.printer(), output, "tally written to")


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


def _show_texts(question: str, decoded: dict[str, Any], shown: int = 20) -> None:
    from shoal.cli.text import same_texts

    console = out.printer()
    found = [row for row in decoded["candidates"] if row["found"]]
    false = [row for row in found if row["truth"] == 0]
    rows = []
    for row in found[:shown]:
        numbers = f"{row['truth']:,}", f"{row['count']:,.0f}", *out.outward(row["low"], row["high"])
        rows.append((same_texts(row), *numbers))
    console.print()
    console.print(out.table(["text", "truth", "count", "low", "high"], rows, title=question))
    console.print(
        f"{len(found):,} of {len(decoded['candidates']):,} texts found,"
        f" {len(false):,} of them false (given by no person)"
    )


def _study(
    plan: Plan,
    people: dict[str, Any],
    repetitions: int,
    vary: str | None,
    level: float,
    through: Any,
    plot: Path | None,
    as_json: bool,
) -> None:
    from shoal.lab.study import study

    cli.check_plot(plot)
    grid = _grid(vary)
    points = len(next(iter(grid.values()))) if grid else 1
    with out.progress("repeating", repetitions * points) as advance:
        result = study(
            plan,
            **people,
            repetitions=repetitions,
            vary=grid,
            level=level,
            through=through,
            progress=advance,
        )
    if plot is not None:
        result.save_plot(plot)
    out.show_result(result.to_json(), as_json, _show_study, plan.survey.name, plot)


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


def _show_study(document: dict[str, Any], name: str, plot: Path | None) -> None:
    """Print two tables for each point: errors beside theory, and coverage of the intervals."""
    console = out.printer()
    out.show_title(
        console,
        name,
        f"{document['repetitions']:,} repetitions through the {document['through']}, intervals at"
        f" {text_near(document['level'])}, for the crowd; seed {document['seed']}",
        simulated=True,
    )
    for point in document["points"]:
        promise = point["promise"]
        title = f"{point['users']:,} people, q = {text_near(point['q'], 5)}"
        if document["vary"] == "epsilon":
            title += f", {promise['kind']} at epsilon {promise['epsilon']}"
        console.print()
        console.print(_table(title, point, ("truth", "bias", "sigma", "theory", "ratio"), _errors))
        console.print()
        coverage = "coverage of the truth in %, in brackets as computed"
        console.print(_table(coverage, point, _KINDS, _coverages))
        for question, together in point["together"].items():
            console.print(
                f"all of {question} held by simultaneous intervals: {together['measured']:.2%},"
                f" computed {together['expected']:.2%}",
                markup=False,
            )
    out.show_written(console, plot, "\nwritten to")


def _table(
    title: str,
    point: dict[str, Any],
    columns: Sequence[str],
    cells: Callable[[dict[str, Any]], list[str]],
) -> Table:
    rows: list[Sequence[Any]] = []
    for question, options in point["questions"].items():
        rows.append((out.bold(question),))
        rows += [(label, *cells(row)) for label, row in options.items()]
    return out.table(["", *columns], rows, title=title)


def _errors(row: dict[str, Any]) -> list[str]:
    return [
        f"{row['truth']:,}",
        f"{row['bias']:,.2f}±{row['bias_error']:.2f}",
        f"{row['sigma']:,.1f}",
        f"{row['sigma_theory']:,.1f}",
        f"{row['sigma_ratio']:.4f}",
    ]


def _coverages(row: dict[str, Any]) -> list[str]:
    both = [row["coverage"][kind] for kind in _KINDS]
    return [f"{100 * one['measured']:.2f} ({100 * one['expected']:.2f})" for one in both]
