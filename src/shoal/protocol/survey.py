"""A survey: a list of questions that are answered together, in one report."""

from __future__ import annotations

import dataclasses
import hashlib
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, ClassVar, cast

from shoal.errors import InputError, SurveyError, UnknownNameError
from shoal.protocol.experiments import Arm, Funnel, Retention, RetentionOnce
from shoal.protocol.questions import (
    MAX_BITS,
    AskedQuestion,
    Choice,
    Cross,
    Date,
    Flags,
    Number,
    Question,
    QuestionPart,
    Text,
    YesNo,
    check_words,
    checked_sequence,
)
from shoal.protocol.text_hash import Pairs, TextHash
from shoal.support.checks import (
    check_one_of,
    check_text,
    did_you_mean,
    exact_fields,
    listed,
    shown,
)
from shoal.support.files import canonical_json, toml_value
from shoal.support.results import Displayed, Section, first_rows

__all__ = [
    "Arm",
    "AskedQuestion",
    "Choice",
    "Cross",
    "Date",
    "Flags",
    "Funnel",
    "Number",
    "Pairs",
    "Question",
    "QuestionPart",
    "Retention",
    "RetentionOnce",
    "Survey",
    "Text",
    "YesNo",
]


@dataclass(frozen=True, repr=False)
class Survey(Displayed):
    """Questions asked together and answered in one report.

    >>> survey = Survey("browser", (
    ...     Flags("features", ("sync", "vpn")),
    ...     Choice("channel", ("release", "beta", "nightly")),
    ... ))
    >>> survey.bits, survey.differing_bits
    (5, 4)

    People read `title` in place of its name, and `text` as an introduction.
    """

    how_to_get: ClassVar[str] = "make one with Survey(name, questions) or Survey.from_toml(path)"

    name: str
    questions: tuple[Question, ...]
    title: str | None = field(default=None, kw_only=True)
    text: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        name = check_text("a survey's name", self.name, error=SurveyError)
        object.__setattr__(self, "name", name)
        title, text = check_words("of a survey", self.title, self.text)
        object.__setattr__(self, "title", None if title == name else title)
        object.__setattr__(self, "text", text)
        if not isinstance(self.questions, Iterable) or isinstance(self.questions, str):
            raise SurveyError(
                f"a survey's questions are a list of questions, got {shown(self.questions)}."
            )
        object.__setattr__(self, "questions", tuple(self.questions))
        if not self.questions:
            raise SurveyError(f"survey {self.name!r} must ask at least one question.")
        names = set()
        for question in self.questions:
            if not isinstance(question, Question):
                raise SurveyError(f"a survey holds questions, got {question!r}.")
            if question.name in names:
                raise SurveyError(f"question {question.name!r} appears twice; names must differ.")
            names.add(question.name)
        self._check_crosses()
        if len(self.retention) > 1:
            raise SurveyError("a survey has at most one retention question: one age of a device.")
        if len({q.cohorts for q in self.questions if isinstance(q, Text)}) > 1:
            raise SurveyError(
                "all text questions of a survey must have the same number of cohorts."
            )
        if self.bits > MAX_BITS:
            raise SurveyError(
                f"a survey takes at most {MAX_BITS} bits, this one takes {self.bits}."
            )

    def _headline(self) -> str:
        count = len(self.questions)
        questions = "1 question" if count == 1 else f"{count} questions"
        return f"{self.name}: {questions}, {self.bits:,} bits a report"

    def _sections(self) -> list[Section]:
        questions, left_out = first_rows(self.questions)
        rows = [(q.name, q.kind, f"{q.bits:,}", q.answers_in_brief) for q in questions]
        return [Section(("question", "kind", "bits", "answers"), rows, left_out=left_out)]

    def _check_crosses(self) -> None:
        if not self.asked:
            raise SurveyError(f"survey {self.name!r} must ask at least one question.")
        if (*self.asked, *self.crosses) != self.questions:
            raise SurveyError("crosses come after the questions that people are asked.")
        for cross in self.crosses:
            names = [side.name for side in cross.sides]
            if Cross.of(self.asked, names, cross.name) != cross:
                raise SurveyError(f"cross {cross.name!r} crosses questions of another survey.")

    @property
    def heading(self) -> str:
        """What people read in place of the name: the title, if there is one."""
        return self.title or self.name

    @cached_property
    def asked(self) -> tuple[AskedQuestion, ...]:
        """The questions that people answer."""
        return tuple(one for one in self.questions if isinstance(one, AskedQuestion))

    @cached_property
    def crosses(self) -> tuple[Cross, ...]:
        """The questions whose answer a device derives from the others, after all of them."""
        return tuple(one for one in self.questions if isinstance(one, Cross))

    @property
    def arms(self) -> tuple[Arm, ...]:
        """The questions whose answer is the arm that a device drew."""
        return tuple(one for one in self.questions if isinstance(one, Arm))

    @property
    def funnels(self) -> tuple[Funnel, ...]:
        """The questions whose answer is the furthest step that a device reached."""
        return tuple(one for one in self.questions if isinstance(one, Funnel))

    @property
    def retention(self) -> tuple[Retention | RetentionOnce, ...]:
        """The retention question, if there is one."""
        return tuple(one for one in self.questions if isinstance(one, (Retention, RetentionOnce)))

    @property
    def has_ages(self) -> bool:
        """Whether a device reports its age, in each period in which it is active."""
        return any(isinstance(one, Retention) for one in self.questions)

    @property
    def about_past(self) -> bool:
        """Whether a device answers from its own past: an arm, a funnel, or retention."""
        return bool(self.arms or self.funnels or self.retention)

    @property
    def reports_per_device(self) -> int | None:
        """How many reports a device ever makes, by its questions; None: there is no such end."""
        for one in self.retention:
            if isinstance(one, Retention):
                return None if one.missing else one.periods + 1
        return 1 if self.about_past else None

    def cross(self, *names: str, name: str | None = None) -> Survey:
        """Return the survey with one more question: the cells of these questions.

        A name is that of a choice, a number or a yes/no question, or `question=option` for one
        flag of a flags question.

        >>> survey = Survey("shop", (Number("age", (18, 65)), Choice("brand", ("old", "new"))))
        >>> survey.cross("age", "brand")["age x brand"].labels[:3]
        ('below 18 x old', 'below 18 x new', '18 to below 65 x old')
        """
        return replace(self, questions=(*self.questions, Cross.of(self.questions, names, name)))

    @cached_property
    def bits(self) -> int:
        """How many bits one report of this survey has."""
        return sum(question.bits for question in self.questions)

    @cached_property
    def differing_bits(self) -> int:
        """In how many bits two originals can differ: blocks add."""
        return sum(question.differing_bits for question in self.questions)

    @property
    def cohorts(self) -> int | None:
        """How many cohorts reports are spread over, or None where nothing is text."""
        return next((q.cohorts for q in self.questions if isinstance(q, Text)), None)

    def text_hash(self, question: str) -> TextHash:
        """Return the hash functions of a text question."""
        text = self[question]
        if not isinstance(text, Text):
            raise SurveyError(f"question {question!r} is not a text question.")
        hashes = vars(self).setdefault("_hashes", {})
        if question not in hashes:
            hashes[question] = TextHash(self.digest, question, text.filter_bits, text.hashes)
        return cast(TextHash, hashes[question])

    def text_bits(self, question: str, text: str, cohort: int) -> tuple[int, ...]:
        """Return which bits of a text question a text sets in a cohort.

        An empty text is no answer: it sets none, or with pairs of letters the bit `other`.
        """
        asked, hashing = self[question], self.text_hash(question)
        assert isinstance(asked, Text)
        bits = hashing.positions(text, cohort) if text.strip() else ()
        if asked.pairs is None:
            return bits
        pair = asked.pairs.option(text, asked.pairs.position(cohort))
        return (*bits, asked.filter_bits + pair)

    @cached_property
    def parts(self) -> tuple[tuple[Question, slice, QuestionPart], ...]:
        """The parts of all questions, in order: whose each is, and where its bits stand."""
        every = [(question, part) for question in self.questions for part in question.parts]
        ends = accumulate(part.bits for _, part in every)
        return tuple(
            (question, slice(end - part.bits, end), part)
            for (question, part), end in zip(every, ends, strict=True)
        )

    @property
    def labels(self) -> tuple[tuple[str, str], ...]:
        """The question and the label of each bit, in order."""
        return tuple((q.name, label) for q in self.questions for label in q.labels)

    def place_of(self, name: str) -> int:
        """Return the place of a question among all questions, from 0."""
        return next(place for place, one in enumerate(self.questions) if one.name == name)

    @property
    def has_grids(self) -> bool:
        """Whether devices round numbers to the points of a grid."""
        return any(isinstance(one, Number) and one.points is not None for one in self.questions)

    def slice_of(self, question: str) -> slice:
        """Return where the bits of a question stand."""
        self[question]
        return self._slices[question]

    @cached_property
    def _slices(self) -> dict[str, slice]:
        ends = accumulate(question.bits for question in self.questions)
        return {
            question.name: slice(end - question.bits, end)
            for question, end in zip(self.questions, ends, strict=True)
        }

    def slices_of(self, question: str) -> tuple[slice, ...]:
        """Return where the bits of each part of a question stand."""
        asked = self[question]
        return tuple(place for one, place, _ in self.parts if one is asked)

    def bit(self, question: str, label: str) -> int:
        """Return the position of one labelled bit."""
        labels = self[question].labels
        if label not in labels:
            raise unknown_option(self[question], label)
        return int(self._slices[question].start) + labels.index(label)

    def __getitem__(self, question: str) -> Question:
        for candidate in self.questions:
            if candidate.name == question:
                return candidate
        names = [candidate.name for candidate in self.questions]
        raise UnknownNameError(
            f"survey {self.name!r} has no question {shown(question)}; it has {listed(names)}."
            f"{did_you_mean(question, names)}"
        )

    def __iter__(self) -> Iterator[Question]:
        return iter(self.questions)

    @classmethod
    def from_toml(cls, source: str | pathlib.Path) -> Survey:
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
        from shoal.support.files import read_toml
        from shoal.support.table_format import TableFormat

        document = read_toml(source, "survey", SurveyError)
        try:  # a plan does not contain the table format, so it is only checked
            TableFormat.from_json(document.pop("table", {}))
        except InputError as error:
            raise SurveyError(str(error)) from error
        questions = document.pop("question", None)
        if not isinstance(questions, list):
            raise SurveyError("a survey needs at least one [[question]] table, in two brackets.")
        crosses = document.pop("cross", [])
        if not isinstance(crosses, list):
            raise SurveyError("crossed questions are in [[cross]] tables.")
        for cross in crosses:
            fields = exact_fields("a cross", cross, {"questions"}, {"name"}, error=SurveyError)
            questions.append({"kind": Cross.kind} | fields)
        return cls.from_json(document | {"questions": questions})

    @classmethod
    def from_json(cls, document: object) -> Survey:
        """Read a survey from plain JSON values; unknown or missing keys are errors."""
        needed, optional = {"name", "questions"}, {"title", "text"}
        fields = exact_fields("a survey", document, needed, optional, error=SurveyError)
        questions = checked_sequence("questions", fields["questions"])
        read: list[Question] = []
        for question in questions:
            read.append(_question_from_json(question, read))
        return cls(**fields | {"questions": tuple(read)})

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the survey's canonical JSON: what originals are encoded for."""
        return hashlib.sha256(canonical_json(self.to_json())).hexdigest()

    def to_toml(self) -> str:
        """Return the survey as the TOML text that `from_toml` reads.

        >>> print(Survey("browser", (Choice("channel", ("release", "beta")),)).to_toml())
        name = "browser"
        <BLANKLINE>
        [[question]]
        name = "channel"
        kind = "choice"
        options = ["release", "beta"]
        <BLANKLINE>
        """
        words = {key: value for key, value in self.to_json().items() if key != "questions"}
        lines = [f"{key} = {toml_value(value)}" for key, value in words.items()]
        for question in self.questions:
            fields = question.to_json()
            if isinstance(question, Cross):
                lines += ["", "[[cross]]"]
                del fields["kind"]
            else:
                lines += ["", "[[question]]"]
            first = [key for key in ("name", "title", "text", "kind") if key in fields]
            rest = [key for key in fields if key not in first]
            lines += [f"{key} = {toml_value(fields[key])}" for key in (*first, *rest)]
        return "\n".join(lines) + "\n"

    def to_json(self) -> dict[str, Any]:
        """Return the survey as plain JSON values."""
        words = {"name": self.name, "title": self.title, "text": self.text}
        given = {key: value for key, value in words.items() if value is not None}
        return given | {"questions": [q.to_json() for q in self.questions]}


