"""`shoal encode`."""

from __future__ import annotations

from pathlib import Path

import click

from shoal.agreement.plan import Plan
from shoal.cli._common import IN_FILE, OUT_FILE, check_not_same, json_option, print_json, progress


@click.command()
@click.argument("plan_file", type=IN_FILE, metavar="PLAN.json")
@click.argument("answers", type=IN_FILE)
@click.option("-o", "--output", type=OUT_FILE, required=True, help="Where to write (.parquet).")
@json_option
def command(plan_file: Path, answers: Path, output: Path, as_json: bool) -> None:
    """Turn answers into the bit vectors of a plan.

    ANSWERS is a .csv, .ndjson or .parquet file with one row per person and one column per
    question. The vectors are originals: they say what people answered, so keep them on the device
    that has the answers.
    """
    from shoal.device.bulk.answer_files import read_answers
    from shoal.device.bulk.report_files import VectorWriter
    from shoal.planning.promise import check_promise

    plan = Plan.read(plan_file)
    check_promise(plan)
    check_not_same(answers, output)
    with VectorWriter(output, plan, kind="original") as writer, progress("encoding") as advance:
        for original in read_answers(plan.survey, answers):
            writer.write(original)
            advance(len(original))
    if as_json:
        print_json({"plan": plan.id, "originals": writer.written, "output": str(output)})
    else:
        click.echo(f"{writer.written:,} originals written to {output}; they are the truth.")
