"""Argument checks, documents with exact fields, and numbers as people write them (1e6, 5%, 1d)."""

from __future__ import annotations

import decimal
import functools
import math
import numbers
import operator
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from decimal import Decimal
from pathlib import PurePath
from types import UnionType
from typing import Any, ParamSpec, SupportsIndex, TypeVar, cast

from shoal.errors import InputError

MAX_INTEGER = 2**53 - 1
"""The largest integer that JSON carries exactly to every reader (RFC 8785 section 3.2.2.3)."""


def check_integer(
    name: str,
    value: object,
    *,
    lowest: int,
    highest: int = MAX_INTEGER,
    error: type = InputError,
) -> int:
    """Return `value` as an int in [lowest, highest]; booleans and floats are not integers."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise error(f"{name} must be a whole number, {got(name, value)}.")
    number = operator.index(cast("SupportsIndex", value))
    if not lowest <= number <= highest:
        limits = f"between {lowest:,} and {highest:,}"
        if highest == MAX_INTEGER:
            limits = f"at least {lowest:,}"
        raise error(f"{name} must be {limits}, {got(name, number)}.")
    return number


def check_level(level: object) -> float:
    if isinstance(level, bool) or not isinstance(level, (int, float)) or not 0 < level < 1:
        raise InputError(
            f"level must be strictly between 0 and 1, got level={level!r}. For 95 % write 0.95."
        )
    return float(level)


def check_number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise InputError(f"{name} must be a finite number, got {name}={value!r}.")
    return float(value)


_DECIMAL = r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]{1,4})?"


def canonical_decimal(number: decimal.Decimal) -> str:
    """Return the one spelling of a finite decimal.

    No zeros that say nothing and no plus sign; plain from 0.0001 to below 10^16, and otherwise one
    digit before the point and an exponent without leading zeros.
    """
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).lstrip("0")
    magnitude = len(text) + exponent - 1
    text, minus = text.rstrip("0"), "-" * sign
    if not text:
        return "0"
    if not -4 <= magnitude < 16:
        return f"{minus}{text[0]}{'.' * (len(text) > 1)}{text[1:]}e{magnitude}"
    if magnitude < 0:
        return f"{minus}0.{'0' * (-magnitude - 1)}{text}"
    whole, part = text[: magnitude + 1].ljust(magnitude + 1, "0"), text[magnitude + 1 :]
    return f"{minus}{whole}.{part}" if part else f"{minus}{whole}"


def check_decimal(
    name: str,
    value: object,
    *,
    above: int,
    below: int | None = None,
    error: type = InputError,
    lenient: bool = True,
) -> str:
    """Return `value` as canonical decimal text, checked to be in (above, below).

    A float is taken at its shortest decimal form, which is what the user typed. Text may be written
    as people do, .005, 1_000 or 5%, unless it is from a document (`lenient=False`).
    """
    text = str(value).strip() if isinstance(value, (str, decimal.Decimal)) else shown(value)
    if isinstance(value, str) and lenient and len(text) <= 64:
        text = _as_written(text)
    limit = f"above {above}" + (f" and below {below}" if below is not None else "")
    spelling, inside = "", False
    if not isinstance(value, bool) and len(text) <= 64 and re.fullmatch(_DECIMAL, text):
        number = decimal.Decimal(text)
        spelling = canonical_decimal(number)
        inside = number > above and (below is None or number < below)
    # Whatever is kept can be read again.
    if not inside or len(spelling) > 64 or not re.fullmatch(_DECIMAL, spelling):
        hint = " Write a decimal point, not a comma." if re.fullmatch("[0-9]+,[0-9]+", text) else ""
        raise error(f"{name} must be a decimal number {limit}, {got(name, value)}.{hint}")
    return spelling


def check_decimal_text(
    name: str, value: object, *, above: int, below: int | None = None, error: type = InputError
) -> str:
    """Return a decimal that is already text, no float and no blanks, in its one spelling."""
    if not isinstance(value, str) or value != value.strip():
        raise error(f"{name} must be a decimal written as text, {got(name, value)}.")
    return check_decimal(name, value, above=above, below=below, error=error, lenient=False)


def _as_written(text: str) -> str:
    try:
        return decimal_text(text)
    except InputError:
        return text  # the caller says what it should be


_PORT = "(:([1-9][0-9]{0,4}))?"
_ORIGIN = rf"https://([a-z0-9-]+(\.[a-z0-9-]+)*|\[[0-9a-f:.]+\]){_PORT}"
_LOCAL_ORIGIN = rf"http://(localhost|127\.0\.0\.1|(\[::1\])){_PORT}"


def check_origin(name: str, value: object, *, error: type = InputError) -> str:
    """Return an https origin in its one spelling; for this machine itself http will do."""
    text = value if isinstance(value, str) and len(value) <= 300 else ""
    match = re.fullmatch(_ORIGIN, text) or re.fullmatch(_LOCAL_ORIGIN, text)
    port = int(match[4] or 0) if match else 0
    usual = 80 if text.startswith("http:") else 443
    if match is None or port == usual or port > 65_535:
        raise error(
            f"{name} must be an origin such as https://host or https://host:8443, in lower case"
            f" and without a path, {got(name, value)}."
        )
    return match[0]


def check_text(name: str, value: object, *, error: type = InputError, longest: int = 200) -> str:
    """Return a short printable text in Unicode normal form C."""
    if not isinstance(value, str):
        raise error(f"{name} must be text, {got(name, value)}.")
    text = unicodedata.normalize("NFC", value)
    if not text or text != text.strip() or len(text) > longest or not text.isprintable():
        raise error(
            f"{name} must be 1 to {longest} printable characters without blanks at its ends,"
            f" {got(name, value)}."
        )
    return text


def got(name: str, value: object) -> str:
    """Return the end of a message about an argument, or about something that is no argument."""
    return f"got {name}={shown(value)}" if name.isidentifier() else f"got {shown(value)}"


def shown(value: object) -> str:
    """Show a value in a message without letting a huge one flood the terminal."""
    if isinstance(value, int) and value.bit_length() > 256:
        return f"a number of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def is_loopback(host: str) -> bool:
    from ipaddress import ip_address  # a device that sends nothing does not need it

    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def whole_digits(value: object) -> str | None:
    """Return the digits of a whole number, also of a float that is one; None for anything else.

    Where one cell is missing or a fraction, a library makes floats of the whole column. 1 and 1.0
    must be the same answer then.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return None
    if isinstance(value, numbers.Integral):
        return str(int(value)) if int(value).bit_length() <= 256 else None
    number = float(value)
    return str(int(number)) if abs(number) <= MAX_INTEGER and number.is_integer() else None


