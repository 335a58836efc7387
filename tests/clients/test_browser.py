"""The client in a real browser: an answer when a tab is closed, and in bad weather."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from shoal import Choice, Date, Flags, Number, Plan, Survey, Text, YesNo
from shoal.device.encode import answer_bits
from shoal.protocol.encryption import decrypt_message, encryption_info, split_encrypted
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Parties, Promise
from shoal.protocol.survey import Arm, Funnel
from shoal.protocol.wire import row_bytes, split_batch
from tests.axe import obstacles
from tests.clients.js_help import CLIENT, NPM, run
from tests.clients.test_aggregators import ANSWER as WORDY
from tests.clients.test_aggregators import Deployment
from tests.clients.web_help import Page, Pretended, settings
from tests.lab.test_peers import example

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Playwright
    from playwright.sync_api import Page as Tab

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE = 60_000
"""Milliseconds until a test gives up; nothing is expected to take that long."""

web = example("web_survey")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.system,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium in PATH"),
]

SURVEY = Survey("s", (Flags("features", ("sync", "vpn", "reader")),))
PLAN = Plan(SURVEY, FlipProbability(1, 2), Promise("local", "4"))
ANSWER = {"features": ["sync"]}


@pytest.fixture(scope="module")
def driver() -> Iterator[Playwright]:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with api.sync_playwright() as running:
        yield running


@contextmanager
def profile(driver: Playwright, folder: Path) -> Iterator[BrowserContext]:
    """A browser that keeps what pages store in a folder."""
    browser = driver.chromium.launch_persistent_context(
        folder, executable_path=CHROMIUM, args=FLAGS, headless=True
    )
    browser.set_default_timeout(PATIENCE)
    try:
        yield browser
    finally:
        browser.close()


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with web.served(Page) as at:
        yield at


@pytest.fixture
def minified(packed: Path) -> Iterator[str]:
    """The address of the same page with the client that is packed."""

    class Minified(Page):
        folder, end = packed.parent / "js", ".min.js"

    with web.served(Minified) as at:
        yield at


@pytest.fixture
def context(driver: Playwright, tmp_path: Path) -> Iterator[BrowserContext]:
    with profile(driver, tmp_path / "profile") as browser:
        yield browser


def opened(context: BrowserContext, address: str, shipped: dict[str, Any], path: str = "") -> Tab:
    tab = context.new_page()
    tab.goto(address + path)
    tab.wait_for_function("window.ready")
    tab.evaluate("(settings) => { open_survey(settings); }", shipped)
    return tab


def answer(tab: Tab, given: dict[str, Any] = ANSWER) -> Any:
    return tab.evaluate("(given) => survey.answer(given).then(({state}) => state)", given)


def send(tab: Tab) -> Any:
    """Send what waits and return the state and the reason of each answer."""
    return tab.evaluate("() => survey.send().then((all) => all.map((t) => [t.state, t.reason]))")


def refusal(tab: Tab) -> Any:
    return tab.evaluate("(given) => survey.answer(given).catch((error) => error.message)", ANSWER)


@pytest.mark.parametrize("client", ["address", "minified"])
def test_a_closed_tab_loses_nothing_and_sends_once(
    driver: Playwright, client: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    address, server = request.getfixturevalue(client), Pretended(PLAN)
    with web.served(server.handler()) as collector:
        shipped = settings(server, collector.rstrip("/"))
        with profile(driver, tmp_path / "profile") as browser:
            tab = opened(browser, address, shipped)
            assert answer(tab) == "waiting"
            tab.close()
        assert server.posts == []
        # The browser itself was closed, too.
        with profile(driver, tmp_path / "profile") as browser:
            tab = opened(browser, address, shipped)
            requests: list[str] = []
            tab.on("request", lambda request: requests.append(request.url))
            assert send(tab) == [["sent", None]]
            assert send(tab) == [["sent", None]]
            assert answer(tab, {"features": ["vpn"]}) == "sent"
            assert requests == [f"{shipped['to']}/v1/plans/{PLAN.id}/reports"]
        assert len(server.posts) == 1
        assert len(split_batch(PLAN, server.posts[0])) == 1


@pytest.mark.parametrize("client", ["address", "minified"])
def test_two_visitors_are_counted_by_a_leader_and_a_helper(
    driver: Playwright, client: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Real services, which allow the page's origin; the page lives at a third one."""
    address, deployment = request.getfixturevalue(client), Deployment(tmp_path, crowd=2)
    plan, sent = deployment.plan, []
    shipped = {"plan": plan.id, "to": deployment.leader, "limit": plan.local_epsilon}
    with deployment.running("--origins", address.rstrip("/")):
        for visitor in range(2):
            with profile(driver, tmp_path / f"profile{visitor}") as browser:
                tab = browser.new_page()
                tab.goto(address)
                tab.wait_for_function("window.ready")
                tab.evaluate("open_shared", shipped)
                assert answer(tab, WORDY) == "waiting"
                row = tab.evaluate(STORED_ROW, plan.id)
                sent.append(int.from_bytes(bytes(row), "little"))
                assert send(tab) == [["sent", None]]
        counts = deployment.collected()
    assert counts == [sum(one >> place & 1 for one in sent) for place in range(plan.bits)]


