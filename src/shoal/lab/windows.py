"""Simulated devices over several windows: they begin, draw an arm, pause, and leave for good."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.analysis.intervals import Target
from shoal.analysis.retention import RetentionCurve, retention
from shoal.analysis.tally import Tally, Tallying
from shoal.device.arrays.encode import set_cells
from shoal.device.arrays.randomize import Original, pack
from shoal.device.arrays.simulation_bits import SimulationBits, fresh_seed, simulation_generator
from shoal.device.randomize import flip
from shoal.errors import InputError
from shoal.lab.populations import draw_answers
from shoal.protocol.plan import Plan
from shoal.protocol.survey import Retention, Survey, Text
from shoal.support.checks import check_integer, check_number, takes
from shoal.support.results import Displayed, Section

Shares = float | Mapping[str, float]
"""A probability, the same for all or by the arm that a device drew."""


@dataclass(frozen=True, eq=False, repr=False)
class SimulatedWindows(Displayed):
    """One tally for each window, and how many devices truly were active at each age.

    It shows `curve`, which the tallies tell, with the truth beside each estimate.

    `active` has a row for the window in which devices began and a column for their age; it is -1
    where that window is not simulated.
    """

    curve: RetentionCurve
    tallies: tuple[Tally, ...]
    active: NDArray[np.int64]

    def true_retention(self, age: int) -> float:
        """Return the share of devices that were active at an age, of all that could have been.

        It is not a number if nobody could have been.
        """
        known = self.active[:, age] >= 0
        if not known.any():
            return math.nan
        return float(self.active[known, age].sum() / self.active[known, 0].sum())

    def _headline(self) -> str:
        return f"{self.curve._headline()}, beside the truth"

    def _sections(self) -> list[Section]:
        (table,) = self.curve._sections()
        truths = (self.true_retention(one.period) for one in self.curve.points)
        rows = [
            (row[0], "?" if math.isnan(truth) else f"{truth:.2%}", *row[1:])
            for row, truth in zip(table.rows, truths, strict=True)
        ]
        return [Section((table.heads[0], "truth", *table.heads[1:]), rows)]

    def to_json(self) -> dict[str, Any]:
        """Return the curve as JSON values, with `truth` beside each point; reports by window."""
        document = self.curve.to_json()
        for point in document["points"]:
            truth = self.true_retention(point["period"])
            point["truth"] = None if math.isnan(truth) else truth
        return document | {"reports": [one.reports for one in self.tallies]}

    def write(self, path: Path) -> list[Path]:
        """Write each tally; `path` `week.json` names the files `week1.json`, `week2.json`, ..."""
        paths = [path.with_stem(f"{path.stem}{one}") for one in range(1, len(self.tallies) + 1)]
        for file, tally in zip(paths, self.tallies, strict=True):
            tally.write(file)
        return paths


@takes(plan=Plan)
def simulate_windows(
    plan: Plan,
    *,
    new_users: int,
    windows: int,
    leave: Shares = 0.3,
    pause: Shares = 0.1,
    seed: int | None = None,
    level: float = 0.95,
    target: Target = "crowd",
) -> SimulatedWindows:
    """Simulate the reports of every window of a plan that asks for ages.

    In each window `new_users` devices begin. Before every later one a device leaves for good with
    probability `leave`; one that stays is inactive in that window alone with probability `pause`.
    Both may be given by arm. Active devices report their age, until it is above the last.

    >>> from shoal import Survey, plan
    >>> survey = Survey("tool", (Retention("weeks", periods=2, period="1w"),))
    >>> agreed = plan(survey, q="0.1", accept_weak_promise=True)
    >>> run = simulate_windows(agreed, new_users=1000, windows=4, leave=0.5, pause=0, seed=1)
    >>> len(run.tallies), round(run.true_retention(1), 1)
    (4, 0.5)
    """
    survey, ages = plan.survey, _ages_of(plan.survey)
    check_integer("new_users", new_users, lowest=1)
    check_integer("windows", windows, lowest=1, highest=10_000)
    generator = simulation_generator(fresh_seed() if seed is None else seed)
    noise = SimulationBits(int(generator.integers(2**62)))
    tallying = [Tallying(plan, crowd=f"window {one}", window=one) for one in range(windows)]
    active = np.full((windows, ages.periods + 1), -1)
    for begin in range(windows):
        asked = [one for one in survey.asked if one is not ages]
        kept = {one.name: draw_answers(one, new_users, generator) for one in asked}
        leaves, pauses = (_by_arm(survey, kept, share, new_users) for share in (leave, pause))
        stays = np.ones(new_users, bool)
        for age in range(min(ages.periods + 1, windows - begin)):
            here = stays
            if age:
                stays = stays & (generator.random(new_users) >= leaves)
                here = stays & (generator.random(new_users) >= pauses)
            active[begin, age] = here.sum()
            kept[ages.name] = np.zeros((new_users, ages.bits), bool)
            kept[ages.name][:, age] = True
            vectors = np.zeros((int(here.sum()), survey.bits), bool)
            for question in survey.asked:
                vectors[:, survey.slice_of(question.name)] = kept[question.name][here]
            set_cells(survey, vectors)
            if len(vectors):
                original = Original(pack(vectors), survey.bits, None)
                reports = flip(plan, original, random_bits=noise)
                tallying[begin + age].add(reports.rows, simulated=True)
    tallies = tuple(one.result() for one in tallying)
    curve = retention(plan, tallies, level=level, target=target)
    return SimulatedWindows(curve, tallies, active)


def _ages_of(survey: Survey) -> Retention:
    if not survey.has_ages or any(isinstance(one, Text) for one in survey.asked):
        raise InputError("windows are simulated for surveys with a retention question, no text.")
    (ages,) = survey.retention
    assert isinstance(ages, Retention)
    return ages


def _by_arm(
    survey: Survey, kept: Mapping[str, NDArray[np.bool_]], given: Shares, count: int
) -> NDArray[np.float64]:
    """Return the probability of each device."""
    if not isinstance(given, Mapping):
        return np.full(count, _share(given))
    if len(survey.arms) != 1 or set(given) != set(survey.arms[0].options):
        raise InputError("leave and pause by arm need one arm question, and a share of each arm.")
    (arm,) = survey.arms
    shares = np.array([_share(given[name]) for name in arm.options])
    return np.asarray(kept[arm.name][:, : len(shares)] @ shares)


def _share(given: object) -> float:
    share = check_number("leave and pause", given)
    if not 0 <= share <= 1:
        raise InputError(f"leave and pause are probabilities, got {share:g}.")
    return share
