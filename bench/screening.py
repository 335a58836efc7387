"""From which share on fakes are seen: `python -m bench.screening` prints the table of the docs.

For each plan and each kind of fakes, the smallest share of a ladder at which ten crowds out of ten
are called suspicious at an alarm of 1e-3. Crowds and fakes are seeded.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import shoal
from shoal.analysis.count_table import unpack
from shoal.analysis.screening import screen
from shoal.device.arrays.randomize import Original, pack
from shoal.device.arrays.simulation_bits import SimulationBits
from shoal.device.randomize import flip
from shoal.lab.populations import populate
from shoal.protocol.survey import Question
from shoal.protocol.wire import Rows, Synthetic

RUNS = 10
LADDER = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)
REPORTS = 10_000


def plans() -> dict[str, shoal.Plan]:
    """Plans of ten thousand people, each proven at a delta of 1e-6."""

    def options(count: int) -> tuple[str, ...]:
        return tuple(map(str, range(count)))

    def agreed(question: Question, epsilon: str) -> shoal.Plan:
        survey = shoal.Survey("screened", (question,))
        return shoal.plan(survey, crowd_size=REPORTS, epsilon=epsilon, delta="1e-6")

    return {
        "5 flags, ε = 1": agreed(shoal.Flags("f", options(5)), "1"),
        "40 flags, ε = 2": agreed(shoal.Flags("f", options(40)), "2"),
        "choice of 100, ε = 1": agreed(shoal.Choice("c", options(100)), "1"),
        "text of 256 bits, ε = 1": agreed(shoal.Text("t", bits=256, hashes=2, cohorts=8), "1"),
    }


def everything(plan: shoal.Plan, clear: Rows, noisy: Rows) -> Rows:
    """Set every bit."""
    return pack(np.ones((len(clear), plan.bits), bool))


def nothing(plan: shoal.Plan, clear: Rows, noisy: Rows) -> Rows:
    """Set no bit."""
    return np.zeros_like(clear)


def in_clear(plan: shoal.Plan, clear: Rows, noisy: Rows) -> Rows:
    """Send answers without flips."""
    return clear


def one_vector(plan: shoal.Plan, clear: Rows, noisy: Rows) -> Rows:
    """Send the same answer again and again, without flips."""
    return np.repeat(clear[:1], len(clear), axis=0)


def one_bit(plan: shoal.Plan, clear: Rows, noisy: Rows) -> Rows:
    """Flip bits like everybody, but never the last one, which is always set."""
    vectors = unpack(noisy, plan.bits)
    vectors[:, -1] = 1
    return pack(vectors)


def like_people(plan: shoal.Plan, clear: Rows, noisy: Rows) -> Rows:
    """Flip bits like everybody, of one and the same answer: people who say so."""
    same = Original(np.repeat(clear[:1], len(clear), axis=0), plan.bits)
    return flip(plan.q, same, random_bits=SimulationBits(len(clear))).rows


Fakes = Callable[[shoal.Plan, Rows, Rows], Rows]
KINDS: dict[str, Fakes] = {
    "every bit set": everything,
    "no bit set": nothing,
    "answers in clear": in_clear,
    "one answer in clear": one_vector,
    "last bit always set": one_bit,
    "one answer, with flips": like_people,
}


def is_found(plan: shoal.Plan, fakes: Fakes, share: float, seed: int) -> bool:
    """Whether one crowd with that share of fakes is called suspicious."""
    people = next(populate(plan.survey, REPORTS, np.random.default_rng(seed)))
    reports = flip(plan, people, random_bits=SimulationBits(seed))
    count = round(share * REPORTS)
    rows = reports.rows.copy()
    rows[:count] = fakes(plan, people.rows[:count], rows[:count])
    sent = Synthetic(rows, plan.bits, simulated=True, cohorts=reports.cohorts)
    return screen(plan, shoal.tally(plan, sent)).suspicious


def smallest_share(plan: shoal.Plan, fakes: Fakes) -> str:
    """Return the first share of the ladder at which all runs are found, in words."""
    for share in LADDER:
        if all(is_found(plan, fakes, share, seed) for seed in range(RUNS)):
            return f"{share:.4g}"
    return "never"


def main() -> None:
    """Print the table."""
    agreed = plans()
    print(
        "| fakes | "
        + " | ".join(f"{name} (q = {float(p.q):.3f})" for name, p in agreed.items())
        + " |"
    )
    print("|---" * (len(agreed) + 1) + "|")
    for kind, fakes in KINDS.items():
        cells = [smallest_share(plan, fakes) for plan in agreed.values()]
        print(f"| {kind} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
