"""Mutants: changes that break a promise, each with the tests that must notice it.

``python -m tests.mutants [WORD ...] [--jobs 2]`` applies them one by one to a copy of the sources,
runs their tests on the copy, and prints which test caught each. A word chooses the mutants whose
name or file contains it. None may survive. It takes an hour or so and is not part of `make test`;
`test_mutants_list.py` sees to it that every mutant still fits the sources.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent


class Mutant(NamedTuple):
    """A change of one place in the sources."""

    name: str  # what goes wrong, in words
    file: str  # below src/shoal
    before: str  # occurs exactly once in the file
    after: str
    tests: str  # files or node ids below tests/, separated by blanks


def source_of(mutant: Mutant, root: Path = ROOT) -> Path:
    return root / "src" / "shoal" / mutant.file


def mutated(mutant: Mutant) -> str:
    """Return the changed file."""
    text = source_of(mutant).read_text("utf-8")
    if text.count(mutant.before) != 1:
        raise ValueError(f"{mutant.name}: {mutant.before!r} is not once in {mutant.file}")
    return text.replace(mutant.before, mutant.after)


def first_failure(tests: str, sources: Path) -> str | None:
    """Run tests on a copy of the sources; return the first that fails, or None."""
    environment = os.environ | {"PYTHONPATH": str(sources), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--tb=no"]
    paths = [f"tests/{test}" for test in tests.split()]
    done = subprocess.run(
        [*command, *paths], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    if done.returncode == 0:
        return None
    for line in done.stdout.splitlines():
        if line.startswith(("FAILED ", "ERROR ")):
            return line.split(" ", 1)[1].split(" - ")[0]
    raise RuntimeError(f"pytest did not run {tests}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def judge(mutant: Mutant | None, tests: str) -> str | None:
    """Return the test that caught a mutant, or None if it survived; no mutant: as it is."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__"))
        if mutant is not None:
            source_of(mutant, copy).write_text(mutated(mutant), "utf-8")
        return first_failure(tests, copy / "src")


def main() -> int:
    """Judge the mutants and say which survived."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    chosen = [
        mutant
        for mutant in MUTANTS
        if not options.words or any(w in mutant.name + mutant.file for w in options.words)
    ]
    with ThreadPoolExecutor(options.jobs) as pool:
        plain = dict.fromkeys(mutant.tests for mutant in chosen)
        for tests, failure in zip(plain, pool.map(lambda t: judge(None, t), plain), strict=True):
            if failure is not None:
                print(f"{failure} fails without any mutant")
                return 2
        survivors = 0
        for mutant, caught in zip(
            chosen, pool.map(lambda m: judge(m, m.tests), chosen), strict=True
        ):
            survivors += caught is None
            print(f"{'SURVIVED' if caught is None else 'caught  '}  {mutant.name}: {caught}", flush=True)
    print(f"{len(chosen)} mutants, {survivors} survived.")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
