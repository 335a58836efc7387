"""How long promises take: an audit, and plans solved for q."""

from __future__ import annotations

import math

import numpy as np

from bench.measuring import Candidate, Options, Table, best_times
from shoal import Choice, Flags, Survey, audit, plan

_TEXT = (
    "One audit computes the proven delta, the attack, and delta and eta of three homogeneous"
    " crowds, all as certified brackets. A plan is solved for q, rounded up and certified again."
    " The last row is one NumPy FFT of 2^20 complex numbers in the same run."
)


def measure(options: Options) -> Table:
    """Measure audit and plan beside a fast Fourier transform."""
    forty = Survey("s", (Flags("answer", tuple(map(str, range(40)))),))
    thousand = Survey("s", (Choice("answer", tuple(map(str, range(1000)))),))
    five = Survey("s", (Flags("answer", tuple("12345")),))
    numbers = np.exp(1j * np.arange(1 << 20))
    certificate = audit(forty, q="0.351", crowd_size=10_000_000)
    candidates = [
        Candidate("audit: 40 flags, N = 1e7, q = .351", 1, lambda: certificate.to_json(epsilon=2)),
        Candidate(
            "plan: 40 flags, N = 1e7, epsilon 2, delta 1e-6",
            1,
            lambda: plan(forty, crowd_size=10_000_000, epsilon="2", delta="1e-6"),
        ),
        Candidate(
            "plan: one of 1000, N = 1e6, epsilon 1, delta 1e-6",
            1,
            lambda: plan(thousand, crowd_size=1_000_000, epsilon="1", delta="1e-6"),
        ),
        Candidate(
            "plan: 5 flags, N = 5000, epsilon ln 2, delta .005",
            1,
            lambda: plan(five, crowd_size=5000, epsilon=math.log(2), delta="0.005"),
        ),
        Candidate("NumPy FFT of 2^20", 1, lambda: np.fft.fft(numbers)),
    ]
    best = best_times(candidates, max(2, options.rounds // 3))
    reference = best["NumPy FFT of 2^20"]
    rows = [(name, seconds, seconds / reference) for name, seconds in best.items()]
    width = certificate.delta(epsilon=2)
    notes = [f"The audit's proven bracket is {width.relative_width:.1e} wide, relatively."]
    return Table("Certifying", ("what", "s", "/ FFT"), rows, _TEXT, notes)
