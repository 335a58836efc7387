"""The format of a CSV file, guessed from all its rows, for `shoal survey from` alone.

A guess lets one row decide how the others are read. So it is written into the survey file, read by
a person, and declared from then on.

* encoding: UTF-8 if all bytes are valid UTF-8, which other text hardly ever is; otherwise
  Windows-1252, and a note says so.
* delimiter: the one that is most frequent in the first line.
* decimal sign: a comma where commas do not separate cells and more cells are numbers with it.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from pathlib import Path

from shoal.errors import InputError
from shoal.support.csv_rows import read_header
from shoal.support.table_format import COMMA_NUMBER, DELIMITERS, POINT_NUMBER, TableFormat

__all__ = ["format_note", "format_words", "guess_decimal", "guess_format"]

_CHUNK = 8 << 20


def guess_format(path: Path) -> TableFormat:
    """Return the encoding and the delimiter that a CSV file seems to have. OSError passes."""
    encoding = _encoding(path)
    formats = [TableFormat(encoding, delimiter) for delimiter in DELIMITERS]
    return max(formats, key=lambda one: len(read_header(path, one)))  # the first if several are


def guess_decimal(found: TableFormat, cells: Iterable[str]) -> TableFormat:
    """Return the format with the decimal sign that these cells seem to have."""
    commas = points = 0
    for cell in cells:
        text = cell.strip()
        commas += "," in text and COMMA_NUMBER.fullmatch(text) is not None
        points += "." in text and POINT_NUMBER.fullmatch(text) is not None
    comma = found.delimiter != "," and commas > points
    return found.replaced(decimal="," if comma else ".")


def format_words(found: TableFormat) -> str:
    """Say how a file seems to be written."""
    encoding = {"utf-8": "UTF-8", "windows-1252": "Windows-1252"}[found.encoding]
    comma = ", decimal commas" if found.decimal == "," else ""
    return f"{encoding}, columns separated by {DELIMITERS[found.delimiter]}{comma}"


def format_note(found: TableFormat) -> str | None:
    """Say which part of a guess may be wrong, or None."""
    if found.encoding == "utf-8":
        return None
    return (
        "The file is not valid UTF-8, so it was read as Windows-1252; save it as UTF-8 if that is"
        " wrong."
    )


def _encoding(path: Path) -> str:
    utf8: codecs.IncrementalDecoder | None = codecs.getincrementaldecoder("utf-8")()
    windows = True
    with path.open("rb") as file:
        if file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            raise InputError(f"{path} is in UTF-16; save it as UTF-8.")
        file.seek(0)
        last = False
        while not last:
            chunk = file.read(_CHUNK)
            last = not chunk
            if b"\0" in chunk:
                raise InputError(f"{path} is not text: it has a zero byte.")
            try:
                if utf8 is not None:
                    utf8.decode(chunk, final=last)
            except UnicodeDecodeError:
                utf8 = None
            windows = windows and not set(chunk) & {0x81, 0x8D, 0x8F, 0x90, 0x9D}
    if utf8 is not None:
        return "utf-8"
    if not windows:
        raise InputError(f"{path} is neither UTF-8 nor Windows-1252 text.")
    return "windows-1252"
