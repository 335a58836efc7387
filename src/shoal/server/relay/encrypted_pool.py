"""The encrypted reports of an open crowd: rows of one length, in random order.

There are always more rows than are used, and a report replaces a random empty one. So neither the
order of the rows nor their number tells when a report came. A repeated report rewrites an empty
row. All rows are encrypted under the crowd's key.

Several relays may share a crowd. Then one more row says how many reports and rows there are;
whoever writes holds the lock of the plan. Each relay fills only rows that it made itself, so it
need not read the rows of others. Rows that are still empty when their relay ends stay so.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence

from shoal.protocol.random_bits import SystemBits, draw_below
from shoal.server.storage.database import Database, SqlConnection
from shoal.server.storage.encryption import decrypt, encrypt

_FIRST_ROWS = 16
_MOST_ADDED = 4 << 20
"""Bytes of rows that are added at once, so that no commit grows with the crowd."""

_USED, _EMPTY = b"\1", b"\0"
_AT_ONCE = 1000
_FILL = struct.Struct("<QQ")


class EncryptedPool:
    """The rows of one open crowd, under its key on the relay's disk.

    `length` is how many bytes the message of a report has, `needed` how many reports make the crowd
    complete.
    """

    def __init__(
        self, database: Database, key: bytes, number: int, length: int, needed: int
    ) -> None:
        self._connection, self._is_shared = database.connection, database.is_shared
        self._key, self._number = key, number
        self._length, self._needed = length, needed
        self._rows = self.reports = 0
        self._spare: list[int] = []
        if self._is_shared:
            self._read_fill()
        else:
            self._read_rows()

    def _read_rows(self) -> None:
        """Read how many reports there are, and which rows are empty."""
        for row, content in _decrypted(self._connection, self._key, self._number):
            self._rows = row + 1
            if content[:1] == _USED:
                self.reports += 1
            else:
                self._spare.append(row)

    def _read_fill(self) -> None:
        """Read how many reports and rows there are; the empty ones belong to others."""
        row = self._connection.execute(
            "SELECT content FROM fills WHERE number = ?", (self._number,)
        ).fetchone()
        if row is not None:
            self._follow(row[0])

    def _follow(self, content: bytes) -> None:
        about = _about_fill(self._number)
        self.reports, self._rows = _FILL.unpack(decrypt(self._key, content, about))

    def _write_fill(self) -> None:
        if not self._is_shared:
            return
        content = _FILL.pack(self.reports, self._rows)
        (encrypted,) = encrypt(self._key, (content, _about_fill(self._number)))
        self._connection.execute(
            "INSERT INTO fills VALUES (?, ?)"
            " ON CONFLICT (number) DO UPDATE SET content = excluded.content",
            (self._number, encrypted),
        )

    @staticmethod
    def catch_up(
        connection: SqlConnection, plan_id: str, pools: Mapping[int, EncryptedPool]
    ) -> None:
        """Read how many reports the crowds of a plan have by now; other relays write to them."""
        rows = connection.execute(
            "SELECT fills.number, content FROM fills JOIN crowds ON crowds.number = fills.number"
            " WHERE plan = ? AND state = 'open'",
            (plan_id,),
        )
        for number, content in rows.fetchall():
            pools[number]._follow(content)

    @property
    def is_complete(self) -> bool:
        return self.reports == self._needed

    @property
    def room(self) -> int:
        return self._needed - self.reports

    def write(self, reports: Sequence[bytes | None]) -> None:
        """Put reports into rows, in a transaction; None stands for one that has come before."""
        if len(reports) > len(self._spare):
            self._grow(len(reports) - len(self._spare))
        bits, rows, contents = SystemBits(), [], []
        for report in reports:
            chosen = draw_below(len(self._spare), bits)
            self._spare[chosen], self._spare[-1] = self._spare[-1], self._spare[chosen]
            rows.append(self._spare.pop())
            contents.append(self._content(report))
        self._spare += [row for row, one in zip(rows, reports, strict=True) if one is None]
        self.reports += sum(one is not None for one in reports)
        self._connection.executemany(
            "UPDATE messages SET content = ? WHERE id = ?",
            zip(self._encrypted(rows, contents), map(self._id, rows), strict=True),
        )
        self._write_fill()

    def make_room(self) -> None:
        """Add rows between commits that the next ones would need."""
        wanted = min(max(self.reports // 4, _FIRST_ROWS), self.room + _FIRST_ROWS)
        if self._is_shared:  # every start of a relay leaves some behind
            wanted = min(wanted, self._most)
        if len(self._spare) < wanted:
            self._grow(wanted - len(self._spare))
            self._write_fill()

    @property
    def _most(self) -> int:
        return max(_MOST_ADDED // self._length, _FIRST_ROWS)

    def _grow(self, needed: int) -> None:
        """Add empty rows: as many as are needed, and a quarter of those that there are."""
        count = max(needed, min(max(self._rows // 4, _FIRST_ROWS), self._most))
        rows = range(self._rows, self._rows + count)
        self._connection.executemany(
            "INSERT INTO messages VALUES (?, ?)",
            zip(
                map(self._id, rows),
                self._encrypted(rows, [self._content(None)] * count),
                strict=True,
            ),
        )
        self._spare += rows
        self._rows += count

    def _content(self, report: bytes | None) -> bytes:
        return _EMPTY + bytes(self._length) if report is None else _USED + report

    def _encrypted(self, rows: Sequence[int], contents: Sequence[bytes]) -> list[bytes]:
        pieces = zip(contents, (_about(self._number, row) for row in rows), strict=True)
        return encrypt(self._key, *pieces)

    def _id(self, row: int) -> int:
        return first_row(self._number) + row


def first_row(number: int) -> int:
    """Return the id of a crowd's first row; no crowd has 2^32 of them."""
    return number << 32


