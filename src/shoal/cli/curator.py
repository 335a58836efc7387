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
    from shoal.curator import Budget, Curator, Neighbours, Release, SurveyRelease


@dataclass(frozen=True)
class _Query:
    """A single query: one of them, with the options that go with it."""

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
    miss: float | None = opt("Chance of an error beyond the stated accuracy.  [default: 0.05]")
    simultaneous: bool = opt("Intervals that cover all cells together.")

    @property
    def name(self) -> str:
        """The one query asked for; options that belong to another one are refused."""
        queries = [name for name in _QUERIES if getattr(self, name) is not None]
        if len(queries) != 1:
            raise InputError(
                f"give one of {', '.join(f'--{name}' for name in _QUERIES)}, or a survey before"
                " the table."
            )
        (query,) = queries
        columns, cells = ("bounds", "clamp", "whole"), ("categories", "categories_file", "other")
        fitting = columns if query in ("sum", "mean") else cells if query == "histogram" else ()
        for name in (*columns, *cells):
            if name not in fitting and getattr(self, name) not in (None, False):
                raise InputError(f"--{name.replace('_', '-')} does not go with --{query}.")
        return query

    def release(self, curator: Curator, epsilon: str) -> Release:
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
        released: Release = ask(subject, **more, epsilon=epsilon)
        return released


@dataclass(frozen=True)
class _Page:
    output: cli.OutFile | None = opt(
        "Write a survey's page (.html), table (.csv, .md) or data (.json, .parquet, .arrow).",
        names="-o --output",
    )
    delta: str | None = cli.DELTA.when("With a survey")
    options_are_public: bool = opt("Declare that inferred options and limits are public.")
    title: str | None = opt("Title of the page.  [default: the survey's name]", "TEXT")
    date: str | None = opt("Date in the citation, printed as given.", "TEXT")


@dataclass(frozen=True)
class _Terms:
    epsilon: str = opt("Epsilon spent by this release.", "E")
    neighbours: Literal["replace", "add-remove"] | None = opt(
        "Neighbouring tables: one row replaced, or one row added or removed.  [required]"
    )
    budget_file: cli.OutFile | None = opt(
        "A file that records what all releases spend.", names="--budget"
    )
    budget_total: str | None = opt("Start the budget file with this epsilon.", "E")
    budget_delta: str | None = opt("Start the budget file with this delta too.", "D")
    level: float = cli.LEVEL

    @property
    def relation(self) -> Neighbours:
        from shoal.curator.noise import check_neighbours

        return check_neighbours(self.neighbours)

    def budget(self) -> Budget | None:
        from shoal.curator import Budget

        path, total = self.budget_file, self.budget_total
        if path is None:
            if (total, self.budget_delta) != (None, None):
                raise InputError("--budget-total needs --budget, the file to record it in.")
            return None
        if total is None and not path.exists():
            raise InputError(f"there is no budget {path}; start one with --budget-total E.")
        return Budget(total, path, delta=self.budget_delta)


@cli.command(
    "shoal curator survey.toml data.csv --epsilon 1 --neighbours replace -o a.html\n"
    "shoal curator people.csv --count 'age>=18' --epsilon 0.5 --neighbours replace"
)
def curator(
    *,
    files: tuple[Path, ...] = arg("[SURVEY.toml] DATA"),
    terms: _Terms,
    page: _Page,
    query: _Query,
    table: cli.TableOptions,
) -> out.Result:
    """Release statistics of a table you hold, as a trusted curator.

    With a survey, every question, cross table, mean and quantile is released at once, on the same
    page as a crowd's. Without one, a single query is answered: PREDICATE is COLUMN=value,
    COLUMN!=value, COLUMN<number, <=, > or >=, joined by `and`. OpenDP draws the noise.

    The curator sees everyone's data. To avoid that, use `shoal plan`. `shoal compare` shows
    how much precision the trust buys.
    """
    from shoal.support.checks import check_level

    check_level(terms.level)
    terms.relation  # noqa: B018  refuses that none is given
    survey = files[0] if files and files[0].suffix.lower() == ".toml" else None
    if len(files) != (1 if survey is None else 2):
        raise InputError("give a table with a row for each person, and a survey (.toml) before it.")
    if survey is None:
        _refuse(page, "goes with a survey, which stands before the table")
        return _answer(files[0], query, terms, table)
    _refuse(query, "is for a single query, without a survey")
    return _release(survey, files[1], page, terms, table)


