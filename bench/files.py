"""A tally of reports in files: speed, and memory in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.measuring import LIMIT, Options, Table
from bench.tallying import flags_plan
from shoal.device.arrays.files import VectorWriter
from shoal.device.arrays.randomize import Original
from shoal.device.arrays.simulation_bits import SimulationBits
from shoal.device.randomize import flip
from shoal.protocol.flip_probability import FlipProbability

_CHILD = """
import re, resource, sys, time
from pathlib import Path
from shoal import Plan
from shoal.analysis.tally import Tallying
from shoal.analysis.report_files import read_reports

def peak():
    # What getrusage says would include the memory of the parent.
    try:
        return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

plan, path = Plan.read(sys.argv[1]), Path(sys.argv[2])
tallying = Tallying(plan, vectors=False)
before, start = peak(), time.perf_counter()
if sys.argv[3] == "tally":
    for chunk in read_reports(plan, path):
        tallying.add(chunk.rows, simulated=chunk.simulated)
    assert tallying.result().reports == int(sys.argv[4])
else:
    assert sum(len(chunk) for chunk in read_reports(plan, path)) == int(sys.argv[4])
print(time.perf_counter() - start, before, peak())
"""

_TEXT = (
    "{reports:,} reports of 40 bits in a file of {size:.0f} MB that is in the system's cache."
    " Memory is the peak of a fresh process, imports included, and its growth while the file was"
    " processed. The limit is reading the file in the same chunks without counting. Polars and"
    " DuckDB sum each bit of a tenth as many random numbers of 40 bits, in a Parquet column of"
    " 64-bit integers, on one thread."
)


def measure(options: Options) -> Table:
    """Measure the tally of a Parquet file and of a file of raw rows."""
    reports = options.size(20_000_000)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = _write(folder, reports)
        size = paths[1].stat().st_size / 1e6
        work = [(path, what) for path in paths for what in ("tally", "read")]
        best: dict[tuple[Path, str], tuple[float, float, float]] = {}
        few = max(1_000_000, reports // 10)
        beside = [(label, few, run) for label, run in _beside(folder, few)]
        others: dict[str, tuple[float, int]] = {}
        for number in range(options.rounds):
            for path, what in work:
                seconds, before, peak = _run(folder / "plan.json", path, what, reports)
                fastest = min(seconds, best[path, what][0]) if number else seconds
                best[path, what] = (fastest, before, peak)
            for label, count, run in beside:
                start = time.perf_counter()
                try:
                    run()
                except ImportError:
                    continue
                seconds = time.perf_counter() - start
                others[label] = (min(seconds, others.get(label, (seconds, 0))[0]), count)
            print(f"\r  round {number + 1} of {options.rounds}", end="", flush=True)
    print()
    rows: list[tuple[object, ...]] = []
    for (path, what), (seconds, before, peak) in best.items():
        kind = "Parquet" if path.suffix == ".parquet" else "raw rows"
        label = f"**Shoal `tally`**, {kind}" if what == "tally" else f"{LIMIT}reading, {kind}"
        share = 100 * best[path, "read"][0] / seconds
        rows.append((label, reports / seconds / 1e6, share, peak, peak - before))
    limit = best[paths[0], "read"][0]
    for label, (seconds, count) in others.items():
        rows.append((label, count / seconds / 1e6, 100 * limit * count / reports / seconds, "", ""))
    columns = ("candidate", "M reports/s", "% of the limit", "peak MiB", "growth MiB")
    text = _TEXT.format(reports=reports, size=size)
    return Table("Tallying files", columns, rows, text)


def _write(folder: Path, reports: int) -> list[Path]:
    flags_plan(40).write(folder / "plan.json")
    return [write_reports(folder / name, reports) for name in ("reports.parquet", "reports.rows")]


def write_reports(path: Path, reports: int) -> Path:
    """Write so many simulated reports of 40 bits."""
    original = Original(np.zeros((min(reports, 1_000_000), 5), np.uint8), 40)
    with VectorWriter(path, flags_plan(40), simulated=True) as writer:
        bits = SimulationBits(1)
        while writer.written < reports:
            writer.write(flip(FlipProbability(1, 1), original, random_bits=bits))
    return path


def _beside(folder: Path, reports: int) -> list[tuple[str, Callable[[], object]]]:
    """Return what polars and DuckDB need for the sums of bits of the same Parquet, as integers."""
    path = folder / "numbers.parquet"
    generator = np.random.default_rng(1)
    schema = pa.schema([("r", pa.uint64())])
    with pq.ParquetWriter(path, schema, use_dictionary=False, compression="none") as writer:
        for _ in range(reports // 1_000_000):
            numbers = generator.integers(0, 1 << 40, 1_000_000, np.uint64)
            writer.write(pa.table([pa.array(numbers)], schema=schema))

    def with_polars() -> object:
        import polars as pl

        column = pl.col("r")
        sums = [((column & (1 << bit)) != 0).sum().alias(str(bit)) for bit in range(40)]
        return pl.scan_parquet(path).select(sums).collect(engine="streaming")

    def with_duckdb() -> object:
        import duckdb

        database = duckdb.connect(config={"threads": 1})
        sums = ", ".join(f"sum((r >> {bit}) & 1)" for bit in range(40))
        return database.execute(f"SELECT {sums} FROM '{path}'").fetchone()

    return [("Polars, streaming, Parquet", with_polars), ("DuckDB, Parquet", with_duckdb)]


def _run(plan: Path, path: Path, what: str, reports: int) -> tuple[float, float, float]:
    command = [sys.executable, "-c", _CHILD, str(plan), str(path), what, str(reports)]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds, before, peak = map(float, result.stdout.split())
    return seconds, before, peak
