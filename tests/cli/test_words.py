"""The words of the command line: what it is called, what its help says, and 80 columns."""

from __future__ import annotations

import io
import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from rich.console import Console

from shoal import Plan
from shoal.cli import run
from shoal.cli.commands import COMMANDS as SUMMARIES
from shoal.cli.commands import shoal
from shoal.cli.options import Command
from shoal.device.ledger import Ledger
from shoal.lab import papers

WORDS = list(SUMMARIES)


def commands(group: click.Command, *before: str) -> Iterator[tuple[str, click.Command]]:
    """Yield every command by its words; `shoal survey` is one with a subcommand."""
    if isinstance(group, Command):
        yield " ".join(before), group
    if isinstance(group, click.Group):
        for name in group.list_commands(click.Context(group)):
            command = group.get_command(click.Context(group), name)
            assert command is not None
            yield from commands(command, *before, name)


COMMANDS = dict(commands(shoal))


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def output(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> str:
    capsys.readouterr()
    assert run([str(word) for word in words]) == code, capsys.readouterr().err
    return capsys.readouterr().out


class TestHelp:
    def test_every_command_is_one_line_of_80_columns(self, capsys):
        lines = output(capsys, "--help").splitlines()
        assert max(map(len, lines)) <= 79
        for word, text in SUMMARIES.items():
            assert [line for line in lines if line.split()[:1] == [word]] == [
                f"  {word:{max(map(len, WORDS))}}  {text}"
            ]

    def test_help_is_a_line_a_description_an_example_and_options(self, capsys):
        for name in COMMANDS:
            text = output(capsys, *name.split(), "--help")
            usage, summary, *_ = text.split("\n\n")
            assert usage.startswith(f"Usage: shoal {name} ")
            if name in SUMMARIES:
                assert summary.strip() == SUMMARIES[name]
            assert "\n" not in summary
            assert text.index("\nExample:\n") < text.index("\nOptions:\n"), name
            assert "--json" in text, name
            assert not re.findall(r"\b(PATH|DIRECTORY|DIR)\b", text), name
            assert max(map(len, text.splitlines())) <= 79, name

    def test_the_example_is_a_call_of_the_command(self):
        for name, command in COMMANDS.items():
            assert isinstance(command, Command)
            words = shlex.split(command.example.replace("\\\n", " "))
            called = name.removeprefix("collector ") if name.endswith("serve") else name
            start = called.split()
            assert words[: 1 + len(start)] == ["shoal", *start]
            command.make_context(name, words[1 + len(start) :])  # it would refuse a bad call

    @pytest.mark.parametrize("words", ["", "collector", "collector token", "parties", "telemetry"])
    def test_no_arguments_show_the_help(self, capsys, words: str):
        help_text = output(capsys, *words.split(), "--help")
        assert not re.search(r"\w\.\.\.$", help_text, re.MULTILINE), "a summary is cut"
        assert run(words.split()) == 2
        assert capsys.readouterr() == ("", help_text)

    def test_every_option_is_described(self):
        for param in (param for command in COMMANDS.values() for param in command.params):
            if isinstance(param, click.Option):
                assert param.help, param
                assert param.help[0].isupper()
                assert param.help.rstrip()[-1] in ".]", param.help
                assert "[default: ]" not in param.help


SURVEY = """
name = "browser"
[[question]]
name = "features"
kind = "flags"
options = ["synchronization", "virtual private network", "reader"]
[[question]]
name = "channel"
kind = "choice"
options = ["release", "beta"]
"""
CROWD = ["--crowd", "1000", "--epsilon", "2", "--delta", "1e-6"]
JOINT = "features=reader;channel=release;channel=beta"
RAPPOR = "k,h,m,p,q,f\n128,2,16,0.25,0.75,0.5\n"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with one of everything that commands read."""
    folder = tmp_path_factory.mktemp("words")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        Path("survey.toml").write_text(SURVEY, "utf-8")
        rows = "synchronization;reader,beta\nvirtual private network,release\n,beta\n"
        Path("answers.csv").write_text("features,channel\n" + rows * 400, "utf-8")
        Path("people.csv").write_text("age,city\n30,Paris\n17,New York\n61,Paris\n", "utf-8")
        Path("params.csv").write_text(RAPPOR, "utf-8")
        made = [
            ["plan", "survey.toml", *CROWD, "-o", "plan.json"],
            ["plan", "survey.toml", "--crowd", "2000", "--q", "0.4", "--delta", "1e-6",
             "-o", "other.json"],
            ["randomize", "plan.json", "answers.csv", "-o", "r.parquet"],
            ["tally", "plan.json", "r.parquet", "--joint", JOINT, "-o", "tally.json"],
            ["plan", "survey.toml", "--q", "0.02", "--cross", "channel;features=reader",
             "--cross", "features=reader;channel;features=synchronization", "-o", "cross.json"],
            ["simulate", "cross.json", "--users", "2000", "--seed", "1", "-o", "cross-tally.json"],
        ]  # fmt: skip
        for words in made:
            assert run(words) == 0, words
        plan = Plan.read("plan.json")
        Ledger("ledger.json").charge(plan)
    return folder


TABLES: dict[str, list[str]] = {
    "survey": ["survey", "survey.toml", *CROWD],
    "survey from": ["survey", "from", "answers.csv", "-o", "proposal.toml"],
    "plan": ["plan", "survey.toml", *CROWD],
    "plan --within": ["plan", "survey.toml", *CROWD[2:], "--within", "5%", "--share", "10%"],
    "plan over-time": ["plan", "over-time", "--flags", "1", "--crowd", "200", "--epsilon", "1",
                       "--delta", "0.001", "--releases", "2"],
    "plan diff": ["plan", "diff", "plan.json", "other.json"],
    "audit": ["audit", "plan.json"],
    "compare": ["compare", "--flags", "1", "--crowd", "100", "--epsilon", "1", "--delta", "0.01"],
    "migrate": ["migrate", "params.csv", "--crowd", "100000"],
    "ledger": ["ledger", "ledger.json"],
    "estimate": ["estimate", "plan.json", "tally.json"],
    "associate": ["associate", "plan.json", "tally.json", "features=reader", "channel"],
    "associate crossed": ["associate", "cross.json", "cross-tally.json", "features=reader",
                           "channel"],
    "associate sliced": ["associate", "cross.json", "cross-tally.json", "features=reader",
                          "channel", "features=synchronization"],
    "publish": ["publish", "plan.json", "tally.json", "-o", "out.md"],
    "simulate": ["simulate", "plan.json", "--users", "20000", "--seed", "1"],
    "simulate --repeat": ["simulate", "plan.json", "--users", "20000", "--seed", "1",
                          "--repeat", "20"],
    "curator": ["curator", "people.csv", "--count", "--epsilon", "1", "--neighbours", "replace"],
    "paper": ["paper", "--errors"],
}  # fmt: skip


@pytest.fixture
def widths(monkeypatch: pytest.MonkeyPatch) -> dict[int, io.StringIO]:
    """What commands print for people, at 80 columns and where nothing needs to wrap."""
    texts = {80: io.StringIO(), 500: io.StringIO()}

    class Both(Console):
        def __init__(self, **options: Any) -> None:
            super().__init__(file=texts[80], width=80, **options)
            self.other = Console(file=texts[500], width=500, **options)

        def print(self, *objects: Any, **options: Any) -> None:
            super().print(*objects, **options)
            self.other.print(*objects, **options)

    monkeypatch.setattr("rich.console.Console", Both)
    return texts


SLOW = {"survey", "plan --within", "plan over-time", "compare"}
"""They make a dozen plans."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in TABLES],
)
def test_no_word_is_broken_at_80_columns(capsys, monkeypatch, files, widths, name: str):
    monkeypatch.chdir(files)
    if name == "paper":
        few = list(itertools.islice(papers.findings(), 12))
        monkeypatch.setattr(papers, "findings", lambda: few)
    output(capsys, *TABLES[name])
    narrow, wide = (texts.getvalue() for texts in widths.values())
    assert narrow
    longest = max(len(line) for line in narrow.splitlines() if "plan id" not in line)
    assert longest <= 80
    # Lines that are drawn are not words.
    assert {word for word in narrow.split() if word.strip("─·●")} <= set(wide.split())
    if name != "paper":  # 5.48e-7, not 5.48e-07; what papers print stays as it is
        assert "e-0" not in narrow
        assert "e+0" not in narrow
    _, listed, bullets = narrow.partition("Assumptions:\n")
    if listed:
        assert all(line.startswith(("- ", "  ")) for line in bullets.splitlines())
        assert len(bullets.splitlines()) > bullets.count("\n- ")
