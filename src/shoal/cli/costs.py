"""`shoal survey`, `compare`, `dap-noise` and `migrate`: what a plan would cost."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from shoal.cli import options as cli
from shoal.cli import output as out
from shoal.cli.options import arg, opt
from shoal.errors import InputError
from shoal.planning.costs import QuestionCost, survey_costs
from shoal.protocol.survey import Survey
from shoal.support.files import write_text
from shoal.support.rounding import text_near

if TYPE_CHECKING:
    from shoal.device.arrays.infer_survey import SurveyProposal
    from shoal.planning.costs import Comparison, Cost


@cli.command(
    "shoal survey survey.toml --crowd 10000 --epsilon 1 --delta 1e-6", cls=cli.CommandOrGroup
)
def survey(
    survey: Survey = cli.SURVEY,
    crowd_size: int | None = cli.CROWD,
    epsilon: str | None = cli.EPSILON,
    delta: str | None = cli.DELTA,
    view: cli.View = cli.VIEW,
) -> out.Result:
    """Show the cost of each question of a survey, or infer a survey.

    Every question adds flips to all bits. With --crowd, --epsilon and --delta the cost of each
    question is computed: the error of all other counts if it were not asked. Without them only the
    sizes are shown.
    """
    if crowd_size is None or epsilon is None or delta is None:
        if (crowd_size, epsilon, delta) != (None, None, None):
            raise InputError("the costs of questions need --crowd, --epsilon and --delta.")
        document = {
            "survey": survey.name,
            "bits": survey.bits,
            "differing_bits": survey.differing_bits,
            "questions": [QuestionCost(question, None, None).to_json() for question in survey],
        }
    else:
        with out.waiting():
            document = survey_costs(
                survey, crowd_size=crowd_size, epsilon=epsilon, delta=delta, view=view
            ).to_json()
    return out.Result(document, _show_costs(document))


def _show_costs(document: dict[str, Any]) -> out.Pieces:
    differ = f"two answers differ in up to {document['differing_bits']:,}"
    yield out.title(document["survey"], f"{document['bits']:,} bits, {differ}")
    known = "sigma" in document
    if known:
        yield (
            f"q {text_near(document['q'])}, sigma of a count {text_near(document['sigma'], 3)} of"
            f" {document['crowd_size']:,} people"
        )
    rows = []
    for row in document["questions"]:
        sigma, costs = row["sigma_without"], []
        if known:
            costs = ["", "all"]
            if sigma is not None:
                costs = [text_near(sigma, 3), f"{document['sigma'] / sigma - 1:+.0%}"]
        sizes = [f"{row[key]:,}" for key in ("bits", "differing_bits")]
        rows.append([row["name"], row["kind"], *sizes, *costs])
    columns = ["question", "kind", "bits", "differ", *(["sigma without", "cost"] if known else [])]
    yield out.table(columns, rows, left=2)
    if known:
        yield "cost: how much larger the error of the others is because this is asked"


@cli.command("shoal survey from data.csv -o survey.toml", "from", group=survey)
def from_table(
    data: Path = arg("DATA.csv"),
    name: str | None = opt("Name of the survey.", "NAME"),
    dates: Literal["month", "weekday", "week"] | None = opt(
        "Ask for this part of dates.  [default: dates are left out]"
    ),
    crosses: tuple[str, ...] = cli.CROSSES,
    output: cli.OutFile | None = cli.output("the survey, as .toml,"),
    force: bool = cli.FORCE,
) -> out.Result:
    """Infer a survey from a table of answers, and explain each choice.

    DATA is a .csv, .xlsx or .parquet file with one row per person. Each column becomes a question
    of the kind that fits it, or is left out with a reason, for example because it looks like an
    identifier. The format of the table is guessed, and declared in [table] of the survey. Options
    and limits are taken from the data: read the survey before you publish it.
    """
    from shoal.device.arrays.infer_survey import infer_survey

    cli.check_new(output, force)
    proposal = infer_survey(data, name=name, dates=dates)
    proposal = replace(proposal, survey=cli.crossed(proposal.survey, crosses))
    if output is not None:
        write_text(output, proposal.to_toml())
    return out.Result(proposal.to_json(), _show_proposal(proposal, output))


def _show_proposal(proposal: SurveyProposal, output: Path | None) -> out.Pieces:
    """Yield what the columns hold; on stderr if the survey itself is on stdout."""
    if output is None:
        yield out.Plain(proposal.to_toml().removesuffix("\n"))
        out.show(_columns(proposal), stderr=True)
        return
    yield from _columns(proposal)
    yield from out.written(output, "survey written to")


def _columns(proposal: SurveyProposal) -> out.Pieces:
    survey = proposal.survey
    yield out.title(survey.name, f"{len(survey.asked):,} questions, {survey.bits:,} bits")
    rows = [(one.column, one.kind, one.seen) for one in proposal.columns]
    columns = out.table(["column", "kind", "seen"], rows, left=3)
    columns.columns[0].max_width, columns.columns[1].no_wrap = 24, True
    yield columns
    yield ""
    yield out.bullets(proposal.notes)


_TRUST = {
    "local": "nobody",
    "proven": "that reports are anonymized, the others honest",
    "sufficient": "the same; not a guarantee",
    "three-sigma": "the same; a rule of thumb",
    "counts": "that only counts are seen, never a report",
    "curator": "a curator who sees all answers; Laplace noise",
    "curator_gaussian": "the same; normal noise",
}


@dataclass(frozen=True)
class _Request:
    crowd_size: int = cli.CROWD
    epsilon: str = cli.EPSILON
    delta: str = cli.DELTA
    share: float = opt("Size of the group of interest, as a share of the crowd.", default=0.01)
    relative_error: float = opt(
        "How precisely to know that group, relative to its size.", default=0.1
    )
    level: float = cli.LEVEL


@cli.command("shoal compare --flags 5 --crowd 10000 --epsilon 1 --delta 1e-6")
def compare(
    *, survey: Survey = cli.SURVEY, request: _Request, plot: Path | None = cli.PLOT
) -> out.Result:
    """Compare the cost of each trust model for a survey.

    The same survey at the same epsilon: with local noise, in an anonymous crowd, and with a
    trusted curator. How many people does each need, and how precise are its counts? For
    `--promise sufficient`, delta is used as eta.
    """
    from shoal.planning.costs import compare

    with out.waiting("comparing"):
        comparison = compare(survey, **vars(request))
    cli.draw(plot, comparison.plot)
    return out.Result(comparison.to_json(), chain(_show(comparison), out.written(plot)))


def _show(comparison: Comparison) -> out.Pieces:
    survey, people = comparison.survey, f"{comparison.crowd_size:,} people"
    yield out.title(
        survey.name,
        f"{out.bits_in_words(survey.bits)}, {people}, epsilon {comparison.epsilon},"
        f" delta {comparison.delta}",
    )
    group, level = _percent(comparison.share), text_near(comparison.level)
    yield (
        f"\nHow many people you need, to know a group of {group} of them within"
        f" {_percent(comparison.relative_error)} of its size, at {level}:"
    )
    yield out.table(["kind", "you trust", "people needed"], map(_needed, comparison), left=2)
    yield f"\nHow precise counts are, with {people}:"
    columns = ["kind", "noise", "sigma", f"group of {group}", "gain"]
    yield out.table(columns, map(_precision, comparison))
    yield (
        f"\nsigma: standard deviation of a count of people. group of {group}: half the width of an"
        f" interval at {level} for it. gain: how many times smaller sigma is than with local noise."
    )
    if survey.cohorts is not None:
        yield "All of this is about single bits; a text sets several bits and is less precise."
    yield from out.warnings(comparison.warnings)


def _percent(part: float) -> str:
    return f"{text_near(100 * part, 3)} %"


def _needed(cost: Cost) -> tuple[Any, ...]:
    people = "over 1e12" if cost.people_needed is None else f"{cost.people_needed:,}"
    return out.bold(cost.trust), _TRUST[cost.trust], people


def _precision(cost: Cost) -> tuple[Any, ...]:
    noise = "none suffices" if cost.q is None else f"q {text_near(cost.q, 4)}"
    if cost.scale is not None:
        noise = f"scale {text_near(cost.scale)}"
    elif cost.trust == "curator_gaussian":
        noise = "normal"
    return (
        out.bold(cost.trust),
        noise,
        "-" if cost.sigma is None else out.grouped(cost.sigma),
        "-" if cost.half_width is None else f"± {out.grouped(cost.half_width)}",
        "-" if cost.gain_over_local is None else out.grouped(cost.gain_over_local, 3),
    )


@dataclass(frozen=True)
class _Task:
    vdaf: Literal["count", "sum", "sumvec", "histogram", "multihotcountvec"] = opt("Which Prio3.")
    batch: int = opt("How many honest reports a batch has at least.", "N")
    delta: str = cli.DELTA
    epsilon: str | None = cli.EPSILON
    eps0: str | None = opt("Instead of --epsilon: the eps_0 with which clients flip.", "E")
    length: int | None = opt("How many entries a vector has.", "L")
    max_measurement: int | None = opt("The largest number of a sum or sumvec.", "M")
    weight: int | None = opt("Ones of a vector before it is flipped.  [default: 1]", "K")
    max_weight: int | None = opt(
        "Ones that the proof allows after flips.  [default: as few as will do]", "W"
    )
    neighbours: Literal["replace", "add-remove"] = opt(
        "Neighbouring batches: one report replaced, or one added or removed.", default="replace"
    )


@cli.command(
    "shoal dap-noise --vdaf multihotcountvec --length 100 --batch 100000 \\\n"
    "    --epsilon 0.906 --delta 1e-9",
    "dap-noise",
)
def dap_noise(task: _Task) -> out.Result:
    """Compute the noise of a DAP task, of clients or of aggregators.

    Clients flip bits, or aggregators add noise to their shares. Both ways are printed side by side,
    each with the trust model for which it holds (draft-wang-ppm-differential-privacy), for any
    deployment of DAP with Prio3, not only Shoal's.

    With --eps0 it computes which epsilon is proven for clients that already flip.
    """
    from shoal.planning.dap_noise import dap_noise as compute

    with out.waiting():
        noise = compute(**vars(task))
    return out.Result(noise.to_json(), str(noise))


@cli.command("shoal migrate params.csv --crowd 1000000 --delta 1e-9 -o plan.json")
def migrate(
    parameters: Path = arg("PARAMS.csv"),
    crowd_size: int | None = cli.CROWD,
    delta: str = cli.DELTA.but(default="1e-6"),
    name: str = opt("Name of the survey.", default="rappor"),
    output: cli.OutFile | None = cli.output("the plan"),
    force: bool = cli.FORCE,
    accept_weak_promise: bool = cli.ACCEPT_WEAK_PROMISE,
) -> out.Result:
    """Turn RAPPOR parameters into a plan, and state its promise.

    PARAMS.csv has the header k,h,m,p,q,f and one row, as google/rappor writes it. A .json file with
    these keys works too.
    """
    from shoal.planning.rappor import RapporParameters, migrate

    if output is not None:
        cli.check_not_same(parameters, output)
    read = RapporParameters.read(parameters)
    promise: Any = {"delta": delta, "accept_weak_promise": accept_weak_promise}
    migration = migrate(read, crowd_size=crowd_size, name=name, **promise)
    cli.write_plan(migration.plan, output, force)
    document = migration.to_json()
    return out.Result(
        document, chain(_show_migration(document), out.written(output, "plan written to"))
    )


def _show_migration(document: dict[str, Any]) -> out.Pieces:
    theirs, ours, bits = document["rappor"], document["plan"], document["effective"]
    numbers = document["parameters"].items()
    yield "RAPPOR: " + ", ".join(f"{name} = {text_near(value, 6)}" for name, value in numbers)
    rows = [
        ("a clear bit is reported as 1", bits["p_star"], ours["q"]),
        ("a set bit is reported as 0", bits["set_bit_flipped"], ours["q"]),
        ("one report, local epsilon", theirs["local_epsilon"], ours["local_epsilon"]),
        (
            "all time, local epsilon per answer",
            theirs["all_time_epsilon"],
            ours["all_time_epsilon"],
        ),
    ]
    if crowd := document["crowd"]:
        at = f"proven epsilon at delta {text_near(crowd['delta'])}, crowd"
        rows.append((f"{at} of {crowd['size']:,}", crowd["proven_fresh_cohorts"], ours["epsilon"]))
        kept = f"{at} of {crowd['cohort_size']:,}, cohorts kept"
        rows.append((kept, crowd["proven_kept_cohorts"], ""))
    cells = [(words, *map(_number, values)) for words, *values in rows]
    yield out.table(["", "RAPPOR", "Shoal"], cells)
    yield (
        f"RAPPOR's own formulas: epsilon_1 = {_number(theirs['epsilon_1'])},"
        f" epsilon_infinity = {_number(theirs['epsilon_infinity'])}"
    )
    yield out.bullets(document["notes"])


def _number(value: float | str | None) -> str:
    return "none" if value is None else value if isinstance(value, str) else text_near(value, 6)
