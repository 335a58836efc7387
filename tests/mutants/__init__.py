"""Mutants: changes that break a promise, each with the tests that must notice it.

A mutant changes one place of the sources as a careless engineer might. The lists are by subject;
those that harm people come first. ``python -m tests.mutants`` tries them.
"""

from __future__ import annotations

from tests.mutants import (
    analysis,
    analyzer,
    collector,
    device,
    engines,
    parties,
    promises,
    relay,
    telemetry,
    theory,
    views,
)
from tests.mutants.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = (
    *device.MUTANTS,
    *telemetry.MUTANTS,
    *promises.MUTANTS,
    *parties.MUTANTS,
    *collector.MUTANTS,
    *analyzer.MUTANTS,
    *relay.MUTANTS,
    *theory.MUTANTS,
    *views.MUTANTS,
    *analysis.MUTANTS,
    *engines.MUTANTS,
)
