"""The flip probability q as an exact fraction, and the local epsilon of reports.

*Local epsilon*: what one person's reports reveal to an observer who sees them all and knows who
sent them. Without memory each report costs d ln((1-q)/q), where d is the number of bits in which
two answers can differ, and reports add up (BITVEC 3.1). With memory all reports of one answer come
from one permanent vector. The worst outcome of n of them is that all agree in a bit, so they cost

    d ln( (p1 p2^n + q1 q2^n) / (q1 p2^n + p1 q2^n) ),      p = 1 - q,

which is d ln((1-q)/q) at n = 1 and stays below d ln((1-q1)/q1) for every n; distinct answers add
up. Where plans share a permanent vector and have different q2, a product over the reports replaces
each power. That is the cost of *what* was answered. Only the fresh flips hide *when* the answer
changed: two reports of one permanent vector are alike, two reports of different ones are not.
Hiding that too costs at most d ln((1-q)/q) for the first report and L ln((1-q2)/q2) for each later
one, where L is the number of bits of a report.

Local epsilons are computed here with decimals of 80 digits, rounded up;
`shoal.theory.randomized_response` has the same formula in floats, for searches and certificates.
"""

from __future__ import annotations

import decimal
import fractions
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shoal.errors import InputError
from shoal.support.checks import check_integer

if TYPE_CHECKING:
    from shoal.protocol.plan import Memory


MAX_DIGITS = 52
"""The numerator must stay an exact integer in JSON."""

USUAL_DIGITS = 16
Q_PARTS, SIGMA_COST = 2048, 0.01
"""Rounding up may raise q by 1/2048 and sigma by 1 %; small q, and q near 1/2, take more digits."""


@dataclass(frozen=True)
class FlipProbability:
    """q = numerator / 2**digits in lowest terms, 0 < q <= 1/2.

    Planning rounds q up, which only adds noise; estimating, auditing and publishing use the same
    fraction, so the promise is about the distribution that is drawn.

    >>> q = FlipProbability.at_least("0.351")
    >>> q, float(q)
    (FlipProbability(numerator=5751, digits=14), 0.35101318359375)
    >>> FlipProbability.at_least("0.25")
    FlipProbability(numerator=1, digits=2)
    """

    numerator: int
    digits: int

    def __post_init__(self) -> None:
        digits = check_integer("digits of q", self.digits, lowest=1, highest=MAX_DIGITS)
        numerator = check_integer("numerator of q", self.numerator, lowest=1, highest=2**digits)
        object.__setattr__(self, "digits", digits)
        object.__setattr__(self, "numerator", numerator)
        _check_range(fractions.Fraction(numerator, 2**digits), f"{numerator}/2^{digits}")
        if numerator % 2 == 0:
            raise InputError(f"q must be in lowest terms, got {numerator}/2^{digits}.")

    @classmethod
    def of_fraction(cls, value: fractions.Fraction) -> FlipProbability:
        """Take a fraction whose denominator is a power of two, exactly."""
        digits = value.denominator.bit_length() - 1
        if value.denominator != 1 << digits:
            raise InputError(f"q must be a fraction of a power of two, got {value}.")
        return cls(value.numerator, digits)

    @classmethod
    def at_least(cls, value: object) -> FlipProbability:
        """Round a wanted q up to the digits the sampler draws.

        16 binary digits, or as many more as keep q within 1/2048 and sigma within 1 % of what the
        wanted q would give. Each digit costs one random bit per bit of a report.
        """
        if isinstance(value, FlipProbability):
            return value
        wanted = exact_fraction(value)
        for digits in range(USUAL_DIGITS, MAX_DIGITS + 1):
            rounded = fractions.Fraction(math.ceil(wanted * 2**digits), 2**digits)
            fair = Q_PARTS * (rounded - wanted) <= wanted
            if fair and _spread(rounded) <= (1 + SIGMA_COST) * _spread(wanted):
                break
        return cls.of_fraction(rounded)

    @property
    def fraction(self) -> fractions.Fraction:
        """The exact value."""
        return fractions.Fraction(self.numerator, 2**self.digits)

    @property
    def is_blind(self) -> bool:
        """Whether q is 1/2, where a report carries no information."""
        return 2 * self.fraction == 1

    def binary_digits(self) -> list[int]:
        """Return the binary digits after the point, least significant first."""
        return [self.numerator >> j & 1 for j in range(self.digits)]

    def __float__(self) -> float:
        return self.numerator / (1 << self.digits)  # exact: fewer than 53 digits

    def to_json(self) -> list[int]:
        """Return [numerator, digits]."""
        return [self.numerator, self.digits]

    def __str__(self) -> str:
        return f"{float(self):.6g} = {self.numerator}/2^{self.digits}"


