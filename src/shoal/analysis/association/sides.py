"""What is set against what: a question, or one option of it, and what the tally must count."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shoal.analysis.joint_counts import MOST_JOINT_BITS
from shoal.analysis.tally import Tally
from shoal.errors import InputError, TallyError
from shoal.protocol.survey import Survey, Text, YesNo

__all__ = ["Side", "SideName", "joint_groups", "side_of"]

Matrix = NDArray[np.float64]
SideName = str | tuple[str, str]
"""A question, a (question, option) pair, or "question=option"."""


@dataclass(frozen=True)
class Side:
    """One side of a table: its categories and the bits that tell them apart.

    A question with exactly one answer has its options as categories. One option of any question
    has two: it and the rest. A yes/no question is its option yes.
    """

    question: str
    option: str | None
    categories: tuple[str, ...]
    positions: tuple[int, ...]

    @property
    def name(self) -> str:
        """How messages and tables call it."""
        return self.question if self.option is None else f"{self.question}={self.option}"

    @property
    def affine(self) -> Matrix:
        """Each category's indicator in terms of 1 and the bits: one row per category."""
        if self.option is not None:
            return np.array([[0.0, 1.0], [1.0, -1.0]])
        return np.hstack((np.zeros((len(self.positions), 1)), np.eye(len(self.positions))))

    @property
    def spread(self) -> Matrix:
        """The covariance of the debiased indicators of one person, in units of pq / (p - q)^2."""
        bits = self.affine[:, 1:]
        return np.asarray(bits @ bits.T)

    @property
    def values(self) -> NDArray[np.int64]:
        """The bits of every value they can have together, the first bit least significant."""
        return np.arange(1 << len(self.positions))[:, None] >> np.arange(len(self.positions)) & 1

    def likelihood(self, q: float) -> Matrix:
        """Return the chance of each reported value of the bits (row) for each category."""
        one = self.option is not None
        truth = np.array([[1.0], [0.0]]) if one else np.eye(len(self.positions))
        wrong = (self.values[:, None, :] != truth[None, :, :]).sum(axis=2)
        return np.asarray(q**wrong * (1 - q) ** (len(self.positions) - wrong))


def side_of(survey: Survey, name: SideName) -> Side:
    """Return what is asked for, or say why it makes no table."""
    question, option = _named(survey, name)
    whole = survey[question]
    if isinstance(whole, Text):
        raise InputError(
            f"question {question!r} is text, and a tally keeps no joint counts of its bits by"
            " cohort; ask for it as a choice among the candidates to associate it."
        )
    start = survey.slice_of(question).start
    if option is None and isinstance(whole, YesNo) and not whole.takes_one:
        (option,) = whole.labels
    if option is not None:
        position = survey.bit(question, option)
        return Side(question, option, (option, f"not {option}"), (position,))
    if not whole.takes_one:
        raise InputError(
            f"question {question!r} has many answers at once; name one option of it, such as"
            f" {question}={whole.labels[0]}."
        )
    positions = tuple(range(start, start + whole.bits))
    return Side(question, None, whole.labels, positions)


def _named(survey: Survey, name: SideName) -> tuple[str, str | None]:
    if not isinstance(name, str):
        question, option = name
        return question, option
    if name in {question.name for question in survey}:
        return name, None
    question, equals, option = name.partition("=")
    return question.strip(), option.strip() if equals else None


def check_sides(survey: Survey, first: Side, second: Side) -> None:
    """Refuse a table that says nothing."""
    if set(first.positions) & set(second.positions):
        raise InputError(f"{first.name} and {second.name} share options; set apart two answers.")
    if first.question == second.question and survey[first.question].takes_one:
        raise InputError(
            f"{first.name} and {second.name} exclude each other: {first.question!r} has one answer."
        )


def joint_groups(
    survey: Survey, first: SideName, second: SideName
) -> tuple[tuple[tuple[str, str], ...], ...]:
    """Return the groups of bits that a plan must declare as `joint` to associate two answers.

    One group of all bits where they are few enough, which also allows the maximum-likelihood
    table; else every pair.

    >>> from shoal import Choice, Flags
    >>> survey = Survey("browser", (
    ...     Flags("features", ("sync", "vpn")), Choice("channel", ("release", "beta"))))
    >>> joint_groups(survey, "channel", "features=vpn")
    ((('channel', 'release'), ('channel', 'beta'), ('features', 'vpn')),)
    """
    sides = side_of(survey, first), side_of(survey, second)
    check_sides(survey, *sides)
    labels = survey.labels
    bits = [[labels[position] for position in side.positions] for side in sides]
    if len(bits[0]) + len(bits[1]) <= MOST_JOINT_BITS:
        return (tuple(bits[0] + bits[1]),)
    return tuple((a, b) for a in bits[0] for b in bits[1])


def full_counts(tally: Tally, first: Side, second: Side) -> NDArray[np.int64] | None:
    """Return how many reports show each pair of values, if all bits were counted together."""
    bits = (*first.positions, *second.positions)
    if len(bits) > MOST_JOINT_BITS:
        return None
    try:
        counts = tally.joint_counts(bits)
    except TallyError:
        return None
    return counts.reshape(1 << len(second.positions), -1).T


def both_set(tally: Tally, survey: Survey, first: Side, second: Side) -> NDArray[np.int64]:
    """Return how many reports show both bits, for each bit of each side."""
    whole = full_counts(tally, first, second)
    if whole is not None:
        return first.values.T @ whole @ second.values
    counts = np.zeros((len(first.positions), len(second.positions)), np.int64)
    for i, a in enumerate(first.positions):
        for j, b in enumerate(second.positions):
            try:
                counts[i, j] = tally.joint_counts((a, b))[3]
            except TallyError as error:
                raise TallyError(_not_counted(survey, first, second)) from error
    return counts


def _not_counted(survey: Survey, first: Side, second: Side) -> str:
    names = [s.question if s.option is None else (s.question, s.option) for s in (first, second)]
    groups = joint_groups(survey, *names)
    group = ";".join(f"{question}={label}" for question, label in groups[0])
    more = f" and {len(groups) - 1} more groups" if len(groups) > 1 else ""
    return (
        f"the tally does not count {first.name} and {second.name} together; count the reports"
        f" with --joint {group!r}{more}, or declare"
        " shoal.analysis.association.joint_groups in the plan."
    )
