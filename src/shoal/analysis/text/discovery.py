"""Find the frequent words of a crowd without a list of candidates.

Frequent pairs of letters are chained into candidates, and these are decoded from the whole words'
bits. The flips of the pairs and of the words are independent, and so are the hashes of a word that
nobody has: how candidates were found does not make a false one likelier. A decoded word must also
show more people than a word that nobody has could show (`chances_of_nobody`). That no false word is
found is observed, not proven: the counts of all candidates are fitted together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shoal.analysis.estimates import estimate
from shoal.analysis.tally import Tally
from shoal.analysis.text.decode import decode, find_text_question
from shoal.analysis.text.least_squares import hash_table
from shoal.analysis.text.results import DecodedText, DecodedTexts
from shoal.errors import InputError
from shoal.protocol.plan import Plan
from shoal.protocol.questions import Text
from shoal.protocol.text_hash import PADDING
from shoal.support.checks import check_integer, check_number, takes
from shoal.support.results import Displayed, Section, TableExport, arrow_rows, first_rows

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, repr=False)
class Discovery(Displayed, TableExport):
    """The words found, by falling count, with the pairs and candidates that led to them."""

    plan: Plan
    question: Text
    pairs: tuple[tuple[LetterPair, ...], ...]
    candidates: Chains
    decoded: DecodedTexts | None
    all_words: tuple[DecodedText, ...]
    top: int | None
    miss: float
    sum_note: str | None = None

    def _headline(self) -> str:
        reports = ""
        if self.decoded is not None:
            simulated = ", simulated" if self.decoded.simulated else ""
            reports = f"{self.decoded.reports:,} reports{simulated}, "
        tested, found = len(self.candidates.words), len(self.all_words)
        return f"{self.question.name}: {reports}{tested:,} candidates, {found:,} words found"

    def _sections(self) -> list[Section]:
        words, left_out = first_rows(self.words)
        rows = [
            (one.value, f"{one.count:,.0f}", f"{math.floor(one.low):,}", f"{math.ceil(one.high):,}")
            for one in words
        ]
        return [Section(("word", "count", "low", "high"), rows, left_out=left_out)]

    def _remarks(self) -> tuple[str, ...]:
        return self.notes

    def to_arrow(self) -> pa.Table:
        """Return the words found as an Arrow table, a row for each."""
        return arrow_rows(["word"], self.to_json()["words"])

    @property
    def words(self) -> tuple[DecodedText, ...]:
        """The words found, the `top` of them."""
        return self.all_words[: self.top]

    @property
    def notes(self) -> tuple[str, ...]:
        """What a sum of crowds counts, and what may have been missed."""
        notes = [self.sum_note] if self.sum_note else []
        if self.candidates.cut is not None:
            notes.append(
                f"there are more chains than {len(self.candidates.words)} candidates; words rarer"
                f" than {self.candidates.cut:.3%} of the crowd may have been left out."
            )
        decoded = () if self.decoded is None else self.decoded.discoveries
        if left := len(decoded) - len(self.all_words):
            notes.append(
                f"{left} more words decoded, but they may be absent: other words share their bits."
            )
        if empty := [place + 1 for place, here in enumerate(self.pairs) if not here]:
            notes.append(f"no pair is frequent at letter {', '.join(map(str, empty))}.")
        elif not self.candidates.words:
            notes.append("the frequent pairs do not chain into a word.")
        return tuple(notes)

    def to_json(self) -> dict[str, Any]:
        """Return what was found as plain JSON values."""
        decoded, pairs = self.decoded, self.question.pairs
        assert pairs is not None
        return {
            "plan": self.plan.id,
            "question": self.question.name,
            "length": pairs.length,
            "simulated": decoded is not None and decoded.simulated,
            **{name: getattr(decoded, name, None) for name in ("reports", "fdr", "level")},
            "pairs": [len(here) for here in self.pairs],
            "pairs_miss": self.miss,
            "candidates": len(self.candidates.words),
            "candidates_cut": self.candidates.cut,
            "found": len(self.all_words),
            "words": [
                {"word": text.value, "count": text.count, "sigma": text.sigma}
                | {"low": text.low, "high": text.high}
                for text in self.words
            ],
            "notes": list(self.notes),
        }


@takes(plan=Plan, tally=Tally)
def discover(
    plan: Plan,
    tally: Tally,
    *,
    question: str | None = None,
    top: int | None = None,
    fdr: float = 0.0001,
    level: float = 0.95,
    candidates: int = 5000,
    pairs: int = 200,
    miss: float = 0.001,
    false_words: float = 1e-6,
) -> Discovery:
    """Find frequent words in the reports of a survey that has a text question with pairs.

    Parameters
    ----------
    plan, tally
        The plan, and the tally of its reports. A plan with a crowd refuses fewer reports.
    question
        The name of the text question; needed only if several have pairs.
    top
        The maximum number of words to return.
    fdr, level
        The false-discovery rate and the level of the intervals, as in `decode`.
    candidates, pairs
        Limits: chains of pairs to decode, and pairs to keep at each position.
    miss
        The chance that any pair is taken for frequent that nobody has.
    false_words
        The target for the chance that any word is found that nobody has: observed, not proven.

    Examples
    --------
    >>> from shoal import plan as make_plan
    >>> from shoal.planning.text_size import discovery_survey
    >>> from shoal.lab.populations import simulate_texts
    >>> plan = make_plan(discovery_survey("words", 6), q="0.05")
    >>> tally = simulate_texts(plan, {"salmon": 40_000, "trout": 20_000, "eel": 9_000}, seed=1)
    >>> [(word.value, round(word.count, -3)) for word in discover(plan, tally).words]
    [('salmon', 40000.0), ('trout', 20000.0), ('eel', 9000.0)]
    """
    for name, value in (("candidates", candidates), ("pairs", pairs)):
        check_integer(name, value, lowest=1, highest=100_000)
    if top is not None:
        check_integer("top", top, lowest=1)
    for name, chance in (("miss", miss), ("false_words", false_words)):
        if not 0 < check_number(name, chance) < 1:
            raise InputError(f"{name} must be strictly between 0 and 1, got {name}={chance}.")
    text_question = find_text_question(plan.survey, question, pairs=True)
    estimate(plan, tally)  # refuses what cannot or must not be estimated from
    frequent = frequent_pairs(plan, tally, text_question, miss=miss, limit=pairs)
    chains = chain_pairs(frequent, candidates)
    words = [word for word in chains.words if word]
    decoded: DecodedTexts | None = None
    confirmed: tuple[DecodedText, ...] = ()
    if words:
        decoded = decode(plan, tally, words, question=text_question.name, fdr=fdr, level=level)
        confirmed = _confirmed(plan, tally, text_question, decoded, false_words / len(words))
    return Discovery(
        plan, text_question, frequent, chains, decoded, confirmed, top, miss, tally.note
    )


def _confirmed(
    plan: Plan, tally: Tally, question: Text, decoded: DecodedTexts, max_chance: float
) -> tuple[DecodedText, ...]:
    names = [text.value for text in decoded.discoveries]
    counts = [text.count for text in decoded.discoveries]
    chances = chances_of_nobody(plan, tally, question.name, names, counts)
    pairs = zip(decoded.discoveries, chances, strict=True)
    return tuple(text for text, chance in pairs if chance <= max_chance)


@dataclass(frozen=True)
class LetterPair:
    """A pair of letters at a position and the unbiased share of the words that have it."""

    position: int
    letters: str
    share: float


@dataclass(frozen=True)
class Chains:
    """Candidate words, those with the most frequent rarest pair first.

    `cut` is None if no chain was left out; else no word left out has all its pairs above this
    share.
    """

    words: tuple[str, ...]
    cut: float | None


def frequent_pairs(
    plan: Plan, tally: Tally, question: Text, *, miss: float, limit: int
) -> tuple[tuple[LetterPair, ...], ...]:
    """Return up to `limit` pairs that people have, at every position, by falling share.

    A pair that nobody has shows Bin(n, q) ones among the n reports of its position. One counts as
    frequent where P[its count or more] is below `miss` over the number of all pairs. So the chance
    that any pair is returned that nobody has is at most `miss` (theorem).
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
        frequent = frequent[np.argsort(-shares[frequent], kind="stable")][:limit]
        by_position.append(
            tuple(LetterPair(position, pairs.options[i], float(shares[i])) for i in frequent)
        )
    return tuple(by_position)


