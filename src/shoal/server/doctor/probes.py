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
from shoal.server.doctor import Finding, fail, ok, warn
from shoal.support.checks import is_loopback, shown
from shoal.support.files import first_line

_TIMEOUT = 5.0
_LARGEST = 1 << 20
_CLOCK_SLACK = 120
_CERTIFICATE_DAYS = 14
_TALKATIVE = ("Server", "Via", "X-Powered-By")


@dataclass(frozen=True)
class _Probe:
    """A response; `certificate_ends` is the expiry of the TLS certificate, in seconds."""

    status: int
    headers: dict[str, str]
    body: bytes
    certificate_ends: float | None

    @property
    def document(self) -> dict[str, object]:
        """The JSON object in the body; empty if there is none."""
        try:
            document = json.loads(self.body)
        except (ValueError, RecursionError):
            return {}
        return document if isinstance(document, dict) else {}


def check_public(url: str, key: str | None, clock: Callable[[], float]) -> Iterator[Finding]:
    """Check the address that devices use; `key` is the collector's public key, if it is known."""
    split = _split(url)
    is_local = is_loopback(split.hostname or "")
    if split.scheme == "http" and not is_local:
        sentence = f"Reports to {url} are sent without encryption."
        yield fail("TLS", sentence, "Put a proxy with TLS in front of the collector.")
    try:
        keys = _ask(url, "/v1/keys")
        console = _ask(url, "/healthz")
    except (OSError, HTTPException) as error:
        yield _silent("public listener", url, error, "--url")
        return
    yield _keys(url, key, keys)
    if keys.certificate_ends is not None:
        yield _tls(keys.certificate_ends, clock())
    elif is_local:
        sentence = f"{url} is this machine's own address, so TLS was not checked."
        yield warn("TLS", sentence, "Name the address that devices use: --url https://...")
    yield from _headers(keys)
    yield from _date(keys, clock())
    if console.status == 200:
        sentence = f"The console answers at the public address {url}."
        yield fail("console", sentence, "Let the proxy forward the public listener only.")


def check_results(url: str) -> Finding:
    """Check that everybody can read the public results at the address that devices use."""
    try:
        status = _ask(url, "/results/").status
    except (OSError, HTTPException) as error:
        return _silent("public results", url, error, "--url")
    if status != 200:
        sentence = f"The public results are not at {url}/results/: the response was {status}."
        return warn("public results", sentence, "Let the proxy forward /results/ too.")
    return ok("public results", f"Everybody can read them at {url}/results/.")


def check_console(url: str) -> Iterator[Finding]:
    split = _split(url)
    try:
        ready, about = _ask(url, "/readyz"), _ask(url, "/openapi.json")
    except (OSError, HTTPException) as error:
        yield _silent("console listener", url, error, "--console-url")
        return
    if ready.status == 200:
        yield ok("console listener", f"{url} answers, and reports are accepted.")
    else:
        sentence = f"{url} says that no reports are accepted. {ready.document.get('title', '')}"
        way_out = "Check its log, the disk space and the folder's permissions."
        if ready.document.get("type") == f"urn:shoal:problem:{CLOCK_HELD.name}":
            way_out = "Correct the clock, or trust it: POST /v1/clock/accept."
        yield fail("console listener", sentence.strip(), way_out)
    if split.scheme == "http" and not is_loopback(split.hostname or ""):
        sentence = f"Tokens to {url} are sent without encryption."
        yield fail("console TLS", sentence, "Use a tunnel (ssh -L), or a proxy with TLS.")
    info = about.document.get("info")
    running = info.get("version") if isinstance(info, dict) else None
    if not isinstance(running, str):
        sentence = f"The server at {url} does not report its version."
        yield warn("version", sentence, "Check that the address is the console's.")
    elif running != __version__:
        sentence = f"Shoal {running} is running, {__version__} is installed here."
        yield warn("version", sentence, "Restart the collector.")
    else:
        yield ok("version", f"Shoal {running} is running and installed.")


