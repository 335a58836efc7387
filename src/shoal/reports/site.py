"""Several crowds as a folder of pages: each crowd, how they change, and how neighbours differ.

Every page is one file that needs nothing else, as a single publication's is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shoal.analysis.screening import screen
from shoal.analysis.trends import crowd_difference, trend
from shoal.errors import InputError
from shoal.protocol.plan import Plan
from shoal.reports.crowd_parts import difference_parts, trend_parts
from shoal.reports.markup import Markup, data_block, element
from shoal.reports.page import whole_page
from shoal.reports.publication import Publication
from shoal.reports.sections import scrolling
from shoal.support.files import write_text

__all__ = ["check_folder", "site", "write_site"]

_BY_ITSELF = (
    "This holds for each crowd by itself. For a person who is in several of them the promises add"
    " up; shoal audit --releases says to what."
)


def site(publications: Mapping[str, Publication], level: float = 0.95) -> dict[str, str]:
    """Return the pages of one or more crowds by their file names; `index.html` leads to all.

    Parameters
    ----------
    publications
        A publication of each crowd, by the name that people call the crowd, all of one plan.
    level
        The level at which the intervals of trends and differences hold together.
    """
    names, crowds = list(publications), list(publications.values())
    if not crowds:
        raise InputError("a site needs at least one crowd.")
    plan = crowds[0].plan
    if any(one.plan != plan for one in crowds):
        raise InputError("all crowds of a site are of one plan; make one site for each plan.")
    pages = {f"crowd-{number}.html": one.to_html() for number, one in enumerate(crowds, 1)}
    ways = []
    if len(crowds) > 1:
        pages["trend.html"] = _trend_page(plan, names, crowds, level)
        ways.append(("How the answers change over crowds", "trend.html"))
        for number in range(2, len(crowds) + 1):
            file = f"difference-{number}-{number - 1}.html"
            pages[file] = _difference_page(plan, names, crowds, number, level)
            ways.append((f"{names[number - 1]} minus {names[number - 2]}", file))
    return {"index.html": _index(plan, names, crowds, ways), **pages}


def write_site(publications: Mapping[str, Publication], folder: Path, level: float = 0.95) -> None:
    """Write a site to a new or empty folder."""
    pages = site(publications, level)
    check_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages.items():
        write_text(folder / name, text)


def check_folder(folder: Path) -> None:
    """Refuse a folder that holds something, so that pages of two sites never mix."""
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise InputError(f"{folder} exists and is not an empty folder; name another one.")


def _index(
    plan: Plan,
    names: Sequence[str],
    crowds: Sequence[Publication],
    ways: Sequence[tuple[str, str]],
) -> str:
    rows = []
    for number, (name, one) in enumerate(zip(names, crowds, strict=True), 1):
        link = element("a", element("bdi", name), href=f"crowd-{number}.html")
        found = screen(plan, one.estimates.tally)
        traces = "seen" if found.suspicious else "none seen"
        cells = (f"{one.estimates.tally.reports:,}", traces)
        rows.append(
            element(
                "tr",
                element("th", link, scope="row"),
                *(element("td", cell) for cell in cells),
            )
        )
    heads = ("crowd", "reports", "traces of fake reports")
    table = element(
        "table",
        element("caption", element("span", "Crowds", id="crowds")),
        element("thead", element("tr", *(element("th", head, scope="col") for head in heads))),
        element("tbody", *rows),
    )
    links = [element("li", element("a", element("bdi", text), href=where)) for text, where in ways]
    parts = [
        element("p", f"{crowds[0].to_json()['promise']['short']}. {_BY_ITSELF}"),
        scrolling(table, "crowds"),
        *([element("ul", *links)] if links else []),
    ]
    return _page(crowds[0].title or plan.survey.name, parts)


def _trend_page(
    plan: Plan, names: Sequence[str], crowds: Sequence[Publication], level: float
) -> str:
    document = trend(plan, [one.estimates.tally for one in crowds], level).to_json()
    parts: list[Markup] = [_back()]
    for number, question in enumerate(document["questions"], 1):
        parts.append(
            element(
                "section",
                element("h2", element("bdi", question)),
                *trend_parts(question, document, names, place=f"trend-{number}"),
            )
        )
    return _page(f"{plan.survey.name}: over crowds", parts, document)


def _difference_page(
    plan: Plan, names: Sequence[str], crowds: Sequence[Publication], number: int, level: float
) -> str:
    sides = [(plan, crowds[place].estimates.tally) for place in (number - 1, number - 2)]
    document = crowd_difference(sides[0], sides[1], level).to_json()
    parts = difference_parts(document, names[number - 1], names[number - 2])
    return _page(f"{plan.survey.name}: two crowds", [_back(), *parts], document)


def _back() -> Markup:
    return element("p", element("a", "All crowds", href="index.html"))


def _page(title: str, parts: Sequence[Markup], document: Any = None) -> str:
    data = [] if document is None else [data_block(document, "document")]
    return whole_page(title, element("main", element("h1", element("bdi", title)), *parts, *data))
