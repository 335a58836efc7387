"""Crosses: the cells of several questions, as one more question that nobody is asked.

A device derives the cell from the answers that it has. Two people's cells differ in two bits,
however many cells there are, so joint answers cost two more differing bits and no joint tables.

Crossed is whatever has exactly one value: a choice, a number, a yes or no, and a chosen flag, which
is written `question=option`. The values of the last side change fastest: the cell of the values
v1, ..., vn of sides with s1, ..., sn values is bit (... (v1 s2 + v2) s3 + ...) sn + vn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, ClassVar

from shoal.errors import SurveyError
from shoal.protocol.options import Choices, Flags, YesNo
from shoal.protocol.questions import (
    MISSING,
    MOST_BITS,
    AskedQuestion,
    Part,
    Question,
    Text,
    checked_sequence,
    keep,
)
from shoal.support.checks import shown
from shoal.support.documents import listed

__all__ = ["Cross", "Side"]

BETWEEN = " x "
"""What stands between the values in a cell's label."""


@dataclass(frozen=True)
class Side:
    """One of the questions of a cross, or one flag of a question."""

    question: AskedQuestion
    flag: str | None = None

    @property
    def name(self) -> str:
        """How a survey names the side."""
        return self.question.name if self.flag is None else f"{self.question.name}={self.flag}"

    @property
    def values(self) -> tuple[str, ...]:
        """What a person can have: the question's labels, or that a bit is set and that it is not.

        >>> Side(Flags("features", ("sync", "vpn")), "vpn").values, Side(YesNo("smokes")).values
        (('vpn', 'not vpn'), ('smokes', 'not smokes'))
        """
        if self.flag is not None:
            return self.flag, f"not {self.flag}"
        name = self.question.name
        if isinstance(self.question, YesNo):
            return name, f"not {name}", *([MISSING] if self.question.missing else [])
        return self.question.labels

    @property
    def bit(self) -> int | None:
        """The bit of the question that says it all: set is the first value, not set the second.

        None where exactly one bit of the question is set, which is then the value.
        """
        if self.question.takes_one:
            return None
        return 0 if self.flag is None else self.question.labels.index(self.flag)


@dataclass(frozen=True)
class Cross(Question):
    """The cells of two or more sides; exactly one is set.

    Use `Survey.cross`, which knows the questions by name.

    >>> smokes, features = YesNo("smokes"), Flags("features", ("sync", "vpn"))
    >>> Cross("c", (Side(smokes), Side(features, "vpn"))).labels
    ('smokes x vpn', 'smokes x not vpn', 'not smokes x vpn', 'not smokes x not vpn')
    """

    sides: tuple[Side, ...]
    kind: ClassVar[str] = "cross"

    def __post_init__(self) -> None:
        super().__post_init__()
        keep(self, sides=tuple(self.sides))
        for side in self.sides:
            if not isinstance(side, Side):
                raise SurveyError(f"a cross has sides, got {shown(side)}; use Survey.cross.")
            _check_side(side)
        names = [side.name for side in self.sides]
        if len(names) < 2 or len(set(names)) < len(names):
            raise SurveyError(
                f"a cross takes two or more different questions, got {listed(names)}."
            )
        if self.bits > MOST_BITS:
            raise SurveyError(
                f"a survey takes at most {MOST_BITS} bits, cross {self.name!r} has {self.bits}"
                " cells; cross fewer questions, or questions with fewer options."
            )
        if len(set(self.labels)) < len(self.labels):
            raise SurveyError(
                f"two cells of cross {self.name!r} have the same label; rename the options that"
                f" hold {BETWEEN!r} or begin with 'not'."
            )

    @classmethod
    def of(cls, asked: Sequence[Question], names: object, name: object = None) -> Cross:
        """Cross questions, or flags written `question=option`, that are found by their names."""
        named = checked_sequence("questions of a cross", names)
        sides = tuple(_side(asked, one) for one in named)
        called: Any = BETWEEN.join(side.name for side in sides) if name is None else name
        return cls(called, sides)

    @cached_property
    def labels(self) -> tuple[str, ...]:  # noqa: D102  inherited
        return tuple(BETWEEN.join(cell) for cell in product(*(side.values for side in self.sides)))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """How many values each side has."""
        return tuple(len(side.values) for side in self.sides)

    @property
    def parts(self) -> tuple[Part, ...]:  # noqa: D102  inherited
        return (Part(math.prod(self.sizes), 1, 1),)

    def to_json(self) -> dict[str, Any]:  # noqa: D102  inherited
        return super().to_json() | {"questions": [side.name for side in self.sides]}


def _side(asked: Sequence[Question], name: object) -> Side:
    """Return the question of this name, or else the flag of the question before the first "="."""
    if not isinstance(name, str):
        raise SurveyError(f"a cross names its questions, got {shown(name)}.")
    questions = {question.name: question for question in asked}
    before, equals, flag = name.partition("=")
    whole = name in questions or not equals
    question = questions.get(name if whole else before)
    if question is None:
        raise SurveyError(
            f"there is no question {shown(name)} to cross; there is {listed(questions)}."
        )
    if not isinstance(question, AskedQuestion):
        raise SurveyError(f"{name!r} is a cross itself; cross the questions that it is made of.")
    return Side(question, None if whole else flag)


def _check_side(side: Side) -> None:
    """Refuse what has not exactly one value, and say why."""
    question, flag = side.question, side.flag
    called = f"question {question.name!r}"
    if isinstance(question, Text):
        raise SurveyError(
            f"{called} is text and cannot be crossed: its bits mean nothing one by one; ask it as"
            " a choice among the frequent answers, with other = true."
        )
    if isinstance(question, Choices):
        raise SurveyError(
            f"{called} takes several options at once and cannot be crossed: nobody is in one cell;"
            " ask it as a choice, or the options that matter as flags."
        )
    if isinstance(question, Flags):
        if flag is None:
            first = question.options[0]
            raise SurveyError(
                f"{called} has many answers at once; cross chosen flags of it, such as"
                f" '{question.name}={first}'."
            )
        if flag not in question.options:
            raise SurveyError(
                f"{called} has no option {flag!r}; it has {listed(question.options)}."
            )
    elif flag is not None:
        raise SurveyError(
            f"{called} has one answer, so it is crossed as a whole, without '={flag}'."
        )
