"""Pages as they are laid out: nothing scrolls sideways, and nothing keeps people out."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal import Choice, Flags, Number, Survey, plan, publish
from shoal.reports.site import SiteRelease, site_pages, write_pages
from tests.axe import obstacles
from tests.reports.test_publication import HOSTILE, counted
from tests.server.console_help import browser

pytestmark = [pytest.mark.slow, pytest.mark.system]

COUNTRIES = tuple(f"Country number {place}" for place in range(13))
ASKED = Survey(
    "browser",
    (
        Choice(
            "channel",
            ("release", "beta"),
            titles={"beta": "B" * 120, "release": "x y " * 30 + "z"},
        ),
        Choice("month", tuple(f"month {place}" for place in range(10))),
        Choice("country", COUNTRIES),
        Number("age", (18, 65), unit="years"),
    ),
    title="\N{HEBREW LETTER ALEF}\N{HEBREW LETTER BET} \N{FISH}",
)
PLAN = plan(
    ASKED.cross("channel", "month").cross("channel", "country").cross("month", "age"), q="0.01"
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    at = tmp_path_factory.mktemp("site") / "pages"
    agreed = PLAN
    tallies = [counted(agreed, 2000, n).named(f"{n}") for n in (1, 2)]
    releases = [SiteRelease.of(agreed, one, "2026-11-18") for one in tallies]
    write_pages(at, site_pages(releases))
    publish(agreed, tallies[0]).write(at / "crowd-1.html")
    half = len(HOSTILE) // 2
    questions = (Flags(HOSTILE[0], HOSTILE[:half]), Flags(HOSTILE[2], HOSTILE[half:]))
    hostile = plan(Survey(HOSTILE[1], questions), q="0.25")
    publish(hostile, counted(hostile, 100), title=HOSTILE[0]).write(at / "hostile.html")
    return at


@pytest.mark.parametrize("width", [1280, 768, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_and_keeps_nobody_out(folder: Path, width: int, scheme: str):
    with browser() as chromium:
        size = {"width": width, "height": 844}
        page = chromium.new_context(viewport=size, color_scheme=scheme).new_page()
        for name in (
            "crowd-1",
            "hostile",
            "index",
            "browser/index",
            f"browser/releases/{PLAN.id[:12]}-1/index",
        ):
            page.goto((folder / f"{name}.html").as_uri())
            for _ in ("folded", "open"):
                assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
                beyond = """[...document.querySelectorAll(".matrix td, .matrix tbody th")]
                    .filter(one => one.scrollWidth > one.clientWidth + 1
                        || one.getBoundingClientRect().right > innerWidth).length"""
                assert page.evaluate(beyond) == 0, name
                page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
            assert obstacles(page) == [], name


def test_columns_stand_side_by_side_where_they_have_room(folder: Path):
    """Ten columns on a wide screen, thirteen nowhere; every number is printed either way."""
    shape = """[...document.querySelectorAll("section > .matrix")].map(table => {
        const cells = [...table.querySelectorAll("tbody tr:first-child td")];
        return [cells.length, new Set(cells.map(one => one.offsetTop)).size,
            cells.every(one => one.innerText.trim())]; })"""
    with browser() as chromium:
        for width, rows in ((1280, [1, 14, 1]), (390, [11, 14, 4])):
            page = chromium.new_context(viewport={"width": width, "height": 844}).new_page()
            page.goto((folder / "crowd-1.html").as_uri())
            found = page.evaluate(shape)
            assert [cells for cells, _, _ in found] == [11, 14, 4]
            assert [lines for _, lines, _ in found] == rows
            assert all(printed for _, _, printed in found)


def test_a_page_of_hostile_names_asks_nobody_for_anything(folder: Path):
    asked: list[str] = []
    with browser() as chromium:
        page = chromium.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.set_content('<img src="http://127.0.0.1:9/x.png">')
        assert asked == ["http://127.0.0.1:9/x.png"]
        page.goto((folder / "hostile.html").as_uri())
        assert asked[1:] == [(folder / "hostile.html").as_uri()]
        assert page.title() == page.inner_text("h1") == HOSTILE[0]
        assert page.locator("img, main b, iframe").count() == 0


def test_paper_shows_what_is_folded(folder: Path):
    with browser() as chromium:
        page = chromium.new_page()
        page.goto((folder / "crowd-1.html").as_uri())
        height = "document.querySelector('section details').offsetHeight"
        assert page.evaluate(height) < 100
        page.emulate_media(media="print")
        assert page.evaluate(height) > 200
