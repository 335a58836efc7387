"""One mutant: a change inside one function of the sources."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src"

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Mutant(NamedTuple):
    """A change that a careless engineer might make, and the tests that must notice it.

    The function is found by its name, and its source is compared as `ast.unparse` writes it, so
    that neither comments nor layout matter.
    """

    name: str  # what goes wrong
    function: str  # "shoal.module:function" or "shoal.module:Class.method"
    before: str  # occurs exactly once in the function
    after: str
    tests: tuple[str, ...]  # below tests/; `adversary[kind]` is a kind of the adversary

    @property
    def file(self) -> str:
        """The file of the function, below src/."""
        return self.function.partition(":")[0].replace(".", "/")

    @property
    def test_ids(self) -> list[str]:
        """The tests as pytest takes them, from the root of the project."""
        kinds = "tests/adversary/test_adversary.py::test_no_claim_is_false["
        return [
            one.replace("adversary[", kinds) if one.startswith("adversary[") else f"tests/{one}"
            for one in self.tests
        ]

    def apply(self, sources: Path) -> None:
        """Change a copy of the sources; a mutant that does not fit raises `ValueError`."""
        path = self._path(sources)
        path.write_text(self.changed(path.read_text("utf-8")), "utf-8")

    def changed(self, source: str) -> str:
        """Return the source of the module with the change."""
        function = self._find(ast.parse(source))
        body = ast.unparse(function)
        if body.count(self.before) != 1:
            raise ValueError(
                f"{self.name}: {self.before!r} is {body.count(self.before)} times in"
                f" {self.function}:\n{body}"
            )
        mutated = body.replace(self.before, self.after)
        ast.parse(mutated)
        lines = source.splitlines(keepends=True)
        first = min([function.lineno, *(one.lineno for one in function.decorator_list)])
        indent = " " * function.col_offset
        lines[first - 1 : function.end_lineno] = textwrap.indent(mutated, indent) + "\n"
        return "".join(lines)

    def check(self) -> None:
        """Raise `ValueError` unless the mutant fits the sources."""
        self.changed(self._path(SOURCES).read_text("utf-8"))

    def _path(self, sources: Path) -> Path:
        module = sources / self.file
        path = module / "__init__.py" if module.is_dir() else module.with_suffix(".py")
        if not path.is_file():
            raise ValueError(f"{self.name}: there is no module {self.function}.")
        return path

    def _find(self, tree: ast.Module) -> Function:
        found: list[ast.AST] = [tree]
        for word in self.function.partition(":")[2].split("."):
            inner = [one for node in found for one in ast.iter_child_nodes(node)]
            kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
            found = [one for one in inner if isinstance(one, kinds) and one.name == word]
        last = found[-1] if found else None  # overloads and properties with setters come before
        if not isinstance(last, Function):
            raise ValueError(f"{self.name}: there is no function {self.function}.")
        return last
