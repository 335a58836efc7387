"""Write an archive with the data of a collector and of a relay as this version keeps them.

Run it before `VERSION` of `shoal.collector.intake.schema` changes, and keep what it wrote: later
versions must read it (`tests/collector/test_conversion.py`).

    python -m tests.data.generate_collector_data

A plan of which one crowd of 50 is sealed and the next has 33 reports, a draft, a token and a backup
of all that; the 83 reports as they were sent; the relay's tables as SQL.
"""

from __future__ import annotations

import tarfile
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from shoal.collector.backup import back_up
from shoal.collector.console.tokens import Token, Tokens
from shoal.collector.intake.database import open_database
from shoal.collector.intake.schema import VERSION
from shoal.collector.relay.schema import RELAY
from shoal.collector.signing import Signer
from tests.collector.store_help import PLANS, Clock, make_plan, published, upload


def main() -> None:
    plan, clock = make_plan(crowd=50), Clock()
    reports = upload(plan, 83, 1)
    with TemporaryDirectory() as name:
        folder = Path(name)
        data = folder / "data"
        data.mkdir()
        Signer(data)
        with closing(published(data, plan, clock=clock)) as store:
            store.add_plan(PLANS["counts"])
            Tokens(store.database).add(Token.new("analyst", "kept"), "secret of an analyst")
            store.accept([reports])
            store.sweep()
            back_up(data, folder / "backup", clock=clock)
        (folder / "reports").write_bytes(reports.to_bytes())
        with closing(open_database(folder / "relay.db", schema=RELAY)) as relay:
            (folder / "relay.sql").write_text("\n".join(relay.iterdump()))
        (folder / "relay.db").unlink()
        archive = Path(__file__).parent / f"collector_version_{VERSION}.tar.xz"
        with tarfile.open(archive, "w:xz") as written:
            for path in sorted(folder.rglob("*")):
                if path.is_file() and "-wal" not in path.name and "-shm" not in path.name:
                    written.add(path, path.relative_to(folder).as_posix())
    print(archive)


if __name__ == "__main__":
    main()
