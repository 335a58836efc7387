"""CSV files, row by row: each line is one row, read by itself and by the declared format.

Quotes never reach into the next line: a line with a quote that is not closed is an invalid row, and
its neighbours stay as they are. For the same reason an empty line is a row too. A row with too few
or too many cells, and a cell that the encoding does not allow, are problems of that row: the cells
of such a row, or that cell, are empty texts.

Two declarations change that. With `skip_blank` a row without any value is about nobody. With
`quoted_breaks` a quoted cell may contain line breaks, so a quote that is not closed could swallow
other people's rows: then every row must be well-formed, or the whole file is refused.
"""

from __future__ import annotations

import csv
import string
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import pyarrow as pa

from shoal.errors import InputError
from shoal.support.checks import did_you_mean, listed
from shoal.support.table_format import DEFAULT_FORMAT, DELIMITERS, TableFormat

_BLOCK = 1 << 22
_AT_ONCE = 1 << 12
"""Lines whose cells are lists at one time: many lists keep the garbage collector busy."""
MAX_LINE = 1 << 24
"""A longer line is an invalid row, so that a single row cannot fill the memory."""


class RowProblem(NamedTuple):
    """A row, counted from 0, that cannot be read; or only its cell in a column."""

    row: int
    column: str | None
    why: str


class TableBatch(NamedTuple):
    """Consecutive rows of a table as an Arrow record batch, and why some cannot be read."""

    table: Any
    rows: int
    problems: Sequence[RowProblem] = ()

    def first(self, rows: int) -> TableBatch:
        """Return the first rows, or all if there are fewer."""
        kept = [problem for problem in self.problems if problem.row < rows]
        return TableBatch(self.table.slice(0, rows), min(self.rows, rows), kept)


def text_batch(
    columns: Mapping[str, Sequence[str | None]], rows: int, problems: Sequence[RowProblem] = ()
) -> TableBatch:
    """Return rows whose cells are texts."""
    arrays = {name: pa.array(cells, pa.string()) for name, cells in columns.items()}
    return TableBatch(pa.record_batch(arrays), rows, problems)


class TableSource(NamedTuple):
    """Some columns of a file, or all of them (None), its format, and the error to raise."""

    path: Path
    names: Collection[str] | None = None
    table_format: TableFormat = DEFAULT_FORMAT
    error: type[InputError] = InputError

    def columns_of(self, found: Sequence[str]) -> list[str]:
        """Return the wanted columns of those that were found."""
        names = list(found if self.names is None else self.names)
        check_columns(self.path, found, names, error=self.error)
        return names


def read_csv(source: TableSource) -> Iterator[TableBatch]:
    """Read columns of a CSV file block by block. OSError passes."""
    table_format = source.table_format
    with _opened(source) as file:
        header = _header(file, source)
        places = {name: header.index(tidy(name)) for name in source.columns_of(header)}
        if table_format.quoted_breaks:
            yield from _records(file, source, len(header), places)
            return
        rest = ""
        while block := file.read(_BLOCK):
            whole, end, rest = (rest + block).rpartition("\n")
            # A line that is too long stays too long when its end is cut off.
            rest = rest[: MAX_LINE + 1]
            if end:
                yield _parsed(whole, len(header), places, table_format)
        if rest:
            yield _parsed(rest, len(header), places, table_format)


def check_columns(
    source: object, header: Sequence[str], names: Collection[str], *, error: type = InputError
) -> None:
    """Refuse a table that lacks a column, or has it twice."""
    for name in names:
        if name not in header and tidy(name) not in header:
            hint = _delimiter_hint(name, header)
            near = "" if hint else did_you_mean(name, header)
            raise error(f"{source} has no column {name!r}; it has {listed(header)}{hint}.{near}")
        if list(header).count(name) > 1:
            raise error(f"{source} has column {name!r} twice.")


def _delimiter_hint(wanted: str, header: Sequence[str]) -> str:
    for delimiter, called in DELIMITERS.items():
        if any(wanted in map(str.strip, name.split(delimiter)) for name in header):
            option = "tab" if delimiter == "\t" else f"'{delimiter}'"
            return f", as if {called} separated the columns; declare --delimiter {option}"
    return ""


def _opened(source: TableSource) -> TextIO:
    with source.path.open("rb") as file:
        if file.read(2) in (b"\xff\xfe", b"\xfe\xff"):
            raise source.error(f"{source.path} is in UTF-16; save it as UTF-8.")
    # Bytes that the encoding does not allow become lone surrogates, which no encoding makes.
    encoding = source.table_format.encoding.replace("utf-8", "utf-8-sig")
    return source.path.open(encoding=encoding, errors="surrogateescape", newline="\n")


def _header(file: TextIO, source: TableSource) -> list[str]:
    """Return the names of the columns, each once: `Age` and `Age (2)`."""
    path, _, table_format, error = source
    for _ in range(table_format.skip_first):
        file.readline(MAX_LINE)
    names: list[str] | None
    if table_format.quoted_breaks:
        names = next(_strict(file, table_format.delimiter), [])
        line = "".join(names)
    else:
        line = file.readline(MAX_LINE).removesuffix("\n").removesuffix("\r")
        names = _cells(line, table_format.delimiter)
    if not line:
        first = "its first line" if not table_format.skip_first else "the line after skip_first"
        raise error(f"{path} is empty; {first} must name the columns.")
    if names is None or not _is_text(line):
        raise error(f"the first line of {path} cannot be read as {table_format.encoding}.")
    return unique_names(names)


