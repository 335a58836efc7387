"""Plans and reports over HTTP, with as little about the sender as HTTP allows.

A request has a few headers that are the same on every device; there are no cookies, no proxies from
the environment and no redirects to anywhere else. Reports of one plan that are sent in one go share
a connection. Those of two plans never do: it would show that they come from one person.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

import shoal
from shoal.device.outbox.retry import PostResult
from shoal.errors import InputError, TransportError
from shoal.protocol.plan import MAX_PLAN_BYTES, check_plan_id
from shoal.protocol.wire import ENCRYPTED_MAGIC, ENCRYPTED_TYPE, REPORTS_TYPE, SHARED_MAGIC
from shoal.support.checks import is_loopback, shown
from shoal.support.connections import (
    Origin,
    cut_off_at,
    network_errors,
    open_connection,
    parse_address,
    redirected_path,
)

if TYPE_CHECKING:  # these take longer to load than the rest of the device together
    import http.client
    import ssl
    from email.message import Message


MAX_REDIRECTS = 3


class Request(NamedTuple):
    method: str
    path: str
    body: bytes | None
    deadline: float


class HttpTransport:
    """Talks to a collector at a base URL.

    Parameters
    ----------
    base_url
        ``https://host[:port][/path]``; ``http`` only for this machine itself.
    timeout
        Seconds that one request may take altogether, however slowly bytes trickle in.
    context
        How TLS is verified; by default the system's certificates and the host's name.
    allow_plain
        Take ``http`` to other machines too, where the network is trusted.
    token
        A token of the application or relay that sends, never of a person, for a collector that
        wants one.
    public_key
        The collector's Ed25519 key, 32 bytes or their base64url; plans and
        certificates must then be signed with it.
    max_plan_bytes
        The maximum length of a plan in bytes.

    Examples
    --------
    >>> HttpTransport("http://collector.example")
    Traceback (most recent call last):
    ...
    shoal.errors.InputError: reports travel over https, got 'http://collector.example'; ...
    """

    def __init__(
        self,
        base_url: str,
        *,
        timeout: float = 10.0,
        context: ssl.SSLContext | None = None,
        allow_plain: bool = False,
        token: str | None = None,
        public_key: bytes | str | None = None,
        max_plan_bytes: int = MAX_PLAN_BYTES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._origin, path = _checked_address(base_url, allow_plain)
        self._peer, self._path = self._origin, path.rstrip("/")
        self._token = None if token is None else _checked_token(token)
        self._public_key: bytes | None = None
        if public_key is not None:
            from shoal.protocol.signatures import check_public_key  # most devices pin no key

            self._public_key = check_public_key(public_key)
        self._timeout, self._largest_plan, self._clock = timeout, max_plan_bytes, clock
        self._context = context

    @property
    def address(self) -> str:
        """Where reports go; a report made for one address is sent to no other."""
        return f"{self._origin}{self._path}"

    @property
    def pinned_key(self) -> str | None:
        """The collector's key that is pinned, in hexadecimal, or None."""
        return None if self._public_key is None else self._public_key.hex()

    def fetch_plan(self, plan_id: str) -> bytes:
        """Return the plan's JSON, following redirects on the same host.

        With a pinned key, the signature over the exact bytes is checked. While the collector
        rotates its key, its responses have signatures by the old and the new key.
        """
        return self._fetch("plan", f"{self._path}/v1/plans/{check_plan_id(plan_id)}")

    def fetch_certificate(self, plan_id: str) -> bytes:
        """Return the plan's certificate, signed with the pinned key; without one there is none."""
        return self._fetch_signed("certificate", plan_id, "certificate")

    def fetch_crowd_key(self, plan_id: str, window: int) -> bytes:
        """Return the key that a window's reports are encrypted for, signed with the pinned key."""
        return self._fetch_signed("key document", plan_id, f"crowd-key?window={window:d}")

    def fetch_hpke_keys(self, endpoint: str) -> bytes:
        """Return the keys of an aggregator of DAP, from the aggregator itself."""
        there = copy(self)  # with the same log, if requests are logged
        there._origin, path = _checked_address(endpoint, self._origin.scheme == "http")
        there._peer, there._path, there._public_key = there._origin, "", None
        return there._fetch("list of keys", f"{path}hpke_config")

    def _fetch_signed(self, what: str, plan_id: str, name: str) -> bytes:
        if self._public_key is None:
            raise InputError(f"a {what} must be signed by a pinned key; give one: public_key=.")
        return self._fetch(what, f"{self._path}/v1/plans/{check_plan_id(plan_id)}/{name}")

    def _fetch(self, what: str, path: str) -> bytes:
        deadline = time.monotonic() + self._timeout
        for _ in range(MAX_REDIRECTS + 1):
            with self._response(Request("GET", path, None, deadline)) as response:
                if response.status in (301, 302, 303, 307, 308):
                    path = redirected_path(self._origin, path, response.getheader("Location"))
                    continue
                content = self._read(what, response, deadline)
            if self._public_key is not None:
                _check_signed(self._public_key, what, content, response.headers)
            return content
        raise TransportError(f"more than {MAX_REDIRECTS} redirects.")

    def _read(self, what: str, response: http.client.HTTPResponse, deadline: float) -> bytes:
        largest = self._largest_plan
        if response.status != 200:
            raise TransportError(f"the collector answered {response.status} instead of a {what}.")
        if response.getheader("Content-Encoding", "identity") != "identity":
            raise TransportError(f"the collector compressed the {what}, unasked.")
        content = response.read(largest + 1)
        if len(content) > largest:
            raise TransportError(f"the {what} is larger than {largest} bytes.")
        # A body that was cut off looks like one that ended.
        if response.length or time.monotonic() >= deadline:
            raise TransportError("no response in time, or only a part of one.")
        return content

    def post_report(self, plan_id: str, content: bytes) -> PostResult:
        """Post a batch; of the response only the status and Retry-After are read."""
        with self.kept_open() as sending:
            return sending.post_report(plan_id, content)

    @contextmanager
    def kept_open(self) -> Iterator[_Flush]:
        """Yield an object that posts several batches, those of one plan on one connection."""
        flush = _Flush(self)
        try:
            yield flush
        finally:
            flush.close()

    @contextmanager
    def _response(self, request: Request) -> Iterator[http.client.HTTPResponse]:
        connection = self._open(request.deadline)
        try:
            with self._exchange(connection, request) as response:
                yield response
        finally:
            connection.close()

    def _open(self, deadline: float) -> http.client.HTTPConnection:
        if self._peer.scheme == "https" and self._context is None:
            import ssl

            self._context = ssl.create_default_context()
        return open_connection(self._peer, self._context, deadline)

    @contextmanager
    def _exchange(
        self, connection: http.client.HTTPConnection, request: Request
    ) -> Iterator[http.client.HTTPResponse]:
        headers = self._headers(request.body)
        body = None if request.body is None else request.body.removeprefix(SHARED_MAGIC)
        with network_errors(self._origin.host), cut_off_at(request.deadline, connection.sock):
            connection.request(request.method, request.path, body, headers)
            with connection.getresponse() as response:
                yield response

    def _headers(self, body: bytes | None) -> dict[str, str]:
        headers = {"User-Agent": f"shoal/{shoal.__version__}"}
        if body is None:
            headers["Connection"] = "close"
        else:
            headers["Content-Type"] = _form(body)[0]
            if self._token is not None:
                headers["Authorization"] = f"Bearer {self._token}"
        return headers

    def _retry_after(self, text: str | None) -> float | None:
        """Return the seconds of a Retry-After header, in either of its forms."""
        if text is None:
            return None
        if text.strip().isascii() and text.strip().isdigit():
            return float(text.strip()[:9])
        from email.utils import parsedate_to_datetime

        try:
            return max(parsedate_to_datetime(text).timestamp() - self._clock(), 0.0)
        except (ValueError, OverflowError):
            return None


