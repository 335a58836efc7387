"""Runs all checks of a deployment: folder, settings, clock, listeners and proxies."""

from __future__ import annotations

import json
import os
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from ipaddress import ip_address
from pathlib import Path

from shoal import __version__
from shoal.errors import InputError, ShoalError, TransportError
from shoal.protocol.plan import ONE_OPERATOR
from shoal.server.core.notifications import WEBHOOK_SECRET, try_channels
from shoal.server.core.parties import read_agreement
from shoal.server.core.problems import CLOCK_HELD
from shoal.server.core.settings import (
    RESULTS,
    AnalystSettings,
    AnalyzerSettings,
    HelperSettings,
    LeaderSettings,
    RelaySettings,
    SenderLimits,
    ServiceSettings,
    Settings,
    address,
    own_url,
    read_addresses,
    setting_of,
)
from shoal.server.doctor import Finding, fail, ok, warn
from shoal.server.doctor.data_folder import check_folder, public_key, registered_relays, role_of
from shoal.server.doctor.proxies import check_proxy
from shoal.support.checks import is_loopback
from shoal.support.connections import connected, parse_address
from shoal.support.files import first_line

_WRITTEN = 1_767_225_600
"""The beginning of 2026, when this was written: no clock that is right shows less."""

_CLOCK_SLACK = 300

_LARGE_SHARE = 10
"""Per cent of a crowd; a sender with more than that dominates a release."""


def examine(
    folder: Path,
    *,
    url: str | None = None,
    console_url: str | None = None,
    proxies: Sequence[Path] = (),
    config: Path | None = None,
    database: str | None = None,
    environment: Mapping[str, str] | None = None,
    clock: Callable[[], float] = time.time,
) -> list[Finding]:
    """Check a deployment and return the findings in the order of the checks.

    `url` is where devices reach it, through the proxy, and `console_url` where people reach the
    console; by default its own addresses. `proxies` are configurations of nginx or Caddy. Settings
    are read from `config`, by default in the folder, and from the environment; `database` is the
    PostgreSQL database if the service was started with that option.
    """
    given = dict(os.environ if environment is None else environment)
    if database is not None:
        given["SHOAL_DATABASE"] = database
    settings, findings = _settings(folder, config, given)
    database_url = getattr(settings, "database", "")
    findings += check_folder(folder, settings.min_free_megabytes, database_url)
    findings.append(_clock(folder, clock()))
    findings += _addresses(settings, url, bool(proxies))
    if isinstance(settings, SenderLimits):
        findings.append(_limits(settings, bool(proxies)))
    if not isinstance(settings, Settings):
        findings.append(_parties(folder, registered_relays(folder)))
    findings += _notifications(settings, folder)
    for path in proxies:
        findings += check_proxy(path)
    configured = {name: own_url(where) for name, where in _listeners(settings).items()}
    running = configured | read_addresses(folder)
    # A relay's address shows the keys of its analyzer.
    key = None if isinstance(settings, RelaySettings) else public_key(folder)
    if "public" in configured:
        findings += check_public(url or running["public"], key, clock)
    if (folder / RESULTS).is_dir():  # it is there if, and only if, they are served
        findings.append(check_results(url or running["public"]))
    findings += check_console(console_url or running["console"])
    return findings


def _file(folder: Path, config: Path | None) -> Path | None:
    if config is None and os.access(folder / "shoal.toml", os.F_OK):
        return folder / "shoal.toml"
    return config


def _listeners(settings: ServiceSettings) -> dict[str, str]:
    names = ("public", "console")
    return {name: getattr(settings, name) for name in names if hasattr(settings, name)}


def read_settings(
    folder: Path, config: Path | None, environment: Mapping[str, str]
) -> ServiceSettings:
    """Read the settings of the service whose data are in a folder or in its database."""
    role = _role(folder, config, environment)
    return _TABLES[role].read(environment, _file(folder, config))


