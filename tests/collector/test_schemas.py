"""Both listeners do what their OpenAPI documents say, as schemathesis finds out."""

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

from .privacy_help import BINARY, FLAGS_PLAN, Server, make_reports, serving

EXAMPLES = int(os.environ.get("SHOAL_SCHEMA_EXAMPLES", "3"))
PHASES = "coverage,fuzzing" + ",stateful" * (EXAMPLES >= 20)

# An object need not be a plan, and bytes in base64 need not be a report of the plan.
# Answers have shapes, from which it learns ids; so it finds the plan and destroys it (410).
CONFIG = """
[checks]
positive_data_acceptance.expected-statuses = ["2xx", "3xx", 401, 403, 404, 409, 410, 429, "5xx"]

[[operations]]
include-name = "POST /v1/plans"
checks.positive_data_acceptance.expected-statuses = ["2xx", 422]

[[operations]]
include-name = "POST /v1/prospect"
checks.positive_data_acceptance.expected-statuses = ["2xx", 422]

[[operations]]
include-name = "POST /v1/plans/{plan_id}/crowds/{number}/decode"
checks.positive_data_acceptance.expected-statuses = ["2xx", 400, 404, 409, 410]

[[operations]]
include-name = "POST /v1/plans/{plan_id}/reports"
checks.positive_data_acceptance.expected-statuses = ["2xx", 400, 404]
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A collector with a sealed crowd."""
    with serving(tmp_path, FLAGS_PLAN, log_level="debug") as running:
        body = make_reports(FLAGS_PLAN, 150, np.random.default_rng(5)).to_bytes()
        path = f"{running.public}/v1/plans/{FLAGS_PLAN.id}/reports"
        assert httpx.post(path, headers=BINARY | running.relay(), content=body).status_code == 202
        yield running


def explore(server: Server, side: str, config: str, *options: str) -> set[int]:
    """Run schemathesis with all its checks; return every status that was answered."""
    folder = server.folder.parent
    (folder / "schemathesis.toml").write_text(config)
    words = ["run", f"{getattr(server, side)}/openapi.json", "--checks", "all", "--seed", "8"]
    words += ["--max-examples", str(EXAMPLES), "--phases", PHASES]
    words += ["--generation-database", "none", "--no-color"]
    words += ["--header", f"Authorization: {server.admin()['authorization']}"]
    events = folder / "events"
    words += ["--report", "ndjson", "--report-ndjson-path", str(events)]
    done = subprocess.run(
        [sys.executable, "-m", "schemathesis.cli", *words, *options],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [json.loads(line) for line in server.errors.read_text().splitlines()]
    assert {line["level"] for line in lines} <= {"info", "warning"}
    return {int(status) for status in re.findall(r'"status_code": ?(\d+)', events.read_text())}


@pytest.mark.parametrize("side", ["console", "public"][: 1 + (EXAMPLES >= 20)])
def test_any_address(server: Server, side: str) -> None:
    """Every operation, with whatever comes to mind; nothing fails but what may."""
    assert {200, 404, 405} <= explore(server, side, CONFIG) <= {*range(200, 500), 503}


@pytest.mark.parametrize("side", ["console", "public"])
def test_addresses_of_a_plan_with_a_sealed_crowd(server: Server, side: str) -> None:
    """The same where there is something to answer."""
    known = f'[parameters]\n"path.plan_id" = "{FLAGS_PLAN.id}"\n"path.number" = 1\n'
    known += f'"query.with_plan" = "{FLAGS_PLAN.id}"\n"query.first" = 1\n"query.second" = 1\n'
    known += '"query.question" = "os"\n'
    without = ("--exclude-path-regex", "(close|destroy|pause|tokens.*)$")
    found = explore(server, side, known + CONFIG, *without)
    assert {200, 400} <= found <= {*range(200, 500)} - {404}
