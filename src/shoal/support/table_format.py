"""The format of a table of people's rows, declared before its rows are read.

One row must never decide how another row is read: with a guessed encoding, separator or type, a
single person's bytes would change everybody's values, and no noise would hide that. So the format
comes from the survey file or from options. Only `shoal survey from` guesses one, which it writes
into the survey. A column may be written in a way of its own: see `TableFormat.column`.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from shoal.errors import InputError
from shoal.support.checks import (
    check_integer,
    check_one_of,
    exact_fields,
    shown,
    whole_digits,
)
from shoal.support.files import read_toml, toml_value

ENCODINGS = ("utf-8", "iso-8859-1", "iso-8859-15", *(f"windows-125{n}" for n in range(9)))
"""In these no byte changes the meaning of a later line. In UTF-16 one lost byte changes all."""

DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
"""The characters that may separate cells, most usual first, and their names in messages."""

MAX_MARKERS = 100
MAX_SKIPPED = 1000

_COLUMN_FIELDS = {"decimal", "thousands", "units", "dates", "separator", "missing", "invalid"}
"""The fields that a column may have of its own."""

_PLAIN = re.compile(r"-?[0-9]{1,300}(?:\.[0-9]+)?")
_GAP = (
    "['\N{RIGHT SINGLE QUOTATION MARK} \N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}\N{THIN SPACE}]"
)
"""Between thousands, and never a decimal sign."""
_DATE = re.compile(
    r"(?P<first>[0-9]{1,4})(?P<sign>[./-])(?P<second>[0-9]{1,2})(?P=sign)(?P<third>[0-9]{1,4})"
    r"(?:(?:T|,? )[0-9]{1,2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]+)?)?"
    r" ?(?:Z|UTC|[ap]\.?m\.?|[+-][0-9]{2}:?[0-9]{2})?)?",
    re.IGNORECASE,
)
_ORDERS = {"ymd": "year, month, day", "dmy": "day, month, year", "mdy": "month, day, year"}

INFERRED = """\
# Options and limits were inferred from a table. They can depend on a single person's row, which no
# noise hides from a reader of this survey. Delete the next line once you have checked that they do
# not, for example because you would have asked for the same.
"""


@dataclass(frozen=True)
class TableFormat:
    r"""The format of the cells of a table.

    Parameters
    ----------
    encoding
        The encoding of a CSV file: ``utf-8`` (a byte-order mark is skipped), ``iso-8859-1``,
        ``iso-8859-15``, or ``windows-1250`` to ``windows-1258``.
    delimiter
        The character between the cells of a CSV file: ``,``, ``;``, a tab or ``|``.
    decimal
        The decimal sign of numbers in text cells: ``.`` or ``,``.
    missing
        Texts that mean that a cell has no value, as an empty cell always does.
    invalid
        The treatment of a cell or row that cannot be read: ``error`` stops before anything is
        written, ``missing`` treats it as a cell, or a row of cells, without a value.
    thousands
        ``,`` or ``.``, if ``1,234`` or ``1.234`` is a whole number; otherwise such a number is
        invalid. Apostrophes and blanks between thousands need no declaration.
    units
        Texts that may stand before or after a number, such as ``CHF``, and are ignored.
    dates
        The order of dates in text: ``dmy`` for 31.12.2026 or ``mdy`` for 12/31/2026. Dates that
        begin with a year of four digits are always read.
    separator
        The text between the options in a cell of a flags question.
    quoted_breaks
        Whether quoted cells of a CSV file may contain line breaks. Then a row is no longer a line,
        and a row that cannot be read makes the whole file invalid.
    skip_first
        How many lines stand before the header of a CSV or Excel file.
    skip_last
        How many rows at the end are about no person, such as totals.
    skip_blank
        Whether a row without any value is about no person.
    inferred
        Whether the survey beside this format was inferred from a table.
    columns
        Fields that differ for a column, by its name: decimal, thousands, units, dates, separator,
        missing and invalid.

    Examples
    --------
    >>> swiss = TableFormat("windows-1252", ";", ",", missing=["-"])
    >>> swiss.number("1.234,50"), swiss.number("3.5"), swiss.is_missing(" - ")
    (1234.5, None, True)
    >>> TableFormat(columns={"Lohn": {"units": ["CHF"]}}).column("Lohn").number("CHF 80'000.-")
    80000.0
    """

    encoding: str = "utf-8"
    delimiter: str = ","
    decimal: str = "."
    missing: Sequence[str] = ()
    invalid: Literal["error", "missing"] = "error"
    thousands: str = ""
    units: Sequence[str] = ()
    dates: Literal["ymd", "dmy", "mdy"] = "ymd"
    separator: str = ";"
    quoted_breaks: bool = False
    skip_first: int = 0
    skip_last: int = 0
    skip_blank: bool = False
    inferred: bool = False
    columns: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        check_one_of("encoding", self.encoding, ENCODINGS)
        check_one_of("delimiter", self.delimiter, tuple(DELIMITERS))
        check_one_of("decimal", self.decimal, (".", ","))
        check_one_of("invalid", self.invalid, ("error", "missing"))
        check_one_of("dates", self.dates, tuple(_ORDERS))
        check_one_of("thousands", self.thousands, ("", ",", "."))
        if self.thousands == self.decimal:
            raise InputError(f"thousands and decimal must differ, got {self.decimal!r} for both.")
        for name in ("missing", "units"):
            object.__setattr__(self, name, _checked_texts(name, getattr(self, name)))
        for name in ("quoted_breaks", "skip_blank", "inferred"):
            if not isinstance(getattr(self, name), bool):
                raise InputError(f"{name} is true or false, got {shown(getattr(self, name))}.")
        for name in ("skip_first", "skip_last"):
            check_integer(name, getattr(self, name), lowest=0, highest=MAX_SKIPPED)
        self._check_separator()
        if not isinstance(self.columns, Mapping):
            raise InputError(f"columns maps columns to their fields, got {shown(self.columns)}.")
        for name in self.columns:
            self.column(name)  # an invalid one is an error now

    def _check_separator(self) -> None:
        text = self.separator
        good = isinstance(text, str) and 1 <= len(text) <= 10
        if not good or '"' in text or any(one.isalnum() for one in text):
            raise InputError(
                "separator must be 1 to 10 characters that are no letters, digits or quotes, got"
                f" {shown(text)}."
            )

    @cached_property
    def _by_column(self) -> dict[str, TableFormat]:
        found = {}
        for name, changed in self.columns.items():
            fields_of = exact_fields(f"[table.columns] {name!r}", changed, set(), _COLUMN_FIELDS)
            try:
                found[name] = replace(self, **fields_of, columns={})
            except InputError as error:
                raise InputError(f"[table.columns] {name!r}: {error}") from None
        return found

    def column(self, name: str) -> TableFormat:
        """Return the format of the cells of one column."""
        return self._by_column.get(name, self)

    @classmethod
    def from_json(cls, document: object) -> TableFormat:
        """Read a format from plain JSON values, or from the [table] section of a TOML file."""
        known = {field.name for field in fields(cls)}
        given = exact_fields("[table]", document, set(), known)
        try:
            return cls(**given)
        except InputError as error:
            raise InputError(f"[table] {error}") from error

    @classmethod
    def from_toml(cls, path: Path) -> TableFormat:
        """Read the [table] section of a TOML file, such as a survey."""
        document = read_toml(path, "survey", InputError)
        if "table" not in document:
            raise InputError(f"{path} has no [table] section, which says how a table is written.")
        return cls.from_json(document["table"])

    def replaced(self, **changes: Any) -> TableFormat:
        """Return the format with some fields changed; None changes nothing."""
        return replace(self, **{name: new for name, new in changes.items() if new is not None})

    def to_json(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults, as plain JSON values."""
        document = {}
        for one in fields(self):
            value = getattr(self, one.name)
            if value != (one.default if one.default is not MISSING else {}):
                document[one.name] = list(value) if isinstance(value, tuple) else value
        return document

    def to_toml(self) -> str:
        r"""Return the format as the [table] section of a TOML file.

        >>> written = TableFormat(delimiter="\t", columns={"Who?": {"separator": " | "}})
        >>> print(written.to_toml(), end="")
        [table]
        delimiter = "\t"
        <BLANKLINE>
        [table.columns."Who?"]
        separator = " | "
        """
        document = self.to_json()
        columns, inferred = document.pop("columns", {}), document.pop("inferred", False)
        text = _toml_section("table", document)
        if inferred:
            text += f"{INFERRED}inferred = true\n"
        for name, changed in columns.items():
            text += "\n" + _toml_section(f"table.columns.{toml_value(name)}", changed)
        return text

    def is_missing(self, cell: object) -> bool:
        """Whether a cell has no value: absent, blank, or one of the declared texts."""
        if isinstance(cell, str):
            text = cell.strip()
            return not text or text in self.missing
        return cell is None or (bool(self.missing) and whole_digits(cell) in self.missing)

    @cached_property
    def _number(self) -> re.Pattern[str]:
        """A number: its digits, perhaps in thousands, its fraction, its sign and its units."""
        units = "|".join(map(re.escape, sorted(self.units, key=len, reverse=True)))
        around = f"(?:{units})?" if units else ""
        point, other = (r"\.", ",") if self.decimal == "." else (",", r"\.")
        thousands = f"[0-9]{{1,3}}(?:(?:{_GAP}[0-9]{{3}})+|(?P<grouped>(?:{other}[0-9]{{3}})+))"
        return re.compile(
            rf"(?P<before>[-+\N{{MINUS SIGN}}]?)\s*{around}\s*(?P<after>[-+\N{{MINUS SIGN}}]?)\s*"
            rf"(?P<digits>{thousands}|[0-9]+|(?={point}[0-9]))"
            rf"(?P<fraction>{point}(?:[0-9]*|--?|[\N{{EN DASH}}\N{{EM DASH}}]))?"
            rf"(?P<exponent>[eE][-+]?[0-9]+)?\s*{around}"
        )

    def number(self, text: str) -> float | None:
        """Return the finite number that a text is, or None."""
        if self.decimal == "." and _PLAIN.fullmatch(text):
            return float(text)
        found = self._number.fullmatch(text.strip())
        if found is None or (found["before"] and found["after"]) or self._is_ambiguous(found):
            return None
        digits = re.sub("[^0-9]", "", found["digits"]) or "0"
        fraction = re.sub("[^0-9]", "", found["fraction"] or "")
        sign = (found["before"] or found["after"]).replace("\N{MINUS SIGN}", "-")
        number = float(f"{sign}{digits}.{fraction or 0}{found['exponent'] or ''}")
        return number if math.isfinite(number) else None

    def _is_ambiguous(self, found: re.Match[str]) -> bool:
        """Whether 1,234 can be 1234 or, with another decimal sign than the declared one, 1.234."""
        grouped = found["grouped"]
        return bool(grouped and len(grouped) == 4 and not found["fraction"] and not self.thousands)

    def why_no_number(self, text: str) -> str:
        """Say why a text is not a number, without its content."""
        found = self._number.fullmatch(text.strip())
        if found is not None and self._is_ambiguous(found):
            other = "," if self.decimal == "." else "."
            return f'can be whole or a fraction; if it is whole, set thousands = "{other}"'
        return "is not a number"

    def date(self, text: str) -> datetime.date | None:
        """Return the date that a text begins with, or None; two digits are a year from 1970 on."""
        found = _DATE.fullmatch(text.strip())
        if found is None:
            return None
        parts = [found["first"], found["second"], found["third"]]
        order = "ymd" if len(parts[0]) == 4 else self.dates
        year, month, day = (parts[order.index(one)] for one in "ymd")
        if len(year) not in (2, 4):
            return None
        full = int(year) if len(year) == 4 else (int(year) + 30) % 100 + 1970
        try:
            return datetime.date(full, int(month), int(day))
        except ValueError:
            return None

    def options(self, text: str) -> list[str]:
        """Return the options that a cell of a flags question names."""
        parts = [part.strip() for part in text.split(self.separator)]
        return [part for part in parts if part]


def _checked_texts(name: str, texts: object) -> tuple[str, ...]:
    if not isinstance(texts, (list, tuple)) or not all(isinstance(one, str) for one in texts):
        raise InputError(f"{name} must be a list of texts, got {shown(texts)}.")
    if len(texts) > MAX_MARKERS:
        raise InputError(f"{name} lists at most {MAX_MARKERS} texts, got {len(texts)}.")
    return tuple(dict.fromkeys(stripped for one in texts if (stripped := one.strip())))


def _toml_section(name: str, document: Mapping[str, Any]) -> str:
    lines = [f"[{name}]", *(f"{key} = {toml_value(value)}" for key, value in document.items())]
    return "\n".join(lines) + "\n"


DEFAULT_FORMAT = TableFormat()
