"""An analyzer as its operator sees it: the command, the doctor, the pages of its crowds."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import jsonschema_rs
import pytest

from shoal import Flags, Survey, plan
from shoal.cli import run
from shoal.protocol.plan import Parties, Plan
from shoal.server.core.parties import accept_other, public_file, set_up
from shoal.server.doctor.examine import examine
from tests.server.analyzer.relay_help import (
    PARTIES,
    WHOLE,
    FakeRelay,
    beside_analyzer,
    contents_of,
    cut,
    sealed,
)
from tests.server.analyzer.test_crashes import served_analyzer
from tests.server.console_help import response_schemas
from tests.server.privacy_help import address_of
from tests.server.store_help import Clock, make_plan, upload

KEY = "A" * 43


def relays_of(folder: Path) -> Any:
    found = [one for one in examine(folder, environment={}) if one.check in ("parties", "limits")]
    (finding,) = found
    return finding


def test_the_doctor_looks_for_the_relay(tmp_path: Path):
    folder, relay = tmp_path / "data", tmp_path / "relay"
    assert isinstance(WHOLE.parties, Parties)
    own = set_up(folder, role="analyzer", url=WHOLE.parties.analyzer)
    set_up(relay, role="relay", url=WHOLE.parties.relay, name="Example Foundation")

    async def revoked(relay: FakeRelay) -> None:
        service = relay.analyzer.service
        for token in [one for one in service.tokens if one.role == "relay"]:
            await service.in_store(service.tokens.remove, token.id)

    async def nothing(relay: FakeRelay) -> None:
        pass

    beside_analyzer(revoked, folder, WHOLE)
    assert "does not know" in relays_of(folder).sentence
    accept_other(own, public_file(relay, "relay"), lambda party: True)
    assert "has not been registered" in relays_of(folder).sentence
    beside_analyzer(nothing, folder, WHOLE)
    assert (relays_of(folder).verdict, "Foundation" in relays_of(folder).sentence) == ("ok", True)
    beside_analyzer(revoked, folder, WHOLE)
    assert "was revoked" in relays_of(folder).sentence


@pytest.mark.slow
def test_the_commands_refuse_what_is_for_the_other(tmp_path: Path):
    """Each with one sentence."""
    for word, agreed, way_out in (
        ("serve", WHOLE, "use shoal analyzer"),
        ("analyzer", make_plan(crowd=200), "use shoal serve"),
    ):
        file = tmp_path / f"{word}.json"
        agreed.write(file)
        done = subprocess.run(
            [sys.executable, "-m", "shoal", word, "--data", str(tmp_path / word), "--honest", "all",
             "--public", "127.0.0.1:0", "--console", "127.0.0.1:0", str(file)],
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == 3
        assert done.stderr.splitlines()[-1].startswith("shoal: plan ")
        assert way_out in done.stderr


def proven_reports() -> Plan:
    survey = Survey("browser", (Flags("uses", ("sync", "vpn", "tor")),))
    agreed = plan(survey, crowd_size=300, epsilon="1", delta="1e-6")
    return replace(agreed, parties=PARTIES)


@pytest.mark.slow
def test_everything_after_a_release_works_as_at_a_collector(tmp_path: Path):
    agreed = proven_reports()
    batch = upload(agreed, 300, 1)

    async def work(relay: FakeRelay) -> dict[str, httpx.Response]:
        key = await relay.crowd_key(agreed)
        await relay.forward(cut(agreed, key, sealed(agreed, key, contents_of(batch))))
        await relay.released(agreed)
        base, survey = f"/v1/plans/{agreed.id}", f"/surveys/{address_of(agreed)}"
        paths = [f"{base}/crowds/1{end}" for end in ("", "/estimates", "/report.html", "/results")]
        paths += [base, f"{base}/progress", f"{base}/crowds", "/v1/tokens", f"{base}/report.html"]
        paths += ["/", survey, f"{survey}/crowds/1", "/tokens"]
        return {path: await relay.console(path) for path in paths}

    answers = beside_analyzer(work, tmp_path / "data", agreed, opening_processes=2)
    assert {answer.status_code for answer in answers.values()} == {200}
    for path, answer in answers.items():
        shape = ("GET", path.replace(agreed.id, "{plan_id}").replace("crowds/1", "crowds/{number}"))
        if answer.headers["content-type"] == "application/json":
            jsonschema_rs.validate(response_schemas()[shape], answer.json())
    crowd, estimates, report, *_ = answers.values()
    assert crowd.json()["unreadable"] == 0
    assert crowd.json()["screening"]
    assert estimates.json()["reports"] == 300
    assert "could not be read" not in report.text
    # The document of the crowd is read by the commands.
    (tmp_path / "crowd.json").write_text(crowd.text)
    agreed.write(tmp_path / "plan.json")
    for word in ("estimate", "screen"):
        assert run([word, str(tmp_path / "plan.json"), str(tmp_path / "crowd.json")]) == 0


@pytest.mark.slow
def test_a_running_one(tmp_path: Path):
    """The real process: it starts, takes a whole crowd, and stops in order."""
    with served_analyzer(tmp_path / "data", WHOLE) as served:
        served.start()
        host, port = served.address()
        document = httpx.get(f"http://{host}:{port}/openapi.json").json()
        assert document["info"]["title"] == "Shoal analyzer"
        assert not any(path.endswith("/reports") for path in document["paths"])
        keys = httpx.get(f"http://{host}:{port}/v1/keys").json()
        answer = httpx.get(f"http://{host}:{port}/v1/plans/{WHOLE.id}/certificate")
        assert answer.headers["shoal-key"] == keys["ed25519"][0]
        assert answer.json()["limits_when_published"] is None
        assert served.stop() == 0
    assert '"stopped"' in served.log[-1]


@pytest.mark.usefixtures("own_processes")
def test_a_stop_does_not_wait_for_an_opening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It ends the processes; the crowd is opened after the next start."""
    folder, batch = tmp_path / "data", upload(WHOLE, WHOLE.reports_needed, 2)
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 1000\n")
    slow.chmod(0o755)

    async def forward(relay: FakeRelay) -> None:
        key = await relay.crowd_key(WHOLE)
        await relay.forward(cut(WHOLE, key, sealed(WHOLE, key, contents_of(batch))))

    async def wait(relay: FakeRelay) -> None:
        await relay.released(WHOLE)

    with monkeypatch.context() as patch:
        patch.setattr("sys.executable", str(slow))
        beside_analyzer(forward, folder, WHOLE, clock=Clock())
    beside_analyzer(wait, folder, WHOLE, clock=Clock())
