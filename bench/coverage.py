"""Coverage of every kind of interval by the exact law: `python -m bench.coverage`.

Nothing is drawn: an interval depends on the counts alone, so its coverage at a truth is the
probability of the counts whose interval holds the truth. Prints the table of docs/estimate.md.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from functools import lru_cache
from itertools import product
from typing import Any, get_args

import numpy as np
from scipy.stats import binom

import shoal
from bench.coverage_findings import FLIPS, LEVEL, SMALL, Array, Findings, covered, shares_of
from bench.coverage_tables import tables
from shoal.analysis.contrasts import Combination, difference, ratio, share_difference, total
from shoal.analysis.estimates import Estimate
from shoal.analysis.intervals import IntervalKind, Target, interval
from shoal.errors import InputError
from shoal.protocol.flip_probability import FlipProbability
from shoal.theory.binomial import pmf

Truth = tuple[float, ...]

FLAGS = shoal.Flags("f", ("a", "b", "c"))
CHOICE = shoal.Choice("c", ("x", "y", "z"))


def crowd_laws(n: int, q: float) -> Array:
    """Return P[A_n(m) = x] as [m, x]."""
    return np.array([pmf(n, m, q) for m in range(n + 1)])


def singles(findings: Findings, crowds: tuple[int, ...], flips: tuple[str, ...]) -> None:
    """One estimate: every truth of the crowd, chosen shares of the population."""
    for n, text in product(crowds, flips):
        q, target = float(text), "crowd"
        shares = np.unique([*shares_of(n), *np.linspace(0, 1, 41)])
        laws = {
            "crowd": (np.arange(n + 1.0), crowd_laws(n, q)),
            "population": (
                shares * n,
                np.array([binom.pmf(np.arange(n + 1), n, q + (1 - 2 * q) * s) for s in shares]),
            ),
        }
        kinds: list[IntervalKind] = ["exact", "normal", "chebyshev"]
        for kind, (target, (truths, law)) in product(kinds, laws.items()):
            found = [interval(x, n, q, level=LEVEL, kind=kind, target=target) for x in range(n + 1)]
            low, high = (np.array([getattr(one, end) for one in found]) for end in ("low", "high"))
            fits = np.array([one.compatible for one in found])
            holds = fits & (low <= truths[:, None] + 1e-9) & (truths[:, None] - 1e-9 <= high)
            for truth, held in zip(truths, (law * holds).sum(axis=1), strict=True):
                where = f"N {n}, q {text}, share {truth / n:.3g}"
                findings.add((kind, target, "one option"), held, n * q * (1 - q), where)


Combine = Callable[[Estimate, Estimate, str], Combination]
COMBINATIONS: dict[str, tuple[Combine, Callable[[float, float], float]]] = {
    "total": (
        lambda a, b, kind: total([a, b], LEVEL, kind=kind),  # type: ignore[arg-type]
        lambda a, b: a + b,
    ),
    "difference": (
        lambda a, b, kind: difference(a, b, LEVEL, kind=kind),  # type: ignore[arg-type]
        lambda a, b: a - b,
    ),
    "ratio": (
        lambda a, b, kind: ratio(a, b, LEVEL, kind=kind),  # type: ignore[arg-type]
        lambda a, b: a / b if b else math.nan,
    ),
}


def _combined(
    combine: Combine, kind: str, estimates: Callable[[int, int], Any], sizes: tuple[int, int]
) -> tuple[Array, Array]:
    """Return the ends of the interval for every pair of numbers of ones."""
    low, high = np.full((2, sizes[0] + 1, sizes[1] + 1), math.nan)
    for x, y in product(range(sizes[0] + 1), range(sizes[1] + 1)):
        first, second = estimates(x, y)
        try:
            one = combine(first, second, kind)
        except InputError:  # a ratio to an estimate of exactly zero: counts as a miss
            continue
        low[x, y], high[x, y] = one.low, one.high
    return low, high


@lru_cache(1024)
def people(n: int, q: float, shares: Truth) -> Array:
    """Return the law of both numbers of ones: n people, shares of those with a only, b only, both.

    The law of one person, multiplied out n times.
    """
    a, b, both = shares
    one = np.zeros((n + 1, n + 1))
    for (x, y), share in {(1, 0): a, (0, 1): b, (1, 1): both, (0, 0): 1 - a - b - both}.items():
        for i, j in product((0, 1), repeat=2):
            one[i, j] += share * (1 - q if i == x else q) * (1 - q if j == y else q)
    return np.maximum(np.fft.ifft2(np.fft.fft2(one) ** n).real, 0)


def same_crowd(findings: Findings, kinds: tuple[str, ...], n: int, text: str) -> None:
    """Two options of one tally."""
    flip = FlipProbability.at_least(text)
    q = float(flip)
    flips = n * q * (1 - q)
    single = crowd_laws(n, q)
    truths = range(n + 1) if n <= 20 else sorted({0, 1, 2, 3, n // 4, n // 2, n - 1, n})
    populations: dict[Any, list[Truth]] = {FLAGS: [], CHOICE: []}
    for a, b in product(shares_of(n), repeat=2):
        if a + b <= 1:
            populations[CHOICE].append((a, b, 0.0))
        for both in {min(a, b), max(a + b - 1, 0.0), a * b}:
            populations[FLAGS].append((a - both, b - both, both))
    for kind, (what, (combine, value)) in product(kinds, COMBINATIONS.items()):
        for target, question in (("crowd", FLAGS), ("population", FLAGS), ("population", CHOICE)):

            def estimates(x: int, y: int, target: Any = target, question: Any = question) -> Any:
                labels = question.labels
                return [
                    Estimate(question, label, ones, n, flip, target, 0.0)
                    for label, ones in zip(labels, (x, y), strict=False)
                ]

            ends = _combined(combine, kind, estimates, (n, n))
            of = f"{what} of two {'options' if target == 'crowd' else question.name}"
            of = of.replace(" f", " flags").replace(" c", " options of a choice")
            if target == "crowd":
                for a, b in product(truths, repeat=2):
                    if math.isnan(truth := value(a, b)):
                        continue
                    held = covered(ends, np.outer(single[a], single[b]), truth)
                    findings.add((kind, target, of), held, flips, f"N {n}, q {text}, {a}, {b}")
                continue
            for shares in populations[question]:
                a, b = shares[0] + shares[2], shares[1] + shares[2]
                if math.isnan(truth := value(a * n, b * n)):
                    continue
                held = covered(ends, people(n, q, shares), truth)
                where = f"N {n}, q {text}, shares {a:.3g}, {b:.3g}"
                findings.add((kind, target, of), held, flips, where)


def together(findings: Findings, n: int, text: str) -> None:
    """Simultaneous intervals of a question with two options: how often both hold."""
    q = float(text)
    single = crowd_laws(n, q)
    for target in get_args(Target):
        found = [
            interval(x, n, q, level=LEVEL, kind="simultaneous", target=target, options=2)
            for x in range(n + 1)
        ]

        def holds(truth: float, found: list[Any] = found) -> Array:
            return np.array([one.compatible and truth in one for one in found], float)

        if target == "crowd":
            held = [float(single[m] @ holds(m)) for m in range(n + 1)]
            for (m, first), (k, second) in product(enumerate(held), repeat=2):
                where = f"N {n}, q {text}, {m}, {k}"
                key = "simultaneous", target, "both of two options"
                findings.add(key, first * second, n * q * (1 - q), where)
            continue
        for a, b in product(shares_of(n), repeat=2):
            for both in {min(a, b), max(a + b - 1, 0.0), a * b}:
                law = people(n, q, (a - both, b - both, both))
                where = f"N {n}, q {text}, shares {a:.3g}, {b:.3g}"
                key = "simultaneous", target, "both of two options"
                both_hold = float(holds(a * n) @ law @ holds(b * n))
                findings.add(key, both_hold, n * q * (1 - q), where)


def two_crowds(
    findings: Findings, kinds: tuple[str, ...], first: tuple[int, str], second: tuple[int, str]
) -> None:
    """Shares in two independent crowds."""
    sizes, texts = (first[0], second[0]), (first[1], second[1])
    chances = [FlipProbability.at_least(text) for text in texts]
    qs = [float(chance) for chance in chances]
    flips = min(n * q * (1 - q) for n, q in zip(sizes, qs, strict=True))
    tried = [shares_of(n) for n in sizes]
    laws: dict[Target, list[list[tuple[float, Array]]]] = {
        "crowd": [
            [(m / n, pmf(n, m, q)) for m in sorted({round(s * n) for s in shares})]
            for n, q, shares in zip(sizes, qs, tried, strict=True)
        ],
        "population": [
            [(s, binom.pmf(np.arange(n + 1), n, q + (1 - 2 * q) * s)) for s in shares]
            for n, q, shares in zip(sizes, qs, tried, strict=True)
        ],
    }
    like = "like sizes and q" if first == second else "two sizes or q"
    for kind, (target, law) in product(kinds, laws.items()):

        def estimates(x: int, y: int, target: Target = target) -> Any:
            return [
                Estimate(FLAGS, "a", ones, n, q, target, 0.0)
                for ones, n, q in zip((x, y), sizes, chances, strict=True)
            ]

        ends = _combined(
            lambda a, b, kind: share_difference(a, b, LEVEL, kind=kind),  # type: ignore[arg-type]
            kind, estimates, sizes,
        )  # fmt: skip
        for (a, one), (b, other) in product(*law):
            held = covered(ends, np.outer(one, other), a - b)
            where = f"N {first[0]} and {second[0]}, q {first[1]} and {second[1]}, {a:.3g}, {b:.3g}"
            findings.add((kind, target, f"share difference, {like}"), held, flips, where)


def study(quick: bool) -> Findings:
    """Go through everything."""
    findings = Findings()
    both = "exact", "normal"
    singles(findings, SMALL if quick else (*SMALL, 50, 200, 1000), FLIPS)
    for n, text in [*product(SMALL, FLIPS), *product(() if quick else (50,), FLIPS[3:11])]:
        same_crowd(findings, both, n, text)
        together(findings, n, text)
        two_crowds(findings, both, (n, text), (n, text))
    for first, second in (((5, "0.001"), (20, "0.001")), ((20, "0.05"), (20, "0.3")),
                          ((1, "0.45"), (20, "1e-5")), ((20, "0.01"), (50, "0.3"))):  # fmt: skip
        two_crowds(findings, both, first, second)
    if not quick:
        same_crowd(findings, ("normal",), 100, "0.3")
        two_crowds(findings, ("normal",), (100, "0.3"), (60, "0.3"))
    for n, text in [*product(SMALL[:4], FLIPS), *product(() if quick else (10,), FLIPS)]:
        tables(findings, n, text)
    if not quick:
        for text in FLIPS[3:6]:
            tables(findings, 20, text)
    return findings


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small crowds only")
    for line in study(parser.parse_args().quick).lines():
        print(line)


if __name__ == "__main__":
    main()
