"""`shoal estimate` and `shoal screen`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.analysis.crowds import in_crowds
from shoal.analysis.tally import Tally
from shoal.cli import options as cli
from shoal.cli import output as out
from shoal.cli.options import opt
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
    more = [str(one) for one in (*experiments.values(), *funnels.values())]
    return out.Result(document, _show(document, plan.survey.name, more))


def _show(document: dict[str, Any], title: str, more: Sequence[str]) -> out.Pieces:
    yield from show_estimates(document, title)
    for question, summary in document["numbers"].items():
        yield from show_numbers(question, summary)
    for text in more:
        yield out.Plain(f"\n{text}")
    if "difference" in document:
        yield from _difference(document["difference"])


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


def _difference(document: dict[str, Any]) -> out.Pieces:
    yield (
        f"\nChange against {document['second']['reports']:,} reports in percentage points;"
        f" intervals {document['interval']}, at {document['level']:.4g}"
    )
    rows = []
    for question, options in document["questions"].items():
        for label, row in options.items():
            shares = [f"{row[key]:.2%}" for key in ("second", "first")]
            ends = [f"{100 * row[key]:+.2f}" for key in ("difference", "low", "high")]
            rows.append((f"{question}: {label}", *shares, *ends, "yes" if row["differs"] else ""))
    yield out.table(["option", "before", "now", "change", "low", "high", "differs"], rows)


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
    document = screening.to_json()
    word = "[bold red]suspicious[/]" if screening.suspicious else "[bold green]no trace of fakes[/]"
    crowds = f" of {screening.crowds:,} crowds" if screening.crowds > 1 else ""
    p_value = text_near(document["p_value"])
    text: list[Any] = [
        out.title(plan.survey.name, f"{screening.reports:,} reports{crowds}, {word}"),
        f"p-value          {p_value}, alarm at {text_near(screening.alarm)}",
    ]
    if screening.suspicious:
        share = document["smallest_share_of_fakes"]
        text.append(f"fakes            at least {share:.4%} of the reports")
    return out.Result(document, [*text, out.bullets(screening.findings)])
