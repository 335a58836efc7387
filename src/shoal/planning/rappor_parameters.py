"""RAPPOR's six numbers: read, checked, and what RAPPOR says about them."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

from shoal.errors import InputError
from shoal.support.checks import check_decimal, check_integer, exact_fields, shown
from shoal.support.files import unique_keys

__all__ = ["RapporParameters", "flip_of", "log_odds", "odds_of"]

FIELDS = ("k", "h", "m", "p", "q", "f")
Odds = float | Fraction
"""A ratio of probabilities: a fraction, or the float infinity."""


@dataclass(frozen=True)
class RapporParameters:
    """RAPPOR's six numbers, by RAPPOR's letters.

    k bits, h hashes, m cohorts; f of the permanent response, p and q of the instantaneous one.
    Probabilities are kept as the exact decimals that were written.

    >>> given = RapporParameters(k=16, h=2, m=64, p="0.5", q="0.75", f="0.5")
    >>> float(given.p_star), float(given.q_star), round(given.epsilon_1, 3)
    (0.5625, 0.6875, 1.074)
    >>> given.epsilon_infinity == 4 * math.log(3)
    True
    """

    k: int
    h: int
    m: int
    p: Fraction
    q: Fraction
    f: Fraction

    def __init__(self, k: object, h: object, m: object, p: object, q: object, f: object) -> None:
        for name, value, highest in (("k", k, 65_536), ("h", h, 8), ("m", m, 65_535)):
            whole = check_integer(f"RAPPOR's {name}", value, lowest=1, highest=highest)
            object.__setattr__(self, name, whole)
        for name, chance in (("p", p), ("q", q), ("f", f)):
            object.__setattr__(self, name, _probability(name, chance))
        if self.h > self.k:
            raise InputError(f"RAPPOR's h={self.h} hashes do not fit into k={self.k} bits.")
        if self.p >= self.q:
            raise InputError(
                f"RAPPOR's p must be below its q, got p={float(self.p):g} and q={float(self.q):g};"
                " p is how often a clear bit is reported as 1, q how often a set one is."
            )
        if self.f == 1:
            raise InputError("with f=1 reports carry no information: every bit is a coin toss.")

    @classmethod
    def read(cls, path: Path | str) -> RapporParameters:
        """Read a params.csv with the header k,h,m,p,q,f, or a JSON object with these keys."""
        file = Path(path)
        try:
            text = file.read_text("utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not text"
            raise InputError(f"cannot read RAPPOR's parameters {file}: {reason}.") from error
        fields = _from_json(text, file) if file.suffix == ".json" else _from_csv(text, file)
        whole = {name: _integer(name, fields[name]) for name in ("k", "h", "m")}
        return cls(**whole, **{name: fields[name] for name in ("p", "q", "f")})

    @property
    def p_star(self) -> Fraction:
        """How often a bit that is truly 0 is reported as 1 (RAPPOR, Lemma 1)."""
        return self.f / 2 * (self.p + self.q) + (1 - self.f) * self.p

    @property
    def q_star(self) -> Fraction:
        """How often a bit that is truly 1 is reported as 1 (RAPPOR, Lemma 1)."""
        return self.f / 2 * (self.p + self.q) + (1 - self.f) * self.q

    @property
    def odds(self) -> tuple[Odds, Odds]:
        """How much likelier the truth makes a reported 1, and a reported 0: A and B."""
        return odds_of(self.p_star, self.q_star)

    @property
    def is_symmetric(self) -> bool:
        """Whether a 0 is as often reported wrongly as a 1: Shoal's channel."""
        return self.p + self.q == 1

    @property
    def epsilon_1(self) -> float:
        """RAPPOR's bound for one report: h ln(q*(1 - p*) / (p*(1 - q*))) (RAPPOR, Theorem 2)."""
        return self.h * sum(log_odds(odds) for odds in self.odds)

    @property
    def epsilon_infinity(self) -> float:
        """RAPPOR's bound for all reports of a value: 2h ln((1 - f/2) / (f/2)) (RAPPOR, Thm 1)."""
        return 2 * self.h * self._permanent

    @property
    def local_epsilon(self) -> float:
        """The exact bound for one report: at most h bits change each way, at most k in all."""
        first, second = (log_odds(odds) for odds in self.odds)
        rest = min(self.h, self.k - self.h)
        return self.h * max(first, second) + rest * min(first, second)

    @property
    def all_time_epsilon(self) -> float:
        """The exact bound for all reports of a value, min(2h, k) ln((1 - f/2) / (f/2))."""
        return min(2 * self.h, self.k) * self._permanent

    @property
    def weaker(self) -> Fraction:
        """t: the largest flip probability whose reports can be turned into RAPPOR's."""
        return flip_of(max(self.odds))

    @property
    def stronger(self) -> Fraction:
        """s: the smallest flip probability into which RAPPOR's reports can be turned."""
        return flip_of(min(self.odds))

    @property
    def _permanent(self) -> float:
        return log_odds((2 - self.f) / self.f) if self.f else math.inf

    def to_json(self) -> dict[str, Any]:
        """Return the parameters as plain JSON values."""
        return {n: float(v) if isinstance(v := getattr(self, n), Fraction) else v for n in FIELDS}


def odds_of(p: Fraction, q: Fraction) -> tuple[Odds, Odds]:
    """Return how much likelier a set bit makes a reported 1, and a clear one a reported 0."""
    return q / p if p else math.inf, (1 - p) / (1 - q) if q < 1 else math.inf


def flip_of(odds: Odds) -> Fraction:
    """Return the flip probability with these odds (1 - s) / s."""
    return 1 / (1 + odds) if isinstance(odds, Fraction) else Fraction(0)


def log_odds(odds: Odds) -> float:
    """Return the natural logarithm, exact ratios first."""
    if isinstance(odds, float):
        return math.inf
    return math.log(odds.numerator) - math.log(odds.denominator)


def _probability(name: str, value: object) -> Fraction:
    text = str(value) if isinstance(value, Fraction) else repr(value)
    if isinstance(value, Fraction):
        number = value
    else:
        try:
            zero = Decimal(str(value)) == 0 and not isinstance(value, bool)
        except ArithmeticError:
            zero = False
        written = "0" if zero else check_decimal(f"RAPPOR's {name}", value, above=0)
        number = Fraction(written)
    if not 0 <= number <= 1:
        raise InputError(f"RAPPOR's {name} must be between 0 and 1, got {name}={text[:80]}.")
    return number


def _integer(name: str, value: object) -> object:
    """Return a whole number from the text of a file."""
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit():
        return int(value[:20])
    if isinstance(value, str):
        raise InputError(f"RAPPOR's {name} must be a whole number, got {name}={shown(value)}.")
    return value


def _from_csv(text: str, file: Path) -> Mapping[str, Any]:
    try:
        rows = [[cell.strip() for cell in row] for row in csv.reader(io.StringIO(text)) if row]
    except csv.Error as error:
        raise InputError(f"{file} is not CSV: {error}.") from error
    if len(rows) != 2 or sorted(rows[0]) != sorted(FIELDS) or len(rows[1]) != len(FIELDS):
        raise InputError(
            f"{file} must hold the header k,h,m,p,q,f and one row of numbers, as RAPPOR's"
            " params.csv does."
        )
    return dict(zip(rows[0], rows[1], strict=True))


def _from_json(text: str, file: Path) -> Mapping[str, Any]:
    try:
        # Numbers stay the digits that were written.
        document = json.loads(text, parse_float=Decimal, object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file} is not JSON: {error or 'nested too deeply'}.") from error
    return exact_fields(str(file), document, set(FIELDS))
