"""`shoal encode` and `shoal randomize`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from shoal.cli import options as cli
from shoal.cli import output as out
from shoal.cli.options import arg, opt
from shoal.errors import InputError
from shoal.protocol.plan import Plan
from shoal.support.table_format import TableFormat


@cli.command("shoal encode plan.json answers.csv -o originals.parquet")
def encode(
    plan: Plan = cli.PLAN,
    answers: Path = arg(),
    output: cli.OutFile = cli.output("the vectors, as .parquet,"),
    table_format: TableFormat = cli.TABLE_FORMAT,
) -> out.Result:
    """Turn answers into bit vectors, which stay on the device.

    ANSWERS is a .csv, .xlsx, .ndjson or .parquet file with one row per person and one column per
    question. The vectors are originals: they are not randomized, so do not send them.
    """
    from shoal.device.arrays.answer_files import read_answers
    from shoal.device.arrays.report_files import VectorWriter
    from shoal.planning.certificate import check_promise

    check_promise(plan)
    cli.check_not_same(answers, output)
    with VectorWriter(output, plan, kind="original") as writer, out.progress("encoding") as advance:
        for original in read_answers(plan.survey, answers, table_format):
            writer.write(original)
            advance(len(original))
    document = {"plan": plan.id, "originals": writer.written, "output": str(output)}
    text = (
        f"{writer.written:,} originals written to {output}. They are not randomized: do not"
        " send them."
    )
    return out.Result(document, text)


@cli.command("shoal randomize plan.json answers.csv -o reports.parquet")
def randomize(
    *,
    plan: Plan = cli.PLAN,
    answers: tuple[Path, ...] = arg(),
    output: Path = opt(
        "Write the reports to this file (.parquet, .arrow, .rows), or to this folder.",
        None,
        "-o --output",
    ),
    form: Literal["parquet", "arrow", "rows"] | None = opt(
        "How reports are written to a folder.  [default: parquet]"
    ),
    whole_reports: bool = opt(
        "Write the reports of a plan with view counts, though each may be nearly the truth."
    ),
    table_format: TableFormat = cli.TABLE_FORMAT,
    processes: int | None = cli.PROCESSES,
) -> out.Result:
    """Turn answers into randomized reports, as devices send them.

    Each bit of an answer is flipped with the plan's probability q. ANSWERS is a .csv, .xlsx,
    .ndjson, .arrow or .parquet file with one row per person and one column per question, or a file
    that `shoal encode` wrote. If one answer is not allowed, nothing is written, unless
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

    check_promise(plan)
    if len(answers) > 1 or answers[0].is_dir() or output.is_dir():
        from shoal.batch.randomize_files import randomize_files

        if output.suffix and not output.is_dir():
            name = output.name
            raise InputError(f"many files are written to a folder, got the file name {name!r}.")
        with out.progress_to("randomizing, bytes") as reached:
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
        cli.check_not_same(answers[0], output)
        writing = VectorWriter(output, plan, whole_reports=whole_reports)
        with writing as writer, out.progress("randomizing") as advance:
            for original in read_answers(plan.survey, answers[0], table_format):
                writer.write(flip(plan, original))
                advance(len(original))
        written = writer.written
    if plan.view == "counts":
        click.echo(f"shoal: warning: {warning_of(plan)}", err=True)
    document = {"plan": plan.id, "reports": written, "output": str(output)}
    return out.Result(document, f"{written:,} reports written to {output}.")
