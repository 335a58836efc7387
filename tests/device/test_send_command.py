"""`shoal send`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.analysis.report_files import parse_batch
from shoal.cli import run
from shoal.device.ledger import Ledger
from shoal.protocol.flip_probability import FlipProbability, repeated_epsilon
from shoal.protocol.plan import Memory
from tests.device.outbox_help import ANSWER, PLAN, SURVEY, reply

NOWHERE = "http://127.0.0.1:9"
WORDS = ["plan.json", "--answer", "features=f1", "--outbox", "box"]


class TestCommand:
    @pytest.fixture(autouse=True)
    def _here(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        PLAN.write("plan.json")

    @staticmethod
    def send(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> Any:
        capsys.readouterr()
        assert run(["send", *map(str, words)]) == code
        out, err = capsys.readouterr()
        return json.loads(out) if "--json" in words and code != 2 and code != 3 else out + err

    def test_sent_at_once(self, server, capsys):
        words = ["plan.json", "--answer", "features=f1;f7", "--to", server.url, "--outbox", "box"]
        told = self.send(capsys, *words, "--now", "--json")
        assert told["answer"]["state"] == "sent"
        assert told["outbox"] == {"waiting": 0, "sent": 1, "failed": 0, "expired": 0}
        assert len(parse_batch(PLAN, server.requests[0][3])) == 1
        text = self.send(capsys, *words, "--now")
        assert "the first answer counts, the new one is dropped" in text
        assert told["answer"]["answered_before"] is False
        assert self.send(capsys, *words, "--json")["answer"]["answered_before"] is True
        assert len(server.requests) == 1

    def test_a_server_cannot_steer_the_terminal(self, server, capsys):
        """Its status line, or whatever else it says, is shown without control characters."""
        words = ["plan.json", "--answer", "features=f1;f7", "--to", server.url, "--outbox", "box"]
        evil = b"\x1b[2J\x1b]0;owned\x07\xc2\x9b31m\x08\x7f" + b"x" * 10_000
        for line in (evil, b"HTTP/1.1 " + evil, b"HTTP/1.1 999999 " + evil):

            def answer(handler: Any, line: bytes = line) -> None:
                handler.wfile.write(line + b"\r\n\r\n")
                handler.close_connection = True

            server.answers += [answer] * 2
            text = self.send(capsys, *words, "--now")
            assert text.replace("\n", "").isprintable()
            assert len(text) < 2000
            told = self.send(capsys, *words, "--now", "--json")
            assert (told["answer"]["reason"] or "").isprintable()
            server.answers.append(answer)
            url = f"{server.url}/v1/plans/{PLAN.id}"
            text = self.send(capsys, url, *words[1:3], "--outbox", "other", code=1)
            assert text.replace("\n", "").isprintable()

    def test_from_a_url(self, server, capsys, tmp_path):
        (tmp_path / "answers.json").write_text(json.dumps(ANSWER))
        url = f"{server.url}/v1/plans/{PLAN.id}"
        told = self.send(capsys, url, "--from", "answers.json", "--outbox", "box", "--json")
        assert told["answer"]["state"] == "waiting"
        assert [method for method, *_ in server.requests] == ["GET"]
        text = self.send(capsys, "--to", server.url, "--outbox", "box", "--now")
        assert "1 sent" in text
        assert len(server.requests) == 2

    def test_with_memory_and_ledger(self, server, capsys, tmp_path):
        layers = Memory(FlipProbability(1, 2), FlipProbability(1, 2))
        plan = replace(PLAN, q=layers.q, memory=layers, window=86_400)
        plan.write("plan.json")
        words = [*WORDS, "--to", server.url]
        assert "no memory" in self.send(capsys, *words, code=3)
        assert "--memory-key FILE" in self.send(capsys, *words, "--memory", "memory", code=2)
        kept = ["--memory", "memory", "--memory-key", "key", "--ledger", "ledger.json", "--now"]
        assert run(["ledger", "ledger.json", "--set-limit", "33"]) == 0
        for _ in range(2):
            told = self.send(capsys, *words, *kept, "--json")
            assert told["answer"]["state"] == "sent"
        assert len(server.requests) == 1
        account = Ledger("ledger.json").read()
        assert account.of(plan).reports == 1
        assert account.epsilon == repeated_epsilon(64, layers, 1)
        # Another outbox of the same person: the limit is the person's.
        words[4] = "other"
        assert "above the limit 33" in self.send(capsys, *words, *kept, code=3)
        assert len(server.requests) == 1
        assert not list(tmp_path.glob("other/*.waiting"))

    def test_a_key_from_the_environment(self, server, capsys, monkeypatch):
        words = [*WORDS, "--to", server.url]
        monkeypatch.setenv("SHOAL_MEMORY_KEY", "nonsense")
        told = self.send(capsys, *words, "--memory", "memory", code=2)
        assert "SHOAL_MEMORY_KEY must hold" in told
        assert "nonsense" not in told
        monkeypatch.setenv("SHOAL_MEMORY_KEY", bytes(range(32)).hex())
        self.send(capsys, *words, "--memory", "memory", "--now")
        assert len(server.requests) == 1
        assert "--memory-key needs --memory" in self.send(
            capsys, *words, "--memory-key", "k", code=2
        )

    def test_a_pinned_key(self, server, capsys):
        url = f"{server.url}/v1/plans/{PLAN.id}"
        words = [url, "--answer", "features=f1", "--outbox", "box", "--key", "A" * 43]
        assert "without a signature of the pinned key" in self.send(capsys, *words, code=1)

    def test_waiting(self, server, capsys, monkeypatch):
        monkeypatch.setattr("shoal.device.outbox.retry.FIRST_BACKOFF", 0.1)
        server.answers = [reply(503), reply(503)]
        words = ["plan.json", "--answer", "features=", "--to", server.url, "--outbox", "box"]
        told = self.send(capsys, *words, "--now", "--wait", 20, "--json")
        assert told["answer"]["state"] == "sent"

    def test_privacy_is_refused_with_3(self, server, capsys):
        words = [*WORDS, "--to", server.url]
        assert "limit of 1" in self.send(capsys, *words, "--limit", "1", "--now", code=3)
        kept = shoal.plan(SURVEY, crowd_size=1000, epsilon=1, delta="1e-6")
        replace(kept, q=FlipProbability(3, 3)).write("plan.json")
        assert "does not confirm" in self.send(capsys, *words, "--recompute", code=3)
        assert "does not confirm" in self.send(capsys, *words, code=3)
        assert "this device cannot confirm" in self.send(capsys, *words, "--no-recompute", code=3)
        assert server.requests == []

    def test_a_refusal_is_told(self, server, capsys):
        server.answers = [reply(400)]
        words = [*WORDS, "--to", server.url]
        assert "refused it (400: it does not match the plan)" in self.send(
            capsys, *words, "--now", code=1
        )

    def test_nobody_there_is_no_failure(self, capsys):
        words = ["plan.json", "--answer", "features=f1", "--to", NOWHERE]
        text = self.send(capsys, *words, "--outbox", "box", "--now")
        assert "is in the outbox (no answer from 127.0.0.1: Connection refused)" in text
        assert "or later: shoal send --outbox box --to http://127.0.0.1:9\n" in text

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["plan.json", "--answer", "features=f1"], "--to URL"),
            (["plan.json", "--to", NOWHERE], "--from FILE"),
            (["plan.json", "--to", NOWHERE, "--answer", "features"], "QUESTION=VALUE"),
            (["--to", NOWHERE, "--answer", "features=f1"], "need their plan"),
            (["http://127.0.0.1:9/x", "--answer", "features=f1"], "/v1/plans/ID"),
            (["plan.json", "--to", "http://example.org", "--answer", "features=f1"], "--plain"),
            (["none.json", "--to", NOWHERE, "--answer", "features=f1"], "cannot read"),
            (["plan.json", "--to", NOWHERE, *["--answer", "features=f1"] * 2], "answered twice"),
            (["plan.json", "--to", NOWHERE, "--from", "none"], "cannot read file of answers"),
        ],
    )
    def test_usage(self, capsys, words, message):
        assert message in self.send(capsys, *words, "--outbox", "box", code=2)
