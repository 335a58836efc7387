"""Commands with an example in their help, and the options, arguments and types that they share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from shoal.errors import InputError
from shoal.protocol.plan import Plan
from shoal.protocol.survey import Choice, Flags, Question, Survey
from shoal.support.checks import decimal_text, seconds, whole_number

if TYPE_CHECKING:
    from shoal.server.core.settings import ServiceSettings


F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R")


class Command(click.Command):
    """A command whose help shows an example between its description and its options."""

    def __init__(self, *args: Any, example: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.example = example

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the example after the description."""
        super().format_help_text(ctx, formatter)
        with formatter.section("Example"):
            for line in self.example.splitlines():
                formatter.write(f"  {line}\n")  # never wrapped, so that it can be copied


class CommandOrGroup(Command, click.Group):
    """A command with subcommands: a first word that names a subcommand runs that one instead.

    For an option that only a subcommand has, the error names the subcommand.
    """

    allow_extra_args = False
    allow_interspersed_args = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, invoke_without_command=True, **kwargs)

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Make the context of the subcommand if the first word names one."""
        if args and args[0] in self.commands:
            subcommand = self.commands[args[0]]
            return subcommand.make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words; name the subcommand that has an unknown option."""
        try:
            return click.Command.parse_args(self, ctx, args)
        except click.NoSuchOption as error:
            for name, subcommand in self.commands.items():
                if any(error.option_name in param.opts for param in subcommand.params):
                    raise InputError(
                        f"{error.option_name} is an option of {ctx.command_path} {name}; see"
                        f" {ctx.command_path} {name} --help."
                    ) from None
            raise

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the subcommands in the order of their definition."""
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the plain form."""
        return click.Command.invoke(self, ctx)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Describe the plain form."""
        return click.Command.collect_usage_pieces(self, ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the subcommands, then the options."""
        self.format_commands(ctx, formatter)
        click.Command.format_options(self, ctx, formatter)


def command(example: str, name: str | None = None) -> Callable[[Callable[..., Any]], Command]:
    """Make a command of a function; `example` is shown in its help."""
    return click.command(name, cls=Command, example=example)


def option(*words: str, **rules: Any) -> Callable[[F], F]:
    """Add an option: its names, then its help; a default is shown in the help."""
    *names, text = words
    shown = rules.get("default") not in (None, "")
    return click.option(*names, help=text, show_default=shown, **rules)


class _Quantity(click.ParamType[Any]):
    """A quantity as people write it: 1e6, 5%, .005, 1d. Numbers pass as they are."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name, self._read = name, read

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._read(value)
        except InputError as error:
            self.fail(str(error), param, ctx)


def _decimal(text: str) -> float:
    if text.strip().lower() in ("nan", "inf", "-inf", "infinity"):
        return float(text)  # the function that takes the number states its range
    return float(decimal_text(text))


WHOLE = _Quantity("integer", whole_number)
DECIMAL = _Quantity("float", _decimal)
LENGTH = _Quantity("time", seconds)


def _path(name: str, **rules: bool) -> click.Path:
    """Return a type of path with this name in the help."""
    path = click.Path(path_type=Path, **rules)
    path.name = name
    return path


IN_FILE, IN_FOLDER = _path("file"), _path("folder")
OUT_FILE, OUT_FOLDER = _path("file", dir_okay=False), _path("folder", file_okay=False)

plan_file_argument = click.argument("plan_file", type=IN_FILE, metavar="PLAN.json")
data_argument = click.argument("data", type=IN_FILE, metavar="DATA")

json_option = option("--json", "as_json", "Print one JSON document instead of text.", is_flag=True)
level_option = option("--level", "Confidence level of intervals.", type=DECIMAL, default=0.95)
interval_option = option(
    "--interval",
    "kind",
    "Kind of interval.",
    type=click.Choice(["exact", "normal", "simultaneous", "chebyshev"]),
    default="exact",
)
target_option = option(
    "--target",
    "Estimate the people who reported, or the population they are a sample of.",
    type=click.Choice(["crowd", "population"]),
    default="crowd",
)
releases_option = option(
    "--releases", "How many releases one person reports in.", type=WHOLE, metavar="R"
)
plot_option = option("--plot", "Save a chart: .png, .svg or .pdf.", type=OUT_FILE)
force_option = option("--force", "Overwrite an existing file.", is_flag=True)
question_option = option("--question", "Which text question, if there are several.", metavar="NAME")
processes_option = option(
    "--processes",
    "How many processes work.  [default: one for each core]",
    type=click.IntRange(1, 1024),
    metavar="P",
)
config_option = option("--config", "Settings as TOML.  [default: DATA/shoal.toml]", type=IN_FILE)


def together(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a decorator that adds all of these, in this order."""

    def decorate(command: Any) -> Any:
        for one in reversed(options):
            command = one(command)
        return command

    return decorate


