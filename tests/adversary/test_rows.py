"""Replacing one row of a table changes that row alone, whatever it becomes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal import Choice, Survey
from shoal.curator import Curator, Predicate
from shoal.curator.columns import read_columns
from shoal.device.arrays.answer_files import read_answers
from shoal.support.table_format import TableFormat
from tests.strategies import bounded

from . import rows as tables

FORMATS = st.builds(
    TableFormat,
    st.sampled_from(["utf-8", "windows-1252", "iso-8859-15"]),
    st.sampled_from([",", ";", "\t", "|"]),
    st.sampled_from([".", ","]),
    st.just([tables.MARKER]),
    st.just("missing"),
)
LINES = st.one_of(
    st.binary(max_size=40).map(lambda line: line.replace(b"\n", b"")),
    st.text('",;|\t\r\0aé7.', max_size=20).map(str.encode),
)
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**50), 2**50), st.floats(), st.text(max_size=6),
    st.lists(st.one_of(st.none(), st.sampled_from(["a", "b", "1"]), st.integers(0, 2)), max_size=3),
)  # fmt: skip
TEXTS = st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"]), max_size=6))


def another_row(kind: str) -> st.SearchStrategy[Any]:
    if kind == "csv":
        return LINES
    if kind == "ndjson":
        documents = st.dictionaries(st.sampled_from([*tables.NAMES, "more"]), VALUES)
        return st.one_of(LINES, documents.map(lambda one: json.dumps(one).encode()))
    if kind in tables.TYPED:
        raw = TEXTS if kind == "polars" else st.one_of(TEXTS, st.binary(max_size=4))
        typed = (st.one_of(st.none(), st.booleans()), st.one_of(st.none(), st.floats()))
        return st.tuples(raw, raw, raw, *typed)
    return st.tuples(*[VALUES] * 5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*tables.FILES, *tables.MEMORY])
def test_one_row_changes_that_row_alone(kind: str):
    @given(st.data(), FORMATS, st.randoms(use_true_random=False))
    @bounded(60)
    def check(data: st.DataObject, written: TableFormat, rng: Any):
        rows = [tables.plain_row(kind, rng, written) for _ in range(rng.randint(2, 6))]
        place = data.draw(st.integers(0, len(rows) - 1))
        other = data.draw(another_row(kind))
        for claim in tables.claims(kind, rows, place, other, written):
            assert claim.holds, claim.words

    check()


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
        read = list(csv_rows.read_csv(tmp_path / "x.csv", ["f", "n"], TableFormat()))
        found = [cell for one in read for cell in zip(*one.columns.values(), strict=True)]
        assert len(found) == 3 * len(lines)
        whole = whole or found
        assert found == whole
    assert whole is not None
    assert whole[:8] == [("a", "1"), ("a;b", "2"), ("", ""), ("", "3"), ("", ""), ("a", "4"),
                         ("", ""), ("a", "7")]  # fmt: skip
