"""Planning with memory, and what a plan promises when the same people report again and again.

Composition theorems need fresh coins, and a permanent vector's are not. What holds, each a theorem:

* One release: its N reports are independent, each bit flipped with q, so proven(q, N).
* The reports about one answer, however many: they are made from its permanent vector, so local(q1);
  for n of them exactly `local_privacy.repeated_epsilon`. Neighbours differ in what the answer
  was, at the same times. Distinct answers have vectors of their own and add up.
* All reports of a person whose answers may change at any time: given the permanent vectors, which
  are any vectors, each report's bits are flipped afresh with q2 (`local_privacy.changing_epsilon`).
* The same N people in every release, none of whom changes the answer: the releases depend on the
  permanent vectors only through their histogram, so proven(q1, N) for all of them together, by
  post-processing. People who change their answer, or miss a release, are no cover: c of them make
  the crowd N - c.
* Crowds that change: given the permanent vectors, each release flips afresh with q2 the bits of
  vectors of the full cube, so proven(q2, N) for flags on all bits composes. Where that is not
  better than the local bound, the local bound is all that is claimed.
"""

from shoal.planning.over_time.horizons import Horizon, parse_horizon, releases_in_a_year
from shoal.planning.over_time.linking import linking_probability
from shoal.planning.over_time.plan import plan_with_memory
from shoal.planning.over_time.statements import HoldsFor, Statement, guarantees_over_time

__all__ = [
    "HoldsFor",
    "Horizon",
    "Statement",
    "guarantees_over_time",
    "linking_probability",
    "parse_horizon",
    "plan_with_memory",
    "releases_in_a_year",
]
