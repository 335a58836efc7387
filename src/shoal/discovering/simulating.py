"""The tally of a crowd whose words are known and that does not exist."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from shoal._check import check_integer
from shoal.discovering.layout import layout_of
from shoal.drawing import lied_tally, true_ones
from shoal.hashing import normal_text
from shoal.plans import Plan
from shoal.populating import Texts
from shoal.randomness import simulation_generator
from shoal.tallying import Tally

__all__ = ["simulate_words"]


def simulate_words(plan: Plan, counts: Mapping[str, int], *, seed: int) -> Tally:
    """Draw the tally of a crowd with so many people for each word, at the cost of its words.

    >>> from shoal import discovery_survey, plan
    >>> simulate_words(plan(discovery_survey("words", 6), q="0.1"), {"eel": 10**9}, seed=1).reports
    1000000000
    """
    survey, layout = plan.survey, layout_of(plan.survey)
    assert survey.cohorts is not None
    generator = simulation_generator(seed)
    people = np.array([check_integer(f"count of {w!r}", counts[w], lowest=0) for w in counts])
    shares = people / max(people.sum(), 1)
    words = Texts(survey, layout.word, tuple(map(normal_text, counts)), shares, people)
    drawn = generator.multinomial(people, np.full(survey.cohorts, 1 / survey.cohorts))
    blocks = true_ones(survey, words, drawn)
    truth = np.concatenate([blocks[question.name] for question in survey], axis=1)
    return lied_tally(plan, drawn.sum(axis=0), truth, generator)
