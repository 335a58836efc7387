"""What a request to the console says: its document, its parameters, its token."""

from __future__ import annotations

import asyncio
import base64
import binascii

from starlette.requests import Request

from shoal.collector import problems
from shoal.collector.console.errors import Refusal
from shoal.collector.console.tokens import Role, Token, Tokens
from shoal.collector.intake.ingest import bearer, read_body
from shoal.support.files import strict_json

__all__ = ["among", "check_token", "document", "level", "number", "page", "who"]

LARGEST_DOCUMENT = 4 << 20
"""Bytes that a plan, or another document sent to the console, may have."""


def check_token(tokens: Tokens, request: Request, role: Role) -> Token:
    """Return the token of a request; refuse one that does not allow what is asked for.

    A token that is for some plans only does not do what concerns all of them.
    """
    token = _token(tokens, request)
    if token is None:
        raise Refusal(problems.NO_TOKEN)
    plan_id = request.path_params.get("plan_id")
    out_of_scope = (
        not token.covers(plan_id) if plan_id else token.plans is not None and role == "admin"
    )
    if not token.may(role) or out_of_scope:
        raise Refusal(problems.WRONG_ROLE)
    return token


def who(request: Request) -> Token:
    """Return the token that a request was let in with."""
    token = request.state.token
    assert isinstance(token, Token)
    return token


def _token(tokens: Tokens, request: Request) -> Token | None:
    headers = dict(request.scope["headers"])
    secret = bearer(headers)
    # A browser asks for a name and a password; the token is the password. It sends it along with
    # every request by itself, so that is not enough for anything but looking.
    if not secret and request.method == "GET":
        secret = _password(headers)
    return tokens.find(secret) if secret else None


def _password(headers: dict[bytes, bytes]) -> str:
    scheme, _, content = headers.get(b"authorization", b"").partition(b" ")
    if scheme.lower() != b"basic":
        return ""
    try:
        return base64.b64decode(content, validate=True).partition(b":")[2].decode("utf-8")
    except (binascii.Error, ValueError):
        return ""


async def document(request: Request) -> object:
    """Read a JSON document, strictly."""
    headers = dict(request.scope["headers"])
    media = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if media != b"application/json" or b"content-encoding" in headers:
        raise Refusal(problems.WRONG_TYPE)
    body = await read_body(request.receive, headers.get(b"content-length"), LARGEST_DOCUMENT)
    if isinstance(body, problems.Problem):
        raise Refusal(body)
    try:
        return await asyncio.to_thread(strict_json, body)
    except (ValueError, RecursionError) as error:
        raise Refusal(problems.BAD_REQUEST) from error


def number(text: str) -> int:
    """Read the number of a crowd from a path."""
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise Refusal(problems.UNKNOWN_CROWD)
    return int(text)


def page(request: Request) -> int:
    """Read the number of the page that is asked for, the first one is 0."""
    text = request.query_params.get("page", "0")
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise Refusal(problems.BAD_PARAMETER)
    return int(text)


def level(request: Request) -> float:
    """Read the confidence level that is asked for."""
    try:
        wanted = float(request.query_params.get("level", "0.95"))
    except ValueError:
        raise Refusal(problems.BAD_PARAMETER) from None
    if not 0 < wanted < 1:
        raise Refusal(problems.BAD_PARAMETER)
    return wanted


def among(request: Request, name: str, values: tuple[str, ...]) -> str:
    """Read a parameter that is one of several words, the first unless it says."""
    value = request.query_params.get(name, values[0])
    if value not in values:
        raise Refusal(problems.BAD_PARAMETER)
    return value
