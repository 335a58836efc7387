"""How long a command takes before it does anything."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from bench.measuring import Candidate, Options, Table, best_times
from bench.tallying import flags_plan
from shoal import tally
from shoal.protocol.wire import Synthetic

_TEXT = (
    "Whole processes, from start to end, on small inputs. A command that works with bit vectors has"
    " to load NumPy; help does not."
)


def measure(options: Options) -> Table:
    """Measure the start of commands beside that of Python and of NumPy."""
    shoal = str(Path(sys.executable).with_name("shoal"))
    with tempfile.TemporaryDirectory() as folder:
        agreed = flags_plan(5)
        plan_file, tally_file = f"{folder}/plan.json", f"{folder}/tally.json"
        agreed.write(plan_file)
        rows = np.random.default_rng(1).integers(0, 32, (1000, 1), dtype=np.uint8)
        tally(agreed, Synthetic(rows, agreed.bits)).write(tally_file)
        commands = {
            "`shoal --help`": [shoal, "--help"],
            "`shoal plan --flags 5 --q 0.2`": [shoal, "plan", "--flags", "5", "--q", "0.2"],
            "`shoal estimate plan.json tally.json`": [shoal, "estimate", plan_file, tally_file],
            "`python -c pass`": [sys.executable, "-c", "pass"],
            "`python -c 'import numpy'`": [sys.executable, "-c", "import numpy"],
        }
        candidates = [Candidate(name, 1, _runner(words)) for name, words in commands.items()]
        best = best_times(candidates, options.rounds)
    bare, with_numpy = list(best.values())[-2:]
    rows = [(name, 1e3 * t, t / bare, t / with_numpy) for name, t in best.items()]
    columns = ("command", "ms", "/ bare Python", "/ import numpy")
    return Table("Starting", columns, rows, _TEXT)


def _runner(command: list[str]) -> Callable[[], object]:
    return lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
