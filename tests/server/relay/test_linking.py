"""Whoever has all that one party has cannot say which bit is whose.

The relay's whole disk, its own key file included, and all it saw on the wire; or the analyzer's:
all chunks, in their order, and every private key. Each side is asked to link a sender to what the
sender's messages say.
"""

from __future__ import annotations

import base64
import binascii
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from scipy.stats import kstest, spearmanr

from shoal import Plan
from shoal.protocol.encryption import decrypt_message, encryption_info
from shoal.server.relay.store import RelayStore

from .relay_help import LONG, WHOLE, RelayWorld, made, party_plan, sealed, story

ALARM = 1e-12
"""False alarm of each test of an order below; the draws of the shuffle are the system's."""
LARGE = party_plan("large", crowd=400)


def secrets_on(folder: Path) -> Iterator[bytes]:
    """Every 32 bytes on a disk that could be a key: files, words in them, and cells of tables."""
    for path in folder.rglob("*"):
        if not path.is_file():
            continue
        content = path.read_bytes()
        if len(content) <= 4096:
            yield from (content[at : at + 32] for at in range(len(content) - 31))
        for word in re.findall(rb"[0-9A-Za-z_+/=-]{43,64}", content):
            with suppress(binascii.Error):
                yield base64.urlsafe_b64decode(word[:43] + b"=")
            with suppress(ValueError):
                yield bytes.fromhex(word[:64].decode())
    with closing(sqlite3.connect(folder / "shoal.db")) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_schema")]
        for table in tables:
            with suppress(sqlite3.OperationalError):
                for row in database.execute(f"SELECT * FROM {table} LIMIT 200"):
                    for cell in row:
                        if isinstance(cell, bytes) and len(cell) >= 32:
                            yield from (cell[at : at + 32] for at in range(0, 64, 4))


@pytest.mark.parametrize("plan", [WHOLE, LONG], ids=lambda plan: plan.survey.name)
def test_the_relay_opens_nothing(plan: Plan, tmp_path: Path) -> None:
    """Its own keys give the sealed messages back, and nothing on its disk opens one."""
    reports, window = made(plan, 9, seed=1), []
    messages: list[bytes] = []

    async def live(world: RelayWorld) -> None:
        key = await world.key(plan)
        upload = sealed(plan, key, reports)
        window.append(key.window)
        messages.append(upload.content[16 : upload.length])
        assert await world.post(upload) == 202

    analyzer = story(live, tmp_path, plan)
    store = RelayStore(tmp_path)
    own = [
        key
        for (number,) in store.database.execute("SELECT number FROM crowds")
        if (key := store.database.keys.key(plan.id, "crowd", number)) is not None
    ]
    store.close()
    assert own
    info, (message,) = encryption_info(plan, window[0]), messages
    candidates = {key for key in (*own, *islice(secrets_on(tmp_path), 20_000)) if len(key) == 32}
    assert len(candidates) > 100

    def opens(key: bytes) -> bool:
        try:
            decrypt_message(message, X25519PrivateKey.from_private_bytes(key), info)
        except (InvalidTag, ValueError):
            return False
        return True

    assert not any(map(opens, candidates))
    # The test would notice: the analyzer's key opens it.
    assert opens(analyzer.private[plan.id, window[0], 1].private_bytes_raw())


def test_the_analyzer_knows_no_order_and_no_name(tmp_path: Path) -> None:
    """Where a report comes out says nothing of when it came."""
    reports = made(LARGE, 400, seed=2)

    async def live(world: RelayWorld) -> None:
        key = await world.key(LARGE)
        for start in range(0, 400, 40):
            assert await world.post(sealed(LARGE, key, reports[start : start + 40])) == 202
        await world.forwarded(LARGE, 1)

    analyzer = story(live, tmp_path, LARGE)
    (where,) = analyzer.complete(LARGE)
    place = {content: at for at, content in enumerate(analyzer.opened(where))}
    seen = b"".join(analyzer.sealed_messages(where)) + b"".join(place)
    assert not any(report.name in seen for report in reports)  # no identifier of the outside
    places = [place[report.content] for report in reports]
    assert sorted(places) == list(range(400))
    assert spearmanr(range(400), places).pvalue > ALARM
    # Reports that came one after the other are as far apart as any two places by chance.
    apart = [abs(a - b) / 400 for a, b in zip(places[::2], places[1::2], strict=True)]
    assert kstest(apart, lambda d: 2 * d - d * d).pvalue > ALARM
