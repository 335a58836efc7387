"""Completion, in the shell that Debian has; the scripts of the others are only compared with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.cli import run
from shoal.cli.commands import COMMANDS

BIN = Path(sys.executable).parent


def completed(words: str, folder: Path) -> list[str]:
    """What bash offers when the tabulator is pressed after these words."""
    script = f"""
        eval "$(shoal completion bash)"
        COMP_WORDS=({words}); [[ {words!r} == *" " ]] && COMP_WORDS+=("")
        COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))
        _shoal_completion shoal
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    environment = os.environ | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        capture_output=True, text=True, cwd=folder, env=environment, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("shoal pl", ["plan"]),
        ("shoal ", list(COMMANDS)),
        ("shoal plan --eps", ["--epsilon"]),
        ("shoal plan --view ", ["reports", "counts"]),
        ("shoal collector b", ["backup"]),
    ],
)
def test_bash(tmp_path: Path, words: str, offered: list[str]):
    assert completed(words, tmp_path) == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_asks_the_command(shell, capsys):
    assert run(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "_SHOAL_COMPLETE" in script
    assert f"{shell}_complete" in script
    assert run(["completion", shell, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "shell": shell,
        "script": script.rstrip("\n") + "\n",
    }


def test_another_shell_is_refused(capsys):
    assert run(["completion", "csh"]) == 2
    assert "'csh' is not one of 'bash', 'zsh', 'fish'" in capsys.readouterr().err
