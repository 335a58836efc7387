"""How many bits, hashes and cohorts a text question should have.

With N people, m bits, h hashes and c cohorts the count of a text has, to first order, the variance

    sigma^2 = N p q / (h (p - q)^2)     the flips, averaged over h bits
            + N / m                     others who happen to set the same bit
            + Q / (m c)                 texts not found fall on some bits more than on others

where Q is the sum of the squared counts of the texts that are not found, taken from a crowd whose
texts fall off like 1 / rank over the dictionary (observed of words; your texts may differ). More
hashes need a larger q, because two texts then differ in 2h bits; more bits only lengthen a report.

Whole reports: one hash is nearly always best, and cohorts cost only work, since a cohort is drawn
afresh for each report. Counts: a bit's count hides among the reports of its cohort only, so q grows
with the cohorts, and a few are best. Fewer than `_FEWEST` are not proposed: then one popular text
that is no candidate spoils every candidate that it meets on a bit (observed).
"""

from __future__ import annotations

import math
import string
from dataclasses import dataclass
from typing import Any

from scipy.special import ndtri

from shoal.errors import InputError, PrivacyRefusal
from shoal.planning.bounds import bound_of
from shoal.planning.plan import plan
from shoal.protocol.plan import MAX_CROWD, VIEWS, View
from shoal.protocol.survey import Survey, Text
from shoal.protocol.text_hash import Pairs
from shoal.support.checks import check_decimal, check_integer, check_number, check_one_of

_RECALL = 0.95
_NEAR_BEST = 1.05
"""The shortest report within this factor of the best sigma is proposed."""

_FEWEST: dict[View, int] = {"reports": 16, "counts": 4}
_COHORTS = 64


