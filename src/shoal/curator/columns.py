"""Columns of a table, in a CSV or Parquet file or in memory, as text or as numbers.

A CSV is read as text, whatever it looks like: guessing a column's type from its values would let
one row decide how all are read. Parquet columns have the type that their schema says.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.errors import InputError
from shoal.support.csv_form import AMBIGUOUS, DECIMAL_COMMA, csv_form, which_number
from shoal.support.documents import listed
from shoal.support.files import first_line

__all__ = ["Columns", "arrow_table", "read_columns"]


@dataclass(frozen=True)
class Columns:
    """Some columns of a table, and how many rows it has."""

    rows: int
    _columns: dict[str, Any]
    decimal_comma: bool = False

    def _column(self, name: str) -> Any:
        if name not in self._columns:
            raise InputError(f"there is no column {name!r}; there is {listed(self._columns)}.")
        return self._columns[name]

    def is_number(self, name: str) -> bool:
        """Whether the schema says that a column holds numbers."""
        import pyarrow as pa

        kind = self._column(name).type
        return bool(
            pa.types.is_integer(kind)
            or pa.types.is_floating(kind)
            or pa.types.is_decimal(kind)
            or pa.types.is_null(kind)
        )

    def texts(self, name: str) -> list[str]:
        """Return a column as text; a missing value is the empty text."""
        import pyarrow as pa

        column = self._column(name)
        try:
            return [value or "" for value in column.cast(pa.string()).to_pylist()]
        except pa.ArrowException:
            raise InputError(f"column {name!r} of {column.type} cannot be read as text.") from None

    def numbers(self, name: str) -> NDArray[np.float64]:
        """Return a column as numbers, NaN where a value is missing."""
        import pyarrow as pa
        import pyarrow.compute as pc

        column = self._column(name)
        if self.is_number(name):
            cast = _cast_numbers(name, column)
        elif pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            trimmed = pc.utf8_trim_whitespace(column)
            missing = pa.scalar(None, pa.string())
            if self.decimal_comma:
                unclear = pc.match_substring_regex(trimmed, f"^{AMBIGUOUS.pattern}$")
                if (place := pc.index(unclear, True).as_py()) >= 0:
                    text = which_number(trimmed[place].as_py())
                    raise InputError(f"row {place + 1} of column {name!r}: {text}.")
                comma = pc.match_substring_regex(trimmed, f"^{DECIMAL_COMMA.pattern}$")
                points = pc.replace_substring(pc.replace_substring(trimmed, ".", ""), ",", ".")
                trimmed = pc.if_else(comma, points, trimmed)
            cast = _cast_texts(name, pc.if_else(pc.equal(trimmed, ""), missing, trimmed))
        else:
            raise InputError(f"column {name!r} holds {column.type}, not numbers.")
        return np.asarray(cast.to_numpy(), np.float64)


def _cast_numbers(name: str, column: Any) -> Any:
    import pyarrow as pa

    try:  # a cast of whole numbers is safe if they are within 2^53
        return column.cast(pa.float64(), safe=pa.types.is_integer(column.type))
    except pa.ArrowException:
        raise InputError(
            f"column {name!r} holds whole numbers beyond 2^53, which are not exact; scale it first."
        ) from None


def _cast_texts(name: str, texts: Any) -> Any:
    import pyarrow as pa

    try:
        return texts.cast(pa.float64())
    except pa.ArrowException:
        rows = enumerate(texts.to_pylist(), 1)
        row, cell = next((i, text) for i, text in rows if not _is_number(text))
        raise InputError(f"row {row} of column {name!r} is not a number: {cell[:40]!r}.") from None


def _is_number(text: str | None) -> bool:
    import pyarrow as pa

    try:
        pa.array([text], pa.string()).cast(pa.float64())
    except pa.ArrowException:
        return False
    return True


def arrow_table(data: Any) -> Any:
    """Return a table in memory as an Arrow table: a mapping of columns, a data frame, or one.

    The message names no value: it may end up in a log.
    """
    import pyarrow as pa

    try:
        return pa.table(data)
    except (pa.ArrowException, AttributeError, TypeError, ValueError):
        raise InputError(
            "a table maps column names to lists of one length, each with values of one type; or"
            " name a .csv or .parquet file."
        ) from None


def read_columns(data: Path | str | Any, names: Collection[str]) -> Columns:
    """Read the named columns of a CSV or Parquet file or of an Arrow table, and count its rows.

    Dictionaries are decoded and text is one type; other types stay as they are.
    """
    if not isinstance(data, (Path, str)):
        table, rows = _select("the table", data, sorted(set(names)))
    else:
        table, rows = _read_file(Path(data), sorted(set(names)))
    columns = {name: _plain(table.column(name)) for name in table.column_names}
    return Columns(rows, columns, _has_decimal_commas(data, names))


def _has_decimal_commas(data: Any, names: Collection[str]) -> bool:
    """Whether data are a CSV file in which 3,5 can be a number."""
    if not isinstance(data, (Path, str)) or Path(data).suffix.lower() != ".csv":
        return False
    return csv_form(Path(data), names).decimal_comma


def _read_file(source: Path, names: list[str]) -> tuple[Any, int]:
    import pyarrow as pa

    readers = {".csv": _read_csv, ".parquet": _read_parquet}
    if source.suffix.lower() not in readers:
        raise InputError(f"data come as .csv or .parquet, got {source.name!r}.")
    try:
        return readers[source.suffix.lower()](source, names)
    except OSError as error:
        reason = error.strerror or first_line(error)
        raise InputError(f"cannot read {source}: {reason}.") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{source} is not text in UTF-8.") from error
    except pa.ArrowException as error:
        raise InputError(f"cannot read {source}: {first_line(error)}.") from error


def _select(source: str, table: Any, names: list[str]) -> tuple[Any, int]:
    _check_names(source, table.column_names, names)
    return table.select(names), table.num_rows


def _plain(column: Any) -> Any:
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_string_view(column.type) or pa.types.is_large_string(column.type):
        column = column.cast(pa.string())
    return column


def _check_names(source: object, header: list[str], names: list[str]) -> None:
    for name in names:
        if name not in header:
            raise InputError(f"{source} has no column {name!r}; it has {listed(header)}.")
        if header.count(name) > 1:
            raise InputError(f"{source} has column {name!r} twice.")


def _read_csv(source: Path, names: list[str]) -> tuple[Any, int]:
    import pyarrow as pa
    from pyarrow import csv

    form = csv_form(source, names)
    header = list(form.header)
    _check_names(source, header, names)
    read = names or header[:1]  # a column is needed to count the rows
    convert = csv.ConvertOptions(
        column_types={name: pa.string() for name in read},
        include_columns=read,
        strings_can_be_null=False,
    )
    # In a table of one column an empty line is a row.
    parse = csv.ParseOptions(ignore_empty_lines=len(header) > 1, delimiter=form.separator)
    options = csv.ReadOptions(encoding=form.encoding.replace("-", ""))
    table = csv.read_csv(source, read_options=options, parse_options=parse, convert_options=convert)
    return table, table.num_rows


def _read_parquet(source: Path, names: list[str]) -> tuple[Any, int]:
    from pyarrow import parquet

    with parquet.ParquetFile(source) as file:
        _check_names(source, file.schema_arrow.names, names)
        return file.read(columns=names), file.metadata.num_rows
