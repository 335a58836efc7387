"""Web pages of the origins that a plan lists may use the public listener, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from urllib.parse import urlencode

import httpx
import pytest

from shoal.device.encode import encode
from shoal.device.randomize import flip, pack_reports
from shoal.errors import InputError
from tests.server.relay.relay_help import WHOLE, FakeAnalyzer, RelayWorld, in_relay
from tests.server.serving_help import Served, served, small_plan

from .privacy_help import FLAGS_PLAN, World, address_of, with_world

ORIGIN = "https://page.example"
PAGE = {"Origin": ORIGIN}
ASKING = {**PAGE, "Access-Control-Request-Method": "POST"}
ANSWER = {"features": ["sync"], "channel": "beta"}
MEDIA = {"Content-Type": "application/vnd.shoal.reports"}
FORM = {"content-type": "application/x-www-form-urlencoded"}


def shared(answer: httpx.Response) -> dict[str, str]:
    names = [name for name in answer.headers if "access-control" in name or name == "vary"]
    return {name: answer.headers[name] for name in names}


OPEN = {
    "access-control-allow-origin": ORIGIN,
    "vary": "Origin",
    "access-control-expose-headers": "Shoal-Signature, Shoal-Key, Retry-After",
}


def test_a_browser_that_asks_first_may_send(running: Served) -> None:
    asking = {**ASKING, "Access-Control-Request-Headers": "content-type"}
    for path in (f"/v1/plans/{running.plan.id}/reports", "/v1/keys", "/nothing/here"):
        answer = httpx.options(running.public + path, headers=asking)
        assert (answer.status_code, answer.content) == (204, b"")
        assert shared(answer) == {
            "access-control-allow-origin": ORIGIN,
            "vary": "Origin",
            "access-control-allow-methods": "GET, POST",
            "access-control-allow-headers": "Content-Type",
            "access-control-max-age": "86400",
        }
        assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("missing", sorted(ASKING))
def test_other_options_requests_are_what_they_were(running: Served, missing: str) -> None:
    path = f"/v1/plans/{running.plan.id}/reports"
    headers = {name: text for name, text in ASKING.items() if name != missing}
    answer = httpx.options(running.public + path, headers=headers)
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


def test_documents_and_reports_are_open_to_the_pages(running: Served) -> None:
    plan = running.plan
    start = f"{running.public}/v1/plans/{plan.id}"
    for url in (start, f"{start}/certificate", f"{running.public}/v1/keys"):
        answer = httpx.get(url, headers=PAGE)
        assert answer.status_code == 200
        assert shared(answer) == OPEN
    body = pack_reports(plan, flip(plan, encode(plan, ANSWER))).to_bytes()
    answer = httpx.post(f"{start}/reports", content=body, headers={**PAGE, **MEDIA})
    assert (answer.status_code, shared(answer)) == (202, OPEN)


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "http://page.example", f"{ORIGIN}:8443", "null", "*", ""]
)
def test_other_pages_are_left_to_the_browser(running: Served, origin: str) -> None:
    """It keeps the answer from them; a cache keeps it from them too."""
    url = f"{running.public}/v1/plans/{running.plan.id}"
    assert shared(httpx.get(url, headers={"Origin": origin})) == {"vary": "Origin"}
    answer = httpx.options(f"{url}/reports", headers=ASKING | {"Origin": origin})
    assert (answer.status_code, shared(answer)) == (405, {"vary": "Origin"})


def test_a_page_can_read_why_it_was_refused(running: Served) -> None:
    answer = httpx.get(f"{running.public}/v1/plans/{running.plan.id}/nothing", headers=PAGE)
    assert (answer.status_code, shared(answer)) == (404, OPEN)
    url = f"{running.public}/v1/plans/{running.plan.id}/reports"
    answer = httpx.post(url, content=b"no", headers={**PAGE, **MEDIA})
    assert (answer.status_code, shared(answer)) == (400, OPEN)


def test_a_plan_that_is_not_there_has_no_pages(running: Served) -> None:
    answer = httpx.get(f"{running.public}/v1/plans/{'0' * 64}", headers=PAGE)
    assert (answer.status_code, shared(answer)) == (404, {})


def test_the_console_is_closed_to_pages(running: Served) -> None:
    token = {"Authorization": f"Bearer {running.token}"}
    assert not shared(httpx.get(f"{running.console}/v1/plans", headers={**PAGE, **token}))
    assert not shared(httpx.options(f"{running.console}/v1/plans", headers=ASKING))


@with_world()
async def test_a_plan_has_no_pages_until_an_admin_names_them(world: World) -> None:
    other = replace(FLAGS_PLAN, crowd_size=300)

    async def open_to(path: str, origin: str = ORIGIN) -> str | None:
        answer = await world.ask("public", "GET", path, {"Origin": origin})
        return shared(answer).get("access-control-allow-origin")

    async def put(origins: object) -> httpx.Response:
        return await world.clients["console"].put(
            f"/v1/plans/{FLAGS_PLAN.id}/origins", json=origins, headers=world.admin()
        )

    here, there = f"/v1/plans/{FLAGS_PLAN.id}", f"/v1/plans/{other.id}"
    await world.publish(FLAGS_PLAN)
    await world.publish(other)
    for path in (here, there, "/v1/keys"):
        answer = await world.ask("public", "GET", path, PAGE)
        assert (answer.status_code, shared(answer)) == (200, {})
        asked = await world.ask("public", "OPTIONS", path, ASKING)
        assert (asked.status_code, shared(asked)) == (405, {})

    answer = await put({"origins": [ORIGIN, ORIGIN]})
    assert (answer.status_code, answer.json()) == (200, {"origins": [ORIGIN]})
    shown = await world.ask("console", "GET", here, world.admin())
    assert shown.json()["origins"] == [ORIGIN]
    assert [await open_to(path) for path in (here, there, "/v1/keys")] == [ORIGIN, None, ORIGIN]

    wrong: list[object] = [["page.example"], ["https://page.example/"], ["https://A.example"],
                           [7], ["null"], "*", ["http://page.example"],
                           [f"https://{n}.example" for n in range(101)]]  # fmt: skip
    for origins in wrong:
        answer = await put({"origins": origins})
        assert (answer.status_code, answer.json()["type"]) == (422, "urn:shoal:problem:bad-origins")
    others: list[object] = [[], {}, {"origins": [], "more": 1}]
    for document in others:
        assert (await put(document)).status_code == 400
    assert await open_to(here) == ORIGIN

    page = f"/surveys/{address_of(FLAGS_PLAN, several=True)}"
    fields = urlencode({"origins": "*"}).encode()
    answer = await world.ask("console", "POST", f"{page}/origins", world.admin() | FORM, fields)
    assert answer.status_code == 303
    shown = await world.ask("console", "GET", page, world.admin())
    assert 'name="origins" value="*"' in shown.text
    assert await open_to(here, "https://any.example") == "*"
    answer = await world.ask("public", "GET", here, {"Origin": "https://any.example"})
    assert "vary" not in answer.headers
    assert await open_to(there) is None
    assert (await put({"origins": []})).status_code == 200
    assert await open_to(here) is None
    done = [line.action for line in world.collector.administration.actions.last(0, 10)]
    assert done.count("origins set") == 3


@pytest.mark.slow
def test_origins_are_kept(tmp_path: Path) -> None:
    """A start without the option leaves them, one with it sets them anew."""

    def allowed(*options: str) -> str | None:
        with served(tmp_path / "data", small_plan(), *options) as running:
            answer = httpx.get(f"{running.public}/v1/plans/{running.plan.id}", headers=PAGE)
            return shared(answer).get("access-control-allow-origin")

    assert allowed() is None
    assert allowed("--origins", ORIGIN) == ORIGIN
    assert allowed() == ORIGIN
    assert allowed("--origins", "") is None


@pytest.mark.parametrize(("setting", "allowed"), [("", None), (ORIGIN, ORIGIN), ("*", "*")])
def test_the_pages_of_a_relay(setting: str, allowed: str | None, tmp_path: Path) -> None:
    async def live(world: RelayWorld) -> None:
        await world.publish(WHOLE)
        for path in ("/v1/keys", f"/v1/plans/{WHOLE.id}", f"/v1/plans/{WHOLE.id}/encrypted"):
            answer = await world.clients["public"].get(path, headers=PAGE)
            assert answer.headers.get("access-control-allow-origin") == allowed
            asked = await world.clients["public"].options(path, headers=ASKING)
            assert asked.status_code == (204 if allowed else 405)
        assert not shared(await world.clients["console"].get("/healthz", headers=PAGE))

    in_relay(live, tmp_path, FakeAnalyzer(WHOLE), origins=setting)


def test_a_relay_refuses_what_is_no_origin(tmp_path: Path) -> None:
    async def live(world: RelayWorld) -> None:
        raise AssertionError

    with pytest.raises(InputError, match="origins must be an origin"):
        in_relay(live, tmp_path, FakeAnalyzer(WHOLE), origins="page.example")
