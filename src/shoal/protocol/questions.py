"""Questions: each is a block of bits with a domain.

The domain is the minimum and maximum number of set bits in an original. The noise a plan needs
depends on it, not only on the number of bits (SDP 5, BITVEC 3.1):

========= ====================================== ====== =============== =========
kind      a person answers                       bits   set bits        differ by
========= ====================================== ====== =============== =========
flags     any of the options                     L      0 to L          L
.         with at_most: at most k of them        L      0 to k          min(2k, L)
choice    exactly one option                     K      1               2
yes/no    yes or no                              1      0 to 1          1
date      a date, as its month, week or weekday  K      1               2
number    a number, as a grid point or a bin     points 1               2
text      any text, as h bits of a Bloom filter  m      0 to h          min(2h, m)
pairs     with a text: one pair of its letters   P      1               2
cross     nothing: its cell follows from others  cells  1               2
========= ====================================== ====== =============== =========

Arms, retention and funnels (`shoal.protocol.experiments`) are choices, or flags, that a device
answers from its own past.

A cross is the cells of several questions as one more question. A device derives the cell from the
answers. Two cells differ in two bits, however many there are. Its sides are questions with exactly
one value, and single flags, written `question=option`. The values of the last side change fastest:
values v1, ..., vn of sides with s1, ..., sn values set bit (... (v1 s2 + v2) s3 + ...) sn + vn.
"""

from __future__ import annotations

import dataclasses
import decimal
import math
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

from shoal.errors import SurveyError
from shoal.protocol.text_hash import Pairs
from shoal.support.checks import (
    check_decimal,
    check_integer,
    check_text,
    did_you_mean,
    listed,
    shown,
)
from shoal.support.results import shortened

if TYPE_CHECKING:
    import datetime

MAX_BITS = 65_536
"""The longest vector a survey may ask a device to send."""

MISSING = "(missing)"
"""The label of the option that `missing = "option"` adds."""

OTHER = "(other)"
"""The label of the option that `other = true` adds."""

MAX_POINTS = 1001
"""The most points of a number's grid."""

MAX_TITLE, MAX_TEXT = 200, 2000
"""The most characters of a title, and of a text that people read."""

_MONTHS = "January February March April May June July August September October November December"
_DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday"
PERIODS = {
    "month": tuple(_MONTHS.split()),
    "weekday": tuple(_DAYS.split()),
    "week": tuple(f"week {number}" for number in range(1, 54)),
}
"""The labels of a date, by the part of it that is counted; weeks are those of ISO 8601."""

_BETWEEN = " x "
"""Between the values in a cell's label."""


