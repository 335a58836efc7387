"""The lecture, sections 2 and 3: the Laplace mechanism."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np
from scipy import integrate, special

from shoal.lab.papers._finding import Case, Finding, at_most, claim, equal, show

__all__ = ["density", "findings"]

_SCALES = (0.5, 1.0, 3.0)
_RISKS = (0.01, 0.05, 0.5)


def density(z: float, b: float) -> float:
    """Density of Lap(b) at z (LEC 2)."""
    return math.exp(-abs(z) / b) / (2.0 * b)


def findings() -> Iterator[Finding]:
    """Recompute the sensitivities, the Laplace law, and Theorems 8, 9 and 12."""
    yield from _sensitivities()
    yield _moments()
    yield _ratio()
    yield _triangle()
    yield _tail()
    yield _vector_sensitivity()
    yield _codomain()
    yield _vector_tail()


def _largest_change(
    query: Callable[[tuple[int, ...]], Fraction], values: range, people: int
) -> Fraction:
    """Largest change of the query when one person's value changes."""
    return max(
        abs(query(x) - query((*x[:-1], other)))
        for x in itertools.product(values, repeat=people)
        for other in values
    )


def _count(x: tuple[int, ...]) -> Fraction:
    return Fraction(sum(x))


def _mean(x: tuple[int, ...]) -> Fraction:
    return Fraction(sum(x), len(x))


def _sensitivities() -> Iterator[Finding]:
    where = "after Definition 6"
    how = "all databases of 1 to 5 people and all changes of one."
    sizes = range(1, 6)
    counts = [Case(f"n = {n}", Fraction(1), _largest_change(_count, range(2), n)) for n in sizes]
    yield claim("LEC", where, "a count: 1", counts, how, holds=equal)
    shares = [Case(f"n = {n}", Fraction(1, n), _largest_change(_mean, range(2), n)) for n in sizes]
    yield claim("LEC", where, "a fraction: 1/n", shares, how, holds=equal)
    salaries = [
        Case(
            f"salaries up to {top}",
            Fraction(top, 3),
            _largest_change(_mean, range(0, top + 1, top), 3),
        )
        for top in (10, 1000, 100_000)
    ]
    how = "for three people a third of the largest salary allowed, which nothing bounds."
    yield claim("LEC", where, "a mean salary: infinite", salaries, how, holds=equal)


def _moments() -> Finding:
    cases = []
    for b in _SCALES:
        for name, power, right in (
            ("mass", 0, 1.0),
            ("mean", 1, 0.0),
            ("variance", 2, 2.0 * b * b),
        ):
            sides = [
                integrate.quad(
                    lambda z, s=side, k=power, b=b: (s * z) ** k * density(z, b), 0.0, math.inf
                )[0]
                for side in (-1.0, 1.0)
            ]
            cases.append(Case(f"{name}, b = {b}", sum(sides), right))
    how = "quadrature of the printed density, three b."
    statement = "mass 1, mean 0, variance 2 b^2"
    return claim("LEC", "2, Lap(b)", statement, cases, how, holds=lambda s, t: abs(s - t) < 1e-7)


def _ratio() -> Finding:
    """Theorem 8: the density at s moves by a factor of at most e^epsilon, and that much."""
    cases = []
    for epsilon, change in itertools.product((0.1, 1.0, 3.0), (0.5, 1.0, 2.0)):
        b = change / epsilon
        grid = np.linspace(-10 * b, 10 * b, 401)
        top = max(density(s, b) / density(s - change, b) for s in grid)
        top = max(top, density(0.0, b) / density(change, b))
        cases.append(Case(f"epsilon = {epsilon}, Delta = {change}", float(top), math.exp(epsilon)))
    how = "the largest ratio of densities on a grid is e^epsilon."
    return claim("LEC", "Theorem 8", "the ratio is at most e^epsilon", cases, how, holds=equal)


