"""HTTP addresses, and connections with a deadline for everything together."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from shoal.errors import InputError, TransportError
from shoal.support.checks import shown
from shoal.support.files import first_line

if TYPE_CHECKING:
    import http.client
    import socket
    import ssl


def open_connection(
    origin: Origin, context: ssl.SSLContext | None, deadline: float
) -> http.client.HTTPConnection:
    """Return a new connection; for https it needs a context, and the handshake is done."""
    import http.client

    connection = http.client.HTTPConnection(origin.host, origin.port)
    connection.default_port = PORTS[origin.scheme]  # as the Host header counts it
    connection.auto_open = 0  # it would open one without TLS
    with network_errors(origin.host):
        wire = _connect(origin.host, origin.port, deadline)
        connection.sock = wire
        try:
            if origin.scheme == "https":
                assert context is not None
                wire = context.wrap_socket(
                    wire, server_hostname=origin.host, do_handshake_on_connect=False
                )
                connection.sock = wire
                with cut_off_at(deadline, wire):
                    wire.do_handshake()
        except BaseException:
            connection.close()
            raise
    return connection


@contextmanager
def connected(
    origin: Origin, timeout: float, context: ssl.SSLContext | None = None
) -> Iterator[http.client.HTTPConnection]:
    """Yield a new connection, which is cut off after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    if origin.scheme == "https" and context is None:
        import ssl

        context = ssl.create_default_context()
    connection = open_connection(origin, context, deadline)
    try:
        with network_errors(origin.host), cut_off_at(deadline, connection.sock):
            yield connection
    finally:
        connection.close()


@contextmanager
def network_errors(host: str) -> Iterator[None]:
    """Raise what goes wrong on the network as a `TransportError`."""
    import http.client

    try:
        yield
    except (OSError, http.client.HTTPException, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise TransportError(f"no answer from {host}: {first_line(error)}.") from error


@contextmanager
def cut_off_at(deadline: float, wire: socket.socket) -> Iterator[None]:
    """Cut a socket off at the deadline, whatever it is waiting for.

    A timeout of the socket would begin anew with every byte that trickles in.
    """
    import threading

    cut = threading.Timer(max(deadline - time.monotonic(), 0), _cut_off, (wire,))
    cut.daemon = True
    cut.start()
    try:
        yield
    finally:
        cut.cancel()


def _connect(host: str, port: int, deadline: float) -> socket.socket:
    import socket

    failure: OSError = TimeoutError("timed out")
    for family, kind, protocol, _, address in socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM
    ):
        wire = socket.socket(family, kind, protocol)
        try:
            wire.settimeout(max(deadline - time.monotonic(), 0.001))
            wire.connect(address)
        except OSError as problem:
            wire.close()
            failure = problem
        else:
            return wire
    raise failure


def _cut_off(wire: socket.socket) -> None:
    import socket

    with contextlib.suppress(OSError):  # it may be closed already
        # Not the method of the TLS socket, which would pull the session from under its reader.
        socket.socket.shutdown(wire, socket.SHUT_RDWR)


PORTS = {"https": 443, "http": 80}


class Origin(NamedTuple):
    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def parse_address(url: str, query: bool = False) -> tuple[Origin, str]:
    """Return the origin and the path of a URL that holds nothing else."""
    from urllib.parse import urlsplit  # a device that sends nothing does not need it

    wrong = InputError(f"a collector's address is https://host[:port][/path], got {shown(url)}.")
    if not isinstance(url, str) or not url.isascii() or not url.isprintable() or " " in url:
        raise wrong
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise wrong from None
    extra = parts.fragment or (parts.query and not query)
    if parts.scheme not in PORTS or not parts.hostname or "@" in parts.netloc or extra:
        raise wrong
    origin = Origin(parts.scheme, parts.hostname, port or PORTS[parts.scheme])
    return origin, parts.path + (f"?{parts.query}" if parts.query else "")


def redirected_path(here: Origin, path: str, location: str | None) -> str:
    """Return the path on the same host that a redirect leads to; no other host will do."""
    from urllib.parse import urljoin

    if not location:
        raise TransportError("the collector redirects to nowhere.")
    try:
        origin, target = parse_address(urljoin(f"{here}{path}", location), query=True)
    except (InputError, ValueError):
        raise TransportError("the collector redirects to no usable address.") from None
    if origin != here:
        raise TransportError(
            f"the collector redirects to {shown(origin.host)}, which is somewhere else;"
            " not followed."
        )
    return target
