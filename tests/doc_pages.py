"""What the documents show is run: files, commands with all they print, Python snippets.

An HTML comment before a block says what it is; several notes are separated by commas:

- ``<!-- file: name -->`` writes the block to a file.
- ``<!-- exit: 2 -->`` gives the exit code that its commands must have.
- ``<!-- varies -->``: numbers, ids and bars may differ. The words, the rows and their order must
  be as shown. The flips are drawn from the same bits each time: `page_randomness` says how.
- ``<!-- until the end -->`` runs a command beside the rest of the page once it has printed what is
  shown. Pages with one may use the collector's addresses, which are replaced by free ones.

Every command shows all that it prints. ``python -m tests.doc_pages docs/plan.md`` runs pages and
writes what their commands print into them; without names it takes every page.
"""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from shoal.device.telemetry.state import CI_VARIABLES
from shoal.lab.demo import free_port

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    [
        *(path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts),
        ROOT / "README.md",
    ]
)
BLOCK = re.compile(
    r"(?:<!-- (?P<note>[^>]*?) -->\n)?^```(?P<kind>[a-z]+)\n(?P<body>.*?)^```$", re.M | re.S
)
COMMAND = re.compile(r"^\$ (?P<line>(?:.*\\\n)*.*)\n?(?P<shown>(?:(?!\$ ).*\n?)*)", re.M)
UNTIL_THE_END = "until the end"
ADDRESSES = {"SHOAL_PUBLIC": "127.0.0.1:8400", "SHOAL_CONSOLE": "127.0.0.1:8401"}
COLUMNS = "80"
RANDOMNESS = Path(__file__).parent / "page_randomness"

_VARIES = (
    (r"[█▉▊▋▌▍▎▏╸╺━│─╌┄●·]+", " "),
    (r"\b(?=[\w-]*\d)[\w-]{16,}\b|\b[0-9a-f]{8,}\b", "#"),
    (r"[-−+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?", "#"),
    (r"\s+", " "),
)
"""What random flips change: bars, ids and secrets, numbers, and the widths of columns."""


def notes_of(block: re.Match[str]) -> list[str]:
    """The notes before a block."""
    return [note.strip() for note in (block["note"] or "").split(", ") if note]


def same(shown: str, printed: str, *, varies: bool) -> bool:
    """Whether a page shows what a command printed, to the letter or but for random numbers."""
    if not varies:
        return lines_of(shown) == lines_of(printed)
    return shape(shown) == shape(printed)


def lines_of(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip("\n").splitlines()]


def shape(text: str) -> str:
    """What is left of a text without what random flips change."""
    for pattern, instead in _VARIES:
        text = re.sub(pattern, instead, text)
    return text.strip()