def unknown_option(question: Question, label: object) -> UnknownNameError:
    return UnknownNameError(
        f"question {question.name!r} has no option {shown(label)}; it has"
        f" {listed(question.labels)}.{did_you_mean(label, question.labels)}"
    )


_KINDS: dict[str, type[AskedQuestion]] = {
    question.kind: question
    for question in (Flags, Choice, YesNo, Number, Date, Text, Arm, Retention, Funnel)
}
KINDS: Mapping[str, type[AskedQuestion]] = _KINDS
"""The kinds of questions that people are asked, by their names."""


def _question_from_json(document: object, before: Sequence[Question]) -> Question:
    """Build a question from its table; `before` are the questions that a cross can be made of."""
    kind = document.get("kind") if isinstance(document, Mapping) else None
    if kind == Cross.kind:
        needed, optional = {"kind", "questions"}, {"name"}
        fields = exact_fields("a cross", document, needed, optional, error=SurveyError)
        return Cross.of(before, fields["questions"], fields.get("name"))
    if kind is None:
        raise SurveyError(f"a question is a table with a kind, one of {listed(_KINDS)}.")
    check_one_of("the kind of a question", kind, [*_KINDS, Cross.kind], error=SurveyError)
    asked = _KINDS[kind]
    if asked is Retention and isinstance(document, Mapping) and document.get("design") == "once":
        asked = RetentionOnce
    known = asked.json_fields()
    needed = {"kind"} | {name for name, one in known.items() if one.default is dataclasses.MISSING}
    what, optional = f"{'an' if kind == Arm.kind else 'a'} {kind} question", known.keys() - needed
    fields = exact_fields(what, document, needed, optional, error=SurveyError)
    del fields["kind"]
    if "pairs" in fields:
        what = f"pairs of question {fields['name']!r}"
        pairs = exact_fields(what, fields["pairs"], {"length"}, {"alphabet"}, error=SurveyError)
        fields["pairs"] = Pairs(**pairs)
    return asked(**fields)
