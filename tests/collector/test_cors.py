"""Web pages may use the public door, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from shoal import encode, pack_reports, randomize
from tests.collector.serving_help import Served, served, small_plan

PAGE = {"Origin": "https://page.example"}
ASKING = {**PAGE, "Access-Control-Request-Method": "POST"}
ANSWER = {"features": ["sync"], "channel": "beta"}
MEDIA = {"Content-Type": "application/vnd.shoal.reports"}


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder: Path = tmp_path_factory.mktemp("cors")
    with served(folder / "data", small_plan()) as running:
        yield running


def shared(answer: httpx.Response) -> dict[str, str]:
    return {name: text for name, text in answer.headers.items() if "access-control" in name}


OPEN = {
    "access-control-allow-origin": "*",
    "access-control-expose-headers": "Shoal-Signature, Shoal-Key, Retry-After",
}


def test_a_browser_that_asks_first_may_send(collector: Served) -> None:
    asking = {**ASKING, "Access-Control-Request-Headers": "content-type"}
    for path in (f"/v1/plans/{collector.plan.id}/reports", "/v1/keys", "/nothing/here"):
        answer = httpx.options(collector.public + path, headers=asking)
        assert (answer.status_code, answer.content) == (204, b"")
        assert shared(answer) == {
            "access-control-allow-origin": "*",
            "access-control-allow-methods": "GET, POST",
            "access-control-allow-headers": "Content-Type",
            "access-control-max-age": "86400",
        }
        assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("missing", sorted(ASKING))
def test_other_options_requests_are_what_they_were(collector: Served, missing: str) -> None:
    path = f"/v1/plans/{collector.plan.id}/reports"
    headers = {name: text for name, text in ASKING.items() if name != missing}
    answer = httpx.options(collector.public + path, headers=headers)
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


def test_documents_and_reports_are_open_to_every_page(collector: Served) -> None:
    plan = collector.plan
    start = f"{collector.public}/v1/plans/{plan.id}"
    for url in (start, f"{start}/certificate", f"{collector.public}/v1/keys"):
        answer = httpx.get(url, headers=PAGE)
        assert answer.status_code == 200
        assert shared(answer) == OPEN
    body = pack_reports(plan, randomize(encode(plan, ANSWER), plan)).to_bytes()
    answer = httpx.post(f"{start}/reports", content=body, headers={**PAGE, **MEDIA})
    assert (answer.status_code, shared(answer)) == (202, OPEN)


def test_a_page_can_read_why_it_was_refused(collector: Served) -> None:
    refused = {"/v1/plans/" + "0" * 64: 404, f"/v1/plans/{collector.plan.id}/nothing": 404}
    for path, status in refused.items():
        answer = httpx.get(collector.public + path, headers=PAGE)
        assert (answer.status_code, shared(answer)) == (status, OPEN)
    url = f"{collector.public}/v1/plans/{collector.plan.id}/reports"
    answer = httpx.post(url, content=b"no", headers={**PAGE, **MEDIA})
    assert (answer.status_code, shared(answer)) == (400, OPEN)


def test_the_console_is_closed_to_pages(collector: Served) -> None:
    token = {"Authorization": f"Bearer {collector.token}"}
    assert not shared(httpx.get(f"{collector.console}/v1/plans", headers={**PAGE, **token}))
    assert not shared(httpx.options(f"{collector.console}/v1/plans", headers=ASKING))
