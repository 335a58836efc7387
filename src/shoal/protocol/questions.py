"""Questions: each is a block of bits with a domain.

The domain says which originals are allowed, as the fewest and the most set bits of the block. The
noise a plan needs depends on it, not only on the number of bits (SDP 5, BITVEC 3.1):

========= ====================================== ====== =============== =========
kind      a person answers                       bits   set bits        differ by
========= ====================================== ====== =============== =========
flags     any of the options                     L      0 to L          L
choice    exactly one option                     K      1               2
yes/no    yes or no                              1      0 to 1          1
choices   at most k of the options               K      0 to k          min(2k, K)
number    a number, reported as its bin          bins   1               2
text      any text, as h bits of a Bloom filter  m      0 to h          min(2h, m)
pairs     with a text: one pair of its letters   P      1               2
cross     nothing: its cell follows from others  cells  1               2
========= ====================================== ====== =============== =========

All but a text with pairs have one such part. Numbers and text are here; questions with options are
in `shoal.protocol.options`, crosses in `shoal.protocol.crosses`.
"""

from __future__ import annotations

import decimal
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar, Literal

from shoal.errors import SurveyError
from shoal.protocol.word_pairs import Pairs
from shoal.support.checks import check_decimal, check_integer, check_text

__all__ = ["AskedQuestion", "Number", "Pairs", "Part", "Question", "Text"]

MOST_BITS = 65_536
"""The longest vector a survey may ask a device to send."""

MISSING = "(missing)"
"""The label of the option that `missing = "option"` adds."""


@dataclass(frozen=True)
class Part:
    """Bits of a question that stand together, and how many of them an original sets."""

    bits: int
    fewest_set_bits: int
    most_set_bits: int

    @property
    def takes_one(self) -> bool:
        """Whether exactly one bit is set in every original."""
        return self.fewest_set_bits == self.most_set_bits == 1

    @property
    def differing_bits(self) -> int:
        """In how many bits two originals can differ; times ln(p/q) it is the local epsilon."""
        # BITVEC 3.1 prints 2m even where the vector has fewer bits; the minimum is right.
        return min(2 * self.most_set_bits, self.bits)


@dataclass(frozen=True)
class Question:
    """One question: its name, the label of each of its bits, and which of them may be set."""

    name: str
    kind: ClassVar[str]

    def __post_init__(self) -> None:
        keep(self, name=check_text("a question's name", self.name, error=SurveyError))

    @property
    def labels(self) -> tuple[str, ...]:
        """The label of each bit, in order."""
        raise NotImplementedError

    @property
    def parts(self) -> tuple[Part, ...]:
        """Which of its bits may be set, part by part, in order."""
        raise NotImplementedError

    @property
    def bits(self) -> int:
        """How many bits the answer takes."""
        return sum(part.bits for part in self.parts)

    @property
    def fewest_set_bits(self) -> int:
        """How many bits an original has set at least."""
        return sum(part.fewest_set_bits for part in self.parts)

    @property
    def most_set_bits(self) -> int:
        """How many bits an original may have set at most."""
        return sum(part.most_set_bits for part in self.parts)

    @property
    def differing_bits(self) -> int:
        """In how many bits two originals can differ: parts add."""
        return sum(part.differing_bits for part in self.parts)

    @property
    def takes_one(self) -> bool:
        """Whether exactly one bit is set in every original."""
        return self.fewest_set_bits == self.most_set_bits == 1

    def to_json(self) -> dict[str, Any]:
        """Return the question as plain JSON values: what it declares, no floats among them."""
        return {"kind": self.kind, "name": self.name}


@dataclass(frozen=True)
class AskedQuestion(Question):
    """A question that people answer; `column` is where a table holds their answers."""

    column: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.column is not None:
            what = f"column of question {self.name!r}"
            column = check_text(what, self.column, error=SurveyError)
            keep(self, column=None if column == self.name else column)

    @property
    def table_column(self) -> str:
        """The column of a table that holds its answers: its name, if nothing else is declared."""
        return self.column or self.name

    def to_json(self) -> dict[str, Any]:  # noqa: D102  inherited
        return super().to_json() | ({"column": self.column} if self.column else {})