STORED_ROW = """(plan) => new Promise((resolve) => {
  indexedDB.open("shoal").onsuccess = ({ target: { result } }) => {
    const kept = result.transaction("kept").objectStore("kept").get(plan);
    kept.onsuccess = () => resolve([...Object.values(kept.result.reports)[0].row]);
  };
})"""
"""Reads the bits of the report that waits."""


def test_no_request_but_to_the_collector_and_nothing_about_the_visitor(
    context: BrowserContext, address: str
) -> None:
    server = Pretended(PLAN)
    with web.served(server.handler()) as collector:
        tab = context.new_page()
        requests: list[str] = []
        context.on("request", lambda request: requests.append(request.url))
        tab.goto(address)
        tab.wait_for_function("window.ready")
        tab.evaluate("(s) => { open_survey(s); }", settings(server, collector.rstrip("/")))
        answer(tab)
        assert send(tab) == [["sent", None]]
        assert tab.evaluate("document.cookie") == "visitor=7"
    starts = (address, collector, "data:")
    assert all(url.startswith(starts) for url in requests)
    assert server.heads
    for head in server.heads:
        assert not {"cookie", "referer", "authorization"} & {name.lower() for name in head}


def test_a_private_window_is_a_device_of_its_own(driver: Playwright, address: str) -> None:
    server = Pretended(PLAN)
    browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
    try:
        with web.served(server.handler()) as collector:
            shipped = settings(server, collector.rstrip("/"))
            for expected in (1, 2):
                private = browser.new_context()
                tab = opened(private, address, shipped)
                answer(tab)
                answer(tab)
                assert send(tab) == [["sent", None]]
                private.close()
                assert len(server.posts) == expected
    finally:
        browser.close()


def test_without_storage_nothing_is_answered(context: BrowserContext, address: str) -> None:
    server = Pretended(PLAN)
    with web.served(server.handler()) as collector:
        tab = opened(context, address, settings(server, collector.rstrip("/")), "sandboxed")
        assert refusal(tab) == "this browser stores nothing."
    assert not server.posts
    assert not server.heads


@pytest.mark.parametrize("client", ["address", "minified"])
def test_a_sealed_report_opens_at_the_analyzer(
    context: BrowserContext, client: str, request: pytest.FixtureRequest
) -> None:
    """When the crowd's key changed, the same report is encrypted again."""
    address, server = request.getfixturevalue(client), Pretended(PLAN)
    with web.served(server.handler()) as relay:
        parties = Parties(relay.rstrip("/"), "https://analyzer.example")
        promise = Promise("proven", "1", delta="1e-6")
        plan = replace(PLAN, promise=promise, crowd_size=1000, parties=parties)
        server.plan, server.document = plan, {"id": plan.id} | plan.to_json()
        server.statuses = [412, 202]
        tab = opened(context, address, settings(server, relay.rstrip("/")))
        answer(tab)
        post, server.post = server.post, lambda body: _other_key(server, post(body))  # type: ignore[method-assign]
        assert send(tab) == [["sent", None]]
    contents = []
    for body, secret in zip(server.posts, server.crowd_secrets, strict=True):
        batch = split_encrypted(plan, body)
        content = decrypt_message(batch.content[16:], secret, encryption_info(plan, 0))
        contents.append((batch.ids, content[16:]))
    assert contents[0] == contents[1]


