"""Tables of people's rows in CSV, Excel, Parquet and Arrow files, read by the declared format.

A reader yields Arrow record batches with the problems of their rows. Cells of data frames are here
too: one row must never decide how another is read, so columns without a type are lists of cells.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from shoal.errors import InputError, require
from shoal.support.checks import whole_digits
from shoal.support.csv_rows import (
    TableBatch,
    TableSource,
    is_blank,
    read_csv,
    text_batch,
    tidy,
    unique_names,
)
from shoal.support.files import cannot_read, first_line
from shoal.support.table_format import DEFAULT_FORMAT, TableFormat

_ROWS = 1 << 16

_BYTES = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}
"""Types of texts, and the same without a promise about their bytes."""


def read_table(
    path: Path,
    names: Collection[str] | None = None,
    table_format: TableFormat = DEFAULT_FORMAT,
    *,
    error: type[InputError] = InputError,
) -> Iterator[TableBatch]:
    """Read some columns of a file with a suffix in `READERS`, or all of them."""
    with file_errors(path, error):
        source = TableSource(path, names, table_format, error)
        batches = READERS[path.suffix.lower()](source)
        yield from _without_last(batches, table_format.skip_last)


def _without_last(batches: Iterator[TableBatch], count: int) -> Iterator[TableBatch]:
    held: list[TableBatch] = []
    rows = 0
    for batch in batches:
        held.append(batch)
        rows += batch.rows
        while rows - held[0].rows >= count:
            rows -= held[0].rows
            yield held.pop(0)
            if not held:
                break
    for batch in held:
        yield batch.first(max(rows - count, 0))
        rows -= batch.rows


@contextmanager
def file_errors(path: Path, error: type[InputError] = InputError) -> Iterator[None]:
    """Raise errors of the system and of Arrow about a file as one sentence."""
    try:
        yield
    except OSError as problem:
        raise error(cannot_read(str(path), path, problem)) from problem
    except (pa.ArrowException, UnicodeDecodeError) as problem:
        raise error(f"cannot read {path}: {first_line(problem)}.") from problem


def _read_parquet(source: TableSource) -> Iterator[TableBatch]:
    # With pre-buffering Arrow keeps the whole file in memory.
    with pq.ParquetFile(source.path, pre_buffer=False, buffer_size=1 << 20) as file:
        wanted = source.columns_of(file.schema_arrow.names)
        for batch in file.iter_batches(_ROWS, columns=wanted):
            yield TableBatch(batch, batch.num_rows)


def _read_arrow(source: TableSource) -> Iterator[TableBatch]:
    with pa.OSFile(str(source.path)) as file:
        reader = pa.ipc.open_file(file)
        wanted = source.columns_of(reader.schema.names)
        for place in range(reader.num_record_batches):
            batch = reader.get_batch(place).select(wanted)
            for column in batch.columns:  # Arrow itself would read beyond a buffer that is short
                _with_bytes(column).validate(full=True)
            yield TableBatch(batch, batch.num_rows)


@contextmanager
def _excel(path: Path, error: type[InputError]) -> Iterator[Iterator[tuple[Any, ...]]]:
    require("openpyxl", purpose="reading an Excel file")
    import openpyxl

    try:
        # From a path the library would take the kind of the file.
        with path.open("rb") as file:
            book = openpyxl.load_workbook(file, read_only=True, data_only=True)
            yield book.worksheets[0].iter_rows(values_only=True)
    except (zipfile.BadZipFile, KeyError, ValueError, TypeError, IndexError) as problem:
        if isinstance(problem, InputError):
            raise
        raise error(f"cannot read {path}: it is not a valid Excel file.") from problem


def first_excel_rows(path: Path, count: int) -> list[tuple[Any, ...]]:
    """Return the first rows of an Excel file, the header and lines above it included."""
    with _excel(path, InputError) as rows:
        return list(islice(rows, count))


def _read_excel(source: TableSource) -> Iterator[TableBatch]:
    """Read the first sheet; each cell becomes the text that a CSV file would have."""
    with _excel(source.path, source.error) as rows:
        yield from _excel_rows(source, rows)


def _excel_rows(source: TableSource, rows: Iterator[tuple[Any, ...]]) -> Iterator[TableBatch]:
    path, _, table_format, error = source
    header = next(islice(rows, table_format.skip_first, None), ())
    if is_blank(header):
        raise error(f"{path} is empty; the first row of its first sheet must name the columns.")
    found = unique_names(["" if name is None else str(name) for name in header])
    names = source.columns_of(found)
    places = {name: found.index(tidy(name)) for name in names}
    formats = {name: table_format.column(name) for name in names}
    while part := list(islice(rows, _ROWS)):
        kept = [row for row in part if not (table_format.skip_blank and is_blank(row))]
        columns = {
            name: [
                None if place >= len(row) else _excel_text(row[place], formats[name].decimal)
                for row in kept
            ]
            for name, place in places.items()
        }
        yield text_batch(columns, len(kept))


def _excel_text(cell: object, decimal: str) -> str | None:
    """Return a cell as text: a number with the declared decimal sign, a date as ISO 8601."""
    if cell is None or isinstance(cell, str):
        return cell
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, float):
        return (whole_digits(cell) or repr(cell)).replace(".", decimal)
    return str(cell)


READERS: dict[str, Callable[[TableSource], Iterator[TableBatch]]] = {
    ".csv": read_csv,
    ".xlsx": _read_excel,
    ".parquet": _read_parquet,
    ".arrow": _read_arrow,
    ".feather": _read_arrow,
}


def _with_bytes(array: Any) -> Any:
    """Return an array on the same buffers with its texts as bytes.

    Text that is not UTF-8 must not fail the whole batch: it belongs to its row.
    """
    kind, types = array.type, pa.types
    if kind in _BYTES:
        return pa.Array.from_buffers(_BYTES[kind], len(array), array.buffers(), -1, array.offset)
    if types.is_dictionary(kind):
        return pa.DictionaryArray.from_arrays(
            array.indices, _with_bytes(array.dictionary), safe=False
        )
    if types.is_list(kind) or types.is_large_list(kind):
        cells = _with_bytes(array.values)
        whole = (pa.list_ if types.is_list(kind) else pa.large_list)(cells.type)
        buffers = array.buffers()[:2]
        return pa.Array.from_buffers(whole, len(array), buffers, -1, array.offset, [cells])
    return array


def python_cells(column: Any) -> list[Any]:
    """Return the cells of an Arrow column; bytes stand for a cell that Python cannot hold.

    That is a text that is not valid UTF-8, or a date beyond the year 9999.
    """
    try:
        return list(column.to_pylist())
    except (ValueError, OverflowError):
        return [_python_cell(cell) for cell in column]


def _python_cell(scalar: Any) -> Any:
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        return b""


def is_pandas(table: Any) -> bool:
    return type(table).__module__.partition(".")[0] == "pandas"


def python_series(series: Any) -> list[Any] | None:
    """Return the cells of a pandas column without a fixed type; None if it has one.

    The type of such a column depends on all its cells, so each cell must be read by itself.
    """
    kind = getattr(series.dtype, "kind", "O")
    if kind in "iuf" or str(series.dtype) in ("str", "string"):
        return None
    return [None if is_absent(cell) else cell for cell in series.tolist()]


def is_absent(cell: object) -> bool:
    """Whether a cell of a data frame is None, NaN, NaT or NA."""
    if cell is None or type(cell).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(cell, float) and math.isnan(cell)
