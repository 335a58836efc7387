"""Pictures for the documents, of a collector and a demonstration that run on this machine.

`python -m tests.server.screenshots` writes them to docs/pictures; it needs chromium and the
package playwright.
"""

from __future__ import annotations

import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import Any

from shoal import plan
from shoal.cli.demo import SURVEY
from shoal.lab.web_demo import web_demonstration

from .console_help import browser, every_kind
from .privacy_help import address_of, serving
from .test_browser import send, sign_in

PICTURES = Path(__file__).parent.parent.parent / "docs" / "pictures"
SIZES = {"wide": (1280, 900), "narrow": (390, 844)}
HEIGHTS = {"crowd": 2200, "planner": 2200, "builder": 1600}
"""Of pages that have more to show than fits a screen."""
SCHEMES = ("light", "dark")
SHOWN = {
    "surveys-wide-dark", "surveys-narrow-light", "crowd-wide-light", "crowd-wide-dark",
    "crowd-narrow-light", "crowd-narrow-dark", "trend-wide-light", "trend-narrow-dark",
    "difference-wide-dark", "difference-narrow-light", "tokens-wide-light", "planner-wide-light",
    "planner-narrow-dark", "builder-wide-light", "builder-narrow-dark",
}  # fmt: skip
"""What the documents show."""


def take(folder: Path, *, everything: bool = False) -> None:
    """Write pictures of the pages; everything in full length, or what the documents show."""
    shown = every_kind(2000, epsilon="4", window=7 * 86_400)
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as data,
        serving(Path(data), shown) as server,
        browser() as chromium,
    ):
        for seed in range(5):
            send(server, shown, seed, 2000)
        send(server, shown, 9, 900)
        base = f"/surveys/{address_of(shown)}"
        pages = {
            "surveys": "/",
            "survey": base,
            "crowd": f"{base}/crowds/2",
            "trend": f"{base}/trend?question=channel",
            "difference": f"{base}/difference",
            "tokens": "/tokens",
            "planner": "/planner",
            "builder": "/builder",
        }
        for (size, (width, height)), scheme in product(SIZES.items(), SCHEMES):
            context: Any = chromium.new_context(
                viewport={"width": width, "height": height}, color_scheme=scheme
            )
            page = context.new_page()
            sign_in(page, server, server.admin()["authorization"].split()[1])
            for name, path in pages.items():
                page.set_viewport_size({"width": width, "height": HEIGHTS.get(name, height)})
                if everything or f"{name}-{size}-{scheme}" in SHOWN:
                    page.goto(f"{server.console}{path}")
                    if name == "builder":
                        page.fill("textarea[name=survey]", shown.survey.to_toml())
                        page.click("button:has-text('Fill the form')")
                        page.wait_for_selector("legend:has-text('Question 6')")
                    if name == "planner":
                        page.click("button:has-text('Compute')")
                        page.wait_for_selector("h2:has-text('This plan')")
                    target = folder / f"console-{name}-{size}-{scheme}.png"
                    page.screenshot(path=str(target), full_page=everything)
            context.close()


def take_demo(folder: Path, users: int = 3000) -> None:
    """Write pictures of the demonstration in a browser, when its crowd is sealed."""
    agreed = plan(SURVEY, crowd_size=users, epsilon="1", delta="1e-6")
    with web_demonstration(agreed, seed=2017) as address, browser() as chromium:
        page = chromium.new_page()
        page.set_default_timeout(240_000)
        page.goto(address)
        for label in ("sync", "reader", "beta"):
            page.check(f"label:text-is('{label}') >> input")
        page.click("button:has-text('Answer')")
        page.wait_for_selector("#results:not([hidden])")
        for (size, (width, height)), scheme in product(SIZES.items(), SCHEMES):
            page.set_viewport_size({"width": width, "height": height})
            page.emulate_media(color_scheme=scheme)
            page.screenshot(path=str(folder / f"demo-{size}-{scheme}.png"), full_page=True)


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURES
    take(target, everything=len(sys.argv) > 1)
    take_demo(target)
