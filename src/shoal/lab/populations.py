"""Simulated people: made-up answers, made-up texts with known counts, and tallies of whole crowds.

A tally can be drawn count by count instead of report by report. Everybody draws a cohort and the
flips of different bits are independent. So the ones of a bit in a cohort where m of n people have
it set are Bin(m, p) + Bin(n - m, q), independently for each (KR 3.1): the counts by cohort and bit
have exactly the distribution of real reports, at a cost that does not grow with the crowd. The
counts by set bits do not: they only agree with the others.

A RAPPOR collection is drawn in the same way: Bin(m, q*) + Bin(n - m, p*) of n people in a cohort
report a 1. Its hashes are uniform draws with replacement, so they may collide, as RAPPOR's may.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shoal.analysis.tally import CohortCounts, Tally
from shoal.analysis.text.least_squares import hash_table
from shoal.analysis.text.rappor import RapporCollection, RapporMap
from shoal.device.arrays.encode import set_cells
from shoal.device.arrays.randomize import Original, pack
from shoal.device.arrays.simulation_bits import simulation_generator
from shoal.errors import InputError
from shoal.planning.rappor import RapporParameters
from shoal.protocol.plan import Plan
from shoal.protocol.survey import Arm, Question, Survey, Text
from shoal.protocol.text_hash import normal_text
from shoal.protocol.wire import Cohorts
from shoal.support.checks import check_integer, check_number
from shoal.support.files import first_line, write_text

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


def draw_tally(
    plan: Plan, users: int, texts: Mapping[str, Texts], generator: np.random.Generator
) -> tuple[Tally, Counts]:
    """Draw the tally of simulated people, as `populate` makes them up; also return the true counts.

    A plan that declares joint counts is refused, since they are not drawn. `texts` are the answers
    to each text question; its counts are raised.
    """
    check_integer("users", users, lowest=1)
    if plan.joint:
        raise InputError(
            "the plan declares joint counts, which cannot be sampled directly; simulate through"
            " the path."
        )
    if plan.survey.crosses:
        raise InputError(
            "the survey crosses questions, whose cells cannot be sampled directly; simulate"
            " through the path."
        )
    cohorts = plan.cohorts or 1
    sizes = generator.multinomial(users, np.full(cohorts, 1 / cohorts))
    blocks = []
    for question in plan.survey:
        if question.name in texts:
            answers = texts[question.name]
            people = generator.multinomial(sizes, answers.chances).T
            answers.counts[:] += people.sum(axis=1)
            blocks.append(answers.true_ones(people))
        else:
            blocks.append(_true_ones(question, sizes, generator))
    truth = np.concatenate(blocks, axis=1)
    return _flipped_tally(plan, sizes, truth, generator), truth.sum(axis=0)


def draw_ones(
    truth: Counts,
    reports: Counts,
    q: float,
    generator: np.random.Generator,
    size: int | None = None,
) -> Counts:
    """Draw how many of so many reports show a bit that `truth` people have set (KR 3.1)."""
    return generator.binomial(truth, 1 - q, size) + generator.binomial(reports - truth, q, size)


def _flipped_tally(
    plan: Plan, sizes: Counts, truth: Counts, generator: np.random.Generator
) -> Tally:
    """Draw the tally of cohorts of known sizes whose true counts by bit are known."""
    ones = draw_ones(truth, sizes[:, None], float(plan.q), generator)
    reports, by_bit = int(sizes.sum()), ones.sum(axis=0)
    by_set_bits = _some_set_bits(plan, reports, by_bit) if plan.view == "reports" else None
    cohorts = None
    if plan.cohorts is not None:
        cohorts = tuple(
            CohortCounts(size, counts) for size, counts in zip(sizes.tolist(), ones, strict=True)
        )
    return Tally(plan.id, reports, by_bit, by_set_bits, simulated=True, cohorts=cohorts)


def _some_set_bits(plan: Plan, reports: int, by_bit: Counts) -> Counts:
    """Return counts by set bits that agree with the counts by bit."""
    low, rest = divmod(int(by_bit.sum()), max(reports, 1))
    by_set_bits = np.zeros(plan.bits + 1, np.int64)
    by_set_bits[low] += reports - rest
    by_set_bits[min(low + 1, plan.bits)] += rest
    return by_set_bits


def _true_ones(question: Question, sizes: Counts, generator: np.random.Generator) -> Counts:
    """Draw how many people set each bit of a question that is no text, in each cohort."""
    chances = chances_of(question)
    if question.takes_one:
        return generator.multinomial(sizes, chances)
    ones = np.zeros((len(sizes), question.bits), np.int64)
    # By how many options they have set so far; the last have all that are allowed.
    groups = np.zeros((len(sizes), question.max_set_bits + 1), np.int64)
    groups[:, 0] = sizes
    for bit, chance in enumerate(chances):
        set_now = generator.binomial(groups[:, :-1], chance)
        ones[:, bit] = set_now.sum(axis=1)
        groups[:, :-1] -= set_now
        groups[:, 1:] += set_now
    return ones


def simulate_texts(plan: Plan, counts: Mapping[str, int], *, seed: int) -> Tally:
    """Draw the tally of a crowd whose texts are known, at the cost of its texts.

    The survey has one question, a text. The counts by cohort and bit have exactly the distribution
    of real reports. An empty text is no answer.

    >>> import shoal
    >>> survey = shoal.Survey("words", (shoal.Text("word", bits=64, hashes=1, cohorts=16),))
    >>> tally = simulate_texts(shoal.plan(survey, q="0.05"), {"tea": 300, "coffee": 700}, seed=1)
    >>> tally.reports, len(tally.cohorts), tally.simulated
    (1000, 16, True)
    """
    survey, generator = plan.survey, simulation_generator(seed)
    if len(survey.questions) != 1 or not isinstance(question := survey.questions[0], Text):
        raise InputError("a tally of texts is drawn for a survey of one text question only.")
    people: dict[str, int] = {}
    for text, count in counts.items():
        check_integer(f"count of {text!r}", count, lowest=0)
        people[normal_text(text)] = people.get(normal_text(text), 0) + count
    numbers = np.array(list(people.values()), np.int64)
    texts = Texts(survey, question, tuple(people), numbers / max(numbers.sum(), 1), numbers)
    spread = generator.multinomial(numbers, np.full(question.cohorts, 1 / question.cohorts))
    return _flipped_tally(plan, spread.sum(axis=0), texts.true_ones(spread), generator)


def simulate_rappor(
    parameters: RapporParameters, people: Mapping[str, int], candidates: Sequence[str], *, seed: int
) -> tuple[RapporCollection, RapporMap]:
    """Draw a collection of people whose texts are known, and the map of its candidates.

    `people` may have texts that are no candidates; they are in the counts and not in the map.

    >>> small = RapporParameters(k=16, h=1, m=4, p="0.25", q="0.75", f="0")
    >>> collection, candidates = simulate_rappor(small, {"tea": 900}, ["tea", "coffee"], seed=1)
    >>> collection.reports, candidates.texts
    (900, ('tea', 'coffee'))
    """
    if not people or min(people.values()) < 0:
        raise InputError("a collection needs people: how many report each text.")
    k, h, m = parameters.k, parameters.h, parameters.m
    generator = simulation_generator(seed)
    texts = list(dict.fromkeys([*candidates, *people]))
    hashes = np.sort(generator.integers(k, size=(m, h, len(texts))), axis=1)
    hashes[:, 1:][hashes[:, 1:] == hashes[:, :-1]] = k
    truth = np.zeros((m, k + 1), np.int64)
    sizes = np.zeros(m, np.int64)
    for place, text in enumerate(texts):
        drawn = generator.multinomial(people.get(text, 0), np.full(m, 1 / m))
        sizes += drawn
        for hits in hashes[:, :, place].T:
            truth[np.arange(m), hits] += drawn
    truth = truth[:, :k]
    ones = generator.binomial(truth, float(parameters.q_star))
    ones += generator.binomial(sizes[:, None] - truth, float(parameters.p_star))
    listed = hashes[:, :, : len(candidates)].astype(np.int32)
    return RapporCollection(sizes, ones), RapporMap(tuple(candidates), listed, 0)


def write_rappor(
    folder: Path, parameters: RapporParameters, collection: RapporCollection, candidates: RapporMap
) -> None:
    """Write params.csv, counts.csv and map.csv as google/rappor does."""
    numbers = parameters.to_json()
    write_text(
        folder / "params.csv",
        ",".join(f'"{name}"' for name in numbers)
        + "\n"
        + ",".join(f"{value:g}" for value in numbers.values())
        + "\n",
    )
    rows = np.column_stack((collection.sizes, collection.ones))
    counts = "".join(",".join(map(str, row)) + "\n" for row in rows.tolist())
    write_text(folder / "counts.csv", counts)
    k, start = parameters.k, np.arange(parameters.m)[:, None] * parameters.k
    lines = []
    for place, text in enumerate(candidates.texts):
        own = candidates.positions[:, :, place]
        numbers_of = (own + start + 1)[own < k].tolist()
        cells = [*map(str, numbers_of), *[""] * (own.size - len(numbers_of))]
        quoted = text.replace('"', '""')
        lines.append(f'"{quoted}",{",".join(cells)}\n')
    write_text(folder / "map.csv", "".join(lines))
