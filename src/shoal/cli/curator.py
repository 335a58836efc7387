"""`shoal curator`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from shoal.cli import options as cli
from shoal.cli import output as out
from shoal.cli.options import arg, opt
from shoal.errors import InputError
from shoal.support.rounding import text_down, text_near
from shoal.support.table_format import TableFormat

if TYPE_CHECKING:
    from shoal.curator import Budget, Curator, Release


@dataclass(frozen=True)
class _Query:
    """What is asked: one of the queries, with the options that go with it."""

    count: str | None = opt(
        "How many rows satisfy a predicate; without one, how many rows there are.",
        "[PREDICATE]",
        is_flag=False,
        flag_value="",
    )
    fraction: str | None = opt("Which fraction of the rows satisfies it.", "PREDICATE")
    sum: str | None = opt("The sum of a column; needs --bounds.", "COLUMN")
    mean: str | None = opt("The mean of a column; needs --bounds.", "COLUMN")
    histogram: str | None = opt("Rows per category; needs --categories.", "COLUMN")
    bounds: tuple[float, float] | None = opt(
        "Lowest and highest possible value, known before the data.", "LOW HIGH"
    )
    clamp: bool = opt("Move values outside the bounds to the nearer bound.")
    whole: bool = opt("All values are whole numbers: whole-number noise.")
    categories: str | None = opt("Every category, known before the data.", "A;B;C")
    categories_file: Path | None = opt("The categories, one per line.")
    other: bool = opt("Add a cell for values that are not declared.")
    epsilon: str = opt("Epsilon spent by this release.", "E")

    @property
    def name(self) -> str:
        """The one query asked for; options that belong to another one are refused."""
        queries = [name for name in _QUERIES if getattr(self, name) is not None]
        if len(queries) != 1:
            raise InputError(f"give one of {', '.join(f'--{name}' for name in _QUERIES)}.")
        (query,) = queries
        columns, cells = ("bounds", "clamp", "whole"), ("categories", "categories_file", "other")
        fitting = columns if query in ("sum", "mean") else cells if query == "histogram" else ()
        for name in (*columns, *cells):
            if name not in fitting and getattr(self, name) not in (None, False):
                raise InputError(f"--{name.replace('_', '-')} does not go with --{query}.")
        return query

    def release(self, curator: Curator) -> Release:
        subject, more = getattr(self, self.name), dict[str, Any]()
        if self.name == "count":
            subject = subject or None
        if self.name in ("sum", "mean"):
            more = {"bounds": self.bounds, "clamp": self.clamp, "whole": self.whole}
        elif self.name == "histogram":
            more = {
                "categories": _categories(self.categories, self.categories_file),
                "other": self.other,
            }
        ask = getattr(curator, self.name)
        released: Release = ask(subject, **more, epsilon=self.epsilon)
        return released


@cli.command("shoal curator people.csv --count 'age>=18' --epsilon 0.5 --neighbours replace")
def curator(
    *,
    data: Path = arg("DATA.csv|DATA.parquet"),
    query: _Query,
    neighbours: Literal["replace", "add-remove"] | None = opt(
        "Neighbouring tables: one row replaced, or one row added or removed.  [required]"
    ),
    budget: cli.OutFile | None = opt("A file that records the epsilon spent by all releases."),
    budget_total: str | None = opt("Start the budget file with this epsilon.", "E"),
    miss: float = opt("Chance that the error is larger than the stated accuracy.", default=0.05),
    level: float = cli.LEVEL,
    simultaneous: bool = opt("Intervals that cover all cells together."),
    table_format: TableFormat = cli.TABLE_FORMAT,
) -> out.Result:
    """Release statistics of a table you hold, as a trusted curator.

    Counts, fractions, sums, means and histograms get Laplace noise from OpenDP. PREDICATE is
    COLUMN=value, COLUMN!=value, COLUMN<number, <=, > or >=, joined by `and`.

    The curator sees everyone's data. To avoid that, use `shoal plan`. `shoal compare` shows
    how much precision the trust buys.
    """
    from shoal.curator import Curator
    from shoal.curator.noise import check_neighbours
    from shoal.support.checks import check_level

    query.name  # noqa: B018  refuses options that do not go together
    check_level(level)
    if not 0 < miss < 1:
        raise InputError(f"--miss must be strictly between 0 and 1, got {miss}.")
    neighbours = check_neighbours(neighbours)
    purse = _budget(budget, budget_total)
    holder = Curator(data, purse, neighbours=neighbours, table_format=table_format)
    release = query.release(holder)
    document = release.to_json(delta=miss, level=level, simultaneous=simultaneous)
    document["budget"] = purse.to_json() if purse else None
    return out.Result(document, _show(document, release.what))


_QUERIES = ("count", "fraction", "sum", "mean", "histogram")


def _budget(path: Path | None, total: str | None) -> Budget | None:
    from shoal.curator import Budget

    if path is None:
        if total is not None:
            raise InputError("--budget-total needs --budget, the file to record it in.")
        return None
    if total is None and not path.exists():
        raise InputError(f"there is no budget {path}; start one with --budget-total E.")
    return Budget(total, path)


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


def _show(document: dict[str, Any], what: str) -> out.Pieces:
    bounds, accuracy = document["interval"], document["accuracy"]
    level = text_near(bounds["level"])
    if "value" in document:
        yield out.title(what, _number(document["value"]))
        ends = f"{_number(bounds['low'])} to {_number(bounds['high'])}"
        yield f"interval     {ends} at {level}"
    else:
        together = ", all together" if bounds["kind"] == "simultaneous" else ""
        yield out.title(what, f"intervals at {level}{together}")
        rows = [
            (label, *map(_number, (value, bounds["low"][label], bounds["high"][label])))
            for label, value in document["values"].items()
        ]
        yield out.table(["category", "count", "low", "high"], rows)
    if not document["scale"]:
        yield "noise        none: under replace the number of rows is public"
        return
    noise = "whole-number" if document["noise"] == "integer" else "real-valued"
    yield (
        f"noise        {noise} Laplace, scale {_number(document['scale'])}"
        f" = sensitivity {_number(document['sensitivity'])} / epsilon"
        f" {text_near(document['epsilon'], 6)}"
    )
    yield (
        f"accuracy     within {_number(accuracy['alpha'])} of the truth with probability at"
        f" least {text_down(1 - accuracy['delta'], 6)} ({accuracy['kind']})"
    )
    if (budget := document["budget"]) is not None:
        yield f"budget       {budget['spent']} of {budget['epsilon']} spent, {budget['left']} left"
    yield "\nAssumptions:"
    yield out.bullets(document["assumptions"])


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else out.grouped(value, 6)
