"""Black-box tests of whether a pipeline releases what its plan promises.

The pipeline is run many times on a crowd D of equal originals, all clear or all set, and on D_m,
where one of them is replaced by its opposite (SDP 1.2). A *flip* is a bit that comes out unlike the
crowd's. Under the plan every count below has an exactly known distribution:

* a crowd that lacks one report is refused, and a release counts exactly the crowd;
* flips in D, in all and at each position, for either crowd;
* flips in D_m when the replaced record comes first, last or anywhere (counted twice, it shows);
* reports of D by their number of flips (bits flipped together show here);
* where the count of a bit falls among the eighths of its exact distribution;
* how often two runs release the same tally (a fixed seed does it always);
* the event that best tells D_m from D: its probabilities must not contradict the proven delta.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.analysis.tally import Tally
from shoal.audit.randomizers import convicting, lower, upper
from shoal.device.arrays.randomize import Original, pack
from shoal.device.arrays.simulation_bits import fresh_seed, simulation_generator
from shoal.errors import InputError, PrivacyRefusal
from shoal.protocol.plan import Plan
from shoal.protocol.survey import Flags
from shoal.support.checks import check_integer, check_level
from shoal.support.results import Displayed
from shoal.theory.binomial import binomial_window, pmf, tails

__all__ = ["Pipeline", "PipelineVerdict", "inspect_pipeline"]

Pipeline = Callable[[Original], Tally]
"""Takes the originals of a crowd and returns the released tally, or raises `PrivacyRefusal`."""

_MAX_CROWD = 10_000
_PARTS = 8


@dataclass(frozen=True, repr=False)
class PipelineVerdict(Displayed):
    """The result of a test of a pipeline.

    `delta_refuted` is the largest delta, at the certificate's epsilon, that the runs rule out.
    """

    convicted: bool
    reasons: tuple[str, ...]
    runs: int
    confidence: float
    epsilon: float
    delta_claimed: float
    delta_refuted: float

    def _headline(self) -> str:
        found = "convicted" if self.convicted else "passed"
        return f"{found}: {self.runs:,} runs, confidence {self.confidence:.6g}"

    def _remarks(self) -> tuple[str, ...]:
        return self.reasons

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        fields = vars(self) | {"reasons": list(self.reasons)}
        return {"verdict": "convict" if fields.pop("convicted") else "pass", **fields}


def inspect_pipeline(
    pipeline: Pipeline,
    plan: Plan,
    *,
    epsilon: float,
    delta: float,
    runs: int = 1000,
    confidence: float = 0.999,
    seed: int | None = None,
) -> PipelineVerdict:
    """Run a pipeline on D and D_m and test what it releases.

    Parameters
    ----------
    pipeline
        From the originals of a crowd to the released tally.
    plan
        The plan it claims to follow; flags only, with a crowd of at most 10,000.
    epsilon, delta
        The claims of its certificate.
    runs
        How often each of D and D_m is run.
    confidence
        An honest pipeline is convicted with probability at most 1 - confidence.
    seed
        Fixes where the replaced record stands (not the pipeline's own noise).
    """
    crowd, bits = plan.crowd_size or 0, plan.bits
    free = all(isinstance(question, Flags) and question.at_most is None for question in plan.survey)
    if not free or not 2 <= crowd <= _MAX_CROWD:
        raise InputError(f"a pipeline is inspected on flags, with a crowd of 2 to {_MAX_CROWD}.")
    check_integer("runs", runs, lowest=16)
    check_level(confidence)
    generator = simulation_generator(fresh_seed() if seed is None else seed)
    reasons = _early_release(pipeline, crowd, bits)
    flips: list[list[NDArray[np.int64]]] = [[], []]  # of D and of D_m, by bit
    sizes = np.zeros(bits + 1, np.int64)
    for run in range(runs):
        base = run % 2
        vectors = np.full((crowd, bits), base, bool)
        changed = vectors.copy()
        changed[(0, crowd - 1, int(generator.integers(crowd)))[run % 3]] ^= True
        for which, original in enumerate((vectors, changed)):
            released = pipeline(Original(pack(original), bits))
            if released.reports != crowd:
                said = f"a release counts {released.reports} reports, the crowd is {crowd}."
                reasons.append(said)
                break
            if released.view != plan.view:
                said = f"a release is of view {released.view}, the plan's view is {plan.view}."
                reasons.append(said)
                break
            flips[which].append(crowd - released.by_bit if base else released.by_bit)
            if not which and released.by_set_bits is not None:
                sizes += released.by_set_bits[::-1] if base else released.by_set_bits
        if reasons:
            break
    refuted = 0.0
    alpha = 1 - confidence
    if not reasons:
        counts = [np.array(side) for side in flips]
        counted = sizes if plan.view == "reports" else None
        reasons += _wrong_counts(counts, counted, crowd, float(plan.q), alpha / 2)
        refuted = _refuted_delta(counts, math.exp(epsilon), alpha / 2)
        if refuted > delta:
            reasons.append(
                f"the releases refute every delta below {refuted:.4g} at epsilon {epsilon:.4g}."
            )
    return PipelineVerdict(bool(reasons), tuple(reasons), runs, confidence, epsilon, delta, refuted)


def _early_release(pipeline: Pipeline, crowd: int, bits: int) -> list[str]:
    try:
        pipeline(Original(pack(np.zeros((crowd - 1, bits), bool)), bits))
    except PrivacyRefusal:
        return []
    return [f"{crowd - 1} reports were released, the crowd is {crowd}."]


def _wrong_counts(
    flips: list[NDArray[np.int64]],
    sizes: NDArray[np.int64] | None,
    crowd: int,
    q: float,
    alpha: float,
) -> list[str]:
    """Name impossible counts: flips by run and bit for D and D_m, reports of D by flips.

    Under view counts nobody counts the flips of a report, and `sizes` is None.
    """
    share = alpha / 6
    runs, bits = flips[0].shape
    by_crowd = np.array([flips[0][0::2].sum(axis=0), flips[0][1::2].sum(axis=0)])
    whole, trials = by_crowd.sum(axis=1), np.array([(runs + 1) // 2 * crowd, runs // 2 * crowd])
    pmf_of_flips = binomial_window(bits, q, np.inf).mass
    seen, chances = _eighths(flips[0], crowd, q)
    pairs = runs // 2
    same = (flips[0][: 2 * pairs : 2] == flips[0][1 : 2 * pairs : 2]).all(axis=1).sum()
    by_chance = float(np.sum(pmf(crowd, 0, q) ** 2)) ** bits
    reasons = [
        *convicting("a crowd of all {} had bits flipped", whole, trials * bits, q, share, "bits"),
        *convicting("a crowd of all {} had one bit flipped", by_crowd, trials[:, None], q, share),
        *_outlier_reasons(flips[1], crowd, q, share),
    ]
    if sizes is not None:
        reasons += convicting("{} bits were flipped", sizes, runs * crowd, pmf_of_flips, share)
    sentence = "counts fell into part {} of their distribution"
    reasons += convicting(sentence, seen, runs * bits, chances, share, "counts")
    once = np.array([int(same)])
    sentence = "two runs released the same tally"
    reasons += convicting(sentence, once, pairs, by_chance, share, "pairs")
    return reasons


def _eighths(
    flips: NDArray[np.int64], crowd: int, q: float
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    exact = pmf(crowd, 0, q)
    edges = np.unique(np.searchsorted(np.cumsum(exact), np.arange(1, _PARTS) / _PARTS))
    part_of = np.searchsorted(edges, np.arange(crowd + 1), side="left")
    chances = np.bincount(part_of, exact)
    seen = np.bincount(part_of[flips.reshape(-1)], minlength=chances.size)
    return seen.astype(np.int64), chances.astype(float)


def _outlier_reasons(flips: NDArray[np.int64], crowd: int, q: float, alpha: float) -> list[str]:
    reasons = []
    for place, name in enumerate(("first", "last", "anywhere")):
        part = flips[place::3]
        count, records = int(part.sum()), part.size
        at = tails(count, records * crowd, records, q)
        p = 2 * min(at.at_most_bound, at.at_least_bound)
        if p <= alpha / 3:
            due = records * (q * (crowd - 1) + (1 - q))
            reasons.append(
                f"with the replaced record {name}, {count} of {records * crowd} bits flipped where"
                f" {due:.1f} are due (p = {p:.3g})."
            )
    return reasons


def _refuted_delta(flips: list[NDArray[np.int64]], lam: float, alpha: float) -> float:
    """Return a lower bound of delta = max_E P[E | D_m] - lam P[E | D], at level 1 - alpha.

    The event is "at least t flips in all", in either direction and for either order of the pair; it
    is chosen on the even runs and judged on the odd ones.
    """
    totals = [side.sum(axis=1) for side in flips]
    learn, judge = [side[::2] for side in totals], [side[1::2] for side in totals]

    def gap(event: tuple[int, int, int]) -> float:
        t, sign, first = event
        chances = [np.mean(sign * side >= t) for side in (learn[first], learn[1 - first])]
        return float(chances[0] - lam * chances[1])

    seen = np.unique(np.concatenate(learn))
    events = [(int(t), sign, first) for sign in (1, -1) for first in (0, 1) for t in seen * sign]
    t, sign, first = max(events, key=gap)
    hits = [np.array([int((sign * side >= t).sum())]) for side in judge]
    size = [np.array([len(side)]) for side in judge]
    low = float(lower(hits[first], size[first], alpha / 2)[0])
    high = float(upper(hits[1 - first], size[1 - first], alpha / 2)[0])
    return max(low - lam * high, 0.0)
