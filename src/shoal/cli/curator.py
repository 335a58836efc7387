"""`shoal curator`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shoal.cli._commands import Command
from shoal.cli._options import (
    IN_FILE,
    OUT_FILE,
    json_option,
    level_option,
    table_format_options,
)
from shoal.cli._printing import grouped, print_json, printer, show_bullets
from shoal.cli._types import DECIMAL
from shoal.errors import InputError
from shoal.support.rounding import text_down, text_near

if TYPE_CHECKING:
    from shoal.curator import Budget, Curator, Release
    from shoal.support.table_format import TableFormat


@click.command(
    cls=Command,
    example="shoal curator people.csv --count 'age>=18' --epsilon 0.5 --neighbours replace",
)
@click.argument("data", type=IN_FILE, metavar="DATA.csv|DATA.parquet")
@click.option(
    "--count",
    is_flag=False,
    flag_value="",
    metavar="[PREDICATE]",
    help="How many rows satisfy a predicate; without one, how many rows there are.",
)
@click.option("--fraction", metavar="PREDICATE", help="Which fraction of the rows satisfies it.")
@click.option("--sum", metavar="COLUMN", help="The sum of a column; needs --bounds.")
@click.option("--mean", metavar="COLUMN", help="The mean of a column; needs --bounds.")
@click.option("--histogram", metavar="COLUMN", help="Rows per category; needs --categories.")
@click.option(
    "--bounds",
    type=DECIMAL,
    nargs=2,
    metavar="LOW HIGH",
    help="Lowest and highest value anybody may have, known before the data.",
)
@click.option("--clamp", is_flag=True, help="Move values outside the bounds to the nearer bound.")
@click.option("--whole", is_flag=True, help="All values are whole numbers: whole-number noise.")
@click.option("--categories", metavar="A;B;C", help="Every category, known before the data.")
@click.option("--categories-file", type=IN_FILE, help="The categories, one per line.")
@click.option("--other", is_flag=True, help="Add a cell for values that are not declared.")
@click.option("--epsilon", metavar="E", required=True, help="What this release spends.")
@click.option(
    "--neighbours",
    type=click.Choice(["replace", "add-remove"]),
    help="Neighbouring tables: one row replaced, or one row added or removed.  [required]",
)
@click.option("--budget", type=OUT_FILE, help="A file that records what all releases spend.")
@click.option("--budget-total", metavar="E", help="Start the budget file with this epsilon.")
@click.option(
    "--miss",
    type=DECIMAL,
    default=0.05,
    show_default=True,
    help="Chance that the error is larger than the stated accuracy.",
)
@level_option
@click.option("--simultaneous", is_flag=True, help="Intervals that cover all cells together.")
@table_format_options
@json_option
def command(
    data: Path,
    budget: Path | None,
    budget_total: str | None,
    neighbours: Any,
    miss: float,
    level: float,
    simultaneous: bool,
    table_format: TableFormat,
    as_json: bool,
    **request: Any,
) -> None:
    """Release statistics of a table you hold, as a trusted curator.

    Counts, fractions, sums, means and histograms get Laplace noise from OpenDP. PREDICATE is
    COLUMN=value, COLUMN!=value, COLUMN<number, <=, > or >=, joined by `and`.

    The curator sees everybody's data. If nobody should, use `shoal plan`. `shoal compare` shows
    what the trust buys.
    """
    from shoal.curator import Curator
    from shoal.curator.noise import check_neighbours
    from shoal.support.checks import check_level

    query = _one_query(request)
    check_level(level)
    if not 0 < miss < 1:
        raise InputError(f"--miss must be strictly between 0 and 1, got {miss}.")
    check_neighbours(neighbours)
    purse = _budget(budget, budget_total)
    curator = Curator(data, purse, neighbours=neighbours, table_format=table_format)
    release = _release(curator, query, request)
    document = release.to_json(delta=miss, level=level, simultaneous=simultaneous)
    document["budget"] = purse.to_json() if purse else None
    if as_json:
        print_json(document)
    else:
        _show(document, release.what)


_QUERIES = ("count", "fraction", "sum", "mean", "histogram")


def _one_query(request: dict[str, Any]) -> str:
    """Return the one query asked for, and refuse options that belong to another one."""
    queries = [name for name in _QUERIES if request[name] is not None]
    if len(queries) != 1:
        raise InputError(f"give one of {', '.join(f'--{name}' for name in _QUERIES)}.")
    (query,) = queries
    column = query in ("sum", "mean")
    for option, fits in (
        ("bounds", column),
        ("clamp", column),
        ("whole", column),
        ("categories", query == "histogram"),
        ("categories_file", query == "histogram"),
        ("other", query == "histogram"),
    ):
        if request[option] not in (None, False) and not fits:
            raise InputError(f"--{option.replace('_', '-')} does not go with --{query}.")
    return query


def _budget(path: Path | None, total: str | None) -> Budget | None:
    from shoal.curator import Budget

    if path is None:
        if total is not None:
            raise InputError("--budget-total needs --budget, the file to record it in.")
        return None
    if total is None and not path.exists():
        raise InputError(f"there is no budget {path}; start one with --budget-total E.")
    return Budget(total, path)


def _release(curator: Curator, query: str, request: dict[str, Any]) -> Release:
    epsilon, subject = request["epsilon"], request[query]
    if query == "count":
        return curator.count(subject or None, epsilon=epsilon)
    if query == "fraction":
        return curator.fraction(subject, epsilon=epsilon)
    if query == "histogram":
        categories = _categories(request["categories"], request["categories_file"])
        return curator.histogram(
            subject, categories=categories, other=request["other"], epsilon=epsilon
        )
    release = curator.sum if query == "sum" else curator.mean
    return release(
        subject,
        bounds=request["bounds"],
        clamp=request["clamp"],
        whole=request["whole"],
        epsilon=epsilon,
    )


def _categories(text: str | None, path: Path | None) -> list[str]:
    if (text is None) == (path is None):
        raise InputError(
            "a histogram needs its categories, as --categories A;B;C or in --categories-file;"
            " taking them from the data would give away who has a rare one."
        )
    if text is not None:
        return text.split(";")
    assert path is not None
    try:
        return path.read_text("utf-8").splitlines()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or 'unreadable'}.") from error
    except UnicodeDecodeError:
        raise InputError(f"{path} is not text in UTF-8.") from None


def _show(document: dict[str, Any], what: str) -> None:
    from rich.markup import escape
    from rich.table import Table

    console = printer()
    bounds, accuracy = document["interval"], document["accuracy"]
    together = ", all together" if bounds["kind"] == "simultaneous" else ""
    if "value" in document:
        console.print(f"[bold]{escape(what)}[/bold]: {_number(document['value'])}")
        console.print(
            f"interval     {_number(bounds['low'])} to {_number(bounds['high'])}"
            f" at {text_near(bounds['level'])}"
        )
    else:
        level = text_near(bounds["level"])
        console.print(f"[bold]{escape(what)}[/bold]: intervals at {level}{together}")
        table = Table(box=None, pad_edge=False)
        table.add_column("category", overflow="fold")
        for name in ("count", "low", "high"):
            table.add_column(name, justify="right", no_wrap=True)
        for label, value in document["values"].items():
            ends = (bounds["low"][label], bounds["high"][label])
            table.add_row(escape(label), *map(_number, (value, *ends)))
        console.print(table)
    if not document["scale"]:
        console.print("noise        none: under replace the number of rows is public")
        return
    noise = "whole-number" if document["noise"] == "integer" else "real-valued"
    console.print(
        f"noise        {noise} Laplace, scale {_number(document['scale'])}"
        f" = sensitivity {_number(document['sensitivity'])} / epsilon"
        f" {text_near(document['epsilon'], 6)}"
    )
    console.print(
        f"accuracy     within {_number(accuracy['alpha'])} of the truth with probability at"
        f" least {text_down(1 - accuracy['delta'], 6)} ({accuracy['kind']})"
    )
    if document["budget"] is not None:
        budget = document["budget"]
        console.print(
            f"budget       {budget['spent']} of {budget['epsilon']} spent, {budget['left']} left"
        )
    console.print("\nAssumptions:")
    show_bullets(console, document["assumptions"])


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else grouped(value, 6)
