"""Estimates as CSV, Parquet and Arrow, with the numbers in full."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from shoal.analysis.estimates import estimate_rows, estimates_arrow

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""Characters that start a formula in a spreadsheet, full-width too (OWASP, CSV injection)."""


def csv_text(document: Mapping[str, Any]) -> str:
    """Write the estimates as CSV (RFC 4180), with full precision and without formulas."""
    out = io.StringIO()
    writer = csv.writer(out)
    for number, row in enumerate(estimate_rows(document)):
        if number == 0:
            writer.writerow(row)
        writer.writerow([_cell(value) for value in row.values()])
    return out.getvalue()


def _cell(value: object) -> object:
    """Return the content of a cell; text that a spreadsheet would compute gets a leading quote.

    >>> _cell("=cmd|' /C calc'!A0"), _cell("a=b"), _cell(-1.5), _cell(True)
    ("'=cmd|' /C calc'!A0", 'a=b', -1.5, 'true')
    """
    if isinstance(value, bool):
        return str(value).lower()
    is_formula = isinstance(value, str) and value.startswith(_FORMULA)
    return f"'{value}" if is_formula else value


def write_table(document: Mapping[str, Any], target: Path | BinaryIO, kind: str) -> None:
    """Write the estimates as Parquet or Arrow; the metadata `shoal` holds the whole JSON."""
    import pyarrow.feather as feather
    import pyarrow.parquet as pq

    table = estimates_arrow(document)
    if kind == "parquet":
        pq.write_table(table, target)
    else:
        feather.write_feather(table, target, compression="uncompressed")
