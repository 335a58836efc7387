"""A RAPPOR collection of people who do not exist, drawn count by count from its exact law.

Everybody draws a cohort and reports once, so bits are independent given the truth: of n people in a
cohort, m with a bit set, Bin(m, q*) + Bin(n - m, p*) report a 1. The cost does not grow with the
crowd. Hashes are uniform draws with replacement, as RAPPOR's are taken to be, so they may collide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from shoal.analysis.text.rappor import RapporCollection, RapporMap
from shoal.device.arrays.simulation_bits import simulation_generator
from shoal.errors import InputError
from shoal.planning.rappor import RapporParameters
from shoal.support.files import write_text

__all__ = ["simulate_rappor", "write_rappor"]


def simulate_rappor(
    parameters: RapporParameters,
    people: Mapping[str, int],
    candidates: Sequence[str],
    *,
    seed: int,
) -> tuple[RapporCollection, RapporMap]:
    """Draw a collection of people whose texts are known, and the map of its candidates.

    `people` may have texts that are no candidates; they are in the counts and not in the map.

    >>> small = RapporParameters(k=16, h=1, m=4, p="0.25", q="0.75", f="0")
    >>> collection, candidates = simulate_rappor(small, {"tea": 900}, ["tea", "coffee"], seed=1)
    >>> collection.reports, candidates.texts
    (900, ('tea', 'coffee'))
    """
    if not people or min(people.values()) < 0:
        raise InputError("a collection needs people: how many report each text.")
    k, h, m = parameters.k, parameters.h, parameters.m
    generator = simulation_generator(seed)
    texts = list(dict.fromkeys([*candidates, *people]))
    hashes = np.sort(generator.integers(k, size=(m, h, len(texts))), axis=1)
    hashes[:, 1:][hashes[:, 1:] == hashes[:, :-1]] = k
    truth = np.zeros((m, k + 1), np.int64)
    sizes = np.zeros(m, np.int64)
    for place, text in enumerate(texts):
        drawn = generator.multinomial(people.get(text, 0), np.full(m, 1 / m))
        sizes += drawn
        for hits in hashes[:, :, place].T:
            truth[np.arange(m), hits] += drawn
    truth = truth[:, :k]
    ones = generator.binomial(truth, float(parameters.q_star))
    ones += generator.binomial(sizes[:, None] - truth, float(parameters.p_star))
    listed = hashes[:, :, : len(candidates)].astype(np.int32)
    return RapporCollection(sizes, ones), RapporMap(tuple(candidates), listed, 0)


def write_rappor(
    folder: Path, parameters: RapporParameters, collection: RapporCollection, candidates: RapporMap
) -> None:
    """Write params.csv, counts.csv and map.csv as google/rappor does."""
    numbers = parameters.to_json()
    write_text(
        folder / "params.csv",
        ",".join(f'"{name}"' for name in numbers)
        + "\n"
        + ",".join(f"{value:g}" for value in numbers.values())
        + "\n",
    )
    rows = np.column_stack((collection.sizes, collection.ones))
    counts = "".join(",".join(map(str, row)) + "\n" for row in rows.tolist())
    write_text(folder / "counts.csv", counts)
    k, start = parameters.k, np.arange(parameters.m)[:, None] * parameters.k
    lines = []
    for place, text in enumerate(candidates.texts):
        own = candidates.positions[:, :, place]
        numbers_of = (own + start + 1)[own < k].tolist()
        cells = [*map(str, numbers_of), *[""] * (own.size - len(numbers_of))]
        quoted = text.replace('"', '""')
        lines.append(f'"{quoted}",{",".join(cells)}\n')
    write_text(folder / "map.csv", "".join(lines))
