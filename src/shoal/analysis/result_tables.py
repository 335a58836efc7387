"""Results as tables: plain text, Arrow, pandas, polars, and the Arrow C stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from shoal.errors import InputError

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

_MAX_NAME = 40  # characters of a first column


class TableExport:
    """Adds `to_pandas`, `to_polars` and the Arrow C stream to a result with `to_arrow`."""

    def to_arrow(self, *args: Any, **options: Any) -> pa.Table:
        """Return the result as an Arrow table, numbers in full."""
        raise NotImplementedError

    def to_pandas(self, *args: Any, **options: Any) -> pd.DataFrame:
        """Return the result as a pandas data frame; takes the arguments of `to_arrow`."""
        try:
            frame: pd.DataFrame = self.to_arrow(*args, **options).to_pandas()
        except ImportError as error:
            raise InputError("to_pandas needs pandas: pip install pandas.") from error
        return frame

    def to_polars(self, *args: Any, **options: Any) -> pl.DataFrame:
        """Return the result as a polars data frame; takes the arguments of `to_arrow`."""
        try:
            import polars as pl
        except ImportError as error:
            raise InputError("to_polars needs polars: pip install polars.") from error
        return pl.DataFrame(self.to_arrow(*args, **options))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        stream: object = self.to_arrow().__arrow_c_stream__(requested_schema)
        return stream


def arrow_rows(names: Sequence[str], rows: Sequence[dict[str, Any]], **shared: Any) -> pa.Table:
    """Return rows as an Arrow table: text under `names`, then numbers, then what all share."""
    import pyarrow as pa

    types = {str: pa.string(), bool: pa.bool_(), int: pa.int64(), float: pa.float64()}
    whole = [row | shared for row in rows]
    numbers = whole[0] if whole else {}
    fields = [(name, pa.string()) for name in names]
    fields += [(name, types[type(value)]) for name, value in numbers.items() if name not in names]
    return pa.Table.from_pylist(whole, schema=pa.schema(fields))


def plain_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return lines with columns of equal width: the first to the left, the others to the right.

    >>> print(plain_table(("option", "count"), [("sync", "1,204"), ("vpn", "77")]))
    option  count
    sync    1,204
    vpn        77
    """
    cut = [(_shortened(first), *rest) for first, *rest in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*cut, strict=True)]
    lines = []
    for first, *rest in cut:
        cells = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        lines.append("  ".join((first.ljust(widths[0]), *cells)).rstrip())
    return "\n".join(lines)


def _shortened(text: str) -> str:
    printable = "".join(letter if letter.isprintable() else "?" for letter in text)
    return printable if len(printable) <= _MAX_NAME else printable[: _MAX_NAME - 3] + "..."
