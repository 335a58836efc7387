"""The papers' formulas: pure functions of numbers and arrays; letters live here only.

Nothing is imported on your behalf; take the module you need.

* the channel and the domain: `coin`, `domains`;
* one bit, exactly: `one_bit`;
* the engine, certified from both sides: `stop_loss`;
* what a crowd of equals reveals: `homogeneous` (delta, eta, the attack), `sufficient`,
  `three_sigma`;
* what holds for every crowd: `blanket`, `proven`; where only counts are released: `counts`;
* the smallest value that keeps a promise, whatever the value is: `calibration`; and with it the
  questions turned round, which q, which epsilon, how large a crowd: `solve`;
* people who answer in cohorts, and crowds in which some are not honest: `cohorts`,
  `honest_crowds`;
* laws and limits used elsewhere: `normal`, `laplace_law` (the curator's noise);
* the referee and the competition: `search.enumeration`, `published`.

Sources by short name: SDP, Sufficient Differential Privacy (Zhilyaev and Zeber 2017); KR,
K-Randomization (the same, 2016); LEC, the lecture on randomized response and Laplace; BITVEC, the
bit-vector proof; BBGN19, The Privacy Blanket of the Shuffle Model (Balle, Bell, Gascon and Nissim
2019). Every formula says whether it is a theorem, a conjecture or observed.
"""
