"""Try mutants, one by one, on a copy of the sources, and say which test caught each.

A word chooses the mutants whose name or function contains it; without words all are tried. First
their tests run without any mutant. The exit code is 1 if a mutant survives.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutants import MUTANTS
from tests.mutants.mutant import ROOT, SOURCES, Mutant

ENVIRONMENT = {
    "COLUMNS": "200",
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # they take long to load, and one is enough
    "PYTHONDONTWRITEBYTECODE": "",  # compiled once, copied with the sources
}


def first_failure(tests: Iterable[str], sources: Path) -> str | None:
    """Run tests on sources; return the first that fails and why, or None if all pass."""
    options = ["-q", "-x", "--tb=no", "-p", "no:cacheprovider", "-p", "hypothesispytest"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *tests],
        cwd=ROOT,
        env=os.environ | ENVIRONMENT | {"PYTHONPATH": str(sources)},
        capture_output=True,
        text=True,
    )
    if done.returncode == 0:
        return None
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    # Sources that cannot be imported prove nothing about a test: only 1 is a failed test.
    # Nor does a mutant with a name that no longer exists.
    if done.returncode != 1 or not failed or "NameError" in failed[0]:
        raise RuntimeError(f"the tests did not run:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return failed[0].partition(" ")[2]


def judge(mutant: Mutant) -> tuple[str, str]:
    """Return a mutant's fate, and the test that caught it or what is wrong with it."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "src"
        shutil.copytree(SOURCES, copy)
        try:
            mutant.apply(copy)
            caught = first_failure(mutant.test_ids, copy)
        except (RuntimeError, ValueError) as error:
            return "UNUSABLE", str(error)
    return ("SURVIVED", "") if caught is None else ("caught", caught)


def main() -> int:
    """Try the mutants that were chosen."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("words", nargs="*", metavar="word", help="part of a name or a function")
    parser.add_argument("--jobs", type=int, default=1, help="how many to try at a time")
    options = parser.parse_args()
    chosen = [
        mutant
        for mutant in MUTANTS
        if not options.words or any(word in mutant.name + mutant.function for word in options.words)
    ]
    began, others = time.monotonic(), 0
    tests = dict.fromkeys(test for mutant in chosen for test in mutant.test_ids)
    if failure := first_failure(tests, SOURCES):
        print(f"without any mutant {failure}")
        return 2
    with ThreadPoolExecutor(options.jobs) as pool:
        for mutant, (fate, why) in zip(chosen, pool.map(judge, chosen), strict=True):
            others += fate != "caught"
            print(f"{fate:8}  {mutant.name}  ({mutant.function})\n{'':10}{why}", flush=True)
    minutes = (time.monotonic() - began) / 60
    print(f"{len(chosen)} mutants, {others} not caught, {minutes:.0f} minutes.")
    return 1 if others else 0


if __name__ == "__main__":
    sys.exit(main())