def _about(number: int, row: int) -> str:
    return f"sealed {number} {row}"


def _about_fill(number: int) -> str:
    return f"fill {number}"


def read_rows(
    connection: SqlConnection, key: bytes, number: int, after: int, most: int
) -> tuple[list[bytes], int | None]:
    """Return reports of a crowd from a row on, and the row to go on from; None at the end."""
    found = connection.execute(
        "SELECT id, content FROM messages WHERE id >= ? AND id < ? ORDER BY id LIMIT ?",
        (first_row(number) + after, first_row(number + 1), most),
    ).fetchall()
    contents = [decrypt(key, one, _about(number, row - first_row(number))) for row, one in found]
    following = found[-1][0] - first_row(number) + 1 if len(found) == most else None
    return [content[1:] for content in contents if content[:1] == _USED], following


def _decrypted(connection: SqlConnection, key: bytes, number: int) -> Iterator[tuple[int, bytes]]:
    cursor = connection.execute(
        "SELECT id, content FROM messages WHERE id >= ? AND id < ? ORDER BY id",
        (first_row(number), first_row(number + 1)),
    )
    while rows := cursor.fetchmany(_AT_ONCE):
        for identity, encrypted in rows:
            row = identity - first_row(number)
            yield row, decrypt(key, encrypted, _about(number, row))


def remove_rows(connection: SqlConnection, number: int, most: int) -> bool:
    """Remove rows of a crowd, in a transaction; return whether there may be more."""
    # How many were removed does not tell: another process may remove the same ones.
    those = "FROM messages WHERE id >= ? AND id < ?"
    where = (first_row(number), first_row(number + 1))
    connection.execute(
        f"DELETE FROM messages WHERE id IN (SELECT id {those} LIMIT ?)",  # noqa: S608  fixed
        (*where, most),
    )
    left = connection.execute(f"SELECT 1 {those} LIMIT 1", where)
    return left.fetchone() is not None