def exact_fraction(value: object) -> fractions.Fraction:
    """Return a wanted q as the exact decimal that was written."""
    try:
        if isinstance(value, fractions.Fraction):
            number = value
        elif isinstance(value, bool) or not isinstance(value, (int, float, str, decimal.Decimal)):
            raise decimal.InvalidOperation
        else:
            written = decimal.Decimal(repr(value) if isinstance(value, float) else str(value))
            if written.is_finite() and abs(written.adjusted()) > 400:
                raise decimal.InvalidOperation
            number = fractions.Fraction(written)
    except (decimal.InvalidOperation, ValueError, OverflowError):
        raise InputError(f"q must be a number in (0, 1/2], got q={value!r}.") from None
    _check_range(number, str(value))
    return number


def _check_range(number: fractions.Fraction, shown: str) -> None:
    if number <= 0:
        raise InputError(
            f"q must be in (0, 1/2], got q={shown}. With q = 0 reports are not randomized."
        )
    if 2 * number > 1:
        raise InputError(f"q must be in (0, 1/2], got q={shown}. If you have RAPPOR's f, q = f/2.")


def _spread(q: fractions.Fraction) -> float:
    """Return sigma / sqrt(N) of a count, SDP 4: sqrt(pq) / (p - q)."""
    value = float(q)
    return math.inf if 2 * q >= 1 else math.sqrt(value * (1 - value)) / float(1 - 2 * q)


EXACT = 50
"""Decimal places of a local epsilon that is compared, not shown."""

_DIGITS = 80
_GUARD = "1e-60"
_PLACES = 6


def local_epsilon(
    differing_bits: int, q: FlipProbability, places: int = _PLACES
) -> decimal.Decimal:
    """Return d ln((1-q)/q), rounded up to some decimal places, at most 50 (BITVEC 3.1)."""
    with decimal.localcontext(decimal.Context(prec=_DIGITS)):
        return _up(differing_bits * ((1 - _decimal(q)) / _decimal(q)).ln(), places)


def repeated_epsilon(differing_bits: int, memory: Memory, reports: int) -> decimal.Decimal:
    """Return what `reports` reports of one answer reveal together, rounded up."""
    return vector_epsilon(differing_bits, memory.q1, [(memory.q2, reports)])


def vector_epsilon(
    differing_bits: int, q1: FlipProbability, uses: Iterable[tuple[FlipProbability, int]]
) -> decimal.Decimal:
    """Return what all reports of one permanent vector reveal together, rounded up.

    `uses` are pairs of a q2 and how many reports were made with it.
    """
    with decimal.localcontext(decimal.Context(prec=_DIGITS)):
        permanent, faded = _decimal(q1), decimal.Decimal(1)
        for q2, reports in uses:
            faded *= (_decimal(q2) / (1 - _decimal(q2))) ** reports
        ratio = (1 - permanent + permanent * faded) / (permanent + (1 - permanent) * faded)
        return _up(differing_bits * ratio.ln())


def changing_epsilon(
    differing_bits: int, bits: int, memory: Memory, reports: int
) -> decimal.Decimal:
    """Return what `reports` reports reveal about the answers and when they changed, rounded up.

    The bits of the first one are flipped with q. Given what was sent before, each bit of a later
    one is one or zero with probability at least q2 each, whatever the answers were; so the bound
    holds. It need not be attained.
    """
    if reports == 0:
        return decimal.Decimal(0)
    later = (reports - 1) * local_epsilon(bits, memory.q2)
    return local_epsilon(differing_bits, memory.q) + later


def _decimal(q: FlipProbability) -> decimal.Decimal:
    return decimal.Decimal(q.numerator) / decimal.Decimal(2**q.digits)


def _up(value: decimal.Decimal, places: int = _PLACES) -> decimal.Decimal:
    if not value:
        return decimal.Decimal(0)
    # The guard is far larger than the rounding of 80 digits, far smaller than any place.
    guarded, last = value + decimal.Decimal(_GUARD), decimal.Decimal(1).scaleb(-places)
    return guarded.quantize(last, rounding=decimal.ROUND_CEILING)