def _refuse(options: _Query | _Page, why: str) -> None:
    for name, value in vars(options).items():
        if value not in (None, False):
            raise InputError(f"--{name.replace('_', '-')} {why}.")


def _release(
    survey: Path, data: Path, page: _Page, terms: _Terms, table: cli.TableOptions
) -> out.Result:
    from shoal.curator import release
    from shoal.curator.survey_release import table_format_of
    from shoal.reports.publication import check_suffix

    if page.output is not None:
        check_suffix(page.output)
        for source in (survey, data):
            cli.check_not_same(source, page.output)
        if not page.output.absolute().parent.is_dir():
            raise InputError(f"there is no folder {page.output.parent} to write to.")
    declared = table_format_of(survey)
    released = release(
        survey,
        data,
        epsilon=terms.epsilon,
        delta=page.delta,
        neighbours=terms.relation,
        options_are_public=page.options_are_public,
        budget=terms.budget(),
        table_format=table.table_format(declared).replaced(inferred=declared.inferred),
        level=terms.level,
        title=page.title,
        date=page.date,
    )
    if page.output is not None:
        released.write(page.output)
    return out.Result(released.to_json(), _show_survey(released, page.output))


def _show_survey(released: SurveyRelease, output: Path | None) -> out.Pieces:
    from shoal.cli.estimate import show_estimates, show_numbers

    document = released.to_json()
    if output is None:
        yield from show_estimates(document["estimates"], document["title"], "rows")
        for question, summary in document["numbers"].items():
            yield from show_numbers(question, summary)
        yield ""
    promise, noise = document["promise"], document["noise"]
    yield out.title(document["title"], promise["short"])
    yield (
        f"noise        {noise['distribution']}, standard deviation {_number(noise['sigma'])}"
        " of every count"
    )
    yield from _budget_line(document["budget"])
    yield "\nAssumptions:"
    yield out.bullets(promise["assumptions"])
    if output is not None:
        yield from out.written(output)


def _answer(data: Path, query: _Query, terms: _Terms, table: cli.TableOptions) -> out.Result:
    from shoal.curator import Curator

    query.name  # noqa: B018  refuses options that do not go together
    miss = 0.05 if query.miss is None else query.miss
    if not 0 < miss < 1:
        raise InputError(f"--miss must be strictly between 0 and 1, got {miss}.")
    written, budget = table.table_format(TableFormat()), terms.budget()
    holder = Curator(data, budget, neighbours=terms.relation, table_format=written)
    release = query.release(holder, terms.epsilon)
    document = release.to_json(delta=miss, level=terms.level, simultaneous=query.simultaneous)
    document["budget"] = budget.to_json() if budget else None
    return out.Result(document, _show(document, release.what))


_QUERIES = ("count", "fraction", "sum", "mean", "histogram")


def _budget_line(budget: dict[str, Any] | None) -> out.Pieces:
    if budget is None:
        return
    delta = ""
    if budget["delta"] != "0":
        delta = f"; delta {budget['delta_spent']} of {budget['delta']}"
    spent = f"{budget['spent']} of {budget['epsilon']} spent, {budget['left']} left"
    yield f"budget       {spent}{delta}"


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
    yield from _budget_line(document["budget"])
    yield "\nAssumptions:"
    yield out.bullets(document["assumptions"])


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else out.grouped(value, 6)