class QuestionPart(NamedTuple):
    """Bits of a question that stand together, and how many of them an original sets."""

    bits: int
    min_set_bits: int
    max_set_bits: int

    @property
    def takes_one(self) -> bool:
        """Whether exactly one bit is set in every original."""
        return self.min_set_bits == self.max_set_bits == 1

    @property
    def differing_bits(self) -> int:
        """In how many bits two originals can differ; times ln(p/q) it is the local epsilon."""
        # BITVEC 3.1 prints 2m even where the vector has fewer bits; the minimum is right.
        return min(2 * self.max_set_bits, self.bits)


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Question:
    """One question: its name, the label of each of its bits, and which of them may be set."""

    name: str
    kind: ClassVar[str]
    json_names: ClassVar[Mapping[str, str | None]] = {}
    """The names in JSON and TOML of fields that differ there; None is not declared at all."""

    def __post_init__(self) -> None:
        _keep(self, name=check_text("a question's name", self.name, error=SurveyError))
        missing = getattr(self, "missing", None)
        if missing not in (None, "option"):
            what = f"missing of question {self.name!r}"
            raise SurveyError(f"{what} must be 'option' or left out, got {missing!r}.")

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The label of each bit, in order."""
        raise NotImplementedError

    @property
    def heading(self) -> str:
        """What people read in place of the name: the title, if there is one."""
        return self.name

    @cached_property
    def shown_labels(self) -> tuple[str, ...]:
        """What people read in place of each label, in order."""
        return self.labels

    @property
    def _limits(self) -> tuple[int, int]:
        """How many bits an original sets, at least and at most."""
        return 1, 1

    @property
    def parts(self) -> tuple[QuestionPart, ...]:
        """Which of its bits may be set, part by part, in order."""
        return (QuestionPart(len(self.labels), *self._limits),)

    @property
    def bits(self) -> int:
        """How many bits the answer takes."""
        return sum(part.bits for part in self.parts)

    @property
    def min_set_bits(self) -> int:
        """How many bits an original has set at least."""
        return sum(part.min_set_bits for part in self.parts)

    @property
    def max_set_bits(self) -> int:
        """How many bits an original may have set at most."""
        return sum(part.max_set_bits for part in self.parts)

    @property
    def differing_bits(self) -> int:
        """In how many bits two originals can differ: parts add."""
        return sum(part.differing_bits for part in self.parts)

    @property
    def takes_one(self) -> bool:
        """Whether exactly one bit is set in every original."""
        return self.min_set_bits == self.max_set_bits == 1

    @property
    def answers_in_brief(self) -> str:
        """The possible answers in a few words."""
        brief = ", ".join(self.labels[:8])
        return shortened(brief if len(self.labels) <= 8 else f"{brief}, ...", 40)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({shortened(self.name, 60)!r}: {self.answers_in_brief})"

    # Once for all kinds: a device that starts would wait while each kind generates its own.
    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._values == other._values

    def __hash__(self) -> int:
        return hash(self._values)

    @property
    def _values(self) -> tuple[object, ...]:
        return tuple(getattr(self, one.name) for one in dataclasses.fields(self))

    def to_json(self) -> dict[str, Any]:
        """Return the declared fields as plain JSON values without floats."""
        values = {name: getattr(self, one.name) for name, one in self.json_fields().items()}
        return {"kind": self.kind} | {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in values.items()
            if value not in (None, False, ())
        }

    def replaced(self, **changes: Any) -> Self:
        """Return the question with other values of some fields, by their names in TOML."""
        fields = {name: getattr(self, one.name) for name, one in self.json_fields().items()}
        return type(self)(**fields | changes)

    @classmethod
    def json_fields(cls) -> dict[str, dataclasses.Field[Any]]:
        """Return the fields by their names in JSON and TOML."""
        named = ((cls.json_names.get(one.name, one.name), one) for one in dataclasses.fields(cls))
        return {name: one for name, one in named if name is not None}


@dataclass(frozen=True, init=False, repr=False, eq=False)
class AskedQuestion(Question):
    """A question that people answer; `column` is where a table holds their answers.

    People read `title` in place of its name, `text`, the question as it is asked, and `titles` in
    place of the names of options. Answers, JSON and tables keep the names.
    """

    column: str | None = field(default=None, kw_only=True)
    title: str | None = field(default=None, kw_only=True)
    text: str | None = field(default=None, kw_only=True)
    titles: Mapping[str, str] | tuple[tuple[str, str], ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        of = f"of question {self.name!r}"
        title, text = check_words(of, self.title, self.text)
        _keep(self, title=None if title == self.name else title, text=text)
        if self.column is not None:
            what = f"column of question {self.name!r}"
            column = check_text(what, self.column, error=SurveyError)
            _keep(self, column=None if column == self.name else column)
        self._check_fields()
        self._check_titles()

    def _check_fields(self) -> None:
        """Check the fields of this kind, and keep each in its one form."""

    @property
    def table_column(self) -> str:
        """The column of a table that holds its answers: its name, if nothing else is declared."""
        return self.column or self.name

    @property
    def heading(self) -> str:
        return self.title or self.name

    @property
    def option_names(self) -> tuple[str, ...]:
        """The names that `titles` may replace."""
        return self.labels

    @cached_property
    def shown_labels(self) -> tuple[str, ...]:
        return tuple(map(self.title_of, self.labels))

    def title_of(self, option: str) -> str:
        """Return what people read in place of an option's name."""
        return dict(self.titles).get(option, option)

    def _check_titles(self) -> None:
        """Keep the titles in the order of the options, without those that repeat a name."""
        what = f"titles of question {self.name!r}"
        if not isinstance(self.titles, (Mapping, tuple)):
            raise SurveyError(f"{what} must be a table of options, got {shown(self.titles)}.")
        given = dict(self.titles)
        if unknown := given.keys() - set(self.option_names):
            raise SurveyError(
                f"{what} name {shown(min(unknown, key=str))}, which is not an option; it has"
                f" {listed(self.option_names)}."
            )
        titles = [
            (name, check_title(f"the title of option {name!r} of question {self.name!r}", title))
            for name in self.option_names
            if (title := given.get(name)) is not None
        ]
        _keep(self, titles=tuple(pair for pair in titles if pair[0] != pair[1]))
        shown_names = [self.title_of(name) for name in self.option_names]
        if len(set(shown_names)) < len(shown_names):
            raise SurveyError(f"two options of question {self.name!r} have the same title.")

    def to_json(self) -> dict[str, Any]:
        """Return the declared fields as plain JSON values without floats."""
        return super().to_json() | ({"titles": dict(self.titles)} if self.titles else {})


