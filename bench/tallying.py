"""Set bits counted by position: Shoal, its peers, and reading the memory once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from bench.measuring import (
    LIMIT,
    Candidate,
    Options,
    Table,
    candidates_of,
    compare_rates,
)
from bench.without_kernels import without_kernels
from shoal import Flags, Plan, Survey, plan
from shoal.analysis import count_table
from shoal.analysis.count_table import BitCounter
from shoal.analysis.tally import Tallying

Counts = Callable[[], np.ndarray]

_PASSES = 5

_NOTES = [
    "Shoal `tally` counts by bit and by the number of set bits; all others only by bit.",
    "NumPy works on blocks that fit the cache, which is its faster way.",
    f"The memory is read {_PASSES} times in a row, so that this takes about as long as our count;"
    " on a busy machine short runs are disturbed less often.",
]
_DATABASE_NOTE = (
    "DuckDB and Polars get the reports as one column of 64-bit integers in memory, and a fifth of"
    " them, since they are slow. A vector of 1000 bits does not fit such a column, so they are"
    " left out there."
)


def flags_plan(bits: int) -> Plan:
    """Return a plan whose reports have the given number of bits."""
    survey = Survey("bench", (Flags("answer", tuple(str(bit) for bit in range(bits))),))
    return plan(survey, q="0.351")


def short(options: Options) -> Table:
    """Measure reports of 40 bits."""
    rows = random_rows(options.size(10_000_000), 40)
    few = rows[: len(rows) // 5]
    numbers = few.astype(np.uint64) @ (np.uint64(1) << np.arange(0, 40, 8, dtype=np.uint64))
    makers = [
        ("Polars, streaming", len(few), lambda: _polars(numbers, 40, "streaming")),
        ("Polars, in memory", len(few), lambda: _polars(numbers, 40, "in-memory")),
        ("DuckDB `sum((r >> i) & 1)`", len(few), lambda: _duckdb(numbers, 40)),
    ]
    databases = candidates_of(makers, partial(_check, _unpackbits(few, 40)()))
    return _measure(rows, 40, options, databases, [*_NOTES, _DATABASE_NOTE])


def long(options: Options) -> Table:
    """Measure reports of 1000 bits."""
    return _measure(random_rows(options.size(400_000), 1000), 1000, options, [], [])


def _measure(
    rows: np.ndarray, bits: int, options: Options, more: list[Candidate], notes: list[str]
) -> Table:
    makers = [
        ("**Shoal `BitCounter`**", len(rows), lambda: shoal_counter(rows, bits)),
        ("**Shoal `tally`**", len(rows), lambda: shoal_tally(rows, bits)),
        (
            "**Shoal `BitCounter`**, NumPy alone",
            len(rows),
            lambda: without_kernels(count_table, shoal_counter(rows, bits)),
        ),
        (
            "**Shoal `tally`**, NumPy alone",
            len(rows),
            lambda: without_kernels(count_table, shoal_tally(rows, bits)),
        ),
        ("NumPy bincount of each byte", len(rows), lambda: _bincount(rows, bits)),
        ("NumPy unpackbits and sum", len(rows), lambda: _unpackbits(rows, bits)),
    ]
    candidates = candidates_of(makers, partial(_check, _unpackbits(rows, bits)())) + more
    words = rows.reshape(-1).view(np.uint64)
    # Several passes, to last about as long as ours: on a busy machine a shorter run has a better
    # chance to be left alone, and the shares would look worse than they are.
    reading = Candidate(LIMIT + "memory read", _PASSES * len(rows), lambda: _read(words))
    text = (
        f"{len(rows):,} packed reports of {bits} bits in memory, {rows.nbytes / 1e6:.0f} MB."
        " Counting must at least read them; the last column is the share of the speed of one XOR"
        " over the same bytes."
    )
    title = f"Tallying reports of {bits} bits"
    return compare_rates(title, [*candidates, reading], options, text, notes)


def _read(words: np.ndarray) -> None:
    for _ in range(_PASSES):
        np.bitwise_xor.reduce(words)


def random_rows(count: int, bits: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, (count, bits // 8), dtype=np.uint8)


def _check(expected: np.ndarray, name: str, counts: np.ndarray) -> None:
    if not np.array_equal(counts, expected):
        raise SystemExit(f"{name} counts something else than NumPy.")


def shoal_counter(rows: np.ndarray, bits: int) -> Counts:
    def run() -> np.ndarray:
        counter = BitCounter(rows.shape[1])
        counter.add(rows)
        return counter.counts()[:bits]

    return run


def shoal_tally(rows: np.ndarray, bits: int) -> Counts:
    agreed = flags_plan(bits)

    def run() -> np.ndarray:
        tallying = Tallying(agreed, vectors=False)
        tallying.add(rows)
        return tallying.result().by_bit

    return run


def _unpackbits(rows: np.ndarray, bits: int) -> Counts:
    block = 400_000 // bits

    def run() -> np.ndarray:
        total = np.zeros(bits, np.int64)
        for start in range(0, len(rows), block):
            unpacked = np.unpackbits(rows[start : start + block], axis=1, bitorder="little")
            total += unpacked.sum(axis=0, dtype=np.int64)
        return total

    return run


def _bincount(rows: np.ndarray, bits: int) -> Counts:
    bits_of_bytes = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], 1, bitorder="little")
    block = 4_000_000 // bits

    def run() -> np.ndarray:
        values = np.zeros((rows.shape[1], 256), np.int64)
        for start in range(0, len(rows), block):
            for value, column in zip(values, rows[start : start + block].T, strict=True):
                value += np.bincount(column, minlength=256)
        return (values @ bits_of_bytes).reshape(-1)[:bits]

    return run


def _duckdb(numbers: np.ndarray, bits: int) -> Counts:
    import duckdb
    import pyarrow as pa

    database = duckdb.connect(config={"threads": 1})
    database.register("reports_in_arrow", pa.table({"r": numbers}))
    database.execute("CREATE TABLE reports AS SELECT r FROM reports_in_arrow")
    sums = ", ".join(f"sum((r >> {bit}) & 1)" for bit in range(bits))
    query = f"SELECT {sums} FROM reports"
    return lambda: np.array(database.execute(query).fetchone(), np.int64)


def _polars(numbers: np.ndarray, bits: int, engine: str) -> Counts:
    import polars as pl

    assert pl.thread_pool_size() == 1
    frame = pl.DataFrame({"r": numbers}).lazy()
    bit_columns = [
        ((pl.col("r") & pl.lit(1 << bit, pl.UInt64)) != 0).sum().alias(str(bit))
        for bit in range(bits)
    ]
    query = frame.select(bit_columns)
    return lambda: np.array(query.collect(engine=engine).row(0), np.int64)
