"""Probes of a collector's addresses, and checks of the responses."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import SplitResult, urlsplit

from shoal import __version__
from shoal.errors import InputError
from shoal.server.core.problems import CLOCK_HELD
from shoal.server.doctor import Finding
from shoal.support.checks import is_loopback, shown
from shoal.support.files import first_line

__all__ = ["check_console", "check_public"]

_PATIENCE = 5.0
_LARGEST = 1 << 20
_CLOCK_SLACK = 120
_CERTIFICATE_DAYS = 14
_TALKATIVE = ("Server", "Via", "X-Powered-By")


@dataclass(frozen=True)
class _Answer:
    status: int
    headers: dict[str, str]
    body: bytes
    certificate_ends: float | None
    """When the certificate of a TLS connection ends, in seconds since 1970."""


def check_public(url: str, key: str | None, clock: Callable[[], float]) -> Iterator[Finding]:
    """Check the address that devices use; `key` is the collector's public key, if it is known."""
    split = _split(url)
    if split.scheme == "http" and not is_loopback(split.hostname or ""):
        yield Finding(
            "TLS", "fail", f"Reports to {url} are sent without encryption.",
            "Put a proxy with TLS in front of the collector.",
        )  # fmt: skip
    try:
        answer = _ask(url, "/v1/keys")
        console = _ask(url, "/healthz")
    except (OSError, HTTPException) as error:
        yield _silent("public listener", url, error)
        return
    yield _keys(url, key, answer)
    if split.scheme == "https":
        yield _tls(answer, clock())
    elif is_loopback(split.hostname or ""):
        yield Finding(
            "TLS", "warn", f"{url} is this machine's own address, so TLS was not checked.",
            "Name the address that devices use: --url https://...",
        )  # fmt: skip
    yield from _headers(answer)
    yield from _date(answer, clock())
    if console.status == 200:
        yield Finding(
            "console", "fail", f"The console answers at the public address {url}.",
            "Let the proxy forward the public listener only.",
        )  # fmt: skip


def check_console(url: str) -> Iterator[Finding]:
    """Check the console's listener."""
    split = _split(url)
    try:
        ready, about = _ask(url, "/readyz"), _ask(url, "/openapi.json")
    except (OSError, HTTPException) as error:
        yield _silent("console listener", url, error)
        return
    if ready.status == 200:
        yield Finding("console listener", "ok", f"{url} answers, and reports are accepted.")
    else:
        why = _document(ready).get("title", "")
        way_out = "Check its log, the disk space and the folder's permissions."
        if _document(ready).get("type") == f"urn:shoal:problem:{CLOCK_HELD.name}":
            way_out = "Correct the clock, or trust it: POST /v1/clock/accept."
        yield Finding(
            "console listener", "fail", f"{url} says that no reports are accepted. {why}".strip(),
            way_out,
        )  # fmt: skip
    if split.scheme == "http" and not is_loopback(split.hostname or ""):
        yield Finding(
            "console TLS", "fail", f"Tokens to {url} are sent without encryption.",
            "Use a tunnel (ssh -L), or a proxy with TLS.",
        )  # fmt: skip
    running = _version(about)
    if running is None:
        yield Finding(
            "version", "warn", f"The server at {url} does not report its version.",
            "Check that the address is the console's.",
        )  # fmt: skip
    elif running != __version__:
        yield Finding(
            "version", "warn", f"Shoal {running} is running, {__version__} is installed here.",
            "Restart the collector.",
        )  # fmt: skip
    else:
        yield Finding("version", "ok", f"Shoal {running} is running and installed.")


def _split(url: str) -> SplitResult:
    try:
        split = urlsplit(url)
        _ = split.port
    except ValueError:
        split = SplitResult("", "", "", "", "")
    if split.scheme not in ("http", "https") or not split.hostname or "@" in split.netloc:
        raise InputError(f"an address is https://host[:port][/path], got {shown(url)}.")
    return split


