"""The log of every byte that is sent, written before it is sent.

It holds the data inside TLS: head and body of each request, and neither the TLS handshake nor DNS
queries. Lines are JSON; when the file grows large, the older half is deleted.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.device.outbox.http import HttpTransport, Request
from shoal.errors import TransportError
from shoal.support.disk import Disk
from shoal.support.files import strict_json

if TYPE_CHECKING:
    import http.client


MAX_BYTES = 1 << 20


@dataclass(frozen=True)
class LoggedRequest:
    """One request: when, where to, its bytes, and the status of the response if one came."""

    at: float
    to: str
    sent: bytes
    status: int | None

    @property
    def body(self) -> bytes:
        return self.sent.partition(b"\r\n\r\n")[2]

    def to_json(self) -> dict[str, Any]:
        sent = base64.b64encode(self.sent).decode()
        return {"at": int(self.at), "sent": sent, "status": self.status, "to": self.to}


class Log:
    """The file of sent requests."""

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        self._path, self._clock = path, clock

    def begin(self, to: str) -> None:
        self._shorten()
        self._write({"at": self._clock(), "to": to})

    def sent(self, piece: bytes) -> None:
        self._write({"sent": base64.b64encode(piece).decode()})

    def answered(self, status: int) -> None:
        self._write({"status": status})

    def requests(self) -> list[LoggedRequest]:
        found: list[LoggedRequest] = []
        for line in self._lines():
            try:
                fields: Any = strict_json(line)
                if "to" in fields:
                    found.append(LoggedRequest(float(fields["at"]), str(fields["to"]), b"", None))
                elif found:
                    last = found[-1]
                    piece = base64.b64decode(fields.get("sent", ""))
                    status = fields.get("status", last.status)
                    found[-1] = LoggedRequest(last.at, last.to, last.sent + piece, status)
            except (ValueError, KeyError, TypeError, AttributeError):
                continue  # a line that a crash cut off
        return [request for request in found if request.sent]

    def _lines(self) -> list[bytes]:
        try:
            return self._path.read_bytes().splitlines()
        except FileNotFoundError:
            return []

    def _write(self, fields: dict[str, object]) -> None:
        handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with open(handle, "wb", buffering=0) as file:
            file.write(json.dumps(fields).encode() + b"\n")

    def _shorten(self) -> None:
        if not self._path.exists() or self._path.stat().st_size <= MAX_BYTES:
            return
        lines = self._lines()
        kept = next(
            (at for at in range(len(lines) // 2, len(lines)) if b'"to"' in lines[at]), len(lines)
        )
        scratch = self._path.with_name(self._path.name + ".part")
        Disk().write(scratch, b"".join(line + b"\n" for line in lines[kept:]))
        scratch.replace(self._path)


class LoggedTransport(HttpTransport):
    """Asks before each request whether it may be made, and logs each byte before it leaves."""

    def __init__(self, to: str, log: Log, permitted: Callable[[], bool], **options: Any) -> None:
        super().__init__(to, **options)
        self._log, self._permitted = log, permitted

    def _open(self, deadline: float) -> http.client.HTTPConnection:
        self._check_permitted()
        connection = super()._open(deadline)
        send = connection.send

        def logged(piece: bytes) -> None:
            self._log.sent(piece)
            send(piece)

        connection.send = logged  # type: ignore[method-assign, assignment]  # the one way out
        return connection

    @contextmanager
    def _exchange(
        self, connection: http.client.HTTPConnection, request: Request
    ) -> Iterator[http.client.HTTPResponse]:
        self._check_permitted()
        self._log.begin(self.address)
        with super()._exchange(connection, request) as response:
            self._log.answered(response.status)
            yield response

    def _check_permitted(self) -> None:
        if not self._permitted():
            raise TransportError("telemetry was turned off; nothing was sent.")
