"""KR sections 4 and 5: ratios of sums, on every small instance, and an old bound."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

from shoal.lab.papers._finding import Case, Finding, claim, equal, show
from shoal.theory.enumeration import channel

__all__ = ["findings"]

_SIZES = (Fraction(1, 2), Fraction(1), Fraction(3))


def findings() -> Iterator[Finding]:
    """Recompute the lemmas of KR 4, the references to them, and the bound of KR 5."""
    yield _lemma_1()
    yield from _lemma_2()
    yield _corollary()
    yield _lemma_3()
    yield _references()
    yield _old_bound()


def _dot(a: Sequence[Fraction], b: Sequence[Fraction]) -> Fraction:
    return sum((s * t for s, t in zip(a, b, strict=True)), Fraction(0))


def _lemma_1() -> Finding:
    signed = (*_SIZES, Fraction(-2), Fraction(0))
    cases = [
        Case(f"a = {a}, b = {b}", sum(a) / sum(b), max(s / t for s, t in zip(a, b, strict=True)))
        for a in itertools.product(signed, repeat=3)
        for b in itertools.product(_SIZES, repeat=3)
    ]
    how = "every a in {-2, 0, 1/2, 1, 3}^3 and b in {1/2, 1, 3}^3."
    return claim("KR", "4, Lemma 4.1", "a ratio of sums <= the largest ratio", cases, how)


def _lemma_2() -> Iterator[Finding]:
    """(4.2) and (4.3) compare i with j; the later version prints i on both sides, which is void."""
    weights = [
        (up, down)
        for up in itertools.product(_SIZES, repeat=2)
        for down in itertools.product(_SIZES, repeat=2)
    ]
    every, ordered = [], []
    for (a, b), (up, down) in itertools.product(weights, repeat=2):
        case = Case(
            f"a = {_row(a)}, a' = {_row(b)}, lambda = {_row(up)}, mu = {_row(down)}",
            _dot(b, up) / _dot(b, down),
            _dot(a, up) / _dot(a, down),
        )
        every.append(case)
        if up[0] * down[1] >= up[1] * down[0] and a[0] * b[1] >= a[1] * b[0]:
            ordered.append(case)
    how = f"the {len(ordered)} instances of two terms from {{1/2, 1, 3}} with (4.2) and (4.3)."
    yield claim("KR", "4, Lemma 4.2", "(4.1) if (4.2) and (4.3)", ordered, how)
    yield claim(
        "KR",
        "later version, (4.2), (4.3)",
        "lambda_i/mu_i >= lambda_i/mu_i, a_i/a_i >= a_i'/a_i'",
        every,
        "",
        meant=ordered,
        instead="j in the right and lower places, as in the earlier version",
        why=lambda case: (
            f"as printed they always hold, and then (4.1) fails: {case.at} gives"
            f" {show(case.right)} on its left and {show(case.left)} on its right."
        ),
    )


def _row(values: Sequence[Fraction]) -> str:
    return "(" + ", ".join(map(str, values)) + ")"


def _corollary() -> Finding:
    cases = []
    for q in (Fraction(1, 10), Fraction(2, 5)):
        p = 1 - q
        for a, b in itertools.product(itertools.product(_SIZES, repeat=2), repeat=2):
            if a[1] / a[0] >= b[1] / b[0]:
                left, right = ((q * v[0] + p * v[1]) / (p * v[0] + q * v[1]) for v in (a, b))
                cases.append(Case(f"a = {_row(a)}, a' = {_row(b)}, q = {q}", right, left))
    how = "every instance from {1/2, 1, 3}, two q."
    return claim("KR", "4, Corollary 4.1", "the ratio rises in a_2/a_1", cases, how)


def _lemma_3() -> Finding:
    cases = []
    values = (Fraction(0), Fraction(1), Fraction(3))
    positive = (Fraction(1), Fraction(3))
    spots = itertools.product(
        positive, positive, values, values, values, values, positive, positive
    )
    for a, a2, b, b2, c, c2, lam, mu in spots:
        if a * c2 >= a2 * c and a * b2 <= a2 * b and b * c2 >= b2 * c:
            left = (a * lam + b * mu) / (c * lam + a * mu)
            right = (a2 * lam + b2 * mu) / (c2 * lam + a2 * mu)
            cases.append(Case(f"{(a, a2, b, b2, c, c2, lam, mu)}", right, left))
    how = "every instance from {0, 1, 3} that satisfies (4.5)."
    return claim("KR", "4, Lemma 4.3", "(4.4) if (4.5)", cases, how)


def _references() -> Finding:
    """Look up the references of the later version, which kept the numbers of an older section."""
    labels = {"Lemma 4.1", "(4.1)", "(4.2)", "(4.3)", "(4.4)", "(4.5)"}
    printed = ("Lemma 5.1", "(5.1)", "(5.2)", "(5.3)", "(5.4)", "(5.5)")
    return claim(
        "KR",
        "later version, 1 and 4",
        "Lemma 5.1, (5.1) to (5.5)",
        [Case(name, name, labels) for name in printed],
        "",
        holds=lambda name, names: name in names,
        meant=[Case(name, name.replace("5.", "4.", 1), labels) for name in printed],
        instead="Lemma 4.1, (4.1) to (4.5)",
        why=lambda case: (
            f"{len(printed)} references such as {case.left} point to nothing; with 4"
            " in place of 5 each of them is found."
        ),
    )


def _old_bound() -> Finding:
    """Compare: section 5 bounds a ratio by epsilon; the definition (1.2) has e^epsilon."""
    rows = []
    for q in (Fraction(1, 10), Fraction(1, 4), Fraction(2, 5)):
        laws = [channel((bit,), q) for bit in (0, 1)]
        largest = max(s / t for a in laws for b in laws for s, t in zip(a, b, strict=True))
        rows.append((f"q = {q}", math.log(largest), float(largest)))
    return claim(
        "KR",
        "5, Old stuff",
        "P[A_0(x) = s] <= epsilon P[A_0(x') = s]",
        [Case(at, epsilon, largest) for at, epsilon, largest in rows],
        "",
        holds=equal,
        meant=[Case(at, math.exp(epsilon), largest) for at, epsilon, largest in rows],
        instead="<= e^epsilon P[A_0(x') = s]",
        why=lambda case: (
            f"flipping a bit with {case.at} is {show(case.left)}-differentially private and its"
            f" largest ratio is {show(case.right)} = e^{show(case.left)}, above the printed bound"
            f" {show(case.left)}."
        ),
    )
