"""Formulas of the papers as pure functions of numbers and arrays. Import the module you need.

An accounting library of its own: ``from shoal.theory import channel, shuffled, aggregated`` bounds
how much reports of any local randomizer tell, and imports nothing else of Shoal.

| module | contents |
|---|---|
| `randomized_response`, `domains` | the channel; which answers are allowed |
| `brackets`, `stop_loss` | numbers known from both sides; the engine that certifies them |
| `one_bit`, `binomial` | one bit exactly; its count, cohorts, truncated reports |
| `homogeneous`, `sufficient` | crowds of equal answers: delta, eta, the attack |
| `blanket`, `proven`, `counts` | bounds for every crowd: whole reports, released counts |
| `adapted`, `adapted_search` | a tighter bound for whole reports of a few flags |
| `rigorous` | the proven bounds a second time, in ball arithmetic |
| `channel`, `accounting` | any local randomizer: `shuffled` and `aggregated` reports |
| `composition`, `calibration` | several mechanisms; the smallest value that keeps a promise |
| `honest_crowds` | tests for fakes |
| `laplace`, `discrete_gaussian` | noise of a curator or of aggregators |
| `enumeration`, `mixed_crowds`, `worlds` | independent checks and the search for worse crowds |
| `literature_bounds` | published bounds, for comparison |

Arguments mean the same everywhere: `N` >= 1 reports, the one in question included; `q` in
(0, 1/2], the flip probability; `epsilon` >= 0, the logarithm of ``lam``; `domain`, the blocks of
bits of the questions; `rtol`, the relative width asked of a bracket; `xtol`, how far a solved
value may be from the best one, as a part of it.

Sources by short name: SDP, Sufficient Differential Privacy (Zhilyaev and Zeber 2017); KR,
K-Randomization (the same, 2016); LEC, the lecture on randomized response and Laplace; BITVEC, the
bit-vector proof; BBGN19, The Privacy Blanket of the Shuffle Model (Balle, Bell, Gascon and Nissim
2019). Every formula says whether it is a theorem, a conjecture or observed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.theory import channel
    from shoal.theory.accounting import Bound, aggregated, shuffled

__all__ = ["Bound", "aggregated", "channel", "shuffled"]


def __getattr__(name: str) -> Any:
    # the formulas of a device need no NumPy
    if name in ("Bound", "aggregated", "shuffled"):
        from shoal.theory import accounting

        return getattr(accounting, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
