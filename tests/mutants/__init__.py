"""Mutants: changes that break a promise, each with the tests that must notice it.

There is at least one for each privacy statement of `docs/statements.md`. `python -m tests.mutants`
tries them. For mutants of everything else use a tool: CONTRIBUTING.md says how.

`mutants.txt` has a paragraph for each: what goes wrong, the function, lines that leave it (-) and
come in their place (+), and the tests (!). Paragraphs that begin with # are headings.
"""

from __future__ import annotations

from pathlib import Path

from tests.mutants.mutant import Mutant


def parse(paragraph: str) -> Mutant:
    name, function, *lines = paragraph.splitlines()
    before, after, tests = ([line[2:] for line in lines if line.startswith(mark)] for mark in "-+!")
    return Mutant(name, function.strip(), "\n".join(before), "\n".join(after), tuple(tests))


MUTANTS = tuple(
    parse(paragraph)
    for paragraph in Path(__file__).with_name("mutants.txt").read_text("utf-8").split("\n\n")
    if not paragraph.startswith("#")
)
