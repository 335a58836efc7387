"""The planner: the numbers of plan, audit and compare, on a page and in the API."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import tomllib
from contextlib import ExitStack
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from shoal import Plan, Survey, plan
from shoal.errors import InputError
from shoal.planning.certificate import certify
from shoal.planning.costs import compare
from shoal.planning.threats import observers
from shoal.server.console.planner import (
    EXAMPLE,
    MAX_BITS,
    Planner,
    PlanRequestError,
    check_request,
    form_request,
    prospect,
)
from shoal.server.core import problems
from shoal.server.core.http import Refusal

from .postgres_help import wait_for
from .privacy_help import FLAGS_PLAN, Server, World, serving, with_world

FIELDS = {
    "survey": EXAMPLE, "crowd": "2000", "epsilon": "4", "delta": "1e-6", "share": "0.05",
    "view": "counts",
}  # fmt: skip
JSON = {"content-type": "application/json"}
FORM = {"content-type": "application/x-www-form-urlencoded"}


@pytest.mark.slow
def test_its_numbers_are_those_of_the_functions() -> None:
    survey = Survey.from_toml(EXAMPLE)
    found = prospect(check_request(form_request(FIELDS | {"compare": "yes"})))
    agreed = plan(survey, crowd_size=2000, epsilon="4", delta="1e-6", view="counts")
    assert Plan.from_json(found["plan"]) == agreed
    certificate = certify(agreed)
    assert (found["q"], found["sigma"]) == (float(agreed.q), certificate.sigma)
    assert found["observers"] == [one.to_json() for one in observers(certificate, 4.0)]
    costs = compare(survey, crowd_size=2000, epsilon="4", delta="1e-6", share=0.05)
    assert found["compare"] == costs.to_json()
    # 1.96 and 0.8416 are the normal quantiles of 0.975 and 0.8.
    assert found["smallest_group"]["people"] == pytest.approx(2.8016 * certificate.sigma, abs=1)
    for kind, cost in (("local", "local"), ("reports", "proven"), ("counts", "counts")):
        assert found["views"][kind]["q"] == pytest.approx(costs[cost].q, rel=1e-3)
        assert found["views"][kind]["sigma"] == pytest.approx(costs[cost].sigma, rel=1e-3)
    (power,) = found["crosses"].values()
    assert power["least"] == pytest.approx(power["most"])  # equal cells


WRONG: list[tuple[dict[str, str], str]] = [
    ({"survey": "no TOML"}, "not valid TOML"),
    ({"survey": EXAMPLE.replace("choice", "riddle")}, "riddle"),
    ({"crowd": "many"}, "crowd is a whole number"),
    ({"share": "0"}, "share is a part"),
    ({"share": "nan"}, "share is a part"),
    ({"view": "everything"}, "view is one of"),
    ({"crowd": "0"}, "crowd"),
    ({"epsilon": "-1"}, "epsilon"),
    ({"delta": "2"}, "delta"),
    ({"window": "soon"}, "no length of time"),
    ({"window": "60"}, "window must be at least 3600 seconds"),
    ({"honest": "2"}, "honest_fraction"),
    ({"delta": "0.01"}, "or accept this weak promise"),
    ({"deployment": "relay", "relay": "https://r.example"}, "give the origin of the analyzer"),
    ({"deployment": "relay", "relay": "r", "analyzer": "https://a.example"}, "relay"),
    ({"survey": f'name = "s"\n[[question]]\nname = "n"\nkind = "number"\nedges = '
                f"{list(range(MAX_BITS))}"}, "at most 512 bits"),
]  # fmt: skip


@pytest.mark.slow
@with_world()
async def test_what_cannot_be_planned(world: World) -> None:
    for change, words in WRONG:
        body = urlencode(FIELDS | change).encode()
        answer = await world.ask("console", "POST", "/planner", world.admin() | FORM, body)
        assert answer.status_code == 422
        assert words in unescape(answer.text)
        assert answer.text.count('role="alert"') == 1  # at the field
        assert "told refused" not in answer.text
        assert "<textarea" in answer.text  # what was typed is still there


@pytest.mark.slow
def test_window_honest_part_deployment_and_a_weak_promise() -> None:
    """What the form asks for is the plan that the function makes."""
    origins: Any = {"relay": "https://relay.example", "analyzer": "https://analyzer.example"}
    fields = FIELDS | {"window": "7d", "honest": "0.8", "deployment": "relay", **origins}
    fields |= {"view": "reports"}
    survey = Survey.from_toml(EXAMPLE)
    wish: Any = {"crowd_size": 2000, "epsilon": "4", "delta": "1e-6"}
    agreed = plan(survey, **wish, window="7d", honest_fraction="0.8", **origins)
    found = prospect(check_request(form_request(fields)))
    assert Plan.from_json(found["plan"]) == agreed
    assert found["reports_needed"] == agreed.reports_needed == 2500
    with pytest.raises(PlanRequestError, match="view must be reports with a relay") as counts:
        prospect(check_request(form_request(fields | {"view": "counts"})))
    assert counts.value.parameter == "view"
    one = prospect(check_request(form_request(fields | {"deployment": "collector"})))
    assert Plan.from_json(one["plan"]).parties is None
    weak = FIELDS | {"delta": "0.01"}
    with pytest.raises(PlanRequestError, match="fully exposed") as refused:
        prospect(check_request(form_request(weak)))
    assert refused.value.parameter == "accept_weak_promise"
    accepted = prospect(check_request(form_request(weak | {"accept_weak_promise": "yes"})))
    assert Plan.from_json(accepted["plan"]).promise.delta == "0.01"
    assert "fully exposed" in accepted["warnings"][0]


@pytest.mark.slow
@with_world()
async def test_the_page_the_api_and_a_draft(world: World) -> None:
    admin = world.admin()
    empty = await world.ask("console", "GET", "/planner", admin)
    assert "<textarea" in empty.text
    body = urlencode(FIELDS).encode()
    page = unescape((await world.ask("console", "POST", "/planner", admin | FORM, body)).text)
    wish = {**FIELDS, "crowd": 2000, "share": 0.05}
    api = await world.ask(
        "console", "POST", "/v1/prospect", admin | JSON, json.dumps(wish).encode()
    )
    document = api.json()
    assert document == prospect(check_request(form_request(FIELDS)))
    assert f"about {document['smallest_group']['people']} people" in page
    assert document["single_report"] in page
    for one in document["observers"]:
        assert one["assumption"] in page
    (power,) = document["crosses"].values()
    assert power["in_words"] in page
    viewer = {"authorization": f"Bearer {await world.make_token('viewer')}"}
    theirs = await world.ask("console", "POST", "/planner", viewer | FORM, body)
    assert theirs.status_code == 200
    assert "as a draft" not in theirs.text
    assert "Add this plan as a draft" in page
    draft = urlencode({"plan": json.dumps(document["plan"])}).encode()
    added = await world.ask("console", "POST", "/drafts", admin | FORM, draft)
    assert added.headers["location"] == "/surveys/browser"
    assert world.collector.administration.plans.get(document["plan"]["id"]) is not None
    wrong: list[tuple[object, str | None]] = [
        ([], None), ({"number": 1} | wish, None), ({}, "survey"), ({"survey": 1}, "survey"),
        (wish | {"survey": "no TOML"}, "survey"), (wish | {"crowd": "2000"}, "crowd"),
        (wish | {"crowd": 0}, "crowd"), (wish | {"epsilon": 4}, "epsilon"),
        (wish | {"epsilon": "-1"}, "epsilon"), (wish | {"delta": "2"}, "delta"),
        (wish | {"share": 2}, "share"), (wish | {"view": "all"}, "view"),
        (wish | {"compare": "yes"}, "compare"),
    ]  # fmt: skip
    for document, parameter in wrong:
        refused = await world.ask(
            "console", "POST", "/v1/prospect", admin | JSON, json.dumps(document).encode()
        )
        assert refused.status_code == 422
        assert refused.json().get("parameter") == parameter


SLOW = {
    "survey": 'name = "slow"\n' + "".join(
        f'[[question]]\nname = "q{number}"\nkind = "choice"\n'
        f"options = {[str(option) for option in range(number)]}\n"
        for number in range(2, 30)
    ),
    "crowd": 10**9, "epsilon": "10", "delta": "1e-12", "share": 0.0001, "compare": True,
}  # fmt: skip
"""A wish that takes about a minute."""

DEEP = "a" + ".a" * 29_000 + " = 1"
"""58 KB for which `tomllib` takes half a minute and 3.5 GB."""


def processes(parent: int) -> list[int]:
    """Return the planner's processes."""
    found = []
    for task in Path(f"/proc/{parent}/task").iterdir():
        for child in (task / "children").read_text().split():
            command = Path(f"/proc/{child}/cmdline")
            if command.exists() and b"console.planner" in command.read_bytes():
                found.append(int(child))
    return found


