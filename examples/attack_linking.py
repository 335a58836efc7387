"""Linking: a permanent vector that is sent unchanged identifies its sender.

Everybody here has the same answer, so only the flips tell people apart. The attacker has
yesterday's report of one device and looks for today's among N, taking the most likely one. Without
fresh flips the two reports are equal and the device is found. With them it is found exactly as
often as `shoal.planning.memory.linking_probability` predicts.

Run ``python attack_linking.py [PICTURE.png]``.
"""

from __future__ import annotations

import math
import sys

import numpy as np

from shoal.analysis.count_table import unpack
from shoal.device.arrays.randomize import Original
from shoal.device.arrays.simulation_bits import SimulationBits, simulation_generator
from shoal.device.randomize import flip
from shoal.planning.memory import linking_probability
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Memory

BITS, CROWD, TRIALS = 40, 200, 600
Q1 = FlipProbability.at_least("0.15")
FRESH = ("0.01", "0.05", "0.1", "0.15", "0.2", "0.25", "0.3", "0.4")


def bare_linking_probability(bits: int, q1: FlipProbability, crowd: int) -> float:
    """Return how often a bare permanent vector is found; equal vectors share the chance.

    Another device has the same vector with w flips with probability q1^w p1^(bits-w).
    """
    q, total = float(q1), 0.0
    for wrong in range(bits + 1):
        same = q**wrong * (1 - q) ** (bits - wrong)
        chance = math.comb(bits, wrong) * same
        # 1 over 1 + Bin(crowd - 1, same), on average
        total += chance * -math.expm1(crowd * math.log1p(-same)) / (crowd * same)
    return total


def attack(memory: Memory | None, crowd: int, trials: int, seed: int) -> float:
    """Return how often the attacker finds the device; None sends bare permanent vectors."""
    noise, draw = SimulationBits(seed), simulation_generator(seed + 1)
    found = 0
    for _ in range(trials):
        truth = Original(np.zeros((crowd, BITS // 8), np.uint8), BITS)
        kept = flip(Q1 if memory is None else memory.q1, truth, random_bits=noise)
        if memory is None:
            held, today = kept.rows[0], kept.rows
            scores = -np.bitwise_count(today ^ held).sum(axis=1, dtype=np.float64)
        else:
            again = Original(kept.rows, BITS)
            held = flip(memory.q2, again, random_bits=noise).rows[0]
            today = flip(memory.q2, again, random_bits=noise).rows
            scores = likelihood(unpack(held[None], BITS)[0], unpack(today, BITS), memory)
        best = np.flatnonzero(np.isclose(scores, scores.max(), rtol=0, atol=1e-9))
        found += int(draw.choice(best)) == 0
    return found / trials


def likelihood(held: np.ndarray, today: np.ndarray, memory: Memory) -> np.ndarray:
    """Return ln P(report | same device as `held`) - ln P(report), for the answer 0...0."""
    q, q1, q2 = float(memory.q), float(memory.q1), float(memory.q2)
    both = (1 - q1) * q2**2 + q1 * (1 - q2) ** 2
    none = (1 - q1) * (1 - q2) ** 2 + q1 * q2**2
    table = np.log([
        [none / (1 - q) ** 2, q2 * (1 - q2) / (q * (1 - q))],
        [q2 * (1 - q2) / (q * (1 - q)), both / q**2],
    ])  # fmt: skip
    return np.asarray(table[held, today].sum(axis=1))


def draw(path: str) -> None:
    """Draw the prediction as a line and the simulated attacks as points."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.add_subplot()
    memories = [Memory(Q1, FlipProbability.at_least(q2)) for q2 in FRESH]
    x = [float(memory.q2) for memory in memories]
    axes.plot(x, [linking_probability(BITS, m, CROWD) for m in memories], label="predicted")
    found = [attack(memory, CROWD, TRIALS, seed) for seed, memory in enumerate(memories)]
    axes.plot(x, found, "o", label="simulated")
    axes.axhline(1 / CROWD, color="#666666", linestyle=":", label="guessing")
    axes.set_xlabel("q2, probability of a fresh flip")
    axes.set_ylabel(f"device found among {CROWD}")
    axes.legend(frameon=False)
    figure.savefig(path)


def main(arguments: list[str]) -> None:
    """Print what is predicted and what the attack achieves; draw it if a file is named."""
    print(f"{BITS} bits, q1 = {float(Q1):.3f}, one device among {CROWD} with the same answer")
    print("how often the device is found:")
    print("q2        predicted  simulated")
    bare = bare_linking_probability(BITS, Q1, CROWD)
    print(f"none      {bare:9.4f}  {attack(None, CROWD, TRIALS, 100):9.4f}")
    for seed, q2 in enumerate(FRESH):
        memory = Memory(Q1, FlipProbability.at_least(q2))
        predicted = linking_probability(BITS, memory, CROWD)
        print(f"{q2:8}  {predicted:9.4f}  {attack(memory, CROWD, TRIALS, seed):9.4f}")
    if arguments:
        draw(arguments[0])


if __name__ == "__main__":
    main(sys.argv[1:])
