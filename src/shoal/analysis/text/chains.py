"""Frequent pairs of letters, and the words that can be chained from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shoal.analysis.tally import Tally
from shoal.protocol.plan import Plan
from shoal.protocol.questions import Text
from shoal.protocol.text_hash import PADDING

__all__ = ["Chains", "Pair", "chain_pairs", "frequent_pairs"]


@dataclass(frozen=True)
class Pair:
    """A pair of letters at a position and the unbiased share of the words that have it."""

    position: int
    letters: str
    share: float


@dataclass(frozen=True)
class Chains:
    """Candidate words, those with the most frequent rarest pair first.

    `cut` is None if no chain was left out; else no word that was left out has all its pairs
    estimated above this share.
    """

    words: tuple[str, ...]
    cut: float | None


def frequent_pairs(
    plan: Plan, tally: Tally, question: Text, *, miss: float, most: int
) -> tuple[tuple[Pair, ...], ...]:
    """Return the pairs that people have, at every position, by falling share.

    A pair that nobody has shows Bin(n, q) ones among the n reports of its position, exactly; a pair
    counts as frequent where that law gives its count or more less than `miss` over the number of
    all pairs. So the chance that any pair is returned that nobody has is at most `miss`. At most
    `most` pairs are returned at a position.
    """
    from scipy.stats import binom

    pairs = question.pairs
    assert tally.cohorts is not None
    assert pairs is not None
    q, (_, place) = float(plan.q), plan.survey.slices_of(question.name)
    options = len(pairs.options)
    by_position = []
    for position in range(pairs.positions):
        cohorts = tally.cohorts[position :: pairs.positions]
        reports = sum(cohort.reports for cohort in cohorts)
        ones = sum((c.by_bit[place][:options] for c in cohorts), start=np.zeros(options, np.int64))
        shares = (ones / max(reports, 1) - q) / (1 - 2 * q)
        chance = binom.sf(ones - 1, reports, q)
        frequent = np.flatnonzero(chance < miss / (options * pairs.positions))
        frequent = frequent[np.argsort(-shares[frequent], kind="stable")][:most]
        by_position.append(
            tuple(Pair(position, pairs.options[i], float(shares[i])) for i in frequent)
        )
    return tuple(by_position)


def chain_pairs(pairs: Sequence[Sequence[Pair]], most: int) -> Chains:
    """Chain pairs that overlap into words; keep the `most` whose rarest pair is most frequent.

    A word is at most as frequent as its rarest pair. Prefixes are ranked by the rarest pair of
    their best completion, so that keeping the best `most` at each step loses none of the final
    ones.

    >>> pairs = [[Pair(0, "ab", 0.3), Pair(0, "cb", 0.2)], [Pair(1, "bd", 0.4), Pair(1, "be", 0.1)]]
    >>> chain_pairs(pairs, most=2)
    Chains(words=('abd', 'cbd'), cut=0.1)
    """
    ahead = _best_completions(pairs)
    cut = None
    chains = [("", 1.0)]
    for position, here in enumerate(pairs):
        longer = []
        for chain, share in chains:
            for pair in here:
                rest = ahead[position + 1].get(pair.letters[1], 0.0)
                if rest > 0 and (not chain or chain[-1] == pair.letters[0]):
                    start = chain[:-1] + pair.letters
                    longer.append((min(share, pair.share, rest), start, min(share, pair.share)))
        longer.sort(key=lambda entry: (-entry[0], entry[1]))
        if len(longer) > most:
            cut = max(cut or 0.0, longer[most][0])
        chains = [(chain, share) for _, chain, share in longer[:most]]
    ranked = sorted(chains, key=lambda entry: (-entry[1], entry[0]))
    return Chains(tuple(chain.rstrip(PADDING) for chain, _ in ranked), cut)


def _best_completions(pairs: Sequence[Sequence[Pair]]) -> list[dict[str, float]]:
    """Return, for every position and letter, the rarest pair of the best chain from there on."""
    best: list[dict[str, float]] = [{} for _ in range(len(pairs) + 1)]
    best[-1] = {pair.letters[1]: 1.0 for pair in pairs[-1]}
    for position in range(len(pairs) - 1, -1, -1):
        for pair in pairs[position]:
            first, second = pair.letters[0], pair.letters[1]
            through = min(pair.share, best[position + 1].get(second, 0.0))
            best[position][first] = max(best[position].get(first, 0.0), through)
    return best
