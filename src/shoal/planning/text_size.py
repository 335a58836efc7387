r"""How many bits, hashes and cohorts a text question should have.

With N people, m bits, h hashes and c cohorts the count of a text has, to first order, the variance

    sigma^2 = N p q / (h (p - q)^2)     the flips, averaged over h bits
            + N / m                     others who happen to set the same bit
            + Q / (m c)                 texts not found fall on some bits more than on others

where Q is the sum of the squared counts of the texts that are not found. More hashes need a larger
q, because two texts then differ in 2h bits: one hash is nearly always best. More bits cost only
the length of a report. More cohorts cost nothing but work, since a cohort is drawn afresh for each
report. Q is taken from a crowd whose texts fall off like 1 / rank over the dictionary (observed of
words; your texts may differ).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.special import ndtri

from shoal.agreement.plan import LARGEST_CROWD
from shoal.agreement.survey import Survey, Text
from shoal.errors import InputError, PrivacyRefusal
from shoal.planning.plan import plan
from shoal.support.checks import check_integer, check_number

__all__ = ["Proposal", "predicted_sigma", "propose"]

RECALL = 0.95
_NEAR_BEST = 1.05
"""The shortest report within this factor of the best sigma is proposed."""


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


def propose(
    dictionary_size: int,
    crowd_size: int,
    epsilon: object,
    delta: object,
    *,
    fdr: float = 0.05,
    most_bits: int = 1024,
    most_cohorts: int = 256,
) -> Proposal:
    """Propose the size of a text question: nearly the smallest predicted sigma, in few bits.

    Parameters
    ----------
    dictionary_size
        How many candidates there will be.
    crowd_size, epsilon, delta
        The proven promise that the plan shall keep.
    fdr
        The rate of false discoveries at which texts will be looked for.
    most_bits
        The longest report, in bits; at least 16.
    most_cohorts
        The most cohorts; hashing a candidate takes about a microsecond for each.

    Examples
    --------
    >>> proposal = propose(100_000, 1_000_000, 2, "1e-6", most_bits=256)
    >>> proposal.bits, proposal.hashes, proposal.cohorts, proposal.detectable
    (256, 1, 128, 529)
    """
    check_integer("dictionary_size", dictionary_size, lowest=1)
    check_integer("crowd_size", crowd_size, lowest=1, highest=LARGEST_CROWD)
    check_integer("most_bits", most_bits, lowest=16, highest=65_536)
    check_integer("most_cohorts", most_cohorts, lowest=1, highest=65_535)
    if not 0 < check_number("fdr", fdr) < 1:
        raise InputError(f"fdr must be strictly between 0 and 1, got fdr={fdr}.")
    lengths = [1 << k for k in range(4, 17) if 1 << k <= most_bits]
    counts = [1 << k for k in range(4, 17) if 1 << k <= most_cohorts] or [most_cohorts]

    def expected(bits: int, hashes: int, cohorts: int, q: float) -> Proposal:
        return _expected(dictionary_size, crowd_size, fdr, q, bits, hashes, cohorts)

    # The blanket of "at most h of m" hardly depends on m, so one length stands for all of them.
    flips = {h: _q(crowd_size, epsilon, delta, min(64, lengths[-1]), h) for h in (1, 2, 3)}
    tried = [expected(lengths[-1], h, counts[-1], q) for h, q in flips.items() if q < 0.5]
    if not tried:
        raise PrivacyRefusal(f"a crowd of {crowd_size} is too small for text at epsilon {epsilon}.")
    best = min(tried, key=lambda proposal: proposal.sigma)
    q = _q(crowd_size, epsilon, delta, best.bits, best.hashes)
    sizes = [(bits, cohorts) for bits in lengths for cohorts in counts]
    within = [expected(bits, best.hashes, cohorts, q) for bits, cohorts in sizes]
    return next(one for one in within if one.sigma <= _NEAR_BEST * best.sigma)


def _q(crowd_size: int, epsilon: object, delta: object, bits: int, hashes: int) -> float:
    """Return the flip probability that a text question alone needs, 1/2 if there is none."""
    survey = Survey("proposal", (Text("text", bits=bits, hashes=hashes, cohorts=1),))
    try:
        return float(plan(survey, crowd_size=crowd_size, epsilon=epsilon, delta=delta).q)
    except PrivacyRefusal:
        return 0.5


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
        detectable = max((cutoff + float(ndtri(RECALL))) * sigma, 1.0)
        detected = (detected + min(most / detectable, dictionary)) / 2
    return Proposal(bits, hashes, cohorts, q, sigma, math.ceil(detectable))