@dataclass(frozen=True)
class Number(AskedQuestion):
    """A number, reported as the bin it falls in.

    Edges e1 < ... < en make n + 1 bins, closed on the left and open at both ends. They are kept as
    decimal text, so that every language computes the same plan id.

    >>> Number("age", (18, 65)).labels
    ('below 18', '18 to below 65', '65 and above')
    """

    edges: tuple[str | int | float | decimal.Decimal, ...]  # kept as text
    missing: Literal["option"] | None = None
    kind: ClassVar[str] = "number"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_missing(self.name, self.missing)
        edges = checked_sequence(f"edges of question {self.name!r}", self.edges)
        texts = tuple(_plain_decimal(self.name, edge) for edge in edges)
        numbers = [decimal.Decimal(text) for text in texts]
        if not texts or any(a >= b for a, b in pairwise(numbers)):
            raise SurveyError(
                f"edges of question {self.name!r} must be one or more rising numbers,"
                f" got {', '.join(texts) or 'none'}."
            )
        keep(self, edges=texts)

    @property
    def labels(self) -> tuple[str, ...]:  # noqa: D102  inherited
        first, last = f"below {self.edges[0]}", f"{self.edges[-1]} and above"
        between = [f"{a} to below {b}" for a, b in pairwise(self.edges)]
        return (first, *between, last, *([MISSING] if self.missing else []))

    @property
    def parts(self) -> tuple[Part, ...]:  # noqa: D102  inherited
        return (Part(len(self.edges) + 1 + bool(self.missing), 1, 1),)

    def to_json(self) -> dict[str, Any]:  # noqa: D102  inherited
        fields = super().to_json() | {"edges": list(self.edges)}
        return fields | ({"missing": self.missing} if self.missing else {})


@dataclass(frozen=True)
class Text(AskedQuestion):
    """Any text, hashed to a few bits of a Bloom filter, differently in each cohort.

    Its bits say nothing one by one; `shoal.decode` asks which candidates explain them. With `pairs`
    a report also carries one pair of the text's letters, and `shoal.discover` finds frequent words
    without candidates.

    >>> Text("word", bits=256, hashes=2, cohorts=64).differing_bits
    4
    >>> Text("word", bits=256, hashes=1, cohorts=60, pairs=Pairs(length=6)).differing_bits
    4
    """

    filter_bits: int
    hashes: int
    cohorts: int
    pairs: Pairs | None = None
    kind: ClassVar[str] = "text"

    def __init__(
        self,
        name: str,
        bits: int,
        hashes: int,
        cohorts: int,
        pairs: Pairs | None = None,
        *,
        column: str | None = None,
    ) -> None:
        keep(self, name=name, filter_bits=bits, hashes=hashes, cohorts=cohorts, pairs=pairs)
        keep(self, column=column)
        super().__post_init__()
        limits = (("bits", bits, MOST_BITS), ("hashes", hashes, 8), ("cohorts", cohorts, 65_535))
        for field_name, value, highest in limits:
            what = f"{field_name} of question {self.name!r}"
            whole = check_integer(what, value, lowest=1, highest=highest, error=SurveyError)
            keep(self, **{"filter_bits" if field_name == "bits" else field_name: whole})
        if self.hashes > self.filter_bits:
            raise SurveyError(f"question {self.name!r} has more hashes than bits.")
        if pairs is not None:
            self._check_pairs(pairs)

    def _check_pairs(self, pairs: object) -> None:
        if not isinstance(pairs, Pairs):
            raise SurveyError(f"pairs of question {self.name!r} must be Pairs, got {pairs!r:.60}.")
        if self.cohorts % pairs.positions:
            raise SurveyError(
                f"cohorts of question {self.name!r} must be a multiple of {pairs.positions}, the"
                f" pairs of a word of {pairs.length} letters, got cohorts={self.cohorts}."
            )

    @property
    def labels(self) -> tuple[str, ...]:  # noqa: D102  inherited
        pairs = self.pairs.labels if self.pairs else ()
        return (*(f"bit {position}" for position in range(self.filter_bits)), *pairs)

    @property
    def parts(self) -> tuple[Part, ...]:  # noqa: D102  inherited
        words = Part(self.filter_bits, 0, self.hashes)
        return (words, Part(self.pairs.bits, 1, 1)) if self.pairs else (words,)

    def to_json(self) -> dict[str, Any]:  # noqa: D102  inherited
        sizes = {"bits": self.filter_bits, "cohorts": self.cohorts, "hashes": self.hashes}
        fields = super().to_json() | sizes
        return fields | ({"pairs": self.pairs.to_json()} if self.pairs else {})


def keep(instance: object, **checked: object) -> None:
    """Put checked values, in their one normal form, into a frozen object that is being made."""
    for name, value in checked.items():
        object.__setattr__(instance, name, value)


def checked_sequence(what: str, value: object) -> Sequence[object]:
    """Return a list of things that are not yet checked."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise SurveyError(f"{what} must be a list, got {type(value).__name__}.")
    return value


def check_missing(question: str, missing: object) -> None:
    """Refuse anything but `missing = "option"` or nothing."""
    if missing not in (None, "option"):
        raise SurveyError(
            f"missing of question {question!r} must be 'option' or left out, got {missing!r}."
        )


def _plain_decimal(question: str, edge: object) -> str:
    what = f"an edge of question {question!r}"
    limits = {"above": -(10**18), "below": 10**18}
    number = decimal.Decimal(check_decimal(what, edge, **limits, error=SurveyError, lenient=False))
    if abs(number.as_tuple().exponent) > 30:  # type: ignore[arg-type]  # finite: exponent is an int
        raise SurveyError(f"{what} has more than 30 decimal places, got {edge!r}.")
    plain = f"{number:f}"
    plain = plain.rstrip("0").rstrip(".") if "." in plain else plain
    return "0" if plain in ("-0", "") else plain
