"""The console in a browser: a whole day of an operator and an analyst, on a real collector.

These tests need Debian's chromium and the package playwright, and say so when they are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from shoal import Plan, Tally
from shoal.server.console.app import PAGES
from tests.axe import obstacles

from .console_help import SURVEY, browser, every_kind, reports
from .privacy_help import BINARY, Server, address_of, serving

pytestmark = [pytest.mark.system, pytest.mark.slow]

PLAN = every_kind(200, epsilon="8")


def watched(page: Any, origin: str) -> list[str]:
    """Return a list that fills with whatever a page must not do."""
    found: list[str] = []
    page.on("console", lambda said: found.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: found.append(str(error)))
    page.on("request", lambda one: None if one.url.startswith(origin) else found.append(one.url))
    return found


def send(server: Server, plan: Plan, seed: int, count: int) -> None:
    path = f"{server.public}/v1/plans/{plan.id}/reports"
    batch = reports(plan, seed, count)
    answer = httpx.post(path, headers=BINARY | server.relay(), content=batch.to_bytes())
    assert answer.status_code == 202


def sign_in(page: Any, server: Server, secret: str) -> None:
    page.set_default_timeout(240_000)  # both cores may be busy
    page.goto(f"{server.console}/")
    assert page.url.endswith("/sign-in?next=%2F")
    page.fill("input[name=token]", secret)
    page.click("button:has-text('Sign in')")
    page.wait_for_selector("h1:has-text('Surveys')")


def test_a_day_at_the_console(tmp_path: Path) -> None:
    """Sign in, publish, 2,000 reports, seal, read, compare, decode, download, revoke."""
    plan = every_kind(1000, epsilon="6")
    with serving(tmp_path) as server, browser() as chromium:
        admin = server.admin()["authorization"].split()[1]
        context = chromium.new_context(viewport={"width": 1280, "height": 900})
        page = context.new_page()
        wrong = watched(page, str(server.console))
        sign_in(page, server, admin)
        (cookie,) = context.cookies()
        assert (cookie["name"], cookie["httpOnly"], cookie["secure"], cookie["sameSite"]) == (
            "__Host-shoal", True, True, "Strict",
        )  # fmt: skip

        page.click("a:text-is('Builder')")
        page.select_option("select[name='q0.kind']", "flags")  # the script shows its fields
        page.wait_for_selector("input[name='q0.at_most']")
        rows = page.locator("input[name='q0.options']")
        before = rows.count()
        rows.nth(before - 1).fill("sync")
        assert rows.count() == before + 1
        page.fill("textarea[name=survey]", SURVEY.to_toml())
        page.locator("button:has-text('Plan this survey')").nth(1).click()
        page.wait_for_selector("h1:has-text('Planner')")
        assert page.input_value("textarea[name=survey]").strip() == SURVEY.to_toml().strip()
        assert page.locator("input[type=range]").count() == 4
        page.locator("input[type=range]").first.fill("500")
        assert page.input_value("input[name=crowd]") == "32000"
        for name, value in (("crowd", "1000"), ("epsilon", "6"), ("delta", "1e-6")):
            page.fill(f"input[name={name}]", value)
        page.select_option("select[name=view]", "counts")
        page.click("button:has-text('Compute')")
        page.click("button:has-text('Add this plan as a draft')")
        page.wait_for_url(f"**/surveys/{address_of(plan)}")
        page.check("input[name=honest]")
        page.click("button:has-text('Publish')")
        page.wait_for_selector("text=Crowd 1: about 0\u202f%")

        send(server, plan, 0, 1000)
        send(server, plan, 1, 500)
        page.reload()
        assert "open, about 50\u202f%" in page.content()
        send(server, plan, 2, 500)
        page.reload()
        assert page.locator("text=released, 1,000 reports").count() == 2

        page.click("th >> a:text-is('1')")
        assert page.locator("svg.wide").first.is_visible()
        assert not page.locator("svg.narrow").first.is_visible()
        assert not page.locator("text=Counts of people").nth(1).is_visible()
        page.locator("summary").first.click()
        assert page.locator("details[open] table").first.is_visible()
        page.fill("textarea[name=candidates]", "tea\ncoffee\nwater\ncocoa")
        page.click("button:has-text('Find')")
        page.wait_for_selector("text=candidates were found")
        assert page.locator("bdi:text-is('coffee')").count() == 1

        page.goto(f"{server.console}/surveys/{address_of(plan)}/difference?first=2&second=1")
        page.wait_for_selector("text=crowd 2 minus crowd 1")
        page.goto(f"{server.console}/surveys/{address_of(plan)}/trend?question=channel")
        page.wait_for_selector("text=2 crowds.")

        page.goto(f"{server.console}/surveys/{address_of(plan)}/crowds/1")
        with page.expect_download() as download:
            page.click("a:text-is('CSV')")
        text = Path(download.value.path()).read_text("utf-8")
        assert text.startswith("question,option,count")
        tally = page.request.get(f"{server.console}/v1/plans/{plan.id}/crowds/1").json()["tally"]
        assert Tally.from_json(tally, plan).reports == 1000

        page.goto(f"{server.console}/tokens")
        page.fill("input[name=label]", "Ada")
        page.select_option("select[name=role]", "analyst")
        page.click("button:has-text('Make a token')")
        secret = page.inner_text(".secret")
        other = chromium.new_context()
        analyst = other.new_page()
        sign_in(analyst, server, secret)
        page.click("tr:has-text('Ada') >> button:has-text('Revoke')")
        analyst.goto(f"{server.console}/")
        assert "/sign-in" in analyst.url
        page.goto(f"{server.console}/actions")
        assert "token revoked: analyst, Ada" in page.content()
        page.click("button:has-text('Sign out')")
        page.wait_for_selector("h1:has-text('Sign in')")
        assert context.cookies() == []
        assert wrong == []


def test_another_port_and_the_policy(tmp_path: Path) -> None:
    """A page on another port of this machine posts a form, with the browser's own headers."""
    plan = every_kind(1000, epsilon="6")
    with serving(tmp_path, plan) as server, browser() as chromium:
        page = chromium.new_page()
        sign_in(page, server, server.admin()["authorization"].split()[1])
        target = f"{server.console}/surveys/{address_of(plan)}/pause"
        # The public listener is another port of the same host.
        page.goto(f"{server.public}/openapi.json")
        script = """target => { const form = document.createElement("form");
            form.method = "post"; form.action = target;
            document.documentElement.append(form); form.submit(); }"""
        page.evaluate(script, target)
        page.wait_for_selector("text=does not come from the console's own pages")
        page.goto(f"{server.console}/")
        assert "published" in page.content()
        inline = "() => { const s = document.createElement('script'); s.text = 'window.ran = 1';"
        inline += " document.body.append(s); return window.ran ?? 'no'; }"
        assert page.evaluate(inline) == "no"


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A collector with two released crowds of a plan."""
    with serving(tmp_path_factory.mktemp("filled"), PLAN) as server:
        for seed in range(2):
            send(server, PLAN, seed, 200)
        yield server


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light")])
def test_nothing_keeps_people_out(width: int, scheme: str, filled: Server) -> None:
    """axe-core finds nothing serious or critical on any page, with whatever is on it."""
    plan, server = PLAN, filled
    with browser() as chromium:
        size = {"width": width, "height": 844}
        page = chromium.new_context(viewport=size, color_scheme=scheme).new_page()
        page.set_content("<main><button></button></main>")
        assert len(obstacles(page)) > 1, "a page without title or names passes"
        page.goto(f"{server.console}/sign-in")
        assert obstacles(page) == []
        sign_in(page, server, server.admin()["authorization"].split()[1])
        base = f"/surveys/{address_of(plan)}"
        paths = [one.path.format(survey=address_of(plan), number=1) for one in PAGES
                 if one.method == "GET" and not one.path.startswith("/static/")]  # fmt: skip
        report = f"/v1/plans/{plan.id}/crowds/1/report.html"
        for path in (*paths, report, "/surveys/unknown"):
            page.goto(f"{server.console}{path}")
            page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
            assert obstacles(page) == [], path
        page.goto(f"{server.console}{base}/crowds/1")
        page.fill("textarea[name=candidates]", "tea\ncoffee\nwater\ncocoa")
        page.click("button:has-text('Find')")
        page.wait_for_selector("text=candidates were found")
        assert obstacles(page) == []
        page.goto(f"{server.console}/builder")
        page.fill("textarea[name=survey]", SURVEY.to_toml())
        page.click("button:has-text('Fill the form')")
        page.wait_for_selector("legend:has-text('Question 6')")
        page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        assert obstacles(page) == []
        page.fill("input[name='q1.name']", "uses")
        page.click("button:has-text('Write the TOML')")
        page.wait_for_selector("text=another question has this name")
        assert obstacles(page) == []
        page.goto(f"{server.console}/planner")
        page.fill("textarea[name=survey]", SURVEY.to_toml())
        page.click("button:has-text('Compute')")
        page.wait_for_selector("h2:has-text('This plan')")
        assert obstacles(page) == []
        page.goto(f"{server.console}/tokens")
        page.fill("input[name=label]", "Ada")
        page.click("button:has-text('Make a token')")
        page.wait_for_selector(".secret")
        assert obstacles(page) == []


@pytest.mark.parametrize("width", [390, 1280])
def test_pages_fit_the_screen_and_need_no_script(width: int, filled: Server) -> None:
    """No page is wider than its window; tables scroll by themselves. Scripts are off."""
    plan, server = PLAN, filled
    with browser() as chromium:
        size = {"width": width, "height": 844}
        context = chromium.new_context(viewport=size, java_script_enabled=False)
        page = context.new_page()
        wrong = watched(page, str(server.console))
        sign_in(page, server, server.admin()["authorization"].split()[1])
        base = f"/surveys/{address_of(plan)}"
        for path in ("/", base, f"{base}/crowds/1", f"{base}/trend", f"{base}/difference",
                     "/planner", "/tokens", "/actions", "/backups", "/builder"):  # fmt: skip
            page.goto(f"{server.console}{path}")
            box = page.locator("html").bounding_box()
            wide = page.locator("main").bounding_box()
            assert box is not None
            assert wide is not None
            assert wide["x"] + wide["width"] <= width + 1, path
            beyond = [
                one for one in page.locator("main > *, section > *").all()
                if one.is_visible() and (found := one.bounding_box())
                and found["x"] + found["width"] > width + 1
            ]  # fmt: skip
            assert not beyond, path
        assert wrong == []
