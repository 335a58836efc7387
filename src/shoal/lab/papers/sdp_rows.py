"""SDP section 3.3: the six rows of q and of the mass beyond lambda."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from typing import NamedTuple

from shoal.lab.papers._finding import Case, Finding, claim, number, show
from shoal.theory.brackets import Bracket
from shoal.theory.calibration import smallest
from shoal.theory.homogeneous import eta
from shoal.theory.sufficient import three_sigma_q

__all__ = ["BITS", "ROWS", "Row", "crowds_with", "findings", "mass_beyond", "middle", "roundest"]

BITS = 5


class Row(NamedTuple):
    """One line of SDP 3.3 as it is printed."""

    lam: str
    epsilon: float
    crowd: int
    q: str
    mass: str

    @property
    def where(self) -> str:
        """The place in the paper."""
        return f"3.3, lambda = {self.lam}, N = {self.crowd}"


ROWS = (
    Row("2", math.log(2), 1000, "0.2446", "0.006"),
    Row("2", math.log(2), 3000, "0.2109", "0.0048"),
    Row("2", math.log(2), 5000, "0.1778", "0.0045"),
    Row("e^2", 2.0, 1000, "0.1692", "0.0037"),
    Row("e^2", 2.0, 3000, "0.1424", "0.0062"),
    Row("e^2", 2.0, 5000, "0.1310", "0.0074"),
)


def findings() -> Iterator[Finding]:
    """Recompute what SDP 3.3 prints."""
    yield number(
        "SDP",
        "3.3, lambda",
        "e^0.693 = 2",
        math.exp(0.693),
        lambda: f"e^0.693 is {math.exp(0.693)}.",
        digits="2",
    )
    for row in ROWS:
        yield from _row(row)
    yield _noise_falls()
    yield _rest_is_negligible()


@functools.cache
def mass_beyond(bits: int, crowd: int, q: float, epsilon: float) -> Bracket:
    """Bracket P[R > lambda] around SDP's crowd; the high end holds for P[R >= lambda] too."""
    return eta((bits, 0, 0), crowd, q, epsilon)


def middle(bracket: Bracket) -> float:
    """Return the middle of a bracket."""
    return 0.5 * (bracket.low + bracket.high)


def _row(row: Row) -> Iterator[Finding]:
    rule = three_sigma_q(BITS, row.crowd, row.epsilon)
    belongs = roundest(crowds_with(row.q, row.epsilon))

    def other_crowd() -> str:
        return (
            f"(3.12) has the solution {row.q} for N = {belongs}; for N = {row.crowd} it is"
            f" {show(rule, 4)}."
        )

    noise = number("SDP", row.where, f"q = {row.q}", rule, other_crowd, digits=row.q, up=True)
    yield noise
    mass = mass_beyond(BITS, row.crowd, float(row.q), row.epsilon)
    there = mass_beyond(BITS, row.crowd, rule, row.epsilon)

    def off() -> str:
        share = middle(mass) / float(row.mass)
        draws = middle(mass) * (1.0 - middle(mass)) / (middle(mass) - float(row.mass)) ** 2
        exact = f"the exact mass at q = {row.q} is {show(share, 2)} times the printed one"
        if noise.verdict == "agrees":
            return f"{exact}; a simulation of about {show(draws, 1)} draws can be off by that much."
        right = mass_beyond(BITS, belongs, float(row.q), row.epsilon)
        return (
            f"{exact}; at (3.12)'s q = {show(rule, 4)} it is {show(middle(there), 2)}, and for the"
            f" N = {belongs} that {row.q} belongs to {show(middle(right), 2)}."
        )

    place = f"{row.where}, P[R >= lambda]"
    yield number("SDP", place, row.mass, mass, off)


def crowds_with(q: str, epsilon: float) -> range:
    """Crowd sizes for which (3.12) with L = 5 has a solution that rounds to the printed q.

    >>> 10_000 in crowds_with("0.1778", math.log(2))
    True
    """
    half = Decimal(1).scaleb(Decimal(q).as_tuple().exponent) / 2  # type: ignore[arg-type]
    top, bottom = float(Decimal(q) + half), float(Decimal(q) - half)
    first = _first(lambda crowd: three_sigma_q(BITS, crowd, epsilon) <= top)
    return range(first, _first(lambda crowd: three_sigma_q(BITS, crowd, epsilon) < bottom))


def _first(passes: Callable[[int], bool]) -> int:
    """Smallest integer from 101 on that passes, if all later ones do."""
    return smallest(passes, 101, 10**12, start=200, step=200)


def roundest(numbers: range) -> int:
    """Return the number of the range with the most zeros at its end.

    >>> roundest(range(9_950, 10_020))
    10000
    """
    return max(numbers, key=lambda n: (len(str(n)) - len(str(n).rstrip("0")), -n))


def _noise_falls() -> Finding:
    crowds = (1000, 3000, 5000, 10_000, 100_000, 1_000_000)
    cases = [
        Case(f"N = {more}", three_sigma_q(BITS, more, epsilon), three_sigma_q(BITS, less, epsilon))
        for epsilon in (math.log(2), 2.0)
        for less, more in itertools.pairwise(crowds)
    ]
    how = "(3.12) solved for six crowds and both lambda."
    return claim("SDP", "1.2", "a larger dataset requires less noise", cases, how)


def _rest_is_negligible() -> Finding:
    """Compare the mass beyond mu + 3 sigma with one in N, the usual meaning of negligible."""
    cells = [(BITS, row.crowd, row.epsilon, row.lam) for row in ROWS] + [
        (40, 10_000_000, 2.0, "e^2")
    ]
    masses: list[tuple[Bracket, Case]] = []
    for bits, crowd, epsilon, lam in cells:
        q = three_sigma_q(bits, crowd, epsilon)
        mass = mass_beyond(bits, crowd, q, epsilon)
        at = f"L = {bits}, lambda = {lam}, N = {crowd}"
        masses.append((mass, Case(at, mass.low, 1.0 / crowd)))
    least = min(mass.low for mass, _ in masses)
    most = max(mass.high for mass, _ in masses)
    bell = 0.5 * math.erfc(3.0 / math.sqrt(2.0))
    finding = claim(
        "SDP",
        "1.2 and 3.3",
        "the mass beyond mu + 3 sigma is negligible",
        [case for _, case in masses],
        "it is below 1/N in every row.",
        why=lambda _: (
            f"at (3.12)'s q the exact mass runs from {show(least)} to {show(most)}"
            f" (a bell would have {show(bell)}), more than 1/N in every row: a rule of thumb."
        ),
    )
    text = f"{show(least)} to {show(most)}" if finding.verdict != "agrees" else finding.computed
    return replace(finding, computed=text)
