"""A survey and a wish to a Plan: how much each device must lie."""

from __future__ import annotations

from decimal import ROUND_CEILING, Context, Decimal, localcontext
from fractions import Fraction

from shoal._check import check_decimal
from shoal.errors import InputError
from shoal.lies import LieProbability
from shoal.plans import Plan, Promise, PromiseKind
from shoal.survey import Survey

__all__ = ["plan"]

_FINE = Context(prec=60)


def plan(
    survey: Survey,
    *,
    q: object = None,
    crowd_size: int | None = None,
    epsilon: object = None,
    promise: PromiseKind | None = None,
) -> Plan:
    """Choose the lie probability for a promise, or take a given one and say what it promises.

    Parameters
    ----------
    survey
        What is asked.
    q
        A given lie probability; it is rounded up to the digits that the sampler draws.
    crowd_size
        How many reports are released together.
    epsilon
        The privacy wanted; a decimal, kept as it was written.
    promise
        ``"local"``: holds for each report by itself, with no crowd and no trust in anybody.

    Examples
    --------
    >>> from shoal import Flags
    >>> survey = Survey("browser", (Flags("features", ("sync", "vpn")),))
    >>> float(plan(survey, epsilon="2.2", promise="local").q)
    0.2497406005859375
    >>> plan(survey, q="0.25").promise
    Promise(kind='local', epsilon='2.1973', delta=None, eta=None)
    """
    if promise not in (None, "local"):
        raise InputError(f"promise must be local, got {promise!r}.")
    if q is not None:
        if epsilon is not None:
            raise InputError("give q or epsilon, not both.")
        lie = LieProbability.at_least(q)
        return Plan(survey, lie, Promise("local", local_epsilon(survey, lie)), crowd_size)
    if epsilon is None:
        raise InputError("give q, or promise local with the epsilon you want.")
    wish = check_decimal("epsilon", epsilon, above=0)
    return Plan(survey, _local_q(survey, Decimal(wish)), Promise("local", wish), crowd_size)


def local_epsilon(survey: Survey, q: LieProbability, places: int = 4) -> str:
    """Return the local epsilon, differing bits times ln(p/q), rounded up (BITVEC 3.1)."""
    exact = _local_epsilon(survey, q)
    return f"{exact.quantize(Decimal(1).scaleb(-places), rounding=ROUND_CEILING):f}"


def _local_epsilon(survey: Survey, q: LieProbability) -> Decimal:
    with localcontext(_FINE):
        odds = Decimal(2**q.digits - q.numerator) / Decimal(q.numerator)
        return survey.differing_bits * odds.ln()


def _local_q(survey: Survey, epsilon: Decimal) -> LieProbability:
    """Return the smallest lie probability whose local epsilon is at most `epsilon` (SDP 4.2)."""
    with localcontext(_FINE):
        if epsilon / survey.differing_bits > 100:
            raise InputError(f"epsilon={epsilon} asks for no privacy at all; ask for less.")
        wanted = 1 / (1 + (epsilon / survey.differing_bits).exp())
    q = LieProbability.at_least(Fraction(wanted))
    # The wanted q is itself rounded, in the 60th digit; the check is what counts.
    while _local_epsilon(survey, q) > epsilon:
        q = LieProbability.of_fraction(q.fraction + Fraction(1, 2**32))
    return q
