"""A relay's batch: the reports of many people, of which one that is late refuses no other.

Whether a report is refused depends on its window and the clock alone, never on what has come
before, so that the answer does not tell a repeated report from a new one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shoal.agreement.wire import Batch
from shoal.collector import problems
from shoal.collector.problems import Problem

__all__ = ["Part", "parts_of", "refused"]

MOST_WINDOWS = 1000
"""Windows that the reports of one batch may be of; no more than three are ever open."""

_OF_A_REPORT = (problems.WINDOW_EXPIRED, problems.WINDOW_NOT_OPEN)
"""Problems that one report of a batch can have while the others are well."""


class Part(NamedTuple):
    """The reports of one window, and their places in the batch."""

    places: NDArray[np.intp]
    reports: Batch


def parts_of(batch: Batch) -> list[Part] | Problem:
    """Return the reports of each window by themselves."""
    order = np.argsort(batch.windows, kind="stable")
    windows, starts = np.unique(batch.windows[order], return_index=True)
    if len(windows) > MOST_WINDOWS:
        return problems.MALFORMED
    return [Part(at, _chosen(batch, at)) for at in np.split(order, starts[1:])]


def refused(parts: Sequence[Part], answers: Sequence[Problem | None]) -> bytes | Problem:
    """Return the document that says which reports were refused.

    A problem that is not about single reports is returned instead. Some of them may then have been
    taken; the relay sends the whole batch again, and they are not counted twice.
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
