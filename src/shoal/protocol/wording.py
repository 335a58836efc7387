"""Separate the words of a survey from the rules that decide the bits of an answer.

An edit of words leaves every answer on the same bits. Devices then keep their permanent flips, and
`shoal.planning.plan_diff` calls the edit a label. Any other edit can move an answer to other bits.
Permanent flips that outlived such an edit would reveal for which people it changed nothing, so
devices draw new ones, and the ledger charges for them again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from shoal.protocol.plan import Plan
from shoal.protocol.questions import Cross, Question
from shoal.protocol.survey import Survey
from shoal.support.files import canonical_json

_WORDS = {"name", "options", "arms", "steps", "column", "questions", "title", "text", "titles"}
"""Fields of a question that are words; `bits` says how many options there are.

With `other = true` options are rules: an answer that is no longer listed sets another bit.
"""


class Wording(NamedTuple):
    """The words of a survey: names of questions, the label of each bit, and columns of tables.

    Titles are what people read in place of names and labels, and texts in place of headings: who
    answers by them chooses another bit if two of them are swapped.
    """

    questions: tuple[str, ...]
    labels: tuple[str, ...]
    columns: tuple[str, ...] = ()
    headings: tuple[str, ...] = ()
    titles: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()

    @classmethod
    def of(cls, survey: Survey) -> Wording:
        return cls(
            tuple(question.name for question in survey),
            tuple(label for _, label in survey.labels),
            tuple(question.table_column for question in survey.asked),
            tuple(question.heading for question in survey.asked),
            tuple(
                title
                for question in survey.asked
                for title in map(question.title_of, question.option_names)
            ),
            tuple(question.text or question.heading for question in survey.asked),
        )

    def moved(self, new: Wording) -> Iterator[tuple[str, str, str]]:
        """Yield the words that moved in a new wording: kind, word, and the word it replaced."""
        kinds = "question", "label", "column", "title", "title", "text"
        said = set()
        for kind, old, words in zip(kinds, self, new, strict=True):
            for word, replaced in _moved(old, words):
                if (word, replaced) not in said:  # a name without a title is its own title
                    yield kind, word, replaced
                said.add((word, replaced))


def _moved(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[str, str]]:
    if len(old) != len(new):
        return
    changed = [(was, now) for was, now in zip(old, new, strict=True) if was != now]
    replaced = {now: was for was, now in reversed(changed)}
    for word in sorted({was for was, _ in changed} & replaced.keys()):
        yield word, replaced[word]


def encoding_rules(survey: Survey, question: Question) -> dict[str, Any]:
    """Return everything that decides which bits an answer sets, except words, as JSON values."""
    words = _WORDS - {"options"} if getattr(question, "other", False) else _WORDS
    rules = {key: value for key, value in question.to_json().items() if key not in words}
    if isinstance(question, Cross):
        places = {asked.name: place for place, asked in enumerate(survey.asked)}
        rules["sides"] = [[places[side.question.name], side.bit] for side in question.sides]
    return rules | {"bits": question.bits}


def permanent_key(plan: Plan) -> str | None:
    """Return the key of the permanent flips that devices keep for a plan; None without memory.

    Two plans share it if their surveys have the same name and rules and if q1 is the same. Words,
    window, crowd, promise and fresh flips are not part of it, so that editing them draws no new
    permanent flips. The survey's name is: unrelated surveys that share permanent flips would
    reveal whether their answers set the same bits.
    """
    if plan.memory is None:
        return None
    survey = plan.survey
    document = {
        "q1": plan.memory.q1.to_json(),
        "questions": [encoding_rules(survey, question) for question in survey],
        "survey": survey.name,
    }
    return hashlib.sha256(b"shoal permanent flips\0" + canonical_json(document)).hexdigest()
