"""Evidence: `shoal simulate`, `shoal study`, `shoal paper`, `shoal search` and `shoal capacity`."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import click

from shoal.cli import options as cli
from shoal.cli import output as out
from shoal.cli.options import arg, opt
from shoal.errors import InputError, ShoalError
from shoal.protocol.plan import Plan
from shoal.protocol.survey import Survey
from shoal.support.checks import decimal_text
from shoal.support.table_format import TableFormat

if TYPE_CHECKING:
    from shoal.lab.papers import PaperFinding

_MARKS = {"agrees": "green", "misprint": "yellow", "false claim": "bold red"}


@dataclass(frozen=True)
class _People:
    users: int | None = opt("How many people to simulate.", "N")
    answers: Path | None = opt("Draw the people from these answers.")
    texts: Path | None = opt(
        "Answers to text questions: one text per line, the text at rank r with weight 1/r, or a"
        " .csv of text,weight."
    )
    zipf: float | None = opt("With --texts: weight 1/r^S instead.", "S")
    seed: int | None = opt("Seed of the simulated data.  [default: random]")
    table_format: TableFormat = cli.TABLE_FORMAT

    def read(self, plan: Plan) -> dict[str, Any]:
        people: dict[str, Any] = {"users": self.users, "answers": None, "seed": self.seed}
        if self.answers is not None:
            from shoal.device.arrays.files import read_answers

            people["answers"] = read_answers(plan.survey, self.answers, self.table_format)
        return people

    def weights(self) -> dict[str, float] | None:
        if self.texts is None:
            return None
        from shoal.analysis.text.decode import read_candidates
        from shoal.lab.populations import read_weights, zipf

        if self.texts.suffix.lower() == ".csv":
            if self.zipf is not None:
                raise InputError("--zipf is for a file of lines; a .csv gives the weights itself.")
            return read_weights(self.texts)
        texts = [text for text in read_candidates(self.texts) if text]
        return zipf(texts, 1.0 if self.zipf is None else self.zipf)


@dataclass(frozen=True)
class _Study:
    repeat: int | None = opt("Study R runs on the same people.", "R")
    vary: str | None = opt("With --repeat: a study at each users, q or epsilon.", "NAME=A,B,...")
    plot: Path | None = cli.PLOT


@dataclass(frozen=True)
class _Windows:
    windows: int | None = opt(
        "For a retention question: simulate W windows, with --users new people in each.", "W"
    )
    leave: str | None = opt(
        "With --windows: the share that leaves for good before each later one, of all or by arm"
        " (A=S,B=S).  [default: 0.3]",
        "S",
    )
    pause: str | None = opt(
        "With --windows: the share inactive in a window alone.  [default: 0.1]", "S"
    )

    def shares(self) -> dict[str, Any]:
        """Return the shares that are given: one of all people, or one of each arm."""
        given = {"leave": self.leave, "pause": self.pause}
        return {name: _shares(name, text) for name, text in given.items() if text is not None}


@cli.command("shoal simulate plan.json --users 10000")
def simulate(
    *,
    plan: Plan = cli.PLAN,
    people: _People,
    study: _Study,
    over: _Windows,
    through: Literal["distribution", "reports"] | None = opt(
        "Draw counts from their exact distribution, or make every report.  [default:"
        " distribution with --repeat or text, else reports]"
    ),
    output: cli.OutFile | None = cli.output("the simulated tally"),
    level: float = cli.LEVEL,
    interval: cli.Interval = cli.INTERVAL,
    target: cli.Target = cli.TARGET,
) -> out.Result:
    """Try a plan on simulated people.

    The truth is shown beside each estimate. With --repeat the same people report again and again,
    and you see the bias, sigma against theory, and how often each kind of interval holds the truth.
    With --windows people start, come back and leave for good, and -o week.json writes a tally of
    each window: week1.json, week2.json, ...
    """
    if over.windows is not None:
        alone = (study.repeat, study.vary, study.plot, people.answers, people.texts, people.zipf)
        if any(one is not None for one in (*alone, through)) or interval != "exact":
            raise InputError(
                "--windows goes with --users, --leave, --pause, --seed, --level, --target and -o."
            )
        return _simulate_windows(plan, people, over, level, target, output)
    if over.shares():
        raise InputError("--leave and --pause need --windows.")
    if study.repeat is None and (study.vary or study.plot):
        raise InputError("--vary and --plot are for a study; give --repeat too.")
    if study.repeat is not None and (people.texts or output):
        raise InputError("--texts and --output are for one run; leave out --repeat.")
    if people.zipf is not None and people.texts is None:
        raise InputError("--zipf gives weights to texts; give --texts too.")
    if study.repeat is not None and target != "crowd":
        raise InputError("a study repeats the flips on the same people; use --target crowd.")
    if study.repeat is not None:
        return _repeat(plan, people, study.repeat, study, level, through or "distribution")
    from shoal.lab.simulation import simulate

    with out.progress("simulating", people.users) as advance:
        run = simulate(
            plan,
            **people.read(plan),
            texts=people.weights(),
            through=through,
            target=target,
            progress=advance,
        )
    if output is not None:
        run.estimates.tally.write(output)
    document = run.to_json(level, interval)
    written = out.written(output, "tally written to")
    return out.Result(document, chain(_show_simulation(document, plan.survey.name), written))


def _shares(name: str, text: str) -> float | dict[str, float]:
    try:
        if "=" not in text:
            return float(decimal_text(text))
        parts = (one.rpartition("=") for one in text.split(","))
        return {arm.strip(): float(decimal_text(share)) for arm, _, share in parts}
    except InputError as error:
        raise InputError(f"--{name} is a share, or A=S,B=S by arm: {error}") from error


def _simulate_windows(
    plan: Plan, people: _People, over: _Windows, level: float, target: Any, output: Path | None
) -> out.Result:
    from shoal.lab.simulation import simulate_windows

    if people.users is None:
        raise InputError("say with --users how many people start in each window.")
    run = simulate_windows(
        plan,
        new_users=people.users,
        windows=over.windows or 0,
        **over.shares(),
        seed=people.seed,
        level=level,
        target=target,
    )
    lines = [str(run)]
    if output is not None:
        files = run.write(output)
        lines.append(f"tallies written to {files[0]} ... {files[-1]}")
    return out.Result(run.to_json(), "\n\n".join(lines))


def _show_simulation(document: dict[str, Any], title: str) -> out.Pieces:
    from shoal.cli.estimate import show_estimates

    notes = [] if "texts" in document else document["notes"]  # texts are shown below
    yield from show_estimates(document | {"notes": notes}, title)
    for question, decoded in document.get("texts", {}).items():
        yield from _show_texts(question, decoded)


def _show_texts(question: str, decoded: dict[str, Any], shown: int = 20) -> out.Pieces:
    from shoal.cli.text import same_texts

    found = [row for row in decoded["candidates"] if row["found"]]
    false = [row for row in found if row["truth"] == 0]
    rows = []
    for row in found[:shown]:
        numbers = f"{row['truth']:,}", f"{row['count']:,.0f}", *out.outward(row["low"], row["high"])
        rows.append((same_texts(row), *numbers))
    yield ""
    yield out.table(["text", "truth", "count", "low", "high"], rows, title=question)
    yield (
        f"{len(found):,} of {len(decoded['candidates']):,} texts found,"
        f" {len(false):,} of them false (given by no person)"
    )


def _repeat(
    plan: Plan, people: _People, repetitions: int, wanted: _Study, level: float, through: Any
) -> out.Result:
    from shoal.lab.study import study

    grid = _grid(wanted.vary)
    points = len(next(iter(grid.values()))) if grid else 1
    with out.progress("repeating", repetitions * points) as advance:
        result = study(
            plan,
            **people.read(plan),
            repetitions=repetitions,
            vary=grid,
            level=level,
            through=through,
            progress=advance,
        )
    cli.draw(wanted.plot, result.plot)
    written = out.written(wanted.plot, "\nwritten to")
    return out.Result(result.to_json(), chain([out.Plain(str(result))], written))


def _grid(vary: str | None) -> Any:
    """Read NAME=A,B,...; the values stay text, except numbers of people."""
    if vary is None:
        return None
    name, _, values = vary.partition("=")
    grid: list[Any] = [value.strip() for value in values.split(",")]
    if name not in ("users", "q", "epsilon") or not all(grid):
        raise InputError(f"--vary takes users=, q= or epsilon= and values, got {vary[:80]!r}.")
    if name == "users":
        if not all(value.isascii() and value.isdigit() and len(value) < 16 for value in grid):
            raise InputError(f"users must be whole numbers, got {vary[:80]!r}.")
        grid = [int(value) for value in grid]
    return {name: grid}


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
    text = markdown_table(selection) if markdown else _show_findings(selection, everything, files)
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


def _show_findings(
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
