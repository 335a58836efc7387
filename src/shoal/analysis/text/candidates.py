"""Candidates: texts that somebody may have answered, each once and in its normal form."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from shoal.errors import InputError
from shoal.protocol.text_hash import normal_text
from shoal.support.checks import shown
from shoal.support.files import first_line, instead, kind_of

__all__ = ["Candidates", "check_candidates", "read_candidates"]

LARGEST_FILE = 1 << 30


class Candidates(NamedTuple):
    """Different texts, in the order they came, and how many were left out and why."""

    texts: tuple[str, ...]
    empty: int
    repeated: int


def check_candidates(source: Iterable[object]) -> Candidates:
    r"""Return the candidates in normal form; empty ones and repetitions are counted, not kept.

    >>> check_candidates(["cafe\u0301", "caf\u00e9 ", "", "tea"])
    Candidates(texts=('café', 'tea'), empty=1, repeated=1)
    """
    if isinstance(source, (str, bytes)) or not isinstance(source, Iterable):
        raise InputError(f"candidates must be a list of texts, got {shown(source)}.")
    texts: dict[str, None] = {}
    total = empty = 0
    for number, value in enumerate(source, 1):
        total = number
        text = value.as_py() if hasattr(value, "as_py") else value
        if text is None:
            empty += 1
            continue
        if not isinstance(text, str):
            raise InputError(f"candidate {number} must be text, got {shown(text)}.")
        if normal := normal_text(text):
            if not normal.isascii() and any("\ud800" <= letter <= "\udfff" for letter in normal):
                raise InputError(f"candidate {number} is not valid Unicode: {shown(text)}.")
            texts[normal] = None
        else:
            empty += 1
    if not texts:
        raise InputError("there are no candidates; give at least one text.")
    return Candidates(tuple(texts), empty, total - empty - len(texts))


def read_candidates(path: Path | str, column: str | None = None) -> list[str]:
    """Read candidates: the lines of a text file, or a column of a CSV or Parquet table.

    A table of one column needs no name for it. A missing cell is an empty text.
    """
    path = Path(path)
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise InputError(f"{path} is larger than {LARGEST_FILE >> 20} MiB.")
        if kind_of(path) in ("reports", "originals", "tally", "plan"):
            raise InputError(instead(path, "candidates"))
        if path.suffix.lower() in (".csv", ".parquet"):
            return _column(path, column)
        if column is not None:
            raise InputError(f"a column needs a .csv or .parquet file, got {path.name!r}.")
        return list(path.read_text("utf-8-sig").splitlines())
    except OSError as error:
        reason = error.strerror or "unreadable"
        raise InputError(f"cannot read candidates {path}: {reason}.") from error
    except UnicodeDecodeError as error:
        raise InputError(f"candidates {path} are not UTF-8 text.") from error


def _column(path: Path, column: str | None) -> list[str]:
    import pyarrow as pa
    import pyarrow.csv as pa_csv
    import pyarrow.parquet as pq

    try:
        if path.suffix.lower() == ".parquet":
            table = pq.read_table(path)
        else:
            # Words stay words: "null", "1e5" and "true" are texts that people type.
            names = pa_csv.open_csv(path).schema.names
            as_text = pa_csv.ConvertOptions(column_types={name: pa.string() for name in names})
            table = pa_csv.read_csv(path, convert_options=as_text)
    except pa.ArrowException as error:
        raise InputError(f"cannot read candidates {path}: {first_line(error)}.") from error
    names = table.column_names
    if column is None and len(names) != 1:
        raise InputError(f"{path} has {len(names)} columns; say which one holds the candidates.")
    if column is not None and column not in names:
        raise InputError(f"{path} has no column {column!r}; it has {', '.join(names[:8])}.")
    cells = table.column(column or names[0]).to_pylist()
    return ["" if cell is None else cell for cell in cells]
