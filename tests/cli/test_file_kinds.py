"""Every command with every kind of file it did not ask for: one helpful sentence, exit code 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.cli import run

SURVEY = """
name = "s"
[[question]]
name = "c"
kind = "choice"
options = ["x", "y"]
"""
KINDS = {
    "survey": "survey.toml",
    "plan": "plan.json",
    "tally": "tally.json",
    "reports": "reports.parquet",
    "originals": "originals.parquet",
    "table": "answers.csv",
    "results": "estimates.json",
    "text": "words.txt",
    "nothing": "empty.bin",
    "folder": "folder",
    "missing": "nowhere.json",
}
COMMANDS: dict[str, tuple[list[str], set[str]]] = {
    # what is asked for stands at FILE; the kinds that a command takes there
    "plan": (["plan", "FILE", "--q", "0.2"], {"survey"}),
    "survey": (["survey", "FILE"], {"survey"}),
    "survey from": (["survey", "from", "FILE"], {"table"}),
    "audit": (["audit", "FILE", "--epsilon", "1"], {"plan", "survey"}),
    "compare": (["compare", "FILE", "--crowd", "9", "--epsilon", "1", "--delta", "0.1"],
                {"survey"}),
    "serve": (["serve", "--data", "unused", "--honest", "all", "FILE"], {"plan"}),
    "estimate a plan": (["estimate", "FILE", "tally.json"], {"plan"}),
    "estimate a tally": (["estimate", "plan.json", "FILE"], {"tally"}),
    "screen": (["screen", "plan.json", "FILE"], {"tally"}),
    "associate": (["associate", "plan.json", "FILE", "c", "c"], {"tally"}),
    "publish": (["publish", "plan.json", "FILE", "-o", "out.html"], {"tally", "reports"}),
    "decode": (["decode", "plan.json", "FILE", "words.txt"], {"tally"}),
    "simulate": (["simulate", "FILE", "--users", "10"], {"plan"}),
    "randomize by a plan": (["randomize", "FILE", "answers.csv", "-o", "r.parquet"], {"plan"}),
    "randomize answers": (["randomize", "plan.json", "FILE", "-o", "r2.parquet"],
                          {"table", "originals"}),
    "encode": (["encode", "plan.json", "FILE", "-o", "o2.parquet"], {"table", "originals"}),
    "tally": (["tally", "plan.json", "FILE", "-o", "t2.json"], {"reports", "tally"}),
    "send": (["send", "FILE", "--answer", "c=x", "--to", "http://127.0.0.1:9", "--outbox", "box"],
             {"plan"}),
    "migrate": (["migrate", "FILE"], set()),
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    at = tmp_path_factory.mktemp("kinds")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(at)
        Path("survey.toml").write_text(SURVEY, "utf-8")
        Path("answers.csv").write_text("c\n" + "x\ny\n" * 20, "utf-8")
        Path("words.txt").write_text("tea\n", "utf-8")
        Path("empty.bin").write_bytes(b"")
        Path("folder").mkdir()
        for words in (
            ["plan", "survey.toml", "--q", "0.2", "-o", "plan.json"],
            ["encode", "plan.json", "answers.csv", "-o", "originals.parquet"],
            ["randomize", "plan.json", "answers.csv", "-o", "reports.parquet"],
            ["tally", "plan.json", "reports.parquet", "-o", "tally.json"],
            ["publish", "plan.json", "tally.json", "-o", "estimates.json"],
        ):
            assert run(words) == 0, words
    return at


@pytest.mark.parametrize("command", COMMANDS)
def test_the_wrong_file_gets_one_sentence(folder, command, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    words, right = COMMANDS[command]
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    for kind in (one for one in KINDS if one not in right):
        code = run([KINDS[kind] if word == "FILE" else word for word in words])
        said = capsys.readouterr()
        assert code == 2, (kind, said)
        assert not said.out, kind
        sentence = said.err.removeprefix("shoal: ").strip()
        assert "\n" not in sentence
        assert sentence.endswith(".")
        for jargon in ("codec", "Expecting value", "Traceback", "line 1 column", "unexpected"):
            assert jargon not in sentence, kind
    after = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    assert before.keys() <= after.keys()
    assert all(after[path] == before[path] for path in before if path.is_file())


@pytest.mark.parametrize(
    ("words", "way_out"),
    [
        (["serve", "--data", "d", "--honest", "all", "survey.toml"], "shoal plan survey.toml"),
        (["estimate", "plan.json", "reports.parquet"], "shoal tally PLAN.json reports.parquet"),
        (["estimate", "tally.json", "plan.json"], "the plan first and the tally after it"),
        (["plan", "answers.csv", "--q", "0.2"], "shoal survey from answers.csv"),
    ],
)
def test_the_sentence_says_what_to_do(folder, words, way_out, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    assert run(words) == 2
    assert way_out in capsys.readouterr().err
