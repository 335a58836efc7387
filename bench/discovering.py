"""How well unknown words are discovered in large crowds: `python -m bench.discovering`.

Crowds of 10,000,000 whose words of 10 random letters fall off like 1 / rank; the tallies are drawn
from their exact law. Prints the table of docs/discover.md.
"""

from __future__ import annotations

import argparse
import string

import numpy as np

import shoal
from shoal.analysis.text.discovery import discover
from shoal.device.arrays.simulation_bits import simulation_generator
from shoal.lab.populations import simulate_texts
from shoal.planning.text_size import discovery_survey

CROWD = 10_000_000
LENGTH = 10
GRID = [("0.5", 10_000), ("1", 10_000), ("2", 10_000), ("1", 1_000), ("1", 100_000)]


def population(words: int, seed: int) -> dict[str, int]:
    """Different words of random letters, the most frequent first, and how many people have each."""
    generator = simulation_generator(seed)
    letters = np.array(list(string.ascii_lowercase))
    made: dict[str, None] = {}
    while len(made) < words:
        made["".join(generator.choice(letters, LENGTH))] = None
    shares = 1 / np.arange(1, words + 1)
    counts = generator.multinomial(CROWD, shares / shares.sum())
    return dict(zip(made, counts.tolist(), strict=True))


def measure(epsilon: str, words: int, runs: int) -> str:
    """Return one line of the table."""
    survey = discovery_survey("words", LENGTH)
    plan = shoal.plan(survey, crowd_size=CROWD, epsilon=epsilon, delta="1e-8")
    top = false = inside = 0
    found = []
    for seed in range(1, runs + 1):
        truth = population(words, seed)
        ranked = sorted(truth, key=lambda word: -truth[word])
        discovered = discover(plan, simulate_texts(plan, truth, seed=1000 + seed)).words
        names = [word.value for word in discovered]
        top += set(ranked[:10]) <= set(names)
        false += len(set(names) - set(truth))
        inside += sum(
            one.low <= truth[one.value] <= one.high for one in discovered if one.value in truth
        )
        found.append(len(names))
    covered = f"{inside / max(sum(found), 1):.1%}"
    return (
        f"| {epsilon} | {float(plan.q):.4f} | {words:,} | {top} of {runs} | {false} |"
        f" {np.mean(found):.0f} | {covered} |"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    runs = parser.parse_args().runs
    print("| ε | q | words | all of the top 10 found | false words | found | in 95 % |")
    print("|---|---|---|---|---|---|---|")
    for epsilon, words in GRID:
        print(measure(epsilon, words, runs), flush=True)


if __name__ == "__main__":
    main()
