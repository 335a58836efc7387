"""A tally of up to a billion reports in Parquet files: rate, and memory of all processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.files import write_reports
from bench.measuring import Options, Table
from bench.tallying import flags_plan

_CHILD = """
import sys, time
from shoal import Plan
from shoal.batch.tally_files import tally_files

if __name__ == "__main__":
    start = time.perf_counter()
    tally = tally_files(Plan.read(sys.argv[1]), [sys.argv[2]], journal=sys.argv[2] + ".journal")
    print(tally.reports, time.perf_counter() - start)
"""

_TEXT = (
    "Reports of 40 bits in Parquet files of 10 million reports, tallied by `tally_files` with a"
    " process for each core and a journal. Memory is the largest sum over all its processes that"
    " was seen in looks 20 ms apart, with what they share counted in each; the time includes"
    " starting the processes. The files are hard links to one file in the system's cache."
)
_FILE = 10_000_000


def measure(options: Options) -> Table:
    """Measure 1e7, 1e8 and 1e9 reports, or a hundredth of that if it must be quick."""
    rows = []
    size = options.size(options.size(_FILE)) if options.quick else _FILE
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        flags_plan(40).write(folder / "plan.json")
        one = write_reports(folder / "one.parquet", size)
        (folder / "child.py").write_text(_CHILD)
        for files in (1, 10, 100):
            inside = folder / f"{files}"
            inside.mkdir()
            for number in range(files):
                os.link(one, inside / f"{number:03}.parquet")
            # Rounds cost minutes at the far end.
            times, peaks = zip(*(_run(folder, inside) for _ in range(1 + 4 // files)), strict=True)
            reports = files * size
            rows.append((f"{reports:.0e} reports", reports / min(times) / 1e6, max(peaks)))
    columns = ("candidate", "M reports/s", "peak MiB of all processes")
    return Table("Tallying many files on all cores", columns, rows, _TEXT, best=False)


def _run(folder: Path, inside: Path) -> tuple[float, float]:
    """Return the seconds that the tally took, and the most memory that was seen."""
    Path(f"{inside}.journal").unlink(missing_ok=True)
    command = [sys.executable, str(folder / "child.py"), str(folder / "plan.json"), str(inside)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        peak = 0.0
        while child.poll() is None:
            peak = max(peak, _memory_of(child.pid))
            time.sleep(0.02)
        assert child.stdout is not None
        reports, seconds = child.stdout.read().split()
    print(f"  {int(reports):,} reports in {float(seconds):.1f} s, {peak:.0f} MiB")
    return float(seconds), peak


def _memory_of(process: int) -> float:
    """Return the resident memory of a process and its children, in MiB."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        return 0.0
    own = re.search(r"VmRSS:\s+(\d+)", status)
    return (int(own[1]) / 1024 if own else 0.0) + sum(_memory_of(int(one)) for one in children)
