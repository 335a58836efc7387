"""Infer a survey from a table of answers: kinds, options and ranges, and the table's format.

The result is a start to be read and edited. Its options and edges come from the data, so it reveals
something about them: values of fewer than ten people are left out, identifiers never become
questions, and the notes say the rest.

The format of a CSV file is guessed from all its rows, so one row could decide how others are read.
Therefore the guess is written into the survey file, for a person to read, and declared thereafter:

* encoding: UTF-8 if all bytes are valid UTF-8; otherwise Windows-1252, and a note says so.
* delimiter: the most frequent one in the first line.
* decimal sign: a comma where commas do not separate cells and more cells are numbers with it.
"""

from __future__ import annotations

import codecs
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from shoal.device.arrays.column_kinds import RARE, ColumnProposal, propose_question
from shoal.errors import InputError
from shoal.protocol.survey import Survey, Text
from shoal.support.csv_rows import read_header
from shoal.support.files import explain_wrong_file, kind_of
from shoal.support.results import Displayed, Section, first_rows
from shoal.support.table_files import TableBatch, file_errors, read_table
from shoal.support.table_format import COMMA_NUMBER, DELIMITERS, POINT_NUMBER, TableFormat

WARNING = (
    "Options and ranges are taken from people's answers: a reader of this survey learns that"
    f" someone gave them. Values of fewer than {RARE} people are not listed. Read it before you"
    " publish it, and prefer options that you would have asked for anyway."
)
MAX_ROWS = 1_000_000
_CHUNK = 8 << 20
_NOT_WINDOWS = {0x81, 0x8D, 0x8F, 0x90, 0x9D}
"""Bytes that Windows-1252 does not use."""


@dataclass(frozen=True, repr=False)
class SurveyProposal(Displayed):
    """A survey inferred from a table, and the kind inferred for each column."""

    survey: Survey
    columns: tuple[ColumnProposal, ...]
    rows: int
    notes: tuple[str, ...]
    table_format: TableFormat | None = None

    def _headline(self) -> str:
        questions = len(self.survey.questions)
        return f"{self.survey.name}: {questions} questions proposed from {self.rows:,} rows"

    def _sections(self) -> list[Section]:
        columns, left_out = first_rows(self.columns)
        rows = [(one.column, one.kind or "left out", one.seen) for one in columns]
        return [Section(("column", "kind", "seen"), rows, left_out=left_out)]

    def _remarks(self) -> tuple[str, ...]:
        return self.notes

    def to_toml(self) -> str:
        """Return the survey as TOML, with the format that its CSV file seems to have.

        Comments say where the survey comes from, and nothing of the data.
        """
        comment = textwrap.wrap(WARNING, 98)
        left_out = [one.column for one in self.columns if one.question is None]
        if left_out:
            comment += textwrap.wrap(f"Columns left out: {', '.join(map(ascii, left_out))}.", 98)
        text = "\n".join((*(f"# {line}" for line in comment), self.survey.to_toml()))
        return text if self.table_format is None else f"{text}\n{self.table_format.to_toml()}"

    def to_json(self) -> dict[str, Any]:
        """Return the survey and the observations as plain JSON values."""
        return {
            "survey": self.survey.to_json(),
            "rows": self.rows,
            "columns": [
                {"column": one.column, "kind": one.kind, "seen": one.seen} for one in self.columns
            ],
            "notes": list(self.notes),
            "table": None if self.table_format is None else self.table_format.to_json(),
        }


