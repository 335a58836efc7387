"""Simulated people: made-up answers, and made-up texts with known counts."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shoal.analysis.text.least_squares import hash_table
from shoal.device.arrays.encode import set_cells
from shoal.device.arrays.randomize import Original, pack
from shoal.errors import InputError
from shoal.protocol.survey import Arm, Question, Survey, Text
from shoal.protocol.text_hash import normal_text
from shoal.protocol.wire import Cohorts
from shoal.support.checks import check_integer, check_number
from shoal.support.files import first_line

CHUNK = 1 << 17
_MADE_UP = 100
_TEXTS = 1 << 13

Counts = NDArray[np.int64]
Weights = Mapping[str, float]


def zipf(texts: Iterable[str], exponent: float = 1.0) -> dict[str, float]:
    """Weigh texts by 1 / rank^exponent, in the order they come.

    >>> zipf(["tea", "coffee"])
    {'tea': 1.0, 'coffee': 0.5}
    """
    if not 0 <= check_number("exponent", exponent) <= 100:
        raise InputError(f"the exponent of a Zipf distribution is 0 to 100, got {exponent}.")
    return {text: rank**-exponent for rank, text in enumerate(dict.fromkeys(texts), 1)}


def read_weights(path: Path) -> dict[str, float]:
    """Read a CSV file with the columns text and weight; a text that stands twice adds up."""
    weights: dict[str, float] = {}
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            table = csv.DictReader(file)
            if not {"text", "weight"} <= set(table.fieldnames or ()):
                raise InputError(f"{path} needs the columns text and weight.")
            for number, row in enumerate(table, 1):
                text, weight = row["text"] or "", float(row["weight"] or "nan")
                if not 0 <= weight < math.inf:
                    raise ValueError(f"row {number} has no weight of 0 or more")
                weights[text] = weights.get(text, 0.0) + weight
    except OSError as error:
        raise InputError(f"cannot read texts {path}: {error.strerror or 'unreadable'}.") from error
    except (ValueError, csv.Error) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"cannot read texts {path}: {first_line(error)}.") from error
    return weights


@dataclass(frozen=True)
class Texts:
    """The texts that made-up people answer to one question, how likely each, and its bits.

    `counts` is how many people answered each so far. An empty text is no answer.
    """

    survey: Survey
    question: Text
    names: tuple[str, ...]
    chances: NDArray[np.float64]
    counts: Counts = field(repr=False)

    @cached_property
    def _positions(self) -> NDArray[np.uint16]:
        """Which bits of the filter each sets in each cohort: shape (texts, cohorts, hashes)."""
        hashing = self.survey.text_hash(self.question.name)
        return hash_table(hashing, self.names, self.question.cohorts)

    @cached_property
    def _answered(self) -> NDArray[np.bool_]:
        return np.array([bool(name) for name in self.names])

    @cached_property
    def _pair_bits(self) -> Counts:
        """Which bit of the pairs each sets at each position: shape (texts, positions)."""
        pairs = self.question.pairs
        assert pairs is not None
        places = range(pairs.positions)
        return np.array([[pairs.option(name, place) for place in places] for name in self.names])

    def vectors(self, chosen: Counts, cohorts: Cohorts) -> NDArray[np.bool_]:
        """Return the question's bits of people: which text each answers, in which cohort."""
        pairs = self.question.pairs
        positions = self._positions[chosen, cohorts].astype(np.int64)
        words = _set_positions(positions, self.question.filter_bits)
        words &= self._answered[chosen, None]
        if pairs is None:
            return words
        bits = self._pair_bits[chosen, cohorts % pairs.positions]
        return np.hstack((words, _set_positions(bits[:, None], pairs.bits)))

    def true_ones(self, people: Counts) -> Counts:
        """Return how many people set each of the question's bits, in each cohort.

        `people` are those of each text in each cohort.
        """
        ones = np.zeros((people.shape[1], self.question.bits), np.int64)
        present = np.flatnonzero(people.any(axis=1))
        for start in range(0, len(present), _TEXTS):
            chosen = present[start : start + _TEXTS]
            self.only(chosen)._add_ones(ones, people[chosen])
        return ones

    def _add_ones(self, ones: Counts, people: Counts) -> None:
        cohort = np.broadcast_to(np.arange(len(ones)), people.shape)
        answering = people * self._answered[:, None]
        for positions in np.moveaxis(self._positions, 2, 0):
            np.add.at(ones, (cohort, positions), answering)
        if (pairs := self.question.pairs) is not None:
            bits = self._pair_bits[:, np.arange(len(ones)) % pairs.positions]
            np.add.at(ones, (cohort, self.question.filter_bits + bits), people)

    def only(self, chosen: NDArray[np.int64]) -> Texts:
        """Return some of the texts."""
        names = tuple(self.names[place] for place in chosen.tolist())
        return replace(self, names=names, chances=self.chances[chosen], counts=self.counts[chosen])

    @property
    def true_counts(self) -> dict[str, int]:
        """How many people answered each text."""
        return dict(zip(self.names, self.counts.tolist(), strict=True))


