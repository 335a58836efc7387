"""Mutants: changes that break a promise, each with the tests that must notice it.

A mutant changes one place of the sources as a careless engineer might. The lists are by subject;
those that harm people come first. ``python -m tests.mutants`` tries them.
"""

from __future__ import annotations

from tests.mutants import analysis, collector, device, engines, promises, theory, views
from tests.mutants.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = (
    *device.MUTANTS,
    *promises.MUTANTS,
    *collector.MUTANTS,
    *theory.MUTANTS,
    *views.MUTANTS,
    *analysis.MUTANTS,
    *engines.MUTANTS,
)
