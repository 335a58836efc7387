"""Replacing one row of a table changes that row alone, whatever it becomes."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal import Choice, Survey
from shoal.curator import Curator, Predicate
from shoal.curator.columns import read_columns
from shoal.device.arrays.files import read_answers
from shoal.support.table_format import TableFormat

PEOPLE, STRANGE = 999, "Zürich".encode("latin-1")


@pytest.mark.parametrize(
    "other",
    [
        STRANGE + b",x",
        STRANGE,
        b'"',
        b'"Z',
        b"",
        b"\0",
        b"\xff\xfe",
        b"a,b,c",
        b"x" * (1 << 25),
        b"\r",
        b"1e999",
    ],
    ids=lambda other: repr(other[:8]),
)
def test_one_line_of_a_file_changes_one_count_by_one(other: bytes, tmp_path: Path):
    """One row in Latin-1 among 999 in UTF-8 used to make all of them Windows-1252."""
    path, written = tmp_path / "x.csv", TableFormat(invalid="missing")
    line = "Zürich,x\n".encode()
    counts = []
    for row in (line, other + b"\n"):
        path.write_bytes(b"city,more\n" + line * 500 + row + line * 499)
        columns = read_columns(path, ["city"], written)
        assert columns.rows == PEOPLE + 1
        counts.append(int(Predicate.parse("city=Zürich").rows(columns).sum()))
    assert counts == [PEOPLE + 1, PEOPLE]
    survey = Survey("s", (Choice("city", ("Zürich", "Bern"), missing="option"),))
    bits = [row[0] for one in read_answers(survey, path, written) for row in one.rows]
    assert bits == [1] * 500 + [4] + [1] * 499


def test_a_release_of_the_default_format_names_the_row(tmp_path: Path):
    from shoal.errors import InputError

    path = tmp_path / "x.csv"
    path.write_bytes(b"city\n" + "Zürich\n".encode() * PEOPLE + STRANGE + b"\n")
    with pytest.raises(InputError, match="row 1000 of column 'city' is not valid utf-8"):
        Curator(path, neighbours="replace").count("city=Zürich", epsilon=1)


def test_rows_are_read_alone_wherever_blocks_of_a_file_meet(monkeypatch, tmp_path: Path):
    """The reader reads blocks: no row may depend on where one ends."""
    from shoal.support import csv_rows

    lines = [b"a,1", b'"a;b",2', b'"', b"\xff,3", b"", b"a,4\r", b"x,5,6", b'a,"7"']
    whole = None
    for size in (1 << 20, *range(1, 24)):
        monkeypatch.setattr(csv_rows, "_BLOCK", size)
        (tmp_path / "x.csv").write_bytes(b"f,n\n" + b"\n".join(lines * 3))
        read = list(csv_rows.read_csv(csv_rows.TableSource(tmp_path / "x.csv", ["f", "n"])))
        found = [row for one in read for row in zip(*one.table.to_pydict().values(), strict=True)]
        assert len(found) == 3 * len(lines)
        whole = whole or found
        assert found == whole
    assert whole is not None
    assert whole[:8] == [("a", "1"), ("a;b", "2"), ("", ""), ("", "3"), ("", ""), ("a", "4"),
                         ("", ""), ("a", "7")]  # fmt: skip
