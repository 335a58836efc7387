"""CSV files, row by row: each line is one row, read by itself and by the declared format.

Quotes never reach into the next line: a line with a quote that is not closed is an invalid row, and
its neighbours stay as they are. For the same reason an empty line is a row too. A row with too few
or too many cells, and a cell that the encoding does not allow, are problems of that row: the cells
of such a row, or that cell, are empty texts.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TextIO

from shoal.errors import InputError
from shoal.support.checks import did_you_mean, listed
from shoal.support.table_format import DELIMITERS, TableFormat

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


class CsvRows(NamedTuple):
    """Some columns of consecutive rows, and the problems of these rows."""

    rows: int
    columns: dict[str, list[str]]
    problems: list[RowProblem]


def read_header(path: Path, table_format: TableFormat, *, error: type = InputError) -> list[str]:
    """Return the names of the columns, in the first line of a CSV file. OSError passes."""
    with _opened(path, table_format, error) as file:
        return _header(file, path, table_format, error)


def read_csv(
    path: Path, names: Sequence[str], table_format: TableFormat, *, error: type = InputError
) -> Iterator[CsvRows]:
    """Read the named columns of a CSV file block by block. OSError passes."""
    with _opened(path, table_format, error) as file:
        header = _header(file, path, table_format, error)
        check_columns(path, header, names, error=error)
        places = {name: header.index(name) for name in names}
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
        if name not in header:
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


def _opened(path: Path, table_format: TableFormat, error: type) -> TextIO:
    with path.open("rb") as file:
        if file.read(2) in (b"\xff\xfe", b"\xfe\xff"):
            raise error(f"{path} is in UTF-16; save it as UTF-8.")
    # Bytes that the encoding does not allow become lone surrogates, which no encoding makes.
    encoding = "utf-8-sig" if table_format.encoding == "utf-8" else table_format.encoding
    return path.open(encoding=encoding, errors="surrogateescape", newline="\n")


def _header(file: TextIO, path: Path, table_format: TableFormat, error: type) -> list[str]:
    line = file.readline(MAX_LINE).removesuffix("\n").removesuffix("\r")
    if not line:
        raise error(f"{path} is empty; its first line must name the columns.")
    names = _cells(line, table_format.delimiter)
    if names is None or not _is_text(line):
        raise error(f"the first line of {path} cannot be read as {table_format.encoding}.")
    return names


def _parsed(text: str, width: int, places: dict[str, int], table_format: TableFormat) -> CsvRows:
    lines = text.split("\n")
    if "\r" in text:
        lines = [line.removesuffix("\r") for line in lines]
    damaged, delimiter = not _is_text(text), table_format.delimiter
    too_long = len(text) > MAX_LINE and max(map(len, lines)) > MAX_LINE
    even = all(line.count(delimiter) == width - 1 for line in lines)
    if '"' not in text and even and not damaged and not too_long:
        cells = delimiter.join(lines).split(delimiter)
        columns = {name: cells[place::width] for name, place in places.items()}
        return CsvRows(len(lines), columns, [])
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
        for name, cells in columns.items():
            for number, cell in enumerate(cells):
                if not _is_text(cell):
                    cells[number] = ""
                    why = f"is not valid {table_format.encoding}"
                    problems.append(RowProblem(number, name, why))
    return CsvRows(len(lines), columns, problems)


def _why_invalid(line: str, row: list[str] | None, width: int) -> str | None:
    if len(line) > MAX_LINE:
        return f"is longer than {MAX_LINE:,} characters"
    if row is None:
        return "has a quote that is not closed, or a line break; a row is one line"
    return None if len(row) == width else f"has {len(row)} columns, the header {width}"


def _rows(lines: list[str], delimiter: str) -> list[list[str] | None]:
    """Return the cells of each line, or None where a quote is not closed."""
    try:
        rows: list[list[str] | None] = [
            row or [""] for row in csv.reader(lines, delimiter=delimiter, strict=True)
        ]
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
        return next(csv.reader((line,), delimiter=delimiter, strict=True))
    except csv.Error:
        return None


def _is_text(text: str) -> bool:
    """Whether all bytes of a text were valid in its encoding."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False
