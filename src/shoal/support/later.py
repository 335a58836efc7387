"""What a device uses of the standard library without loading it beforehand.

One report is made in less time than it takes to load what reads JSON or compiles a pattern, and a
tool that only imports Shoal has no use for either. So modules on the path of one report say
``from shoal.support.later import json`` and use `json` as always; it is loaded when it is first
used. Names that belong into declarations are here too, `Protocol` or `cached_property`, since the
modules that have them take longer to load than ours. A type checker is shown the originals.
"""

from __future__ import annotations

# What `collections.abc` has, from where Python loads it at its start anyway.
from _collections_abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

TYPE_CHECKING = False
if TYPE_CHECKING:
    import base64
    import contextlib
    import decimal
    import fractions
    import hashlib
    import hmac
    import json
    import math
    import numbers
    import operator
    import pathlib
    import re
    import unicodedata
    from contextlib import contextmanager
    from functools import cached_property
    from types import ModuleType
    from typing import Any, Protocol, cast, overload

__all__ = [
    "Callable",
    "Collection",
    "Iterable",
    "Iterator",
    "Mapping",
    "Protocol",
    "Sequence",
    "base64",
    "cached_property",
    "cast",
    "contextlib",
    "contextmanager",
    "decimal",
    "fractions",
    "hashlib",
    "hmac",
    "json",
    "math",
    "numbers",
    "operator",
    "overload",
    "pathlib",
    "re",
    "unicodedata",
]


class _Later:
    """Stands for a module, and loads it to answer for one of its names."""

    def __init__(self, load: Callable[[], ModuleType]) -> None:
        self._load = load

    def __getattr__(self, name: str) -> object:
        return getattr(self._load(), name)


class _CachedProperty:
    """Computes an attribute once; the class itself shows what `functools` would have made."""

    def __init__(self, compute: Callable[[Any], object]) -> None:
        self._compute = compute

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type) -> object:
        if instance is None:
            from functools import cached_property

            return cached_property(self._compute)
        value = instance.__dict__[self._name] = self._compute(instance)
        return value


def _contextmanager(function: Callable[..., Iterator[Any]]) -> Callable[..., object]:
    """Return what `contextlib.contextmanager` makes of a function, which is loaded for a call."""

    def enter(*given: object, **named: object) -> object:
        return contextlib.contextmanager(function)(*given, **named)

    enter.__name__, enter.__qualname__ = function.__name__, function.__qualname__
    enter.__doc__, enter.__module__ = function.__doc__, function.__module__
    enter.__wrapped__ = function  # type: ignore[attr-defined]
    return enter


if not TYPE_CHECKING:
    base64 = _Later(lambda: __import__("base64"))
    contextlib = _Later(lambda: __import__("contextlib"))
    decimal = _Later(lambda: __import__("decimal"))
    fractions = _Later(lambda: __import__("fractions"))
    hashlib = _Later(lambda: __import__("hashlib"))
    hmac = _Later(lambda: __import__("hmac"))
    json = _Later(lambda: __import__("json"))
    math = _Later(lambda: __import__("math"))
    numbers = _Later(lambda: __import__("numbers"))
    operator = _Later(lambda: __import__("operator"))
    pathlib = _Later(lambda: __import__("pathlib"))
    re = _Later(lambda: __import__("re"))
    unicodedata = _Later(lambda: __import__("unicodedata"))

    cached_property, contextmanager = _CachedProperty, _contextmanager
    Protocol = object

    def cast(_, value):  # noqa: D103
        return value

    def overload(function):  # noqa: D103
        return function