def _other_key(server: Pretended, status: int) -> int:
    server.crowd = 1
    return status


def test_the_example_shows_what_left_and_its_collector_takes_it(
    context: BrowserContext, tmp_path: Path
) -> None:
    from playwright.sync_api import expect

    expect.set_options(timeout=PATIENCE)
    agreed = web.survey_plan()
    port = web.free_port()
    with web.collector(tmp_path, agreed, f"http://127.0.0.1:{port}") as public:
        shipped = web.settings(public, agreed)
        with web.served(web.pages(shipped, public), port) as page:
            tab = context.new_page()
            sent: list[bytes] = []
            problems: list[str] = []
            tab.on("console", lambda message: problems.append(message.text))
            tab.on("pageerror", lambda error: problems.append(str(error)))
            tab.on("request", lambda request: sent.append(request.post_data_buffer or b""))
            tab.goto(page)
            expect(tab.locator("form")).to_be_visible()
            assert obstacles(tab) == []
            tab.locator("input[value=bicycle]").check()
            tab.locator("input[value=late]").check()
            tab.locator("input[type=number]").fill("20")
            tab.locator("button").click()
            expect(tab.locator("#state")).to_have_text("Your report was accepted. Thank you.")
            (body,) = filter(None, sent)
            assert len(split_batch(agreed, body)) == 1
            expect(tab.locator("#requests li").last).to_contain_text(body.hex())
            expect(tab.locator("#requests li")).to_have_count(2)
            tab.emulate_media(color_scheme="dark")
            assert obstacles(tab) == []
            tab.reload()
            expect(tab.locator("#state")).to_have_text("Your report was accepted. Thank you.")
            expect(tab.locator("form")).to_be_hidden()
            assert problems == []


ASKED = Survey(
    "commute",
    (
        Choice("travel", ("on foot", "<b>bicycle</b>"), missing="option", other=True),
        Flags("trouble", ("late", "crowded", "unsafe")),
        YesNo("again"),
        Number("minutes", low=0, high=60, points=7),
        Text("town", bits=32, hashes=2, cohorts=3),
    ),
).cross("travel", "again")
ALL_BUT_CERTAIN = Plan(ASKED, FlipProbability(1, 44), Promise("local", "1000"))
"""A bit of a report is flipped with probability below 1e-11."""


@pytest.mark.parametrize("sources", ["address", "minified"])
def test_a_ready_form(
    context: BrowserContext, sources: str, request: pytest.FixtureRequest
) -> None:
    """It shows what the plan asks, says what became of the answer, and sends it once."""
    from playwright.sync_api import expect

    expect.set_options(timeout=PATIENCE)
    server, page = Pretended(ALL_BUT_CERTAIN), request.getfixturevalue(sources)
    with web.served(server.handler()) as collector:
        shipped = settings(server, collector.rstrip("/"), limit=1000)
        tab = context.new_page()
        for again in (False, True):
            tab.goto(page)
            tab.wait_for_function("window.ready")
            tab.evaluate("(settings) => add_form(settings)", shipped)
            form = tab.locator("shoal-survey form")
            expect(form.locator("fieldset")).to_have_count(3)
            assert obstacles(tab) == []
            form.get_by_label("<b>bicycle</b>").check()
            form.get_by_label("late").check()
            form.get_by_label("unsafe").check()
            form.get_by_role("group", name="again").get_by_label("yes").check()
            form.get_by_label("minutes").fill("20")
            form.get_by_label("town").fill("Zürich")
            form.get_by_role("button").click()
            expected = "You have answered already" if again else "Thank you. Your report was sent."
            expect(form.get_by_role("status")).to_contain_text(expected)
            expect(form.get_by_role("button")).to_be_disabled()
        (body,) = server.posts
        assert len(split_batch(ALL_BUT_CERTAIN, body)) == 1
        cohort, row = (int.from_bytes(part, "little") for part in (body[62:64], body[64:]))
        given = {
            "travel": "<b>bicycle</b>",
            "trouble": ["late", "unsafe"],
            "again": "yes",
            "minutes": 20,
            "town": "Zürich",
        }
        set_bits = {bit for bit in range(ASKED.bits) if row >> bit & 1}
        assert set_bits == set(answer_bits(ASKED, given, cohort))


