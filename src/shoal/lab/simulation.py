"""The whole path on simulated people, with the truth beside each estimate.

`simulate` is one crowd. `simulate_windows` are devices over several windows: they begin, draw an
arm, pause, and leave for good.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from shoal.analysis.count_table import BitCounter
from shoal.analysis.estimates import Estimates, estimate
from shoal.analysis.intervals import IntervalKind, Target
from shoal.analysis.retention import RetentionCurve, retention
from shoal.analysis.tally import Tally, Tallying
from shoal.device.arrays.encode import set_cells
from shoal.device.arrays.randomize import Original, pack
from shoal.device.arrays.simulation_bits import SimulationBits, fresh_seed, simulation_generator
from shoal.device.encode import encode
from shoal.device.randomize import flip
from shoal.errors import InputError
from shoal.lab.populations import CHUNK, Texts, Weights, draw_answers, populate, texts_for
from shoal.planning.share_noise import noise_window
from shoal.protocol.plan import Plan
from shoal.protocol.survey import Retention, Survey, Text
from shoal.protocol.wire import row_bytes
from shoal.support.checks import check_integer, check_number, takes
from shoal.support.results import Displayed, Section, TableExport

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure

    from shoal.analysis.text.results import DecodedTexts

Through = Literal["distribution", "reports"]
_NOBODY = "say how many users to simulate, or give their answers."


@dataclass(frozen=True, repr=False)
class Simulation(Displayed, TableExport):
    """Estimates from simulated reports, and the true counts, which are unknown in practice.

    `texts` are the true counts of each text of each text question, where they are known.
    """

    estimates: Estimates
    truth: NDArray[np.int64]
    texts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def _headline(self) -> str:
        return f"{self.estimates._headline()}, beside the truth"

    def _sections(self) -> list[Section]:
        sections = []
        for name, table in zip(self.estimates, self.estimates._sections(), strict=True):
            heads = (table.heads[0], "truth", *table.heads[1:])
            rows = [
                (label, f"{self.true_count(name, label):,}", *cells)
                for label, (_, *cells) in zip(self.estimates[name], table.rows, strict=False)
            ]
            sections.append(Section(heads, rows, left_out=table.left_out))
        return sections

    def _remarks(self) -> tuple[str, ...]:
        return self.estimates.notes

    def plot(self, level: float = 0.95) -> Figure:
        """Draw every option on its interval, with the truth beside it; needs matplotlib."""
        from shoal.reports.plots.results import plot_estimates

        return plot_estimates(list(self.estimates.values()), level, self.true_count)

    def to_arrow(self, level: float = 0.95, kind: IntervalKind = "exact") -> pa.Table:
        """Return the estimates as an Arrow table with a column `truth`."""
        table = self.estimates.to_arrow(level, kind)
        bits = zip(table["question"].to_pylist(), table["option"].to_pylist(), strict=True)
        return table.append_column("truth", [[self.true_count(*bit) for bit in bits]])

    def decoded(self, question: str, level: float = 0.95) -> DecodedTexts:
        """Decode a text question, with all texts that people could have as candidates."""
        from shoal.analysis.text import decode

        if question not in self.texts:
            raise InputError(f"the texts behind question {question!r} are not known.")
        texts = [text for text in self.texts[question] if text]
        plan, tally = self.estimates.plan, self.estimates.tally
        return decode(plan, tally, texts, question=question, level=level)

    def true_count(self, question: str, label: str) -> int:
        """Return how many simulated people have the bit set."""
        return int(self.truth[self.estimates.plan.survey.bit(question, label)])

    def to_json(self, level: float = 0.95, kind: IntervalKind = "exact") -> dict[str, Any]:
        """Return the estimates as JSON values, with `truth` beside each."""
        document = self.estimates.to_json(level, kind)
        for question, options in document["questions"].items():
            for label, row in options.items():
                row["truth"] = self.true_count(question, label)
        for question, counts in self.texts.items():
            if not any(counts):
                continue  # nobody could have a text
            decoded = self.decoded(question, level).to_json()
            for row in decoded["candidates"]:
                row["truth"] = sum(counts[text] for text in (row["value"], *row.get("same_as", ())))
            document.setdefault("texts", {})[question] = decoded
        return document


@takes(plan=Plan)
def simulate(
    plan: Plan,
    *,
    users: int | None = None,
    answers: object = None,
    texts: Weights | None = None,
    through: Through | None = None,
    seed: int | None = None,
    target: Target = "crowd",
    progress: Callable[[int], None] | None = None,
) -> Simulation:
    """Randomize, tally and estimate simulated reports.

    Parameters
    ----------
    plan
        The plan to try out.
    users
        How many people to simulate. With `answers`, that many are drawn from them.
    answers
        A table or a list of answers, as `randomize` takes them, or originals; without them a
        population is made up.
    texts
        What made-up people answer to text questions, and how likely each text is; "" is no answer.
        Without them there are a hundred texts, falling off like 1 / rank.
    through
        ``"reports"`` makes every report. ``"distribution"`` draws the counts of any number of
        simulated people from their exact distribution; it is the default for plans with text,
        unless they declare joint counts.
    seed
        Repeats the run exactly; without it the noise is fresh each time.
    progress
        Called with the number of people done since the last call.

    Examples
    --------
    >>> from shoal import Flags, Survey, plan
    >>> survey = Survey("browser", (Flags("features", ("sync", "vpn")),))
    >>> run = simulate(plan(survey, q=0.25), users=10_000, seed=1)
    >>> run.true_count("features", "sync"), round(run.estimates["features"]["sync"].count)
    (4991, 4822)
    """
    if answers is not None and (texts is not None or through == "distribution"):
        raise InputError(
            "texts and through='distribution' simulate answers; leave out the answers."
        )
    if through is None:
        joint = plan.joint or plan.survey.crosses
        made_up = answers is None and plan.cohorts is not None and not joint
        through = "distribution" if made_up else "reports"
    if through not in get_args(Through):
        raise InputError(f"through must be distribution or reports, got {through!r}.")
    noise, generator = sources(seed)
    people_texts = texts_for(plan.survey, texts)
    given = None if answers is None else _encoded(plan, answers, noise)
    if through == "distribution":
        from shoal.lab.populations import draw_tally

        if users is None:
            raise InputError(_NOBODY)
        tally, truth = draw_tally(plan, users, people_texts, generator)
        if progress is not None:
            progress(users)
    else:
        originals = people(plan.survey, users, given, generator, people_texts)
        tally, truth = _reported(plan, originals, noise, progress)
    if plan.noise is not None:
        drawn = noise_window(plan.noise, 2 * plan.batches(tally.reports))
        values = np.arange(drawn.first, drawn.first + drawn.mass.size)
        added = generator.choice(values, plan.bits, p=drawn.mass / drawn.mass.sum())
        tally = replace(tally, by_bit=tally.by_bit + added)
    known = {name: one.true_counts for name, one in people_texts.items()} if answers is None else {}
    return Simulation(estimate(plan, tally, target=target), truth, known)


def sources(seed: int | None) -> tuple[SimulationBits, np.random.Generator]:
    """Return the noise of a seed, or of a fresh one, and the generator that draws its people."""
    generator = simulation_generator(fresh_seed() if seed is None else seed)
    return SimulationBits(int(generator.integers(2**62))), generator


def _encoded(plan: Plan, answers: object, noise: SimulationBits) -> Any:
    many = isinstance(answers, (list, tuple)) and any(isinstance(x, Original) for x in answers)
    if many or isinstance(answers, (Original, Iterator)):
        return answers
    return encode(plan, answers, random_bits=noise)


def _reported(
    plan: Plan,
    originals: Iterable[Original],
    noise: SimulationBits,
    progress: Callable[[int], None] | None,
) -> tuple[Tally, NDArray[np.int64]]:
    truth = BitCounter(row_bytes(plan.bits))
    tallying = Tallying(plan)
    for original in originals:
        synthetic = flip(plan, original, random_bits=noise)  # refuses another survey's bits
        truth.add(original.rows)
        tallying.add(synthetic.rows, simulated=True, cohorts=synthetic.cohorts)
        if progress is not None:
            progress(len(original))
    return tallying.result(), truth.counts()[: plan.bits]


def people(
    survey: Survey,
    users: int | None,
    answers: Original | Iterable[Original] | None,
    generator: np.random.Generator,
    texts: Mapping[str, Texts] | None = None,
) -> Iterator[Original]:
    """Yield made-up people, the given ones, or as many as asked for drawn from the given ones."""
    if answers is None:
        if users is None:
            raise InputError(_NOBODY)
        yield from populate(survey, users, generator, texts)
        return
    chunks_in = [answers] if isinstance(answers, Original) else answers
    if users is None:
        yield from chunks_in
        return
    chunks = list(chunks_in)
    rows = np.concatenate(
        [np.empty((0, row_bytes(survey.bits)), np.uint8), *(chunk.rows for chunk in chunks)]
    )
    carried = [chunk.cohorts for chunk in chunks if chunk.cohorts is not None]
    cohorts = np.concatenate(carried) if carried else None
    if not len(rows):
        raise InputError("there are no answers to draw users from.")
    for start in range(0, check_integer("users", users, lowest=1), CHUNK):
        drawn = generator.integers(len(rows), size=min(CHUNK, users - start))
        yield Original(rows[drawn], survey.bits, None if cohorts is None else cohorts[drawn])


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
    if plan.noise is not None:
        raise InputError("windows are simulated for flips; this plan has noise of aggregators.")
    check_integer("new_users", new_users, lowest=1)
    check_integer("windows", windows, lowest=1, highest=10_000)
    noise, generator = sources(seed)
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
