"""`shoal publish` and `shoal preview`."""

from __future__ import annotations

import tempfile
import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.cli import options as cli
from shoal.cli import output as out
from shoal.cli.options import arg, opt
from shoal.cli.tally import read_tally
from shoal.errors import InputError
from shoal.protocol.plan import Plan

if TYPE_CHECKING:
    from shoal.reports import Publication


@dataclass(frozen=True)
class _Crowds:
    plan_file: Path = cli.PLAN_FILE
    tally_files: tuple[Path, ...] = arg("TALLY.json|REPORTS...")
    candidate_file: Path | None = opt(
        "Find texts among these candidates, one per line.", names="--decode"
    )
    question: str | None = cli.QUESTION
    fdr: float = cli.FDR
    level: float = cli.LEVEL

    def publications(self, **wanted: Any) -> dict[str, Publication]:
        """Return a publication of each tally, by the name of its crowd or its file."""
        from shoal.analysis.text.decode import decode, read_candidates
        from shoal.reports import publish

        plan = Plan.read(self.plan_file)
        found: dict[str, Publication] = {}
        for file in self.tally_files:
            tally = read_tally(plan, file)
            texts = []
            if self.candidate_file is not None:
                candidates = read_candidates(self.candidate_file, None)
                about: Any = {"question": self.question, "fdr": self.fdr, "level": self.level}
                texts = [decode(plan, tally, candidates, **about)]
            name = str(tally.crowds[0]) if len(tally.crowds) == 1 else file.stem
            if tally.crowds[0].unnamed or name in found:
                name = file.stem if file.stem not in found else str(file)
            found[name] = publish(plan, tally, level=self.level, texts=texts, **wanted)
        return found


@cli.command("shoal publish plan.json tally.json -o report.html")
def publish(
    *,
    output: cli.OutFile = cli.output(
        "a page (.html), a table (.csv, .md), data (.json, .parquet, .arrow), or a folder of pages"
    ),
    crowds: _Crowds,
    interval: cli.Interval = cli.INTERVAL,
    target: cli.Target = cli.TARGET,
    title: str | None = opt("Title of the page.  [default: the survey's name]", "TEXT"),
    date: str | None = opt("Date in the citation, printed as given.", "TEXT"),
) -> out.Result:
    """Write a report page or tables of the estimates.

    The plan's certificate is included. The page is one file that loads nothing from elsewhere.
    A file or folder of reports in place of a tally is counted first, as one crowd. Several tallies
    make a folder: a page for each, a trend over them and their differences. A tally of fewer
    reports than the plan's crowd is refused (exit code 3).
    """
    from shoal.reports.page import check_folder, write_site
    from shoal.reports.publication import check_suffix

    many = len(crowds.tally_files) > 1
    if many and output.suffix:
        raise InputError(f"several tallies make a folder of pages; {output.name!r} names a file.")
    if many:
        check_folder(output)
    else:
        check_suffix(output)
    for source in (crowds.plan_file, *crowds.tally_files):
        cli.check_not_same(source, output)
    found = crowds.publications(interval=interval, target=target, title=title, date=date)
    publication, *_ = found.values()
    if many:
        write_site(found, output, crowds.level)
    else:
        publication.write(output)
    return out.Result(publication.to_json(), _show(publication, output))


def _show(publication: Publication, output: Path) -> out.Pieces:
    document = publication.to_json()
    yield out.title(document["title"], document["promise"]["short"])
    if publication.estimates.tally.note is not None:
        yield out.bullets([publication.estimates.tally.note])
    if document["estimates"]["simulated"]:
        yield "[yellow]simulated data[/yellow]"
    yield from out.written(output)


@cli.command("shoal preview plan.json monday.json tuesday.json")
def preview(
    crowds: _Crowds,
    output: cli.OutFolder | None = opt(
        "Folder for the pages.  [default: a temporary one]", names="-o --output"
    ),
    no_open: bool = opt("Open no browser."),
) -> out.Result:
    """Open the pages of crowds in a browser, from files.

    One page for each tally; with several tallies also a trend over them and the difference of
    each and the one before. The pages are files that load nothing from elsewhere, and no server
    runs. A tally of fewer reports than the plan's crowd is refused (exit code 3).
    """
    from shoal.reports.page import check_folder, write_site

    if output is not None:
        check_folder(output)
    found = crowds.publications()
    folder = Path(tempfile.mkdtemp(prefix="shoal-")) if output is None else output
    write_site(found, folder, crowds.level)
    index = folder / "index.html"
    if not no_open:
        webbrowser.open(index.absolute().as_uri())
    pages = sorted(one.name for one in folder.iterdir())
    return out.Result({"index": str(index), "pages": pages}, f"written to {index}")
