"""Signed-in browsers: a cookie instead of a token with every request.

Whoever signs in shows a token once and gets a new random cookie; a cookie that a browser brought
along is never taken over. A session lives in memory, ends after twelve hours, when somebody signs
out, when the collector stops, and at once when its token is revoked or has ended. The cookie's
name begins with `__Host-`: browsers accept it over TLS or from the same machine only, for one host,
and no other host can set it.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import NamedTuple

from shoal.protocol.random_bits import SystemBits
from shoal.server.core.tokens import Token, Tokens

__all__ = ["COOKIE", "Sessions", "cookie_header"]

COOKIE = "__Host-shoal"
_SECONDS = 12 * 3600
_MOST = 1000
"""Sessions at a time; the oldest ends when one more begins."""


class _Session(NamedTuple):
    token_id: str
    ends: float


class Sessions:
    """Who is signed in; by the hash of the cookie, so that memory does not hold the cookie."""

    def __init__(self, tokens: Tokens, clock: Callable[[], float] = time.monotonic) -> None:
        self._tokens, self._clock = tokens, clock
        self._kept: dict[bytes, _Session] = {}

    def begin(self, token: Token) -> str:
        """Sign somebody in and return the value of the new cookie."""
        secret = SystemBits().draw(32).hex()
        while len(self._kept) >= _MOST:
            del self._kept[next(iter(self._kept))]
        self._kept[_digest(secret)] = _Session(token.id, self._clock() + _SECONDS)
        return secret

    def find(self, secret: str) -> Token | None:
        """Return the token that somebody signed in with, if it is still valid."""
        session = self._kept.get(_digest(secret)) if secret else None
        if session is None:
            return None
        token = self._tokens.by_id(session.token_id)
        if token is None or self._clock() >= session.ends:
            self.end(secret)
            return None
        return token

    def end(self, secret: str) -> None:
        """Sign somebody out."""
        self._kept.pop(_digest(secret), None)


def cookie_header(secret: str) -> str:
    """Return the header that sets the cookie, or removes it if there is no secret."""
    life = f"Max-Age={_SECONDS if secret else 0}"
    return f"{COOKIE}={secret}; {life}; Path=/; Secure; HttpOnly; SameSite=Strict"


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()
