"""The documents: blocks run and print what is shown, built pages need no other host, and computed
pictures and numbers are current. `doc_pages.py` runs the pages and writes their outputs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import pytest
from bench.conclusion import draw
from bench.reporting import PAGE, RESULTS, page
from bench.svg import PICTURES, SCHEMES

from shoal import Survey
from shoal.lab.demo import made_up_answers
from tests.doc_pages import ADDRESSES, BLOCK, PAGES, ROOT, Page, notes_of, run_command, same
from tests.idea_pictures import (
    EPSILON,
    IDEAS,
    MODELS_DELTA,
    MODELS_PAGE,
    MODELS_PEOPLE,
    models_compared,
)
from tests.server.console_help import browser

DOCS = ROOT / "docs"
NAMES = [page.relative_to(ROOT).as_posix() for page in PAGES]
SLOW = [pytest.param(name, marks=() if name == "README.md" else pytest.mark.slow) for name in NAMES]


@pytest.mark.parametrize("name", SLOW)
def test_page_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    monkeypatch.setenv("PATH", path)
    for variable, address in ADDRESSES.items():
        monkeypatch.setenv(variable, address)  # what a page sets is undone

    def compare(line: str, shown: str, printed: str, varies: bool) -> str:
        told = f"{line}\nshown:\n{shown}\nprinted:\n{printed}"
        assert same(shown, printed, varies=varies), told
        return shown

    Page(ROOT / name).run(compare, LOOKS.get(name, lambda page: None))


def published(page: Page) -> None:
    """Look at the results of a tool: its documents, the served page with its badges, and files."""
    for name in ("PRIVACY.md", "privacy-label.svg", "privacy-label.html"):
        assert "wordy" in Path("privacy", name).read_text("utf-8")
    results = f"http://{page.away(ADDRESSES['SHOAL_PUBLIC'])}/results/"
    for _ in range(600):  # pages are written after the release
        answer = httpx.get(f"{results}feed.atom")
        if "<entry>" in answer.text:
            break
        time.sleep(0.1)
    for path in ("index.html", "wordy/index.html", "wordy/badge/command/count.svg", "feed.atom"):
        answer = httpx.get(f"{results}{path}")
        assert answer.status_code == 200
        assert answer.content == Path("public", path).read_bytes()
    document = httpx.get(f"{results}wordy/latest.json").json()
    assert document["estimates"]["reports"] == 500
    people = list(made_up_answers(Survey.from_toml(Path("survey.toml")), 500, 2017))
    for option, row in document["estimates"]["questions"]["command"].items():
        truth = sum(option in person["command"] for person in people)
        assert abs(row["count"] - truth) < 7 * row["sigma"]  # a false alarm in 4e11


LOOKS = {"docs/tutorial-telemetry.md": published}
"""What is looked at before a page ends."""


def test_every_console_block_is_run():
    """A command that cannot run here is shown as `sh`, without output that nobody checked."""
    for path in PAGES:
        for block in BLOCK.finditer(path.read_text("utf-8")):
            for note in notes_of(block):
                known = r"varies|until the end|file: \S+|exit: [0-3]|picture: \S+"
                assert re.fullmatch(known, note), f"{path}: unknown note {note}"
            if block["kind"] == "console":
                assert block["body"].startswith("$ "), f"{path}: {block['body']}"
                left_out = re.search(r"^\s*(\.\.\.|…)\s*$", block["body"], re.M)
                assert not left_out, f"{path}: output is left out"


def test_outputs_are_compared_to_the_letter_or_but_for_random_numbers():
    assert same("a 1\n", "a 1  \n\n", varies=False)
    assert not same("a 1\n", "a  1\n", varies=False)
    assert not same("", "printed, and not shown\n", varies=False)
    assert not same("a\n...\n", "a\nb\n", varies=False)
    assert same("sync  1,203 ███ 4.5 %", "sync 987 █ 12.25 %", varies=True)
    assert not same("sync 1", "vpn 1", varies=True)
    assert not same("sync 1\nvpn 2", "sync 1", varies=True)
    assert same("of plan 39a3831a56dd", "of plan 0123456789ab", varies=True)


def test_commands_draw_the_same_bits_each_time():
    drawn = f"""{sys.executable} -c "
from shoal.protocol.random_bits import SystemBits
for _ in range(2):
    word = bytearray(16)
    SystemBits().fill(word)
    print(word.hex())
