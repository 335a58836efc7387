"""Every listener does what its OpenAPI document says, as schemathesis finds out.

No request is answered with a status of 500 or above, or with one that the document does not have.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

from shoal.server.core.parties import read_agreement

from .postgres_help import wait_for
from .privacy_help import BINARY, FLAGS_PLAN, Server, make_reports, serving
from .test_two_parties import Parties, planned

pytestmark = pytest.mark.slow

EXAMPLES = int(os.environ.get("SHOAL_SCHEMA_EXAMPLES", "3"))
PHASES = "coverage,fuzzing" + ",stateful" * (EXAMPLES >= 20)

# An object need not be a plan, a text need not be a survey or an origin, bytes in base64 need not
# be a report of the plan, and a whole number is not written as 1.0. Answers have shapes, from which
# it learns ids; so it finds the plan and destroys it (410).
CONFIG = """
[checks]
positive_data_acceptance.expected-statuses = ["2xx", "3xx", 401, 403, 404, 409, 410, 429]
negative_data_rejection.expected-statuses = [
    400, 401, 403, 404, 405, 406, 409, 413, 415, 422, 428, 429
]
""" + "".join(
    f"""
[[operations]]
include-name = "{name}"
checks.positive_data_acceptance.expected-statuses = {["2xx", 401, 403, 404, 409, 410, *statuses]}
"""
    for name, statuses in (
        ("POST /v1/plans", [422]),
        ("POST /v1/prospect", [422]),
        ("PUT /v1/plans/{plan_id}/origins", [422]),
        ("POST /v1/plans/{plan_id}/crowds/{number}/decode", [400]),
        ("POST /v1/plans/{plan_id}/reports", [400]),
        ("POST /v1/oblivious", [400]),
        ("POST /v1/plans/{plan_id}/encrypted", [400, 412]),
        ("PUT /v1/plans/{plan_id}/crowds/{window}/{crowd}/chunks/{chunk}", [400]),
        ("GET /v1/plans/{plan_id}/crowd-key", [425]),
        ("POST /v1/plans/{plan_id}/crowd-keys", [400]),
    )
)

HOOKS = "tests.server.schemathesis_hooks"
ANSWERED = {*range(200, 500)}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A collector with a sealed crowd."""
    settings = {"log_level": "debug", "oblivious": "trusted"}
    with serving(tmp_path, FLAGS_PLAN, **settings) as running:
        body = make_reports(FLAGS_PLAN, 150, np.random.default_rng(5)).to_bytes()
        path = f"{running.public}/v1/plans/{FLAGS_PLAN.id}/reports"
        assert httpx.post(path, headers=BINARY | running.relay(), content=body).status_code == 202
        yield running


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parties]:
    """A relay and an analyzer that know each other."""
    with Parties(tmp_path_factory.mktemp("parties"), *planned()) as running:
        relay, key = running.relay.urls, f"/v1/plans/{running.plan.id}/crowd-key"
        for url in (f"{relay['public']}{key}", f"{relay['console']}/readyz"):
            wait_for(lambda url=url: httpx.get(url).status_code == 200)
        yield running


def explore(
    folder: Path, url: object, token: str, log: Path, config: str, *options: str
) -> set[int]:
    """Run schemathesis with all its checks; return every status that was answered."""
    (folder / "schemathesis.toml").write_text(config)
    words = ["run", f"{url}/openapi.json", "--checks", "all", "--seed", "8"]
    words += ["--max-examples", str(EXAMPLES), "--phases", PHASES]
    words += ["--generation-database", "none", "--no-color"]
    words += ["--header", f"Authorization: Bearer {token}"]
    events = folder / "events"
    words += ["--report", "ndjson", "--report-ndjson-path", str(events)]
    done = subprocess.run(
        [sys.executable, "-m", "schemathesis.cli", *words, *options],
        cwd=folder,
        capture_output=True,
        text=True,
        env=os.environ
        | {"SCHEMATHESIS_HOOKS": HOOKS, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert {line["level"] for line in lines} <= {"debug", "info", "warning"}
    return {int(status) for status in re.findall(r'"status_code": ?(\d+)', events.read_text())}


def known(plan_id: str) -> str:
    """Return settings that make it ask for what is there."""
    values = {"path.plan_id": plan_id, "path.number": 1, "query.with_plan": plan_id,
              "query.first": 1, "query.second": 1, "query.question": "os", "query.window": 0,
              "path.window": 0, "path.crowd": 1, "path.chunk": 0}  # fmt: skip
    lines = [f"{json.dumps(name)} = {json.dumps(value)}" for name, value in values.items()]
    return "\n".join(["[parameters]", *lines]) + CONFIG


def admin(folder: Path) -> str:
    return (folder / "admin-token").read_text().strip()


@pytest.mark.parametrize("side", ["console", "public"][: 1 + (EXAMPLES >= 20)])
def test_any_address(server: Server, side: str) -> None:
    """Every operation, with whatever comes to mind."""
    url, token = getattr(server, side), admin(server.folder)
    found = explore(server.folder.parent, url, token, server.log, CONFIG)
    assert {200, 404, 405} <= found <= ANSWERED


@pytest.mark.parametrize("side", ["console", "public"])
def test_addresses_of_a_plan_with_a_sealed_crowd(server: Server, side: str) -> None:
    """The same where there is something to answer."""
    url, token = getattr(server, side), admin(server.folder)
    without = ("--exclude-path-regex", "(close|destroy|pause|tokens.*)$")
    config = known(FLAGS_PLAN.id)
    found = explore(server.folder.parent, url, token, server.log, config, *without)
    assert {200, 400} <= found <= ANSWERED - {404}


@pytest.mark.parametrize(
    ("party", "side"),
    [("relay", "public"), ("relay", "console"), ("analyzer", "public"), ("analyzer", "console")],
)
def test_a_relay_and_an_analyzer(parties: Parties, party: str, side: str, tmp_path: Path) -> None:
    """Each at its own listeners; what a relay may ask an analyzer is asked with its token."""
    folder = getattr(parties, party).folder
    token = admin(folder)
    if (party, side) == ("analyzer", "public"):
        agreement = read_agreement(parties.relay.folder)
        assert agreement is not None
        token = agreement.token("analyzer")
    # All but what makes the rest impossible, and what a collector's console answers too.
    without = ("--exclude-path-regex", "(close|destroy|pause|tokens.*|prospect|backups)$")
    url, log = getattr(parties, party).urls[side], folder.parent / f"{folder.name}.log"
    found = explore(tmp_path, url, token, log, known(parties.plan.id), *without)
    assert {200, 405} <= found <= ANSWERED
