"""The papers' formulas: pure functions of numbers and arrays; single letters live here only.

Nothing is imported on your behalf; take the module you need.

* the channel and the domain: `randomized_response`, `domains`;
* numbers known from both sides: `brackets`; the certified engine under most of them: `stop_loss`;
* one bit, exactly: `one_bit`; its count, cohorts and truncated reports: `binomial`;
* what a crowd of equals reveals: `homogeneous` (delta, eta, the attack), `sufficient`;
* what holds for every crowd: `blanket`, `proven`; where only counts are released: `counts`;
* several mechanisms together, and the Gaussian limit: `composition`;
* the smallest value that keeps a promise: `calibration`;
* crowds in which some are not honest: `honest_crowds`; a curator's noise: `laplace`;
* independent checks: `enumeration`, `mixed_crowds`, `worlds`; other bounds: `literature_bounds`.

Sources by short name: SDP, Sufficient Differential Privacy (Zhilyaev and Zeber 2017); KR,
K-Randomization (the same, 2016); LEC, the lecture on randomized response and Laplace; BITVEC, the
bit-vector proof; BBGN19, The Privacy Blanket of the Shuffle Model (Balle, Bell, Gascon and Nissim
2019). Every formula says whether it is a theorem, a conjecture or observed.
"""
