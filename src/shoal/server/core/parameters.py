"""Parameters and JSON bodies of a request: one declaration for OpenAPI and for reading.

An invalid value ends the request with a problem that names the parameter.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal, TypeVar

import msgspec
from starlette.requests import Request

from shoal.server.core import problems
from shoal.server.core.http import Refusal
from shoal.server.core.problems import Problem

__all__ = ["Integer", "Level", "OneOf", "Parameter", "read_as"]

Where = Literal["path", "query"]
S = TypeVar("S", bound=msgspec.Struct)

LEVELS = (0.5, 0.999999)
"""The lowest and the highest confidence level. A level is split between the options of a question,
and its complement is the level of tests: closer to 0 or 1, one of them would vanish."""

INVALID = (msgspec.ValidationError, UnicodeEncodeError)
"""Errors of `msgspec.convert`: the second for half a surrogate pair, which JSON can hold."""
_FIELD = re.compile(r"(?:^Object missing required field `| - at `\$\.)(\w+)[^`]*`$")


class Parameter:
    """A text in the path or the query; None if an optional one is missing."""

    def __init__(self, name: str, where: Where, description: str, **schema: Any) -> None:
        self.name, self.where, self.description = name, where, description
        self.schema: dict[str, Any] = {"type": "string"} | schema
        self.problem: Problem = problems.BAD_PARAMETER

    def to_json(self) -> dict[str, Any]:
        """Return the parameter as OpenAPI describes it."""
        return {
            "name": self.name,
            "in": self.where,
            "required": self.where == "path",
            "description": self.description,
            "schema": self.schema,
        }

    def text(self, request: Request) -> str | None:
        """Return the text of the parameter in a request; None if it is missing."""
        values = request.path_params if self.where == "path" else request.query_params
        return values.get(self.name)

    def invalid(self) -> Refusal:
        """Return the refusal of an invalid value."""
        return Refusal(self.problem.about(self.name))


class OneOf(Parameter):
    """One of several words, by default the first."""

    def __init__(self, name: str, description: str, words: Sequence[str]) -> None:
        super().__init__(name, "query", description, enum=list(words), default=words[0])
        self._words = words

    def read(self, request: Request) -> str:
        """Return the word of a request."""
        word = self.text(request)
        if word is None:
            return self._words[0]
        if word not in self._words:
            raise self.invalid()
        return word


class Integer(Parameter):
    """An integer between two others."""

    def __init__(
        self,
        name: str,
        where: Where,
        description: str,
        lowest: int,
        highest: int,
        default: int | None = None,
        problem: Problem = problems.BAD_PARAMETER,
    ) -> None:
        schema = {"type": "integer", "minimum": lowest, "maximum": highest}
        schema |= {} if default is None else {"default": default}
        super().__init__(name, where, description, **schema)
        self._lowest, self._highest, self._default = lowest, highest, default
        self.problem = problem

    def read(self, request: Request) -> int:
        """Return the number of a request."""
        text = self.text(request)
        if text is None and self._default is not None:
            return self._default
        if text is None or not (text.isascii() and text.isdigit() and len(text) <= 18):
            raise self.invalid()
        number = int(text)
        if not self._lowest <= number <= self._highest:
            raise self.invalid()
        return number

    def read_optional(self, request: Request) -> int | None:
        """Return the number of a request; None if it is missing or empty."""
        return None if self.text(request) in (None, "") else self.read(request)


class Level(Parameter):
    """A confidence level."""

    def __init__(self, name: str, description: str, default: float) -> None:
        limits = {"minimum": LEVELS[0], "maximum": LEVELS[1], "default": default}
        super().__init__(name, "query", description, type="number", **limits)
        self._default = default

    def read(self, request: Request) -> float:
        """Return the number of a request."""
        text = self.text(request)
        try:
            number = self._default if text is None else float(text)
        except ValueError:
            raise self.invalid() from None
        if not LEVELS[0] <= number <= LEVELS[1]:
            raise self.invalid()
        return number


def read_as(kind: type[S], document: object) -> S:
    """Return a request's JSON document as a Struct; a refusal names the invalid field."""
    try:
        return msgspec.convert(document, kind)
    except INVALID as error:
        name = invalid_field(kind, error)
        about = problems.BAD_REQUEST if name is None else problems.BAD_PARAMETER.about(name)
        raise Refusal(about) from error


def invalid_field(kind: type[msgspec.Struct], error: Exception) -> str | None:
    """Return the field of a Struct that an error is about; None for an unknown field.

    The error repeats unknown fields and values of the request, so only names of fields count.
    """
    found = _FIELD.search(str(error))
    return found[1] if found is not None and found[1] in kind.__struct_fields__ else None
