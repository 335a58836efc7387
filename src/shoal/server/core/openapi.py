"""An operation of the API, and the OpenAPI document of many."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from shoal import __version__
from shoal.server.core import problems
from shoal.server.core.parameters import Parameter
from shoal.server.core.problems import Problem
from shoal.server.core.tokens import Role

__all__ = ["Operation", "openapi"]


@dataclass(frozen=True)
class Operation:
    """What a method at a path does, who may do it, and what can be answered.

    `role` is None where no token is needed. `body` is the schema of a JSON body, `binary` the media
    types of other bodies. `problems` are those of this operation; those that follow from its role,
    parameters and body are added.
    """

    method: str
    path: str
    role: Role | None
    summary: str
    handler: Any
    parameters: tuple[Parameter, ...] = ()
    status: int = 200
    media: tuple[str, ...] = ("application/json",)
    body: dict[str, Any] | None = None
    binary: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()

    def all_problems(self) -> tuple[Problem, ...]:
        """Return every problem that may be answered."""
        possible = list(self.problems)
        if self.role is not None:
            possible += [problems.NO_TOKEN, problems.WRONG_ROLE]
        if any(one.where == "path" for one in self.parameters):
            possible.append(problems.NOT_FOUND)
        if any(one.where == "query" for one in self.parameters):
            possible.append(problems.BAD_PARAMETER)
        if self.body is not None or self.binary:
            possible += [problems.BAD_REQUEST, problems.WRONG_TYPE, problems.TOO_LARGE]
        return (*possible, problems.UNAVAILABLE, problems.STORAGE_FULL)

    def to_json(self, answer: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the operation as OpenAPI describes it; `answer` is the schema of its JSON."""
        answers: dict[str, Any] = {
            str(problem.status): {"$ref": "#/components/responses/Problem"}
            for problem in self.all_problems()
        }
        content = {media: {"schema": _schema(media, answer)} for media in self.media}
        answers[str(self.status)] = {"description": self.summary} | (
            {"content": content} if content else {}
        )
        document: dict[str, Any] = {
            "operationId": _name(self.method, self.path),
            "summary": self.summary,
            "responses": dict(sorted(answers.items())),
            "security": [{"token": []}] if self.role else [],
        }
        if self.role:
            higher = "" if self.role == "app" else " or higher"
            document["description"] = f"Needs a token of role {self.role}{higher}."
        if self.parameters:
            document["parameters"] = [one.to_json() for one in self.parameters]
        content = {
            media: {"schema": {"type": "string", "format": "binary"}} for media in self.binary
        }
        if self.body is not None:
            content["application/json"] = {"schema": self.body}
        if content:
            document["requestBody"] = {"required": True, "content": content}
        return document


def openapi(
    operations: Iterable[Operation],
    title: str,
    summary: str,
    answers: Mapping[tuple[str, str], dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of operations; `answers` are the schemas of their JSON."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        answer = (answers or {}).get((operation.method, operation.path))
        paths.setdefault(operation.path, {})[operation.method.lower()] = operation.to_json(answer)
    problem = {
        "type": "object",
        "required": ["type", "title", "status"],
        "properties": {
            "type": {"type": "string"},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "parameter": {"type": "string", "description": "Which one is invalid."},
        },
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": title,
            "version": __version__,
            "summary": summary,
        },
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "responses": {
                "Problem": {
                    "description": "What is wrong, without repeating the request (RFC 9457).",
                    "content": {"application/problem+json": {"schema": problem}},
                }
            },
        },
    }


def _schema(media: str, answer: dict[str, Any] | None) -> dict[str, Any]:
    if media == "application/json":
        return answer or {"type": "object"}
    return {"type": "string"} if media.startswith("text/") else {}


def _name(method: str, path: str) -> str:
    words = [word.strip("{}").replace(".", "_") for word in path.split("/") if word]
    return "_".join([method.lower(), *words])
