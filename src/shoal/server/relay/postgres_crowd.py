"""An open crowd of sealed reports that several relays write to.

How many reports it has, and how many rows were made for them, is in one row of one length, under
the crowd's key. Whoever writes holds the lock of the plan, so that the row is never behind. Each
relay puts reports into rows that it made itself, and remembers in memory which of them are empty.
So what another relay has written need not be read. Rows that are still empty when their relay ends
stay so; whoever reads the crowd passes over them.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from shoal.server.relay.encrypted_pool import EncryptedPool
from shoal.server.storage.database import Database
from shoal.server.storage.encryption import decrypt, encrypt

__all__ = ["SharedPool"]

_FILL = struct.Struct("<QQ")


class SharedPool(EncryptedPool):
    """The rows of one open crowd, and those of them that this relay may use."""

    def _read(self) -> None:
        """Read how many reports and rows there are; the empty ones belong to others."""
        row = self._database.execute(
            "SELECT content FROM fills WHERE number = ?", (self._number,)
        ).fetchone()
        if row is not None:
            self._follow(row[0])

    def _follow(self, content: bytes) -> None:
        self.reports, self._rows = _FILL.unpack(decrypt(self._key, content, self._about_fill))

    @staticmethod
    def catch_up(database: Database, plan_id: str, crowds: Mapping[int, EncryptedPool]) -> None:
        """Read how many reports crowds of a plan have by now."""
        rows = database.execute(
            "SELECT fills.number, content FROM fills JOIN crowds ON crowds.number = fills.number"
            " WHERE plan = ? AND state = 'open'",
            (plan_id,),
        )
        for number, content in rows.fetchall():
            crowd = crowds[number]
            assert isinstance(crowd, SharedPool)
            crowd._follow(content)

    def write(self, reports: Sequence[bytes | None]) -> None:
        """Put reports into rows, in a transaction; None stands for one that has come before."""
        super().write(reports)
        self._note()

    def make_room(self) -> None:
        """Add rows between commits that the next ones would need."""
        before = self._rows
        super().make_room()
        if self._rows != before:
            self._note()

    def _wanted(self) -> int:
        """Return how many empty rows this relay should have: every start leaves some behind."""
        return min(super()._wanted(), self._most)

    def _note(self) -> None:
        (content,) = encrypt(self._key, (_FILL.pack(self.reports, self._rows), self._about_fill))
        self._database.execute(
            "INSERT INTO fills VALUES (?, ?)"
            " ON CONFLICT (number) DO UPDATE SET content = excluded.content",
            (self._number, content),
        )

    @property
    def _about_fill(self) -> str:
        return f"fill {self._number}"
