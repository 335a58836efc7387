"""The map of the code in CONTRIBUTING.md and tests/README.md: what it names is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.test_layers import FOLDERS

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "shoal"
PAGE = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
GUIDE = (ROOT / "tests" / "README.md").read_text("utf-8")
WAY = re.findall(r"^(\d+)\. `([\w/]+\.py)`: (.+)$", PAGE, re.M)
ROWS = {
    cells[1].strip().strip("`/"): (cells[3], cells[4])
    for line in PAGE.partition("## The way of one answer")[0].splitlines()
    if len(cells := line.split("|")) == 6 and cells[1].strip().startswith("`")
}


def names_in(path: Path) -> set[str]:
    """The classes and functions of a file, methods with and without their class."""
    names = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    names |= {inner.name, f"{node.name}.{inner.name}"}
    return names


class TestTheWayOfOneAnswer:
    def test_it_has_at_most_twenty_files_in_order(self):
        assert [int(number) for number, _, _ in WAY] == list(range(1, len(WAY) + 1))
        assert 10 < len({path for _, path, _ in WAY}) == len(WAY) <= 20

    @pytest.mark.parametrize(("path", "line"), [(path, line) for _, path, line in WAY])
    def test_each_line_names_where_to_start(self, path: str, line: str):
        start = re.match(r"`([\w.]+)`", line)
        assert start, "the line begins with a name"
        assert start[1] in names_in(SOURCE / path)

    def test_it_leads_from_the_device_to_what_is_published(self):
        folders = [path.partition("/")[0] for _, path, _ in WAY]
        assert {"agreement", "device", "collector", "analysis"} == set(folders)
        assert folders.index("device") < folders.index("collector") < folders.index("analysis")


class TestFolders:
    def test_every_folder_has_a_row(self):
        assert set(ROWS) == set(FOLDERS)

    @pytest.mark.parametrize("folder", FOLDERS)
    def test_a_row_says_what_may_be_imported(self, folder: str):
        for cell, allowed in zip(ROWS[folder], FOLDERS[folder], strict=True):
            named = {name.strip("/") for name in re.findall(r"`([^`]+)`", cell)}
            assert named == allowed - {"*"}
            assert ("anything" in cell) == ("*" in allowed)


@pytest.mark.parametrize(
    "path", sorted(set(re.findall(r"`((?:\w+/)+\w*\.?\w*)`", PAGE.partition("## How to add")[2])))
)
def test_paths_exist(path: str):
    assert (ROOT / path).exists() or (SOURCE / path).exists()


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`((?:[\w/]+/)?\w+\.py)`", GUIDE))))
def test_the_guide_to_the_tests_names_files_that_exist(name: str):
    tests = ROOT / "tests"
    assert (tests / name).exists() or (ROOT / name).exists() or list(tests.rglob(name))
