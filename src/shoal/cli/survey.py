"""`shoal survey` and `shoal survey from`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shoal.cli.options import (
    IN_FILE,
    Command,
    CommandOrGroup,
    check_new,
    json_option,
    new_file_options,
    option,
    promise_options,
    survey_options,
    view_option,
)
from shoal.cli.output import (
    print_json,
    printer,
    show_bullets,
    show_title,
    show_written,
    table,
    waiting,
)
from shoal.errors import InputError
from shoal.planning.costs import QuestionCost, survey_costs
from shoal.protocol.survey import Survey
from shoal.support.files import write_text
from shoal.support.rounding import text_near

if TYPE_CHECKING:
    from shoal.device.arrays.infer_survey import SurveyProposal


@click.command(
    cls=CommandOrGroup,
    example="shoal survey survey.toml --crowd 10000 --epsilon 1 --delta 1e-6",
)
@survey_options
@promise_options()
@view_option()
@json_option
def survey(
    survey: Survey,
    crowd: int | None,
    epsilon: str | None,
    delta: str | None,
    view: Any,
    as_json: bool,
) -> None:
    """Show what each question of a survey costs, or infer a survey.

    Every question adds flips to all bits. With --crowd, --epsilon and --delta the cost of each
    question is computed: the error of all other counts if it were not asked. Without them only the
    sizes are shown.
    """
    if crowd is None or epsilon is None or delta is None:
        if (crowd, epsilon, delta) != (None, None, None):
            raise InputError("the costs of questions need --crowd, --epsilon and --delta.")
        document = {
            "survey": survey.name,
            "bits": survey.bits,
            "differing_bits": survey.differing_bits,
            "questions": [QuestionCost(question, None, None).to_json() for question in survey],
        }
    else:
        with waiting():
            costs = survey_costs(survey, crowd_size=crowd, epsilon=epsilon, delta=delta, view=view)
        document = costs.to_json()
    if as_json:
        print_json(document)
    else:
        _show_costs(document)


def _show_costs(document: dict[str, Any]) -> None:
    console = printer()
    differ = f"two answers differ in up to {document['differing_bits']:,}"
    show_title(console, document["survey"], f"{document['bits']:,} bits, {differ}")
    known = "sigma" in document
    if known:
        console.print(
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
    console.print(table(columns, rows, left=2))
    if known:
        console.print("cost: how much larger the error of the others is because this is asked")


@survey.command("from", cls=Command, example="shoal survey from data.csv -o survey.toml")
@click.argument("data", type=IN_FILE, metavar="DATA.csv")
@option("--name", "Name of the survey.", metavar="NAME")
@new_file_options("the survey, as .toml,")
@json_option
def from_table(
    data: Path, name: str | None, output: Path | None, force: bool, as_json: bool
) -> None:
    """Infer a survey from a table of answers, and explain each choice.

    DATA is a .csv or .parquet file with one row per person. Each column becomes a question of the
    kind that fits it, or is left out with a reason, for example because it looks like an
    identifier. Options and ranges are taken from the data: read the survey before you publish it.
    """
    from shoal.device.arrays.infer_survey import infer_survey

    check_new(output, force)
    proposal = infer_survey(data, name=name)
    if output is not None:
        write_text(output, proposal.to_toml())
    if as_json:
        print_json(proposal.to_json())
        return
    if output is None:
        click.echo(proposal.to_toml(), nl=False)
    _show(proposal, output)


def _show(proposal: SurveyProposal, output: Path | None) -> None:
    """Print what the columns hold: on stderr if the survey itself is on stdout."""
    console = printer(stderr=output is None)
    survey = proposal.survey
    show_title(console, survey.name, f"{len(survey.asked):,} questions, {survey.bits:,} bits")
    rows = [(one.column, one.kind, one.seen) for one in proposal.columns]
    columns = table(["column", "kind", "seen"], rows, left=3)
    columns.columns[0].max_width, columns.columns[1].no_wrap = 24, True
    console.print(columns)
    console.print()
    show_bullets(console, proposal.notes)
    show_written(console, output, "survey written to")
