"""The events of one window to one answer.

However often something happened, it becomes a flag, a first answer, a largest number or a sum that
falls into a bin. So a report has the same form whatever happened, and one window has one of them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping

from shoal.device.answers import is_missing, set_bits, text_bits
from shoal.errors import AnswerError
from shoal.protocol.survey import Choice, Flags, Number, Question, Survey, Text, YesNo
from shoal.support.checks import shown

__all__ = ["check_answers", "merge", "read_events"]

Event = tuple[str, Mapping[str, object]]
"""What was called, `record` or `count`, and with what."""


def read_events(content: bytes) -> list[Event]:
    """Return the events in a file; a line that a crash cut off, or anything else, is left out."""
    found: list[Event] = []
    for line in content.splitlines():
        try:
            kind, values = ast.literal_eval(line.decode())
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            continue
        if kind in ("record", "count") and isinstance(values, dict):
            found.append((kind, values))
    return found


def merge(survey: Survey, events: Iterable[Event]) -> dict[str, object]:
    """Return the one answer to a survey that a window's events amount to.

    What does not fit its question is left out. A choice that nobody made, and that may not be
    missing, is an `AnswerError`.

    >>> survey = Survey("tool", (Flags("commands", ("build", "test")), Number("runs", (1, 10))))
    >>> merge(survey, [("record", {"commands": "test"}), ("count", {"runs": 1})] * 5)
    {'commands': ['test'], 'runs': 5.0}
    """
    given: dict[str, list[object]] = {question.name: [] for question in survey.asked}
    sums = dict.fromkeys(given, 0.0)
    for kind, values in events:
        for name, value in values.items():
            if name not in given or not _fits(survey, survey[name], value, kind):
                continue
            if kind == "count":
                assert isinstance(value, (int, float))
                sums[name] += value
            else:
                given[name].append(value)
    return {
        question.name: _merged(question, given[question.name], sums[question.name])
        for question in survey.asked
    }


def check_answers(survey: Survey, answers: Mapping[str, object]) -> None:
    """Raise `AnswerError` for the first of some answers that `merge` would leave out."""
    names = {question.name for question in survey.asked}
    for name, value in answers.items():
        if name not in names:
            raise AnswerError(f"question {shown(name)} is not asked; leave it out.")
        _check(survey, survey[name], value)


def _check(survey: Survey, question: Question, value: object) -> None:
    if isinstance(question, Text):
        text_bits(survey, question, value, 0, 0)
    elif isinstance(question, Flags):
        for option in _options(value):
            set_bits(question, [option], 0)
    else:
        set_bits(question, value, 0)


def _fits(survey: Survey, question: Question, value: object, kind: str) -> bool:
    if kind == "count" and not isinstance(question, Number):
        return False
    try:
        _check(survey, question, value)
    except AnswerError:
        return False
    return not is_missing(value)


def _options(value: object) -> list[object]:
    if isinstance(value, str):
        return [name.strip() for name in value.split(";") if name.strip()]
    return list(value) if isinstance(value, (list, tuple, set, frozenset)) else [value]


def _merged(question: Question, given: list[object], total: float) -> object:
    if isinstance(question, Flags):
        options: dict[int, object] = {}
        for option in (one for value in given for one in _options(value)):
            (bit,) = set_bits(question, [option], 0)
            options.setdefault(bit, option)
        return list(options.values())[: question.most_set_bits]
    if isinstance(question, Number):
        largest = max((float(str(value)) for value in given), default=0.0)
        silent = not given and not total and question.missing is not None
        return None if silent else largest + total
    if isinstance(question, YesNo):
        if not given:
            return None if question.missing else "no"
        return "yes" if any(0 in set_bits(question, value, 0) for value in given) else "no"
    if isinstance(question, Text):
        return given[0] if given else ""
    assert isinstance(question, Choice)
    if not given and question.missing is None:
        raise AnswerError(f"nothing was recorded for question {question.name!r} in this window.")
    return given[0] if given else None
