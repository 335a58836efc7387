"""The PostgreSQL database of a collector: whether it answers, fits, and is reached in secret."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from shoal.errors import ShoalError
from shoal.server.core.clock import STEP
from shoal.server.doctor.findings import Finding
from shoal.server.storage.database import Database, read_fact
from shoal.server.storage.encryption import CROWD_KEY_FILE
from shoal.server.storage.records import Records
from shoal.server.storage.signatures import Signatures
from shoal.server.storage.signing import KEY_FILE
from shoal.support.checks import is_loopback
from shoal.support.files import first_line

__all__ = ["check_database", "check_signatures"]


def check_database(folder: Path, url: str) -> Iterator[Finding]:
    """Check the database at a URL, and whether the folder has a key of it; nothing is changed."""
    try:
        from shoal.server.storage.postgres.connection import PostgresDatabase
        from shoal.server.storage.postgres.schema import COLLECTOR, VERSION, word_in

        with closing[Database](PostgresDatabase(url)) as database:
            (exists,) = database.execute("SELECT to_regclass('facts') IS NOT NULL").fetchone()
            version = int(read_fact(database, "version")) if exists else None
            row = database.execute(
                "SELECT ssl, host(inet_server_addr()),"
                " extract(epoch FROM clock_timestamp())::float8"
                " FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
            ).fetchone()
            signatures = []
            if version == VERSION and word_in(database) == COLLECTOR.word:
                signatures = list(check_signatures(database, folder))
    except ShoalError as error:
        sentence = f"The database cannot be used: {first_line(error)}"
        yield Finding("database", "fail", sentence, "Start PostgreSQL, or fix database.")
        return
    if version is None:
        yield Finding(
            "database", "fail", "The database is empty.", "Start a collector or a relay once."
        )
    elif version > VERSION:
        sentence = f"The database has version {version}; this Shoal reads version {VERSION}."
        yield Finding("database", "fail", sentence, "Use a newer Shoal.")
    else:
        yield Finding("database", "ok", f"The database answers and has version {version}.")
    yield from signatures
    encrypted, address, there = row
    if encrypted or address is None or is_loopback(address):
        yield Finding("database connection", "ok", "Nobody between here and there can read it.")
    else:
        sentence = "The connection to the database is not encrypted, and it carries tokens' hashes."
        yield Finding(
            "database connection", "fail", sentence, "Add ?sslmode=verify-full to database."
        )
    if abs(there - time.time()) > STEP:
        sentence = f"The clock here and the database's differ by {abs(there - time.time()):.0f} s."
        yield Finding("database clock", "fail", sentence, "Set both, for example with NTP.")
    if not (folder / CROWD_KEY_FILE).exists():
        yield Finding(
            CROWD_KEY_FILE, "fail", f"There is no {CROWD_KEY_FILE} in {folder}.",
            "Copy it from another one, or start the first one once.",
        )  # fmt: skip


def check_signatures(database: Database, folder: Path) -> Iterator[Finding]:
    """Check that stored plans, certificates and releases match their ids and signatures."""
    if not (folder / KEY_FILE).exists():
        return  # another finding says so
    found = Records(database, Signatures(database, folder)).unverified()
    if found:
        more = f" There are {len(found) - 1:,} more." if len(found) > 1 else ""
        sentence = found[0].removesuffix(" Restore a backup.")
        yield Finding(
            "signatures", "fail", f"{sentence[0].upper()}{sentence[1:]}{more}", "Restore a backup."
        )
    else:
        yield Finding("signatures", "ok", "Stored plans and releases match their signatures.")
