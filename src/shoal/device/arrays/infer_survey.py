"""Infer a survey from a table of answers: kinds, options and limits, and the table's format.

The result is a start to be read and edited. Its options and limits come from the data, so it
reveals something about them: values of fewer than ten people are left out, identifiers never become
questions, and the notes say the rest.

The format is guessed from all rows, so one row could decide how others are read. Therefore the
guess is written into the survey file, for a person to read, and declared thereafter:

* encoding: UTF-8 if all bytes are valid UTF-8; otherwise Windows-1252, and a note says so.
* delimiter: the one that gives the first rows most cells in columns of equal number.
* header: the first row that is about as full as those after it; lines above it are skipped.
* line breaks in quoted cells: if a line has a quote that is not closed and the file is well-formed
  with them.
* rows that are about nobody: blank ones, and totals or remarks at the end.
* decimal sign, thousands, units, order of dates, separators: column by column.
"""

from __future__ import annotations

import codecs
import csv
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa

from shoal.device.arrays.cell_texts import digits_of
from shoal.device.arrays.column_kinds import RARE, By, ColumnProposal, propose_question
from shoal.errors import InputError
from shoal.protocol.survey import Survey
from shoal.support.csv_rows import RowProblem, TableBatch, is_blank
from shoal.support.files import explain_wrong_file, kind_of
from shoal.support.results import Displayed, Section, first_rows
from shoal.support.table_files import file_errors, first_excel_rows, read_table
from shoal.support.table_format import DELIMITERS, MAX_MARKERS, TableFormat

WARNING = (
    "Options and limits are taken from people's answers: a reader of this survey learns that"
    f" someone gave them. Values of fewer than {RARE} people are not listed. Read it before you"
    " publish it, and prefer options that you would have asked for anyway."
)
MAX_ROWS = 1_000_000
_CHUNK = 8 << 20
_FIRST, _FIRST_ROWS, _FOR_DECIMAL = 1 << 18, 200, 2000
_MAX_LAST, _MAX_BROKEN = 5, 0.01
_TOTAL = re.compile(
    r"(grand |sub)?(total|totals|sum|summe|gesamt|insgesamt|somme|totale|durchschnitt|mittelwert"
    r"|average|mean|moyenne|anzahl|count)\b",
    re.IGNORECASE,
)
_NOT_WINDOWS = {0x81, 0x8D, 0x8F, 0x90, 0x9D}
"""Bytes that Windows-1252 does not use."""


@dataclass(frozen=True, repr=False)
class SurveyProposal(Displayed):
    """A survey inferred from a table, and the kind inferred for each column."""

    survey: Survey
    columns: tuple[ColumnProposal, ...]
    rows: int
    notes: tuple[str, ...]
    table_format: TableFormat

    def _headline(self) -> str:
        questions = len(self.survey.questions)
        return f"{self.survey.name}: {questions} questions proposed from {self.rows:,} rows"

    def _sections(self) -> list[Section]:
        columns, left_out = first_rows(self.columns)
        rows = [(one.column, one.kind, one.seen) for one in columns]
        return [Section(("column", "kind", "seen"), rows, left_out=left_out)]

    def _remarks(self) -> tuple[str, ...]:
        return self.notes

    def to_toml(self) -> str:
        """Return the survey as TOML, with the format that its table seems to have.

        Comments say where the survey comes from, and nothing of the data.
        """
        comment = textwrap.wrap(WARNING, 98)
        left_out = [one.column for one in self.columns if one.question is None]
        if left_out:
            comment += textwrap.wrap(f"Columns left out: {', '.join(map(repr, left_out))}.", 98)
        text = "\n".join((*(f"# {line}" for line in comment), self.survey.to_toml()))
        return f"{text}\n{self.table_format.to_toml()}"

    def to_json(self) -> dict[str, Any]:
        """Return the survey and the observations as plain JSON values."""
        return {
            "survey": self.survey.to_json(),
            "rows": self.rows,
            "columns": [
                {"column": one.column, "kind": one.kind, "seen": one.seen} for one in self.columns
            ],
            "notes": list(self.notes),
            "table": self.table_format.to_json(),
        }


