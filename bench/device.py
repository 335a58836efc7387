"""What it costs a device to load its side of Shoal."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from bench.measuring import Options, Table
from shoal import Flags, Plan, Survey
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Promise

ONE_REPORT = (
    "import shoal.device.encode, shoal.device.randomize, shoal.device.randomize,"
    " shoal.device.outbox, shoal.device.outbox.http, shoal.device.memory, shoal.device.ledger"
)

_FIRST_REPORT = """
import os
class Nobody:
    fetch_plan = post_report = None
folder = {plan!r} + str(os.getpid())
ledger = shoal.device.ledger.Ledger(folder + "/ledger")
outbox = shoal.device.outbox.Outbox(folder, Nobody(), ledger=ledger)
outbox.answer(shoal.Plan.read({plan!r}), {{"command": ["build"]}})
"""

_TEXT = (
    "CPU time, user and system, of fresh processes that import and end. What one report needs is"
    " the standard library: no cryptography, no NumPy, no SciPy, no pyarrow, nothing of the server,"
    " and the network (http.client, ssl) only when it sends. What reads JSON, hashes, and matches"
    " patterns is loaded by the first report, which is the second row: a plan is read and checked,"
    " an answer encoded, charged to a ledger, randomized and stored."
)


def measure(options: Options) -> Table:
    """Measure the device's imports beside those of Python, of NumPy and of the whole of Shoal."""
    with tempfile.TemporaryDirectory() as compiled:
        plan = f"{compiled}/plan.json"
        tool_plan().write(plan)
        imports = {
            "one report: encode, randomize, pack, outbox, sending, memory, ledger": ONE_REPORT,
            "the same, and the first report": ONE_REPORT + _FIRST_REPORT.format(plan=plan),
            "one report, with the cipher of memory": f"{ONE_REPORT},"
            " cryptography.hazmat.primitives.ciphers.aead",
            "telemetry, as a tool loads it": "import shoal.device.telemetry",
            "many reports and tallies: the whole of Shoal": "import shoal.device.arrays.encode,"
            " shoal.analysis.tally, shoal.planning.plan",
            "`python -c 'import numpy'`": "import numpy",
            "`python -c pass`": "pass",
        }
        best = dict.fromkeys(imports, float("inf"))
        for number in range(options.rounds + 1):
            for name, statement in imports.items():
                spent = cpu_time(statement, compiled)
                if number:  # the first round compiles
                    best[name] = min(best[name], spent)
    bare = best["`python -c pass`"]
    rows = [(name, 1e3 * spent, 1e3 * (spent - bare), spent / bare) for name, spent in best.items()]
    columns = ("import", "CPU ms", "beyond bare, ms", "/ bare Python")
    size = installed_bytes() / 1e3
    note = f"the folders of a device take {size:,.0f} kB, without what Python compiles of them."
    return Table("Loading a device", columns, rows, _TEXT, [note])


def tool_plan() -> Plan:
    """Return the plan of a small tool."""
    survey = Survey("tool", (Flags("command", ("build", "test")),))
    return Plan(survey, FlipProbability(1, 2), Promise("local", "3"), window=7 * 86_400)


def installed_bytes() -> int:
    """Return how much the folders take that a device imports from."""
    root = Path(__file__).parent.parent / "src" / "shoal"
    files = [path for name in PARTS for path in (root / name).rglob("*.py")]
    return sum(path.stat().st_size for path in files if "arrays" not in path.parts)


PARTS = ("support", "protocol", "device")


def cpu_time(statement: str, compiled: str, environ: Mapping[str, str] = os.environ) -> float:
    """Return the seconds that a process of its own spends, from its start to its end."""
    environment = {**environ, "PYTHONPYCACHEPREFIX": compiled}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    child = os.posix_spawn(sys.executable, [sys.executable, "-c", statement], environment)
    _, status, used = os.wait4(child, 0)
    if status:
        raise RuntimeError(f"{statement} failed")
    return used.ru_utime + used.ru_stime
