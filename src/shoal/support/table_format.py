"""The format of a table of people's rows, declared before its rows are read.

One row must never decide how another row is read: with a guessed encoding, separator or type, a
single person's bytes would change everybody's values, and no noise would hide that. So the format
comes from the survey file or from options. Only `shoal survey from` guesses one, which it writes
into the survey.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from shoal.errors import InputError
from shoal.support.checks import exact_fields, listed, shown, whole_digits
from shoal.support.files import read_toml

ENCODINGS = ("utf-8", "iso-8859-1", "iso-8859-15", *(f"windows-125{n}" for n in range(9)))
"""In these no byte changes the meaning of a later line. In UTF-16 one lost byte changes all."""

DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
"""The characters that may separate cells, most usual first, and their names in messages."""

MAX_MARKERS = 100

POINT_NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]{1,3})?")
COMMA_NUMBER = re.compile(
    r"[-+]?([0-9]+(,[0-9]*)?|[0-9]{1,3}([.][0-9]{3})+,[0-9]+|[0-9]{1,3}([.][0-9]{3}){2,})"
)
"""A number with a decimal comma; points may separate its thousands."""
AMBIGUOUS = re.compile(r"[-+]?[1-9][0-9]{0,2}[.][0-9]{3}")
"""Where 3,5 is a number, 1.678 can be 1678 or 1,678."""


def _check_one_of(name: str, value: object, allowed: Iterable[str]) -> None:
    if value not in tuple(allowed):
        raise InputError(f"{name} must be one of {listed(allowed)}, got {shown(value)}.")


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
    inferred
        Whether the survey beside this format was inferred from a table.

    Examples
    --------
    >>> swiss = TableFormat("windows-1252", ";", ",", missing=["-"])
    >>> swiss.number("1.234,50"), swiss.number("3.5"), swiss.is_missing(" - ")
    (1234.5, None, True)
    """

    encoding: str = "utf-8"
    delimiter: str = ","
    decimal: str = "."
    missing: Sequence[str] = ()
    invalid: Literal["error", "missing"] = "error"
    inferred: bool = False

    def __post_init__(self) -> None:
        _check_one_of("encoding", self.encoding, ENCODINGS)
        _check_one_of("delimiter", self.delimiter, tuple(DELIMITERS))
        _check_one_of("decimal", self.decimal, (".", ","))
        _check_one_of("invalid", self.invalid, ("error", "missing"))
        if not isinstance(self.inferred, bool):
            raise InputError(f"inferred is true or false, got {shown(self.inferred)}.")
        markers = self.missing
        if not isinstance(markers, (list, tuple)) or not all(isinstance(m, str) for m in markers):
            raise InputError(f"missing must be a list of texts, got {shown(markers)}.")
        if len(markers) > MAX_MARKERS:
            raise InputError(f"missing lists at most {MAX_MARKERS} texts, got {len(markers)}.")
        unique = dict.fromkeys(stripped for marker in markers if (stripped := marker.strip()))
        object.__setattr__(self, "missing", tuple(unique))

    @classmethod
    def from_json(cls, document: object) -> TableFormat:
        """Read a format from plain JSON values, or from the [table] section of a TOML file."""
        known = {field.name for field in fields(cls)}
        return cls(**exact_fields("[table]", document, set(), known))

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
        """Return the format as plain JSON values."""
        document = asdict(self) | {"missing": list(self.missing)}
        if not self.inferred:
            del document["inferred"]
        return document

    def to_toml(self) -> str:
        r"""Return the format as the [table] section of a TOML file.

        >>> print(TableFormat(delimiter="\t").to_toml(), end="")
        [table]
        encoding = "utf-8"
        delimiter = "\t"
        decimal = "."
        missing = []
        invalid = "error"
        """
        values = (f"{name} = {json.dumps(value)}" for name, value in self.to_json().items())
        return "\n".join(("[table]", *values)) + "\n"

    def is_missing(self, cell: object) -> bool:
        """Whether a cell has no value: absent, blank, or one of the declared texts."""
        if isinstance(cell, str):
            text = cell.strip()
            return not text or text in self.missing
        return cell is None or (bool(self.missing) and whole_digits(cell) in self.missing)

    def number(self, text: str) -> float | None:
        """Return the finite number that a text is, or None."""
        text = text.strip()
        if self.decimal == ",":
            if not COMMA_NUMBER.fullmatch(text):
                return None
            text = text.replace(".", "").replace(",", ".")
        elif not POINT_NUMBER.fullmatch(text):
            return None
        number = float(text)
        return number if math.isfinite(number) else None

    def why_no_number(self, text: str) -> str:
        """Say why a text is not a number."""
        text = text.strip()
        if self.decimal == "," and AMBIGUOUS.fullmatch(text):
            plain, comma = text.replace(".", ""), text.replace(".", ",")
            return (
                f"can be {plain} or {comma} where the decimal sign is a comma; write one of these"
            )
        return "is not a number"


DEFAULT_FORMAT = TableFormat()
