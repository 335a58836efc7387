"""Every number the papers print, computed again: `shoal paper`.

The modules `sdp` with `sdp_ratio` (SDP 1.3 to 3.3 and 6), `kr` and `lec`, which has BITVEC too,
recompute the documents; `figures` draws the figures. The printed text is data, and verdicts are
computed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_HALF_EVEN, Decimal
from fractions import Fraction
from typing import Any, Literal, NamedTuple

from shoal.support.rounding import round_down, text_up
from shoal.theory.brackets import Bracket
from shoal.theory.enumeration import Vector, channel, histogram_pmf

Verdict = Literal["agrees", "misprint", "false claim"]


@dataclass(frozen=True)
class PaperFinding:
    """A statement of a document, what it should say, and whether the two agree.

    `source` is the short name of the document: SDP, KR, LEC or BITVEC.
    """

    source: str
    where: str
    printed: str
    computed: str
    verdict: Verdict
    why: str


Findings = Iterator[PaperFinding]


def findings() -> Findings:
    """Yield the findings one by one, as they are computed."""
    from shoal.lab.papers import kr, lec, sdp

    for document in (sdp, kr, lec):
        yield from document.findings()


class Case(NamedTuple):
    """One instance of a statement: where it is, and what its two sides come to."""

    at: object
    left: Any
    right: Any


def equal(left: Any, right: Any) -> bool:
    """Whether two sides are the same: exactly for fractions, to ten digits for floats.

    >>> equal(Fraction(1, 3), Fraction(2, 6)), equal(0.1 + 0.2, 0.3), equal(0.1, 0.2)
    (True, True, False)
    """
    if isinstance(left, float) or isinstance(right, float):
        return bool(abs(left - right) <= 1e-10 * max(1.0, abs(left), abs(right)))
    return bool(left == right)


def at_most(left: Any, right: Any) -> bool:
    """Whether the left side is at most the right one, up to the rounding of floats.

    >>> at_most(0.1 + 0.2, 0.3), at_most(Fraction(1, 2), Fraction(1, 3))
    (True, False)
    """
    return bool(left <= right) or equal(left, right)


def show(value: Any, digits: int = 3) -> str:
    """Write a number for people; a bracket as one number in the digits that its ends share.

    >>> show(0.196343), show(1.6e-13), show(189678.4)
    ('0.196', '1.6e-13', '190,000')
    >>> show(Bracket(0.0426, 0.0428)), show(Bracket(0.0426, 0.0528))
    ('0.043', '[0.0426, 0.0528]')
    """
    if isinstance(value, Bracket):
        for fewer in range(digits, 1, -1):
            low, high = show(value.low, fewer), show(value.high, fewer)
            if low == high:
                return low
        return f"[{round_down(value.low, digits):g}, {text_up(value.high, digits)}]"
    if isinstance(value, Fraction | float):
        rounded = float(f"{float(value):.{digits}g}")
        return f"{rounded:,.0f}" if abs(rounded) >= 1000 else f"{rounded:.{digits}g}"
    return str(value)


def number(
    source: str,
    where: str,
    printed: str,
    computed: float | Bracket,
    why: Callable[[], str] | None = None,
    *,
    digits: str | None = None,
    up: bool = False,
    unit: str = "",
) -> PaperFinding:
    """Compare a printed number with its recomputation, in the digits it is printed in.

    Both ends of a bracket must give the same verdict. `why` explains a difference, `digits` is the
    decimal where `printed` has words ("2E+5" for 200K), and `up` also accepts rounding up, as for a
    q that must satisfy a condition.

    >>> number("SDP", "4.3", "0.465", 0.46540).verdict
    'agrees'
    """
    target = Decimal(digits or printed)
    ends = computed if isinstance(computed, Bracket) else Bracket(computed, computed)
    verdicts = {_rounds_to(end, target, up) for end in ends}
    if len(verdicts) == 2 or (not any(verdicts) and ends.low < target < ends.high):
        raise ArithmeticError(f"{computed} is too wide to be compared with {printed}.")
    text = show(computed, 3 if isinstance(computed, Bracket) else 5) + unit
    if verdicts == {True}:
        nearest = all(_rounds_to(end, target, up=False) for end in ends)
        how = f"{text} rounds to it." if nearest else f"{text} rounded up."
        return PaperFinding(source, where, printed, text, "agrees", how)
    reason = why() if why else f"it is {computed}."
    return PaperFinding(source, where, printed, text, "misprint", reason)


def claim(
    source: str,
    where: str,
    printed: str,
    cases: Iterable[Case],
    how: str = "in every case tried.",
    *,
    holds: Callable[[Any, Any], bool] = equal,
    meant: Iterable[Case] = (),
    instead: str = "",
    why: Callable[[Case], str] | None = None,
) -> PaperFinding:
    """Judge a statement by whether its cases hold.

    It is a misprint if the cases `meant` hold, which are those of the repaired statement `instead`,
    and else a false claim. `how` says how the cases were computed, and `why` explains the worst
    broken one.

    >>> claim("KR", "x", "2 <= 1", [Case("one", 2, 1)], "by hand.", holds=at_most).verdict
    'false claim'
    """
    tried = list(cases)
    broken = [case for case in tried if not holds(case.left, case.right)]
    if not tried:
        raise ValueError(f"{source} {where}: a claim needs at least one case.")
    if not broken:
        text = f"holds in {len(tried)} {'cases' if len(tried) > 1 else 'case'}"
        return PaperFinding(source, where, printed, text, "agrees", how)
    worst = max(broken, key=_size)
    left, right = show(worst.left), show(worst.right)
    text = f"{left} > {right}" if holds is at_most else f"{right}, not {left}"
    reason = why(worst) if why else f"{worst.at}: {text}."
    repaired = list(meant)
    if repaired and all(holds(case.left, case.right) for case in repaired):
        return PaperFinding(source, where, printed, instead or text, "misprint", reason)
    return PaperFinding(source, where, printed, text, "false claim", reason)


def _rounds_to(value: float, target: Decimal, up: bool) -> bool:
    ways = [ROUND_HALF_EVEN, ROUND_CEILING] if up else [ROUND_HALF_EVEN]
    return any(Decimal(value).quantize(target, way) == target for way in ways)


def _size(case: Case) -> float:
    """How badly a case is broken, where that is a number."""
    try:
        return abs(float(case.left) - float(case.right)) / (abs(float(case.right)) or 1.0)
    except (TypeError, ValueError):
        return 0.0


def largest_local_ratio(vectors: Iterable[Vector], q: Fraction) -> Fraction:
    """Return the largest ratio of the chances of a report of two originals."""
    pmfs = [channel(vector, q) for vector in vectors]
    pairs = itertools.permutations(pmfs, 2)
    return max(s / t for one, other in pairs for s, t in zip(one, other, strict=True))


def count_pmf(people: int, ones: int, q: Fraction) -> list[Fraction]:
    """Return P[A_n(m) = s] for s = 0..n, from the distribution of all histograms of one bit."""
    if people == 0:
        return [Fraction(1)]
    pmf = histogram_pmf([(1,)] * ones + [(0,)] * (people - ones), q)
    return [pmf[(people - s, s)] for s in range(people + 1)]


def estimate_moments(
    people: int, ones: int, q: Fraction, assumed: Fraction | None = None
) -> tuple[Fraction, Fraction]:
    """Return mean and variance of the estimated count, which may assume another q."""
    own = q if assumed is None else assumed
    guesses = [(s - people * own) / (1 - 2 * own) for s in range(people + 1)]
    pairs = list(zip(count_pmf(people, ones, q), guesses, strict=True))
    mean = sum((chance * guess for chance, guess in pairs), Fraction(0))
    return mean, sum((chance * (guess - mean) ** 2 for chance, guess in pairs), Fraction(0))
