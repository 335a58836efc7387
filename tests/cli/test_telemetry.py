"""`shoal telemetry`: one report from consent to a collector, and the documents of a tool."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

import pytest

from shoal import Plan
from shoal.cli import run
from shoal.device.encode import encode
from shoal.protocol.wire import split_batch

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "telemetry"
PLAN_FILE = str(EXAMPLE / "plan.json")


class TestTry:
    @pytest.mark.slow
    def test_every_byte_is_shown(self, capsys: pytest.CaptureFixture[str]):
        assert run(["telemetry", "try", PLAN_FILE, "--limit", "60"]) == 0
        shown = capsys.readouterr().out
        rows = re.findall(r"^  ((?:[0-9a-f]{2})+)$", shown, re.M)
        reports = split_batch(Plan.read(EXAMPLE / "plan.json"), bytes.fromhex("".join(rows)))
        assert len(reports) == 1
        assert "the answer was 202" in shown
        assert "next run in the same window sent nothing" in shown
        assert "Reports: 1 sent, 0 waiting." in shown

    @pytest.mark.slow
    def test_the_tools_own_object(self, capsys, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.chdir(EXAMPLE)
        monkeypatch.setenv("CI", "1")  # whoever types this command wants to see it
        words = ["--record", "command=count;common", "--record", "platform=linux"]
        assert run(["telemetry", "try", "wordy:telemetry", *words, "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert document["recorded"] == {"command": "count;common", "platform": "linux"}
        assert (document["again"], document["problem"]) == (0, None)
        (request,) = document["requests"]
        plan = Plan.read(EXAMPLE / "plan.json")
        body = base64.b64decode(request["sent"]).partition(b"\r\n\r\n")[2]
        sent = int.from_bytes(split_batch(plan, body).content[20:], "little")
        truth = encode(plan, {"command": ["count", "common"], "platform": "linux", "runs": 0})
        assert (sent ^ truth.value).bit_count() < plan.bits  # it is about the same survey

    @pytest.mark.parametrize(
        ("words", "told"),
        [
            ([PLAN_FILE, "--limit", "5"], "more than this device's limit of 5"),
            ([PLAN_FILE, "--record", "command=frobnicate"], "is not one of its options"),
            ([PLAN_FILE, "--record", "command"], "QUESTION=VALUE"),
            (["mytool"], "neither a plan"),
            (["no.such.module:telemetry"], "cannot import no.such.module:telemetry"),
            (["json:dumps"], "is not a Telemetry object"),
            (["json:dumps", "--limit", "5"], "go with a plan"),
        ],
    )
    def test_mistakes_are_one_sentence(self, capsys, words: list[str], told: str):
        assert run(["telemetry", "try", *words]) in (2, 3)
        error = capsys.readouterr().err
        assert told in error
        assert error.count("\n") == 1
