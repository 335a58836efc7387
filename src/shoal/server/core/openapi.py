"""Operations of an API: routes, permissions, parameters, documents, and the OpenAPI document.

Each operation is declared once, for serving it and for OpenAPI. The types of documents are msgspec
Structs: the same type makes the response, its schema and the check of a request's body.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from shoal import __version__
from shoal.server.core import problems
from shoal.server.core.http import JSON, Refusal, media_type, problem_of, read_body
from shoal.server.core.observability import Metrics
from shoal.server.core.problems import Problem
from shoal.server.core.tokens import Role, Sessions, check_token, token_of
from shoal.server.storage.database import StorageError
from shoal.support.files import strict_json

if TYPE_CHECKING:
    from shoal.server.core.service import Service
    from shoal.server.storage.key_file import Signer

Endpoint = Callable[[Request], Awaitable[Response]]
Where = Literal["path", "query"]
S = TypeVar("S", bound=msgspec.Struct)
T = TypeVar("T")

LARGEST_DOCUMENT = 4 << 20
"""Bytes that a plan, or another document sent to the console, may have."""

SAFE = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:;"
    " frame-ancestors 'none'; form-action 'none'; base-uri 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""Headers of every response to an operator."""

INVALID = (msgspec.ValidationError, UnicodeEncodeError)
"""Errors of `msgspec.convert`: the second for half a surrogate pair, which JSON can hold."""
_FIELD = re.compile(r"(?:^Object missing required field `| - at `\$\.)(\w+)[^`]*`$")


@dataclass(frozen=True)
class Operation:
    """One method of one path: who may call it, its parameters, its response, its problems.

    `role` is None where no token is needed. `response` is the type of the JSON response, `body`
    that of a JSON body or its schema, `binary` the media types of other bodies. `problems` are
    those of this operation; those that follow from its role, parameters and body are added.
    """

    method: str
    path: str
    role: Role | None
    summary: str
    handler: Any
    parameters: tuple[Parameter[Any], ...] = ()
    status: int = 200
    media: tuple[str, ...] = ("application/json",)
    response: Any = None
    body: Any = None
    binary: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()

    def all_problems(self) -> tuple[Problem, ...]:
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

    def respond_with(self, document: object) -> Response:
        if document is None:
            return Response(status_code=self.status)
        typed = self.response is not None
        return json_response(
            msgspec.convert(document, self.response) if typed else document, self.status
        )

    def to_json(self, response: Any, body: Any) -> dict[str, Any]:
        """Return the operation as OpenAPI describes it; its types are given as schemas."""
        responses: dict[str, Any] = {
            str(problem.status): {"$ref": "#/components/responses/Problem"}
            for problem in self.all_problems()
        }
        schemas = {
            media: {"type": "string"} if media.startswith("text/") else {} for media in self.media
        }
        if "application/json" in schemas:
            schemas["application/json"] = response
        responses[str(self.status)] = {"description": self.summary} | _content(schemas)
        words = [one.strip("{}").replace(".", "_") for one in self.path.split("/") if one]
        document: dict[str, Any] = {
            "operationId": "_".join([self.method.lower(), *words]),
            "summary": self.summary,
            "responses": dict(sorted(responses.items())),
            "security": [{"token": []}] if self.role else [],
        }
        if self.role:
            higher = "" if self.role == "app" else " or higher"
            document["description"] = f"Needs a token of role {self.role}{higher}."
        if self.parameters:
            document["parameters"] = [one.to_json() for one in self.parameters]
        bodies: dict[str, Any] = {
            media: {"type": "string", "format": "binary"} for media in self.binary
        }
        if self.body is not None:
            bodies["application/json"] = body
        if bodies:
            document["requestBody"] = {"required": True} | _content(bodies)
        return document


def _content(schemas: dict[str, Any]) -> dict[str, Any]:
    content = {media: {"schema": schema} for media, schema in schemas.items()}
    return {"content": content} if content else {}


