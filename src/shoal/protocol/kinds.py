"""The kinds of questions by their names, and a question read from its JSON or TOML table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shoal.errors import SurveyError
from shoal.protocol.crosses import Cross
from shoal.protocol.options import Choice, Choices, Flags, YesNo
from shoal.protocol.questions import AskedQuestion, Number, Pairs, Question, Text
from shoal.support.documents import exact_fields, listed

__all__ = ["question_from_json"]


_FIELDS: dict[type[AskedQuestion], tuple[str, str]] = {
    Flags: ("options", "fold"),
    Choice: ("options", "missing other fold"),
    Choices: ("options at_most", "fold"),
    YesNo: ("", "missing"),
    Number: ("edges", "missing"),
    Text: ("bits hashes cohorts", "pairs"),
}
"""The fields that a question's table must have and may have, beside its kind, name and column."""

_KINDS = {question.kind: question for question in _FIELDS}


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
    question = _KINDS[kind]
    required, allowed = ({*names.split()} for names in _FIELDS[question])
    needed, optional, what = {"kind", "name"} | required, {"column"} | allowed, f"a {kind} question"
    fields = exact_fields(what, document, needed, optional, error=SurveyError)
    del fields["kind"]
    if "pairs" in fields:
        what = f"pairs of question {fields['name']!r}"
        pairs = exact_fields(what, fields["pairs"], {"length"}, {"alphabet"}, error=SurveyError)
        fields["pairs"] = Pairs(**pairs)
    return question(**fields)
