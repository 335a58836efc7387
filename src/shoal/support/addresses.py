"""Where a collector is: scheme, host and port, and a path on it."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.errors import InputError, TransportError
from shoal.support.checks import shown

__all__ = ["Origin", "parse_address", "redirected_path"]

PORTS = {"https": 443, "http": 80}


@dataclass(frozen=True)
class Origin:
    """The host that a transport talks to, and how."""

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