@dataclass(frozen=True)
class Proposal:
    """A size for a text question and what to expect of it.

    `sigma` is the predicted standard deviation of a count, and `detectable` the smallest count that
    is found with a probability of 0.95.
    """

    bits: int
    hashes: int
    cohorts: int
    q: float
    sigma: float
    detectable: int

    @property
    def report_bytes(self) -> int:
        """How many bytes the bits of a report take."""
        return -(-self.bits // 8)

    def question(self, name: str) -> Text:
        """Return the text question of this size."""
        return Text(name, bits=self.bits, hashes=self.hashes, cohorts=self.cohorts)


def predicted_sigma(
    crowd_size: int, q: float, *, bits: int, hashes: int, cohorts: int, unfound: float = 0.0
) -> float:
    """Return the predicted standard deviation of a count; `unfound` is Q of the module.

    >>> round(predicted_sigma(1_000_000, 0.0042, bits=256, hashes=1, cohorts=64), 1)
    90.3
    """
    flips = crowd_size * q * (1 - q) / (hashes * (1 - 2 * q) ** 2)
    return math.sqrt(flips + crowd_size / bits + unfound / (bits * cohorts))


def suggest_text_size(
    dictionary_size: int,
    crowd_size: int,
    epsilon: object,
    delta: object,
    *,
    view: View = "reports",
    fdr: float = 0.05,
    max_bits: int = 1024,
    max_cohorts: int = 256,
) -> Proposal:
    """Propose the size of a text question: nearly the smallest predicted sigma, in few bits.

    Parameters
    ----------
    dictionary_size
        How many candidates there will be.
    crowd_size, epsilon, delta
        The proven promise that the plan shall keep.
    view
        What the promise is about: whole reports, or how many reports of a cohort set each bit.
    fdr
        The rate of false discoveries at which texts will be looked for.
    max_bits
        The longest report, in bits; at least 16.
    max_cohorts
        The most cohorts; hashing a candidate takes about a microsecond for each.

    >>> proposal = suggest_text_size(100_000, 1_000_000, 2, "1e-6", max_bits=256)
    >>> proposal.bits, proposal.hashes, proposal.cohorts, proposal.detectable
    (256, 1, 128, 529)
    >>> proposal = suggest_text_size(1000, 20_000, 2, "1e-6", view="counts", max_bits=256)
    >>> proposal.cohorts < 16, proposal.detectable < 129
    (True, True)
    """
    check_integer("dictionary_size", dictionary_size, lowest=1)
    check_integer("crowd_size", crowd_size, lowest=1, highest=MAX_CROWD)
    check_integer("max_bits", max_bits, lowest=16, highest=65_536)
    check_integer("max_cohorts", max_cohorts, lowest=1, highest=65_535)
    if not 0 < check_number("fdr", fdr) < 1:
        raise InputError(f"fdr must be strictly between 0 and 1, got fdr={fdr}.")
    check_one_of("view", view, VIEWS)
    wanted = (
        check_decimal("epsilon", epsilon, above=0),
        check_decimal("delta", delta, above=0, below=1),
    )
    lengths = [1 << k for k in range(4, 17) if 1 << k <= max_bits]
    fewest = min(_FEWEST[view], max_cohorts)
    counts = [fewest << k for k in range(17) if fewest << k <= max_cohorts]

    def rough(hashes: int, cohorts: int) -> float:
        # What is needed hardly depends on the bits, so one length stands for all of them.
        question = Text("text", bits=min(64, lengths[-1]), hashes=hashes, cohorts=cohorts)
        bound = bound_of(Survey("proposal", (question,)), view)
        return bound.q(crowd_size, *map(float, wanted), rough=True)

    def expected(bits: int, hashes: int, cohorts: int, q: float) -> Proposal:
        return _expected(dictionary_size, crowd_size, fdr, q, bits, hashes, cohorts)

    tried = []
    for hashes in (1, 2, 3):
        # whole reports need the same flips whatever the cohorts; counts need more with each
        for cohorts in counts if view == "counts" else counts[-1:]:
            q = rough(hashes, cohorts)
            if q >= 0.5:
                break
            tried.append(expected(lengths[-1], hashes, cohorts, q))
            if len(tried) > 1 and tried[-2].hashes == hashes and tried[-1].sigma > tried[-2].sigma:
                break
    if not tried:
        raise PrivacyRefusal(f"a crowd of {crowd_size} is too small for text at epsilon {epsilon}.")
    best = min(tried, key=lambda proposal: proposal.sigma)
    survey = Survey("proposal", (best.question("text"),))
    wish: Any = {"crowd_size": crowd_size, "epsilon": epsilon, "delta": delta, "view": view}
    q = float(plan(survey, **wish, accept_weak_promise=True).q)
    cohorts_of = [best.cohorts] if view == "counts" else counts
    sizes = [(bits, cohorts) for bits in lengths for cohorts in cohorts_of]
    within = [expected(bits, best.hashes, cohorts, q) for bits, cohorts in sizes]
    return next(one for one in within if one.sigma <= _NEAR_BEST * best.sigma)


def _expected(
    dictionary: int, crowd: int, fdr: float, q: float, bits: int, hashes: int, cohorts: int
) -> Proposal:
    """Return what to expect where the k-th text of the dictionary has a share of about 1 / k."""
    harmonic = math.log(dictionary) + 0.5772156649 + 0.5 / dictionary
    most = crowd / harmonic
    detected = 1.0
    for _ in range(100):  # what is found depends on sigma, and sigma on what is not found
        rest = max(1 / (detected + 0.5) - 1 / (dictionary + 0.5), 0.0)
        sigma = predicted_sigma(
            crowd, q, bits=bits, hashes=hashes, cohorts=cohorts, unfound=most**2 * rest
        )
        cutoff = -float(ndtri(fdr * max(detected, 1.0) / dictionary))
        detectable = max((cutoff + float(ndtri(_RECALL))) * sigma, 1.0)
        detected = (detected + min(most / detectable, dictionary)) / 2
    return Proposal(bits, hashes, cohorts, q, sigma, math.ceil(detectable))


def discovery_survey(
    name: str,
    length: int,
    *,
    alphabet: str = string.ascii_lowercase,
    question: str = "word",
    bits: int = 1024,
    hashes: int = 1,
    cohorts: int | None = None,
) -> Survey:
    """Return a survey whose frequent words can be found without a list of candidates.

    Parameters
    ----------
    name
        The name of the survey.
    length
        The longest word that can be discovered, 2 to 64 letters.
    alphabet
        The letters of the words, each once; ``_`` is reserved for padding.
    question
        The name of the question for the word.
    bits, hashes, cohorts
        The word's Bloom filter. With one hash two words differ in the fewest bits, so it needs the
        least noise; more bits only make a report longer. Cohorts are a multiple of ``length - 1``,
        by default about 64.

    >>> survey = discovery_survey("words", 10)
    >>> [part.bits for part in survey["word"].parts]
    [1024, 704]
    >>> survey.differing_bits, survey.cohorts
    (4, 63)
    """
    pairs = Pairs(length, alphabet)
    if cohorts is None:
        cohorts = pairs.positions * max(1, round(_COHORTS / pairs.positions))
    return Survey(name, (Text(question, bits, hashes, cohorts, pairs),))
