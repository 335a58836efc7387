"""Repeated simulations: compares estimates, sigma and intervals with theory.

The people are fixed and only the flips are random, as for the target *crowd*. Then the ones of a
bit that m of n people have set are Bin(m, p) + Bin(n - m, q), independently for each bit (KR 3.1),
so a study draws tallies from that distribution. ``through="reports"`` randomizes and tallies every
report instead: slower by far, with the same distribution.

An interval depends only on the number of ones, so its coverage is the probability of a range of
them: `covering` and `probability` compute it without repetitions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from shoal.analysis.count_table import BitCounter
from shoal.analysis.intervals import Interval, IntervalKind, interval, sigma
from shoal.analysis.tally import tally
from shoal.device.arrays.randomize import Original
from shoal.device.arrays.simulation_bits import SimulationBits, fresh_seed, simulation_generator
from shoal.device.randomize import flip
from shoal.errors import InputError
from shoal.lab.populations import draw_ones
from shoal.lab.simulation import Through, people
from shoal.planning.certificate import check_promise
from shoal.protocol.plan import Plan
from shoal.protocol.wire import row_bytes
from shoal.support.checks import check_integer, check_level, takes
from shoal.support.results import Displayed, Section, TableExport, arrow_rows, first_rows
from shoal.theory.binomial import tails
from shoal.theory.calibration import NoValueError, smallest

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure

Vary = Literal["users", "q", "epsilon"]
KINDS: tuple[IntervalKind, ...] = get_args(IntervalKind)
Ones = NDArray[np.int64]

MAX_REPETITIONS = 10**7
_NUMBERS = ("truth", "mean", "bias", "bias_error", "sigma", "sigma_theory")


class Coverage(NamedTuple):
    """How often intervals held the truth, and how often they should by the exact distribution."""

    measured: float
    expected: float

    @property
    def cell(self) -> str:
        return f"{100 * self.measured:.2f} ({100 * self.expected:.2f})"


@dataclass(frozen=True)
class BitStudy:
    """What repeating showed about one option.

    `bias` is the mean estimate minus the truth, `bias_error` its standard error; `sigma` is
    measured, `sigma_theory` is sqrt(N p q) / (p - q) (SDP 4).
    """

    question: str
    label: str
    truth: int
    mean: float
    bias: float
    bias_error: float
    sigma: float
    sigma_theory: float
    coverage: Mapping[IntervalKind, Coverage]

    @property
    def sigma_ratio(self) -> float:
        """The measured sigma over the one of theory."""
        return self.sigma / self.sigma_theory

    @property
    def cells(self) -> tuple[str, ...]:
        bias = f"{self.bias:+,.2f}±{self.bias_error:.2f}"
        sigmas = f"{self.sigma:,.1f}", f"{self.sigma_theory:,.1f}", f"{self.sigma_ratio:.4f}"
        return f"{self.truth:,}", bias, *sigmas

    def to_json(self) -> dict[str, Any]:
        """Return the findings as plain JSON values."""
        numbers = {name: vars(self)[name] for name in _NUMBERS}
        coverage = {kind: coverage._asdict() for kind, coverage in self.coverage.items()}
        return numbers | {"sigma_ratio": self.sigma_ratio, "coverage": coverage}


@dataclass(frozen=True)
class StudyPoint:
    """One point of the grid: the plan tried there, on how many people, and what came out.

    `together` is how often the simultaneous intervals of a question held all of its truths.
    """

    plan: Plan
    users: int
    bits: tuple[BitStudy, ...]
    together: Mapping[str, Coverage]

    def __getitem__(self, bit: tuple[str, str]) -> BitStudy:
        return self.bits[self.plan.survey.bit(*bit)]

    def to_json(self) -> dict[str, Any]:
        """Return the point as plain JSON values."""
        questions: dict[str, dict[str, Any]] = {question.name: {} for question in self.plan.survey}
        for bit in self.bits:
            questions[bit.question][bit.label] = bit.to_json()
        return {
            "users": self.users,
            "q": float(self.plan.q),
            "promise": self.plan.promise.to_json(),
            "questions": questions,
            "together": {name: coverage._asdict() for name, coverage in self.together.items()},
        }


@dataclass(frozen=True, repr=False)
class Study(Displayed, TableExport):
    """What repeating the path showed at every point of a grid. All of it is simulated."""

    plan: Plan
    repetitions: int
    level: float
    seed: int
    through: Through
    vary: Vary | None
    points: tuple[StudyPoint, ...] = field(repr=False)

    def to_json(self) -> dict[str, Any]:
        """Return the study as plain JSON values."""
        return {
            "simulated": True,
            "plan": self.plan.id,
            "target": "crowd",
            **{
                name: vars(self)[name]
                for name in ("repetitions", "level", "seed", "through", "vary")
            },
            "points": [point.to_json() for point in self.points],
        }

    def _headline(self) -> str:
        return (
            f"{self.plan.survey.name}: {self.repetitions:,} repetitions through the {self.through},"
            f" intervals at {self.level:.6g}, for the crowd; seed {self.seed}, simulated data"
        )

    def _sections(self) -> Iterator[Section]:
        """Yield two tables for each point: errors beside theory, and coverage of intervals."""
        for point in self.points:
            title = f"{point.users:,} people, q = {float(point.plan.q):.5g}"
            if self.vary == "epsilon":
                promise = point.plan.promise
                title += f", {promise.kind} at epsilon {promise.epsilon}"
            bits, left_out = first_rows(point.bits)
            names = [f"{bit.question}: {bit.label}" for bit in bits]
            errors = [(name, *bit.cells) for name, bit in zip(names, bits, strict=True)]
            heads = ("option", "truth", "bias", "sigma", "theory", "ratio")
            yield Section(heads, errors, title, left_out)
            covered = [
                (name, *(bit.coverage[kind].cell for kind in KINDS))
                for name, bit in zip(names, bits, strict=True)
            ]
            covered += [
                (f"all of {name}", "", "", both.cell, "") for name, both in point.together.items()
            ]
            title = "coverage of the truth in %, in brackets as computed"
            yield Section(("option", *KINDS), covered, title, left_out)

    def to_arrow(self) -> pa.Table:
        """Return the study as an Arrow table, a row for each option at each point."""
        rows = [
            {"question": bit.question, "option": bit.label}
            | {"users": point.users, "q": float(point.plan.q)}
            | {name: float(vars(bit)[name]) for name in _NUMBERS}
            | {"sigma_ratio": bit.sigma_ratio, "coverage": bit.coverage["exact"].measured}
            for point in self.points
            for bit in point.bits
        ]
        return arrow_rows(["question", "option"], rows, level=self.level)

    def plot(self) -> Figure:
        """Draw sigma against theory and the coverage of each kind of interval; needs matplotlib."""
        from shoal.reports.plots.results import plot_study

        return plot_study(self)

    def save_plot(self, path: Path | str) -> None:
        """Write the picture as PNG, SVG or PDF, by the suffix."""
        from shoal.reports.plots import check_suffix, save

        check_suffix(path)
        save(self.plot(), path)


@takes(plan=Plan)
def study(
    plan: Plan,
    *,
    users: int | None = None,
    repetitions: int,
    vary: Mapping[Vary, Sequence[object]] | None = None,
    answers: Original | Iterable[Original] | None = None,
    seed: int | None = None,
    level: float = 0.95,
    through: Through = "distribution",
    progress: Callable[[int], None] | None = None,
) -> Study:
    """Repeat randomizing, tallying and estimating, and compare with theory.

    Parameters
    ----------
    plan
        The plan to try out.
    users
        How many people to make up; with `answers`, how many are drawn from them. They stay the
        same in all repetitions.
    repetitions
        How often to repeat, at each point of the grid.
    vary
        One of ``{"users": [...]}``, ``{"q": [...]}`` and ``{"epsilon": [...]}``; the last plans
        anew at each epsilon, with the same kind of promise and view.
    answers
        Originals of the people; without them a population is made up.
    seed
        Repeats the study exactly; without it one is drawn, and the result has it.
    level
        The confidence level of the intervals.
    through
        ``"distribution"`` draws tallies from their exact distribution, ``"reports"`` randomizes and
        tallies every report.
    progress
        Called with the number of repetitions done since the last call.

    Examples
    --------
    >>> from shoal import Flags, Survey, plan
    >>> agreed = plan(Survey("browser", (Flags("features", ("sync", "vpn")),)), q=0.25)
    >>> result = study(agreed, users=1000, repetitions=2000, seed=1)
    >>> sync = result.points[0]["features", "sync"]
    >>> sync.truth, round(sync.sigma_ratio, 2), sync.coverage["exact"]
    (484, 0.99, Coverage(measured=0.959, expected=0.955...))
    """
    check_integer("repetitions", repetitions, lowest=2, highest=MAX_REPETITIONS)
    check_level(level)
    if through not in get_args(Through):
        raise InputError(f"through must be distribution or reports, got {through!r}.")
    if any(question.kind == "text" for question in plan.survey):
        raise InputError("text questions are not supported here: a study examines bits one by one.")
    if plan.noise is not None:
        raise InputError("a study examines flips; this plan has noise of a leader and a helper.")
    name, grid = _grid(plan, users, vary)
    if seed is None:
        seed = fresh_seed()
    if answers is not None:  # read once, used at every point
        answers = [answers] if isinstance(answers, Original) else list(answers)
        if any(original.bits != plan.bits for original in answers):
            raise InputError(f"the plan has {plan.bits} bits, the answers have others.")
    noise_seeds = simulation_generator(_noise_seed(seed)[0]).integers(2**62, size=len(grid))
    points = []
    crowds: dict[int | None, list[Original]] = {}
    for (tried, count), noise_seed in zip(grid, noise_seeds.tolist(), strict=True):
        if count not in crowds:
            # The same people as in `simulate` with this seed.
            crowds = {count: list(people(plan.survey, count, answers, _noise_seed(seed)[1]))}
        noise = simulation_generator(noise_seed)
        points.append(_point(tried, crowds[count], noise, repetitions, level, through, progress))
    return Study(plan, repetitions, level, seed, through, name, tuple(points))


def _noise_seed(seed: int) -> tuple[int, np.random.Generator]:
    """Return the seed of the noise, and the generator that draws the people next."""
    generator = simulation_generator(seed)
    return int(generator.integers(2**62)), generator


def _grid(
    plan: Plan, users: int | None, vary: Mapping[Vary, Sequence[object]] | None
) -> tuple[Vary | None, list[tuple[Plan, int | None]]]:
    if vary is None:
        return None, [(_estimable(plan), users)]
    if len(vary) != 1 or next(iter(vary)) not in get_args(Vary):
        raise InputError(f"a study varies one of {', '.join(get_args(Vary))}, got {list(vary)}.")
    ((name, values),) = vary.items()
    if isinstance(values, str) or not values:
        raise InputError(f"to vary {name} give a list of values.")
    if name == "users":
        counts = [check_integer("users", value, lowest=1) for value in values]
        return name, [(_estimable(plan), count) for count in counts]
    return name, [(_estimable(_replanned(plan, name, value)), users) for value in values]


def _estimable(plan: Plan) -> Plan:
    if plan.q.is_blind:
        raise InputError("q is 1/2: reports carry no information, so there is nothing to study.")
    check_promise(plan)
    return plan


def _replanned(old: Plan, name: Vary, value: object) -> Plan:
    """Return the plan at another q, or one with the same kind of promise at another epsilon."""
    from shoal.planning.plan import plan

    if name == "q":
        return plan(old.survey, q=value, accept_weak_promise=True)
    promise = old.promise
    crowd = None if promise.kind == "local" else old.crowd_size
    return plan(
        old.survey,
        crowd_size=crowd,
        epsilon=value,
        delta=promise.delta,
        eta=promise.eta,
        promise=promise.kind,
        view=old.view,
        accept_weak_promise=True,
    )


def _point(
    plan: Plan,
    originals: list[Original],
    generator: np.random.Generator,
    repetitions: int,
    level: float,
    through: Through,
    progress: Callable[[int], None] | None,
) -> StudyPoint:
    counter = BitCounter(row_bytes(plan.bits))
    for original in originals:
        counter.add(original.rows)
    truth, n = counter.counts()[: plan.bits].tolist(), sum(map(len, originals))
    if n == 0:
        raise InputError("there are no answers to study.")
    q = float(plan.q)
    # the ones of each bit in all repetitions
    draws: Iterator[Ones] = (
        draw_ones(np.array(m), np.array(n), q, generator, repetitions) for m in truth
    )
    if through == "reports":
        draws = iter(_from_reports(plan, originals, generator, repetitions, progress))
    bits: list[BitStudy] = []
    together: dict[str, Coverage] = {}
    for question in plan.survey:
        all_held, expected = np.ones(repetitions, bool), 1.0
        for label in question.labels:
            bit, held = _bit(
                next(draws), truth[len(bits)], n, q, level, (question.name, label), question.bits
            )
            bits.append(bit)
            all_held &= held
            # Given the people, the flips of different bits are independent.
            expected *= bit.coverage["simultaneous"].expected
            if progress is not None and through == "distribution":
                share, done = divmod(repetitions, plan.bits)
                progress(share + (done if len(bits) == plan.bits else 0))
        together[question.name] = Coverage(float(all_held.mean()), expected)
    return StudyPoint(plan, n, tuple(bits), together)


def _from_reports(
    plan: Plan,
    originals: list[Original],
    generator: np.random.Generator,
    repetitions: int,
    progress: Callable[[int], None] | None,
) -> Ones:
    """Randomize and tally all reports, again and again; return the ones by bit and repetition."""
    noise = SimulationBits(int(generator.integers(2**62)))
    plain = replace(plan, joint=())  # joint counts are not looked at here
    ones = np.empty((repetitions, plan.bits), np.int64)
    for row in ones:
        synthetic = (flip(plain, original, random_bits=noise) for original in originals)
        row[:] = tally(plain, synthetic, vectors=False).by_bit
        if progress is not None:
            progress(1)
    return ones.T


def _bit(
    ones: Ones, m: int, n: int, q: float, level: float, name: tuple[str, str], options: int
) -> tuple[BitStudy, NDArray[np.bool_]]:
    """Study one bit; also return in which repetitions its simultaneous interval held the truth."""
    counts = (ones - q * n) / (1 - 2 * q)
    spread, theory = float(counts.std(ddof=1)), sigma(0, n, q, "crowd")
    coverage: dict[IntervalKind, Coverage] = {}
    held = np.ones(ones.size, bool)
    for kind in KINDS:
        first, last = covering(m, n, q, level, kind, options)
        held = (first <= ones) & (ones <= last)
        coverage[kind] = Coverage(float(held.mean()), probability(first, last, m, n, q))
        if kind == "simultaneous":
            simultaneous = held
    mean = float(counts.mean())
    error = spread / math.sqrt(ones.size)
    return BitStudy(*name, m, mean, mean - m, error, spread, theory, coverage), simultaneous


def covering(
    m: int, n: int, q: float, level: float, kind: IntervalKind, options: int
) -> tuple[int, int]:
    """Return the first and the last number of ones whose interval holds m.

    Both ends of an interval rise with the ones (KR 3.1.2), so the numbers in between are all of
    them, and a few intervals decide about any number of repetitions.

    >>> covering(100, 1000, 0.25, 0.95, "exact", 1)
    (273, 327)
    """

    @cache
    def at(ones: int) -> Interval:
        return interval(ones, n, q, level=level, kind=kind, options=options)

    # The interval of the most likely number of ones tells how far to go from it.
    centre = round(n * q + m * (1 - 2 * q))
    around = at(centre)
    reach = math.ceil(max(around.high - m, m - around.low, 1) * (1 - 2 * q))
    first = _first(lambda ones: at(ones).high >= m, n, centre - reach)
    last = _first(lambda ones: at(ones).low > m, n, centre + reach) - 1
    return first, last


def _first(rises: Callable[[int], bool], n: int, guess: int) -> int:
    """Return the first number of 0..n for which a rising predicate holds, n + 1 if none."""
    try:
        return smallest(rises, 0, n, start=guess)
    except NoValueError:
        return n + 1


def probability(first: int, last: int, m: int, n: int, q: float) -> float:
    """Return P[first <= A_n(m) <= last] by the exact distribution."""
    if first > last:
        return 0.0
    below = tails(first - 1, n, m, q).at_most if first > 0 else 0.0
    above = tails(last + 1, n, m, q).at_least if last < n else 0.0
    return max(0.0, 1 - below - above)