def openapi(operations: Iterable[Operation], title: str, summary: str) -> dict[str, Any]:
    operations = list(operations)
    types = [kind for one in operations for kind in (one.response, one.body)]
    described = [kind for kind in types if kind is not None and not isinstance(kind, dict)]
    schemas, components = msgspec.json.schema_components(
        described, ref_template="#/components/schemas/{name}"
    )
    found = iter(schemas)

    def schema(kind: Any) -> Any:
        if kind is None:
            return {"type": "object"}
        return kind if isinstance(kind, dict) else next(found)

    paths: dict[str, dict[str, Any]] = {}
    for one in operations:
        response, body = schema(one.response), schema(one.body)
        paths.setdefault(one.path, {})[one.method.lower()] = one.to_json(response, body)
    problem = {
        "type": "object",
        "required": ["type", "title", "status"],
        "properties": {
            "type": {"type": "string"},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "parameter": {"type": "string", "description": "The invalid parameter."},
        },
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": __version__, "summary": summary},
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": components,
            "responses": {
                "Problem": {
                    "description": "The problem, without repeating the request (RFC 9457).",
                    "content": {"application/problem+json": {"schema": problem}},
                }
            },
        },
    }


def json_response(document: object, status: int = 200) -> Response:
    """Return a document, a Struct or plain JSON values, as strict JSON."""
    values = msgspec.to_builtins(document)
    text = json.dumps(values, ensure_ascii=False, allow_nan=False)
    return Response(text.encode(), status, media_type="application/json")


def signed_response(content: bytes, signer: Signer, cache: str = "no-store") -> Response:
    """Return a JSON document unchanged, with its signatures."""
    headers = {"Cache-Control": cache, **signer.headers(content)}
    return Response(content, headers=headers, media_type="application/json")


def guarded(
    operation: Operation,
    handlers: object,
    service: Service,
    headers: Mapping[str, str] = SAFE,
    sessions: Sessions | None = None,
    refused_page: Callable[[Request, Problem], Response] | None = None,
) -> Endpoint:
    """Return the endpoint of an operation, which checks the token of each request.

    The handler is called with `handlers` and the request; it returns a document or a response.
    `headers` are added where the response
    does not have them. A refusal is a problem document, or a page made by `refused_page`.
    """
    tokens = service.tokens

    async def allowed(request: Request) -> Response:
        if operation.role is not None:
            request.state.token = check_token(tokens, request, operation.role, sessions)
            tokens.note_use(request.state.token)
        result = await operation.handler(handlers, request)
        return result if isinstance(result, Response) else operation.respond_with(result)

    async def respond(request: Request) -> Response:
        try:
            response = await allowed(request)
        except (Refusal, StorageError) as error:
            if refused_page is None:
                raise
            problem = problem_of(error)
            service.refused(problem)
            response = refused_page(request, problem)
        for name, value in headers.items():
            response.headers.setdefault(name, value)
        return response

    return respond


def guarded_app(operations: Iterable[Operation], handlers: object, service: Service) -> Starlette:
    """Return the app of operations for programs, which send a token with every request."""
    return make_app(operations, lambda one: guarded(one, handlers, service), service.refused)


def make_app(
    operations: Iterable[Operation],
    endpoint: Callable[[Operation], Endpoint],
    refused: Callable[[Problem], None],
) -> Starlette:
    """Return the app of some operations; `refused` is called with each problem that is returned."""

    def problem_response(request: Request, error: Exception) -> Response:
        problem = problem_of(error)
        refused(problem)
        response = Response(problem.body, problem.status)
        response.raw_headers = list(problem.headers)
        if isinstance(error, HTTPException) and error.headers:
            response.headers.update(error.headers)  # which methods an address allows
        return response

    by_path: dict[str, dict[str, Endpoint]] = {}
    for operation in operations:
        by_path.setdefault(operation.path, {})[operation.method] = endpoint(operation)
    kinds: tuple[Any, ...] = (HTTPException, Refusal, StorageError, Exception)
    app = Starlette(
        routes=[_route(path, by_method) for path, by_method in by_path.items()],
        exception_handlers=dict.fromkeys(kinds, problem_response),
    )
    app.router.redirect_slashes = False  # a redirect would repeat the request's host
    return app


