"""All answers of a table that are not allowed, named together: a few in full, and how many."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from shoal.agreement.survey import AskedQuestion, Survey, Text
from shoal.device.answers import AnswerRules, set_bits, text_bits
from shoal.device.bulk.encoding import encode_rows
from shoal.device.bulk.vectors import Original
from shoal.errors import AnswerError

__all__ = ["WrongAnswers"]

MOST_NAMED = 10
"""How many answers a message names in full."""


class WrongAnswers:
    """The answers that were refused so far; `total` of them, the first few in full."""

    def __init__(self) -> None:
        self.total = 0
        self._named: list[tuple[int, str]] = []

    def look(self, survey: Survey, batch: Any, first_row: int) -> None:
        """Look at every answer of a batch of a table."""
        for question in survey.asked:
            known: dict[Any, str | None] = {}
            cells = batch.column(question.table_column).to_pylist()
            for row, cell in enumerate(cells, first_row):
                key = cell if isinstance(cell, (str, int, float, type(None))) else None
                if key is None or key not in known:
                    known[key] = _why_not(survey, question, cell, row)
                if (why := known[key]) is not None:
                    self._add(row, why)

    def encoded(self, survey: Survey, rows: Sequence[Any], first_row: int) -> Iterator[Original]:
        """Encode a list of answers, or look at each of them if one is not allowed."""
        if not self.total:
            try:
                yield encode_rows(survey, rows, first_row)
                return
            except AnswerError:
                pass
        rules = AnswerRules(survey)
        for row, answer in enumerate(rows, first_row):
            try:
                rules.set_bits(answer, None if survey.cohorts is None else 0, row)
            except AnswerError as error:
                self._add(row, str(error))

    def _add(self, row: int, why: str) -> None:
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


def _why_not(survey: Survey, question: AskedQuestion, cell: object, row: int) -> str | None:
    try:
        if isinstance(question, Text):
            text_bits(survey, question, cell, 0, row)
        else:
            set_bits(question, cell, row)
    except AnswerError as error:
        return str(error)
    return None
