"""`shoal encode`, `shoal randomize` and `shoal tally`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import add
from pathlib import Path
from typing import Literal

import click

from shoal.analysis.tally import Tally
from shoal.cli import options as cli
from shoal.cli import output as out
from shoal.cli.options import arg, opt
from shoal.errors import InputError, ReportError, ShoalError
from shoal.protocol.plan import Plan
from shoal.support.files import read_json
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
    from shoal.device.arrays.files import VectorWriter, read_answers
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
    from shoal.device.arrays.files import VectorWriter, read_answers, warning_of
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
    text = f"{written:,} reports written to {output}.{cli.small_crowd(plan, written)}"
    return out.Result(document, text)


@cli.command("shoal tally plan.json reports.parquet -o tally.json")
def tally(
    plan: Plan = cli.PLAN,
    reports: tuple[Path, ...] = arg(),
    output: cli.OutFile | None = cli.output("the tally"),
    vectors: bool | None = opt("Also count whole vectors.  [default: if they are short]"),
    joint: tuple[str, ...] = opt("Count these options jointly; repeatable.", "Q=OPTION;Q=OPTION"),
    crowd_name: str | None = opt("Name of the crowd; parts with one name add up.", "NAME"),
    window_number: int | None = opt("Window of the reports that carry none.", "N"),
    people: Literal["different"] | None = opt(
        "Declare that no person is in two of the crowds; this is not checked."
    ),
    processes: int | None = cli.PROCESSES,
) -> out.Result:
    """Count reports, and add tallies.

    REPORTS are files, or folders of them. Large ones are counted in pieces, on all cores, in
    constant memory. If the command is interrupted, run it again: it continues where it stopped.

    All files of reports are one crowd, unless they carry windows: then each window is a crowd.
    Tallies, also those that a collector released, are added under the crowds they name.

    Counting releases nothing. If the plan does not keep its promise, its reports are counted with a
    warning, but no other command accepts the tally.

    Under a plan with view counts only single bits are counted: --vectors and --joint are refused
    (exit code 3). Cross the questions in the plan instead.
    """
    from shoal.batch import remove_journal
    from shoal.batch.tally_files import tally_files
    from shoal.planning.certificate import compute_promise

    if (refusal := compute_promise(plan).refusal) is not None:
        click.echo(f"shoal: warning: {refusal}", err=True)
    if len({path.resolve() for path in reports}) < len(reports):
        raise InputError("a file is named twice and would be counted twice; name it once.")
    groups = [[_bit(plan, part) for part in group.split(";")] for group in joint]
    tallies = [path for path in reports if _holds_tally(path)]
    journal = None if output is None else output.with_name(output.name + ".journal")
    with out.progress_to("tallying") as reached:
        counted = tally_files(
            plan,
            [path for path in reports if path not in tallies],
            processes=processes,
            journal=journal,
            vectors=vectors,
            joint=groups,
            crowd=crowd_name,
            window=window_number,
            progress=reached,
        )
    parts = [Tally.read(path, plan) for path in tallies]
    if len(tallies) < len(reports):
        parts.append(counted)
    total = reduce(add, parts)
    if crowd_name is not None:
        total = total.named(crowd_name)
    if people is not None:
        total = total.of_different_people()
    if output is not None:
        total.write(output)
    if journal is not None:
        remove_journal(journal)
    where = f", written to {output}" if output else ""
    text = f"{total.reports:,} reports of plan {plan.id[:12]} counted{where}."
    if len(total.crowds) == 1 and not total.simulated:
        text += cli.small_crowd(plan, total.reports)
    return out.Result(total.to_json(), text + (f"\n- {total.note}" if total.note else ""))


def read_tally(plan: Plan, path: Path) -> Tally:
    """Read a tally, or count the reports in a file or a folder."""
    from shoal.batch.tally_files import tally_files

    if path.suffix == ".json" or _holds_tally(path):
        return Tally.read(path, plan)
    with out.progress_to("tallying") as reached:
        return tally_files(plan, [path], progress=reached)


def _holds_tally(path: Path) -> bool:
    """Whether a file is a tally, or a release of a collector, and no batch of reports."""
    try:
        with path.open("rb") as file:
            if file.read(1) != b"{":
                return False
        document = read_json(path, "reports", ReportError)
    except (OSError, ShoalError):
        return False  # the reader of reports explains the error
    return isinstance(document, Mapping) and bool({"by_bit", "tally"} & set(document))


def _bit(plan: Plan, text: str) -> int:
    question, equals, label = text.partition("=")
    if not equals:
        raise InputError(f"--joint takes QUESTION=OPTION parts separated by ';', got {text!r}.")
    return plan.survey.bit(question.strip(), label.strip())