def _route(path: str, by_method: dict[str, Endpoint]) -> Route:
    """Return one route for all methods of a path, so that a wrong method gets 405."""

    async def respond(request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        return await by_method[method](request)

    return Route(path, respond, methods=list(by_method))


class Operated(Protocol):
    service: Service

    async def obstacle(self) -> Problem | None: ...

    def metrics_text(self) -> bytes: ...


class ServiceHandlers:
    """Handlers of the operations that every party has."""

    def __init__(self, party: Operated) -> None:
        self._party = party

    async def healthz(self, request: Request) -> object:
        return {"status": "alive"}

    async def readyz(self, request: Request) -> object:
        problem = await self._party.obstacle()
        if problem is not None:
            raise Refusal(problem)
        return {"status": "ready"}

    async def clock(self, request: Request) -> object:
        return self._party.service.clock_line()

    async def accept_clock(self, request: Request) -> object:
        self._party.service.accept_clock(by=token_of(request).label)
        return self._party.service.clock_line()

    async def metrics(self, request: Request) -> Response:
        return Response(self._party.metrics_text(), media_type=Metrics.media_type)


class Parameter(Generic[T]):
    """A value in the path or the query, of a type that msgspec reads from a text."""

    def __init__(
        self,
        name: str,
        where: Where,
        description: str,
        kind: Any = str,
        default: T | None = None,
        problem: Problem = problems.BAD_PARAMETER,
    ) -> None:
        self.name, self.where, self.description = name, where, description
        self._kind, self._default, self._problem = kind, default, problem

    def to_json(self) -> dict[str, Any]:
        default = {} if self._default is None else {"default": self._default}
        return {
            "name": self.name,
            "in": self.where,
            "required": self.where == "path",
            "description": self.description,
            "schema": msgspec.json.schema(self._kind) | default,
        }

    def text(self, request: Request) -> str | None:
        values = request.path_params if self.where == "path" else request.query_params
        return values.get(self.name)

    def read(self, request: Request) -> T:
        text = self.text(request)
        if text is None and self._default is not None:
            return self._default
        return self.convert(text)

    def convert(self, text: str | None) -> T:
        """Return the value that a text stands for; refuse others."""
        try:
            value: T = msgspec.convert(text, self._kind, strict=False)
        except INVALID:
            raise Refusal(self._problem.about(self.name)) from None
        return value

    def read_optional(self, request: Request) -> T | None:
        """Return the value in a request; None if it is missing or empty."""
        return None if self.text(request) in (None, "") else self.read(request)


async def read_document(request: Request, largest: int = LARGEST_DOCUMENT) -> object:
    """Read a JSON document of at most `largest` bytes, strictly."""
    headers = dict(request.scope["headers"])
    if media_type(headers) != JSON:
        raise Refusal(problems.WRONG_TYPE)
    body = await read_body(request.receive, headers, largest)
    if isinstance(body, Problem):
        raise Refusal(body)
    try:
        return await asyncio.to_thread(strict_json, body)
    except ValueError as error:
        raise Refusal(problems.BAD_REQUEST) from error


def read_as(kind: type[S], document: object) -> S:
    """Return a request's JSON document as a Struct; a refusal names the invalid field."""
    try:
        return msgspec.convert(document, kind)
    except INVALID as error:
        name = invalid_field(kind, error)
        about = problems.BAD_REQUEST if name is None else problems.BAD_PARAMETER.about(name)
        raise Refusal(about) from error


def invalid_field(kind: type[msgspec.Struct], error: Exception) -> str | None:
    """Return the field of a Struct that an error is about; None for an unknown field."""
    # The error repeats unknown fields and values of the request, so only names of fields count.
    found = _FIELD.search(str(error))
    return found[1] if found is not None and found[1] in kind.__struct_fields__ else None