@dataclass(frozen=True, repr=False, eq=False)
class Number(AskedQuestion):
    """A number, reported as a point of a grid or as the bin it falls in.

    A grid has `points` even steps from `low` to `high`; ``whole=True`` takes every whole number.
    The device rounds at random to one of the two neighbouring points, so that the mean of the
    points is unbiased for the mean of the numbers. Numbers outside are moved to the nearer end.

    Edges e1 < ... < en make n + 1 bins, closed on the left and open at both ends: no mean follows
    from them. Limits and edges are kept as decimal text, so that every language computes the same
    plan id.

    >>> Number("hours", low=0, high=10, points=5).labels
    ('0', '2.5', '5', '7.5', '10')
    >>> Number("age", (18, 65)).labels
    ('below 18', '18 to below 65', '65 and above')
    """

    edges: tuple[str | int | float | decimal.Decimal, ...] = ()  # kept as text
    missing: Literal["option"] | None = None
    low: str | int | float | decimal.Decimal | None = field(default=None, kw_only=True)
    high: str | int | float | decimal.Decimal | None = field(default=None, kw_only=True)
    points: int | None = field(default=None, kw_only=True)
    whole: bool = field(default=False, kw_only=True)  # kept as points
    unit: str | None = field(default=None, kw_only=True)
    kind: ClassVar[str] = "number"

    def _check_fields(self) -> None:
        edges = checked_sequence(f"edges of question {self.name!r}", self.edges)
        texts = tuple(_plain_decimal(f"an edge of question {self.name!r}", edge) for edge in edges)
        if any(decimal.Decimal(a) >= decimal.Decimal(b) for a, b in pairwise(texts)):
            raise SurveyError(
                f"edges of question {self.name!r} must be rising numbers, got {', '.join(texts)}."
            )
        _keep(self, edges=texts)
        if self.unit is not None:
            what = f"unit of question {self.name!r}"
            _keep(self, unit=check_text(what, self.unit, error=SurveyError, longest=40))
        _check_switch(self, "whole", self.whole)
        ways = bool(self.edges), self.points is not None, self.whole
        limits = self.low is not None and self.high is not None
        if sum(ways) != 1 or limits == ways[0] or (self.low is None) != (self.high is None):
            raise SurveyError(
                f"question {self.name!r} needs low, high and points (or whole = true), or edges"
                " of bins: one of the three."
            )
        if self.edges:
            return
        low, high = (
            _plain_decimal(f"{name} of question {self.name!r}", getattr(self, name))
            for name in ("low", "high")
        )
        width = Fraction(high) - Fraction(low)
        if width <= 0:
            raise SurveyError(f"question {self.name!r} needs low < high, got {low} and {high}.")
        points: object = self.points
        if self.whole:
            if Fraction(low).denominator * Fraction(high).denominator > 1:
                raise SurveyError(f"question {self.name!r}: whole numbers need whole low and high.")
            points = int(width) + 1
        what = f"points of question {self.name!r}"
        counted = check_integer(what, points, lowest=2, highest=MAX_POINTS, error=SurveyError)
        _keep(self, low=low, high=high, points=counted, whole=False)
        different = {float(point) for point in self.grid}
        if len(different) < counted or len(set(self.labels)) < len(self.labels):
            raise SurveyError(
                f"question {self.name!r}: the points of its grid are too close to each other for"
                " numbers of 16 digits."
            )

    @property
    def answers_in_brief(self) -> str:
        if self.points is None:
            return super().answers_in_brief
        return f"{self.low} to {self.high}, {self.points} points"

    @cached_property
    def grid(self) -> tuple[Fraction, ...]:
        """The points of the grid, rising; none if the question has bins."""
        if self.points is None:
            return ()
        low, high = Fraction(str(self.low)), Fraction(str(self.high))
        return tuple(low + (high - low) * i / (self.points - 1) for i in range(self.points))

    def position(self, number: Any) -> Any:
        """Return where a number, or an array of them, is on the grid, from 0 to points - 1.

        A device rounds it up with the probability of its fraction. A number outside is at the
        nearer end.

        >>> Number("hours", low=0, high=10, points=5).position(4)
        1.6
        """
        assert self.points is not None  # a question with edges has no grid
        last, low, high = self.points - 1, float(str(self.low)), float(str(self.high))
        place = (number - low) * (last / (high - low))
        if isinstance(place, float):
            return min(max(place, 0.0), float(last))
        return place.clip(0.0, last)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        missing = [MISSING] if self.missing else []
        if self.grid:
            return (*map(_short_decimal, self.grid), *missing)
        first, last = f"below {self.edges[0]}", f"{self.edges[-1]} and above"
        between = [f"{a} to below {b}" for a, b in pairwise(self.edges)]
        return (first, *between, last, *missing)

    def title_of(self, option: str) -> str:
        """Return what people read in place of a point or a bin; without a title, with the unit."""
        title = super().title_of(option)
        if self.unit is None or option == MISSING or title != option:
            return title
        number, above, _ = option.partition(" and above")
        return f"{number} {self.unit}{above}"


