"""What a crowd's page shows beyond single options: numbers, cross tables and decoded text.

These are the documents that pages, files and the collector's API share.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from shoal.analysis.cross_tables import cross_table
from shoal.analysis.estimates import Estimates
from shoal.analysis.number_summary import numbers_of
from shoal.analysis.tally import Tally
from shoal.analysis.text.results import DecodedTexts
from shoal.errors import InputError
from shoal.protocol.plan import Plan
from shoal.protocol.survey import Cross

__all__ = ["MAX_CELLS", "results"]

MAX_CELLS = 100
"""Cells of a cross that are shown as a matrix with shares; a larger one is a list of counts."""


def results(
    estimates: Estimates, level: float = 0.95, texts: Iterable[DecodedTexts] = ()
) -> dict[str, dict[str, Any]]:
    """Return mean and quantiles of each number, a table of each cross, and the texts decoded.

    A cross of more than `MAX_CELLS` cells has no table here, and so has none whose people may be
    in several crowds, since no test of independence holds for them.
    """
    plan, tally = estimates.plan, estimates.tally
    return {
        "numbers": numbers_of(estimates, level),
        "crosses": {
            question.name: cross_table(plan, tally, question.name, target=estimates.target).to_json(
                level
            )
            for question in plan.survey
            if isinstance(question, Cross)
            and question.bits <= MAX_CELLS
            and not tally.people_may_repeat
        },
        "texts": {one.question: one.to_json() for one in checked_texts(plan, tally, texts)},
    }


def checked_texts(
    plan: Plan, tally: Tally, texts: Iterable[DecodedTexts]
) -> tuple[DecodedTexts, ...]:
    """Return decoded texts if they are of this plan's questions and of as many reports."""
    checked = tuple(texts)
    for one in checked:
        plan.survey[one.question]  # it names the questions there are, if this is not one
        if one.reports != tally.reports:
            raise InputError(
                f"the decoded texts are of {one.reports:,} reports and the tally has"
                f" {tally.reports:,}; decode this tally."
            )
    return checked
