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
from shoal.cli.reports import read_tally
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

    def releases(self, **wanted: Any) -> list[SiteRelease]:
        """Return a release of each tally, with the name of its crowd or its file."""
        from shoal.analysis.text.decode import decode, read_candidates
        from shoal.reports.formatting import slug
        from shoal.reports.site import SiteRelease

        plan = Plan.read(self.plan_file)
        found: dict[str, SiteRelease] = {}
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
            release = SiteRelease.of(plan, tally, day="")
            about = {"level": self.level, "texts": texts, **wanted}
            found[name] = replace(release, name=slug(name), label=name, about=about)
        return list(found.values())


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
    make a folder: a page for each, a trend over them and the difference of the last two. A tally of
    fewer reports than the plan's crowd is refused (exit code 3).
    """
    from shoal.reports.publication import check_suffix
    from shoal.reports.site import site_pages, write_pages

    many = len(crowds.tally_files) > 1
    if many and output.suffix:
        raise InputError(f"several tallies make a folder of pages; {output.name!r} names a file.")
    if many:
        _check_folder(output)
    else:
        check_suffix(output)
    for source in (crowds.plan_file, *crowds.tally_files):
        cli.check_not_same(source, output)
    found = crowds.releases(interval=interval, target=target, title=title, date=date)
    publication = found[0].publication()
    if many:
        write_pages(output, site_pages(found))
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

    One page for each tally; with several tallies also a trend over them and the difference of the
    last two. The pages are files that load nothing from elsewhere, and no server
    runs. A tally of fewer reports than the plan's crowd is refused (exit code 3).
    """
    from shoal.reports.site import site_pages, write_pages

    if output is not None:
        _check_folder(output)
    found = crowds.releases()
    folder = Path(tempfile.mkdtemp(prefix="shoal-")) if output is None else output
    pages = site_pages(found)
    write_pages(folder, pages)
    index = folder / found[0].survey / "index.html"
    if not no_open:
        webbrowser.open(index.absolute().as_uri())
    return out.Result({"index": str(index), "pages": sorted(pages)}, f"written to {index}")


def _check_folder(folder: Path) -> None:
    """Refuse a folder that is not empty, so that the pages of two sites never mix."""
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise InputError(f"{folder} exists and is not an empty folder; name another one.")


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
    collector. Run it again with all releases to add some: pages of a release that were written stay
    as they are, and those of a release that is no longer given, or no longer public, are removed.
    Files that it did not write are not touched.
    """
    from shoal.reports.site import check_public, read_manifest, site_pages, write_pages

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
    for one in found:
        check_public(one.plan)
    releases = [replace(one, day=days.get(one.key, one.day)) for one in found]
    pages = site_pages(releases, url) | {".nojekyll": lambda: b""}
    change = write_pages(output, pages, {one.key: one.day for one in releases})
    document = {"index": str(output / "index.html"), "releases": len(releases), **vars(change)}
    lines = [
        f"{len(releases)} release{'s' * (len(releases) != 1)}: {len(change.written)} files written,"
        f" {len(change.removed)} removed",
        f"written to {output / 'index.html'}",
    ]
    if not releases:
        lines.append("No plan of the collector is public and has a release, so the site is empty.")
        lines.append("To make a plan public, use the console or shoal collector public.")
    return out.Result(document, "\n".join(lines))


def _today() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d")


def _of_files(files: tuple[Path, ...]) -> Iterator[SiteRelease]:
    from shoal.analysis.tally import Tally
    from shoal.reports.site import SiteRelease, check_crowds

    read = (Plan.read(path) for path in files if kind_of(path) == "plan")
    plans, tallies = {plan.id: plan for plan in read}, list[tuple[Plan, Tally]]()
    for path in files:
        if kind_of(path) != "plan":
            document = read_json(path, "tally", TallyError)
            named = document.get("plan") if isinstance(document, Mapping) else None
            if not isinstance(named, str) or named not in plans:
                raise InputError(f"{path} is not a tally of one of the plans given; add its plan.")
            tallies.append((plans[named], Tally.read(path, plans[named])))
    for plan in plans.values():
        check_crowds([tally for of, tally in tallies if of == plan])
    yield from (SiteRelease.of(plan, tally, _today()) for plan, tally in tallies)


def _of_collector(console: ConsoleClient) -> Iterator[SiteRelease]:
    from shoal.analysis.tally_json import parse_file
    from shoal.reports.site import SiteRelease

    public = [one["id"] for one in console.ask("GET", "/v1/plans")["plans"] if one["public"]]
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
