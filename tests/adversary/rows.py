"""Tables in which one row is replaced: no other row may be read otherwise.

The oracle reads a row alone, with code of its own, from a file of text, a file with types, or a
table in memory.
"""

from __future__ import annotations

import json
import math
import random
import re
import tempfile
import unicodedata
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from shoal import Choice, Flags, Number, Survey, YesNo
from shoal.curator.columns import Predicate, read_columns, table_in_memory
from shoal.curator.noise import count_sensitivity, histogram_sensitivity
from shoal.device.arrays.files import read_answers
from shoal.device.encode import encode
from shoal.support.table_format import TableFormat

from .judging import Claim, at_least

NAMES = ("f", "c", "o", "y", "n")
SURVEY = Survey(
    "rows",
    (
        Flags("f", ("a", "b", "1")),
        Choice("c", ("Zürich", "007", "7"), missing="option"),
        Choice("o", ("x", "é"), missing="option", other=True),
        YesNo("y", missing="option"),
        Number("n", ("10", "20.5"), missing="option"),
    ),
)
OPTIONS = {"f": ["a", "b", "1"], "c": ["Zürich", "007", "7"], "o": ["x", "é"]}
STARTS, BITS = {"f": 0, "c": 3, "o": 7, "y": 11, "n": 14}, 18
MARKER = "k. A."

Row = Any
"""A line of bytes in a CSV or NDJSON file; a tuple of values elsewhere."""

TEXTS: dict[str, list[str]] = {
    "f": ["", "a", "a;b", " b ; 1", "1"],
    "c": ["Zürich", "007", "7", "", MARKER],
    "o": ["x", "é", "something", "", "Größe"],
    "y": ["yes", "No", "TRUE", "0", "1", ""],
    "n": ["3", "10", "20.5", "-4.25", "1e3", "", MARKER],
}
WEIRD = [
    "\x00", '"', "''", '"a', 'a"b', '"a"b', "a,b", "a;b;c;d", "\ufeffx", "\u2028", "\x1c", "\x85",
    "NaN", "inf", "1_0", "1,5", "1.678", "1.234,5", "3.5", "0x10", "+7", "true", "a;a", "-", "٣",
    "\r", "a\rb", " ", "\t", "|", ";", "NULL", "NA", "None", "[]", "{}", "1" * 400, "x" * 70_000,
    "yeſ", "Zu\u0308rich",
]  # fmt: skip


def bits_alone(cells: dict[str, Any], decimal: str) -> int:
    """Return the bits of one person's cells, None or bytes for one that cannot be read."""
    places: list[int] = []
    for name in NAMES:
        found = _places(name, _present(cells.get(name)), decimal)
        places += [STARTS[name] + place for place in found]
    return sum(1 << place for place in places)


def _present(cell: Any) -> Any:
    if isinstance(cell, str) and cell.strip() in ("", MARKER):
        return None
    return cell


def _digits(cell: Any) -> Any:
    if isinstance(cell, float) and math.isfinite(cell) and cell == int(cell) and abs(cell) < 2**53:
        return str(int(cell))
    if isinstance(cell, int) and not isinstance(cell, bool):
        return str(cell)
    return cell


def _places(name: str, cell: Any, decimal: str) -> list[int]:
    if name == "f":
        parts = cell.split(";") if isinstance(cell, str) else cell
        named = [_digits(one) for one in parts] if isinstance(parts, list) else [_digits(parts)]
        if not all(isinstance(one, str) for one in named):
            return []
        named = [unicodedata.normalize("NFC", one.strip()) for one in named]
        known = all(one in OPTIONS["f"] for one in named) and len({*named}) == len(named)
        return [OPTIONS["f"].index(one) for one in named] if known else []
    if name in ("c", "o"):
        text, missing = _digits(cell), 3
        if not isinstance(text, str):
            return [missing]
        text = unicodedata.normalize("NFC", text.strip())
        if text in OPTIONS[name]:
            return [OPTIONS[name].index(text)]
        return [missing if name == "c" else 2]
    if name == "y":
        word = str(cell) if isinstance(cell, bool) else _digits(cell)
        word = " ".join(word.split()).upper().lower() if isinstance(word, str) else None
        return [0 if word in ("yes", "true", "1") else 1 if word in ("no", "false", "0") else 2]
    number = _number(cell, decimal)
    return [3] if number is None else [(number >= 10) + (number >= 20.5)]


