"""`shoal encode` and `shoal randomize`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from shoal.cli.options import (
    IN_FILE,
    check_not_same,
    command,
    json_option,
    option,
    output_option,
    plan_argument,
    processes_option,
    table_format_options,
)
from shoal.cli.output import print_json, progress, progress_to
from shoal.errors import InputError
from shoal.protocol.plan import Plan

if TYPE_CHECKING:
    from shoal.support.table_format import TableFormat


@command("shoal encode plan.json answers.csv -o originals.parquet")
@plan_argument
@click.argument("answers", type=IN_FILE)
@output_option("the vectors, as .parquet,", required=True)
@table_format_options
@json_option
def encode(
    plan_file: Path, answers: Path, output: Path, table_format: TableFormat, as_json: bool
) -> None:
    """Turn answers into bit vectors, which stay on the device.

    ANSWERS is a .csv, .ndjson or .parquet file with one row per person and one column per
    question. The vectors are originals: they are not randomized, so do not send them.
    """
    from shoal.device.arrays.answer_files import read_answers
    from shoal.device.arrays.report_files import VectorWriter
    from shoal.planning.certificate import check_promise

    plan = Plan.read(plan_file)
    check_promise(plan)
    check_not_same(answers, output)
    with VectorWriter(output, plan, kind="original") as writer, progress("encoding") as advance:
        for original in read_answers(plan.survey, answers, table_format):
            writer.write(original)
            advance(len(original))
    if as_json:
        print_json({"plan": plan.id, "originals": writer.written, "output": str(output)})
    else:
        click.echo(
            f"{writer.written:,} originals written to {output}. They are not randomized: do not"
            " send them."
        )


@command("shoal randomize plan.json answers.csv -o reports.parquet")
@plan_argument
@click.argument("answers", type=IN_FILE, nargs=-1, required=True)
@option(
    "-o",
    "--output",
    "Write the reports to this file (.parquet, .arrow, .rows), or to this folder.",
    type=IN_FILE,
    required=True,
)
@option(
    "--form",
    "How reports are written to a folder.  [default: parquet]",
    type=click.Choice(["parquet", "arrow", "rows"]),
)
@option(
    "--whole-reports",
    "Write the reports of a plan with view counts, though each may be nearly the truth.",
    is_flag=True,
)
@table_format_options
@processes_option
@json_option
def randomize(
    plan_file: Path,
    answers: tuple[Path, ...],
    output: Path,
    form: str | None,
    whole_reports: bool,
    table_format: TableFormat,
    processes: int | None,
    as_json: bool,
) -> None:
    """Turn answers into randomized reports, as devices send them.

    Each bit of an answer is flipped with the plan's probability q. ANSWERS is a .csv, .ndjson,
    .arrow or .parquet file with one row per person and one column per question, or a file that
    `shoal encode` wrote. If one answer is not allowed, nothing is written, unless
    --invalid missing is given. The format is never guessed.

    Several files, or a folder of them, are randomized on all cores into a folder, file by file. If
    the command is interrupted, run it again: it continues where it stopped, and no answer is
    published in two versions.

    A plan with view counts may flip so few bits that a whole report reveals the answer. Its reports
    are not written (exit code 3) unless you ask for --whole-reports.
    """
    from shoal.device.arrays.answer_files import read_answers
    from shoal.device.arrays.report_files import VectorWriter, warning_of
    from shoal.device.randomize import flip
    from shoal.planning.certificate import check_promise

    plan = Plan.read(plan_file)
    check_promise(plan)
    if len(answers) > 1 or answers[0].is_dir() or output.is_dir():
        from shoal.batch.randomize_files import randomize_files

        if output.suffix and not output.is_dir():
            name = output.name
            raise InputError(f"many files are written to a folder, got the file name {name!r}.")
        with progress_to("randomizing, bytes") as reached:
            written = randomize_files(
                plan,
                answers,
                output,
                form=form or "parquet",
                table_format=table_format,
                whole_reports=whole_reports,
                processes=processes,
                progress=reached,
            ).reports
    elif form is not None or processes is not None:
        raise InputError("--form and --processes are for many files; name a folder with -o.")
    else:
        check_not_same(answers[0], output)
        writing = VectorWriter(output, plan, whole_reports=whole_reports)
        with writing as writer, progress("randomizing") as advance:
            for original in read_answers(plan.survey, answers[0], table_format):
                writer.write(flip(plan, original))
                advance(len(original))
        written = writer.written
    if as_json:
        print_json({"plan": plan.id, "reports": written, "output": str(output)})
    else:
        click.echo(f"{written:,} reports written to {output}.")
    if plan.view == "counts":
        click.echo(f"shoal: warning: {warning_of(plan)}", err=True)
