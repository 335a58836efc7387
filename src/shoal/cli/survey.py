"""`shoal survey` and `shoal survey from`."""

from __future__ import annotations

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
    if output is not None:
        write_text(output, proposal.to_toml())
    return out.Result(proposal.to_json(), _show(proposal, output))


def _show(proposal: SurveyProposal, output: Path | None) -> out.Pieces:
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
