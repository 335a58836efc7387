"""What is asked: a survey is a list of questions, each a block of bits with a domain.

The domain says which originals are allowed, as the fewest and the most set bits of the block. The
noise a plan needs depends on it, not only on the number of bits (SDP 5, BITVEC 3.1):

========= ====================================== ====== =============== =========
kind      a person answers                       bits   set bits        differ by
========= ====================================== ====== =============== =========
flags     any of the options                     L      0 to L          L
choice    exactly one option                     K      1               2
choices   at most k of the options               K      0 to k          min(2k, K)
number    a number, reported as its bin          bins   1               2
text      any text, as h bits of a Bloom filter  m      0 to h          min(2h, m)
========= ====================================== ====== =============== =========
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Literal

from shoal._check import check_decimal, check_integer, check_text
from shoal._files import canonical_json
from shoal.errors import SurveyError
from shoal.hashing import TextHash

__all__ = ["Choice", "Choices", "Flags", "Number", "Question", "Survey", "Text"]

MOST_BITS = 65_536
"""The longest vector a survey may ask a device to send."""

MISSING = "(missing)"
"""The label of the option that `missing = "option"` adds."""


@dataclass(frozen=True)
class Question:
    """One question: its name, the label of each of its bits, and which of them may be set."""

    name: str
    kind: ClassVar[str]

    def __post_init__(self) -> None:
        _keep(self, name=check_text("a question's name", self.name, error=SurveyError))

    @property
    def labels(self) -> tuple[str, ...]:
        """The label of each bit, in order."""
        raise NotImplementedError

    @property
    def bits(self) -> int:
        """How many bits the answer takes."""
        return len(self.labels)

    @property
    def fewest_set_bits(self) -> int:
        """How many bits an original has set at least."""
        return 0

    @property
    def most_set_bits(self) -> int:
        """How many bits an original may have set at most."""
        return self.bits

    @property
    def differing_bits(self) -> int:
        """In how many bits two originals can differ; times ln(p/q) it is the local epsilon."""
        # BITVEC 3.1 prints 2m even where the vector has fewer bits; the minimum is right.
        return min(2 * self.most_set_bits, self.bits)

    @property
    def takes_one(self) -> bool:
        """Whether exactly one bit is set in every original."""
        return self.fewest_set_bits == self.most_set_bits == 1

    def to_json(self) -> dict[str, Any]:
        """Return the question as plain JSON values, no floats among them."""
        raise NotImplementedError


@dataclass(frozen=True)
class Flags(Question):
    """Any number of the options may be set.

    >>> Flags("features", ("sync", "vpn", "reader")).differing_bits
    3
    """

    options: tuple[str, ...]
    kind: ClassVar[str] = "flags"

    def __post_init__(self) -> None:
        super().__post_init__()
        _keep(self, options=_checked_options(self.name, self.options, fewest=1))

    @property
    def labels(self) -> tuple[str, ...]:  # noqa: D102  inherited
        return self.options

    def to_json(self) -> dict[str, Any]:  # noqa: D102  inherited
        return {"kind": self.kind, "name": self.name, "options": list(self.options)}


@dataclass(frozen=True)
class Choices(Flags):
    """At most `at_most` of the options may be set.

    >>> Choices("languages", ("en", "fr", "de", "it", "es"), at_most=2).differing_bits
    4
    """

    at_most: int = 1
    kind: ClassVar[str] = "choices"

    def __post_init__(self) -> None:
        super().__post_init__()
        name, most = f"at_most of question {self.name!r}", len(self.options)
        at_most = check_integer(name, self.at_most, lowest=1, highest=most, error=SurveyError)
        _keep(self, at_most=at_most)

    @property
    def most_set_bits(self) -> int:  # noqa: D102  inherited
        return self.at_most

    def to_json(self) -> dict[str, Any]:  # noqa: D102  inherited
        return super().to_json() | {"at_most": self.at_most}


@dataclass(frozen=True)
class Choice(Question):
    """Exactly one option is set; with `missing="option"` no answer is an option too.

    >>> Choice("browser", ("firefox", "chrome", "safari"), missing="option").labels
    ('firefox', 'chrome', 'safari', '(missing)')
    """

    options: tuple[str, ...]
    missing: Literal["option"] | None = None
    kind: ClassVar[str] = "choice"

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_missing(self.name, self.missing)
        fewest = 1 if self.missing else 2
        _keep(self, options=_checked_options(self.name, self.options, fewest))

    @property
    def labels(self) -> tuple[str, ...]:  # noqa: D102  inherited
        return (*self.options, MISSING) if self.missing else self.options

    @property
    def fewest_set_bits(self) -> int:  # noqa: D102  inherited
        return 1

    @property
    def most_set_bits(self) -> int:  # noqa: D102  inherited
        return 1

    def to_json(self) -> dict[str, Any]:  # noqa: D102  inherited
        return {
            "kind": self.kind,
            "missing": self.missing,
            "name": self.name,
            "options": list(self.options),
        }


@dataclass(frozen=True)
class Number(Question):
    """A number, reported as the bin it falls in.

    Edges e1 < ... < en make n + 1 bins, closed on the left and open at both ends. They are kept as
    decimal text, so that every language computes the same plan id.

    >>> Number("age", (18, 65)).labels
    ('below 18', '18 to below 65', '65 and above')
    """

    edges: tuple[str | int | float | Decimal, ...]  # kept as text
    missing: Literal["option"] | None = None
    kind: ClassVar[str] = "number"

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_missing(self.name, self.missing)
        edges = _checked_sequence(f"edges of question {self.name!r}", self.edges)
        texts = tuple(_plain_decimal(self.name, edge) for edge in edges)
        numbers = [Decimal(text) for text in texts]
        if not texts or any(a >= b for a, b in pairwise(numbers)):
            raise SurveyError(
                f"edges of question {self.name!r} must be one or more rising numbers,"
                f" got {', '.join(texts) or 'none'}."
            )
        _keep(self, edges=texts)

    @property
    def labels(self) -> tuple[str, ...]:  # noqa: D102  inherited
        first, last = f"below {self.edges[0]}", f"{self.edges[-1]} and above"
        between = [f"{a} to below {b}" for a, b in pairwise(self.edges)]
        return (first, *between, last, *([MISSING] if self.missing else []))

    @property
    def fewest_set_bits(self) -> int:  # noqa: D102  inherited
        return 1

    @property
    def most_set_bits(self) -> int:  # noqa: D102  inherited
        return 1

    def to_json(self) -> dict[str, Any]:  # noqa: D102  inherited
        return {
            "edges": list(self.edges),
            "kind": self.kind,
            "missing": self.missing,
            "name": self.name,
        }


@dataclass(frozen=True)
class Text(Question):
    """Any text, hashed to a few bits of a Bloom filter, differently in each cohort.

    Its bits say nothing one by one; `shoal.decode` asks which candidates explain them.

    >>> Text("word", bits=256, hashes=2, cohorts=64).differing_bits
    4
    """

    filter_bits: int
    hashes: int
    cohorts: int
    kind: ClassVar[str] = "text"

    def __init__(self, name: str, bits: int, hashes: int, cohorts: int) -> None:
        _keep(self, name=name, filter_bits=bits, hashes=hashes, cohorts=cohorts)
        super().__post_init__()
        limits = (("bits", bits, MOST_BITS), ("hashes", hashes, 8), ("cohorts", cohorts, 65_535))
        for field_name, value, highest in limits:
            what = f"{field_name} of question {self.name!r}"
            whole = check_integer(what, value, lowest=1, highest=highest, error=SurveyError)
            _keep(self, **{"filter_bits" if field_name == "bits" else field_name: whole})
        if self.hashes > self.filter_bits:
            raise SurveyError(f"question {self.name!r} has more hashes than bits.")

    @property
    def labels(self) -> tuple[str, ...]:  # noqa: D102  inherited
        return tuple(f"bit {position}" for position in range(self.filter_bits))

    @property
    def most_set_bits(self) -> int:  # noqa: D102  inherited
        return self.hashes

    def to_json(self) -> dict[str, Any]:  # noqa: D102  inherited
        return {
            "bits": self.filter_bits,
            "cohorts": self.cohorts,
            "hashes": self.hashes,
            "kind": self.kind,
            "name": self.name,
        }


KINDS: dict[str, type[Question]] = {
    question.kind: question for question in (Flags, Choice, Choices, Number, Text)
}


@dataclass(frozen=True)
class Survey:
    """Questions asked together and answered in one report.

    >>> survey = Survey("browser", (
    ...     Flags("features", ("sync", "vpn")),
    ...     Choice("channel", ("release", "beta", "nightly")),
    ... ))
    >>> survey.bits, survey.differing_bits
    (5, 4)
    """

    name: str
    questions: tuple[Question, ...]
    _slices: dict[str, slice] = field(init=False, repr=False, compare=False, default_factory=dict)
    _hashes: dict[str, TextHash] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        name = check_text("a survey's name", self.name, error=SurveyError)
        _keep(self, name=name, questions=tuple(self.questions))
        if not self.questions:
            raise SurveyError(f"survey {self.name!r} must ask at least one question.")
        start = 0
        for question in self.questions:
            if not isinstance(question, Question):
                raise SurveyError(f"a survey holds questions, got {question!r}.")
            if question.name in self._slices:
                raise SurveyError(f"question {question.name!r} stands twice; names must differ.")
            self._slices[question.name] = slice(start, start + question.bits)
            start += question.bits
        if len({q.cohorts for q in self.questions if isinstance(q, Text)}) > 1:
            raise SurveyError("text questions of one survey share one number of cohorts.")
        if start > MOST_BITS:
            raise SurveyError(f"a survey takes at most {MOST_BITS} bits, this one takes {start}.")

    @property
    def bits(self) -> int:
        """How many bits one report of this survey has."""
        return sum(question.bits for question in self.questions)

    @property
    def differing_bits(self) -> int:
        """In how many bits two originals can differ: blocks add."""
        return sum(question.differing_bits for question in self.questions)

    @property
    def cohorts(self) -> int | None:
        """How many cohorts reports are spread over, or None where nothing is text."""
        return next((q.cohorts for q in self.questions if isinstance(q, Text)), None)

    def text_hash(self, question: str) -> TextHash:
        """Return the hash functions of a text question."""
        asked = self[question]
        if not isinstance(asked, Text):
            raise SurveyError(f"question {question!r} does not ask for text.")
        if question not in self._hashes:
            made = TextHash(self.digest, asked.name, asked.filter_bits, asked.hashes)
            self._hashes[question] = made
        return self._hashes[question]

    @property
    def labels(self) -> tuple[tuple[str, str], ...]:
        """The question and the label of each bit, in order."""
        return tuple((q.name, label) for q in self.questions for label in q.labels)

    def slice_of(self, question: str) -> slice:
        """Return where the bits of a question stand."""
        self[question]
        return self._slices[question]

    def bit(self, question: str, label: str) -> int:
        """Return the position of one labelled bit."""
        labels = self[question].labels
        if label not in labels:
            raise SurveyError(
                f"question {question!r} has no option {label!r}; it has {listed(labels)}."
            )
        return int(self._slices[question].start) + labels.index(label)

    def __getitem__(self, question: str) -> Question:
        for candidate in self.questions:
            if candidate.name == question:
                return candidate
        names = [candidate.name for candidate in self.questions]
        raise SurveyError(f"survey {self.name!r} asks no {question!r}; it asks {listed(names)}.")

    def __iter__(self) -> Iterator[Question]:
        return iter(self.questions)

    @classmethod
    def from_toml(cls, source: str | Path) -> Survey:
        """Read a survey from TOML text, or from the file at a `Path`.

        >>> Survey.from_toml('''
        ... name = "browser"
        ... [[question]]
        ... name = "channel"
        ... kind = "choice"
        ... options = ["release", "beta"]
        ... ''').bits
        2
        """
        try:
            text = source.read_text("utf-8") if isinstance(source, Path) else source
            # Numbers stay the digits that the author wrote: a plan's id must not depend on floats.
            document = tomllib.loads(text, parse_float=Decimal)
        except OSError as error:
            reason = error.strerror or "unreadable"
            raise SurveyError(f"cannot read survey {source}: {reason}.") from error
        except (ValueError, ArithmeticError, RecursionError) as error:
            reason = str(error).splitlines()[0] if str(error) else "nested too deeply"
            raise SurveyError(f"the survey is not valid TOML: {reason}.") from error
        questions = document.pop("question", None)
        if not isinstance(questions, list):
            raise SurveyError("a survey needs at least one [[question]] table.")
        return cls.from_json(document | {"questions": questions})

    @classmethod
    def from_json(cls, document: object) -> Survey:
        """Read a survey from plain JSON values; unknown or missing keys are errors."""
        fields = _checked_keys("a survey", document, {"name", "questions"})
        questions = _checked_sequence("questions", fields["questions"])
        name = check_text("a survey's name", fields["name"], error=SurveyError)
        return cls(name, tuple(_question(question) for question in questions))

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the survey's canonical JSON: what originals are encoded for."""
        return hashlib.sha256(canonical_json(self.to_json())).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """Return the survey as plain JSON values."""
        return {"name": self.name, "questions": [q.to_json() for q in self.questions]}


