"""Which rows count: a small language, parsed by hand and never evaluated as code.

::

    PREDICATE = CLAUSE and CLAUSE and ...
    CLAUSE    = COLUMN = VALUE | COLUMN != VALUE        compared as text; as a number where the
              | COLUMN < NUMBER | <= | > | >=           cell is one by its type

Names and values may be quoted with ' or ", and must be if they hold a sign of the language, or the
word and; a quote inside is doubled. A missing value is the empty
text and satisfies no comparison of numbers.
"""

from __future__ import annotations

import math
import operator
import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shoal.curator.columns import Columns
from shoal.errors import InputError
from shoal.support.checks import shown

__all__ = ["Clause", "Predicate"]

_COMPARE = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_OPERATOR = re.compile(r"!=|<=|>=|=|<|>")
_AND = re.compile(r"\s+and\s+", re.IGNORECASE)
_BLANK = re.compile(r"\s*")
_NUMBER = re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]{1,3})?")
_LONGEST, _MOST_CLAUSES = 10_000, 100


@dataclass(frozen=True)
class Clause:
    """One comparison of a column with a value."""

    column: str
    operator: str
    value: str

    def rows(self, columns: Columns) -> NDArray[np.bool_]:
        """Return for each row whether it satisfies the clause."""
        if self.operator in _COMPARE:
            compared = _COMPARE[self.operator](
                columns.numbers(self.column), _number(self.value, self)
            )
            return np.asarray(compared, np.bool_)
        number = float(self.value) if _NUMBER.fullmatch(self.value) else None
        if self.value and columns.is_number(self.column):
            number = _number(self.value, self)
        equal = columns.equal(self.column, self.value, number)
        return np.asarray(equal if self.operator == "=" else ~equal, np.bool_)

    def __str__(self) -> str:
        return f"{_quoted(self.column)}{self.operator}{_quoted(self.value)}"


@dataclass(frozen=True)
class Predicate:
    """Clauses that must all hold.

    >>> print(Predicate.parse("age >= 18 and city = New York and name != 'and'"))
    age>=18 and city='New York' and name!='and'
    """

    clauses: tuple[Clause, ...]

    @classmethod
    def parse(cls, text: str) -> Predicate:
        """Read a predicate; whatever is not one is an `InputError`."""
        if not isinstance(text, str) or len(text) > _LONGEST:
            raise InputError(f"a predicate is a text of at most {_LONGEST} characters.")
        clauses: list[Clause] = []
        at = 0
        while True:
            clause, at = _clause(text, at)
            clauses.append(clause)
            if len(clauses) > _MOST_CLAUSES:
                raise InputError(f"a predicate has at most {_MOST_CLAUSES} clauses.")
            if not text[at:].strip():
                return cls(tuple(clauses))
            joined = _AND.match(text, at)
            if joined is None:
                raise _wrong(text, f"clauses are joined by and, got {shown(text[at:].strip())}")
            at = joined.end()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it looks at."""
        return tuple(dict.fromkeys(clause.column for clause in self.clauses))

    def rows(self, columns: Columns) -> NDArray[np.bool_]:
        """Return for each row whether it satisfies all clauses."""
        chosen = np.ones(columns.rows, np.bool_)
        for clause in self.clauses:
            chosen &= clause.rows(columns)
        return chosen

    def __str__(self) -> str:
        return " and ".join(map(str, self.clauses))


def _clause(text: str, at: int) -> tuple[Clause, int]:
    at = _skip(text, at)
    match: re.Match[str] | None
    if text[at : at + 1] in ("'", '"'):
        column, at = _read_quoted(text, at)
        at = _skip(text, at)
        match = _OPERATOR.match(text, at)
    else:
        match = _OPERATOR.search(text, at)
        column = _plain(text, text[at : match.start()]) if match else ""
    if match is None:
        raise _wrong(text, "a clause is COLUMN=VALUE, or with !=, <, <=, > or >=")
    if not column:
        raise _wrong(text, f"a column must come before {match[0]}")
    at = _skip(text, match.end())
    if text[at : at + 1] in ("'", '"'):
        value, at = _read_quoted(text, at)
    else:
        # From where the blanks before it began, so that an empty value may be followed by and.
        joined = _AND.search(text, match.end())
        end = joined.start() if joined else len(text)
        value, at = _plain(text, text[match.end() : end]), end
    clause = Clause(column, match[0], value)
    if clause.operator in _COMPARE:
        _number(value, clause)
    return clause, at


def _plain(text: str, part: str) -> str:
    """Return a name or a value that needs no quotes."""
    if re.search(r"[=<>!'\"]|\b(and|or)\b", part, re.IGNORECASE):
        raise _wrong(text, f"{shown(part.strip())} must be quoted; clauses are joined by and")
    return part.strip()


def _skip(text: str, at: int) -> int:
    blank = _BLANK.match(text, at)
    return blank.end() if blank else at


def _read_quoted(text: str, at: int) -> tuple[str, int]:
    quote, parts = text[at], []
    at += 1
    while (end := text.find(quote, at)) >= 0:
        parts.append(text[at:end])
        at = end + 1
        if text[at : at + 1] != quote:
            return quote.join(parts), at
        at += 1
    raise _wrong(text, f"a quote {quote} is not closed")


def _quoted(text: str) -> str:
    plain = re.fullmatch(r"[\w.+:/-]+", text) and not re.search(r"\b(and|or)\b", text, re.I)
    return text if plain else "'" + text.replace("'", "''") + "'"


def _number(value: str, clause: Clause) -> float:
    number = float(value) if _NUMBER.fullmatch(value) else math.nan
    if not math.isfinite(number):
        raise InputError(f"{clause.column}{clause.operator} needs a number, got {shown(value)}.")
    return number


def _wrong(text: str, rule: str) -> InputError:
    return InputError(f"{rule} (in the predicate {shown(text)}).")
