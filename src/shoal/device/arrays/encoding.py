"""Many answers to an Original: lists of mappings, by the rules of `shoal.device.answers`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.device.answers import AnswerRules
from shoal.device.arrays.cells import check_format, readable_answer
from shoal.device.arrays.vectors import Original, pack
from shoal.protocol.random_bits import RandomBits, SystemBits
from shoal.protocol.survey import Survey
from shoal.protocol.vectors import Cohorts
from shoal.support.table_format import DEFAULT_FORMAT, TableFormat

__all__ = ["draw_cohorts", "draw_many_below", "encode_rows"]


def encode_rows(
    survey: Survey,
    answers: Sequence[Any],
    first_row: int = 1,
    random_bits: RandomBits = SystemBits(),  # noqa: B008  it holds no state
    table_format: TableFormat = DEFAULT_FORMAT,
) -> Original:
    """Encode a list of mappings; `first_row` is what messages call the first of them."""
    check_format(survey, table_format)
    vectors = np.zeros((len(answers), survey.bits), bool)
    cohorts = draw_cohorts(survey, len(answers), random_bits)
    rules = AnswerRules(survey)
    for index, answer in enumerate(answers):
        cohort = None if cohorts is None else int(cohorts[index])
        row = first_row + index
        given = readable_answer(survey, answer, row, table_format)
        vectors[index, rules.set_bits(given, cohort, row)] = True
    return Original(pack(vectors), survey.bits, cohorts)


def draw_cohorts(survey: Survey, count: int, random_bits: RandomBits) -> Cohorts | None:
    """Draw a cohort for each report, uniformly and afresh, if the survey has cohorts."""
    if survey.cohorts is None:
        return None
    return draw_many_below(survey.cohorts, count, random_bits).astype(np.uint16)


def draw_many_below(bound: int, count: int, random_bits: RandomBits) -> NDArray[np.uint64]:
    """Return numbers uniform on 0 .. bound - 1, exactly; what does not divide is drawn again.

    >>> draw_many_below(3, 5, SystemBits()).max() < 3
    np.True_
    """
    last = np.uint64(2**64 - 1 - 2**64 % bound)
    drawn = np.empty(0, np.uint64)
    while drawn.size < count:
        words = np.empty(count - drawn.size, np.uint64)
        random_bits.fill(words)
        drawn = np.concatenate((drawn, words[words <= last]))
    return drawn % np.uint64(bound)
