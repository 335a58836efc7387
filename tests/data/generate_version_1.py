"""Make `version_1.json`: data and a backup as Shoal 0.1.0 wrote them.

Run it with that version's sources and tests, not with these:

    cd shoal-0.1.0 && PYTHONPATH=src python .../tests/data/generate_version_1.py

The file holds both databases as SQL, the signing key, and what was released.
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

from shoal import Flags, Text
from shoal.collector.backup import back_up
from shoal.collector.console.tokens import Tokens
from shoal.collector.signing import Signer
from tests.collector.store_help import NOON, Clock, make_plan, published, upload

WEEK = 7 * 86_400
NOW = NOON // WEEK
PLANS = [
    make_plan(Flags("f", tuple("abcde")), crowd=50, joint=((("f", "e"), ("f", "a")),)),
    make_plan(Text("t", bits=20, hashes=2, cohorts=7), crowd=40, window=WEEK),
]


def dumped(path: Path) -> dict[str, object]:
    with closing(sqlite3.connect(path)) as database:
        (version,) = database.execute("PRAGMA user_version").fetchone()
        return {"user_version": version, "sql": list(database.iterdump())}


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "data"
        folder.mkdir()
        key = Signer(folder).public_key
        with closing(published(folder, *PLANS, clock=Clock())) as store:
            store.add_plan(make_plan(crowd=123))
            tokens: Any = Tokens(store.database)  # that version's
            tokens.make("analyst", "kept", "secret of an analyst")
            store.accept([upload(PLANS[0], 83, 1)])
            for seed in range(77):
                store.accept([upload(PLANS[1], 1, seed, NOW)])
            store.accept([upload(PLANS[0], 83, 1)])
            releases = [store.release(PLANS[0].id, 1), store.release(PLANS[1].id, 2)]
        back_up(folder, Path(scratch) / "backup", clock=Clock())
        document = {
            "signing_key": (folder / "signing-key").read_text(),
            "public_key": key,
            "plans": [plan.id for plan in PLANS],
            "releases": [release.decode() for release in releases if release],
            "data": dumped(folder / "shoal.db"),
            "backup": dumped(Path(scratch) / "backup"),
        }
    Path(__file__).with_name("version_1.json").write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
