"""`shoal publish`, `shoal preview` and `shoal site`."""

from __future__ import annotations

import tempfile
import webbrowser
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.cli import options as cli
from shoal.cli import output as out
from shoal.cli.options import arg, opt
from shoal.cli.tally import read_tally
from shoal.errors import InputError, TallyError
from shoal.protocol.plan import Plan
from shoal.support.files import kind_of, read_json

if TYPE_CHECKING:
    from shoal.analysis.tally import Tally
    from shoal.reports import Publication
    from shoal.reports.site import SiteRelease
    from shoal.server.console.token_admin import ConsoleClient


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


@cli.command("shoal site public plan.json monday.json tuesday.json")
def site(
    output: cli.OutFolder = arg("OUT"),
    files: tuple[Path, ...] = arg("[PLAN.json|TALLY.json]...", default=()),
    collector: str | None = opt(
        "Take the releases of public plans from a collector, at the address of its console.", "URL"
    ),
    token_file: Path | None = opt("With --collector: file with an analyst's token.", "FILE"),
    url: str = opt("Where the site will be, for absolute links in feeds.", "URL", default=""),
) -> out.Result:
    """Write a site of releases: pages, feeds and badges.

    It is the site that `shoal serve --public-results` serves, as files with relative links, for
    GitHub Pages or any web server. The releases come from tallies with their plans, or from a
    collector. Run it again to add releases: those that were written stay as they are. Files that it
    did not write are not touched.
    """
    from shoal.reports.site import read_manifest, site_pages, write_pages

    if (collector is None) == (not files):
        raise InputError("give the files of plans and tallies, or --collector.")
    if url and not url.startswith(("https://", "http://")):
        raise InputError(f"url must begin with https:// or http://, got url={url!r}.")
    _, days = read_manifest(output)
    if collector is None:
        found = list(_of_files(files))
    else:
        from shoal.server.console.token_admin import ConsoleClient

        if token_file is None:
            raise InputError("--collector needs --token-file, a file with an analyst's token.")
        found = list(_of_collector(ConsoleClient(collector, token_file, "--token-file")))
    releases = [replace(one, day=days.get(one.key, one.day)) for one in found]
    pages = site_pages(releases, url) | {".nojekyll": lambda: b""}
    change = write_pages(output, pages, {one.key: one.day for one in releases})
    document = {"index": str(output / "index.html"), "releases": len(releases), **vars(change)}
    text = (
        f"{len(releases)} releases; {len(change.written)} files written, {len(change.removed)}"
        f" removed\nwritten to {output / 'index.html'}"
    )
    return out.Result(document, text)


def _today() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d")


def _of_files(files: tuple[Path, ...]) -> Iterator[SiteRelease]:
    """Yield the releases of tallies in files, each with its plan in another."""
    from shoal.analysis.tally import Tally
    from shoal.reports.site import SiteRelease, check_crowds

    read = (Plan.read(path) for path in files if kind_of(path) == "plan")
    plans, tallies = {plan.id: plan for plan in read}, dict[str, list[Tally]]()
    for path in files:
        if kind_of(path) != "plan":
            document = read_json(path, "tally", TallyError)
            named = document.get("plan") if isinstance(document, Mapping) else None
            if named not in plans:
                raise InputError(f"{path} is not a tally of one of the plans given; add its plan.")
            tallies.setdefault(named, []).append(Tally.read(path, plans[named]))
    for plan_id, found in tallies.items():
        check_crowds(found)
        yield from (SiteRelease.of(plans[plan_id], one, _today()) for one in found)


def _of_collector(console: ConsoleClient) -> Iterator[SiteRelease]:
    """Yield the releases of the public plans of a collector or an analyzer."""
    from shoal.analysis.tally_json import parse_file
    from shoal.reports.site import SiteRelease

    public = [one["id"] for one in console.ask("GET", "/v1/plans")["plans"] if one["public"]]
    if not public:
        raise InputError(
            "no plan of the collector is public; make one public in the console, or with shoal"
            " collector public."
        )
    for plan_id in public:
        path = f"/v1/plans/{plan_id}"
        plan = Plan.from_json(console.ask("GET", path)["plan"])

        def read(path: str, plan: Plan = plan) -> Tally:
            return parse_file(console.ask("GET", path), plan)

        for crowd in console.ask("GET", f"{path}/crowds")["crowds"]:
            if crowd["state"] == "released":
                day = min(crowd.get("until", _today())[:10], _today())
                yield SiteRelease.of_crowd(
                    plan, crowd, day, partial(read, f"{path}/crowds/{crowd['number']}")
                )
