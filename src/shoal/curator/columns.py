"""Columns of a table, in a file or in memory, and predicates that choose rows.

Each cell is read by itself: by the declared format, and by the schema's type of a Parquet or Arrow
column; cells of lists and of object columns by their own types. Guessing one type for a column
would let one row decide how all are read.

A predicate is a small language, parsed by hand and never evaluated as code::

    PREDICATE = CLAUSE and CLAUSE and ...
    CLAUSE    = COLUMN = VALUE | COLUMN != VALUE        compared as text; as a number where the
              | COLUMN < NUMBER | <= | > | >=           cell is one by its type

Names and values may be quoted with ' or ", and must be if they hold a sign of the language, or the
word and; a quote inside is doubled. A missing value is the empty text and satisfies no comparison
of numbers.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shoal.errors import InputError
from shoal.support.checks import MAX_INTEGER, listed, shown, whole_digits
from shoal.support.csv_rows import check_columns
from shoal.support.table_files import is_absent, python_cells, read_table
from shoal.support.table_format import DEFAULT_FORMAT, TableFormat


@dataclass(frozen=True)
class Columns:
    """Some columns of a table, each an Arrow column or a list of cells, and its number of rows."""

    rows: int
    _columns: dict[str, Any]
    _format: TableFormat = DEFAULT_FORMAT

    def _column(self, name: str) -> Any:
        if name not in self._columns:
            raise InputError(f"there is no column {name!r}; there is {listed(self._columns)}.")
        return self._columns[name]

    def _cells(self, name: str) -> list[Any]:
        column = self._column(name)
        return column if isinstance(column, list) else python_cells(column)

    def is_number(self, name: str) -> bool:
        column = self._column(name)
        if isinstance(column, list):
            return False
        kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
        return any(is_kind(column.type) for is_kind in kinds)

    def texts(self, name: str) -> list[str]:
        """Return a column as text; a missing value is the empty text."""
        column = self._column(name)
        if not isinstance(column, list) and not self.is_number(name):
            try:
                column = column if pa.types.is_string(column.type) else column.cast(pa.string())
            except pa.ArrowException:
                what = f"column {name!r} of {column.type} cannot be read as text"
                raise InputError(f"{what}.") from None
        cells = column if isinstance(column, list) else python_cells(column)
        written = self._format.column(name)
        texts = ["" if written.is_missing(cell) else _text(cell) for cell in cells]
        self._check(name, np.array([text is None for text in texts], np.bool_), "no text")
        return [text or "" for text in texts]

    def equal(self, name: str, text: str, number: float | None) -> NDArray[np.bool_]:
        """Return for each row whether it holds a text, or a number if its cell is a number."""
        if isinstance(self._column(name), list) and number is not None:
            pairs = zip(self._cells(name), self.texts(name), strict=True)
            same = (
                bool(_float(cell) == number) if _is_number(cell) and held else held == text
                for cell, held in pairs
            )
            return np.fromiter(same, np.bool_, self.rows)
        if self.is_number(name) and number is not None:
            return np.asarray(self.numbers(name) == number, np.bool_)
        return np.fromiter((held == text for held in self.texts(name)), np.bool_, self.rows)

    def numbers(self, name: str) -> NDArray[np.float64]:
        """Return a column as numbers, NaN where a value is missing."""
        column = self._column(name)
        if not isinstance(column, list) and not self.is_number(name):
            kind = column.type
            if not (pa.types.is_string(kind) or pa.types.is_null(kind)):
                raise InputError(f"column {name!r} holds {kind}, not numbers.")
        values = np.full(self.rows, np.nan)
        bad = np.zeros(self.rows, np.bool_)
        written = self._format.column(name)
        for row, cell in enumerate(self._cells(name)):
            if written.is_missing(cell):
                continue
            number = written.number(cell) if isinstance(cell, str) else _float(cell)
            if number is None:
                bad[row] = True
            else:
                values[row] = number
        self._check(name, bad, "not a number, or a whole number beyond 2^53, which is not exact")
        return values

    def _check(self, name: str, bad: NDArray[np.bool_], what: str) -> None:
        """Name the first cell that cannot be read, unless such cells are missing."""
        if self._format.column(name).invalid == "error" and bad.any():
            raise InputError(f"row {int(np.argmax(bad)) + 1} of column {name!r} is {what}.")


def _is_number(cell: object) -> bool:
    return isinstance(cell, (int, float, Decimal, np.number)) and not isinstance(cell, bool)


def _float(cell: Any) -> float | None:
    """Return a number as a float, NaN included, if it is exactly that."""
    if not _is_number(cell):
        return None
    if isinstance(cell, (int, np.integer)) and abs(int(cell)) > MAX_INTEGER:
        return None
    return float(cell)


def _text(cell: object) -> str | None:
    """Return a cell as text, None if it has none; equal ints and floats give the same text."""
    if isinstance(cell, str):
        return cell
    if isinstance(cell, (bool, np.bool_)):
        return "true" if cell else "false"
    if (digits := whole_digits(cell)) is not None:
        return digits
    if isinstance(cell, (float, np.floating)):
        return "" if is_absent(float(cell)) else repr(float(cell))
    return str(cell) if isinstance(cell, (Decimal, date, datetime, time)) else None


def table_in_memory(data: Any) -> dict[str, Any]:
    """Return the columns of a mapping, a data frame or an Arrow table, as columns or lists."""
    wrong = InputError(
        "a table maps column names to lists of one length; or name a .csv or .parquet file."
    )
    try:
        if type(data).__module__.partition(".")[0] == "pandas":
            if len({*map(str, data.columns)}) < len(data.columns):
                raise InputError("the table has a column twice; name each column once.")
            return {str(label): _in_memory(data[label]) for label in data.columns}
        if not isinstance(data, Mapping):
            table = pa.table(data)
            check_columns("the table", table.column_names, table.column_names)
            return {name: _plain(table.column(name)) for name in table.column_names}
        columns = {str(name): _in_memory(column) for name, column in data.items()}
    except (pa.ArrowException, AttributeError, TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise wrong from None
    if len({len(column) for column in columns.values()}) > 1:
        raise wrong
    return columns


def _in_memory(column: Any) -> Any:
    """Return an Arrow column, or the cells of others, whose type would depend on all cells."""
    if isinstance(column, (pa.Array, pa.ChunkedArray)):
        return _plain(column)
    if isinstance(column, (str, bytes)):
        raise TypeError("a text is no column")
    return [None if is_absent(cell) else cell for cell in column]


def read_columns(
    data: Path | str | dict[str, Any],
    names: Collection[str],
    table_format: TableFormat = DEFAULT_FORMAT,
) -> Columns:
    """Read the named columns of a file or of `table_in_memory`; count the rows.

    Dictionaries are decoded and text is one type; other types stay as they are.
    """
    wanted = sorted(set(names))
    if isinstance(data, dict):
        check_columns("the table", list(data), wanted)
        rows = len(next(iter(data.values()), []))
        return Columns(rows, {name: data[name] for name in wanted}, table_format)
    source = Path(data)
    if source.suffix.lower() not in (".csv", ".xlsx", ".parquet"):
        raise InputError(f"data come as .csv, .xlsx or .parquet, got {source.name!r}.")
    rows, chunks = 0, {name: list[Any]() for name in wanted}
    for table, count, problems in read_table(source, wanted, table_format):
        stopping = [
            one for one in problems if table_format.column(one.column or "").invalid == "error"
        ]
        if wanted and stopping:
            first = min(stopping)
            where = "" if first.column is None else f" of column {first.column!r}"
            raise InputError(f"row {rows + first.row + 1}{where} {first.why}.")
        for name, column in chunks.items():
            column.append(_plain(table.column(name)))
        rows += count
    columns = {
        name: pa.chunked_array(column) if column else pa.chunked_array([], pa.null())
        for name, column in chunks.items()
    }
    return Columns(rows, columns, table_format)


def _plain(column: Any) -> Any:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_string_view(column.type) or pa.types.is_large_string(column.type):
        column = column.cast(pa.string())
    return column


_COMPARE = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_JOINS = re.compile(r"\b(and|or)\b", re.IGNORECASE)
_TOKEN = re.compile(
    r"""(?P<quoted>'(?:[^']|'')*'|"(?:[^"]|"")*")|(?P<operator>!=|<=|>=|=|<|>)|(?P<bad>[!'"])"""
    r"""|(?P<join>(?<=\s)and(?=\s))|(?P<word>[^\s=<>!'"]+)""",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]{1,3})?")