@dataclass(frozen=True, repr=False, eq=False)
class Text(AskedQuestion):
    """Any text, hashed to a few bits of a Bloom filter, differently in each cohort.

    No bit belongs to one text. `shoal.text.decode` finds which candidates explain the bits. With
    `pairs` a report also carries one pair of the text's letters, and `shoal.text.discover` finds
    frequent words without candidates.

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
    json_names = {"filter_bits": "bits", "titles": None}  # noqa: RUF012  no bit has a title

    def __init__(
        self,
        name: str,
        bits: int,
        hashes: int,
        cohorts: int,
        pairs: Pairs | None = None,
        *,
        column: str | None = None,
        title: str | None = None,
        text: str | None = None,
    ) -> None:
        _keep(self, name=name, pairs=pairs, column=column, title=title, text=text, titles=())
        super().__post_init__()
        limits = (("bits", bits, MAX_BITS), ("hashes", hashes, 8), ("cohorts", cohorts, 65_535))
        for field_name, value, highest in limits:
            what = f"{field_name} of question {self.name!r}"
            whole = check_integer(what, value, lowest=1, highest=highest, error=SurveyError)
            _keep(self, **{"filter_bits" if field_name == "bits" else field_name: whole})
        if self.hashes > self.filter_bits:
            raise SurveyError(f"question {self.name!r} has more hashes than bits.")
        if pairs is None:
            return
        if not isinstance(pairs, Pairs):
            raise SurveyError(f"pairs of question {self.name!r} must be Pairs, got {pairs!r:.60}.")
        if self.cohorts % pairs.positions:
            raise SurveyError(
                f"cohorts of question {self.name!r} must be a multiple of {pairs.positions}, the"
                f" pairs of a word of {pairs.length} letters, got cohorts={self.cohorts}."
            )

    @property
    def answers_in_brief(self) -> str:
        return "any text"

    @cached_property
    def labels(self) -> tuple[str, ...]:
        pairs = self.pairs.labels if self.pairs else ()
        return (*(f"bit {position}" for position in range(self.filter_bits)), *pairs)

    @property
    def parts(self) -> tuple[QuestionPart, ...]:
        """The Bloom filter, and the pair of letters if there is one."""
        words = QuestionPart(self.filter_bits, 0, self.hashes)
        return (words, QuestionPart(self.pairs.bits, 1, 1)) if self.pairs else (words,)

    @property
    def option_names(self) -> tuple[str, ...]:
        return ()

    def to_json(self) -> dict[str, Any]:
        """Return the declared fields as plain JSON values without floats."""
        return super().to_json() | ({"pairs": self.pairs.to_json()} if self.pairs else {})


@dataclass(frozen=True, init=False, repr=False, eq=False)
class OptionsQuestion(AskedQuestion):
    """A question whose answers name options.

    With `fold` their case and blanks do not matter, with `other` any other answer is an option too.
    """

    options: tuple[str, ...]
    fold: bool = field(default=False, kw_only=True)
    other: bool = field(default=False, kw_only=True)

    def _check_fields(self) -> None:
        _check_switch(self, "fold", self.fold)
        _check_switch(self, "other", self.other)
        more = getattr(self, "missing", None) or self.other
        fewest = 2 if isinstance(self, Choice) and not more else 1
        _keep(self, options=_checked_options(self.name, self.options, fewest))
        for place, option in enumerate(self.options):
            if self.places[self._compared(option)] != place:
                how = " when case and blanks are folded" * self.fold
                raise SurveyError(
                    f"question {self.name!r} has option {option!r} twice{how}; options must differ."
                )

    @cached_property
    def places(self) -> dict[str, int]:
        """The place of each option, by its name as answers are compared with it."""
        return {self._compared(option): place for place, option in enumerate(self.options)}

    def place(self, answer: str) -> int | None:
        """Return the place of the option that an answer names; of `(other)`, or None."""
        return self.places.get(self._compared(answer), len(self.options) if self.other else None)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        missing = [MISSING] * bool(getattr(self, "missing", None))
        return (*self.options, *[OTHER] * self.other, *missing)

    def _compared(self, text: str) -> str:
        return folded(text) if self.fold else unicodedata.normalize("NFC", text.strip())


@dataclass(frozen=True, repr=False, eq=False)
class Flags(OptionsQuestion):
    """Any of the options may be set, or at most `at_most` of them.

    With `other` one more is set by answers that are not listed, however many they are.

    >>> Flags("features", ("sync", "vpn", "reader")).differing_bits
    3
    >>> Flags("languages", ("en", "fr", "de", "it", "es"), at_most=2).differing_bits
    4
    """

    at_most: int | None = None
    kind: ClassVar[str] = "flags"

    def _check_fields(self) -> None:
        super()._check_fields()
        if self.at_most is not None:
            what, most = f"at_most of question {self.name!r}", len(self.labels)
            at_most = check_integer(what, self.at_most, lowest=1, highest=most, error=SurveyError)
            _keep(self, at_most=at_most)

    @property
    def _limits(self) -> tuple[int, int]:
        return 0, self.at_most or len(self.labels)


@dataclass(frozen=True, repr=False, eq=False)
class Choice(OptionsQuestion):
    """Exactly one option is set.

    With `other` whatever is not listed is an option too, and with `missing="option"` no answer is.

    >>> Choice("browser", ("firefox", "chrome"), missing="option", other=True).labels
    ('firefox', 'chrome', '(other)', '(missing)')
    """

    missing: Literal["option"] | None = None
    kind: ClassVar[str] = "choice"


@dataclass(frozen=True, repr=False, eq=False)
class Date(AskedQuestion):
    """A date, of which only its month, its weekday or its ISO week is reported.

    >>> Date("visit", "weekday", missing="option").labels[-3:]
    ('Saturday', 'Sunday', '(missing)')
    """

    by: Literal["month", "weekday", "week"]
    missing: Literal["option"] | None = None
    kind: ClassVar[str] = "date"

    def _check_fields(self) -> None:
        if not isinstance(self.by, str) or self.by not in PERIODS:
            what = f"by of question {self.name!r}"
            raise SurveyError(f"{what} must be one of {listed(PERIODS)}, got {shown(self.by)}.")

    def place(self, day: datetime.date) -> int:
        """Return the place of a date's month, weekday or week."""
        if self.by == "month":
            return day.month - 1
        return day.weekday() if self.by == "weekday" else day.isocalendar().week - 1

    @cached_property
    def labels(self) -> tuple[str, ...]:
        return (*PERIODS[self.by], *[MISSING] * bool(self.missing))