def plan_argument(command: Callable[..., R]) -> Callable[..., R]:
    """Add a plan file, given to the command as `plan`."""

    @plan_file_argument
    @wraps(command)
    def with_plan(*args: Any, plan_file: Path, **kwargs: Any) -> R:
        return command(*args, plan=Plan.read(plan_file), **kwargs)

    return with_plan


def plan_and_tally(command: Callable[..., R]) -> Callable[..., R]:
    """Add a plan file and a tally file, given to the command as `plan` and `tally`."""

    @plan_argument
    @click.argument("tally_file", type=IN_FILE, metavar="TALLY.json")
    @wraps(command)
    def with_tally(*args: Any, plan: Plan, tally_file: Path, **kwargs: Any) -> R:
        from shoal.analysis.tally import Tally

        return command(*args, plan=plan, tally=Tally.read(tally_file, plan), **kwargs)

    return with_tally


estimate_options = together(level_option, interval_option, target_option)


def promise_options(**rules: Any) -> Callable[[Any], Any]:
    """Add `--crowd`, `--epsilon` and `--delta`."""
    return together(crowd_option(**rules), epsilon_option(**rules), delta_option(**rules))


def new_file_options(what: str) -> Callable[[Any], Any]:
    """Add `-o` and `--force`."""
    return together(output_option(what), force_option)


def crowd_option(**rules: Any) -> Callable[[F], F]:
    """Add `--crowd`; `when` says when it is used."""
    return _option("--crowd", "N", "How many reports are released together.", rules, type=WHOLE)


def epsilon_option(**rules: Any) -> Callable[[F], F]:
    """Add `--epsilon`, kept as the decimal that was written."""
    return _option("--epsilon", "E", "The largest epsilon allowed.", rules)


def delta_option(**rules: Any) -> Callable[[F], F]:
    """Add `--delta`, kept as the decimal that was written."""
    return _option("--delta", "D", "The largest delta allowed.", rules)


def q_option(**rules: Any) -> Callable[[F], F]:
    """Add `--q`, kept as the decimal that was written."""
    return _option("--q", "Q", "The flip probability of each bit, in (0, 1/2].", rules)


def view_option(**rules: Any) -> Callable[[F], F]:
    """Add `--view`: what the observer sees against whom the promise holds."""
    rules = {"default": "reports", **rules}
    text = "The promise holds against observers of all reports, or of counts only."
    return _option("--view", None, text, rules, type=click.Choice(["reports", "counts"]))


def fdr_option(default: float) -> Callable[[F], F]:
    """Add `--fdr`, the false discovery rate."""
    text = "Largest expected share of false texts among those found."
    return _option("--fdr", None, text, {"default": default}, type=DECIMAL)


def top_option(default: int | None = None) -> Callable[[F], F]:
    """Add `--top`."""
    text = "Show at most this many texts."
    return _option("--top", "K", text, {"default": default}, type=click.IntRange(0))


def output_option(what: str, *, required: bool = False) -> Callable[[F], F]:
    """Add `-o`, the file to write; `what` says what is written."""
    return option("-o", "--output", f"Write {what} to this file.", type=OUT_FILE, required=required)


def _option(
    name: str, metavar: str | None, text: str, rules: Mapping[str, Any], **fixed: Any
) -> Callable[[F], F]:
    """Return an option; `rules` has `required`, `default` and `when`, the start of its help."""
    rules = dict(rules)
    when, default = rules.pop("when", ""), rules.get("default")
    help_text = f"{when}: {text[0].lower()}{text[1:]}" if when else text
    shown = default is not None
    return click.option(name, metavar=metavar, help=help_text, show_default=shown, **rules, **fixed)


def parties_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add `--relay`, `--analyzer` and `--messages`, given to the command as `parties`."""

    @option("--relay", "Origin of the relay: it sees who sends.", metavar="URL")
    @option("--analyzer", "Origin of the analyzer: it sees the reports.", metavar="URL")
    @option(
        "--messages",
        "With --view counts: messages of one report.  [default: as few as will do]",
        type=WHOLE,
        metavar="W",
    )
    @wraps(command)
    def with_parties(*args: Any, **kwargs: Any) -> R:
        parties = {name: kwargs.pop(name) for name in ("relay", "analyzer", "messages")}
        return command(*args, parties=parties, **kwargs)

    return with_parties


def chart_options(picture: str) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Add `--plot` and the choice of its chart; a wrong suffix is refused before the work."""

    def decorate(command: Callable[..., R]) -> Callable[..., R]:
        @plot_option
        @option(
            "--picture",
            "Which chart --plot saves.",
            type=click.Choice(["privacy", "ratio", "precision", "noise", "views", "bounds"]),
            default=picture,
        )
        @wraps(command)
        def with_plot(*args: Any, plot: Path | None, **kwargs: Any) -> R:
            check_plot(plot)
            return command(*args, plot=plot, **kwargs)

        return with_plot

    return decorate


