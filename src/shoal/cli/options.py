"""Commands from functions: a parameter of the function is an option of the command.

`opt` or `arg` stands in place of the parameter's default; its annotation gives the type, and None
in it makes the option optional. A dataclass groups options, and `made_by` makes a parameter of
other options. A command returns a `Result`, which is printed as JSON or as text.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, is_dataclass, replace
from inspect import Parameter, signature
from pathlib import Path
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NamedTuple,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import click

from shoal.cli.output import Result, print_json, show, waiting
from shoal.errors import InputError, ShoalError
from shoal.protocol.plan import Plan
from shoal.protocol.survey import Choice, Flags, Question, Survey
from shoal.support.checks import decimal_text, did_you_mean, seconds, whole_number
from shoal.support.table_format import TableFormat

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from shoal.server.core.settings import ServiceSettings


@dataclass(frozen=True)
class _Declaration:
    """An option or, without a help, an argument; `names` are other names than the parameter's."""

    help: str | None
    metavar: str | None = None
    names: str = ""
    default: Any = None
    rules: tuple[tuple[str, Any], ...] = ()

    def but(self, **changes: Any) -> Any:
        return replace(self, **changes)

    def when(self, condition: str) -> Any:
        """Return this option with a help that begins with when it is used."""
        assert self.help is not None
        return self.but(help=f"{condition}: {self.help[0].lower()}{self.help[1:]}")


def opt(
    help: str, metavar: str | None = None, names: str = "", *, default: Any = None, **rules: Any
) -> Any:
    """Declare an option; `rules` are those of `click.Option`."""
    return _Declaration(help, metavar, names, default, tuple(rules.items()))


def arg(metavar: str | None = None, *, default: Any = None) -> Any:
    return _Declaration(None, metavar, default=default)


class _MadeBy(NamedTuple):
    make: Callable[..., Any]


def made_by(make: Callable[..., Any]) -> Any:
    """Declare a parameter that a function makes of options, which are its own parameters."""
    return _MadeBy(make)


