"""One mutant, and the sources with it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src"


class Mutant(NamedTuple):
    """A change of one place in the sources."""

    name: str  # what goes wrong, in words
    file: str  # below src/shoal; a file that does not exist is made
    before: str  # occurs exactly once in the file; empty in a new file
    after: str
    tests: str  # files, classes or functions below tests/, separated by blanks; one must fail

    @property
    def test_ids(self) -> list[str]:
        """The tests as pytest takes them, from the root of the project."""
        return [f"tests/{test}" for test in self.tests.split()]

    def changed(self) -> str:
        """Return the file with the change."""
        path = SOURCES / "shoal" / self.file
        text = path.read_text("utf-8") if path.exists() else ""
        if text.count(self.before) != 1:
            raise ValueError(f"{self.name}: {self.before!r} is not once in {self.file}.")
        return text.replace(self.before, self.after)

    def apply(self, sources: Path) -> None:
        """Change a copy of the sources."""
        path = sources / "shoal" / self.file
        path.parent.mkdir(exist_ok=True)
        path.write_text(self.changed(), "utf-8")
