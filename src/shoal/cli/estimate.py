"""`shoal estimate`, `screen`, `associate`, `experiment` and `retention`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.analysis.crowds import in_crowds
from shoal.analysis.tally import Tally
from shoal.cli import options as cli
from shoal.cli import output as out
from shoal.cli.options import arg, opt
from shoal.cli.reports import read_tally
from shoal.errors import InputError
from shoal.protocol.plan import Plan
from shoal.support.rounding import text_down, text_near, text_up

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.measure import Measurement

_QUANTILES = {0.1: "10 %", 0.25: "25 %", 0.5: "median", 0.75: "75 %", 0.9: "90 %"}
_BAR = 8, 24
"""The smallest and the largest width of a bar, in characters."""


@cli.command("shoal estimate plan.json tally.json")
def estimate(
    plan: Plan = cli.PLAN,
    tally: Tally = cli.TALLY,
    level: float = cli.LEVEL,
    interval: cli.Interval = cli.INTERVAL,
    target: cli.Target = cli.TARGET,
    earlier: Path | None = opt(
        "Compare with this tally of the plan, such as an earlier window.", "TALLY.json", "--against"
    ),
) -> out.Result:
    """Estimate how many people gave each answer, with intervals.

    Numbers also have a mean and quantiles, experiments the differences of their arms, and funnels
    the conversion of each step. With --against the shares of two crowds are compared,
    option by option. A tally of fewer reports than the plan's crowd is refused (exit code 3).
    """
    from shoal.analysis.estimates import estimate
    from shoal.analysis.experiments import experiments_of
    from shoal.analysis.funnels import funnels_of
    from shoal.analysis.number_summary import numbers_of

    estimates = estimate(plan, tally, target=target)
    document = estimates.to_json(level, interval) | {"numbers": numbers_of(estimates, level)}
    experiments, funnels = experiments_of(estimates, level), funnels_of(estimates, level)
    for name, results in (("experiments", experiments), ("funnels", funnels)):
        if results:
            document[name] = {key: one.to_json() for key, one in results.items()}
    more = [str(one) for one in (*experiments.values(), *funnels.values())]
    if earlier is not None:
        if target != "crowd":
            raise InputError("--against compares the people who reported; leave out --target.")
        from shoal.analysis.trends import crowd_difference

        before = Tally.read(earlier, plan)
        if before == tally:
            raise InputError(
                f"{earlier} has the same counts, so both are taken for one crowd; name another one."
            )
        difference = crowd_difference((plan, tally), (plan, before), level)
        document["difference"] = difference.to_json()
        more.append(str(difference))
    return out.Result(document, _show(document, plan.survey.name, more))


def _show(document: dict[str, Any], title: str, more: Sequence[str]) -> out.Pieces:
    yield from show_estimates(document, title)
    for question, summary in document["numbers"].items():
        yield from show_numbers(question, summary)
    for text in more:
        yield out.Plain(f"\n{text}")


def show_estimates(document: dict[str, Any], title: str, counted: str = "reports") -> out.Pieces:
    """Yield the JSON form of estimates, with the truth beside them where it is known."""
    rough = " (approximate)" if document["interval"] == "normal" else ""
    intervals = f"{document['interval']} intervals at {document['level']:.4g}{rough}"
    reports = f"{document['reports']:,} {counted}{in_crowds(document)}"
    rest = f"{reports}, {intervals}, for the {document['target']}"
    yield out.title(title, rest, document["simulated"])
    for question, options in document["questions"].items():
        known = ["truth"] if any("truth" in row for row in options.values()) else []
        rows: list[Any] = []
        for label, row in options.items():
            truth = [f"{row['truth']:,}"] if known else []
            ends = out.outward(row["low"], row["high"])
            bar: Any = "no true count fits these reports"
            if not row.get("incompatible"):
                bar = _Bar(row["low"], row["count"], row["high"], int(document["reports"]))
            rows.append((label, *truth, f"{row['count']:,.0f}", f"{row['share']:.2%}", *ends, bar))
        columns = ["option", *known, "count", "share", "low", "high", ""]
        shown = out.table(columns, rows, title=question)
        bars = shown.columns[-1]
        bars.justify, bars.no_wrap, bars.overflow = "left", False, "crop"
        yield ""
        yield shown
    if document["notes"]:
        yield out.bullets(document["notes"])


@dataclass(frozen=True)
class _Bar:
    """The interval on a line from nobody to everybody, as wide as there is room."""

    low: float
    count: float
    high: float
    reports: int

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        from rich.measure import Measurement

        return Measurement(*(min(width, options.max_width) for width in _BAR))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[str]:
        width = min(_BAR[1], options.max_width)

        def place(count: float) -> int:
            return min(max(round(count / self.reports * (width - 1)), 0), width - 1)

        line = ["·"] * width
        for position in range(place(self.low), place(self.high) + 1):
            line[position] = "─"
        line[place(self.count)] = "●"
        yield "".join(line)


def show_numbers(question: str, summary: dict[str, Any]) -> out.Pieces:
    level, mean = f"{summary['level']:.4g}", summary["mean"]
    yield f"\n{out.escape(question)}, as numbers"
    if mean is not None:
        first, last = (f"{end:g}" for end in summary["limits"])
        low, high = text_near(mean["low"]), text_near(mean["high"])
        yield (
            f"mean      {text_near(mean['value'])}, {low} to {high} at {level} (approximate);"
            f" numbers outside {first} to {last} count as the nearer end"
        )
    if summary["variance"] is not None:
        low, high = (text_near(summary["variance"][end] ** 0.5) for end in ("low", "high"))
        yield f"std. dev. {low} to {high} at {level} (approximate)"
    for one in summary["quantiles"]:
        ends = ["" if one[key] is None else text_near(one[key]) for key in ("low", "high")]
        place = (" to below " if summary["limits"] is None else " to ").join(ends)
        if "" in ends:
            place = f"below {ends[1]}" if ends[1] else f"{ends[0]} or more"
        if ends == ["", ""]:
            place = "anywhere"
        name = _QUANTILES.get(one["part"], str(one["part"]))
        yield f"{name:9} {place} at {level} (theorem)"


@cli.command("shoal screen plan.json tally.json")
def screen(
    plan: Plan = cli.PLAN,
    tally: Tally = cli.TALLY,
    alarm: float = opt("Chance of calling an honest crowd suspicious.", default=1e-3),
) -> out.Result:
    """Search a complete crowd for traces of fake reports.

    The p-value holds for every honest crowd, whatever its people answered. Fakes that flip bits as
    honest devices do cannot be detected. A tally of fewer reports than the plan's crowd is refused
    (exit code 3).
    """
    from shoal.analysis.screening import screen

    screening = screen(plan, tally, alarm=alarm)
    return out.Result(screening.to_json(), str(screening))


@cli.command("shoal associate plan.json tally.json channel features=sync")
def associate(
    plan: Plan = cli.PLAN,
    tally: Tally = cli.TALLY,
    names: tuple[str, ...] = arg("QUESTION[=OPTION]..."),
    level: float = cli.LEVEL,
    target: cli.Target = cli.TARGET,
) -> out.Result:
    """Test whether two answers go together.

    Questions that the survey crosses make a cross table, with shares of rows and columns; three or
    more make one table for each answer to the first. Other answers must be counted jointly: see
    `shoal tally --joint`. There, name a question with one answer, and all its options are used; of
    other questions name one option.
    """
    from shoal.analysis.association import associate
    from shoal.analysis.cross_tables import cross_named, cross_table

    if len(names) != 2 or cross_named(plan.survey, names) is not None:
        document = cross_table(plan, tally, *names, target=target).to_json(level)
        return out.Result(document, _show_crossed(document))
    document = associate(plan, tally, *names, target=target).to_json(level)
    return out.Result(document, _show_joint(document))


def _title(document: dict[str, Any], names: list[str], intervals: str) -> str:
    about = f"{document['reports']:,} reports, {intervals}, for the {document['target']}"
    return out.title(" and ".join(names), about, document["simulated"])


def _show_crossed(document: dict[str, Any]) -> out.Pieces:
    intervals = f"exact intervals at {document['level']:.4g}"
    yield _title(document, document["questions"], intervals)
    for one in _slices(document):
        if one["given"]:
            given = ", ".join(f"{name}: {value}" for name, value in one["given"].items())
            yield f"\n[bold]{out.escape(given)}[/bold]"
        yield out.IfItFits(_matrix(one))
        yield _cells(one)
        yield from _independence(one)


def _show_joint(document: dict[str, Any]) -> out.Pieces:
    """Yield the table of answers that were counted jointly, and the measures of a 2x2 table."""
    names = [document["first"], document["second"]]
    yield _title(document, names, f"normal intervals at {document['level']:.4g} (approximate)")
    rows = []
    for cell in document["table"]:
        count, likely = (f"{cell[key]:,.0f}" for key in ("count", "constrained"))
        ends = out.outward(cell["low"], cell["high"])
        rows.append((cell["first"], cell["second"], count, *ends, likely))
    yield out.table([*names, "count", "low", "high", "constrained"], rows, left=2)
    yield from _independence(document)
    for name in ("difference", "odds_ratio"):
        if (measure := document[name]) is not None:
            best = "unknown" if measure["value"] is None else text_near(measure["value"])
            high = "up" if measure["high"] is None else f"to {text_up(measure['high'])}"
            yield f"{name.replace('_', ' ')}: {best}, from {text_down(measure['low'])} {high}"


def _independence(document: dict[str, Any]) -> out.Pieces:
    test, sensitivity = document["independence"], document["sensitivity"]
    yield (
        f"independence: chi-square {text_near(test['statistic'])} with {test['degrees']} degrees of"
        f" freedom, p = {text_near(test['p_value'], 3)} ({test['kind']})"
    )
    if test["kind"] == "rough":
        yield "[yellow]some cell has fewer than 5 people and flips, so p may be too small[/yellow]"
    if sensitivity is not None:
        yield out.escape(sensitivity["in_words"])


def _slices(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "slices" not in document:
        yield document
    for one in document.get("slices", ()):
        yield from _slices(one)


def _matrix(document: dict[str, Any]) -> Any:
    totals = document["totals"]
    counts = {(cell["first"], cell["second"]): cell["count"] for cell in document["table"]}
    rows = []
    for name, total in totals["first"].items():
        numbers = [*(counts[name, column] for column in totals["second"]), total["value"]]
        rows.append((name, *(f"{number:,.0f}" for number in numbers)))
    rows.append(("total", *(f"{total['value']:,.0f}" for total in totals["second"].values()), ""))
    matrix = out.table([document["first"], *totals["second"], "total"], rows)
    matrix.columns[0].no_wrap = True
    return matrix


def _cells(document: dict[str, Any]) -> Any:
    rows: list[tuple[str, ...]] = []
    for first, cells in groupby(document["table"], key=itemgetter("first")):
        rows.append((first,))
        for cell in cells:
            low, high = out.outward(cell["low"], cell["high"])
            shares = (_percent(cell[name]) for name in ("row_share", "column_share"))
            rows.append((f"  {cell['second']}", f"{cell['count']:,.0f} ({low}–{high})", *shares))
    names = f"{document['first']}, {document['second']}"
    return out.table([names, "people", "% of row", "% of column"], rows)


def _percent(share: dict[str, Any]) -> str:
    value, low, high = share["value"], share["low"], share["high"]
    ends = f"({math.floor(1000 * low) / 10:.1f}–{math.ceil(1000 * high) / 10:.1f})"
    return f"{'?' if value is None else f'{100 * value:.1f}'} {ends}"


_TALLIES = arg("TALLY.json|REPORTS...")


@cli.command("shoal experiment plan.json tally.json")
def experiment(
    plan: Plan = cli.PLAN,
    tally_files: tuple[Path, ...] = _TALLIES,
    arm: str | None = opt("The arm question, if the survey has several.", "NAME"),
    level: float = cli.LEVEL,
) -> out.Result:
    """Compare the arms of an experiment with control.

    Each outcome that the survey crosses with the arm has a share or a mean in every arm, and its
    difference and ratio to control, for the population. Holm's p-values allow for all comparisons.
    Several tallies are releases in their order: their confidence sequence may be looked at after
    each. It is refused for plans in which devices report again and again.
    """
    from shoal.analysis.experiments import experiment, monitor

    tallies = [read_tally(plan, file) for file in tally_files]
    if len(tallies) == 1:
        one = experiment(plan, tallies[0], arm, level=level)
        return out.Result(one.to_json(), str(one))
    several = monitor(plan, tallies, arm, level=level)
    return out.Result(several.to_json(), str(several))


@cli.command("shoal retention plan.json week1.json week2.json week3.json")
def retention(
    plan: Plan = cli.PLAN,
    tally_files: tuple[Path, ...] = _TALLIES,
    group: str | None = opt("Only people with this answer to a crossed question.", "Q=OPTION"),
    level: float = cli.LEVEL,
    target: cli.Target = cli.TARGET.but(default="population"),
) -> out.Result:
    """Show how many of the people who started are active later.

    Give a tally for each window, in the order of time. All intervals of the curve hold together.
    """
    from shoal.analysis.retention import retention

    named = None
    if group is not None:
        question, equals, option = group.partition("=")
        if not equals:
            raise InputError(f"--group takes a question and its answer as Q=OPTION, got {group!r}.")
        named = question.strip(), option.strip()
    tallies = [read_tally(plan, file) for file in tally_files]
    curve = retention(plan, tallies, group=named, level=level, target=target)
    return out.Result(curve.to_json(), str(curve))
