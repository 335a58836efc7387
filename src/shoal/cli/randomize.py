"""`shoal randomize`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from shoal.cli._commands import Command
from shoal.cli._options import (
    IN_FILE,
    check_not_same,
    json_option,
    plan_argument,
    processes_option,
    table_format_options,
)
from shoal.cli._printing import print_json, progress, progress_to
from shoal.errors import InputError
from shoal.protocol.plan import Plan

if TYPE_CHECKING:
    from shoal.support.table_format import TableFormat


@click.command(cls=Command, example="shoal randomize plan.json answers.csv -o reports.parquet")
@plan_argument
@click.argument("answers", type=IN_FILE, nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    type=IN_FILE,
    required=True,
    help="Write the reports to this file (.parquet, .arrow, .rows), or to this folder.",
)
@click.option(
    "--form",
    type=click.Choice(["parquet", "arrow", "rows"]),
    help="How reports are written to a folder.  [default: parquet]",
)
@click.option(
    "--whole-reports",
    is_flag=True,
    help="Write the reports of a plan with view counts, though each may be nearly the truth.",
)
@table_format_options
@processes_option
@json_option
def command(
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
    --invalid missing is given. Each row is read by itself, in the declared format:
    nothing is guessed.

    Several files, or a folder of them, are randomized on all cores into a folder, file by file. If
    the command is interrupted, run it again: it goes on where it stopped, and no answer is
    published in two versions.

    A plan with view counts may flip so few bits that whoever sees a whole report learns the
    answer. Its reports are not written (exit code 3) unless you ask for --whole-reports.
    """
    from shoal.device.arrays.report_files import warning_of
    from shoal.planning.certificate import check_promise

    plan = Plan.read(plan_file)
    check_promise(plan)
    if len(answers) > 1 or answers[0].is_dir() or output.is_dir():
        written = _randomize_many(
            plan, answers, output, form, table_format, whole_reports, processes
        )
    elif form is not None or processes is not None:
        raise InputError("--form and --processes are for many files; name a folder with -o.")
    else:
        written = _randomize_one(plan, answers[0], output, table_format, whole_reports)
    if as_json:
        print_json({"plan": plan.id, "reports": written, "output": str(output)})
    else:
        click.echo(f"{written:,} reports written to {output}.")
    if plan.view == "counts":
        click.echo(f"shoal: warning: {warning_of(plan)}", err=True)


def _randomize_one(
    plan: Plan, answers: Path, output: Path, table_format: TableFormat, whole_reports: bool
) -> int:
    from shoal.device.arrays.answer_files import read_answers
    from shoal.device.arrays.report_files import VectorWriter
    from shoal.device.randomize import flip

    check_not_same(answers, output)
    writing = VectorWriter(output, plan, whole_reports=whole_reports)
    with writing as writer, progress("randomizing") as advance:
        for original in read_answers(plan.survey, answers, table_format):
            writer.write(flip(plan, original))
            advance(len(original))
    return writer.written


def _randomize_many(
    plan: Plan,
    answers: tuple[Path, ...],
    folder: Path,
    form: str | None,
    table_format: TableFormat,
    whole_reports: bool,
    processes: int | None,
) -> int:
    from shoal.batch.randomize_files import randomize_files

    if folder.suffix and not folder.is_dir():
        raise InputError(f"many files are written to a folder, got the file name {folder.name!r}.")
    with progress_to("randomizing, bytes") as reached:
        return randomize_files(
            plan,
            answers,
            folder,
            form=form or "parquet",
            table_format=table_format,
            whole_reports=whole_reports,
            processes=processes,
            progress=reached,
        ).reports