def unique_names(names: Sequence[str]) -> list[str]:
    """Name columns that have no name, or the name of one before them."""
    found: list[str] = []
    for place, name in enumerate(map(tidy, names), 1):
        unique, number = name or f"column {place}", 1
        while unique in found:
            number += 1
            unique = f"{name or 'column'} ({number})"
        found.append(unique)
    return found


def tidy(name: str) -> str:
    """Return a column's name in normal form C, with one blank for every run of white space."""
    return unicodedata.normalize("NFC", " ".join(name.split()))


def _strict(lines: Iterable[str], delimiter: str) -> Iterator[list[str]]:
    return csv.reader(lines, delimiter=delimiter, strict=True)


def is_blank(cells: Iterable[object]) -> bool:
    """Whether a row has no value."""
    return not any(cell is not None and str(cell).strip() for cell in cells)


def _records(
    file: TextIO, source: TableSource, width: int, places: dict[str, int]
) -> Iterator[TableBatch]:
    """Read rows that may take several lines; one that is not well-formed ends the reading."""
    path, _, table_format, error = source
    reader, first, rest = _strict(file, table_format.delimiter), 0, True
    while rest:
        rows: list[list[str]] = []
        try:
            for row in reader:
                if len(row) != width and (row or width > 1) and not is_blank(row):
                    raise csv.Error(f"has {len(row)} columns, the header {width}")
                if not (table_format.skip_blank and is_blank(row)):
                    rows.append(row if len(row) == width else [""] * width)
                if len(rows) == _AT_ONCE:
                    break
            else:
                rest = False
        except csv.Error as problem:
            known = str(problem) if "columns" in str(problem) else "cannot be read"
            raise error(
                f"row {first + len(rows) + 1} of {path} {known}; where quoted cells contain line"
                " breaks, it may contain other rows, so the whole file is refused."
            ) from None
        columns = {name: [row[place] for row in rows] for name, place in places.items()}
        yield text_batch(columns, len(rows), _damaged_cells(columns, table_format))
        first += len(rows)


def _parsed(text: str, width: int, places: dict[str, int], table_format: TableFormat) -> TableBatch:
    lines = text.split("\n")
    if "\r" in text:
        lines = [line.removesuffix("\r") for line in lines]
    damaged, delimiter = not _is_text(text), table_format.delimiter
    if table_format.skip_blank:
        nothing = delimiter + '"\N{NO-BREAK SPACE}' + string.whitespace
        lines = [line for line in lines if line.strip(nothing)]
    too_long = len(text) > MAX_LINE and max(map(len, lines)) > MAX_LINE
    even = all(line.count(delimiter) == width - 1 for line in lines)
    if lines and '"' not in text and even and not damaged and not too_long:
        cells = delimiter.join(lines).split(delimiter)
        columns = {name: cells[place::width] for name, place in places.items()}
        return text_batch(columns, len(lines))
    columns = {name: [] for name in places}
    problems: list[RowProblem] = []
    for start in range(0, len(lines), _AT_ONCE):
        part = lines[start : start + _AT_ONCE]
        rows = _rows(part, delimiter)
        for number, row in enumerate(rows):
            if row is not None and len(row) == width and not too_long:
                continue
            if why := _why_invalid(part[number], row, width):
                problems.append(RowProblem(start + number, None, why))
                rows[number] = [""] * width
        for name, place in places.items():
            columns[name] += [row[place] for row in rows if row]
    if damaged:
        problems += _damaged_cells(columns, table_format)
    return text_batch(columns, len(lines), problems)


def _damaged_cells(columns: dict[str, list[str]], table_format: TableFormat) -> list[RowProblem]:
    """Empty the cells whose bytes the encoding does not allow, and name them."""
    problems = []
    for name, cells in columns.items():
        for number, cell in enumerate(cells):
            if not _is_text(cell):
                cells[number] = ""
                problems.append(RowProblem(number, name, f"is not valid {table_format.encoding}"))
    return problems


def _why_invalid(line: str, row: list[str] | None, width: int) -> str | None:
    if len(line) > MAX_LINE:
        return f"is longer than {MAX_LINE:,} characters"
    if row is None:
        return "has a quote that is not closed; set quoted_breaks = true if cells have line breaks"
    return None if len(row) == width else f"has {len(row)} columns, the header {width}"


def _rows(lines: list[str], delimiter: str) -> list[list[str] | None]:
    """Return the cells of each line, or None where a quote is not closed."""
    try:
        rows: list[list[str] | None] = [row or [""] for row in _strict(lines, delimiter)]
    except csv.Error:
        rows = []
    # A record takes at least one line. If there are as many records, each took exactly one.
    if len(rows) == len(lines) and not any("\r" in line for line in lines):
        return rows
    return [_cells(line, delimiter) for line in lines]


def _cells(line: str, delimiter: str) -> list[str] | None:
    if '"' not in line:
        return line.split(delimiter)
    if "\r" in line:  # the reader would end the row there
        return None
    try:
        return next(_strict((line,), delimiter))
    except csv.Error:
        return None


def _is_text(text: str) -> bool:
    """Whether all bytes of a text were valid in its encoding."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False
