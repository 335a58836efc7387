"""The tally of a crowd whose words are known and that does not exist."""

from __future__ import annotations

from collections.abc import Mapping

from shoal.discovering.layout import layout_of
from shoal.drawing import draw_tally_of_texts
from shoal.plans import Plan
from shoal.randomness import simulation_generator
from shoal.tallying import Tally

__all__ = ["simulate_words"]


def simulate_words(plan: Plan, counts: Mapping[str, int], *, seed: int) -> Tally:
    """Draw the tally of a crowd with so many people for each word, at the cost of its words.

    >>> from shoal import discovery_survey, plan
    >>> simulate_words(plan(discovery_survey("words", 6), q="0.1"), {"eel": 10**9}, seed=1).reports
    1000000000
    """
    word = layout_of(plan.survey).word
    return draw_tally_of_texts(plan, word, counts, simulation_generator(seed))
