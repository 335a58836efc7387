"""The level of the independence test, and coverage: `python -m bench.associating`.

Crowds are drawn as joint tables that the plan declares. Prints the table of docs/associate.md.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

import shoal
from shoal.analysis.association import associate, joint_groups
from shoal.analysis.tally import Tally
from shoal.device.arrays.simulation_bits import simulation_generator

SURVEY = shoal.Survey(
    "browser",
    (
        shoal.Flags("features", ("sync", "vpn", "reader", "translate", "cast", "wallet", "rss")),
        shoal.Choice("channel", ("release", "beta", "nightly")),
        shoal.Choice("system", ("a", "b", "c")),
    ),
)
ROWS, COLUMNS = np.array([0.6, 0.3, 0.1]), np.array([0.5, 0.3, 0.2])
INDEPENDENT = np.outer(ROWS, COLUMNS)
DEPENDENT = np.array([[0.36, 0.16, 0.08], [0.1, 0.13, 0.07], [0.04, 0.01, 0.05]])


def law(shares: NDArray[np.float64], q: float) -> NDArray[np.float64]:
    """Return the chance of each value of the six bits, the channel's first, least significant."""
    values = np.arange(64)[:, None] >> np.arange(6) & 1
    chances = np.zeros(64)
    for (row, column), share in np.ndenumerate(shares):
        truth = np.isin(np.arange(6), (row, 3 + column))
        wrong = (values != truth).sum(axis=1)
        chances += share * q**wrong * (1 - q) ** (6 - wrong)
    return chances


def tally_of(plan: shoal.Plan, table: NDArray[np.int64]) -> Tally:
    """Return a tally that holds a joint table of the six bits; the other bits say nothing."""
    start = SURVEY.slice_of("channel").start
    bits = tuple(range(start, start + 6))
    by_bit = np.zeros(plan.bits, np.int64)
    by_bit[list(bits)] = [table[np.arange(64) >> place & 1 == 1].sum() for place in range(6)]
    by_set_bits = np.zeros(plan.bits + 1, np.int64)
    by_set_bits[0] = table.sum()
    joint = {bits: table}
    return Tally(plan.id, int(table.sum()), by_bit, by_set_bits, joint=joint, simulated=True)


def measure(crowd: int, q: str, runs: int) -> str:
    """Return one line of the table."""
    groups = joint_groups(SURVEY, "channel", "system")
    plan = replace(shoal.plan(SURVEY, q=q), joint=groups)
    generator = simulation_generator(crowd)
    rejected = np.zeros(2)
    cell = difference = odds = 0
    truth = crowd * DEPENDENT[1, 0]
    a, b = DEPENDENT[1, 0] / DEPENDENT[1].sum(), DEPENDENT[[0, 2], 0].sum() / 0.7
    ratio = a / (1 - a) * (1 - b) / b
    for _ in range(runs):
        table = generator.multinomial(crowd, law(INDEPENDENT, float(plan.q)))
        found = associate(plan, tally_of(plan, table), "channel", "system")
        rejected += [found.independence.p_value < level for level in (0.05, 0.01)]
        table = generator.multinomial(crowd, law(DEPENDENT, float(plan.q)))
        pair = associate(
            plan, tally_of(plan, table), "channel=beta", "system=a", target="population"
        )
        cell += truth in pair["beta", "a"].interval()
        difference += (one := pair.difference()).low <= a - b <= one.high
        odds += (one := pair.odds_ratio()).low <= ratio <= one.high
    shares = [f"{count / runs:.1%}" for count in (*rejected, cell, difference, odds)]
    return f"| {crowd:,} | {q} | " + " | ".join(shares) + " |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2000)
    runs = parser.parse_args().runs
    print("| reports | q | rejected at 5 % | at 1 % | cell held | difference held | odds held |")
    print("|---|---|---|---|---|---|---|")
    crowds = product((1_000, 10_000, 1_000_000), ("0.02", "0.1", "0.25", "0.4"))
    for crowd, q in [(50, "0.02"), *crowds]:
        print(measure(crowd, q, runs), flush=True)


if __name__ == "__main__":
    main()
