"""What can be set at a relay, in one table, read as the collector's settings are."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.server.core.settings import SettingsTable, setting

__all__ = ["RelaySettings"]


@dataclass(frozen=True)
class RelaySettings(SettingsTable):
    """How a relay runs.

    >>> RelaySettings.read({"SHOAL_LARGEST_SHARE": "2"}, patience=5).largest_share
    2
    """

    listen: str = setting(
        "127.0.0.1:8410", "Address for sealed reports: host:port.", is_address=True
    )
    ops: str = setting(
        "127.0.0.1:8411", "Address of health, metrics and crowds: host:port.", is_address=True
    )
    database: str = setting("", "PostgreSQL database that several relays share: postgresql://...")
    origins: str = setting(
        "",
        "Origins of the web pages that may send reports, such as https://page.example; * for all.",
    )
    smallest_crowd: int = setting(100, "Smallest crowd size of a plan.", lowest=1)
    deadline_days: int = setting(
        45,
        "Days after which an incomplete crowd is discarded, and a complete one that the analyzer"
        " does not take; 0 for never.",
    )
    reports_per_request: int = setting(100, "Most reports in one request.", lowest=1)
    largest_share: int = setting(
        1, "Most per cent of a crowd from one connection.", lowest=1, highest=100
    )
    reports_per_second: int = setting(
        0, "Most reports per second from one connection; 0 for no limit."
    )
    largest_body: int = setting(32 << 20, "Largest request, in bytes.", lowest=1024)
    most_waiting: int = setting(
        64, "Most megabytes of reports that wait for the disk.", lowest=1, highest=1 << 20
    )
    most_connections: int = setting(
        2000, "Most connections per listener; the slowest is closed for a new one.", lowest=1
    )
    patience: int = setting(20, "Request timeout in seconds.", lowest=1)
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
    forward_patience: int = setting(
        600, "Seconds that the analyzer may take to answer one chunk.", lowest=1
    )
    forward_alarm: int = setting(
        1800,
        "Seconds without progress in forwarding a complete crowd until /readyz reports it.",
        lowest=1,
    )
    spare_megabytes: int = setting(
        64, "Disk space in MB that must be left beside room for three crowds of a plan."
    )
    log_level: str = setting("info", "Log level.", among=("debug", "info", "warning", "error"))
