"""Everything that the documents show runs: files, commands with their output, Python snippets.

An HTML comment before a block says what it is: ``<!-- file: name -->`` writes the block to a file,
``<!-- exit: 2 -->`` gives the exit code a command must have, ``<!-- not run -->`` shows something
that only makes sense elsewhere. Output below a command is compared where it is shown.
"""

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([*(ROOT / "docs").glob("*.md"), ROOT / "README.md"])
BLOCK = re.compile(
    r"(?:<!-- (?P<note>[^>]*?) -->\n)?^```(?P<kind>[a-z]+)\n(?P<body>.*?)^```$", re.M | re.S
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in BLOCK.finditer(page.read_text("utf-8")):
        note, kind, body = block["note"] or "", block["kind"], block["body"]
        if note == "not run":
            continue
        if note.startswith("file: "):
            Path(note.removeprefix("file: ")).write_text(body, "utf-8")
        elif kind == "console":
            run_commands(body, int(note.removeprefix("exit: ")) if note else 0)
        elif kind == "pycon":
            run_python(body, names, page)


def run_commands(body: str, exit_code: int) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for part in re.split(r"^\$ ", body, flags=re.M)[1:]:
        command, _, shown = part.partition("\n")
        done = subprocess.run(
            command,
            shell=True,
            capture_output=True,
            text=True,
            timeout=300,
            env=os.environ | {"PATH": path, "COLUMNS": "100"},
        )
        output = done.stdout + done.stderr
        assert done.returncode == exit_code, f"{command}\n{output}"
        if shown.strip():
            flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
            same = doctest.OutputChecker().check_output(shown, output, flags)
            assert same, f"{command}\nshown:\n{shown}\nprinted:\n{output}"


def run_python(body: str, names: dict[str, object], page: Path) -> None:
    test = doctest.DocTestParser().get_doctest(body, names, page.stem, str(page), 0)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    report: list[str] = []
    runner.run(test, out=report.append, clear_globs=False)
    names.update(test.globs)
    assert runner.failures == 0, "".join(report)