@dataclass(frozen=True, repr=False, eq=False)
class YesNo(AskedQuestion):
    """Yes or no, as one bit that yes sets; with `missing="option"` a choice of three.

    >>> YesNo("smokes").differing_bits, YesNo("smokes", missing="option").labels
    (1, ('yes', 'no', '(missing)'))
    """

    missing: Literal["option"] | None = None
    kind: ClassVar[str] = "yes/no"

    @property
    def option_names(self) -> tuple[str, ...]:
        return "yes", "no", *self.labels[2:]

    @cached_property
    def labels(self) -> tuple[str, ...]:
        return ("yes", "no", MISSING) if self.missing else ("yes",)

    @property
    def _limits(self) -> tuple[int, int]:
        return (1, 1) if self.missing else (0, 1)


class CrossSide(NamedTuple):
    """One of the questions of a cross, or one flag of a question."""

    question: AskedQuestion
    flag: str | None = None

    @property
    def name(self) -> str:
        """How a survey names the side."""
        return self.question.name if self.flag is None else f"{self.question.name}={self.flag}"

    @property
    def values(self) -> tuple[str, ...]:
        """The question's labels, or that a bit is set and that it is not."""
        if self.flag is not None:
            return self.flag, f"not {self.flag}"
        name = self.question.name
        if isinstance(self.question, YesNo):
            return name, f"not {name}", *([MISSING] if self.question.missing else [])
        return self.question.labels

    @property
    def heading(self) -> str:
        """What people read in place of its name."""
        asked = self.question.heading
        return asked if self.flag is None else f"{asked}: {self.question.title_of(self.flag)}"

    @property
    def shown_values(self) -> tuple[str, ...]:
        """What people read in place of the values; a question says yes or no of itself."""
        if self.flag is not None:
            return "yes", "no"
        return tuple(map(self.question.title_of, self.question.option_names))

    @property
    def bit(self) -> int | None:
        """The bit that decides the value: set is the first value, not set the second.

        None where exactly one bit of the question is set, which is then the value.
        """
        if self.question.takes_one:
            return None
        return 0 if self.flag is None else self.question.labels.index(self.flag)


