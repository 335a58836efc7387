"""Tokens, and other work of the console, from the command line.

While the collector runs, its console makes and revokes them, and an admin token is needed. While
it does not run, they are changed in its data folder, which needs the right to write there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from shoal.errors import InputError, TransportError
from shoal.server.core.parties import HttpPeer
from shoal.server.core.settings import read_addresses
from shoal.server.core.tokens import TOKEN_FILE, Token, Tokens
from shoal.server.storage.database import NAME, DataInUse, data_lock
from shoal.server.storage.sqlite import open_database
from shoal.support.files import first_line, strict_json

_TIMEOUT = 10.0


@contextmanager
def open_token_admin(
    folder: Path, *, url: str | None = None, secret_file: Path | None = None
) -> Iterator[FolderTokens | ConsoleClient]:
    """Open the tokens of the collector with a data folder.

    `url` is the console's address, by default where the collector listens if it runs, and
    `secret_file` a file with an admin token, by default the one in the folder.
    """
    if url is None:
        path = folder / NAME
        if not path.exists():
            raise InputError(f"{folder} holds no collector's data.")
        with suppress(DataInUse), data_lock(folder), data_lock(folder, NAME):
            with closing(open_database(path, create=False, schema=None)) as database:
                yield FolderTokens(Tokens(database))
            return
    yield running_console(folder, url, secret_file)


def running_console(folder: Path, url: str | None, secret_file: Path | None) -> ConsoleClient:
    if url is None:
        url = read_addresses(folder).get("console")
    if url is None:
        raise InputError(
            f"where a collector with the data in {folder} listens is not known; start it, or give"
            " the console's address with --console-url."
        )
    return ConsoleClient(url, secret_file or folder / TOKEN_FILE, "--admin-token")


class FolderTokens:
    """The tokens in the data folder of a collector that does not run."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    def make(self, token: Token) -> tuple[Token, str]:
        return token, self._tokens.add(token)

    def tokens(self) -> list[Token]:
        return list(self._tokens)

    def revoke(self, token_id: str) -> None:
        problem = self._tokens.remove(token_id)
        if problem is not None:
            raise InputError(problem.title)


class ConsoleClient:
    """The API of a running collector's console, with a token in a file that `option` names."""

    def __init__(self, url: str, secret_file: Path, option: str) -> None:
        self._url, self._console = url, HttpPeer(url, _TIMEOUT)
        try:
            secret = secret_file.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise InputError(
                f"cannot read the token in {secret_file}: {reason}; name a file that has one with"
                f" {option}."
            ) from error
        self._headers = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}

    def make(self, token: Token) -> tuple[Token, str]:
        wanted = {name: value for name, value in token.to_json().items() if name != "id"}
        document = self.ask("POST", "/v1/tokens", wanted)
        return msgspec.convert(document, Token), str(document["token"])

    def tokens(self) -> list[Token]:
        return msgspec.convert(self.ask("GET", "/v1/tokens")["tokens"], list[Token])

    def revoke(self, token_id: str) -> None:
        self.ask("DELETE", f"/v1/tokens/{quote(token_id, safe='')}")

    def ask(self, method: str, path: str, document: object = None) -> Any:
        """Return the response to a request as JSON; a refusal is an error."""
        body = None if document is None else json.dumps(document).encode()
        try:
            response = self._console.ask(method, path, body, self._headers)
            reply: Any = strict_json(response.content) if response.content else {}
        except TransportError as error:
            raise InputError(f"no console answers at {self._url}: {first_line(error)}.") from error
        except ValueError as error:
            raise InputError(f"the server at {self._url} is not a console.") from error
        if not 200 <= response.status < 300:
            title = reply.get("title") if isinstance(reply, dict) else None
            raise InputError(f"the console at {self._url} refuses: {title or response.status}")
        return reply
