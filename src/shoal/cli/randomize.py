"""`shoal randomize`."""

from __future__ import annotations

from pathlib import Path

import click

from shoal.agreement.plan import Plan
from shoal.cli._commands import Command
from shoal.cli._common import (
    IN_FILE,
    check_not_same,
    json_option,
    output_option,
    plan_argument,
    print_json,
    progress,
)


@click.command(cls=Command, example="shoal randomize plan.json answers.csv -o reports.parquet")
@plan_argument
@click.argument("answers", type=IN_FILE)
@output_option("the reports, as .parquet or .rows,", required=True)
@click.option(
    "--whole-reports",
    is_flag=True,
    help="Write the reports of a plan with view counts, though each is nearly the truth.",
)
@json_option
def command(
    plan_file: Path, answers: Path, output: Path, whole_reports: bool, as_json: bool
) -> None:
    """Turn answers into randomized reports, as devices send them.

    Each bit of an answer is flipped with the plan's probability q. ANSWERS is a .csv, .ndjson or
    .parquet file with one row per person and one column per question, or a file that `shoal encode`
    wrote. If one answer is not allowed, nothing is written.

    A plan with view counts flips so few bits that whoever sees a whole report learns the answer.
    Its reports are not written (exit code 3) unless you ask for --whole-reports.
    """
    from shoal.device.bulk.answer_files import read_answers
    from shoal.device.bulk.report_files import VectorWriter, warning_of
    from shoal.device.randomizing import randomize
    from shoal.planning.promise import check_promise

    plan = Plan.read(plan_file)
    check_promise(plan)
    check_not_same(answers, output)
    writing = VectorWriter(output, plan, whole_reports=whole_reports)
    with writing as writer, progress("randomizing") as advance:
        for original in read_answers(plan.survey, answers):
            writer.write(randomize(original, plan))
            advance(len(original))
    if as_json:
        print_json({"plan": plan.id, "reports": writer.written, "output": str(output)})
    else:
        click.echo(f"{writer.written:,} reports written to {output}.")
    if plan.view == "counts":
        click.echo(f"shoal: warning: {warning_of(plan)}", err=True)