def _number(cell: Any, decimal: str) -> float | None:
    if isinstance(cell, bool) or not isinstance(cell, (int, float, str)):
        return None
    if isinstance(cell, str):
        cell = cell.strip()
        if decimal == ",":
            exponent = re.search("(?<=[0-9,])[eE][-+]?[0-9]+$", cell, re.ASCII)
            scale = exponent[0] if exponent else ""
            cell = cell.removesuffix(scale)
            whole, comma, part = cell.lstrip("-+").partition(",")
            groups = whole.split(".")
            thousands = all(len(one) == 3 for one in groups[1:]) and 1 <= len(groups[0]) <= 3
            clear = len(groups) == 1 or (thousands and (part or (len(groups) > 2 and not comma)))
            if not clear or cell.count("-") + cell.count("+") > 1:
                return None
            if not re.fullmatch("[0-9]+", "".join(groups) + part, re.ASCII) or not whole:
                return None
            cell = cell.replace(".", "").replace(",", ".") + scale
        elif "_" in cell:
            return None
    try:
        number = float(cell)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def cells_of_line(line: bytes, written: TableFormat) -> dict[str, Any]:
    """Return the cells of one line of a CSV file, none of them if it is no row of five."""
    text = line.removesuffix(b"\r").decode(written.encoding, "surrogateescape")
    cells, at, broken = [], 0, '"' in text and "\r" in text
    while not broken:
        if text[at : at + 1] == '"':
            quoted = re.match(r'"((?:[^"]|"")*)"', text[at:], re.DOTALL)
            if quoted is None:
                broken = True
                break
            cells.append(quoted[1].replace('""', '"'))
            at += quoted.end()
        else:
            end = text.find(written.delimiter, at)
            end = len(text) if end < 0 else end
            cells.append(text[at:end])
            at = end
        if at == len(text):
            break
        broken = text[at] != written.delimiter
        at += 1
    if broken or len(cells) != len(NAMES):
        return {}
    readable = [
        None if any("\ud800" <= one <= "\udfff" for one in cell) else cell for cell in cells
    ]
    return dict(zip(NAMES, readable, strict=True))