def chain_pairs(pairs: Sequence[Sequence[LetterPair]], limit: int) -> Chains:
    """Chain pairs that overlap into words; keep the `limit` whose rarest pair is most frequent.

    A word is at most as frequent as its rarest pair. Prefixes are ranked by the rarest pair of
    their best completion, so that keeping the best at each step loses none of the final ones.

    >>> first = [LetterPair(0, "ab", 0.3), LetterPair(0, "cb", 0.2)]
    >>> second = [LetterPair(1, "bd", 0.4), LetterPair(1, "be", 0.1)]
    >>> chain_pairs([first, second], 2)
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
        if len(longer) > limit:
            cut = max(cut or 0.0, longer[limit][0])
        chains = [(chain, share) for _, chain, share in longer[:limit]]
    ranked = sorted(chains, key=lambda entry: (-entry[1], entry[0]))
    return Chains(tuple(chain.rstrip(PADDING) for chain, _ in ranked), cut)


def _best_completions(pairs: Sequence[Sequence[LetterPair]]) -> list[dict[str, float]]:
    """Return, for every position and letter, the rarest pair of the best chain from there on."""
    best: list[dict[str, float]] = [{} for _ in range(len(pairs) + 1)]
    best[-1] = {pair.letters[1]: 1.0 for pair in pairs[-1]}
    for position in range(len(pairs) - 1, -1, -1):
        for pair in pairs[position]:
            first, second = pair.letters[0], pair.letters[1]
            through = min(pair.share, best[position + 1].get(second, 0.0))
            best[position][first] = max(best[position].get(first, 0.0), through)
    return best


Floats = NDArray[np.float64]


def chances_of_nobody(
    plan: Plan, tally: Tally, question: str, words: Sequence[str], counts: Sequence[float]
) -> Floats:
    """Return the approximate chance that a word nobody has shows as many people as each word.

    In each cohort the hash of such a word points at a uniform position, independent of everything
    counted. So the sum t of the counts at its positions has a known distribution, whatever the
    crowd's words are and however they collide: a few frequent ones can meet in a false one. With K
    its cumulants, the bound is the minimum over s of exp(K(s) - s t) (Chernoff).

    Status: *observed*; a theorem for a single word, if the hash is a random function. With several,
    the other words' fitted `counts` are subtracted first, and they depend on this word's hash.
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
