"""What is installed: tested versions in constraints.txt, and the lowest that are allowed."""

from __future__ import annotations

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from tests.doc_pages import ROOT
from tests.hashed_requirements import FILES, hashed, wanted
from tests.lowest_versions import declared, listed, lowest

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
PINNED = {
    found[1].lower().replace("_", "-"): found[2]
    for found in re.finditer(
        r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text("utf-8"), re.M
    )
}
EXTRAS = PROJECT["optional-dependencies"].values()
LINES = [*PROJECT["dependencies"], *(line for lines in EXTRAS for line in lines)]


@pytest.mark.parametrize("line", sorted(set(LINES)))
def test_the_tested_version_is_allowed(line: str) -> None:
    requirement = Requirement(line)
    if requirement.name not in ("shoal", "shoal-device"):
        assert requirement.specifier.contains(PINNED[requirement.name.lower()])


def test_only_versions_are_pinned() -> None:
    """No address and no path of a machine."""
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    assert all(re.fullmatch(r"#.*|[\w.-]+==[\w.+!]+", line) for line in lines)
    assert "shoal" not in PINNED


def test_both_commands_use_it() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    installing = [
        line for line in makefile.splitlines() if line.startswith("\t$(BIN)/python $(PIP)")
    ]
    assert len(installing) == 4
    assert all("-c constraints.txt" in line for line in installing)


class TestHashes:
    @pytest.mark.parametrize("file", FILES)
    def test_every_file_has_a_hash_and_a_tested_version(self, file: str) -> None:
        """And no address: pip asks the index that it is set up with."""
        text = (ROOT / file).read_text("utf-8").replace("\\\n", "")
        pins = {}
        for line in text.splitlines():
            if not line.startswith("#"):
                pin, *hashes = line.split()
                assert hashes
                assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", one) for one in hashes)
                name, _, pins[name] = pin.partition("==")
        assert all(PINNED.get(name, version) == version for name, version in pins.items())
        for line in wanted(file):
            requirement = Requirement(line)
            assert requirement.specifier.contains(pins[requirement.name])

    def test_what_is_written(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Files for two machines, of which one is the same for both."""

        def resolved(lines: list[str], machine: str) -> list[tuple[str, str, str]]:
            return [("a", "1", "0" * 64), ("b", "2", machine)]

        monkeypatch.setattr("tests.hashed_requirements.resolved", resolved)
        text = hashed(["a", "b"])
        assert text == (
            f"a==1 \\\n    --hash=sha256:{'0' * 64}\n"
            "b==2 \\\n    --hash=sha256:aarch64 \\\n    --hash=sha256:x86_64\n"
        )


class TestLowest:
    def test_the_lowest_that_is_allowed(self) -> None:
        assert lowest(Requirement("x>=2.1,<3"), ["3.0", "2.10", "2.1.1", "2.0"]) == "2.1.1"

    def test_what_the_index_says(self) -> None:
        told = "click (8.5.1)\nAvailable versions: 8.5.1, 8.2.0\n  INSTALLED: 8.5.1\n"
        assert listed(told) == ["8.5.1", "8.2.0"]

    def test_every_library_has_one(self) -> None:
        names = {one.name for one in declared()}
        assert {"numpy", "scipy", "starlette", "opendp", "pyhpke"} <= names
        for one in declared():
            assert any(bound.operator == ">=" for bound in one.specifier), one.name
            assert Version(PINNED[one.name.lower()])
