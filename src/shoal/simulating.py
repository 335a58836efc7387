"""The whole path on people who do not exist, with the truth beside each estimate."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal._check import check_integer
from shoal.counting import BitCounter
from shoal.errors import InputError
from shoal.estimating import Estimates, estimate
from shoal.intervals import IntervalKind, Target
from shoal.plans import Plan
from shoal.randomizing import randomize
from shoal.randomness import SimulationBits, SystemBits, simulation_generator
from shoal.survey import Question, Survey, Text
from shoal.tallying import Tallying
from shoal.vectors import Cohorts, Original, pack, row_bytes

__all__ = ["Simulation", "populate", "populate_texts", "simulate"]

_CHUNK = 1 << 17


@dataclass(frozen=True)
class Simulation:
    """Estimates from simulated reports, and the true counts that nobody sees in real life."""

    estimates: Estimates
    truth: NDArray[np.int64]

    def true_count(self, question: str, label: str) -> int:
        """Return how many simulated people have the bit set."""
        return int(self.truth[self.estimates.plan.survey.bit(question, label)])

    def to_json(self, level: float = 0.95, kind: IntervalKind = "exact") -> dict[str, Any]:
        """Return the estimates as JSON values, with `truth` beside each."""
        document = self.estimates.to_json(level, kind)
        for question, options in document["questions"].items():
            for label, row in options.items():
                row["truth"] = self.true_count(question, label)
        return document


def simulate(
    plan: Plan,
    *,
    users: int | None = None,
    answers: Original | Iterable[Original] | None = None,
    seed: int | None = None,
    target: Target = "crowd",
    progress: Callable[[int], None] | None = None,
) -> Simulation:
    """Randomize, tally and estimate simulated reports.

    Parameters
    ----------
    plan
        The plan to try out.
    users
        How many people to simulate. With `answers`, that many are drawn from them.
    answers
        Originals to report; without them a population is made up.
    seed
        Repeats the run exactly; without it the noise is fresh each time.
    progress
        Called with the number of people done since the last call.

    Examples
    --------
    >>> from shoal import Flags, Survey, plan
    >>> survey = Survey("browser", (Flags("features", ("sync", "vpn")),))
    >>> run = simulate(plan(survey, q=0.25), users=10_000, seed=1)
    >>> run.true_count("features", "sync"), round(run.estimates["features"]["sync"].count)
    (4991, 4822)
    """
    if seed is None:
        seed = int.from_bytes(SystemBits().draw(7))
    generator = simulation_generator(seed)
    noise = SimulationBits(int(generator.integers(2**62)))
    truth = BitCounter(row_bytes(plan.bits))
    tallying = Tallying(plan)
    for original in people(plan.survey, users, answers, generator):
        truth.add(original.rows)
        synthetic = randomize(original, plan, random_bits=noise)
        tallying.add(synthetic.rows, simulated=True, cohorts=synthetic.cohorts)
        if progress is not None:
            progress(len(original))
    counts = truth.counts()[: plan.bits]
    return Simulation(estimate(plan, tallying.result(), target=target), counts)


def populate(survey: Survey, users: int, generator: np.random.Generator) -> Iterator[Original]:
    """Make up people: half have the first option, fewer the later ones."""
    check_integer("users", users, lowest=1)
    for start in range(0, users, _CHUNK):
        count = min(_CHUNK, users - start)
        cohorts = _cohorts(survey, count, generator)
        blocks = [
            _texts(survey, question, cohorts, generator)
            if isinstance(question, Text) and cohorts is not None
            else _answers(question, count, generator)
            for question in survey
        ]
        yield Original(pack(np.concatenate(blocks, axis=1)), survey.bits, cohorts)


def populate_texts(
    survey: Survey, counts: Mapping[str, int], generator: np.random.Generator
) -> Iterator[Original]:
    """Make up people for a survey of one text question: so many for each text, in any order."""
    (question,) = survey.questions
    table = survey.text_hash(question.name).table(counts, survey.cohorts or 0)
    people = np.repeat(np.arange(len(counts)), list(counts.values()))
    generator.shuffle(people)
    for start in range(0, len(people), _CHUNK):
        chunk = people[start : start + _CHUNK]
        cohorts = _cohorts(survey, len(chunk), generator)
        vectors = _set_positions(table[chunk, cohorts], survey.bits)
        yield Original(pack(vectors), survey.bits, cohorts)


def people(
    survey: Survey,
    users: int | None,
    answers: Original | Iterable[Original] | None,
    generator: np.random.Generator,
) -> Iterator[Original]:
    """Yield made-up people, the given ones, or as many as asked for drawn from the given ones."""
    if answers is None:
        if users is None:
            raise InputError("say how many users to simulate, or give their answers.")
        yield from populate(survey, users, generator)
        return
    given = [answers] if isinstance(answers, Original) else answers
    if users is None:
        yield from given
        return
    chunks = list(given)
    rows = np.concatenate(
        [np.empty((0, row_bytes(survey.bits)), np.uint8), *(chunk.rows for chunk in chunks)]
    )
    carried = [chunk.cohorts for chunk in chunks if chunk.cohorts is not None]
    cohorts = np.concatenate(carried) if carried else None
    if not len(rows):
        raise InputError("there are no answers to draw users from.")
    for start in range(0, check_integer("users", users, lowest=1), _CHUNK):
        drawn = generator.integers(len(rows), size=min(_CHUNK, users - start))
        yield Original(rows[drawn], survey.bits, None if cohorts is None else cohorts[drawn])


def _answers(question: Question, count: int, generator: np.random.Generator) -> NDArray[np.bool_]:
    """Draw answers to one question, the options falling off like 1 / rank."""
    weights = 1 / np.arange(1, question.bits + 1)
    if question.takes_one:
        cumulative = np.cumsum(weights / weights.sum())
        chosen = np.searchsorted(cumulative[:-1], generator.random(count), side="right")
        return np.asarray(np.arange(question.bits) == chosen[:, None])
    wished = generator.random((count, question.bits)) < weights / 2
    # Those who wish for more than is allowed keep the options that come first.
    return np.asarray(wished & (np.cumsum(wished, axis=1) <= question.most_set_bits))


def _cohorts(survey: Survey, count: int, generator: np.random.Generator) -> Cohorts | None:
    if survey.cohorts is None:
        return None
    return generator.integers(survey.cohorts, size=count).astype(np.uint16)


def _texts(
    survey: Survey, question: Text, cohorts: Cohorts, generator: np.random.Generator
) -> NDArray[np.bool_]:
    """Draw from a hundred made-up texts, `text 1` the most frequent, falling off like 1 / rank."""
    weights = 1 / np.arange(1, 101)
    drawn = generator.choice(100, len(cohorts), p=weights / weights.sum())
    names = [f"text {rank}" for rank in range(1, 101)]
    table = survey.text_hash(question.name).table(names, question.cohorts)
    return _set_positions(table[drawn, cohorts], question.bits)


def _set_positions(positions: NDArray[np.uint16], bits: int) -> NDArray[np.bool_]:
    vectors = np.zeros((len(positions), bits), bool)
    np.put_along_axis(vectors, positions.astype(np.int64), True, axis=1)
    return vectors