_TABLES: dict[str, type[ServiceSettings]] = {
    "collector": Settings,
    "relay": RelaySettings,
    "analyzer": AnalyzerSettings,
    "leader": LeaderSettings,
    "helper": HelperSettings,
    "analyst": AnalystSettings,
}
_COMMANDS = {"collector": "serve", "analyst": "collect"}
"""The command of a service that has not its role's name."""


def _role(folder: Path, config: Path | None, environment: Mapping[str, str]) -> str:
    found = role_of(folder)
    with suppress(InputError):  # it is reported when the settings are read
        url = setting_of("database", environment, _file(folder, config))
        if found is None and isinstance(url, str) and url:
            found = role_of(folder, url)
    return found if found in _TABLES else "collector"


def _settings(
    folder: Path, config: Path | None, environment: Mapping[str, str]
) -> tuple[ServiceSettings, list[Finding]]:
    try:
        settings = read_settings(folder, config, environment)
    except InputError as error:
        sentence = f"The settings cannot be read: {first_line(error)}."
        role = _role(folder, config, environment)
        way_out = f"Fix the settings; see shoal {_COMMANDS.get(role, role)} -h."
        return _TABLES[role](), [fail("settings", sentence, way_out)]
    if getattr(settings, "allow_unproven", False):
        sentence = "Plans whose promise is not proven are accepted (allow_unproven)."
        return settings, [warn("settings", sentence, "Use allow_unproven for trials only.")]
    return settings, [ok("settings", "The settings can be read.")]


def _notifications(settings: ServiceSettings, folder: Path) -> Iterator[Finding]:
    way_out = f"Fix it, then send a notice: shoal collector notify {folder}"
    if settings.notify_webhook and not (folder / WEBHOOK_SECRET).exists():
        sentence = f"There is no {WEBHOOK_SECRET} in {folder}."
        yield fail("notifications", sentence, "Start the service once; it makes one.")
        return
    try:
        failures = try_channels(settings, folder, send=False)
    except InputError as error:
        yield fail("notifications", f"They cannot be sent: {first_line(error)}.", way_out)
        return
    for channel, failure in failures.items():
        if failure:
            yield fail("notifications", f"By {channel}: {failure}", way_out)
        else:
            yield ok("notifications", f"The receiver of notices by {channel} can be reached.")


def _clock(folder: Path, now: float) -> Finding:
    is_readable = os.access(folder, os.R_OK | os.X_OK) and folder.is_dir()
    existing = [path for path in folder.iterdir() if path.exists()] if is_readable else []
    newest = max((path.stat().st_mtime for path in existing), default=0.0)
    if now < _WRITTEN:
        sentence = f"The clock says {_day(now)}, which is before this program was written."
    elif newest > now + _CLOCK_SLACK:
        sentence = f"The clock says {_day(now)}, and the data were changed on {_day(newest)}."
    else:
        return ok("clock", f"The clock says {_day(now)}, after the last change.")
    return fail("clock", sentence, "Set the clock and synchronize it with NTP: windows need it.")


def _day(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))


def _addresses(settings: ServiceSettings, url: str | None, with_proxy: bool) -> Iterator[Finding]:
    behind = with_proxy or (url or "").startswith("https://")
    for name, where in _listeners(settings).items():
        host, check = address(where)[0], f"{name} address"
        if is_loopback(host):
            yield ok(check, f"{where} is only reachable from this machine.")
        elif behind and not _is_global(host):
            way_out = "Let only the proxy reach it: a firewall, or a network of its own."
            yield warn(check, f"{where} can be reached from other machines.", way_out)
        else:
            way_out = f"Set {name} = 127.0.0.1:PORT, and put a proxy in front of it."
            yield fail(check, f"{where} can be reached from outside, without TLS.", way_out)


