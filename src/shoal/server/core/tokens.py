"""Tokens and sessions: permissions at the console, and which applications may send reports.

A token is 256 random bits; the collector keeps its SHA-256 and compares in constant time. A token
of the role `app` or `relay` belongs to an application, never to a person: it would undo their
anonymity. A relay forwards the reports of many people and limits how many each of them sends.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, Literal, get_args

import msgspec
from starlette.requests import Request

from shoal.errors import InputError
from shoal.protocol.random_bits import SystemBits
from shoal.server.core import problems
from shoal.server.core.clock import GuardedClock
from shoal.server.core.http import Headers, Refusal
from shoal.server.core.problems import Problem
from shoal.server.storage.database import (
    SqlConnection,
    read_fact,
    storage_errors,
    transaction,
    write_fact,
)

TOKEN_FILE = "admin-token"  # noqa: S105  its name
LABEL = re.compile(r"[A-Za-z0-9 ._-]{1,80}")
"""What a token may be labelled with."""
MOST_PLANS = 100
"""How many plans a token may be limited to."""

Role = Literal["app", "relay", "viewer", "analyst", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)
"""Each console role includes the permissions of those before it; `app` and `relay` only send."""

_SENDERS: tuple[Role, ...] = ("app", "relay")
_PLAN_ID = re.compile(r"[0-9a-f]{64}")
_KEY = re.compile(r"[A-Za-z0-9_-]{43}")
_EPOCH = date(1970, 1, 1)
_AGREED = "agreed token"
_ALL = "SELECT id, role, label, expires, plans, key, digest, used_day FROM tokens"


@dataclass(frozen=True)
class Token:
    """The public record of a token, without its secret.

    `expires` is its last day (UTC), or None; `plans` are the only plans it is for, or None for all.
    `key` is the public key of a relay, which signs the chunks that it forwards to an analyzer.
    """

    id: str
    role: Role
    label: str
    expires: date | None = None
    plans: tuple[str, ...] | None = None
    key: str | None = None

    @classmethod
    def new(
        cls,
        role: Role,
        label: str,
        *,
        expires: date | None = None,
        plans: Sequence[str] | None = None,
        key: str | None = None,
    ) -> Token:
        """Return a token with an id of its own; its role and limits must be possible ones."""
        if role not in ROLES:
            raise InputError(f"a role is one of {', '.join(ROLES)}.")
        if not LABEL.fullmatch(label):
            raise InputError("a label has 1 to 80 letters, digits, spaces, dots or dashes.")
        if plans is not None:
            if not 1 <= len(plans) <= MOST_PLANS or not all(map(_PLAN_ID.fullmatch, plans)):
                raise InputError(
                    f"a token can be limited to 1 to {MOST_PLANS} plans, by their ids."
                )
            plans = tuple(sorted(set(plans)))
        if key is not None and (role != "relay" or not _KEY.fullmatch(key)):
            raise InputError("only a relay has a key: 43 letters, as in its public file.")
        return cls(SystemBits().draw(8).hex(), role, label, expires, plans, key)

    def to_json(self) -> dict[str, Any]:
        return dict(msgspec.to_builtins(self))

    def may(self, role: Role) -> bool:
        if (self.role in _SENDERS) != (role in _SENDERS):
            return False
        return ROLES.index(self.role) >= ROLES.index(role)

    def covers(self, plan_id: str) -> bool:
        return self.plans is None or plan_id in self.plans

    @property
    def can_always_administer(self) -> bool:
        """Whether the token is an admin's without an end or a limit."""
        return self.role == "admin" and self.expires is None and self.plans is None