@dataclass(frozen=True, repr=False, eq=False)
class Cross(Question):
    """The cells of two or more sides; exactly one is set.

    Use `Survey.cross`, which knows the questions by name.

    >>> smokes, features = YesNo("smokes"), Flags("features", ("sync", "vpn"))
    >>> Cross("c", (CrossSide(smokes), CrossSide(features, "vpn"))).labels
    ('smokes x vpn', 'smokes x not vpn', 'not smokes x vpn', 'not smokes x not vpn')
    """

    sides: tuple[CrossSide, ...]
    kind: ClassVar[str] = "cross"

    def __post_init__(self) -> None:
        super().__post_init__()
        _keep(self, sides=tuple(self.sides))
        for side in self.sides:
            if not isinstance(side, CrossSide):
                raise SurveyError(f"a cross has sides, got {shown(side)}; use Survey.cross.")
            _check_side(side)
        names = [side.name for side in self.sides]
        if len(names) < 2 or len(set(names)) < len(names):
            called = listed(names)
            raise SurveyError(f"a cross takes two or more different questions, got {called}.")
        if (cells := math.prod(self.sizes)) > MAX_BITS:
            raise SurveyError(
                f"a survey takes at most {MAX_BITS} bits, cross {self.name!r} has {cells}"
                " cells; cross fewer questions, or questions with fewer options."
            )
        if len(set(self.labels)) < len(self.labels):
            raise SurveyError(
                f"two cells of cross {self.name!r} have the same label; rename the options that"
                f" hold {_BETWEEN!r} or begin with 'not'."
            )

    @classmethod
    def of(cls, asked: Sequence[Question], names: object, name: object = None) -> Cross:
        """Cross questions, or flags written `question=option`, that are found by their names."""
        named = checked_sequence("questions of a cross", names)
        sides = tuple(_side(asked, one) for one in named)
        called: Any = _BETWEEN.join(side.name for side in sides) if name is None else name
        return cls(called, sides)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        cells = product(*(side.values for side in self.sides))
        return tuple(_BETWEEN.join(cell) for cell in cells)

    @property
    def heading(self) -> str:
        if self.name != _BETWEEN.join(side.name for side in self.sides):
            return self.name
        return " by ".join(side.heading for side in self.sides)

    @cached_property
    def shown_labels(self) -> tuple[str, ...]:
        return tuple(
            ", ".join(
                f"{side.heading}: {value}" if side.bit is not None else value
                for side, value in zip(self.sides, cell, strict=True)
            )
            for cell in product(*(side.shown_values for side in self.sides))
        )

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """How many values each side has."""
        return tuple(len(side.values) for side in self.sides)

    def to_json(self) -> dict[str, Any]:
        """Return the name and the names of the sides as plain JSON values."""
        names = [side.name for side in self.sides]
        return {"kind": self.kind, "name": self.name, "questions": names}


