"""Coverage of every kind of interval by the exact law: `python -m bench.coverage`.

Nothing is drawn: an interval depends on the counts alone, so its coverage at a truth is the
probability of the counts whose interval holds the truth. Prints the tables of docs/estimate.md.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

import shoal
from shoal.associating import Association
from shoal.associating.sides import side_of
from shoal.combining import Combined
from shoal.intervals import IntervalKind, Target, interval
from shoal.joint import estimate_joint
from shoal.tallying import Tally
from shoal.theory.one_bit_law import pmf

Array = NDArray[np.float64]
Truth = tuple[float, ...]

LEVEL = 0.95
SMALL = (1, 2, 5, 20)
FLIPS = ("1e-9", "1e-5", "0.001", "0.01", "0.05", "0.3", "0.45", "0.49", "0.499999")
LARGE = 10.0
"""Normal intervals are for crowds with N p q above this."""

FLAGS = shoal.Flags("f", ("a", "b", "c"))
CHOICE = shoal.Choice("c", ("x", "y", "z"))


@dataclass
class Lowest:
    """The lowest coverage of one kind: of all cells, and of those with enough flips."""

    cells: int = 0
    lowest: float = math.inf
    where: str = ""
    large_cells: int = 0
    large: float = math.inf

    def add(self, covered: float, flips: float, where: str) -> None:
        """Take one truth into account."""
        self.cells += 1
        if covered < self.lowest:
            self.lowest, self.where = covered, where
        if flips >= LARGE:
            self.large_cells += 1
            self.large = min(self.large, covered)


@dataclass
class Findings:
    """What was found for each kind, target and combination."""

    rows: dict[tuple[str, str, str], Lowest] = field(default_factory=dict)

    def add(self, key: tuple[str, str, str], covered: float, flips: float, where: str) -> None:
        """Take one truth of one kind into account."""
        self.rows.setdefault(key, Lowest()).add(covered, flips, where)

    def lines(self) -> Iterator[str]:
        """Yield the table in Markdown."""
        yield f"| interval | target | of | truths | lowest | where | Npq ≥ {LARGE:g} | lowest |"
        yield "|---|---|---|---|---|---|---|---|"
        for (kind, target, what), row in sorted(self.rows.items()):
            large = f"{_down(row.large)}" if row.large_cells else ""
            yield (
                f"| {kind} | {target} | {what} | {row.cells:,} | {_down(row.lowest)} |"
                f" {row.where} | {row.large_cells:,} | {large} |"
            )


def _down(share: float) -> str:
    """Return a percentage, rounded down."""
    return f"{math.floor(share * 10000 + 1e-7) / 100:.2f} %"


def shares_of(n: int) -> list[float]:
    """Return the shares of a population that are tried."""
    found = {0.0, 0.001, 0.05, 0.25, 0.5, 0.9, 0.999, 1.0, 1 / n, 1 - 1 / n}
    return sorted(found | ({1.5 / n, 3 / n} if n > 3 else set()))


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
        for kind, (target, (truths, law)) in product(get_args(IntervalKind), laws.items()):
            found = [interval(x, n, q, level=LEVEL, kind=kind, target=target) for x in range(n + 1)]
            low, high = (np.array([getattr(one, end) for one in found]) for end in ("low", "high"))
            fits = np.array([one.compatible for one in found])
            holds = fits & (low <= truths[:, None] + 1e-9) & (truths[:, None] - 1e-9 <= high)
            for truth, covered in zip(truths, (law * holds).sum(axis=1), strict=True):
                where = f"N {n}, q {text}, share {truth / n:.3g}"
                findings.add((kind, target, "one option"), covered, n * q * (1 - q), where)


Combine = Callable[[shoal.Estimate, shoal.Estimate, str], Combined]
COMBINATIONS: dict[str, tuple[Combine, Callable[[float, float], float]]] = {
    "total": (
        lambda a, b, kind: shoal.total([a, b], LEVEL, kind=kind),  # type: ignore[arg-type]
        lambda a, b: a + b,
    ),
    "difference": (
        lambda a, b, kind: shoal.difference(a, b, LEVEL, kind=kind),  # type: ignore[arg-type]
        lambda a, b: a - b,
    ),
    "ratio": (
        lambda a, b, kind: shoal.ratio(a, b, LEVEL, kind=kind),  # type: ignore[arg-type]
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
        except shoal.InputError:  # a ratio to an estimate of exactly zero: counts as a miss
            continue
        low[x, y], high[x, y] = one.low, one.high
    return low, high


def _covered(ends: tuple[Array, Array], law: Array, truth: float) -> float:
    slack = 1e-9 * max(1.0, abs(truth))
    return float(law[(ends[0] <= truth + slack) & (truth - slack <= ends[1])].sum())


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
    q, flip = float(text), shoal.LieProbability.at_least(text)
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
                    shoal.Estimate(question, label, ones, n, flip, target, 0.0)
                    for label, ones in zip(labels, (x, y), strict=False)
                ]

            ends = _combined(combine, kind, estimates, (n, n))
            of = f"{what} of two {'options' if target == 'crowd' else question.name}"
            of = of.replace(" f", " flags").replace(" c", " options of a choice")
            if target == "crowd":
                for a, b in product(truths, repeat=2):
                    if math.isnan(truth := value(a, b)):
                        continue
                    covered = _covered(ends, np.outer(single[a], single[b]), truth)
                    findings.add((kind, target, of), covered, flips, f"N {n}, q {text}, {a}, {b}")
                continue
            for shares in populations[question]:
                a, b = shares[0] + shares[2], shares[1] + shares[2]
                if math.isnan(truth := value(a * n, b * n)):
                    continue
                covered = _covered(ends, people(n, q, shares), truth)
                where = f"N {n}, q {text}, shares {a:.3g}, {b:.3g}"
                findings.add((kind, target, of), covered, flips, where)


def two_crowds(
    findings: Findings, kinds: tuple[str, ...], first: tuple[int, str], second: tuple[int, str]
) -> None:
    """Shares in two independent crowds."""
    sizes, texts = (first[0], second[0]), (first[1], second[1])
    qs = [float(text) for text in texts]
    lies = [shoal.LieProbability.at_least(text) for text in texts]
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
                shoal.Estimate(FLAGS, "a", ones, n, q, target, 0.0)
                for ones, n, q in zip((x, y), sizes, lies, strict=True)
            ]

        ends = _combined(
            lambda a, b, kind: shoal.compare(a, b, LEVEL, kind=kind),  # type: ignore[arg-type]
            kind, estimates, sizes,
        )  # fmt: skip
        for (a, one), (b, other) in product(*law):
            covered = _covered(ends, np.outer(one, other), a - b)
            where = f"N {first[0]} and {second[0]}, q {first[1]} and {second[1]}, {a:.3g}, {b:.3g}"
            findings.add((kind, target, f"compare, {like}"), covered, flips, where)


SURVEY = shoal.Survey("s", (shoal.Flags("f", ("a", "b")),))


def tables(findings: Findings, n: int, text: str) -> None:
    """Two options counted together: joint cells, the table, the test, and how strongly."""
    plan = shoal.plan(SURVEY, q=text)
    q = float(plan.q)
    flips = n * q * (1 - q)
    sides = side_of(SURVEY, "f=a"), side_of(SURVEY, "f=b")
    outcomes = [
        (n - i - j - k, i, j, k)
        for i, j, k in product(range(n + 1), repeat=3)
        if i + j + k <= n
    ]  # fmt: skip
    ends: dict[tuple[str, str], tuple[Array, Array]] = {}

    def note(target: str, what: str, at: tuple[int, ...], low: float, high: float) -> None:
        shape = (n + 1,) * 3
        new = np.full(shape, math.nan), np.full(shape, math.nan)
        pair = ends.setdefault((target, what), new)
        pair[0][at], pair[1][at] = low, high

    for none, i, j, k in outcomes:
        counts = np.array([none, i, j, k], np.int64)  # a is the least significant bit
        tally = Tally(
            plan.id, n, np.array([i + k, j + k]), np.array([none, i + j, k]),
            joint={(0, 1): counts}, simulated=True,
        )  # fmt: skip
        for target in get_args(Target):
            at = (i, j, k)
            cell = estimate_joint(counts, q, [("f", "a"), ("f", "b")], target)[1, 1]
            note(target, "joint cell", at, *_ends(cell.interval(LEVEL)))
            pair = Association(plan, tally, *sides, target)
            note(target, "cell of a table", at, *_ends(pair["a", "b"].interval(LEVEL)))
            note(target, "difference in a table", at, *_ends(pair.difference(LEVEL)))
            note(target, "odds ratio", at, *_ends(pair.odds_ratio(LEVEL)))
        p_value = pair.independence.p_value
        note("test", "independence", at, p_value, p_value)
    _table_coverage(findings, ends, n, text, flips)


def _ends(one: Any) -> tuple[float, float]:
    return one.low, one.high


def _table_coverage(
    findings: Findings, ends: dict[tuple[str, str], tuple[Array, Array]], n: int, text: str,
    flips: float,
) -> None:  # fmt: skip
    q = float(text)
    types = {}
    for a, b in product((0, 1), repeat=2):
        one = np.zeros((n + 1,) * 3)
        for x, y in product((0, 1), repeat=2):
            place = {(0, 0): (0, 0, 0), (1, 0): (1, 0, 0), (0, 1): (0, 1, 0), (1, 1): (0, 0, 1)}
            one[place[x, y]] = (1 - q if x == a else q) * (1 - q if y == b else q)
        types[a, b] = np.fft.fftn(one)
    names = list(types)
    shares = shares_of(n)
    independent = [
        tuple((s if a else 1 - s) * (t if b else 1 - t) for a, b in names)
        for s, t in product(shares, repeat=2)
        if s <= t
    ]
    others = [(0.4, 0.1, 0.1, 0.4), (0.05, 0.45, 0.45, 0.05), (0.9, 0.0, 0.05, 0.05)]
    others += [(1 - 1 / n, 0.0, 0.0, 1 / n), (0.5, 0.0, 0.0, 0.5), (0.85, 0.05, 0.05, 0.05)]
    for mix in [*independent, *others]:
        crowd = [math.floor(n * share) for share in mix]
        crowd[0] += n - sum(crowd)
        at_crowd = np.ones((n + 1,) * 3, complex)
        for transform, count in zip(types.values(), crowd, strict=True):
            at_crowd = at_crowd * transform**count
        mean = sum(share * types[name] for name, share in zip(names, mix, strict=True))
        laws = {
            "crowd": (np.array(crowd) / n, np.fft.ifftn(at_crowd).real),
            "population": (np.array(mix), np.fft.ifftn(mean**n).real),
        }
        for (target, what), pair in ends.items():
            if target == "test":
                if mix in others:
                    continue
                rejects = pair[0] < 1 - LEVEL
                level = float(laws["population"][1][rejects].sum())
                where = f"N {n}, q {text}, shares {mix[2] + mix[3]:.3g}, {mix[1] + mix[3]:.3g}"
                findings.add(("Fisher", "population", what), 1 - level, flips, where)
                continue
            truth, law = laws[target]
            wanted = _measure(what, n, *truth)
            if math.isnan(wanted):
                continue
            where = f"N {n}, q {text}, " + ", ".join(f"{share:.3g}" for share in truth)
            findings.add(("normal", target, what), _covered(pair, law, wanted), flips, where)


def _measure(what: str, n: int, d: float, c: float, b: float, a: float) -> float:
    """Return the truth; shares of nobody, the second only, the first only, both."""
    if "cell" in what:
        return n * a
    if what == "odds ratio":
        return a * d / (b * c) if b * c else math.nan
    return a / (a + b) - c / (c + d) if a + b and c + d else math.nan


def study(quick: bool) -> Findings:
    """Go through everything."""
    findings = Findings()
    both = "exact", "normal"
    singles(findings, SMALL if quick else (*SMALL, 50, 200, 1000), FLIPS)
    for n, text in [*product(SMALL, FLIPS), *product(() if quick else (50,), FLIPS[2:7])]:
        same_crowd(findings, both, n, text)
        two_crowds(findings, both, (n, text), (n, text))
    for first, second in (((5, "0.001"), (20, "0.001")), ((20, "0.05"), (20, "0.3")),
                          ((1, "0.45"), (20, "1e-5")), ((20, "0.01"), (50, "0.3"))):  # fmt: skip
        two_crowds(findings, both, first, second)
    if not quick:
        same_crowd(findings, ("normal",), 100, "0.3")
        two_crowds(findings, ("normal",), (100, "0.3"), (60, "0.3"))
    for n, text in [*product(SMALL[:3], FLIPS), *product(() if quick else (20,), FLIPS[2:6])]:
        tables(findings, n, text)
    return findings


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small crowds only")
    for line in study(parser.parse_args().quick).lines():
        print(line)


if __name__ == "__main__":
    main()
