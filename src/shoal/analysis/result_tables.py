"""Results as tables of others: Arrow, pandas, polars, and whoever takes the Arrow C stream.

A result that derives from `Frames` says in `to_arrow` what its rows are. Numbers are in full.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from shoal.errors import InputError

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

__all__ = ["Frames", "plain_table", "table_of"]


class Frames:
    """A result that can be had as a table of the library that people already use."""

    def to_arrow(self, *args: Any, **how: Any) -> pa.Table:
        """Return the result as an Arrow table."""
        raise NotImplementedError

    def to_pandas(self, *args: Any, **how: Any) -> pd.DataFrame:
        """Return the result as a pandas data frame; it takes what `to_arrow` takes."""
        try:
            frame: pd.DataFrame = self.to_arrow(*args, **how).to_pandas()
        except ImportError as error:
            raise InputError("to_pandas needs pandas: pip install pandas.") from error
        return frame

    def to_polars(self, *args: Any, **how: Any) -> pl.DataFrame:
        """Return the result as a polars data frame; it takes what `to_arrow` takes."""
        try:
            import polars as pl
        except ImportError as error:
            raise InputError("to_polars needs polars: pip install polars.") from error
        return pl.DataFrame(self.to_arrow(*args, **how))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        stream: object = self.to_arrow().__arrow_c_stream__(requested_schema)
        return stream


def table_of(names: Sequence[str], rows: Sequence[dict[str, Any]], **shared: Any) -> pa.Table:
    """Return rows as an Arrow table: answers under `names`, then numbers, then what all share."""
    import pyarrow as pa

    types = {str: pa.string(), bool: pa.bool_(), int: pa.int64(), float: pa.float64()}
    whole = [row | shared for row in rows]
    fields = [(name, pa.string()) for name in names]
    fields += [
        (name, types[type(value)])
        for name, value in (whole[0] if whole else {}).items()
        if name not in names
    ]
    return pa.Table.from_pylist(whole, schema=pa.schema(fields))


_LONGEST = 40
"""Letters of a first column; longer names are cut, since a table is to look at."""


def plain_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return lines with columns of equal width: the first to the left, the others to the right.

    >>> print(plain_table(("option", "count"), [("sync", "1,204"), ("vpn", "77")]))
    option  count
    sync    1,204
    vpn        77
    """
    cut = [(_cut(first), *rest) for first, *rest in (header, *rows)]
    widths = [max(len(row[place]) for row in cut) for place in range(len(header))]
    lines = []
    for first, *rest in cut:
        cells = [first.ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _cut(text: str) -> str:
    printable = "".join(letter if letter.isprintable() else "?" for letter in text)
    return printable if len(printable) <= _LONGEST else printable[: _LONGEST - 3] + "..."
