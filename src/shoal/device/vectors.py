"""One vector before and after randomizing, as an integer whose bit j is bit j of the vector.

`check_vector` refuses an original outside its survey's domain. The noise of a choice hides two
differing bits; a vector with two options set differs from others in more, and no promise covers it.
"""

from __future__ import annotations

from dataclasses import dataclass

from shoal.errors import AnswerError, InputError
from shoal.protocol.questions import Question, QuestionPart
from shoal.protocol.survey import Survey
from shoal.protocol.wire import row_bytes


@dataclass(frozen=True, init=False, repr=False, eq=False)
class _Vector:
    """A vector before or after randomizing."""

    value: int
    bits: int
    cohort: int | None = None

    def __post_init__(self) -> None:
        if self.value < 0 or self.value >> self.bits:
            raise InputError(f"a vector of {self.bits} bits is a number below 2^{self.bits}.")

    @property
    def row(self) -> bytes:
        """The packed bits."""
        return self.value.to_bytes(row_bytes(self.bits), "little")


@dataclass(frozen=True, repr=False)
class OriginalVector(_Vector):
    r"""One vector before randomizing: it exists on the device and nowhere else.

    Its `repr` does not show it.

    >>> OriginalVector(0b101, bits=3)
    OriginalVector(3 bits, not shown)
    >>> OriginalVector(0b101, bits=3).row
    b'\x05'
    """

    def __repr__(self) -> str:
        return f"OriginalVector({self.bits} bits, not shown)"


@dataclass(frozen=True, repr=False)
class SyntheticVector(_Vector):
    """One vector after randomizing, which may leave the device.

    `simulated` marks a vector whose noise came from a seeded generator, and gives no protection.
    """

    simulated: bool = False

    def __repr__(self) -> str:
        mark = ", simulated: not for release" if self.simulated else ""
        return f"SyntheticVector({self.bits} bits{mark})"


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
        if not part.min_set_bits <= block.bit_count() <= part.max_set_bits:
            raise outside_domain("the original", question, part, block.bit_count())


def outside_domain(which: str, question: Question, part: QuestionPart, count: int) -> AnswerError:
    low, high = part.min_set_bits, part.max_set_bits
    allowed = f"{high}" if low == high else f"{low} to {high}"
    return AnswerError(
        f"{which} sets {count} bits of question {question.name!r}, which allows {allowed};"
        " encode makes originals that fit."
    )
