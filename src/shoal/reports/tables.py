"""Tables as templates show them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

_LAYOUTS = {7: "slim", 11: "broad"}
"""Classes of a matrix with up to so many columns: where they have room side by side."""


class TableRow(NamedTuple):
    """A row of a table: its label, its cells, and a note below the label."""

    label: str
    cells: Sequence[Any]
    note: str = ""


class Table(NamedTuple):
    """A table with a caption; the first of the heads is that of the labels."""

    caption: str
    heads: Sequence[str]
    rows: Sequence[TableRow]


class Cell(NamedTuple):
    """A number of a matrix with its interval, and how dark it is."""

    value: str
    interval: str = ""
    shade: int | None = None


class Matrix(NamedTuple):
    """Rows and columns of names; the first of the heads is that of the rows."""

    caption: str
    heads: Sequence[str]
    rows: Sequence[TableRow]

    @property
    def layout(self) -> str:
        """The class that says how much room its columns need; more than eleven never have it."""
        columns = len(self.heads) - 1
        return next((name for most, name in _LAYOUTS.items() if columns <= most), "stacked")