class _Flush:
    """Posts batches one after another; the connection is kept while they are of one plan."""

    def __init__(self, transport: HttpTransport) -> None:
        self._transport, self._plan_id = transport, ""
        self._connection: http.client.HTTPConnection | None = None

    def post_report(self, plan_id: str, content: bytes) -> PostResult:
        if plan_id != self._plan_id:
            self.close()
            self._plan_id = check_plan_id(plan_id)
        deadline = time.monotonic() + self._transport._timeout
        was_open = self._connection is not None
        try:
            return self._post(content, deadline)
        except TransportError:
            self.close()
            # The collector may have closed it meanwhile; the same report is never counted twice.
            if not was_open or time.monotonic() >= deadline:
                raise
        return self._post(content, deadline)

    def _post(self, content: bytes, deadline: float) -> PostResult:
        transport, form = self._transport, _form(content)
        path = transport._path + form.path(self._plan_id)
        if self._connection is None:
            self._connection = transport._open(deadline)
        request = Request("POST", path, content, deadline)
        with transport._exchange(self._connection, request) as response:
            wait = transport._retry_after(response.getheader("Retry-After"))
            status = form.status(response)
            # A body is not read, and the connection is closed with it.
            reusable = not response.will_close and response.length == 0
        if not reusable:
            self.close()
        return PostResult(status, wait)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _checked_address(url: str, allow_plain: bool, query: bool = False) -> tuple[Origin, str]:
    origin, path = parse_address(url, query=query)
    if origin.scheme == "http" and not (allow_plain or is_loopback(origin.host)):
        raise InputError(
            f"reports travel over https, got {shown(url)}; plain http is for this"
            " machine only, unless it is allowed: --plain, or allow_plain=True."
        )
    return origin, path


def _check_signed(pinned: bytes, what: str, content: bytes, headers: Message) -> None:
    from shoal.protocol.signatures import KEY, SIGNATURE, check_signature, key_text

    try:
        check_signature(pinned, content, headers.get(SIGNATURE), what)
    except TransportError as error:
        if key_text(pinned) in (headers.get(KEY) or ""):
            raise
        raise TransportError(
            f"{error} If the operator changed the key, update the application, or pin the key"
            " that the operator gives you (--key, public_key=)."
        ) from None


class _Form(NamedTuple):
    """How reports of one form travel, and which status an answer stands for."""

    media: str
    path: Callable[[str], str]
    status: Callable[[http.client.HTTPResponse], int] = attrgetter("status")


def _form(content: bytes) -> _Form:
    if content.startswith(SHARED_MAGIC):
        from shoal.device.sharing import UPLOAD_TYPE, upload_path, upload_status

        return _Form(UPLOAD_TYPE, upload_path, upload_status)
    if content.startswith(ENCRYPTED_MAGIC):
        return _Form(ENCRYPTED_TYPE, "/v1/plans/{}/encrypted".format)
    return _Form(REPORTS_TYPE, "/v1/plans/{}/reports".format)


def _checked_token(token: str) -> str:
    if not (isinstance(token, str) and token.isascii() and token.isprintable() and token.strip()):
        raise InputError("a token is the text that the collector's console gave, in one line.")
    return token.strip()