_MAX_LENGTH, _MAX_CLAUSES = 10_000, 100


@dataclass(frozen=True)
class Clause:
    column: str
    operator: str
    value: str

    def rows(self, columns: Columns) -> NDArray[np.bool_]:
        if self.operator in _COMPARE:
            compared = _COMPARE[self.operator](
                columns.numbers(self.column), _number(self.value, self)
            )
            return np.asarray(compared, np.bool_)
        number = float(self.value) if _NUMBER.fullmatch(self.value) else None
        if self.value and columns.is_number(self.column):
            number = _number(self.value, self)
        equal = columns.equal(self.column, self.value, number)
        return np.asarray(equal if self.operator == "=" else ~equal, np.bool_)

    def __str__(self) -> str:
        return f"{_quoted(self.column)}{self.operator}{_quoted(self.value)}"


@dataclass(frozen=True)
class Predicate:
    """Clauses that must all hold.

    >>> print(Predicate.parse("age >= 18 and city = New York and name != 'and'"))
    age>=18 and city='New York' and name!='and'
    """

    clauses: tuple[Clause, ...]

    @classmethod
    def parse(cls, text: str) -> Predicate:
        """Parse a predicate; anything else is an `InputError`."""
        if not isinstance(text, str) or len(text) > _MAX_LENGTH:
            raise InputError(f"a predicate is a text of at most {_MAX_LENGTH} characters.")
        parts: list[list[re.Match[str]]] = [[]]
        for token in _TOKEN.finditer(text):
            if token["bad"] in ("'", '"'):
                raise _wrong(text, f"a quote {token['bad']} is not closed")
            if token["join"]:
                parts.append([])
            else:
                parts[-1].append(token)
        if len(parts) > _MAX_CLAUSES:
            raise InputError(f"a predicate has at most {_MAX_CLAUSES} clauses.")
        return cls(tuple(_clause(text, part) for part in parts))

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(clause.column for clause in self.clauses))

    def rows(self, columns: Columns) -> NDArray[np.bool_]:
        chosen = np.ones(columns.rows, np.bool_)
        for clause in self.clauses:
            chosen &= clause.rows(columns)
        return chosen

    def __str__(self) -> str:
        return " and ".join(map(str, self.clauses))


