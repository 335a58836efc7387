"""Claims, and whether they hold: what Shoal says beside what is true."""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

CASES = int(os.environ.get("SHOAL_ADVERSARY_CASES", "2340"))


class Claim(NamedTuple):
    """A number that Shoal states, and the truth that it must not pass.

    An upper bound must be at least the truth, a lower bound at most.
    """

    said: float | Fraction
    upper: bool
    truth: Fraction
    words: str

    @property
    def holds(self) -> bool:
        """NaN and infinity hold nothing."""
        if isinstance(self.said, float) and not math.isfinite(self.said):
            return False
        said = Fraction(self.said)
        return said >= self.truth if self.upper else said <= self.truth

    @property
    def margin(self) -> float:
        """How far a claim is from being false, relative to the truth; infinite where that is 0."""
        truth = float(self.truth)
        return abs(float(Fraction(self.said) - self.truth)) / truth if truth > 0 else math.inf


def at_least(said: float | Fraction, truth: Fraction, words: str) -> Claim:
    """An upper bound that is stated."""
    return Claim(said, True, truth, words)


def at_most(said: float | Fraction, truth: Fraction, words: str) -> Claim:
    """A lower bound that is stated."""
    return Claim(said, False, truth, words)


def equal(said: float | Fraction, truth: float | Fraction, words: str) -> Iterator[Claim]:
    """A number that is stated exactly."""
    yield Claim(said, True, Fraction(truth), words)
    yield Claim(said, False, Fraction(truth), words)


Kind = Callable[[random.Random], Iterator[Claim]]
"""Makes up one case and yields what is claimed in it."""


@dataclass
class Result:
    """What the cases of one kind showed."""

    name: str
    cases: int = 0
    claims: int = 0
    margin: float = math.inf
    seconds: float = 0.0
    violations: list[str] = field(default_factory=list)

    def holds(self, number: int, claim: Claim) -> bool:
        """Judge one claim."""
        self.claims += 1
        if claim.holds:
            self.margin = min(self.margin, claim.margin)
            return True
        side = "below" if claim.upper else "above"
        truth = f"{float(claim.said)!r} is {side} {float(claim.truth)!r}"
        self.violations.append(f"{self.name} {number}: {truth}: {claim.words}")
        return False

    def __str__(self) -> str:
        smallest = "-" if math.isinf(self.margin) else f"{self.margin:.1e}"
        return (
            f"{self.name:22} {self.cases:7,} cases {self.claims:9,} claims"
            f" {len(self.violations):5} violations, smallest margin {smallest:>8},"
            f" {self.seconds:6.1f} s"
        )


def judge(name: str, kind: Kind, cases: range, most: int = 20) -> Result:
    """Run some cases of a kind; a case is the same whenever and wherever it is run."""
    result = Result(name)
    start = time.process_time()
    for number in cases:
        if len(result.violations) >= most:
            break
        result.cases += 1
        try:
            for claim in kind(random.Random(f"{name} {number}")):
                if not result.holds(number, claim):
                    break  # one violation of a case says enough
        except Exception as error:  # whatever it is, nobody should see it
            result.violations.append(f"{name} {number}: {type(error).__name__}: {error}")
    result.seconds = time.process_time() - start
    return result
