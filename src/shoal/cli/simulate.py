"""`shoal simulate`."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from shoal.cli import options as cli
from shoal.cli import output as out
from shoal.cli.options import opt
from shoal.errors import InputError
from shoal.protocol.plan import Plan
from shoal.support.checks import decimal_text
from shoal.support.table_format import TableFormat


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
        return _study(plan, people, study.repeat, study, level, through or "distribution")
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
    return out.Result(document, chain(_show(document, plan.survey.name), written))


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


def _show(document: dict[str, Any], title: str) -> out.Pieces:
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


def _study(
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
    if wanted.plot is not None:
        result.save_plot(wanted.plot)
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
