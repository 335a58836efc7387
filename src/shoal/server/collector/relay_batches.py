"""A relay's batch: reports of many people. A late report does not make the others fail.

Whether a report is refused depends only on its window and the clock, never on earlier reports. So
the answer does not tell a repeated report from a new one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shoal.analysis.report_rows import Batch
from shoal.server.core import problems
from shoal.server.core.problems import Problem

__all__ = ["Part", "refusal_document", "split_by_window"]

MOST_WINDOWS = 1000
"""How many windows the reports of one batch may have; at most three are ever open."""

_OF_A_REPORT = (problems.WINDOW_EXPIRED, problems.WINDOW_NOT_OPEN)
"""Problems that concern single reports of a batch."""


class Part(NamedTuple):
    """The reports of one window, and their places in the batch."""

    places: NDArray[np.intp]
    reports: Batch


def split_by_window(batch: Batch) -> list[Part] | Problem:
    """Split a batch into one part for each window."""
    order = np.argsort(batch.windows, kind="stable")
    windows, starts = np.unique(batch.windows[order], return_index=True)
    if len(windows) > MOST_WINDOWS:
        return problems.MALFORMED
    return [Part(at, _chosen(batch, at)) for at in np.split(order, starts[1:])]


def refusal_document(parts: Sequence[Part], answers: Sequence[Problem | None]) -> bytes | Problem:
    """Return the JSON document that says which reports were refused.

    A problem that does not concern single reports is returned instead. Some reports may have been
    counted by then. The relay sends the whole batch again, and they are not counted twice.
    """
    places: dict[str, list[int]] = {problem.name: [] for problem in _OF_A_REPORT}
    for part, answer in zip(parts, answers, strict=True):
        if answer is not None and answer not in _OF_A_REPORT:
            return answer
        if answer is not None:
            places[answer.name] += part.places.tolist()
    return json.dumps({"refused": {name: sorted(at) for name, at in places.items()}}).encode()


def _chosen(batch: Batch, at: NDArray[np.intp]) -> Batch:
    if len(at) == len(batch):
        return batch
    cohorts = None if batch.cohorts is None else batch.cohorts[at]
    return Batch(batch.plan_id, batch.ids[at], batch.windows[at], cohorts, batch.rows[at])
