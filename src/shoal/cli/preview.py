"""`shoal look`."""

from __future__ import annotations

from pathlib import Path

import click

from shoal.cli._commands import Command
from shoal.cli._crowds import candidates_options, publications, tallies_argument
from shoal.cli._options import OUT_FOLDER, json_option, level_option, plan_argument
from shoal.cli._printing import print_json
from shoal.protocol.plan import Plan


@click.command(cls=Command, example="shoal look plan.json monday.json tuesday.json")
@plan_argument
@tallies_argument
@candidates_options
@level_option
@click.option(
    "-o", "--output", type=OUT_FOLDER, help="Folder for the pages.  [default: a temporary one]"
)
@click.option("--no-open", is_flag=True, help="Open no browser.")
@json_option
def command(
    plan_file: Path,
    tally_files: tuple[Path, ...],
    candidate_file: Path | None,
    question: str | None,
    fdr: float,
    level: float,
    output: Path | None,
    no_open: bool,
    as_json: bool,
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
    plan = Plan.read(plan_file)
    found = publications(plan, tally_files, candidate_file, question, fdr, level)
    folder = Path(tempfile.mkdtemp(prefix="shoal-")) if output is None else output
    write_site(found, folder, level)
    index = folder / "index.html"
    if as_json:
        print_json({"index": str(index), "pages": sorted(one.name for one in folder.iterdir())})
    else:
        click.echo(f"written to {index}")
    if not no_open:
        webbrowser.open(index.absolute().as_uri())