class Command(click.Command):
    """A command whose help shows an example between its description and its options."""

    def __init__(self, *args: Any, example: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.example = example

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_help_text(ctx, formatter)
        with formatter.section("Example"):
            for line in self.example.splitlines():
                formatter.write(f"  {line}\n")  # never wrapped, so that it can be copied


class InOrder(click.Group):
    """A group whose help lists the commands in the order of their definition."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


class CommandOrGroup(Command, InOrder):
    """A command with subcommands: a first word that names a subcommand runs that one instead.

    For an option that only a subcommand has, the error names the subcommand, and for a first word
    that is nearly one.
    """

    allow_extra_args = False
    allow_interspersed_args = True
    # everything but the subcommands is that of a plain command
    invoke = click.Command.invoke
    collect_usage_pieces = click.Command.collect_usage_pieces

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
        first = args[0] if args else ""
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
        except click.UsageError:
            if not (hint := did_you_mean(first, self.commands)):
                raise
            raise InputError(f"{ctx.command_path} has no command {first!r}.{hint}") from None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(ctx, formatter)
        click.Command.format_options(self, ctx, formatter)


def command(
    example: str,
    name: str | None = None,
    *,
    cls: type[Command] = Command,
    group: click.Command | None = None,
    settings: type[ServiceSettings] | None = None,
) -> Callable[[Callable[..., Result | None]], Command]:
    """Make a command of a function, with `--json`; `example` is shown in its help.

    `settings` adds an option for each setting of a service, given to the function as keywords.
    """

    def decorate(function: Callable[..., Result | None]) -> Command:
        def callback(**given: Any) -> int:
            try:
                result: Result | None = _call(function, given, {})
            except ShoalError as error:
                error.args = (_with_options(str(error), made.params),)
                raise
            if result is None:
                return 0
            if given["as_json"]:
                document = result.document
                print_json(document() if callable(document) else document)
            else:
                show(result.text)
            if result.error is not None:
                raise result.error
            return result.exit_code

        params = {param.name: param for param in _parameters(function)}
        made = cls(
            name or function.__name__,
            callback=callback,
            params=[*params.values(), *_setting_options(settings), _json_option()],
            help=function.__doc__,
            example=example,
        )
        if isinstance(group, click.Group):
            group.add_command(made)
        return made

    return decorate


def _with_options(sentence: str, params: Sequence[click.Parameter]) -> str:
    """Name options where a sentence names arguments: `q must`, `got q=0.6`, `q=` or `q=True`."""
    for param in params:
        if isinstance(param, click.Option) and param.name is not None:
            option, name = max(param.opts, key=len), re.escape(param.name)
            sentence = re.sub(rf"^{name}(?= must | is )", option, sentence)
            sentence = re.sub(rf"\bgot {name}=(?=\S)", "got ", sentence)
            sentence = re.sub(rf"\b{name}=(True\b|(?=[ ,;.]))", option, sentence)
    return sentence


def _json_option() -> click.Option:
    text = "Print one JSON document instead of text."
    return click.Option(["--json", "as_json"], help=text, is_flag=True)


def _setting_options(table: type[ServiceSettings] | None) -> Iterator[click.Option]:
    for name, default, text in () if table is None else table.table():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(default, bool):
            yield click.Option([f"{flag}/--no-{flag[2:]}", name], help=text, default=None)
        else:
            text = text if default == "" else f"{text}  [default: {default}]"
            yield click.Option([flag, name], help=text, type=type(default))


def _declared(function: Callable[..., Any]) -> Iterator[tuple[str, Any, Any]]:
    hints = get_type_hints(function, include_extras=True)
    for name, parameter in signature(function).parameters.items():
        declaration = parameter.default
        if declaration is Parameter.empty and is_dataclass(hints.get(name)):
            declaration = _MadeBy(hints[name])
        if isinstance(declaration, _Declaration | _MadeBy):
            yield name, hints[name], declaration


def _call(function: Callable[..., Any], given: dict[str, Any], made: dict[Any, Any]) -> Any:
    """Call a function with its options, and with what is made of others, each made once."""
    arguments, wanted = {}, signature(function).parameters
    for name, _, declaration in _declared(function):
        if isinstance(declaration, _MadeBy):
            if declaration not in made:
                made[declaration] = _call(declaration.make, given, made)
            arguments[name] = made[declaration]
        else:
            arguments[name] = given[name]
    if "as_json" in wanted:
        arguments["as_json"] = given["as_json"]
    if any(parameter.kind is Parameter.VAR_KEYWORD for parameter in wanted.values()):
        own = {"as_json", *(param.name for param in _parameters(function))}
        arguments |= {name: value for name, value in given.items() if name not in own}
    return function(**arguments)


def _parameters(function: Callable[..., Any]) -> Iterator[click.Parameter]:
    for name, hint, declaration in _declared(function):
        if isinstance(declaration, _MadeBy):
            yield from _parameters(declaration.make)
        else:
            yield _parameter(name, hint, declaration)


def _parameter(name: str, hint: Any, declaration: _Declaration) -> click.Parameter:
    kinds = set(get_args(hint)) if get_origin(hint) in (Union, UnionType) else {hint}
    required = type(None) not in kinds and declaration.default is None
    (kind,) = kinds - {type(None)}
    several = get_args(kind) if get_origin(kind) is tuple else ()
    many = several[1:] == (...,)
    default = declaration.default
    rules = {"metavar": declaration.metavar, "type": _type(several[0] if several else kind)}
    if declaration.help is None:
        rules |= {"required": required, "nargs": -1 if many else 1}
        return click.Argument([name], **rules)
    names = declaration.names.split() or [f"--{name.replace('_', '-')}"]
    if kind is bool:
        rules |= {"is_flag": True, "default": False if required else None}
        if not required:
            names = [f"{names[0]}/{names[0].replace('--', '--no-', 1)}"]
    elif several:
        rules |= {"multiple": True} if many else {"nargs": len(several)}
    else:
        rules["required"] = required
    if default is not None:
        rules |= {"default": default, "show_default": default != ""}
    return click.Option([*names, name], help=declaration.help, **rules | dict(declaration.rules))


def _type(kind: Any) -> Any:
    if get_origin(kind) is Annotated:
        return get_args(kind)[1]
    if get_origin(kind) is Literal:
        return _Choice(get_args(kind))
    return {int: WHOLE, float: DECIMAL, Path: IN_FILE}.get(kind)


class _Choice(click.Choice[str]):
    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        return super().get_invalid_choice_message(value, ctx) + did_you_mean(value, self.choices)


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


IN_FILE = _path("file")
InFolder = Annotated[Path, _path("folder")]
OutFile = Annotated[Path, _path("file", dir_okay=False)]
OutFolder = Annotated[Path, _path("folder", file_okay=False)]

View = Literal["reports", "counts"]
Interval = Literal["exact", "normal", "simultaneous", "chebyshev"]
Target = Literal["crowd", "population"]
Picture = Literal["privacy", "ratio", "precision", "noise", "views", "bounds"]

PLAN_FILE, TALLY_FILE, DATA = arg("PLAN.json"), arg("TALLY.json"), arg("DATA")
CROWD = opt("How many reports are released together.", "N", "--crowd")
EPSILON = opt("The largest epsilon allowed.", "E")
DELTA = opt("The largest delta allowed.", "D")
Q = opt("The flip probability of each bit, in (0, 1/2].", "Q")
VIEW = opt(
    "The promise holds against observers of all reports, or of counts only.", default="reports"
)
LEVEL = opt("Confidence level of intervals.", default=0.95)
INTERVAL = opt("Kind of interval.", default="exact")
TARGET = opt(
    "Estimate the people who reported, or the population they are a sample of.", default="crowd"
)
ACCEPT_WEAK_PROMISE = opt("Accept a promise that is refused as too weak.")
RELEASES = opt("How many releases one person reports in.", "R")
PICTURE = opt("Which chart --plot saves.")
FORCE = opt("Overwrite an existing file.")
QUESTION = opt("Which text question, if there are several.", "NAME")
FDR = opt("Largest expected share of false texts among those found.", default=0.05)
TOP = opt("Show at most this many texts.", "K", type=click.IntRange(0))
CROSSES = opt(
    "Count the cells of questions A and B too, or of flags (A=option); repeatable.",
    '"A;B"',
    "--cross",
)
CONFIG = opt("Settings as TOML.  [default: DATA/shoal.toml]")
PROCESSES = opt(
    "How many processes work.  [default: one for each core]", "P", type=click.IntRange(1, 1024)
)


def output(what: str) -> Any:
    """Return the option `-o`; `what` says what is written."""
    return opt(f"Write {what} to this file.", names="-o --output")


def crossed(survey: Survey, crosses: Iterable[str]) -> Survey:
    """Return the survey with the cells of the questions that `--cross` names."""
    for names in crosses:
        survey = survey.cross(*(name.strip() for name in names.split(";")))
    return survey


def _plan(plan_file: Path = PLAN_FILE) -> Plan:
    return Plan.read(plan_file)


PLAN = made_by(_plan)


def _tally(plan: Plan = PLAN, tally_file: Path = TALLY_FILE) -> Any:
    from shoal.analysis.tally import Tally

    return Tally.read(tally_file, plan)


TALLY = made_by(_tally)


@dataclass(frozen=True)
class _WithoutFile:
    """A survey of one question, instead of a file; and what is crossed in either."""

    flags: int | None = opt("Instead of a file: L yes/no flags.", "L")
    choice: int | None = opt("Instead of a file: one of K options.", "K")
    at_most: int | None = opt("With --flags: at most k of L.", "k")
    crosses: tuple[str, ...] = CROSSES

    def survey(self, file: Path | None, files: str = "a survey file") -> Survey:
        """Return the survey in a file, or one question `answer` whose options are 1, 2, 3, ..."""
        if sum(source is not None for source in (file, self.flags, self.choice)) != 1:
            raise InputError(f"give one of {files}, --flags and --choice.")
        if self.at_most is not None and self.flags is None:
            raise InputError("--at-most K needs --flags: it limits how many flags are set.")
        if file is not None:
            survey = Survey.from_toml(file)
        else:
            count = self.flags or self.choice or 0
            if not 1 <= count <= 65_536:
                raise InputError(f"a question has 1 to 65536 options, got {count}.")
            options = tuple(str(number) for number in range(1, count + 1))
            question: Question = (
                Choice("answer", options)
                if self.flags is None
                else Flags("answer", options, self.at_most)
            )
            survey = Survey("answer", (question,))
        return crossed(survey, self.crosses)


def _survey(plain: _WithoutFile, survey_file: Path | None = arg("[SURVEY.toml]")) -> Survey:
    return plain.survey(survey_file)


def _plan_or_survey(
    plain: _WithoutFile, file: Path | None = arg("[PLAN.json | SURVEY.toml]")
) -> Plan | Survey:
    is_plan = file is not None and file.suffix == ".json"
    if not is_plan or (plain.flags, plain.choice, plain.at_most) != (None, None, None):
        return plain.survey(file, "a plan or survey file")
    if plain.crosses:
        raise InputError("a plan already has its crosses; give --cross to shoal plan.")
    assert file is not None
    return Plan.read(file)


SURVEY = made_by(_survey)
PLAN_OR_SURVEY = made_by(_plan_or_survey)


def _plot(plot: OutFile | None = opt("Save a chart: .png, .svg or .pdf.")) -> Path | None:
    if plot is not None:
        from shoal.reports.plots import check_suffix

        check_suffix(plot)  # before the work
    return plot


PLOT = made_by(_plot)


def draw(plot: Path | None, picture: Callable[[], Figure] | str, *source: Any, **at: Any) -> None:
    """Save a chart of a result, or a picture of a plan or certificate by its name."""
    if plot is not None:
        from shoal.reports.plots import plot_picture, save

        with waiting("drawing"):
            figure = plot_picture(picture, *source, **at) if isinstance(picture, str) else picture()
            save(figure, plot)


def imported(name: str) -> Any:
    """Return the object MODULE:NAME of the installed code, or of the code in this folder."""
    module, _, attribute = name.partition(":")
    if (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise InputError(f"cannot import {name}: {error}.") from error


@dataclass(frozen=True)
class TableOptions:
    """How a table is written: as a file declares it, with changes."""

    declared: Path | None = opt(
        "Take the format of the table from [table] in this file, such as the survey.",
        "FILE.toml",
        "--table-format",
    )
    encoding: str | None = opt("Encoding of a .csv file.  [default: utf-8]", "NAME")
    delimiter: str | None = opt("Between cells: , ; | or tab.  [default: ,]", "SIGN")
    decimal: str | None = opt("Decimal sign in text: . or ,  [default: .]", "SIGN")
    missing: tuple[str, ...] = opt(
        "A cell with this text has no value, like an empty one; repeatable.", "TEXT"
    )
    invalid: Literal["error", "missing"] | None = opt(
        "Stop at a cell that cannot be read, or treat it as missing.  [default: error]"
    )

    def table_format(self, otherwise: TableFormat) -> TableFormat:
        """Return the declared format, or else another one, with the changes."""
        base = otherwise if self.declared is None else TableFormat.from_toml(self.declared)
        return base.replaced(
            encoding=self.encoding,
            delimiter="\t" if self.delimiter == "tab" else self.delimiter,
            decimal=self.decimal,
            missing=self.missing or None,
            invalid=self.invalid,
        )


def _table_format(given: TableOptions) -> TableFormat:
    return given.table_format(TableFormat())


TABLE_FORMAT = made_by(_table_format)


def small_crowd(plan: Plan, reports: int) -> str:
    """Return a line about reports that are too few to estimate from, or no text."""
    if plan.crowd_size is None or reports >= plan.reports_needed:
        return ""
    from shoal.planning.plan import replanning

    return (
        f"\nThe plan needs a crowd of {plan.reports_needed:,} reports; wait for"
        f" more{replanning(plan, reports)}"
    )


def check_new(output: Path | None, force: bool) -> None:
    if output is not None and output.exists() and not force:
        raise InputError(f"{output} already exists; name another file, or give --force.")


def check_not_same(source: Path, output: Path) -> None:
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
