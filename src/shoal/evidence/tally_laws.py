"""The tally of a crowd that does not exist, drawn count by count instead of report by report.

Everybody draws a cohort and the flips of different bits are independent. So the ones of a bit in
a cohort where m of n people have it set are Bin(m, p) + Bin(n - m, q), independently for each
(KR 3.1): the counts by cohort and bit have exactly the law that reports would give them, at a cost
that does not grow with the crowd. The counts by set bits do not: they only agree with the others.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from shoal.agreement.hashing import normal_text
from shoal.agreement.plan import Plan
from shoal.agreement.questions import Text
from shoal.agreement.survey import Question, Survey
from shoal.agreement.word_pairs import layout_in, layout_of
from shoal.analysis.tallying import CohortCounts, Tally
from shoal.errors import InputError
from shoal.evidence.populations import Texts, chances_of
from shoal.evidence.simulation_bits import simulation_generator
from shoal.support.checks import check_integer

__all__ = ["draw_tally", "draw_tally_of_texts", "simulate_texts", "simulate_words"]

Counts = NDArray[np.int64]
_TEXTS = 1 << 13


def draw_tally(
    plan: Plan, users: int, texts: Mapping[str, Texts], generator: np.random.Generator
) -> tuple[Tally, Counts]:
    """Draw the tally of made-up people, as `populate` makes them up; also return the true counts.

    Parameters
    ----------
    plan
        The plan; one that declares joint counts is refused, since they are not drawn.
    users
        How many people there are.
    texts
        What they answer to each text question; its counts are raised.
    generator
        Where everything is drawn from.
    """
    check_integer("users", users, lowest=1)
    if plan.joint:
        raise InputError(
            "the plan declares joint counts, which are not drawn from their law; simulate through"
            " the path."
        )
    survey, layout = plan.survey, layout_in(plan.survey)
    cohorts = survey.cohorts or 1
    sizes = generator.multinomial(users, np.full(cohorts, 1 / cohorts))
    blocks: dict[str, Counts] = {}
    for question in survey:
        if question.name in texts:
            given = texts[question.name]
            people = generator.multinomial(sizes, given.chances).T
            given.counts[:] += people.sum(axis=1)
            blocks |= _true_ones(survey, given, people)
        elif layout is None or question.name != layout.pairs:
            blocks[question.name] = _ones(question, sizes, generator)
    truth = np.concatenate([blocks[question.name] for question in survey], axis=1)
    return _flipped_tally(plan, sizes, truth, generator), truth.sum(axis=0)


def draw_tally_of_texts(
    plan: Plan, question: str, counts: Mapping[str, int], generator: np.random.Generator
) -> Tally:
    """Draw the tally of a crowd with so many people for each text, at the cost of its texts.

    A survey for discovery has pairs of letters beside the words, and no survey has other questions.
    An empty text sets no bit.
    """
    people: dict[str, int] = {}
    for text, count in counts.items():
        check_integer(f"count of {text!r}", count, lowest=0)
        people[normal_text(text)] = people.get(normal_text(text), 0) + count
    survey, numbers = plan.survey, np.array(list(people.values()), np.int64)
    given = Texts(survey, question, tuple(people), numbers / max(numbers.sum(), 1), numbers)
    cohorts = survey.cohorts or 1
    drawn = generator.multinomial(numbers, np.full(cohorts, 1 / cohorts))
    blocks = _true_ones(survey, given, drawn)
    truth = np.concatenate([blocks[asked.name] for asked in survey], axis=1)
    return _flipped_tally(plan, drawn.sum(axis=0), truth, generator)


def _true_ones(survey: Survey, given: Texts, people: Counts) -> dict[str, Counts]:
    """Return how many people set each bit of a text question, and of its pairs, in each cohort.

    `people` are those of each text in each cohort.
    """
    layout = layout_in(survey)
    asked = [given.question]
    if layout is not None and layout.word == given.question:
        asked.append(layout.pairs)
    blocks = {name: np.zeros((people.shape[1], survey[name].bits), np.int64) for name in asked}
    present = np.flatnonzero(people.any(axis=1))
    for start in range(0, len(present), _TEXTS):
        chosen = present[start : start + _TEXTS]
        texts = given.only(chosen)
        _add_words(blocks[given.question], texts, people[chosen])
        if layout is not None and texts.pairs is not None:
            for cohort, here in enumerate(people[chosen].T):
                options = texts.pairs[:, layout.position(cohort)]
                np.add.at(blocks[layout.pairs][cohort], options, here)
    return blocks


def _add_words(ones: Counts, texts: Texts, people: Counts) -> None:
    answering = people * texts.answered[:, None]
    cohort = np.broadcast_to(np.arange(len(ones)), people.shape)
    for number in range(texts.positions.shape[2]):
        np.add.at(ones, (cohort, texts.positions[:, :, number]), answering)


def _flipped_tally(
    plan: Plan, sizes: Counts, truth: Counts, generator: np.random.Generator
) -> Tally:
    """Draw the tally of cohorts of known sizes whose true counts by bit are known."""
    q = float(plan.q)
    ones = generator.binomial(truth, 1 - q) + generator.binomial(sizes[:, None] - truth, q)
    reports, by_bit = int(sizes.sum()), ones.sum(axis=0)
    low, rest = divmod(int(by_bit.sum()), max(reports, 1))
    by_set_bits = np.zeros(plan.bits + 1, np.int64)
    by_set_bits[low] += reports - rest
    by_set_bits[min(low + 1, plan.bits)] += rest
    cohorts = None
    if plan.cohorts is not None:
        cohorts = tuple(
            CohortCounts(size, counts) for size, counts in zip(sizes.tolist(), ones, strict=True)
        )
    return Tally(plan.id, reports, by_bit, by_set_bits, simulated=True, cohorts=cohorts)


def _ones(question: Question, sizes: Counts, generator: np.random.Generator) -> Counts:
    """Draw how many people set each bit of a question that is no text, in each cohort."""
    chances = chances_of(question)
    if question.takes_one:
        return generator.multinomial(sizes, chances)
    ones = np.zeros((len(sizes), question.bits), np.int64)
    # By how many options they have set so far; the last have all that are allowed.
    groups = np.zeros((len(sizes), question.most_set_bits + 1), np.int64)
    groups[:, 0] = sizes
    for bit, chance in enumerate(chances):
        set_now = generator.binomial(groups[:, :-1], chance)
        ones[:, bit] = set_now.sum(axis=1)
        groups[:, :-1] -= set_now
        groups[:, 1:] += set_now
    return ones


def simulate_texts(plan: Plan, counts: Mapping[str, int], *, seed: int) -> Tally:
    """Draw the tally of a crowd whose texts are known, at the cost of its texts.

    The counts by cohort and bit have exactly the law that reports would give them; see
    `shoal.evidence.tally_laws`. An empty text sets no bit.

    >>> import shoal
    >>> survey = shoal.Survey("words", (shoal.Text("word", bits=64, hashes=1, cohorts=16),))
    >>> drawn = simulate_texts(shoal.plan(survey, q="0.05"), {"tea": 300, "coffee": 700}, seed=1)
    >>> drawn.reports, len(drawn.cohorts), drawn.simulated
    (1000, 16, True)
    """
    survey = plan.survey
    if len(survey.questions) != 1 or not isinstance(survey.questions[0], Text):
        raise InputError("a tally of texts is drawn for a survey of one text question only.")
    return draw_tally_of_texts(plan, survey.questions[0].name, counts, simulation_generator(seed))


def simulate_words(plan: Plan, counts: Mapping[str, int], *, seed: int) -> Tally:
    """Draw the tally of a crowd with so many people for each word, at the cost of its words.

    >>> from shoal import discovery_survey, plan
    >>> simulate_words(plan(discovery_survey("words", 6), q="0.1"), {"eel": 10**9}, seed=1).reports
    1000000000
    """
    word = layout_of(plan.survey).word
    return draw_tally_of_texts(plan, word, counts, simulation_generator(seed))
