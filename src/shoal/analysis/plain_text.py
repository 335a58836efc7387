"""Results as plain text, for `print` and for logs."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["plain_table"]

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
