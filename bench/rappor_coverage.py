"""How often intervals of decoded RAPPOR collections cover: ``python -m bench.rappor_coverage``.

Each collection has the parameters of google/rappor's example (10 million reports, 8 cohorts of 128
bits, 2 hashes, p = .5, q = .75, f = 0, 300 candidates), hashes of its own, and is drawn from its
exact law (`shoal.lab.populations`). The people behind the texts fall off exponentially.
In the first row everybody's text is a candidate; in the second two thirds of the candidates are
nobody's; in the third some popular texts are no candidates. Prints the table of docs/rappor.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

import numpy as np

from shoal.analysis.text.rappor import decode_rappor
from shoal.lab.populations import simulate_rappor
from shoal.planning.rappor import RapporParameters

EXAMPLE = RapporParameters(k=128, h=2, m=8, p="0.5", q="0.75", f="0")
MEMOIZED = RapporParameters(k=128, h=2, m=16, p="0.1", q="0.8", f="0.25")
REPORTS = 10_000_000


def falling(texts: int, reports: int = REPORTS, scale: float = 30.0) -> dict[str, int]:
    """Return how many people report each text, the first most: shares fall by exp(-1 / scale)."""
    shares = np.exp(-np.arange(texts) / scale)
    people = np.floor(reports * shares / shares.sum()).astype(int)
    people[0] += reports - people.sum()
    return {f"V_{place + 1}": int(count) for place, count in enumerate(people)}


def measured(
    parameters: RapporParameters,
    people: Mapping[str, int],
    candidates: Sequence[str],
    collections: int,
    fdr: float,
) -> dict[str, float]:
    """Return coverage, false discoveries and the sum of shares over many collections."""
    covered = found = false = summed = unexplained = 0
    known = set(candidates)
    for seed in range(collections):
        drawn = simulate_rappor(parameters, people, candidates, seed=seed)
        decoded = decode_rappor(parameters, *drawn, fdr=fdr)
        finds = decoded.texts.discoveries
        covered += sum(one.low <= people.get(one.value, 0) <= one.high for one in finds)
        false += sum(not people.get(one.value) for one in finds)
        found += len(finds)
        summed += 1 in decoded.together
        finds_people = sum(people.get(one.value, 0) for one in finds if one.value in known)
        share = finds_people / decoded.texts.reports
        unexplained += share in decoded.explained
    return {
        "found": found / collections,
        "false": false / max(found, 1),
        "coverage": covered / max(found, 1),
        "explained": unexplained / collections,
        "together": summed / collections,
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--collections", type=int, default=100)
    parser.add_argument("--fdr", type=float, default=0.05)
    given = parser.parse_args()
    whole, some = falling(300), falling(100)
    candidates = list(whole)
    unknown = {f"U{text}" if place % 10 == 4 else text: count
               for place, (text, count) in enumerate(some.items())}  # fmt: skip
    rows = {
        "the example: all 300 have people": (EXAMPLE, whole),
        "200 of 300 candidates are nobody's": (EXAMPLE, some),
        "and a tenth of the texts no candidates": (EXAMPLE, unknown),
        "f = .25, p = .1, q = .8, 16 cohorts": (MEMOIZED, some),
    }
    print("| collection | found | false | covered | sum found | all texts |")
    print("|---|---|---|---|---|---|")
    for name, (parameters, people) in rows.items():
        got = measured(parameters, people, candidates, given.collections, given.fdr)
        print(
            f"| {name} | {got['found']:.1f} | {got['false']:.3f} | {got['coverage']:.3f} |"
            f" {got['explained']:.2f} | {got['together']:.2f} |"
        )


if __name__ == "__main__":
    main()