def folded(text: str) -> str:
    """Return a text without its case, and with one blank for every run of white space.

    Upper case and then lower case, without a locale, is what every language has.
    """
    upper = unicodedata.normalize("NFC", " ".join(text.split())).upper()
    return unicodedata.normalize("NFC", upper.lower())


def check_words(of: str, title: object, text: object) -> tuple[str | None, str | None]:
    """Return a title and a text of a survey or a question, both of which may be left out."""
    return (
        None if title is None else check_title(f"the title {of}", title),
        None if text is None else _check_paragraphs(f"the text {of}", text),
    )


def check_title(what: str, title: object) -> str:
    """Return a title: one line of printable characters, and the joiners that scripts need."""
    checked = title.translate(_JOINERS) if isinstance(title, str) else title
    check_text(what, checked, error=SurveyError, longest=MAX_TITLE)
    return unicodedata.normalize("NFC", str(title))


def _check_paragraphs(what: str, text: object) -> str:
    """Return a text of one or more lines; blank lines separate paragraphs."""
    if not isinstance(text, str):
        raise SurveyError(f"{what} must be text, got {shown(text)}.")
    lines = [" ".join(line.split()) for line in text.strip().splitlines()]
    whole = unicodedata.normalize("NFC", "\n".join(lines))
    printable = "".join(lines).translate(_JOINERS).isprintable()
    if not whole or len(whole) > MAX_TEXT or not printable:
        raise SurveyError(
            f"{what} must be 1 to {MAX_TEXT} printable characters in lines, got {shown(text)}."
        )
    return whole


_JOINERS = {0x200C: None, 0x200D: None}
"""Zero-width joiner and non-joiner: Persian, scripts of India and some emoji need them."""


