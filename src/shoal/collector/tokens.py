"""Tokens: who may do what at the console, and which applications may send reports.

A token is 256 random bits; the collector keeps its SHA-256 and compares in constant time. A token
of the role `app` or `relay` belongs to an application, never to a person: it would undo their
anonymity. A relay passes on the reports of many and answers for how many each of them sends.
"""

from __future__ import annotations

import hashlib
import hmac
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from shoal.collector import problems
from shoal.collector.database import told, transaction
from shoal.collector.problems import Problem
from shoal.errors import InputError
from shoal.randomness import SystemBits

__all__ = ["ROLES", "Role", "Token", "Tokens"]

TOKEN_FILE = "admin-token"  # noqa: S105  its name

Role = Literal["app", "relay", "viewer", "analyst", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)
"""Each role of the console may do what those before it may; `app` and `relay` may only send."""

_SENDERS: tuple[Role, ...] = ("app", "relay")


@dataclass(frozen=True)
class Token:
    """A token as it is listed: not the token itself."""

    id: str
    role: Role
    label: str

    def may(self, role: Role) -> bool:
        """Whether the token's role includes another."""
        if (self.role in _SENDERS) != (role in _SENDERS):
            return False
        return ROLES.index(self.role) >= ROLES.index(role)


class Tokens:
    """The tokens of a collector, in memory and in the database."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        with told():
            rows = database.execute("SELECT id, role, label, digest FROM tokens ORDER BY id")
            self._kept = {row[0]: (Token(*row[:3]), bytes(row[3])) for row in rows}

    def __iter__(self) -> Iterator[Token]:
        return (token for token, _ in list(self._kept.values()))

    def find(self, secret: str) -> Token | None:
        """Return whose secret this is; the time does not tell how near it came."""
        digest = _digest(secret)
        found = None
        for token, kept in list(self._kept.values()):
            if hmac.compare_digest(kept, digest):
                found = token
        return found

    @staticmethod
    def new_secret(role: Role) -> str:
        """Return a secret for a new token; its role can be read off it."""
        return f"shoal_{role}_{SystemBits().draw(32).hex()}"

    def make(self, role: Role, label: str, secret: str | None = None) -> tuple[Token, str]:
        """Make a token; its secret is told once and never again."""
        if role not in ROLES:
            raise InputError(f"a role is one of {', '.join(ROLES)}.")
        secret = secret or self.new_secret(role)
        token = Token(SystemBits().draw(8).hex(), role, label)
        with transaction(self._database):
            self._database.execute(
                "INSERT INTO tokens VALUES (?, ?, ?, ?)",
                (token.id, role, _digest(secret), label),
            )
        self._kept[token.id] = (token, _digest(secret))
        return token, secret

    def remove(self, token_id: str) -> Problem | None:
        """Take a token away, or tell why not.

        Whether it is the last admin's is looked at here, where one removal follows another: two at
        a time would each see the other's token.
        """
        if token_id not in self._kept:
            return problems.UNKNOWN_TOKEN
        if [token.id for token in self if token.role == "admin"] == [token_id]:
            return problems.LAST_ADMIN
        with transaction(self._database):
            self._database.execute("DELETE FROM tokens WHERE id = ?", (token_id,))
        del self._kept[token_id]
        return None


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()
