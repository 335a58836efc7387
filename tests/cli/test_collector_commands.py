"""`shoal collector`: one group for everything an operator does."""

from __future__ import annotations

import pytest

from shoal.cli import run
from shoal.cli.collector import collector

LEAVES = [[word] for word in collector.commands if word != "token"]
LEAVES += [["token", word] for word in ("make", "list", "revoke")]


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_every_command_has_help_and_json(words: list[str], capsys: pytest.CaptureFixture[str]):
    assert run(["collector", *words, "--help"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"Usage: shoal collector {' '.join(words)}")
    assert "--json" in text


def test_the_table_and_the_help_agree(capsys: pytest.CaptureFixture[str]):
    assert run(["collector", "-h"]) == 0
    listed = capsys.readouterr().out
    assert max(map(len, listed.splitlines())) <= 80
    places = [listed.index(f"\n  {word} ") for word in collector.commands]
    assert places == sorted(places)
    for word, one in collector.commands.items():
        sentence = (one.help or "").partition("\n")[0]
        assert sentence in listed
        assert run(["collector", word, "--help"]) == 0
        assert f"\n\n  {sentence}\n" in capsys.readouterr().out


@pytest.mark.parametrize("word", ["doctor", "backup", "restore", "rotate", "token"])
def test_an_operators_words_are_in_the_group_only(word: str, capsys: pytest.CaptureFixture[str]):
    assert run([word, "--help"]) == 2
    assert "No such command" in capsys.readouterr().err
    assert run(["collector", "guess"]) == 2
