"""Everything that the documents show runs and prints what is shown; `doc_pages.py` says how."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from tests.doc_pages import ADDRESSES, BLOCK, PAGES, ROOT, Page, notes_of, run_command, same


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    monkeypatch.setenv("PATH", path)
    for name, address in ADDRESSES.items():
        monkeypatch.setenv(name, address)  # what a page sets is undone

    def compare(line: str, shown: str, printed: str, varies: bool) -> str:
        told = f"{line}\nshown:\n{shown}\nprinted:\n{printed}"
        assert same(shown, printed, varies=varies), told
        return shown

    Page(page).run(compare)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_console_block_is_run(page: Path) -> None:
    """What cannot run here is shown as `sh`, without output that nobody checked."""
    for block in BLOCK.finditer(page.read_text("utf-8")):
        known = [
            note
            for note in notes_of(block)
            if note in ("varies", "until the end")
            or re.fullmatch(r"file: \S+|exit: [0-3]|picture: \S+", note)
        ]
        assert known == notes_of(block), f"unknown note: {notes_of(block)}"
        if block["kind"] == "console":
            assert block["body"].startswith("$ "), block["body"]
            assert not re.search(r"^\s*(\.\.\.|…)\s*$", block["body"], re.M), "output is left out"


class TestComparing:
    def test_to_the_letter(self):
        assert same("a 1\n", "a 1  \n\n", varies=False)
        assert not same("a 1\n", "a  1\n", varies=False)
        assert not same("", "printed, and not shown\n", varies=False)
        assert not same("a\n...\n", "a\nb\n", varies=False)

    def test_random_numbers(self):
        assert same("sync  1,203 ███ 4.5 %", "sync 987 █ 12.25 %", varies=True)
        assert not same("sync 1", "vpn 1", varies=True)
        assert not same("sync 1\nvpn 2", "sync 1", varies=True)
        assert same("of plan 39a3831a56dd", "of plan 0123456789ab", varies=True)


def test_commands_draw_the_same_bits_each_time() -> None:
    drawn = f"""{sys.executable} -c "
from shoal.protocol.random_bits import SystemBits
for _ in range(2):
    word = bytearray(16)
    SystemBits().fill(word)
    print(word.hex())
" """
    first, again, other = (run_command(drawn, 0, seed) for seed in ("a 1", "a 1", "a 2"))
    assert first == again
    assert len({*first.split(), *other.split()}) == 4
