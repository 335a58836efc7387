"""`shoal publish` and `shoal preview`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shoal.analysis.tally import Tally
from shoal.cli import options as cli
from shoal.cli import output as out
from shoal.errors import InputError
from shoal.protocol.plan import Plan

if TYPE_CHECKING:
    from shoal.reports import Publication

_tallies_argument = click.argument(
    "tally_files", nargs=-1, required=True, type=cli.IN_FILE, metavar="TALLY.json..."
)
_candidates_option = cli.option(
    "--decode",
    "candidate_file",
    "Find texts among these candidates, one per line.",
    type=cli.IN_FILE,
)


@cli.command("shoal publish plan.json tally.json -o report.html")
@cli.plan_file_argument
@_tallies_argument
@cli.output_option(
    "a page (.html), a table (.csv, .md), data (.json, .parquet, .arrow), or a folder of pages",
    required=True,
)
@_candidates_option
@cli.question_option
@cli.fdr_option(0.05)
@cli.estimate_options
@cli.option("--title", "Title of the page.  [default: the survey's name]", metavar="TEXT")
@cli.option("--date", "Date in the citation, printed as given.", metavar="TEXT")
@cli.json_option
def publish(
    plan_file: Path,
    tally_files: tuple[Path, ...],
    output: Path,
    level: float,
    kind: Any,
    as_json: bool,
    **wanted: Any,
) -> None:
    """Write a report page or tables of the estimates.

    The plan's certificate is included. The page is one file that loads nothing from elsewhere.
    Several tallies make a folder: a page for each, a trend over them and their differences. A tally
    of fewer reports than the plan's crowd is refused (exit code 3).
    """
    from shoal.reports.page import check_folder, write_site
    from shoal.reports.publication import check_suffix

    many = len(tally_files) > 1
    if many and output.suffix:
        raise InputError(f"several tallies make a folder of pages; {output.name!r} names a file.")
    if many:
        check_folder(output)
    else:
        check_suffix(output)
    for source in (plan_file, *tally_files):
        cli.check_not_same(source, output)
    found = _publications(plan_file, tally_files, level=level, interval=kind, **wanted)
    publication, *_ = found.values()
    if many:
        write_site(found, output, level)
    else:
        publication.write(output)
    document = publication.to_json()
    if as_json:
        out.print_json(document)
        return
    console = out.printer()
    out.show_title(console, document["title"], document["promise"]["short"])
    if publication.estimates.tally.note is not None:
        out.show_bullets(console, [publication.estimates.tally.note])
    if document["estimates"]["simulated"]:
        console.print("[yellow]simulated data[/yellow]")
    out.show_written(console, output)


@cli.command("shoal preview plan.json monday.json tuesday.json")
@cli.plan_file_argument
@_tallies_argument
@_candidates_option
@cli.question_option
@cli.fdr_option(0.05)
@cli.level_option
@cli.option(
    "-o", "--output", "Folder for the pages.  [default: a temporary one]", type=cli.OUT_FOLDER
)
@cli.option("--no-open", "Open no browser.", is_flag=True)
@cli.json_option
def preview(
    plan_file: Path,
    tally_files: tuple[Path, ...],
    level: float,
    output: Path | None,
    no_open: bool,
    as_json: bool,
    **texts: Any,
) -> None:
    """Open the pages of crowds in a browser, from files.

    One page for each tally; with several tallies also a trend over them and the difference of
    each and the one before. The pages are files that load nothing from elsewhere, and no server
    runs. A tally of fewer reports than the plan's crowd is refused (exit code 3).
    """
    import tempfile
    import webbrowser

    from shoal.reports.page import check_folder, write_site

    if output is not None:
        check_folder(output)
    found = _publications(plan_file, tally_files, level=level, **texts)
    folder = Path(tempfile.mkdtemp(prefix="shoal-")) if output is None else output
    write_site(found, folder, level)
    index = folder / "index.html"
    if as_json:
        out.print_json({"index": str(index), "pages": sorted(one.name for one in folder.iterdir())})
    else:
        click.echo(f"written to {index}")
    if not no_open:
        webbrowser.open(index.absolute().as_uri())


def _publications(
    plan_file: Path,
    tally_files: Sequence[Path],
    *,
    candidate_file: Path | None,
    question: str | None,
    fdr: float,
    level: float,
    **wanted: Any,
) -> dict[str, Publication]:
    """Return a publication of each tally, by the name of its crowd or its file."""
    from shoal.analysis.text.decode import decode, read_candidates
    from shoal.reports import publish

    plan = Plan.read(plan_file)
    found: dict[str, Publication] = {}
    for file in tally_files:
        tally = Tally.read(file, plan)
        texts = []
        if candidate_file is not None:
            candidates = read_candidates(candidate_file, None)
            texts = [decode(plan, tally, candidates, question=question, fdr=fdr, level=level)]
        name = str(tally.crowds[0]) if len(tally.crowds) == 1 else file.stem
        if tally.crowds[0].unnamed or name in found:
            name = file.stem if file.stem not in found else str(file)
        found[name] = publish(plan, tally, level=level, texts=texts, **wanted)
    return found
