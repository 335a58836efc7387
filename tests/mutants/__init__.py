"""Mutants: changes that break a promise, each with the tests that must notice it.

There is at least one for each privacy statement of `docs/statements.md`. `python -m tests.mutants`
tries them. For mutants of everything else use a tool: CONTRIBUTING.md says how.
"""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "every second bit is not flipped",
        "shoal.device.randomize:draw_flips",
        "return flips & (1 << bits) - 1",
        "return flips & (1 << bits) - 1 & int('55' * 512, 16)",
        "device/test_randomize.py::TestExact::test_of_all_combinations_of_fair_bits_exactly_the_numerator_flip",
    ),
)
