"""People who do not exist: made-up answers, and made-up texts with known counts."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shoal.agreement.hashing import normal_text
from shoal.agreement.survey import Question, Survey, Text
from shoal.agreement.vectors import Cohorts
from shoal.agreement.word_pairs import layout_in
from shoal.analysis.text.hash_table import hash_table
from shoal.device.bulk.vectors import Original, pack
from shoal.errors import InputError
from shoal.support.checks import check_integer, check_number
from shoal.support.files import first_line

__all__ = ["Texts", "populate", "populate_texts", "read_weights", "texts_for", "zipf"]

CHUNK = 1 << 17
_MADE_UP = 100

Weights = Mapping[str, float]


def zipf(texts: Iterable[str], exponent: float = 1.0) -> dict[str, float]:
    """Weigh texts by 1 / rank^exponent, in the order they come.

    >>> zipf(["tea", "coffee"])
    {'tea': 1.0, 'coffee': 0.5}
    """
    if not 0 <= check_number("exponent", exponent) <= 100:
        raise InputError(f"the exponent of a Zipf law is 0 to 100, got {exponent}.")
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
    question: str
    names: tuple[str, ...]
    chances: NDArray[np.float64]
    counts: NDArray[np.int64] = field(repr=False)

    @cached_property
    def positions(self) -> NDArray[np.uint16]:
        """Which bits each text sets in each cohort: shape (texts, cohorts, hashes)."""
        return hash_table(
            self.survey.text_hash(self.question), self.names, self.survey.cohorts or 1
        )

    @cached_property
    def answered(self) -> NDArray[np.bool_]:
        """Whether each is an answer."""
        return np.array([bool(name) for name in self.names])

    @cached_property
    def pairs(self) -> NDArray[np.int64] | None:
        """Which option of the pair question each sets at each position, if pairs are asked for."""
        layout = layout_in(self.survey)
        if layout is None or layout.word != self.question:
            return None
        places = range(layout.positions)
        return np.array([[layout.option(name, place) for place in places] for name in self.names])

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
    asked = [question.name for question in survey if isinstance(question, Text)]
    if weights is not None and not asked:
        raise InputError(f"survey {survey.name!r} asks for no text, so none can be given.")
    if weights is None:
        weights = zipf(f"text {rank}" for rank in range(1, _MADE_UP + 1))
    joined: dict[str, float] = {}
    for text, weight in weights.items():
        if check_number(f"the weight of {text!r}", weight) < 0:
            raise InputError(f"the weight of {text!r} must not be negative, got {weight}.")
        normal = normal_text(text)
        joined[normal] = joined.get(normal, 0.0) + weight
    total = sum(joined.values())
    if asked and not 0 < total < np.inf:
        raise InputError("give at least one text with a weight above 0.")
    chances = np.array(list(joined.values())) / (total or 1.0)
    return {
        name: Texts(survey, name, tuple(joined), chances, np.zeros(len(joined), np.int64))
        for name in asked
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
    layout = layout_in(survey)
    for start in range(0, users, CHUNK):
        count = min(CHUNK, users - start)
        cohorts = draw_cohorts(survey, count, generator)
        drawn: dict[str, NDArray[np.int64]] = {}
        blocks: dict[str, NDArray[np.bool_]] = {}
        for question in survey:
            if isinstance(question, Text):
                assert cohorts is not None
                given = texts[question.name]
                chosen = generator.choice(len(given.names), count, p=given.chances)
                given.counts[:] += np.bincount(chosen, minlength=len(given.names))
                drawn[question.name] = chosen
                positions = given.positions[chosen, cohorts].astype(np.int64)
                block = set_positions(positions, question.bits)
                blocks[question.name] = block & given.answered[chosen, None]
            elif layout is None or question.name != layout.pairs:
                blocks[question.name] = _answers(question, count, generator)
        if layout is not None:
            pairs = texts[layout.word].pairs
            assert cohorts is not None
            assert pairs is not None
            option = pairs[drawn[layout.word], cohorts % layout.positions]
            blocks[layout.pairs] = set_positions(option[:, None], survey[layout.pairs].bits)
        vectors = np.concatenate([blocks[question.name] for question in survey], axis=1)
        yield Original(pack(vectors), survey.bits, cohorts)


def populate_texts(
    survey: Survey, counts: Mapping[str, int], generator: np.random.Generator
) -> Iterator[Original]:
    """Make up people for a survey of one text question: so many for each text, in any order."""
    (question,) = survey.questions
    table = hash_table(survey.text_hash(question.name), counts, survey.cohorts or 0)
    people = np.repeat(np.arange(len(counts)), list(counts.values()))
    generator.shuffle(people)
    for start in range(0, len(people), CHUNK):
        chunk = people[start : start + CHUNK]
        cohorts = draw_cohorts(survey, len(chunk), generator)
        vectors = set_positions(table[chunk, cohorts].astype(np.int64), survey.bits)
        yield Original(pack(vectors), survey.bits, cohorts)


def draw_cohorts(survey: Survey, count: int, generator: np.random.Generator) -> Cohorts | None:
    """Draw a cohort for each person, if the survey has cohorts."""
    if survey.cohorts is None:
        return None
    return generator.integers(survey.cohorts, size=count).astype(np.uint16)


def chances_of(question: Question) -> NDArray[np.float64]:
    """How likely each option is: falling off like 1 / rank, one half for the first of many."""
    weights = 1 / np.arange(1, question.bits + 1)
    return np.asarray(weights / weights.sum() if question.takes_one else weights / 2)


def _answers(question: Question, count: int, generator: np.random.Generator) -> NDArray[np.bool_]:
    """Draw answers to one question."""
    chances = chances_of(question)
    if question.takes_one:
        cumulative = np.cumsum(chances)
        chosen = np.searchsorted(cumulative[:-1], generator.random(count), side="right")
        return np.asarray(np.arange(question.bits) == chosen[:, None])
    wished = generator.random((count, question.bits)) < chances
    # Those who wish for more than is allowed keep the options that come first.
    return np.asarray(wished & (np.cumsum(wished, axis=1) <= question.most_set_bits))


def set_positions(positions: NDArray[np.int64], bits: int) -> NDArray[np.bool_]:
    """Return vectors with these bits set."""
    vectors = np.zeros((len(positions), bits), bool)
    np.put_along_axis(vectors, positions, True, axis=1)
    return vectors
