"""The built documents need nothing from elsewhere, and what is computed in them is current."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from bench.conclusion import draw
from bench.reporting import PAGE, RESULTS, page
from bench.svg import PICTURES, SCHEMES

from shoal import Flags, Survey
from shoal.planning.costs import compare
from tests.doc_pages import PAGES, ROOT
from tests.idea_pictures import IDEAS
from tests.server.console_help import browser

DOCS = ROOT / "docs"
BUILT = DOCS / "_build" / "html"
LOOKED_AT = ("index", "views", "benchmarks", "tutorial-analyst", "api/analysis")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documents: those that `make docs` built, unless a source is newer."""
    sources = [*DOCS.glob("*.md"), *DOCS.glob("*/*.md"), DOCS / "conf.py", *DOCS.glob("_*/*.*")]
    sources += (ROOT / "src").rglob("*.py")
    index = BUILT / "index.html"
    newest = max(path.stat().st_mtime for path in sources)
    if index.exists() and index.stat().st_mtime > newest:
        return BUILT
    folder = tmp_path_factory.mktemp("html")
    command = [sys.executable, "-m", "sphinx", "-W", "-q", "-b", "html", str(DOCS), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=1200)
    assert done.returncode == 0, done.stderr
    return folder


class Loaded(HTMLParser):
    """What a browser loads to show a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag in ("script", "img", "iframe", "source", "video", "audio"):
            self.found.append(values.get("src") or "")
        if tag == "link" and values.get("rel") != "canonical":
            self.found.append(values.get("href") or "")


def test_no_page_names_another_host(built: Path) -> None:
    pages = list(built.rglob("*.html"))
    assert len(pages) > 60
    for path in pages:
        loaded = Loaded()
        loaded.feed(path.read_text("utf-8"))
        assert loaded.found, path
        away = [one for one in loaded.found if re.match(r"(?:[a-z]+:)?//", one)]
        assert away == [], path
    for path in built.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(?:https?:)?//|@import", path.read_text("utf-8")), path


@pytest.mark.system
def test_pages_are_whole_without_a_network(built: Path) -> None:
    with browser() as chromium:
        context: Any = chromium.new_context(viewport={"width": 390, "height": 844}, offline=True)
        context.set_default_timeout(240_000)
        asked: list[str] = []
        failed: list[str] = []
        context.on("request", lambda request: asked.append(request.url))
        context.on("requestfailed", lambda request: failed.append(request.url))
        shown = context.new_page()
        shown.on("pageerror", lambda error: failed.append(str(error)))
        for name in LOOKED_AT:
            shown.goto((built / f"{name}.html").as_uri())
            width = shown.evaluate("document.documentElement.scrollWidth")
            assert width <= 390, f"{name} is {width} wide on a phone"
            broken = "[...document.images].filter(one => !one.complete || !one.naturalWidth).length"
            assert shown.evaluate(broken) == 0, name
        assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
        assert failed == []
        shown.goto((built / "views.html").as_uri())
        assert shown.locator("math").count() > 0
        height = shown.locator("div.math math").first.bounding_box()["height"]
        assert height > 15, "the formula is not drawn"


def test_formulas_are_written_when_the_pages_are_built(built: Path) -> None:
    for path in DOCS.glob("*.md"):
        formulas = path.read_text("utf-8").count("\n$$")
        if formulas:
            html = (built / f"{path.stem}.html").read_text("utf-8")
            assert html.count("<math") >= formulas, path


@pytest.mark.parametrize("name", IDEAS)
def test_pictures_of_ideas_are_those_that_are_drawn(name: str) -> None:
    for word, scheme in SCHEMES.items():
        drawn = IDEAS[name](scheme).svg()
        assert (PICTURES / f"idea-{name}-{word}.svg").read_text("utf-8") == drawn


def test_the_benchmarks_page_is_that_of_the_results() -> None:
    results = json.loads(RESULTS.read_text("utf-8"))
    assert PAGE.read_text("utf-8") == page(results)
    for word, scheme in SCHEMES.items():
        stored = (PICTURES / f"speed-{word}.svg").read_text("utf-8")
        assert stored == draw(results, scheme).svg()
    opening = page(results).partition("![")[0].replace("\n", " ")
    assert len(re.findall(r"\*\*.+?\*\*", opening)) == 3, "three sentences"


def test_which_way_has_the_numbers_of_the_command() -> None:
    text = (DOCS / "which-way.md").read_text("utf-8")
    survey = Survey("answer", (Flags("answer", tuple("12345")),))
    costs = compare(survey, crowd_size=20_000, epsilon=1, delta="1e-6")
    found = re.findall(r"<!-- sigma ([a-z]+) -->([\d,]+)<!-- -->", text)
    assert len(found) >= 4
    for kind, number in found:
        assert int(number) == round(costs[kind].sigma or 0), kind


def test_every_picture_is_shown_and_there() -> None:
    texts = "".join(path.read_text("utf-8") for path in PAGES)
    named = set(re.findall(r"pictures/([\w.-]+\.(?:png|svg))", texts))
    assert {path.name for path in PICTURES.iterdir()} == named
