"""`shoal encode`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from shoal.cli._commands import Command
from shoal.cli._options import (
    IN_FILE,
    check_not_same,
    json_option,
    output_option,
    plan_argument,
    table_format_options,
)
from shoal.cli._printing import print_json, progress
from shoal.protocol.plan import Plan

if TYPE_CHECKING:
    from shoal.support.table_format import TableFormat


@click.command(cls=Command, example="shoal encode plan.json answers.csv -o originals.parquet")
@plan_argument
@click.argument("answers", type=IN_FILE)
@output_option("the vectors, as .parquet,", required=True)
@table_format_options
@json_option
def command(
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