def infer_survey(
    source: Path | str | Any,
    *,
    name: str | None = None,
    dates: By | None = None,
    max_rows: int = MAX_ROWS,
) -> SurveyProposal:
    """Propose a survey from a .csv, .xlsx or .parquet file, or from a table in memory.

    Parameters
    ----------
    source
        A file with one row per person and one column per question, or a pandas, polars or Arrow
        table. How its cells are written is guessed: see `SurveyProposal.table_format`.
    name
        The name of the survey; by default that of the file.
    dates
        Ask for the month, the weekday or the week of dates; None leaves them out.
    max_rows
        How many rows are looked at.

    Examples
    --------
    >>> answers = {"smokes": ["yes", "no"] * 50, "city": ["Rome", "Oslo"] * 50}
    >>> proposal = infer_survey(pa.table(answers), name="people")
    >>> [(question.name, question.kind) for question in proposal.survey]
    [('smokes', 'yes/no'), ('city', 'choice')]
    """
    if isinstance(source, (Path, str)):
        path = Path(source)
        called = name or " ".join(path.stem.split()) or "survey"
        read = _read_file(path, max_rows + 1)
    else:
        given = pa.table(source).slice(0, max_rows + 1).to_batches()
        batches = (TableBatch(batch, batch.num_rows) for batch in given)
        read, called = _Rows.of(batches, TableFormat(), max_rows + 1), name or "survey"
    if not read.rows:
        raise InputError("the table has no rows; a survey is proposed from people's answers.")
    whole, rows = read.rows <= max_rows, min(read.rows, max_rows)
    cells = {column: given[:rows] for column, given in read.cells.items()}
    written, gaps = read.table_format, read.table_format.invalid == "missing"
    columns = tuple(
        propose_question(column, given, written, whole=whole, dates=dates, gaps=gaps)
        for column, given in cells.items()
    )
    questions = [one.question for one in columns if one.question is not None]
    if not questions:
        why = "; ".join(f"{one.column!r}: {one.seen}" for one in columns[:5])
        raise InputError(f"no column can be asked for: {why}.")
    asked = [one for one in columns if one.question is not None]
    written = written.replaced(
        inferred=True,
        missing=sorted({text for one in asked for text in one.no_answer})[:MAX_MARKERS],
        columns={one.column: dict(one.declared) for one in asked if one.declared},
    )
    survey = Survey(called, tuple(questions))
    return SurveyProposal(survey, columns, rows, _notes(read, whole, rows), written)


@dataclass(frozen=True)
class _Rows:
    cells: dict[str, list[str]]
    rows: int
    table_format: TableFormat
    problems: tuple[RowProblem, ...] = ()
    blank: int = 0
    is_csv: bool = False

    @classmethod
    def of(cls, batches: Iterable[TableBatch], table_format: TableFormat, count: int) -> _Rows:
        """Read about `count` rows, or all if there are fewer."""
        cells: dict[str, list[str]] = {}
        problems: list[RowProblem] = []
        rows = 0
        for table, count_here, wrong in batches:
            problems += [problem._replace(row=rows + problem.row) for problem in wrong]
            for name, column in zip(table.schema.names, table.columns, strict=True):
                cells.setdefault(name, []).extend(_texts(column))
            rows += count_here
            if rows >= count:
                break
        return cls(cells, rows, table_format, tuple(problems))

    def row(self, place: int) -> list[str]:
        return [column[place] for column in self.cells.values()]

    def without_last(self) -> _Rows:
        """Leave out the last rows that are totals or remarks."""
        skipped = 0
        broken = {problem.row for problem in self.problems if "columns" in problem.why}
        while skipped < min(_MAX_LAST, self.rows - 1):
            place = self.rows - 1 - skipped
            filled = [cell for cell in self.row(place) if cell.strip()]
            if place not in broken and not (filled and _TOTAL.match(filled[0].strip())):
                break
            skipped += 1
        kept = self.rows - skipped
        return replace(
            self,
            cells={name: column[:kept] for name, column in self.cells.items()},
            rows=kept,
            table_format=self.table_format.replaced(skip_last=skipped),
            problems=tuple(problem for problem in self.problems if problem.row < kept),
        )


def _read_file(path: Path, count: int) -> _Rows:
    with file_errors(path):
        suffix = path.suffix.lower()
        if kind_of(path) in ("reports", "originals"):
            raise InputError(explain_wrong_file(path, "table"))
        if suffix not in (".csv", ".xlsx", ".parquet"):
            raise InputError(
                f"a survey is proposed from .csv, .xlsx or .parquet, got {path.name!r}."
            )
        if suffix == ".parquet":
            written = TableFormat()
            return _Rows.of(read_table(path, None, written), written, count)
        written = _guess_csv(path) if suffix == ".csv" else TableFormat()
        if suffix == ".xlsx":
            header = _header_place(first_excel_rows(path, _FIRST_ROWS))
            written = written.replaced(skip_first=header)
        read = _read_rows(path, written, count)
        written = read.table_format
        if len(read.cells) > 1:
            skipping = written.replaced(skip_blank=True)
            filled = _Rows.of(read_table(path, None, skipping), skipping, count)
            if filled.rows < read.rows:
                read = replace(filled, blank=read.rows - filled.rows)
        read = read.without_last() if read.rows < count else read
        if len(read.problems) > _MAX_BROKEN * read.rows:
            first = min(read.problems)
            raise InputError(f"row {first.row + 1} of {path} {first.why}.")
        invalid = "missing" if read.problems else None
        decimal = _decimal(read.table_format.delimiter, read.cells.values())
        found = read.table_format.replaced(invalid=invalid, decimal=decimal)
        return replace(read, table_format=found, is_csv=suffix == ".csv")