_KEYS = {
    "flags": ({"options"}, set[str]()),
    "choice": ({"options"}, {"missing"}),
    "choices": ({"options", "at_most"}, set[str]()),
    "number": ({"edges"}, {"missing"}),
    "text": ({"bits", "hashes", "cohorts"}, set[str]()),
}


def _keep(made: Question | Survey, **checked: object) -> None:
    """Put checked values, in their one normal form, into a frozen object that is being made."""
    for name, value in checked.items():
        object.__setattr__(made, name, value)


def _question(document: object) -> Question:
    """Build a question from its JSON or TOML table."""
    kind = document.get("kind") if isinstance(document, Mapping) else None
    if not isinstance(kind, str) or kind not in KINDS:
        raise SurveyError(f"a question's kind must be one of {listed(KINDS)}, got {kind!r}.")
    needed, optional = _KEYS[kind]
    fields = _checked_keys(f"a {kind} question", document, {"kind", "name"} | needed, optional)
    del fields["kind"]
    return KINDS[kind](**fields)


def _checked_keys(
    what: str,
    document: object,
    needed: set[str],
    optional: set[str] = frozenset(),  # type: ignore[assignment]
) -> dict[str, Any]:
    if not isinstance(document, Mapping):
        raise SurveyError(f"{what} must be a table of {listed(sorted(needed))}.")
    if missing := sorted(needed - set(document)):
        raise SurveyError(f"{what} must give {listed(missing)}.")
    if unknown := sorted(str(key) for key in set(document) - needed - optional):
        allowed = listed(sorted(needed | optional))
        raise SurveyError(f"{what} knows no {listed(unknown)}; it takes {allowed}.")
    return dict(document)


