"""The whole path on simulated people, with the truth beside each estimate."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from shoal.analysis.count_table import BitCounter
from shoal.analysis.estimates import Estimates, estimate
from shoal.analysis.intervals import IntervalKind, Target
from shoal.analysis.tally import Tally, Tallying
from shoal.device.arrays.randomize import Original
from shoal.device.arrays.simulation_bits import SimulationBits, fresh_seed, simulation_generator
from shoal.device.randomize import flip
from shoal.errors import InputError
from shoal.lab.populations import CHUNK, Texts, Weights, populate, texts_for
from shoal.protocol.plan import Plan
from shoal.protocol.survey import Survey
from shoal.protocol.wire import row_bytes
from shoal.support.checks import check_integer

if TYPE_CHECKING:
    from shoal.analysis.text.results import DecodedTexts

Through = Literal["distribution", "reports"]
_NOBODY = "say how many users to simulate, or give their answers."


@dataclass(frozen=True)
class Simulation:
    """Estimates from simulated reports, and the true counts, which are unknown in practice.

    `texts` are the true counts of each text of each text question, where they are known.
    """

    estimates: Estimates
    truth: NDArray[np.int64]
    texts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

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


def simulate(
    plan: Plan,
    *,
    users: int | None = None,
    answers: Original | Iterable[Original] | None = None,
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
        Originals to report; without them a population is made up.
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
    generator = simulation_generator(fresh_seed() if seed is None else seed)
    noise = SimulationBits(int(generator.integers(2**62)))
    people_texts = texts_for(plan.survey, texts)
    if through == "distribution":
        from shoal.lab.tally_distributions import draw_tally

        if users is None:
            raise InputError(_NOBODY)
        tally, truth = draw_tally(plan, users, people_texts, generator)
        if progress is not None:
            progress(users)
    else:
        originals = people(plan.survey, users, answers, generator, people_texts)
        tally, truth = _reported(plan, originals, noise, progress)
    known = {name: one.true_counts for name, one in people_texts.items()} if answers is None else {}
    return Simulation(estimate(plan, tally, target=target), truth, known)


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
