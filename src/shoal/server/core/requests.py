"""Who asks, and the document that a request brings."""

from __future__ import annotations

import asyncio

from starlette.requests import Request

from shoal.server.core import problems
from shoal.server.core.errors import Refusal
from shoal.server.core.http import JSON, bearer_token, cookie, media_type, read_body
from shoal.server.core.sessions import COOKIE, Sessions
from shoal.server.core.tokens import Role, Token, Tokens
from shoal.support.files import strict_json

__all__ = ["check_same_origin", "check_token", "read_document", "token_of"]

LARGEST_DOCUMENT = 4 << 20
"""Bytes that a plan, or another document sent to the console, may have."""


def check_token(
    tokens: Tokens, request: Request, role: Role, sessions: Sessions | None = None
) -> Token:
    """Return the token of a request; refuse one that does not allow the operation.

    A token that is limited to some plans does not allow operations that concern all plans.
    """
    token = _find_token(tokens, request, sessions)
    if token is None:
        raise Refusal(problems.NO_TOKEN)
    plan_id = request.path_params.get("plan_id")
    out_of_scope = (
        not token.covers(plan_id) if plan_id else token.plans is not None and role == "admin"
    )
    if not token.may(role) or out_of_scope:
        raise Refusal(problems.WRONG_ROLE)
    return token


def token_of(request: Request) -> Token:
    """Return the token that `check_token` found."""
    token = request.state.token
    assert isinstance(token, Token)
    return token


def _find_token(tokens: Tokens, request: Request, sessions: Sessions | None) -> Token | None:
    headers = dict(request.scope["headers"])
    secret = bearer_token(headers)
    if secret:
        return tokens.find(secret)
    token = None if sessions is None else sessions.find(cookie(headers, COOKIE))
    # A browser sends the cookie by itself, whichever page makes it ask.
    if token is not None and request.method not in ("GET", "HEAD"):
        check_same_origin(request)
    return token


def check_same_origin(request: Request) -> None:
    """Refuse what a page of another origin, another port included, made a browser send.

    Every browser that accepts the cookie sends this header, and no page can change it.
    """
    if request.headers.get("sec-fetch-site") != "same-origin":
        raise Refusal(problems.CROSS_SITE)


async def read_document(request: Request, largest: int = LARGEST_DOCUMENT) -> object:
    """Read a JSON document of at most `largest` bytes, strictly."""
    headers = dict(request.scope["headers"])
    if media_type(headers) != JSON:
        raise Refusal(problems.WRONG_TYPE)
    body = await read_body(request.receive, headers, largest)
    if isinstance(body, problems.Problem):
        raise Refusal(body)
    try:
        return await asyncio.to_thread(strict_json, body)
    except ValueError as error:
        raise Refusal(problems.BAD_REQUEST) from error