def _checked_sequence(what: str, value: object) -> Sequence[object]:
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise SurveyError(f"{what} must be a list, got {type(value).__name__}.")
    return value


def _checked_options(question: str, options: object, fewest: int) -> tuple[str, ...]:
    listed = _checked_sequence(f"options of question {question!r}", options)
    texts = tuple(
        check_text(f"option {i} of question {question!r}", option, error=SurveyError)
        for i, option in enumerate(listed, 1)
    )
    if len(texts) < fewest:
        raise SurveyError(f"question {question!r} needs at least {fewest} options.")
    if len(set(texts)) < len(texts):
        twice = next(text for text in texts if texts.count(text) > 1)
        raise SurveyError(f"question {question!r} has option {twice!r} twice; options must differ.")
    for text in texts:
        # Several flags stand in one cell of a table, separated by ";".
        if ";" in text or text == MISSING:
            raise SurveyError(
                f"option {text!r} of question {question!r} cannot be told apart in a table;"
                f" choose a name without ';' and other than {MISSING!r}."
            )
    return texts


def _check_missing(question: str, missing: object) -> None:
    if missing not in (None, "option"):
        raise SurveyError(
            f"missing of question {question!r} must be 'option' or left out, got {missing!r}."
        )


def _plain_decimal(question: str, edge: object) -> str:
    what = f"an edge of question {question!r}"
    number = Decimal(check_decimal(what, edge, above=-(10**18), below=10**18, error=SurveyError))
    if abs(number.as_tuple().exponent) > 30:  # type: ignore[arg-type]  # finite: exponent is an int
        raise SurveyError(f"{what} has more than 30 decimal places, got {edge!r}.")
    plain = f"{number:f}"
    plain = plain.rstrip("0").rstrip(".") if "." in plain else plain
    return "0" if plain in ("-0", "") else plain


def listed(names: object) -> str:
    """List names for a message, a long list cut short."""
    shown = [repr(name) for name in list(names)[:8]]  # type: ignore[call-overload]
    rest = len(list(names)) - len(shown)  # type: ignore[call-overload]
    return ", ".join(shown) + (f" and {rest} more" if rest else "")
