"""How a CSV file is written: its encoding, what separates its columns, its decimal sign.

Spreadsheets write CSV in the way of their country: UTF-8 with or without a mark, Windows-1252 or
UTF-16; commas, semicolons or tabs; 3.5 or 3,5. The form is read off the file itself:

* encoding: a byte order mark says UTF-16; bytes that are valid UTF-8 all through are UTF-8 (other
  text hardly ever is); otherwise Windows-1252, which `CsvForm.note` says.
* separator: the one that gives the header the columns that are asked for; without such columns
  the one that the header has most of. Several flags in one cell (`sync;vpn`) are no header.
* decimal sign: a comma only where commas do not separate columns. There 1.234,5 is a number too,
  and 1.678 is refused, because it can be two.
"""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from shoal.errors import InputError

__all__ = ["CsvForm", "csv_form", "point_number", "which_number"]

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
"""What may separate columns, most usual first, and what messages call it."""

_CHUNK = 8 << 20
_LONGEST_HEADER = 1 << 20

DECIMAL_COMMA = re.compile(
    r"\s*[-+]?([0-9]+,[0-9]+|[0-9]{1,3}([.][0-9]{3})+,[0-9]+|[0-9]{1,3}([.][0-9]{3}){2,})\s*"
)
"""A number with a decimal comma, with points for thousands, or with both."""
AMBIGUOUS = re.compile(r"\s*[-+]?[1-9][0-9]{0,2}[.][0-9]{3}\s*")
"""Where 3,5 is a number, 1.678 can be 1678 or 1,678."""


def point_number(text: str) -> str:
    """Return a number that `DECIMAL_COMMA` takes as Python writes it."""
    return text.replace(".", "").replace(",", ".")


def which_number(text: str) -> str:
    """Say that a number is ambiguous, and how to write it."""
    text = text.strip()
    plain, comma = text.replace(".", ""), text.replace(".", ",")
    return (
        f"{text!r} can be {plain} or {comma} in a file whose columns are not separated by commas;"
        " write one of these"
    )


@dataclass(frozen=True)
class CsvForm:
    """The encoding and the separator of a CSV file, and the names in its first line."""

    encoding: str
    separator: str
    header: tuple[str, ...]

    @property
    def decimal_comma(self) -> bool:
        """Whether 3,5 is a number: where commas separate columns it never is."""
        return self.separator != ","

    @property
    def note(self) -> str | None:
        """What was taken for granted and may be wrong, or None."""
        if self.encoding != "cp1252":
            return None
        return (
            "is not valid UTF-8, so it was read as Windows-1252; save it as UTF-8 if that is wrong"
        )

    @property
    def words(self) -> str:
        """The form in words."""
        names = {"utf-8": "UTF-8", "utf-16": "UTF-16", "cp1252": "Windows-1252"}
        return f"{names[self.encoding]}, columns separated by {SEPARATORS[self.separator]}"


def csv_form(path: Path, wanted: Collection[str] = (), *, error: type = InputError) -> CsvForm:
    """Return how a CSV file is written; `wanted` are columns that it should have.

    What cannot be text in any of the encodings is refused, and so is an empty file. OSError passes.
    """
    encoding = _encoding(path, error)
    line = _first_line(path, encoding)
    if not line:
        raise error(f"{path} is empty; its first line must name the columns.")
    headers = {separator: _split(line, separator) for separator in SEPARATORS}
    fitting = [mark for mark, names in headers.items() if wanted and set(wanted) <= set(names)]
    longest = max(SEPARATORS, key=lambda mark: len(headers[mark]))  # the first if several are
    separator = fitting[0] if fitting else longest
    return CsvForm(encoding, separator, headers[separator])


def _encoding(path: Path, error: type) -> str:
    with path.open("rb") as file:
        if file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            return "utf-16"
        file.seek(0)
        utf8 = codecs.getincrementaldecoder("utf-8")()
        windows = False
        while chunk := file.read(_CHUNK):
            if b"\0" in chunk:
                raise error(f"{path} is not text: it has a zero byte.")
            try:
                if not windows:
                    utf8.decode(chunk)
            except UnicodeDecodeError:
                windows = True
                file.seek(0)
                continue
            if windows:
                try:
                    chunk.decode("cp1252")
                except UnicodeDecodeError:
                    raise error(f"{path} is neither UTF-8 nor Windows-1252 text.") from None
        try:
            if not windows:
                utf8.decode(b"", final=True)
        except UnicodeDecodeError:
            windows = True
    return "cp1252" if windows else "utf-8"


def _first_line(path: Path, encoding: str) -> str:
    name = "utf-8-sig" if encoding == "utf-8" else encoding
    with path.open(encoding=name, errors="replace", newline="") as file:
        start = file.read(_LONGEST_HEADER)
    return next(iter(start.splitlines()), "")


def _split(line: str, separator: str) -> tuple[str, ...]:
    try:
        return tuple(next(iter(csv.reader([line], delimiter=separator)), []))
    except csv.Error:
        return (line,)