def _triangle() -> Finding:
    """Try the inequality of the proof with f(x) = x, f(y) = y: it needs |s - f(x)|."""
    grid = range(-4, 5)
    spots = [(x, y, s) for x, y, s in itertools.product(grid, repeat=3) if x != y]
    return claim(
        "LEC",
        "Theorem 8, proof",
        "|s - f(y)| - |y - f(x)| <= |f(y) - f(x)|",
        [Case(f"f(x) = x = {x}, f(y) = y = {y}, s = {s}", abs(s - y) - abs(y - x), abs(y - x))
         for x, y, s in spots],
        "",
        meant=[Case("", abs(s - y) - abs(s - x), abs(y - x)) for x, y, s in spots],
        instead="|s - f(y)| - |s - f(x)| <= |f(y) - f(x)|",
        why=lambda case: f"{case.at}: {case.left} > {case.right}; with s in place of y it holds on"
        f" all {len(spots)} points of a grid.",
    )  # fmt: skip


def _tail() -> Finding:
    cases = []
    for b, risk in itertools.product(_SCALES, _RISKS):
        beyond = math.log(1.0 / risk) * b
        tail = 2.0 * integrate.quad(lambda z, b=b: density(z, b), beyond, math.inf)[0]
        cases.append(Case(f"b = {b}, delta = {risk}", tail, risk))
    how = "quadrature beyond ln(1/delta) b: the tail is delta exactly."
    statement = "P[|Z| >= ln(1/delta) b] <= delta"
    return claim("LEC", "Theorem 9", statement, cases, how, holds=lambda s, t: abs(s - t) < 1e-8)


def _vector_sensitivity() -> Finding:
    def counts(people: tuple[int, ...]) -> tuple[int, int]:
        return people.count(0), people.count(1)

    def distance(x: tuple[int, ...], y: tuple[int, ...]) -> int:
        return sum(abs(a - b) for a, b in zip(counts(x), counts(y), strict=True))

    cases = []
    for n in range(1, 5):
        databases = list(itertools.product((0, 1), repeat=n))
        swap = max(distance(x, (*x[:-1], 1 - x[-1])) for x in databases)
        drop = max(distance(x, x[:-1]) for x in databases)
        cases += [Case(f"swap, n = {n}", 2, swap), Case(f"add or delete, n = {n}", 1, drop)]
    how = "all databases of 1 to 4 people."
    statement = "two counts: 2 by swap, 1 by addition-deletion"
    return claim("LEC", "after Definition 10", statement, cases, how, holds=equal)


def _codomain() -> Finding:
    """Adding (Z_1, ..., Z_d) to f(x) only makes sense for f(x) in R^d."""
    dimensions = (2, 3, 10)
    noise = {d: np.zeros(d).shape for d in dimensions}
    d, risk = 10, 0.05
    beyond = math.log(d / risk)
    largest = 1.0 - (1.0 - math.exp(-beyond)) ** d
    total = float(special.gammaincc(d, beyond))
    return claim(
        "LEC",
        "Theorem 12, codomain",
        "for any function f: N^X -> R",
        [Case(f"d = {d}", (), noise[d]) for d in dimensions],
        "",
        holds=equal,
        meant=[Case(f"d = {d}", (d,), noise[d]) for d in dimensions],
        instead="f: N^X -> R^d, |.| the largest coordinate",
        why=lambda _: (
            f"the noise has d coordinates; at d = {d}, delta = {risk} the largest of them"
            f" is beyond the bound with probability {show(largest)}, but their l1 norm with"
            f" {show(total)}."
        ),
    )


def _vector_tail() -> Finding:
    cases = [
        Case(f"d = {d}, delta = {risk}", 1.0 - (1.0 - risk / d) ** d, risk)
        for d, risk in itertools.product((1, 2, 10, 1000), _RISKS)
    ]
    how = "the largest of d independent coordinates, 1 - (1 - delta/d)^d."
    statement = "P[error >= ln(d/delta) b] <= delta"
    return claim("LEC", "Theorem 12", statement, cases, how, holds=at_most)
