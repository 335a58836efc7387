"""Formulas of the papers as pure functions of numbers and arrays. Import the module you need.

| module | contents |
|---|---|
| `randomized_response`, `domains` | the channel; which answers are allowed |
| `brackets`, `stop_loss` | numbers known from both sides; the engine that certifies them |
| `one_bit`, `binomial` | one bit exactly; its count, cohorts, truncated reports |
| `homogeneous`, `sufficient` | crowds of equal answers: delta, eta, the attack |
| `blanket`, `proven`, `counts` | bounds for every crowd: whole reports, released counts |
| `composition`, `calibration` | several mechanisms; the smallest value that keeps a promise |
| `honest_crowds` | tests for fakes |
| `laplace`, `discrete_gaussian` | a curator's noise |
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
