"""Everything that the documents show runs: files, commands with their output, Python snippets.

An HTML comment before a block says what it is: ``<!-- file: name -->`` writes the block to a file,
``<!-- exit: 2 -->`` gives the exit code a command must have, ``<!-- not run -->`` shows something
that only makes sense elsewhere. Output below a command is compared where it is shown. A command
under ``<!-- until the end -->`` runs beside the rest of the page once it has printed what is shown;
pages with one may use the collector's addresses, which are replaced by free ones.
"""

import doctest
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([*(ROOT / "docs").glob("*.md"), ROOT / "README.md"])
BLOCK = re.compile(
    r"(?:<!-- (?P<note>[^>]*?) -->\n)?^```(?P<kind>[a-z]+)\n(?P<body>.*?)^```$", re.M | re.S
)

UNTIL_THE_END = "until the end"
ADDRESSES = {"SHOAL_PUBLIC": "127.0.0.1:8400", "SHOAL_CONSOLE": "127.0.0.1:8401"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    monkeypatch.setenv("PATH", path)
    names: dict[str, object] = {}
    text = page.read_text("utf-8")
    if f"<!-- {UNTIL_THE_END} -->" in text:
        text = with_free_addresses(text, monkeypatch)
    with ExitStack() as running:
        for block in BLOCK.finditer(text):
            note, kind, body = block["note"] or "", block["kind"], block["body"]
            if note == "not run":
                continue
            if note.startswith("file: "):
                Path(note.removeprefix("file: ")).write_text(body, "utf-8")
            elif note == UNTIL_THE_END:
                running.enter_context(beside(body))
            elif kind == "console":
                run_commands(body, int(note.removeprefix("exit: ")) if note else 0)
            elif kind == "pycon":
                run_python(body, names, page)


def with_free_addresses(text: str, monkeypatch) -> str:
    """Let a collector on the page, and what talks to it, use ports that are free."""
    for name, address in ADDRESSES.items():
        with socket.create_server(("127.0.0.1", 0)) as bound:
            free = f"127.0.0.1:{bound.getsockname()[1]}"
        text = text.replace(address, free)
        monkeypatch.setenv(name, free)
    return text


@contextmanager
def beside(body: str) -> Iterator[None]:
    """Run a command until the block ends; it must print what is shown, and stop when told to."""
    command, _, shown = body.removeprefix("$ ").partition("\n")
    with Path("log of the page").open("w") as log:
        process = subprocess.Popen(
            f"exec {command}", shell=True, stdout=subprocess.PIPE, stderr=log, text=True
        )
    assert process.stdout is not None
    try:
        printed = "".join(process.stdout.readline() for _ in shown.splitlines())
        assert same(shown, printed), f"{command}\nshown:\n{shown}\nprinted:\n{printed}"
        yield
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def same(shown: str, printed: str) -> bool:
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    return doctest.OutputChecker().check_output(shown, printed, flags)


def run_commands(body: str, exit_code: int) -> None:
    for part in re.split(r"^\$ ", body, flags=re.M)[1:]:
        command, _, shown = part.partition("\n")
        done = subprocess.run(
            command,
            shell=True,
            capture_output=True,
            text=True,
            timeout=300,
            env=os.environ | {"COLUMNS": "100"},
        )
        output = done.stdout + done.stderr
        assert done.returncode == exit_code, f"{command}\n{output}"
        if shown.strip():
            assert same(shown, output), f"{command}\nshown:\n{shown}\nprinted:\n{output}"


def run_python(body: str, names: dict[str, object], page: Path) -> None:
    test = doctest.DocTestParser().get_doctest(body, names, page.stem, str(page), 0)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    report: list[str] = []
    runner.run(test, out=report.append, clear_globs=False)
    names.update(test.globs)
    assert runner.failures == 0, "".join(report)
