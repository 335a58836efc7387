"""How results show themselves: one line, a text, HTML in a notebook, and data frames.

A class that is `Displayed` says its `_headline` and the tables of its `_sections`. Everything that
people see is made from these, so that a terminal and a notebook show the same. `wrapped` breaks
lines to a width in columns, of which East Asian letters take two.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from shoal.errors import InputError

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

MAX_ROWS = 50
"""Rows of a table that are shown; data frames have them all."""

_MAX_NAME = 40  # characters of a cell in a terminal
_MAX_LINE = 150  # characters of a headline within a repr
_WIDTH = 80  # columns of a terminal

T = TypeVar("T")


class Section:
    """A table of a result, in words and numbers for people.

    `left_out` is how many more rows there are. The rows of `prose` are sentences: a terminal shows
    each as a paragraph. Devices load this module, and a plain class is made fastest.
    """

    def __init__(
        self,
        heads: Sequence[str],
        rows: Sequence[Sequence[str]],
        title: str = "",
        left_out: int = 0,
        *,
        prose: bool = False,
    ) -> None:
        self.heads, self.rows, self.title = heads, rows, title
        self.left_out, self.prose = left_out, prose

    @property
    def numeric(self) -> tuple[bool, ...]:
        """Which columns hold only numbers, and are aligned to the right."""
        columns = list(zip(*self.rows, strict=True)) or [()] * len(self.heads)
        return tuple(
            place > 0 and all(re.match(r"[-+(±]?[.\d]|$", cell) for cell in cells)
            for place, cells in enumerate(columns)
        )

    @property
    def rest(self) -> str:
        """A sentence about the rows that are left out, if any are."""
        return f"{self.left_out:,} more rows are not shown." if self.left_out else ""


def first_rows(items: Iterable[T], most: int = MAX_ROWS) -> tuple[list[T], int]:
    """Return the items that a table shows, and how many are left out."""
    every = list(items)
    return every[:most], max(len(every) - most, 0)


class Displayed:
    """Shows itself: `repr` is one line, `print` a compact text, a notebook shows HTML."""

    def _headline(self) -> str:
        """Return what this is, in one line and without computing anything."""
        raise NotImplementedError

    def _sections(self) -> Iterable[Section]:
        """Return the tables to show; by default the plain values of the JSON form."""
        to_json: Any = getattr(self, "to_json")  # noqa: B009  not every result has one
        plain = (str, int, float)
        values = ((name, value) for name, value in to_json().items() if isinstance(value, plain))
        rows = [(name.replace("_", " "), _written(value)) for name, value in values]
        return [Section(("", ""), rows)]

    def _remarks(self) -> Iterable[str]:
        """Return the sentences below the tables."""
        return ()

    def __repr__(self) -> str:
        line = printable(self._headline())
        return f"{type(self).__name__}({shortened(line, _MAX_LINE)})"

    def __str__(self) -> str:
        parts = [_paragraph(printable(self._headline()), 0)]
        parts += ["\n".join(_lines(section)) for section in self._sections()]
        remarks = [_paragraph(f"- {printable(one)}", 2) for one in self._remarks()]
        return "\n\n".join((*parts, *(["\n".join(remarks)] if remarks else [])))

    def _repr_html_(self) -> str | None:
        try:
            from shoal.reports.publication import notebook_html
        except ModuleNotFoundError:  # without Jinja a notebook shows the line
            return None
        return notebook_html(self)


def _lines(section: Section) -> Iterator[str]:
    if section.title:
        yield shortened(printable(section.title), _WIDTH)
    if section.prose:
        for first, *others in section.rows:
            yield _paragraph(printable(f"{first}: {'; '.join(filter(None, others))}"), 4)
    else:
        yield plain_table(section)
    if section.rest:
        yield section.rest


def _paragraph(text: str, indent: int) -> str:
    from textwrap import fill  # a device shows nothing

    return fill(text, _WIDTH, subsequent_indent=" " * indent)


def _written(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def plain_table(section: Section) -> str:
    """Return lines with columns of equal width: numbers to the right, all else to the left.

    Columns that do not fit follow below, beside the first column again.

    >>> print(plain_table(Section(("option", "count"), [("sync", "1,204"), ("vpn", "77")])))
    option  count
    sync    1,204
    vpn        77
    """
    numeric = section.numeric
    cut = [
        [shortened(printable(cell), _MAX_NAME) for cell in row]
        for row in (section.heads, *section.rows)
        if any(row)
    ]
    if not cut:
        return ""
    columns = []
    for cells, right in zip(zip(*cut, strict=True), numeric, strict=True):
        width = max(map(len, cells))
        columns.append([cell.rjust(width) if right else cell.ljust(width) for cell in cells])
    blocks = []
    while columns:
        block, width = columns[:1], len(columns[0][0])
        rest = columns[1:]
        while rest and (len(block) == 1 or width + 2 + len(rest[0][0]) <= _WIDTH):
            width += 2 + len(rest[0][0])
            block.append(rest.pop(0))
        lines = ("  ".join(row).rstrip() for row in zip(*block, strict=True))
        blocks.append("\n".join(lines))
        columns = [columns[0], *rest] if rest else []
    return "\n\n".join(blocks)


def printable(text: str) -> str:
    """Return a text without characters that would move the cursor or hide others."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def shortened(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 3] + "..."


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
    known = {name: row[name] for row in reversed(whole) for name in row if row[name] is not None}
    fields = [(name, pa.string()) for name in names]
    fields += [
        (name, types[type(known.get(name, 0.0))])
        for name in (whole[0] if whole else {})
        if name not in names
    ]
    return pa.Table.from_pylist(whole, schema=pa.schema(fields))


_SPACES = " \n"  # of a no-break space a line is not broken
_NOT_FIRST = "、。，．：；？！）」』】〕〉》ー々・…ぁぃぅぇぉっゃゅょゎァィゥェォッャュョヮヵヶ"
_NOT_LAST = "（「『【〔〈《"


def width_of(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    return sum(map(_columns, text))


def _columns(letter: str) -> int:
    if unicodedata.combining(letter) or unicodedata.category(letter) in ("Cf", "Me", "Mn"):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def wrapped(text: str, width: int) -> str:
    """Break lines that are too long; what follows an indented line is indented further."""
    return "\n".join(part for line in text.split("\n") for part in _wrapped_line(line, width))


def _wrapped_line(line: str, width: int) -> Iterator[str]:
    if width_of(line) <= width:
        yield line
        return
    start = line[: len(line) - len(line.lstrip(" "))]
    indent = start + "  " if start else ""
    if 2 * len(indent) > width:  # no room to indent
        start = indent = ""
    current = start
    for space, piece in _pieces(line.lstrip(" "), width - len(indent)):
        if width_of(current + space + piece) > width and current.strip(" "):
            yield current
            current = indent + piece
        else:
            current += space + piece
    yield current


def _pieces(line: str, widest: int) -> Iterator[tuple[str, str]]:
    """Yield the parts of a line that are not broken, each with the space before it."""
    space, piece = "", ""
    for letter in line:
        if letter in _SPACES:
            if piece:
                yield space, piece
                space, piece = "", ""
            space += letter
            continue
        may_break = piece and (_columns(letter) == 2 or _columns(piece[-1]) == 2)
        may_break = may_break and letter not in _NOT_FIRST and piece[-1] not in _NOT_LAST
        if may_break or width_of(piece + letter) > widest:
            yield space, piece
            space, piece = "", ""
        piece += letter
    if piece:
        yield space, piece
