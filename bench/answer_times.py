"""Whether the time of an answer tells a sender when a crowd begins or is complete."""

from __future__ import annotations

import os

import numpy as np
from tests.server.privacy_help import FLAGS_PLAN
from tests.server.test_timing import crowd_times, line_to, told_apart

from bench.measuring import Options, Table


def measure(options: Options) -> Table:
    """Time reports one after another, and compare those at both ends of a crowd with the others."""
    requests = 1_000 if options.quick else 100_000
    random = np.random.default_rng(int.from_bytes(os.urandom(8)))
    with line_to(plan=FLAGS_PLAN) as line:
        times = crowd_times(line, FLAGS_PLAN, requests, random)
    others = times[:, 1:-1].ravel()
    kinds = {"begins a crowd": times[:, 0], "completes a crowd": times[:, -1], "any other": others}
    rows = [
        (
            name,
            f"{some.size:,}",
            1000 * float(np.median(some)),
            1000 * float(np.quantile(some, 0.99)),
            "" if some is others else told_apart(some, others),
        )
        for name, some in kinds.items()
    ]
    return Table(
        "Whether answer times tell when a crowd is complete",
        ["the report", "requests", "median ms", "p99 ms", "p-value"],
        rows,
        f"{requests:,} reports, one at a time, in crowds of {FLAGS_PLAN.crowd_size}: whoever sends"
        " nearly all of them would like to know when somebody else's report has come between. The"
        " p-value is that of the Kolmogorov-Smirnov and the Mann-Whitney test together, against all"
        " other reports; the tests of the collector sound an alarm at 1e-6.",
        best=False,
    )
