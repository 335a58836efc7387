"""The C kernels beside NumPy and the limits of the machine, in many short runs."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from bench.measuring import LIMIT, Candidate, Options, Table, best_times
from bench.randomizing import Q, aes_ni, aes_rounds, shoal_randomize
from bench.tallying import random_rows, shoal_counter, shoal_tally
from bench.without_kernels import without_kernels
from shoal.analysis import count_table
from shoal.device.arrays import randomize as randomizing

_TEXT = (
    "Reports of 40 bits. Each run takes a few milliseconds, and there are {rounds} rounds, 5 times"
    " as many for randomizing: a busy machine leaves some of them alone. Randomizing,"
    " {randomized:,} reports: the limit is the rounds of AES-256 for 16 random bits per bit, on"
    " registers, with nothing else (`bench/aes_limit.c`). Tallying, {tallied:,} reports in memory:"
    " the limit is one XOR over the same bytes."
)


def measure(options: Options) -> Table:
    """Measure randomizing and tallying with the kernels and without."""
    reports, counted = 1_048_576, options.size(10_000_000)
    packed, rows = np.zeros((reports, 5), np.uint8), random_rows(counted, 40)
    words = rows.reshape(-1).view(np.uint64)
    randomizers = [
        ("randomize, C kernel", lambda: shoal_randomize(packed, 40)),
        ("randomize, C kernel, AES-NI without VAES", lambda: aes_ni(packed, 40)),
        (
            "randomize, NumPy",
            lambda: without_kernels(randomizing, shoal_randomize(packed, 40)),
        ),
    ]
    counters = [
        ("tally by bit, C kernel", lambda: shoal_counter(rows, 40)),
        ("tally by bit, NumPy", lambda: without_kernels(count_table, shoal_counter(rows, 40))),
        ("tally with set bits, C kernel", lambda: shoal_tally(rows, 40)),
        (
            "tally with set bits, NumPy",
            lambda: without_kernels(count_table, shoal_tally(rows, 40)),
        ),
    ]
    with tempfile.TemporaryDirectory() as folder:
        limit = aes_rounds(packed.size * Q.digits, Path(folder))
    if limit is None:
        raise SystemExit("this section needs the kernels, a compiler and AES instructions.")
    first = [Candidate(name, reports, make()) for name, make in randomizers]
    first.append(Candidate(LIMIT + "AES-256", reports, limit))
    second = [Candidate(name, counted, make()) for name, make in counters]
    second.append(Candidate(LIMIT + "read", counted, lambda: np.bitwise_xor.reduce(words)))
    table: list[tuple[str, float, object, float]] = []
    for group, more in ((first, 100), (second, 20)):
        best = best_times(group, more * options.rounds)
        for one in group:
            plain = one.name.partition(",")[0] + ", NumPy"
            faster = best[plain] / best[one.name] if plain in best else ""
            share = 100 * best[group[-1].name] / best[one.name]
            table.append((one.name, one.reports / best[one.name] / 1e6, faster, share))
    columns = ("candidate", "M reports/s", "times NumPy", "% of the limit")
    text = _TEXT.format(rounds=20 * options.rounds, randomized=reports, tallied=counted)
    return Table("The C kernels", columns, table, text, best=False)
