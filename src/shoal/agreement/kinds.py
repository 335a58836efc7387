"""The kinds of questions by their names, and a question read from its JSON or TOML table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from shoal.agreement.crosses import Cross
from shoal.agreement.options import Choice, Choices, Flags, YesNo
from shoal.agreement.questions import AskedQuestion, Number, Pairs, Question, Text
from shoal.errors import SurveyError
from shoal.support.documents import exact_fields, listed

__all__ = ["question_from_json"]


class _Kind(NamedTuple):
    """A kind of question, and the fields that its table must have and may have."""

    question: type[AskedQuestion]
    needed: frozenset[str]
    optional: frozenset[str]


def _kind(question: type[AskedQuestion], needed: str, optional: str) -> _Kind:
    return _Kind(question, frozenset(needed.split()), frozenset(f"column {optional}".split()))


_KINDS = {
    kind.question.kind: kind
    for kind in (
        _kind(Flags, "options", "fold"),
        _kind(Choice, "options", "missing other fold"),
        _kind(Choices, "options at_most", "fold"),
        _kind(YesNo, "", "missing"),
        _kind(Number, "edges", "missing"),
        _kind(Text, "bits hashes cohorts", "pairs"),
    )
}


def question_from_json(document: object, before: Sequence[Question]) -> Question:
    """Build a question from its table; unknown or missing keys are errors.

    `before` are the questions before it, which a cross is made of.
    """
    kind = document.get("kind") if isinstance(document, Mapping) else None
    if kind == Cross.kind:
        needed, optional = {"kind", "questions"}, {"name"}
        fields = exact_fields("a cross", document, needed, optional, error=SurveyError)
        return Cross.of(before, fields["questions"], fields.get("name"))
    if not isinstance(kind, str) or kind not in _KINDS:
        kinds = listed([*_KINDS, Cross.kind])
        raise SurveyError(f"a question's kind must be one of {kinds}, got {kind!r}.")
    made, required, allowed = _KINDS[kind]
    needed, what = {"kind", "name", *required}, f"a {kind} question"
    fields = exact_fields(what, document, needed, allowed, error=SurveyError)
    del fields["kind"]
    if "pairs" in fields:
        what = f"pairs of question {fields['name']!r}"
        pairs = exact_fields(what, fields["pairs"], {"length"}, {"alphabet"}, error=SurveyError)
        fields["pairs"] = Pairs(**pairs)
    return made(**fields)