def table_format_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add the options that declare the format of a table, as argument `table_format`."""

    @option(
        "--table-format",
        "declared",
        "Take the format of the table from [table] in this file, such as the survey.",
        type=IN_FILE,
        metavar="FILE.toml",
    )
    @option("--encoding", "Encoding of a .csv file.  [default: utf-8]", metavar="NAME")
    @option("--delimiter", "Between cells: , ; | or tab.  [default: ,]", metavar="SIGN")
    @option("--decimal", "Decimal sign in text: . or ,  [default: .]", metavar="SIGN")
    @option(
        "--missing",
        "A cell with this text has no value, like an empty one; repeatable.",
        multiple=True,
        metavar="TEXT",
    )
    @option(
        "--invalid",
        "Stop at a cell that cannot be read, or treat it as missing.  [default: error]",
        type=click.Choice(["error", "missing"]),
    )
    @wraps(command)
    def with_format(*args: Any, declared: Path | None, delimiter: str | None, **kwargs: Any) -> R:
        from shoal.support.table_format import TableFormat

        given = {name: kwargs.pop(name) for name in ("encoding", "decimal", "missing", "invalid")}
        base = TableFormat() if declared is None else TableFormat.from_toml(declared)
        table_format = base.replaced(
            delimiter="\t" if delimiter == "tab" else delimiter,
            **given | {"missing": given["missing"] or None},
        )
        return command(*args, table_format=table_format, **kwargs)

    return with_format


def survey_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add a survey file, or the options that replace one, as argument `survey`.

    A command with an argument `plan` also accepts a plan file; then one of the two is None.
    """
    takes_plan = "plan" in signature(command).parameters

    @click.argument(
        "survey_file",
        type=IN_FILE,
        required=False,
        metavar="[PLAN.json | SURVEY.toml]" if takes_plan else "[SURVEY.toml]",
    )
    @option("--flags", "Instead of a file: L yes/no flags.", type=WHOLE, metavar="L")
    @option("--choice", "Instead of a file: one of K options.", type=WHOLE, metavar="K")
    @option("--at-most", "With --flags: at most k of L.", type=WHOLE, metavar="k")
    @option(
        "--cross",
        "crosses",
        "Count the cells of questions A and B too, or of flags (A=option); repeatable.",
        multiple=True,
        metavar='"A;B"',
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
            raise InputError("--at-most K needs --flags: it limits how many flags are set.")
        survey: Survey | None = None
        if takes_plan:
            kwargs["plan"] = None
        if takes_plan and survey_file is not None and survey_file.suffix == ".json":
            if crosses:
                raise InputError("a plan already has its crosses; give --cross to shoal plan.")
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
    """Return a survey with one question `answer` whose options are 1, 2, 3, ..."""
    count = choice if flags is None else flags
    assert count is not None
    if not 1 <= count <= 65_536:
        raise InputError(f"a question has 1 to 65536 options, got {count}.")
    options = tuple(str(number) for number in range(1, count + 1))
    question: Question = (
        Choice("answer", options) if flags is None else Flags("answer", options, at_most)
    )
    return Survey("answer", (question,))


def settings_options(table: type[ServiceSettings]) -> Callable[[F], F]:
    """Add an option for each setting of a service."""

    def decorate(command: F) -> F:
        for name, default, text in reversed(table.table()):
            flag = f"--{name.replace('_', '-')}"
            kind = type(default) if type(default) is not bool else click.BOOL
            command = option(flag, name, f"{text}  [default: {default}]", type=kind)(command)
        return command

    return decorate


def check_plot(plot: Path | None) -> None:
    """Refuse a file name that no chart can be saved to, before the work."""
    if plot is not None:
        from shoal.reports.plots import check_suffix

        check_suffix(plot)


def check_new(output: Path | None, force: bool) -> None:
    """Refuse to overwrite a file, before the work."""
    if output is not None and output.exists() and not force:
        raise InputError(f"{output} already exists; name another file, or give --force.")


def check_not_same(source: Path, output: Path) -> None:
    """Refuse to overwrite the input."""
    if output.resolve() == source.resolve():
        raise InputError(f"{output} is the input; name another file to write to.")


def write_plan(plan: Plan, output: Path | None, force: bool) -> None:
    """Write a plan; do not overwrite another plan, since devices may hold it."""
    if output is None:
        return
    if output.exists() and not force:
        try:
            same = Plan.read(output).id == plan.id
        except InputError:
            same = False
        if not same:
            raise InputError(
                f"{output} already exists and is not this plan; name another file, or give"
                " --force to overwrite it."
            )
    plan.write(output)
