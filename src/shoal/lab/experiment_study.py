"""Repeated experiments, retention curves and funnels: how often their intervals hold the truth.

People are drawn from a population, their bits are flipped, and the code that estimates makes the
interval, again and again. Counts are drawn from their exact distribution: given that m of n people
have a bit set, its ones are Bin(m, p) + Bin(n - m, q), independently for each bit (KR 3.1).

Without an effect, an interval of a difference that excludes zero is a false alarm: of one look, or
of any of many looks in monitoring.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from shoal.analysis.association_tables import TableDesign
from shoal.analysis.funnels import choice_table, conversion
from shoal.analysis.ratios import Array, GroupTable, Limits, Pair, anytime_factor
from shoal.analysis.retention import AgeCounts
from shoal.device.arrays.simulation_bits import simulation_generator
from shoal.errors import InputError
from shoal.lab.populations import draw_ones
from shoal.planning.plan import plan
from shoal.protocol.plan import View
from shoal.protocol.survey import Arm, Funnel, Number, Retention, Survey, YesNo
from shoal.support.checks import check_integer, check_level, check_number
from shoal.support.results import Displayed, Section, TableExport, arrow_rows
from shoal.theory.randomized_response import count_sigma, normal_factor

if TYPE_CHECKING:
    import pyarrow as pa

Statistic = Literal[
    "difference", "ratio", "mean difference", "retention", "funnel", "one look", "monitoring"
]
SHARES = (0.0, 0.01, 0.1, 0.5, 0.9, 1.0)
_POINTS = 11  # of the grid of a number
_PERIODS = 4
_WINDOWS = 8
_STEPS = 4
_AT_ONCE = 4000  # repetitions
_YES = np.array([1.0, 0.0])
Measured = tuple[NDArray[np.bool_], float | None]
"""In which repetitions an interval held the truth, and its width over that with open answers."""

_SURVEYS = {
    "arms": Survey("arms", (Arm("arm", ("a", "b")), YesNo("done"))).cross("arm", "done"),
    "numbers": Survey(
        "numbers", (Arm("arm", ("a", "b")), Number("hours", low=0, high=10, points=_POINTS))
    ).cross("arm", "hours"),
    "retention": Survey("retention", (Retention("age", periods=_PERIODS, period="1w"),)),
    "funnel": Survey("funnel", (Funnel("setup", tuple("abcd")[:_STEPS]),)),
}


@dataclass(frozen=True)
class StudyCase:
    """How often the intervals of a statistic held the truth, in one world.

    `people` is the size of a crowd; `share` is that of control, or of each step or period;
    `effect` is what the other arm has more. `width` is the median width of an interval over that
    with open answers, with the same people and no flips; None for alarms and where that is 0.
    """

    statistic: Statistic
    view: View
    people: int
    share: float
    effect: float
    coverage: float
    width: float | None


@dataclass(frozen=True, repr=False)
class ExperimentStudy(Displayed, TableExport):
    """The coverage of every statistic in every world. All of it is simulated."""

    repetitions: int
    level: float
    epsilon: str
    delta: str
    looks: int
    seed: int
    cases: tuple[StudyCase, ...]

    @property
    def least(self) -> float:
        """The level minus three standard errors of the study."""
        return self.level - 3 * math.sqrt(self.level * (1 - self.level) / self.repetitions)

    @property
    def failed(self) -> tuple[StudyCase, ...]:
        """The cases whose coverage is below `least`."""
        return tuple(one for one in self.cases if one.coverage < self.least)

    def _headline(self) -> str:
        return (
            f"{self.repetitions:,} repetitions, intervals at {self.level:.6g}, epsilon"
            f" {self.epsilon}, delta {self.delta}, {self.looks} releases, seed {self.seed},"
            " simulated"
        )

    def _sections(self) -> list[Section]:
        heads = (
            "statistic",
            "view",
            "people",
            "cases",
            "held at least",
            "at share",
            "width / open",
        )
        rows = []
        for key, group in groupby(self.cases, lambda one: (one.statistic, one.view, one.people)):
            cases = list(group)
            lowest = min(cases, key=lambda one: one.coverage)
            widths = [one.width for one in cases if one.width and 0.1 <= one.share <= 0.9]
            wider = f"{min(widths):.2f} to {max(widths):.2f}" if widths else ""
            held = f"{lowest.coverage:.2%}", f"{lowest.share:.0%}"
            rows.append((*key[:2], f"{key[2]:,}", f"{len(cases)}", *held, wider))
        return [Section(heads, rows)]

    def _remarks(self) -> tuple[str, ...]:
        few = f"{len(self.failed)} of {len(self.cases)} cases"
        return (
            f"{few} held the truth less often than {self.least:.2%}: the level minus three standard"
            " errors of the study.",
            "width / open: the median width of an interval over that without flips, for shares from"
            " 10 to 90 %.",
        )

    def to_json(self) -> dict[str, Any]:
        document = {name: value for name, value in vars(self).items() if name != "cases"}
        return document | {"least": self.least, "cases": [dict(vars(one)) for one in self.cases]}

    def to_arrow(self) -> pa.Table:
        """Return the cases as an Arrow table."""
        return arrow_rows(["statistic", "view"], self.to_json()["cases"], level=self.level)


def experiment_study(
    *,
    repetitions: int,
    people: Sequence[int] = (2_000, 20_000),
    shares: Sequence[float] = SHARES,
    views: Sequence[View] = ("counts", "reports"),
    statistics: Sequence[Statistic] = get_args(Statistic),
    epsilon: str = "1",
    delta: str = "1e-6",
    level: float = 0.95,
    looks: int = 52,
    seed: int,
    progress: Callable[[int], None] | None = None,
) -> ExperimentStudy:
    """Measure how often intervals hold the truth, for each statistic, view, crowd and share.

    >>> done = experiment_study(
    ...     repetitions=200, people=[2000], shares=[0.1], statistics=["difference"], seed=1
    ... )
    >>> [(one.view, one.effect > 0, round(one.width, 1)) for one in done.cases[::2]]
    [('counts', False, 1.3), ('reports', False, 3.5)]
    """
    check_integer("repetitions", repetitions, lowest=2, highest=10**7)
    check_integer("looks", looks, lowest=1, highest=10_000)
    check_level(level)
    if any(not 0 <= check_number("a share", one) <= 1 for one in shares):
        raise InputError("shares are between 0 and 1.")
    for one in people:
        check_integer("people", one, lowest=100, highest=10**9)
    grid = [
        (name, view, crowd, *world)
        for name in statistics
        for view in views
        for crowd in people
        for world in _worlds(name, shares)
    ]
    seeds = simulation_generator(seed).integers(2**62, size=len(grid)).tolist()
    cases = []
    for (name, view, crowd, share, effect), own in zip(grid, seeds, strict=True):
        q = _flip_probability(_survey_of(name), crowd, epsilon, delta, view)
        world = _World(crowd, q, share, effect, level, looks, simulation_generator(own))
        held, width = world.run(name, repetitions, progress)
        cases.append(StudyCase(name, view, crowd, share, effect, held, width))
    return ExperimentStudy(repetitions, level, epsilon, delta, looks, seed, tuple(cases))


def _survey_of(statistic: Statistic) -> str:
    names = {"mean difference": "numbers", "retention": "retention", "funnel": "funnel"}
    return names.get(statistic, "arms")


@cache
def _flip_probability(survey: str, crowd: int, epsilon: str, delta: str, view: View) -> float:
    made = plan(
        _SURVEYS[survey],
        crowd_size=crowd,
        epsilon=epsilon,
        delta=delta,
        view=view,
        accept_weak_promise=True,
    )
    return float(made.q)


def _worlds(statistic: Statistic, shares: Iterable[float]) -> Iterator[tuple[float, float]]:
    """Yield each share with no effect, and with one, where there are arms to differ."""
    for share in shares:
        if statistic == "ratio" and share == 0:
            continue  # there is no ratio to nobody
        yield share, 0.0
        if statistic in ("difference", "ratio", "mean difference"):
            yield share, 0.2 * (share or 1.0) if share < 0.8 else -0.2


@dataclass(frozen=True)
class _World:
    """A population, its crowds and their noise."""

    people: int
    q: float
    share: float
    effect: float
    level: float
    looks: int
    generator: np.random.Generator

    def run(
        self, statistic: Statistic, repetitions: int, progress: Callable[[int], None] | None
    ) -> tuple[float, float | None]:
        """Return the part of the repetitions that held the truth, and the median relative width."""
        measures: dict[Statistic, Callable[[int], Measured]] = {
            "difference": lambda size: self._compared(self._shares(size), self.effect),
            "ratio": lambda size: self._compared(
                self._shares(size), 1 + self.effect / self.share, ratio=True
            ),
            "mean difference": self._mean,
            "retention": self._retention,
            "funnel": self._funnel,
            "one look": lambda size: (self._quiet(size, 1), None),
            "monitoring": lambda size: (self._quiet(size, self.looks), None),
        }
        measure = measures[statistic]
        held, widths = [], []
        for start in range(0, repetitions, _AT_ONCE):
            size = min(_AT_ONCE, repetitions - start)
            right, width = measure(size)
            held.append(right)
            if width is not None:
                widths.append(width)
            if progress is not None:
                progress(size)
        known = [one for one in widths if math.isfinite(one)]
        return float(np.concatenate(held).mean()), float(np.mean(known)) if known else None

    @property
    def _factor(self) -> float:
        return normal_factor(self.level)

    def _count(self, truth: NDArray[np.int64], reports: Any) -> Array:
        ones = draw_ones(truth, reports, self.q, self.generator)
        return np.asarray((ones - self.q * reports) / (1 - 2 * self.q))

    def _arms(self, chances: Array, size: int, columns: int) -> tuple[GroupTable, GroupTable]:
        """Draw tables of two equal arms: as estimated, and with open answers."""
        truth = self.generator.multinomial(self.people, chances.ravel() / 2, size=size)
        design = TableDesign(np.ones(chances.shape), (2, columns))
        sums = (truth @ design.sums.T).astype(np.int64)
        noisy = design.combine(
            self._count(truth, self.people), self._count(sums, self.people), self.people
        )
        noise = count_sigma(self.people, self.q) ** 2 * design.covariance
        shape = (size, *chances.shape)
        open_answers = GroupTable(truth.reshape(shape).astype(float), np.zeros_like(noise))
        return GroupTable(noisy.reshape(shape), noise), open_answers

    def _shares(self, size: int) -> tuple[Pair, Pair]:
        shares = np.array([self.share, self.share + self.effect])
        tables = self._arms(np.stack((shares, 1 - shares), axis=1), size, 1)
        noisy, plain = (table.pair(1, 0, _YES) for table in tables)
        return noisy, plain

    def _compared(self, pairs: tuple[Pair, Pair], truth: float, *, ratio: bool = False) -> Measured:
        limits = [
            (one.ratio_limits if ratio else one.difference_limits)(self._factor) for one in pairs
        ]
        return _holds(limits[0], truth), _wider(*limits)

    def _mean(self, size: int) -> Measured:
        from scipy.stats import binom

        last, grid = _POINTS - 1, np.arange(_POINTS, dtype=float)
        shares = (self.share, self.share + self.effect)
        chances = np.stack([binom.pmf(np.arange(_POINTS), last, share) for share in shares])
        tables = self._arms(chances, size, _POINTS)
        noisy, plain = (table.mean_pair(1, 0, grid) for table in tables)
        return self._compared((noisy, plain), last * self.effect)

    def _retention(self, size: int) -> Measured:
        """Draw people who come back at each age with the share and later never again."""
        started = round(self.people / (1 + _PERIODS * self.share))
        cohorts = _WINDOWS + _PERIODS
        back = self.generator.binomial(started, self.share, (size, cohorts, _PERIODS))
        truth = np.empty((size, _WINDOWS, 1 + _PERIODS), np.int64)
        truth[..., 0] = started
        for age in range(1, _PERIODS + 1):
            first = _PERIODS - age
            truth[..., age] = back[:, first : first + _WINDOWS, age - 1]
        reports = truth.sum(axis=-1)
        counts = self._count(truth, reports[..., None])
        held = np.ones(size, bool)
        factor = normal_factor(1 - (1 - self.level) / _PERIODS)
        # The noise of a count depends on the reports alone; its mean over repetitions will do.
        variances = np.array([count_sigma(int(n), self.q) ** 2 for n in reports.mean(axis=0)])
        made = (np.arange(1 + _PERIODS).tolist(), variances, reports, [True] * _WINDOWS)
        ages = AgeCounts(counts, *made)
        plain = AgeCounts(truth.astype(float), made[0], 0 * variances, *made[2:])
        widths = []
        for age in range(1, _PERIODS + 1):
            limits = [one.retention(age, one.starts(age)).interval(factor) for one in (ages, plain)]
            held &= _holds(limits[0], self.share)
            widths.append(_wider(*limits))
        known = [one for one in widths if one is not None]
        return held, float(np.mean(known)) if known else None

    def _funnel(self, size: int) -> Measured:
        """Draw people who go on from each step with the share; all steps must hold at once."""
        chances = [self.share**step * (1 - self.share) for step in range(_STEPS - 1)]
        truth = self.generator.multinomial(
            self.people, [*chances, self.share ** (_STEPS - 1)], size=size
        )
        counts = self._count(truth, self.people)
        variance = count_sigma(self.people, self.q) ** 2
        noisy = choice_table(counts, self.people, variance)
        plain = choice_table(truth.astype(float), self.people, 0.0)
        factor = normal_factor(1 - (1 - self.level) / (_STEPS - 1))
        held, widths = np.ones(size, bool), []
        for step in range(_STEPS - 1):
            limits = [conversion(one, step, _STEPS).interval(factor) for one in (noisy, plain)]
            held &= _holds(limits[0], self.share)
            widths.append(_wider(*limits))
        return held, widths[0]

    def _quiet(self, size: int, looks: int) -> NDArray[np.bool_]:
        """Return where no look saw a difference of two equal arms."""
        quiet, noisy, noise = np.ones(size, bool), np.zeros((size, 2, 2)), np.zeros((4, 4))
        shares = np.full(2, self.share)
        for look in range(1, looks + 1):
            release, _ = self._arms(np.stack((shares, 1 - shares), axis=1), size, 1)
            noisy, noise = noisy + release.counts, noise + release.noise
            factor = self._factor if looks == 1 else anytime_factor(self.level, look)
            far = _sigmas_apart(GroupTable(noisy, noise).pair(1, 0, _YES)) > factor / 2
            limits = GroupTable(noisy[far], noise).pair(1, 0, _YES).difference_limits(factor)
            quiet[far] &= _holds(limits, 0.0)
        return quiet


def _sigmas_apart(pair: Pair) -> Array:
    """Return how many sigmas two values are apart, by their sigmas at the estimates.

    Intervals of differences of less than half their factor hold zero: their own sigmas, at values
    between the two, are never half as large.
    """
    both = pair.first, pair.second
    parts = [one.variance(np.clip(one.value, 0, 1), 0.0) / one.whole**2 for one in both]
    return np.asarray(np.abs(pair.difference) / np.sqrt(sum(parts)))


def _holds(limits: Limits, truth: float) -> NDArray[np.bool_]:
    low, high = limits
    return np.asarray((low <= truth + 1e-9) & (truth - 1e-9 <= high))


def _wider(noisy: Limits, plain: Limits) -> float | None:
    """Return the median width of an interval over that with open answers, if both have one."""
    width, least = (float(np.median(high - low)) for low, high in (noisy, plain))
    return width / least if least > 1e-9 and math.isfinite(width / least) else None