class Page:
    """One page, run in the current folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = path.read_text("utf-8")
        self._names: dict[str, object] = {}
        self._free: dict[str, str] = {}
        self._commands = 0

    def run(
        self,
        compare: Callable[[str, str, str, bool], str],
        before_the_end: Callable[[Page], None] = lambda page: None,
    ) -> str:
        """Run every block; return the text with what `compare` makes of each output.

        `compare` gets the command, what is shown, what was printed, and whether it varies.
        `before_the_end` may look around while what runs beside the page still runs.
        """
        if f"<!-- {UNTIL_THE_END} -->" in self.text:
            self._take_addresses()
        parts, end = [], 0
        with ExitStack() as running:
            for block in BLOCK.finditer(self.text):
                body = self._block(block, compare, running)
                parts += [self.text[end : block.start("body")], body]
                end = block.end("body")
            before_the_end(self)
        return "".join([*parts, self.text[end:]])

    def _block(
        self,
        block: re.Match[str],
        compare: Callable[[str, str, str, bool], str],
        running: ExitStack,
    ) -> str:
        notes, kind, body = notes_of(block), block["kind"], block["body"]
        files = [note.removeprefix("file: ") for note in notes if note.startswith("file: ")]
        codes = [int(note.removeprefix("exit: ")) for note in notes if note.startswith("exit: ")]
        if files:
            Path(files[0]).write_text(self.away(body), "utf-8")
        elif kind == "console":
            varies = "varies" in notes

            def show(found: re.Match[str]) -> str:
                line, shown = found["line"], found["shown"]
                if UNTIL_THE_END in notes:
                    printed = running.enter_context(beside(self.away(line), len(lines_of(shown))))
                else:
                    self._commands += 1
                    seed = f"{self.path.name} {self._commands}"
                    printed = run_command(self.away(line), codes[0] if codes else 0, seed)
                told = compare(line, shown, self._home(printed), varies)
                return f"$ {line}\n{told}"

            return COMMAND.sub(show, body)
        elif kind == "pycon":
            run_python(self.away(body), self._names, self.path)
        return body

    def _take_addresses(self) -> None:
        for name, address in ADDRESSES.items():
            self._free[address] = f"127.0.0.1:{free_port()}"
            os.environ[name] = self._free[address]

    def away(self, text: str) -> str:
        """Return a text with the addresses that are used, instead of those that are shown."""
        for address, free in self._free.items():
            text = text.replace(address, free)
        return text

    def _home(self, text: str) -> str:
        for address, free in self._free.items():
            text = text.replace(free, address)
        return text


@contextmanager
def beside(command: str, lines: int) -> Iterator[str]:
    """Run a command until the block ends, and yield its first lines; it must stop when told to."""
    with Path("log of the page").open("a") as log:
        process = subprocess.Popen(
            f"exec {command}", shell=True, stdout=subprocess.PIPE, stderr=log, text=True
        )
    assert process.stdout is not None
    try:
        yield "".join(process.stdout.readline() for _ in range(lines))
        process.terminate()
        assert process.wait(120) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def a_person() -> dict[str, str]:
    """The environment without what says that a machine is at work: telemetry notices that."""
    machine = {*CI_VARIABLES, "DO_NOT_TRACK"}
    return {name: value for name, value in os.environ.items() if name not in machine}


def run_command(command: str, exit_code: int, seed: str) -> str:
    sources = filter(None, (str(RANDOMNESS), os.environ.get("PYTHONPATH")))
    set_for_it = {
        "COLUMNS": COLUMNS,
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": os.pathsep.join(sources),
        "SHOAL_PAGE_SEED": seed,
    }
    done = subprocess.run(
        command,
        shell=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        env=a_person() | set_for_it,
    )
    assert done.returncode == exit_code, f"{command}\nexit code {done.returncode}\n{done.stdout}"
    return done.stdout


def run_python(body: str, names: dict[str, object], page: Path) -> None:
    test = doctest.DocTestParser().get_doctest(body, names, page.stem, str(page), 0)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    report: list[str] = []
    runner.run(test, out=report.append, clear_globs=False)
    names.update(test.globs)
    assert runner.failures == 0, "".join(report)


def write(path: Path) -> None:
    """Run a page in a new folder, and write what its commands print into it."""
    changed: list[str] = []

    def compare(line: str, shown: str, printed: str, varies: bool) -> str:
        if same(shown, printed, varies=varies):
            return shown
        changed.append(line)
        clean = "\n".join(lines_of(printed))
        return f"{clean}\n" if clean else ""

    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        path.write_text(Page(path).run(compare), "utf-8")
    print(
        f"{path.relative_to(ROOT)}: {len(changed)} outputs written",
        *changed,
        sep="\n  ",
        flush=True,
    )


if __name__ == "__main__":
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    failed = []
    for one in [Path(name).resolve() for name in sys.argv[1:]] or PAGES:
        try:
            write(one)
        except AssertionError as error:
            failed.append(one)
            print(f"{one.name} is left as it was:\n{error}", flush=True)
    sys.exit(bool(failed))