def _ask(url: str, path: str) -> _Answer:
    """Ask for one document, on a connection of its own."""
    split = _split(url)
    kind = HTTPSConnection if split.scheme == "https" else HTTPConnection
    connection = kind(split.hostname or "", split.port, timeout=_PATIENCE)
    try:
        connection.connect()
        ends = None
        if isinstance(connection.sock, ssl.SSLSocket):
            certificate = connection.sock.getpeercert() or {}
            ends = float(ssl.cert_time_to_seconds(str(certificate["notAfter"])))
        connection.request("GET", split.path.rstrip("/") + path)
        with connection.getresponse() as answer:
            headers = {name.lower(): value for name, value in answer.getheaders()}
            return _Answer(answer.status, headers, answer.read(_LARGEST), ends)
    finally:
        connection.close()


def _silent(check: str, url: str, error: BaseException) -> Finding:
    if isinstance(error, ssl.SSLCertVerificationError):
        sentence = f"The certificate at {url} is not trusted: {error.verify_message}."
        return Finding("TLS", "fail", sentence, "Get one that devices trust.")
    sentence = f"Nothing answers at {url}: {first_line(error)}."
    option = "--url" if check == "public listener" else "--console-url"
    return Finding(check, "fail", sentence, f"Start the collector, or name its address: {option}.")


def _document(answer: _Answer) -> dict[str, object]:
    try:
        document = json.loads(answer.body)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _keys(url: str, key: str | None, answer: _Answer) -> Finding:
    keys = _document(answer).get("ed25519")
    if answer.status != 200 or not isinstance(keys, list):
        return Finding(
            "public listener", "fail", f"The server at {url} is not a collector.",
            "Let the proxy forward /v1/ to the public listener.",
        )  # fmt: skip
    if key is not None and key not in keys:
        return Finding(
            "public listener", "fail", f"A different collector answers at {url}.",
            "Give the folder and the address of the same collector.",
        )  # fmt: skip
    return Finding("public listener", "ok", f"The collector answers at {url}.")


def _tls(answer: _Answer, now: float) -> Finding:
    assert answer.certificate_ends is not None
    days = int((answer.certificate_ends - now) // 86_400)
    if days < _CERTIFICATE_DAYS:
        sentence = f"The certificate expires in {days} days."
        return Finding("TLS", "warn", sentence, "Renew it, and check why it was not renewed.")
    return Finding("TLS", "ok", f"The certificate is trusted and valid for {days} days.")


def _headers(answer: _Answer) -> Iterator[Finding]:
    if "set-cookie" in answer.headers:
        yield Finding(
            "cookies", "fail", "The responses set a cookie, which identifies devices.",
            "Find the proxy that sets it between the devices and the collector, and remove it.",
        )  # fmt: skip
    else:
        yield Finding("cookies", "ok", "The responses set no cookies.")
    talkative = [name for name in _TALKATIVE if name.lower() in answer.headers]
    if talkative:
        yield Finding(
            "headers", "warn", f"The answers carry {', '.join(talkative)}.",
            "Devices do not need them: remove them in the proxy.",
        )  # fmt: skip
    else:
        yield Finding("headers", "ok", "The answers do not name the software in use.")


def _date(answer: _Answer, now: float) -> Iterator[Finding]:
    """Compare clocks, if a proxy tells its own; the collector tells none."""
    try:
        there = parsedate_to_datetime(answer.headers["date"]).timestamp()
    except (KeyError, ValueError, OverflowError):
        return
    apart = abs(there - now)
    if apart > _CLOCK_SLACK:
        yield Finding(
            "clocks", "fail", f"The clock here and the proxy's differ by {apart:,.0f} s.",
            "Synchronize both with NTP: windows need the time.",
        )  # fmt: skip
    else:
        yield Finding("clocks", "ok", "The clock here and the proxy's agree.")


def _version(answer: _Answer) -> str | None:
    about = _document(answer).get("info")
    version = about.get("version") if isinstance(about, dict) else None
    return version if isinstance(version, str) else None