def _split(url: str) -> SplitResult:
    try:
        split = urlsplit(url)
        _ = split.port
    except ValueError:
        split = SplitResult("", "", "", "", "")
    if split.scheme not in ("http", "https") or not split.hostname or "@" in split.netloc:
        raise InputError(f"an address is https://host[:port][/path], got {shown(url)}.")
    return split


def _ask(url: str, path: str) -> _Probe:
    """Ask for one document, on a connection of its own."""
    split = _split(url)
    kind = HTTPSConnection if split.scheme == "https" else HTTPConnection
    connection = kind(split.hostname or "", split.port, timeout=_TIMEOUT)
    try:
        connection.connect()
        ends = None
        if isinstance(connection.sock, ssl.SSLSocket):
            certificate = connection.sock.getpeercert() or {}
            ends = float(ssl.cert_time_to_seconds(str(certificate["notAfter"])))
        connection.request("GET", split.path.rstrip("/") + path)
        with connection.getresponse() as response:
            headers = {name.lower(): value for name, value in response.getheaders()}
            return _Probe(response.status, headers, response.read(_LARGEST), ends)
    finally:
        connection.close()


def _silent(check: str, url: str, error: BaseException, option: str) -> Finding:
    if isinstance(error, ssl.SSLCertVerificationError):
        sentence = f"The certificate at {url} is not trusted: {error.verify_message}."
        return fail("TLS", sentence, "Get one that devices trust.")
    sentence = f"Nothing answers at {url}: {first_line(error)}."
    return fail(check, sentence, f"Start the collector, or name its address: {option}.")


def _keys(url: str, key: str | None, probe: _Probe) -> Finding:
    keys = probe.document.get("ed25519")
    if probe.status != 200 or not isinstance(keys, list):
        sentence = f"The server at {url} is not a collector."
        way_out = "Let the proxy forward /v1/ to the public listener."
        return fail("public listener", sentence, way_out)
    if key is not None and key not in keys:
        sentence = f"A different collector answers at {url}."
        way_out = "Give the folder and the address of the same collector."
        return fail("public listener", sentence, way_out)
    return ok("public listener", f"The collector answers at {url}.")


def _tls(certificate_ends: float, now: float) -> Finding:
    days = int((certificate_ends - now) // 86_400)
    if days < _CERTIFICATE_DAYS:
        sentence = f"The certificate expires in {days} days."
        return warn("TLS", sentence, "Renew it, and check why it was not renewed.")
    return ok("TLS", f"The certificate is trusted and valid for {days} days.")


def _headers(probe: _Probe) -> Iterator[Finding]:
    if "set-cookie" in probe.headers:
        yield fail(
            "cookies",
            "The responses set a cookie, which identifies devices.",
            "Find the proxy that sets it between the devices and the collector, and remove it.",
        )
    else:
        yield ok("cookies", "The responses set no cookies.")
    talkative = [name for name in _TALKATIVE if name.lower() in probe.headers]
    server = probe.headers.get("server", "")
    if server.isascii() and server.isalpha():  # nginx cannot be told to leave its name out
        talkative.remove("Server")
    if talkative:
        sentence = f"The responses carry {', '.join(talkative)}."
        yield warn("headers", sentence, "Devices do not need them: remove them in the proxy.")
    else:
        yield ok("headers", "The responses name no version of the software in use.")


def _date(probe: _Probe, now: float) -> Iterator[Finding]:
    """Compare clocks, if a proxy tells its own; the collector tells none."""
    try:
        there = parsedate_to_datetime(probe.headers["date"]).timestamp()
    except (KeyError, ValueError, OverflowError):
        return
    apart = abs(there - now)
    if apart > _CLOCK_SLACK:
        sentence = f"The clock here and the proxy's differ by {apart:,.0f} s."
        yield fail("clocks", sentence, "Synchronize both with NTP: windows need the time.")
    else:
        yield ok("clocks", "The clock here and the proxy's agree.")
