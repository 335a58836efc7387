"""Cross tables under view counts: precision of a cell, size and power of the independence test.

    python -m bench.crosses [--runs 20000]

The survey asks for age (6 groups), brand (8) and 5 flags, and crosses age with brand: 20,000
people, epsilon 1, delta 1e-6, view counts. Every crowd is drawn person by person from a population,
as the table of ages and brands, and its counts from their exact law: each bit of each person is
flipped with probability q. Tests go through `shoal.associate`, as an analyst's do.
"""

from __future__ import annotations

import argparse

import numpy as np
from numpy.typing import NDArray

from shoal import Choice, Flags, Plan, Survey, Tally, plan
from shoal.analysis.association import associate
from shoal.device.arrays.simulation_bits import simulation_generator
from shoal.planning.certificate import certify

Shares = NDArray[np.float64]

AGES = ("under 18", "18-29", "30-44", "45-59", "60-74", "75 up")
BRANDS = tuple("ABCDEFGH")
FLAGS = ("app", "card", "club", "mail", "web")
CROWD = 20_000

EVEN = np.full(6, 1 / 6), np.full(8, 1 / 8)
UNEVEN = (
    np.array([0.4, 0.25, 0.18, 0.11, 0.05, 0.01]),
    np.array([0.45, 0.25, 0.12, 0.08, 0.05, 0.03, 0.015, 0.005]),
)


def survey_of(crossed: bool) -> Survey:
    """Return the survey, with or without its cross."""
    survey = Survey("shop", (Choice("age", AGES), Choice("brand", BRANDS), Flags("uses", FLAGS)))
    return survey.cross("age", "brand") if crossed else survey


def planned(survey: Survey) -> Plan:
    """Return the plan of the study."""
    return plan(survey, crowd_size=CROWD, epsilon="1", delta="1e-6", view="counts")


def preference(ages: Shares, brands: Shares) -> Shares:
    """Return a population whose young people like the first two brands four times as much."""
    table = np.outer(ages, brands)
    young = brands * np.array([4, 4, 1, 1, 1, 1, 1, 1])
    table[0] = ages[0] * young / young.sum()
    return table


def draw(agreed: Plan, shares: Shares, generator: np.random.Generator) -> Tally:
    """Draw a crowd from the population, and its tally."""
    q = float(agreed.q)
    people = generator.multinomial(CROWD, shares.reshape(-1)).reshape(shares.shape)
    flags = generator.binomial(CROWD, 0.3, len(FLAGS))
    truth = np.concatenate((people.sum(axis=1), people.sum(axis=0), flags, people.reshape(-1)))
    ones = generator.binomial(truth, 1 - q) + generator.binomial(CROWD - truth, q)
    return Tally(agreed.id, CROWD, ones, simulated=True)


def rejected(agreed: Plan, shares: Shares, runs: int, seed: int) -> NDArray[np.float64]:
    """Return how often independence was rejected at 5 % and at 1 %."""
    generator = simulation_generator(seed)
    p_values = np.array([
        associate(agreed, draw(agreed, shares, generator), "age", "brand").independence.p_value
        for _ in range(runs)
    ])  # fmt: skip
    return np.array([(p_values < level).mean() for level in (0.05, 0.01)])


def with_excess(agreed: Plan, margins: tuple[Shares, Shares]) -> list[Shares]:
    """Return populations in which one cell is off by what the statement of power says is seen."""
    ages, brands = margins
    independent = np.outer(ages, brands)
    tally = draw(agreed, independent, simulation_generator(0))
    statement = associate(agreed, tally, "age", "brand").sensitivity()
    assert statement is not None
    populations = []
    for i, j in ((0, 0), (2, 3), (3, 1)):
        row, column = np.eye(6)[i] - ages, np.eye(8)[j] - brands
        shift = np.outer(row, column) / (row[i] * column[j])
        populations.append(independent + statement.most / CROWD * shift)
    return populations


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20_000)
    runs = parser.parse_args().runs
    for crossed in (False, True):
        agreed = planned(survey_of(crossed))
        name = "with age x brand" if crossed else "without a cross"
        print(f"{name}: q = {float(agreed.q):.6f}, sigma {certify(agreed).sigma:.2f} people")
    print("| ages and brands | rejected at 5 % | at 1 % | preference found | power as stated |")
    print("|---|---|---|---|---|")
    for seed, (name, margins) in enumerate((("even", EVEN), ("uneven", UNEVEN)), 1):
        size = rejected(agreed, np.outer(*margins), runs, seed)
        found = rejected(agreed, preference(*margins), 100, seed)[0]
        populations = with_excess(agreed, margins)
        power = [rejected(agreed, one, runs // 10, seed)[0] for one in populations]
        parts = [f"{size[0]:.2%}", f"{size[1]:.2%}", f"{100 * found:.0f} of 100"]
        print(f"| {name} | {' | '.join(parts)} | {min(power):.1%} |", flush=True)


if __name__ == "__main__":
    main()
