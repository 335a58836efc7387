"""Options that commands share."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import Any, TypeVar

import click

from shoal.cli._types import DECIMAL, WHOLE
from shoal.errors import InputError
from shoal.protocol.plan import Plan
from shoal.protocol.survey import Choice, Flags, Question, Survey
from shoal.server.core.settings import SettingsTable

R = TypeVar("R")
C = TypeVar("C", bound=Callable[..., Any])


def _place(name: str, **rules: bool) -> click.Path:
    """Return the type of a path that help calls by this name."""
    place = click.Path(path_type=Path, **rules)
    place.name = name
    return place


IN_FILE, IN_FOLDER = _place("file"), _place("folder")
OUT_FILE, OUT_FOLDER = _place("file", dir_okay=False), _place("folder", file_okay=False)

plan_argument = click.argument("plan_file", type=IN_FILE, metavar="PLAN.json")
tally_argument = click.argument("tally_file", type=IN_FILE, metavar="TALLY.json")

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document instead of text."
)
level_option = click.option(
    "--level", type=DECIMAL, default=0.95, show_default=True, help="Confidence level of intervals."
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
    help="Estimate the people who reported, or the population they are a sample of.",
)
releases_option = click.option(
    "--releases", type=WHOLE, metavar="R", help="How many releases one person reports in."
)
plot_option = click.option("--plot", type=OUT_FILE, help="Save a chart: .png, .svg or .pdf.")


def crowd_option(*, required: bool = False, when: str = "") -> Callable[[C], C]:
    """Add `--crowd`; `when` says what it is for, where it is not always needed."""
    text = _when(when, "How many reports are released together.")
    return click.option("--crowd", type=WHOLE, metavar="N", required=required, help=text)


def epsilon_option(*, required: bool = False, when: str = "") -> Callable[[C], C]:
    """Add `--epsilon`, a decimal as it is written."""
    text = _when(when, "The largest epsilon allowed.")
    return click.option("--epsilon", metavar="E", required=required, help=text)


def delta_option(
    *, required: bool = False, when: str = "", default: str | None = None
) -> Callable[[C], C]:
    """Add `--delta`, a decimal as it is written."""
    text = _when(when, "The largest delta allowed.")
    return click.option(
        "--delta",
        metavar="D",
        required=required,
        default=default,
        show_default=default is not None,
        help=text,
    )


def q_option(*, required: bool = False, when: str = "") -> Callable[[C], C]:
    """Add `--q`, a decimal as it is written."""
    text = _when(when, "The flip probability of each bit, in (0, 1/2].")
    return click.option("--q", metavar="Q", required=required, help=text)


def view_option(*, default: str | None = "reports", when: str = "") -> Callable[[C], C]:
    """Add `--view`, what the observer sees against whom the promise holds."""
    text = _when(when, "The promise is for whoever sees all reports, or only counts.")
    return click.option(
        "--view",
        type=click.Choice(["reports", "counts"]),
        default=default,
        show_default=default is not None,
        help=text,
    )


def parties_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add `--relay`, `--analyzer` and `--messages`, given to the command as `parties`."""

    @click.option("--relay", metavar="URL", help="Origin of the relay: it sees who sends.")
    @click.option("--analyzer", metavar="URL", help="Origin of the analyzer: it sees what is sent.")
    @click.option(
        "--messages",
        type=WHOLE,
        metavar="W",
        help="With --view counts: messages of one report.  [default: as few as will do]",
    )
    @wraps(command)
    def with_parties(
        *args: Any, relay: str | None, analyzer: str | None, messages: int | None, **kwargs: Any
    ) -> R:
        parties = {"relay": relay, "analyzer": analyzer, "messages": messages}
        return command(*args, parties=parties, **kwargs)

    return with_parties


def fdr_option(default: float) -> Callable[[C], C]:
    """Add `--fdr`, the false discovery rate."""
    return click.option(
        "--fdr",
        type=DECIMAL,
        default=default,
        show_default=True,
        help="Largest expected share of false texts among those found.",
    )


def top_option(default: int | None = None) -> Callable[[C], C]:
    """Add `--top`."""
    return click.option(
        "--top",
        type=click.IntRange(0),
        default=default,
        show_default=default is not None,
        metavar="K",
        help="Show at most this many texts.",
    )


def output_option(what: str, *, required: bool = False) -> Callable[[C], C]:
    """Add `-o`, the file to write; `what` says what goes there."""
    return click.option(
        "-o", "--output", type=OUT_FILE, required=required, help=f"Write {what} to this file."
    )


force_option = click.option("--force", is_flag=True, help="Write over a file that is there.")


def check_new(output: Path | None, force: bool) -> None:
    """Refuse to write over a file that is there, before the work."""
    if output is not None and output.exists() and not force:
        raise InputError(f"{output} is there already; name another file, or give --force.")


def write_plan(plan: Plan, output: Path | None, force: bool) -> None:
    """Write a plan; another plan that is there is left alone, since devices may hold it.

    The same plan may be written again.
    """
    if output is None:
        return
    if output.exists() and not force:
        try:
            same = Plan.read(output).id == plan.id
        except InputError:
            same = False
        if not same:
            raise InputError(
                f"{output} is there already and is not this plan; name another file, or give"
                " --force to write over it."
            )
    plan.write(output)


def _when(when: str, text: str) -> str:
    return f"{when}: {text[0].lower()}{text[1:]}" if when else text