def texts_for(survey: Survey, weights: Weights | None) -> dict[str, Texts]:
    """Return the texts of every text question: the given ones, or a hundred made-up ones.

    Made-up texts are `text 1`, the most frequent, to `text 100`, falling off like 1 / rank.
    """
    questions = [question for question in survey if isinstance(question, Text)]
    if weights is not None and not questions:
        raise InputError(f"survey {survey.name!r} has no text question; leave out the texts.")
    if weights is None:
        weights = zipf(f"text {rank}" for rank in range(1, _MADE_UP + 1))
    joined: dict[str, float] = {}
    for text, weight in weights.items():
        if check_number(f"the weight of {text!r}", weight) < 0:
            raise InputError(f"the weight of {text!r} must not be negative, got {weight}.")
        normal = normal_text(text)
        joined[normal] = joined.get(normal, 0.0) + weight
    total = sum(joined.values())
    if questions and not 0 < total < np.inf:
        raise InputError("give at least one text with a weight above 0.")
    chances = np.array(list(joined.values())) / (total or 1.0)
    return {
        question.name: Texts(
            survey, question, tuple(joined), chances, np.zeros(len(joined), np.int64)
        )
        for question in questions
    }


def populate(
    survey: Survey,
    users: int,
    generator: np.random.Generator,
    texts: Mapping[str, Texts] | None = None,
) -> Iterator[Original]:
    """Make up people: half have the first option, fewer the later ones."""
    check_integer("users", users, lowest=1)
    texts = texts_for(survey, None) if texts is None else texts
    for start in range(0, users, CHUNK):
        count = min(CHUNK, users - start)
        cohorts = draw_cohorts(survey, count, generator)
        blocks = []
        for question in survey.asked:
            if isinstance(question, Text):
                assert cohorts is not None
                answers = texts[question.name]
                chosen = generator.choice(len(answers.names), count, p=answers.chances)
                answers.counts[:] += np.bincount(chosen, minlength=len(answers.names))
                blocks.append(answers.vectors(chosen, cohorts))
            else:
                blocks.append(draw_answers(question, count, generator))
        cells = sum(cross.bits for cross in survey.crosses)
        vectors = np.concatenate([*blocks, np.zeros((count, cells), bool)], axis=1)
        set_cells(survey, vectors)
        yield Original(pack(vectors), survey.bits, cohorts)


def draw_cohorts(survey: Survey, count: int, generator: np.random.Generator) -> Cohorts | None:
    """Draw a cohort for each person, if the survey has cohorts."""
    if survey.cohorts is None:
        return None
    return generator.integers(survey.cohorts, size=count).astype(np.uint16)


def chances_of(question: Question) -> NDArray[np.float64]:
    """How likely each option is: falling off like 1 / rank, one half for the first of many.

    Arms have their weights; one person in ten has none, where that is an option.
    """
    if isinstance(question, Arm):
        none = [] if question.missing is None else [0.1]
        return np.array([share * (1 - sum(none)) for share in question.shares] + none)
    weights = 1 / np.arange(1, question.bits + 1)
    return np.asarray(weights / weights.sum() if question.takes_one else weights / 2)


def draw_answers(
    question: Question, count: int, generator: np.random.Generator
) -> NDArray[np.bool_]:
    """Draw answers to one question."""
    chances = chances_of(question)
    if question.takes_one:
        cumulative = np.cumsum(chances)
        chosen = np.searchsorted(cumulative[:-1], generator.random(count), side="right")
        return np.asarray(np.arange(question.bits) == chosen[:, None])
    wished = generator.random((count, question.bits)) < chances
    # Those who wish for more than is allowed keep the options that come first.
    return np.asarray(wished & (np.cumsum(wished, axis=1) <= question.max_set_bits))


def _set_positions(positions: NDArray[np.int64], bits: int) -> NDArray[np.bool_]:
    vectors = np.zeros((len(positions), bits), bool)
    np.put_along_axis(vectors, positions, True, axis=1)
    return vectors
