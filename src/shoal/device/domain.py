"""Whether an original is in the domain that a plan's noise was chosen for.

The noise of a choice is that of two differing bits; a vector with two options set differs from
others in more, and no promise is about it. So whoever randomizes looks first.
`shoal.device.arrays.domain` looks at many vectors at once.
"""

from __future__ import annotations

from shoal.errors import AnswerError
from shoal.protocol.questions import Part, Question
from shoal.protocol.survey import Survey

__all__ = ["check_vector", "outside_domain"]


def check_vector(value: int, survey: Survey) -> None:
    """Raise `AnswerError` unless a vector is an original that the survey allows.

    >>> from shoal import Choice
    >>> check_vector(0b11, Survey("s", (Choice("c", ("a", "b")),)))
    Traceback (most recent call last):
    ...
    shoal.errors.AnswerError: the original sets 2 bits of question 'c', which allows 1; encode ...
    """
    for question, place, part in survey.parts:
        block = value >> place.start & (1 << part.bits) - 1
        if not part.fewest_set_bits <= block.bit_count() <= part.most_set_bits:
            raise outside_domain("the original", question, part, block.bit_count())


def outside_domain(which: str, question: Question, part: Part, count: int) -> AnswerError:
    """Return the error for an original with so many set bits of a part of a question."""
    fewest, most = part.fewest_set_bits, part.most_set_bits
    allowed = f"{most}" if fewest == most else f"{fewest} to {most}"
    return AnswerError(
        f"{which} sets {count} bits of question {question.name!r}, which allows {allowed};"
        " encode makes originals that fit."
    )