PAST = Survey(
    "setup",
    (
        Arm("start", ("list", "tour")),
        Funnel("steps", ("installed", "signed in"), title="How far did you get?"),
        Date("visit", "weekday", missing="option"),
    ),
).cross("start", "steps")


@pytest.mark.parametrize("sources", ["address", "minified"])
def test_a_form_asks_no_person_for_the_arm(
    context: BrowserContext, sources: str, request: pytest.FixtureRequest
) -> None:
    """The page answers for its arm; people are asked for dates and steps."""
    from playwright.sync_api import expect

    expect.set_options(timeout=PATIENCE)
    server = Pretended(Plan(PAST, FlipProbability(1, 44), Promise("local", "1000")))
    page = request.getfixturevalue(sources)
    with web.served(server.handler()) as collector:
        shipped = settings(server, collector.rstrip("/"), limit=1000)
        tab = context.new_page()
        tab.goto(page)
        tab.wait_for_function("window.ready")
        tab.evaluate("(settings) => add_form(settings, {})", shipped)
        expect(tab.get_by_role("alert")).to_have_text(
            "the page has to answer question start itself."
        )
        tab.goto(page)
        tab.wait_for_function("window.ready")
        tab.evaluate("(settings) => add_form(settings, { start: 'tour' })", shipped)
        form = tab.locator("shoal-survey form")
        expect(form.get_by_role("radio")).to_have_count(2)
        expect(form.get_by_text("tour")).to_have_count(0)
        assert obstacles(tab) == []
        form.get_by_role("group", name="How far did you get?").get_by_label("signed in").check()
        form.get_by_label("visit").fill("2026-03-31")
        form.get_by_role("button").click()
        expect(form.get_by_role("status")).to_contain_text("Your report was sent.")
    (body,) = server.posts
    row = int.from_bytes(body[-row_bytes(PAST.bits) :], "little")
    given = {"start": "tour", "steps": "signed in", "visit": "2026-03-31"}
    set_bits = {bit for bit in range(PAST.bits) if row >> bit & 1}
    assert set_bits == set(answer_bits(PAST, given, None))


def test_a_form_says_why_it_cannot_be_shown(context: BrowserContext, address: str) -> None:
    from playwright.sync_api import expect

    tab = context.new_page()
    tab.goto(address)
    tab.wait_for_function("window.ready")
    tab.evaluate("() => add_form({ plan: '00', to: 'http://127.0.0.1:9' })")
    expect(tab.get_by_role("alert")).to_have_text(
        "no response from the collector.", timeout=PATIENCE
    )


@pytest.mark.parametrize("name", ["web_react", "web_vue"])
def test_the_examples_with_frameworks(context: BrowserContext, tmp_path: Path, name: str) -> None:
    """What Vite builds of them sends a report."""
    from playwright.sync_api import expect

    if NPM is None:
        pytest.skip("no npm in PATH")
    folder = tmp_path / "examples" / name
    unneeded = shutil.ignore_patterns("node_modules", "dist", "types", "*.min.js")
    shutil.copytree(CLIENT, tmp_path / "clients" / "js", ignore=unneeded)
    shutil.copytree(CLIENT.parents[1] / "examples" / name, folder, ignore=unneeded)
    install = ("install", "--prefer-offline", "--ignore-scripts", "--no-package-lock", "--no-fund")
    run(folder, NPM, *install)
    run(folder, NPM, "run", "build")
    server = Pretended(PLAN)
    with web.served(server.handler()) as collector:
        shipped = json.dumps(settings(server, collector.rstrip("/")))
        (folder / "dist" / "settings.json").write_text(shipped)
        with web.served(partial(QuietFiles, directory=folder / "dist")) as page:
            tab = context.new_page()
            tab.goto(page)
            tab.get_by_label("sync").check()
            tab.get_by_role("button").click()
            expect(tab.get_by_role("status")).to_have_text("sent", timeout=PATIENCE)
            assert obstacles(tab) == []
    assert len(split_batch(PLAN, *server.posts)) == 1


class QuietFiles(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass
