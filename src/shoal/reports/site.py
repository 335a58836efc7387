"""A site of released crowds: pages, feeds and badges by address, from releases and nothing else.

`site_pages` is the whole site: each address with a function that makes its bytes. `write_pages`
writes it to a folder, for a web server of any kind. A release never changes: what is below
`releases/` is written once. Links are relative, and no page runs a script or loads anything.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from shoal.analysis.estimates import check_crowd, estimate
from shoal.analysis.retention import curves_of
from shoal.analysis.tally import Tally
from shoal.analysis.trends import Trend, crowd_difference
from shoal.errors import InputError, PrivacyRefusal, TallyError
from shoal.planning.certificate import compute_promise
from shoal.protocol.plan import Plan
from shoal.protocol.questions import Question
from shoal.reports.experiments import retention_section
from shoal.reports.formatting import (
    SIMULATED,
    count_text,
    count_unit,
    crowd_name,
    short_slugs,
    shown_labels,
    slug,
    unreadable_note,
)
from shoal.reports.page import crowd_text, page, render, style_sheet
from shoal.reports.protection import promise_of_releases
from shoal.reports.publication import Publication, publish
from shoal.reports.sections import difference_sections, lead, trend_section
from shoal.reports.svg import badge
from shoal.support.files import canonical_json, read_json, write_whole

MANIFEST = ".shoal-site.json"
"""The file that lists the files of a site, so that nothing else is overwritten or deleted."""
MEDIA = {
    ".html": "text/html; charset=utf-8",
    ".json": "application/json",
    ".csv": "text/csv; charset=utf-8",
    ".atom": "application/atom+xml",
    ".svg": "image/svg+xml",
}
_RELEASES = "releases"
_TREND, _ENTRIES, _MAX_BADGES = 12, 50, 100
"""Releases of a trend, entries of a feed, and options of a question that have a badge."""

Pages = dict[str, Callable[[], bytes]]
"""The addresses of a site, each with the function that makes its content."""


@dataclass(frozen=True, eq=False)
class SiteRelease:
    """One release of a site: how it is listed, and how its tally is read.

    `name` is unique within the plan. `day` (YYYY-MM-DD) stands in feeds and lists, and orders
    releases; no page of the release itself shows it. `about` are options of `publish`.
    """

    plan: Plan
    name: str
    label: str
    reports: int
    day: str
    read: Callable[[], Tally]
    crowds: int = 1
    about: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: Plan, tally: Tally, day: str) -> SiteRelease:
        """Return the release of a tally in hand; a crowd without a name is named by its content."""
        check_crowd(plan, tally)
        first, label = tally.crowds[0], tally.in_words
        name = hashlib.sha256(canonical_json(tally.to_json())).hexdigest()[:8]
        if len(tally.crowds) == 1 and first.name is not None:
            name = slug(first.name)
            name += "" if first.released or first.window is None else f"-w{first.window}"
            label = str(first) if first.window is None else crowd_name(plan, first.to_json())
        return cls(plan, name, label, tally.reports, day, lambda: tally, len(tally.crowds))

    @classmethod
    def of_crowd(
        cls, plan: Plan, crowd: Mapping[str, Any], day: str, read: Callable[[], Tally]
    ) -> SiteRelease:
        """Return the release of a collector's or analyzer's crowd, from its line in a list."""
        name, unreadable = str(crowd["number"]), crowd.get("unreadable")
        label = crowd_name(plan, {"name": name, "window": crowd["window"]})
        about = {"remarks": [unreadable_note(unreadable)]} if unreadable else {}
        return cls(plan, name, label, crowd["reports"], day, read, 1, about)

    @property
    def survey(self) -> str:
        """The part of its address that it has in common with the survey's other releases."""
        return slug(self.plan.survey.name)

    @property
    def key(self) -> str:
        """Its part of an address: plans of one survey may number their crowds alike."""
        return f"{self.plan.id[:12]}-{self.name}"

    def publication(self) -> Publication:
        return _publication(self)


@lru_cache(4)
def _publication(release: SiteRelease) -> Publication:
    return publish(release.plan, release.read(), **release.about)


def is_for_readers(plan: Plan) -> bool:
    """Whether a plan's promise is a guarantee against everybody who reads its releases."""
    return plan.promise.kind in ("proven", "local")


def check_public(plan: Plan) -> None:
    """Refuse a plan whose promise does not cover the readers of a public page."""
    if not is_for_readers(plan):
        raise PrivacyRefusal(
            f"plan {plan.id[:12]} has a promise of the kind {plan.promise.kind}, which is no"
            " guarantee for readers, so its releases get no public page; make a proven plan."
        )


# The site


def site_pages(releases: Sequence[SiteRelease], url: str = "") -> Pages:
    """Return the site of releases, of one survey or several; plans of one survey share an address.

    The releases of a plan are given in their order. `url` is where the site will be; with it, feeds
    have absolute links.
    """
    recent = sorted(releases, key=lambda one: one.day)[::-1]
    surveys: dict[str, list[SiteRelease]] = {}
    for one in recent:
        surveys.setdefault(one.survey, []).append(one)
    pages: Pages = {}  # in the order of writing: a page comes after those that it links to
    for survey, found in surveys.items():
        heading, feed = found[0].plan.survey.heading, f"{survey}/feed.atom"
        pages |= {f"{survey}/{path}": make for path, make in _survey_pages(found).items()}
        pages[feed] = partial(_feed, heading, found, url, feed)
    return pages | {
        "index.html": partial(_index, surveys),
        "feed.atom": partial(_feed, "Results", recent, url, "feed.atom"),
    }


def is_immutable(address: str) -> bool:
    """Whether what is at an address never changes.

    >>> is_immutable("browser/releases/19371b209934-3/index.html")
    True
    >>> is_immutable("browser/index.html")
    False
    """
    return address.split("/")[1:2] == [_RELEASES]


def _survey_pages(releases: Sequence[SiteRelease]) -> Pages:
    latest, pages = releases[0], Pages()
    for one in releases:
        folder = f"{_RELEASES}/{one.key}"
        if f"{folder}/index.html" in pages:
            raise InputError(
                f"{one.label} of plan {one.plan.id[:12]} is given twice; publish a release once."
            )
        pages[f"{folder}/index.html"] = partial(_release_page, one)
        for name, make in _DATA.items():
            pages[f"{folder}/{name}"] = partial(make, one)
    pages |= {path: partial(one.svg, latest) for path, one in _badges(latest.plan).items()}
    return pages | {
        "latest.json": lambda: _json(latest.publication().to_json()),
        "latest.csv": lambda: latest.publication().to_csv().encode(),
        "index.html": partial(_survey_page, releases),
    }


def _json(document: object) -> bytes:
    return f"{json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False)}\n".encode()


def _certificate(release: SiteRelease) -> bytes:
    document = release.publication().to_json()
    about = {"plan": release.plan.id, "promise": document["promise"]}
    return _json(about | {"certificate": document["certificate"]})


_DATA: dict[str, Callable[[SiteRelease], bytes]] = {
    "estimates.json": lambda release: _json(release.publication().to_json()),
    "estimates.csv": lambda release: release.publication().to_csv().encode(),
    "certificate.json": _certificate,
}


# Pages


def _page(release: SiteRelease, **values: Any) -> bytes:
    document = release.publication().to_json()
    text = crowd_text(release.plan, document)
    return page(release.plan.survey, document, text, "site_page.html", **values).encode()


def _release_page(release: SiteRelease) -> bytes:
    return _page(
        release,
        label=release.label,
        latest=False,
        home="../../../index.html",
        data=[("JSON", "estimates.json"), ("CSV", "estimates.csv"),
              ("Certificate", "certificate.json")],
        together="This holds for this release by itself; the survey's page says what holds for a"
        " person who is in several.",
    )  # fmt: skip


def _survey_page(releases: Sequence[SiteRelease]) -> bytes:
    latest, plans = releases[0], Counter[Plan]()
    for one in releases:
        plans[one.plan] += one.crowds
    return _page(
        latest,
        label=latest.label,
        latest=True,
        home="../index.html",
        data=[("JSON", "latest.json"), ("CSV", "latest.csv"), ("Atom feed", "feed.atom"),
              ("Certificate", f"{_RELEASES}/{latest.key}/certificate.json")],
        together=promise_of_releases(plans) if len(releases) > 1 else "",
        trends=[*_retention(releases), *_trends(releases)],
        difference=_difference(releases),
        releases=releases,
        plans=len(plans),
        badges=[(one.name, path) for path, one in _badges(latest.plan).items()],
    )  # fmt: skip


def _trends(releases: Sequence[SiteRelease]) -> Iterator[dict[str, Any]]:
    """Yield how each question changed over the last releases that asked it in the same way."""
    asked = [one for one in releases[0].plan.survey.asked if one.kind != "text"]
    same = {
        question.name: [one for one in releases if question in one.plan.survey.asked][:_TREND][::-1]
        for question in asked
    }
    shown = {one for found in same.values() if len(found) > 1 for one in found}
    estimates = {one: estimate(one.plan, one.read()) for one in shown}
    for number, question in enumerate(asked, 1):
        found = same[question.name]
        if len(found) > 1:
            over = Trend(tuple(estimates[one] for one in found), 0.95).to_json([question.name])
            names = [one.label for one in found]
            yield trend_section(question, over, names, f"trend-{number}") | {"text": []}


def _retention(releases: Sequence[SiteRelease]) -> Iterator[dict[str, Any]]:
    """Yield who comes back, from all releases of the latest plan."""
    plan = releases[0].plan
    if not plan.survey.retention:
        return
    tallies = [one.read() for one in reversed(releases) if one.plan == plan]
    if curves := curves_of(plan, tallies):
        shown = {name: curve.to_json() for name, curve in curves.items()}
        yield retention_section(plan.survey.retention[0].heading, shown)


def _difference(releases: Sequence[SiteRelease]) -> dict[str, Any] | None:
    """Return how the last two releases differ; None if there are not two that can be compared."""
    if len(releases) < 2:
        return None
    last, before = releases[:2]
    try:
        found = crowd_difference((last.plan, last.read()), (before.plan, before.read()))
    except InputError:  # the surveys of the two plans have no option in common
        return None
    return difference_sections(last.plan.survey, found.to_json(), last.label, before.label)


def _index(surveys: Mapping[str, Sequence[SiteRelease]]) -> bytes:
    rows = [
        (found[0].plan.survey.heading, address, found[0], len(found), _promise(found[0].plan))
        for address, found in surveys.items()
    ]
    return render("index.html", css=style_sheet(), title="Results", surveys=rows).encode()


def _promise(plan: Plan) -> str:
    return compute_promise(plan).in_words


def _feed(title: str, releases: Sequence[SiteRelease], url: str, address: str) -> bytes:
    """Return an Atom feed (RFC 4287) of releases, the last one first."""
    # Without the site's URL, links are relative to the feed.
    base = f"{url.rstrip('/')}/" if url else "../" * address.count("/")
    return render(
        "feed.atom",
        title=title,
        id=f"{base}{address}" if url else f"urn:shoal:results:{address}",
        link=f"{base}{address}" if url else "feed.atom",
        updated=releases[0].day if releases else "",
        entries=[
            (one, f"{base}{one.survey}/{_RELEASES}/{one.key}/index.html", _promise(one.plan))
            for one in releases[:_ENTRIES]
        ],
    ).encode()


# Badges


class _Badge(NamedTuple):
    """A badge of a question, or of one of its options."""

    question: Question
    option: str | None = None

    @property
    def name(self) -> str:
        if self.option is None or self.question.bits == 1:
            return self.question.heading
        return shown_labels(self.question, [self.option])[self.option]

    def svg(self, release: SiteRelease) -> bytes:
        document = release.publication().to_json()
        estimates, heading = document["estimates"], release.plan.survey.heading
        unit = count_unit(estimates)
        if self.option is None:
            top = lead(self.question, estimates, document["numbers"].get(self.question.name))
            value = f"{top.answer} {top.number}" if top.answer else f"{top.number} {top.of}"
            if top.number == "Not known":
                value = "not known"
            told = f"{self.name}: {value}"
        else:
            row = estimates["questions"][self.question.name][self.option]
            value, told = count_text(row, estimates["reports"]), f"{self.name}: not known"
            if value != "not known":
                value = f"{value} of {estimates['reports']:,}"
                told = f"{self.name}: {value} {unit}"
        value += f" ({SIMULATED})" if estimates["simulated"] else ""
        level = f"{estimates['level'] * 100:.6g} %"
        return badge(self.name, value, f"{told} ({heading}, {release.label}, interval at {level})")


