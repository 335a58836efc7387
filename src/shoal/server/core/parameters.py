"""Parameters of a request: one declaration serves the OpenAPI document and the reading.

A parameter with an invalid value ends the request with the parameter's problem.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from starlette.requests import Request

from shoal.server.core import problems
from shoal.server.core.http import Refusal
from shoal.server.core.problems import Problem

__all__ = ["Choice", "Integer", "Level", "OptionalInteger", "Parameter"]

Where = Literal["path", "query"]

LEVELS = (0.5, 0.999999)
"""The lowest and the highest confidence level. A level is split between the options of a question,
and its complement is the level of tests: closer to 0 or 1, one of them would vanish."""


class Parameter:
    """A text in the path or the query; an optional one is None by default."""

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
        """Return the text of the parameter in a request; None if there is none."""
        values = request.path_params if self.where == "path" else request.query_params
        return values.get(self.name)


class Choice(Parameter):
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
            raise Refusal(self.problem.about(self.name))
        return word


class Integer(Parameter):
    """A whole number between two others."""

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
            raise Refusal(self.problem.about(self.name))
        number = int(text)
        if not self._lowest <= number <= self._highest:
            raise Refusal(self.problem.about(self.name))
        return number


class OptionalInteger(Integer):
    """A whole number that may be left out."""

    def maybe(self, request: Request) -> int | None:
        """Return the number of a request; None if there is none."""
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
            raise Refusal(self.problem.about(self.name)) from None
        if not LEVELS[0] <= number <= LEVELS[1]:
            raise Refusal(self.problem.about(self.name))
        return number
