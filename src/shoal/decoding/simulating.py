"""The tally of a crowd whose texts are known and that does not exist."""

from __future__ import annotations

from collections.abc import Mapping

from shoal.drawing import draw_tally_of_texts
from shoal.errors import InputError
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
    return draw_tally_of_texts(plan, survey.questions[0].name, counts, simulation_generator(seed))
