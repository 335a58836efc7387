"""What stands for parts of the standard library is those parts when it is used."""

from __future__ import annotations

import collections.abc
import contextlib
import functools
import importlib
import inspect
import typing
from collections.abc import Iterator

import pytest

from shoal.support import later

MODULES = [name for name, value in vars(later).items() if type(value).__name__ == "_Later"]


def test_every_name_is_offered() -> None:
    assert set(MODULES) < set(later.__all__)
    assert {"hashlib", "json", "pathlib"} < set(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_a_module_is_itself(name: str) -> None:
    real = importlib.import_module(name)
    for attribute in dir(real):
        if not attribute.startswith("__"):
            assert getattr(getattr(later, name), attribute) is getattr(real, attribute)
    with pytest.raises(AttributeError, match="nothing_like_it"):
        _ = getattr(later, name).nothing_like_it


@pytest.mark.parametrize("name", [name for name in later.__all__ if hasattr(collections.abc, name)])
def test_abstract_classes_are_the_same(name: str) -> None:
    assert getattr(later, name) is getattr(collections.abc, name)


class Computed:
    calls = 0

    @later.cached_property
    def value(self) -> int:
        """Count."""
        self.calls += 1
        return self.calls


def test_a_cached_property_is_computed_once() -> None:
    one, other = Computed(), Computed()
    assert (one.value, one.value, other.value, one.calls) == (1, 1, 1, 1)
    assert vars(one)["value"] == 1
    shown = inspect.getattr_static(Computed, "value").__get__(None, Computed)
    assert isinstance(shown, functools.cached_property)
    assert shown.__doc__ == "Count."


@later.contextmanager
def noting(notes: list[str], *, swallow: bool = False) -> Iterator[str]:
    """Note what happens."""
    notes.append("begin")
    try:
        yield "inside"
    except ValueError:
        notes.append("error")
        if not swallow:
            raise
    finally:
        notes.append("end")


def test_a_context_is_entered_and_left() -> None:
    notes: list[str] = []
    with noting(notes) as inside:
        notes.append(inside)
    assert notes == ["begin", "inside", "end"]
    with noting(notes, swallow=True):
        raise ValueError
    with pytest.raises(ValueError, match="seen"), noting(notes):
        raise ValueError("seen")
    assert notes[3:] == ["begin", "error", "end"] * 2
    assert (noting.__name__, noting.__doc__) == ("noting", "Note what happens.")
    assert isinstance(noting(notes), contextlib.AbstractContextManager)
    assert list(inspect.signature(noting).parameters) == ["notes", "swallow"]


def test_declarations() -> None:
    assert typing.cast("int", "a") == later.cast("int", "a")
    assert later.overload(len) is len