def exact_fields(
    what: str,
    document: object,
    needed: AbstractSet[str],
    optional: AbstractSet[str] = frozenset(),
    *,
    error: type[InputError] = InputError,
) -> dict[str, Any]:
    """Return the fields of a parsed JSON object, or TOML table, that must have exactly these."""
    takes = listed(sorted(needed | optional))
    if not isinstance(document, Mapping):
        kind = type(document).__name__
        raise error(f"{what} must be an object with the fields {takes}, got {kind}.")
    if unknown := sorted(str(name)[:80] for name in document.keys() - needed - optional):
        hint = did_you_mean(unknown[0], (needed | optional) - document.keys())
        raise error(f"{what} has an unknown field {listed(unknown)}; it takes {takes}.{hint}")
    if missing := sorted(needed - document.keys()):
        raise error(f"{what} has no field {listed(missing)}.")
    return dict(document)


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """Return a question that names the known word closest to a mistyped one, or no text."""
    from difflib import get_close_matches  # needed only after a mistake
    from itertools import islice

    words = {str(one).casefold(): one for one in islice(known, 1000)}
    near = get_close_matches(str(word)[:80].casefold(), words, n=1)
    return f" Did you mean {words[near[0]]!r}?" if near else ""


def check_one_of(
    name: str, value: object, allowed: Sequence[str], *, error: type = InputError
) -> None:
    """Refuse a value that is none of the allowed texts."""
    if value not in allowed:
        hint = did_you_mean(value, allowed)
        raise error(f"{name} must be one of {listed(allowed)}, {got(name, value)}.{hint}")


def listed(names: Iterable[object]) -> str:
    """List names for a message, a long list cut short."""
    every = [repr(name) for name in names]
    rest = len(every) - 8
    return ", ".join(every[:8]) + (f" and {rest} more" if rest > 0 else "")


P = ParamSpec("P")
R = TypeVar("R")


def takes(**kinds: type | UnionType) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a public function: a call with other kinds of arguments is told the right call.

    >>> @takes(plan=dict, tally=list)
    ... def count(plan, tally, *, level=0.95): ...
    >>> count([1], {})
    Traceback (most recent call last):
    shoal.errors.InputError: count takes a dict as plan, got a list; call count(plan, tally, ...).
    >>> count({}, [1], lvel=0.9)
    Traceback (most recent call last):
    shoal.errors.InputError: count has no argument 'lvel'; call count(plan, tally, ...). Did you...
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        call = _Call(function, kinds)

        @functools.wraps(function)
        def checked(*args: P.args, **named: P.kwargs) -> R:
            call.check(args, named)
            return function(*args, **named)

        return checked

    return decorate