needs_proc = pytest.mark.skipif(
    not Path("/proc/self/task").exists(), reason="processes are found in /proc"
)


class TestProcess:
    """What somebody sends is parsed and planned elsewhere, with limits."""

    @pytest.mark.slow
    @with_world()
    async def test_nothing_is_parsed_in_the_process_that_takes_reports(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def parse(text: str, **others: object) -> object:
            raise AssertionError("a survey was parsed here")

        monkeypatch.setattr(tomllib, "loads", parse)
        viewer = {"authorization": f"Bearer {await world.make_token('viewer')}"}
        for survey, status in ((EXAMPLE, 200), (DEEP, 422), ("#" * (64 << 10), 422)):
            fields = FIELDS | {"survey": survey}
            wish = json.dumps(form_request(fields)).encode()
            for path, kind, body in (
                ("/planner", FORM, urlencode(fields).encode()), ("/v1/prospect", JSON, wish)
            ):  # fmt: skip
                answer = await world.ask("console", "POST", path, viewer | kind, body)
                assert answer.status_code == status

    @with_world()
    async def test_large_requests_are_not_read(self, world: World) -> None:
        for path, kind in (("/planner", FORM), ("/v1/prospect", JSON)):
            sent = await world.ask("console", "POST", path, world.admin() | kind, b"1" * 300_000)
            assert sent.status_code == 413

    def refused(self, planner: Planner, wish: object, hung_up: asyncio.Event | None = None) -> str:
        async def ask() -> str:
            with pytest.raises(Refusal) as caught:
                await planner.prospect(wish, "token", hung_up)
            with pytest.raises(InputError, match="not valid TOML"):  # the next one can be computed
                await planner.prospect(SLOW | {"survey": "no TOML"}, "token")
            return caught.value.problem.name

        return asyncio.run(ask())

    @pytest.mark.slow
    @needs_proc
    def test_time_is_limited(self) -> None:
        assert self.refused(Planner(seconds=5), SLOW) == problems.TOO_COSTLY.name
        assert processes(os.getpid()) == []

    @pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="only Linux limits memory")
    def test_memory_is_limited(self) -> None:
        with pytest.raises(Refusal) as caught:
            asyncio.run(Planner(megabytes=16)._compute(["#" * (64 << 20)]))
        assert caught.value.problem == problems.TOO_COSTLY

    @needs_proc
    def test_a_client_that_hangs_up_ends_it(self) -> None:
        async def ask() -> None:
            planner, hung_up = Planner(), asyncio.Event()
            asking = asyncio.create_task(planner.prospect(SLOW, "token", hung_up))
            while not processes(os.getpid()):
                await asyncio.sleep(0.05)
            with pytest.raises(Refusal) as caught:
                await planner.prospect(SLOW, "token")
            assert caught.value.problem == problems.PLANNER_BUSY
            hung_up.set()
            with pytest.raises(Refusal) as caught:
                await asking
            assert caught.value.problem == problems.HUNG_UP
            assert processes(os.getpid()) == []
            asking = asyncio.create_task(planner.prospect(SLOW, "token"))
            while not processes(os.getpid()):
                await asyncio.sleep(0.05)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            assert processes(os.getpid()) == []

        asyncio.run(ask())

    def test_a_failure_is_one_of_the_service(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Such as a module that is missing; it is logged, and not the client's fault."""
        monkeypatch.setattr("shoal.server.console.planner.__name__", "no.such.module")
        with pytest.raises(RuntimeError, match="No module named"):
            asyncio.run(Planner().prospect(SLOW, "token"))

    def test_settings_stay_in_the_service(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from shoal.server.console import planner

        monkeypatch.setenv("SHOAL_DATABASE", "postgresql://secret")
        assert "secret" not in str(planner._environment(os.environ))


def sent(server: Server, token: str) -> socket.socket:
    """Send a slow wish, and do not wait for the answer."""
    body = json.dumps(SLOW).encode()
    lines = ["POST /v1/prospect HTTP/1.1", "Host: c", f"Authorization: Bearer {token}"]
    lines += ["Content-Type: application/json", f"Content-Length: {len(body)}", "", ""]
    connection = server.connect("console")
    connection.sendall("\r\n".join(lines).encode() + body)
    return connection


@pytest.mark.slow
@needs_proc
def test_many_requests_and_a_hang_up_do_not_block_the_console(tmp_path: Path) -> None:
    with serving(tmp_path, FLAGS_PLAN) as server, ExitStack() as held:
        made = server.client.post(
            f"{server.console}/v1/tokens", json={"role": "viewer", "label": "v"},
            headers=server.admin(),
        ).json()["token"]  # fmt: skip
        first = held.enter_context(sent(server, made))
        wait_for(lambda: bool(processes(server.pid)))
        others = [held.enter_context(sent(server, made)) for _ in range(59)]
        refused = [one.recv(1 << 16).split(b"\r\n") for one in others]
        assert {lines[0] for lines in refused} == {b"HTTP/1.1 429 Too Many Requests"}
        assert all(b"retry-after: 5" in lines for lines in refused)
        # The console computes something else meanwhile.
        document = {"id": FLAGS_PLAN.id} | FLAGS_PLAN.to_json()
        added = server.client.post(
            f"{server.console}/v1/plans", json=document, headers=server.admin()
        )
        assert added.status_code == 201
        assert processes(server.pid)
        first.close()
        wait_for(lambda: not processes(server.pid))
        fields = urlencode(FIELDS | {"view": "none"}).encode()
        page = server.client.post(
            f"{server.console}/planner", content=fields, headers=server.admin() | FORM
        )
        assert page.status_code == 422