def _badges(plan: Plan) -> dict[str, _Badge]:
    """Return the badges of a plan's questions, but of no text and no cross, by their paths."""
    asked = [one for one in plan.survey.asked if one.kind != "text"]
    badges, names = {}, short_slugs(one.name for one in asked)
    for question in asked:
        path = f"badge/{names[question.name]}"
        badges[f"{path}.svg"] = _Badge(question)
        if question.kind != "number" and question.bits <= _MAX_BADGES:
            for label, short in short_slugs(question.labels).items():
                badges[f"{path}/{short}.svg"] = _Badge(question, label)
    return badges


# Folders


@dataclass(frozen=True)
class SiteChange:
    """The files of a site that were written and removed."""

    written: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)


def write_pages(
    folder: Path,
    pages: Pages,
    days: Mapping[str, str] | None = None,
    *,
    stopped: Callable[[], bool] = lambda: False,
) -> SiteChange:
    """Write a site to a folder: each file whole, those that changed, and no release again.

    Only files of an earlier site are removed, and one in the way is refused. `days` are kept for
    the next time, see `read_manifest`.
    """
    known, before = read_manifest(folder)
    for path in pages:
        if path not in known and (folder / path).exists():
            raise InputError(
                f"{folder / path} exists and is not of a site that was written here; name another"
                " folder."
            )
    change, kept = SiteChange(), dict(days or before)
    folder.mkdir(parents=True, exist_ok=True)
    # Listed before they are written, so that an interrupted site can be completed or removed.
    _store(folder / MANIFEST, _json({"pages": sorted({*known, *pages}), "days": kept}))
    gone = known - set(pages)
    if any(map(is_immutable, gone)):  # other pages may show a release that must not be shown now
        gone = {path for path in known if path in gone or not is_immutable(path)}
    for path in sorted(gone):
        _remove(folder, path)
    change.removed.extend(sorted(gone - set(pages)))
    for path, make in pages.items():
        if stopped():
            return change
        target = folder / path
        if is_immutable(path) and target.exists():
            continue
        content = make()
        if not target.exists() or target.read_bytes() != content:
            target.parent.mkdir(parents=True, exist_ok=True)
            _store(target, content)
            change.written.append(path)
    _store(folder / MANIFEST, _json({"pages": sorted(pages), "days": kept}))
    return change


def _store(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, whatever happens to the machine: it may stay for ever."""

    def write(scratch: Path) -> None:
        with scratch.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    write_whole(path, write)


def _remove(folder: Path, path: str) -> None:
    """Delete a file of a site, and the folders that are empty then."""
    target = folder / path
    target.unlink(missing_ok=True)
    for parent in target.parents:
        if parent == folder or not parent.is_dir() or any(parent.iterdir()):
            return
        parent.rmdir()


def read_manifest(folder: Path) -> tuple[set[str], dict[str, str]]:
    """Return the files of the site in a folder, and the days of its releases by their keys."""
    if not (folder / MANIFEST).exists():
        return set(), {}
    document = read_json(folder / MANIFEST, "list of a site's files", InputError)
    try:
        pages, days = document["pages"], dict(document["days"])  # type: ignore[index]
        if all(re.fullmatch(r"(?:[a-z0-9-]+/)*[a-z0-9-]*\.[a-z]+", one) for one in pages):
            return set(pages), days
    except (KeyError, TypeError, ValueError):
        pass
    raise InputError(f"{folder / MANIFEST} is damaged; write the site to another folder.")


def check_crowds(tallies: Sequence[Tally]) -> None:
    """Refuse tallies of one plan that share a crowd: their difference would be a release too."""
    seen: set[tuple[str | None, int | None]] = set()
    for crowd in (crowd for tally in tallies for crowd in tally.crowds if not crowd.unnamed):
        if (crowd.name, crowd.window) in seen:
            raise TallyError(f"{crowd} is in two tallies; publish a crowd once.")
        seen.add((crowd.name, crowd.window))
