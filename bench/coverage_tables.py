"""Coverage of joint cells and of tables of two options, by the exact law of all their counts."""

from __future__ import annotations

import math
from itertools import product
from typing import Any, get_args

import numpy as np

import shoal
from bench.coverage_findings import LEVEL, Array, Findings, covered, shares_of
from shoal.analysis.association import Association
from shoal.analysis.association_tables import side_of
from shoal.analysis.intervals import Target
from shoal.analysis.joint import estimate_joint
from shoal.analysis.tally import Tally

__all__ = ["tables"]

SURVEY = shoal.Survey("s", (shoal.Flags("f", ("a", "b")),))


def tables(findings: Findings, n: int, text: str) -> None:
    """Two options counted together: joint cells, the table, the test, and how strongly."""
    plan = shoal.plan(SURVEY, q=text)
    q = float(plan.q)
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
        note("test", "test of independence at 5 %", at, p_value, p_value)
    _table_coverage(findings, ends, n, text, q)


def _ends(one: Any) -> tuple[float, float]:
    return one.low, one.high


def _table_coverage(
    findings: Findings, ends: dict[tuple[str, str], tuple[Array, Array]], n: int, text: str,
    q: float,
) -> None:  # fmt: skip
    flips = n * q * (1 - q)
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
                findings.add(("exact", "population", what), 1 - level, flips, where)
                continue
            truth, law = laws[target]
            wanted = _measure(what, n, *truth)
            if math.isnan(wanted):
                continue
            where = f"N {n}, q {text}, " + ", ".join(f"{share:.3g}" for share in truth)
            findings.add(("normal", target, what), covered(pair, law, wanted), flips, where)


def _measure(what: str, n: int, d: float, c: float, b: float, a: float) -> float:
    """Return the truth; shares of nobody, the second only, the first only, both."""
    if "cell" in what:
        return n * a
    if what == "odds ratio":
        return a * d / (b * c) if b * c else math.nan
    return a / (a + b) - c / (c + d) if a + b and c + d else math.nan