def cells_of_json(line: bytes) -> dict[str, Any]:
    """Return the cells of one line of an NDJSON file, none of them if it is no object."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({name for name, _ in pairs}) < len(pairs):
            raise ValueError
        return dict(pairs)

    try:
        found = json.loads(line.decode("utf-8-sig"), object_pairs_hook=once)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


# Containers: how rows become a table, and how many bits of each row Shoal sets.


def csv_file(rows: list[bytes], folder: Path, written: TableFormat) -> Path:
    path = folder / "t.csv"
    header = written.delimiter.join(NAMES).encode(written.encoding)
    path.write_bytes(b"\n".join([header, *rows]) + b"\n")
    return path


def ndjson_file(rows: list[bytes], folder: Path, written: TableFormat) -> Path:
    path = folder / "t.ndjson"
    path.write_bytes(b"".join(row + b"\n" for row in rows))
    return path


def arrow_of(rows: list[tuple[Any, ...]]) -> pa.Table:
    """Texts as a schema says, whatever bytes they hold; a number and a truth value with types."""
    columns: dict[str, Any] = {}
    for place, name in enumerate(NAMES):
        cells = [row[place] for row in rows]
        if name == "n":
            columns[name] = pa.array(cells, pa.float64())
        elif name == "y":
            columns[name] = pa.array(cells, pa.bool_())
        else:
            raw = [c.encode("utf-8", "surrogatepass") if isinstance(c, str) else c for c in cells]
            columns[name] = pa.array(raw, pa.binary()).view(pa.string())
    return pa.table(columns)


def parquet_file(rows: list[tuple[Any, ...]], folder: Path, written: TableFormat) -> Path:
    pq.write_table(arrow_of(rows), folder / "t.parquet")
    return folder / "t.parquet"


def arrow_file(rows: list[tuple[Any, ...]], folder: Path, written: TableFormat) -> Path:
    table = arrow_of(rows)
    with pa.ipc.new_file(str(folder / "t.arrow"), table.schema) as file:
        file.write_table(table)
    return folder / "t.arrow"


def frame(rows: list[tuple[Any, ...]]) -> pd.DataFrame:
    """A data frame with the types that pandas infers from all rows."""
    return pd.DataFrame({name: [row[place] for row in rows] for place, name in enumerate(NAMES)})


def polars_of(rows: list[tuple[Any, ...]]) -> pl.DataFrame:
    schema = {"f": pl.String, "c": pl.String, "o": pl.String, "y": pl.Boolean, "n": pl.Float64}
    return pl.DataFrame(rows, schema, orient="row")


def mappings(rows: list[tuple[Any, ...]]) -> list[dict[str, Any]]:
    return [dict(zip(NAMES, row, strict=True)) for row in rows]


FILES: dict[str, Callable[..., Path]] = {
    "csv": csv_file,
    "ndjson": ndjson_file,
    "parquet": parquet_file,
    "arrow file": arrow_file,
}
MEMORY: dict[str, Callable[[Any], Any]] = {
    "arrow": arrow_of,
    "pandas": frame,
    "polars": polars_of,
    "mappings": mappings,
}
TYPED = {"parquet", "arrow file", "arrow", "polars"}
CURATED = {"csv", "parquet", "arrow", "pandas", "polars"}


def encoded(kind: str, rows: list[Row], folder: Path, written: TableFormat) -> list[int]:
    """Return the bits of each row as Shoal reads the table."""
    if kind in FILES:
        path = FILES[kind](rows, folder, written)
        vectors = [row for one in read_answers(SURVEY, path, written) for row in one.rows]
    else:
        vectors = list(encode(SURVEY, MEMORY[kind](rows), table_format=written).rows)
    return [int.from_bytes(bytes(row), "little") for row in vectors]


def truth(kind: str, row: Row, written: TableFormat) -> int:
    """Return the bits of a row that is read alone."""
    if kind == "csv":
        return bits_alone(cells_of_line(row, written), written.decimal)
    if kind == "ndjson":
        return bits_alone(cells_of_json(row), written.decimal)
    cells = dict(zip(NAMES, row, strict=True))
    if kind in TYPED:  # a text with lone surrogates is written as bytes that are not UTF-8
        for name in ("f", "c", "o"):
            cell = cells[name]
            if isinstance(cell, bytes):
                cells[name] = _decoded(cell)
    if kind == "pandas":
        cells = {name: None if _is_nan(cell) else cell for name, cell in cells.items()}
    return bits_alone(cells, written.decimal)


def _decoded(cell: bytes) -> str | bytes:
    try:
        return cell.decode()
    except UnicodeDecodeError:
        return cell


def _is_nan(cell: Any) -> bool:
    return isinstance(cell, float) and math.isnan(cell)


def counted(kind: str, rows: list[Row], folder: Path, written: TableFormat) -> list[list[int]]:
    """Return the exact counts and the exact histogram that a curator adds noise to."""
    data = (
        FILES[kind](rows, folder, written) if kind in FILES else table_in_memory(MEMORY[kind](rows))
    )
    found = []
    for words in ("c=Zürich", "c!=7", "o=''", "f=1", "n>=10", "n<20.5", "c=007 and n>0"):
        predicate = Predicate.parse(words)
        columns = read_columns(data, predicate.columns, written)
        found.append([int(predicate.rows(columns).sum())])
    texts = read_columns(data, ["c"], written).texts("c")
    cells = [texts.count(one) for one in ("Zürich", "007", "7")]
    return [*found, [*cells, len(texts) - sum(cells)]]


# Making up a table.


def any_format(rng: random.Random) -> TableFormat:
    delimiter = rng.choice([",", ",", ";", "\t", "|"])
    encoding = rng.choice(["utf-8", "utf-8", "windows-1252", "iso-8859-15"])
    return TableFormat(encoding, delimiter, rng.choice([".", ","]), [MARKER], "missing")


def plain_row(kind: str, rng: random.Random, written: TableFormat) -> Row:
    """A row that most people could have."""
    cells: dict[str, Any] = {name: rng.choice(TEXTS[name]) for name in NAMES}
    if written.decimal == ",":
        cells["n"] = cells["n"].replace("1e3", "1000").replace(".", ",").replace("k, A,", MARKER)
    if kind == "csv":
        quoted = [
            f'"{cell}"' if rng.random() < 0.1 or written.delimiter in cell else cell
            for cell in cells.values()
        ]
        end = b"\r" * (rng.random() < 0.2)
        return written.delimiter.join(quoted).encode(written.encoding) + end
    if kind == "ndjson":
        return json.dumps(cells, ensure_ascii=rng.random() < 0.5).encode()
    if kind in TYPED:
        cells["n"] = rng.choice([None, 3.0, 10.0, 25.5])
        cells["y"] = rng.choice([None, True, False])
    elif rng.random() < 0.5:
        cells |= {"c": rng.choice([7, 8, None]), "n": rng.choice([3, 12, None])}
        cells |= {"y": rng.choice([True, False, 1, 0, None]), "f": rng.choice([1, "a", None])}
    return tuple(cells.values())


def any_value(rng: random.Random) -> Any:
    return rng.choice(
        [None, True, False, 7, 1, 0, -1, 2**40, 7.0, 1.0, 0.5, 25.5, math.nan, math.inf, [], ["a"],
         ["a", "a"], ["b", 1], [None], {"a": 1}, rng.choice(WEIRD), rng.choice(WEIRD),
         rng.randint(-(2**50), 2**50), rng.uniform(-1e300, 1e300)]
    )  # fmt: skip


def any_row(kind: str, rng: random.Random, written: TableFormat) -> Row:
    """A row that somebody could send to do harm."""
    if kind in ("csv", "ndjson") and rng.random() < 0.4:
        some = rng.choice([b'",;\t|\r\xff\xe9\x81\x80\0a7{}[]:', bytes(range(256))])
        return bytes(rng.choice(some) for _ in range(rng.randint(0, 40))).replace(b"\n", b"")
    if kind == "csv":
        cells = [rng.choice(WEIRD if rng.random() < 0.5 else TEXTS[name]) for name in NAMES]
        line = written.delimiter.join(cells + cells[: rng.choice([0, 0, 0, 1])])
        return line.encode(written.encoding, "replace").replace(b"\n", b"")
    if kind == "ndjson":
        values = {name: any_value(rng) for name in rng.sample([*NAMES, "more"], rng.randint(0, 6))}
        return json.dumps(values).encode()
    if kind in TYPED:
        texts: list[Any] = [rng.choice([None, *WEIRD]) for _ in range(3)]
        if kind != "polars" and rng.random() < 0.5:
            texts[rng.randrange(3)] = rng.choice([b"\xff", b"a\xe9", b"\xed\xa0\x80"])
        return (*texts, rng.choice([None, True]), rng.choice([None, math.nan, math.inf, -1e308]))
    return tuple(any_value(rng) for _ in NAMES)


def claims(
    kind: str, rows: list[Row], place: int, other: Row, written: TableFormat
) -> Iterator[Claim]:
    """State what replacing one row of a table may change."""
    words = f"{kind}, {written}, {rows!r:.400}, row {place} replaced by {other!r:.200}"
    replaced = [*rows[:place], other, *rows[place + 1 :]]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        before = encoded(kind, rows, folder, written)
        after = encoded(kind, replaced, folder, written)
        yield at_least(0, Fraction(abs(len(before) - len(rows))), f"rows read: {words}")
        yield at_least(0, Fraction(abs(len(after) - len(rows))), f"rows read: {words}")
        for given, found in ((rows, before), (replaced, after)):
            alone = [truth(kind, row, written) for row in given]
            wrong = [at for at, (a, b) in enumerate(zip(alone, found, strict=True)) if a != b]
            yield at_least(0, Fraction(len(wrong)), f"rows {wrong} not as alone: {words}")
        changed = {at for at, (a, b) in enumerate(zip(before, after, strict=True)) if a != b}
        yield at_least(0, Fraction(len(changed - {place})), f"others changed: {words}")
        if kind not in CURATED:
            return
        counts = counted(kind, rows, folder, written), counted(kind, replaced, folder, written)
    sensitivities = [count_sensitivity("replace")] * 7 + [histogram_sensitivity("replace")]
    for said, one, two in zip(sensitivities, *counts, strict=True):
        apart = sum(abs(a - b) for a, b in zip(one, two, strict=True))
        yield at_least(said, Fraction(apart), f"counts of a curator: {words}")


def replaced_row(rng: random.Random) -> Iterator[Claim]:
    """One row of a table becomes another, in any container."""
    yield from replaced_in(rng.choice([*FILES, *MEMORY, "csv", "csv", "pandas"]), rng)


def replaced_in(kind: str, rng: random.Random) -> Iterator[Claim]:
    """One row of a table of this kind becomes another."""
    written = any_format(rng)
    rows = [plain_row(kind, rng, written) for _ in range(rng.randint(2, 8))]
    place = rng.randrange(len(rows))
    yield from claims(kind, rows, place, any_row(kind, rng, written), written)
