"""Reports through an oblivious relay (RFC 9458), which hides the sender's address.

The relay sees addresses and no reports; the collector sees reports and no addresses of devices.
That holds if the two do not collude, and if all devices use the same key: a collector that gave
each device a key of its own would recognize its reports by the key. So the application ships the
key, or the device fetches it twice: from the relay, which gives one copy to all devices, and from
the collector. It sends nothing unless the relay's key is among the collector's.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from shoal.device.outbox.http import HttpTransport, Request, _checked_address
from shoal.errors import InputError, ReportError, TransportError
from shoal.protocol.oblivious import (
    KEYS_TYPE,
    MAX_LIST,
    REQUEST_TYPE,
    RESPONSE_TYPE,
    BinaryRequest,
    BinaryResponse,
    Exchange,
    KeyConfiguration,
)
from shoal.support.checks import shown

STEP = 1024
"""Requests are padded to a multiple of this, so that reports of a plan have one length."""

MAX_RESPONSE_BYTES = 64 << 10
"""The maximum length of a relay's response."""

_UNKNOWN_KEY = (400, 401)
"""Unencrypted responses of a gateway whose key has changed, or of a relay that does not know it."""


class ObliviousTransport(HttpTransport):
    """Talks to a collector through an oblivious relay.

    Parameters
    ----------
    base_url
        The collector.
    relay_url
        Where the relay takes requests for this collector, and serves its copy of its key.
    keys
        The collector's key configuration (``application/ohttp-keys``), the same for all devices. By
        default it is fetched from the relay and from the collector itself, and must be the same.
        That shows the collector this device's address, though no report.
    options
        As in `HttpTransport`. With a `public_key` the key configuration must be signed with it.
    """

    def __init__(
        self, base_url: str, relay_url: str, *, keys: bytes | None = None, **options: Any
    ) -> None:
        super().__init__(base_url, **options)
        plain = bool(options.get("allow_plain"))
        self._peer, self._relay_path = _checked_address(relay_url, plain, query=True)
        if self._peer == self._origin:
            raise InputError(
                f"the relay must not be the collector itself, got {shown(relay_url)}: it"
                " would see who sends."
            )
        self._given = keys is not None
        self._key = None if keys is None else KeyConfiguration.read_list(keys)[0]
        self._direct = HttpTransport(base_url, **options)

    def fetch_crowd_key(self, plan_id: str, window: int) -> Any:
        """Refuse: the relay of such a plan hides the sender already, and a fetch would not."""
        raise InputError("a plan with a relay and an analyzer is not sent by Oblivious HTTP.")

    def fetch_hpke_keys(self, endpoint: str) -> Any:
        """Refuse: a leader takes no requests through an oblivious relay."""
        raise InputError("a plan with a leader and a helper is not sent by Oblivious HTTP.")

    def _fetch(self, what: str, path: str) -> bytes:
        """Fetch documents from the collector itself."""
        return self._direct._fetch(what, path)

    @contextmanager
    def _exchange(self, connection: http.client.HTTPConnection, request: Request) -> Iterator[Any]:
        """Yield the collector's response to a request that the relay forwards."""
        encrypted, exchange = self._encrypted(request.method, request.path, request.body or b"")
        outer = Request("POST", self._relay_path, encrypted, request.deadline)
        with super()._exchange(connection, outer) as response:
            content = response.read(MAX_RESPONSE_BYTES + 1)
            if len(content) > MAX_RESPONSE_BYTES or response.length:
                raise TransportError("the relay's response is too long, or only a part of one.")
            yield self._opened(response, content, exchange)

    def _headers(self, body: bytes | None) -> dict[str, str]:
        """Return the headers that the relay sees: neither the plan nor a token is among them."""
        if body is None:
            return super()._headers(None)
        return super()._headers(None) | {"Content-Type": REQUEST_TYPE, "Connection": "keep-alive"}

    def _encrypted(self, method: str, path: str, body: bytes) -> tuple[bytes, Exchange]:
        headers = {
            name.lower().encode(): value.encode()
            for name, value in super()._headers(body).items()
            if name in ("Content-Type", "Authorization")
        }
        authority = f"{self._origin.host}:{self._origin.port}"
        request = BinaryRequest(method, self._origin.scheme, authority, path, headers, body)
        length = -(-len(request.to_bytes()) // STEP) * STEP
        return self._known_key().encrypt(request.to_bytes(length))

    def _known_key(self) -> KeyConfiguration:
        if self._key is None:
            try:
                (key, *_) = KeyConfiguration.read_list(self._list_at_relay())
                content = self._fetch("key", f"{self._path}/v1/oblivious")
                if key not in KeyConfiguration.read_list(content):
                    raise TransportError(
                        "the relay's copy of the collector's key is not among the keys that the"
                        " collector gave this device; a key that not all devices use would link"
                        " reports, so nothing is sent."
                    )
            except InputError as error:
                raise TransportError(f"the collector has no usable key: {error}") from error
            self._key = key
        return self._key

    def _list_at_relay(self) -> bytes:
        """Return the relay's copy of the collector's keys, which is the same for all devices."""
        deadline = time.monotonic() + self._timeout
        connection = self._open(deadline)
        try:
            request = Request("GET", self._relay_path, None, deadline)
            with super()._exchange(connection, request) as response:
                content = response.read(MAX_LIST + 1)
                if response.status == 200 and _media_type(response) == KEYS_TYPE:
                    return content
        finally:
            connection.close()
        raise TransportError(
            f"the relay answered {response.status} instead of the collector's key, so it"
            " is unknown whether all devices use one key; ship the key: --oblivious-keys, or keys=."
        )

    def _opened(
        self, response: http.client.HTTPResponse, content: bytes, exchange: Exchange
    ) -> _Response:
        if response.status != 200 or _media_type(response) != RESPONSE_TYPE:
            advice = ""
            if response.status in _UNKNOWN_KEY and self._given:
                advice = (
                    " If the collector changed its key, update the application, or give the new"
                    " one: --oblivious-keys, or keys=."
                )
            elif response.status in _UNKNOWN_KEY:
                self._key = None  # the next attempt fetches the one that is valid now
            raise TransportError(
                f"the relay answered {response.status} instead of an encrypted response.{advice}"
            )
        try:
            inner = BinaryResponse.from_bytes(exchange.decrypt(content))
        except ReportError as error:
            raise TransportError(f"the response is not the collector's: {error}") from error
        return _Response(inner, response.will_close)


def _media_type(response: http.client.HTTPResponse) -> str:
    return response.getheader("Content-Type", "").partition(";")[0].strip().lower()


class _Response:
    """The collector's response, as far as a transport reads it."""

    length = 0

    def __init__(self, inner: BinaryResponse, will_close: bool) -> None:
        self.status, self.will_close = inner.status, will_close
        self._headers = inner.headers

    def getheader(self, name: str) -> str | None:
        value = self._headers.get(name.lower().encode())
        return None if value is None else value.decode("latin-1")