def infer_survey(
    source: Path | str | Any, *, name: str | None = None, max_rows: int = MAX_ROWS
) -> SurveyProposal:
    """Propose a survey from a .csv or .parquet file, or from a table in memory.

    Parameters
    ----------
    source
        A file with one row per person and one column per question, or a pandas, polars or Arrow
        table. The encoding (UTF-8 or Windows-1252), the delimiter and the decimal sign of a CSV
        file are guessed: see `SurveyProposal.table_format`.
    name
        The name of the survey; by default that of the file.
    max_rows
        How many rows are looked at.

    Examples
    --------
    >>> answers = {"smokes": ["yes", "no"] * 50, "city": ["Rome", "Oslo"] * 50}
    >>> proposal = infer_survey(pa.table(answers), name="people")
    >>> [(question.name, question.kind) for question in proposal.survey]
    [('smokes', 'yes/no'), ('city', 'choice')]
    """
    found: TableFormat | None = None
    if isinstance(source, (Path, str)):
        path = Path(source)
        found = _guess_format(path)
        cells = _first_rows(path, read_table(path, None, found or TableFormat()), max_rows + 1)
        called = name or " ".join(path.stem.split()) or "survey"
    else:
        given = pa.table(source).slice(0, max_rows + 1).to_batches()
        batches = (TableBatch(batch, batch.num_rows) for batch in given)
        cells, called = _first_rows("the table", batches, max_rows + 1), name or "survey"
    rows = len(next(iter(cells.values()), []))
    if not rows:
        raise InputError("the table has no rows; a survey is proposed from people's answers.")
    whole, rows = rows <= max_rows, min(rows, max_rows)
    cells = {column: given[:rows] for column, given in cells.items()}
    if found is not None:
        found = _guess_decimal(found, (cell for given in cells.values() for cell in given))
    columns = tuple(
        propose_question(column, given, found or TableFormat(), whole=whole)
        for column, given in cells.items()
    )
    questions = [one.question for one in columns if one.question is not None]
    if not questions:
        why = "; ".join(f"{one.column!r}: {one.seen}" for one in columns[:5])
        raise InputError(f"no column can be asked for: {why}.")
    survey = Survey(called, tuple(questions))
    return SurveyProposal(survey, columns, rows, _notes(survey, rows, whole, found), found)


def _notes(survey: Survey, rows: int, whole: bool, found: TableFormat | None) -> tuple[str, ...]:
    read = f"Read {rows:,} rows" if whole else f"Read the first {rows:,} rows only"
    if found is not None:
        encoding = {"utf-8": "UTF-8", "windows-1252": "Windows-1252"}[found.encoding]
        comma = ", decimal commas" if found.decimal == "," else ""
        read += f"; {encoding}, columns separated by {DELIMITERS[found.delimiter]}{comma}"
    notes = [f"{read}."]
    if found is not None and found.encoding != "utf-8":
        notes.append(
            "The file is not valid UTF-8, so it was read as Windows-1252; save it as UTF-8 if that"
            " is wrong."
        )
    notes.append(WARNING)
    if any(isinstance(question, Text) for question in survey.asked):
        notes.append(
            "Text needs a list of candidates; `shoal decode --propose` gives a size that fits the"
            " crowd."
        )
    return tuple(notes)


def _first_rows(source: object, batches: Iterable[TableBatch], count: int) -> dict[str, list[str]]:
    """Return about `count` rows of a table, column by column, or all if there are fewer."""
    cells: dict[str, list[str]] = {}
    rows = 0
    for table, count_here, problems in batches:
        if problems:
            first = min(problems)
            raise InputError(f"row {rows + first.row + 1} of {source} {first.why}.")
        for name, column in zip(table.schema.names, table.columns, strict=True):
            cells.setdefault(name, []).extend(_texts(column))
        rows += count_here
        if rows >= count:
            break
    return cells


def _texts(column: Any) -> Iterator[str]:
    """Return the cells of a column as a CSV file would have them."""
    for cell in column.to_pylist():
        if isinstance(cell, (list, tuple)):
            yield ";".join(map(str, cell))
        elif isinstance(cell, bool):
            yield "yes" if cell else "no"
        else:
            yield "" if cell is None else str(cell)


def _guess_format(path: Path) -> TableFormat | None:
    """Return the encoding and the delimiter that a CSV file seems to have; None for Parquet."""
    with file_errors(path):
        if kind_of(path) in ("reports", "originals"):
            raise InputError(explain_wrong_file(path, "table"))
        if path.suffix.lower() == ".parquet":
            return None
        if path.suffix.lower() != ".csv":
            raise InputError(f"a survey is proposed from .csv or .parquet, got {path.name!r}.")
        encoding = _encoding(path)
        formats = [TableFormat(encoding, delimiter) for delimiter in DELIMITERS]
        return max(formats, key=lambda one: len(read_header(path, one)))  # the first of equals


def _guess_decimal(found: TableFormat, cells: Iterable[str]) -> TableFormat:
    commas = points = 0
    for cell in cells:
        text = cell.strip()
        commas += "," in text and COMMA_NUMBER.fullmatch(text) is not None
        points += "." in text and POINT_NUMBER.fullmatch(text) is not None
    comma = found.delimiter != "," and commas > points
    return found.replaced(decimal="," if comma else ".")


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
            windows = windows and not _NOT_WINDOWS & set(chunk)
    if utf8 is not None:
        return "utf-8"
    if not windows:
        raise InputError(f"{path} is neither UTF-8 nor Windows-1252 text.")
    return "windows-1252"
