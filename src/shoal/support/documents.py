"""A document with exact fields: one that is missing or not known is an error, in one wording."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from shoal.errors import InputError

__all__ = ["exact_fields", "listed"]


def exact_fields(
    what: str,
    document: object,
    needed: AbstractSet[str],
    optional: AbstractSet[str] = frozenset(),
    *,
    error: type[InputError] = InputError,
) -> dict[str, Any]:
    """Return the fields of a JSON object, or of a TOML table, that must have exactly these.

    Parameters
    ----------
    what
        How messages call the document: "a plan".
    document
        What was parsed, of any type.
    needed, optional
        The fields that it must have, and those that it may have.
    error
        Which error to raise.

    Examples
    --------
    >>> exact_fields("a memory", {"q1": [1, 2], "q2": [1, 3]}, {"q1", "q2"})
    {'q1': [1, 2], 'q2': [1, 3]}
    >>> exact_fields("a memory", {"q1": [1, 2], "q3": [1, 3]}, {"q1"})
    Traceback (most recent call last):
    shoal.errors.InputError: a memory has an unknown field 'q3'; it takes 'q1'.
    """
    takes = listed(sorted(needed | optional))
    if not isinstance(document, Mapping):
        kind = type(document).__name__
        raise error(f"{what} must be an object with the fields {takes}, got {kind}.")
    if missing := sorted(needed - document.keys()):
        raise error(f"{what} has no field {listed(missing)}.")
    if unknown := sorted(str(name)[:80] for name in document.keys() - needed - optional):
        raise error(f"{what} has an unknown field {listed(unknown)}; it takes {takes}.")
    return dict(document)


def listed(names: Iterable[object]) -> str:
    """List names for a message, a long list cut short.

    >>> listed(["sync", "vpn"]), listed(range(10))
    ("'sync', 'vpn'", '0, 1, 2, 3, 4, 5, 6, 7 and 2 more')
    """
    every = [repr(name) for name in names]
    rest = len(every) - 8
    return ", ".join(every[:8]) + (f" and {rest} more" if rest > 0 else "")