def chart_options(picture: str) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Add `--plot` and which chart it draws; a wrong suffix is refused before the work."""

    def decorate(command: Callable[..., R]) -> Callable[..., R]:
        @plot_option
        @click.option(
            "--picture",
            type=click.Choice(["privacy", "ratio", "precision", "noise", "views", "bounds"]),
            default=picture,
            show_default=True,
            help="Which chart --plot saves.",
        )
        @wraps(command)
        def with_plot(*args: Any, plot: Path | None, **kwargs: Any) -> R:
            check_plot(plot)
            return command(*args, plot=plot, **kwargs)

        return with_plot

    return decorate


def check_plot(plot: Path | None) -> None:
    """Refuse a file name that no chart can be saved to, before the work."""
    if plot is not None:
        from shoal.reports.plots import check_suffix

        check_suffix(plot)


def table_format_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add the options that declare the format of a table, as argument `table_format`."""

    @click.option(
        "--table-format",
        "declared",
        type=IN_FILE,
        metavar="FILE.toml",
        help="Take the format of the table from [table] in this file, such as the survey.",
    )
    @click.option("--encoding", metavar="NAME", help="Encoding of a .csv file.  [default: utf-8]")
    @click.option("--delimiter", metavar="SIGN", help="Between cells: , ; | or tab.  [default: ,]")
    @click.option("--decimal", metavar="SIGN", help="Decimal sign in text: . or ,  [default: .]")
    @click.option(
        "--missing",
        multiple=True,
        metavar="TEXT",
        help="A cell with this text has no value, like an empty one; repeatable.",
    )
    @click.option(
        "--invalid",
        type=click.Choice(["error", "missing"]),
        help="Stop at a cell that cannot be read, or treat it as missing.  [default: error]",
    )
    @wraps(command)
    def with_format(
        *args: Any,
        declared: Path | None,
        encoding: str | None,
        delimiter: str | None,
        decimal: str | None,
        missing: tuple[str, ...],
        invalid: str | None,
        **kwargs: Any,
    ) -> R:
        from shoal.support.table_format import TableFormat

        base = TableFormat() if declared is None else TableFormat.from_toml(declared)
        table_format = base.replaced(
            encoding=encoding,
            delimiter="\t" if delimiter == "tab" else delimiter,
            decimal=decimal,
            missing=missing or None,
            invalid=invalid,
        )
        return command(*args, table_format=table_format, **kwargs)

    return with_format


def survey_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add a survey file, or the options that replace one, as argument `survey`.

    Commands that have an argument `plan` take a plan file instead, too: one of the two is None.
    """
    takes_plan = "plan" in signature(command).parameters

    @click.argument(
        "survey_file",
        type=IN_FILE,
        required=False,
        metavar="[PLAN.json | SURVEY.toml]" if takes_plan else "[SURVEY.toml]",
    )
    @click.option("--flags", type=WHOLE, metavar="L", help="Instead of a file: L yes/no flags.")
    @click.option("--choice", type=WHOLE, metavar="K", help="Instead of a file: one of K options.")
    @click.option("--at-most", type=WHOLE, metavar="k", help="With --flags: at most k of L.")
    @click.option(
        "--cross",
        "crosses",
        multiple=True,
        metavar='"A;B"',
        help="Count the cells of questions A and B too, or of flags (A=option); repeatable.",
    )
    @wraps(command)
    def with_survey(
        *args: Any,
        survey_file: Path | None,
        flags: int | None,
        choice: int | None,
        at_most: int | None,
        crosses: tuple[str, ...],
        **kwargs: Any,
    ) -> R:
        sources = [value for value in (survey_file, flags, choice) if value is not None]
        if len(sources) != 1:
            file = "a plan or survey file" if takes_plan else "a survey file"
            raise InputError(f"give one of {file}, --flags and --choice.")
        if at_most is not None and flags is None:
            raise InputError("--at-most is for --flags: at most so many of them are set.")
        survey: Survey | None = None
        if takes_plan:
            kwargs["plan"] = None
        if takes_plan and survey_file is not None and survey_file.suffix == ".json":
            if crosses:
                raise InputError(
                    "a plan has its crosses already; give --cross where the plan is made."
                )
            kwargs["plan"] = Plan.read(survey_file)
        elif survey_file is not None:
            survey = Survey.from_toml(survey_file)
        else:
            survey = _plain_survey(flags, choice, at_most)
        for names in crosses:
            assert survey is not None
            survey = survey.cross(*(name.strip() for name in names.split(";")))
        return command(*args, survey=survey, **kwargs)

    return with_survey


def _plain_survey(flags: int | None, choice: int | None, at_most: int | None) -> Survey:
    """One question named `answer` with options named 1, 2, 3, ..."""
    count = choice if flags is None else flags
    assert count is not None
    if not 1 <= count <= 65_536:
        raise InputError(f"a question has 1 to 65536 options, got {count}.")
    options = tuple(str(number) for number in range(1, count + 1))
    question: Question = (
        Choice("answer", options) if flags is None else Flags("answer", options, at_most)
    )
    return Survey("answer", (question,))


def check_not_same(source: Path, output: Path) -> None:
    """Refuse to write over what is read."""
    if output.resolve() == source.resolve():
        raise InputError(f"{output} is the input; name another file to write to.")


def settings_options(
    table: type[SettingsTable], leave_out: Collection[str] = ()
) -> Callable[[C], C]:
    """Return what adds an option for each setting of a service, but for some."""

    def added(command: C) -> C:
        for name, default, text in reversed(table.table()):
            if name in leave_out:
                continue
            flag = f"--{name.replace('_', '-')}"
            kind = type(default) if type(default) is not bool else click.BOOL
            option = click.option(flag, name, type=kind, help=f"{text}  [default: {default}]")
            command = option(command)
        return command

    return added


processes_option = click.option(
    "--processes",
    type=click.IntRange(1, 1024),
    metavar="P",
    help="How many processes work.  [default: one for each core]",
)
