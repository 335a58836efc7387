"""The tally of a crowd whose texts are known and that does not exist."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from shoal._check import check_integer
from shoal.decoding.design import make_design
from shoal.drawing import lied_tally
from shoal.errors import InputError
from shoal.hashing import normal_text
from shoal.plans import Plan
from shoal.questions import Text
from shoal.randomness import simulation_generator
from shoal.tallying import Tally

__all__ = ["simulate_texts"]


def simulate_texts(plan: Plan, counts: Mapping[str, int], *, seed: int) -> Tally:
    """Draw the tally of a crowd whose texts are known, at the cost of its texts.

    The counts by cohort and bit have exactly the law that reports would give them; see
    `shoal.drawing`. An empty text sets no bit.

    >>> import shoal
    >>> survey = shoal.Survey("words", (shoal.Text("word", bits=64, hashes=1, cohorts=16),))
    >>> drawn = simulate_texts(shoal.plan(survey, q="0.05"), {"tea": 300, "coffee": 700}, seed=1)
    >>> drawn.reports, len(drawn.cohorts), drawn.simulated
    (1000, 16, True)
    """
    survey = plan.survey
    if len(survey.questions) != 1 or not isinstance(survey.questions[0], Text):
        raise InputError("a tally of texts is drawn for a survey of one text question only.")
    asked = survey.questions[0]
    generator = simulation_generator(seed)
    people: dict[str, int] = {}
    for text, count in counts.items():
        check_integer(f"count of {text!r}", count, lowest=0)
        people[normal_text(text)] = people.get(normal_text(text), 0) + count
    silent = people.pop("", 0)
    evenly = np.full(asked.cohorts, 1 / asked.cohorts)
    sizes = generator.multinomial(silent, evenly)
    truth = np.zeros((asked.cohorts, asked.bits), np.int64)
    if people:
        drawn = generator.multinomial(list(people.values()), evenly)
        design = make_design(survey.text_hash(asked.name), list(people), asked.cohorts)
        sizes = sizes + drawn.sum(axis=0)
        here = np.array([drawn[list(group)].sum(axis=0) for group in design.members])
        for cohort, places in enumerate(design.positions):
            for place in places:
                truth[cohort] += np.bincount(place, here[:, cohort], asked.bits).astype(int)
    return lied_tally(plan, sizes, truth, generator)
