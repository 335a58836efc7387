"""`shoal estimate` and `shoal screen`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.analysis.crowds import in_crowds
from shoal.analysis.tally import Tally
from shoal.cli import options as cli
from shoal.cli import output as out
from shoal.errors import InputError
from shoal.protocol.plan import Plan
from shoal.support.rounding import text_near

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.measure import Measurement

_QUANTILES = {0.1: "10 %", 0.25: "25 %", 0.5: "median", 0.75: "75 %", 0.9: "90 %"}
_BAR = 8, 24
"""The smallest and the largest width of a bar, in characters."""


@cli.command("shoal estimate plan.json tally.json")
@cli.plan_and_tally
@cli.estimate_options
@cli.option(
    "--against",
    "earlier",
    "Compare with this tally of the plan, such as an earlier window.",
    type=cli.IN_FILE,
    metavar="TALLY.json",
)
@cli.json_option
def estimate(
    plan: Plan,
    tally: Tally,
    level: float,
    kind: Any,
    target: Any,
    earlier: Path | None,
    as_json: bool,
) -> None:
    """Estimate how many people gave each answer, with intervals.

    Numbers also have a mean and quantiles. With --against the shares of two crowds are compared,
    option by option. A tally of fewer reports than the plan's crowd is refused (exit code 3).
    """
    from shoal.analysis.estimates import estimate
    from shoal.analysis.number_summary import numbers_of

    estimates = estimate(plan, tally, target=target)
    document = estimates.to_json(level, kind) | {"numbers": numbers_of(estimates, level)}
    if earlier is not None:
        if target != "crowd":
            raise InputError("--against compares the people who reported; leave out --target.")
        from shoal.analysis.trends import crowd_difference

        before = Tally.read(earlier, plan)
        if before == tally:
            raise InputError(
                f"{earlier} has the same counts, so both are taken for one crowd; name another one."
            )
        document["difference"] = crowd_difference((plan, tally), (plan, before), level).to_json()
    if as_json:
        out.print_json(document)
        return
    show_estimates(document, plan.survey.name)
    _show_numbers(document["numbers"])
    if earlier is not None:
        _show_difference(document["difference"])


def show_estimates(document: dict[str, Any], title: str) -> None:
    """Print the JSON form of estimates, with the truth beside them where it is known."""
    console = out.printer()
    rough = " (approximate)" if document["interval"] == "normal" else ""
    intervals = f"{document['interval']} intervals at {document['level']:.4g}{rough}"
    reports = f"{document['reports']:,} reports{in_crowds(document)}"
    rest = f"{reports}, {intervals}, for the {document['target']}"
    out.show_title(console, title, rest, document["simulated"])
    for question, options in document["questions"].items():
        known = ["truth"] if any("truth" in row for row in options.values()) else []
        shown = out.table(["option", *known, "count", "share", "low", "high"], title=question)
        shown.add_column("", overflow="crop")
        for label, row in options.items():
            truth = [f"{row['truth']:,}"] if known else []
            cells = (
                f"{row['count']:,.0f}",
                f"{row['share']:.2%}",
                *out.outward(row["low"], row["high"]),
            )
            bar: Any = "no true count fits these reports"
            if not row.get("incompatible"):
                bar = _Bar(row["low"], row["count"], row["high"], int(document["reports"]))
            out.add_row(shown, label, *truth, *cells, bar)
        console.print()
        console.print(shown)
    if document["notes"]:
        out.show_bullets(console, document["notes"])


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


def _show_numbers(numbers: dict[str, Any]) -> None:
    """Print the mean and the quantiles of number questions."""
    console = out.printer()
    for question, summary in numbers.items():
        level = f"{summary['level']:.4g}"
        console.print(f"\n{question}, as numbers", markup=False)
        mean = summary["mean"]
        if mean is not None:
            low, high = text_near(mean["low"]), text_near(mean["high"])
            console.print(
                f"mean      {low} to {high} at {level}, of numbers limited to the outer edges"
                " (approximate)"
            )
        for one in summary["quantiles"]:
            ends = ["" if one[key] is None else text_near(one[key]) for key in ("low", "high")]
            place = " to below ".join(ends)
            if "" in ends:
                place = f"below {ends[1]}" if ends[1] else f"{ends[0]} or more"
            if ends == ["", ""]:
                place = "anywhere"
            name = _QUANTILES.get(one["part"], str(one["part"]))
            console.print(f"{name:9} {place} at {level} (theorem)")


def _show_difference(document: dict[str, Any]) -> None:
    """Print how the shares of two crowds differ."""
    console = out.printer()
    console.print(
        f"\nChange against {document['second']['reports']:,} reports; intervals"
        f" {document['interval']}, at {document['level']:.4g}"
    )
    rows = []
    for question, options in document["questions"].items():
        for label, row in options.items():
            shares = [f"{row[key]:.2%}" for key in ("second", "first")]
            ends = [f"{row[key]:+.2%}" for key in ("difference", "low", "high")]
            rows.append((f"{question}: {label}", *shares, *ends, "yes" if row["differs"] else ""))
    columns = ["option", "before", "now", "change", "low", "high", "differs"]
    console.print(out.table(columns, rows))


@cli.command("shoal screen plan.json tally.json")
@cli.plan_and_tally
@cli.option(
    "--alarm", "Chance of calling an honest crowd suspicious.", type=cli.DECIMAL, default=1e-3
)
@cli.json_option
def screen(plan: Plan, tally: Tally, alarm: float, as_json: bool) -> None:
    """Search a complete crowd for traces of fake reports.

    The p-value holds for every honest crowd, whatever its people answered. Fakes that flip bits as
    honest devices do cannot be detected. A tally of fewer reports than the plan's crowd is refused
    (exit code 3).
    """
    from shoal.analysis.screening import screen

    screening = screen(plan, tally, alarm=alarm)
    document = screening.to_json()
    if as_json:
        out.print_json(document)
        return
    console = out.printer()
    word = "[bold red]suspicious[/]" if screening.suspicious else "[bold green]no trace of fakes[/]"
    crowds = f" of {screening.crowds:,} crowds" if screening.crowds > 1 else ""
    out.show_title(console, plan.survey.name, f"{screening.reports:,} reports{crowds}, {word}")
    p_value = text_near(document["p_value"])
    console.print(f"p-value          {p_value}, alarm at {text_near(screening.alarm)}")
    if screening.suspicious:
        share = document["smallest_share_of_fakes"]
        console.print(f"fakes            at least {share:.4%} of the reports")
    out.show_bullets(console, screening.findings)