def _clause(text: str, tokens: list[re.Match[str]]) -> Clause:
    place = next((i for i, token in enumerate(tokens) if token["operator"]), None)
    if place is None:
        raise _wrong(text, "a clause is COLUMN=VALUE, or with !=, <, <=, > or >=")
    operator = tokens[place]["operator"]
    column, value = _written(text, tokens[:place]), _written(text, tokens[place + 1 :])
    if not column:
        raise _wrong(text, f"a column must come before {operator}")
    clause = Clause(column, operator, value)
    if operator in _COMPARE:
        _number(value, clause)
    return clause


def _written(text: str, tokens: list[re.Match[str]]) -> str:
    """Return a quoted text without its quotes, or words as they are written."""
    if len(tokens) == 1 and (quoted := tokens[0]["quoted"]):
        return str(quoted[1:-1].replace(quoted[0] * 2, quoted[0]))
    part = text[tokens[0].start() : tokens[-1].end()] if tokens else ""
    if not all(token["word"] for token in tokens) or _JOINS.search(part):
        raise _wrong(text, f"{shown(part)} must be quoted; clauses are joined by and")
    return part


def _quoted(text: str) -> str:
    plain = re.fullmatch(r"[\w.+:/-]+", text) and not _JOINS.search(text)
    return text if plain else "'" + text.replace("'", "''") + "'"


def _number(value: str, clause: Clause) -> float:
    number = float(value) if _NUMBER.fullmatch(value) else math.nan
    if not math.isfinite(number):
        raise InputError(f"{clause.column}{clause.operator} needs a number, got {shown(value)}.")
    return number


def _wrong(text: str, rule: str) -> InputError:
    return InputError(f"{rule} (in the predicate {shown(text)}).")
