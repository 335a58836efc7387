"""`shoal paper`, `shoal search`, `shoal study` and `shoal capacity`."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import click

from shoal.cli import options as cli
from shoal.cli import output as out
from shoal.cli.options import arg, opt
from shoal.errors import InputError, ShoalError
from shoal.protocol.plan import Plan
from shoal.protocol.survey import Survey

if TYPE_CHECKING:
    from shoal.lab.papers import PaperFinding

_MARKS = {"agrees": "green", "misprint": "yellow", "false claim": "bold red"}


@cli.command("shoal paper --errors")
def paper(
    as_json: bool,
    errors: bool = opt("Show only the misprints and false claims."),
    markdown: bool = opt("Print a Markdown table."),
    figures: cli.OutFolder | None = opt("Also draw the figures into this folder, as PNG and SVG."),
) -> out.Result:
    """Recompute the numbers in the papers, errors included.

    Every number and claim of SDP, KR, LEC and BITVEC (docs/sources.md) beside the computed one.
    """
    from shoal.lab.papers import findings

    if markdown and as_json:
        raise InputError("give one of --json and --markdown.")
    everything: list[PaperFinding] = []
    with out.progress("recomputing") as advance:
        for finding in findings():
            everything.append(finding)
            advance(1)
    files: list[Path] = []
    if figures is not None:
        from shoal.lab.papers.figures import plot_figures

        files = plot_figures(figures)
    selection = [one for one in everything if not errors or one.verdict != "agrees"]
    document = [asdict(finding) for finding in selection]
    text = markdown_table(selection) if markdown else _show(selection, everything, files)
    return out.Result(document, text)


def markdown_table(findings: Sequence[PaperFinding]) -> str:
    lines = ["| where | printed | computed | verdict | why |", "|---|---|---|---|---|"]
    for finding in findings:
        cells = (
            f"{finding.source} {finding.where}",
            f"`{finding.printed}`",
            f"`{finding.computed}`",
            finding.verdict,
            finding.why,
        )
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def _show(
    selection: Sequence[PaperFinding], everything: Sequence[PaperFinding], files: Sequence[Path]
) -> out.Pieces:
    from rich.table import Table

    for source, group in itertools.groupby(selection, key=lambda finding: finding.source):
        table = Table(box=None, pad_edge=False, title=source, title_justify="left",
                      title_style="bold", header_style="dim")  # fmt: skip
        table.add_column("where", ratio=5)
        table.add_column("printed", ratio=6)
        table.add_column("computed", ratio=4)
        table.add_column("verdict", no_wrap=True, min_width=11)
        notes = []
        for finding in group:
            cells = map(out.escape, (finding.where, finding.printed, finding.computed))
            verdict = f"[{_MARKS[finding.verdict]}]{finding.verdict}[/]"
            table.add_row(*cells, verdict)
            if finding.verdict != "agrees":
                notes.append(f"{verdict} in {out.escape(finding.where)}: {out.escape(finding.why)}")
        yield table
        yield from notes
        yield ""
    count = Counter(finding.verdict for finding in everything)
    yield (
        f"{len(everything)} statements: {count['agrees']} agree, {count['misprint']} are"
        f" misprinted, {count['false claim']} are false."
    )
    for path in files:
        yield from out.written(path)


@cli.command("shoal search --flags 2 --crowd 4 --q 0.25 --epsilon 1")
def search(
    survey: Survey = cli.SURVEY,
    crowd_size: int = cli.CROWD,
    q: str = cli.Q,
    epsilon: float = opt("Search at this epsilon, 0 or more.", "E"),
    measure: Literal["delta", "eta"] = opt("Quantity to maximize.", default="delta"),
    state: cli.OutFile | None = opt("Save progress to this file and continue from it."),
) -> out.Result:
    """Search for crowds that break the papers' conjecture.

    Small cases are searched completely, up to symmetry, larger ones by families of crowds. The
    worst crowd found is compared with the conjectured one and with the proven bound.
    """
    from shoal.lab.counterexamples import Searching

    searching = Searching(
        survey, crowd_size=crowd_size, q=q, epsilon=epsilon, measure=measure, state=state
    )
    try:
        with out.progress("searching", searching.steps) as advance:
            advance(searching.done)
            worst = searching.run(advance)
    except KeyboardInterrupt:
        if state is None:
            raise
        raise ShoalError(
            f"interrupted after {searching.done:,} of {searching.steps:,} steps; the same command"
            f" continues from {state}."
        ) from None
    error = None
    if worst.exceeds_proven:
        error = ShoalError(
            "BUG: this crowd exceeds the proven bound, which is a theorem. Do not rely on this"
            " version of Shoal, and please report this output."
        )
    return out.Result(worst.to_json(), str(worst), error=error)


@cli.command("shoal capacity plan.json --data /srv")
def capacity(
    plan_file: Path | None = arg("[PLAN.json]"),
    data: cli.InFolder | None = opt("Measure the disk of this folder.  [default: here]"),
    seconds: float = opt(
        "About how long all measurements take together.", default=40.0, type=click.FLOAT
    ),
    peak: float = opt(
        "How many times the average comes in the busiest time.", default=3.0, type=click.FLOAT
    ),
    database: str | None = opt(
        "Measure this PostgreSQL database too: postgresql://USER@HOST/NAME.", "URL"
    ),
) -> out.Result:
    """Measure this machine, and size it for many devices a day.

    Real reports go through the real code: a collector over HTTP, the stores of a collector and a
    relay, the decryption of reports, and the tally. The needs of a million, a hundred million and
    a billion devices a day follow by formulas that are printed too.

    The plan determines the length of a report; without a plan, a report has 40 flags. All files
    that are written are deleted, and existing data in a database are not touched.
    """
    from shoal.lab.capacity import measure_capacity
    from shoal.server.storage.postgres import trial_schema
    from shoal.server.storage.store import Store

    plan = None if plan_file is None else Plan.read(plan_file)
    trial = nullcontext() if database is None else trial_schema(database)
    with trial as url, out.progress_to("measuring") as step:
        opening = None if url is None else (lambda folder: Store(folder, url=url))
        measured = measure_capacity(
            plan, folder=data, seconds=seconds, peak=peak, database=opening, step=step
        )
    return out.Result(measured.to_json(), str(measured))


@cli.command("shoal study --repetitions 20000")
def study(
    *,
    repetitions: int = opt("Repetitions of each case.", "R", default=20_000),
    crowds: str = opt("Sizes of crowds.", "A,B,...", default="2000,20000"),
    shares: str = opt("Shares of control.", "A,B,...", default="0,0.01,0.1,0.5,0.9,1"),
    only: str | None = opt("Some statistics only, such as difference,funnel.", "A,B,..."),
    views: str = opt("Views of the plans.", "A,B", default="counts,reports"),
    epsilon: str = cli.EPSILON.but(default="1"),
    delta: str = cli.DELTA.but(default="1e-6"),
    level: float = cli.LEVEL,
    seed: int = opt("Seed of the simulated data.", default=1),
) -> out.Result:
    """Measure how often intervals of experiments hold the truth.

    Those of retention and funnels too. People are drawn from a population, and their counts from
    the exact distribution of the flips. Without an effect, a test should raise a false alarm in at
    most 1 - level of the cases: in one look, and in any of 52 looks of a confidence sequence.
    """
    from shoal.lab.experiment_study import Statistic, experiment_study
    from shoal.support.checks import check_one_of

    chosen: Any = get_args(Statistic)
    if only is not None:
        chosen = [one.strip() for one in only.split(",")]
        for one in chosen:
            check_one_of("only", one, get_args(Statistic))
    wanted: Any = [one.strip() for one in views.split(",")]
    for one in wanted:
        check_one_of("views", one, ("counts", "reports"))
    with out.progress("repeating") as advance:
        done = experiment_study(
            repetitions=repetitions,
            people=[cli.WHOLE.convert(one, None, None) for one in crowds.split(",")],
            shares=[cli.DECIMAL.convert(one, None, None) for one in shares.split(",")],
            views=wanted,
            statistics=chosen,
            epsilon=epsilon,
            delta=delta,
            level=level,
            seed=seed,
            progress=advance,
        )
    return out.Result(done.to_json(), str(done))