def _limits(settings: SenderLimits, with_proxy: bool) -> Finding:
    """Check the limits that keep one sender from filling a crowd alone."""
    needs_token = isinstance(settings, Settings) and settings.ingest == "token"
    who = "Only apps and relays with a token" if needs_token else "Anyone"
    sentence = (
        f"{who} may send reports: {settings.reports_per_request:,} a request, and"
        f" {settings.max_share_percent} % of a crowd from one request or connection; relays more."
    )
    if settings.max_share_percent > _LARGE_SHARE:
        return warn("limits", sentence, f"Set max_share_percent to {_LARGE_SHARE} or less.")
    if not needs_token and not with_proxy:
        sentence = f"{sentence} Limits per address were not checked."
        return warn("limits", sentence, "Name the proxy's configuration: --proxy FILE.")
    return ok("limits", sentence)


def _parties(folder: Path, registered: int | None) -> Finding:
    """Say who the other party is; `registered` is how many relays an analyzer knows."""
    command = f"shoal parties setup --data {folder} --other FILE"
    try:
        agreement = read_agreement(folder)
    except ShoalError as error:
        return fail("parties", f"{first_line(error)}.", f"Get the file again: {command}")
    if agreement is None or agreement.missing:
        return warn("parties", "This party does not know the others yet.", command)
    if registered == 0:
        sentence = "The relay has not been registered since the setup, or its token was revoked."
        way_out = f"Start the analyzer, or get a new public file of the relay: {command}"
        return warn("parties", sentence, way_out)
    sentence = " ".join(
        f"The {one.role} is {one.name}, {one.url}, {one.fingerprint}."
        for one in agreement.others.values()
    )
    if agreement.own.mark is None:
        return ok("parties", sentence)
    way_out = "Let two operators run shoal parties setup, each on a machine of their own."
    return warn("parties", f"{ONE_OPERATOR.capitalize()}. {sentence}", way_out)


def _is_global(host: str) -> bool:
    try:
        return ip_address(host).is_global
    except ValueError:
        return False


_TIMEOUT = 5.0
_LARGEST = 1 << 20
_PROXY_CLOCK_SLACK = 120
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
    origin, _ = parse_address(url)
    is_local = is_loopback(origin.host)
    if origin.scheme == "http" and not is_local:
        sentence = f"Reports to {url} are sent without encryption."
        yield fail("TLS", sentence, "Put a proxy with TLS in front of the collector.")
    try:
        keys = _ask(url, "/v1/keys")
        console = _ask(url, "/healthz")
    except TransportError as error:
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
    except TransportError as error:
        return _silent("public results", url, error, "--url")
    if status != 200:
        sentence = f"The public results are not at {url}/results/: the response was {status}."
        return warn("public results", sentence, "Let the proxy forward /results/ too.")
    return ok("public results", f"Everybody can read them at {url}/results/.")


def check_console(url: str) -> Iterator[Finding]:
    origin, _ = parse_address(url)
    try:
        ready, about = _ask(url, "/readyz"), _ask(url, "/openapi.json")
    except TransportError as error:
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
    if origin.scheme == "http" and not is_loopback(origin.host):
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


def _ask(url: str, path: str) -> _Probe:
    origin, start = parse_address(url)
    with connected(origin, _TIMEOUT) as connection:
        ends = None
        if isinstance(connection.sock, ssl.SSLSocket):
            certificate = connection.sock.getpeercert() or {}
            ends = float(ssl.cert_time_to_seconds(str(certificate["notAfter"])))
        connection.request("GET", start.rstrip("/") + path)
        with connection.getresponse() as response:
            headers = {name.lower(): value for name, value in response.getheaders()}
            return _Probe(response.status, headers, response.read(_LARGEST), ends)


def _silent(check: str, url: str, error: TransportError, option: str) -> Finding:
    cause = error.__cause__ or error
    if isinstance(cause, ssl.SSLCertVerificationError):
        sentence = f"The certificate at {url} is not trusted: {cause.verify_message}."
        return fail("TLS", sentence, "Get one that devices trust.")
    sentence = f"Nothing answers at {url}: {first_line(cause)}."
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
    if apart > _PROXY_CLOCK_SLACK:
        sentence = f"The clock here and the proxy's differ by {apart:,.0f} s."
        yield fail("clocks", sentence, "Synchronize both with NTP: windows need the time.")
    else:
        yield ok("clocks", "The clock here and the proxy's agree.")