" """
    first, again, other = (run_command(drawn, 0, seed) for seed in ("a 1", "a 1", "a 2"))
    assert first == again
    assert len({*first.split(), *other.split()}) == 4


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documents: those that `make docs` built, unless a source is newer."""
    sources = [*DOCS.glob("*.md"), *DOCS.glob("*/*.md"), DOCS / "conf.py", *DOCS.glob("_*/*.*")]
    sources += (ROOT / "src").rglob("*.py")
    index = DOCS / "_build" / "html" / "index.html"
    newest = max(path.stat().st_mtime for path in sources)
    if index.exists() and index.stat().st_mtime > newest:
        return index.parent
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


@pytest.mark.slow
class TestBuilt:
    def test_no_page_names_another_host(self, built: Path):
        pages = list(built.rglob("*.html"))
        assert len(pages) > 60
        for path in pages:
            loaded = Loaded()
            loaded.feed(path.read_text("utf-8"))
            assert loaded.found, path
            assert [one for one in loaded.found if re.match(r"(?:[a-z]+:)?//", one)] == [], path
        for path in built.rglob("*.css"):
            text = path.read_text("utf-8")
            assert not re.search(r"url\(['\"]?(?:https?:)?//|@import", text), path

    @pytest.mark.system
    def test_pages_are_complete_without_a_network(self, built: Path):
        with browser() as chromium:
            context: Any = chromium.new_context(
                viewport={"width": 390, "height": 844}, offline=True
            )
            context.set_default_timeout(240_000)
            asked: list[str] = []
            failed: list[str] = []
            context.on("request", lambda request: asked.append(request.url))
            context.on("requestfailed", lambda request: failed.append(request.url))
            shown = context.new_page()
            shown.on("pageerror", lambda error: failed.append(str(error)))
            for name in ("index", "views", "benchmarks", "tutorial-analyst", "api/analysis"):
                shown.goto((built / f"{name}.html").as_uri())
                width = shown.evaluate("document.documentElement.scrollWidth")
                assert width <= 390, f"{name} is {width} wide on a phone"
                broken = "[...document.images].filter(i => !i.complete || !i.naturalWidth).length"
                assert shown.evaluate(broken) == 0, name
            assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
            assert failed == []
            shown.goto((built / "views.html").as_uri())
            height = shown.locator("div.math math").first.bounding_box()["height"]
            assert height > 15, "the formula is not drawn"

    def test_formulas_are_written_when_the_pages_are_built(self, built: Path):
        for path in DOCS.glob("*.md"):
            formulas = path.read_text("utf-8").count("\n$$")
            html = (built / f"{path.stem}.html").read_text("utf-8") if formulas else ""
            assert html.count("<math") >= formulas, path


@pytest.mark.slow
@pytest.mark.parametrize("name", IDEAS)
def test_pictures_of_ideas_are_those_that_are_drawn(name: str):
    for word, scheme in SCHEMES.items():
        drawn = IDEAS[name](scheme).svg()
        assert (PICTURES / f"idea-{name}-{word}.svg").read_text("utf-8") == drawn


def test_the_benchmarks_page_is_that_of_the_results():
    results = json.loads(RESULTS.read_text("utf-8"))
    assert PAGE.read_text("utf-8") == page(results)
    for word, scheme in SCHEMES.items():
        stored = (PICTURES / f"speed-{word}.svg").read_text("utf-8")
        assert stored == draw(results, scheme).svg()
    opening = page(results).partition("![")[0].replace("\n", " ")
    assert len(re.findall(r"\*\*.+?\*\*", opening)) == 3, "three sentences"


@pytest.mark.slow
def test_trust_models_has_the_numbers_of_the_command():
    text, costs = MODELS_PAGE.read_text("utf-8"), models_compared()
    command = f"--crowd {MODELS_PEOPLE} --epsilon {EPSILON} --delta {MODELS_DELTA}"
    assert f"$ shoal compare commute.toml {command}\n" in text
    found = re.findall(r"<!-- (sigma|people) ([a-z]+) -->([\d,]+)<!-- -->", text)
    assert {(what, kind) for what, kind, _ in found} == {
        (what, kind)
        for what in ("sigma", "people")
        for kind in ("local", "proven", "counts", "curator")
    }
    for what, kind, number in found:
        cost = costs[kind]
        expected = round(cost.sigma or 0) if what == "sigma" else cost.people_needed
        assert int(number.replace(",", "")) == expected, (what, kind)


def test_every_picture_is_shown_and_there():
    texts = "".join(path.read_text("utf-8") for path in PAGES)
    named = set(re.findall(r"pictures/([\w.-]+\.(?:png|svg))", texts))
    assert {path.name for path in PICTURES.iterdir()} == named
