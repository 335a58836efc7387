"""Checks a collector's deployment: its folder, its clock, what listens, and the proxy before it.

Each check gives a verdict with a sentence and a way out. Nothing is changed, and nothing is said
about an open crowd.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from ipaddress import ip_address
from pathlib import Path

from shoal._files import first_line
from shoal.collector.database import NAME, VERSION
from shoal.collector.findings import Finding, Verdict, worst
from shoal.collector.proxies import check_proxy
from shoal.collector.reaching import check_console, check_public, is_loopback
from shoal.collector.settings import Settings, address
from shoal.collector.signing import KEY_FILE, Signer
from shoal.errors import InputError, ShoalError

__all__ = ["Finding", "Verdict", "examine", "worst"]

_WRITTEN = 1_767_225_600
"""The beginning of 2026, when this was written: no clock that is right shows less."""

_CLOCK_SLACK = 300
_OLDEST_SQLITE = (3, 35, 0)
_SECRETS = (NAME, f"{NAME}-wal", f"{NAME}-shm", KEY_FILE, "admin-token")
_NETWORK = (
    *("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "lustre", "beegfs", "glusterfs"),
    *("fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.rclone", "fuse.ceph", "virtiofs"),
)
_FLEETING = ("tmpfs", "ramfs")


def examine(
    folder: Path,
    *,
    url: str | None = None,
    console_url: str | None = None,
    proxies: Sequence[Path] = (),
    config: Path | None = None,
    environment: Mapping[str, str] | None = None,
    clock: Callable[[], float] = time.time,
) -> list[Finding]:
    """Check a deployment and return what was found, in the order in which it is looked at.

    Parameters
    ----------
    folder
        The collector's data.
    url
        Where devices reach it from outside, through the proxy; by default its own address.
    console_url
        Where people reach the console; by default its own address.
    proxies
        Configurations of nginx or Caddy to read.
    config
        The collector's settings, if they are not in the folder.
    environment
        Where settings are read from beside the file.
    clock
        Seconds since 1970.
    """
    findings = list(_folder(folder))
    settings, problem = _settings(
        folder, config, os.environ if environment is None else environment
    )
    if problem is not None:
        findings.append(problem)
    key = None
    if folder.is_dir():
        findings += _files(folder)
        findings += _disk(folder, settings)
        key, found = _key(folder)
        findings += [_file_system(folder), found, *_database(folder)]
    findings += _clock(folder, clock())
    findings += _addresses(settings, url, bool(proxies))
    for path in proxies:
        findings += check_proxy(path)
    findings += check_public(url or _own_url(settings.public), key, clock)
    findings += check_console(console_url or _own_url(settings.console))
    return findings


def _folder(folder: Path) -> Iterator[Finding]:
    if not folder.is_dir():
        yield Finding(
            "folder", "fail", f"{folder} is not a folder.", "Name the one given to shoal serve."
        )
        return
    yield _private(folder, "folder", 0o700)


def _private(path: Path, check: str, wanted: int) -> Finding:
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        sentence = f"Other users of this machine may look at {path} (mode {mode:04o})."
        return Finding(check, "fail", sentence, f"chmod {wanted:o} {path}")
    return Finding(check, "ok", f"Only its owner may look at {path}.")


def _settings(
    folder: Path, config: Path | None, environment: Mapping[str, str]
) -> tuple[Settings, Finding | None]:
    file = config or (folder / "shoal.toml" if (folder / "shoal.toml").exists() else None)
    try:
        return Settings.read(environment, file), None
    except InputError as error:
        sentence = f"The settings cannot be read: {first_line(error)}."
        return Settings(), Finding("settings", "fail", sentence, "Mend them; see shoal serve -h.")


def _files(folder: Path) -> Iterator[Finding]:
    for name in _SECRETS:
        if (folder / name).exists():
            yield _private(folder / name, name, 0o600)
    owners = {path.stat().st_uid for path in [folder, *folder.iterdir()] if path.exists()}
    if len(owners) > 1:
        yield Finding(
            "owner",
            "fail",
            f"The files in {folder} belong to {len(owners)} users, and one of them runs it.",
            f"chown -R that user {folder}",
        )


def _disk(folder: Path, settings: Settings) -> Iterator[Finding]:
    free, spare = shutil.disk_usage(folder).free >> 20, settings.spare_megabytes
    sentence = f"{free:,} MB are free; below {spare:,} MB no reports are taken."
    verdict: Verdict = "fail" if free < spare else "warn" if free < max(10 * spare, 1024) else "ok"
    yield Finding("disk", verdict, sentence, "" if verdict == "ok" else "Make room.")


def _file_system(folder: Path) -> Finding:
    kind = _kind_of_file_system(folder)
    if kind is None:
        return Finding(
            "file system",
            "warn",
            "This system does not tell on which kind of file system the data are.",
            "See that it is a local one: locks and syncs do not hold over a network.",
        )
    if kind in _NETWORK:
        return Finding(
            "file system",
            "fail",
            f"The data are on a network file system ({kind}), where locks and syncs may not hold.",
            "Move them to a local disk.",
        )
    if kind in _FLEETING:
        return Finding(
            "file system",
            "fail",
            f"The data are in memory ({kind}) and gone when the machine stops.",
            "Move them to a disk.",
        )
    if kind == "overlay":
        return Finding(
            "file system",
            "warn",
            "The data are in a container's own layer and go with the container.",
            "Mount a volume there.",
        )
    return Finding("file system", "ok", f"The data are on a local file system ({kind}).")


def _kind_of_file_system(folder: Path, table: str = "/proc/self/mountinfo") -> str | None:
    """Return the kind of file system that the last mount over the folder has, on Linux."""
    try:
        lines = Path(table).read_text("utf-8", "replace").splitlines()
    except OSError:
        return None
    place, found = folder.resolve(), None
    depth = -1
    for line in lines:
        before, _, after = line.partition(" - ")
        # Spaces and the like are written as octal numbers there.
        mount = Path(before.split()[4].encode().decode("unicode_escape"))
        if (place == mount or mount in place.parents) and len(mount.parts) >= depth:
            depth, found = len(mount.parts), after.split()[0]
    return found


def _key(folder: Path) -> tuple[str | None, Finding]:
    """Return the public key of the collector, so that its addresses can be recognized."""
    if not (folder / KEY_FILE).exists():
        return None, Finding(
            "signing key",
            "fail",
            f"There is no {KEY_FILE} in {folder}; devices would not know a new one.",
            "Start the collector once, or restore a backup.",
        )
    try:
        return Signer(folder).public_key, Finding("signing key", "ok", "It can be read.")
    except ShoalError as error:
        return None, Finding("signing key", "fail", f"{first_line(error)}.", "Restore a backup.")


def _database(folder: Path) -> Iterator[Finding]:
    version = ".".join(map(str, sqlite3.sqlite_version_info))
    if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
        yield Finding("SQLite", "warn", f"SQLite {version} is from before 2021.", "Update it.")
    else:
        yield Finding("SQLite", "ok", f"SQLite is of version {version}.")
    path = folder / NAME
    if not path.exists():
        yield Finding("data", "fail", f"There is no {NAME} in {folder}.", "Start it once.")
        return
    if hasattr(os, "geteuid") and path.stat().st_uid != os.geteuid():
        # SQLite may make a file beside the database, which its owner could then not open.
        yield Finding(
            "data", "fail", "The data belong to another user, so they are not opened.",
            f"Run it as their owner: sudo -u {_owner(path)} shoal doctor ...",
        )  # fmt: skip
        return
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
            found = database.execute("PRAGMA user_version").fetchone()[0]
            journal = database.execute("PRAGMA journal_mode").fetchone()[0]
            damage = database.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.Error as error:
        yield Finding("data", "fail", f"They cannot be read: {error}.", "Restore a backup.")
        return
    if found != VERSION:
        sentence = f"The data are of version {found}, this Shoal reads version {VERSION}."
        yield Finding("data", "fail", sentence, "Use the Shoal that wrote them, or a newer one.")
    elif damage != "ok":
        yield Finding("data", "fail", f"They are damaged: {damage}.", "Restore a backup.")
    elif journal != "wal":
        sentence = f"The database keeps a journal of kind {journal}, not a write-ahead log."
        yield Finding("data", "warn", sentence, "Start the collector; it changes that.")
    else:
        yield Finding("data", "ok", f"They are whole, of version {found}, with a write-ahead log.")


def _owner(path: Path) -> str:
    try:
        return path.owner()
    except (KeyError, NotImplementedError):
        return str(path.stat().st_uid)


def _clock(folder: Path, now: float) -> Iterator[Finding]:
    newest = max((path.stat().st_mtime for path in _existing(folder)), default=0.0)
    if now < _WRITTEN:
        sentence = f"The clock says {_day(now)}, which is before this program was written."
    elif newest > now + _CLOCK_SLACK:
        sentence = f"The clock says {_day(now)}, and the data were changed on {_day(newest)}."
    else:
        yield Finding("clock", "ok", f"The clock says {_day(now)}, after the last change.")
        return
    yield Finding("clock", "fail", sentence, "Set the clock and let NTP keep it: windows need it.")


def _existing(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.exists()] if folder.is_dir() else []


def _day(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))


def _addresses(settings: Settings, url: str | None, with_proxy: bool) -> Iterator[Finding]:
    behind = with_proxy or (url or "").startswith("https://")
    for name in ("public", "console"):
        where = getattr(settings, name)
        host = address(where)[0]
        if is_loopback(host):
            yield Finding(f"{name} address", "ok", f"{where} is this machine's own.")
        elif behind and not _is_global(host):
            yield Finding(
                f"{name} address", "warn", f"{where} can be reached from other machines.",
                "Let only the proxy reach it: a firewall, or a network of its own.",
            )  # fmt: skip
        else:
            yield Finding(
                f"{name} address", "fail", f"{where} can be reached from outside, without TLS.",
                f"Set {name} = 127.0.0.1:PORT, and a proxy before it.",
            )  # fmt: skip


def _own_url(where: str) -> str:
    """Return the URL at which this machine reaches an address that a collector listens at.

    >>> _own_url("0.0.0.0:8400"), _own_url("[::]:8400")
    ('http://127.0.0.1:8400', 'http://[::1]:8400')
    """
    host, port = address(where)
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104  asked, not bound
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _is_global(host: str) -> bool:
    try:
        return ip_address(host).is_global
    except ValueError:
        return False
