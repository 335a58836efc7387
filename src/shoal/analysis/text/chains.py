"""Frequent pairs of letters, and the words that can be chained from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shoal.agreement.plan import Plan
from shoal.agreement.word_pairs import PADDING, Layout
from shoal.analysis.tallying import Tally

__all__ = ["Assembled", "Pair", "assemble", "frequent_pairs"]


@dataclass(frozen=True)
class Pair:
    """A pair of letters at a position and the unbiased share of the words that have it."""

    position: int
    letters: str
    share: float


@dataclass(frozen=True)
class Assembled:
    """Candidate words, those with the most frequent rarest pair first.

    `cut` is None if no chain was left out; else no word that was left out has all its pairs
    estimated above this share.
    """

    words: tuple[str, ...]
    cut: float | None


def frequent_pairs(
    plan: Plan, tally: Tally, layout: Layout, *, miss: float, most: int
) -> tuple[tuple[Pair, ...], ...]:
    """Return the pairs that people have, at every position, by falling share.

    A pair that nobody has shows Bin(n, q) ones among the n reports of its position, exactly; it is
    kept where that law gives its count or more less than `miss` over the number of all pairs. So
    the chance that any pair is kept that nobody has is at most `miss`. At most `most` pairs are
    kept at a position.
    """
    from scipy.stats import binom

    assert tally.cohorts is not None
    q, bits = float(plan.q), plan.survey.slice_of(layout.pairs)
    options = len(layout.options)
    found = []
    for position in range(layout.positions):
        cohorts = tally.cohorts[position :: layout.positions]
        reports = sum(cohort.reports for cohort in cohorts)
        ones = sum((c.by_bit[bits][:options] for c in cohorts), start=np.zeros(options, np.int64))
        shares = (ones / max(reports, 1) - q) / (1 - 2 * q)
        chance = binom.sf(ones - 1, reports, q)
        kept = np.flatnonzero(chance < miss / (options * layout.positions))
        kept = kept[np.argsort(-shares[kept], kind="stable")][:most]
        found.append(tuple(Pair(position, layout.options[i], float(shares[i])) for i in kept))
    return tuple(found)


def assemble(pairs: Sequence[Sequence[Pair]], most: int) -> Assembled:
    """Chain pairs that overlap into words; keep the `most` whose rarest pair is most frequent.

    A word is at most as frequent as its rarest pair. Prefixes are ranked by the rarest pair of
    their best completion, so that keeping the best `most` at each step loses none of the final
    ones.

    >>> pairs = [[Pair(0, "ab", 0.3), Pair(0, "cb", 0.2)], [Pair(1, "bd", 0.4), Pair(1, "be", 0.1)]]
    >>> assemble(pairs, most=2)
    Assembled(words=('abd', 'cbd'), cut=0.1)
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
    return Assembled(tuple(chain.rstrip(PADDING) for chain, _ in ranked), cut)


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
