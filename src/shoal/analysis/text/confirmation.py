"""Whether a word that nobody has could show so many people.

The hash of a word that nobody has is independent of everything counted: in each cohort it points at
a position drawn uniformly. So, with the counts fixed, the sum of the counts at its positions has a
distribution that is known exactly, whatever the crowd's other words are and however they collide.
Normal tails are far too thin here: a few frequent words that were not found can meet in one false
one.

Status: *observed*. For a single candidate the bound is a theorem, if the hash is a random
function. With several, the counts of the others are subtracted first. They were fitted together
with this word's count, so they depend on its hash.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from shoal.analysis.tally import Tally
from shoal.analysis.text.hash_table import hash_table
from shoal.protocol.plan import Plan

__all__ = ["chances_of_nobody"]

Floats = NDArray[np.float64]


def chances_of_nobody(
    plan: Plan, tally: Tally, question: str, words: Sequence[str], counts: Sequence[float]
) -> Floats:
    """Return the approximate chance that a word nobody has shows as many people as each word.

    With the sum t and the cumulants K of the positions, it is min over s of exp(K(s) - s t)
    (Chernoff). The other words' fitted `counts` are subtracted first, and are treated as if they
    did not depend on this word's hash. Status: observed; a theorem for a single word.
    """
    survey = plan.survey
    assert tally.cohorts is not None
    q, (bits, *_) = float(plan.q), survey.slices_of(question)
    sizes = np.array([cohort.reports for cohort in tally.cohorts], float)
    ones = np.array([cohort.by_bit[bits] for cohort in tally.cohorts], float)
    table = (ones - q * sizes[:, None]) / (1 - 2 * q)
    places = hash_table(survey.text_hash(question), words, len(sizes)).astype(np.int64)
    cohort = np.arange(len(sizes))[:, None]
    shares = sizes / sizes.sum()
    for place, count in zip(places, counts, strict=True):
        table[cohort, place] -= count * shares[:, None]
    bounds = np.ones(len(words))
    for number, (place, count) in enumerate(zip(places, counts, strict=True)):
        own = table.copy()
        own[cohort, place] += count * shares[:, None]
        own -= own.mean(axis=1, keepdims=True)
        bounds[number] = _chernoff(own, float(own[cohort, place].sum()), place.shape[1])
    return bounds


def _chernoff(table: Floats, total: float, hashes: int) -> float:
    """Bound the chance that uniform positions, `hashes` in each row, sum to `total` or more.

    >>> rows = np.array([[1.0, -1.0]] * 10)
    >>> round(_chernoff(rows, 10.0, 1) * 2**10, 6)
    1.0
    """
    from scipy.special import logsumexp

    if total <= 0:
        return 1.0
    top = float(table.max())
    size = np.log(table.shape[1])
    best = 0.0
    for slope in np.geomspace(0.01, 50, 40) / top:
        cumulants = hashes * float((logsumexp(slope * table, axis=1) - size).sum())
        best = min(best, cumulants - slope * total)
    return float(np.exp(best))
