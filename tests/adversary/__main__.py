"""Run the adversary by hand: ``python -m tests.adversary [PART/PARTS] [kind ...]``.

Without kinds all of them run. How many cases is said by SHOAL_ADVERSARY_CASES. Prints the cases and
claims of each kind, the smallest margin seen, and every violation; the exit code says whether there
were any.
"""

from __future__ import annotations

import sys
import warnings

from shoal.errors import WeakPromiseWarning

from .judging import CASES
from .kinds import KINDS, run


def main(words: list[str]) -> int:
    """Run kinds of cases and print what was seen."""
    warnings.simplefilter("error")
    warnings.simplefilter("ignore", WeakPromiseWarning)  # as in the suite
    part, parts = map(int, words.pop(0).split("/")) if words and "/" in words[0] else (0, 1)
    results = []
    for name in words or KINDS:
        results.append(run(name, CASES, part, parts))
        print(results[-1], flush=True)
        for violation in results[-1].violations:
            print(f"    {violation}", flush=True)
    wrong = sum(len(result.violations) for result in results)
    cases, claims = sum(r.cases for r in results), sum(r.claims for r in results)
    seconds = sum(r.seconds for r in results)
    print(f"{cases:,} cases, {claims:,} claims, {wrong:,} violations, {seconds:,.0f} s of CPU")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
