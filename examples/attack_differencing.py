"""Differencing: two looks at a crowd that is still open reveal one report, bit by bit.

A tally of n + 1 reports minus the tally of the first n is the last report. The crowd no longer
hides it: only the local epsilon protects it. So a crowd is released whole, once.

Run ``python attack_differencing.py [PICTURE.png]``.
"""

from __future__ import annotations

import math
import sys

import numpy as np
from numpy.typing import NDArray

from shoal import Choice, Plan, Survey, plan
from shoal.analysis.count_table import unpack
from shoal.analysis.tally import Tallying
from shoal.device.arrays.randomize import Original, pack
from shoal.device.arrays.simulation_bits import SimulationBits
from shoal.device.randomize import flip

OPTIONS = 8
CROWD = 2000


def make_plan() -> Plan:
    """Return a plan that hides a report in a whole crowd, with few flips."""
    survey = Survey("party", (Choice("vote", tuple("abcdefgh")),))
    return plan(survey, crowd_size=CROWD, epsilon=1, delta="1e-6")


def last_report(agreed: Plan, seed: int) -> tuple[int, NDArray[np.int64], NDArray[np.uint8]]:
    """Tally n and n + 1 reports; return the last vote, the difference, and the last report."""
    noise = SimulationBits(seed)
    votes = (np.arange(CROWD) * 7 + seed) % OPTIONS
    original = Original(pack(np.eye(OPTIONS, dtype=np.uint8)[votes]), OPTIONS)
    reports = flip(agreed, original, random_bits=noise)
    looks = []
    for count in (CROWD - 1, CROWD):
        tallying = Tallying(agreed)
        tallying.add(reports.rows[:count], simulated=True)
        looks.append(np.asarray(tallying.result().by_bit, np.int64))
    return int(votes[-1]), looks[1] - looks[0], unpack(reports.rows[-1:], OPTIONS)[0]


def guess(difference: NDArray[np.int64]) -> int:
    """Return the most likely vote given one report: an option that it names, otherwise any."""
    named = np.flatnonzero(difference)
    # Take the first of equally likely options: votes are spread evenly, so this is fair.
    return int(named[0]) if len(named) else 0


def predicted_success(q: float, options: int) -> float:
    """Return how often the first option named is the vote, if votes are spread evenly.

    A vote at place v is named with probability p, and no option before it with p^v. Or no option
    is named at all, with probability q p^(K-1), and the vote is the first option.
    """
    p = 1 - q
    first = sum(p * p**v for v in range(options)) / options
    return first + q * p ** (options - 1) / options


def success(agreed: Plan, trials: int) -> float:
    """Return how often the guess is right, over crowds whose last votes cover all options."""
    right = 0
    for seed in range(trials):
        vote, difference, _ = last_report(agreed, seed)
        right += guess(difference) == vote
    return right / trials


def draw(path: str, agreed: Plan) -> None:
    """Draw the last report, which the crowd should have hidden."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.add_subplot()
    _, difference, _ = last_report(agreed, 1)
    axes.bar(list("abcdefgh"), difference, color="#0072B2")
    axes.set_xlabel("option")
    axes.set_ylabel("second tally minus first")
    axes.set_title(
        f"The last report: epsilon {agreed.promise.epsilon} was promised,"
        f" only {agreed.local_epsilon:.2f} protects it"
    )
    figure.savefig(path)


def main(arguments: list[str]) -> None:
    """Print what two looks reveal; draw it if a file is named."""
    agreed = make_plan()
    vote, difference, report = last_report(agreed, 1)
    print(f"the last report           {report.tolist()}")
    print(f"second tally minus first  {difference.tolist()}")
    print(f"the vote was option {vote}; the guess is option {guess(difference)}")
    q = float(agreed.q)
    print(f"guesses are right in {success(agreed, 400):.3f} of 400 crowds,", end=" ")
    print(f"predicted {predicted_success(q, OPTIONS):.3f}; by chance {1 / OPTIONS:.3f}")
    print(f"promised for the whole crowd:    epsilon {agreed.promise.epsilon}, delta 1e-6")
    local = math.ceil(1e4 * agreed.local_epsilon) / 1e4
    print(f"what protects the last report:   local epsilon {local}")
    if arguments:
        draw(arguments[0], agreed)


if __name__ == "__main__":
    main(sys.argv[1:])