class _Call:
    """What a function takes, by its names; `inspect` would be slow to load on a device."""

    def __init__(self, function: Callable[..., Any], kinds: Mapping[str, type | UnionType]) -> None:
        code, self.name, self.kinds = function.__code__, function.__name__, kinds
        self.positional = code.co_varnames[: code.co_argcount]
        self.known = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        self.required = self.positional[: code.co_argcount - len(function.__defaults__ or ())]
        self.takes_more = bool(code.co_flags & 0x04)  # *args

    def check(self, args: tuple[object, ...], named: Mapping[str, object]) -> None:
        given = {**dict(zip(self.positional, args, strict=False)), **named}
        for name, kind in self.kinds.items():
            if name in given and not isinstance(given[name], kind):
                swapped = any(isinstance(value, kind) for value in given.values())
                how = "" if swapped else getattr(kind, "how_to_get", "")
                raise self._wrong(f"takes {_a(kind)} as {name}, got {_a(type(given[name]))}", how)
        if len(args) > len(self.positional) and not self.takes_more:
            others = ", ".join(self.known[len(self.positional) :][:4])
            raise self._wrong(f"takes {', '.join(self.positional)} and then names such as {others}")
        if unknown := [name for name in named if name not in self.known]:
            guess = did_you_mean(unknown[0], self.known)
            raise self._wrong(f"has no argument {unknown[0]!r}", guess=guess)
        if missing := [name for name in self.required if name not in given]:
            raise self._wrong(f"needs {missing[0]}")

    def _wrong(self, problem: str, how: str = "", guess: str = "") -> InputError:
        more = ["..."] if len(self.known) > len(self.required) else []
        call = f"{self.name}({', '.join((*self.required, *more))})"
        advice = f"{how}, and call" if how else "call"
        return InputError(f"{self.name} {problem}; {advice} {call}.{guess}")


def _a(kind: type | UnionType) -> str:
    if isinstance(kind, UnionType):
        return " or ".join(map(_a, kind.__args__))
    name = "path" if issubclass(kind, PurePath) else kind.__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


_NUMBER = r"([-+]?)([0-9]+(_[0-9]+)*\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]{1,4})?"
_UNITS = {
    "s": 1, "sec": 1, "second": 1, "seconds": 1,
    "min": 60, "minute": 60, "minutes": 60,
    "h": 3600, "hour": 3600, "hours": 3600,
    "d": 86_400, "day": 86_400, "days": 86_400,
    "w": 604_800, "week": 604_800, "weeks": 604_800,
}  # fmt: skip


def decimal_text(text: str) -> str:
    """Return a number that a person wrote in the one spelling of decimals; 5% is 0.05."""
    bare = text.strip().replace("\N{MINUS SIGN}", "-")
    percent = bare.endswith("%")
    bare = bare.removesuffix("%").rstrip()
    if len(bare) > 64 or not re.fullmatch(_NUMBER, bare):
        raise InputError(f"{shown(text)} is not a number; write it as 0.05, 5% or 1e-6.")
    number = Decimal(bare.replace("_", ""))
    return canonical_decimal(number.scaleb(-2) if percent else number)


def whole_number(text: str) -> int:
    """Return a whole number that a person wrote, with signs for thousands or an exponent."""
    bare = text.strip().replace("\N{MINUS SIGN}", "-")
    if re.fullmatch("[0-9]{1,3}([, ][0-9]{3})+", bare):
        bare = re.sub("[, ]", "", bare)
    if len(bare) <= 64 and re.fullmatch(_NUMBER, bare):
        number = Decimal(bare.replace("_", ""))
        if number == number.to_integral_value() and abs(number.adjusted()) < 64:
            return int(number)
    raise InputError(f"{shown(text)} is not a whole number; write it as 10000, 10_000 or 1e4.")


def seconds(text: str) -> int:
    """Return a length of time in whole seconds: 3600, 1h, 15min, 1d or 2w."""
    match = re.fullmatch(r"([0-9.eE_]+)\s*([a-z]+)?", text.strip(), re.I)
    unit = _UNITS.get((match[2] or "s").lower()) if match else None
    if match is None or unit is None:
        raise InputError(f"{shown(text)} is no length of time; write it as 3600, 1h, 1d or 1w.")
    length = Decimal(decimal_text(match[1])) * unit
    if length != length.to_integral_value() or not 0 < length < 10**12:
        raise InputError(f"{shown(text)} must be a whole number of seconds above 0.")
    return int(length)
