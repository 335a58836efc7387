"""The public names: listed, sorted, loadable, and said once."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

import shoal

SOURCE = Path(shoal.__file__).read_text("utf-8")


def modules_with_all() -> list[str]:
    root = Path(shoal.__file__).parent
    names = []
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if "__all__" in path.read_text("utf-8"):
            names.append(name)
    return names


def in_order(names: list[str]) -> list[str]:
    """Constants, classes, functions, each by name, as ruff sorts them."""
    return sorted(set(names), key=lambda n: (0 if n.isupper() else 1 if n[0].isupper() else 2, n))


def test_all_is_sorted_and_without_doubles():
    assert shoal.__all__ == in_order(shoal.__all__)


@pytest.mark.parametrize("name", shoal.__all__)
def test_every_name_loads(name: str):
    value = getattr(shoal, name)
    home = importlib.import_module(f"shoal.{shoal._HOME[name]}")
    assert getattr(home, name) is value
    assert name in home.__all__
    assert value.__doc__


def test_all_is_what_the_modules_give():
    given = [name for names in shoal._MODULES.values() for name in names]
    assert in_order(given) == shoal.__all__
    assert len(set(given)) == len(given)
    for names in shoal._MODULES.values():
        assert names == in_order(names)


def test_what_type_checkers_see_is_what_is_loaded():
    tree = ast.parse(SOURCE)
    (block,) = [
        node
        for node in tree.body
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
    ]
    seen = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        assert node.module is not None
        assert all(alias.asname is None for alias in node.names)
        seen[node.module.removeprefix("shoal.")] = [alias.name for alias in node.names]
    assert seen == shoal._MODULES


def test_the_docstring_is_a_map_of_every_name():
    assert shoal.__doc__ is not None
    named = re.findall(r"`([A-Za-z_]+)`", shoal.__doc__)
    assert set(named) == set(shoal.__all__)


def test_dir_and_unknown_names():
    assert dir(shoal) == sorted(shoal.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        shoal.nothing  # noqa: B018


@pytest.mark.parametrize("module", modules_with_all())
def test_all_of_every_module(module: str):
    loaded = importlib.import_module(module)
    assert loaded.__all__ == in_order(loaded.__all__), module
    for name in loaded.__all__:
        getattr(loaded, name)


def test_every_name_has_a_place_in_the_reference():
    docs = Path(__file__).parent.parent / "docs"
    pages = [docs / "api.md", *(docs / "api").glob("*.md")]
    page = "\n".join(path.read_text("utf-8") for path in pages)
    shown = set(re.findall(r"^\.\. automodule:: shoal\.(\S+)$", page, re.M))
    for home in sorted(set(shoal._HOME.values())):
        assert {home, home.split(".")[0]} & shown, home
