"""Settings of the services; the environment, a file and the command line can set them.

Later sources win: the default, then ``shoal.toml`` in the data folder (or ``--config``), then the
environment (``SHOAL_PUBLIC`` for `public`), then the command's options.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from inspect import get_annotations
from pathlib import Path
from typing import Any, Self

from shoal.errors import InputError
from shoal.support.checks import did_you_mean, shown
from shoal.support.disk import Disk
from shoal.support.files import first_line, read_json

_PREFIX = "SHOAL_"
RESULTS = "results"
"""The folder of the public results, and the first part of their addresses."""
_OTHERS = ("SHOAL_DEBUG", "SHOAL_MEMORY_KEY")
"""Variables of other commands."""


def setting(
    default: Any,
    help: str,
    *,
    lowest: int = 0,
    highest: int = 2**53,
    among: tuple[str, ...] = (),
    is_address: bool = False,
) -> Any:
    """Return the field of a setting: its default, its help and its allowed values."""
    metadata = {"help": help, "lowest": lowest, "highest": highest, "among": among}
    metadata["is_address"] = is_address
    return field(default=default, metadata=metadata)


def _address(default: str, help: str) -> Any:
    return setting(default, f"Address {help}: host:port.", is_address=True)


_UNPROVEN = "Accept plans whose promise is not proven (sufficient, three-sigma)."
_RESULTS = "Serve the releases of plans that were made public, at /results/."
_API = "of the console (API and metrics)"
_ORIGINS = (
    "Origins of the web pages that may send reports, such as https://page.example; * for all."
)
_QUEUE = "Maximum megabytes of reports that wait for the disk."


@dataclass(frozen=True)
class ServiceSettings:
    """The settings of every service; a subclass adds its own, as fields made by `setting`."""

    min_crowd: int = setting(100, "Smallest crowd size of a plan.", lowest=1)
    deadline_days: int = setting(
        90, "Days after which an incomplete crowd is discarded; 0 for never."
    )
    max_connections: int = setting(
        2000, "Maximum connections per listener; the slowest is closed for a new one.", lowest=1
    )
    request_timeout: int = setting(20, "Request timeout in seconds.", lowest=1)
    store_timeout: int = setting(
        10,
        "Seconds that a request waits for the data, and the service for PostgreSQL to respond.",
        lowest=1,
        highest=3600,
    )
    shutdown_timeout: int = setting(
        20,
        "Seconds within which the process exits after SIGTERM, even if the data do not respond.",
        lowest=2,
        highest=3600,
    )
    min_free_megabytes: int = setting(64, "Disk space in MB below which no reports are accepted.")
    notify_webhook: str = setting("", "Webhook for notifications: https://...")
    notify_email: str = setting("", "Mail addresses for notifications, separated by commas.")
    notify_smtp: str = setting(
        "", "Mail server: smtps://[USER@]host[:port], or smtp://... with STARTTLS."
    )
    notify_from: str = setting("", "Mail address that notifications come from.")
    notify_before_days: int = setting(
        7, "Days before its end that an incomplete crowd is announced; 0 for never.",
        highest=3650,
    )  # fmt: skip
    console_url: str = setting("", "Address at which people reach the console, for links to it.")
    log_level: str = setting("info", "Log level.", among=("debug", "info", "warning", "error"))

    def crowd_too_small(self, size: int | None) -> str:
        """Return why a plan with a crowd of this size is refused; empty if it is not."""
        if size is not None and size >= self.min_crowd:
            return ""
        found = "no crowd size; this" if size is None else f"a crowd of {size:,}, and this"
        return f"The plan has {found} service's minimum is {self.min_crowd:,} (see min_crowd)."

    @classmethod
    def _fields(cls) -> list[Field[Any]]:
        """Return the fields of all settings, the most specific ones first."""
        owners = [get_annotations(one) for one in cls.__mro__]
        return sorted(
            fields(cls), key=lambda one: [one.name in names for names in owners].index(True)
        )

    @classmethod
    def read(
        cls, environment: Mapping[str, str], file: Path | None = None, **options: object
    ) -> Self:
        """Read settings from all sources; unknown names and invalid values are errors."""
        known = {one.name: one for one in cls._fields()}
        given: dict[str, object] = {}
        if file is not None:
            given |= _file(file)
        given |= _variables(environment, list(known))
        given |= {name: value for name, value in options.items() if value is not None}
        for name in given:
            if name not in known:
                raise InputError(
                    f"there is no setting {shown(name)}; there are"
                    f" {', '.join(known)}.{did_you_mean(name, known)}"
                )
        return cls(**{name: _checked(known[name], value) for name, value in given.items()})

    @classmethod
    def table(cls) -> list[tuple[str, Any, str]]:
        return [(one.name, one.default, one.metadata["help"]) for one in cls._fields()]


@dataclass(frozen=True)
class SenderLimits:
    """Settings of a service that accepts reports of devices: how much one sender may send."""

    reports_per_request: int = setting(100, "Maximum reports in one request of a device.", lowest=1)
    max_share_percent: int = setting(
        1, "Maximum per cent of a crowd from one connection of a device.", lowest=1, highest=100
    )
    reports_per_second: int = setting(
        0, "Maximum reports per second from one token, or a connection without one; 0: no limit."
    )
    max_body_bytes: int = setting(32 << 20, "Largest request, in bytes.", lowest=1024)


@dataclass(frozen=True)
class Settings(SenderLimits, ServiceSettings):
    """Settings of a collector.

    >>> Settings.read({"SHOAL_INGEST": "token"}, deadline_days=30).ingest
    'token'
    """

    public: str = _address("127.0.0.1:8400", "for reports")
    console: str = _address("127.0.0.1:8401", "of the console")
    database: str = setting(
        "", "PostgreSQL database that several collectors share: postgresql://..."
    )
    workers: int = setting(
        1, "Processes that accept reports; more than one need a database.", lowest=1, highest=64
    )
    ingest: str = setting(
        "open",
        "Who may send reports: open (anyone), or token (apps and relays).",
        among=("open", "token"),
    )
    oblivious: str = setting(
        "off",
        "Oblivious HTTP: off, reports (not for plans for counts), or trusted (for all plans).",
        among=("off", "reports", "trusted"),
    )
    allow_unproven: bool = setting(False, _UNPROVEN)
    public_results: bool = setting(False, _RESULTS)
    max_queued_reports: int = setting(200_000, "Maximum reports that wait for the disk.", lowest=1)


@dataclass(frozen=True)
class AnalyzerSettings(ServiceSettings):
    public: str = _address("127.0.0.1:8400", "for relays")
    console: str = _address("127.0.0.1:8401", "of the console")
    allow_unproven: bool = setting(False, _UNPROVEN)
    public_results: bool = setting(False, _RESULTS)
    opening_processes: int = setting(
        0, "Processes that decrypt a crowd; 0 for one per core.", highest=1024
    )


@dataclass(frozen=True)
class RelaySettings(SenderLimits, ServiceSettings):
    public: str = _address("127.0.0.1:8410", "for encrypted reports")
    console: str = _address("127.0.0.1:8411", _API)
    database: str = setting("", "PostgreSQL database that several relays share: postgresql://...")
    origins: str = setting("", _ORIGINS)
    deadline_days: int = setting(
        45,
        "Days after which an incomplete crowd is discarded, and a complete one that the analyzer"
        " does not take; 0 for never.",
    )
    max_queued_megabytes: int = setting(64, _QUEUE, lowest=1, highest=1 << 20)
    forward_timeout: int = setting(
        600, "Seconds that the analyzer may take to respond to one chunk.", lowest=1
    )
    forward_alarm: int = setting(
        1800,
        "Seconds without progress in forwarding a complete crowd until /readyz reports it.",
        lowest=1,
    )
    min_free_megabytes: int = setting(
        64, "Disk space in MB to keep free in addition to three crowds of a plan."
    )


@dataclass(frozen=True)
class AggregatorSettings(ServiceSettings):
    """Settings of a leader and of a helper."""

    database: str = setting("", "PostgreSQL database with the data: postgresql://...")
    origins: str = setting("", _ORIGINS)
    allow_unproven: bool = setting(False, _UNPROVEN)


@dataclass(frozen=True)
class HelperSettings(AggregatorSettings):
    public: str = _address("127.0.0.1:8430", "for the leader, and for the keys of devices")
    console: str = _address("127.0.0.1:8431", _API)


@dataclass(frozen=True)
class LeaderSettings(SenderLimits, AggregatorSettings):
    public: str = _address("127.0.0.1:8420", "for reports")
    console: str = _address("127.0.0.1:8421", _API)
    max_queued_megabytes: int = setting(64, _QUEUE, lowest=1, highest=1 << 20)
    job_reports: int = setting(
        256, "Reports that are verified with the helper at a time.", lowest=1, highest=10_000
    )
    helper_timeout: int = setting(
        120, "Seconds that the helper may take to respond to one request.", lowest=1
    )


@dataclass(frozen=True)
class AnalystSettings(ServiceSettings):
    """Settings of an analyst who collects from a leader and a helper."""

    console: str = _address("127.0.0.1:8441", "of the console")
    allow_unproven: bool = setting(False, _UNPROVEN)
    collect_seconds: int = setting(
        60, "Seconds between two requests to the leader for a full batch.", lowest=1
    )
    leader_timeout: int = setting(
        60, "Seconds that the leader may take to respond to one request.", lowest=1
    )


def address(text: str) -> tuple[str, int]:
    """Split host:port; an IPv6 host stands in brackets.

    >>> address("[::1]:8400")
    ('::1', 8400)
    """
    host, colon, port = text.rpartition(":")
    if not (host and colon and port.isascii() and port.isdigit() and int(port) < 65_536):
        raise InputError(f"an address is host:port, got {shown(text)}.")
    return host.removeprefix("[").removesuffix("]"), int(port)


def setting_of(name: str, environment: Mapping[str, str], file: Path | None) -> object:
    """Return one setting of any service as it was given; None if it was not."""
    given = {} if file is None else _file(file)
    return environment.get(_PREFIX + name.upper(), given.get(name))


def _variables(environment: Mapping[str, str], known: list[str]) -> dict[str, str]:
    """Return the settings of the environment; a misspelt one must not be passed over."""
    texts = {}
    for variable, text in environment.items():
        if variable.startswith(_PREFIX) and variable not in _OTHERS:
            name = variable.removeprefix(_PREFIX).lower()
            if variable != _PREFIX + name.upper() or name not in known:
                raise InputError(
                    f"the variable {shown(variable)} is no setting; there are"
                    f" {', '.join(_PREFIX + one.upper() for one in known)}."
                )
            texts[name] = text
    return texts


def _file(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InputError(f"cannot read settings {path}: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"settings {path} are not TOML: {first_line(error)}.") from error


def _checked(setting: Any, value: object) -> Any:
    name, limits = setting.name, setting.metadata
    kind = type(setting.default)
    if isinstance(value, str) and kind is not str:
        value = _parsed(name, value, kind)
    if type(value) is not kind:
        raise InputError(f"setting {name} is of type {kind.__name__}, got {shown(value)}.")
    if kind is int and not limits["lowest"] <= value <= limits["highest"]:
        most = f" and at most {limits['highest']}" * (limits["highest"] < 2**53)
        raise InputError(f"setting {name} must be at least {limits['lowest']}{most}, got {value}.")
    if limits["among"] and value not in limits["among"]:
        raise InputError(f"setting {name} is {' or '.join(limits['among'])}, got {shown(value)}.")
    if limits["is_address"]:
        address(str(value))
    return value


def _parsed(name: str, text: str, kind: type) -> object:
    if kind is bool and text.lower() in ("true", "false", "1", "0"):
        return text.lower() in ("true", "1")
    if kind is int and text.isascii() and text.isdigit():
        return int(text[:20])
    raise InputError(f"setting {name} is of type {kind.__name__}, got {shown(text)}.")


ADDRESSES_FILE = "addresses.json"


def write_addresses(folder: Path, urls: dict[str, str]) -> None:
    Disk().store(folder / ADDRESSES_FILE, json.dumps(urls).encode(), f"{ADDRESSES_FILE}.part")


def remove_addresses(folder: Path) -> None:
    (folder / ADDRESSES_FILE).unlink(missing_ok=True)


def read_addresses(folder: Path) -> dict[str, str]:
    """Return the stored URLs; none if they cannot be read."""
    try:
        document = read_json(folder / ADDRESSES_FILE, "list of addresses", InputError)
    except InputError:
        return {}
    if not isinstance(document, dict):
        return {}
    return {name: url for name, url in document.items() if isinstance(url, str)}


def own_url(where: str) -> str:
    """Return the URL at which this machine reaches an address that a collector listens at.

    >>> own_url("0.0.0.0:8400"), own_url("[::]:8400")
    ('http://127.0.0.1:8400', 'http://[::1]:8400')
    """
    host, port = address(where)
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104  asked, not bound
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
