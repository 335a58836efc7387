"""SDP section 4: what less noise buys."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction

from shoal.lab.papers._finding import Case, Finding, claim, equal, number, show
from shoal.theory.brackets import Bracket
from shoal.theory.enumeration import histogram_pmf
from shoal.theory.randomized_response import count_sigma, local_q
from shoal.theory.sufficient import gain, three_sigma_q

__all__ = ["findings"]

_SHORT, _LONG = (5, 5000, math.log(2)), (40, 10_000_000, 2.0)
"""Bits, crowd and epsilon of the two examples."""


def findings() -> Iterator[Finding]:
    """Recompute what SDP 4 prints."""
    yield _estimator()
    yield from _short_vectors()
    yield from _long_vectors()


def _sigma(q: float) -> float:
    return count_sigma(1, q)


def _estimator() -> Finding:
    """E and sigma of the estimate, from the law of one bit's count."""
    people = 6
    cases = []
    for d, q in itertools.product(range(people + 1), (Fraction(1, 10), Fraction(1, 4))):
        law = histogram_pmf([(1,)] * d + [(0,)] * (people - d), q)
        guess = {s: (s[1] - q * people) / (1 - 2 * q) for s in law}
        mean = sum(chance * guess[s] for s, chance in law.items())
        square = sum(chance * guess[s] ** 2 for s, chance in law.items())
        at = f"d = {d}, q = {q}"
        cases.append(Case(f"E, {at}", Fraction(d), mean))
        cases.append(Case(f"Var, {at}", people * q * (1 - q) / (1 - 2 * q) ** 2, square - mean**2))
    how = f"the law of all counts of {people} people, in fractions."
    return claim("SDP", "4", "E d^ = d, sigma = sqrt(Nqp)/(p-q)", cases, how, holds=equal)


def _short_vectors() -> Iterator[Finding]:
    """L = 5, N = 5000, lambda = 2."""
    bits, crowd, epsilon = _SHORT
    local = local_q(bits, epsilon)
    right = three_sigma_q(bits, crowd, epsilon)
    yield number("SDP", "4, (4.3)", "q = 0.465", local, lambda: f"it is {local}.", digits="0.465")

    def needs() -> str:
        # sqrt(q(1-q)) = s(1-2q) with x = 1 - 2q is 1 - x^2 = 4 s^2 x^2
        would = 0.5 * (1.0 - 1.0 / math.sqrt(4.0 * 7.5**2 + 1.0))
        return (
            f"q = 0.465 gives {show(_sigma(0.465))} and the unrounded q {show(_sigma(local))};"
            f" 7.5 needs q = {show(would, 4)}."
        )

    both = Bracket(_sigma(0.465), _sigma(local))
    yield number("SDP", "4, after (4.3)", "sigma = 7.5 sqrt N", both, needs, digits="7.5")
    yield number(
        "SDP", "4, sigma at q = 0.1778", "sigma = 0.6 sqrt N", _sigma(0.1778),
        lambda: f"it is {_sigma(0.1778)}.", digits="0.6",
    )  # fmt: skip
    yield number(
        "SDP",
        "4, gain for 5000 records",
        "12 fold",
        gain(bits, crowd, epsilon),
        lambda: (
            f"(3.12) gives q = {show(right, 4)} for N = {crowd}, so sigma = {show(_sigma(right))}"
            f" sqrt N; a gain of {show(gain(bits, 10_000, epsilon))} belongs to N = 10000."
        ),
        digits="12",
    )


def _long_vectors() -> Iterator[Finding]:
    """L = 40, N = 10M, lambda = e^2; the errors are three sigma."""
    bits, crowd, epsilon = _LONG
    local, sufficient = local_q(bits, epsilon), three_sigma_q(bits, crowd, epsilon)
    far, near = 3.0 * count_sigma(crowd, local), 3.0 * count_sigma(crowd, sufficient)
    group = 0.01 * crowd
    for where, printed, digits, value in (
        ("local q", "q = 0.4875", "0.4875", local),
        ("local sigma", "20 times", "20", _sigma(local)),
        ("local error, three sigma", "200K", "2E+5", far),
        ("sufficient q", "q = 0.351", "0.351", sufficient),
        ("sufficient sigma", "1.6", "1.6", _sigma(sufficient)),
        ("gain", "12.5", "12.5", gain(bits, crowd, epsilon)),
        ("error, three sigma", "15K", "15E+3", near),
    ):
        yield number(
            "SDP", f"4, L = 40, {where}", printed, value,
            lambda value=value: f"it is {value}.",  # type: ignore[misc]
            digits=digits,
        )  # fmt: skip
    yield number(
        "SDP",
        "4, L = 40, 1 % of 10M",
        "10 % error",
        100.0 * near / group,
        lambda: (
            f"three sigma are {near:,.0f} of {group:,.0f} people, {100 * near / group:.1f} %;"
            f" 10 % is {show(0.1 * group / (near / 3.0))} sigma."
        ),
        digits="10",
        unit=" %",
    )
