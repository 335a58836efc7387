"""What it costs a device to load its side of Shoal."""

from __future__ import annotations

import os
import sys
import tempfile

from bench.measuring import Options, Table

SIDE = (
    "import shoal.device.encoding, shoal.device.randomizing, shoal.device.memory,"
    " shoal.device.packing, shoal.device.outbox"
)

_TEXT = (
    "CPU time, user and system, of fresh processes that import and end. What one report needs loads"
    " cryptography, but no NumPy, no SciPy, no pyarrow, nothing of the server, and the network"
    " (http.client, ssl) only when it sends."
)


def measure(options: Options) -> Table:
    """Measure the device's import beside those of Python, of AES and of NumPy."""
    imports = {
        "encoding, randomizing, packing, memory, outbox": SIDE,
        "AES of cryptography": "import cryptography.hazmat.primitives.ciphers.aead",
        "`python -c 'import numpy'`": "import numpy",
        "`python -c pass`": "pass",
    }
    best = dict.fromkeys(imports, float("inf"))
    with tempfile.TemporaryDirectory() as compiled:
        for number in range(options.rounds + 1):
            for name, statement in imports.items():
                spent = _cpu_time(statement, compiled)
                if number:  # the first round compiles
                    best[name] = min(best[name], spent)
    bare = best["`python -c pass`"]
    rows = [(name, 1e3 * spent, spent / bare) for name, spent in best.items()]
    return Table("Loading a device", ("import", "CPU ms", "/ bare Python"), rows, _TEXT)


def _cpu_time(statement: str, compiled: str) -> float:
    """Return the seconds that a process of its own spends, from its start to its end."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": compiled}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    child = os.posix_spawn(sys.executable, [sys.executable, "-c", statement], environment)
    _, status, used = os.wait4(child, 0)
    if status:
        raise RuntimeError(f"{statement} failed")
    return used.ru_utime + used.ru_stime