def checked_sequence(what: str, value: object) -> Sequence[object]:
    """Return a list whose members are not yet checked."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise SurveyError(f'{what} must be a list such as ["a", "b"], got {shown(value)}.')
    return value


def _keep(instance: object, **checked: object) -> None:
    """Put checked values, in their one normal form, into a frozen object that is being made."""
    vars(instance).update(checked)


def _check_switch(question: Question, name: str, value: object) -> None:
    if not isinstance(value, bool):
        what = f"{name} of question {question.name!r}"
        raise SurveyError(f"{what} is true or false, got {shown(value)}.")


def _short_decimal(number: Fraction) -> str:
    """Write a point of a grid in full, or to 12 digits where it has more than 30 places."""
    for places in range(31):
        scaled = number * 10**places
        if scaled.denominator == 1:
            digits = str(abs(scaled.numerator)).zfill(places + 1)
            whole, fraction = digits[: len(digits) - places], digits[len(digits) - places :]
            return "-" * (number < 0) + whole + ("." + fraction if places else "")
    return f"{float(number):.12g}"


def _plain_decimal(what: str, edge: object) -> str:
    limits = {"above": -(10**18), "below": 10**18}
    number = decimal.Decimal(check_decimal(what, edge, **limits, error=SurveyError, lenient=False))
    if abs(number.as_tuple().exponent) > 30:  # type: ignore[arg-type]  # finite: exponent is an int
        raise SurveyError(f"{what} has more than 30 decimal places, got {edge!r}.")
    plain = f"{number:f}"
    plain = plain.rstrip("0").rstrip(".") if "." in plain else plain
    return "0" if plain in ("-0", "") else plain


def _checked_options(question: str, options: object, fewest: int) -> tuple[str, ...]:
    texts = tuple(
        check_text(f"option {i} of question {question!r}", option, error=SurveyError)
        for i, option in enumerate(
            checked_sequence(f"options of question {question!r}", options), 1
        )
    )
    if len(texts) < fewest:
        raise SurveyError(f"question {question!r} needs at least {fewest} options.")
    for text in texts:
        # Several flags are in one cell of a table, separated by ";".
        if ";" in text or text in (MISSING, OTHER):
            raise SurveyError(
                f"option {text!r} of question {question!r} cannot be told apart in a table;"
                f" choose a name without ';' and other than {MISSING!r} and {OTHER!r}."
            )
    return texts


def _side(asked: Sequence[Question], name: object) -> CrossSide:
    """Return the question of this name, or else the flag of the question before the first "="."""
    if not isinstance(name, str):
        raise SurveyError(f"a cross names its questions, got {shown(name)}.")
    questions = {question.name: question for question in asked}
    before, equals, flag = name.partition("=")
    whole = name in questions or not equals
    question = questions.get(name if whole else before)
    if question is None:
        raise SurveyError(
            f"there is no question {shown(name)} to cross; there is"
            f" {listed(questions)}.{did_you_mean(name, questions)}"
        )
    if not isinstance(question, AskedQuestion):
        raise SurveyError(f"{name!r} is a cross itself; cross the questions that it is made of.")
    return CrossSide(question, None if whole else flag)


def _check_side(side: CrossSide) -> None:
    """Refuse what has not exactly one value, and say why."""
    question, flag = side.question, side.flag
    called = f"question {question.name!r}"
    if isinstance(question, Text):
        raise SurveyError(
            f"{called} is text and cannot be crossed: its bits mean nothing one by one; ask it as"
            " a choice among the frequent answers, with other = true."
        )
    if isinstance(question, Flags):
        if question.at_most is not None:
            raise SurveyError(
                f"{called} has at_most and cannot be crossed: a person can be in several"
                " cells; ask it as a choice, or without at_most and cross its flags."
            )
        if flag is None:
            first = question.options[0]
            raise SurveyError(
                f"{called} takes several answers; cross some of its flags, such as"
                f" '{question.name}={first}'."
            )
        if flag not in question.options:
            raise SurveyError(
                f"{called} has no option {flag!r}; it has"
                f" {listed(question.options)}.{did_you_mean(flag, question.options)}"
            )
    elif flag is not None:
        raise SurveyError(
            f"{called} has one answer, so it is crossed as a whole, without '={flag}'."
        )
