"""All answers of a table that are not allowed, named together: a few in full, and how many."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from shoal.device.answers import AnswerRules, set_bits, text_bits
from shoal.device.arrays.cells import readable_answer, readable_cell
from shoal.device.arrays.encoding import encode_rows
from shoal.device.arrays.vectors import Original
from shoal.errors import AnswerError
from shoal.protocol.survey import AskedQuestion, Survey, Text
from shoal.support.table_format import TableFormat, python_cells

__all__ = ["Unreadable", "WrongAnswers"]


class Unreadable:
    """A row that is named already, because it is no answer at all."""


MOST_NAMED = 10
"""How many answers a message names in full."""


class WrongAnswers:
    """The answers that were refused so far; `total` of them, the first few in full."""

    def __init__(self, survey: Survey, table_format: TableFormat) -> None:
        self.total = 0
        self._survey, self._format = survey, table_format
        self._named: list[tuple[int, str]] = []

    def look(self, batch: Any, first_row: int, unreadable: Collection[int] = ()) -> None:
        """Look at every answer of a batch of a table, but of rows that are named already."""
        for question in self._survey.asked:
            known: dict[Any, str | None] = {}
            cells = python_cells(batch.column(question.table_column))
            for row, cell in enumerate(cells, first_row):
                if row in unreadable:
                    continue
                key = cell if isinstance(cell, (str, int, float, type(None))) else None
                if key is None or key not in known:
                    known[key] = self._why_not(question, cell, row)
                if (why := known[key]) is not None:
                    self.add(row, why)

    def encoded(self, rows: Sequence[Any], first_row: int) -> Iterator[Original]:
        """Encode a list of answers, or look at each of them if one is not allowed."""
        if not self.total:
            try:
                yield encode_rows(self._survey, rows, first_row, table_format=self._format)
                return
            except AnswerError:
                pass
        rules = AnswerRules(self._survey)
        for row, answer in enumerate(rows, first_row):
            if isinstance(answer, Unreadable):
                continue
            try:
                given = readable_answer(self._survey, answer, row, self._format)
                rules.set_bits(given, None if self._survey.cohorts is None else 0, row)
            except AnswerError as error:
                self.add(row, str(error))

    def _why_not(self, question: AskedQuestion, cell: object, row: int) -> str | None:
        try:
            answer = readable_cell(question, cell, row, self._format)
            if isinstance(question, Text):
                text_bits(self._survey, question, answer, 0, row)
            else:
                set_bits(question, answer, row)
        except AnswerError as error:
            return str(error)
        return None

    def add(self, row: int, why: str) -> None:
        """Note that a row is refused, and why."""
        self.total += 1
        # The same value in many rows was looked at once; the message names the row it is in.
        self._named.append((row, re.sub(r"^row [0-9]+", f"row {row}", why)))
        if len(self._named) > 4 * MOST_NAMED:
            self._shorten()

    def _shorten(self) -> None:
        self._named = sorted(self._named, key=lambda one: one[0])[:MOST_NAMED]

    def refuse(self) -> None:
        """Raise one error for all of them, if there are any."""
        if not self.total:
            return
        self._shorten()
        messages = [message for _, message in self._named]
        if self.total == 1:
            raise AnswerError(messages[0])
        more = self.total - len(messages)
        lines = [f"{self.total:,} answers are not allowed, so nothing was written:"]
        lines += [f"  {message}" for message in messages]
        raise AnswerError("\n".join(lines + ([f"  and {more:,} more."] if more else [])))
