"""`shoal curator`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shoal.cli import options as cli
from shoal.cli import output as out
from shoal.errors import InputError
from shoal.support.rounding import text_down, text_near

if TYPE_CHECKING:
    from shoal.curator import Budget, Curator, Release
    from shoal.support.table_format import TableFormat


@cli.command("shoal curator people.csv --count 'age>=18' --epsilon 0.5 --neighbours replace")
@click.argument("data", type=cli.IN_FILE, metavar="DATA.csv|DATA.parquet")
@cli.option(
    "--count",
    "How many rows satisfy a predicate; without one, how many rows there are.",
    is_flag=False,
    flag_value="",
    metavar="[PREDICATE]",
)
@cli.option("--fraction", "Which fraction of the rows satisfies it.", metavar="PREDICATE")
@cli.option("--sum", "The sum of a column; needs --bounds.", metavar="COLUMN")
@cli.option("--mean", "The mean of a column; needs --bounds.", metavar="COLUMN")
@cli.option("--histogram", "Rows per category; needs --categories.", metavar="COLUMN")
@cli.option(
    "--bounds",
    "Lowest and highest possible value, known before the data.",
    type=cli.DECIMAL,
    nargs=2,
    metavar="LOW HIGH",
)
@cli.option("--clamp", "Move values outside the bounds to the nearer bound.", is_flag=True)
@cli.option("--whole", "All values are whole numbers: whole-number noise.", is_flag=True)
@cli.option("--categories", "Every category, known before the data.", metavar="A;B;C")
@cli.option("--categories-file", "The categories, one per line.", type=cli.IN_FILE)
@cli.option("--other", "Add a cell for values that are not declared.", is_flag=True)
@cli.option("--epsilon", "Epsilon spent by this release.", metavar="E", required=True)
@cli.option(
    "--neighbours",
    "Neighbouring tables: one row replaced, or one row added or removed.  [required]",
    type=click.Choice(["replace", "add-remove"]),
)
@cli.option("--budget", "A file that records the epsilon spent by all releases.", type=cli.OUT_FILE)
@cli.option("--budget-total", "Start the budget file with this epsilon.", metavar="E")
@cli.option(
    "--miss",
    "Chance that the error is larger than the stated accuracy.",
    type=cli.DECIMAL,
    default=0.05,
)
@cli.level_option
@cli.option("--simultaneous", "Intervals that cover all cells together.", is_flag=True)
@cli.table_format_options
@cli.json_option
def curator(
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

    The curator sees everyone's data. To avoid that, use `shoal plan`. `shoal compare` shows
    how much precision the trust buys.
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
    holder = Curator(data, purse, neighbours=neighbours, table_format=table_format)
    release = _release(holder, query, request)
    document = release.to_json(delta=miss, level=level, simultaneous=simultaneous)
    document["budget"] = purse.to_json() if purse else None
    out.show_result(document, as_json, _show, release.what)


_QUERIES = ("count", "fraction", "sum", "mean", "histogram")


def _one_query(request: dict[str, Any]) -> str:
    """Return the one query asked for, and refuse options that belong to another one."""
    queries = [name for name in _QUERIES if request[name] is not None]
    if len(queries) != 1:
        raise InputError(f"give one of {', '.join(f'--{name}' for name in _QUERIES)}.")
    (query,) = queries
    columns, cells = ("bounds", "clamp", "whole"), ("categories", "categories_file", "other")
    fitting = columns if query in ("sum", "mean") else cells if query == "histogram" else ()
    for name in (*columns, *cells):
        if name not in fitting and request[name] not in (None, False):
            raise InputError(f"--{name.replace('_', '-')} does not go with --{query}.")
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
    console = out.printer()
    bounds, accuracy = document["interval"], document["accuracy"]
    level = text_near(bounds["level"])
    if "value" in document:
        out.show_title(console, what, _number(document["value"]))
        ends = f"{_number(bounds['low'])} to {_number(bounds['high'])}"
        console.print(f"interval     {ends} at {level}")
    else:
        together = ", all together" if bounds["kind"] == "simultaneous" else ""
        out.show_title(console, what, f"intervals at {level}{together}")
        rows = [
            (label, *map(_number, (value, bounds["low"][label], bounds["high"][label])))
            for label, value in document["values"].items()
        ]
        console.print(out.table(["category", "count", "low", "high"], rows))
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
    out.show_bullets(console, document["assumptions"])


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else out.grouped(value, 6)
