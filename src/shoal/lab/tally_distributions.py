"""The tally of a crowd that does not exist, drawn count by count instead of report by report.

Everybody draws a cohort and the flips of different bits are independent. So the ones of a bit in
a cohort where m of n people have it set are Bin(m, p) + Bin(n - m, q), independently for each
(KR 3.1): the counts by cohort and bit have exactly the distribution of real reports, at a cost that
does not grow with the crowd. The counts by set bits do not: they only agree with the others.

A RAPPOR collection is drawn in the same way: Bin(m, q*) + Bin(n - m, p*) of n people in a cohort
report a 1. Its hashes are uniform draws with replacement, so they may collide, as RAPPOR's may.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shoal.analysis.tally import CohortCounts, Tally
from shoal.analysis.text.rappor import RapporCollection, RapporMap
from shoal.device.arrays.simulation_bits import simulation_generator
from shoal.errors import InputError
from shoal.lab.populations import Texts, chances_of
from shoal.planning.rappor import RapporParameters
from shoal.protocol.plan import Plan
from shoal.protocol.questions import Text
from shoal.protocol.survey import Question
from shoal.protocol.text_hash import normal_text
from shoal.support.checks import check_integer
from shoal.support.files import write_text

Counts = NDArray[np.int64]


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
