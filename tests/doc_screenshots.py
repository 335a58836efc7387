"""Pictures for the tutorials, taken while the commands of the tutorials run.

`python -m tests.doc_screenshots` writes them to docs/pictures; it needs chromium and the package
playwright. Words choose pages: `tutorial-analyst`, `plots`.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import Any

from bench.svg import PICTURES

from shoal import Plan
from tests.doc_pages import ADDRESSES, ROOT, Page
from tests.server.console_help import browser
from tests.server.screenshots import SCHEMES, SIZES


def contexts(chromium: Any, height: int = 900) -> Any:
    """Yield a page and its name for each size and scheme."""
    for (size, (width, _)), scheme in product(SIZES.items(), SCHEMES):
        context = chromium.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme
        )
        page = context.new_page()
        page.set_default_timeout(240_000)  # both cores may be busy
        yield page, f"{size}-{scheme}"
        context.close()


def analyst(page: Page) -> None:
    """The report page."""
    with browser() as chromium:
        for shown, name in contexts(chromium):
            shown.goto(Path("report.html").absolute().as_uri())
            shown.screenshot(path=str(PICTURES / f"tutorial-report-{name}.png"))


def engineer(page: Page) -> None:
    """The console, signed in, with the sealed crowd."""
    console = f"http://{page.away(ADDRESSES['SHOAL_CONSOLE'])}"
    token = Path("collector/admin-token").read_text("utf-8").strip()
    with browser() as chromium:
        for shown, name in contexts(chromium):
            shown.goto(f"{console}/")
            shown.fill("input[name=token]", token)
            shown.click("button:has-text('Sign in')")
            shown.wait_for_selector("h1:has-text('Surveys')")
            shown.goto(f"{console}/surveys/{Plan.read('plan.json').survey.name}/crowds/1")
            shown.screenshot(path=str(PICTURES / f"tutorial-console-{name}.png"))


def telemetry(page: Page) -> None:
    """The public page of a tool's results."""
    results = f"http://{page.away(ADDRESSES['SHOAL_PUBLIC'])}/results/wordy/"
    with browser() as chromium:
        for shown, name in contexts(chromium):
            while not (answer := shown.goto(results)) or not answer.ok:
                shown.wait_for_timeout(100)  # pages are written after the release
            if name.startswith("wide"):
                shown.screenshot(path=str(PICTURES / f"tutorial-results-{name}.png"))


def researcher(page: Page) -> None:
    """The chart that the command drew."""
    shutil.copyfile("privacy.svg", PICTURES / "tutorial-privacy.svg")


def plots(page: Page) -> None:
    """A chart of the page about charts."""
    shutil.copyfile("noise.svg", PICTURES / "plot-noise.svg")


LOOKS = {
    "tutorial-analyst": analyst,
    "tutorial-engineer": engineer,
    "tutorial-telemetry": telemetry,
    "tutorial-researcher": researcher,
    "plots": plots,
}


def take(names: list[str]) -> None:
    """Run each page, or those named, and look before it ends."""
    for name in names or LOOKS:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            Page(ROOT / "docs" / f"{name}.md").run(
                lambda line, shown, printed, varies: shown, LOOKS[name]
            )


if __name__ == "__main__":
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    take(sys.argv[1:])
