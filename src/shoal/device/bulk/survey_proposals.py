"""A survey proposed from a table of answers: kinds, options and ranges, and what was seen.

Whoever holds the table may want to ask the same of a crowd, or try a plan on it. The proposal is a
start to be read and edited. Its options and edges are taken from the data, so it says something
about them: values of fewer than ten people are left out of it, identifiers never become questions,
and the notes say the rest.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from shoal.agreement.survey import Survey, Text
from shoal.device.bulk.column_kinds import RARE, ColumnProposal, propose_question
from shoal.errors import InputError
from shoal.support.csv_form import CsvForm, csv_form
from shoal.support.file_kinds import instead, kind_of
from shoal.support.files import first_line

__all__ = ["ColumnProposal", "SurveyProposal", "propose_survey"]

WARNING = (
    "Options and ranges are taken from people's answers: whoever reads this survey learns that"
    f" somebody gave them. Values of fewer than {RARE} people are not listed. Read it before you"
    " publish it, and prefer options that you would have asked for anyway."
)
"""What a survey from data reveals."""

MOST_ROWS = 1_000_000
"""So many rows are looked at."""


@dataclass(frozen=True)
class SurveyProposal:
    """A survey that the answers of a table fit, and what each column was taken for."""

    survey: Survey
    columns: tuple[ColumnProposal, ...]
    rows: int
    notes: tuple[str, ...]

    def to_toml(self) -> str:
        """Return the survey as TOML; comments say where it comes from, and nothing of the data."""
        comment = textwrap.wrap(WARNING, 98)
        left_out = [one.column for one in self.columns if one.question is None]
        if left_out:
            comment += textwrap.wrap(f"Columns left out: {', '.join(map(ascii, left_out))}.", 98)
        return "\n".join((*(f"# {line}" for line in comment), self.survey.to_toml()))

    def to_json(self) -> dict[str, Any]:
        """Return the survey and what was seen as plain JSON values."""
        return {
            "survey": self.survey.to_json(),
            "rows": self.rows,
            "columns": [
                {"column": one.column, "kind": one.kind, "seen": one.seen} for one in self.columns
            ],
            "notes": list(self.notes),
        }


def propose_survey(
    source: Path | str | Any, *, name: str | None = None, most_rows: int = MOST_ROWS
) -> SurveyProposal:
    """Propose a survey from a .csv or .parquet file, or from a table in memory.

    Parameters
    ----------
    source
        A file with one row per person and one column per question, or a pandas, polars or Arrow
        table. CSV files may be in UTF-8, UTF-16 or Windows-1252, with commas, semicolons, tabs or
        bars between columns, and with decimal commas.
    name
        What the survey is called; otherwise as the file.
    most_rows
        How many rows are looked at.

    Examples
    --------
    >>> answers = {"smokes": ["yes", "no"] * 50, "city": ["Rome", "Oslo"] * 50}
    >>> proposal = propose_survey(pa.table(answers), name="people")
    >>> [(question.name, question.kind) for question in proposal.survey]
    [('smokes', 'yes/no'), ('city', 'choice')]
    """
    form: CsvForm | None = None
    if isinstance(source, (Path, str)):
        path = Path(source)
        table, form = _read(path, most_rows)
        called = name or " ".join(path.stem.split()) or "survey"
    else:
        table, called = pa.table(source).slice(0, most_rows + 1), name or "survey"
    if not table.num_rows:
        raise InputError("the table has no rows; a survey is proposed from people's answers.")
    whole = table.num_rows <= most_rows
    table = table.slice(0, most_rows)
    comma = form is not None and form.decimal_comma
    columns = tuple(
        propose_question(column, list(_cells(cells)), whole=whole, decimal_comma=comma)
        for column, cells in zip(table.column_names, table.columns, strict=True)
    )
    questions = [one.question for one in columns if one.question is not None]
    if not questions:
        why = "; ".join(f"{one.column!r}: {one.seen}" for one in columns[:5])
        raise InputError(f"no column can be asked for: {why}.")
    survey = Survey(called, tuple(questions))
    return SurveyProposal(survey, columns, table.num_rows, _notes(survey, table, whole, form))


def _notes(survey: Survey, table: Any, whole: bool, form: CsvForm | None) -> tuple[str, ...]:
    looked = f"{table.num_rows:,} rows" if whole else f"the first {table.num_rows:,} rows only"
    notes = [f"Looked at {looked}" + (f"; {form.words}" if form else "") + "."]
    if form is not None and form.note:
        notes.append(f"The file {form.note}.")
    notes.append(WARNING)
    if any(isinstance(question, Text) for question in survey.asked):
        notes.append(
            "Text needs a list of candidates; `shoal decode --propose` gives a size that fits the"
            " crowd."
        )
    return tuple(notes)


def _read(path: Path, most_rows: int) -> tuple[Any, CsvForm | None]:
    """Return the first rows of a file, one more than are wanted if there are more."""
    try:
        if kind_of(path) in ("reports", "originals"):
            raise InputError(instead(path, "table"))
        if path.suffix.lower() == ".parquet":
            with pq.ParquetFile(path, pre_buffer=False) as file:
                return _first(file.iter_batches(1 << 16), file.schema_arrow, most_rows), None
        if path.suffix.lower() != ".csv":
            raise InputError(f"a survey is proposed from .csv or .parquet, got {path.name!r}.")
        form = csv_form(path)
        if len({*form.header}) < len(form.header):
            twice = next(one for one in form.header if form.header.count(one) > 1)
            raise InputError(f"{path} has column {twice!r} twice.")
        convert = pa_csv.ConvertOptions(
            column_types={column: pa.string() for column in form.header}, strings_can_be_null=False
        )
        parse = pa_csv.ParseOptions(
            delimiter=form.separator, ignore_empty_lines=len(form.header) > 1
        )
        read = pa_csv.ReadOptions(encoding=form.encoding.replace("-", ""), use_threads=False)
        with pa_csv.open_csv(
            path, read_options=read, parse_options=parse, convert_options=convert
        ) as reader:
            return _first(reader, reader.schema, most_rows), form
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or 'unreadable'}.") from error
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {first_line(error)}.") from error


def _first(batches: Any, schema: Any, most_rows: int) -> Any:
    chosen, rows = [], 0
    for batch in batches:
        chosen.append(batch)
        rows += batch.num_rows
        if rows > most_rows:
            break
    return pa.Table.from_batches(chosen, schema).slice(0, most_rows + 1)


def _cells(column: Any) -> Iterator[str]:
    """Return the cells of a column as a CSV file would have them."""
    for chunk in column.chunks:
        for cell in chunk.to_pylist():
            if isinstance(cell, (list, tuple)):
                yield ";".join(map(str, cell))
            elif isinstance(cell, bool):
                yield "yes" if cell else "no"
            else:
                yield "" if cell is None else str(cell)