def _read_rows(path: Path, written: TableFormat, count: int) -> _Rows:
    """Read each line as a row, or rows with line breaks in quoted cells if all are well-formed."""
    by_line: _Rows | None = None
    failed = InputError(f"{path} cannot be read.")
    try:
        by_line = _Rows.of(read_table(path, None, written), written, count)
        if not any("quote" in problem.why for problem in by_line.problems):
            return by_line
    except InputError as error:
        failed = error
    broken = written.replaced(quoted_breaks=True)
    try:
        return _Rows.of(read_table(path, None, broken), broken, count)
    except InputError:
        if by_line is None:
            raise failed from None
        return by_line


def _notes(read: _Rows, whole: bool, rows: int) -> tuple[str, ...]:
    written = read.table_format
    said = f"Read {rows:,} rows" if whole else f"Read the first {rows:,} rows only"
    if read.is_csv:
        encoding = {"utf-8": "UTF-8", "windows-1252": "Windows-1252"}[written.encoding]
        comma = ", decimal commas" if written.decimal == "," else ""
        said += f"; {encoding}, columns separated by {DELIMITERS[written.delimiter]}{comma}"
    notes = [f"{said}."]
    if read.is_csv and written.encoding != "utf-8":
        notes.append(
            "The file is not valid UTF-8, so it was read as Windows-1252; save it as UTF-8 if that"
            " is wrong."
        )
    if written.skip_first:
        notes.append(
            f"The header is in line {written.skip_first + 1}; the lines above are skipped."
        )
    if read.blank:
        notes.append(f"{read.blank:,} blank row{'s' * (read.blank > 1)} skipped.")
    if written.skip_last:
        which = "row is" if written.skip_last == 1 else f"{written.skip_last} rows are"
        notes.append(f"The last {which} skipped: totals or remarks.")
    if read.problems:
        notes.append(
            f"Rows that cannot be read: {len(read.problems):,}, the first is row"
            f" {min(read.problems).row + 1:,}; all their answers are taken as missing."
        )
    return (*notes, WARNING)


def _texts(column: Any) -> Iterator[str]:
    """Return the cells of a column as a CSV file would have them."""
    for cell in column.to_pylist():
        if isinstance(cell, (list, tuple)):
            yield ";".join(map(str, cell))
        elif isinstance(cell, bool):
            yield "yes" if cell else "no"
        else:
            yield "" if cell is None else str(cell)


def _guess_csv(path: Path) -> TableFormat:
    """Return the encoding, the delimiter and the header line that a CSV file seems to have."""
    encoding = _encoding(path)
    with path.open(encoding="utf-8-sig" if encoding == "utf-8" else encoding, newline="\n") as file:
        lines = file.read(_FIRST).splitlines(keepends=True)[:_FIRST_ROWS]
    if not lines:
        raise InputError(f"{path} is empty; its first line must name the columns.")
    best = TableFormat(encoding), 0.0
    for delimiter in DELIMITERS:
        reader = csv.reader(lines, delimiter=delimiter)
        rows, ends = [], []
        try:
            for row in reader:
                rows.append(row)
                ends.append(reader.line_num)
        except csv.Error:
            continue
        widths = Counter(len(row) for row in rows if not is_blank(row))
        width, times = widths.most_common(1)[0] if widths else (0, 0)
        score = (width - 1) * times / max(len(rows), 1)
        if score > best[1]:
            header = _header_place(rows)
            above = ends[header - 1] if header else 0
            best = TableFormat(encoding, delimiter, skip_first=above), score
    return best[0]


def _header_place(rows: Sequence[Sequence[object]]) -> int:
    """Return the place of the first row that is about as full as the rows are."""
    filled = [sum(not is_blank([cell]) for cell in row) for row in rows]
    usual = median([one for one in filled if one] or [0])
    return next((place for place, one in enumerate(filled) if one and one >= 0.6 * usual), 0)


def _decimal(delimiter: str, columns: Iterable[list[str]]) -> str:
    """Return the decimal sign that more cells have; semicolons suggest a comma if none has."""
    point, comma = TableFormat(), TableFormat(decimal=",")
    points = commas = unclear = 0
    for cell in (cell for column in columns for cell in column[:_FOR_DECIMAL]):
        text = digits_of(cell)
        if "," in text or "." in text:
            by_point, by_comma = point.number(text), comma.number(text)
            # Where three digits follow a sign, it can be the one between thousands.
            clear = point.why_no_number(text) == comma.why_no_number(text)
            points += clear and by_point is not None and by_comma is None
            commas += clear and by_comma is not None and by_point is None
            unclear += not clear
    if points == commas == 0:
        return "," if delimiter == ";" and unclear else "."
    return "," if commas > points else "."


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
