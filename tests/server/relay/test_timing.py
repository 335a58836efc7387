"""How long a relay's answer takes does not tell whether the report had come before.

As for the collector: whether a request repeats a report is drawn by chance each time, so if the
answers tell nothing, every draw was as likely, whatever the machine did meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from scipy.stats import ks_2samp, mannwhitneyu

from shoal.protocol.wire import ENCRYPTED_TYPE
from tests.server.test_timing import ALARM, ROUNDS, WARM_UP, WITHOUT_TICKS, Line, times_of

from .relay_help import FakeAnalyzer, made, party_plan, reachable, sealed
from .relay_process import Process

REQUESTS = int(os.environ.get("SHOAL_TIMED_REQUESTS", "1000"))
PLAN = party_plan("timed", crowd=10**6)
"""Its crowd is never complete here: a report that had come before completes none."""
RETURNS_EARLY = """
from shoal.server.relay.store import RelayStore
accept, seen = RelayStore.accept, set()

def early(self, uploads):
    ids = {upload.content[:16] for upload in uploads}
    if ids <= seen:
        return [None] * len(uploads)
    seen.update(ids)
    return accept(self, uploads)

RelayStore.accept = early
"""


@contextmanager
def line_to(before: str = "") -> Iterator[tuple[Process, Line]]:
    """Run a relay on a disk in memory, if there is one: whoever measures wants little noise."""
    memory = Path("/dev/shm")
    with (
        TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder,
        reachable(FakeAnalyzer(PLAN)) as url,
        Process(Path(folder), PLAN, url, before) as relay,
    ):
        relay.start()
        line = Line(relay, f"/v1/plans/{PLAN.id}/encrypted", ENCRYPTED_TYPE)
        try:
            yield relay, line
        finally:
            line.close()


def judge(relay: Process, line: Line, random: np.random.Generator) -> float:
    """Return the p-value of both tests together."""
    key = relay.crowd_key(PLAN)
    reports = made(PLAN, REQUESTS + WARM_UP, int(random.integers(2**31)))
    bodies = [sealed(PLAN, key, [report]).to_bytes() for report in reports]
    sent = WARM_UP
    for body in bodies[:sent]:
        line.time_of(body)
    repeats, times = times_of(line, bodies, sent, random)
    one, other = times[~repeats], times[repeats]
    both = min(ks_2samp(one, other).pvalue, mannwhitneyu(one, other).pvalue)
    return min(1.0, 2 * float(both))


@pytest.mark.slow
def test_answer_times_of_fresh_and_repeated_reports_do_not_differ() -> None:
    """False alarm: 1e-18, since three rounds of their own would all have to reject at 1e-6."""
    random = np.random.default_rng(int.from_bytes(os.urandom(8)))
    with line_to() as (relay, line):
        pvalues: list[float] = []
        while len(pvalues) < ROUNDS:
            pvalues.append(judge(relay, line, random))
            print(f"p = {pvalues[-1]:.2g} in {REQUESTS:,} requests")
            if pvalues[-1] >= ALARM:
                return
    pytest.fail(f"the answer tells whether a report is new: {pvalues}")


@pytest.mark.slow
def test_less_work_for_repeated_reports_would_be_seen() -> None:
    random = np.random.default_rng(1)
    with line_to(WITHOUT_TICKS + RETURNS_EARLY) as (relay, line):
        assert judge(relay, line, random) < ALARM
