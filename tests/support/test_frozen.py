"""A class of `shoal.support.frozen` beside the same class of `dataclasses`."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import inspect
import pickle
import pkgutil
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

import shoal.agreement
import shoal.device
import shoal.support
from shoal.support import frozen


def declared(by: Any) -> SimpleNamespace:
    """Three classes that use all that is offered, declared by one module or the other."""

    @by.dataclass(frozen=True)
    class Base:
        name: str
        kind: ClassVar[str] = "base"

        def __post_init__(self) -> None:
            object.__setattr__(self, "name", self.name.strip())

    @by.dataclass(frozen=True)
    class Middle(Base):
        column: str | None = by.field(default=None, kw_only=True)

    @by.dataclass(frozen=True)
    class Whole(Middle):
        size: int
        rows: tuple[int, ...] = ()
        answers: dict[str, int] = by.field(default_factory=dict)
        cache: list[int] = by.field(init=False, repr=False, compare=False, default_factory=list)

    @by.dataclass(frozen=True, eq=False, repr=False)
    class Bare:
        size: int = 1

    @by.dataclass(frozen=True)
    class Own:
        size: int

        def __init__(self, length: int) -> None:
            object.__setattr__(self, "size", length)

        def __repr__(self) -> str:
            return f"Own of {self.size}"

        def __eq__(self, other: object) -> bool:
            return isinstance(other, type(self))

    return SimpleNamespace(Base=Base, Middle=Middle, Whole=Whole, Bare=Bare, Own=Own)


OURS, THEIRS = declared(frozen), declared(dataclasses)
BOTH = (OURS, THEIRS)
NAMES = list(vars(OURS))


def shown(value: object) -> str:
    """What is shown, wherever it is in memory."""
    return repr(value).split(" at 0x")[0]


class TestTwins:
    @pytest.mark.parametrize("name", NAMES)
    def test_declaration(self, name: str) -> None:
        ours, theirs = getattr(OURS, name), getattr(THEIRS, name)
        fields = [[repr(one) for one in dataclasses.fields(cls)] for cls in (ours, theirs)]
        assert fields[0] == fields[1]
        assert str(inspect.signature(ours)) == str(inspect.signature(theirs))
        assert ours.__match_args__ == theirs.__match_args__
        assert ours.__dataclass_params__.frozen
        for attribute in ("column", "rows", "kind", "cache", "size"):
            assert getattr(ours, attribute, "none") == getattr(theirs, attribute, "none")

    @pytest.mark.parametrize(
        ("name", "given", "named"),
        [
            ("Whole", (" a ", 3), {}),
            ("Whole", ("a", 3, (1,), {"x": 1}), {"column": "c"}),
            ("Whole", (), {"size": 1, "name": "a", "answers": {}}),
            ("Middle", ("a",), {}),
            ("Bare", (), {}),
            ("Own", (3,), {}),
            ("Whole", (), {}),
            ("Whole", ("a",), {}),
            ("Whole", ("a", 3), {"name": "b"}),
            ("Whole", ("a", 3), {"cache": []}),
            ("Whole", ("a", 3), {"more": 1}),
            ("Whole", ("a", 3, (), {}, 5), {}),
            ("Middle", ("a", "c"), {}),
        ],
    )
    def test_making_one(self, name: str, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        results = []
        for one in BOTH:
            try:
                results.append(shown(getattr(one, name)(*given, **named)))
            except TypeError as error:
                results.append(str(error))
        assert results[0] == results[1]

    def test_equality_and_hash(self) -> None:
        for one in BOTH:
            first, same = one.Whole("a", 1, (2,), 3), one.Whole("a", 1, (2,), 3)
            first.cache.append(1)  # not compared
            assert first == same
            assert hash(first) == hash(same) == hash(("a", None, 1, (2,), 3))
            assert first != one.Whole("a", 2, (2,), 3)
            assert first != one.Whole("a", 1, (2,), 3, column="c")
            assert one.Base("a") != one.Middle("a")
            assert one.Bare() != one.Bare()
            assert one.Own(1) == one.Own(2)
            assert hash(one.Own(1)) == hash((1,))
        assert OURS.Base("a") != THEIRS.Base("a")

    def test_nothing_changes(self) -> None:
        for one in BOTH:
            whole = one.Whole("a", 1)
            for name in ("size", "other"):
                with pytest.raises(dataclasses.FrozenInstanceError, match=f"field '{name}'"):
                    setattr(whole, name, 2)
                with pytest.raises(dataclasses.FrozenInstanceError, match=f"field '{name}'"):
                    delattr(whole, name)

    def test_defaults_are_made_anew(self) -> None:
        for one in BOTH:
            assert one.Whole("a", 1).answers is not one.Whole("a", 1).answers

    def test_replacing(self) -> None:
        for one in BOTH:
            whole = one.Whole("a", 1, column="c")
            for replace in (frozen.replace, dataclasses.replace):
                if one is OURS or replace is dataclasses.replace:
                    changed = replace(whole, size=2, name=" b ")
                    assert changed == one.Whole("b", 2, column="c")
                    with pytest.raises((TypeError, ValueError)):
                        replace(whole, cache=[1])
            assert dataclasses.asdict(whole) == {
                "name": "a", "column": "c", "size": 1, "rows": (), "answers": {}, "cache": [],
            }  # fmt: skip

    def test_inheriting(self) -> None:
        """A dataclass of `dataclasses` may inherit, and so may a class that declares nothing."""

        @dataclasses.dataclass(frozen=True)
        class Their(OURS.Whole):  # type: ignore[name-defined,misc]
            more: int = 3

        class Plain(OURS.Whole):  # type: ignore[name-defined,misc]
            pass

        assert repr(Their("a", 1, more=2)).endswith("size=1, rows=(), answers={}, more=2)")
        assert Their("a", 1) == Their("a", 1) != Their("a", 1, more=4)
        assert Plain("a", 1) == Plain("a", 1) != OURS.Whole("a", 1)

        class Longer(declared(frozen).Base):  # type: ignore[misc]
            def __init__(self, name: str) -> None:
                super().__init__(name + name)

        assert Longer("a").name == "aa"
        with pytest.raises(TypeError):

            @dataclasses.dataclass
            class Changing(OURS.Whole):  # type: ignore[name-defined,misc]
                pass


@frozen.dataclass(frozen=True)
class Kept:
    """At the top of a module, where pickle finds it."""

    name: str
    rows: tuple[int, ...] = ()


def test_copies() -> None:
    kept = Kept("a", (1, 2))
    copies = [copy.copy(kept), copy.deepcopy(kept), pickle.loads(pickle.dumps(kept))]
    assert copies == [kept] * 3
    match kept:
        case Kept(name, rows):
            assert (name, rows) == ("a", (1, 2))


def frozen_classes() -> list[type]:
    """Every class of the device that is declared so."""
    for package in (shoal.agreement, shoal.device, shoal.support):
        for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if ".bulk" not in module.name and "kernel" not in module.name:
                importlib.import_module(module.name)
    waiting, found = [object], set()
    while waiting:
        for cls in type.__subclasses__(waiting.pop()):
            if cls not in found:
                waiting.append(cls)
                found.add(cls)
    ours = [cls for cls in found if "__shoal_fields__" in vars(cls) and "shoal." in cls.__module__]
    return sorted(ours, key=str)


@pytest.mark.parametrize("cls", frozen_classes(), ids=lambda cls: cls.__qualname__)
def test_the_classes_of_the_device(cls: type) -> None:
    """Each can be made from its fields, unless it makes itself from others."""
    fields = dataclasses.fields(cls)
    given = [one for one in fields if one.init]
    positional = [one.name for one in given if not one.kw_only]
    named = [one.name for one in given if one.kw_only]
    assert vars(cls)["__match_args__"] == tuple(positional)
    if cls.__name__ != "Text":
        assert list(inspect.signature(cls).parameters) == [*positional, *named]