class Tokens:
    """The tokens of a service, in memory and in the database; `clock` tells which have expired.

    While a clock that jumped is not trusted, a token has expired if it has by either time.
    """

    def __init__(self, database: SqlConnection, clock: Callable[[], float] = time.time) -> None:
        self._database, self._clock = database, clock
        self.failures = 0
        """How many requests had an unknown secret, or that of an expired token."""
        self._kept: dict[str, tuple[Token, bytes]]
        self._used: dict[str, int]
        self._in_use: set[str] = set()
        self.reload()

    def reload(self) -> None:
        """Read the tokens again: another collector may have changed them."""
        with storage_errors():
            rows = self._database.execute(f"{_ALL} ORDER BY id").fetchall()
        self._kept = {row[0]: (_read(*row[:6]), bytes(row[6])) for row in rows}
        self._used = {row[0]: row[7] for row in rows if row[7] is not None}

    def look_up(self, secret: str) -> None:
        """Read the token of a secret, which another collector may have made."""
        with storage_errors():
            query = f"{_ALL} WHERE digest = ?"
            row = self._database.execute(query, (_digest(secret),)).fetchone()
        if row is not None:
            self._kept[row[0]] = (_read(*row[:6]), bytes(row[6]))

    def __iter__(self) -> Iterator[Token]:
        return (token for token, _ in list(self._kept.values()))

    def find(self, secret: str) -> Token | None:
        match = self._match(secret)
        if match is not None and not self.has_ended(match):
            return match
        self.failures += 1
        return None

    def knows(self, secret: str) -> bool:
        """Whether a secret is of a token that was there when tokens were read."""
        return self._match(secret) is not None

    def _match(self, secret: str) -> Token | None:
        """Compare with every token, so that the time does not tell how near a guess came."""
        digest = _digest(secret)
        match = None
        for token, kept in list(self._kept.values()):
            if hmac.compare_digest(kept, digest):
                match = token
        return match

    def by_id(self, token_id: str) -> Token | None:
        """Return a token, unless it was revoked or has expired."""
        token, _ = self._kept.get(token_id, (None, b""))
        return None if token is None or self.has_ended(token) else token

    def last_used(self, token: Token) -> date | None:
        """Return the last day on which a token was used at the console."""
        # When an application sent reports is not stored: it would tell something of an open crowd.
        day = self._today if token.id in self._in_use else self._used.get(token.id)
        return None if day is None else _EPOCH + timedelta(days=day)

    def note_use(self, token: Token) -> None:
        """Note that a token is used at the console; the next sweep stores the day."""
        self._in_use.add(token.id)

    @property
    def _today(self) -> int:
        return int(self._clock() // 86_400)

    def store_uses(self) -> None:
        """Store the day on which tokens were used."""
        today, used = self._today, list(self._in_use)
        new = {token_id: today for token_id in used if self._used.get(token_id) != today}
        if new:
            with transaction(self._database):
                statement = "UPDATE tokens SET used_day = ? WHERE id = ?"
                self._database.executemany(statement, [(today, token_id) for token_id in new])
        self._used |= new
        self._in_use.difference_update(used)

    def has_ended(self, token: Token) -> bool:
        if token.expires is None:
            return False
        now = self._clock()
        if isinstance(self._clock, GuardedClock):
            now = max(now, self._clock.wall())
        return now // 86_400 > (token.expires - _EPOCH).days

    def add(self, token: Token, secret: str | None = None) -> str:
        """Store a new token and return its secret, which is shown once."""
        secret = secret or new_secret(token.role)
        with transaction(self._database):
            add_token(self._database, token, secret)
        self._kept[token.id] = (token, _digest(secret))
        return secret

    def agree(self, token: Token, secret: str, made: int) -> None:
        """Store the token of the other party in place of its former one.

        That happens once for the public file `made` then: a token that was revoked stays so.
        """
        agreed = _digest(f"{secret} {token.key} {made}").hex()
        known, _, former = (read_fact(self._database, _AGREED) or "").partition(" ")
        if known == agreed:
            return
        with transaction(self._database):
            delete = "DELETE FROM tokens WHERE id = ? OR digest = ?"
            self._database.execute(delete, (former, _digest(secret)))
            add_token(self._database, token, secret)
            write_fact(self._database, _AGREED, f"{agreed} {token.id}")
        self.reload()

    def remove(self, token_id: str) -> Problem | None:
        """Revoke a token, or return why not."""
        # The check for the last admin is in the transaction: of two removals at a time each would
        # see the other's token.
        with transaction(self._database):
            # One removal at a time, at all collectors: the row of the probe serves as a lock.
            self._database.execute("UPDATE facts SET value = value WHERE name = 'probe'")
            self.reload()
            if token_id not in self._kept:
                return problems.UNKNOWN_TOKEN
            if [token.id for token in self if token.can_always_administer] == [token_id]:
                return problems.LAST_ADMIN
            self._database.execute("DELETE FROM tokens WHERE id = ?", (token_id,))
        del self._kept[token_id]
        return None


def new_secret(role: Role) -> str:
    """Return a secret for a new token; it begins with the role."""
    return f"shoal_{role}_{SystemBits().draw(32).hex()}"


def add_token(database: SqlConnection, token: Token, secret: str) -> None:
    """Write a token to a database, in a transaction."""
    expires = None if token.expires is None else token.expires.isoformat()
    plans = None if token.plans is None else json.dumps(token.plans)
    row = (token.id, token.role, _digest(secret), token.label, expires, plans, token.key)
    database.execute("INSERT INTO tokens VALUES (?, ?, ?, ?, ?, ?, ?, NULL)", row)


def _read(
    token_id: str, role: Role, label: str, expires: str | None, plans: str | None, key: str | None
) -> Token:
    last_day = None if expires is None else date.fromisoformat(expires)
    limited = None if plans is None else tuple(json.loads(plans))
    return Token(token_id, role, label, last_day, limited, key)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


COOKIE = "__Host-shoal"
_SESSION_SECONDS = 12 * 3600
_MAX_SESSIONS = 1000
"""The oldest session ends when one more begins."""


class Sessions:
    """Who is signed in; by the hash of the cookie, so that memory does not hold the cookie."""

    def __init__(self, tokens: Tokens, clock: Callable[[], float] = time.monotonic) -> None:
        self._tokens, self._clock = tokens, clock
        self._kept: dict[bytes, tuple[str, float]] = {}
        """The id of the token, and when the session ends."""

    def begin(self, token: Token) -> str:
        secret = SystemBits().draw(32).hex()
        while len(self._kept) >= _MAX_SESSIONS:
            del self._kept[next(iter(self._kept))]
        self._kept[_digest(secret)] = token.id, self._clock() + _SESSION_SECONDS
        return secret

    def find(self, secret: str) -> Token | None:
        token_id, ends = self._kept.get(_digest(secret), ("", 0.0))
        token = self._tokens.by_id(token_id)
        if token is None or self._clock() >= ends:
            self.end(secret)
            return None
        return token

    def end(self, secret: str) -> None:
        self._kept.pop(_digest(secret), None)


def cookie_header(secret: str) -> str:
    """Return the header that sets the cookie, or removes it if there is no secret."""
    life = f"Max-Age={_SESSION_SECONDS if secret else 0}"
    return f"{COOKIE}={secret}; {life}; Path=/; Secure; HttpOnly; SameSite=Strict"


@dataclass(frozen=True)
class Action:
    """A change by an operator: when (UTC), who, what; `subject` is a plan's or token's id."""

    time: str
    by: str
    action: str
    subject: str


class Actions:
    """The list of actions, in the collector's database; used by the store's thread."""

    def __init__(self, database: SqlConnection, clock: Callable[[], float] = time.time) -> None:
        self._database, self._clock = database, clock

    def add(self, by: str, action: str, subject: str = "") -> None:
        row = (int(self._clock() // 60), by, action, subject)
        with transaction(self._database):
            self._database.execute(
                "INSERT INTO actions (minute, actor, action, subject) VALUES (?, ?, ?, ?)", row
            )

    def last(self, skip: int, length: int) -> list[Action]:
        query = (
            "SELECT minute, actor, action, subject FROM actions ORDER BY id DESC LIMIT ? OFFSET ?"
        )
        with storage_errors():
            rows = self._database.execute(query, (length, skip)).fetchall()
        return [
            Action(time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime(60 * minute)), *rest)
            for minute, *rest in rows
        ]


def bearer_token(headers: Headers) -> str:
    """Return the bearer token of a request, or an empty text."""
    scheme, _, secret = headers.get(b"authorization", b"").partition(b" ")
    return secret.strip().decode("latin-1") if scheme.lower() == b"bearer" else ""


def cookie(headers: Headers, name: str) -> str:
    """Return a cookie of a request, or an empty text; of several with one name none is taken."""
    wanted = name.encode() + b"="
    parts = (part.strip() for part in headers.get(b"cookie", b"").split(b";"))
    found = [part.removeprefix(wanted) for part in parts if part.startswith(wanted)]
    return found[0].decode("latin-1") if len(found) == 1 else ""


def check_token(
    tokens: Tokens, request: Request, role: Role, sessions: Sessions | None = None
) -> Token:
    """Return the token of a request; refuse one that does not allow the operation."""
    # A token that is limited to some plans does not allow operations that concern all plans.
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
    token = request.state.token
    assert isinstance(token, Token)
    return token


def _find_token(tokens: Tokens, request: Request, sessions: Sessions | None) -> Token | None:
    headers = dict(request.scope["headers"])
    secret = bearer_token(headers)
    if secret:
        return tokens.find(secret)
    token = None if sessions is None else sessions.find(cookie(headers, COOKIE))
    # A browser sends the cookie by itself, whichever page makes it send the request.
    if token is not None and request.method not in ("GET", "HEAD"):
        check_same_origin(request)
    return token


def check_same_origin(request: Request) -> None:
    """Refuse requests that a page of another origin, another port included, made a browser send."""
    # Every browser that accepts the cookie sends this header, and no page can change it.
    if request.headers.get("sec-fetch-site") != "same-origin":
        raise Refusal(problems.CROSS_SITE)
